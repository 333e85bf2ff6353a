"""Truth and predictions in the two forms the metrics read: dense blocks beside scores, or lists of cells.

A cell is unobserved where the truth holds NaN, where ``observed`` is False, or where ``missing`` says so; the
three may be combined. Whatever truth, score or decision stands in an unobserved cell is never looked at.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from labelzoo.data.convert import (
    as_numbers,
    dense_array,
    frame_array,
    is_frame,
    sparse_entries,
)
from labelzoo.data.labeldata import LabelData
from labelzoo.data.metrics.averages import Floats, Ints, refuse_cells
from labelzoo.data.metrics.names import same_names
from labelzoo.data.metrics.observed import Observed, checked_mask, checked_missing, dense_mask
from labelzoo.data.missing import Missing, complement, missing_from_cells
from labelzoo.data.plain import checked_sparse
from labelzoo.data.validate import listed

ALLOWED = {"Y_true": "0, 1 or NaN", "Y_pred": "0 or 1"}


class Table(NamedTuple):
    """Truth as int8 (n, l) with -1 for unobserved cells, and scores float64 (n, l)."""

    truth: NDArray[np.int8]
    scores: Floats


class Truth(NamedTuple):
    """The observed positives as sorted int8 csr_array (n, l), and which cells are observed."""

    Y: csr_array
    observed: Observed

    @property
    def keys(self) -> Ints:
        """Sorted numbers row * l + label of the positives."""
        return cell_keys(self.Y)


def cell_keys(csr: csr_array) -> Ints:
    """Return row * l + label of the stored entries of a csr_array."""
    rows = np.repeat(np.arange(csr.shape[0]), np.diff(csr.indptr))
    return rows * csr.shape[1] + csr.indices


def as_matrix(values: Any, name: str) -> Any:
    """Return a sparse matrix as it is, anything else as an ndarray of numbers of any shape."""
    if is_frame(values):
        values = frame_array(values)
    if issparse(values):
        return checked_sparse(values, name)
    array = dense_array(values, name)
    if array.dtype.kind == "O" and array.ndim == 2:
        array = as_numbers(array, name, "label", None)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold {ALLOWED.get(name, 'numbers')}, got dtype {array.dtype}")
    return array


def take_label_data(Y_true: Any, missing: Any) -> tuple[Any, Any]:
    """Return (Y, missing) of a `LabelData`; anything else passes through."""
    if not isinstance(Y_true, LabelData):
        return Y_true, missing
    if missing is not None:
        raise ValueError("missing is given twice: as an argument and in the LabelData")
    return Y_true.Y, Y_true.missing


def dense_table(Y_true: Any, scores: Any, observed: Any = None, missing: Any = None) -> Table:
    """Check the names, shapes and values of a score table, and merge all that says a cell is unobserved."""
    same_names(Y_true=Y_true, scores=scores, observed=observed)
    Y_true, missing = take_label_data(Y_true, missing)
    values = dense_scores(scores)
    raw = as_matrix(Y_true, "Y_true")
    raw = raw.toarray() if issparse(raw) else raw
    if values.ndim != 2 or raw.shape != values.shape:
        raise ValueError(f"Y_true and scores must have one shape (rows, labels): {raw.shape}, {values.shape}")
    hidden = np.isnan(raw)
    if observed is not None:
        hidden |= ~checked_mask(observed, raw.shape)
    if missing is not None:
        hidden |= ~dense_mask(checked_missing(missing, raw.shape), raw.shape)
    refuse_cells("Y_true may hold 0, 1 or NaN only", raw, ~hidden & (raw != 0) & (raw != 1))
    refuse_cells("scores must be finite", values, ~hidden & ~np.isfinite(values))
    return Table(np.where(hidden, -1, raw == 1).astype(np.int8), values)


def dense_scores(scores: Any) -> Floats:
    """Return dense scores as float64; sparse and top-k ones are refused, since most scores are not known."""
    if issparse(scores) or hasattr(scores, "num_labels"):
        raise ValueError(
            f"this metric needs the score of every cell, dense (rows, labels); a {type(scores).__name__} "
            "holds only some: precision, recall, nDCG and their propensity-scored forms at k work on it"
        )
    table = as_matrix(scores, "scores")  # sparse only for a data frame with sparse columns
    return np.asarray(table.toarray() if issparse(table) else table, dtype=np.float64)


def probability_table(Y_true: Any, probs: Any, observed: Any = None, missing: Any = None) -> Table:
    """Like `dense_table`, and refuse probabilities outside [0, 1] beyond float32 rounding."""
    table = dense_table(Y_true, probs, observed, missing)
    outside = (table.truth >= 0) & ((table.scores < -1e-6) | (table.scores > 1 + 1e-6))
    refuse_cells("probabilities must lie in [0, 1]", table.scores, outside)
    return table


class Entries(NamedTuple):
    """The cells of a table that are not 0, with their values, and the shape of the table."""

    rows: Ints
    labels: Ints
    values: NDArray[Any]
    shape: tuple[int, int]
    sparse: bool


def entries(table: Any, name: str) -> Entries:
    """List the cells of a dense or sparse table that are not 0 (NaN is among them)."""
    array = as_matrix(table, name)
    if array.ndim != 2:
        raise ValueError(f"{name} must be two-dimensional (rows, labels), got shape {array.shape}")
    if issparse(array):
        rows, labels, values = sparse_entries(array, None)
        return Entries(rows, labels, values, array.shape, True)
    rows, labels = np.nonzero(array)
    return Entries(rows, labels, array[rows, labels], array.shape, False)


def as_truth(Y_true: Any, observed: Any = None, missing: Any = None) -> Truth:
    """Return the observed positives of ``Y_true`` and what is observed; a sparse truth is not expanded."""
    same_names(Y_true=Y_true, observed=observed)
    Y_true, missing = take_label_data(Y_true, missing)
    cells = entries(Y_true, "Y_true")
    known = merged(cells, observed, missing)
    return Truth(positives(cells, known, "Y_true"), known)


def merged(cells: Entries, observed: Any, missing: Any) -> Observed:
    """Combine NaN in the truth, a dense mask and a `Missing`."""
    unknown = np.isnan(cells.values)
    at = cells.rows[unknown], cells.labels[unknown]
    if missing is not None:
        missing = checked_missing(missing, cells.shape)
    if observed is not None or (unknown.any() and not cells.sparse):
        mask = np.ones(cells.shape, bool) if observed is None else checked_mask(observed, cells.shape).copy()
        mask[at] = False
        if missing is not None:
            mask &= dense_mask(missing, cells.shape)
        return Observed(cells.shape, mask=mask)
    if unknown.any():
        if missing is not None:
            at = union(missing, at, cells.shape[1])
            flags = missing.rows
            keep = ~flags[at[0]]
            return Observed(cells.shape, missing=Missing(flags, (at[0][keep], at[1][keep]), "missing"))
        missing = missing_from_cells(*at, cells.shape)
    return Observed(cells.shape, missing=missing)


def union(missing: Missing, at: tuple[Ints, Ints], num_labels: int) -> tuple[Ints, Ints]:
    """Return the distinct cells that ``missing`` (row flags aside) or ``at`` lists as unobserved."""
    row, label = missing.cells
    if missing.cells_are == "observed":
        order = np.argsort(row, kind="stable")
        row, label = complement((row[order], label[order]), num_labels)
    keys = np.unique(np.concatenate([row * num_labels + label, at[0] * num_labels + at[1]]))
    return keys // num_labels, keys % num_labels


def positives(cells: Entries, known: Observed, name: str) -> csr_array:
    """Return the observed cells that are 1 as csr_array, after a check that the observed ones are 0 or 1."""
    seen = known.at(cells.rows, cells.labels)
    bad = seen & (cells.values != 1)
    if bad.any():
        triples = zip(cells.rows[bad], cells.labels[bad], cells.values[bad], strict=True)
        texts = [f"row {i}, label {j}: {v.item()!r}" for (i, j, v), _ in zip(triples, range(5), strict=False)]
        raise ValueError(f"{name} may hold {ALLOWED[name]} only: {listed(texts, int(bad.sum()))}")
    rows, labels = cells.rows[seen], cells.labels[seen]
    result = csr_array((np.ones(len(rows), np.int8), (rows, labels)), shape=cells.shape)
    result.sort_indices()
    return result
