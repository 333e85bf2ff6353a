"""Held-out metrics of multi-label scores and probabilities.

Every function takes ``Y_true`` (n, l) of 0 and 1 (csr or dense; NaN means unobserved), ``scores`` or
``probs`` (n, l), and an optional bool mask ``observed`` (n, l). Unobserved cells are skipped everywhere.
The scores are dense already, so a sparse truth is expanded beside them, one byte a cell.

A metric that is undefined for a row or a label (an AUC without both classes, say) is NaN there; means are
taken over the rest, are NaN where nothing is left, and carry the number of undefined items beside them.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from scipy.stats import rankdata

from labelzoo.data.validate import listed

CLIP = 1e-12  # probabilities are moved this far away from 0 and 1 before their logarithm is taken
BLOCK_CELLS = 2_000_000  # cells ranked at one time

Floats = NDArray[np.float64]


class Averaged(NamedTuple):
    """A mean over rows or labels, the items behind it (NaN where undefined), and how many are undefined."""

    value: float
    each: Floats
    num_undefined: int


def averaged(each: Floats) -> Averaged:
    """Average over the items that are not NaN, without a warning where there are none."""
    defined = ~np.isnan(each)
    value = float(each[defined].mean()) if defined.any() else float("nan")
    return Averaged(value, each, int(np.count_nonzero(~defined)))


class _Table(NamedTuple):
    """Truth as int8 (n, l) with -1 for unobserved cells, and scores float64 (n, l)."""

    truth: NDArray[np.int8]
    scores: Floats


def _table(Y_true: Any, scores: Any, observed: Any) -> _Table:
    """Check the shapes and values, and merge NaN in the truth with the mask."""
    values = np.asarray(scores, dtype=np.float64)
    raw = Y_true.toarray() if issparse(Y_true) else np.asarray(Y_true)
    if values.ndim != 2 or raw.shape != values.shape:
        raise ValueError(f"Y_true and scores must have one shape (rows, labels): {raw.shape}, {values.shape}")
    if raw.dtype.kind not in "biuf":
        raise ValueError(f"Y_true must hold 0, 1 or NaN, got dtype {raw.dtype}")
    hidden = np.isnan(raw)
    _refuse("Y_true may hold 0, 1 or NaN only", raw, ~hidden & (raw != 0) & (raw != 1))
    if observed is not None:
        mask = np.asarray(observed)
        if mask.shape != raw.shape or mask.dtype.kind != "b":
            raise ValueError(f"observed must be bool of shape {raw.shape}, got {mask.dtype} of {mask.shape}")
        hidden = hidden | ~mask
    _refuse("scores must be finite", values, ~hidden & ~np.isfinite(values))
    return _Table(np.where(hidden, -1, raw == 1).astype(np.int8), values)


def _refuse(message: str, values: NDArray[Any], bad: NDArray[np.bool_]) -> None:
    """Raise ValueError naming the first cells where ``bad``."""
    if bad.any():
        rows, columns = np.nonzero(bad)
        cells = zip(rows[:5].tolist(), columns[:5].tolist(), strict=True)
        texts = [f"row {i}, label {j}: {values[i, j].item()!r}" for i, j in cells]
        raise ValueError(f"{message}: {listed(texts, len(rows))}")


def _probability_table(Y_true: Any, probs: Any, observed: Any) -> _Table:
    """Like `_table`, and refuse probabilities outside [0, 1] beyond float32 rounding."""
    table = _table(Y_true, probs, observed)
    outside = (table.truth >= 0) & ((table.scores < -1e-6) | (table.scores > 1 + 1e-6))
    _refuse("probabilities must lie in [0, 1]", table.scores, outside)
    return table


def per_example_auc(Y_true: Any, scores: Any, observed: Any = None) -> Averaged:
    """Average over rows of the area under the ROC curve among the labels of one row.

    Undefined for rows whose observed labels are all positive or all negative. Tied scores count one half.
    """
    return averaged(_row_auc(*_table(Y_true, scores, observed)))


def macro_auc(Y_true: Any, scores: Any, observed: Any = None) -> Averaged:
    """Average over labels of the area under the ROC curve among the rows.

    Undefined for labels without both classes among their observed rows. Tied scores count one half.
    """
    truth, values = _table(Y_true, scores, observed)
    return averaged(_row_auc(truth.T, values.T))


def _row_auc(truth: NDArray[np.int8], scores: Floats) -> Floats:
    """Area under the ROC curve of each row, (n,), NaN without both classes.

    The Mann-Whitney form: (R - p (p + 1) / 2) / (p q) with R the sum of the midranks of the p positives
    among the p + q observed cells. Unobserved cells get scores above all others, so that they move no rank.
    """
    result = np.full(len(truth), np.nan)
    step = max(1, BLOCK_CELLS // max(truth.shape[1], 1))
    for first in range(0, len(truth), step):
        part = truth[first : first + step]
        ranks = rankdata(np.where(part < 0, np.inf, scores[first : first + step]), axis=1)
        p, q = (part == 1).sum(axis=1, dtype=np.float64), (part == 0).sum(axis=1, dtype=np.float64)
        above = np.where(part == 1, ranks, 0.0).sum(axis=1) - p * (p + 1) / 2
        both = (p > 0) & (q > 0)
        result[first : first + step][both] = above[both] / (p * q)[both]
    return result


def micro_auc(Y_true: Any, scores: Any, observed: Any = None) -> float:
    """Area under the ROC curve over all observed cells at once; NaN without both classes."""
    truth, values = _table(Y_true, scores, observed)
    seen = truth >= 0
    if not (truth == 1).any() or not (truth == 0).any():
        return float("nan")
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(truth[seen], values[seen]))


def macro_average_precision(Y_true: Any, scores: Any, observed: Any = None) -> Averaged:
    """Average over labels of the average precision; undefined for labels without an observed positive.

    The precision at each positive's own score, averaged over the positives of the label; tied rows enter
    together, as in scikit-learn's ``average_precision_score``.
    """
    truth, values = _table(Y_true, scores, observed)
    each = np.full(truth.shape[1], np.nan)
    step = max(1, BLOCK_CELLS // max(truth.shape[0], 1))
    for first in range(0, len(each), step):
        part, s = truth[:, first : first + step].T, values[:, first : first + step].T
        reached = rankdata(np.where(part < 0, np.inf, -s), method="max", axis=1)
        positives = rankdata(np.where(part == 1, -s, np.inf), method="max", axis=1)
        count = (part == 1).sum(axis=1)
        total = np.where(part == 1, positives / np.maximum(reached, 1), 0.0).sum(axis=1)
        each[first : first + step] = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return averaged(each)


def precision_at_k(Y_true: Any, scores: Any, k: int = 5, observed: Any = None) -> Averaged:
    """Average over rows of the share of positives among the k labels with the highest scores.

    Ties at the k-th score are resolved by their expectation under a random order. Where fewer than k labels
    of a row are observed, all of them are taken. Rows without a positive count 0; only rows without any
    observed label are undefined.
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    truth, values = _table(Y_true, scores, observed)
    seen = truth >= 0
    size = np.minimum(k, seen.sum(axis=1))
    ordered = -np.sort(-np.where(seen, values, -np.inf), axis=1)
    cut = np.take_along_axis(ordered, np.maximum(size - 1, 0)[:, None], axis=1)
    over, tied = seen & (values > cut), seen & (values == cut)
    places = size - over.sum(axis=1)
    num_tied = np.maximum(tied.sum(axis=1), 1)
    hits = (over & (truth == 1)).sum(axis=1) + places * (tied & (truth == 1)).sum(axis=1) / num_tied
    return averaged(np.where(size > 0, hits / np.maximum(size, 1), np.nan))


