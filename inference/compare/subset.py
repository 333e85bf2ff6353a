"""A small real subset on which a reference sampler can converge."""

from typing import Any

import numpy as np

SMALL_CELLS = 6000
"""Data with at most so many rows x labels are compared whole."""


def small_subset(data: Any, rows: int = 150, labels: int = 20, features: int = 8, seed: int = 0) -> Any:
    """Return a subset of `data`: its most frequent labels, rows that carry them, varied features.

    Parameters
    ----------
    data : LabelData
    rows, labels, features : int
        At most so many are kept: the `labels` with most positives; `rows` drawn at random among those with
        at least one of them; the `features` with the largest variance over these rows.
    seed : int
        For the choice of rows.

    Returns
    -------
    LabelData
    """
    support = np.bincount(data.Y.indices, minlength=data.num_labels)
    chosen_labels = np.sort(np.argsort(-support, kind="stable")[:labels])
    positives = np.asarray(data.Y[:, chosen_labels].sum(axis=1)).ravel()
    candidates = np.flatnonzero(positives > 0)
    rng = np.random.default_rng(seed)
    chosen_rows = np.sort(rng.choice(candidates, size=min(rows, candidates.size), replace=False))
    X = data.X[chosen_rows]
    mean = np.asarray(X.mean(axis=0)).ravel()
    square = np.asarray((X.multiply(X) if hasattr(X, "multiply") else X * X).mean(axis=0)).ravel()
    chosen_features = np.sort(np.argsort(-(square - mean**2), kind="stable")[:features])
    return data.subset(rows=chosen_rows, labels=chosen_labels, features=chosen_features)


def needs_subset(data: Any, kinds: set[str]) -> bool:
    """Return whether samplers among `kinds` of engines would be run on more than `SMALL_CELLS` cells."""
    return bool(kinds & {"mcmc", "bound"}) and data.num_rows * data.num_labels > SMALL_CELLS
