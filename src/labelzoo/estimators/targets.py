"""How a target is read: a vector of classes, or a table of labels with names and gaps."""

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.utils.multiclass import type_of_target

from labelzoo.data import LabelData
from labelzoo.data.build import refuse_other_rows
from labelzoo.data.classes import class_list, class_names, class_table, class_values, unknown_class
from labelzoo.data.convert import dense_array, frame_columns, frame_rows, is_frame
from labelzoo.data.missing import Missing, missing_from_cells
from labelzoo.data.validate import checked_names, listed, refuse_duplicates
from labelzoo.estimators.features import filled


class Target(NamedTuple):
    """A target as it came.

    Attributes
    ----------
    table : (row, labels) of 0, 1 and NaN
        What `LabelData` takes.
    names : list of str or None
        Names of the columns; None where the user gave none.
    rows : list of str or None
        Names of the rows.
    classes : ndarray (class,) or None
        The classes of a one-dimensional target; None for a table. Of two the last is the positive one, of
        more each is a label.
    is_sparse : bool
    missing : Missing or None
        Rows whose class is not known, where there are more than two classes.
    """

    table: Any
    names: list[str] | None
    rows: list[str] | None
    classes: np.ndarray | None
    is_sparse: bool
    missing: Missing | None = None


def read_target(Y: Any, classes: Any = None) -> Target:
    """Read labels: a vector of classes, or a table of 0, 1 and NaN of any kind.

    Two classes are one column, more are a label each: one positive a row.

    Parameters
    ----------
    Y : array, list, sparse matrix, pandas.Series or pandas.DataFrame
    classes : array or None
        The classes of a vector where they are known beforehand.

    Raises
    ------
    ValueError
        If `Y` is None, or a vector without at least two classes.
    """
    if Y is None:
        raise ValueError("LabelClassifier requires y to be passed, but the target y is None")
    if is_frame(Y):
        return Target(Y, frame_columns(Y), frame_rows(Y), None, False)
    Y = filled(Y)
    if sparse.issparse(Y):
        return Target(Y, None, None, None, True)
    values = dense_array(Y, "Y")
    if values.ndim != 1:
        return Target(values, None, None, None, False)
    values = class_values(Y)
    found = _known_classes(values, classes)
    if len(found) > 2:
        labels, missing = class_table(values, found)
        return Target(labels, class_names(found), frame_rows_of(Y), found, False, missing)
    name = getattr(Y, "name", None)
    column = _column(values, found)
    return Target(column, None if name is None else [str(name)], frame_rows_of(Y), found, False)


def refuse_other_index(X: Any, Y: Any) -> None:
    """Raise ValueError where X and Y, frames or a series, name their rows differently: nothing is aligned."""
    if all(hasattr(getattr(one, "index", None), "equals") for one in (X, Y)):
        refuse_other_rows(X, Y)


def explained(error: ValueError) -> ValueError:
    """Return the error about a label that is neither 0, 1 nor NaN, with its usual cause in scikit-learn."""
    return ValueError(
        f"{error}. (If this came from cross_val_predict(method='predict_proba'): scikit-learn recodes y "
        "there, gaps to a third class; loop over the folds instead)"
    )


def frame_rows_of(value: Any) -> list[str] | None:
    """Return the row names of a frame or a series; None for all else, and for numbered rows."""
    index = getattr(value, "index", None)
    return frame_rows(value) if hasattr(index, "equals") else None


def _known_classes(values: np.ndarray, known: Any) -> np.ndarray:
    """Return the classes of a vector, sorted: at least two, those that it has or those that are known."""
    seen = values[~unknown_class(values)]
    if seen.dtype.kind == "f" and not np.isfinite(seen).all():
        raise ValueError("y has infinite values: give classes, or NaN where the class is not known")
    classes = _classes(seen) if known is None else np.unique(np.asarray(known))
    if len(classes) < 2:
        raise ValueError(
            f"y has {len(classes)} classes ({listed([repr(c) for c in classes.tolist()])}), at least two are "
            "needed; for several labels give Y (rows, labels) of 0 and 1"
        )
    other = sorted({repr(v) for v in seen.tolist() if v not in classes.tolist()})
    if other:
        raise ValueError(f"y has classes that are not among the {classes.tolist()} known: {listed(other)}")
    return classes


