"""Whether the fields of a problem fit together: one clear line that names the field, before any work."""

from typing import Any

import numpy as np
from scipy import sparse

from labelzoo.acquisition.draws import RowBlocks

Array = Any

LARGEST = 1e100
"""Features beyond this cannot be squared and summed."""

AXES: dict[str, tuple[str, ...]] = {
    "X_pool": ("pool rows", "features"),
    "mean_probs": ("pool rows", "labels"),
    "probs": ("draws", "pool rows", "labels"),
    "asked": ("pool rows", "labels"),
    "X_labelled": ("labelled rows", "features"),
    "Y_labelled": ("labelled rows", "labels"),
    "labelled_probs": ("labelled rows", "labels"),
    "X_targets": ("targets", "features"),
    "target_probs": ("draws", "targets", "labels"),
}
"""What the axes of a field are; axes of one name have one size."""


def check_problem(fields: dict[str, Any], seed: Any) -> None:
    """Refuse fields that do not fit together.

    Parameters
    ----------
    fields : dict
        Fields of a `labelzoo.acquisition.problem.Problem` that are arrays, not those made later.
    seed : int

    Raises
    ------
    ValueError
        Naming the field, and where numbers are bad the row and column.
    """
    check_seed(seed)
    sizes: dict[str, tuple[int, str]] = {}
    for name, axes in AXES.items():
        value = fields.get(name)
        if value is None:
            continue
        shape = _shape(name, value, axes)
        for axis, size in zip(axes, shape, strict=True):
            first = sizes.setdefault(axis, (size, name))
            if first[0] != size:
                raise ValueError(f"{name} has {size} {axis}, {first[1]} has {first[0]}")
    for axis in ("features", "labels", "targets", "draws"):
        if axis in sizes and sizes[axis][0] == 0:
            raise ValueError(f"{sizes[axis][1]} has no {axis}")
    for name in ("X_pool", "X_labelled", "X_targets"):
        check_size_of_features(fields.get(name), name)
    if fields.get("weights") is not None:
        axis = "targets" if "targets" in sizes else "pool rows"
        check_target_weights(fields["weights"], sizes[axis][0] if axis in sizes else None, axis)
    kernel = fields.get("kernel")
    if kernel is not None and not all(hasattr(kernel, name) for name in ("between", "diagonal")):
        raise ValueError(f"kernel must have between(A, B) and diagonal(A), got {kernel!r}")


def check_seed(seed: Any) -> int:
    """Return a seed, or raise ValueError where it is no integer of at least 0."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed must be an integer of at least 0, got {seed!r}")
    return int(seed)


def check_target_weights(weights: Array, size: int | None, axis: str) -> None:
    """Refuse weights that are not one finite number of at least 0 each, not all 0."""
    try:
        values = np.asarray(weights, float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"weights must be numbers, got {weights!r}") from error
    if values.ndim != 1 or (size is not None and len(values) != size):
        raise ValueError(f"weights must be one number for each of {size} {axis}, got shape {values.shape}")
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(bad):
        raise ValueError(f"weights must be finite and at least 0: weights[{bad[0]}] is {values[bad[0]]}")
    if len(values) and not values.any():
        raise ValueError("weights are all 0: no target matters")


def check_size_of_features(X: Array | None, name: str) -> None:
    """Refuse features that cannot be squared, naming row and column."""
    if X is None:
        return
    values = X.data if sparse.issparse(X) else np.asarray(X, float)
    if values.size == 0 or not (np.abs(values) > LARGEST).any():
        return
    table = sparse.coo_array(X) if sparse.issparse(X) else None
    at = np.argwhere(np.abs(values if table is None else table.data) > LARGEST)[0]
    row, column = at if table is None else (table.row[at[0]], table.col[at[0]])
    number = np.asarray(X)[row, column] if table is None else table.data[at[0]]
    if np.isfinite(number):
        raise ValueError(f"{name}: row {row}, column {column} is {number:g}, too large: rescale the features")


def _shape(name: str, value: Any, axes: tuple[str, ...]) -> tuple[int, ...]:
    if isinstance(value, RowBlocks):
        return (value.samples, value.rows, value.labels)
    if sparse.issparse(value) and not name.startswith("X_"):
        raise ValueError(f"{name} must be a dense array, NaN where a label is not known, got a sparse one")
    shape = np.shape(value)
    if len(shape) != len(axes):
        raise ValueError(f"{name} must be ({', '.join(axes)}), got shape {shape}")
    return shape
