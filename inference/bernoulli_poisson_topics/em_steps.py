"""One EM sweep: weights, embedding, topics (and shapes), then the expected counts at the new point.

Two algorithms share it. ``map`` maximises log p(Y | U, V) + log p(log U | W) + log p(V) + log p(W), with V in
the softmax basis: what the formulas of Rai et al. (2015), section 3.2, amount to. ``vb`` holds a gamma factor
q(u_nk) and maximises the evidence bound over it and over (V, W, r). The only difference is the logarithm that
enters the topic weights of a positive: log u at its mode, or E log u.

Arrays inside are (labels, topic), (feature, topic) and (obs, topic), so that the topics of one cell lie side by side.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve
from jax.scipy.special import digamma

from labelzoo.inference.bernoulli_poisson_topics.em_data import (
    Blocks,
    EMData,
    missing_by_label,
    observed_by_row,
    times,
    transposed_times,
)
from labelzoo.inference.polya_gamma import mean as polya_gamma_mean
from labelzoo.inference.stable import log_expm1, zero_truncated_poisson_mean

Array = Any

SHAPE_CEILING = 1e3
_BISECTIONS = 60


class EMConfig(NamedTuple):
    """What a sweep does; hashable, so that it is static under ``jit``.

    Attributes
    ----------
    algorithm : {"map", "vb"}
    topic_concentration : float
        eta.
    shape_prior : tuple of float
        (e0, f0) of the gamma prior of the shapes.
    learn_shape : bool
        Maximise the bound over the shapes ("vb" only).
    shape_floor : float
        Lower limit of learned shapes.
    precision_prior : tuple of float or None
        (a, b) of the gamma prior of the feature precisions, where they are learned.
    w_step : {"newton", "cg", "exact"}
    cg_steps : int
    """

    algorithm: Literal["map", "vb"]
    topic_concentration: float
    shape_prior: tuple[float, float] = (2.0, 2.0)
    learn_shape: bool = False
    shape_floor: float = 0.3
    precision_prior: tuple[float, float] | None = None
    w_step: Literal["newton", "cg", "exact"] = "newton"
    cg_steps: int = 2


class EMState(NamedTuple):
    """A point of the iteration with its expected counts.

    Attributes
    ----------
    log_topics : (labels, topic)
    weights : (feature, topic)
    psi : (obs, topic)
        X times the weights.
    concentration, log_rate : (obs, topic)
        u = concentration / rate: the mode of log u ("map"), or the mean of the gamma factor ("vb").
    log_embedding : (obs, topic)
        log u at its mode ("map"), or E log u under the gamma factor ("vb").
    shape : (topic,)
    log_mass : (obs, topic) or None
        log s_nk; None where every cell is observed (s = 1).
    row_counts : (obs, topic)
        Expected counts by row.
    label_counts : (labels, topic)
        Expected counts by label.
    positive_term : ()
        Sum over positives of log(e^lambda - 1) at this point.
    """

    log_topics: Array
    weights: Array
    psi: Array
    concentration: Array
    log_rate: Array
    log_embedding: Array
    shape: Array
    log_mass: Array | None
    row_counts: Array
    label_counts: Array
    positive_term: Array


def with_embedding(state: EMState, concentration: Array, log_rate: Array, algorithm: str) -> EMState:
    """Set the embedding, with log u at its mode ("map") or its expectation under the gamma factor ("vb")."""
    center = (digamma if algorithm == "vb" else jnp.log)(concentration)
    return state._replace(concentration=concentration, log_rate=log_rate, log_embedding=center - log_rate)


def expected_counts(log_topics: Array, log_u: Array, positives: Blocks) -> tuple[Array, Array, Array]:
    """Return expected counts by row (obs, topic), by label (labels, topic), and sum log(e^lambda - 1).

    At a positive the counts are a zero-truncated Poisson total, lambda / (1 - e^-lambda) on average, shared out
    in proportion to v_kl u_nk: a softmax of log v + log u, which an underflow of lambda cannot harm. Positives
    pass in blocks, so memory is a block x topics.
    """

    def add(totals: tuple[Array, Array, Array], block: Blocks) -> tuple[tuple[Array, Array, Array], None]:
        by_row, by_label, term = totals
        log_rates = log_topics[block.label] + log_u[block.row]
        top = log_rates.max(axis=1)
        share = jnp.exp(log_rates - top[:, None])
        total = share.sum(axis=1)
        rate = jnp.exp(top) * total
        counts = share * (block.weight * zero_truncated_poisson_mean(rate) / total)[:, None]
        # log(e^lambda - 1) is log lambda where lambda underflows.
        tiny = rate < 1e-30
        value = jnp.where(tiny, top + jnp.log(total), log_expm1(jnp.where(tiny, 1.0, rate)))
        term = term + jnp.where(block.weight > 0, value, 0.0).sum(dtype=term.dtype)
        return (by_row.at[block.row].add(counts), by_label.at[block.label].add(counts), term), None

    start = (jnp.zeros_like(log_u), jnp.zeros_like(log_topics), jnp.zeros((), jnp.float64))
    totals, _ = jax.lax.scan(add, start, positives)
    return totals


def with_counts(state: EMState, data: EMData, config: EMConfig) -> EMState:
    """Fill in exposures and expected counts at the point of `state`."""
    log_mass = None
    if data.exposure is not None:
        log_mass = jnp.log(observed_by_row(jnp.exp(state.log_topics), data.exposure))
    counts = expected_counts(state.log_topics, state.log_embedding, data.positives)
    return state._replace(
        log_mass=log_mass, row_counts=counts[0], label_counts=counts[1], positive_term=counts[2]
    )


def prior_precision(weights: Array, data: EMData, config: EMConfig) -> Array:
    """Return the fixed precisions, or their posterior mean (a + K/2) / (b + sum_k w_kd^2 / 2) given W."""
    if config.precision_prior is None:
        return data.precision
    a, b = config.precision_prior
    return (a + weights.shape[1] / 2) / (b + (weights**2).sum(axis=1) / 2)


def update_weights(state: EMState, data: EMData, config: EMConfig) -> EMState:
    """Raise sum M psi - (M + r) softplus(psi + log s) - sum tau w^2 / 2 by its Polya-Gamma quadratic.

    omega = E PG(M + r, psi + log s), kappa = (M - r)/2, (X' Omega X + diag tau) w = X'(kappa - omega log s)
    (eqs. 15-16, with the offset of missing labels). The quadratic touches the objective at the current w and
    lies below it elsewhere, so conjugate-gradient steps that *start there* cannot lower it.
    """
    active = None if state.log_mass is None else jnp.isfinite(state.log_mass)
    offset = 0.0 if active is None else jnp.where(active, state.log_mass, 0.0)
    b = state.row_counts + state.shape
    omega = polya_gamma_mean(b, state.psi + offset)
    target = 0.5 * (state.row_counts - state.shape) - omega * offset
    if active is not None:
        omega, target = jnp.where(active, omega, 0.0), jnp.where(active, target, 0.0)
    tau = prior_precision(state.weights, data, config)
    if config.w_step == "exact":
        weights = solve_weights(data.X, omega, target, tau)
        return state._replace(weights=weights, psi=times(data, weights))
    if config.w_step == "newton":
        return newton_weights(state, data, omega, tau, active, config.cg_steps)
    weights, psi = conjugate_gradient_weights(data, omega, target, tau, state, config.cg_steps)
    return state._replace(weights=weights, psi=psi)


def solve_weights(X: Array, omega: Array, target: Array, tau: Array) -> Array:
    """Solve (X' Omega_k X + diag tau) w_k = X' target_k topic by topic, in the smaller of (obs, feature)."""
    num_obs, num_features = X.shape

    def by_features(args: tuple[Array, Array]) -> Array:
        weight, right = args
        return cho_solve(cho_factor((X * weight[:, None]).T @ X + jnp.diag(tau)), X.T @ right)

    def by_rows(args: tuple[Array, Array]) -> Array:
        # w = T^-1 X' (I + Omega G)^-1 z, G = X T^-1 X'.
        weight, right = args
        root = jnp.sqrt(weight)
        inner = jnp.eye(num_obs, dtype=X.dtype) + root[:, None] * gram * root
        return scaled.T @ (right - root * cho_solve(cho_factor(inner), root * (gram @ right)))

    if num_features <= num_obs:
        return jax.lax.map(by_features, (omega.T, target.T)).T
    scaled = X / tau
    gram = scaled @ X.T
    return jax.lax.map(by_rows, (omega.T, target.T)).T


def conjugate_gradients(
    data: EMData, curvature: Array, tau: Array, residual: Array, steps: int
) -> tuple[Array, Array]:
    """Solve (X' diag(curvature_k) X + diag tau) d_k = residual_k from zero; return d and X d.

    All topics at once; `steps` steps cost 2 `steps` - 1 products with X: 4 N D K `steps` flops with that of
    the residual, or 4 (entries of X that are not zero) K `steps`.
    """
    prior, direction, square = tau[:, None], residual, (residual**2).sum(axis=0)
    solution, image = jnp.zeros_like(residual), jnp.zeros_like(curvature)
    for step in range(steps):
        along = times(data, direction)
        bent = curvature * along
        quadratic = (bent * along).sum(axis=0) + (prior * direction**2).sum(axis=0)
        length = _ratio(square, quadratic)
        solution, image = solution + length * direction, image + length * along
        if step + 1 < steps:
            residual = residual - length * (transposed_times(data, bent) + prior * direction)
            new = (residual**2).sum(axis=0)
            direction, square = residual + _ratio(new, square) * direction, new
    return solution, image


def _ratio(above: Array, below: Array) -> Array:
    positive = below > 0
    return jnp.where(positive, above / jnp.where(positive, below, 1.0), 0.0)


def conjugate_gradient_weights(
    data: EMData, omega: Array, target: Array, tau: Array, state: EMState, steps: int
) -> tuple[Array, Array]:
    """Take `steps` steps on the Polya-Gamma quadratic from the weights of `state`; return them and X w."""
    residual = transposed_times(data, target - omega * state.psi) - tau[:, None] * state.weights
    change, image = conjugate_gradients(data, omega, tau, residual, steps)
    return state.weights + change, state.psi + image


def newton_weights(
    state: EMState, data: EMData, omega: Array, tau: Array, active: Array | None, steps: int
) -> EMState:
    """Move along `steps` conjugate-gradient steps on the true curvature, never less far up than is safe.

    Where a label is rare the Polya-Gamma quadratic is far too curved: b tanh(c/2)/(2c) against
    b p (1 - p), 30 times at p = .0025, and its steps crawl. Here the direction d solves the Newton system; of
    its length 1 and the length that maximises the Polya-Gamma quadratic along d, which cannot lower the
    objective, each topic takes the one that gains more. No further product with X.
    """
    offset = 0.0 if state.log_mass is None else state.log_mass
    logit = state.psi + offset
    if active is not None:
        logit = jnp.where(active, logit, -jnp.inf)
    b, prob = state.row_counts + state.shape, jax.nn.sigmoid(logit)
    prior = tau[:, None]
    residual = transposed_times(data, state.row_counts - b * prob) - prior * state.weights
    change, image = conjugate_gradients(data, b * prob * (1.0 - prob), tau, residual, steps)
    safe = _ratio(
        (residual * change).sum(axis=0), (omega * image**2).sum(axis=0) + (prior * change**2).sum(axis=0)
    )

    def gain(length: Array) -> Array:
        rise = jax.nn.softplus(logit + length * image) - jax.nn.softplus(logit)
        moved = (prior * change * (state.weights + 0.5 * length * change)).sum(axis=0)
        return (length * state.row_counts * image - b * rise).sum(axis=0) - length * moved

    length = jnp.where(gain(jnp.ones_like(safe)) >= gain(safe), 1.0, safe)
    return state._replace(weights=state.weights + length * change, psi=state.psi + length * image)


def update_embedding(state: EMState, data: EMData, config: EMConfig) -> EMState:
    """Set u to (r + M) / (s + e^-psi), eq. 13 as a rate: the mode of log u, or the gamma factor's mean."""
    log_mass = 0.0 if state.log_mass is None else state.log_mass
    log_rate = jnp.logaddexp(log_mass, -state.psi)
    return with_embedding(state, state.shape + state.row_counts, log_rate, config.algorithm)


def update_topics(state: EMState, data: EMData, config: EMConfig) -> EMState:
    """Set v_kl to m_kl + hidden_kl + eta over its sum: the mode in softmax coordinates, for every eta > 0.

    hidden_kl = v_kl sum over rows with label l missing of u_nk: the Poisson mean of the unseen counts.
    """
    counts = state.label_counts + config.topic_concentration
    if data.exposure is not None:
        embedding = state.concentration * jnp.exp(-state.log_rate)
        hidden = missing_by_label(embedding, data.exposure, counts.shape[0])
        counts = counts + jnp.exp(state.log_topics) * hidden
    return state._replace(log_topics=jnp.log(counts) - jnp.log(counts.sum(axis=0)))


def update_shape(state: EMState, data: EMData, config: EMConfig) -> EMState:
    """Set r_k to the root of (e0 - 1)/r - f0 + sum_n (E log u - psi) - N digamma(r), by bisection in log r."""
    if not config.learn_shape:
        return state
    e0, f0 = config.shape_prior
    num_obs = state.psi.shape[0]
    slope = (state.log_embedding - state.psi).sum(axis=0) - f0

    def halve(_: Array, interval: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = interval
        middle = jnp.sqrt(low * high)
        rising = (e0 - 1) / middle + slope - num_obs * digamma(middle) > 0
        return jnp.where(rising, middle, low), jnp.where(rising, high, middle)

    ends = (jnp.full_like(state.shape, config.shape_floor), jnp.full_like(state.shape, SHAPE_CEILING))
    low, high = jax.lax.fori_loop(0, _BISECTIONS, halve, ends)
    return state._replace(shape=jnp.sqrt(low * high))


Step = Callable[[EMState, EMData, EMConfig], EMState]

STEPS: Mapping[str, Step] = {
    "weights": update_weights,
    "embedding": update_embedding,
    "topics": update_topics,
    "shape": update_shape,
    "counts": with_counts,
}
"""The blocks of a sweep in order; the checks replace one by a wrong version."""


def sweep(state: EMState, data: EMData, config: EMConfig, steps: Mapping[str, Step] = STEPS) -> EMState:
    """Update every block once; the counts come last, so that they and the objective are of one point.

    The weights and the embedding are one block given the counts (the weights with the embedding profiled
    out), the topics follow with the counts of the old point: all maximise one lower bound in turn.

    Cost: 8 N D K flops for the weights at two conjugate-gradient steps (X is read four times; only its
    entries that are not zero, where they are few), about (10 + one exp) P K flops and 32 P K bytes gathered at the P positives (and missing cells), some 60 N K
    flops element by element. No array of rows x labels or positives x topics is formed.
    """
    for step in steps.values():
        state = step(state, data, config)
    return state
