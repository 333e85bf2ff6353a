"""The log score of rows in blocks, so that no table of rows x labels is made."""

from typing import Any

import numpy as np
import xarray as xr

from labelzoo.data import LabelData
from labelzoo.data.metrics import log_score
from labelzoo.estimators.output import shares
from labelzoo.inference.predict import mean_blocks


def row_scores(tree: xr.DataTree, data: LabelData) -> np.ndarray:
    """Return each row's log score, nats summed over its observed labels; NaN where none is: (row,)."""
    each = np.empty(data.num_rows)
    for start, (probs, _) in mean_blocks(tree, data.X):
        rows = np.arange(start, start + len(probs))
        part = data.subset(rows=rows)
        observed = None if part.missing is None else part.observed_mask(max_bytes=2**32)
        each[rows] = log_score(part.Y, probs, observed).each
    return each


def class_scores(tree: xr.DataTree, data: LabelData) -> np.ndarray:
    """Return ln of the share of each row's own class, nats; NaN where it is not known: (row,)."""
    each = np.empty(data.num_rows)
    for start, (probs, _) in mean_blocks(tree, data.X):
        rows = np.arange(start, start + len(probs))
        own = data.Y[rows].toarray().astype(bool)
        each[rows] = np.where(own, shares(probs), 0.0).sum(axis=1)
        each[rows[~own.any(axis=1)]] = np.nan
    return np.log(np.maximum(each, np.finfo(float).tiny))


def weighted_mean(each: np.ndarray, sample_weight: Any) -> float:
    """Return the mean of the rows that are not NaN, weighted by `sample_weight` (row,) where it is given.

    Raises
    ------
    ValueError
        If the weights are not finite numbers of at least 0, one a row.
    """
    weight = np.ones(len(each)) if sample_weight is None else np.asarray(sample_weight, float)
    if weight.shape != each.shape or not np.isfinite(weight).all() or (weight < 0).any():
        raise ValueError(f"sample_weight must be {len(each)} numbers of at least 0, got shape {weight.shape}")
    defined = ~np.isnan(each)
    if not weight[defined].sum() > 0:
        return float("nan")
    return float(np.average(each[defined], weights=weight[defined]))
