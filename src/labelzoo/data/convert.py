"""From whatever the user holds (lists, arrays, sparse matrices, data frames) to the two stored arrays."""

import datetime
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelzoo.data.missing import Missing, missing_from_cells
from labelzoo.data.plain import checked_sparse, filled_rows
from labelzoo.data.validate import cells_listed, frozen_array, listed, name_lookup

ACCEPTED = "a NumPy or JAX array, a list of rows, a SciPy sparse matrix or array, or a pandas DataFrame"


OURS: WeakValueDictionary[int, NDArray[Any]] = WeakValueDictionary()
"""Dense features made here, by id: nobody else holds them writeable, so tables may share them."""

REAL = (bool, int, float, np.bool_, np.integer, np.floating)


def is_frame(value: Any) -> bool:
    """Return True for a pandas DataFrame, without importing pandas."""
    return all(hasattr(value, name) for name in ("columns", "index", "dtypes", "to_numpy"))


def frame_columns(frame: Any) -> list[str] | None:
    """Return the column names as strings; None where the columns are just numbered 0, 1, ... in order."""
    return index_names(frame.columns)


def frame_rows(frame: Any) -> list[str] | None:
    """Return the row names as strings; None where the rows are just numbered 0, 1, ... in order."""
    return index_names(frame.index)


def index_names(index: Any) -> list[str] | None:
    """Return the names of a pandas index; None for a RangeIndex 0, 1, ... (one that is reversed is named)."""
    if type(index).__name__ == "RangeIndex" and (len(index) == 0 or (index.start, index.step) == (0, 1)):
        return None
    return [str(name) for name in index]


def holds_dates(column: Any) -> bool:
    """Return whether a pandas column holds dates, times, time spans or periods."""
    if column.dtype.kind in "mM" or str(column.dtype).startswith("period"):
        return True
    if column.dtype.kind != "O" or hasattr(column.dtype, "fill_value"):
        return False
    first = next((cell for cell in column.tolist() if not is_missing(cell) and cell == cell), None)
    return isinstance(first, (datetime.date, datetime.time, datetime.timedelta))


def refuse_dates(frame: Any, argument: str) -> None:
    """Raise ValueError naming the columns of a frame that hold dates."""
    positions = range(frame.shape[1])
    dates = [repr(str(frame.columns[i])) for i in positions if holds_dates(frame.iloc[:, i])]
    if dates:
        raise ValueError(
            f"{argument} has columns of dates: {listed(dates)}; drop them or make numbers of them"
        )


def frame_array(frame: Any) -> Any:
    """Return the values of a frame: sparse columns stay sparse, numbers become float64, the rest object."""
    dtypes = list(frame.dtypes)
    if dtypes and all(hasattr(d, "fill_value") for d in dtypes) and all(d.fill_value == 0 for d in dtypes):
        return frame.sparse.to_coo()
    if all(d.kind in "biuf" for d in dtypes):
        return frame.to_numpy(dtype=np.float64, na_value=np.nan)
    return frame.to_numpy(dtype=object)


def as_array(value: Any, argument: str, columns: str) -> Any:
    """Return a two-dimensional ndarray or SciPy sparse array, or raise ValueError saying what was given."""
    if is_frame(value):
        refuse_dates(value, argument)
        value = frame_array(value)
    value = checked_sparse(value, argument) if sparse.issparse(value) else dense_array(value, argument)
    if value.ndim != 2:
        hint = "; one class a row goes to LabelData.from_classes(X, y)" if argument == "Y" else ""
        raise ValueError(
            f"{argument} must be two-dimensional (rows, {columns}), got shape {value.shape}"
            f"{hint if value.ndim == 1 else ''}"
        )
    if value.dtype.kind == "c":
        raise ValueError(f"{argument} has complex dtype {value.dtype}: give real numbers")
    if value.shape[0] == 0:
        raise ValueError(f"{argument} has no rows: shape {tuple(value.shape)}")
    return value


def dense_array(value: Any, argument: str) -> NDArray[Any]:
    """Return an ndarray; masked entries become NaN; ragged lists and unknown types are refused."""
    if isinstance(value, (list, tuple)):
        if any(sparse.issparse(row) for row in value):
            raise ValueError(f"{argument} is a list of sparse rows: stack them, scipy.sparse.vstack(rows)")
        lengths = [len(row) if hasattr(row, "__len__") and not isinstance(row, str) else -1 for row in value]
        other = [i for i, length in enumerate(lengths) if length != lengths[0]]
        if other:
            texts = [f"row {i} has {lengths[i]}" for i in other]
            raise ValueError(
                f"{argument} has rows of different lengths: row 0 has {lengths[0]}; {listed(texts)}"
            )
    elif not hasattr(value, "__array__"):
        raise ValueError(f"{argument} has type {type(value).__name__}: give {ACCEPTED}")
    return np.asarray(filled_rows(value))


def as_numbers(values: NDArray[Any], argument: str, kind: str, names: Any) -> NDArray[Any]:
    """Return numbers or booleans; None and pandas' NA become NaN, text raises ValueError with its cells."""
    if values.dtype.kind in "biuf":
        return values
    if values.dtype.kind in "mM":
        raise ValueError(f"{argument} has dtype {values.dtype}: give numbers")
    flat = values.ravel().tolist()
    bad = [i for i, v in enumerate(flat) if not is_missing(v) and real(v) is None]
    if bad:
        rows, columns = np.unravel_index(np.array(bad), values.shape)
        text = cells_listed(rows, columns, (flat[i] for i in bad), kind, name_lookup(names, kind))
        hint = "numbers; encode text columns first"
        if argument == "Y":
            hint = "0, 1 or NaN; from_frame reads text and categories that say 0, 1, true or false"
        raise ValueError(f"{argument} has values that are not numbers ({hint}): {text}")
    numbers = [np.nan if is_missing(v) else real(v) for v in flat]
    return np.array(numbers, dtype=np.float64).reshape(values.shape)


