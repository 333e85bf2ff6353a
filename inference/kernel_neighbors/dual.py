"""Many multipliers at once: a primal-dual interior point method with their whole Hessian.

The dual is concave, its gradient is g, and minus its Hessian is H = A' B A with, for each class,

    B_l = ((a_l K0 - kv_l kv_l') / (2 D_l) + s_l s_l'),

and A_i = diag(own_i) + 1 sign_i' at row i. The steps are those of Mehrotra (1992) on

    g + z - u = 0,   lam z = mu,   (upper - lam) u = mu,

one Cholesky factor of H + z / lam + u / (upper - lam) each; 15 to 35 of them reach rounding. Steps that only
project onto lam >= 0 stall here, since hundreds of multipliers change sides.

`dual` frees all multipliers; `maximize` any of them, the others held where they are. With F free ones memory
is F^2, a few times, and a step takes F^3 / 3 flops, 2 row^2 class for the gradient and some 10 F^2 for H: for
at most `MAX_SIZE`.

Jain and Kapoor, CVPR 2009, eq. 9 for all rows together.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from labelzoo.arguments import whole_number
from labelzoo.inference.kernel_neighbors.multipliers import (
    Fit,
    State,
    constraints,
    finish,
    is_inside,
    is_optimal,
    own_weights,
    read_tolerance,
    similarity_of,
    state_of,
)
from labelzoo.inference.kernel_neighbors.problem import Problem

Array = Any

MAX_SIZE = 4000
"""Free multipliers: H takes 128 MB there."""
TOLERANCE = 1e-10
MAX_STEPS = 200
RUNS = 3
STEPS_OF_RUN = 70
"""A run that has not arrived by then seldom does; the next begins where it ended, off the bounds."""
SLACK_OF_STOP = 0.01
"""Complementarity and residual go below this share of the tolerance."""
TO_EDGE = 0.995
ZERO = 1e-16
"""Multipliers below this share of the largest become 0."""
OFF_BOUND = 0.1
"""Share of the mean free multiplier by which a start keeps off its bounds."""
RIDGES = (0.0, 1e-15, 1e-13, 1e-11, 1e-9, 1e-7)
"""Added to H scaled to a unit diagonal, until it has a factor."""


class Free(NamedTuple):
    """The multipliers that are solved for, the others being held.

    Attributes
    ----------
    rows, columns : int (free,)
        Where they are.
    own, sign : (free,)
        -1 / alpha, 1 / beta or 0 (for totals), and 1 or -1: what a unit adds to t of its class and of all.
    held : (row, column)
        The multipliers to begin with; those that are not free stay.
    """

    rows: Array
    columns: Array
    own: Array
    sign: Array
    held: Array

    def filled(self, values: Array) -> Array:
        """Return all multipliers (row, column), the free ones as given."""
        lam = self.held.copy()
        lam[self.rows, self.columns] = values
        return lam


class Point(NamedTuple):
    """Free multipliers, those of their bounds z and u (0 without an upper bound), and what follows.

    `room` is upper - lam, kept beside lam because the difference rounds to 0; 1 without an upper bound.

    Attributes
    ----------
    lam, room, z, u : (free,)
    state : State
        Of all multipliers.
    s : (row, class)
    g : (free,)
    """

    lam: Array
    room: Array
    z: Array
    u: Array
    state: State
    s: Array
    g: Array


def dual(problem: Problem, *, tolerance: Any = TOLERANCE, max_steps: Any = MAX_STEPS) -> Fit:
    """Maximise the dual.

    Parameters
    ----------
    problem : Problem
    tolerance : float
        As for `labelzoo.inference.kernel_neighbors.bregman.bregman`.
    max_steps : int

    Returns
    -------
    Fit
        ``projections`` and ``sweeps`` are 0, ``steps`` the Newton steps.

    Raises
    ------
    ValueError
        For more than `MAX_SIZE` multipliers, or an option out of range.
    """
    tol = read_tolerance(tolerance)
    most, size = whole_number("max_steps", max_steps, 1), len(problem.y) * problem.columns
    if size > MAX_SIZE:
        raise ValueError(
            f"{len(problem.y)} rows with {problem.columns} multipliers each are {size}, above the {MAX_SIZE} "
            "that are solved together: use bregman"
        )
    lam, steps = np.zeros((len(problem.y), problem.columns)), 0
    for _ in range(RUNS if len(problem.classes) > 1 else 0):
        left = min(STEPS_OF_RUN, most - steps)
        lam, taken = maximize(problem, lam, np.ones(lam.shape, bool), tolerance=tol, max_steps=left)
        steps += taken
        if steps == most or is_optimal(problem, lam, tol):
            break
    return finish(problem, lam, steps=steps, tolerance=tol, rounding=steps < most)


def maximize(
    problem: Problem, lam: Array, mask: Array, *, tolerance: float, max_steps: int = MAX_STEPS
) -> tuple[Array, int]:
    """Return the multipliers (row, column) that maximise the dual over some of them, and the steps taken.

    Parameters
    ----------
    problem : Problem
    lam : (row, column)
        Multipliers whose kernels are positive definite.
    mask : bool (row, column)
        Which are free; the others stay.
    tolerance, max_steps
        As in `dual`.
    """
    free = free_of(problem, lam, mask)
    point, steps, goal = _first(problem, free), 0, SLACK_OF_STOP * tolerance
    before = np.inf
    while steps < max_steps:
        apart, left = _distance(problem, point)
        if apart <= goal and (left <= goal or left > 0.5 * before):
            break  # at the goal, or the residual has come down to rounding
        new = _stepped(problem, free, point)
        if new is None:
            break
        point, steps, before = new, steps + 1, left
    return free.filled(np.where(point.lam < ZERO * point.lam.max(), 0.0, point.lam)), steps


def free_of(problem: Problem, lam: Array, mask: Array) -> Free:
    """Return the free multipliers of `mask`, a table of bool (row, column), the others held as in `lam`."""
    rows, columns = np.nonzero(mask)
    padded = np.column_stack([own_weights(problem), np.zeros(len(problem.classes))])
    own = padded[problem.y[rows], columns]
    return Free(rows, columns, own, np.where(columns == problem.y[rows], 1.0, -1.0), lam)


def hessian(problem: Problem, state: State, s: Array, free: Free) -> Array:
    """Return minus the Hessian of the dual in the free multipliers: (free, free).

    With T = sum_l B_l, an element is sign sign' T_ii' + own sign' B_c,ii' + sign own' B_c',ii', and
    own own' B_c,ii' more where the classes c, c' are one.
    """
    half = 0.5 / state.D
    used, at = np.unique(free.rows, return_inverse=True)
    K, kv, s = problem.K0[np.ix_(used, used)], problem.kv[used], s[used]
    total = (problem.a @ half) * K - (kv * half) @ kv.T + s @ s.T
    c = np.minimum(free.columns, len(half) - 1)
    K = K[np.ix_(at, at)]
    one = (problem.a * half)[c] * K - kv[at][:, c] * (half[c] * kv[at, c]) + s[at][:, c] * s[at, c]
    one *= free.own
    H = one * free.sign[:, None]
    H += H.T
    H += (free.own[:, None] * one) * (c[:, None] == c)
    H += free.sign[:, None] * total[np.ix_(at, at)] * free.sign
    return H


def _first(problem: Problem, free: Free) -> Point:
    """Return a point inside the bounds and the domain, z and u of the gradient's size."""
    lam = free.held[free.rows, free.columns]
    g = constraints(problem, similarity_of(problem, state_of(problem, free.held)))[free.rows, free.columns]
    scale = max(float(np.abs(g).mean()), 1e-300)
    level = 0.1 / (len(problem.y) * max(float(np.abs(g).max()), 1e-300))
    if lam.any():
        level = OFF_BOUND * float(lam.mean())
    level = min(level, 0.4 * problem.upper)
    while True:
        inner = np.clip(lam, level, problem.upper - level)
        if is_inside(problem, state_of(problem, free.filled(inner))):
            break
        level *= 0.5
    bounded = bool(np.isfinite(problem.upper))
    room = problem.upper - inner if bounded else np.ones(len(g))
    if lam.any():
        mu = float((inner * np.maximum(np.abs(g), 0.1 * scale)).mean())
        z, u = mu / inner, bounded * mu / room
    else:
        z, u = np.maximum(-g, 0.1 * scale), bounded * np.maximum(g, 0.1 * scale)
    return _point(problem, free, inner, room, z, u)


