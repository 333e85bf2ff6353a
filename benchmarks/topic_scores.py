"""Scores of a table of probabilities with standard errors over test rows, and tables of them in Markdown.

Every score but the calibration error comes with what each test row adds to it (its influence, summing to
zero), so that the standard error of a score, or of a difference of two methods on the same rows, is the root
of the sum of squares (the infinitesimal jackknife; for a mean over rows, the usual standard error).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from labelzoo.data import LabelData, metrics

Array = Any

COLUMNS = ("macro_auc", "micro_auc", "per_example_auc", "p_at_1", "p_at_3", "log_score", "recalibrated")
"""Scores where more is better, in the order of the table; log scores are nats a row."""

TITLES = {
    "macro_auc": "macro AUC",
    "micro_auc": "micro AUC",
    "per_example_auc": "per-example AUC",
    "p_at_1": "P@1",
    "p_at_3": "P@3",
    "log_score": "log score",
    "recalibrated": "recalibrated",
    "ece": "ece, %",
}
BINS = 15
RESAMPLES = 200


class Score(NamedTuple):
    """A score, and what each test row adds to it: float array (row,), NaN-free, summing to zero."""

    value: float
    influence: Array

    @property
    def error(self) -> float:
        """Standard error over test rows."""
        return float(np.sqrt((self.influence**2).sum()))


def mean_score(each: Array) -> Score:
    """Return the mean over the rows where `each` (row,) is defined."""
    known = ~np.isnan(each)
    mean = each[known].mean()
    return Score(float(mean), np.where(known, each - mean, 0.0) / max(known.sum(), 1))


def placements(positive: Array, scores: Array) -> Array:
    """Return, for each cell, the share of cells of the other class on its right side, ties one half.

    For a positive: the share of negatives below it; for a negative: the share of positives above it. The
    mean over either class is the AUC.
    """
    ordered_n, ordered_p = np.sort(scores[~positive]), np.sort(scores[positive])
    out = np.empty(len(scores))
    up, down = scores[positive], scores[~positive]
    below = np.searchsorted(ordered_n, up, "left") + np.searchsorted(ordered_n, up, "right")
    under = np.searchsorted(ordered_p, down, "left") + np.searchsorted(ordered_p, down, "right")
    out[positive] = below / (2 * len(ordered_n))
    out[~positive] = 1 - under / (2 * len(ordered_p))
    return out


def auc_score(truth: Array, scores: Array, rows: Array, num_rows: int) -> Score:
    """Return the AUC of some cells and the influence of the rows they belong to.

    Parameters
    ----------
    truth : bool array (cell,)
    scores : float array (cell,)
    rows : int array (cell,)
    num_rows : int
    """
    share = placements(truth, scores)
    auc = share[truth].mean()
    per_cell = (share - auc) / np.where(truth, truth.sum(), (~truth).sum())
    return Score(float(auc), np.bincount(rows, per_cell, minlength=num_rows))


def macro_auc_score(Y: Array, scores: Array) -> Score:
    """Return the mean AUC of the labels that have both classes, with the influence of each row."""
    rows, found = np.arange(len(Y)), []
    for label in range(Y.shape[1]):
        if 0 < Y[:, label].sum() < len(Y):
            found.append(auc_score(Y[:, label], scores[:, label], rows, len(Y)))
    value = np.mean([one.value for one in found])
    return Score(float(value), np.mean([one.influence for one in found], axis=0))


def calibration_error(Y: Array, probs: Array, seed: int = 0) -> Score:
    """Return the expected calibration error of the cells in `BINS` equal bins, with bootstrap error.

    The influence here is one number, the standard error over `RESAMPLES` resamples of the rows: a calibration
    error has no linear influence.
    """
    bins = np.minimum((probs * BINS).astype(int), BINS - 1)
    n = len(Y)
    code = (np.arange(n)[:, None] * BINS + bins).ravel()
    gap = np.bincount(code, (probs - Y).ravel(), minlength=n * BINS).reshape(n, BINS)
    draws = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), RESAMPLES)
    values = np.abs(draws @ gap).sum(axis=1) / Y.size
    return Score(float(np.abs(gap.sum(axis=0)).sum() / Y.size), np.array([values.std(ddof=1)]))


def all_scores(test: LabelData, scores: Array, probs: Array, recalibrated: Array | None) -> dict[str, Score]:
    """Return every score of `COLUMNS`, and ``ece``; rows without any gap in their labels.

    Parameters
    ----------
    test : LabelData
    scores : float array (row, labels)
        To rank by.
    probs, recalibrated : float array (row, labels)
        For the log scores and the calibration error; None: no recalibration.
    """
    Y = test.Y.toarray().astype(bool)
    rows = np.repeat(np.arange(len(Y)), Y.shape[1])
    found = {
        "macro_auc": macro_auc_score(Y, scores),
        "micro_auc": auc_score(Y.ravel(), scores.ravel(), rows, len(Y)),
        "per_example_auc": mean_score(metrics.per_example_auc(test.Y, scores).each),
        "p_at_1": mean_score(metrics.precision_at_k(test.Y, scores, k=1).each),
        "p_at_3": mean_score(metrics.precision_at_k(test.Y, scores, k=3).each),
        "log_score": mean_score(metrics.log_score(test.Y, probs).each),
    }
    if recalibrated is not None:
        found["recalibrated"] = mean_score(metrics.log_score(test.Y, recalibrated).each)
    found["ece"] = calibration_error(Y, probs)
    return found


def to_json(found: dict[str, Score]) -> dict[str, Any]:
    """Return scores as plain lists, the influences of the rows with 4 digits."""
    return {
        name: {"value": one.value, "influence": [float(f"{x:.4g}") for x in one.influence]}
        for name, one in found.items()
    }


def from_json(stored: dict[str, Any]) -> dict[str, Score]:
    """Return what `to_json` stored."""
    return {name: Score(one["value"], np.array(one["influence"])) for name, one in stored.items()}


def shown(name: str, score: Score | None, *, sign: bool = False) -> str:
    """Return one cell of the table, value and standard error."""
    if score is None:
        return "–"
    scale, digits = (
        (100, 2) if name == "ece" else (1, 3) if "log" in name or name == "recalibrated" else (1, 4)
    )
    plus = "+" if sign else ""
    return f"{scale * score.value:{plus}.{digits}f} ± {scale * score.error:.{digits}f}"


def difference(one: Score, other: Score) -> Score:
    """Return the paired difference of two scores on the same rows."""
    return Score(one.value - other.value, one.influence - other.influence)


def markdown(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
