"""Rung 6: an engine's posterior against a stored reference, by pooled Monte Carlo error.

Means and sds of all functionals are compared at once, at a family-wise rate of false alarms; after a first
refusal one run from a fresh seed with four times the draws decides.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr
from scipy.stats import norm

from labelzoo.inference.checks.reference_files import as_settings, load_reference, reference_data, validated
from labelzoo.inference.checks.reference_posterior import sd_errors
from labelzoo.inference.checks.report import CheckResult
from labelzoo.inference.compare.functionals import evaluate
from labelzoo.inference.compare.verdict import FALSE_ALARM, RHAT_LIMIT, Moments, moments
from labelzoo.inference.fit import find_engine
from labelzoo.models import registry
from labelzoo.models.spec import ModelSpec

Array = Any

MIN_CONJUGATE_DRAWS = 4000
"""Independent draws cost little; so many are compared."""
INDEPENDENT_PARTS = 4
"""Chains into which the independent draws of a closed form are dealt."""
MIN_OWN_ESS = 400
"""Effective draws of every functional that an engine needs for a verdict: its Monte Carlo errors are
estimates."""

FACTOR = 4
"""How many times longer the deciding run is."""


class Gaps(NamedTuple):
    """Standardised differences from a reference, arrays (functional,).

    Attributes
    ----------
    z_mean, z_sd
        Over the pooled Monte Carlo error.
    shift
        |mean difference| in the reference's sds.
    upper
        Its 95 % upper limit.
    """

    z_mean: Array
    z_sd: Array
    shift: Array
    upper: Array


def agreement(
    posterior: Any, reference: Any, *, data: Any = None, rate: Any = FALSE_ALARM, name: str = ""
) -> CheckResult:
    """Compare the functionals of a posterior with those of a reference.

    Parameters
    ----------
    posterior : DataTree or mapping
        What an engine returned, or arrays (chain, draw, ...) by site.
    reference : mapping or str
        What `load_reference` returned, or a name for it.
    data : LabelData, optional
        The data, where the reference cannot name them.
    rate : float
        Probability that a right sampler is refuted, all functionals together.
    name : str
        What to call the posterior in the result; default: its engine.

    Returns
    -------
    CheckResult
        ``passed`` is None where there is no verdict: an engine that is not ``mcmc``, chains that have not
        converged, or fewer than `MIN_OWN_ESS` effective draws.

    Raises
    ------
    ValueError
        If the posterior is of another model, data set or settings, or lacks what the functionals need.
    """
    reference = find_reference(reference)
    if not isinstance(rate, int | float) or not 0 < rate < 1:
        raise ValueError(f"rate must be between 0 and 1, got {rate!r}")
    spec = registry.get(reference["model"]).spec
    data = reference_data(reference, data)
    kind = "mcmc"
    if isinstance(posterior, xr.DataTree):
        refuse_other_posterior(posterior, reference)
        kind, name = posterior.attrs["kind"], name or posterior.attrs["engine"]
    with jax.enable_x64(True):
        inputs = spec.prepare(data, as_settings(reference["settings"]))
    values, names = functional_values(spec, posterior, inputs)
    if names != list(reference["functionals"]):
        raise ValueError(f"functionals {names[:5]}... are not those of the reference of {spec.name}")
    stored = {
        key: np.array([_number(row[key]) for row in reference["functionals"].values()]) for key in _KEYS
    }
    finite = np.isfinite(values).all(axis=(0, 1))
    if not finite.all():
        lost = [name for name, whole in zip(names, finite, strict=True) if not whole]
        raise ValueError(f"the posterior has draws that are not finite: {', '.join(lost[:5])}")
    if kind == "conjugate" and values.shape[0] == 1 and values.shape[1] >= 4 * INDEPENDENT_PARTS:
        # Independent draws are of one chain only in name; R-hat wants several.
        whole = values.shape[1] // INDEPENDENT_PARTS * INDEPENDENT_PARTS
        values = values[0, :whole].reshape(INDEPENDENT_PARTS, -1, values.shape[2])
    own = moments(values)
    found = gaps(own, sd_errors(values), stored)
    limit = float(norm.isf(rate / (4 * len(names))))
    return _judge(name or "draws", kind, own, found, names, limit)


_KEYS = ("mean", "sd", "mcse_mean", "mcse_sd")


def _number(value: float | None) -> float:
    return 0.0 if value is None else float(value)


def find_reference(reference: Any) -> dict[str, Any]:
    """Return a reference by name, or the mapping itself where its layout is right."""
    return (
        validated(dict(reference), "given") if isinstance(reference, Mapping) else load_reference(reference)
    )


def refuse_other_posterior(tree: xr.DataTree, reference: Mapping[str, Any]) -> None:
    """Refuse a posterior of another model, of other data or under other settings.

    Raises
    ------
    ValueError
        That names the difference.
    """
    attrs = tree.attrs
    if attrs["model"] != reference["model"]:
        raise ValueError(f"the posterior is of {attrs['model']}, the reference of {reference['model']}")
    if attrs["data_hash"] != reference["data_hash"]:
        raise ValueError("the posterior was fitted to other data than the reference")
    own = json.loads(attrs["settings"])
    other = [n for n, v in reference["settings"].items() if own.get(n) != v]
    if other:
        mine, theirs = own.get(other[0]), reference["settings"][other[0]]
        raise ValueError(f"the posterior has {other[0]}={mine!r}, the reference {theirs!r}")


def functional_values(spec: ModelSpec, posterior: Any, inputs: Mapping[str, Any]) -> tuple[Array, list[str]]:
    """Return the functionals of a DataTree or of arrays by site: (chain, draw, functional), and names."""
    if not isinstance(posterior, xr.DataTree):
        posterior = _as_tree(posterior)
    try:
        return evaluate(spec, posterior, inputs)
    except KeyError as error:
        raise ValueError(
            f"the posterior lacks the site {error}, which the functionals of {spec.name} read"
        ) from None
    except TypeError as error:
        raise ValueError(f"the draws do not fit {spec.name}: {error}") from error


def _as_tree(draws: Any) -> xr.DataTree:
    """Put arrays (chain, draw, ...) into the group that `evaluate` reads."""
    if not isinstance(draws, Mapping) or not draws:
        raise ValueError("posterior must be a DataTree, or a mapping from site to array (chain, draw, ...)")
    arrays = {site: np.asarray(values) for site, values in draws.items()}
    empty = [site for site, values in arrays.items() if values.size == 0]
    if empty:
        raise ValueError(f"there are no draws of {', '.join(empty)}")
    sizes = {values.shape[:2] for values in arrays.values()}
    if len(sizes) > 1 or min(values.ndim for values in arrays.values()) < 2:
        shapes = {site: values.shape for site, values in arrays.items()}
        raise ValueError(f"draws must share their first two axes (chain, draw), got shapes {shapes}")
    variables = {
        site: (("chain", "draw", *(f"{site}_{i}" for i in range(values.ndim - 2))), values)
        for site, values in arrays.items()
    }
    return xr.DataTree.from_dict({"posterior": xr.Dataset(variables)})


def gaps(own: Moments, own_sd_error: Array, stored: Mapping[str, Array]) -> Gaps:
    """Standardise the differences of means and sds; infinite where only one side ever moves."""
    fixed = (stored["sd"] == 0) & (own.sd == 0)
    error = np.hypot(np.nan_to_num(own.mcse), stored["mcse_mean"])
    sd_error = np.hypot(np.nan_to_num(own_sd_error), stored["mcse_sd"])
    gap, sd_gap = np.abs(own.mean - stored["mean"]), np.abs(own.sd - stored["sd"])
    same = gap <= 1e-9 * (1 + np.abs(stored["mean"]))
    with np.errstate(divide="ignore", invalid="ignore"):
        z_mean = np.where(fixed, np.where(same, 0.0, np.inf), gap / error)
        z_sd = np.where(fixed, 0.0, sd_gap / sd_error)
        shift = np.where(stored["sd"] > 0, gap / stored["sd"], 0.0)
        upper = np.where(stored["sd"] > 0, (gap + norm.ppf(0.95) * error) / stored["sd"], 0.0)
    one_moves = (stored["sd"] > 0) != (own.sd > 0)
    return Gaps(np.where(one_moves, np.inf, z_mean), np.where(one_moves, np.inf, z_sd), shift, upper)


def _judge(name: str, kind: str, own: Moments, found: Gaps, names: list[str], limit: float) -> CheckResult:
    z = np.maximum(found.z_mean, found.z_sd)
    worst = int(z.argmax())
    what = "mean" if found.z_mean[worst] >= found.z_sd[worst] else "sd"
    numbers = (
        f"z = {z[worst]:.1f} for the {what} of {names[worst]}, limit {limit:.1f} for {2 * len(names)} "
        f"comparisons; means differ by at most {found.upper.max():.2g} posterior sd (95 % limits)"
    )
    result = CheckResult(name, "agreement", "functionals", None, float(z[worst]), limit, "")
    if kind not in ("mcmc", "conjugate"):
        far = found.shift.max()
        return replace(result, detail=f"{kind} engine, not judged: means up to {far:.2g} posterior sd away")
    moves = own.sd > 0
    rhat, ess = own.rhat[moves], np.minimum(own.ess_bulk, own.ess_tail)[moves]
    if moves.any() and not (rhat <= RHAT_LIMIT).all():
        return replace(result, detail=f"{NO_VERDICT}: chains not converged, R-hat {np.max(rhat):.3f}")
    if moves.any() and not (ess >= MIN_OWN_ESS).all():
        return replace(
            result, detail=f"{NO_VERDICT}: {np.min(ess):.0f} effective draws, {MIN_OWN_ESS} needed"
        )
    passed = bool(z[worst] <= limit)
    return replace(result, passed=passed, detail=f"{'agrees' if passed else 'refuted'}: {numbers}")


NO_VERDICT = "no verdict"


def sequential_agreement(
    run: Callable[[int, int], Any], reference: Any, *, seed: int, data: Any = None, name: str = ""
) -> CheckResult:
    """Compare a run with a reference; where it does not agree, one fresh and longer run decides.

    Parameters
    ----------
    run : callable
        ``run(seed, factor) -> posterior`` with `factor` times the usual draws.
    reference, data, name
        As in `agreement`.
    seed : int
        Of the first run; that of the second follows from it.

    Returns
    -------
    CheckResult
        Failed, too, where the longer run has not converged; None only for engines that are not judged.
    """
    reference = find_reference(reference)
    first = agreement(run(seed, 1), reference, data=data, name=name)
    if first.passed or (first.passed is None and not first.detail.startswith(NO_VERDICT)):
        return replace(first, detail=f"{first.detail}; seed {seed}")
    fresh = int(np.random.SeedSequence([seed, 1]).generate_state(1)[0])
    second = agreement(run(fresh, FACTOR), reference, data=data, name=name)
    told = f"{second.detail}; seed {fresh}, {FACTOR} times the draws, after seed {seed}: {first.detail}"
    return replace(second, passed=bool(second.passed), detail=told)


def check_agreement(
    reference: Any, engine: str, *, seed: int = 0, data: Any = None, **options: Any
) -> CheckResult:
    """Run an engine on the data of a reference and compare, by `sequential_agreement`.

    Parameters
    ----------
    reference : mapping or str
    engine : str
        One of the model's engines.
    seed : int
    **options
        Options of the engine.

    Raises
    ------
    ValueError
        If there is no such engine or option.
    """
    reference = find_reference(reference)
    entry = registry.get(reference["model"])
    chosen, found = find_engine(entry, engine), reference_data(reference, data)
    settings = as_settings(reference["settings"])
    base = {**chosen.options, **options}

    def run(at: int, factor: int) -> xr.DataTree:
        longer = {"num_samples": factor * base["num_samples"]} if "num_samples" in base else {}
        if chosen.kind == "conjugate" and "num_samples" in base:
            longer["num_samples"] = max(longer["num_samples"], factor * MIN_CONJUGATE_DRAWS)
        return chosen(entry.spec, found, rng_key=at, **settings, **options | longer)

    return sequential_agreement(run, reference, seed=seed, data=found, name=engine)
