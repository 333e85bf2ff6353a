"""Greedy mutual information on a covariance: gains of all candidates at once, updated pick by pick.

F(A) = I(y_A; y_rest) = 1/2 (log|C_AA| + log|C_RR| - log|C|), R the rows not in A, and
F(A + x) - F(A) = 1/2 log(v_x Q_xx), v = var(. | A), Q = (C_RR)^-1 with x still in R (Krause, Singh and
Guestrin 2008, algorithm 1; with k outputs of one covariance all is k times that, the order is the same).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from scipy.linalg import lapack

from labelzoo.acquisition.selectors import PoolExhausted, check_batch

Array = Any

TIE = 1e-8
"""Gains closer than this, in nats, are a tie: rounding must not decide which of two equal rows is taken."""
FLOOR = 1e-15
"""Smallest conditional variance, as a part of the variance before anything was known."""
BLOCK = 512
"""Rows of a matrix that are looked at together."""


class Picks(NamedTuple):
    """Rows that a greedy choice took.

    Attributes
    ----------
    rows : int (picked,)
        In order of choice.
    gains : (picked,)
        Of each when it was taken, nats.
    values : (picked + 1,)
        The set function at the seeds and after every pick, nats: I(A; rest), or the entropy of A.
    stopped : bool
        Whether fewer rows were picked than asked for, because the best gain left was negative.
    evaluations : int
        Gains that were computed.
    """

    rows: Array
    gains: Array
    values: Array
    stopped: bool
    evaluations: int


class Conditional:
    """var(. | A) of the rows not in A: picking x takes c^2 / v_x off, c = cov(., x | A), v_x = var(x | A).

    The column c is made when x is picked; no matrix is touched. Cost: R (seeds + picks) flops and memory a
    pick, R rows.

    Parameters
    ----------
    column : callable
        ``column(row) -> (rest,)``, the covariance of a row of the rest with the rest.
    diagonal : (rest,)
        Variances before anything is known.
    start : (seeds, rest)
        L^-1 C_SR with L L' = C_SS.
    room : int
        Number of picks.
    """

    def __init__(self, column: Callable[[int], Array], diagonal: Array, start: Array, room: int) -> None:
        self._column, self._used = column, start.shape[0]
        self._given = np.vstack([start, np.zeros((room, len(diagonal)))])
        self._least, self._raw = FLOOR * diagonal, diagonal - (start**2).sum(axis=0)

    @property
    def variance(self) -> Array:
        """var(. | A): (rest,)."""
        return np.maximum(self._raw, self._least)

    def scores(self) -> Array:
        """Return the entropy 1/2 log(2 pi e var(x | A)) that each row adds to A, nats: (rest,)."""
        return 0.5 * np.log(2 * np.pi * np.e * self.variance)

    def take(self, row: int) -> None:
        """Move `row` from the rest to A."""
        given = self._given[: self._used]
        column = self._column(row) - given[:, row] @ given
        column /= np.sqrt(self.variance[row])
        self._given[self._used], self._used = column, self._used + 1
        self._raw = self._raw - column**2


class InformationState:
    """Gains 1/2 log(v_x Q_xx) of the rows not in A, Q = (C_RR)^-1.

    Picking x takes Q_:x Q_x: / Q_xx off Q, by a column made when x is picked, as in `Conditional`.

    Parameters
    ----------
    conditional : Conditional
    diagonal : (rest,)
        Variances before anything is known.
    inverse : (rest, rest)
        Lower triangle of (C_RR)^-1; above it nothing is read.
    room : int
        Number of picks.
    """

    def __init__(self, conditional: Conditional, diagonal: Array, inverse: Array, room: int) -> None:
        self._conditional, self._inverse = conditional, inverse
        self._taken, self._used = np.zeros((room, len(diagonal))), 0
        self._least, self._raw = 1.0 / diagonal, np.diagonal(inverse).copy()

    @property
    def precision(self) -> Array:
        """1 / var(x | all other rows of the rest): (rest,)."""
        return np.maximum(self._raw, self._least)

    def scores(self) -> Array:
        """Return the gain of each row in nats, below 0 where it lowers the information: (rest,)."""
        return 0.5 * np.log(self._conditional.variance * self.precision)

    def take(self, row: int) -> None:
        """Move `row` from the rest to A."""
        self._conditional.take(row)
        taken = self._taken[: self._used]
        column = inverse_column(self._inverse, row) - taken[:, row] @ taken
        column /= np.sqrt(self.precision[row])
        self._taken[self._used], self._used = column, self._used + 1
        self._raw = self._raw - column**2


def greedy_mutual_information(
    C: Any, seeds: Any, picks: Any, *, stop: bool = True, candidates: Any = None
) -> Picks:
    """Pick rows one after another, each of the largest gain of I(y_A; y_rest).

    Parameters
    ----------
    C : (row, row)
        Covariance, noise included; positive definite. It is not changed.
    seeds : sequence of int
        Rows in A from the start.
    picks : int
        With more than there are candidates all of them are picked, with a warning.
    stop : bool
        Stop before the first pick of negative gain: F(everything) = 0, so F is not monotone.
    candidates : sequence of int or None
        Rows that may be picked; None: all that are no seeds. The others stay in the rest.

    Returns
    -------
    Picks
        Ties (within 1e-8 nats) go to the lowest index.

    Raises
    ------
    ValueError
        If `C` is no covariance (the message has its smallest eigenvalue), or seeds or candidates are no rows
        of it. `PoolExhausted` if no candidate is left.

    Notes
    -----
    Cost: R^3 flops and 8 R^2 bytes beside `C` once for R rows that are no seeds, R (seeds + picks) a pick.
    The number of outputs (labels) enters nowhere.
    """
    matrix, seeds, rest, allowed = read_ground(C, seeds, candidates)
    picks = check_batch(picks, int(allowed.sum()))
    start = seed_factor(matrix, seeds, rest)
    inverse, value = inverted(matrix, seeds, rest)
    diagonal = matrix.diagonal()[rest]
    conditional = Conditional(lambda row: matrix[rest[row], rest], diagonal, start, picks)
    state = InformationState(conditional, diagonal, inverse, picks)
    return _named(greedy(state, picks, allowed, stop=stop), rest, value)


def greedy_entropy(C: Any, seeds: Any, picks: Any, *, candidates: Any = None) -> Picks:
    """Pick rows one after another, each of the largest var(x | A): R (seeds + picks) flops a pick.

    Parameters and errors are those of `greedy_mutual_information`. ``values`` are entropies of A in nats.
    """
    matrix, seeds, rest, allowed = read_ground(C, seeds, candidates)
    picks = check_batch(picks, int(allowed.sum()))
    start = seed_factor(matrix, seeds, rest)
    state = Conditional(lambda row: matrix[rest[row], rest], matrix.diagonal()[rest], start, picks)
    own = matrix[np.ix_(seeds, seeds)]
    value = 0.5 * (np.linalg.slogdet(2 * np.pi * np.e * own)[1] if len(seeds) else 0.0)
    return _named(greedy(state, picks, allowed, stop=False), rest, float(value))


def greedy(state: Any, picks: int, allowed: Array, *, stop: bool = True, order: Array | None = None) -> Picks:
    """Pick rows of the highest ``state.scores()``, with ``state.take(row)`` after each.

    Parameters
    ----------
    allowed : bool (rest,)
        Which rows may be picked.
    order : int (rest,) or None
        Among tied rows the one of the lowest number is taken; None: the lowest index.
    """
    closed, order = ~allowed, np.arange(len(allowed)) if order is None else order
    rows, gains, evaluations = [], [], 0
    for step in range(picks):
        scores = state.scores()
        evaluations += int(closed.size - closed.sum())
        row = first_best(np.where(closed, -np.inf, scores), order)
        if stop and scores[row] < -TIE:
            break
        rows.append(row)
        gains.append(float(scores[row]))
        closed[row] = True
        if step + 1 < picks:
            state.take(row)
    values = np.concatenate([[0.0], np.cumsum(gains)])
    return Picks(np.asarray(rows, int), np.asarray(gains), values, len(rows) < picks, evaluations)


def first_best(gains: Array, order: Array) -> int:
    """Return the position of the largest gain; among ties the one of the lowest `order`."""
    tied = np.flatnonzero(gains >= gains.max() - TIE)
    return int(tied[np.argmin(order[tied])])


def information(C: Array, rows: Any) -> float:
    """Return I(A; rest) in nats by three log-determinants, A = `rows` of the covariance C (row, row)."""
    rows = np.asarray(rows, int)
    rest = np.setdiff1d(np.arange(C.shape[0]), rows)
    parts = (C[np.ix_(rows, rows)], C[np.ix_(rest, rest)], C)
    chosen, others, everything = (np.linalg.slogdet(part)[1] if len(part) else 0.0 for part in parts)
    return float(chosen + others - everything) / 2


def inverse_triangle(C: Array, name: str = "C", cross: Array | None = None) -> tuple[Array, Array]:
    """Turn a covariance into the lower triangle of its inverse, in its own memory.

    Returns
    -------
    inverse : (row, row)
    half : (row, column)
        L^-1 `cross` on the way, L L' = C; without columns where there is no `cross`.

    Raises
    ------
    ValueError
        If it is not positive definite; the message has the smallest eigenvalue.
    """
    matrix = C.T if C.flags.c_contiguous else np.asfortranarray(C)  # symmetric: the transpose is the matrix
    diagonal = matrix.diagonal().copy()
    factor, failed = lapack.dpotrf(matrix, lower=1, overwrite_a=1, clean=0)
    if failed:
        # The triangle above was not written to, so the matrix can be told from it.
        whole = np.triu(factor, 1)
        whole += whole.T
        whole[np.diag_indices_from(whole)] = diagonal
        least = scipy.linalg.eigvalsh(whole, overwrite_a=True, subset_by_index=[0, 0])[0]
        raise ValueError(f"{name} is not positive definite: its smallest eigenvalue is {least:.3g}")
    half = np.zeros((len(diagonal), 0))
    if cross is not None and cross.shape[1]:
        half = scipy.linalg.solve_triangular(factor, cross, lower=True, check_finite=False)
    return lapack.dpotri(factor, lower=1, overwrite_c=1)[0], half


def inverse_column(inverse: Array, row: int) -> Array:
    """Return a column of a symmetric matrix of which only the lower triangle counts: (row,)."""
    return np.concatenate([inverse[row, :row], inverse[row:, row]])


def read_ground(C: Any, seeds: Any, candidates: Any) -> tuple[Array, Array, Array, Array]:
    """Return C, the seeds, the other rows, and which of those may be picked; ValueError as the API says."""
    C = np.asarray(C, float)
    if C.ndim != 2 or C.shape[0] != C.shape[1]:
        raise ValueError(f"C must be (row, row), got shape {C.shape}")
    size = C.shape[0]
    seeds = _rows(seeds, size, "seeds")
    if not size:
        raise PoolExhausted("C has no rows: there is nothing to pick")
    _check_covariance(C)
    rest = np.setdiff1d(np.arange(size), seeds)
    if not len(rest):
        raise PoolExhausted(f"all {size} rows of C are seeds: there is nothing left to pick")
    allowed = np.ones(len(rest), bool)
    if candidates is not None:
        chosen = _rows(candidates, size, "candidates")
        both = np.intersect1d(chosen, seeds)
        if len(both):
            raise ValueError(f"candidates: row {both[0]} is a seed")
        allowed = np.isin(rest, chosen)
    return C, seeds, rest, allowed


def _rows(values: Any, size: int, name: str) -> Array:
    rows = np.asarray(values)
    rows = rows.astype(int) if rows.size == 0 else rows
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        raise ValueError(f"{name} must be integers, one a row, got {values!r}")
    if len(rows) > size:
        raise ValueError(f"{name}: {len(rows)} of them, C has {size} rows")
    bad = rows[(rows < 0) | (rows >= size)]
    if len(bad):
        raise ValueError(f"{name}: row {bad[0]} is outside 0 to {size - 1}")
    found, counts = np.unique(rows, return_counts=True)
    if (counts > 1).any():
        raise ValueError(f"{name}: row {found[counts > 1][0]} is given twice")
    return rows.astype(int)


def _check_covariance(C: Array) -> None:
    """Refuse a matrix that is not finite, not symmetric, or has a variance that is not positive."""
    bad = np.flatnonzero(~(C.diagonal() > 0))
    if len(bad):
        raise ValueError(f"C: the variance of row {bad[0]} is {C[bad[0], bad[0]]:g}, it must be above 0")
    largest = float(C.diagonal().max())
    for begin in range(0, C.shape[0], BLOCK):
        block = C[begin : begin + BLOCK]
        if not np.isfinite(block).all():
            row, column = np.argwhere(~np.isfinite(block))[0]
            raise ValueError(f"C row {begin + row}, column {column}: {block[row, column]} is no number")
        gap = np.abs(block - C[:, begin : begin + BLOCK].T)
        if gap.max() > 1e-8 * largest:
            row, column = np.unravel_index(gap.argmax(), gap.shape)
            raise ValueError(f"C is not symmetric: rows {begin + row} and {column} differ by {gap.max():.3g}")


def seed_factor(C: Array, seeds: Array, rest: Array) -> Array:
    """Return L^-1 C_SR with L L' = C_SS: (seeds, rest)."""
    if not len(seeds):
        return np.zeros((0, len(rest)))
    try:
        factor = np.linalg.cholesky(C[np.ix_(seeds, seeds)])
    except np.linalg.LinAlgError:
        raise _indefinite(C) from None
    return scipy.linalg.solve_triangular(factor, C[np.ix_(seeds, rest)], lower=True, check_finite=False)


