"""The k labels with the highest scores of each row, for label sets too large for a score of every cell."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from labelzoo.data.metrics import averages
from labelzoo.data.metrics.arguments import checked_k
from labelzoo.data.metrics.averages import Floats, Ints, refuse_cells
from labelzoo.data.metrics.names import same_names
from labelzoo.data.metrics.observed import Observed, checked_mask, checked_missing, dense_mask
from labelzoo.data.metrics.truth import as_matrix
from labelzoo.data.validate import frozen_array, listed, plain_array


@dataclass(frozen=True, eq=False)
class TopK:
    """The best k labels of n rows, best first. The order is taken as given: ties are already resolved.

    Attributes
    ----------
    labels : int64 (n, k)
        Distinct label numbers of a row, in order of decreasing score; -1 at the end of a row for no label.
    scores : float64 (n, k)
        Their scores, which do not increase along a row; -inf beside -1.
    num_labels : int
        Number of labels there are, l.

    Raises
    ------
    ValueError
        For shapes that differ, labels outside 0..l - 1, a label twice in a row, -1 before another label,
        scores that increase along a row or are NaN; the first rows at fault are named.
    """

    labels: Any
    scores: Any
    num_labels: Any

    def __post_init__(self) -> None:
        """Check and freeze the arrays."""
        labels = np.array(plain_array(self.labels, "TopK labels"))
        scores = plain_array(self.scores, "TopK scores")
        if scores.dtype.kind not in "biuf":
            raise ValueError(f"TopK scores must be numbers, got dtype {scores.dtype}")
        scores = np.array(scores, dtype=np.float64)
        if labels.ndim != 2 or labels.shape != scores.shape:
            raise ValueError(
                f"TopK labels and scores must have one shape (rows, k): {labels.shape}, {scores.shape}"
            )
        if labels.dtype.kind not in "iu":
            raise ValueError(f"TopK labels must be integers, got dtype {labels.dtype}")
        number = isinstance(self.num_labels, (int, np.integer)) and not isinstance(self.num_labels, bool)
        if not number or self.num_labels < 1:
            raise ValueError(f"TopK num_labels must be an integer of at least 1, got {self.num_labels!r}")
        if labels.dtype.kind == "u" and labels.size and int(labels.max()) >= self.num_labels:
            raise ValueError(f"TopK has labels outside 0..{self.num_labels - 1}: {int(labels.max())}")
        labels = labels.astype(np.int64)
        if labels.shape[1] < 1 or labels.shape[1] > self.num_labels:
            raise ValueError(f"TopK has k = {labels.shape[1]}, must lie in 1..{self.num_labels} (num_labels)")
        scores[labels == -1] = -np.inf
        _check_rows(labels, scores, int(self.num_labels))
        object.__setattr__(self, "labels", frozen_array(labels))
        object.__setattr__(self, "scores", frozen_array(scores))
        object.__setattr__(self, "num_labels", int(self.num_labels))

    @property
    def k(self) -> int:
        """Number of places of a row."""
        return int(self.labels.shape[1])

    @property
    def num_rows(self) -> int:
        """Number of rows, n."""
        return int(self.labels.shape[0])

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (n, l) of the table of scores it was taken from."""
        return self.num_rows, self.num_labels

    def to_csr(self) -> csr_array:
        """Return the scores as csr_array (n, l); an absent label stands below all others."""
        rows, places = np.nonzero(self.labels >= 0)
        cells = rows, self.labels[rows, places]
        result = csr_array((self.scores[rows, places], cells), shape=self.shape)
        result.sort_indices()
        return result


def _check_rows(labels: Ints, scores: Floats, num_labels: int) -> None:
    """Raise ValueError naming the rows whose labels or scores are not those of a ranking."""
    in_order = np.sort(labels, axis=1)
    same = (in_order[:, 1:] == in_order[:, :-1]) & (in_order[:, 1:] >= 0)
    gap = (labels[:, 1:] >= 0) & (labels[:, :-1] == -1)
    # Two places without a label are both at -inf: a comparison, unlike a difference, is False there.
    faults = (
        ((labels < -1) | (labels >= num_labels), f"labels outside 0..{num_labels - 1}"),
        (same, "a label twice"),
        (gap, "-1 (no label) before another label"),
        (np.isnan(scores), "scores that are NaN"),
        (scores[:, 1:] > scores[:, :-1], "scores that increase along the row"),
    )
    for bad, what in faults:
        rows = np.flatnonzero(bad.any(axis=1))
        if rows.size:
            texts = [f"row {i}: {labels[i].tolist()[:8]}" for i in rows[:5].tolist()]
            raise ValueError(f"TopK has {what}: {listed(texts, rows.size)}")


