"""The two objectives of the EM engines, from what a sweep has at hand; no further pass over the cells."""

import math
from typing import Any

import jax.numpy as jnp

from labelzoo.inference.bernoulli_poisson_topics.em_data import EMData
from labelzoo.inference.bernoulli_poisson_topics.em_state import EMConfig, EMState
from labelzoo.inference.bernoulli_poisson_topics.fast_functions import log_add, positive_gammaln

Array = Any


def objective(state: EMState, data: EMData, config: EMConfig) -> Array:
    """Return what the sweep raises, less `constant`: log joint density ("map") or evidence bound ("vb").

    ``map``: log p(Y | U, V) + log p(log U | W, r) + log p(V) + log p(W), V in the softmax basis.
    ``vb``: E log p(Y, counts, U | V, W, r) + entropies + log p(V) + log p(W) (+ log p(r) where learned).
    Where precisions are learned, they are integrated out of p(W). Nats, float64.
    """
    return (
        state.positive_term
        + embedding_term(state, config)
        + config.topic_concentration * state.log_topics.sum(dtype=jnp.float64)
        + weight_term(state.weights, data, config)
        + (shape_term(state.shape, config) if config.learn_shape else 0.0)
    )


def constant(state: EMState, data: EMData, config: EMConfig) -> Array:
    """Return the normalisers of the priors of V, W (and r): millions of nats where topics are many.

    They are kept out of `objective`, so that its relative change is one of the fit.
    """
    (num_labels, num_topics), num_features = state.log_topics.shape, state.weights.shape[0]
    eta = config.topic_concentration
    total = num_topics * (math.lgamma(eta * num_labels) - num_labels * math.lgamma(eta))
    total -= 0.5 * num_topics * num_features * math.log(2 * math.pi)
    if config.learn_shape:
        e0, f0 = config.shape_prior
        total += num_topics * (e0 * math.log(f0) - math.lgamma(e0))
    if config.precision_prior is None:
        return total + 0.5 * num_topics * jnp.log(jnp.asarray(data.precision)).sum(dtype=jnp.float64)
    a, b = config.precision_prior
    end = a + num_topics / 2
    # (b + sum of squares / 2)^-end is kept relative to its value at 0.
    return total + num_features * (math.lgamma(end) - math.lgamma(a) + (a - end) * math.log(b))


def embedding_term(state: EMState, config: EMConfig) -> Array:
    """Return -sum s u + log p(log U | W, r), or its bound with the entropy of the gamma factors.

    With u = a / rate and t = log rate + psi: "map" sums r log a - r t - lgamma r - (s + e^-psi) u; "vb" sums
    (r - a) digamma(a) + lgamma(a) + a - r t - lgamma r - (s + e^-psi) u.
    """
    a, r = state.concentration, state.shape
    log_mass: Any = 0.0 if state.log_mass is None else state.log_mass
    expected = a * jnp.exp(log_add(log_mass, -state.psi) - state.log_rate)
    common = -r * (state.log_rate + state.psi) - positive_gammaln(r) - expected
    if config.algorithm == "map":
        return (common + r * (state.log_embedding + state.log_rate)).sum(dtype=jnp.float64)
    return (common + (r - a) * (state.log_embedding + state.log_rate) + positive_gammaln(a) + a).sum(
        dtype=jnp.float64
    )


def weight_term(weights: Array, data: EMData, config: EMConfig) -> Array:
    """Return log p(W) up to a constant; with learned precisions that of the Student density left by them."""
    squares = (weights**2).sum(axis=1)
    if config.precision_prior is None:
        return -0.5 * (data.precision * squares).sum(dtype=jnp.float64)
    a, b = config.precision_prior
    return -(a + weights.shape[1] / 2) * jnp.log1p(squares / (2 * b)).sum(dtype=jnp.float64)


def shape_term(shape: Array, config: EMConfig) -> Array:
    """Return log p(r) of the gamma prior up to a constant."""
    e0, f0 = config.shape_prior
    return ((e0 - 1) * jnp.log(shape) - f0 * shape).sum(dtype=jnp.float64)
