"""What the EM sweeps read: features, positives in blocks, and which cells are exposed."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import issparse

from labelzoo.models.label_cells import Negatives

Array = Any

BLOCK_VALUES = 1 << 17
"""Cells x topics values of one block of gathered cells: 1 MB in float64, so that a block stays in cache."""


SPARSE_BELOW = 0.05
"""Share of entries of X that are not zero below which products with it go entry by entry."""


class Blocks(NamedTuple):
    """A list of cells cut into blocks of equal size; the tail is padded with cells of weight zero.

    Attributes
    ----------
    row, label : int32 arrays (block, cell)
        ``label`` is the column: a feature, for the blocks of X.
    weight : float array (block, cell)
    """

    row: Array
    label: Array
    weight: Array


class Exposure(NamedTuple):
    """Sums over the observed cells of a row as base + listed cells, and over the missing ones as the rest.

    A row lists its missing cells (base 1, sign -1) or its observed cells (base 0, sign +1), whichever are
    fewer; a row without observed labels has base 0 and an empty list.

    Attributes
    ----------
    base : float array (obs,)
    cells : Blocks
        The sign stands in ``cells.weight``.
    """

    base: Array
    cells: Blocks


class EMData(NamedTuple):
    """Arrays that no sweep changes.

    Attributes
    ----------
    X : float array (obs, feature) or None
        None where the features came as a sparse matrix: then no array of this size exists.
    sparse : Blocks or None
        The entries of X that are not zero, where X is sparse or they are few enough to be faster.
    row_squares, column_squares : float arrays (obs,), (feature,)
        Sums of squares of the rows and of the columns of X.
    positives : Blocks
    exposure : Exposure or None
        None where every cell is observed: then every topic's exposure is exactly one.
    precision : float array (feature,) or None
        Fixed prior precisions, or None where they are learned.
    """

    X: Array | None
    sparse: Blocks | None
    row_squares: Array
    column_squares: Array
    positives: Blocks
    exposure: Exposure | None
    precision: Array | None


def without_missing(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return `inputs` with every missing cell turned into a zero, as the paper treats them."""
    positives, base = inputs["positives"], jnp.ones_like(inputs["negatives"].base)
    sign = -jnp.ones(positives.row.shape[0], base.dtype)
    return {**inputs, "negatives": Negatives(base, positives.row, positives.label, sign)}


def em_data(inputs: Mapping[str, Any], *, dtype: Any = None) -> EMData:
    """Arrange the `inputs` of the program for the sweeps.

    Parameters
    ----------
    inputs : mapping
        What ``spec.prepare`` returned; ``X`` may be a csr matrix, which stays sparse.
    dtype : dtype
        Floating dtype of the sweeps; float64 by default.
    """
    dtype = jnp.float64 if dtype is None else dtype
    row, label = np.asarray(inputs["positives"].row), np.asarray(inputs["positives"].label)
    num_topics, precision = inputs["num_topics"], inputs["precision"]
    X = inputs["X"] if issparse(inputs["X"]) else np.asarray(inputs["X"])
    by_row, by_column = _squares(X)
    return EMData(
        None if issparse(X) else jnp.asarray(X, dtype),
        _sparse(X, num_topics, dtype),
        jnp.asarray(by_row, dtype),
        jnp.asarray(by_column, dtype),
        to_blocks(row, label, np.ones(row.size), num_topics, dtype),
        _exposure(observed_lists(inputs), num_topics, dtype),
        None if precision is None else jnp.asarray(precision, dtype),
    )


class Observed(NamedTuple):
    """The lists behind `Exposure`, cells sorted by row.

    Attributes
    ----------
    base : ndarray (obs,)
    row, label, sign : ndarrays (cell,)
    """

    base: np.ndarray
    row: np.ndarray
    label: np.ndarray
    sign: np.ndarray


def observed_lists(inputs: Mapping[str, Any]) -> Observed | None:
    """Turn "observed zeros" lists into "observed cells" lists; None where nothing is missing."""
    negatives, num_labels = inputs["negatives"], inputs["num_labels"]
    row, label = np.asarray(inputs["positives"].row), np.asarray(inputs["positives"].label)
    base = np.asarray(negatives.base)
    other_row, other_label = np.asarray(negatives.row), np.asarray(negatives.label)
    observed = base.sum() * num_labels + np.asarray(negatives.sign).sum() + row.size
    if round(float(observed)) == base.size * num_labels:
        return None
    code = row.astype(np.int64) * num_labels + label
    other_code = other_row.astype(np.int64) * num_labels + other_label
    complement = base > 0
    # Where positives and missing cells are listed, the missing ones are what is left of the list.
    missing = complement[other_row] & ~np.isin(other_code, code)
    zeros, ones = ~complement[other_row], ~complement[row]
    rows = np.concatenate([other_row[missing], other_row[zeros], row[ones]])
    labels = np.concatenate([other_label[missing], other_label[zeros], label[ones]])
    sign = np.concatenate([-np.ones(missing.sum()), np.ones(zeros.sum() + ones.sum())])
    order = np.argsort(rows, kind="stable")
    return Observed(base, rows[order], labels[order], sign[order])


