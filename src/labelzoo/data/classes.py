"""Rows of exactly one class each as a table of labels: one label a class, one positive a row."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelzoo.data.build import from_arrays, refuse_other_rows
from labelzoo.data.convert import dense_array, frame_rows, is_frame, is_missing
from labelzoo.data.labeldata import LabelData
from labelzoo.data.missing import Missing
from labelzoo.data.validate import listed, shown_value


def from_classes(
    X: Any,
    y: Any,
    *,
    classes: Any = None,
    feature_names: Any = None,
    example_names: Any = None,
    train_index: Any = None,
    test_index: Any = None,
    allow_missing_features: bool = False,
) -> LabelData:
    """Build LabelData from one class a row: a label for each class, sorted, named by its value.

    Parameters
    ----------
    X : (n, d) numbers
        As in `labelzoo.data.from_arrays`.
    y : (n,) integers, booleans, words or categories
        A list, array or pandas Series. NaN, None and pandas' NA mean that a row's class is not known: none of
        its labels is observed. Whole numbers stored as floats are named as integers.
    classes : (labels,), optional
        All classes there are, where `y` may lack some; labels are sorted whatever their order here.
    feature_names, example_names : list of str, optional
        Names; those of a frame or a series are kept unless given here.
    train_index, test_index : int arrays, optional
        A published split.
    allow_missing_features : bool
        Accept NaN in ``X``.

    Raises
    ------
    ValueError
        If `y` is no vector of classes, has none, or has one that `classes` lacks; if X and y differ in
        length, or are a frame and a series that name their rows differently; as `from_arrays` for ``X``.
    """
    if is_frame(X) and hasattr(y, "index") and hasattr(y.index, "equals"):
        refuse_other_rows(X, y)
    values = class_values(y)
    found = class_list(values[~unknown_class(values)]) if classes is None else named_classes(classes)
    Y, missing = class_table(values, found)
    if example_names is None and not is_frame(X) and hasattr(getattr(y, "index", None), "equals"):
        example_names = frame_rows(y)
    return from_arrays(
        X,
        Y,
        missing=missing,
        feature_names=feature_names,
        label_names=class_names(found),
        example_names=example_names,
        train_index=train_index,
        test_index=test_index,
        allow_missing_features=allow_missing_features,
    )


def named_classes(classes: Any) -> NDArray[Any]:
    """Return the classes that a user lists, sorted; ValueError naming `classes` for what is no such list."""
    try:
        values = class_values(classes)
        found = class_list(values)
    except ValueError as error:
        raise ValueError(f"classes: {error}") from error
    if len(found) < len(values):
        twice = [shown_value(v) for v in found.tolist() if (values == v).sum() > 1]
        raise ValueError(f"classes must be different, given more than once: {listed(twice)}")
    return found


def class_values(y: Any) -> NDArray[Any]:
    """Return classes as a vector; ValueError for any other shape, and for complex numbers and dates."""
    if sparse.issparse(y):
        raise ValueError("y must be one class a row, got a sparse matrix: give it as a vector")
    values = dense_array(y, "y")
    if isinstance(y, (list, tuple)) and values.dtype.kind in "US" and values.ndim == 1:
        values = np.array(y, dtype=object)  # NumPy makes the word "nan" of a NaN among words
    if values.ndim != 1:
        raise ValueError(
            f"y must be one class a row, got shape {values.shape}: a table of 0 and 1 goes to "
            "LabelData.from_arrays(X, Y)"
        )
    if values.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: y has dtype {values.dtype}")  # scikit-learn's words
    if values.dtype.kind in "mM":
        raise ValueError(f"y has dtype {values.dtype}: give integers or words")
    return values


def unknown_class(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which classes are not known (NaN, None, pandas' NA, masked): bool (n,)."""
    return np.array([is_missing(v) or v != v for v in values.tolist()], dtype=bool)


def class_list(values: NDArray[Any]) -> NDArray[Any]:
    """Return the distinct classes, sorted.

    Raises
    ------
    ValueError
        If there is none, a number is not whole, or words and numbers are mixed.
    """
    if not len(values):
        raise ValueError("y has no observed class: every value is missing")
    wrong = [shown_value(v) for v in values.tolist() if not is_class(v)]
    if wrong:
        raise ValueError(f"y has values that are no classes, give integers or words: {listed(wrong)}")
    kinds = sorted({type(v).__name__ for v in values.tolist()})
    if len(kinds) > 1 and set(kinds) != {"float", "int"}:
        raise ValueError(f"y mixes kinds of values ({', '.join(kinds)}): give integers or words")
    return np.unique(values)


def is_class(value: Any) -> bool:
    """Return whether a value is a word, an integer, a boolean, or a whole number stored as a float."""
    return value.is_integer() if isinstance(value, float) else isinstance(value, (str, int))


def class_names(classes: NDArray[Any]) -> list[str]:
    """Return the names of classes: whole numbers without a decimal point, all else as text."""
    return [str(int(v)) if isinstance(v, float) else str(v) for v in classes.tolist()]


def class_table(values: NDArray[Any], classes: NDArray[Any]) -> tuple[sparse.csr_array, Missing | None]:
    """Return the labels of a vector of classes, (n, classes), and the rows whose class is not known.

    Raises
    ------
    ValueError
        Naming the rows whose class is not among `classes`, which are sorted.
    """
    unknown, place = unknown_class(values), {v: i for i, v in enumerate(classes.tolist())}
    codes = [-1 if gap else place.get(v) for v, gap in zip(values.tolist(), unknown, strict=True)]
    other = [f"row {i}: {shown_value(values[i])}" for i, code in enumerate(codes) if code is None]
    if other:
        raise ValueError(f"y has classes that are not among the {len(classes)} known: {listed(other)}")
    return one_hot(np.array(codes, np.int64), len(classes)), Missing(unknown) if unknown.any() else None


def one_hot(codes: NDArray[Any], count: int) -> sparse.csr_array:
    """Return class indices (n,) as a csr_array (n, count): one positive a row, none where the index is -1."""
    at = np.flatnonzero(codes >= 0)
    ones = np.ones(len(at), np.int8)
    return sparse.csr_array((ones, (at, codes[at])), shape=(len(codes), count))
