"""Held-out metrics with standard errors over validation rows, alone and in pairs."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from labelzoo.data.metrics import log_score, macro_auc, micro_auc, per_example_auc, precision_at_k

Array = Any

GROUPS = 20
"""Groups of rows that are left out in turn for the error of an area under the curve."""


class Score(NamedTuple):
    """A metric on validation rows.

    Attributes
    ----------
    value : float
        Higher is better.
    parts : ndarray
        Each row's share (row,), NaN where undefined; or the metric without each group of rows (group,).
    by_rows : bool
        Which of the two.
    """

    value: float
    parts: Array
    by_rows: bool


ROW_METRICS: dict[str, Callable[[Any, Array, Any], Any]] = {
    "log_score": log_score,
    "per_example_auc": per_example_auc,
    "p@1": lambda truth, probs, observed: precision_at_k(truth, probs, 1, observed),
}
"""Means over rows."""

TABLE_METRICS: dict[str, Callable[[Any, Array, Any], float]] = {
    "micro_auc": micro_auc,
    "macro_auc": lambda truth, probs, observed: macro_auc(truth, probs, observed).value,
}
"""Metrics of all rows together."""

METRICS = (*ROW_METRICS, *TABLE_METRICS)


def score(metric: str, truth: Any, probs: Array, observed: Any = None) -> Score:
    """Return the metric of probabilities (row, labels) on the observed cells of `truth` (csr).

    Raises
    ------
    ValueError
        If it is undefined for all rows.
    """
    if metric in ROW_METRICS:
        found = ROW_METRICS[metric](truth, probs, observed)
        result = Score(float(found.value), np.asarray(found.each), True)
    else:
        whole = float(TABLE_METRICS[metric](truth, probs, observed))
        result = Score(whole, _without_each(TABLE_METRICS[metric], truth, probs, observed), False)
    if not np.isfinite(result.value):
        raise ValueError(f"valid: {metric} is undefined on these {truth.shape[0]} validation rows")
    return result


def _without_each(metric: Callable[..., float], truth: Any, probs: Array, observed: Any) -> Array:
    """Return the metric without every `GROUPS`-th row, from the first, the second, ...: (group,)."""
    rows = np.arange(truth.shape[0])
    groups = min(GROUPS, rows.size)
    if groups < 2:
        return np.full(1, np.nan)
    kept = [rows % groups != group for group in range(groups)]
    return np.array(
        [metric(truth[keep], probs[keep], None if observed is None else observed[keep]) for keep in kept]
    )


def standard_error(parts: Array, by_rows: bool) -> float:
    """Return the standard error over rows, or by the jackknife over groups; NaN for fewer than two."""
    parts = parts[~np.isnan(parts)]
    count = len(parts)
    if count < 2:
        return float("nan")
    if by_rows:
        return float(parts.std(ddof=1) / np.sqrt(count))
    return float(np.sqrt((count - 1) * parts.var()))


def difference(one: Score, other: Score) -> tuple[float, float]:
    """Return one's value less the other's and its standard error on the same rows."""
    return one.value - other.value, standard_error(one.parts - other.parts, one.by_rows)
