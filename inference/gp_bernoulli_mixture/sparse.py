"""The engine ``sparse``: gates through a few inducing rows, for many rows and labels.

Neither rows x labels nor rows x rows is ever held: labels stay csr, and a pass over the rows costs
2 rows component basis^2 flops and holds rows x (basis + 4 component) numbers.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from labelzoo.arguments import real, size_words, whole_number
from labelzoo.inference.engine import Engine, EngineResult
from labelzoo.inference.fixed_point import FixedPointResult, check_options, iterate
from labelzoo.inference.gp_bernoulli_mixture import sparse_steps, starts
from labelzoo.inference.gp_bernoulli_mixture.ascent import guarded
from labelzoo.inference.gp_bernoulli_mixture.bound_draws import theta_draws
from labelzoo.inference.gp_bernoulli_mixture.factors import Problem
from labelzoo.inference.gp_bernoulli_mixture.sparse_steps import Natural, Task, White
from labelzoo.models.spec import MAX_DENSE_BYTES, ModelSpec

Array = Any
Inputs = Mapping[str, Any]

OPTIONS: dict[str, Any] = {
    "epochs": 60,
    "tolerance": 1e-6,
    "batch_size": None,
    "step": "decay",
    "accelerate": True,
    "single": False,
    "num_starts": 1,
    "num_samples": 200,
    "max_bytes": MAX_DENSE_BYTES,
}
"""epochs, tolerance: most passes over the rows, and the relative change of the bound that ends them.
batch_size: rows of a natural-gradient step; None: all of them, the coordinate update: the bound never falls.
step: share of the way that a batch's step goes: decay ((t + 10)^-0.7 at step t) or a number up to 1.
accelerate: without batches, steps longer than the update, guarded by the bound.
single: the two large products in 32-bit numbers, in half the time; the bound's relative error is then about
1e-8, so that it may fall in its last digits.
num_starts: each makes `RACE` passes and the best goes on. num_samples: draws of q.
max_bytes: largest memory of factor, matrices and draws together."""

RACE = 3
"""Passes that every start makes where there are several."""


class State(NamedTuple):
    """Where full passes stand.

    Attributes
    ----------
    natural, target : Natural
        q, and its coordinate update.
    objective : float
        The bound at `natural`, nats.
    stretch : float
    """

    natural: Natural
    target: Natural
    objective: float
    stretch: float = 1.0


class Batches(NamedTuple):
    """Where steps on batches stand."""

    natural: Natural
    steps: int
    objective: float


def full_sweep(task: Task, state: State, length: float = 1.0) -> State:
    """Go to the update, or past it by `length` in the parameters of the gates, and pass over the rows.

    The bound is -inf where a longer step left no positive definite precision.
    """
    new = state.target
    if length != 1.0:
        long = sparse_steps.blended(state.natural, state.target, length)
        new = new._replace(precision=long.precision, shift=long.shift)
    try:
        target, value = sparse_steps.whole_pass(task, new)
    except FloatingPointError:
        if length == 1.0:
            raise
        return state._replace(objective=-np.inf)
    return State(new, target, value)


def first_state(task: Task, natural: Natural) -> State:
    """Return the state at given factors: one pass over the rows."""
    target, value = sparse_steps.whole_pass(task, natural)
    return State(natural, target, value)


def share_of(step: Any) -> Callable[[int], float]:
    """Return the step's length by its number.

    Raises
    ------
    ValueError
        If `step` is neither "decay" nor a number above 0 and at most 1.
    """
    if isinstance(step, str) and step == "decay":
        return lambda t: float((t + 10.0) ** -0.7)
    if not 0 < real(step) <= 1:
        raise ValueError(f"step must be 'decay' or a number above 0 and at most 1, got {step!r}")
    return lambda t: float(step)


def climb(
    task: Task,
    natural: Natural,
    rng: np.random.Generator,
    *,
    epochs: Any,
    tolerance: Any,
    batch_size: Any = None,
    step: Any = "decay",
    accelerate: bool = True,
    progress: bool = False,
) -> FixedPointResult:
    """Pass over the rows until the bound settles; the state of the result has ``natural``."""
    limits: dict[str, Any] = {"max_iter": epochs, "tolerance": tolerance, "progress": progress}
    if batch_size is None or batch_size >= len(task.factor):

        def sweep(state: State, length: float) -> State:
            return full_sweep(task, state, length)

        def whole(state: State) -> tuple[State, float]:
            new = guarded(sweep, state) if accelerate else sweep(state, 1.0)
            return new, new.objective

        start = first_state(task, natural)
        return iterate(whole, start, start.objective, blocks=_blocks, name="sparse", **limits)
    share = share_of(step)

    def batches(state: Batches) -> tuple[Batches, float]:
        found = sparse_steps.epoch(task, state.natural, int(batch_size), share, state.steps, rng)
        return Batches(found[0], found[2], found[1]), found[1]

    return iterate(batches, Batches(natural, 0, np.nan), None, blocks=_blocks, name="sparse", **limits)


def _blocks(state: Any) -> dict[str, Array]:
    return dict(state.natural._asdict())


def start_problem(task: Task) -> Problem:
    """Return what `starts` reads, without the kernel."""
    return Problem(
        task.labels,
        np.zeros((1, 1)),
        None,
        task.gate_mean,
        task.prior_positive,
        task.prior_negative,
    )


def best_start(task: Task, num_starts: int, rng: np.random.Generator) -> Natural:
    """Return q(theta) of the best start, gates at their prior; of several, after `RACE` passes each."""
    table = start_problem(task)
    best: State | None = None
    for number in range(num_starts):
        phi = starts.responsibilities_of(table, number, rng)
        natural = sparse_steps.start_from(task, phi)
        if num_starts == 1:
            return natural
        state = first_state(task, natural)
        for _ in range(RACE - 1):
            state = full_sweep(task, state)
        if best is None or state.objective > best.objective:
            best = state
    assert best is not None
    return best.natural


def white_roots(white: White) -> Array:
    """Return R with R R' = covariance of q(white): (component, basis, basis), upper triangular."""
    return np.swapaxes(white.inverse, 1, 2)


