"""Greedy mutual information between the rows labelled and all others, with a kernel (MIML).

F(A) = I(y_A; y_rest) = 1/2 (log|C_AA| + log|C_RR| - log|C|), C = K + r I over labelled rows, pool and
targets, R the rows not in A. It is exactly submodular; it is not monotone, as F(everything) = 0.
"""

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import lapack

from labelzoo.acquisition.integrated import (
    greedy_rows,
    picks,
    read_features,
    read_kernel,
    read_labelled,
    regression_factors,
)
from labelzoo.acquisition.problem import Acquisition, Choice, Problem
from labelzoo.acquisition.selectors import check_batch

Array = Any

LARGEST_GROUND = 5000
"""Pool and target rows that are inverted without being asked: 200 MB, about 8e10 flops."""


class GroundSet:
    """Gains 1/2 log(v_x Q_xx) of all candidates, kept up to date pick by pick.

    v_x = var(y_x | y_A) and Q = (C_RR)^-1, so that 1 / Q_xx = var(y_x | all other rows of R). Picking x takes
    one column out of each: v <- v - c^2 / v_x, Q <- Q - Q_:x Q_x: / Q_xx, by columns made on demand.

    Cost R^3 flops and 8 R^2 bytes once, R (labelled + picks) a pick, for R = pool + targets rows.

    Parameters
    ----------
    kernel : object
        With ``between``, ``diagonal`` and ``noise_ratio``.
    X_rest : (rest, feature)
        Pool rows, then targets.
    candidates : int
        How many of them are pool rows; the others are never picked.
    X_labelled : (labelled, feature) or None
        In A from the start.
    room : int
        Number of picks.
    """

    def __init__(
        self, kernel: Any, X_rest: Array, candidates: int, X_labelled: Array | None, room: int
    ) -> None:
        self._kernel, self._X, self._candidates = kernel, X_rest, candidates
        (start,) = regression_factors(kernel, X_labelled, X_rest)
        self._used = start.shape[0]
        self._given = np.vstack([start, np.zeros((room, X_rest.shape[0]))])
        self._variance = kernel.diagonal(X_rest) + kernel.noise_ratio - (start**2).sum(axis=0)
        self._inverse = inverse_triangle(kernel.between(X_rest, X_rest), float(kernel.noise_ratio))
        self._precision = np.diag(self._inverse).copy()
        self._taken = np.zeros((0, X_rest.shape[0]))

    def scores(self) -> Array:
        """Return the gain of each pool row in nats, below 0 where it lowers the information: (pool,)."""
        return 0.5 * np.log(self._variance * self._precision)[: self._candidates]

    def take(self, row: int) -> None:
        """Move `row` from the rest to the labelled rows."""
        given = self._given[: self._used]
        column = self._kernel.between(self._X, self._X[[row]])[:, 0] - given[:, row] @ given
        column /= np.sqrt(self._variance[row])
        inverse = np.concatenate([self._inverse[row, :row], self._inverse[row:, row]])
        inverse = (inverse - self._taken[:, row] @ self._taken) / np.sqrt(self._precision[row])
        self._given[self._used] = column
        self._used += 1
        self._taken = np.vstack([self._taken, inverse])
        self._variance, self._precision = self._variance - column**2, self._precision - inverse**2
        self._variance[row] = self._precision[row] = 1.0  # no longer in the rest


def inverse_triangle(K: Array, noise_ratio: float) -> Array:
    """Return the lower triangle of (K + noise_ratio I)^-1 (row, row); above it the numbers mean nothing."""
    C = np.array(K, float, order="F")
    C[np.diag_indices_from(C)] += noise_ratio
    factor, failed = lapack.dpotrf(C, lower=1, overwrite_a=1, clean=0)
    if failed:
        raise ValueError("kernel: the matrix of pool and targets is not positive definite")
    return lapack.dpotri(factor, lower=1, overwrite_c=1)[0]


