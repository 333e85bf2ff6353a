"""Held-out metrics of posteriors beside plain label frequencies."""

import warnings
from typing import Any

import numpy as np

from labelzoo.data.describe import observed_per_label
from labelzoo.data.metrics import evaluate
from labelzoo.data.splits import AbsentLabelsWarning

Array = Any

BASELINE = "label frequencies"
"""Name of the baseline: every row gets each label's share of the training rows."""

MAX_CELLS = 10_000_000
"""Held-out rows are thinned at random until so many cells are left."""

KEPT = (
    "per_example_auc",
    "per_example_auc_undefined",
    "macro_auc",
    "macro_auc_undefined",
    "precision_at_1",
    "log_score",
    "calibration_error",
)


def random_parts(data: Any, fraction: float, seed: int) -> tuple[Any, Any]:
    """Return (train, test) at random, without the warning of absent labels.

    The tables of results count the labels and rows for which a metric is undefined.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AbsentLabelsWarning)
        return data.split(fraction, seed=seed)


def thin_rows(data: Any, seed: int = 0, max_cells: int = MAX_CELLS) -> Any:
    """Return `data` with as many random rows as fit into `max_cells` cells (all of them where they fit)."""
    keep = max(1, max_cells // data.num_labels)
    if data.num_rows <= keep:
        return data
    return data.subset(rows=np.sort(np.random.default_rng(seed).choice(data.num_rows, keep, replace=False)))


def label_frequencies(data: Any) -> Array:
    """Return (positives + 1/2) / (observed rows + 1) of each label (Jeffreys prior): (labels,)."""
    positives = np.bincount(data.Y.indices, minlength=data.num_labels)
    return (positives + 0.5) / (observed_per_label(data) + 1.0)


def baseline(train: Any, test: Any) -> Array:
    """Return the label frequencies of `train` for every row of `test`: (row, labels)."""
    return np.broadcast_to(label_frequencies(train), (test.num_rows, train.num_labels))


def metrics_row(probs: Array, test: Any) -> dict[str, Any]:
    """Return the kept metrics of probabilities (row, labels), None where undefined."""
    found = evaluate(test.Y, probs, _observed(test), ks=(1,))
    return {name: _finite(found[name]) for name in KEPT}


def observed_cells(probs: Array, test: Any) -> tuple[Array, Array]:
    """Return truth and probability of every observed cell: two arrays (cell,)."""
    seen = _observed(test)
    return test.Y.toarray()[seen], np.asarray(probs)[seen]


def _observed(test: Any) -> Array:
    return test.observed_mask(max_bytes=max(MAX_CELLS, test.num_rows * test.num_labels))


def _finite(value: Any) -> Any:
    return value if isinstance(value, int) or np.isfinite(value) else None