def top_k(scores: Any, k: Any, observed: Any = None, missing: Any = None) -> TopK:
    """Return the k observed labels with the highest scores of each row.

    Labels that tie are taken, and listed, in the order of their numbers (lowest first). Dense scores are read
    in blocks of rows, O(n l + n k log k) steps and no second table; csr scores are sorted row by row, where
    an absent label stands below all others and is never taken. Rows with fewer than k labels end in -1.

    Parameters
    ----------
    scores : float (n, l), dense or sparse
    k : int
        Between 1 and l.
    observed : bool (n, l), optional
    missing : labelzoo.data.Missing, optional
        Cells that are left out; their scores are not looked at.

    Raises
    ------
    ValueError
        For k outside 1..l, or scores of observed cells that are not finite.
    """
    same_names(scores=scores, observed=observed)
    table = as_matrix(scores, "scores")
    table = csr_array(table) if issparse(table) else table
    if table.ndim != 2:
        raise ValueError(f"scores must be two-dimensional (rows, labels), got shape {table.shape}")
    if checked_k(k) > table.shape[1]:
        raise ValueError(f"k must be at most the number of labels, {table.shape[1]}, got {k}")
    mask = None if observed is None else checked_mask(observed, table.shape)
    missing = None if missing is None else checked_missing(missing, table.shape)
    if issparse(table):
        if mask is not None and missing is not None:
            mask, missing = mask & dense_mask(missing, table.shape), None
        return _sparse_top_k(table, k, Observed(table.shape, mask, missing))
    return _dense_top_k(table, k, mask, missing)


def _dense_top_k(table: Any, k: int, mask: Any, missing: Any) -> TopK:
    n, num_labels = table.shape
    labels, best = np.full((n, k), -1, dtype=np.int64), np.full((n, k), -np.inf)
    known = Observed((n, num_labels), missing=missing)
    step = max(1, averages.BLOCK_CELLS // num_labels)
    for first in range(0, n, step):
        last = min(first + step, n)
        rows = slice(first, last)
        values = np.asarray(table[rows], dtype=np.float64)
        seen = known.rows(first, last) if mask is None else mask[rows] & known.rows(first, last)
        refuse_cells(f"scores must be finite (rows count from {first})", values, seen & ~np.isfinite(values))
        labels[rows], best[rows] = _best(np.where(seen, values, -np.inf), k)
    return TopK(labels, best, num_labels)


def _best(values: Floats, k: int) -> tuple[Ints, Floats]:
    """Return labels and scores of the k highest cells above -inf of each row, ties by the lowest label."""
    cut = np.partition(values, values.shape[1] - k, axis=1)[:, values.shape[1] - k, None]
    over, tied = values > cut, values == cut
    places = k - over.sum(axis=1, keepdims=True)
    chosen = over | (tied & (np.cumsum(tied, axis=1) <= places))
    labels = np.nonzero(chosen)[1].reshape(len(values), k)
    best = np.take_along_axis(values, labels, axis=1)
    order = np.argsort(-best, axis=1, kind="stable")
    labels, best = np.take_along_axis(labels, order, axis=1), np.take_along_axis(best, order, axis=1)
    return np.where(best == -np.inf, -1, labels), best


def _sparse_top_k(table: csr_array, k: int, observed: Observed) -> TopK:
    entry = ranked_entries(table, observed)
    keep = entry.place < k
    labels, best = np.full((table.shape[0], k), -1, dtype=np.int64), np.full((table.shape[0], k), -np.inf)
    labels[entry.row[keep], entry.place[keep]] = entry.label[keep]
    best[entry.row[keep], entry.place[keep]] = entry.score[keep]
    return TopK(labels, best, table.shape[1])


@dataclass(frozen=True, eq=False)
class RankedEntries:
    """Observed stored scores of a csr_array, row by row from the highest, all arrays (m,)."""

    row: Ints
    label: Ints
    score: Floats
    place: Ints


def ranked_entries(table: csr_array, observed: Observed) -> RankedEntries:
    """Order the observed stored scores of each row; ties by the lowest label; scores must be finite."""
    csr = csr_array(table, dtype=np.float64, copy=True)
    csr.sum_duplicates()
    row = np.repeat(np.arange(csr.shape[0]), np.diff(csr.indptr))
    label = csr.indices.astype(np.int64)
    seen = observed.at(row, label)
    row, label, score = row[seen], label[seen], csr.data[seen]
    bad = ~np.isfinite(score)
    if bad.any():
        texts = [
            f"row {i}, label {j}: {s}" for i, j, s in zip(row[bad], label[bad], score[bad], strict=True)
        ][:5]
        raise ValueError(f"scores must be finite: {listed(texts, int(bad.sum()))}")
    order = np.lexsort((label, -score, row))
    row, label, score = row[order], label[order], score[order]
    begins = np.searchsorted(row, np.arange(csr.shape[0]))
    return RankedEntries(row, label, score, np.arange(len(row)) - begins[row])