def real(value: Any) -> float | None:
    """Return a number as float; None for anything else and for an integer too large for a float."""
    if not isinstance(value, REAL):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def is_missing(value: Any) -> bool:
    """Return True for None, pandas' NA and NaT, and a masked cell."""
    return value is None or value is np.ma.masked or type(value).__name__ in ("NAType", "NaTType")


def as_features(X: Any, names: Any = None, allow_missing: bool = False) -> Any:
    """Return ``X`` as a read-only float64 ndarray (n, d) or csr_array, never densified.

    Raises
    ------
    ValueError
        For a wrong number of dims, text, complex numbers, infinite values, and NaN unless ``allow_missing``.
    """
    array = as_array(X, "X", "features")
    if sparse.issparse(array):
        if array.dtype.kind not in "biuf":
            raise ValueError(f"X has dtype {array.dtype}: give real numbers")
        result = sparse.csr_array(array.astype(np.float64), copy=True)
        result.sum_duplicates()
        result.eliminate_zeros()
        refuse_non_finite(result.data, result, names, allow_missing)
        return frozen_csr(result)
    ours = made_here(array) and not array.flags.writeable
    numbers = array if ours else np.array(as_numbers(array, "X", "feature", names), np.float64, order="C")
    refuse_non_finite(numbers, None, names, allow_missing)
    OURS[id(numbers)] = frozen_array(numbers)
    return numbers


def made_here(array: Any) -> bool:
    """Return whether the very array is one that `as_features` made."""
    return OURS.get(id(array)) is array


def refuse_non_finite(values: NDArray[Any], csr: Any, names: Any, allow_missing: bool) -> None:
    """Raise ValueError naming the rows and features of infinite values, then of NaN."""
    if np.isfinite(values).all():
        return
    for test, what in ((np.isinf, "infinite values"), (np.isnan, "missing values (NaN), impute first")):
        if allow_missing and test is np.isnan:
            continue
        at = np.nonzero(test(values))
        if not len(at[0]):
            continue
        rows, columns = at if csr is None else (row_numbers(csr)[at[0]], csr.indices[at[0]])
        text = cells_listed(rows, columns, values[at], "feature", name_lookup(names, "feature"))
        raise ValueError(f"X has {what}: {text}")


def as_labels(Y: Any, names: Any = None) -> tuple[sparse.csr_array, Missing | None]:
    """Return the positives of ``Y`` as int8 csr_array (n, l) and what is unobserved (NaN), never densified.

    Raises
    ------
    ValueError
        For values other than 0, 1 and NaN, text, complex numbers, a wrong number of dims, no rows or labels,
        and entries of a sparse ``Y`` that are stored twice; offending cells are named.
    """
    array = as_array(Y, "Y", "labels")
    if array.shape[1] == 0:
        raise ValueError(f"Y has no labels: shape {tuple(array.shape)}")
    if sparse.issparse(array):
        rows, columns, values = sparse_entries(array, names)
    else:
        numbers = as_numbers(array, "Y", "label", names)
        rows, columns = np.nonzero(numbers)  # NaN is not zero, so it is kept
        values = numbers[rows, columns]
    unknown = np.isnan(values)
    bad = ~unknown & (values != 1)
    if bad.any():
        text = cells_listed(rows[bad], columns[bad], values[bad], "label", name_lookup(names, "label"))
        raise ValueError(f"Y may hold 0, 1 or NaN (unobserved) only: {text}")
    missing = missing_from_cells(rows[unknown], columns[unknown], array.shape)
    return positives_csr(rows[~unknown], columns[~unknown], array.shape), missing


def sparse_entries(matrix: Any, names: Any) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return (row, column, value) of the stored entries but zeros; repeated entries are refused."""
    if matrix.dtype.kind not in "biuf":
        raise ValueError(f"Y has dtype {matrix.dtype}: give 0, 1 or NaN")
    coo = matrix.tocoo()
    rows, columns = coo.row.astype(np.int64), coo.col.astype(np.int64)
    keys, first, times = np.unique(rows * coo.shape[1] + columns, return_index=True, return_counts=True)
    again = first[times > 1]
    if len(again):
        text = cells_listed(
            rows[again],
            columns[again],
            (f"{t} entries" for t in times[times > 1]),
            "label",
            name_lookup(names, "label"),
        )
        raise ValueError(f"Y stores cells more than once: {text}")
    stored = coo.data != 0
    return rows[stored], columns[stored], coo.data[stored]


def positives_csr(rows: NDArray[Any], columns: NDArray[Any], shape: tuple[int, int]) -> sparse.csr_array:
    """Return an int8 csr_array of ones at the given distinct cells, with sorted indices, read-only."""
    ones = np.ones(len(rows), dtype=np.int8)
    result = sparse.csr_array((ones, (rows, columns)), shape=shape)
    result.sum_duplicates()
    return frozen_csr(result)


def row_numbers(csr: Any) -> NDArray[np.int64]:
    """Return the row of each stored entry of a csr_array, int64 (nnz,)."""
    return np.repeat(np.arange(csr.shape[0]), np.diff(csr.indptr))


def frozen_csr(csr: sparse.csr_array) -> sparse.csr_array:
    """Make the three arrays of a csr_array with sorted indices read-only and return it."""
    for part in (csr.data, csr.indices, csr.indptr):
        frozen_array(part)
    return csr