def log_score(Y_true: Any, probs: Any, observed: Any = None, clip: float = CLIP) -> Averaged:
    """Average over rows of the log probability of the row's observed labels, in nats a row; higher is better.

    The sum over labels of y log p + (1 - y) log(1 - p), with p moved into [clip, 1 - clip] first, so that one
    confident mistake costs at most -log(clip) nats (27.6 by default). It treats labels as independent given
    p, so it is the sum of the marginal scores, not the joint one. Rows without an observed label are
    undefined.
    """
    if not 0 < clip < 0.5:
        raise ValueError(f"clip must lie between 0 and 0.5, got {clip}")
    truth, values = _probability_table(Y_true, probs, observed)
    p = np.clip(np.where(truth < 0, 0.5, values), clip, 1 - clip)
    terms = np.where(truth < 0, 0.0, np.where(truth == 1, np.log(p), np.log1p(-p)))
    return averaged(np.where((truth >= 0).any(axis=1), terms.sum(axis=1), np.nan))


def expected_calibration_error(Y_true: Any, probs: Any, observed: Any = None, bins: int = 10) -> float:
    """Mean over observed cells of |share of positives - mean probability| in bins of equal width."""
    truth, values = _probability_table(Y_true, probs, observed)
    seen = truth >= 0
    return _binned_gap(truth[seen].astype(np.float64), values[seen], bins)


