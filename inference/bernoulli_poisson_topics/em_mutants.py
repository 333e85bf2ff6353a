"""Deliberately wrong EM steps; the stationarity check must reject every one.

A fault is stated as what one block sees instead of the truth, so that all faults of an algorithm and its
right steps run in one compiled program.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from labelzoo.inference.bernoulli_poisson_topics.em_data import EMData
from labelzoo.inference.bernoulli_poisson_topics.em_state import EMConfig, EMState
from labelzoo.inference.bernoulli_poisson_topics.em_steps import Step

Array = Any
Seen = tuple[EMState, EMData, EMConfig]
Change = Callable[[EMState, EMData, EMConfig], Seen]


class EMMutant(NamedTuple):
    """A wrong step.

    Attributes
    ----------
    name : str
        What is wrong, in words.
    shown_by : {"map", "vb", "missing", "shape"}
        The case that shows it.
    block : str
        The step of `em_steps.STEPS` that is wrong.
    change : callable
        ``(state, data, config)`` to what the step sees in their place, of the same structure. Parts that
        the step leaves alone keep their true values.
    """

    name: str
    shown_by: Literal["map", "vb", "missing", "shape"]
    block: str
    change: Change


def step_with_faults(step: Step, faults: list[tuple[int, Change]], fault: Array) -> Step:
    """Return `step`, on what a fault shows it where the traced number `fault` is one of `faults`."""

    def chosen(state: EMState, data: EMData, config: EMConfig) -> EMState:
        truth = seen = (state, data, config)
        for number, change in faults:
            here = fault == number
            seen = jax.tree.map(
                lambda new, old, now, here=here: now if new is old else jnp.where(here, new, now),
                change(*truth),
                truth,
                seen,
            )
        new = step(*seen)
        return jax.tree.map(lambda after, before, old: old if after is before else after, new, seen[0], state)

    return chosen if faults else step


def _of_state(change: Callable[[EMState], EMState]) -> Change:
    return lambda state, data, config: (change(state), data, config)


def _without_exposure(data: EMData) -> EMData:
    """Every cell observed, in the layout of data with missing cells."""
    if data.exposure is None:
        return data
    base, cells = data.exposure
    nothing = cells._replace(weight=jnp.zeros_like(cells.weight))
    return data._replace(exposure=data.exposure._replace(base=jnp.ones_like(base), cells=nothing))


def _topics_at_simplex_mode(state: EMState, data: EMData, config: EMConfig) -> Seen:
    eta = config.topic_concentration
    counts = jnp.maximum(state.label_counts + eta - 1.0, 1e-4) - eta
    return state._replace(label_counts=counts), _without_exposure(data), config


def _topics_without_prior(state: EMState, data: EMData, config: EMConfig) -> Seen:
    return state, data, config._replace(topic_concentration=1e-6)


def _without_hidden_counts(state: EMState, data: EMData, config: EMConfig) -> Seen:
    return state, _without_exposure(data), config


def _without_shape(state: EMState) -> EMState:
    # kappa = (M - r)/2 and b = M + r: r = 0 drops it from both.
    return state._replace(shape=jnp.zeros_like(state.shape))


def _without_mass(state: EMState) -> EMState:
    return state if state.log_mass is None else state._replace(log_mass=jnp.zeros_like(state.log_mass))


def _cold(state: EMState) -> EMState:
    return state._replace(weights=jnp.zeros_like(state.weights), psi=jnp.zeros_like(state.psi))


def _precision_doubled(state: EMState, data: EMData, config: EMConfig) -> Seen:
    return state, data if data.precision is None else data._replace(precision=2.0 * data.precision), config


def _mode_of_u(state: EMState) -> EMState:
    return state._replace(row_counts=state.row_counts - 0.5)


def _prior_rate_doubled(state: EMState) -> EMState:
    return state._replace(psi=state.psi - jnp.log(2.0))


def _log_of_mean(state: EMState) -> EMState:
    return state._replace(log_embedding=jnp.log(state.concentration) - state.log_rate)


def _untied(state: EMState) -> EMState:
    # At rates near zero the truncated mean is one.
    return state._replace(log_embedding=state.log_embedding - 30.0)


def _not_truncated(state: EMState, data: EMData, config: EMConfig) -> Seen:
    """Expected counts v u instead of v u / (1 - e^-lambda): every positive weighs 1 - e^-lambda."""
    cells = data.positives
    rate = jnp.exp(state.log_topics[cells.label] + state.log_embedding[cells.row]).sum(axis=-1)
    weight = -cells.weight * jnp.expm1(-rate)
    return state, data._replace(positives=cells._replace(weight=weight)), config


def _without_shape_prior(state: EMState, data: EMData, config: EMConfig) -> Seen:
    return state, data, config._replace(shape_prior=(1.0, 1e-3))


MUTANTS = (
    EMMutant("topics at the simplex mode (eta - 1)", "map", "topics", _topics_at_simplex_mode),
    EMMutant("topics without their prior", "map", "topics", _topics_without_prior),
    EMMutant("no -r/2 in kappa, no r in the Polya-Gamma mean", "map", "weights", _of_state(_without_shape)),
    EMMutant("weights by 2 conjugate-gradient steps from zero", "map", "weights", _of_state(_cold)),
    EMMutant("embedding at the mode of u, not of log u", "map", "embedding", _of_state(_mode_of_u)),
    EMMutant("counts not truncated at zero", "map", "counts", _not_truncated),
    EMMutant("prior precision doubled", "vb", "weights", _precision_doubled),
    EMMutant("embedding with twice the prior's rate", "vb", "embedding", _of_state(_prior_rate_doubled)),
    EMMutant("one count a positive", "vb", "counts", _of_state(_untied)),
    EMMutant("log of the mean for the mean of the log", "vb", "counts", _of_state(_log_of_mean)),
    EMMutant("hidden counts dropped", "missing", "topics", _without_hidden_counts),
    EMMutant("offset log s dropped from the weights", "missing", "weights", _of_state(_without_mass)),
    EMMutant("embedding with exposure one", "missing", "embedding", _of_state(_without_mass)),
    EMMutant("shapes without their prior", "shape", "shape", _without_shape_prior),
)
"""Each is shown where it is seen best: both algorithms share the steps."""
