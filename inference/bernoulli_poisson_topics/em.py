"""EM engines of Bernoulli-Poisson topics: `MAP_EM` and `VB_EM`.

Rai, Hu, Henao and Carin (2015), section 3.2, made monotone: see `em_steps` for the sweep and `em_objective`
for what it raises.
"""

import time
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import issparse

from labelzoo.arguments import real, whole_number
from labelzoo.inference.bernoulli_poisson_topics.em_data import EMData, em_data, times, without_missing
from labelzoo.inference.bernoulli_poisson_topics.em_gradient import gradient_norms
from labelzoo.inference.bernoulli_poisson_topics.em_objective import constant, objective
from labelzoo.inference.bernoulli_poisson_topics.em_state import EMConfig, EMState, WStep, with_embedding
from labelzoo.inference.bernoulli_poisson_topics.em_steps import sweep, with_counts
from labelzoo.inference.bernoulli_poisson_topics.em_weights import prior_precision
from labelzoo.inference.bernoulli_poisson_topics.memory_plan import (
    MAX_BYTES,
    memory_plan,
    refuse_large,
    switch_for,
)
from labelzoo.inference.bernoulli_poisson_topics.precision_type2 import (
    checked_update,
    update_precision,
)
from labelzoo.inference.bernoulli_poisson_topics.starts import Start, make_start
from labelzoo.inference.bernoulli_poisson_topics.starts_mcmc import switch
from labelzoo.inference.engine import Engine, EngineResult
from labelzoo.inference.fixed_point import check_options, iterate

Array = Any

W_STEPS: tuple[WStep, ...] = get_args(WStep)
DTYPES = {"float64": jnp.float64, "float32": jnp.float32}

OPTIONS: dict[str, Any] = {
    "max_iter": 1000,
    "tolerance": 1e-5,
    "gradient_tolerance": None,
    "start": "auto",
    "w_step": "newton",
    "cg_steps": 2,
    "cg_tolerance": 1e-4,
    "dtype": "float64",
    "precision_update": "prior",
    "positives_only": False,
    "max_bytes": MAX_BYTES,
}
"""Options of both engines.

``max_iter``, ``tolerance``, ``gradient_tolerance``: of `fixed_point.iterate`; constants of the priors do not
count in the relative change, and the gradient is that of `em_gradient.gradient_norms`, largest block.
``start``: of `starts.make_start`. ``w_step``: "newton" (`cg_steps` conjugate-gradient steps on the true
curvature, safeguarded), "cg" (as many on the Polya-Gamma quadratic from the current weights, the paper's),
"exact" (that quadratic solved, a factorisation a topic), "preconditioned" (solved to `cg_tolerance`, relative
to the solution, by steps that one Cholesky factor, shared by all topics, preconditions),
"newton_preconditioned" (so for the direction on the true curvature). ``cg_steps`` is the least number of
steps there. ``dtype``: "float64" or "float32". ``precision_update``: "prior" holds the precisions at
`prior_scale`, or learns them under ``precision_prior``; "type2" sets them after every sweep by
`precision_type2.update_precision`; the objective then has the weights integrated out by Laplace's method and
need not rise. ``positives_only``: treat missing cells as zeros, as the paper
does.
``max_bytes``: refuse a run that `memory_plan` finds larger."""

OVERRIDES: dict[str, Any] = {"shape": 1.0, "sparse_features": True}
"""Settings of the program that the EM engines fix unless told otherwise."""

MAX_CG_STEPS = 1000
"""Most conjugate-gradient steps of a weight step: they are unrolled when it is compiled."""

START_SHAPE = 1.0
"""Where learned shapes start: far below it exp(E log u) locks topics out."""


