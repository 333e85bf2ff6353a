"""A reference for checks: the primal in the similarities, and a gap that is certified.

The constraints touch K^l through u_l = K^l v_l alone, and the K^l nearest to K0 for a given u_l is a BFGS
update of it, with the divergence

    u'K0^-1 u / (v'u) - 1 - log(v'u / a),   v'u > 0,

so that the primal has (row, class) unknowns. It is solved by a barrier with Newton steps, dense, for a few
rows; nothing is shared with the dual solvers but the constraints. With gamma each constraint has a slack.

Jain and Kapoor, CVPR 2009, eq. 4.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from labelzoo.inference.kernel_neighbors.multipliers import Fit, constraints
from labelzoo.inference.kernel_neighbors.problem import Problem

Array = Any

MAX_SIZE = 400
"""Unknowns of the dense Newton steps."""
SHARPNESS = 8.0
"""Factor of the barrier from one Newton solve to the next."""
LAST_GAP = 1e-12
"""Constraints over the last barrier's weight, nats."""
MAX_NEWTON = 60


class Primal(NamedTuple):
    """The primal solution.

    Attributes
    ----------
    similarity : (row, class)
        u_l.
    value : float
        Divergence plus the price of the slack, nats.
    bound : float
        How far `value` may lie above the least one: the barrier's duality gap, nats.
    """

    similarity: Array
    value: float
    bound: float


def solve_primal(problem: Problem) -> Primal:
    """Return the primal solution.

    Raises
    ------
    ValueError
        For more than `MAX_SIZE` unknowns.
    """
    n, number, columns = len(problem.y), len(problem.classes), problem.columns
    slack = columns if np.isfinite(problem.upper) else 0
    if n * (number + slack) > MAX_SIZE:
        raise ValueError(f"the reference is for {MAX_SIZE} unknowns at most, got {n * (number + slack)}")
    inverse = np.linalg.inv(problem.K0)
    G = constraint_matrix(problem)
    x = np.concatenate([_interior(problem).T.ravel(), np.zeros(n * slack)])
    if slack:
        G = np.block([[G, -np.eye(len(G))], [np.zeros((len(G), G.shape[1])), -np.eye(len(G))]])
        x[n * number :] = np.maximum(G[: n * columns, : n * number] @ x[: n * number], 0.0) + problem.a.mean()
    weight = 1.0
    while True:
        x = _centred(x, G, weight, problem, inverse)
        if len(G) / weight <= LAST_GAP:
            break
        weight *= SHARPNESS
    value = _objective(x, problem, inverse)[0]
    return Primal(x[: n * number].reshape(number, n).T, value, len(G) / weight)


def constraint_matrix(problem: Problem) -> Array:
    """Return the matrix that takes u, class by class, to g: (row column, class row)."""
    n, number = len(problem.y), len(problem.classes)
    units = np.eye(n * number)
    return np.array([constraints(problem, e.reshape(number, n).T).ravel() for e in units]).T


def divergence(problem: Problem, similarity: Array, solved: Array) -> float:
    """Return the least sum of divergences with these similarities u (row, class).

    `solved` is K0^-1 u. Infinite where some v'u is not positive.
    """
    along = (_centres(problem) * similarity).sum(axis=0)
    if (along <= 0).any():
        return np.inf
    return float(((similarity * solved).sum(axis=0) / along - 1.0 - np.log(along / problem.a)).sum())


def nearest_kernels(problem: Problem, similarity: Array) -> Array:
    """Return K^l nearest to K0 with K^l v_l = u_l, formed: (class, row, row).

    K0 - kv kv' / a + u u' / (v'u).
    """
    along = (_centres(problem) * similarity).sum(axis=0)
    taken = np.einsum("il,jl,l->lij", problem.kv, problem.kv, 1.0 / problem.a)
    return problem.K0 - taken + np.einsum("il,jl,l->lij", similarity, similarity, 1.0 / along)


def certified_gap(problem: Problem, fit: Fit) -> float:
    """Return the value of a feasible point near the fit minus its dual value: what the fit can be off by.

    With hard constraints the similarities are mixed with the interior point 1[y = l] until none is violated;
    with gamma the slack pays. Costs a Cholesky factor of K0.
    """
    s = fit.similarity
    V, a = _centres(problem), problem.a
    solved = (1.0 + fit.b) * V / fit.D - a * fit.W / fit.D
    g = constraints(problem, s)
    if np.isfinite(problem.upper):
        return divergence(problem, s, solved) + problem.upper * float(np.maximum(g, 0.0).sum()) - fit.dual
    middle = _interior(problem) * (np.abs(s).mean() or 1.0)
    inner = constraints(problem, middle)
    bad = g > 0
    share = float((g[bad] / (g[bad] - inner[bad])).max(initial=0.0))
    mixed = (1.0 - share) * s + share * middle
    behind = cho_solve(cho_factor(problem.K0), middle)
    return divergence(problem, mixed, (1.0 - share) * solved + share * behind) - fit.dual


def _centres(problem: Problem) -> Array:
    """Return V (row, class)."""
    V = np.zeros((len(problem.y), len(problem.classes)))
    V[np.arange(len(V)), problem.y] = 1.0 / problem.counts[problem.y]
    return V


def _interior(problem: Problem) -> Array:
    """Return u_l = 1[y = l], strictly inside all constraints: (row, class)."""
    return (_centres(problem) > 0).astype(float)


def _objective(x: Array, problem: Problem, inverse: Array) -> tuple[float, Array, Array]:
    """Return the primal value with its gradient and Hessian; infinite outside the domain."""
    n, number = len(problem.y), len(problem.classes)
    V, size = _centres(problem), n * number
    gradient, H, value = np.zeros(len(x)), np.zeros((len(x), len(x))), 0.0
    if len(x) > size:
        gradient[size:] = problem.upper
        value = problem.upper * float(x[size:].sum())
    for c in range(number):
        at = slice(c * n, (c + 1) * n)
        u, v = x[at], V[:, c]
        along, solved = float(v @ u), inverse @ u
        if along <= 0:
            return np.inf, gradient, H
        q = float(u @ solved)
        value += q / along - 1.0 - float(np.log(along / problem.a[c]))
        gradient[at] = 2.0 * solved / along - v * (q / along**2 + 1.0 / along)
        cross = np.outer(solved, v) * (2.0 / along**2)
        H[at, at] = 2.0 * inverse / along - cross - cross.T
        H[at, at] += np.outer(v, v) * (2.0 * q / along**3 + 1.0 / along**2)
    return value, gradient, H


def _centred(x: Array, G: Array, weight: float, problem: Problem, inverse: Array) -> Array:
    """Minimise value - sum log(-G x) / weight by Newton's method from an interior x."""
    for _ in range(MAX_NEWTON):
        value, gradient, H = _objective(x, problem, inverse)
        slack = -(G @ x)
        slope = gradient + G.T @ (1.0 / slack) / weight
        scaled = G / slack[:, None]
        step = np.linalg.solve(H + scaled.T @ scaled / weight, -slope)
        decrement = -float(slope @ step)
        if decrement <= 1e-3 * LAST_GAP:
            break
        here = value - float(np.log(slack).sum()) / weight
        size = 1.0
        while size > 1e-14:
            moved = x + size * step
            room = -(G @ moved)
            if (room > 0).all():
                there = _objective(moved, problem, inverse)[0] - float(np.log(room).sum()) / weight
                if there <= here - 1e-4 * size * decrement + 1e-13 * (1.0 + abs(here)):
                    break
            size *= 0.5
        else:
            break
        x = moved
    return x
