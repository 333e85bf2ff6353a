"""B-OPT: a grid over log theta, a Gaussian process over its values, and expected improvement.

A grid of 5 values a parameter around the best point so far; a surrogate process with an RBF kernel, a length
a parameter, on the standardised values seen; the next point maximises an improvement over the grid. No point
is evaluated twice. The paper's grid is fixed and leaves the optimum between its points, or outside. Here a
best point on its edge becomes the centre of the next grid, and where no improvement is expected any more, the
step is halved. All grids are parts of one lattice, so that points of different grids that coincide are known.

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
LEVELS = 9
STEP = 2.0
"""First step of log theta: the first grid spans -4 to 4 around its centre, the last steps are 1/128."""
SHARE = 60
"""Evaluations a level, those that a level leaves being the next ones'."""
LEAST, PATIENCE = 8, 20
"""A level ends after at least `LEAST` evaluations, where less than `LEAST_GAIN` nats are expected, or where
`PATIENCE` evaluations did not improve."""
LEAST_GAIN = 1e-4
LENGTHS = (0.75, 1.5, 3.0, 6.0, 12.0)
"""Length scales of the surrogate in steps; the likeliest are taken every `RENEWAL` evaluations."""
RENEWAL = 10
NUGGET = 1e-8
WINDOW = 4
"""Steps around the centre within which older evaluations inform the surrogate."""


class Seen(NamedTuple):
    """Lattice points evaluated so far (point, 5), int, and their values (point,)."""

    points: Array
    values: Array


class Surrogate(NamedTuple):
    """The process over one grid, in units of its steps.

    Attributes
    ----------
    center : int (5,)
    width : int
        Step of the grid on the lattice.
    lengths : (5,)
    points : int (point, 5)
        Evaluations that inform it, from the centre.
    values : (point,)
    lower : (point, point)
        Factor of their kernel, of unit amplitude.
    half : (point, grid)
        lower^-1 k(points, grid).
    explained : (grid,)
        Squares of `half`, summed: the share of the variance that is known.
    open_ : bool (grid,)
        Not evaluated yet.
    """

    center: Array
    width: int
    lengths: Array
    points: Array
    values: Array
    lower: Array
    half: Array
    explained: Array
    open_: Array


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
        Steps tried, each half of the one before.
    share : int
        Evaluations a level; the budget of a target is `levels` x `share` and the start, in any order.

    Notes
    -----
    rows^3 / 3 flops an evaluation and target, and 5^5 x (points in the window) for the surrogate, the square
    of these where the grid moves. `converged` is True where the last level ended within the budget.

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
    found = [
        _search(x, U[:, [g]], caches, improvement, levels, 1 + levels * share) for g, x in enumerate(start)
    ]
    return Fit(
        np.exp(np.array([x for x, _, _, _ in found]).reshape(-1, 5)),
        np.array([value for _, value, _, _ in found]),
        np.array([count for _, _, count, _ in found], int),
        np.array([ended for _, _, _, ended in found], bool),
    )


def _search(
    start: Array, u: Array, caches: Caches, improvement: str, levels: int, budget: int
) -> tuple[Array, float, int, bool]:
    finest = STEP / 2 ** (levels - 1)

    def value_at(point: Array) -> float:
        return float(objective((start + finest * point)[None], u, caches)[0])

    center, ended = np.zeros(5, int), True
    seen = Seen(center[None], np.array([value_at(center)]))
    for level in range(levels):
        seen, ended = _level(seen, 2 ** (levels - 1 - level), budget, improvement, value_at)
    best = seen.points[seen.values.argmax()]
    ended = ended and bool(np.isfinite(seen.values.max()))
    return start + finest * best, float(seen.values.max()), len(seen.values), ended


def _level(seen: Seen, width: int, budget: int, improvement: str, value_at: Any) -> tuple[Seen, bool]:
    """Return what is seen after a search on grids of step `width`, and whether it ended within the budget."""
    model, idle, count = _surrogate(seen, seen.points[seen.values.argmax()], width), 0, 0
    while len(seen.values) < budget:
        mean, sd, scale = _over_grid(model)
        at, gain = _chosen(mean, sd, _standardised(model.values).max(), model.open_, improvement)
        if idle >= PATIENCE or gain == -np.inf or (count >= LEAST and gain * scale < LEAST_GAIN):
            return seen, True
        point = model.center + width * _offsets()[at]
        value, best = value_at(point), seen.values.max()
        seen = Seen(np.vstack([seen.points, point]), np.append(seen.values, value))
        idle, count = 0 if value > best else idle + 1, count + 1
        moves = value > best and _on_edge(_offsets()[at])
        if moves or count % RENEWAL == 0:
            model = _surrogate(seen, point if moves else model.center, width)
        else:
            model = _grown(model, at, value)
    return seen, False


def _on_edge(offset: Array) -> bool:
    return bool((np.abs(offset) == SPAN).any())


