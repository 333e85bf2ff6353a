"""The engines ``mean_field`` and ``structured``: coordinate ascent from several starts, then draws of q."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr

from labelzoo.arguments import label_data, size_words, whole_number
from labelzoo.inference.engine import Engine, EngineResult
from labelzoo.inference.fixed_point import FixedPointResult, check_options, iterate
from labelzoo.inference.gp_bernoulli_mixture import mean_field, starts, structured
from labelzoo.inference.gp_bernoulli_mixture.ascent import guarded
from labelzoo.inference.gp_bernoulli_mixture.bound_draws import log_weights, theta_draws, white_draws
from labelzoo.inference.gp_bernoulli_mixture.factors import Factors, Problem, problem_of
from labelzoo.inference.gp_bernoulli_mixture.judges import refuse_inducing
from labelzoo.inference.reference.khat import MIN_WEIGHTS, psis_khat
from labelzoo.models.spec import MAX_DENSE_BYTES, ModelSpec

Array = Any
Inputs = Mapping[str, Any]

OPTIONS: dict[str, Any] = {
    "max_iter": 400,
    "tolerance": 1e-7,
    "num_starts": 3,
    "accelerate": True,
    "num_samples": 400,
    "khat_samples": 200,
    "warm_from": None,
    "max_bytes": MAX_DENSE_BYTES,
}
"""max_iter, tolerance: most sweeps, and the relative change of the bound that ends them.
num_starts: k-means on the labels, EM for a Bernoulli mixture and random responsibilities in turn; each climbs
`RACE` sweeps, which max_iter does not count, and the best goes on.
accelerate: steps of the gates longer than their update, guarded by the bound.
num_samples: draws of q. khat_samples: importance weights for k-hat (0: none).
warm_from: path of a posterior of structured or mean_field; rows at positions that it had start from its
factors, the others from their prediction.
max_bytes: largest memory of draws and matrices together."""

RACE = 20
"""Sweeps that every start makes before the best is chosen."""
INNER = ("root", "iterate")


class Climb(NamedTuple):
    """How one engine climbs.

    Attributes
    ----------
    start : callable
        ``start(problem, phi) -> state``.
    sweep : callable
        ``sweep(problem, state, length) -> state``.
    lengthen : bool
        Steps may be longer than the update.
    """

    start: Callable[[Problem, Array], Any]
    sweep: Callable[[Problem, Any, float], Any]
    lengthen: bool = True


def climb_of(name: str, accelerate: Any = True, inner: str = "root") -> Climb:
    """Return the climb of ``structured`` or ``mean_field``.

    Raises
    ------
    ValueError
        If `accelerate` is no truth value or `inner` is neither root nor iterate.
    """
    if not isinstance(accelerate, bool | np.bool_):
        raise ValueError(f"accelerate must be True or False, got {accelerate!r}")
    if inner not in INNER:
        raise ValueError(f"inner must be one of {', '.join(INNER)}, got {inner!r}")
    if name == "structured":
        return Climb(structured.start_from, structured.sweep, bool(accelerate))
    if inner == "root":
        return Climb(mean_field.start_from, mean_field.sweep, bool(accelerate))
    return Climb(mean_field.start_from, partial(mean_field.sweep, root=False), False)


def step_of(climb: Climb, problem: Problem) -> Callable[[Any], tuple[Any, float]]:
    """Return ``state -> (state, bound)`` for the driver."""

    def sweep(state: Any, length: float) -> Any:
        return climb.sweep(problem, state, length)

    def step(state: Any) -> tuple[Any, float]:
        new = guarded(sweep, state) if climb.lengthen else sweep(state, 1.0)
        return new, new.objective

    return step


def _blocks(state: Any) -> dict[str, Array]:
    return {**state.factors._asdict(), "divergence": state.divergence}


def best_start(
    climb: Climb, problem: Problem, num_starts: int, rng: np.random.Generator
) -> tuple[Any, list[float], int]:
    """Return the state of the best of several starts after `RACE` sweeps, its trace, and its number."""
    step = step_of(climb, problem)
    best: tuple[Any, list[float], int] | None = None
    for number in range(num_starts):
        state = climb.start(problem, starts.responsibilities_of(problem, number, rng))
        trace: list[float] = []
        for _ in range(1 if num_starts == 1 else RACE):
            state, value = step(state)
            if not np.isfinite(value):
                bad = [name for name, array in _blocks(state).items() if not np.isfinite(array).all()]
                raise FloatingPointError(
                    f"start {number}: the bound is {value}; not finite: {', '.join(bad) or 'none'}"
                )
            trace.append(value)
        if best is None or value > best[0].objective:
            best = (state, trace, number)
    assert best is not None
    return best


def ascend(
    climb: Climb,
    problem: Problem,
    rng: np.random.Generator,
    *,
    num_starts: int,
    max_iter: Any,
    tolerance: Any,
    progress: bool = False,
    warm: tuple[Mapping[str, Any], Array] | None = None,
    name: str = "sweep",
) -> tuple[FixedPointResult, list[float], int]:
    """Climb to rest; return where, the trace before the driver's, and the number of the start (-1: warm)."""
    if warm is not None:
        phi, factors = starts.warm_start(problem, *warm)
        state, trace, number = _at(climb, problem, phi, factors), list[float](), -1
    else:
        state, trace, number = best_start(climb, problem, num_starts, rng)
    options: dict[str, Any] = {"max_iter": max_iter, "tolerance": tolerance, "progress": progress}
    result = iterate(step_of(climb, problem), state, None, blocks=_blocks, name=name, **options)
    return result, trace, number