def top_label_calibration_error(Y_true: Any, probs: Any, observed: Any = None, bins: int = 10) -> float:
    """Expected calibration error of the most probable label of each row.

    Where several labels tie for the top, the row's outcome is the share of positives among them. Rows without
    an observed label are left out.
    """
    truth, values = _probability_table(Y_true, probs, observed)
    seen = truth >= 0
    keep = seen.any(axis=1)
    top = np.where(seen, values, -np.inf).max(axis=1, initial=-np.inf)[keep]
    tied = seen[keep] & (values[keep] == top[:, None])
    outcome = (tied & (truth[keep] == 1)).sum(axis=1) / np.maximum(tied.sum(axis=1), 1)
    return _binned_gap(outcome, top, bins)


def _binned_gap(outcome: Floats, probs: Floats, bins: int) -> float:
    """Weighted mean gap between outcomes and probabilities over bins; NaN where there is no outcome."""
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    if not len(probs):
        return float("nan")
    at = np.clip((probs * bins).astype(np.int64), 0, bins - 1)
    gap = np.bincount(at, outcome, minlength=bins) - np.bincount(at, probs, minlength=bins)
    return float(np.abs(gap).sum() / len(probs))


def evaluate(
    Y_true: Any, probs: Any, observed: Any = None, ks: tuple[int, ...] = (1, 3, 5)
) -> dict[str, Any]:
    """Return the metrics of probabilities as one flat dict of numbers.

    Returns
    -------
    dict
        ``rows, labels, observed_cells``; ``per_example_auc, macro_auc, macro_average_precision, log_score``
        and ``precision_at_K``, each with the number of rows or labels left out under ``..._undefined``;
        ``micro_auc, calibration_error, top_label_calibration_error``. NaN where nothing is defined.
    """
    truth, values = _probability_table(Y_true, probs, observed)
    seen = truth >= 0
    Y = (truth == 1).astype(np.int8)
    means = {
        "per_example_auc": per_example_auc(Y, values, seen),
        "macro_auc": macro_auc(Y, values, seen),
        "macro_average_precision": macro_average_precision(Y, values, seen),
        "log_score": log_score(Y, values, seen),
    }
    means |= {f"precision_at_{k}": precision_at_k(Y, values, k, seen) for k in ks}
    result: dict[str, Any] = {
        "rows": truth.shape[0],
        "labels": truth.shape[1],
        "observed_cells": int(np.count_nonzero(seen)),
    }
    for name, mean in means.items():
        result |= {name: mean.value, f"{name}_undefined": mean.num_undefined}
    return result | {
        "micro_auc": micro_auc(Y, values, seen),
        "calibration_error": expected_calibration_error(Y, values, seen),
        "top_label_calibration_error": top_label_calibration_error(Y, values, seen),
    }
