"""Rung 5: simulation-based calibration, a gate for samplers and a report for bounds.

True sites come from the prior and data from them; then the rank of a true value among posterior draws is
uniform (Talts, Betancourt, Simpson, Vehtari and Gelman, 2018). Ranks of the log likelihood see mistakes that
ranks of the sites do not, a posterior that ignores the data among them (Modrak et al., "Simulation-based
calibration checking for Bayesian computation: the choice of test quantities shapes sensitivity", 2023).
"""

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any, NamedTuple

import jax
import numpy as np
from arviz_stats.base.array import array_stats
from numpyro.infer.hmc import HMC

from labelzoo.inference.checks.chains import (
    NotApplicableError,
    chain,
    kernel_of,
    quantities,
    run_all,
)
from labelzoo.inference.checks.geweke import normal_limit, not_applicable
from labelzoo.inference.checks.joint import NoJointPriorError, Replicates, replicates
from labelzoo.inference.checks.programs import TRACING, join_inputs
from labelzoo.inference.checks.ranks import Ranks, rank_among, thinned
from labelzoo.inference.checks.report import CheckResult
from labelzoo.inference.engine import Engine
from labelzoo.models.spec import ModelSpec

Array = Any
Say = Callable[[str], None]

DATA_SETS, WARMUP, DRAWS, THINNING = 300, 200, 200, 5
"""Data sets, sweeps of warm-up, draws kept and sweeps between them."""
HMC_PLAN = (100, 150, 2)
"""Data sets, warm-up and thinning for trajectories: their lengths differ, and all data sets wait for the
longest, but each is worth several sweeps."""
BOUND_SETS, SECONDS = 60, 60.0
"""Data sets of an engine that is run one data set at a time, and after how many seconds it is stopped."""
FEWEST = 20
"""Effective draws below which a quantity is not ranked."""
MOST_QUANTITIES = 60


class Calibration(NamedTuple):
    """Ranks of an engine's quantities and standardised errors.

    Attributes
    ----------
    ranks : list of Ranks
    errors : dict of str to array (replicate,)
        (posterior mean - truth) / posterior sd.
    unranked : list of str
        Quantities that mixed too slowly to be ranked.
    """

    ranks: list[Ranks]
    errors: dict[str, np.ndarray]
    unranked: list[str]

    @property
    def worst(self) -> Ranks:
        """The ranks furthest from uniform."""
        return max(self.ranks, key=lambda ranks: ranks.z)

    @property
    def spread(self) -> float:
        """Root mean square standardised error: 1 where calibrated, above 1 where sds are too small."""
        return float(np.sqrt(np.mean([np.mean(error**2) for error in self.errors.values()])))


def sbc_check(
    spec: ModelSpec,
    engine: Engine,
    seed: int = 0,
    families: int = 1,
    say: Say = lambda line: None,
    *,
    count: int | None = None,
    warmup: int | None = None,
    thinning: int | None = None,
    settings: Any = None,
    seconds: float = SECONDS,
) -> tuple[CheckResult, list[Ranks]]:
    """Rank true values among the draws of an engine, on data sets drawn from the prior.

    For a sampler a gate: on failure one fresh seed with four times the data sets decides. For a ``bound``
    engine a report without verdict: its posterior is not exact, and how far off it is is the result.

    Parameters
    ----------
    spec : ModelSpec
    engine : Engine
    seed, families : int
        `families` checks share the false alarm rate of .001.
    say : callable
        Told what is being done.
    count : int, optional
        Data sets; default 300 for sweeps, 100 for trajectories, 60 for a bound.
    warmup, thinning : int, optional
        Sweeps before the first and between kept draws.
    settings : mapping, optional
        Settings of the program; default `joint_settings`.
    seconds : float
        A bound engine stops after so long, with the data sets done by then.

    Returns
    -------
    CheckResult, list of Ranks
        No verdict and no ranks, with the reason, where the check does not apply.
    """
    try:
        if engine.kind == "point":
            raise NotApplicableError("its sites are points: there are no posterior draws to rank among")
        if engine.kind != "mcmc":
            found = _bound(spec, engine, seed, count or BOUND_SETS, settings, seconds, say)
            return _report(engine, found), found.ranks
        plan = HMC_PLAN if isinstance(kernel_of(spec, engine), HMC) else (DATA_SETS, WARMUP, THINNING)
        own = (count or plan[0], warmup or plan[1], thinning or plan[2])
        return _gate(spec, engine, seed, families, say, *own, settings)
    except (NotApplicableError, NoJointPriorError) as error:
        return not_applicable(engine, "sbc", error), []
    except LostDrawsError as error:
        return CheckResult(engine.name, "sbc", "", False, np.inf, 0.0, str(error)), []


