"""S-OPT: Nelder-Mead over log theta, all targets in lock step on the cached distances and products.

Reflection 1, expansion 2, contraction 1/2, shrink 1/2; the centroid divides by the five parameters. A target
stops when its values spread less than 1e-6 and its vertices lie within 1e-3 of the best, or at its budget.
A failed Cholesky factorisation is -inf, hence never the best. The moves of all targets are decided at once;
only the factorisations go one by one, since LAPACK has no batch.

Shi and Yu, ICML 2019, section 3.3, eq. 19 with 1 / size(theta) for 1 / n.
"""

from typing import Any, NamedTuple

import numpy as np

from labelzoo.arguments import whole_number
from labelzoo.inference.compressed_gp.hyperparameters import Fit, objective, start_of
from labelzoo.inference.compressed_gp.kernel14 import Caches
from labelzoo.inference.sparse_bayes.terms import read_matrix

Array = Any

STEP = 0.5
"""Edge of the first simplex along each axis of log theta."""
VALUE_SPREAD = 1e-6
VERTEX_SPREAD = 1e-3
BUDGET = 600
"""Evaluations a target; the paper gives no number."""


class Simplex(NamedTuple):
    """Vertices (target, vertex, 5), the best first, their values (target, vertex), evaluations (target,)."""

    vertices: Array
    values: Array
    evaluations: Array


def s_opt(targets: Any, caches: Caches, *, theta: Any = None, budget: Any = BUDGET) -> Fit:
    """Maximise by Nelder-Mead from the last theta.

    Parameters
    ----------
    targets : (row, target)
    caches : Caches
    theta : (target, 5) or None
        Where to begin; zeros of log theta by default.
    budget : int
        Evaluations a target, at least 6 (the first simplex); the last step may pass it by 6.

    Notes
    -----
    rows^3 / 3 + rows^2 flops an evaluation and target, no inverse.

    Raises
    ------
    ValueError
        For shapes that do not fit, or a budget below 6.
    """
    budget = whole_number("budget", budget, 6)
    U = read_matrix(targets, "targets")
    simplex = _first(start_of(theta, U.shape[1]), U, caches)
    live = _live(simplex, budget)
    while live.any():
        simplex = _moved(simplex, live, U, caches)
        live = _live(simplex, budget)
    best = simplex.vertices[:, 0]
    return Fit(np.exp(best), simplex.values[:, 0], simplex.evaluations, _small(simplex))


def _first(start: Array, U: Array, caches: Caches) -> Simplex:
    vertices = np.repeat(start[:, None], 6, axis=1)
    # Towards zero, which is inside the bounds.
    step = np.where(start > 0, -STEP, STEP)
    for i in range(5):
        vertices[:, i + 1, i] += step[:, i]
    values = np.stack([objective(vertices[:, v], U, caches) for v in range(6)], axis=1)
    return _sorted(Simplex(vertices, values, np.full(len(start), 6)))


def _sorted(simplex: Simplex) -> Simplex:
    order = np.argsort(-simplex.values, axis=1, kind="stable")
    return Simplex(
        np.take_along_axis(simplex.vertices, order[:, :, None], axis=1),
        np.take_along_axis(simplex.values, order, axis=1),
        simplex.evaluations,
    )


def _small(simplex: Simplex) -> Array:
    """Say which targets have converged: (target,)."""
    # With an infinite vertex the difference is infinite or NaN: not below the spread either way.
    with np.errstate(invalid="ignore"):
        near = simplex.values[:, 0] - simplex.values[:, -1] < VALUE_SPREAD
    apart = np.abs(simplex.vertices - simplex.vertices[:, :1]).max(axis=(1, 2), initial=0.0)
    return near & (apart < VERTEX_SPREAD)


def _live(simplex: Simplex, budget: int) -> Array:
    return ~_small(simplex) & (simplex.evaluations < budget)


def _moved(simplex: Simplex, live: Array, U: Array, caches: Caches) -> Simplex:
    """Return the simplices after one step of the live targets."""
    vertices, values, count = (array.copy() for array in simplex)

    def try_at(points: Array, which: Array) -> Array:
        out = np.full(len(points), -np.inf)
        if which.any():
            out[which] = objective(points[which], U[:, which], caches)
            count[which] += 1
        return out

    center, worst = vertices[:, :-1].mean(axis=1), vertices[:, -1].copy()
    reflected = 2.0 * center - worst
    f_reflected = try_at(reflected, live)
    better = live & (f_reflected > values[:, 0])
    poor = live & (f_reflected <= values[:, -2])
    second = center + np.where(better[:, None], 2.0 * (reflected - center), 0.0)
    outside = poor & (f_reflected > values[:, -1])
    toward = np.where(outside[:, None], reflected, worst)
    second = np.where(poor[:, None], 0.5 * (center + toward), second)
    f_second = try_at(second, better | poor)
    use_second = (better & (f_second > f_reflected)) | (
        poor & (f_second > np.maximum(f_reflected, values[:, -1]))
    )
    use_first = live & ~poor & ~use_second
    for use, points, found in ((use_first, reflected, f_reflected), (use_second, second, f_second)):
        vertices[use, -1], values[use, -1] = points[use], found[use]
    shrunk = poor & ~use_second
    vertices[shrunk] = 0.5 * (vertices[shrunk] + vertices[shrunk, :1])
    for v in range(1, 6):
        found = try_at(vertices[:, v], shrunk)
        values[shrunk, v] = found[shrunk]
    return _sorted(Simplex(vertices, values, count))
