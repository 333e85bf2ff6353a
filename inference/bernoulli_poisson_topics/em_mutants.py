"""Deliberately wrong EM steps; the stationarity check must reject every one."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp

from labelzoo.inference.bernoulli_poisson_topics.em_data import EMData
from labelzoo.inference.bernoulli_poisson_topics.em_state import EMConfig, EMState, with_embedding
from labelzoo.inference.bernoulli_poisson_topics.em_steps import (
    Step,
    expected_counts,
    update_shape,
    update_topics,
    with_counts,
)
from labelzoo.inference.bernoulli_poisson_topics.em_weights import update_weights

Array = Any


class EMMutant(NamedTuple):
    """Wrong steps, by the names of `em_steps.STEPS`.

    Attributes
    ----------
    name : str
        What is wrong, in words.
    shown_by : {"map", "vb", "missing", "shape"}
        The case that shows it.
    steps : mapping of str to callable
    """

    name: str
    shown_by: Literal["map", "vb", "missing", "shape"]
    steps: Mapping[str, Step]


def _topics_at_simplex_mode(state: EMState, data: EMData, config: EMConfig) -> EMState:
    counts = jnp.maximum(state.label_counts + config.topic_concentration - 1.0, 1e-4)
    return state._replace(log_topics=jnp.log(counts) - jnp.log(counts.sum(axis=0)))


def _topics_without_prior(state: EMState, data: EMData, config: EMConfig) -> EMState:
    return update_topics(state, data, config._replace(topic_concentration=1e-6))


def _topics_without_hidden_counts(state: EMState, data: EMData, config: EMConfig) -> EMState:
    return update_topics(state, data._replace(exposure=None), config)


def _weights_with(change: Callable[[EMState], EMState], tau: float = 1.0) -> Step:
    """The weight step on a changed state, with the precisions scaled; the counts themselves are kept."""

    def step(state: EMState, data: EMData, config: EMConfig) -> EMState:
        if data.precision is not None:
            data = data._replace(precision=tau * data.precision)
        new = update_weights(change(state), data, config)
        return state._replace(weights=new.weights, psi=new.psi)

    return step


def _without_shape(state: EMState) -> EMState:
    # kappa = (M - r)/2 and b = M + r: r = 0 drops it from both.
    return state._replace(shape=jnp.zeros_like(state.shape))


def _without_offset(state: EMState) -> EMState:
    return state._replace(log_mass=None)


def _cold(state: EMState) -> EMState:
    return state._replace(weights=jnp.zeros_like(state.weights), psi=jnp.zeros_like(state.psi))


def _embedding(concentration: float = 0.0, prior_rate: float = 1.0, exposure: bool = True) -> Step:
    """The embedding step with its concentration shifted, its prior rate scaled, or exposure one for s."""

    def step(state: EMState, data: EMData, config: EMConfig) -> EMState:
        log_mass = state.log_mass if exposure and state.log_mass is not None else jnp.zeros_like(state.psi)
        rate = jnp.logaddexp(log_mass, jnp.log(prior_rate) - state.psi)
        return with_embedding(state, state.shape + state.row_counts + concentration, rate, config.algorithm)

    return step


def _counts_by_mean(state: EMState, data: EMData, config: EMConfig) -> EMState:
    wrong = with_embedding(state, state.concentration, state.log_rate, "map")
    return with_counts(wrong, data, config)


def _counts_without_truncation(state: EMState, data: EMData, config: EMConfig) -> EMState:
    """Expected counts v u instead of v u / (1 - e^-lambda)."""
    new = with_counts(state, data, config)
    log_u = state.log_embedding
    cells = data.positives
    row, label, weight = cells.row.ravel(), cells.label.ravel(), cells.weight.ravel()
    rates = jnp.exp(state.log_topics[label] + log_u[row]) * weight[:, None]
    by_row = jnp.zeros_like(new.row_counts).at[row].add(rates)
    return new._replace(row_counts=by_row, label_counts=jnp.zeros_like(new.label_counts).at[label].add(rates))


def _counts_untied(state: EMState, data: EMData, config: EMConfig) -> EMState:
    """One count a positive, not a zero-truncated Poisson number of them."""
    tiny = expected_counts(state.log_topics, state.log_embedding - 30.0, data.positives)
    return with_counts(state, data, config)._replace(row_counts=tiny[0], label_counts=tiny[1])


def _shape_without_prior(state: EMState, data: EMData, config: EMConfig) -> EMState:
    return update_shape(state, data, config._replace(shape_prior=(1.0, 1e-3)))


MUTANTS = (
    EMMutant("topics at the simplex mode (eta - 1)", "map", {"topics": _topics_at_simplex_mode}),
    EMMutant("topics without their prior", "map", {"topics": _topics_without_prior}),
    EMMutant(
        "no -r/2 in kappa, no r in the Polya-Gamma mean", "map", {"weights": _weights_with(_without_shape)}
    ),
    EMMutant("weights by 2 conjugate-gradient steps from zero", "map", {"weights": _weights_with(_cold)}),
    EMMutant(
        "embedding at the mode of u, not of log u", "map", {"embedding": _embedding(concentration=-0.5)}
    ),
    EMMutant("counts not truncated at zero", "map", {"counts": _counts_without_truncation}),
    EMMutant("prior precision doubled", "vb", {"weights": _weights_with(lambda state: state, tau=2.0)}),
    EMMutant("embedding with twice the prior's rate", "vb", {"embedding": _embedding(prior_rate=2.0)}),
    EMMutant("one count a positive", "vb", {"counts": _counts_untied}),
    EMMutant("log of the mean for the mean of the log", "vb", {"counts": _counts_by_mean}),
    EMMutant("hidden counts dropped", "missing", {"topics": _topics_without_hidden_counts}),
    EMMutant("offset log s dropped from the weights", "missing", {"weights": _weights_with(_without_offset)}),
    EMMutant("embedding with exposure one", "missing", {"embedding": _embedding(exposure=False)}),
    EMMutant("shapes without their prior", "shape", {"shape": _shape_without_prior}),
)
"""Each is shown where it is seen best: one run to rest is seconds, and both algorithms share the steps."""
