"""B-OPT: a grid over log theta, a Gaussian process over its values, and expected improvement.

A grid of 5 values a parameter around the best point so far; a surrogate process with an RBF kernel on the
standardised values seen; the next point maximises an improvement over the grid. No point is evaluated twice.
A fixed grid leaves the optimum between its points, so that when its share of the budget is spent a grid of
half the step is laid around the best point. All grids are parts of one lattice, so that points of different
grids that coincide are known to. Halving is ours; with `levels=1` it is the paper's search.

Shi and Yu, ICML 2019, section 3.4, eqs. 17 and 18.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.special import ndtr

from labelzoo.arguments import whole_number
from labelzoo.inference.compressed_gp.hyperparameters import Fit, objective, start_of
from labelzoo.inference.compressed_gp.kernel14 import Caches, squared_distances
from labelzoo.inference.sparse_bayes.terms import read_matrix

Array = Any

SPAN = 2
"""Grid points on either side of the centre: 5 values a parameter."""
LEVELS = 7
STEP = 2.0
"""First step of log theta: the first grid spans -4 to 4 around its centre, the last steps are 1/32."""
SHARE = 24
"""Evaluations a level."""
LENGTHS = (1.5, 3.0, 6.0, 12.0)
"""Length scales of the surrogate in steps; the likeliest is taken at the start of each level."""
NUGGET = 1e-6
WINDOW = 4
"""Steps around the centre within which older evaluations inform the surrogate."""


class Seen(NamedTuple):
    """Lattice points evaluated so far (point, 5), int, and their values (point,)."""

    points: Array
    values: Array


def expected_improvement(mean: Any, sd: Any, best: Any) -> Array:
    """Return E max(f - best, 0), f ~ N(mean, sd^2); max(mean - best, 0) at sd = 0."""
    gain, sd = np.asarray(mean, float) - best, np.asarray(sd, float)
    safe = np.where(sd > 0, sd, 1.0)
    z = gain / safe
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    return np.where(sd > 0, gain * ndtr(z) + safe * density, np.maximum(gain, 0.0))


def improvement_95(mean: Any, sd: Any, best: Any) -> Array:
    """Return max(mean + 1.96 sd - best, 0): the improvement at the upper limit.

    It can be 0 everywhere; the search then takes the largest upper limit.
    """
    return np.maximum(np.asarray(mean, float) + 1.96 * np.asarray(sd, float) - best, 0.0)


def b_opt(
    targets: Any,
    caches: Caches,
    *,
    theta: Any = None,
    improvement: Any = "ei",
    levels: Any = LEVELS,
    share: Any = SHARE,
) -> Fit:
    """Maximise over grids of log theta, target by target.

    Parameters
    ----------
    targets : (row, target)
    caches : Caches
    theta : (target, 5) or None
        Centre of the first grid: the last theta; zeros of log theta by default.
    improvement : {"ei", "ei95"}
    levels : int
        Grids, each of half the step of the one before.
    share : int
        Evaluations a grid.

    Notes
    -----
    `levels` x `share` evaluations of rows^3 / 3 flops a target, and 5^5 x (points in the window) flops an
    evaluation for the surrogate. `converged` is True where the best point of the last grid is inside it.

    Raises
    ------
    ValueError
        For shapes that do not fit or an option out of range.
    """
    if improvement not in ("ei", "ei95"):
        raise ValueError(f"improvement must be 'ei' or 'ei95', got {improvement!r}")
    levels, share = whole_number("levels", levels, 1), whole_number("share", share, 1)
    U = read_matrix(targets, "targets")
    start = start_of(theta, U.shape[1])
    found = [_search(x, U[:, [g]], caches, improvement, levels, share) for g, x in enumerate(start)]
    return Fit(
        np.exp(np.array([x for x, _, _, _ in found]).reshape(-1, 5)),
        np.array([value for _, value, _, _ in found]),
        np.array([count for _, _, count, _ in found], int),
        np.array([inside for _, _, _, inside in found], bool),
    )


def _search(
    start: Array, u: Array, caches: Caches, improvement: str, levels: int, share: int
) -> tuple[Array, float, int, bool]:
    finest = STEP / 2 ** (levels - 1)

    def value_at(point: Array) -> float:
        return float(objective((start + finest * point)[None], u, caches)[0])

    center = np.zeros(5, int)
    seen = Seen(center[None], np.array([value_at(center)]))
    for level in range(levels):
        width = 2 ** (levels - 1 - level)
        center = seen.points[seen.values.argmax()]
        seen = _level(seen, center, width, share, improvement, value_at)
    best = seen.points[seen.values.argmax()]
    inside = bool((np.abs(best - center) < SPAN).all() and np.isfinite(seen.values.max()))
    return start + finest * best, float(seen.values.max()), len(seen.values), inside


def _level(seen: Seen, center: Array, width: int, share: int, improvement: str, value_at: Any) -> Seen:
    """Return what is seen after `share` evaluations on the grid of step `width` around `center`."""
    grid = center + width * _offsets()
    known = {tuple(point) for point in seen.points.tolist()}
    open_ = np.array([tuple(point) not in known for point in grid.tolist()])
    near = (np.abs(seen.points - center) <= WINDOW * width).all(axis=1)
    points, values = seen.points[near], seen.values[near]
    length = LENGTHS[0]
    for step in range(min(share, int(open_.sum()))):
        if step % 10 == 0:
            length = _likeliest((points - center) / width, values)
        mean, sd, best = _surrogate((points - center) / width, values, length)
        at = _chosen(mean, sd, best, open_, improvement)
        open_[at] = False
        points = np.vstack([points, grid[at]])
        values = np.append(values, value_at(grid[at]))
    old = ~near
    return Seen(np.vstack([seen.points[old], points]), np.append(seen.values[old], values))


def _chosen(mean: Array, sd: Array, best: float, open_: Array, improvement: str) -> int:
    """Return the open grid point of largest improvement; ties by the upper limit, then by index."""
    rule = expected_improvement if improvement == "ei" else improvement_95
    gain = np.where(open_, rule(mean, sd, best), -np.inf)
    upper = np.where(gain == gain.max(), mean + 1.96 * sd, -np.inf)
    return int(upper.argmax())


def _standardised(values: Array) -> Array:
    """Return values of mean 0 and sd 1, the poorest raised first.

    A likelihood falls steeply away from its mode. Values further below the best than four times the median
    one, and those that are -inf, are set there, so that they do not use up the surrogate's range.
    """
    best, finite = values.max(), values[np.isfinite(values)]
    if not finite.size:
        return np.zeros(len(values))
    raised = np.maximum(values, best - 4.0 * max(best - np.median(finite), 1e-3))
    sd = raised.std()
    return (raised - raised.mean()) / sd if sd > 0 else 0.0 * raised


def _kernel(left: Array, right: Array, length: float) -> Array:
    return np.exp(-0.5 * squared_distances(left, right) / length**2)


def _likeliest(points: Array, values: Array) -> float:
    """Return the length of largest profile likelihood, the amplitude maximised in closed form."""
    y = _standardised(values)
    scores = []
    for length in LENGTHS:
        lower = cholesky(_kernel(points, points, length) + NUGGET * np.eye(len(y)), lower=True)
        half = solve_triangular(lower, y, lower=True)
        power = max(float(half @ half) / len(y), 1e-12)
        scores.append(-0.5 * len(y) * np.log(power) - np.log(lower.diagonal()).sum())
    return LENGTHS[int(np.argmax(scores))]


def _surrogate(points: Array, values: Array, length: float) -> tuple[Array, Array, float]:
    """Return mean and sd of the surrogate over the grid and the best value seen, all standardised."""
    y = _standardised(values)
    lower = cholesky(_kernel(points, points, length) + NUGGET * np.eye(len(y)), lower=True)
    half = solve_triangular(lower, _kernel(points, _offsets().astype(float), length), lower=True)
    z = solve_triangular(lower, y, lower=True)
    amplitude = max(float(z @ z) / len(y), 1e-12)
    variance = amplitude * np.maximum(1.0 - (half**2).sum(axis=0), 0.0)
    return z @ half, np.sqrt(variance), float(y.max())


@lru_cache(maxsize=1)
def _offsets() -> Array:
    """Return the 5^5 grid points around 0: (3125, 5), int."""
    axis = np.arange(-SPAN, SPAN + 1)
    return np.stack(np.meshgrid(*[axis] * 5, indexing="ij"), axis=-1).reshape(-1, 5)
