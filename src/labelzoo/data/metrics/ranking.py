"""Metrics of whole rankings: areas under the ROC curve, average precision, coverage, ranking loss.

They need the score of every cell. A label that ties is counted at the last of the places it ties for, as in
scikit-learn, but for the areas under the ROC curve, where a tied pair counts one half.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelzoo.data.metrics import averages
from labelzoo.data.metrics.averages import Averaged, Floats, averaged, ratio
from labelzoo.data.metrics.truth import dense_table

EMPTY = ("undefined", "scikit-learn")


class Rankings(NamedTuple):
    """Metrics of each line (a row, or a label when transposed) of a table, all (n,), NaN where undefined."""

    auc: Floats
    average_precision: Floats
    coverage: Floats
    loss: Floats
    positives: Floats
    negatives: Floats


def rankings(truth: NDArray[np.int8], scores: Floats) -> Rankings:
    """Rank every line once and return the metrics that follow from it.

    With R_p the observed cells and P_p the positives that score at least as much as positive p:
    average precision = mean P_p / R_p, coverage = max R_p, loss = sum (R_p - P_p) / (p q). The area under the
    ROC curve takes half of the tied pairs off that loss.
    """
    found = np.full((6, len(truth)), np.nan)
    step = max(1, averages.BLOCK_CELLS // max(truth.shape[1], 1))
    for first in range(0, len(truth), step):
        found[:, first : first + step] = _block(truth[first : first + step], scores[first : first + step])
    return Rankings(*found)


def _block(truth: NDArray[np.int8], scores: Floats) -> Floats:
    """Return the six arrays of `Rankings` for one block of lines, stacked (6, n)."""
    n, width = truth.shape
    if width == 0:
        return np.stack([np.full(n, np.nan)] * 4 + [np.zeros(n)] * 2)
    falling = np.where(truth < 0, np.inf, -scores)  # unobserved cells come last and move no rank
    order = np.argsort(falling, axis=1)
    values = np.take_along_axis(falling, order, axis=1)
    positive = np.take_along_axis(truth == 1, order, axis=1)
    last = np.ones(values.shape, dtype=bool)
    last[:, :-1] = values[:, 1:] != values[:, :-1]
    ends = _next_true(last)
    hits = np.cumsum(positive, axis=1)
    p = hits[:, -1].astype(np.float64)
    q = (truth == 0).sum(axis=1, dtype=np.float64)
    reached, above = (ends + 1).astype(np.float64), np.take_along_axis(hits, ends, axis=1)
    precision = np.where(positive, above / reached, 0.0).sum(axis=1)
    wrong = np.where(positive, reached - above, 0.0).sum(axis=1)
    coverage = np.where(positive, reached, 0.0).max(axis=1)
    ties = _tied_pairs(positive, last, ends, reached, above)
    return np.stack([
        1 - ratio(wrong - ties / 2, p * q), ratio(precision, p), np.where(p > 0, coverage, np.nan),
        ratio(wrong, p * q), p, q,
    ])  # fmt: skip


def _next_true(last: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return, for every place, the next place (itself included) where ``last`` is True."""
    places = np.where(last, np.arange(last.shape[1]), last.shape[1] - 1)
    return np.minimum.accumulate(places[:, ::-1], axis=1)[:, ::-1]


def _tied_pairs(positive: Any, last: Any, ends: Any, reached: Floats, above: Any) -> Floats:
    """Count the pairs of a positive and a negative with one score, (n,)."""
    negatives = reached - above
    before = np.zeros_like(negatives)  # negatives above the tie group that a place belongs to
    heads = np.zeros(last.shape, dtype=np.int64)
    heads[:, 1:] = np.where(last[:, :-1], np.arange(1, last.shape[1]), 0)
    heads = np.maximum.accumulate(heads, axis=1)
    inner = heads > 0
    before[inner] = np.take_along_axis(negatives, np.maximum(heads - 1, 0), axis=1)[inner]
    return np.where(positive, negatives - before, 0.0).sum(axis=1)


