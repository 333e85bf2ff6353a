"""`EXACT_EM`: EM on log p(Y | V, W) itself, the embedding integrated out, for small tables.

Counts and embedding are summed and integrated over exactly, by inclusion and exclusion over the positives of
a row; an E step costs 2^positives x topics a row. Rows for which digits cancel are refused by name. With
shape=None the shapes are learned too, by the same sums: E log u is closed under them.
"""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma
from scipy.sparse import issparse

from labelzoo.arguments import real, whole_number
from labelzoo.inference.bernoulli_poisson_topics.em import OVERRIDES, START_SHAPE, em_config
from labelzoo.inference.bernoulli_poisson_topics.em_data import em_data, observed_by_row, without_missing
from labelzoo.inference.bernoulli_poisson_topics.em_gradient import shape_gradient
from labelzoo.inference.bernoulli_poisson_topics.em_objective import constant, shape_term, weight_term
from labelzoo.inference.bernoulli_poisson_topics.em_state import EMConfig, EMState
from labelzoo.inference.bernoulli_poisson_topics.em_steps import shape_root
from labelzoo.inference.bernoulli_poisson_topics.em_weights import prior_precision, update_weights
from labelzoo.inference.bernoulli_poisson_topics.starts import make_start
from labelzoo.inference.bernoulli_poisson_topics.starts_mcmc import switch
from labelzoo.inference.engine import Engine, EngineResult
from labelzoo.inference.fixed_point import check_options, iterate
from labelzoo.models.label_cells import negative_mass

Array = Any

MAX_TERMS = 2**32
"""Rows x subsets x topics of one E step that a run will sum: some seconds each."""

WEIGHT_STEPS = 10
"""Conjugate-gradient steps of a weight step."""

SHAPE_FLOOR = 1e-3
"""Lower limit of learned shapes: with the embedding integrated out a small shape locks no topic out."""

OPTIONS: dict[str, Any] = {
    "max_iter": 300,
    "tolerance": 1e-8,
    "gradient_tolerance": None,
    "start": "auto",
    "max_positives": 10,
    "max_relative_error": 1e-8,
    "positives_only": False,
}
"""``max_positives``: most positives of a row. ``max_relative_error``: 2^-52 times the sum of absolute terms
over the sum of terms of p(y_n), above which a row is refused; others as for `map_em`."""


class Subsets(NamedTuple):
    """Rows padded to the same number of positives P, and all subsets of P places.

    Attributes
    ----------
    label : int32 array (obs, P)
    real : bool array (obs, P)
    inside : float array (2^P, P)
        One where a place is in the subset.
    sign : float array (2^P,)
    """

    label: Array
    real: Array
    inside: Array
    sign: Array


class ExactState(NamedTuple):
    """Points of the iteration: log topics (labels, topic), weights (feature, topic) and shapes (topic,)."""

    log_topics: Array
    weights: Array
    shape: Array


class Moments(NamedTuple):
    """What the E step gives.

    Attributes
    ----------
    log_likelihood, relative_error : (obs,)
    row_counts : (obs, topic)
        E m_nk given the labels.
    label_counts : (labels, topic)
        E m_kl, hidden counts of missing cells included.
    embedding, log_embedding : (obs, topic)
        E u_nk and E log u_nk given the labels.
    """

    log_likelihood: Array
    relative_error: Array
    row_counts: Array
    label_counts: Array
    embedding: Array
    log_embedding: Array


