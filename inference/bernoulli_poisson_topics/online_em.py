"""`ONLINE_EM`: the bound of `vb_em` climbed by minibatches, with running statistics; see `online_steps`."""

import time
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from labelzoo.arguments import real, whole_number
from labelzoo.inference.bernoulli_poisson_topics.em import (
    DTYPES,
    OVERRIDES,
    START_SHAPE,
    check_dtype,
    em_config,
)
from labelzoo.inference.bernoulli_poisson_topics.em_data import without_missing
from labelzoo.inference.bernoulli_poisson_topics.em_state import EMConfig
from labelzoo.inference.bernoulli_poisson_topics.em_weights import prior_precision
from labelzoo.inference.bernoulli_poisson_topics.memory_plan import MAX_BYTES, refuse_large
from labelzoo.inference.bernoulli_poisson_topics.minibatch import RowTable, row_table, take_rows
from labelzoo.inference.bernoulli_poisson_topics.online_steps import (
    Batch,
    Form,
    OnlineState,
    empty_state,
    local_state,
    online_step,
)
from labelzoo.inference.bernoulli_poisson_topics.starts import make_start
from labelzoo.inference.bernoulli_poisson_topics.starts_mcmc import switch
from labelzoo.inference.engine import Engine, EngineResult
from labelzoo.models.label_cells import Cells, Negatives

Array = Any

OPTIONS: dict[str, Any] = {
    "batch_size": 1000,
    "epochs": 10,
    "step_power": 0.7,
    "step_offset": 1.0,
    "local_sweeps": 10,
    "average": False,
    "weight_statistics": "auto",
    "cg_steps": 2,
    "start": "auto",
    "dtype": "float64",
    "positives_only": False,
    "max_bytes": MAX_BYTES,
    "shape_floor": 0.3,
}
"""Options.

``batch_size``, ``epochs``: rows of a step; passes over the rows, each in random order. ``step_power`` c
and ``step_offset`` t0: the share of step t in the statistics is (t + t0)^-c, t from 0; the first is 1, as the
statistics are empty. ``local_sweeps``: rounds of counts and factors of the rows of a batch.
``average``: return the mean of weights, topics and shapes over the second half of the steps of this run.
``weight_statistics``: "full" keeps (feature, feature) a topic and solves, "diagonal" keeps (feature, topic),
a majorising diagonal, and takes `cg_steps` steps; "auto" takes "full" up to `FULL_BYTES`. ``start``,
``dtype``, ``positives_only``, ``max_bytes``, ``shape_floor``: as for `vb_em`; the start sees at most
`START_ROWS` rows."""

FULL_BYTES = 2**28
"""Statistics (topic, feature, feature) that "auto" still keeps (256 MiB)."""

START_ROWS = 20_000


class OnlineConfig(NamedTuple):
    """The checked options of a run."""

    em: EMConfig
    form: Form
    batch_size: int
    epochs: int
    power: float
    offset: float
    local_sweeps: int
    average: bool
    dtype: Any


