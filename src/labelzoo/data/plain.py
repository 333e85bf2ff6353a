"""Tables that are what they seem: masked cells become NaN, sparse tables point inside themselves."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelzoo.data.validate import has_masked, listed


def filled_rows(value: Any) -> Any:
    """Return a list of rows with masked cells as NaN; anything else as it is."""
    if isinstance(value, np.ma.MaskedArray):
        numbers = value.dtype.kind in "biuf"
        return np.ma.filled(value.astype(np.float64 if numbers else object), np.nan)
    if isinstance(value, (list, tuple)) and has_masked(value):
        return [filled_rows(row) for row in value]
    return value


def checked_sparse(matrix: Any, name: str) -> Any:
    """Return a sparse matrix whose stored positions lie inside it.

    SciPy's compiled code trusts them and would read and write elsewhere. The user's arrays are left alone.

    Raises
    ------
    ValueError
        Naming the first positions that are outside, or the index arrays that do not fit together.
    """
    if len(matrix.shape) != 2:  # refused by its shape elsewhere
        return matrix
    if matrix.format not in ("csr", "csc", "bsr", "coo"):
        checked_sparse(matrix.tocoo(), name)
        return matrix
    if matrix.format == "coo":
        for axis, (at, size, kind) in enumerate(
            zip((matrix.row, matrix.col), matrix.shape, ("row", "column"), strict=True)
        ):
            if len(at) != len(matrix.data):
                raise ValueError(f"{name} is no valid sparse matrix: {len(at)} coordinates on axis {axis}")
            refuse_outside(at, size, kind, name)
        return matrix
    height, width = matrix.blocksize if matrix.format == "bsr" else (1, 1)
    rows, columns = matrix.shape[0] // height, matrix.shape[1] // width
    major, minor, kind = (columns, rows, "row") if matrix.format == "csc" else (rows, columns, "column")
    ends, stored = matrix.indptr, min(len(matrix.indices), len(matrix.data))
    if len(ends) != major + 1 or ends[0] != 0 or (np.diff(ends) < 0).any() or ends[-1] > stored:
        raise ValueError(f"{name} is no valid sparse matrix: indptr must rise from 0 to the {stored} entries")
    refuse_outside(matrix.indices[: ends[-1]], minor, kind, name)
    return matrix


def refuse_outside(at: NDArray[Any], size: int, kind: str, name: str) -> None:
    """Raise ValueError for positions outside 0..size - 1."""
    bad = np.flatnonzero((at < 0) | (at >= size))
    if bad.size:
        texts = [f"entry {i}: {kind} {at[i]}" for i in bad[:6].tolist()]
        raise ValueError(
            f"{name} is no valid sparse matrix: {kind}s outside 0..{size - 1}: {listed(texts, bad.size)}"
        )
