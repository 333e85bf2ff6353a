"""What a run of active learning is constructed from and resumed from: read, checked and named in errors."""

from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from labelzoo.arguments import whole_number
from labelzoo.inference.sparse_bayes.terms import read_matrix

Array = Any


class State(NamedTuple):
    """What a run is resumed from, beside what it was constructed from.

    Attributes
    ----------
    asked : int (query,)
        Pool rows in the order in which they were told.
    labels : int8 (query, labels)
    theta : (target, 5)
    age : int
        Queries since the last search.
    variance : (pool, target)
    digest : str
        Of features, labels, settings, compression, period and the search's name: what the run was
        constructed from.
    """

    asked: Array
    labels: Array
    theta: Array
    age: Array
    variance: Array
    digest: Array


def read_state(path: Any) -> State:
    """Return the state that `ActiveTargets.save` wrote.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        Naming the file that holds no such state, or not all of it.
    """
    content = Path(path).read_bytes()
    try:
        with np.load(BytesIO(content), allow_pickle=False) as held:
            return State(*(held[name] for name in State._fields))
    # Broken archives fail in many ways, from zlib's own error to a header that asks for too much memory.
    except Exception as error:
        raise ValueError(f"{path} is not a whole file that ActiveTargets.save wrote ({error})") from error


def checked_state(state: Any, digest: str, shape: tuple[int, int], period: int) -> State:
    """Return copies of all fields, asked as a tuple, those checked that hang on no target.

    Parameters
    ----------
    state : State
    digest : str
        Of the run that goes on.
    shape : (int, int)
        Rows of its pool, labels.
    period : int
        The age is at most this.

    Raises
    ------
    ValueError
        Naming the field.
    """
    if not isinstance(state, State):
        raise ValueError(f"state must be a State, got {type(state).__name__}")
    if str(state.digest) != digest:
        raise ValueError(
            "state.digest is of a run constructed from other features, labels or settings (compression, "
            "search and period are among them)"
        )
    asked = np.asarray(state.asked)
    if asked.ndim != 1 or (asked.size and asked.dtype.kind not in "iu"):
        raise ValueError(f"state.asked must be integers (query,), got {asked.dtype} {asked.shape}")
    outside = asked[(asked < 0) | (asked >= shape[0])] if asked.size else asked
    if outside.size:
        raise ValueError(f"state.asked has row {outside[0]}: the pool has rows 0 to {shape[0] - 1}")
    if len(np.unique(asked)) < len(asked):
        raise ValueError("state.asked names a row more than once")
    labels = read_labels(state.labels, len(asked), shape[1], name="state.labels")
    age = np.asarray(state.age)
    whole = age.item() if age.ndim == 0 else state.age
    return State(
        tuple(asked.tolist()),
        labels,
        _positive(state.theta, "state.theta", 5),
        whole_number("state.age", whole, 0, period),
        _positive(state.variance, "state.variance"),
        np.asarray(digest),
    )


def check_targets(state: State, targets: int, pool: int) -> None:
    """Refuse theta or variances of another number of targets or pool rows; ValueError naming the field."""
    for name, wanted in (("theta", (targets, 5)), ("variance", (pool, targets))):
        found = getattr(state, name).shape
        if found != wanted:
            raise ValueError(f"state.{name} must have shape {wanted}, got {found}")


def _positive(value: Any, name: str, width: int | None = None) -> Array:
    try:
        table = np.array(read_matrix(value, name, width))
    except (TypeError, ValueError) as error:
        # NumPy does not say whose numbers they are.
        raise error if name in str(error) else ValueError(f"{name}: {error}") from error
    bad = np.argwhere(table <= 0)
    if bad.size:
        row, column = bad[0]
        raise ValueError(f"{name} has {table[row, column]} at row {row}, column {column}: must be above 0")
    return table


def read_features(value: Any, name: str, width: int | None = None) -> Array:
    """Return a copy of mapped features (row, feature), dense and finite.

    Raises
    ------
    ValueError
        Naming the argument; with its row where a number is not finite or the squares of twice the row cannot
        be held (then no squared distance overflows).
    """
    _refuse_sparse(value, name)
    X = np.array(read_matrix(value, name, width))
    with np.errstate(over="ignore"):
        far = np.flatnonzero(~np.isfinite(((2.0 * X) ** 2).sum(axis=1)))
    if len(far):
        raise ValueError(f"{name}: row {far[0]} is too far from zero: its squares cannot be held")
    return X


def read_labels(Y: Any, rows: int, labels: int | None = None, *, name: str = "labels") -> Array:
    """Return labels (row, labels), int8; ValueError naming the shape, or the cell that is not 0 or 1."""
    _refuse_sparse(Y, name)
    given = np.asarray(Y)
    if given.ndim != 2 or len(given) != rows or given.shape[1] != (labels or given.shape[1]):
        wanted = "labels" if labels is None else labels
        raise ValueError(f"{name} must have shape ({rows}, {wanted}), got {given.shape}")
    if given.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be 0 or 1, got numbers of type {given.dtype}")
    bad = np.argwhere((given != 0) & (given != 1))
    if bad.size:
        row, label = bad[0]
        raise ValueError(f"{name} has {given[row, label]} at row {row}, label {label}: it must be 0 or 1")
    return given.astype(np.int8)


def read_row(labels: Any, count: int) -> Array:
    """Return the labels of one row (labels,) as (1, labels), int8; ValueError as `read_labels`."""
    _refuse_sparse(labels, "labels")
    return read_labels(np.asarray(labels)[None], 1, count)


def _refuse_sparse(value: Any, name: str) -> None:
    if sparse.issparse(value):
        raise ValueError(f"{name} must be dense, got {type(value).__name__}: pass {name}.toarray()")


def digest_of(tables: Any, settings: Mapping[str, Any]) -> str:
    """Return a digest of arrays, in their order, and of what was chosen by name."""
    hashed = sha256(repr(sorted(settings.items())).encode())
    for table in tables:
        hashed.update(repr(table.shape).encode())
        hashed.update(np.ascontiguousarray(table).tobytes())
    return hashed.hexdigest()


def name_of(search: Any) -> str:
    """Return what a search is called; of a partial its function's name and what is held fast."""
    if isinstance(search, partial):
        fixed = ", ".join(
            [*map(repr, search.args), *(f"{k}={v!r}" for k, v in sorted(search.keywords.items()))]
        )
        return f"{name_of(search.func)}({fixed})"
    return search if isinstance(search, str) else getattr(search, "__name__", type(search).__name__)
