"""Multi-label svmlight text beside scikit-learn's reader and writer, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file, load_svmlight_file
from sklearn.preprocessing import MultiLabelBinarizer

from labelzoo.data import LabelData
from labelzoo.data.errors import DataError
from labelzoo.data.files import load, save_data


def written(folder: Path, text: str) -> Path:
    path = folder / "t.svm"
    path.write_text(text, encoding="utf-8")
    return path


def test_layout(tmp_path: Path) -> None:
    data = load(written(tmp_path, "# head\n1,3 4:0.5 7:1 # note: 1:2\n\n  2:1\n0\n"))
    X = np.zeros((3, 7))
    X[0, 3], X[0, 6], X[1, 1] = 0.5, 1, 1
    assert data.hash() == LabelData(X, [[0, 1, 0, 1], [0] * 4, [1, 0, 0, 0]]).hash()


def test_zero_based_rule(tmp_path: Path) -> None:
    path = written(tmp_path, "0 1:1 2:3\n")
    assert load(path).num_features == 2
    assert load(path, zero_based=True).num_features == 3
    assert load(written(tmp_path, "0 0:1 2:3\n")).num_features == 3
    with pytest.raises(DataError, match=r"t\.svm:1: feature 0 is outside 1\.\.2"):
        load(written(tmp_path, "0 0:1 2:3\n"), zero_based=False)


def test_sizes_may_be_given(tmp_path: Path) -> None:
    path = written(tmp_path, "1 1:1 2:3\n")
    data = load(path, n_features=9, n_labels=5)
    assert (data.num_features, data.num_labels) == (9, 5)
    with pytest.raises(DataError, match=r"t\.svm:1: label 1 is outside 0\.\.0"):
        load(path, n_labels=1)
    with pytest.raises(DataError, match=r"t\.svm:1: feature 2 is outside 1\.\.1"):
        load(path, n_features=1)
    for value in (0, 1.5, True, "3", -1):
        with pytest.raises(DataError, match="n_labels must be a whole number from 1"):
            load(path, n_labels=value)
    with pytest.raises(DataError, match="no row has a label, so give n_labels"):
        load(written(tmp_path, "1:1 2:3\n"))
    assert load(written(tmp_path, "1:1 2:3\n"), n_labels=2).num_labels == 2


BAD: dict[str, tuple[str, int | None, str]] = {
    "empty": ("# nothing\n\n", None, "has no rows"),
    "qid": ("1 1:1\n1 qid:3 1:1\n", 2, "'qid:3': query ids"),
    "half a label": ("0.5 1:1\n", 1, "label '0.5' is not a whole number"),
    "minus one": ("-1 1:1\n", 1, "label '-1' is not a whole number"),
    "plus one": ("+1 1:1\n", 1, "label '[+]1' is not a whole number"),
    "repeated label": ("2,2 1:1\n", 1, "label 2 stands twice"),
    "repeated feature": ("1 1:1\n1 3:1 3:2\n", 2, "feature 3 stands twice"),
    "value": ("1 1:x\n", 1, "value 'x'"),
    "nan": ("1 1:nan\n", 1, "value 'nan' in '1:nan' is not a finite number"),
    "huge label": ("1 1:1\n99999999999 1:1\n", None, "declares 100000000000 labels"),
    "huge digits": ("1 1:1\n99999999999999999999 1:1\n", 2, "label '9+' is not"),
    "note": ("# labelzoo {\n1 1:1\n", 1, "a comment of labelzoo is damaged"),
    "note keys": ('# labelzoo {"x": 1}\n1 1:1\n', 1, "keys that are not known"),
    "note names": ('# labelzoo {"label_names": ["a"]}\n1 1:1\n', None, "label_names has 1 names"),
}


@pytest.mark.parametrize("name", BAD)
def test_malformed(tmp_path: Path, name: str) -> None:
    text, line, message = BAD[name]
    with pytest.raises(DataError, match=message) as caught:
        load(written(tmp_path, text))
    assert caught.value.line == line
    assert str(tmp_path / "t.svm") in str(caught.value)


def example() -> LabelData:
    X = sparse.csr_array(np.array([[0, 0.1, 0], [1e-300, 0, 2], [0, 0, 0], [0, 3, 0]]))
    Y = [[1, 0], [0, 0], [0, 0], [1, 1]]
    return LabelData(
        X, Y, label_names=["café\n", "# b"], example_names=list("abcd"), train_index=[0, 3], test_index=[1]
    )


def test_names_and_split_come_back(tmp_path: Path) -> None:
    data = example()
    save_data(data, tmp_path / "t.svm.gz")
    again = load(tmp_path / "t.svm.gz")
    assert again.hash() == data.hash()
    np.testing.assert_array_equal(again.train_index, [0, 3])


def test_scikit_learn_reads_what_is_written(tmp_path: Path) -> None:
    data = example()
    save_data(data, tmp_path / "t.svm")
    X, labels = load_svmlight_file(str(tmp_path / "t.svm"), multilabel=True, n_features=3)
    np.testing.assert_array_equal(X.toarray(), data.X.toarray())
    found = MultiLabelBinarizer(classes=[0.0, 1.0]).fit_transform(labels)
    np.testing.assert_array_equal(found, data.Y.toarray())


@pytest.mark.parametrize("zero_based", [True, False])
def test_what_scikit_learn_writes_is_read(tmp_path: Path, zero_based: bool) -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((7, 3)), (rng.random((7, 4)) < 0.5).astype(int)
    Y[2] = 0
    Y[0, 3] = 1
    path: Any = str(tmp_path / "t.svm")
    dump_svmlight_file(X, Y, path, zero_based=zero_based, multilabel=True, comment="by scikit-learn")
    data = load(path)
    np.testing.assert_array_equal(data.Y.toarray(), Y)
    np.testing.assert_allclose(data.X.toarray(), X, rtol=1e-14)


def test_what_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="svmlight text cannot hold data without features"):
        save_data(LabelData(np.zeros((1, 0)), [[1]]), tmp_path / "t.svm")
    with pytest.raises(ValueError, match="svmlight text cannot hold NaN in features"):
        save_data(LabelData([[np.nan]], [[1]], allow_missing_features=True), tmp_path / "t.svm")
    assert not list(tmp_path.iterdir())
