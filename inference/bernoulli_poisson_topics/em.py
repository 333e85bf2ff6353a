"""EM engines of Bernoulli-Poisson topics: `MAP_EM` and `VB_EM`.

Rai, Hu, Henao and Carin (2015), section 3.2, made monotone: see `em_steps` for the sweep and `em_objective`
for what it raises.
"""

import time
from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from labelzoo.inference.bernoulli_poisson_topics.em_data import EMData, em_data, times, without_missing
from labelzoo.inference.bernoulli_poisson_topics.em_objective import constant, objective
from labelzoo.inference.bernoulli_poisson_topics.em_state import EMConfig, EMState, with_embedding
from labelzoo.inference.bernoulli_poisson_topics.em_steps import sweep, with_counts
from labelzoo.inference.bernoulli_poisson_topics.em_weights import prior_precision
from labelzoo.inference.bernoulli_poisson_topics.starts import Start, make_start
from labelzoo.inference.engine import Engine, EngineResult
from labelzoo.inference.fixed_point import iterate

Array = Any

W_STEPS: tuple[Literal["newton", "cg", "exact"], ...] = ("newton", "cg", "exact")
DTYPES = {"float64": jnp.float64, "float32": jnp.float32}

OPTIONS: dict[str, Any] = {
    "max_iter": 100,
    "tolerance": 1e-5,
    "start": "auto",
    "w_step": "newton",
    "cg_steps": 2,
    "dtype": "float64",
    "positives_only": False,
}
"""Options of both engines.

``max_iter``, ``tolerance``: of `fixed_point.iterate`; constants of the priors do not count there.
``start``: of `starts.make_start`. ``w_step``: "newton" (`cg_steps` conjugate-gradient steps on the true
curvature, safeguarded), "cg" (as many on the Polya-Gamma quadratic from the current weights, the paper's),
"exact" (that quadratic solved, a factorisation a topic). ``dtype``: "float64" or "float32".
``positives_only``: treat missing cells as zeros, as the paper does."""

START_SHAPE = 1.0
"""Where learned shapes start: far below it exp(E log u) locks topics out."""


def em_config(
    algorithm: Literal["map", "vb"],
    inputs: Mapping[str, Any],
    *,
    w_step: str = "newton",
    cg_steps: int = 2,
    shape_floor: float = 0.3,
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
    if not isinstance(cg_steps, int | np.integer) or cg_steps < 1:
        raise ValueError(f"cg_steps must be a positive integer, got {cg_steps!r}")
    if not 0 < shape_floor < START_SHAPE:
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
    )


def begin(start: Start, data: EMData, config: EMConfig, shape: float) -> EMState:
    """Return the state at `start`, with its counts; a gamma factor has the concentration r + 1 there."""
    dtype = data.X.dtype
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


def run_em(
    algorithm: Literal["map", "vb"],
    inputs: Mapping[str, Any],
    *,
    rng_key: Array,
    progress: bool = False,
    max_iter: Any,
    tolerance: Any,
    start: str,
    w_step: str,
    cg_steps: int,
    dtype: str,
    positives_only: bool,
    shape_floor: float = 0.3,
) -> EngineResult:
    """Iterate sweeps from a start until the objective settles; see `OPTIONS` for the arguments.

    Returns
    -------
    EngineResult
        ``topics`` (topic, labels), ``weights`` (topic, feature), ``shape`` (topic,), ``embedding``
        (obs, topic) and, where learned, ``precision`` (feature,), each as one draw of one chain; the trace
        ``objective``.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype must be 'float64' or 'float32', got {dtype!r}")
    config = em_config(algorithm, inputs, w_step=w_step, cg_steps=cg_steps, shape_floor=shape_floor)
    shape = START_SHAPE if config.learn_shape else float(inputs["shape"])
    inputs = without_missing(inputs) if positives_only else inputs
    data = em_data(inputs, dtype=DTYPES[dtype])
    first = make_start(inputs, rng_key, start, shape)

    def advance(state: EMState, data: EMData) -> tuple[EMState, Array]:
        state = sweep(state, data, config)
        return state, objective(state, data, config)

    def initial(first: Start, data: EMData) -> tuple[EMState, Array]:
        state = begin(first, data, config, shape)
        return state, objective(state, data, config)

    began = time.perf_counter()
    state, value = jax.jit(initial)(first, data)
    step = jax.jit(advance).lower(state, data).compile()
    compile_seconds = time.perf_counter() - began
    result = iterate(
        lambda current: step(current, data),
        state,
        float(value),
        max_iter=max_iter,
        tolerance=tolerance,
        blocks=lambda current: {
            k: v for k, v in current._asdict().items() if v is not None and k != "log_mass"
        },
        progress=progress,
        name=f"{algorithm}_em",
    )
    return EngineResult(
        draws={
            site: np.asarray(value, float)[None, None]
            for site, value in draw_of(result.state, data, config).items()
        },
        optimization={"objective": result.objective + float(constant(result.state, data, config))},
        compile_seconds=compile_seconds + result.compile_seconds,
        run_seconds=result.run_seconds,
        converged=result.converged,
        message=result.message,
        attrs={"num_sweeps": len(result.objective) - 1},
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
    overrides={"shape": 1.0},
    description="EM for the joint mode of topics (softmax basis), log embedding and weights; shapes fixed.",
)

VB_EM = Engine(
    name="vb_em",
    kind="point",
    run=_run_vb,
    options={**OPTIONS, "shape_floor": 0.3},
    overrides={"shape": 1.0},
    description=(
        "EM with gamma factors for the embedding (their means are reported): raises a bound on the evidence "
        "over points for topics and weights; shape=None also learns the shapes."
    ),
)
