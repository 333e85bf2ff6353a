"""Amplitude and length scale of the gates' kernel by the variational bound.

At fixed sites (W, beta) the best q(f) has the bound's f terms sum to the log normaliser

    g = sum_k [beta_k' S_k beta_k - ln |B_k|] / 2,   beta = r - gate_mean W,

whose derivative is dg = sum_k [alpha' dSigma alpha - tr(R dSigma)] / 2 with alpha = beta - R Sigma beta and
R = s B^-1 s. A rise of g at the sites of the current q, followed by a new q(f), raises the bound.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import lapack
from scipy.optimize import minimize

from labelzoo.inference.gp_bernoulli_mixture import starts, structured
from labelzoo.inference.gp_bernoulli_mixture.ascent import guarded
from labelzoo.inference.gp_bernoulli_mixture.factors import Problem
from labelzoo.inference.gp_bernoulli_mixture.gates import gate_step
from labelzoo.inference.gp_bernoulli_mixture.terms import labels_of
from labelzoo.models.gp_bernoulli_mixture_settings import prior_tables
from labelzoo.models.gp_kernel import median_squared_distance, squared_distances
from labelzoo.models.sparse_bayes_kernel import GraphKernel

Array = Any

MAX_ROWS = 800
"""Rows, evenly spaced, that the bound reads: an evaluation costs components x rows^3."""
LENGTH_RANGE = (0.1, 10.0)
"""length2 over the median squared distance."""
AMPLITUDE_RANGE = (0.1, 100.0)
ROUNDS, SWEEPS, EVALUATIONS = 25, 5, 5
"""Rounds at most, sweeps of q in each, and evaluations of g in each."""
SETTLED = 1e-5
"""Relative rise of the bound in a round that ends them."""


class Learned(NamedTuple):
    """What maximised the bound.

    Attributes
    ----------
    amplitude, length2 : float
    responsibility : (row, component)
        Of the rows that were read, at most `MAX_ROWS`.
    trace : (round,)
        The bound after every round, nats; it never falls.
    """

    amplitude: float
    length2: float
    responsibility: Array
    trace: Array


class Collapsed(NamedTuple):
    """g in nats and its derivatives by ln amplitude and ln length."""

    value: float
    gradient: Array


def collapsed(Sigma: Array, weight: Array, beta: Array, slope: Array | None = None) -> Collapsed:
    """Return g and its derivatives at fixed sites: about 4 rows^3 / 3 flops a component.

    Parameters
    ----------
    Sigma : (obs, obs)
    weight, beta : (obs, component)
    slope : (obs, obs) or None
        dSigma / d ln length; None: no such derivative.
    """
    rows, components = weight.shape
    value, by_amplitude = 0.0, 0.0
    total = np.zeros((rows, rows), order="F") if slope is not None else None
    for k in range(components):
        s = np.sqrt(weight[:, k])
        B = np.asfortranarray(Sigma * s[:, None] * s)
        B[np.diag_indices(rows)] += 1.0
        L, failed = lapack.dpotrf(B, lower=1, overwrite_a=1, clean=1)
        if failed:
            raise FloatingPointError(f"component {k}: the weights of its gate are not finite")
        pull = Sigma @ beta[:, k]
        alpha = beta[:, k] - s * lapack.dpotrs(L, s * pull, lower=1)[0]
        shift = Sigma @ alpha
        value += 0.5 * float(beta[:, k] @ shift) - float(np.log(np.diagonal(L)).sum())
        inverse = lapack.dpotri(L, lower=1, overwrite_c=1)[0]
        by_amplitude += 0.5 * float(alpha @ shift) - 0.5 * (rows - float(np.trace(inverse)))
        if total is not None:
            total += np.outer(alpha, alpha) - _symmetric(inverse) * s[:, None] * s
    parts = [by_amplitude] if total is None else [by_amplitude, 0.5 * float((total * slope).sum())]
    return Collapsed(value, np.array(parts))


def _symmetric(lower: Array) -> Array:
    strict = np.tril(lower, -1)
    strict += strict.T
    strict[np.diag_indices(len(lower))] = np.diagonal(lower)
    return strict


class _Family(NamedTuple):
    """The kernel as a function of (ln amplitude, ln length)."""

    unit: Array
    distances: Array | None
    limits: list[tuple[float, float]]

    def at(self, point: Array) -> tuple[Array, Array | None]:
        """Return Sigma and its derivative by ln length."""
        if self.distances is None:
            return np.exp(point[0]) * self.unit, None
        scaled = self.distances / np.exp(2.0 * point[1])
        Sigma = np.exp(point[0] - 0.5 * scaled)
        return Sigma, Sigma * scaled


def _family(kernel: GraphKernel, mapped: Array, median: float) -> _Family:
    limits = [(float(np.log(AMPLITUDE_RANGE[0])), float(np.log(AMPLITUDE_RANGE[1])))]
    if kernel.kind != "rbf":
        return _Family(kernel.of_mapped(mapped, mapped), None, limits)
    low, high = (0.5 * float(np.log(edge * median)) for edge in LENGTH_RANGE)
    return _Family(np.zeros((0, 0)), squared_distances(mapped, mapped), [*limits, (low, high)])


def learn_kernel(
    kernel: GraphKernel, mapped: Array, Y: Array, observed: Array, settings: Mapping[str, Any]
) -> Learned:
    """Choose amplitude (and length2, for rbf) by the bound of `structured`, from the settings' values.

    Sweeps of q alternate with a climb of g at fixed sites, at most 25 x (5 + 5 x 2) x components x
    rows^3 x 2 / 3 flops. The bound never falls. Both numbers are kept in a range: length2 within a factor 10
    of the median squared distance, amplitude from .1 to 100.

    Parameters
    ----------
    kernel : GraphKernel
        With the length2 to start from.
    mapped : (obs, feature)
    Y, observed : (obs, labels)
    settings : mapping
        num_components, gate_mean, amplitude, prior_mean, prior_strength and start_seed of the model.
    """
    rows = np.unique(np.linspace(0, len(mapped) - 1, min(len(mapped), MAX_ROWS)).round().astype(int))
    family = _family(kernel, np.asarray(mapped[rows], float), median_squared_distance(mapped))
    Y, observed = np.asarray(Y, float)[rows], np.asarray(observed, bool)[rows]
    start = [np.log(float(settings["amplitude"])), 0.5 * np.log(float(kernel.length2))]
    point = _clipped(np.array(start[: len(family.limits)]), family.limits)
    prior = prior_tables((Y * observed).sum(axis=0), observed.sum(axis=0), settings)
    problem = Problem(
        labels_of(Y, observed), np.zeros((len(rows), 1)), None, float(settings["gate_mean"]), *prior
    )
    point, state, trace = _climb(problem, family, point, int(settings["start_seed"]))
    length2 = float(np.exp(2.0 * point[1])) if len(point) > 1 else float(kernel.length2)
    phi = state.factors.responsibility
    return Learned(float(np.exp(point[0])), length2, phi, np.array(trace))


def _clipped(point: Array, limits: list[tuple[float, float]]) -> Array:
    return np.clip(point, [low for low, _ in limits], [high for _, high in limits])


def _climb(problem: Problem, family: _Family, point: Array, seed: int) -> tuple[Array, Any, list[float]]:
    """Alternate sweeps of q with climbs of the kernel; stop where a round adds little."""
    problem = problem._replace(covariance=np.asfortranarray(family.at(point)[0]))
    phi = starts.responsibilities_of(problem, 0, np.random.default_rng(seed))
    state, trace = structured.start_from(problem, phi), []
    for _ in range(ROUNDS):
        for _ in range(SWEEPS):
            state = guarded(partial(structured.sweep, problem), state)
        factors = state.factors
        sites = structured.site_step(factors.responsibility, factors.gate_mean_q, factors.gate_variance)
        found = best_point(family, point, sites[0], sites[1] - problem.gate_mean * sites[0])
        changed = problem._replace(covariance=np.asfortranarray(family.at(found)[0]))
        gate = gate_step(changed, *sites)
        moved = factors._replace(
            gate_mean_q=gate.mean, gate_variance=gate.variance, weight=sites[0], potential=sites[1]
        )
        value = structured.bound(changed, moved, gate.divergence)
        if value >= state.objective:
            point, problem = found, changed
            state = structured.State(moved, gate.divergence, value, state.stretch)
        trace.append(state.objective)
        if len(trace) > 1 and trace[-1] - trace[-2] < SETTLED * (1.0 + abs(trace[-1])):
            break
    return point, state, trace


def best_point(family: Any, point: Array, weight: Array, beta: Array) -> Array:
    """Return a point in the ranges where g at these sites is no lower than at `point`."""

    def fall(at: Array) -> tuple[float, Array]:
        Sigma, slope = family.at(at)
        found = collapsed(Sigma, weight, beta, slope)
        return -found.value, -found.gradient

    result = minimize(
        fall, point, jac=True, bounds=family.limits, method="L-BFGS-B", options={"maxfun": EVALUATIONS}
    )
    return _clipped(np.asarray(result.x, float), family.limits)
