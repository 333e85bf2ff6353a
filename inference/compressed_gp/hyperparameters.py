"""Hyperparameters of the target processes: what is maximised, by gradients, and when.

Every optimiser searches log theta (target, 5) and maximises, target by target,

    log N(u_g; 0, C_g) - 1/2 sum_i (ln theta_i / 3)^2

between bounds. The second term is a weak prior: as the linear part or the constant goes to 0 the likelihood
is flat, and without it the search drifts there. The paper says nothing of either, nor of the noise, which
is learned here as the fifth parameter.

Shi and Yu, ICML 2019, eqs. 14 and 15.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from labelzoo.arguments import real, whole_number
from labelzoo.inference.compressed_gp.kernel14 import (
    Caches,
    Evidence,
    log_likelihood,
    log_likelihood_gradient,
)
from labelzoo.inference.sparse_bayes.terms import read_matrix

Array = Any

PRIOR_SD = 3.0
"""Standard deviation of ln theta under the weak prior."""
LOW = np.array([-12.0, -12.0, -12.0, -12.0, np.log(1e-6)])
HIGH = np.full(5, 12.0)
"""Bounds of ln theta. The noise has a floor of 1e-6, targets being of unit variance."""
TOLERANCE = 1e-12
"""Of `gradient`: an ascent ends where a step gains less than this share of the objective."""
LBFGS = {"maxiter": 200, "ftol": TOLERANCE, "gtol": 1e-6}
"""Options of L-BFGS-B."""
LINE_SEARCH, AT_REST = 2, 1e-3
"""SciPy's word for a line search that found nothing; the slope, nats, below which that is no failure."""
NO_FACTOR = 1e30
"""Stands for infinity in the line search."""


class Fit(NamedTuple):
    """What an optimiser found.

    Attributes
    ----------
    theta : (target, 5)
    objective : (target,)
        Log likelihood plus log prior (up to its constant), nats.
    evaluations : int (target,)
        Likelihoods computed; for ``gradient`` with their gradient.
    converged : bool (target,)
        False where the budget ended the search.
    """

    theta: Array
    objective: Array
    evaluations: Array
    converged: Array


class Schedule(NamedTuple):
    """Kernel updates every `period` queries.

    Attributes
    ----------
    period : int
        Queries from one search to the next, at least 1.
    age : int
        Queries since the last search.
    theta : (target, 5) or None
        None before the first search.
    """

    period: int
    age: int
    theta: Array | None


def objective(log_theta: Any, targets: Any, caches: Caches) -> Array:
    """Return log likelihood plus log prior of each target, nats; -inf outside the bounds: (target,).

    Parameters
    ----------
    log_theta : (target, 5)
    targets : (row, target)
    caches : Caches
    """
    x = np.asarray(log_theta, float)
    inside = ((x >= LOW) & (x <= HIGH)).all(axis=1)
    out = np.full(len(x), -np.inf)
    if inside.any():
        out[inside] = log_likelihood(np.exp(x[inside]), np.asarray(targets)[:, inside], caches)
    return out - 0.5 * ((x / PRIOR_SD) ** 2).sum(axis=1)


def objective_gradient(log_theta: Any, targets: Any, caches: Caches) -> Evidence:
    """Return the objective of each target with its gradient by log theta."""
    x = np.asarray(log_theta, float)
    value, slope = log_likelihood_gradient(np.exp(x), targets, caches)
    return Evidence(value - 0.5 * ((x / PRIOR_SD) ** 2).sum(axis=1), slope - x / PRIOR_SD**2)


def start_of(theta: Any, targets: int) -> Array:
    """Return ln theta to begin with: (target, 5).

    Zeros without a last theta. Where the number of targets has changed, the first ones keep theirs, targets
    being ordered by weight; new ones begin at zeros.

    Raises
    ------
    ValueError
        If theta is not a finite matrix of five positive columns.
    """
    x = np.zeros((targets, 5))
    if theta is not None:
        theta = read_matrix(theta, "theta", 5)
        if (theta <= 0).any():
            raise ValueError(f"theta must be above 0, got {theta.min()}")
        kept = min(targets, len(theta))
        x[:kept] = np.clip(np.log(theta[:kept]), LOW, HIGH)
    return x


