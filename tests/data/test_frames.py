"""Data frames as OpenML and pandas users hold them: words for labels, text features, and the recipe."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.utils import Bunch

from labelzoo.data import LabelData, from_frame
from labelzoo.data.build import from_openml

Y = np.array([[1, 0], [0, np.nan], [1, 1]])
WORDS = {
    "booleans": [[True, False], [False, None], [True, True]],
    "upper case": [["TRUE", "FALSE"], ["FALSE", None], ["TRUE", "TRUE"]],
    "lower case": [["true", "false"], ["false", "?"], ["true", "true"]],
    "digits": [["1", "0"], ["0", ""], ["1", "1"]],
    "floats": [["1.0", "0.0"], ["0.0", np.nan], ["1.0", "1.0"]],
}


def frame_of(labels: Any, dtype: Any = None) -> pd.DataFrame:
    frame = pd.DataFrame(labels, columns=["rain", "sun"], dtype=object)
    frame = frame if dtype is None else frame.astype(dtype)
    return pd.concat([pd.DataFrame({"x": [0.5, 1, 2]}), frame], axis=1)


EXPECTED = LabelData([[0.5], [1], [2]], Y, feature_names=["x"], label_names=["rain", "sun"])


@pytest.mark.parametrize("dtype", [None, "category", "str"])
@pytest.mark.parametrize("name", WORDS)
def test_words_for_labels(name: str, dtype: str | None) -> None:
    if name == "booleans" and dtype == "str":
        dtype = "boolean"
    data = from_frame(frame_of(WORDS[name], dtype), ["rain", "sun"])
    assert data.hash() == EXPECTED.hash()


@pytest.mark.parametrize("dtype", ["Int64", "boolean", "Float64", float])
def test_number_dtypes(dtype: Any) -> None:
    frame = frame_of([[1, 0], [0, None], [1, 1]], dtype)
    assert from_frame(frame, ["rain", "sun"]).hash() == EXPECTED.hash()


@pytest.mark.parametrize("value", ["2", "yes", 2, 0.5, [1], "maybe"])
def test_other_words_are_refused(value: Any) -> None:
    labels = [[True, False], [value, None], [True, True]]
    with pytest.raises(ValueError, match=r"row 1, label 'rain'"):
        from_frame(frame_of(labels), ["rain", "sun"])


def test_text_features() -> None:
    frame = frame_of(WORDS["digits"]).assign(
        colour=pd.Categorical(["red", "blue", None]), grade=pd.Categorical(["1", "2", "2"]), day="mon"
    )
    with pytest.raises(ValueError, match=r"'colour' \(row 0: 'red'\); 'day' .*encode='onehot'"):
        from_frame(frame, ["rain", "sun"])
    frame["when"] = pd.Timestamp("2020-01-01")
    with pytest.raises(ValueError, match="columns of dates: 'when'; drop them"):
        from_frame(frame, ["rain", "sun"])
    data = from_frame(
        frame, ["rain", "sun"], encode="onehot", drop=["day", "when"], allow_missing_features=True
    )
    assert data.feature_names == ("x", "colour=blue", "colour=red", "grade")
    np.testing.assert_array_equal(data.X[:, 1:], [[0, 1, 1], [1, 0, 2], [np.nan, np.nan, 2]])
    only = from_frame(frame, ["rain", "sun"], feature_columns=["grade"])
    np.testing.assert_array_equal(only.X, [[1], [2], [2]])
    with pytest.raises(ValueError, match="drop names columns that are not there: 'nope'"):
        from_frame(frame, ["rain", "sun"], drop="nope")
    with pytest.raises(ValueError, match="encode must be"):
        from_frame(frame, ["rain", "sun"], encode=3)


def test_sparse_frames_stay_sparse() -> None:
    wide = pd.DataFrame.sparse.from_spmatrix(sparse.eye_array(3).tocsr(), columns=["a", "b", "c"])
    frame = pd.concat([wide, frame_of(WORDS["digits"])[["rain", "sun"]]], axis=1)
    assert sparse.issparse(from_frame(frame, ["rain", "sun"]).X)


def openml_bunch() -> Bunch:
    """A bunch as fetch_openml(..., as_frame=True) gives it: nominal columns are categories of text."""
    X = pd.DataFrame({"x": [0.5, 1, 2], "kind": pd.Categorical(["a", "b", "a"])})
    labels = {"rain": ["TRUE", "FALSE", "TRUE"], "sun": ["FALSE", np.nan, "TRUE"]}
    target = pd.DataFrame({k: pd.Categorical(v, categories=["FALSE", "TRUE"]) for k, v in labels.items()})
    return Bunch(
        data=X, target=target, frame=pd.concat([X, target], axis=1), categories=None,
        feature_names=list(X), target_names=list(target), DESCR="", details={}, url="",
    )  # fmt: skip


def test_openml_frame() -> None:
    assert from_openml(openml_bunch(), drop=["kind"]).hash() == EXPECTED.hash()
    one_hot = from_openml(openml_bunch(), encode="onehot")
    assert one_hot.feature_names == ("x", "kind=a", "kind=b")
    with pytest.raises(ValueError, match="'kind'"):
        from_openml(openml_bunch())


def test_openml_one_target_and_none() -> None:
    bunch = openml_bunch()
    bunch.target = bunch.target["rain"]
    bunch.target_names = ["rain"]
    assert from_openml(bunch, drop="kind").label_names == ("rain",)
    bunch.target = None
    with pytest.raises(ValueError, match="has no data or no target"):
        from_openml(bunch)


def test_openml_arrays() -> None:
    """Sparse ARFF comes without frames: a csr_matrix, and the target as an array of text."""
    target = np.array([["TRUE", "FALSE"], ["FALSE", None], ["TRUE", "TRUE"]], dtype=object)
    bunch = Bunch(
        data=sparse.csr_matrix([[0.5], [1], [2]]),
        target=target, frame=None, feature_names=["x"], target_names=["rain", "sun"],
    )  # fmt: skip
    data = from_openml(bunch)
    assert data.hash() == EXPECTED.hash()
    assert sparse.issparse(data.X)