def inverted(C: Array, seeds: Array, rest: Array) -> tuple[Array, float]:
    """Return the lower triangle of (C_RR)^-1 and I(seeds; rest) in nats.

    I = 1/2 (log|C_SS| - log|C_SS - H'H|), H = L^-1 C_RS with L L' = C_RR.

    Raises
    ------
    ValueError
        If `C` is not positive definite, in the rest or as a whole.
    """
    if not len(seeds):
        return inverse_triangle(C.copy())[0], 0.0
    own = C[np.ix_(seeds, seeds)]
    try:
        inverse, half = inverse_triangle(C[np.ix_(rest, rest)], "C", C[np.ix_(rest, seeds)])
    except ValueError:
        raise _indefinite(C) from None
    left = own - half.T @ half
    if np.linalg.eigvalsh(left)[0] < -1e-10 * own.diagonal().max():
        raise _indefinite(C)
    return inverse, float(np.linalg.slogdet(own)[1] - np.linalg.slogdet(left)[1]) / 2


def _indefinite(C: Array) -> ValueError:
    least = scipy.linalg.eigvalsh(C, subset_by_index=[0, 0])[0]
    return ValueError(f"C is not positive definite: its smallest eigenvalue is {least:.3g}")


def _named(found: Picks, rest: Array, value: float) -> Picks:
    return found._replace(rows=rest[found.rows], values=found.values + value)