def _gate(
    spec: ModelSpec,
    engine: Engine,
    seed: int,
    families: int,
    say: Say,
    count: int,
    warmup: int,
    thinning: int,
    settings: Any,
) -> tuple[CheckResult, list[Ranks]]:
    found = sampled(spec, engine, seed, count, warmup, thinning, settings, say)
    repeated = ""
    if found.ranks and found.worst.z > normal_limit(len(found.ranks), families):
        worst = found.worst
        say(f"{spec.name}: {engine.name}, calibration repeated, z {worst.z:.1f} at {worst.name}")
        found = sampled(spec, engine, seed + 1, 4 * count, warmup, thinning, settings, say)
        repeated = " (repeated with a fresh seed and four times the data sets)"
    if not found.ranks:
        reason = f"fewer than {FEWEST} effective draws of every quantity in {DRAWS * thinning} sweeps"
        return not_applicable(engine, "sbc", reason), []
    limit, worst = normal_limit(len(found.ranks), families), found.worst
    slow = f"; mixed too slowly to rank: {', '.join(found.unranked)}" if found.unranked else ""
    detail = (
        f"ranks on {len(worst.rank)} data sets, among {worst.draws} draws: least uniform of "
        f"{len(found.ranks)} quantities {worst.name}{repeated}{slow}"
    )
    result = CheckResult(engine.name, "sbc", worst.name, worst.z <= limit, worst.z, limit, detail)
    return result, found.ranks


def _report(engine: Engine, found: Calibration) -> CheckResult:
    worst = max(found.ranks, key=lambda ranks: ranks.tails)
    tails = float(np.mean([ranks.tails for ranks in found.ranks]))
    detail = (
        f"report on {len(worst.rank)} data sets: errors are {found.spread:.2f} posterior sds (1 if "
        f"calibrated), {100 * tails:.0f} % of ranks in the outer tenth, {100 * worst.tails:.0f} % of those "
        f"of {worst.name}"
    )
    return CheckResult(engine.name, "sbc", worst.name, None, found.spread, np.nan, detail)


def sampled(
    spec: ModelSpec,
    engine: Engine,
    seed: int,
    count: int,
    warmup: int,
    thinning: int,
    settings: Any,
    say: Say,
) -> Calibration:
    """Return the ranks of a sampler, all data sets in one compiled program."""
    joint = replicates(spec, seed, count, settings=settings, say=say)
    say(f"{spec.name}: {engine.name}, calibration on {joint.size} data sets")
    truth, draws = run_all(
        chain,
        joint,
        seed + 10_000,
        fast_compile=False,
        spec=spec,
        kernel=kernel_of(spec, engine),
        warmup=warmup,
        draws=DRAWS,
        thinning=thinning,
    )
    refuse_lost(truth, draws)
    return calibration(truth, draws, seed, exact=False)


class LostDrawsError(ValueError):
    """Draws that are NaN: the sampler is broken, whatever the other ranks say."""


def refuse_lost(truth: Any, draws: Any) -> None:
    """Refuse quantities without a true value, and draws that are NaN.

    Raises
    ------
    NotApplicableError
        If the joint draws lack what the sampler's quantities need.
    LostDrawsError
        If a draw is NaN.
    """
    absent = sorted(set(draws) - set(truth))
    if absent:
        raise NotApplicableError(f"the joint draws give no true value of {', '.join(absent)}")
    for name, values in draws.items():
        share = float(np.isnan(values).any(axis=tuple(range(1, values.ndim))).mean())
        if share:
            raise LostDrawsError(f"{name} is NaN in some draw of {100 * share:.3g} % of the data sets")