def _point(problem: Problem, free: Free, lam: Array, room: Array, z: Array, u: Array) -> Point:
    state = state_of(problem, free.filled(lam))
    s = similarity_of(problem, state)
    return Point(lam, room, z, u, state, s, constraints(problem, s)[free.rows, free.columns])


def _complementarity(lam: Array, room: Array, z: Array, u: Array) -> float:
    return float((lam * z).sum() + (room * u).sum())


def _distance(problem: Problem, point: Point) -> tuple[float, float]:
    """Return complementarity over 1 + dual, and the largest residual of g + z - u over the size of K0 v."""
    value = abs(float(np.log(point.state.D).sum()))
    left = float(np.abs(point.g + point.z - point.u).max())
    return _complementarity(*point[:4]) / (1.0 + value), left / float(np.abs(problem.kv).mean())


def _stepped(problem: Problem, free: Free, point: Point) -> Point | None:
    """Return the point after a predictor and a corrector; None where the domain leaves no step."""
    lam, room, z, u = point[:4]
    bounded = bool(np.isfinite(problem.upper))
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        diagonal = z / lam + u / room
    if not np.isfinite(diagonal).all():
        return None  # a multiplier has come to its bound exactly: as near as numbers go
    factor, scale = _factor(hessian(problem, point.state, point.s, free), diagonal)
    gap = _complementarity(*point[:4])

    def direction(mu: float, first: Any, second: Any) -> tuple[Array, ...]:
        rhs = point.g + (mu - first) / lam - bounded * (mu - second) / room
        d = scale * cho_solve(factor, scale * rhs, check_finite=False)
        dz = (mu - first - z * d) / lam - z
        return d, -bounded * d, dz, bounded * ((mu - second + u * d) / room - u)

    def moved(size: float, step: tuple[Array, ...]) -> tuple[Array, ...]:
        return tuple(x + size * dx for x, dx in zip(point[:4], step, strict=True))

    def longest(step: tuple[Array, ...]) -> float:
        return min(_to_zero(x, dx) for x, dx in zip(point[:4], step, strict=True))

    guess = direction(0.0, 0.0, 0.0)
    after = max(_complementarity(*moved(longest(guess), guess)), 0.0)
    mu = (after / gap) ** 3 * gap / (lam.size * (1 + bounded))
    step = direction(mu, guess[0] * guess[2], guess[1] * guess[3])
    size = min(1.0, TO_EDGE * longest(step))
    while not is_inside(problem, state_of(problem, free.filled(lam + size * step[0]))):
        size *= 0.5
        if size < 1e-12:
            return None
    return _point(problem, free, *moved(size, step))


def _to_zero(x: Array, dx: Array) -> float:
    """Return the largest step, 1 at most, along which x + step dx is not negative."""
    falling = dx < 0
    with np.errstate(over="ignore"):  # a step of 1e-320 goes as far as one likes
        return min(1.0, float((-x[falling] / dx[falling]).min(initial=np.inf)))


def _factor(H: Array, diagonal: Array) -> tuple[Any, Array]:
    """Return the Cholesky factor of H plus a diagonal, scaled to a unit diagonal, and the scale."""
    at = np.diag_indices_from(H)
    H[at] += diagonal
    scale = 1.0 / np.sqrt(H[at])
    H *= scale
    H *= scale[:, None]
    for ridge in RIDGES:
        H[at] = 1.0 + ridge
        try:
            return cho_factor(H, lower=True, check_finite=False), scale
        except LinAlgError:
            continue
    raise ValueError("the dual's Hessian has no Cholesky factor: give K0 a larger jitter")
