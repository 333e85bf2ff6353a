"""Distances between rows, by a kernel or by scaled features, in blocks that keep memory flat."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from labelzoo.acquisition.binary_relevance import check_features
from labelzoo.acquisition.problem import Problem

Array = Any

CELLS = 4_000_000
"""Cells of a block of distances."""


class Space(NamedTuple):
    """Rows in which distances are taken.

    Attributes
    ----------
    pool, labelled : (row, feature)
    squared : callable
        ``squared(A, B) -> (rows of A, rows of B)``, squared distances.
    scale : callable
        Maps features of the problem into this space.
    """

    pool: Array
    labelled: Array
    squared: Callable[[Array, Array], Array]
    scale: Callable[[Array], Array]


def squared_euclidean(A: Array, B: Array) -> Array:
    """Return squared distances (rows of A, rows of B), dense or csr; rounding residue of equal rows is 0."""
    return _from_products(_square_norms(A), _square_norms(B), np.asarray(dense(A @ B.T)))


def squared_kernel_distance(kernel: Any, A: Array, B: Array) -> Array:
    """Return k(a, a) + k(b, b) - 2 k(a, b): (rows of A, rows of B)."""
    own, other = (np.asarray(kernel.diagonal(rows), float) for rows in (A, B))
    return _from_products(own, other, np.asarray(kernel.between(A, B), float))


def nearest_squared(space: Space, rows: Array, centres: Array) -> Array:
    """Return each row's squared distance to the nearest centre, in blocks: (row,); infinity without any."""
    nearest = np.full(rows.shape[0], np.inf)
    if centres.shape[0] == 0:
        return nearest
    for at in blocks(rows.shape[0], centres.shape[0]):
        nearest[at] = space.squared(rows[at], centres).min(axis=1)
    return nearest


def blocks(rows: int, width: int) -> Iterator[slice]:
    """Cut `rows` into slices of about `CELLS` cells of `width` columns."""
    step = max(CELLS // max(width, 1), 1)
    return (slice(at, at + step) for at in range(0, rows, step))


def dense(X: Array) -> Array:
    """Return X as a NumPy array."""
    return X.toarray() if sparse.issparse(X) else np.asarray(X)


def make_space(problem: Problem, by: str) -> Space:
    """Return pool and labelled rows with the kernel's distance, or scaled with the Euclidean one."""
    pool, labelled = _rows(problem, by)
    if problem.has("kernel"):
        return Space(
            pool, labelled, partial(squared_kernel_distance, problem.get("kernel")), lambda rows: rows
        )
    scale = scaling(pool, labelled)
    return Space(scale(pool), scale(labelled), squared_euclidean, scale)


def scaling(pool: Array, labelled: Array) -> Callable[[Array], Array]:
    """Return the map that divides features by their standard deviation over pool and labelled rows.

    Dense features are centred too, which changes no distance and keeps digits; a constant feature is left.
    """
    both = sparse.csr_array(sparse.vstack([pool, labelled])) if sparse.issparse(pool) else None
    stacked = both if both is not None else np.vstack([pool, labelled])
    if stacked.shape[0] == 0:
        return lambda rows: rows
    mean = np.ravel(dense(stacked.mean(axis=0)))
    square = np.ravel(dense((stacked * stacked).mean(axis=0))) if both is not None else None
    sd = np.sqrt(np.maximum(square - mean**2, 0)) if square is not None else stacked.std(axis=0)
    sd = np.where(sd > 1e-12 * np.maximum(np.abs(mean), 1e-300), sd, 1.0)
    if both is not None:
        return lambda rows: sparse.csr_array(rows @ sparse.diags_array(1 / sd))
    return lambda rows: (dense(rows) - mean) / sd


def _rows(problem: Problem, by: str) -> tuple[Array, Array]:
    pool = check_features(problem.need("X_pool", by), "X_pool")
    labelled = pool[:0]
    if problem.has("X_labelled"):
        labelled = check_features(problem.get("X_labelled"), "X_labelled")
    if labelled.shape[1] != pool.shape[1]:
        raise ValueError(f"X_pool has {pool.shape[1]} features, X_labelled {labelled.shape[1]}")
    return pool, labelled


def _square_norms(X: Array) -> Array:
    return np.ravel(dense((X * X).sum(axis=1)))


def _from_products(own: Array, other: Array, product: Array) -> Array:
    total = own[:, None] + other[None, :]
    squared = total - 2 * product
    # Of two equal rows only rounding is left, which must not decide between them.
    return np.where(squared > 1e-12 * np.abs(total), squared, 0.0)