def _column(values: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return a vector of two classes as a column of 0, 1 and NaN."""
    unseen = unknown_class(values)
    column = np.full((len(values), 1), np.nan)
    column[~unseen, 0] = values[~unseen] == classes[1]
    return column


def _classes(seen: np.ndarray) -> np.ndarray:
    """Return the classes of an observed vector; 0 and 1 are both classes where one of them is seen alone."""
    if not len(seen):
        raise ValueError("y has no observed class: every value is missing")
    kind = type_of_target(seen.astype(str) if seen.dtype.kind == "O" else seen, input_name="y")
    if kind not in ("binary", "multiclass"):
        raise ValueError(f"Unknown label type: {kind}; y must hold classes")
    classes = class_list(seen) if seen.dtype.kind == "O" else np.unique(seen)
    if len(classes) == 1 and classes.dtype.kind in "biuf" and classes[0] in (0, 1):
        return np.array([0, 1], dtype=classes.dtype)
    return classes


def declared(data: LabelData, label_names: Any, target: Target) -> LabelData:
    """Return `data` with the labels that the user declared: `with_label_names`.

    Raises
    ------
    ValueError
        Where the target is a vector of more than two classes, which name the labels.
    """
    if target.classes is not None and len(target.classes) > 2:
        raise ValueError("label_names is for tables and two classes: of more, the classes are the names")
    return with_label_names(data, label_names, named=target.names is not None)


def with_label_names(data: LabelData, label_names: Any, *, named: bool) -> LabelData:
    """Return `data` with the columns of `label_names`, in that order; labels it lacks are unobserved.

    Raises
    ------
    ValueError
        If `label_names` is no list, repeats a name, lacks a column of `data`, or is longer than a table
        whose columns have no names of their own.
    """
    if not hasattr(label_names, "__len__"):
        raise ValueError(f"label_names must be a list of names, got {label_names!r}")
    wanted = checked_names(label_names, len(label_names), "label_names", "labels", "label")
    refuse_duplicates(wanted, "label_names")
    if not named:
        if len(wanted) != data.num_labels:
            raise ValueError(
                f"label_names has {len(wanted)} names, but Y has {data.num_labels} columns without names: "
                "give Y as a DataFrame, so that it is known which labels it lacks"
            )
        return LabelData(data.X, data.Y, data.missing, data.feature_names, wanted, data.example_names)
    unknown = [repr(name) for name in data.label_names if name not in set(wanted)]
    if unknown:
        raise ValueError(f"Y has labels that label_names lacks: {listed(unknown)}")
    place = {name: i for i, name in enumerate(wanted)}
    column = np.array([place[name] for name in data.label_names])
    absent = np.setdiff1d(np.arange(len(wanted)), column)
    shape = (data.num_rows, len(wanted))
    rows, labels = data.missing_cells()
    all_rows = np.repeat(np.arange(data.num_rows), len(absent))
    gaps = missing_from_cells(
        np.concatenate([rows, all_rows]),
        np.concatenate([column[labels], np.tile(absent, data.num_rows)]),
        shape,
    )
    coo = data.Y.tocoo()
    Y = sparse.csr_array((coo.data, (coo.row, column[coo.col])), shape=shape)
    return LabelData(data.X, Y, gaps, data.feature_names, wanted, data.example_names)


def aligned(data: LabelData, trained: list[str], *, named: bool, lacking: bool = False) -> LabelData:
    """Return `data` with its labels in the order of `trained`: by name where both have names, else by place.

    With `lacking`, labels that are absent from named `data` are unobserved in the result.

    Raises
    ------
    ValueError
        Naming the labels that are absent on either side.
    """
    if not named:
        if data.num_labels != len(trained):
            raise ValueError(f"Y has {data.num_labels} labels, the classifier was fitted on {len(trained)}")
        return data
    absent = [repr(name) for name in trained if name not in set(data.label_names)]
    extra = [repr(name) for name in data.label_names if name not in set(trained)]
    if extra:
        raise ValueError(f"Y has labels that the classifier was not fitted on: {listed(extra)}")
    if absent and lacking:
        return with_label_names(data, trained, named=True)
    if absent:
        raise ValueError(f"Y lacks labels that were passed during fit: {listed(absent)}")
    return data.subset(labels=trained)
