"""Checks shared by the constructors of label data: names, positions and one-line error messages."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

LONG = 80  # characters of a value that an error shows
SHOWN = 5  # an error names at most this many offenders


def has_masked(value: Any) -> bool:
    """Return whether cells of a masked array, or of a list that holds masked arrays or cells, are masked."""
    if isinstance(value, np.ma.MaskedArray):
        return bool(np.ma.getmaskarray(value).any())
    if isinstance(value, np.ndarray) and value.dtype.kind == "O":
        return any(isinstance(cell, np.ma.MaskedArray) and has_masked(cell) for cell in value.flat)
    return isinstance(value, (list, tuple)) and any(map(has_masked, value))


def plain_array(value: Any, name: str) -> NDArray[Any]:
    """Return ``np.asarray(value)``; ValueError where that would drop a mask, and for ragged lists."""
    if has_masked(value):
        raise ValueError(f"{name} has masked cells, which mean nothing here: fill them first")
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name} is no array of one shape: {error}") from error


def listed(items: Sequence[str], total: int | None = None) -> str:
    """Join the first few ``items`` on one line and say how many of ``total`` are left out."""
    total = len(items) if total is None else total
    shown = [" ".join(str(item).split("\n")) for item in items[:SHOWN]]
    more = f" and {total - len(shown)} more" if total > len(shown) else ""
    return "; ".join(shown) + more


def cells_listed(
    rows: NDArray[Any],
    columns: NDArray[Any],
    values: Iterable[Any],
    kind: str,
    name_of: Callable[[int], str],
) -> str:
    """Name the first few cells: ``row 3, label 'rain': 2.0; ...``."""
    triples = zip(rows[:SHOWN].tolist(), columns[:SHOWN].tolist(), values, strict=False)
    texts = [f"row {r}, {kind} {name_of(c)!r}: {shown_value(v)}" for r, c, v in triples]
    return listed(texts, len(rows))


def shown_value(value: Any) -> str:
    """Represent one offending value without NumPy's type prefix, and not at length."""
    try:
        text = repr(value.item() if isinstance(value, np.generic) else value)
    except ValueError:  # Python writes no integer of over 4300 digits
        text = f"an integer of {value.bit_length()} bits"
    return text if len(text) <= LONG else f"{text[:LONG]}..."


def name_lookup(names: Any, prefix: str) -> Callable[[int], str]:
    """Return a function from a position to its name, or to ``'prefix i'`` where the names cannot be used."""
    usable = isinstance(names, (list, tuple)) or getattr(names, "ndim", None) == 1

    def name_of(position: int) -> str:
        return str(names[position]) if usable and position < len(names) else f"{prefix} {position}"

    return name_of


def checked_names(names: Any, count: int, argument: str, dim: str, prefix: str) -> tuple[str, ...]:
    """Return ``names`` as a tuple of ``count`` strings, or the defaults ``'prefix i'`` where None or empty.

    Raises
    ------
    ValueError
        Where the names are not a one-dimensional list of strings, or their number is not ``count``;
        the message names the dim and both lengths.
    """
    if names is None or (isinstance(names, tuple) and not names):
        return tuple(f"{prefix} {i}" for i in range(count))
    ndim = getattr(names, "ndim", 1)
    if ndim != 1 or isinstance(names, (str, bytes, set, dict)) or not isinstance(names, Iterable):
        given = f"shape {names.shape}" if ndim != 1 else f"{type(names).__name__} {names!r}"
        raise ValueError(f"{argument} must be one-dimensional, a list of strings; got {given}")
    found = list(names)
    wrong = [f"{argument}[{i}] = {shown_value(v)}" for i, v in enumerate(found) if not isinstance(v, str)]
    if wrong:
        raise ValueError(f"{argument} must hold strings only: {listed(wrong)}")
    if len(found) != count:
        raise ValueError(f"{argument} has {len(found)} names, but dim {dim!r} has length {count}")
    return tuple(str(name) for name in found)