def per_example_auc(Y_true: Any, scores: Any, observed: Any = None, missing: Any = None) -> Averaged:
    """Average over rows of the area under the ROC curve among the labels of one row.

    Undefined for rows whose observed labels are all positive or all negative. Tied scores count one half.
    """
    return averaged(rankings(*dense_table(Y_true, scores, observed, missing)).auc)


def macro_auc(Y_true: Any, scores: Any, observed: Any = None, missing: Any = None) -> Averaged:
    """Average over labels of the area under the ROC curve among the rows.

    Undefined for labels without both classes among their observed rows. Tied scores count one half.
    """
    truth, values = dense_table(Y_true, scores, observed, missing)
    return averaged(rankings(truth.T, values.T).auc)


def micro_auc(Y_true: Any, scores: Any, observed: Any = None, missing: Any = None) -> float:
    """Area under the ROC curve over all observed cells at once; NaN without both classes."""
    truth, values = dense_table(Y_true, scores, observed, missing)
    return float(_all_cells(truth, values).auc[0])


def _all_cells(truth: NDArray[np.int8], scores: Floats) -> Rankings:
    seen = truth >= 0
    return rankings(truth[seen][None], scores[seen][None])


def macro_average_precision(Y_true: Any, scores: Any, observed: Any = None, missing: Any = None) -> Averaged:
    """Average over labels of the average precision; undefined for labels without an observed positive.

    The precision at each positive's own score, averaged over the positives of the label; tied rows enter
    together, as in scikit-learn's ``average_precision_score``.
    """
    truth, values = dense_table(Y_true, scores, observed, missing)
    return averaged(rankings(truth.T, values.T).average_precision)


def micro_average_precision(Y_true: Any, scores: Any, observed: Any = None, missing: Any = None) -> float:
    """Average precision over all observed cells at once; NaN without an observed positive."""
    truth, values = dense_table(Y_true, scores, observed, missing)
    return float(_all_cells(truth, values).average_precision[0])


def lrap(
    Y_true: Any, scores: Any, observed: Any = None, missing: Any = None, empty: Any = "undefined"
) -> Averaged:
    """Label ranking average precision: the average precision of the labels of one row, averaged over rows.

    Parameters
    ----------
    empty : "undefined" or "scikit-learn"
        How a row with observed labels but without a positive counts: it is left out, or it counts 1 as in
        ``label_ranking_average_precision_score``. It is among ``num_undefined`` either way.
    """
    return row_ranking(rankings(*dense_table(Y_true, scores, observed, missing)), "average_precision", empty)


def coverage_error(
    Y_true: Any, scores: Any, observed: Any = None, missing: Any = None, empty: Any = "undefined"
) -> Averaged:
    """Average over rows of how many labels must be read, from the best, to have met every positive (>= 1).

    ``empty`` as in `lrap`: scikit-learn's ``coverage_error`` counts a row without a positive as 0.
    """
    return row_ranking(rankings(*dense_table(Y_true, scores, observed, missing)), "coverage", empty)


def ranking_loss(
    Y_true: Any, scores: Any, observed: Any = None, missing: Any = None, empty: Any = "undefined"
) -> Averaged:
    """Average over rows of the share of (positive, negative) pairs whose positive does not score higher.

    Tied pairs count in full, as in scikit-learn's ``label_ranking_loss``; so it is 1 - AUC only without ties.
    ``empty`` as in `lrap`, for rows without a positive and rows without a negative; scikit-learn counts 0.
    """
    return row_ranking(rankings(*dense_table(Y_true, scores, observed, missing)), "loss", empty)


def row_ranking(found: Rankings, name: str, empty: Any) -> Averaged:
    """Average one metric of the rows under the given policy for rows that do not define it."""
    if empty not in EMPTY:
        raise ValueError(f"empty must be 'undefined' or 'scikit-learn', got {empty!r}")
    each: Floats = getattr(found, name)
    undefined = np.isnan(each) & (found.positives + found.negatives > 0)
    value = {"average_precision": 1.0, "coverage": 0.0, "loss": 0.0}[name]
    return averages.filled(each, undefined, value if empty == "scikit-learn" else np.nan)
