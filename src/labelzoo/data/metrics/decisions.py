"""Metrics of decided labels: F, precision, recall, Jaccard, subset accuracy and Hamming loss.

Truth and predictions may be dense, csr or data frames; everything is counted from the positive cells, so two
sparse tables cost O(positives). Unobserved cells are left out, whatever was predicted there.

A ratio 0/0 (a label without a positive and without a prediction, say) is undefined: it is NaN and left out of
the mean, or counts ``zero_division`` where that is given. ``num_undefined`` counts these items either way.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelzoo.data.metrics.arguments import checked_beta, checked_zero_division
from labelzoo.data.metrics.averages import Averaged, Floats, Ints, averaged, filled, ratio
from labelzoo.data.metrics.names import same_names
from labelzoo.data.metrics.truth import Truth, as_truth, entries, positives

AVERAGES = ("macro", "micro", "example")


class Counts(NamedTuple):
    """True and false positives and negatives of each label (macro), row (example) or in all (micro), (m,)."""

    tp: Ints
    fp: Ints
    fn: Ints
    tn: Ints


def confusion(
    Y_true: Any, Y_pred: Any, average: Any = "macro", observed: Any = None, missing: Any = None
) -> Counts:
    """Count observed cells by truth and prediction for each label, each row, or all cells together.

    Parameters
    ----------
    average : "macro" (each label), "example" (each row) or "micro" (one count of all cells)

    Raises
    ------
    ValueError
        For shapes that differ, values other than 0 and 1 (NaN in ``Y_true`` is unobserved), another average.
    """
    truth, predicted = _pair(Y_true, Y_pred, observed, missing)
    return counted(truth, predicted, average)


def _pair(Y_true: Any, Y_pred: Any, observed: Any, missing: Any) -> tuple[Truth, Any]:
    """Return the truth and the observed predicted positives as csr_array."""
    same_names(Y_true=Y_true, Y_pred=Y_pred, observed=observed)
    truth = as_truth(Y_true, observed, missing)
    cells = entries(Y_pred, "Y_pred")
    if cells.shape != truth.Y.shape:
        raise ValueError(
            f"Y_true and Y_pred must have one shape (rows, labels): {truth.Y.shape}, {cells.shape}"
        )
    return truth, positives(cells, truth.observed, "Y_pred")


def counted(truth: Truth, predicted: Any, average: Any) -> Counts:
    """Count from the observed positives of truth and prediction, both csr_array."""
    if average not in AVERAGES:
        raise ValueError(f"average must be one of {', '.join(AVERAGES)}, got {average!r}")
    both = truth.Y.multiply(predicted).tocsr()
    both.eliminate_zeros()
    tp, true, guessed = (_sizes(part, average) for part in (both, truth.Y, predicted))
    seen = truth.observed.per_label() if average == "macro" else truth.observed.per_row()
    seen = seen.sum(keepdims=True) if average == "micro" else seen
    return Counts(tp, guessed - tp, true - tp, seen - true - guessed + tp)


def _sizes(csr: Any, average: Any) -> Ints:
    """Count the stored cells of each label, of each row, or of the whole table."""
    if average == "macro":
        return np.bincount(csr.indices, minlength=csr.shape[1]).astype(np.int64)
    return np.diff(csr.indptr).astype(np.int64) if average == "example" else np.array([csr.nnz])


def f_score(
    Y_true: Any,
    Y_pred: Any,
    average: Any = "macro",
    beta: Any = 1.0,
    zero_division: Any = float("nan"),
    observed: Any = None,
    missing: Any = None,
) -> Averaged:
    """(1 + beta^2) tp / ((1 + beta^2) tp + beta^2 fn + fp), averaged; F1 by default."""
    beta = checked_beta(beta)
    counts = confusion(Y_true, Y_pred, average, observed, missing)
    return averaged_ratio(counts, *f_parts(counts, beta), zero_division)


def f_parts(counts: Counts, beta: Any = 1.0) -> tuple[Floats, Floats]:
    """Return numerator and denominator of the F score."""
    over = np.asarray((1 + beta**2) * counts.tp, dtype=np.float64)
    return over, over + beta**2 * counts.fn + counts.fp


def precision(
    Y_true: Any,
    Y_pred: Any,
    average: Any = "macro",
    zero_division: Any = float("nan"),
    observed: Any = None,
    missing: Any = None,
) -> Averaged:
    """tp / (tp + fp), averaged; undefined without a prediction."""
    counts = confusion(Y_true, Y_pred, average, observed, missing)
    return averaged_ratio(counts, counts.tp, counts.tp + counts.fp, zero_division)


def recall(
    Y_true: Any,
    Y_pred: Any,
    average: Any = "macro",
    zero_division: Any = float("nan"),
    observed: Any = None,
    missing: Any = None,
) -> Averaged:
    """tp / (tp + fn), averaged; undefined without a positive."""
    counts = confusion(Y_true, Y_pred, average, observed, missing)
    return averaged_ratio(counts, counts.tp, counts.tp + counts.fn, zero_division)


def jaccard(
    Y_true: Any,
    Y_pred: Any,
    average: Any = "example",
    zero_division: Any = float("nan"),
    observed: Any = None,
    missing: Any = None,
) -> Averaged:
    """tp / (tp + fp + fn), averaged: the overlap of two label sets over their union."""
    counts = confusion(Y_true, Y_pred, average, observed, missing)
    return averaged_ratio(counts, counts.tp, counts.tp + counts.fp + counts.fn, zero_division)


def averaged_ratio(counts: Counts, over: NDArray[Any], under: NDArray[Any], zero_division: Any) -> Averaged:
    """Average over / under; 0/0 counts ``zero_division`` where something is observed, else it stays NaN."""
    zero_division = checked_zero_division(zero_division)
    some = np.sum(counts, axis=0) > 0
    return filled(ratio(over, under), some & (under == 0), zero_division)


def subset_accuracy(Y_true: Any, Y_pred: Any, observed: Any = None, missing: Any = None) -> Averaged:
    """Share of rows whose observed labels are all right; rows without an observed label are undefined."""
    return subset_from(confusion(Y_true, Y_pred, "example", observed, missing))


def subset_from(counts: Counts) -> Averaged:
    """Subset accuracy from the counts of each row."""
    right = (counts.fp + counts.fn == 0).astype(np.float64)
    return averaged(np.where(np.sum(counts, axis=0) > 0, right, np.nan))


def hamming_loss(Y_true: Any, Y_pred: Any, observed: Any = None, missing: Any = None) -> float:
    """Share of observed cells that are wrong; NaN where nothing is observed."""
    return hamming_from(confusion(Y_true, Y_pred, "micro", observed, missing))


def hamming_from(counts: Counts) -> float:
    """Hamming loss from the counts of all cells."""
    return float(ratio(counts.fp + counts.fn, np.sum(counts, axis=0))[0])