def information(C: Array, rows: list[int]) -> float:
    """Return I(A; rest) in nats by three log-determinants, A = `rows` of the covariance C (row, row)."""
    rest = np.setdiff1d(np.arange(C.shape[0]), rows)
    parts = (C[np.ix_(rows, rows)], C[np.ix_(rest, rest)], C)
    chosen, others, everything = (np.linalg.slogdet(part)[1] for part in parts)
    return float(chosen + others - everything) / 2


def ground_set(problem: Problem, room: int, subsample: int | None) -> tuple[GroundSet, Array, dict[str, Any]]:
    """Return the state, the pool rows that are its candidates, and a report.

    Raises
    ------
    ValueError
        If pool and targets are more than 5000 rows, or `subsample`, and no subsample was asked for.
    """
    kernel = read_kernel(problem, "miml")
    X_pool, (X_labelled, _) = read_features(problem.need("X_pool", "miml"), "X_pool"), read_labelled(problem)
    check_batch(1, X_pool.shape[0])
    room = min(room, X_pool.shape[0])
    X_targets = problem.get("X_targets")
    pool, rest = X_pool.shape[0], X_pool
    if X_targets is not None:
        parts = [X_pool, read_features(X_targets, "X_targets")]
        rest = sp.csr_array(sp.vstack(parts)) if any(map(sp.issparse, parts)) else np.vstack(parts)
    count, kept = rest.shape[0], np.arange(rest.shape[0])
    if subsample is None and count > LARGEST_GROUND:
        raise ValueError(
            f"miml inverts a matrix over pool and targets: {count} rows need {8e-9 * count**2:.1f} GB and "
            f"{float(count) ** 3:.0e} flops; miml_with(subsample={LARGEST_GROUND}) takes so many at random"
        )
    if subsample is not None and count > subsample:
        kept = thinned(pool, count, subsample, problem.seed)
    candidates = kept[kept < pool]
    state = GroundSet(kernel, rest[kept], candidates.size, X_labelled, room)
    report = (
        {} if kept.size == count else {"rows": f"{kept.size} of {count} in the ground set, drawn at random"}
    )
    return state, candidates, report


def thinned(pool: int, count: int, subsample: int, seed: int) -> Array:
    """Return sorted positions of `subsample` of `count` rows, pool rows and targets in their proportion."""
    rng = np.random.default_rng(seed)
    share = min(pool, subsample, max(1, round(subsample * pool / count)))
    of_pool = rng.permutation(pool)[:share]
    others = pool + rng.permutation(count - pool)[: subsample - share]
    return np.sort(np.concatenate([of_pool, others]))


def miml_with(*, subsample: int | None = None) -> Acquisition:
    """Return the entry ``miml``; above `subsample` rows of pool and targets, so many are drawn by the seed.

    Rows that were not drawn cannot be chosen; their score is NaN. `subsample` must be at least 2.
    """
    if subsample is not None and subsample < 2:
        raise ValueError(f"subsample must be at least 2 rows, got {subsample!r}")

    def score(problem: Problem) -> Array:
        state, candidates, _ = ground_set(problem, 0, subsample)
        values = np.full(problem.need("X_pool", "miml").shape[0], np.nan)
        values[candidates] = state.scores()
        return values

    def choose(problem: Problem, batch: int) -> Choice:
        state, candidates, report = ground_set(problem, picks(batch), subsample)
        rows, gains = greedy_rows(state, batch, seed=problem.seed)
        return Choice(candidates[rows], gains, None, {**report, "negative_gains": int((gains < 0).sum())})

    return Acquisition(score=score, choose=choose, **CARD)


CARD: dict[str, Any] = {
    "name": "miml",
    "query": "row",
    "units": "nats",
    "needs": ("X_pool", "kernel"),
    "bias": "none given the kernel; the batch is greedy, picks of negative gain are counted in the report",
    "cost": "N^3 flops and 8 N^2 bytes for N = pool + targets rows (at most 5000 unless subsampled), "
    "N (labelled + picks) a pick",
    "helps": "with the rows to be predicted in the ground set, or on the pool alone with a guarded kernel; a "
    "kernel at the edge of the evidence's grid misleads it",
    "source": "Krause, Singh and Guestrin 2008, algorithm 1, which MIML takes to rows with many labels",
}

ENTRIES = (miml_with(),)
