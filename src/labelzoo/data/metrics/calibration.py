"""Calibration: do labels that are given probability p turn up in a share p of the cells?

Bins of equal width cut [0, 1] into equal parts; bins of equal mass hold about equally many cells, and cells
of one probability stay together. Standard errors take cells as independent, which the labels of one row
need not be: they are too small where labels move together.
"""

from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import beta

from labelzoo.data.metrics.arguments import MAX_BINS, whole_number
from labelzoo.data.metrics.averages import Averaged, Floats, Ints, averaged, ratio
from labelzoo.data.metrics.truth import Table, probability_table

STRATEGIES = ("width", "mass")


def reliability(
    Y_true: Any,
    probs: Any,
    observed: Any = None,
    bins: Any = 10,
    strategy: Any = "width",
    missing: Any = None,
) -> pd.DataFrame:
    """Return the bins of a reliability diagram, those with cells, one row each.

    A probability on an edge belongs to the bin above it for equal width (1 to the last bin), to the bin
    below it for equal mass (0 to the first).

    Returns
    -------
    DataFrame
        ``low, high`` (edges of the bin), ``cells``, ``positives``, ``predicted`` (mean probability),
        ``share`` (positives / cells), ``standard_error`` of the share, sqrt(share (1 - share) / (cells - 1)),
        NaN for one cell, and ``share_low, share_high``, the 95 % Jeffreys interval of the share.
    """
    truth, values = _cells(probability_table(Y_true, probs, observed, missing))
    edges = bin_edges(values, bins, strategy)
    at = bin_numbers(values, edges, strategy)
    count = np.bincount(at, minlength=len(edges) - 1)
    hits, mass = (np.bincount(at, w, minlength=len(edges) - 1) for w in (truth, values))
    kept = count > 0
    n, k = count[kept], hits[kept]
    share = k / n
    table = {
        "low": edges[:-1][kept],
        "high": edges[1:][kept],
        "cells": n,
        "positives": k.astype(np.int64),
        "predicted": mass[kept] / n,
        "share": share,
        "standard_error": np.sqrt(ratio(share * (1 - share), n - 1)),
        "share_low": np.where(k == 0, 0.0, beta.ppf(0.025, k + 0.5, n - k + 0.5)),
        "share_high": np.where(k == n, 1.0, beta.ppf(0.975, k + 0.5, n - k + 0.5)),
    }
    return pd.DataFrame(table)


def _cells(table: Table) -> tuple[Floats, Floats]:
    """Return truth and probability of the observed cells, both float (cells,)."""
    seen = table.truth >= 0
    return table.truth[seen].astype(np.float64), table.scores[seen]


def bin_edges(values: Floats, bins: Any, strategy: Any) -> Floats:
    """Return the edges of the bins; fewer than ``bins + 1`` for equal mass where probabilities repeat."""
    bins = whole_number(bins, "bins", 1, MAX_BINS)
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy must be 'width' or 'mass', got {strategy!r}")
    if strategy == "width" or not values.size:
        return np.arange(bins + 1) / bins
    inner = np.quantile(values, np.arange(1, bins) / bins, method="inverted_cdf")
    return np.unique(np.concatenate([[0.0], inner, [1.0]]))


def bin_numbers(values: Floats, edges: Floats, strategy: Any) -> Ints:
    """Return the bin of each probability: [low, high) for equal width, (low, high] for equal mass."""
    if strategy == "width":
        return np.clip((values * (len(edges) - 1)).astype(np.int64), 0, len(edges) - 2)
    return np.clip(np.searchsorted(edges, values, side="left") - 1, 0, len(edges) - 2)


def expected_calibration_error(
    Y_true: Any,
    probs: Any,
    observed: Any = None,
    bins: Any = 10,
    strategy: Any = "width",
    missing: Any = None,
) -> float:
    """Mean over observed cells of |share of positives - mean probability| in bins; NaN without a cell.

    It is not 0 for a perfect forecast of finitely many cells, and grows with the number of bins.
    """
    truth, values = _cells(probability_table(Y_true, probs, observed, missing))
    return binned_gap(truth, values, bins, strategy)


def binned_gap(outcome: Floats, probs: Floats, bins: Any, strategy: Any = "width") -> float:
    """Weighted mean gap between outcomes and probabilities over bins; NaN where there is no outcome."""
    edges = bin_edges(probs, bins, strategy)
    if not len(probs):
        return float("nan")
    gap = np.bincount(bin_numbers(probs, edges, strategy), outcome - probs)
    return float(np.abs(gap).sum() / len(probs))


def squared_calibration_error(
    Y_true: Any,
    probs: Any,
    observed: Any = None,
    bins: Any = 10,
    strategy: Any = "mass",
    debiased: Any = True,
    missing: Any = None,
) -> float:
    """Mean over observed cells of (share of positives - mean probability)^2 in bins.

    The debiased form takes share (1 - share) / (cells - 1) off each bin (Kumar, Liang and Ma 2019, section 5)
    so that on average it is the error of the binned forecast; it may come out below 0, and bins of one cell
    are left out of it. NaN where no bin is left.
    """
    table = reliability(Y_true, probs, observed, bins, strategy, missing)
    gap = ((table["share"] - table["predicted"]) ** 2).to_numpy()
    cells = table["cells"].to_numpy(np.float64)
    if debiased:
        gap, cells = gap - table["standard_error"].to_numpy() ** 2, np.where(cells > 1, cells, 0.0)
    return float(ratio(np.where(cells > 0, gap * cells, 0.0).sum(), cells.sum()))


def label_calibration_error(
    Y_true: Any,
    probs: Any,
    observed: Any = None,
    bins: Any = 10,
    strategy: Any = "width",
    missing: Any = None,
) -> Averaged:
    """Average over labels of the expected calibration error of one label (the class-wise error).

    Labels without an observed cell are undefined. With few rows a label it is mostly noise: read the bins.
    """
    truth, values = probability_table(Y_true, probs, observed, missing)
    each = np.full(truth.shape[1], np.nan)
    bin_edges(np.zeros(0), bins, strategy)  # a bad argument is an error without labels too
    for label in range(truth.shape[1]):
        seen = truth[:, label] >= 0
        each[label] = binned_gap(truth[seen, label].astype(np.float64), values[seen, label], bins, strategy)
    return averaged(each)


def top_label_calibration_error(
    Y_true: Any, probs: Any, observed: Any = None, bins: Any = 10, missing: Any = None
) -> float:
    """Expected calibration error of the most probable label of each row.

    Where several labels tie for the top, the row's outcome is the share of positives among them. Rows without
    an observed label are left out.
    """
    truth, values = probability_table(Y_true, probs, observed, missing)
    seen = truth >= 0
    keep = seen.any(axis=1)
    top = np.where(seen, values, -np.inf).max(axis=1, initial=-np.inf)[keep]
    tied = seen[keep] & (values[keep] == top[:, None])
    outcome = (tied & (truth[keep] == 1)).sum(axis=1) / np.maximum(tied.sum(axis=1), 1)
    return binned_gap(outcome, top, bins)
