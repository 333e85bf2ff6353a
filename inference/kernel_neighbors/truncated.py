"""One Newton step on any number of multipliers, by conjugate gradients: H is multiplied, never formed.

With H = A' B A as in `labelzoo.inference.kernel_neighbors.dual`, a product H d is one product of K0 with a
matrix (row, class). The system in the multipliers off their bounds is solved by conjugate gradients scaled by
the diagonal of H (Dembo and Steihaug 1983), and the step is halved along its projection onto the bounds until
the dual rises. 2 row^2 class flops an iteration, `MAX_ITERATIONS` at most; memory some matrices (row, class).

Jain and Kapoor, CVPR 2009, eq. 9 for many rows together.
"""

from typing import Any

import numpy as np

from labelzoo.inference.kernel_neighbors.multipliers import (
    State,
    constraints,
    is_inside,
    own_weights,
    state_of,
    weights,
)
from labelzoo.inference.kernel_neighbors.problem import Problem

Array = Any

MAX_ITERATIONS = 200
ENOUGH = 0.05
"""Share of its first length to which the residual is brought."""
MAX_HALVINGS = 14


def hessian_product(problem: Problem, state: State, s: Array, d: Array) -> Array:
    """Return minus the Hessian of the dual times d: (row, column).

    Parameters
    ----------
    problem : Problem
    state : State
    s : (row, class)
        Similarities at `state`.
    d : (row, column)
    """
    t = 2.0 * weights(problem, d)
    Bt = problem.a * (problem.K0 @ t) - problem.kv * (problem.kv * t).sum(axis=0)
    return constraints(problem, Bt / (2.0 * state.D) + s * (s * t).sum(axis=0))


def hessian_diagonal(problem: Problem, state: State, s: Array) -> Array:
    """Return minus the diagonal of the Hessian: (row, column), sum_l B_l,ii + (own^2 + 2 own sign) B_c,ii."""
    B = problem.spread / (2.0 * state.D) + s**2
    own = own_weights(problem)
    sign = np.where(own < 0, 1.0, -1.0)
    total = B.sum(axis=1)
    diagonal = total[:, None] + (own * (own + 2.0 * sign))[problem.y] * B
    return np.column_stack([diagonal, total]) if problem.positive_total else diagonal


def newton_rise(problem: Problem, state: State, s: Array, g: Array, free: Array) -> tuple[State, float]:
    """Return a state of larger dual along the Newton step of the free multipliers, and the share of the step.

    `state` itself and 0 where none is found. A small share says that the bounds or the domain cut the step
    off, where Newton's method is no quicker than sweeps.

    Parameters
    ----------
    problem : Problem
    state : State
        Kernels positive definite.
    s : (row, class)
    g : (row, column)
        Gradient of the dual.
    free : bool (row, column)
    """
    step = _direction(problem, state, s, np.where(free, g, 0.0), free)
    value, size = float(np.log(state.D).sum()), 1.0
    for _ in range(MAX_HALVINGS):
        there = state_of(problem, np.clip(state.lam + size * step, 0.0, problem.upper))
        if is_inside(problem, there) and np.log(there.D).sum() > value:
            return there, size
        size *= 0.5
    return state, 0.0


def _direction(problem: Problem, state: State, s: Array, residual: Array, free: Array) -> Array:
    """Return the step (row, column) by scaled conjugate gradients from 0."""
    diagonal = np.maximum(hessian_diagonal(problem, state, s), np.finfo(float).tiny)
    step, scaled = np.zeros_like(residual), residual / diagonal
    way, length = scaled.copy(), float((residual * scaled).sum())
    enough = ENOUGH**2 * length
    for _ in range(MAX_ITERATIONS):
        curved = np.where(free, hessian_product(problem, state, s, way), 0.0)
        bend = float((way * curved).sum())
        if bend <= 0 or length <= enough:
            break
        step += (length / bend) * way
        residual = residual - (length / bend) * curved
        scaled = residual / diagonal
        before, length = length, float((residual * scaled).sum())
        way = scaled + (length / before) * way
    return step
