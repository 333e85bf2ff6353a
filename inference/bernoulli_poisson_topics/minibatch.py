"""Minibatches for online EM: rows of the data, cut out and padded so that few programs are compiled."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.sparse import issparse

from labelzoo.inference.bernoulli_poisson_topics.em_data import (
    Blocks,
    EMData,
    Exposure,
    observed_lists,
    to_blocks,
)

Array = Any

_GROWTH = 1.25


class Lists(NamedTuple):
    """Cells by row: those of row n stand at ``start[n]`` to ``start[n + 1]``.

    Attributes
    ----------
    start : int64 ndarray (obs + 1,)
    column : ndarray (cell,)
    weight : float64 ndarray (cell,)
    """

    start: np.ndarray
    column: np.ndarray
    weight: np.ndarray


class RowTable(NamedTuple):
    """The data in a layout from which rows are cut out quickly.

    Attributes
    ----------
    X : ndarray (obs, feature) or None
    entries : Lists or None
        Of sparse X.
    positives : Lists
    base : ndarray (obs,) or None
        None where every cell is observed.
    exposed : Lists or None
    num_features, num_topics : int
    precision : ndarray (feature,) or None
    """

    X: np.ndarray | None
    entries: Lists | None
    positives: Lists
    base: np.ndarray | None
    exposed: Lists | None
    num_features: int
    num_topics: int
    precision: np.ndarray | None


def row_table(inputs: Mapping[str, Any]) -> RowTable:
    """Arrange the `inputs` of the program by rows; sparse features stay sparse."""
    X, positives, precision = inputs["X"], inputs["positives"], inputs["precision"]
    num_rows, num_features = X.shape
    row, observed = np.asarray(positives.row), observed_lists(inputs)
    entries = None
    if issparse(X):
        X = X.tocsr()
        entries = Lists(X.indptr.astype(np.int64), X.indices, X.data)
    return RowTable(
        None if entries is not None else np.asarray(X),
        entries,
        _lists(row, np.asarray(positives.label), np.ones(row.size), num_rows),
        None if observed is None else observed.base,
        None if observed is None else _lists(observed.row, observed.label, observed.sign, num_rows),
        num_features,
        inputs["num_topics"],
        None if precision is None else np.asarray(precision),
    )


def _lists(row: np.ndarray, column: np.ndarray, weight: np.ndarray, num_rows: int) -> Lists:
    start = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=num_rows))])
    return Lists(start, column, weight)


def take_rows(
    table: RowTable, rows: np.ndarray, size: int, dtype: Any, lengths: dict[str, int] | None = None
) -> EMData:
    """Return the data of `rows`, padded to `size` rows.

    A row of padding has no features, no positives and no missing cells: it adds nothing to any statistic of
    weights and topics. Lists of cells are padded to lengths on a grid of steps of 25 %, never less than
    before: `lengths` remembers them, so that a course of batches soon compiles nothing more.
    """
    lengths = {} if lengths is None else lengths

    def padded(name: str, row: np.ndarray, column: np.ndarray, weight: np.ndarray) -> Blocks:
        lengths[name] = max(lengths.get(name, 0), round_up(row.size))
        return _padded(row, column, weight, (size, lengths[name]), table.num_topics, dtype)

    X = sparse = None
    if table.X is not None:
        X = np.pad(table.X[rows], ((0, size - rows.size), (0, 0)))
        row_squares, column_squares = np.einsum("nd,nd->n", X, X), np.einsum("nd,nd->d", X, X)
    else:
        assert table.entries is not None
        row, column, weight = _cut(table.entries, rows)
        sparse = padded("entries", row, column, weight)
        row_squares = np.bincount(row, weight**2, size)
        column_squares = np.bincount(column, weight**2, table.num_features)
    exposure = None
    if table.exposed is not None and table.base is not None:
        base = np.pad(table.base[rows], (0, size - rows.size), constant_values=1.0)
        cells = padded("exposed", *_cut(table.exposed, rows))
        exposure = Exposure(jnp.asarray(base, dtype), cells)
    return EMData(
        None if X is None else jnp.asarray(X, dtype),
        sparse,
        jnp.asarray(row_squares, dtype),
        jnp.asarray(column_squares, dtype),
        padded("positives", *_cut(table.positives, rows)),
        exposure,
        None if table.precision is None else jnp.asarray(table.precision, dtype),
    )


def _cut(lists: Lists, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (row in the batch, column, weight) of the cells of `rows`."""
    length = lists.start[rows + 1] - lists.start[rows]
    row = np.repeat(np.arange(rows.size), length)
    first = np.cumsum(length) - length
    at = np.arange(length.sum()) - first[row] + lists.start[rows][row]
    return row, lists.column[at], lists.weight[at]


def _padded(
    row: np.ndarray,
    column: np.ndarray,
    weight: np.ndarray,
    sizes: tuple[int, int],
    num_topics: int,
    dtype: Any,
) -> Blocks:
    pad = (0, sizes[1] - row.size)
    return to_blocks(
        np.pad(row, pad, constant_values=sizes[0] - 1),
        np.pad(column, pad),
        np.pad(weight, pad),
        num_topics,
        dtype,
    )


def round_up(length: int) -> int:
    """Return the next length on a grid of steps of 25 %, at least 64."""
    grid = 64.0
    while int(grid) < length:
        grid *= _GROWTH
    return int(grid)
