"""The gradient of what the EM sweeps raise, in free coordinates, from what a sweep has at hand."""

from typing import Any

import jax.numpy as jnp
from jax.scipy.special import digamma

from labelzoo.inference.bernoulli_poisson_topics.em_data import (
    EMData,
    missing_by_label,
    transposed_times,
)
from labelzoo.inference.bernoulli_poisson_topics.em_state import EMConfig, EMState
from labelzoo.inference.bernoulli_poisson_topics.em_weights import prior_precision
from labelzoo.inference.bernoulli_poisson_topics.fast_functions import log_add, positive_trigamma

Array = Any

BLOCKS = ("weights", "topics", "embedding")
"""Blocks of the gradient, in the order of `gradient_norms`."""


def gradient(state: EMState, data: EMData, config: EMConfig) -> dict[str, tuple[Array, Array]]:
    """Return for each block the gradient of the objective and the pull that its zero balances.

    Coordinates: weights (feature, topic), logits of the topics (labels, topic), log u ("map") or log
    concentration and log rate of the gamma factors ("vb"; stacked), (obs, topic), and log shapes (topic,)
    where they are learned. By Fisher's identity the derivative of log(e^lambda - 1) by log u or log v of a
    topic is the expected count of that topic at the positive.
    """
    log_mass: Any = 0.0 if state.log_mass is None else state.log_mass
    embedding = state.concentration * jnp.exp(-state.log_rate)
    ratio = state.concentration * jnp.exp(-state.psi - state.log_rate)
    prior = prior_precision(state.weights, data, config)[:, None] * state.weights
    pull = transposed_times(data, ratio - state.shape)
    blocks = {
        "weights": (pull - prior, transposed_times(data, state.row_counts + state.shape)),
        "topics": _topics(state, data, config, embedding),
        "embedding": _embedding(state, config, jnp.exp(log_add(log_mass, -state.psi) - state.log_rate)),
    }
    return {**blocks, "shape": shape_gradient(state, config)} if config.learn_shape else blocks


def _topics(state: EMState, data: EMData, config: EMConfig, embedding: Array) -> tuple[Array, Array]:
    """The part of the exposure that is common to all labels drops out of the softmax."""
    counts = state.label_counts + config.topic_concentration
    topics = jnp.exp(state.log_topics)
    if data.exposure is not None:
        counts = counts + topics * missing_by_label(embedding, data.exposure, counts.shape[0])
    return counts - topics * counts.sum(axis=0), counts


def _embedding(state: EMState, config: EMConfig, ratio: Array) -> tuple[Array, Array]:
    """`ratio` is (s + e^-psi) / rate: one where the rate is that of the last sweep's weights and topics."""
    target, a = state.row_counts + state.shape, state.concentration
    if config.algorithm == "map":
        return target - a * ratio, target
    by_concentration = a * ((target - a) * positive_trigamma(a) + 1.0 - ratio)
    return jnp.stack([by_concentration, a * ratio - target]), jnp.stack([target, target])


def shape_gradient(state: EMState, config: EMConfig) -> tuple[Array, Array]:
    """Return the gradient by log r of a density of r itself, from E log u of `state`, and its pull."""
    (e0, f0), r, rows = config.shape_prior, state.shape, state.psi.shape[0]
    slope = (e0 - 1) / r - f0 + (state.log_embedding - state.psi).sum(axis=0) - rows * digamma(r)
    # At the floor a slope that points below it is no reason to go on.
    held = (r <= 1.001 * config.shape_floor) & (slope < 0)
    return jnp.where(held, 0.0, r * slope), jnp.full_like(r, float(rows))


def gradient_norms(state: EMState, data: EMData, config: EMConfig) -> Array:
    """Return the Euclidean norm of each block of the gradient over that of its pull: (block,).

    Free of the number of rows, labels and topics; zero in all blocks exactly at a stationary point.
    """
    blocks = gradient(state, data, config).values()
    return jnp.stack([_norm(slope) / (_norm(pull) + 1e-300) for slope, pull in blocks])


def _norm(values: Array) -> Array:
    return jnp.sqrt((values.astype(jnp.float64) ** 2).sum())
