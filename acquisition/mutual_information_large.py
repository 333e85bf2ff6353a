"""Greedy mutual information in large pools: a low rank plus an exact diagonal stands for the covariance.

K = U U' + (rest), U (row, landmark) by a partial Cholesky factorisation whose pivots are drawn in proportion
to the variance not yet explained (Chen, Epperly, Tropp and Webber 2023); what is left on the diagonal is kept
as independent variance d, so that C = U U' + diag(d) has the exact diagonal (FITC, Snelson and Ghahramani
2006). With S_A = I + sum_A u u' / d and S_R the same over the rest, h = u' S_A^-1 u and s = u' S_R^-1 u,

    var(x | A) = d + h,   var(x | R less x) = d^2 / (d - s),   gain = 1/2 log((d + h) (d - s) / d^2).
"""

from typing import Any

import numpy as np
import scipy.linalg

from labelzoo.acquisition.mutual_information_greedy import (
    Conditional,
    InformationState,
    inverse_triangle,
    seed_factor,
)

Array = Any

LANDMARKS = 500
"""Rank unless asked for otherwise: 400 MB for 1e5 rows."""
MOST_BYTES = 2**30
"""Of the low-rank factor; the choice holds little beside it."""
PIVOTS = 50
"""Rows that join the factor together."""
ROWS = 4096
"""Rows of the factor that are multiplied together."""
NEGLIGIBLE = 1e-13
"""Directions of a block of pivots below this part of the largest variance are left out as rounding."""
CHECKED = 500
"""Rows of the subset on which first gains are compared with exact ones."""


class LowRankState:
    """Gains of the rows of U U' + diag(d) that are not in A, pick by pick: rows x landmarks flops a pick.

    Parameters
    ----------
    U : (rest, landmark)
    own : (rest,)
        d, above 0: variance outside the low rank, noise included.
    U_labelled, own_labelled : (labelled, landmark), (labelled,)
        The same of the rows in A from the start.
    """

    def __init__(self, U: Array, own: Array, U_labelled: Array, own_labelled: Array) -> None:
        self.U, self.own = U, own
        self.labelled = (U_labelled, own_labelled)
        self._inverse_A = _inverse(_gram(U_labelled, own_labelled))
        self._inverse_R = _inverse(_gram(U, own))
        self._h, self._s = _forms(U, self._inverse_A), _forms(U, self._inverse_R)

    def scores(self) -> Array:
        """Return the gain of each row in nats: (rest,)."""
        d = self.own
        left = np.maximum(1.0 - self._s / d, 1e-15)
        return 0.5 * (np.log1p(np.maximum(self._h, 0.0) / d) + np.log(left))

    def take(self, row: int) -> None:
        """Move `row` from the rest to A: one rank more in S_A, one less in S_R."""
        u, d = self.U[row].copy(), self.own[row]
        into, out = self._inverse_A @ u, self._inverse_R @ u
        both = self.U @ np.column_stack([into, out])
        joined, left = d + u @ into, max(d - u @ out, 1e-15 * d)
        self._h = self._h - both[:, 0] ** 2 / joined
        self._s = self._s + both[:, 1] ** 2 / left
        self._inverse_A = self._inverse_A - np.outer(into, into / joined)
        self._inverse_R = self._inverse_R + np.outer(out, out / left)


def low_rank(kernel: Any, X: Array, landmarks: int, seed: int) -> tuple[Array, Array]:
    """Return U (row, landmark) and the diagonal of K - U U', at least 0: (row,).

    Parameters
    ----------
    kernel : object
        With ``between`` and ``diagonal``.
    X : (row, feature)
    landmarks : int
        Largest rank; fewer where nothing is left to explain.
    seed : int
        Draws the pivots.

    Notes
    -----
    Cost: rows landmarks^2 flops, rows landmarks kernel entries, 8 rows landmarks bytes. With as many
    landmarks as rows U U' is K.
    """
    rng, rows = np.random.default_rng(seed), X.shape[0]
    mapped = getattr(kernel, "mapped", lambda rows: rows)(X)
    between = getattr(kernel, "of_mapped", kernel.between)
    left = np.asarray(kernel.diagonal(X), float).copy()
    largest = float(left.max(initial=0.0))
    U, used = np.zeros((rows, landmarks)), 0
    while used < landmarks and (left > NEGLIGIBLE * largest).any():
        pivots = _drawn(left, min(PIVOTS, landmarks - used), NEGLIGIBLE * largest, rng)
        columns = np.asarray(between(mapped, mapped[pivots]), float)
        columns = columns - U[:, :used] @ U[pivots, :used].T
        block = (columns[pivots] + columns[pivots].T) / 2
        values, vectors = np.linalg.eigh(block)
        if values[0] < -1e-8 * largest:
            raise ValueError(
                "kernel: the matrix of pool and targets is not positive definite: a part of it has the "
                f"eigenvalue {values[0]:.3g}"
            )
        kept = values > NEGLIGIBLE * largest
        U[:, used : used + kept.sum()] = columns @ (vectors[:, kept] / np.sqrt(values[kept]))
        left -= (U[:, used : used + kept.sum()] ** 2).sum(axis=1)
        left[pivots] = 0.0
        used += int(kept.sum())
    return U[:, :used], np.maximum(left, 0.0)