def subsets_of(inputs: Mapping[str, Any], max_positives: int) -> Subsets:
    """Arrange the positives by row.

    Raises
    ------
    ValueError
        If a row has more than `max_positives` positives (the message names it), or all subsets of all rows
        are too many.
    """
    row, label = (np.asarray(part) for part in inputs["positives"])
    num_rows = inputs["X"].shape[0]
    counts = np.bincount(row, minlength=num_rows)
    most = int(counts.max(initial=0))
    if most > max_positives:
        worst = int(counts.argmax())
        raise ValueError(
            f"exact_em: row {worst} has {most} positive labels, above max_positives={max_positives}; "
            "2^positives terms are summed a row: use vb_em"
        )
    if num_rows * 2**most * inputs["num_topics"] > MAX_TERMS:
        raise ValueError(
            f"exact_em: {num_rows} rows x 2^{most} subsets x {inputs['num_topics']} topics are too many; "
            "use vb_em"
        )
    place = np.arange(row.size) - np.repeat(np.cumsum(counts) - counts, counts)
    table, real = np.zeros((num_rows, most), np.int32), np.zeros((num_rows, most), bool)
    table[row, place], real[row, place] = label, True
    inside = (np.arange(2**most)[:, None] >> np.arange(most)) & 1
    return Subsets(
        jnp.asarray(table),
        jnp.asarray(real),
        jnp.asarray(inside, float),
        jnp.asarray((-1.0) ** inside.sum(axis=1)),
    )


def exact_moments(state: ExactState, inputs: Mapping[str, Any], X: Array, subsets: Subsets) -> Moments:
    """Return the log marginal likelihood of every row and the expected counts and embedding.

    p(y) = sum over subsets S of the positives of (-1)^|S| F(t(S)), F(t) = prod_k (1 + e^psi_k t_k)^-r_k,
    t_k(S) = the mass of topic k on the observed zeros and S. As E e^{-u't} is F(t), tilting by u_k gives
    E u_k e^{-u't} = F(t) r_k / (e^-psi_k + t_k); and as the count of topic k at a positive l given u is
    v_kl u_k / (1 - e^-lambda_l), its expectation is v_kl times that sum over the subsets without l, over
    p(y). Likewise E u_k^h e^-u't at h -> 0 gives
    E log u_k e^-u't = F(t) (digamma(r_k) - log(e^-psi_k + t_k)).
    """
    topics, r = jnp.exp(state.log_topics), state.shape
    psi = X @ state.weights
    zeros = negative_mass(topics.T, inputs["negatives"])
    at = jnp.where(subsets.real[:, :, None], topics[subsets.label], 0.0)
    used = (subsets.inside @ (~subsets.real).T.astype(float)) == 0  # no subset holds a place of padding

    def of_row(args: tuple[Array, ...]) -> tuple[Array, ...]:
        v, zero, logit, allowed = args
        mass = zero + subsets.inside @ v
        terms = jnp.where(allowed, subsets.sign, 0.0) * jnp.exp(
            -(r * jax.nn.softplus(logit + jnp.log(mass))).sum(axis=1)
        )
        total = terms.sum()
        mean_u = r / (jnp.exp(-logit) + mass)
        mean_log_u = digamma(r) - jnp.logaddexp(-logit, jnp.log(mass))
        without = terms[:, None] * (1.0 - subsets.inside)
        counts = v * (without.T @ mean_u) / total
        error = 2.0**-52 * jnp.abs(terms).sum() / total
        return jnp.log(total), error, counts, terms @ mean_u / total, terms @ mean_log_u / total

    log_p, error, counts, embedding, log_u = jax.lax.map(of_row, (at, zeros, psi, used.T))
    counts = jnp.where(subsets.real[:, :, None], counts, 0.0)
    label_counts = jnp.zeros_like(topics).at[subsets.label].add(counts)
    hidden = _hidden(embedding, inputs, topics.shape[0])
    return Moments(log_p, error, counts.sum(axis=1), label_counts + topics * hidden, embedding, log_u)


def _hidden(embedding: Array, inputs: Mapping[str, Any], num_labels: int) -> Array:
    """Return the sum of E u_nk over the rows where label l is missing: (labels, topic)."""
    negatives, positives = inputs["negatives"], inputs["positives"]
    seen = jnp.zeros((num_labels, embedding.shape[1]))
    seen = seen.at[negatives.label].add(embedding[negatives.row] * negatives.sign[:, None])
    seen = seen.at[positives.label].add(embedding[positives.row]) + negatives.base @ embedding
    total = embedding.sum(axis=0)
    return jnp.where(total - seen > 1e-9 * total, total - seen, 0.0)


def log_prior(state: ExactState, data: Any, config: EMConfig) -> Array:
    """Return log p(V) + log p(W) (+ log p(r) where learned), without constants; V in the softmax basis."""
    value = config.topic_concentration * state.log_topics.sum() + weight_term(state.weights, data, config)
    return value + shape_term(state.shape, config) if config.learn_shape else value