def _at(climb: Climb, problem: Problem, phi: Array, factors: Any) -> Any:
    """Return the climb's state at the gates of `factors`, from which a plain sweep goes on."""
    state = climb.start(problem, phi)
    return state._replace(factors=factors)


def _run(
    spec: ModelSpec,
    inputs: Inputs,
    *,
    rng_key: Any,
    progress: bool = False,
    method: str,
    max_iter: Any,
    tolerance: Any,
    num_starts: Any,
    accelerate: Any,
    num_samples: Any,
    khat_samples: Any,
    warm_from: Any,
    max_bytes: Any,
    inner: Any = "root",
    previous: tuple[Mapping[str, Any], Array] | None = None,
) -> EngineResult:
    check_options(max_iter, tolerance)
    climb = climb_of(method, accelerate, inner)
    count, restarts = (
        whole_number("num_samples", num_samples, 1),
        whole_number("num_starts", num_starts, 1, 1000),
    )
    khats = whole_number("khat_samples", khat_samples, 0)
    if 0 < khats < MIN_WEIGHTS:
        raise ValueError(f"khat_samples must be 0 or at least {MIN_WEIGHTS}, got {khat_samples!r}")
    begin = time.perf_counter()
    problem = _problem(inputs, method, max(count, khats), whole_number("max_bytes", max_bytes, 1))
    warm = previous if previous is not None else _warm(warm_from, inputs)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(rng_key)).ravel())
    limits: dict[str, Any] = {"num_starts": restarts, "max_iter": max_iter, "tolerance": tolerance}
    result, trace, number = ascend(climb, problem, rng, progress=progress, warm=warm, name=method, **limits)
    factors: Factors = result.state.factors
    attrs: dict[str, Any] = {"start": "earlier posterior" if number < 0 else _way(number)}
    if khats:
        attrs["khat"] = psis_khat(log_weights(problem, factors, khats, rng))
    return EngineResult(
        draws=q_draws(problem, factors, count, rng),
        optimization={"objective": np.concatenate([trace, result.objective])},
        run_seconds=time.perf_counter() - begin,
        converged=result.converged,
        message=result.message,
        attrs=attrs,
        state=kept_state(factors),
    )


def _way(number: int) -> str:
    names = ("k-means", "Bernoulli mixture", "random")
    return f"{names[number % 3]}, start {number}"


def q_draws(problem: Problem, factors: Factors, count: int, rng: np.random.Generator) -> dict[str, Array]:
    """Return draws of ``white``, ``component_probs`` and expected ``component_size``, (1, draw, ...)."""
    shape = (count, problem.num_components, problem.factor.shape[1])
    white, _ = white_draws(problem, factors, rng.standard_normal(shape))
    theta = theta_draws(factors.positive, factors.negative, count, rng)
    size = np.tile(factors.responsibility.sum(axis=0), (1, count, 1))
    return {"white": white[None], "component_probs": theta[None], "component_size": size}


def kept_state(factors: Factors) -> dict[str, Array]:
    """Return what the group ``engine_state`` keeps: q and the start of a later fit."""
    return {name: np.asarray(getattr(factors, name)) for name in starts.STATE}


def _problem(inputs: Inputs, method: str, draws: int, max_bytes: int) -> Problem:
    if inputs.get("residual") is not None or "missing" in inputs:
        raise ValueError(f"num_inducing is read by the engine sparse alone: leave it out for {method}")
    refuse_inducing(inputs, method)
    rows, basis = np.shape(inputs["factor"])
    components, labels = np.shape(inputs["prior_positive"])
    sampled = 8.0 * draws * components * (basis + labels)
    tables = 8.0 * (3 * rows * rows + rows * basis + 3 * rows * labels + 12 * rows * components)
    if sampled + tables > max_bytes:
        raise ValueError(
            f"{method} at {rows} rows, {components} components and {labels} labels takes "
            f"{size_words(tables)} and its {draws} draws {size_words(sampled)}, above max_bytes="
            f"{size_words(max_bytes)}: fewer num_samples, or the engine sparse"
        )
    return problem_of(inputs)