def low_rank_state(
    kernel: Any, X: Array, X_labelled: Array | None, landmarks: int, seed: int
) -> tuple[LowRankState, dict[str, Any]]:
    """Return the state of pool and targets `X`, and a report of its form and of the variance it leaves out.

    Raises
    ------
    ValueError
        If the factor would take more than 1 GiB.
    """
    labelled = 0 if X_labelled is None else X_labelled.shape[0]
    size = 8 * landmarks * (X.shape[0] + labelled)
    if size > MOST_BYTES:
        raise ValueError(
            f"miml: {X.shape[0]} rows of pool and targets with {landmarks} landmarks take "
            f"{size / 2**30:.1f} GiB; miml_with(landmarks={max(1, landmarks * MOST_BYTES // size)}) takes as "
            "many as fit in 1 GiB"
        )
    both = X if X_labelled is None or not labelled else _stacked(X_labelled, X)
    labelled = both.shape[0] - X.shape[0]
    U, left = low_rank(kernel, both, landmarks, seed)
    total = np.maximum(np.asarray(kernel.diagonal(both), float), 1e-300)
    own = left + float(kernel.noise_ratio)
    share = (left / total)[labelled:]
    report = {
        "form": f"{U.shape[1]} landmarks and an exact diagonal",
        "outside_mean": float(share.mean()),
        "outside_max": float(share.max()),
    }
    return LowRankState(U[labelled:], own[labelled:], U[:labelled], own[:labelled]), report


def first_gain_error(ground: Any, state: LowRankState, seed: int) -> dict[str, Any]:
    """Compare first gains on a random subset of rows alone, by the exact kernel and by the low rank.

    Parameters
    ----------
    ground : object
        With ``kernel``, ``X`` and ``X_labelled``.

    Returns
    -------
    dict
        ``first_gain_error``, the largest difference in nats, and ``first_gain_spread``, the standard
        deviation of the exact gains, to hold it against; ``first_gain_rows``, the size of the subset.

    Notes
    -----
    In the whole pool a row has more neighbours than in the subset, and what they say about it outside the low
    rank is lost as well: the difference there can be larger.
    """
    rows = ground.X.shape[0]
    kept = np.sort(np.random.default_rng(seed).permutation(rows)[:CHECKED])
    parts = [ground.X[kept]] if ground.X_labelled is None else [ground.X[kept], ground.X_labelled]
    X = parts[0] if len(parts) == 1 else _stacked(*parts)
    C = np.asarray(ground.kernel.between(X, X), float)
    C = C + np.diag(np.asarray(ground.kernel.diagonal(X), float) - C.diagonal() + ground.kernel.noise_ratio)
    seeds, rest = np.arange(len(kept), X.shape[0]), np.arange(len(kept))
    diagonal, start = C.diagonal()[rest], seed_factor(C, seeds, rest)
    inverse, _ = inverse_triangle(C[: len(kept), : len(kept)].copy(), "kernel: a part of its matrix")
    exact = InformationState(Conditional(lambda row: C[row, rest], diagonal, start, 0), diagonal, inverse, 0)
    low = LowRankState(state.U[kept], state.own[kept], *state.labelled)
    gains = exact.scores()
    return {
        "first_gain_rows": len(kept),
        "first_gain_error": float(np.abs(gains - low.scores()).max()),
        "first_gain_spread": float(gains.std()),
    }


def _drawn(left: Array, count: int, least: float, rng: np.random.Generator) -> Array:
    """Draw up to `count` rows without replacement in proportion to `left`, by Gumbel noise."""
    with np.errstate(divide="ignore"):
        keys = np.where(left > least, np.log(np.maximum(left, 1e-300)), -np.inf)
    keys = keys + rng.gumbel(size=len(left))
    chosen = np.argsort(-keys)[:count]
    return chosen[np.isfinite(keys[chosen])]


def _gram(U: Array, own: Array) -> Array:
    """Return I + U' diag(1 / own) U, by blocks of rows: (landmark, landmark)."""
    out = np.eye(U.shape[1])
    for begin in range(0, len(U), ROWS):
        block = U[begin : begin + ROWS]
        out += block.T @ (block / own[begin : begin + ROWS, None])
    return out


def _inverse(S: Array) -> Array:
    factor = scipy.linalg.cholesky(S, lower=True, check_finite=False)
    half = scipy.linalg.solve_triangular(factor, np.eye(len(S)), lower=True, check_finite=False)
    return half.T @ half


def _forms(U: Array, inverse: Array) -> Array:
    """Return u' inverse u of every row, by blocks: (row,)."""
    blocks = (U[begin : begin + ROWS] for begin in range(0, len(U), ROWS))
    parts = [((block @ inverse) * block).sum(axis=1) for block in blocks]
    return np.concatenate(parts) if parts else np.zeros(0)


def _stacked(A: Array, B: Array) -> Array:
    import scipy.sparse as sp

    return sp.csr_array(sp.vstack([A, B])) if sp.issparse(A) or sp.issparse(B) else np.vstack([A, B])