def gradient_norm(state: EMState, data: Any, config: EMConfig) -> Array:
    """Return the largest block of the relative gradient of log p(Y, V, W): (), by Fisher's identity."""
    norm = jnp.linalg.norm
    blocks = gradient(state, data, config)
    return jnp.stack([norm(slope) / (norm(pull) + 1e-300) for slope, pull in blocks]).max()


def gradient(state: EMState, data: Any, config: EMConfig) -> tuple[tuple[Array, Array], ...]:
    """Return (gradient, pull) by the weights (feature, topic) and by the topics' logits (labels, topic).

    Where shapes are learned, by their logarithms (topic,) too; the density is that of r, as in `shape_root`.
    """
    log_mass = 0.0 if state.log_mass is None else state.log_mass
    hit = jax.nn.sigmoid(state.psi + log_mass)
    slope = data.X.T @ (state.row_counts - (state.row_counts + state.shape) * hit)
    slope = slope - prior_precision(state.weights, data, config)[:, None] * state.weights
    counts = state.label_counts + config.topic_concentration
    lean = counts - jnp.exp(state.log_topics) * counts.sum(axis=0)
    blocks = (slope, data.X.T @ (state.row_counts + state.shape)), (lean, counts)
    return (*blocks, shape_gradient(state, config)) if config.learn_shape else blocks


def advance(
    state: ExactState, inputs: Mapping[str, Any], data: Any, subsets: Subsets, config: EMConfig
) -> ExactState:
    """Raise log p(Y, V, W): weights by their negative-binomial likelihood, then topics, then shapes.

    Given the counts with the embedding integrated out, the weights see expected counts by row and the mass s
    of the observed labels. Where labels are missing, s depends on the topics, which therefore get an E step
    of their own; where none is, both steps follow from one. The shapes see the embedding itself, E log u,
    and get an E step of their own too.
    """
    X, now = data.X, exact_moments(state, inputs, data.X, subsets)
    state = state._replace(weights=update_weights(em_state(state, now, data, inputs), data, config).weights)
    if data.exposure is not None:
        now = exact_moments(state, inputs, X, subsets)
    counts = now.label_counts + config.topic_concentration
    state = state._replace(log_topics=jnp.log(counts) - jnp.log(counts.sum(axis=0)))
    if not config.learn_shape:
        return state
    log_u = exact_moments(state, inputs, X, subsets).log_embedding
    total = (log_u - X @ state.weights).sum(axis=0)
    return state._replace(shape=shape_root(total, X.shape[0], config))


def em_state(state: ExactState, now: Moments, data: Any, inputs: Mapping[str, Any]) -> EMState:
    """Return what the weight step reads of a state."""
    psi = data.X @ state.weights
    log_mass = None
    if data.exposure is not None:
        log_mass = jnp.log(observed_by_row(jnp.exp(state.log_topics), data.exposure))
    return EMState(
        log_topics=state.log_topics,
        weights=state.weights,
        psi=psi,
        concentration=now.embedding,
        log_rate=jnp.zeros_like(psi),
        log_embedding=now.log_embedding,
        shape=state.shape,
        log_mass=log_mass,
        row_counts=now.row_counts,
        label_counts=now.label_counts,
        positive_term=jnp.zeros(()),
    )


