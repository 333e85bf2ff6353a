"""Ways to plant an error in a claimed conditional, so that the checks can be seen to reject it."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from labelzoo.inference.bernoulli_poisson_topics.starts_mcmc import Array, Inputs, State
from labelzoo.inference.update import Claim

Given = Callable[[State, Inputs], Claim]


def at_state(given: Given, **changed: Callable[[State, Inputs], Any]) -> Given:
    """Return `given` read at a state with some entries replaced: a stale or wrong variable."""
    return lambda state, inputs: given({**state, **{k: f(state, inputs) for k, f in changed.items()}}, inputs)


def at_inputs(given: Given, **changed: Callable[[Inputs], Any]) -> Given:
    """Return `given` read with some arguments of the program replaced: a wrong prior, a forgotten mask."""
    return lambda state, inputs: given(state, {**inputs, **{k: f(inputs) for k, f in changed.items()}})


def altered(given: Given, change: Callable[[Any, State, Inputs], Claim]) -> Given:
    """Return `given` with its distribution replaced by ``change(claim, state, inputs)``."""
    return lambda state, inputs: change(given(state, inputs), state, inputs)


def whole_exposure(state: State, inputs: Inputs) -> Array:
    """Return arrival times of 1: positives exposed for the whole unit of time."""
    return jnp.ones_like(state["arrival_time"])


def wrong_topic(state: State, inputs: Inputs) -> Array:
    """Return the same topics of arrivals, one step round the circle: a count of the wrong topic."""
    return (state["arrival_topic"] + 1) % inputs["num_topics"]


def everything_observed(inputs: Inputs) -> Any:
    """Return negatives that include the missing cells: the mask forgotten."""
    negatives, positives = inputs["negatives"], inputs["positives"]
    return type(negatives)(
        jnp.ones_like(negatives.base), positives.row, positives.label, -jnp.ones(positives.row.shape[0])
    )
