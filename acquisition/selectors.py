"""From scores to queries: distinct ids, ties broken by seed, honest about small pools."""

import warnings
from typing import Any

import numpy as np

from labelzoo.acquisition.anomalies import Ensemble, condition, variance_reduction

Array = Any


class PoolExhausted(ValueError):
    """There is nothing left to ask."""


def top(scores: Array, batch: int, *, seed: int = 0) -> Array:
    """Return the positions of the `batch` highest scores, best first.

    Ties are broken at random by `seed`; NaN scores come last.

    Raises
    ------
    PoolExhausted
        If there are no scores.

    Warns
    -----
    UserWarning
        If the batch is larger than the pool: the whole pool is returned.
    """
    scores = np.asarray(scores, float)
    batch = check_batch(batch, scores.shape[0])
    order = np.random.default_rng(seed).permutation(scores.shape[0])
    ranked = order[np.argsort(-np.where(np.isnan(scores), -np.inf, scores)[order], kind="stable")]
    return ranked[:batch]


def greedy(
    ensemble: Ensemble, batch: int, *, weights: Array | None = None, seed: int = 0
) -> tuple[Array, Array]:
    """Pick rows one after another, conditioning on each pick before the next.

    Returns
    -------
    rows : ndarray (batch,)
        Distinct positions, in order of choice.
    gains : ndarray (batch,)
        Variance removed at the rows not yet picked.
    """
    batch = check_batch(batch, ensemble.noise.shape[0])
    open_rows = np.ones(ensemble.noise.shape[0], bool)
    weights = np.ones(open_rows.size) if weights is None else np.asarray(weights, float)
    rows, gains = [], []
    for step in range(batch):
        scores = np.where(open_rows, variance_reduction(ensemble, weights), -np.inf)
        row = int(top(scores, 1, seed=seed + step)[0])
        rows.append(row)
        gains.append(float(scores[row]))
        open_rows[row] = False
        weights = np.where(np.arange(weights.size) == row, 0.0, weights)
        if step + 1 < batch:
            ensemble = condition(ensemble, row)
    return np.asarray(rows), np.asarray(gains)


def check_batch(batch: int, pool: int) -> int:
    """Return the batch size to use for a pool of `pool` rows."""
    if pool == 0:
        raise PoolExhausted("the pool is empty: there is nothing left to ask")
    if not isinstance(batch, int | np.integer) or batch < 1:
        raise ValueError(f"batch must be a positive integer, got {batch!r}")
    if batch > pool:
        warnings.warn(f"batch of {batch} from a pool of {pool}: the whole pool is returned", stacklevel=3)
    return min(int(batch), pool)
