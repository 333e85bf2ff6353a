"""The row scale move of the first-arrival sampler: u_n -> c u_n, t_n -> t_n / c, one number c a row.

The products t_nl lambda_nl and the directions of u_n do not change, so in the coordinates

    c_n = sum_k u_nk,  d_nk = u_nk / c_n,  e_nl = t_nl c_n

(view ``arrivals_polar``) it redraws c_n given all else, whose density there is

    c^(R - 1) exp(-c B),  c >= max_l e_nl,  R = sum_k r_k,
    B = sum over observed zeros l of (d_n V)_l + sum_k d_nk exp(-psi_nk):

a gamma law cut from below. A row that is nearly all positive has hardly anything that bounds its rate from
above; u_n then moves slowly through the times t_n, and this move goes along that direction at once. It reads
the current u_n, so its place is right after (t, z); between (r, W) and U it would read a stale one.

Cost a sweep: observed zeros or their complement x topics for B, and rows x (topics x 20 + 100) flops.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from labelzoo.inference.bernoulli_poisson_topics.mutants import altered, at_inputs, everything_observed
from labelzoo.inference.bernoulli_poisson_topics.starts_mcmc import (
    Array,
    Inputs,
    State,
    log_embedding_of,
    shape_of,
)
from labelzoo.inference.gamma_draws import blocked_gamma
from labelzoo.inference.update import Mutant, Update
from labelzoo.models.label_cells import negative_mass

DENSE_ROWS = 4.0
"""Positives a row from which ``row_scale="auto"`` makes the move; see `wants_row_scale`."""


def wants_row_scale(row_scale: Any, inputs: Inputs) -> bool:
    """Return whether the sweep makes the move: as told, or where rows are dense in positives.

    Raises
    ------
    ValueError
        If `row_scale` is none of True, False, "auto".
    """
    if isinstance(row_scale, bool):
        return row_scale
    if row_scale != "auto":
        raise ValueError(f"row_scale must be True, False or 'auto', got {row_scale!r}")
    return bool(inputs["positives"].row.shape[0] >= DENSE_ROWS * inputs["X"].shape[0])


def draw_scale(key: Array, concentration: Array, rate: Array, low: Array, current: Array) -> Array:
    """Make one independence step for c with density c^(R - 1) exp(-B c) on c >= low: (row,).

    The proposal is Gamma(R, B), taken if it is not below `low`, where the cut lies below the mean of that
    law, else `low` plus an exponential, whose weight falls from `low` on. Which of the two depends on
    R, B and `low` alone, so each is a Metropolis-Hastings step; acceptance is .5 or more, 1 without a cut.

    Parameters
    ----------
    concentration, rate, low, current : arrays (row,)
        R > 0, B > 0, the cut (0: none) and the current c >= low.
    """
    gamma_key, tail_key, accept_key = jax.random.split(key, 3)
    cut = rate * low
    in_tail = cut > concentration
    edge = jnp.where(in_tail, cut, 1.0)
    decay = jnp.clip(1.0 - (concentration - 1.0) / edge, 0.0, 1.0)
    decay = jnp.where(in_tail, jnp.maximum(decay, jnp.finfo(cut.dtype).tiny), 1.0)
    tail = low + jax.random.exponential(tail_key, cut.shape, cut.dtype) / (decay * rate)
    proposed = jnp.where(in_tail, tail, blocked_gamma(gamma_key, concentration) / rate)

    def log_weight(c: Array) -> Array:
        x = rate * c / edge
        slope = edge * (1.0 - decay)
        return jnp.where(in_tail, (concentration - 1.0) * jnp.log(x) - slope * x, 0.0)

    gain = log_weight(proposed) - log_weight(current)
    accepted = -jax.random.exponential(accept_key, gain.shape, gain.dtype) < gain
    return jnp.where(accepted & (proposed >= low) & jnp.isfinite(proposed), proposed, current)


def row_scale_step(key: Array, sites: State, inputs: Inputs) -> dict[str, Array]:
    """Make the move on ``embedding`` and ``arrival_time``; return `sites` with them."""
    log_u, row = log_embedding_of(sites), inputs["positives"].row
    psi = inputs["X"] @ sites["weights"].T
    held = negative_mass(sites["topics"], inputs["negatives"]) * jnp.exp(log_u) + jnp.exp(log_u - psi)
    low = _largest_by_row(sites["arrival_time"], inputs)
    ones = jnp.ones_like(low)
    c = draw_scale(key, ones * shape_of(sites, inputs).sum(), held.sum(axis=1), low, ones)
    log_u = log_u + jnp.log(c)[:, None]
    time = jnp.minimum(sites["arrival_time"] / c[row], 1.0)
    return {**sites, "log_embedding": log_u, "embedding": jnp.exp(log_u), "arrival_time": time}


def _largest_by_row(values: Array, inputs: Inputs) -> Array:
    """Return the largest of `values` (positive,) in each row, 0 where it has no positives: (obs,)."""
    zeros = jnp.zeros(inputs["X"].shape[0], values.dtype)
    return zeros.at[inputs["positives"].row].max(values, indices_are_sorted=True)


def _polar_terms(state: State, inputs: Inputs) -> tuple[Array, Array, Array]:
    """Return R, B and the cut of every row, from the sites of ``arrivals_polar``."""
    share, psi = state["embedding_share"], inputs["X"] @ state["weights"].T
    held = share * (negative_mass(state["topics"], inputs["negatives"]) + jnp.exp(-psi))
    low = _largest_by_row(state["scaled_time"], inputs)
    return jnp.ones_like(low) * shape_of(state, inputs).sum(), held.sum(axis=1), low


def _gamma_cut(concentration: Array, rate: Array, low: Array) -> Callable[[Mapping[str, Any]], Array]:
    def log_density(block: Mapping[str, Any]) -> Array:
        c = jnp.asarray(block["embedding_size"])
        terms = (concentration - 1.0) * jnp.log(c) - rate * c
        return jnp.where((c >= low).all(), terms.sum(), -jnp.inf)

    return log_density


def row_scale_given_rest(state: State, inputs: Inputs) -> Callable[[Mapping[str, Any]], Array]:
    """Return the log density of c (obs,) given directions, scaled times, z, V, W and r."""
    return _gamma_cut(*_polar_terms(state, inputs))


def row_scale_kernel(key: Array, state: State, inputs: Inputs) -> dict[str, Array]:
    """Make the step of `row_scale_step` on the sites of ``arrivals_polar``."""
    c = draw_scale(key, *_polar_terms(state, inputs), state["embedding_size"])
    return {**state, "embedding_size": c}


def _with_terms(change: Callable[..., tuple[Array, Array, Array]]) -> Any:
    return lambda state, inputs: _gamma_cut(*change(*_polar_terms(state, inputs), state, inputs))


def _prior_of_one_topic(_: Array, rate: Array, low: Array, state: State, inputs: Inputs) -> Any:
    return jnp.ones_like(low) * shape_of(state, inputs)[0], rate, low


def _jacobian_twice(concentration: Array, rate: Array, low: Array, state: State, inputs: Inputs) -> Any:
    count = jnp.zeros_like(low).at[inputs["positives"].row].add(1.0)
    return concentration - count, rate, low


def _positives_in_rate(concentration: Array, rate: Array, low: Array, state: State, inputs: Inputs) -> Any:
    at = inputs["positives"]
    hits = (state["topics"].T[at.label] * state["embedding_share"][at.row]).sum(axis=1)
    return concentration, rate.at[at.row].add(hits), low


ROW_SCALE_UPDATE = Update(
    name="row_scale_given_rest",
    sites=("embedding_size",),
    view="arrivals_polar",
    given=row_scale_given_rest,
    kernel=row_scale_kernel,
    mutants=(
        Mutant("shape of one topic instead of the sum", _with_terms(_prior_of_one_topic)),
        Mutant("Jacobian of the times counted twice", _with_terms(_jacobian_twice)),
        Mutant("positives in the rate", _with_terms(_positives_in_rate)),
        Mutant("mask forgotten", at_inputs(row_scale_given_rest, negatives=everything_observed)),
        Mutant(
            "prior dropped",
            altered(
                row_scale_given_rest,
                lambda claim, state, inputs: (
                    lambda block: (
                        claim(block)
                        - (shape_of(state, inputs).sum() - 1.0) * jnp.log(block["embedding_size"]).sum()
                    )
                ),
            ),
        ),
    ),
    equation="this project (a generalised Gibbs move)",
)
