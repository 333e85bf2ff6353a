"""What the multipliers stand for: weights, similarities, values and gap, with no class kernel formed.

With t_il = sig_i + own_il lam_il, sig_i = lam_iy - sum_{c != y} lam_ic, own_iy = -1 / alpha and
own_ic = 1 / beta, the kernels are (K^l)^-1 = K0^-1 + w_l v_l' + v_l w_l', w_l(i) = t_il / 2. In terms of
a = v'K0 v, b = v'K0 w, c = w'K0 w and D = (1 + b)^2 - a c,

    s(x) = ((1 + b) kv(x) - a kw(x)) / D,   kv = K0(x, X) v,  kw = K0(x, X) w,
    dual = sum_l log D_l,   primal = sum_l log D_l - 2 (1 - (1 + b_l) / D_l),   gap = -sum lam g.

Jain and Kapoor, CVPR 2009, eqs. 5 to 7.
"""

import warnings
from typing import Any, NamedTuple

import numpy as np

from labelzoo.arguments import real
from labelzoo.inference.kernel_neighbors.problem import Problem, class_means
from labelzoo.inference.sparse_bayes.terms import read_matrix

Array = Any

FLOOR = 1e-3
"""Share of the mean prior total below which a row's similarities no longer scale its violation."""
SMALLEST_SHARE = 2.0**-20
"""Of multipliers to begin with; below it the solver begins at 0."""
ZERO_TOTAL = 1e-6
"""Share of the mean prior total below which a row's total counts as not positive: on its bound, but for
rounding."""


class State(NamedTuple):
    """Multipliers lam (row, column) with what follows from them.

    Attributes
    ----------
    lam : (row, class), or (row, class + 1) where totals are constrained
    W : (row, class)
        w_l.
    kw : (row, class)
        K0 w_l.
    b, c, D : (class,)
    """

    lam: Array
    W: Array
    kw: Array
    b: Array
    c: Array
    D: Array


class Fit(NamedTuple):
    """What a solver found; all that prediction needs.

    Attributes
    ----------
    problem : Problem
    lam : (row, column)
        Multipliers; not unique where alpha + (C - 1) beta = 1.
    W : (row, class)
    b, D : (class,)
    similarity : (row, class)
        s_l at the training rows.
    dual : float
        sum_l log D_l, a lower bound of the least divergence, nats.
    gap : float
        Primal value at these kernels minus `dual`, in absolute value (|sum lam g| for hard constraints).
    violation : float
        Largest violated constraint over the row's similarity; 0 with gamma, which pays for it in the gap.
    projections : int
        Rows projected.
    sweeps : int
        Passes over the rows.
    steps : int
        Newton steps on many multipliers together.
    nonpositive : int
        Training rows whose total similarity is not positive.
    converged : bool
    message : str
    """

    problem: Problem
    lam: Array
    W: Array
    b: Array
    D: Array
    similarity: Array
    dual: float
    gap: float
    violation: float
    projections: int
    sweeps: int
    steps: int
    nonpositive: int
    converged: bool
    message: str


def own_weights(problem: Problem) -> Array:
    """Return own_l of each class of rows: (class, class), row y holds -1 / alpha at y, 1 / beta elsewhere."""
    number = len(problem.classes)
    table = np.full((number, number), 1.0 / problem.beta)
    np.fill_diagonal(table, -1.0 / problem.alpha)
    return table


def weights(problem: Problem, lam: Array) -> Array:
    """Return W (row, class) of the multipliers; linear in them."""
    number = len(problem.classes)
    rows = np.arange(len(lam))
    sig = 2.0 * lam[rows, problem.y] - lam.sum(axis=1)
    W = lam[:, :number] / problem.beta
    W[rows, problem.y] *= -problem.beta / problem.alpha
    return 0.5 * (W + sig[:, None])


def constraints(problem: Problem, similarity: Array) -> Array:
    """Return g (row, column) at similarities (row, class); feasible where not above 0."""
    rows = np.arange(len(similarity))
    total = similarity.sum(axis=1)
    g = similarity / problem.beta - total[:, None]
    g[rows, problem.y] = total - similarity[rows, problem.y] / problem.alpha
    return np.column_stack([g, -total]) if problem.positive_total else g


def state_of(problem: Problem, lam: Array) -> State:
    """Return the state of multipliers; two products with K0's size."""
    W = weights(problem, lam)
    return state_of_weights(problem, lam, W, problem.K0 @ W)


def state_of_weights(problem: Problem, lam: Array, W: Array, kw: Array) -> State:
    """Return the state whose kw = K0 W is known."""
    b = class_dot(problem, kw)
    c = (W * kw).sum(axis=0)
    return State(lam, W, kw, b, c, determinant(problem.a, b, c)[0])


def class_dot(problem: Problem, matrix: Array) -> Array:
    """Return v_l' m_l of the columns m_l of `matrix` (row, class): (class,)."""
    rows = np.arange(len(matrix))
    return np.bincount(problem.y, matrix[rows, problem.y], len(problem.classes)) / problem.counts


