"""Rows near the targets, and random rows where targets are dense: controls that know the targets.

A method that beats random but not these has found the targets, not the informative rows.
"""

from typing import Any

import numpy as np

from labelzoo.acquisition.binary_relevance import check_features
from labelzoo.acquisition.distances import Space, blocks, make_space
from labelzoo.acquisition.problem import Choice, Problem
from labelzoo.acquisition.selectors import check_batch

Array = Any

OWN_TARGETS = 2_000
"""Most pool rows that stand in for targets where none are given, drawn by seed."""


def density(kernel: Any, pool: Array, targets: Array, weights: Array, own: Array | None = None) -> Array:
    """Return sum_t w_t k(x, t), negative values 0, the row's `own` target left out: (pool,)."""
    total = np.zeros(pool.shape[0])
    for at in blocks(pool.shape[0], targets.shape[0]):
        total[at] = np.asarray(kernel.between(pool[at], targets), float) @ weights
    if own is not None:
        total[own] -= weights * np.asarray(kernel.diagonal(targets), float)
    return np.maximum(total, 0.0)


def nearest_target(problem: Problem) -> Array:
    """Minus the distance to the nearest target of positive weight: (pool,)."""
    space, targets, _, own = _targets(problem, "nearest_target")
    nearest = np.full(space.pool.shape[0], np.inf)
    for at in blocks(targets.shape[0], space.pool.shape[0]):
        nearest = np.minimum(nearest, _target_gaps(space, targets, own, at).min(axis=1, initial=np.inf))
    return -np.sqrt(np.where(np.isfinite(nearest), nearest, 0.0))


def choose_nearest_target(problem: Problem, batch: int) -> Choice:
    """Give every target in turn its nearest row that is still free, the target with the nearest row first."""
    space, targets, _, own = _targets(problem, "nearest_target")
    batch = check_batch(batch, space.pool.shape[0])
    near, gaps = _nearest_rows(space, targets, own, batch, problem.seed)
    turn = np.argsort(gaps[0], kind="stable") if gaps.size else np.zeros(0, int)
    taken, place = np.zeros(space.pool.shape[0], bool), np.zeros(turn.size, int)
    found: list[tuple[int, float]] = []
    while len(found) < batch and (place < len(near)).any():
        for target in turn:
            while place[target] < len(near) and taken[near[place[target], target]]:
                place[target] += 1
            if place[target] < len(near) and len(found) < batch:
                row, gap = near[place[target], target], gaps[place[target], target]
                found.append((row, -float(np.sqrt(gap)) if np.isfinite(gap) else 0.0))
                taken[row] = True
    return Choice(np.array([row for row, _ in found], int), np.array([gain for _, gain in found]))


def density_random(problem: Problem) -> Array:
    """Log density of the targets at the row plus Gumbel noise, so the top is a weighted draw: (pool,)."""
    kernel = problem.need("kernel", "density_random")
    space, targets, weights, own = _targets(problem, "density_random")
    total = density(kernel, space.pool, targets, weights, own)
    noise = np.random.default_rng(problem.seed).gumbel(size=total.size)
    return np.log(np.maximum(total, np.finfo(float).tiny)) + noise


def _targets(problem: Problem, by: str) -> tuple[Space, Array, Array, Array | None]:
    # Targets and their weights, and for pool rows that stand in for targets the row that each is.
    space = make_space(problem, by)
    pool, own = space.pool, None
    if problem.has("X_targets"):
        targets = check_features(problem.get("X_targets"), "X_targets")
        if targets.shape[1] != pool.shape[1]:
            raise ValueError(f"X_pool has {pool.shape[1]} features, X_targets {targets.shape[1]}")
        targets = space.scale(targets)
        size = targets.shape[0]
    else:
        size, targets = pool.shape[0], pool
    weights = _weights(problem, size)
    kept = np.nonzero(weights > 0)[0]
    if not problem.has("X_targets"):
        if kept.size > OWN_TARGETS:
            kept = np.sort(np.random.default_rng(problem.seed).choice(kept, OWN_TARGETS, replace=False))
        own = kept
    if kept.size == 0 and pool.shape[0]:
        raise ValueError(f"acquisition {by!r} needs a target of positive weight")
    return space, targets[kept], weights[kept], own


def _weights(problem: Problem, size: int) -> Array:
    if not problem.has("weights"):
        return np.ones(size)
    weights = np.asarray(problem.get("weights"), float)
    if weights.shape != (size,) or not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError(f"weights must be {size} finite numbers of at least 0, got shape {weights.shape}")
    return weights


def _target_gaps(space: Space, targets: Array, own: Array | None, at: slice) -> Array:
    # (pool, targets of the block); a row is not its own target.
    gaps = space.squared(space.pool, targets[at])
    if own is not None:
        gaps[own[at], np.arange(gaps.shape[1])] = np.inf
    return gaps


def _nearest_rows(
    space: Space, targets: Array, own: Array | None, most: int, seed: int
) -> tuple[Array, Array]:
    # The `most` nearest rows of every target, nearest first, and their squared distances: (most, target).
    shuffle = np.random.default_rng(seed).permutation(space.pool.shape[0])
    near: list[Array] = []
    gaps: list[Array] = []
    for at in blocks(targets.shape[0], space.pool.shape[0]):
        block = _target_gaps(space, targets, own, at)[shuffle]
        first = np.argpartition(block, most - 1, axis=0)[:most]
        first = np.take_along_axis(first, np.argsort(np.take_along_axis(block, first, 0), 0, "stable"), 0)
        near.append(shuffle[first])
        gaps.append(np.take_along_axis(block, first, 0))
    return np.concatenate(near, axis=1), np.concatenate(gaps, axis=1)