def _warm(path: Any, inputs: Inputs) -> tuple[Mapping[str, Any], Array] | None:
    """Return state and row numbers of the stored posterior that a run starts from."""
    if path is None:
        return None
    from labelzoo.inference.posterior import load

    try:
        tree = load(path)
    except (ValueError, OSError) as error:
        raise ValueError(f"warm_from: {error}") from error
    rows = np.asarray(inputs.get("fitted_row", np.arange(len(inputs["factor"]))))
    before = tree["constant_data"].dataset
    earlier = before["fitted_row"].values if "fitted_row" in before else None
    return earlier_state(tree, rows, earlier)


def earlier_state(
    tree: xr.DataTree, rows: Array, earlier: Array | None = None
) -> tuple[Mapping[str, Any], Array]:
    """Return the kept state of a posterior, and which of its rows each of `rows` (names or numbers) is.

    Raises
    ------
    ValueError
        If the posterior keeps no variational state.
    """
    if "engine_state" not in tree.children or "responsibility" not in tree["engine_state"]:
        raise ValueError(
            "the posterior to start from keeps no variational state: it must be of structured or mean_field"
        )
    state = {str(name): array.values for name, array in tree["engine_state"].data_vars.items()}
    broken = [
        name
        for name, array in state.items()
        if not np.isfinite(array).all() or (name != "potential" and (array < 0).any())
    ]
    if broken:
        raise ValueError(
            f"the posterior to start from is damaged: engine_state/{broken[0]} has values that are not "
            "finite or below 0"
        )
    known = np.arange(len(state["responsibility"])) if earlier is None else np.asarray(earlier)
    place = {name: i for i, name in enumerate(known.tolist())}
    return state, np.array([place.get(name, -1) for name in np.asarray(rows).tolist()], int)


def refit(previous: Any, data: Any, *, rng_key: Any, progress: bool = False, **changed: Any) -> Any:
    """Fit `data` with the settings and options of `previous`, starting where it ended.

    Rows that `previous` had, by their example names, start from their factors; a new row from its prediction.
    Their labels may have changed.

    Parameters
    ----------
    previous : DataTree
        Of ``structured`` or ``mean_field``.
    data : LabelData
        All rows, old and new.
    rng_key : key or int
    progress : bool
    **changed
        Settings and options other than before.

    Raises
    ------
    ValueError
        If `previous` is of another model or engine, or components or labels differ.
    """
    from labelzoo.models import registry

    if not isinstance(previous, xr.DataTree):
        raise ValueError(f"previous must be a posterior (DataTree), got {type(previous).__name__}")
    label_data(data)
    name = previous.attrs.get("engine")
    if previous.attrs.get("model") != "gp_bernoulli_mixture" or name not in ENGINES:
        raise ValueError(
            "previous must be a posterior of gp_bernoulli_mixture by structured or mean_field, not of "
            f"{previous.attrs.get('model')!r} by {name!r}"
        )
    given = json.loads(previous.attrs["settings"]) | json.loads(previous.attrs["options"]) | changed
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    before = np.asarray(previous["observed_data"]["obs"].values)
    fitted = previous["constant_data"].dataset
    earlier = before[fitted["fitted_row"].values] if "fitted_row" in fitted else before
    names = np.asarray(data.example_names)

    def run(spec: ModelSpec, inputs: Inputs, **options: Any) -> EngineResult:
        rows = names[np.asarray(inputs["fitted_row"])] if "fitted_row" in inputs else names
        warm = earlier_state(previous, rows, earlier)
        return ENGINES[str(name)].run(spec, inputs, previous=warm, **options)

    warmed = replace(ENGINES[str(name)], run=run)
    spec = registry.get("gp_bernoulli_mixture").spec
    return warmed(spec, data, rng_key=rng_key, progress=progress, **given)


structured_engine = Engine(
    "structured",
    "bound",
    partial(_run, method="structured"),
    random_sites=("white", "component_probs"),
    options=OPTIONS,
    description="Coordinate ascent with z, lambda, v and omega of a row joint: the tighter bound; quick.",
)
mean_field_engine = Engine(
    "mean_field",
    "bound",
    partial(_run, method="mean_field"),
    random_sites=("white", "component_probs"),
    options={**OPTIONS, "inner": "root"},
    description="The published factorisation, corrected; a looser bound and smaller variances.",
)
ENGINES = {"structured": structured_engine, "mean_field": mean_field_engine}
