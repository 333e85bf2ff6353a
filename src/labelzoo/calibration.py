"""Two numbers that recalibrate probabilities, slope and intercept on the logit scale, for all labels."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from labelzoo.arguments import label_data, whole_number

Array = Any

CLIP = 1e-12
"""Probabilities are cut to [CLIP, 1 - CLIP] before their logit is taken."""

BLOCK_CELLS = 4_000_000
"""Cells looked at together."""


class Calibration(NamedTuple):
    """logit p' = intercept + slope logit p.

    Attributes
    ----------
    slope, intercept : float
        Slope below 1: the probabilities were too extreme.
    log_score_before, log_score_after : float
        Mean log probability of the observed cells it was fitted on, nats a cell.
    num_rows, num_cells : int
        What it was fitted on.
    """

    slope: float
    intercept: float
    log_score_before: float
    log_score_after: float
    num_rows: int
    num_cells: int

    def apply(self, probs: Any) -> Array:
        """Return recalibrated probabilities, of any shape.

        Raises
        ------
        ValueError
            If `probs` are no probabilities.
        """
        table = _checked_probs(probs)
        return _expit(self.intercept + self.slope * _logit(table))


def calibrate(probs: Any, data: Any, *, apart_from: Any, max_iter: Any = 100) -> Calibration:
    """Fit slope and intercept by maximum likelihood on the observed cells of `data`.

    Parameters
    ----------
    probs : array (row, labels)
        Predicted probabilities of the rows of `data`, by a model that has not seen their labels.
    data : LabelData
        Rows held out for calibration alone.
    apart_from : LabelData, sequence of row names, or a sequence of these
        Rows used to fit, to tune, or to test: none of them may be among the rows of `data`, by name.
        Required, since a calibration on rows that chose the settings flatters itself; rows need names of
        their own ("row 0" of two tables is taken for one row).
    max_iter : int

    Returns
    -------
    Calibration

    Raises
    ------
    ValueError
        If `data` is no LabelData, `max_iter` no positive integer, rows overlap, shapes differ, `probs` are no
        probabilities, or all observed cells have one value (then no finite pair is best), or `probs` are all
        equal or separate the two without error.
    """
    label_data(data)
    whole_number("max_iter", max_iter, 1)
    table = _checked_probs(probs)
    if table.shape != (data.num_rows, data.num_labels):
        expected = (data.num_rows, data.num_labels)
        raise ValueError(f"probs has shape {table.shape}, data has (rows, labels) {expected}")
    refuse_overlap(data, apart_from)
    cells = observed_cells(table, data)
    slope, intercept = _fit(*cells, max_iter=max_iter)
    x, y = cells
    before, after = (_mean_log(y, a + b * x) for a, b in ((0.0, 1.0), (intercept, slope)))
    return Calibration(slope, intercept, before, after, data.num_rows, len(y))


def refuse_overlap(data: Any, apart_from: Any) -> None:
    """Raise ValueError where `data` shares a row, by name, with any of `apart_from`."""
    own = set(data.example_names)
    for names in _name_sets(apart_from):
        shared = [name for name in data.example_names if name in names] if own & names else []
        if shared:
            shown = ", ".join(repr(name) for name in shared[:3]) + (", ..." if len(shared) > 3 else "")
            raise ValueError(
                f"{len(shared)} of {data.num_rows} calibration rows are in apart_from too ({shown}); "
                "calibrate on "
                "rows that neither fitted, tuned nor test the model. Rows are told apart by name: give "
                "tables from different files example_names of their own"
            )


def _name_sets(apart_from: Any) -> Iterator[set[str]]:
    if hasattr(apart_from, "example_names"):
        yield set(apart_from.example_names)
        return
    if isinstance(apart_from, str) or not isinstance(apart_from, Sequence | np.ndarray | set | frozenset):
        raise ValueError(f"apart_from must be LabelData or row names, or several, got {apart_from!r}")
    loose = {str(one) for one in apart_from if isinstance(one, str)}
    if loose:
        yield loose
    for one in apart_from:
        if not isinstance(one, str):
            yield from _name_sets(one)


def observed_cells(table: Array, data: Any) -> tuple[Array, Array]:
    """Return logits and labels of the observed cells: two arrays (cell,)."""
    step = max(1, BLOCK_CELLS // data.num_labels)
    logits, labels = [], []
    for start in range(0, data.num_rows, step):
        rows = np.arange(start, min(start + step, data.num_rows))
        seen = data.observed_mask(rows, max_bytes=len(rows) * data.num_labels)
        logits.append(_logit(table[rows][seen]))
        labels.append(data.Y[rows].toarray()[seen])
    return np.concatenate(logits), np.concatenate(labels)


def _fit(x: Array, y: Array, max_iter: int) -> tuple[float, float]:
    """Newton's method with step halving on a concave log likelihood of two parameters."""
    if len(y) == 0 or y.min() == y.max():
        raise ValueError(
            "data: the observed cells are all positive or all zero; there is nothing to calibrate"
        )
    low, high = x[y == 0], x[y == 1]
    if low.max() <= high.min() or high.max() <= low.min():
        raise ValueError(
            "no finite slope and intercept maximise the likelihood: probs are all equal, or separate the "
            "positives from the zeros without error; use more calibration rows"
        )
    beta = np.array([0.0, 1.0])
    value = _mean_log(y, beta[0] + beta[1] * x)
    for _ in range(max_iter):
        p = _expit(beta[0] + beta[1] * x)
        residual, spread = y - p, p * (1 - p)
        gradient = np.array([residual.mean(), (residual * x).mean()])
        cross = (spread * x).mean()
        curvature = np.array([[spread.mean(), cross], [cross, (spread * x**2).mean()]])
        step = np.linalg.lstsq(curvature, gradient, rcond=None)[0]
        scale = 1.0
        while scale > 1e-9 and _mean_log(y, (beta + scale * step) @ [np.ones_like(x), x]) < value:
            scale /= 2
        beta = beta + scale * step
        value = _mean_log(y, beta[0] + beta[1] * x)
        if abs(gradient @ step) < 1e-14:
            return float(beta[1]), float(beta[0])
    raise ValueError(
        f"calibrate has not converged in {max_iter} steps: slope {beta[1]:g}, intercept {beta[0]:g}"
    )


def _mean_log(y: Array, logit: Array) -> float:
    return float(-np.logaddexp(0.0, np.where(y > 0, -logit, logit)).mean())


def _checked_probs(probs: Any) -> Array:
    table = np.asarray(probs, np.float64)
    bad = ~((table >= 0) & (table <= 1))
    if bad.any():
        at = tuple(int(i[0]) for i in np.nonzero(bad)) if table.ndim else ()
        raise ValueError(f"probs must lie in [0, 1], got {table[at]} at {at}")
    return table


def _logit(p: Array) -> Array:
    p = np.clip(p, CLIP, 1 - CLIP)
    return np.log(p) - np.log1p(-p)


def _expit(x: Array) -> Array:
    return np.exp(-np.logaddexp(0.0, -x))