def determinant(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    """Return D and the smaller eigenvalue m = 1 + b - sqrt(a c), D = m (1 + b + sqrt(a c)).

    K^l is positive definite where m > 0.
    """
    root = np.sqrt(np.maximum(a * c, 0.0))
    smaller = 1.0 + b - root
    return smaller * (1.0 + b + root), smaller


def is_inside(problem: Problem, state: State) -> bool:
    """Say whether all kernels are positive definite."""
    smaller = determinant(problem.a, state.b, state.c)[1]
    return bool((smaller > 0).all())


def read_tolerance(tolerance: Any) -> float:
    """Return the tolerance; ValueError for what is not between 0 and 1."""
    tol = real(tolerance)
    if not 0 < tol < 1:
        raise ValueError(f"tolerance must be a number above 0 and below 1, got {tolerance!r}")
    return tol


def read_start(problem: Problem, start: Any) -> Array:
    """Return multipliers to begin with, zeros for None; ValueError where their shape or a value is wrong."""
    shape = (len(problem.y), problem.columns)
    if start is None:
        return np.zeros(shape)
    lam = read_matrix(start, "start", shape[1])
    if lam.shape != shape:
        raise ValueError(f"start must have shape {shape}, got {lam.shape}")
    if (lam < 0).any():
        raise ValueError(f"start must not be negative, got {lam.min()}")
    return np.minimum(lam, problem.upper)


def inside(problem: Problem, lam: Array) -> State:
    """Return the state of `lam`, halved until all kernels are positive definite; 0 always is.

    The domain is convex and holds 0, so that halving ends; below `SMALLEST_SHARE` the start is 0.
    """
    share = 1.0
    while share >= SMALLEST_SHARE:
        state = state_of(problem, share * lam)
        if is_inside(problem, state):
            return state
        share *= 0.5
    return state_of(problem, np.zeros_like(lam))


def similarity_of(problem: Problem, state: State) -> Array:
    """Return s_l at the training rows: (row, class)."""
    return ((1.0 + state.b) * problem.kv - problem.a * state.kw) / state.D


def gap_terms(problem: Problem, lam: Array, g: Array) -> Array:
    """Return what each multiplier adds to the gap, not negative: (row, column).

    Hard: |lam g|, of which `duality_gap` takes the sum with signs. With gamma the slack is max(g, 0) at its
    price: upper max(g, 0) - lam g.
    """
    if np.isinf(problem.upper):
        return np.abs(lam * g)
    return problem.upper * np.maximum(g, 0.0) - lam * g


def duality_gap(problem: Problem, lam: Array, g: Array) -> float:
    """Return the primal minus the dual value, in absolute value."""
    return abs(float((lam * g if np.isinf(problem.upper) else gap_terms(problem, lam, g)).sum()))


def violations_of(problem: Problem, similarity: Array, g: Array) -> Array:
    """Return the largest g of each row over max(sum_l |s_l|, a share of the mean prior total): (row,).

    0 with gamma, which pays for it in the gap.
    """
    if np.isfinite(problem.upper):
        return np.zeros(len(g))
    floor = FLOOR * np.abs(problem.kv.sum(axis=1)).mean()
    size = np.maximum(np.abs(similarity).sum(axis=1), floor)
    return np.maximum(g.max(axis=1) * min(problem.alpha, problem.beta) / size, 0.0)


def is_optimal(problem: Problem, lam: Array, tolerance: float) -> bool:
    """Say whether the gap over 1 + dual and the violations are within the tolerance."""
    state = state_of(problem, lam)
    s = similarity_of(problem, state)
    g = constraints(problem, s)
    allowed = tolerance * (1.0 + abs(float(np.log(state.D).sum())))
    return bool(duality_gap(problem, lam, g) <= allowed and violations_of(problem, s, g).max() <= tolerance)


def nonpositive_totals(problem: Problem, similarity: Array) -> int:
    """Return how many training rows have a total similarity that is not positive."""
    least = ZERO_TOTAL * np.abs(problem.kv.sum(axis=1)).mean()
    return int((similarity.sum(axis=1) <= least).sum())


def _advice(problem: Problem) -> str:
    """Say what may give rows of the problem a positive total."""
    softer = "lower gamma" if np.isfinite(problem.upper) else "set gamma"
    prior = (problem.kv.sum(axis=1) <= 0).any()
    return f"{softer}, or alpha and beta nearer to 1 / C" + (", or another prior kernel" if prior else "")


def finish(
    problem: Problem,
    lam: Array,
    *,
    tolerance: float,
    projections: int = 0,
    sweeps: int = 0,
    steps: int = 0,
    rounding: bool = False,
) -> Fit:
    """Return the fit at `lam`, everything computed anew; warn of totals that are not positive.

    `rounding` says that the solver came no nearer in 64-bit numbers.
    """
    state = state_of(problem, lam)
    s = similarity_of(problem, state)
    g = constraints(problem, s)
    dual, gap = float(np.log(state.D).sum()), duality_gap(problem, lam, g)
    violation = float(violations_of(problem, s, g).max())
    if len(problem.classes) == 1:  # nothing to tell apart: the prior kernel
        gap = violation = 0.0
    converged = gap <= tolerance * (1.0 + abs(dual)) and violation <= tolerance
    low = nonpositive_totals(problem, s)
    if low:
        warnings.warn(
            f"{low} of {len(s)} training rows have a total similarity that is not positive, where shares "
            f"mean nothing: {_advice(problem)}",
            UserWarning,
            stacklevel=3,
        )
    counted = ((sweeps, "sweep"), (steps, "Newton step"))
    work = [f"{count} {what}{'s' * (count > 1)}" for count, what in counted if count]
    message = f"{'' if converged else 'not '}converged: gap {gap:.1e}, violation {violation:.1e}"
    message += f" after {' and '.join(work)}" if work else ""
    if rounding and not converged:
        lower = ", a lower gamma" if np.isfinite(problem.upper) else ""
        message += f"; rounding lets it come no nearer: give K0 a larger jitter{lower}, or a larger tolerance"
    values = (dual, gap, violation, projections, sweeps, steps, low, converged, message)
    return Fit(problem, lam, state.W, state.b, state.D, s, *values)


def means_of(fit: Fit, cross: Array) -> Array:
    """Return K0(x, X) v_l of rows of K0(x, X): (any, class)."""
    return class_means(cross, fit.problem.y, fit.problem.counts)
