"""What a file may declare: counts that nothing in it backs meet a limit before they cost memory."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from labelzoo.data.validate import listed

if TYPE_CHECKING:
    from labelzoo.data.labeldata import LabelData

FREE_COLUMNS = 1_000_000
"""Features or labels that a file may declare without naming them, however few entries it holds."""

COLUMNS_PER_ENTRY = 10
"""Beyond `FREE_COLUMNS`, declared columns for each stored entry."""


def refuse_unbacked(count: int, entries: int, what: str) -> None:
    """Raise ValueError where ``count`` columns are declared that neither names nor entries back.

    Every column gets a name, so a header that says 10^12 labels would otherwise exhaust the memory.
    """
    cap = max(FREE_COLUMNS, COLUMNS_PER_ENTRY * entries)
    if count > cap:
        raise ValueError(
            f"declares {count} {what}, but holds {entries} entries and no names: at most {cap} are accepted"
        )


def whole_array(array: Any, name: str) -> NDArray[np.int64]:
    """Return ``array`` as int64 (m,), or raise ValueError naming it: only integers of one dim are taken."""
    values = np.asarray(array)
    if values.ndim != 1 or (values.size and values.dtype.kind not in "iu"):
        raise ValueError(f"{name} must hold integers in one row, got {values.dtype} of shape {values.shape}")
    if values.dtype.kind == "u" and values.size and int(values.max()) > np.iinfo(np.int64).max:
        raise ValueError(f"{name} holds {int(values.max())}, which is no position")
    return values.astype(np.int64)


def checked_shape(shape: Any, name: str) -> tuple[int, int]:
    """Return a stored shape as (rows, columns), or raise ValueError."""
    values = whole_array(shape, name)
    if len(values) != 2 or (values < 0).any():
        raise ValueError(f"{name} must be two sizes (rows, columns), got {values.tolist()[:5]}")
    return int(values[0]), int(values[1])


def check_stored_csr(
    indices: NDArray[np.int64],
    indptr: NDArray[np.int64],
    num_values: int,
    shape: tuple[int, int],
    names: Sequence[str] | NDArray[Any] | None,
    key: str,
) -> None:
    """Check the parts of a stored CSR table against each other before a table is built of them.

    Parameters
    ----------
    indices : int64 (nnz,)
    indptr : int64 (rows + 1,)
    num_values : int
        Length of the stored values.
    shape : (rows, columns)
    names : names of the columns, or None
    key : ``"X"`` or ``"Y"``, for the messages

    Raises
    ------
    ValueError
        With one line that names the array at fault.
    """
    rows, columns = shape
    if len(indptr) != rows + 1:
        raise ValueError(f"{key}_shape declares {rows} rows, but {key}_indptr has {len(indptr)} entries")
    if len(indices) != num_values:
        raise ValueError(f"{key}_indices has {len(indices)} entries, but {key}_data has {num_values}")
    if indptr[0] != 0 or indptr[-1] != len(indices) or (np.diff(indptr) < 0).any():
        raise ValueError(f"{key}_indptr must rise from 0 to the {len(indices)} entries of {key}_indices")
    outside = np.flatnonzero((indices < 0) | (indices >= columns))
    if len(outside):
        texts = [f"{key}_indices[{i}] = {indices[i]}" for i in outside[:6].tolist()]
        raise ValueError(f"columns outside 0..{columns - 1}: {listed(texts, len(outside))}")
    what = "features" if key == "X" else "labels"
    if names is None:
        refuse_unbacked(columns, len(indices), what)
    elif len(names) != columns:
        raise ValueError(f"{key}_shape declares {columns} {what}, but {len(names)} names are stored")


def refuse_unwritable(data: "LabelData") -> None:
    """Raise ValueError for names that files lose: with a zero character, or half a surrogate pair."""
    bad = [
        f"{key}[{i}] = {name!r}"
        for key in ("feature_names", "label_names", "example_names")
        for i, name in enumerate(getattr(data, key))
        if "\0" in name or not codable(name)
    ]
    if bad:
        raise ValueError(
            f"names that no file holds (a zero character or half a surrogate pair): {listed(bad)}"
        )


def codable(name: str) -> bool:
    """Return whether UTF-8 can hold the name."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
