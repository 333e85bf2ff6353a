"""One EM sweep: weights, embedding, topics (and shapes), then the expected counts at the new point.

Two algorithms share it. ``map`` maximises log p(Y | U, V) + log p(log U | W) + log p(V) + log p(W), with V in
the softmax basis: what the formulas of Rai et al. (2015), section 3.2, amount to. ``vb`` holds a gamma factor
q(u_nk) and maximises the evidence bound over it and over (V, W, r). The only difference is the logarithm that
enters the topic weights of a positive: log u at its mode, or E log u.

Arrays inside are (labels, topic), (feature, topic) and (obs, topic): the topics of one cell lie side by side.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma

from labelzoo.inference.bernoulli_poisson_topics.em_data import (
    Blocks,
    EMData,
    missing_by_label,
    observed_by_row,
)
from labelzoo.inference.bernoulli_poisson_topics.em_state import EMConfig, EMState, with_embedding
from labelzoo.inference.bernoulli_poisson_topics.em_weights import update_weights
from labelzoo.inference.bernoulli_poisson_topics.fast_functions import log_add
from labelzoo.inference.stable import log_expm1, zero_truncated_poisson_mean

Array = Any

SHAPE_CEILING = 1e3
_BISECTIONS = 60


def expected_counts(log_topics: Array, log_u: Array, positives: Blocks) -> tuple[Array, Array, Array]:
    """Return expected counts by row (obs, topic), by label (labels, topic), and sum log(e^lambda - 1).

    At a positive the counts are a zero-truncated Poisson total, lambda / (1 - e^-lambda) on average, shared
    out in proportion to v_kl u_nk: a softmax of log v + log u, which an underflow of lambda cannot harm.
    Positives pass in blocks, so memory is a block x topics.
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


def update_embedding(state: EMState, data: EMData, config: EMConfig) -> EMState:
    """Set u to (r + M) / (s + e^-psi), eq. 13 as a rate: the mode of log u, or the gamma factor's mean."""
    log_mass = 0.0 if state.log_mass is None else state.log_mass
    log_rate = log_add(log_mass, -state.psi)
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
    """Set r_k to the root of (e0 - 1)/r - f0 + sum_n (E log u - psi) - N digamma(r), by bisection."""
    if not config.learn_shape:
        return state
    total = (state.log_embedding - state.psi).sum(axis=0)
    return state._replace(shape=shape_root(total, state.psi.shape[0], config))


def shape_root(total: Array, num_obs: Any, config: EMConfig) -> Array:
    """Return the shapes (topic,) from sum_n (E log u - psi) over `num_obs` rows."""
    e0, f0 = config.shape_prior
    slope = total - f0

    def halve(_: Array, interval: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = interval
        middle = jnp.sqrt(low * high)
        rising = (e0 - 1) / middle + slope - num_obs * digamma(middle) > 0
        return jnp.where(rising, middle, low), jnp.where(rising, high, middle)

    ends = (jnp.full_like(slope, config.shape_floor), jnp.full_like(slope, SHAPE_CEILING))
    low, high = jax.lax.fori_loop(0, _BISECTIONS, halve, ends)
    return jnp.sqrt(low * high)


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
    entries that are not zero, where they are few), about (10 + one exp) P K flops and 32 P K bytes gathered
    at the P positives (and half of that at the missing cells, where there are any), some 100 N K
    flops element by element. No array of rows x labels or positives x topics is formed.
    """
    for step in steps.values():
        state = step(state, data, config)
    return state