def run_exact(
    spec: Any,
    inputs: Mapping[str, Any],
    *,
    rng_key: Array,
    progress: bool = False,
    max_iter: Any,
    tolerance: Any,
    gradient_tolerance: Any,
    start: Any,
    max_positives: Any,
    max_relative_error: Any,
    positives_only: Any,
) -> EngineResult:
    """Iterate from a start until log p(Y, V, W) settles; see `OPTIONS`.

    Raises
    ------
    ValueError
        If a row has too many positives, or digits cancel in a row.
    """
    _check(max_positives, max_relative_error)
    check_options(max_iter, tolerance, gradient_tolerance)
    inputs = without_missing(inputs) if switch("positives_only", positives_only) else inputs
    dense = inputs["X"].toarray() if issparse(inputs["X"]) else np.asarray(inputs["X"])
    inputs = {**inputs, "X": dense}
    subsets = subsets_of(inputs, int(max_positives))
    data = em_data(inputs)._replace(sparse=None)
    # The weight step is that of both algorithms; "vb" may learn the shapes.
    config = em_config("vb", inputs, w_step="newton", cg_steps=WEIGHT_STEPS, shape_floor=SHAPE_FLOOR)
    cells = {name: jax.tree.map(jnp.asarray, inputs[name]) for name in ("positives", "negatives")}

    def judged(state: ExactState) -> tuple[tuple[ExactState, Moments, Array], Array]:
        now = exact_moments(state, cells, data.X, subsets)
        norm = gradient_norm(em_state(state, now, data, cells), data, config)
        return (state, now, norm), now.log_likelihood.sum() + log_prior(state, data, config)

    first = jax.jit(judged)
    step = jax.jit(lambda state: judged(advance(state, cells, data, subsets, config)))

    def guarded(triple: tuple[ExactState, Moments, Array]) -> tuple[Any, Array]:
        new, value = step(triple[0])
        refuse_cancelled(new[1].relative_error, max_relative_error)
        return new, value

    began = time.perf_counter()
    shape = START_SHAPE if config.learn_shape else float(inputs["shape"])
    begun = make_start(inputs, rng_key, start, shape)
    origin = ExactState(
        jnp.log(jnp.asarray(begun.topics.T)),
        jnp.asarray(begun.weights.T),
        jnp.full(begun.weights.shape[0], shape),
    )
    triple, value = first(origin)
    refuse_cancelled(triple[1].relative_error, max_relative_error)
    compile_seconds = time.perf_counter() - began
    result = iterate(
        guarded,
        triple,
        float(value),
        max_iter=max_iter,
        tolerance=tolerance,
        gradient_norm=lambda current: current[2],
        gradient_tolerance=gradient_tolerance,
        progress=progress,
        name="exact_em",
    )
    state, now, _ = result.state
    sites = {
        "topics": jnp.exp(state.log_topics).T,
        "weights": state.weights.T,
        "shape": state.shape,
        "embedding": now.embedding,
    }
    if config.precision_prior is not None:
        sites["precision"] = prior_precision(state.weights, data, config)
    normaliser = float(constant(em_state(state, now, data, cells), data, config))
    return EngineResult(
        draws={site: np.asarray(value, float)[None, None] for site, value in sites.items()},
        optimization={
            "objective": result.objective + normaliser,
            "gradient_norm": result.gradient_norm,
        },
        compile_seconds=compile_seconds + result.compile_seconds,
        run_seconds=result.run_seconds,
        converged=result.converged,
        message=result.message,
        attrs={
            "num_sweeps": len(result.objective) - 1,
            "gradient_norm": float(result.gradient_norm[-1]),
            "relative_error": float(now.relative_error.max()),
        },
    )


def refuse_cancelled(relative_error: Array, limit: float) -> None:
    """Refuse a row whose terms cancel.

    Raises
    ------
    ValueError
        Naming the worst row and its error.
    """
    error = np.asarray(relative_error)
    error = np.where(error >= 0, error, np.inf)
    worst = int(error.argmax())
    if error[worst] > limit:
        raise ValueError(
            f"exact_em: the terms of row {worst} cancel: relative error {error[worst]:.2g} of its "
            f"likelihood, above max_relative_error={limit:g}; leave the row out, or use vb_em"
        )


def _check(max_positives: Any, max_relative_error: Any) -> None:
    whole_number("max_positives", max_positives, 0, 16)
    if not 0 < real(max_relative_error) < 1:
        raise ValueError(f"max_relative_error must lie in (0, 1), got {max_relative_error!r}")


EXACT_EM = Engine(
    name="exact_em",
    kind="point",
    run=run_exact,
    options=OPTIONS,
    overrides=OVERRIDES,
    takes_sparse=True,
    description=(
        "EM for the marginal density of labels, topics and weights, embedding and counts integrated out "
        "exactly: small tables with few positives a row; shape=None also learns the shapes."
    ),
)