def refuse_duplicates(names: Sequence[str], argument: str) -> None:
    """Raise ValueError listing every name that occurs twice, with its columns."""
    repeated = {name for name, times in Counter(names).items() if times > 1}
    if not repeated:
        return
    places: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        if name in repeated:
            places.setdefault(name, []).append(i)
    texts = [f"{name!r} in columns {', '.join(map(str, at[:SHOWN]))}" for name, at in places.items()]
    raise ValueError(f"{argument} has duplicate names: {listed(texts)}")


def checked_index(index: Any, count: int, argument: str) -> NDArray[np.int64]:
    """Return ``index`` as distinct int64 row numbers within ``range(count)``, or raise ValueError."""
    array = plain_array(index, argument)
    if array.ndim != 1:
        raise ValueError(f"{argument} must be one-dimensional, got shape {array.shape}")
    if array.size == 0:
        raise ValueError(f"{argument} is empty")
    if array.dtype.kind not in "iu":
        raise ValueError(f"{argument} must hold row numbers (integers), got dtype {array.dtype}")
    outside = array[(array < 0) | (array >= count)]
    if outside.size:
        raise ValueError(
            f"{argument} has rows outside 0..{count - 1}: {listed(outside.astype(str).tolist())}"
        )
    values, times = np.unique(array, return_counts=True)
    if (times > 1).any():
        raise ValueError(f"{argument} holds a row twice: {listed(values[times > 1].astype(str).tolist())}")
    return frozen_array(array.astype(np.int64))


def checked_split(
    train: Any, test: Any, count: int
) -> tuple[NDArray[np.int64] | None, NDArray[np.int64] | None]:
    """Return a published split as two disjoint index arrays, or (None, None) where none is given."""
    if train is None and test is None:
        return None, None
    if train is None or test is None:
        raise ValueError("train_index and test_index go together: one of them is missing")
    train, test = checked_index(train, count, "train_index"), checked_index(test, count, "test_index")
    shared = np.intersect1d(train, test)
    if shared.size:
        rows = listed(shared.astype(str).tolist())
        raise ValueError(f"train_index and test_index overlap in {shared.size} rows: {rows}")
    return train, test


def positions(selector: Any, names: Sequence[str], argument: str) -> NDArray[np.int64]:
    """Turn positions, a boolean mask, a slice or names into int64 positions along one dim.

    Parameters
    ----------
    selector : None (all), int, str, slice, or a sequence of int, bool or str
    names : the names along the dim
    argument : word for the messages, such as ``"rows"``
    """
    count = len(names)
    if selector is None or isinstance(selector, slice):
        return np.arange(count)[selector if selector is not None else slice(None)]
    array = np.atleast_1d(plain_array(selector, argument))
    if array.ndim != 1:
        raise ValueError(f"{argument} must be one-dimensional, got shape {array.shape}")
    if array.size == 0:
        return np.zeros(0, dtype=np.int64)
    if array.dtype.kind == "b":
        if len(array) != count:
            raise ValueError(f"{argument} mask has length {len(array)}, expected {count}")
        return np.flatnonzero(array)
    if array.dtype.kind in "iu":
        outside = array[(array < -count) | (array >= count)]
        if outside.size:
            text = listed(outside.astype(str).tolist())
            raise ValueError(f"{argument} has positions outside 0..{count - 1}: {text}")
        return np.asarray(np.where(array < 0, array + count, array), dtype=np.int64)
    return named_positions(array.tolist(), names, argument)


def named_positions(wanted: list[Any], names: Sequence[str], argument: str) -> NDArray[np.int64]:
    """Look names up; names that are absent or stand for several positions raise ValueError."""
    where: dict[str, int] = {}
    repeated: set[str] = set()
    for i, name in enumerate(names):
        if name in where:
            repeated.add(name)
        where[name] = i
    unknown = [repr(w) for w in wanted if not isinstance(w, str) or w not in where]
    if unknown:
        raise ValueError(f"{argument} has unknown names: {listed(unknown)}")
    unclear = [repr(w) for w in wanted if w in repeated]
    if unclear:
        raise ValueError(f"{argument} has names that stand for several positions: {listed(unclear)}")
    return np.array([where[w] for w in wanted], dtype=np.int64)


def frozen_array(array: NDArray[Any]) -> NDArray[Any]:
    """Make ``array`` read-only in place and return it."""
    array.flags.writeable = False
    return array
