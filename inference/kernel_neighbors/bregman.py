"""Cyclic Bregman projection: one row's constraints at a time, the class kernels never formed.

A projection costs O(row x class): the row's product K0[i] W, taken for blocks of rows at once, and O(class)
for everything else. A sweep over all rows is one product of K0 with a matrix (row, class). Memory is K0 and a
few matrices (row, class).

A sweep visits the rows whose projection would change something: those that add to the gap or violate a
constraint. The method converges linearly, and slowly where constraints are hard or multipliers many, so two
things are added to the paper's algorithm. The multipliers of a few sweeps are extrapolated (Anderson 1965;
Bertrand and Massias 2021 for coordinate descent) where that raises the dual. And where many sweeps are left
to go, the multipliers off their bounds, which the sweeps have found, are solved for together (`polished`): by
`labelzoo.inference.kernel_neighbors.dual.maximize` while they are few enough for their Hessian, by a Newton
step of `labelzoo.inference.kernel_neighbors.truncated` else. Without ``polish`` it is the paper's algorithm.

Jain and Kapoor, CVPR 2009, algorithm 1.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from labelzoo.arguments import whole_number
from labelzoo.inference.kernel_neighbors.block import Side, Step, project, sides
from labelzoo.inference.kernel_neighbors.dual import MAX_SIZE, maximize
from labelzoo.inference.kernel_neighbors.multipliers import (
    Fit,
    State,
    constraints,
    duality_gap,
    finish,
    gap_terms,
    inside,
    is_inside,
    own_weights,
    read_start,
    read_tolerance,
    similarity_of,
    state_of,
    violations_of,
)
from labelzoo.inference.kernel_neighbors.problem import Problem
from labelzoo.inference.kernel_neighbors.truncated import newton_rise

Array = Any
Projection = Callable[..., Step]

BLOCK = 64
"""Rows whose products with W are taken together."""
TOLERANCE = 1e-10
MAX_SWEEPS = 20000
MEMORY = 5
"""Sweeps from one extrapolation to the next."""
RIDGE = 1e-10
OFF_BOUND = 1e-9
"""Share of the mean multiplier from which on one is off its bound."""
FEW = 500
"""Multipliers up to which maximising over them costs less than a few sweeps."""
MOST_OF_STEP = 0.25
PATIENCE = 10
"""Sweeps still to go from which on it pays to solve for many multipliers together."""
NEGLIGIBLE = 0.1
"""Share of the tolerance that rows which are not projected may have together."""
ROUNDING = 1e-10
"""Share of 1 + dual by which a polish may lower it."""
STUCK = 6
"""Polishes down to the tolerance that do not halve the error, after which the method gives up."""
PATIENT = 3
"""Polishes in succession that do not halve the error, after which conjugate gradients have stalled."""


def bregman(
    problem: Problem,
    *,
    start: Any = None,
    tolerance: Any = TOLERANCE,
    max_sweeps: Any = MAX_SWEEPS,
    extrapolate: Any = True,
    polish: Any = True,
    projection: Projection = project,
) -> Fit:
    """Project row after row until the duality gap and the largest violation are small.

    Parameters
    ----------
    problem : Problem
    start : (row, column) or None
        Multipliers to begin with, as `labelzoo.inference.kernel_neighbors.warm.warm_start` gives them;
        halved until the kernels are positive definite. Zeros by default.
    tolerance : float
        Of the gap over 1 + dual, and of the violation over a row's similarity.
    max_sweeps : int
    extrapolate : bool
        Whether to extrapolate every `MEMORY` sweeps.
    polish : bool
        Whether to solve for all multipliers off their bounds together where more than `PATIENCE` sweeps are
        left to go, as far as their errors tell, and at once from a `start`.
    projection : callable
        `labelzoo.inference.kernel_neighbors.block.project`; another one for the checks, which plant faults.

    Returns
    -------
    Fit
        ``converged`` False, with a message, where the sweeps ran out or rounding lets it come no nearer.

    Raises
    ------
    ValueError
        If `start` does not fit or an option is out of range.
    """
    tol = read_tolerance(tolerance)
    for name, choice in (("extrapolate", extrapolate), ("polish", polish)):
        if not isinstance(choice, bool | np.bool_):
            raise ValueError(f"{name} must be True or False, got {choice!r}")
    most = whole_number("max_sweeps", max_sweeps, 1)
    state = inside(problem, read_start(problem, start))
    if len(problem.classes) == 1:
        return finish(problem, np.zeros_like(state.lam), tolerance=tol)
    return _climbed(problem, state, tol, most, bool(extrapolate), bool(polish), projection)


def _climbed(
    problem: Problem,
    state: State,
    tol: float,
    most: int,
    extrapolate: bool,
    polish: bool,
    projection: Projection,
) -> Fit:
    """Return the best of the states on the way from `state`, as `bregman` says."""
    table = sides(own_weights(problem), problem.columns)
    errors: list[float] = []
    tries: list[float] = []
    rests: list[float] = []
    # A sweep moves the multipliers in place.
    history, projections, sweeps, steps = [state.lam.copy()], 0, 0, 0
    together, whole, stuck = bool(state.lam.any()), False, False
    least, best = np.inf, state.lam
    while True:
        s, g, error, rows = _look(problem, state, tol)
        errors.append(error)
        if error < least:
            least, best = error, state.lam.copy()
        if error <= 1.0 or sweeps == most:
            break
        if polish and (together or _is_slow(errors)):
            tries = [*tries, error]
            stuck = _is_stuck([*rests, error], STUCK)
            if stuck:
                break
            state, taken, whole = polished(problem, state, s, g, tol, _is_stuck(tries, PATIENT))
            steps, errors, together = steps + taken, [], False
            rests, history = rests + [error] * (taken > 1), [state.lam.copy()]
            if taken:
                continue
        projections += sweep(problem, state, rows, table, projection)
        # W, b and D drift by rounding, so they are computed anew.
        state, sweeps = state_of(problem, state.lam), sweeps + 1
        # After a polish that was not cut off one sweep is for the rows outside it.
        together = whole
        history = [*history, state.lam.copy()]
        if extrapolate and len(history) > MEMORY:
            state = extrapolated(problem, state, history)
            history = [state.lam.copy()]
    counts = {"projections": projections, "sweeps": sweeps, "steps": steps}
    return finish(problem, best, tolerance=tol, rounding=stuck, **counts)


def _look(problem: Problem, state: State, tolerance: float) -> tuple[Array, Array, float, Array]:
    """Return s, g, the larger of gap and violation over the tolerance, and the rows worth a projection.

    The others have less than the share `NEGLIGIBLE` of what is allowed together.
    """
    s = similarity_of(problem, state)
    g = constraints(problem, s)
    allowed = tolerance * (1.0 + abs(float(np.log(state.D).sum())))
    gaps = gap_terms(problem, state.lam, g).sum(axis=1)
    violations = violations_of(problem, s, g)
    error = max(duality_gap(problem, state.lam, g) / allowed, float(violations.max()) / tolerance)
    worth = (gaps > NEGLIGIBLE * allowed / len(gaps)) | (violations > NEGLIGIBLE * tolerance)
    return s, g, error, np.flatnonzero(worth)


def _is_slow(errors: list[float]) -> bool:
    """Say whether the errors of sweeps, over the tolerance, fall too slowly to end in `PATIENCE` sweeps."""
    if len(errors) <= MEMORY:
        return False
    fall = np.log(errors[-1 - MEMORY] / errors[-1]) / MEMORY
    return bool(fall * PATIENCE < np.log(errors[-1]))


def _is_stuck(errors: list[float], last: int) -> bool:
    """Say whether the least of the errors before the `last` polishes was not halved by them."""
    return len(errors) > last and min(errors[-last:]) > 0.5 * min(errors[:-last])


def polished(
    problem: Problem, state: State, s: Array, g: Array, tolerance: float, stalled: bool = False
) -> tuple[State, int, bool]:
    """Return the state after solving for the multipliers off their bounds, the steps, and if it is whole.

    Few are maximised over. For more than `FEW` one step by conjugate gradients is tried; where it is cut off,
    or such steps have `stalled`, they are maximised over all the same, up to `MAX_SIZE` of them. Not whole is
    a step that was cut off, and what went astray.
    """
    free = off_bounds(problem, state.lam, g)
    size = int(free.sum())
    if size > (MAX_SIZE if stalled else FEW):
        state, share = newton_rise(problem, state, s, g, free)
        if share >= MOST_OF_STEP or size > MAX_SIZE:
            return state, int(share > 0), share >= MOST_OF_STEP
    if not size:
        return state, 0, False
    lam, steps = maximize(problem, state.lam, free, tolerance=tolerance)
    there = state_of(problem, lam)
    # Where the Hessian is singular but for rounding the steps can go astray.
    before = float(np.log(state.D).sum())
    astray = bool(np.log(there.D).sum() < before - ROUNDING * (1.0 + abs(before)))
    return state if astray else there, steps + int(size > FEW), not astray


def off_bounds(problem: Problem, lam: Array, g: Array) -> Array:
    """Return which multipliers are off their bounds, or pushed off them by g: bool (row, column)."""
    edge = OFF_BOUND * float(lam.mean())
    return ((lam > edge) | (g > 0)) & ((lam < problem.upper - edge) | (g < 0))


def extrapolated(problem: Problem, state: State, history: list[Array]) -> State:
    """Return the state at the combination of sweeps whose last moves cancel best, if its dual is larger.

    The weights c, sum c = 1, minimise the length of sum_k c_k (lam_k+1 - lam_k).
    """
    moves = np.array([(new - old).ravel() for old, new in zip(history[:-1], history[1:], strict=True)])
    gram = moves @ moves.T
    gram[np.diag_indices_from(gram)] += RIDGE * max(float(np.trace(gram)) / len(gram), 1e-300)
    c = np.linalg.solve(gram, np.ones(len(gram)))
    lam = sum(weight * one for weight, one in zip(c / c.sum(), history[1:], strict=True))
    there = state_of(problem, np.clip(lam, 0.0, problem.upper))
    higher = is_inside(problem, there) and np.log(there.D).sum() > np.log(state.D).sum()
    return there if higher else state


def sweep(
    problem: Problem, state: State, rows: Array, table: list[Side], projection: Projection = project
) -> int:
    """Project `rows` one after the other, in place; return how many projections moved.

    ``kw`` and ``c`` of the state are left as they were: `state_of` its multipliers gives the state after it.
    """
    moved = 0
    lam, W, b, D = state.lam, state.W, state.b, state.D
    own = own_weights(problem)
    for at in range(0, len(rows), BLOCK):
        block = rows[at : at + BLOCK]
        kw = problem.K0[block] @ W
        inner = problem.K0[np.ix_(block, block)]
        for j, i in enumerate(block):
            y = problem.y[i]
            kv, held = problem.kv[i], lam[i]
            s = ((1.0 + b) * kv - problem.a * kw[j]) / D
            if not held.any() and _holds(s, y, own[y], problem.positive_total):
                continue
            step = projection(s, problem.spread[i] / D, held, table[y], problem.upper)
            held += step.delta
            W[i] += step.tau
            b += step.tau * kv
            D *= step.factor
            kw[j + 1 :] += np.outer(inner[j + 1 :, j], step.tau)
            moved += 1
    return moved


def _holds(s: Array, y: Any, own: Array, positive_total: bool) -> bool:
    """Say whether no constraint is violated: own_l s_l + sign_l total <= 0."""
    total = s.sum()
    g = own * s - total
    g[y] += 2.0 * total
    return bool(g.max() <= 0.0 and (total >= 0.0 or not positive_total))
