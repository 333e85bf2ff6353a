"""One class a row as a table of labels: order, names, gaps, what is refused."""

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from labelzoo.data import LabelData, from_classes, load

X = np.arange(10.0).reshape(5, 2)
WORDS = ["wet", "dry", "ice", "dry", "wet"]
TABLE = [[0, 0, 1], [1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize(
    "y", [WORDS, tuple(WORDS), np.array(WORDS), np.array(WORDS, dtype=object), pd.Categorical(WORDS)]
)
def test_words_are_labels_sorted_and_named(y: Any) -> None:
    wanted = LabelData.from_arrays(X, TABLE, label_names=["dry", "ice", "wet"])
    assert LabelData.from_classes(X, y).hash() == from_classes(sparse.csr_array(X), y).hash() == wanted.hash()


@pytest.mark.parametrize(
    ("y", "names"),
    [
        ([7, -1, 7, 10, -1], ("-1", "7", "10")),
        (np.array([2.0, 0.0, 2.0, 10.0, 0.0]), ("0", "2", "10")),
        ([True, False, True, True, False], ("False", "True")),
        ([3, 3, 3, 3, 3], ("3",)),
    ],
)
def test_numbers_are_sorted_as_numbers(y: Any, names: tuple[str, ...]) -> None:
    data = LabelData.from_classes(X, y)
    assert data.label_names == names
    assert data.Y.toarray().argmax(axis=1).tolist() == np.unique(y, return_inverse=True)[1].tolist()
    assert data.missing is None and data.Y.sum() == 5


@pytest.mark.parametrize(
    "y",
    [
        [None, "dry", "ice", np.nan, "wet"],
        np.array([None, "dry", "ice", np.nan, "wet"], dtype=object),
        pd.Series([None, "dry", "ice", pd.NA, "wet"], dtype="string"),
        pd.Series([None, "dry", "ice", None, "wet"], dtype="category"),
    ],
)
def test_rows_of_unknown_class_have_no_observed_label(y: Any) -> None:
    data = LabelData.from_classes(X, y)
    assert data.label_names == ("dry", "ice", "wet")
    assert data.unlabelled_rows.tolist() == [True, False, False, True, False]
    assert data.num_missing_cells == 6
    assert data.Y.toarray().tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1]]


def test_numbers_with_gaps_are_named_as_integers() -> None:
    for y in (pd.Series([1, None, 3, 1, 1]), pd.Series([1, None, 3, 1, 1], dtype="Int64")):
        data = LabelData.from_classes(X, y)
        assert data.label_names == ("1", "3") and data.unlabelled_rows.tolist() == [0, 1, 0, 0, 0]
    masked = np.ma.MaskedArray([1, 2, 3, 1, 1], [0, 1, 0, 0, 0])
    assert LabelData.from_classes(X, masked).unlabelled_rows.tolist() == [0, 1, 0, 0, 0]


def test_classes_that_no_row_has_and_names_are_kept() -> None:
    frame = pd.DataFrame(X, columns=["a", "b"], index=[f"case {i}" for i in range(5)])
    series = pd.Series(WORDS, index=frame.index)
    data = LabelData.from_classes(
        frame, series, classes=["ice", "hail", "wet", "dry"], train_index=[0, 1], test_index=[4]
    )
    assert data.label_names == ("dry", "hail", "ice", "wet") and data.Y.sum(axis=0).tolist() == [2, 0, 1, 2]
    assert (data.feature_names, data.example_names[4]) == (("a", "b"), "case 4")
    assert data.train_index.tolist() == [0, 1]
    assert LabelData.from_classes(X, series).example_names == tuple(frame.index)
    none = LabelData.from_classes(X, [None] * 5, classes=["a", "b"])
    assert none.unlabelled_rows.all() and none.num_labels == 2


def test_a_stored_class_index_is_the_same_table(tmp_path: Any) -> None:
    path = tmp_path / "classes.npz"
    np.savez(path, X=X, y=np.array([2, 0, 1, 0, 2], np.uint8), class_names=["dry", "ice", "wet"])
    assert load(path).hash() == LabelData.from_classes(X, WORDS).hash()


FRAME = pd.DataFrame(X)
BAD: list[tuple[Any, Any, dict[str, Any], str]] = [
    (X, np.array(TABLE), {}, "y must be one class a row, got shape (5, 3): a table of 0 and 1 goes to"),
    (X, [0.5, 1.0, 2.0, 1.0, 0.25], {}, "no classes, give integers or words: 0.5; 0.25"),
    (X, [0.0, np.inf, 1.0, 0.0, 0.0], {}, "no classes, give integers or words: inf"),
    (X, np.array([1, "a", 2, "b", 1], dtype=object), {}, "y mixes kinds of values (int, str)"),
    (X, np.array([[1], [2], 1, 2, 1], dtype=object), {}, "no classes, give integers or words: [1]"),
    (X, np.zeros(5, "datetime64[s]"), {}, "y has dtype datetime64[s]: give integers or words"),
    (X, [np.nan] * 5, {}, "y has no observed class: every value is missing"),
    (X, WORDS, {"classes": ["dry", "wet"]}, "y has classes that are not among the 2 known: row 2: 'ice'"),
    (X, WORDS, {"classes": ["dry", "ice", "wet", "ice"]}, "classes must be different, given more than once"),
    (X, WORDS, {"classes": []}, "classes: y has no observed class"),
    (X, sparse.csr_array(np.eye(5)), {}, "y must be one class a row, got a sparse matrix"),
    (X, np.array([True, 1, 0, False, 1], dtype=object), {}, "y mixes kinds of values (bool, int)"),
    (X, WORDS[:4], {}, "X and Y differ in their number of rows: 5 and 4"),
    (FRAME, pd.Series(WORDS, index=[4, 3, 2, 1, 0]), {}, "name their rows differently, align them first"),
]  # fmt: skip


@pytest.mark.parametrize(("features", "y", "options", "words"), BAD)
def test_what_is_no_vector_of_classes_is_refused(
    features: Any, y: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        LabelData.from_classes(features, y, **options)


def test_a_vector_given_as_a_table_is_told_where_to_go() -> None:
    words = (
        "Y must be two-dimensional (rows, labels), got shape (5,); one class a row goes to LabelData.from_cl"
    )
    for build in (LabelData, LabelData.from_arrays):
        with pytest.raises(ValueError, match=re.escape(words)):
            build(X, np.array([0, 1, 2, 1, 0]))
    with pytest.raises(ValueError, match=r"X must be two-dimensional \(rows, features\), got shape \(5,\)$"):
        LabelData.from_arrays(X[:, 0], TABLE)
