"""All multipliers at once: a primal-dual interior point method with the whole Hessian.

The dual is concave, its gradient is g, and minus its Hessian is H = A' B A with, for each class,

    B_l = ((a_l K0 - kv_l kv_l') / (2 D_l) + s_l s_l'),

and A_i = diag(own_i) + 1 sign_i' at row i. The steps are those of Mehrotra (1992) on

    g + z - u = 0,   lam z = mu,   (upper - lam) u = mu,

one Cholesky factor of H + z / lam + u / (upper - lam) each; 15 to 35 of them reach rounding. Steps that only
project onto lam >= 0 stall here, since hundreds of multipliers change sides. Memory (row column)^2, time its
power 3/2 a step: for at most `MAX_SIZE` multipliers.

Jain and Kapoor, CVPR 2009, eq. 9 for all rows together.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from labelzoo.arguments import real, whole_number
from labelzoo.inference.kernel_neighbors.multipliers import (
    Fit,
    State,
    constraints,
    finish,
    is_inside,
    own_weights,
    similarity_of,
    state_of,
)
from labelzoo.inference.kernel_neighbors.problem import Problem

Array = Any

MAX_SIZE = 4000
"""Multipliers: H takes 128 MB there."""
TOLERANCE = 1e-10
MAX_STEPS = 200
SLACK_OF_STOP = 0.01
"""Complementarity and residual go below this share of the tolerance."""
TO_EDGE = 0.995
ZERO = 1e-16
"""Multipliers below this share of the largest become 0."""
RIDGES = (0.0, 1e-15, 1e-13, 1e-11, 1e-9, 1e-7)
"""Added to H scaled to a unit diagonal, until it has a factor."""


class Point(NamedTuple):
    """Multipliers, those of their bounds z and u (0 without an upper bound), and what follows.

    `room` is upper - lam, kept beside lam because the difference rounds to 0; 1 without an upper bound.

    Attributes
    ----------
    lam, room, z, u : (row, column)
    state : State
    s : (row, class)
    g : (row, column)
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
        ``projections`` and ``sweeps`` are Newton steps.

    Raises
    ------
    ValueError
        For more than `MAX_SIZE` multipliers, or an option out of range.
    """
    tol = real(tolerance)
    if not 0 < tol < 1:
        raise ValueError(f"tolerance must be a number above 0 and below 1, got {tolerance!r}")
    most, size = whole_number("max_steps", max_steps, 1), len(problem.y) * problem.columns
    if size > MAX_SIZE:
        raise ValueError(
            f"{len(problem.y)} rows with {problem.columns} multipliers each are {size}, above the {MAX_SIZE} "
            "that are solved together: use bregman"
        )
    if len(problem.classes) == 1:
        zeros = np.zeros((len(problem.y), problem.columns))
        return finish(problem, zeros, projections=0, sweeps=0, tolerance=tol)
    point, steps = _first(problem), 0
    while steps < most and not _close(problem, point, SLACK_OF_STOP * tol):
        new = _stepped(problem, point)
        if new is None:
            break
        point, steps = new, steps + 1
    lam = np.where(point.lam < ZERO * point.lam.max(), 0.0, point.lam)
    return finish(problem, lam, projections=steps, sweeps=steps, tolerance=tol)


def hessian(problem: Problem, state: State, s: Array) -> Array:
    """Return minus the Hessian of the dual, (row, column, row, column)."""
    n, number, columns = len(s), len(problem.classes), problem.columns
    own = own_weights(problem)[problem.y]
    sign = np.full((n, columns), -1.0)
    sign[np.arange(n), problem.y] = 1.0
    H, total = np.zeros((n, columns, n, columns)), np.zeros((n, n))
    for c in range(number):
        B = (problem.a[c] * problem.K0 - np.outer(problem.kv[:, c], problem.kv[:, c])) / (2.0 * state.D[c])
        B += np.outer(s[:, c], s[:, c])
        half = own[:, c, None] * B
        total += B
        H[:, c, :, c] += half * own[:, c]
        H[:, c] += half[:, :, None] * sign
        H[:, :, :, c] += sign[:, :, None] * half.T[:, None]
    H += sign[:, :, None, None] * total[:, None, :, None] * sign
    return H


def _first(problem: Problem) -> Point:
    """Return a point inside the bounds and the domain, z and u of the gradient's size."""
    shape = (len(problem.y), problem.columns)
    g = constraints(problem, similarity_of(problem, state_of(problem, np.zeros(shape))))
    scale = float(np.abs(g).mean())
    level = min(0.1 / (len(g) * float(np.abs(g).max())), 0.5 * problem.upper)
    while not is_inside(problem, state_of(problem, np.full(shape, level))):
        level *= 0.5
    z = np.maximum(-g, 0.1 * scale)
    u = np.maximum(g, 0.1 * scale) if np.isfinite(problem.upper) else np.zeros(shape)
    room = problem.upper - level if np.isfinite(problem.upper) else 1.0
    return _point(problem, np.full(shape, level), np.full(shape, room), z, u)


def _point(problem: Problem, lam: Array, room: Array, z: Array, u: Array) -> Point:
    state = state_of(problem, lam)
    s = similarity_of(problem, state)
    return Point(lam, room, z, u, state, s, constraints(problem, s))


def _complementarity(lam: Array, room: Array, z: Array, u: Array) -> float:
    return float((lam * z).sum() + (room * u).sum())


def _close(problem: Problem, point: Point, tolerance: float) -> bool:
    value = abs(float(np.log(point.state.D).sum()))
    left = float(np.abs(point.g + point.z - point.u).max())
    small = _complementarity(*point[:4]) <= tolerance * (1.0 + value)
    return small and left <= tolerance * float(np.abs(problem.kv).mean())


def _stepped(problem: Problem, point: Point) -> Point | None:
    """Return the point after a predictor and a corrector; None where the domain leaves no step."""
    lam, room, z, u = point[:4]
    bounded = bool(np.isfinite(problem.upper))
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        diagonal = z / lam + u / room
    if not np.isfinite(diagonal).all():
        return None  # a multiplier has come to its bound exactly: as near as numbers go
    factor, scale = _factor(problem, point, diagonal)
    gap = _complementarity(*point[:4])

    def direction(mu: float, first: Any, second: Any) -> tuple[Array, ...]:
        rhs = point.g + (mu - first) / lam - bounded * (mu - second) / room
        d = scale * cho_solve(factor, scale * rhs.ravel(), check_finite=False)
        d = d.reshape(lam.shape)
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
    while not is_inside(problem, state_of(problem, lam + size * step[0])):
        size *= 0.5
        if size < 1e-12:
            return None
    return _point(problem, *moved(size, step))


def _to_zero(x: Array, dx: Array) -> float:
    """Return the largest step, 1 at most, along which x + step dx is not negative."""
    falling = dx < 0
    with np.errstate(over="ignore"):  # a step of 1e-320 goes as far as one likes
        return min(1.0, float((-x[falling] / dx[falling]).min(initial=np.inf)))


def _factor(problem: Problem, point: Point, diagonal: Array) -> tuple[Any, Array]:
    """Return the Cholesky factor of H plus a diagonal, scaled to a unit diagonal, and the scale."""
    H = hessian(problem, point.state, point.s).reshape(diagonal.size, diagonal.size)
    at = np.diag_indices_from(H)
    H[at] += diagonal.ravel()
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