def em_config(
    algorithm: Literal["map", "vb"],
    inputs: Mapping[str, Any],
    *,
    w_step: Any = "newton",
    cg_steps: Any = 2,
    cg_tolerance: Any = 1e-4,
    shape_floor: Any = 0.3,
) -> EMConfig:
    """Collect what a sweep needs from the program's settings and the engine's options.

    Raises
    ------
    ValueError
        If an option is out of range, or MAP is asked to learn the shapes.
    """
    learn_shape = inputs["shape"] is None
    if algorithm == "map" and learn_shape:
        raise ValueError(
            "map_em cannot learn the shape (shape=None): with the embedding at its mode the joint density "
            "grows without bound in the shape; give shape a number, or use vb_em"
        )
    if w_step not in W_STEPS:
        raise ValueError(f"w_step must be one of {', '.join(W_STEPS)}, got {w_step!r}")
    whole_number("cg_steps", cg_steps, 1, MAX_CG_STEPS)
    if not 0 < real(cg_tolerance) < 1:
        raise ValueError(f"cg_tolerance must lie in (0, 1), got {cg_tolerance!r}")
    if not 0 < real(shape_floor) < START_SHAPE:
        raise ValueError(f"shape_floor must lie in (0, {START_SHAPE:g}), got {shape_floor!r}")
    return EMConfig(
        algorithm=algorithm,
        topic_concentration=inputs["topic_concentration"],
        shape_prior=inputs["shape_prior"],
        learn_shape=learn_shape,
        shape_floor=float(shape_floor),
        precision_prior=inputs["precision_prior"],
        w_step=W_STEPS[W_STEPS.index(w_step)],
        cg_steps=int(cg_steps),
        cg_tolerance=float(cg_tolerance),
    )


def check_dtype(dtype: Any) -> None:
    """Raise ValueError for a number type that no run is made in."""
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"dtype must be 'float64' or 'float32', got {dtype!r}")


def begin(start: Start, data: EMData, config: EMConfig, shape: float) -> EMState:
    """Return the state at `start`, with its counts; a gamma factor has the concentration r + 1 there."""
    dtype = data.positives.weight.dtype
    weights, log_u = jnp.asarray(start.weights.T, dtype), jnp.asarray(start.log_embedding, dtype)
    log_topics = jnp.log(jnp.asarray(start.topics.T, dtype))
    concentration = jnp.full(log_u.shape, shape + 1.0, dtype)
    state = EMState(
        log_topics=log_topics,
        weights=weights,
        psi=times(data, weights),
        concentration=concentration,
        log_rate=log_u,
        log_embedding=log_u,
        shape=jnp.full(weights.shape[1], shape, dtype),
        log_mass=None,
        row_counts=jnp.zeros_like(log_u),
        label_counts=jnp.zeros_like(log_topics),
        positive_term=jnp.zeros((), jnp.float64),
    )
    state = with_embedding(state, concentration, jnp.log(concentration) - log_u, config.algorithm)
    return with_counts(state, data, config)


class Point(NamedTuple):
    """Where the iteration stands.

    Attributes
    ----------
    state : EMState
    norms : (block,)
        Relative gradient of each block.
    precision : (feature,) or None
        Where it changes from sweep to sweep.
    """

    state: EMState
    norms: Array
    precision: Array | None


