"""From scores to queries: distinct ids, ties broken by seed, honest about small pools."""

import heapq
import warnings
from collections.abc import Callable
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
    ensemble: Ensemble, batch: int, *, weights: Array | None = None, seed: int = 0, debias: bool = False
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
        scores = np.where(open_rows, variance_reduction(ensemble, weights, debias=debias), -np.inf)
        row = int(top(scores, 1, seed=seed + step)[0])
        rows.append(row)
        gains.append(float(scores[row]))
        open_rows[row] = False
        weights = np.where(np.arange(weights.size) == row, 0.0, weights)
        if step + 1 < batch:
            ensemble = condition(ensemble, row)
    return np.asarray(rows), np.asarray(gains)


def lazy_greedy(
    gain: Callable[[int, list[int]], float], size: int, batch: int, *, seed: int = 0
) -> tuple[Array, Array, int]:
    """Pick items greedily, asking anew only for gains that might be the largest.

    For a submodular set function the gain of an item only falls as others are picked, so an old gain is an
    upper bound and the choice equals that of `greedy` over all items (Minoux 1978). For other functions it is
    a heuristic.

    Parameters
    ----------
    gain : callable
        ``gain(item, chosen) -> float`` of adding `item` to the list `chosen`.
    size : int
        Number of items, 0 to size - 1.
    batch : int
    seed : int
        Ties.

    Returns
    -------
    rows, gains : ndarray (batch,)
        Distinct items in order of choice, and the gain of each then.
    evaluations : int
        Calls of `gain`; a plain greedy makes size x batch of them, less those of items picked.
    """
    batch = check_batch(batch, size)
    order = np.random.default_rng(seed).permutation(size)
    heap = [(-gain(item, []), int(place), item, 0) for place, item in zip(order, range(size), strict=True)]
    heapq.heapify(heap)
    chosen: list[int] = []
    gains: list[float] = []
    evaluations = size
    while len(chosen) < batch:
        value, place, item, age = heapq.heappop(heap)
        if age < len(chosen):
            heapq.heappush(heap, (-gain(item, chosen), place, item, len(chosen)))
            evaluations += 1
            continue
        chosen.append(item)
        gains.append(-value)
    return np.asarray(chosen), np.asarray(gains), evaluations


def per_cost(scores: Array, costs: Array) -> Array:
    """Return scores per unit of cost, for a budget: (pool,) or (pool, labels).

    Parameters
    ----------
    scores : at least 0
    costs : (pool,) for rows; (labels,) or (pool, labels) for cells
        Above 0.

    Raises
    ------
    ValueError
        If a cost is not positive or the shapes differ, or a score is negative: a margin has no ratio.
    """
    scores, costs = np.asarray(scores, float), np.asarray(costs, float)
    if not np.isfinite(costs).all() or (costs <= 0).any():
        raise ValueError("costs must be finite and above 0")
    fits = costs.shape == scores.shape or (scores.ndim == 2 and costs.shape == scores.shape[1:])
    if not fits:
        raise ValueError(f"costs of shape {costs.shape} do not fit scores of shape {scores.shape}")
    if (scores < 0).any():
        raise ValueError("costs: this score can be negative, so it cannot be divided by a cost")
    return scores / costs


def check_batch(batch: Any, pool: int) -> int:
    """Return the batch size to use for a pool of `pool` rows."""
    if pool == 0:
        raise PoolExhausted("the pool is empty: there is nothing left to ask")
    if isinstance(batch, bool) or not isinstance(batch, int | np.integer) or batch < 1:
        raise ValueError(f"batch must be a positive integer, got {batch!r}")
    if batch > pool:
        warnings.warn(f"batch of {batch} from a pool of {pool}: the whole pool is returned", stacklevel=3)
    return min(int(batch), pool)
