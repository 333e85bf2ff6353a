"""The two objectives of the EM engines, from what a sweep has at hand; no further pass over the cells."""

import math
from typing import Any

import jax.numpy as jnp
from jax.scipy.special import digamma, gammaln

from labelzoo.inference.bernoulli_poisson_topics.em_data import EMData
from labelzoo.inference.bernoulli_poisson_topics.em_steps import EMConfig, EMState

Array = Any


def objective(state: EMState, data: EMData, config: EMConfig) -> Array:
    """Return what the sweep raises: log joint density ("map") or evidence bound ("vb"), nats, float64.

    ``map``: log p(Y | U, V) + log p(log U | W, r) + log p(V) + log p(W), V in the softmax basis.
    ``vb``: E log p(Y, counts, U | V, W, r) + entropies + log p(V) + log p(W) (+ log p(r) where learned).
    Where precisions are learned, they are integrated out of p(W).
    """
    return (
        state.positive_term
        + embedding_term(state, config)
        + log_prior_topics(state.log_topics, config)
        + log_prior_weights(state.weights, data, config)
        + (log_prior_shape(state.shape, config) if config.learn_shape else 0.0)
    )


def embedding_term(state: EMState, config: EMConfig) -> Array:
    """Return -sum s u + log p(log U | W, r), or its bound with the entropy of the gamma factors.

    With u = a / rate and t = log rate + psi: "map" sums r log a - r t - lgamma r - (s + e^-psi) u; "vb" sums
    (r - a) digamma(a) + lgamma(a) + a - r t - lgamma r - (s + e^-psi) u.
    """
    a, r = state.concentration, state.shape
    log_mass = 0.0 if state.log_mass is None else state.log_mass
    expected = a * jnp.exp(jnp.logaddexp(log_mass, -state.psi) - state.log_rate)
    common = -r * (state.log_rate + state.psi) - gammaln(r) - expected
    if config.algorithm == "map":
        return (common + r * jnp.log(a)).sum(dtype=jnp.float64)
    return (common + (r - a) * digamma(a) + gammaln(a) + a).sum(dtype=jnp.float64)


def log_prior_topics(log_topics: Array, config: EMConfig) -> Array:
    """Return log p(V) as a density of the softmax coordinates: sum eta log v - log normaliser."""
    num_labels, num_topics = log_topics.shape
    eta = config.topic_concentration
    constant = num_topics * (math.lgamma(eta * num_labels) - num_labels * math.lgamma(eta))
    return eta * log_topics.sum(dtype=jnp.float64) + constant


def log_prior_weights(weights: Array, data: EMData, config: EMConfig) -> Array:
    """Return log p(W); with learned precisions the Student density that is left when they are integrated."""
    num_topics, num_features = weights.shape
    squares = (weights**2).sum(axis=0)
    constant = -0.5 * num_topics * num_features * math.log(2 * math.pi)
    if config.precision_prior is None:
        logs = 0.5 * num_topics * jnp.log(data.precision)
        return (logs - 0.5 * data.precision * squares).sum(dtype=jnp.float64) + constant
    a, b = config.precision_prior
    end = a + num_topics / 2
    constant += num_features * (math.lgamma(end) - math.lgamma(a) + a * math.log(b))
    return -end * jnp.log(b + squares / 2).sum(dtype=jnp.float64) + constant


def log_prior_shape(shape: Array, config: EMConfig) -> Array:
    """Return log p(r) of the gamma prior."""
    e0, f0 = config.shape_prior
    constant = shape.shape[0] * (e0 * math.log(f0) - math.lgamma(e0))
    return ((e0 - 1) * jnp.log(shape) - f0 * shape).sum(dtype=jnp.float64) + constant