def online_config(inputs: Mapping[str, Any], options: Mapping[str, Any]) -> OnlineConfig:
    """Check `options` for the program's `inputs`.

    Raises
    ------
    ValueError
        If an option is out of range, or the run would pass ``max_bytes``.
    """
    for name in ("batch_size", "epochs", "local_sweeps"):
        whole_number(name, options[name], 1)
    power, offset, form = options["step_power"], options["step_offset"], options["weight_statistics"]
    if not 0.5 < real(power) <= 1:
        raise ValueError(f"step_power must lie in (0.5, 1], got {power!r}")
    if not 1 <= real(offset) < np.inf:
        raise ValueError(f"step_offset must be a number of at least 1, got {offset!r}")
    if not isinstance(options["average"], bool):
        raise ValueError(f"average must be true or false, got {options['average']!r}")
    if form not in ("auto", "full", "diagonal"):
        raise ValueError(f"weight_statistics must be 'auto', 'full' or 'diagonal', got {form!r}")
    check_dtype(options["dtype"])
    if form == "auto":
        d, k = inputs["X"].shape[1], inputs["num_topics"]
        form = "full" if 8 * d * d * k <= FULL_BYTES else "diagonal"
    batch_size = min(int(options["batch_size"]), inputs["X"].shape[0])
    plan = online_plan(inputs, form, batch_size, options["dtype"])
    refuse_large(
        plan,
        options["max_bytes"],
        switch="weight_statistics='diagonal', a smaller batch_size or fewer topics",
    )
    em = em_config(
        "vb", inputs, w_step="cg", cg_steps=options["cg_steps"], shape_floor=options["shape_floor"]
    )
    return OnlineConfig(
        em,
        form,
        batch_size,
        int(options["epochs"]),
        float(power),
        float(offset),
        int(options["local_sweeps"]),
        options["average"],
        DTYPES[options["dtype"]],
    )


def online_plan(inputs: Mapping[str, Any], form: str, batch_size: int, dtype: str) -> dict[str, int]:
    """Return the bytes of each array of a run, under names in words."""
    size = 4 if dtype == "float32" else 8
    (n, d), k, labels = inputs["X"].shape, inputs["num_topics"], inputs["num_labels"]
    cells, entries = inputs["positives"].row.shape[0], getattr(inputs["X"], "nnz", n * d)
    plan = {
        "features by row": 16 * entries,
        "positives by row": 16 * cells + 24 * inputs["negatives"].row.shape[0],
        "embedding of all rows, returned (obs, topic)": 8 * n * k,
        "one batch: factors and counts (batch, topic)": 16 * batch_size * k * size,
        "topics, counts and their copies (labels, topic)": 8 * labels * k * size,
        "weights, d_k and their copies (feature, topic)": 8 * d * k * size,
    }
    if form == "full":
        plan["weight_statistics='full': A_k (topic, feature, feature), old and new"] = 2 * d * d * k * size
    return plan


def first_state(inputs: Mapping[str, Any], config: OnlineConfig, start: str, key: Array) -> OnlineState:
    """Return the parameters of the start of at most `START_ROWS` rows, with empty statistics."""
    shape = START_SHAPE if config.em.learn_shape else float(inputs["shape"])
    begun = make_start(some_rows(inputs, START_ROWS, key), key, start, shape)
    weights, topics = (jnp.asarray(part.T, config.dtype) for part in (begun.weights, begun.topics))
    shapes = jnp.full(weights.shape[1], shape, config.dtype)
    return empty_state(weights, jnp.log(topics), shapes, config.form)


def some_rows(inputs: Mapping[str, Any], count: int, key: Array) -> Mapping[str, Any]:
    """Return `inputs` of `count` random rows, or as they are where there are no more."""
    num_rows = inputs["X"].shape[0]
    if num_rows <= count:
        return inputs
    rows = np.sort(_generator(key).choice(num_rows, count, replace=False))
    place = np.full(num_rows, -1, np.int32)
    place[rows] = np.arange(count)
    positives, negatives = inputs["positives"], inputs["negatives"]
    own, other = place[np.asarray(positives.row)], place[np.asarray(negatives.row)]
    X = inputs["X"]
    return {
        **inputs,
        "X": X[rows] if hasattr(X, "nnz") else np.asarray(X)[rows],
        "positives": Cells(own[own >= 0], np.asarray(positives.label)[own >= 0]),
        "negatives": Negatives(
            np.asarray(negatives.base)[rows],
            other[other >= 0],
            np.asarray(negatives.label)[other >= 0],
            np.asarray(negatives.sign)[other >= 0],
        ),
    }


def _generator(key: Array) -> np.random.Generator:
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())


