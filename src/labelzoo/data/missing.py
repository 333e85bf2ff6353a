"""Which labels were never observed: flags for whole rows, cells for partly labelled rows."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from labelzoo.data.validate import cells_listed, frozen_array, listed, name_lookup, plain_array

CHUNK_CELLS = 1_000_000  # dense booleans made at one time when a cell list is turned into its complement
Cells = tuple[NDArray[np.int64], NDArray[np.int64]]


def no_cells() -> Cells:
    """Return an empty list of (row, label) cells."""
    return frozen_array(np.zeros(0, np.int64)), frozen_array(np.zeros(0, np.int64))


@dataclass(frozen=True, eq=False)
class Missing:
    """Unobserved labels of n rows.

    Attributes
    ----------
    rows : bool (n,)
        True for rows without any observed label.
    cells : (row int64 (c,), label int64 (c,))
        Cells of the partly labelled rows only. A row that is neither flagged nor listed is fully observed.
    cells_are : "missing" or "observed"
        What the cells are; `LabelData` stores whichever list is shorter ("missing" on a tie).
    """

    rows: Any
    cells: Any = field(default_factory=no_cells)
    cells_are: str = "missing"

    def __post_init__(self) -> None:
        """Check types and lengths; ranges are checked by `LabelData`, which knows the number of labels."""
        rows = np.array(plain_array(self.rows, "missing.rows"))
        if rows.ndim != 1 or rows.dtype.kind != "b":
            raise ValueError(f"missing.rows must be one bool a row, got {rows.dtype} of shape {rows.shape}")
        if self.cells_are not in ("missing", "observed"):
            raise ValueError(f"missing.cells_are must be 'missing' or 'observed', got {self.cells_are!r}")
        object.__setattr__(self, "rows", frozen_array(rows))
        object.__setattr__(self, "cells", checked_cells(self.cells))


def checked_cells(cells: Any) -> Cells:
    """Return a pair of int64 arrays of one length, or raise ValueError."""
    if len(cells) != 2:
        raise ValueError(f"missing.cells must be a pair (rows, labels), got {len(cells)} arrays")
    row, label = (np.array(plain_array(part, "missing.cells")) for part in cells)
    if row.ndim != 1 or row.shape != label.shape:
        raise ValueError(f"missing.cells must have one length, got shapes {row.shape} and {label.shape}")
    if row.size and (row.dtype.kind not in "iu" or label.dtype.kind not in "iu"):
        raise ValueError(f"missing.cells must be integers, got {row.dtype} and {label.dtype}")
    return frozen_array(row.astype(np.int64)), frozen_array(label.astype(np.int64))


def missing_from_cells(row: Any, label: Any, shape: tuple[int, int]) -> Missing | None:
    """Build `Missing` from a list of unobserved cells of an (n, l) table; None where the list is empty."""
    flags = np.zeros(shape[0], dtype=bool)
    return canonical_missing(Missing(flags, (np.asarray(row), np.asarray(label)), "missing"), shape)


def missing_from_observed(observed: Any) -> Missing | None:
    """Build `Missing` from a dense bool (n, l) mask of the observed cells."""
    mask = plain_array(observed, "observed")
    if mask.ndim != 2 or mask.dtype.kind != "b":
        raise ValueError(
            f"observed must be a bool mask (rows, labels), got {mask.dtype} of shape {mask.shape}"
        )
    row, label = np.nonzero(~mask)
    return missing_from_cells(row, label, (mask.shape[0], mask.shape[1]))


def canonical_missing(missing: Missing, shape: tuple[int, int]) -> Missing | None:
    """Return the one stored form of ``missing`` for an (n, l) table; None where every cell is observed.

    Rows whose cells are all unobserved become flags, rows whose cells are all observed leave the list,
    the shorter of the two lists is kept, sorted by row and label.
    """
    check_range(missing, shape)
    row, label = missing.cells
    counts = np.bincount(row, minlength=shape[0])
    full = counts == shape[1]
    flags = missing.rows | full if missing.cells_are == "missing" else missing.rows
    keep = ~full[row]
    row, label = row[keep], label[keep]
    order = np.lexsort((label, row))
    row, label = row[order], label[order]
    kind = missing.cells_are
    others = np.count_nonzero(counts * ~full) * shape[1] - len(row)
    if others < len(row) or (others == len(row) and kind == "observed"):
        row, label = complement((row, label), shape[1])
        kind = "observed" if kind == "missing" else "missing"
    if not flags.any() and not len(row):
        return None
    return Missing(flags, (row, label), kind if len(row) else "missing")


def check_range(missing: Missing, shape: tuple[int, int]) -> None:
    """Raise ValueError for a wrong length, cells outside the table or repeated, or cells of flagged rows."""
    n, num_labels = shape
    row, label = missing.cells
    if len(missing.rows) != n:
        raise ValueError(f"missing.rows has length {len(missing.rows)}, but Y has {n} rows")
    outside = (row < 0) | (row >= n) | (label < 0) | (label >= num_labels)
    if outside.any():
        texts = [f"({r}, {c})" for r, c in zip(row[outside].tolist(), label[outside].tolist(), strict=True)]
        raise ValueError(f"missing.cells outside the table of shape {shape}: {listed(texts)}")
    keys, times = np.unique(row * num_labels + label, return_counts=True)
    if (times > 1).any():
        texts = [f"({k // num_labels}, {k % num_labels})" for k in keys[times > 1].tolist()]
        raise ValueError(f"missing.cells holds a cell twice: {listed(texts)}")
    both = np.unique(row[missing.rows[row]])
    if both.size:
        text = listed(both.astype(str).tolist())
        raise ValueError(f"rows flagged as wholly unlabelled also stand in missing.cells: {text}")


def complement(cells: Cells, num_labels: int) -> Cells:
    """List the other cells of the rows that ``cells`` (sorted by row) names, a block of rows at a time."""
    row, label = cells
    partial, start = np.unique(row, return_index=True)
    ends = np.append(start, len(row))
    step = max(1, CHUNK_CELLS // num_labels)
    rows_out, labels_out = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for first in range(0, len(partial), step):
        block = partial[first : first + step]
        part = slice(ends[first], ends[first + len(block)])
        other = np.ones((len(block), num_labels), dtype=bool)
        other[np.searchsorted(block, row[part]), label[part]] = False
        at, columns = np.nonzero(other)
        rows_out.append(block[at])
        labels_out.append(columns)
    return np.concatenate(rows_out), np.concatenate(labels_out)


def refuse_positive_missing(missing: Missing, Y: csr_array, label_names: Any) -> None:
    """Raise ValueError where a cell is both positive in ``Y`` and unobserved."""
    row = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    label = Y.indices.astype(np.int64)
    keys = row * Y.shape[1] + label
    inside = np.isin(keys, missing.cells[0] * Y.shape[1] + missing.cells[1])
    if missing.cells_are == "observed":
        partial = np.zeros(Y.shape[0], dtype=bool)
        partial[missing.cells[0]] = True
        inside = partial[row] & ~inside
    bad = inside | missing.rows[row]
    if bad.any():
        cells = cells_listed(row[bad], label[bad], Y.data[bad], "label", name_lookup(label_names, "label"))
        raise ValueError(f"Y is positive where the label is marked as unobserved: {cells}")


def select_missing(
    missing: Missing, rows: NDArray[Any], labels: NDArray[Any], num_labels: int
) -> Missing | None:
    """Return ``missing`` for the selected rows (repeats allowed) and distinct labels of an (n, l) table."""
    shape = (len(rows), len(labels))
    row, label = missing.cells
    table = csr_array((np.ones(len(row), np.int8), (row, label)), shape=(len(missing.rows), num_labels))
    chosen = table[rows][:, labels].tocoo()
    flags = missing.rows[rows]
    if missing.cells_are == "observed":
        # A partly labelled row that loses its last observed cell is listed nowhere: it needs its flag.
        was_partial = np.diff(table.indptr)[rows] > 0
        flags = flags | (was_partial & (np.bincount(chosen.row, minlength=shape[0]) == 0))
    return canonical_missing(Missing(flags, (chosen.row, chosen.col), missing.cells_are), shape)
