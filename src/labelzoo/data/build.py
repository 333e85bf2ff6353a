"""Builders of LabelData from arrays and data frames, with the names the frames carry."""

from typing import Any

import numpy as np

from labelzoo.data.convert import frame_columns, frame_rows, is_frame, refuse_dates
from labelzoo.data.labeldata import LabelData
from labelzoo.data.missing import Missing
from labelzoo.data.text_columns import (
    checked_encoding,
    label_value,
    number_value,
    numbers_or_texts,
    one_hot_columns,
    refuse_text_features,
    without_dropped,
)
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
        The same types. NaN, None and pandas' NA mean unobserved. Columns of a frame may say 0, 1, true or
        false as text or categories, as in `from_frame`.
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
    if is_frame(Y) and Y.columns.is_unique:
        Y = frame_labels(Y)
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
    drop: Any = (),
    encode: Any = "none",
    train_index: Any = None,
    test_index: Any = None,
    allow_missing_features: bool = False,
) -> LabelData:
    """Build LabelData from one pandas DataFrame whose ``label_columns`` hold the labels.

    Labels may be numbers, booleans, nullable integers or booleans, and text or categories that say 0, 1, true
    or false in any case; missing values are unobserved labels.

    Parameters
    ----------
    frame : pandas DataFrame with distinct column names
    label_columns : list of column names
    feature_columns : list of column names, optional
        Default: every other column, in order.
    drop : list of column names
        Features to leave out.
    encode : "none" or "onehot"
        What to do with text and categories in features: refuse them by column name, or make one 0/1 column a
        value, named ``"column=value"``. Categories that are all numbers are taken as numbers.

    Raises
    ------
    ValueError
        For columns that the frame lacks, that repeat, or that are both label and feature; for text.
    """
    if not is_frame(frame):
        raise ValueError(f"frame must be a pandas DataFrame, got {type(frame).__name__}")
    labels, inputs = chosen_columns(list(frame.columns), label_columns, feature_columns)
    inputs = without_dropped(inputs, drop)
    names, X = frame_features(frame, inputs, checked_encoding(encode))
    return from_arrays(
        X,
        frame_labels(frame[labels]),
        feature_names=names,
        label_names=[str(c) for c in labels],
        example_names=frame_rows(frame),
        train_index=train_index,
        test_index=test_index,
        allow_missing_features=allow_missing_features,
    )


def chosen_columns(
    columns: list[Any], label_columns: Any, feature_columns: Any
) -> tuple[list[Any], list[Any]]:
    """Return the label and feature columns of a frame, or raise ValueError naming those at fault."""
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
    return labels, inputs


def holds_words(column: Any) -> bool:
    """Return whether a pandas column is text, a category, or objects that may be text."""
    return column.dtype.kind == "O" and not hasattr(column.dtype, "fill_value")


def frame_labels(labels: Any) -> Any:
    """Return the label columns, with text and categories that say 0, 1, true or false as numbers."""
    changed = {}
    for name in labels.columns:
        if not holds_words(labels[name]):
            continue
        cells = labels[name].tolist()
        meaning = [label_value(cell) for cell in cells]
        # What is neither 0 nor 1 stays as it is, for the error that names its row and label.
        changed[name] = [cell if value is None else value for cell, value in zip(cells, meaning, strict=True)]
    return assigned(labels, changed) if changed else labels


def assigned(frame: Any, columns: dict[Any, Any]) -> Any:
    """Return a copy of a frame with some columns replaced, whatever their names are."""
    frame = frame.copy()
    for name, values in columns.items():
        frame[name] = values
    return frame


def frame_features(frame: Any, columns: list[Any], encode: str) -> tuple[list[str], Any]:
    """Return names and values of the feature columns; a frame of numbers is passed on as it is."""
    if not columns:
        return [], np.zeros((len(frame), 0))
    refuse_dates(frame[columns], "the frame")
    if all(frame[c].dtype.kind in "biuf" for c in columns):
        return [str(c) for c in columns], frame[columns]
    names: list[str] = []
    X: list[Any] = []
    text: dict[str, str] = {}
    for column in columns:
        if frame[column].dtype.kind in "biuf":
            names.append(str(column))
            X.append(frame[column].to_numpy(dtype=np.float64, na_value=np.nan))
            continue
        cells = frame[column].tolist()
        numbers = numbers_or_texts(cells) if holds_words(frame[column]) else None
        if numbers is not None:
            names.append(str(column))
            X.append(numbers)
        elif encode == "onehot":
            more_names, more = one_hot_columns(str(column), cells)
            names += more_names
            X += more
        else:
            text[str(column)] = first_text(cells)
    refuse_text_features(text)
    return names, np.column_stack(X)


def first_text(cells: list[Any]) -> str:
    """Say where the first cell stands that is no number."""
    at = next(i for i, cell in enumerate(cells) if number_value(cell) is None)
    return f"row {at}: {cells[at]!r}"


def from_openml(
    bunch: Any, *, encode: Any = "none", drop: Any = (), allow_missing_features: bool = False
) -> LabelData:
    """Build LabelData from what scikit-learn's ``fetch_openml`` returns for a multi-label data set.

    Parameters
    ----------
    bunch : Bunch
        ``bunch.target`` holds one column a label, which OpenML gives as 'TRUE' and 'FALSE'. Where OpenML
        names no label or one only, ask for them: ``fetch_openml(..., target_column=[...])``.
    encode, drop, allow_missing_features
        As in `from_frame`.

    Raises
    ------
    ValueError
        For a target that is no 0/1 table, and for text in features.
    """
    X, target = getattr(bunch, "data", None), getattr(bunch, "target", None)
    if X is None or target is None:
        raise ValueError("bunch has no data or no target: fetch_openml(..., target_column=[...]) gives both")
    target = target.to_frame() if hasattr(target, "to_frame") else target
    names = list(getattr(bunch, "target_names", None) or [])
    if is_frame(X) and is_frame(target):
        frame = assigned(X, {name: target[name] for name in target.columns})
        return from_frame(
            frame,
            list(target.columns),
            encode=encode,
            drop=drop,
            allow_missing_features=allow_missing_features,
        )
    cells = np.asarray(target)
    cells = cells.reshape(-1, 1) if cells.ndim == 1 else cells
    meaning = [[v if (w := label_value(v)) is None else w for v in row] for row in cells.tolist()]
    data = from_arrays(
        X,
        meaning,
        feature_names=getattr(bunch, "feature_names", None),
        label_names=names or None,
        allow_missing_features=allow_missing_features,
    )
    return data.subset(features=without_dropped(data.feature_names, drop)) if drop else data