class Course(NamedTuple):
    """Where a run stands.

    Attributes
    ----------
    state : OnlineState
    steps : int
        Taken so far, earlier runs included.
    rows : int
        Of all the data, earlier batches included.
    """

    state: OnlineState
    steps: int
    rows: int


def run_online(
    spec: Any, inputs: Mapping[str, Any], *, rng_key: Array, progress: bool, **options: Any
) -> EngineResult:
    """Fit the rows of `inputs` from a start; see `OPTIONS`.

    Returns
    -------
    EngineResult
        As of `em.run_em`; the trace ``objective`` is the bound on the labels of a row of the batch, nats, at
        the parameters before the step.
    """
    inputs = without_missing(inputs) if switch("positives_only", options["positives_only"]) else inputs
    config = online_config(inputs, options)
    state = first_state(inputs, config, options["start"], rng_key)
    return _climb(inputs, config, Course(state, 0, inputs["X"].shape[0]), rng_key)


def continue_online(
    spec: Any,
    inputs: Mapping[str, Any],
    previous: xr.DataTree,
    *,
    rng_key: Array,
    progress: bool,
    **options: Any,
) -> EngineResult:
    """Go on with new rows from the statistics of `previous`, scaled up to all rows; old rows are not read.

    Raises
    ------
    ValueError
        If the new rows have another number of labels or features than the statistics.
    """
    inputs = without_missing(inputs) if switch("positives_only", options["positives_only"]) else inputs
    kept = {str(name): np.asarray(value) for name, value in previous["engine_state"].data_vars.items()}
    config = online_config(inputs, options)
    config = config._replace(form="full" if kept["curvature"].ndim == 3 else "diagonal")
    for what, place, size in (
        ("labels", kept["log_topics"].shape[0], inputs["num_labels"]),
        ("features", kept["weights"].shape[0], inputs["X"].shape[1]),
    ):
        if place != size:
            raise ValueError(f"the new rows have {size} {what}, the fitted state has {place}")
    new, before = inputs["X"].shape[0], int(kept["rows"])
    grown = (before + new) / before
    state = OnlineState(*(jnp.asarray(kept[name], config.dtype) for name in OnlineState._fields))
    scaled = {
        name: getattr(state, name) * grown for name in ("curvature", "linear", "label_counts", "log_sum")
    }
    return _climb(inputs, config, Course(state._replace(**scaled), int(kept["steps"]), before + new), rng_key)


