"""Where the observed positives of each row stand in its ranking: all that a metric at k needs to know."""

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, issparse

from labelzoo.data.metrics import averages
from labelzoo.data.metrics.averages import Floats, Ints
from labelzoo.data.metrics.observed import among
from labelzoo.data.metrics.topk import TopK, ranked_entries
from labelzoo.data.metrics.truth import Table, Truth, as_truth, dense_table
from labelzoo.data.plain import checked_sparse


class Places(NamedTuple):
    """Positives that may stand among the first k observed labels of their row.

    Attributes
    ----------
    row, label : int64 (m,)
    start, end : int64 (m,)
        The positive ties for the places start + 1 .. end; without ties end = start + 1.
    num_positives, num_observed : int64 (n,)
        Observed positives and observed labels of each row.
    num_short : int
        Rows of a `TopK` with fewer observed predictions than min(k, observed labels).
    num_labels : int
    """

    row: Ints
    label: Ints
    start: Ints
    end: Ints
    num_positives: Ints
    num_observed: Ints
    num_short: int
    num_labels: int


def expected_gain(places: Places, discounts: Floats, weights: Any = None) -> Floats:
    """Sum weight x discount over the positives of each row, on average over the orders of ties: float (n,).

    ``discounts`` (k,) belong to places 1..k; a positive tied for several places gets their mean discount.
    """
    total = np.concatenate([[0.0], np.cumsum(discounts)])
    first, last = (np.minimum(part, len(discounts)) for part in (places.start, places.end))
    gain = (total[last] - total[first]) / (places.end - places.start)
    if weights is not None:
        gain = gain * weights[places.label]
    return np.bincount(places.row, gain, minlength=len(places.num_observed)).astype(np.float64)


def find_places(Y_true: Any, scores: Any, k: int, observed: Any = None, missing: Any = None) -> Places:
    """Return the places of the positives among the first k labels.

    Dense scores cost O(n l); a `TopK` or csr scores cost O(stored scores + positives), without a dense table
    unless ``observed`` is one.

    Raises
    ------
    ValueError
        For shapes that differ, values outside 0, 1 and NaN, scores that are not finite, k above a TopK's.
    """
    if not isinstance(scores, TopK) and not issparse(scores):
        return dense_places(dense_table(Y_true, scores, observed, missing), k)
    truth = as_truth(Y_true, observed, missing)
    if truth.Y.shape != scores.shape:
        raise ValueError(
            f"Y_true and scores must have one shape (rows, labels): {truth.Y.shape}, {scores.shape}"
        )
    if isinstance(scores, TopK):
        return top_places(truth, scores, k)
    return sparse_places(truth, csr_array(checked_sparse(scores, "scores")), k)


def dense_places(table: Table, k: int) -> Places:
    """Find places from dense scores, a block of rows at a time; only the k best scores are sorted."""
    n, num_labels = table.scores.shape
    step = max(1, averages.BLOCK_CELLS // max(num_labels, 1))
    found = [
        _dense_block(table.truth[a : a + step], table.scores[a : a + step], k, a) for a in range(0, n, step)
    ]
    empty = [np.zeros(0, np.int64)] * 4
    row, label, start, end = (np.concatenate(part) for part in zip(empty, *found, strict=True))
    num_positives = (table.truth == 1).sum(axis=1)
    num_observed = (table.truth >= 0).sum(axis=1)
    return Places(row, label, start, end, num_positives, num_observed, 0, num_labels)


def _dense_block(truth: Any, scores: Floats, k: int, first: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Return row, label, start, end of the positives of one block that reach the k-th highest score."""
    row, label = np.nonzero(truth == 1)
    if not row.size:
        return row, label, row, row
    values = np.where(truth >= 0, scores, -np.inf)
    width = min(k, truth.shape[1])
    best = np.sort(np.partition(values, truth.shape[1] - width, axis=1)[:, truth.shape[1] - width :], axis=1)
    size = np.minimum(width, (truth >= 0).sum(axis=1))
    # Rows without any observed label have no positive, so what their cut is does not matter.
    cut = best[np.arange(len(best)), width - np.maximum(size, 1)]
    score = scores[row, label]
    keep = score >= cut[row]
    row, label, score = row[keep], label[keep], score[keep, None]
    start, end = (best[row] > score).sum(axis=1), (best[row] >= score).sum(axis=1)
    at_cut = score[:, 0] == cut[row]
    end[at_cut] = start[at_cut] + (values == cut[:, None]).sum(axis=1)[row[at_cut]]
    return row + first, label, start, end


def top_places(truth: Truth, scores: TopK, k: int) -> Places:
    """Find places in a `TopK`, of which unobserved labels are skipped."""
    if k > scores.k:
        raise ValueError(f"k = {k}, but the TopK holds only {scores.k} labels a row")
    num_labels = scores.num_labels
    rows = np.repeat(np.arange(scores.num_rows), scores.k)
    labels = scores.labels.ravel()
    usable = labels >= 0
    usable[usable] = truth.observed.at(rows[usable], labels[usable])
    place = np.cumsum(usable.reshape(scores.labels.shape), axis=1).ravel() - 1
    keep = usable & (place < k)
    keep[keep] = among(rows[keep] * num_labels + labels[keep], truth.keys)
    num_observed = truth.observed.per_row()
    held = usable.reshape(scores.labels.shape).sum(axis=1)
    short = int(np.count_nonzero(held < np.minimum(k, num_observed)))
    num_positives = np.diff(truth.Y.indptr).astype(np.int64)
    start = place[keep]
    return Places(rows[keep], labels[keep], start, start + 1, num_positives, num_observed, short, num_labels)


def sparse_places(truth: Truth, scores: csr_array, k: int) -> Places:
    """Find places in csr scores; absent labels tie below all stored ones."""
    n, num_labels = scores.shape
    entry = ranked_entries(scores, truth.observed)
    stored = np.bincount(entry.row, minlength=n)
    new = np.ones(len(entry.row) + 1, dtype=bool)
    new[1:-1] = (entry.row[1:] != entry.row[:-1]) | (entry.score[1:] != entry.score[:-1])
    heads = np.flatnonzero(new)
    group = np.cumsum(new[:-1]) - 1
    start = entry.place[heads[group]] if len(group) else entry.place
    end = start + (np.diff(heads)[group] if len(group) else 0)
    keys, wanted = entry.row * num_labels + entry.label, truth.keys
    hit = among(keys, wanted)
    # A positive without a stored score shares the places after the stored ones with all absent labels.
    away = wanted[~among(wanted, np.sort(keys))]
    num_observed = truth.observed.per_row()
    row = np.concatenate([entry.row[hit], away // num_labels])
    label = np.concatenate([entry.label[hit], away % num_labels])
    start = np.concatenate([start[hit], stored[away // num_labels]])
    end = np.concatenate([end[hit], num_observed[away // num_labels]])
    num_positives = np.diff(truth.Y.indptr).astype(np.int64)
    return Places(row, label, start, end, num_positives, num_observed, 0, num_labels)