def calibration(truth: Any, draws: Any, seed: int, *, exact: bool) -> Calibration:
    """Rank every number of the quantities.

    Parameters
    ----------
    truth : dict of str to array (replicate, value)
    draws : dict of str to array (replicate, draw, value)
    seed : int
        Breaks ties.
    exact : bool
        The draws are independent; else as many are used as are effective in nine data sets of ten.
    """
    rng = np.random.default_rng([seed, 4])
    out = Calibration([], {}, [])
    for name, true, values in _numbers(truth, draws):
        if np.ptp(values) == 0:
            continue
        effective = float(values.shape[1]) if exact else effective_draws(values)
        if effective < FEWEST:
            out.unranked.append(name)
            continue
        kept = values[:, thinned(values.shape[1], effective)]
        out.ranks.append(Ranks(name, rank_among(true, kept, rng), kept.shape[1]))
        sd = values.std(axis=1)
        out.errors[name] = (values.mean(axis=1) - true) / np.where(sd > 0, sd, np.inf)
    return out


def _numbers(truth: Any, draws: Any) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield name, truth (replicate,) and draws (replicate, draw) of at most `MOST_QUANTITIES` numbers."""
    names = [(name, i) for name in truth if name in draws for i in range(np.shape(truth[name])[1])]
    single = [(name, i) for name, i in names if np.shape(truth[name])[1] == 1]
    rest = [pair for pair in names if pair not in single]
    most = max(MOST_QUANTITIES - len(single), 1)
    chosen = [rest[k] for k in np.unique(np.linspace(0, len(rest) - 1, min(most, len(rest))).astype(int))]
    for name, i in single + chosen:
        label = name if (name, i) in single else f"{name}[{i}]"
        yield label, truth[name][:, i], draws[name][:, :, i]


def effective_draws(values: np.ndarray, chains: int = 60) -> float:
    """Return the bulk effective sample size that nine chains of ten reach, of (replicate, draw) values."""
    some = values[:: max(1, len(values) // chains)]
    sizes = [float(array_stats.ess(one[None], chain_axis=0, draw_axis=1)) for one in some if np.ptp(one) > 0]
    return float(np.quantile(sizes, 0.1)) if sizes else 0.0


def _bound(
    spec: ModelSpec, engine: Engine, seed: int, count: int, settings: Any, seconds: float, say: Say
) -> Calibration:
    """Return the ranks of an engine that is run on one data set after another."""
    joint = replicates(spec, seed, count, settings=settings, say=say)
    say(f"{spec.name}: {engine.name}, calibration report on up to {joint.size} data sets")
    options = {**engine.options, **({"khat_samples": 0} if "khat_samples" in engine.options else {})}
    begin, truths, draws = perf_counter(), [], []
    with jax.enable_x64(True):
        measure = _measure(spec, joint)
        for index in range(joint.size):
            key = jax.random.fold_in(jax.random.key(seed + 10_000), index)
            result = engine.run(spec, joint.inputs(index), rng_key=key, progress=False, **options)
            arrays = [leaf[index] for leaf in joint.arrays]
            drawn = {name: value[0] for name, value in result.draws.items()}
            draws.append(measure(drawn, arrays))
            truths.append(measure({n: v[index][None] for n, v in joint.sites.items()}, arrays))
            if perf_counter() - begin > seconds and index + 1 >= FEWEST:
                break
    truth = {name: np.stack([one[name][0] for one in truths]) for name in draws[0] if name in truths[0]}
    return calibration(truth, {n: np.stack([one[n] for one in draws]) for n in truth}, seed, exact=True)


def _measure(spec: ModelSpec, joint: Replicates) -> Callable[[Any, Any], dict[str, np.ndarray]]:
    """Return ``measure(draws, arrays)``: the quantities of each draw, compiled once for all data sets."""

    def each(draws: Any, arrays: Any) -> Any:
        inputs = join_inputs(arrays, joint.static)
        return jax.vmap(lambda draw: quantities(spec, draw, inputs))(draws)

    compiled = jax.jit(each)

    def measure(draws: Any, arrays: Any) -> dict[str, np.ndarray]:
        with TRACING:
            return {name: np.asarray(value) for name, value in compiled(draws, arrays).items()}

    return measure
