"""Thresholds tuned on validation data: the plain alternative to deciding by expected utility."""

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from labelzoo.data.metrics import averages
from labelzoo.data.metrics.arguments import checked_thresholds, whole_number
from labelzoo.data.metrics.averages import Floats, Ints, ratio, refuse_cells
from labelzoo.data.metrics.names import same_names
from labelzoo.data.metrics.truth import dense_scores, probability_table

METRICS = ("f1", "jaccard", "accuracy", "balanced_accuracy")


class Thresholds(NamedTuple):
    """A threshold for every label; a label is decided where its probability lies above it.

    Attributes
    ----------
    thresholds : float (l,)
        Half way between two neighbouring probabilities of the validation data; just below the lowest
        one where every row is chosen; inf where none is.
    values : float (l,)
        The metric of each label at its threshold, on the data that chose it: too good, the more so the rarer
        the label. NaN where undefined.
    num_positives : int64 (l,)
        Observed positives each threshold rests on.
    pooled : float
        The threshold tuned on all labels together.
    num_pooled : int
        Labels that have too few positives of their own and got the pooled threshold.
    """

    thresholds: Floats
    values: Floats
    num_positives: Ints
    pooled: float
    num_pooled: int


def tune_thresholds(
    Y_val: Any,
    probs: Any,
    metric: Any = "f1",
    observed: Any = None,
    missing: Any = None,
    min_positives: Any = 5,
) -> Thresholds:
    """Choose for each label the threshold that is best on validation data.

    A threshold tuned on a handful of positives fits their noise: labels with fewer than ``min_positives``
    observed positives get the threshold tuned on the cells of all labels together. Never tune on the rows
    that are then reported. Of equally good thresholds the highest is taken (fewest labels decided).

    Parameters
    ----------
    metric : "f1", "jaccard" (the same thresholds as F1), "accuracy" or "balanced_accuracy"
    min_positives : int
        0 tunes every label that has a positive by itself; labels without one always get the pooled threshold.

    Raises
    ------
    ValueError
        For an unknown metric, a negative ``min_positives``, and as the metrics do.
    """
    if metric not in METRICS:
        raise ValueError(f"metric must be one of {', '.join(METRICS)}, got {metric!r}")
    min_positives = whole_number(min_positives, "min_positives", 0)
    truth, values = probability_table(Y_val, probs, observed, missing)
    seen = truth >= 0
    pooled, _ = best_threshold(truth[seen] == 1, values[seen], metric)
    count = (truth == 1).sum(axis=0)
    alone = count >= max(min_positives, 1)
    thresholds, scores = np.full(len(count), pooled), np.full(len(count), np.nan)
    for label in range(len(count)):
        y, p = truth[seen[:, label], label] == 1, values[seen[:, label], label]
        if alone[label]:
            thresholds[label], scores[label] = best_threshold(y, p, metric)
        elif y.size:
            scores[label] = float(_metric(metric, y[p > pooled].sum(), (p > pooled).sum(), y.sum(), y.size))
    return Thresholds(thresholds, scores, count, pooled, int(np.count_nonzero(~alone)))


def best_threshold(truth: Any, probs: Floats, metric: Any) -> tuple[float, float]:
    """Return the best threshold of one list of cells and its metric; 0.5 and NaN where none is defined."""
    order = np.argsort(-np.asarray(probs, np.float64), kind="stable")
    p, y = probs[order], truth[order]
    cuts = np.flatnonzero(np.append(p[1:] != p[:-1], True)) if len(p) else np.zeros(0, np.int64)
    chosen = np.concatenate([[0], cuts + 1])
    hits = np.concatenate([[0], np.cumsum(y)[cuts]])
    values = _metric(metric, hits, chosen, int(y.sum()), len(y))
    if np.isnan(values).all():
        return 0.5, float("nan")
    at = int(np.nanargmax(values))
    if chosen[at] == 0:
        return float("inf"), float(values[at])
    lowest = p[chosen[at] - 1]
    if chosen[at] == len(p):
        return float(np.nextafter(lowest, -np.inf)), float(values[at])
    below = p[chosen[at]]
    middle = (lowest + below) / 2  # which rounding may take to one of them
    return float(middle if middle < lowest else below), float(values[at])


def _metric(metric: Any, hits: Any, chosen: Any, positives: Any, cells: Any) -> Floats:
    """Return the metric from counts: hits among the chosen, chosen, positives and cells in all."""
    false = chosen - hits
    if metric == "f1":
        return ratio(2 * hits, chosen + positives)
    if metric == "jaccard":
        return ratio(hits, positives + false)
    right = cells - positives - false
    if metric == "accuracy":
        return ratio(hits + right, cells)
    return (ratio(hits, positives) + ratio(right, cells - positives)) / 2


def apply_thresholds(probs: Any, thresholds: Any) -> csr_array:
    """Return int8 csr_array (n, l): 1 where a probability lies above its label's threshold.

    Parameters
    ----------
    probs : float (n, l)
    thresholds : `Thresholds`, float (l,), or one float
    """
    values = dense_scores(probs)
    if values.ndim != 2:
        raise ValueError(f"probs must be two-dimensional (rows, labels), got shape {values.shape}")
    same_names(probs=probs, thresholds=thresholds)
    cut = checked_thresholds(thresholds, values.shape[1], "thresholds")
    refuse_cells("probs must not be NaN", values, np.isnan(values))
    step = max(1, averages.BLOCK_CELLS // max(values.shape[1], 1))
    found = [np.nonzero(values[a : a + step] > cut) for a in range(0, len(values), step)]
    rows = [row + a for (row, _), a in zip(found, range(0, len(values), step), strict=True)]
    none = np.zeros(0, np.int64)
    at = np.concatenate([none, *rows]), np.concatenate([none, *(label for _, label in found)])
    return csr_array((np.ones(len(at[0]), np.int8), at), shape=values.shape)