def _exposure(observed: Observed | None, num_topics: int, dtype: Any) -> Exposure | None:
    if observed is None:
        return None
    cells = to_blocks(observed.row, observed.label, observed.sign, num_topics, dtype)
    return Exposure(jnp.asarray(observed.base, dtype), cells)


def to_blocks(row: np.ndarray, label: np.ndarray, weight: np.ndarray, num_topics: int, dtype: Any) -> Blocks:
    """Cut a list of cells into blocks of about `BLOCK_VALUES` / topics cells."""
    size = max(1, min(row.size, max(64, BLOCK_VALUES // num_topics)))
    count = max(1, -(-row.size // size))
    pad = (0, count * size - row.size)
    fill = "edge" if row.size else "constant"

    def cut(values: np.ndarray, mode: Any) -> np.ndarray:
        return np.pad(values, pad, mode=mode).reshape(count, size)

    return Blocks(
        jnp.asarray(cut(row, fill), jnp.int32),
        jnp.asarray(cut(label, fill), jnp.int32),
        jnp.asarray(cut(weight, "constant"), dtype),
    )


def _squares(X: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums of squares of the rows and of the columns of an array or a sparse matrix."""
    if not issparse(X):
        return np.einsum("nd,nd->n", X, X), np.einsum("nd,nd->d", X, X)
    entries = X.tocoo()
    square = entries.data**2
    return np.bincount(entries.row, square, X.shape[0]), np.bincount(entries.col, square, X.shape[1])


def _sparse(X: Any, num_topics: int, dtype: Any) -> Blocks | None:
    if issparse(X):
        entries = X.tocsr().tocoo()
        return to_blocks(entries.row, entries.col, entries.data, num_topics, dtype)
    row, feature = np.nonzero(X)
    if row.size > SPARSE_BELOW * X.size:
        return None
    return to_blocks(row, feature, X[row, feature], num_topics, dtype)


def times(data: EMData, right: Array) -> Array:
    """Return X times `right` (feature, topic): (obs, topic)."""
    if data.sparse is None:
        assert data.X is not None
        return data.X @ right

    def add(total: Array, block: Blocks) -> tuple[Array, None]:
        return total.at[block.row].add(right[block.label] * block.weight[:, None]), None

    return jax.lax.scan(
        add, jnp.zeros((data.row_squares.shape[0], right.shape[1]), right.dtype), data.sparse
    )[0]


def transposed_times(data: EMData, right: Array) -> Array:
    """Return X' times `right` (obs, topic): (feature, topic)."""
    if data.sparse is None:
        assert data.X is not None
        return data.X.T @ right

    def add(total: Array, block: Blocks) -> tuple[Array, None]:
        return total.at[block.label].add(right[block.row] * block.weight[:, None]), None

    return jax.lax.scan(
        add, jnp.zeros((data.column_squares.shape[0], right.shape[1]), right.dtype), data.sparse
    )[0]


def observed_by_row(topics: Array, exposure: Exposure) -> Array:
    """Return s_nk, the mass of topic k on the observed labels of row n, from topics (labels, topic)."""

    def add(total: Array, block: Blocks) -> tuple[Array, None]:
        return total.at[block.row].add(topics[block.label] * block.weight[:, None]), None

    start = jnp.broadcast_to(exposure.base[:, None], (exposure.base.shape[0], topics.shape[1]))
    total, _ = jax.lax.scan(add, start * topics.sum(axis=0), exposure.cells)
    return jnp.maximum(total, 0.0)


def missing_by_label(embedding: Array, exposure: Exposure, num_labels: int) -> Array:
    """Return the sum of u_nk over the rows where label l is missing: (labels, topic)."""

    def add(total: Array, block: Blocks) -> tuple[Array, None]:
        return total.at[block.label].add(-embedding[block.row] * block.weight[:, None]), None

    start = jnp.broadcast_to((1.0 - exposure.base) @ embedding, (num_labels, embedding.shape[1]))
    total, _ = jax.lax.scan(add, start, exposure.cells)
    return jnp.maximum(total, 0.0)


GRAM_COLUMNS = 128
"""Columns of X' Omega X that are made together from sparse features: an (obs, 128) array."""


def weighted_gram(data: EMData, weight: Array) -> Array:
    """Return X' diag(weight) X (feature, feature) from weights (obs,).

    Dense features: 2 N D^2 flops. Sparse ones: 4 D (entries of X that are not zero), a few columns at a time.
    """
    if data.sparse is None:
        assert data.X is not None
        return (data.X * weight[:, None]).T @ data.X
    num_features = data.column_squares.shape[0]
    width = min(GRAM_COLUMNS, num_features)

    def columns(start: Array) -> Array:
        unit = (jnp.arange(num_features)[:, None] == start + jnp.arange(width)).astype(weight.dtype)
        return transposed_times(data, weight[:, None] * times(data, unit)).T

    blocks = jax.lax.map(columns, jnp.arange(0, num_features, width))
    return blocks.reshape(-1, num_features)[:num_features]