def gradient(targets: Any, caches: Caches, *, theta: Any = None, tolerance: Any = TOLERANCE) -> Fit:
    """Maximise by L-BFGS-B with the analytic gradient, one factorisation an evaluation.

    Parameters
    ----------
    targets : (row, target)
    caches : Caches
    theta : (target, 5) or None
        Where to begin: the last theta.
    tolerance : float
        At least 0 and below 1; 1e-7 is enough to predict and takes half the evaluations.

    Notes
    -----
    rows^3 + 5 rows^2 flops an evaluation and target. A local optimum: the likelihood can have several.

    Raises
    ------
    ValueError
        For shapes that do not fit, or a tolerance out of range.
    """
    if not 0.0 <= real(tolerance) < 1.0:
        raise ValueError(f"tolerance must be a number of at least 0 and below 1, got {tolerance!r}")
    U = read_matrix(targets, "targets")
    start = start_of(theta, U.shape[1])
    return fit_of([_climb(x, U[:, g : g + 1], caches, float(tolerance)) for g, x in enumerate(start)])


def fit_of(found: Any) -> Fit:
    """Return what SciPy found for each target, the negative objective minimised.

    Where rounding leaves the line search no better point (status 2) the slope decides: at rest it is below
    `AT_REST` away from the bounds.
    """
    x = np.array([one.x for one in found]).reshape(-1, 5)
    value = np.array([-float(one.fun) for one in found])
    failed = value <= -NO_FACTOR
    return Fit(
        np.exp(x),
        np.where(failed, -np.inf, value),
        np.array([one.nfev for one in found], int),
        np.array([one.success or _rests(one) for one in found], bool) & ~failed,
    )


def _rests(one: Any) -> bool:
    inner = (one.x > LOW) & (one.x < HIGH)
    return one.status == LINE_SEARCH and float(np.abs(one.jac[inner]).max(initial=0.0)) < AT_REST


def _climb(start: Array, u: Array, caches: Caches, tolerance: float) -> Any:
    def down(x: Array) -> tuple[float, Array]:
        value, slope = objective_gradient(x[None], u, caches)
        # L-BFGS-B has no way back from an infinity: a large number makes its line search step back.
        return (-float(value[0]), -slope[0]) if np.isfinite(value[0]) else (NO_FACTOR, np.zeros(5))

    bounds = list(zip(LOW, HIGH, strict=True))
    options = {**LBFGS, "ftol": tolerance}
    return minimize(down, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)


def schedule(period: Any = 1) -> Schedule:
    """Return the schedule before the first query; ValueError unless `period` is an integer of at least 1."""
    return Schedule(whole_number("period", period, 1), 0, None)


def due(state: Schedule) -> bool:
    """Say whether the next query needs a search of all targets: none yet, or `period` queries old."""
    return state.theta is None or state.age >= state.period


def advance(state: Schedule, targets: Any, caches: Caches, search: Callable[..., Fit]) -> Schedule:
    """Return the schedule of the next query: theta searched from the last one where due, else kept.

    Theta belongs to a place among the targets, which are ordered by weight; what stands there may change with
    the compression. Where there are fewer targets than before, the last theta are left; where there are more,
    the new ones alone are searched, from the last theta there is.

    Parameters
    ----------
    state : Schedule
    targets : (row, target)
    caches : Caches
    search : callable
        `gradient`, `s_opt` or `b_opt`.
    """
    U = np.asarray(targets)
    if due(state):
        return Schedule(state.period, 1, search(U, caches, theta=state.theta).theta)
    theta = np.asarray(state.theta)[: U.shape[1]]
    more = U.shape[1] - len(theta)
    if more:
        begin = np.repeat(theta[-1:], more, axis=0) if len(theta) else None
        theta = np.vstack([theta, search(U[:, len(theta) :], caches, theta=begin).theta])
    return Schedule(state.period, state.age + 1, theta)