def _climb(inputs: Mapping[str, Any], config: OnlineConfig, course: Course, key: Array) -> EngineResult:
    table, rng, num_rows = row_table(inputs), _generator(key), inputs["X"].shape[0]
    per_epoch = -(-num_rows // config.batch_size)
    total, state, steps = config.epochs * per_epoch, course.state, course.steps
    lengths: dict[str, int] = {}
    how = {"config": config.em, "form": config.form, "local_sweeps": config.local_sweeps}
    trace, mean, averaged = [], None, 0
    began, first_seconds = time.perf_counter(), 0.0
    for epoch in range(config.epochs):
        for place, rows in enumerate(np.array_split(rng.permutation(num_rows), per_epoch)):
            batch = make_batch(table, rows, config, steps, course.rows, lengths)
            state, value = _step(state, batch, **how)
            trace.append(float(value))
            if not np.isfinite(trace[-1]):
                raise FloatingPointError(f"online_em: the bound is {trace[-1]} at step {len(trace)}")
            steps += 1
            first_seconds = first_seconds or time.perf_counter() - began
            if config.average and 2 * (epoch * per_epoch + place + 1) > total:
                mean, averaged = _averaged(mean, state, averaged), averaged + 1
    final = state if mean is None else state._replace(**_as_logs(mean))
    draws = _draws(inputs, table, final, config, lengths)
    return EngineResult(
        draws={name: np.asarray(value, float)[None, None] for name, value in draws.items()},
        optimization={"objective": np.asarray(trace)},
        compile_seconds=first_seconds,
        run_seconds=time.perf_counter() - began - first_seconds,
        message=_words(trace, config, per_epoch),
        attrs={"num_steps": steps, "weight_statistics": config.form},
        state={**state._asdict(), "steps": np.asarray(steps), "rows": np.asarray(course.rows)},
    )


_step = jax.jit(online_step, static_argnames=("config", "form", "local_sweeps"), donate_argnums=0)


def make_batch(
    table: RowTable,
    rows: np.ndarray,
    config: OnlineConfig,
    step: int,
    num_rows: int,
    lengths: dict[str, int],
) -> Batch:
    """Cut out `rows` and say what they count for at step number `step`."""
    size = config.batch_size
    gain = 1.0 if step == 0 else (step + config.offset) ** -config.power
    return Batch(
        take_rows(table, np.sort(rows), size, config.dtype, lengths),
        jnp.asarray(np.arange(size) < rows.size, config.dtype),
        jnp.asarray(num_rows / rows.size, config.dtype),
        jnp.asarray(gain, config.dtype),
        jnp.asarray(float(num_rows), config.dtype),
    )


def _averaged(mean: dict[str, Array] | None, state: OnlineState, count: int) -> dict[str, Array]:
    now = {"weights": state.weights, "topics": jnp.exp(state.log_topics), "shape": state.shape}
    if mean is None:
        return jax.tree.map(lambda value: value + 0.0, now)
    return {name: mean[name] + (now[name] - mean[name]) / (count + 1) for name in now}


def _as_logs(mean: dict[str, Array]) -> dict[str, Array]:
    return {"weights": mean["weights"], "log_topics": jnp.log(mean["topics"]), "shape": mean["shape"]}


def _draws(
    inputs: Mapping[str, Any],
    table: RowTable,
    state: OnlineState,
    config: OnlineConfig,
    lengths: dict[str, int],
) -> dict[str, Array]:
    """Return the sites; the embedding by a last pass over the rows, at the mean of their factors."""
    num_rows, size = inputs["X"].shape[0], config.batch_size
    embedding = np.empty((num_rows, state.weights.shape[1]))
    for start in range(0, num_rows, size):
        rows = np.arange(start, min(start + size, num_rows))
        data = take_rows(table, rows, size, config.dtype, lengths)
        means = _embedding(state, data, config=config.em, local_sweeps=config.local_sweeps)
        embedding[rows] = np.asarray(means)[: rows.size]
    sites = {
        "topics": jnp.exp(state.log_topics).T,
        "weights": state.weights.T,
        "shape": state.shape,
        "embedding": embedding,
    }
    if config.em.precision_prior is not None:
        nothing = take_rows(table, np.zeros(0, int), 1, config.dtype)
        sites["precision"] = prior_precision(state.weights, nothing, config.em)
    return sites


@partial(jax.jit, static_argnames=("config", "local_sweeps"))
def _embedding(state: OnlineState, data: Any, *, config: EMConfig, local_sweeps: int) -> Array:
    local = local_state(state, data, config, local_sweeps)
    return local.concentration * jnp.exp(-local.log_rate)


def _words(trace: list[float], config: OnlineConfig, per_epoch: int) -> str:
    few = min(per_epoch, max(1, len(trace) // 4))
    return (
        f"{config.epochs} epochs of {per_epoch} steps of {config.batch_size} rows, "
        f"{config.form} weight statistics; bound on a row's labels from {np.mean(trace[:few]):.5g} to "
        f"{np.mean(trace[-few:]):.5g} nats (means of {few} steps)"
    )


ONLINE_EM = Engine(
    name="online_em",
    kind="point",
    run=run_online,
    options=OPTIONS,
    overrides=OVERRIDES,
    takes_sparse=True,
    description=(
        "Online EM by minibatches on the bound of vb_em: points for topics and weights, running statistics; "
        "takes sparse features of any width and more rows later."
    ),
    continue_from=continue_online,
)