def run_em(
    algorithm: Literal["map", "vb"],
    inputs: Mapping[str, Any],
    *,
    rng_key: Array,
    progress: bool = False,
    max_iter: Any,
    tolerance: Any,
    gradient_tolerance: Any,
    start: Any,
    w_step: Any,
    cg_steps: Any,
    cg_tolerance: Any,
    dtype: Any,
    precision_update: Any,
    positives_only: Any,
    max_bytes: Any,
    shape_floor: Any = 0.3,
) -> EngineResult:
    """Iterate sweeps from a start until the objective settles; see `OPTIONS` for the arguments.

    Returns
    -------
    EngineResult
        ``topics`` (topic, labels), ``weights`` (topic, feature), ``shape`` (topic,), ``embedding``
        (obs, topic) and, where learned, ``precision`` (feature,), each as one draw of one chain; the traces
        ``objective`` and ``gradient_norm``.
    """
    check_dtype(dtype)
    check_options(max_iter, tolerance, gradient_tolerance)
    positives_only = switch("positives_only", positives_only)
    config = em_config(
        algorithm,
        inputs,
        w_step=w_step,
        cg_steps=cg_steps,
        cg_tolerance=cg_tolerance,
        shape_floor=shape_floor,
    )
    type2 = checked_update(precision_update, inputs) == "type2"
    plan = memory_plan(inputs, w_step=w_step, dtype=dtype, precision_update=precision_update)
    refuse_large(plan, max_bytes, switch=switch_for(w_step, dtype, issparse(inputs["X"])))
    shape = START_SHAPE if config.learn_shape else float(inputs["shape"])
    inputs = without_missing(inputs) if positives_only else inputs
    data = em_data(inputs, dtype=DTYPES[dtype])
    first = make_start(inputs, rng_key, start, shape)

    def judged(before: EMState, state: EMState, data: EMData) -> tuple[Point, Array]:
        norms, value = gradient_norms(state, data, config), objective(state, data, config)
        if not type2:
            return Point(state, norms, None), value
        precision, integrated = update_precision(before, state.weights, data, config)
        return Point(state, norms, precision), value + integrated

    def advance(point: Point, data: EMData) -> tuple[Point, Array]:
        now = data._replace(precision=point.precision) if type2 else data
        return judged(point.state, sweep(point.state, now, config), now)

    def initial(first: Start, data: EMData) -> tuple[Point, Array]:
        state = begin(first, data, config, shape)
        return judged(state, state, data)

    began = time.perf_counter()
    begun, value = jax.jit(initial)(first, data)
    step = jax.jit(advance).lower(begun, data).compile()
    compile_seconds = time.perf_counter() - began
    result = iterate(
        lambda current: step(current, data),
        begun,
        float(value),
        max_iter=max_iter,
        tolerance=tolerance,
        gradient_norm=lambda current: current.norms.max(),
        gradient_tolerance=gradient_tolerance,
        blocks=lambda current: {
            k: v for k, v in current.state._asdict().items() if v is not None and k != "log_mass"
        },
        progress=progress,
        name=f"{algorithm}_em",
    )
    state, _, precision = result.state
    sites, rest = draw_of(state, data, config), float(constant(state, data, config))
    if precision is not None:
        sites["precision"] = precision
        # The weights are integrated out in the trace: their normaliser is in it already.
        ones = data._replace(precision=jnp.ones_like(precision))
        rest = float(constant(state, ones, config)) + 0.5 * state.weights.size * np.log(2 * np.pi)
    return EngineResult(
        draws={site: np.asarray(value, float)[None, None] for site, value in sites.items()},
        optimization={
            "objective": result.objective + rest,
            "gradient_norm": result.gradient_norm,
        },
        compile_seconds=compile_seconds + result.compile_seconds,
        run_seconds=result.run_seconds,
        converged=result.converged,
        message=result.message,
        attrs={
            "num_sweeps": len(result.objective) - 1,
            "gradient_norm": float(result.gradient_norm[-1]),
            "planned_bytes": int(sum(plan.values())),
        },
    )


def draw_of(state: EMState, data: EMData, config: EMConfig) -> dict[str, Array]:
    """Return the sites at `state`, in the layout of the program."""
    sites = {
        "topics": jnp.exp(state.log_topics).T,
        "weights": state.weights.T,
        "shape": state.shape,
        "embedding": state.concentration * jnp.exp(-state.log_rate),
    }
    if config.precision_prior is not None:
        sites["precision"] = prior_precision(state.weights, data, config)
    return sites


def _run_map(spec: Any, inputs: Mapping[str, Any], **options: Any) -> EngineResult:
    return run_em("map", inputs, **options)


def _run_vb(spec: Any, inputs: Mapping[str, Any], **options: Any) -> EngineResult:
    return run_em("vb", inputs, **options)


MAP_EM = Engine(
    name="map_em",
    kind="point",
    run=_run_map,
    options=OPTIONS,
    overrides=OVERRIDES,
    takes_sparse=True,
    description="EM for the joint mode of topics (softmax basis), log embedding and weights; shapes fixed.",
)

VB_EM = Engine(
    name="vb_em",
    kind="point",
    run=_run_vb,
    options={**OPTIONS, "shape_floor": 0.3},
    overrides=OVERRIDES,
    takes_sparse=True,
    description=(
        "EM with gamma factors for the embedding (their means are reported): raises a bound on the evidence "
        "over points for topics and weights; shape=None also learns the shapes."
    ),
)
