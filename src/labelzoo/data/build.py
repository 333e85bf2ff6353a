"""Builders of LabelData from arrays and data frames, with the names the frames carry."""

from typing import Any

import numpy as np

from labelzoo.data.convert import frame_columns, frame_rows, is_frame
from labelzoo.data.labeldata import LabelData
from labelzoo.data.missing import Missing
from labelzoo.data.validate import listed


def from_arrays(
    X: Any,
    Y: Any,
    *,
    feature_names: Any = None,
    label_names: Any = None,
    example_names: Any = None,
    missing: Missing | None = None,
    train_index: Any = None,
    test_index: Any = None,
    allow_missing_features: bool = False,
) -> LabelData:
    """Build LabelData from arrays, sparse matrices of any format, nested lists or data frames.

    Parameters
    ----------
    X : (n, d) numbers
        NumPy or JAX array, list of rows, SciPy sparse matrix or array, or pandas DataFrame.
    Y : (n, l) of 0 and 1
        The same types. NaN, None and pandas' NA mean unobserved.
    feature_names, label_names, example_names : list of str, optional
        Names; those of data frames are kept unless given here.
    missing : Missing, optional
        Unobserved labels, instead of NaN in ``Y``.
    train_index, test_index : int arrays, optional
        A published split.
    allow_missing_features : bool
        Accept NaN in ``X``.

    Raises
    ------
    ValueError
        With one line that names the rows, columns and values at fault.
    """
    if is_frame(X) and is_frame(Y):
        refuse_other_rows(X, Y)
    for frame in (X, Y):
        if is_frame(frame) and example_names is None:
            example_names = frame_rows(frame)
    if is_frame(X) and feature_names is None:
        feature_names = frame_columns(X)
    if is_frame(Y) and label_names is None:
        label_names = frame_columns(Y)
    return LabelData(
        X=X,
        Y=Y,
        missing=missing,
        feature_names=named(feature_names),
        label_names=named(label_names),
        example_names=named(example_names),
        train_index=train_index,
        test_index=test_index,
        allow_missing_features=allow_missing_features,
    )


def named(names: Any) -> Any:
    """Return names as given; an empty tuple, which means the defaults elsewhere, becomes an empty list."""
    return [] if isinstance(names, tuple) and not names else names


def refuse_other_rows(X: Any, Y: Any) -> None:
    """Raise ValueError where two frames of one length name their rows differently: nothing is aligned."""
    if len(X.index) != len(Y.index) or X.index.equals(Y.index):
        return
    pairs = zip(X.index.tolist(), Y.index.tolist(), strict=True)
    texts = [f"row {i}: {a!r} and {b!r}" for i, (a, b) in enumerate(pairs) if a != b]
    raise ValueError(f"the frames X and Y name their rows differently, align them first: {listed(texts)}")


def from_frame(
    frame: Any,
    label_columns: Any,
    *,
    feature_columns: Any = None,
    train_index: Any = None,
    test_index: Any = None,
    allow_missing_features: bool = False,
) -> LabelData:
    """Build LabelData from one pandas DataFrame whose ``label_columns`` hold the labels.

    Parameters
    ----------
    frame : pandas DataFrame with distinct column names
    label_columns : list of column names
    feature_columns : list of column names, optional
        Default: every other column, in order.

    Raises
    ------
    ValueError
        For columns that the frame lacks, that repeat, or that are both label and feature.
    """
    if not is_frame(frame):
        raise ValueError(f"frame must be a pandas DataFrame, got {type(frame).__name__}")
    columns = list(frame.columns)
    repeated = [repr(c) for i, c in enumerate(columns) if c in columns[:i]]
    if repeated:
        raise ValueError(f"the frame has duplicate columns: {listed(repeated)}")
    labels = [label_columns] if isinstance(label_columns, str) else list(label_columns)
    inputs = (
        [c for c in columns if c not in set(labels)] if feature_columns is None else list(feature_columns)
    )
    absent = [repr(c) for c in [*labels, *inputs] if c not in set(columns)]
    if absent:
        raise ValueError(f"the frame has no columns {listed(absent)}")
    shared = [repr(c) for c in inputs if c in set(labels)]
    if shared:
        raise ValueError(f"columns are both label and feature: {listed(shared)}")
    X = frame[inputs] if inputs else np.zeros((len(frame), 0))
    return from_arrays(
        X,
        frame[labels],
        feature_names=[str(c) for c in inputs],
        label_names=[str(c) for c in labels],
        train_index=train_index,
        test_index=test_index,
        allow_missing_features=allow_missing_features,
    )
