"""CSV and TSV: which columns are labels, what cells mean, and every refusal with its line."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from labelzoo.data import LabelData
from labelzoo.data.errors import DataError
from labelzoo.data.files import load, save_data

TEXT = "size,label:rain,colour,label:sun\n1.5,1,3,0\n2,0.0,4,\n-1e2,TRUE,0,false\n"


def written(folder: Path, text: str, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8", newline="")
    return path


def test_default_rule(tmp_path: Path) -> None:
    data = load(written(tmp_path, TEXT))
    Y = [[1, 0], [0, np.nan], [1, 0]]
    X = [[1.5, 3], [2, 4], [-100, 0]]
    names = {"feature_names": ["size", "colour"], "label_names": ["rain", "sun"]}
    assert data.hash() == LabelData(X, Y, **names).hash()


@pytest.mark.parametrize(
    ("rule", "names"),
    [
        (["b", "a"], ("b", "a")),
        ("d", ("d",)),
        (2, ("a", "b")),
        (-1, ("d",)),
        (np.int64(-2), ("tag_c", "d")),
        ("tag_*", ("c",)),
    ],
)
def test_label_rules(tmp_path: Path, rule: Any, names: tuple[str, ...]) -> None:
    path = written(tmp_path, "a,b,tag_c,d\n0,1,1,0\n1,1,0,0\n")
    assert load(path, labels=rule).label_names == names


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (None, r"t\.csv: no header begins with 'label:', so no column is a label: give labels= as a list"),
        ("x*", "no header begins with 'x'"),
        (["a", "q"], "labels names columns that are not there: 'q'"),
        (["a", "a"], "labels names columns twice: 'a'"),
        (0, "labels=0, but the table has 2 columns"),
        (3, "labels=3, but the table has 2 columns"),
        ([], r"labels=\[\] names no column"),
        (True, "labels=True names no column"),
        (1.5, r"labels=1\.5 names no column"),
    ],
)
def test_bad_label_rules(tmp_path: Path, rule: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(written(tmp_path, "a,b\n0,1\n"), labels=rule)


BAD = {
    "empty": ("", None, "is empty: a header is needed"),
    "header only": ("a,label:b\n", 1, "has a header, but no rows"),
    "repeated header": ("a,a,label:b\n1,1,1\n", 1, "the header repeats 'a'"),
    "no header": ("a,,label:b\n1,1,1\n", 1, "column 2 has no header"),
    "short line": ("a,label:b\n1,1\n\n1\n", 4, "has 1 cells, but the header has 2"),
    "long line": ("a,label:b\n1,1,0\n", 2, "has 3 cells, but the header has 2"),
    "quoted line end": ('a,label:b\n"1\n",1\n"2",1,1\n', 4, "has 3 cells"),
    "open quote": ('a,label:b\n"1,1\n', 2, "is not CSV: unexpected end of data"),
    "two": ("a,label:b\n1,1\n2,2\n", 3, "row 1, label 'label:b': '2' is not 0, 1, true, false or empty"),
    "yes": ("a,label:b\n1,yes\n", 2, "'yes' is not 0, 1"),
    "other separator": ("a;label:b\n1;1\n", 1, "the header has one column, but holds ';': give sep=';'"),
    "text feature": (
        "a,c,label:b\n1,2,1\n1,red,0\n",
        None,
        r"feature columns hold text: 'c' \(line 3: 'red'\)\. ",
    ),
    "underscore": ("a,label:b\n1_0,1\n", None, r"hold text: 'a' \(line 2: '1_0'\)"),
    "missing feature": ("a,label:b\n,1\n", None, "missing values .* row 0, feature 'a'"),
    "infinite": ("a,label:b\n1e999,1\n", None, "infinite values: row 0, feature 'a'"),
}


@pytest.mark.parametrize("name", BAD)
def test_malformed(tmp_path: Path, name: str) -> None:
    text, line, message = BAD[name]
    with pytest.raises(DataError, match=message) as caught:
        load(written(tmp_path, text))
    assert caught.value.line == line
    assert str(tmp_path / "t.csv") in str(caught.value)


def test_text_features_by_request(tmp_path: Path) -> None:
    path = written(tmp_path, "id,colour,label:b\nx,red,1\ny,blue,0\nz,?,0\n")
    with pytest.raises(DataError, match=r"'id' .*; 'colour' .*encode='onehot'.*drop=\['id', 'colour'\]"):
        load(path)
    data = load(path, drop=["id"], encode="onehot", allow_missing_features=True)
    assert data.feature_names == ("colour=blue", "colour=red")
    np.testing.assert_array_equal(data.X, [[0, 1], [1, 0], [np.nan, np.nan]])
    assert load(path, drop=["id", "colour"]).num_features == 0
    assert load(path, index="id", drop="colour").example_names == ("x", "y", "z")
    assert load(path, index=0, drop="colour").example_names == ("x", "y", "z")
    with pytest.raises(DataError, match="drop names columns that are not there: 'q'"):
        load(path, drop=["q"])
    with pytest.raises(DataError, match="encode must be 'onehot' or 'none', got 'x'"):
        load(path, encode="x")
    with pytest.raises(DataError, match="drop must be a list of column names, got 5"):
        load(path, drop=5)
    with pytest.raises(DataError, match="index must be a header or a position, got 7"):
        load(path, index=7)


def test_the_index_that_pandas_writes(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [0.1, 2.0], "label:a": [True, False]}, index=["p", "q"])
    frame.to_csv(tmp_path / "t.csv")
    data = load(tmp_path / "t.csv")
    names = {"feature_names": ["x"], "label_names": ["a"], "example_names": ["p", "q"]}
    assert data.hash() == LabelData([[0.1], [2]], [[1], [0]], **names).hash()


def test_tabs_semicolons_latin(tmp_path: Path) -> None:
    assert load(written(tmp_path, TEXT.replace(",", "\t"), "t.tsv")).num_rows == 3
    assert load(written(tmp_path, TEXT.replace(",", ";")), sep=";").num_rows == 3
    (tmp_path / "l.csv").write_bytes("x,label:café\r\n1,0\r\n".encode("latin-1"))
    with pytest.raises(DataError, match="is not utf-8 text.*encoding='latin-1'"):
        load(tmp_path / "l.csv")
    assert load(tmp_path / "l.csv", encoding="latin-1").label_names == ("café",)
    with pytest.raises(DataError, match="sep must be one character"):
        load(tmp_path / "l.csv", sep="||")


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_written_table(tmp_path: Path, kind: Any) -> None:
    data = LabelData(kind(np.array([[0.1, 0], [2, 1e300]])), [[1, np.nan], [0, 1]], label_names=["a", 'b"'])
    save_data(data, tmp_path / "t.csv")
    text = (tmp_path / "t.csv").read_text(encoding="utf-8")
    assert text == 'feature 0,feature 1,label:a,"label:b"""\n0.1,0,1,\n2,1e+300,0,1\n'
    assert load(tmp_path / "t.csv").hash() == data.hash()


def test_what_cannot_be_written(tmp_path: Path) -> None:
    for names, message in (
        (["a", "a"], "CSV cannot hold feature names twice: 'a'"),
        (["a", "label:b"], "begin with 'label:': 'label:b'"),
        (["a", ""], "that are empty"),
        (["a", "b\r"], "carriage return"),
    ):
        with pytest.raises(ValueError, match=message):
            save_data(LabelData([[1.0, 2.0]], [[1]], feature_names=names), tmp_path / "t.csv")
    split = LabelData(np.ones((2, 1)), [[1], [0]], train_index=[0], test_index=[1])
    with pytest.warns(UserWarning, match=r"t\.csv: CSV cannot hold the published split"):
        save_data(split, tmp_path / "t.csv")


def test_booleans_as_pandas_writes_them_are_features(tmp_path: Path) -> None:
    path = written(tmp_path, "flag,label:a\nTrue,1\nFalse,0\n,1\n")
    np.testing.assert_array_equal(load(path, allow_missing_features=True).X, [[1], [0], [np.nan]])
    with pytest.raises(DataError, match=r"hold text: 'flag' \(line 2: 'True'\)"):
        load(written(tmp_path, "flag,label:a\nTrue,1\n2,0\n"))