def _open(seen: Seen, center: Array, width: int) -> Array:
    """Say which grid points have not been evaluated: (grid,)."""
    offsets, rest = np.divmod(seen.points - center, width)
    on_grid = (rest == 0).all(axis=1) & (np.abs(offsets) <= SPAN).all(axis=1)
    evaluated = (_offsets()[:, None] == offsets[on_grid]).all(axis=2).any(axis=1)
    return ~evaluated


def _chosen(mean: Array, sd: Array, best: float, open_: Array, improvement: str) -> tuple[int, float]:
    """Return the open grid point of largest improvement, and which; ties by the upper limit, then index."""
    rule = expected_improvement if improvement == "ei" else improvement_95
    gain = np.where(open_, rule(mean, sd, best), -np.inf)
    upper = np.where(gain == gain.max(), mean + 1.96 * sd, -np.inf)
    return int(upper.argmax()), float(gain.max())


def _standardised(values: Array) -> Array:
    """Return values of mean 0 and sd 1, the poorest raised first.

    A likelihood falls steeply away from its mode. Values further below the best than four times the median
    one, and those that are -inf, are set there, so that they do not use up the surrogate's range.
    """
    raised = _raised(values)
    sd = raised.std()
    return (raised - raised.mean()) / sd if sd > 0 else 0.0 * raised


def _raised(values: Array) -> Array:
    best, finite = values.max(), values[np.isfinite(values)]
    if not finite.size:
        return np.zeros(len(values))
    return np.maximum(values, best - 4.0 * max(best - np.median(finite), 1e-3))


def _kernel(left: Array, right: Array, lengths: Array) -> Array:
    return np.exp(-0.5 * squared_distances(left / lengths, right / lengths))


def _factor(points: Array, lengths: Array) -> Array:
    return cholesky(_kernel(points, points, lengths) + NUGGET * np.eye(len(points)), lower=True)


def _fitness(points: Array, y: Array, lengths: Array) -> float:
    """Return the profile log likelihood, the amplitude maximised in closed form, up to a constant."""
    lower = _factor(points, lengths)
    half = solve_triangular(lower, y, lower=True)
    power = max(float(half @ half) / len(y), 1e-12)
    return float(-0.5 * len(y) * np.log(power) - np.log(lower.diagonal()).sum())


def _likeliest(points: Array, values: Array) -> Array:
    """Return lengths (5,): the likeliest that are all alike, then each in turn given the others."""
    y = _standardised(values)
    tried = [np.full(5, length) for length in LENGTHS]
    best = max(tried, key=lambda lengths: _fitness(points, y, lengths))
    for i in range(5):
        tried = [np.where(np.arange(5) == i, length, best) for length in LENGTHS]
        best = max(tried, key=lambda lengths: _fitness(points, y, lengths))
    return best


def _surrogate(seen: Seen, center: Array, width: int) -> Surrogate:
    """Return the process of what is seen within `WINDOW` steps of `center`."""
    near = (np.abs(seen.points - center) <= WINDOW * width).all(axis=1)
    points, values = (seen.points[near] - center) / width, seen.values[near]
    lengths = _likeliest(points, values)
    lower = _factor(points, lengths)
    half = solve_triangular(lower, _kernel(points, _offsets().astype(float), lengths), lower=True)
    open_, explained = _open(seen, center, width), (half**2).sum(axis=0)
    return Surrogate(center, width, lengths, points, values, lower, half, explained, open_)


def _grown(model: Surrogate, at: int, value: float) -> Surrogate:
    """Return the process with the value of grid point `at`: points x grid flops."""
    new = _offsets()[at : at + 1].astype(float)
    side = solve_triangular(model.lower, _kernel(model.points, new, model.lengths)[:, 0], lower=True)
    corner = np.sqrt(max(1.0 + NUGGET - side @ side, NUGGET))
    n = len(side)
    lower = np.zeros((n + 1, n + 1))
    lower[:n, :n], lower[n, :n], lower[n, n] = model.lower, side, corner
    row = (_kernel(new, _offsets().astype(float), model.lengths)[0] - side @ model.half) / corner
    return model._replace(
        points=np.vstack([model.points, new]),
        values=np.append(model.values, value),
        lower=lower,
        half=np.vstack([model.half, row]),
        explained=model.explained + row**2,
        open_=model.open_ & (np.arange(len(row)) != at),
    )


def _over_grid(model: Surrogate) -> tuple[Array, Array, float]:
    """Return mean and sd of the process over the grid, standardised, and the nats that are a unit of both."""
    z = solve_triangular(model.lower, _standardised(model.values), lower=True)
    amplitude = max(float(z @ z) / len(z), 1e-12)
    variance = amplitude * np.maximum(1.0 - model.explained, 0.0)
    return z @ model.half, np.sqrt(variance), float(_raised(model.values).std())


@lru_cache(maxsize=1)
def _offsets() -> Array:
    """Return the 5^5 grid points around 0: (3125, 5), int."""
    axis = np.arange(-SPAN, SPAN + 1)
    return np.stack(np.meshgrid(*[axis] * 5, indexing="ij"), axis=-1).reshape(-1, 5)