def draws_of(natural: Natural, white: White, size: Array, count: int, rng: np.random.Generator) -> Any:
    """Return draws of ``white``, ``component_probs`` and ``component_size``, (1, draw, ...)."""
    normal = rng.standard_normal((count, *white.mean.shape))
    for k, root in enumerate(white_roots(white)):
        normal[:, k] = white.mean[k] + normal[:, k] @ root.T
    theta = theta_draws(natural.positive, natural.negative, count, rng)
    sizes = np.tile(size, (count, 1))
    return {"white": normal[None], "component_probs": theta[None], "component_size": sizes[None]}


def run(
    spec: ModelSpec,
    inputs: Inputs,
    *,
    rng_key: Any,
    progress: bool = False,
    epochs: Any = OPTIONS["epochs"],
    tolerance: Any = OPTIONS["tolerance"],
    batch_size: Any = None,
    step: Any = "decay",
    accelerate: Any = True,
    single: Any = False,
    num_starts: Any = 1,
    num_samples: Any = OPTIONS["num_samples"],
    max_bytes: Any = MAX_DENSE_BYTES,
) -> EngineResult:
    """Climb the bound of q(white) q(theta), then draw; options as in `OPTIONS`.

    Raises
    ------
    ValueError
        If an option is out of range or the memory would pass `max_bytes`.
    FloatingPointError
        If the bound is not finite; the message names the block.
    """
    whole_number("epochs", epochs, 1)
    check_options(epochs, tolerance)
    batch = None if batch_size is None else whole_number("batch_size", batch_size, 1)
    count, restarts = whole_number("num_samples", num_samples, 1), whole_number("num_starts", num_starts, 1)
    share_of(step)
    for name, value in (("accelerate", accelerate), ("single", single)):
        if not isinstance(value, bool | np.bool_):
            raise ValueError(f"{name} must be True or False, got {value!r}")
    _refuse_large(inputs, count, whole_number("max_bytes", max_bytes, 1))
    begin = time.perf_counter()
    rng = np.random.default_rng(np.asarray(jax.random.key_data(rng_key)).ravel())
    task = sparse_steps.task_of(inputs, np.float32 if single else np.float64)
    limits: dict[str, Any] = {"epochs": epochs, "tolerance": tolerance, "batch_size": batch, "step": step}
    start = best_start(task, restarts, rng)
    result = climb(task, start, rng, accelerate=bool(accelerate), progress=progress, **limits)
    natural = result.state.natural
    rows, value, white = sparse_steps.last_pass(task, natural)
    state = {
        "positive": natural.positive,
        "negative": natural.negative,
        **rows,
        "white_mean": white.mean,
        "white_root": white_roots(white),
    }
    return EngineResult(
        draws=draws_of(natural, white, rows["responsibility"].sum(axis=0), count, rng),
        optimization={"objective": result.objective},
        run_seconds=time.perf_counter() - begin,
        converged=result.converged,
        message=result.message,
        attrs={"bound": float(value), "inducing": int(task.factor.shape[1])},
        state=state,
    )


def _refuse_large(inputs: Inputs, draws: int, max_bytes: int) -> None:
    rows, basis = np.shape(inputs["factor"])
    components, labels = np.shape(inputs["prior_positive"])
    tables = {
        "the factor": 8.0 * rows * basis,
        "responsibilities, weights and potentials": 8.0 * 8 * rows * components,
        "precisions": 8.0 * 6 * components * basis**2,
        f"{draws} draws": 8.0 * draws * components * (basis + labels),
    }
    if sum(tables.values()) > max_bytes:
        largest = max(tables, key=lambda name: tables[name])
        raise ValueError(
            f"sparse at {rows} rows, {components} components and {basis} inducing rows takes "
            f"{size_words(sum(tables.values()))}, most of it {largest}, above max_bytes="
            f"{size_words(max_bytes)}: fewer num_samples or num_inducing"
        )


engine = Engine(
    "sparse",
    "bound",
    run,
    random_sites=("white", "component_probs"),
    options=OPTIONS,
    overrides={"num_inducing": 200},
    description="The structured bound through inducing rows, csr labels: tens of thousands of rows.",
)
