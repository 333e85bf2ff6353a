"""A sweep put together from exchangeable steps, iterated to rest: where wrong updates end."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from labelzoo.inference.gp_bernoulli_mixture import local, mean_field, structured
from labelzoo.inference.gp_bernoulli_mixture.factors import Factors, Problem
from labelzoo.inference.gp_bernoulli_mixture.gates import gate_step

Array = Any

SWEEPS = 2_000
STILL = 1e-11
"""Largest move of a responsibility or gate in a sweep at rest."""
RUNAWAY = 1e3
"""Gates beyond this have no rest."""


class Steps(NamedTuple):
    """Steps in place of the right ones; None: the right one.

    Attributes
    ----------
    responsibility : callable or None
        ``(problem, factors, tilt) -> phi``.
    sites : callable or None
        ``(phi, count, tilt) -> (weight, potential)``.
    counts : callable or None
        ``(problem, mean, tilt) -> gamma``.
    gate : callable or None
        ``(problem, weight, potential) -> Gate``.
    stale_tilt : bool
        Keep the tilts of the start.
    keeps_mean : bool
        The gates' sites are shifted by -gate_mean W.
    """

    responsibility: Callable[..., Array] | None = None
    sites: Callable[..., Any] | None = None
    counts: Callable[..., Array] | None = None
    gate: Callable[..., Any] | None = None
    stale_tilt: bool = False
    keeps_mean: bool = True


def counts_of(method: str) -> Callable[[Problem, Array, Array], Array]:
    """Return the right gamma of a method, given means and tilts."""

    def counts(problem: Problem, mean: Array, c: Array) -> Array:
        J = -local.log_two_cosh_half(c)
        if method == "structured":
            return local.structured_counts(local.log_miss(mean, J))
        return mean_field.rest_of_counts(mean, J)[0]

    return counts


def at_rest(
    problem: Problem, phi: Array, method: str, steps: Steps
) -> tuple[Factors, Array, Array, Array | None]:
    """Return factors, tilts, beta and (where its step is wrong) gamma where the sweep comes to rest."""
    counts = steps.counts or counts_of(method)
    sites, gates = steps.sites or mean_field.site_step, steps.gate or gate_step
    responsibility = steps.responsibility or structured.responsibility_step
    factors = structured.start_from(problem, phi).factors
    first = local.tilt(factors.gate_mean_q, factors.gate_variance)
    for _ in range(SWEEPS):
        old, phi = factors, factors.responsibility
        c = first if steps.stale_tilt else local.tilt(factors.gate_mean_q, factors.gate_variance)
        pair = sites(phi, counts(problem, factors.gate_mean_q, c), c)
        gate = gates(problem, *pair)
        a, b = structured.theta_step(problem, phi)
        factors = Factors(a, b, phi, gate.mean, gate.variance, *pair)
        c = first if steps.stale_tilt else local.tilt(gate.mean, gate.variance)
        factors = factors._replace(responsibility=responsibility(problem, factors, c))
        moves = zip(old[2:4], factors[2:4], strict=True)
        if max(float(np.abs(x - y).max()) for x, y in moves) < STILL or np.abs(gate.mean).max() > RUNAWAY:
            break
    c = first if steps.stale_tilt else local.tilt(factors.gate_mean_q, factors.gate_variance)
    shift = problem.gate_mean if steps.keeps_mean else 0.0
    beta = factors.potential - shift * factors.weight
    count = counts(problem, factors.gate_mean_q, c) if steps.counts else None
    return factors, c, beta, count
