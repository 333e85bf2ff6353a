"""A table of bad inputs and the one line each must say."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from labelzoo.data import LabelData, Missing, from_arrays

X = np.ones((3, 2))
Y = np.array([[1, 0], [0, 1], [0, 0]])
NAMED = {"label_names": ["rain", "sun"]}
TWICE = sparse.csr_array((np.ones(3), [0, 0, 1], [0, 2, 3, 3]), shape=(3, 2))
ROWS = np.zeros(3, dtype=bool)


def with_value(array: np.ndarray, row: int, column: int, value: Any) -> np.ndarray:
    result = array.astype(object if isinstance(value, str) else float)
    result[row, column] = value
    return result


BAD: dict[str, tuple[Any, Any, dict, str]] = {
    "two": (X, with_value(Y, 1, 1, 2), NAMED, r"Y may hold 0, 1 or NaN .* only: row 1, label 'sun': 2\.0$"),
    "minus one": (X, with_value(Y, 2, 0, -1), {}, r"row 2, label 'label 0': -1\.0"),
    "half": (X, with_value(Y, 0, 0, 0.5), NAMED, r"row 0, label 'rain': 0\.5"),
    "infinite label": (X, with_value(Y, 0, 0, np.inf), NAMED, r"row 0, label 'rain': inf"),
    "many twos": (
        X,
        np.full((3, 2), 2),
        NAMED,
        r"row 0, label 'rain': 2; .*; row 2, label 'rain': 2 and 1 more",
    ),
    "string label": (
        X,
        with_value(Y, 1, 0, "yes"),
        NAMED,
        r"Y has values that are not .*row 1, label 'rain': 'yes'",
    ),
    "string digit": (X, with_value(Y, 1, 0, "1"), NAMED, r"row 1, label 'rain': '1'"),
    "string array": (X, Y.astype(str), NAMED, r"row 0, label 'rain': '1'"),
    "string frame": (
        X,
        pd.DataFrame({"rain": ["a", "b", "c"], "sun": [0, 1, 1]}),
        {},
        r"row 0, label 'rain': 'a'; row 1, label 'rain': 'b'",
    ),
    "sparse two": (X, sparse.csr_array(2 * Y), NAMED, r"row 0, label 'rain': 2; row 1, label 'sun': 2"),
    "sparse minus one": (X, sparse.csc_matrix(-Y), NAMED, r"row 0, label 'rain': -1; row 1, label 'sun': -1"),
    "sparse twice": (X, TWICE, NAMED, r"Y stores cells more than once: row 0, label 'rain': '2 entries'"),
    "sparse complex": (X, sparse.csr_array(Y.astype(complex)), {}, r"Y has complex dtype complex128"),
    "complex labels": (X, Y.astype(complex), {}, r"Y has complex dtype complex128"),
    "complex features": (X.astype(complex), Y, {}, r"X has complex dtype complex128"),
    "dates": (X.astype("datetime64[s]"), Y, {}, r"X has dtype datetime64\[s\]: give numbers"),
    "rows differ": (X[:2], Y, {}, r"X and Y differ in their number of rows: 2 and 3$"),
    "ragged labels": (
        X,
        [[1, 0], [1], [0, 0]],
        {},
        r"Y has rows of different lengths: row 0 has 2; row 1 has 1$",
    ),
    "ragged features": (
        [[1.0], [1.0, 2.0], [1.0]],
        Y,
        {},
        r"X has rows of different lengths: row 0 has 1; row 1 has 2",
    ),
    "1-D features": (np.ones(3), Y, {}, r"X must be two-dimensional \(rows, features\), got shape \(3,\)"),
    "1-D labels": (X, [1, 0, 1], {}, r"Y must be two-dimensional \(rows, labels\), got shape \(3,\)"),
    "1-D sparse": (
        X,
        sparse.coo_array(np.array([1, 0, 1])),
        {},
        r"Y must be two-dimensional .* shape \(3,\)",
    ),
    "3-D labels": (X, Y[:, :, None], {}, r"Y must be two-dimensional .* shape \(3, 2, 1\)"),
    "number": (3.0, Y, {}, r"X has type float: give a NumPy or JAX array"),
    "set": ({1, 2}, Y, {}, r"X has type set"),
    "infinite feature": (
        with_value(X, 2, 1, -np.inf),
        Y,
        {},
        r"X has infinite values: row 2, feature 'feature 1': -inf$",
    ),
    "NaN feature": (
        with_value(X, 0, 1, np.nan),
        Y,
        {"feature_names": ["age", "dose"]},
        r"X has missing values \(NaN\), impute first: row 0, feature 'dose': nan$",
    ),
    "sparse infinite": (
        sparse.csr_array(with_value(X, 2, 1, np.inf)),
        Y,
        {},
        r"infinite.*row 2, feature 'feature 1': inf",
    ),
    "sparse NaN": (
        sparse.csc_array(with_value(X, 2, 0, np.nan)),
        Y,
        {},
        r"impute first: row 2, feature 'feature 0'",
    ),
    "text feature": (
        with_value(X, 1, 0, "red"),
        Y,
        {},
        r"X has values that are not numbers .*row 1, feature .*'red'",
    ),
    "no rows": (np.ones((0, 2)), np.ones((0, 2)), {}, r"X has no rows: shape \(0, 2\)"),
    "no labels": (X, np.ones((3, 0)), {}, r"Y has no labels: shape \(3, 0\)"),
    "duplicate labels": (
        X,
        Y,
        {"label_names": ["a", "a"]},
        r"label_names has duplicate names: 'a' in columns 0, 1$",
    ),
    "short labels": (
        X,
        Y,
        {"label_names": ["a"]},
        r"label_names has 1 names, but dim 'labels' has length 2$",
    ),
    "no names": (X, Y, {"label_names": ()}, r"label_names has 0 names, but dim 'labels' has length 2$"),
    "long features": (
        X,
        Y,
        {"feature_names": list("abc")},
        r"feature_names has 3 names, but dim 'feature' has length 2",
    ),
    "short examples": (
        X,
        Y,
        {"example_names": ["a"]},
        r"example_names has 1 names, but dim 'obs' has length 3",
    ),
    "name string": (
        X,
        Y,
        {"label_names": "ab"},
        r"label_names must be one-dimensional, a list of strings; got str 'ab'",
    ),
    "2-D names": (
        X,
        Y,
        {"label_names": np.array([["a", "b"]])},
        r"label_names must be one-dim.* shape \(1, 2\)",
    ),
    "set of names": (X, Y, {"label_names": {"a"}}, r"a list of strings; got set {.a.}"),
    "nested names": (X, Y, {"label_names": [["a"], ["b", "c"]]}, r"strings only: label_names\[0\] = \[.a.\]"),
    "number names": (
        X,
        Y,
        {"label_names": ["a", 2]},
        r"label_names must hold strings only: label_names\[1\] = 2$",
    ),
    "half a split": (X, Y, {"train_index": [0]}, r"train_index and test_index go together"),
    "split overlap": (X, Y, {"train_index": [0, 1], "test_index": [1, 2]}, r"overlap in 1 rows: 1$"),
    "split outside": (
        X,
        Y,
        {"train_index": [0], "test_index": [3]},
        r"test_index has rows outside 0\.\.2: 3$",
    ),
    "split negative": (
        X,
        Y,
        {"train_index": [-1], "test_index": [1]},
        r"train_index has rows outside 0\.\.2: -1$",
    ),
    "split twice": (X, Y, {"train_index": [0, 0], "test_index": [1]}, r"train_index holds a row twice: 0$"),
    "split empty": (X, Y, {"train_index": [], "test_index": [1]}, r"train_index is empty"),
    "split floats": (X, Y, {"train_index": [0.0], "test_index": [1]}, r"train_index must hold row numbers"),
    "missing length": (X, Y, {"missing": Missing(ROWS[:2])}, r"missing\.rows has length 2, but Y has 3 rows"),
    "missing outside": (
        X,
        Y,
        {"missing": Missing(ROWS, ([0], [2]))},
        r"outside the table of shape \(3, 2\): \(0, 2\)",
    ),
    "missing twice": (X, Y, {"missing": Missing(ROWS, ([2, 2], [1, 1]))}, r"holds a cell twice: \(2, 1\)"),
    "missing positive": (
        X,
        Y,
        {"missing": Missing(ROWS, ([0], [0])), **NAMED},
        r"Y is positive where the label is marked as unobserved: row 0, label 'rain': 1$",
    ),
    "not observed but positive": (
        X,
        Y,
        {"missing": Missing(ROWS, ([1], [0]), "observed"), **NAMED},
        r"marked as unobserved: row 1, label 'sun': 1$",
    ),
    "flagged positive": (
        X,
        Y,
        {"missing": Missing(np.array([True, False, False]))},
        r"unobserved: row 0, label",
    ),
    "flag and cell": (
        X,
        np.zeros((3, 2)),
        {"missing": Missing(np.array([True, False, False]), ([0], [0]))},
        r"rows flagged as wholly unlabelled also stand in missing\.cells: 0$",
    ),
    "missing both ways": (
        X,
        with_value(Y, 0, 1, np.nan),
        {"missing": Missing(ROWS, ([0], [1]))},
        r"given twice: as NaN in Y and as missing",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_says_what_and_where(case: str) -> None:
    inputs, labels, options, message = BAD[case]
    with pytest.raises(ValueError, match=message) as caught:
        from_arrays(inputs, labels, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 1],), r"missing\.rows must be one bool a row, got int64"),
        ((ROWS, ([0], [1, 2])), r"must have one length, got shapes \(1,\) and \(2,\)"),
        ((ROWS, ([0.5], [1])), r"must be integers"),
        ((ROWS, ([0], [1], [2])), r"must be a pair"),
        ((ROWS, ([0], [1]), "hidden"), r"must be 'missing' or 'observed', got 'hidden'"),
    ],
)
def test_bad_missing(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Missing(*arguments)


def test_bcoo_is_refused_by_name() -> None:
    from jax.experimental.sparse import BCOO

    with pytest.raises(ValueError, match="Y has type BCOO: give a NumPy or JAX array"):
        from_arrays(X, BCOO.fromdense(Y))


def test_message_names_only_the_first_five() -> None:
    wide = np.full((1, 40), 3)
    with pytest.raises(ValueError, match="and 35 more") as caught:
        LabelData(np.ones((1, 1)), wide)
    assert str(caught.value).count("row 0") == 5


def test_explicit_zeros_are_dropped() -> None:
    stored = sparse.csr_array((np.array([0.0, 1.0]), [0, 1], [0, 2, 2, 2]), shape=(3, 2))
    data = LabelData(X, stored)
    assert data.num_positives == 1
    assert data.hash() == LabelData(X, np.array([[0, 1], [0, 0], [0, 0]])).hash()


def test_legal_oddities() -> None:
    one = LabelData([[1.0]], [[1]])
    assert (one.num_rows, one.num_labels, one.num_positives) == (1, 1, 1)
    holes = LabelData(X, np.full((3, 2), np.nan))
    assert holes.summary()["unlabelled_rows"] == 3
    assert LabelData(np.zeros((3, 0)), Y).num_features == 0
    assert LabelData(with_value(X, 0, 0, np.nan), Y, allow_missing_features=True).has_missing_features
    with pytest.raises(ValueError, match="infinite"):
        LabelData(with_value(X, 0, 0, np.inf), Y, allow_missing_features=True)
