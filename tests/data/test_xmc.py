"""XMC text: the layout, the split files, every malformed line by its number, and the real Bibtex."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from labelzoo.data import LabelData
from labelzoo.data.errors import DataError
from labelzoo.data.files import load, save_data
from labelzoo.data.xmc import read_xmc

GOOD = "4 5 3\n0,2 0:1 4:0.5\n 3:-1e-3\n1\n0:2 1:0\n\n"


def written(folder: Path, text: str, name: str = "t.txt") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8", newline="")
    return path


def test_layout(tmp_path: Path) -> None:
    data = read_xmc(written(tmp_path, GOOD))
    X = [[1, 0, 0, 0, 0.5], [0, 0, 0, -1e-3, 0], [0] * 5, [2, 0, 0, 0, 0]]
    assert data.hash() == LabelData(X, [[1, 0, 1], [0, 0, 0], [0, 1, 0], [0, 0, 0]]).hash()
    assert data.X.format == "csr"


@pytest.mark.parametrize(
    "change", [lambda t: t.replace("\n", "\r\n"), lambda t: "\ufeff" + t, lambda t: t[:-2]]
)
def test_line_ends_and_byte_order_mark(tmp_path: Path, change: object) -> None:
    good = read_xmc(written(tmp_path, GOOD)).hash()
    assert read_xmc(written(tmp_path, change(GOOD), "u.txt")).hash() == good  # type: ignore[operator]


def test_unsorted_rows(tmp_path: Path) -> None:
    a = read_xmc(written(tmp_path, "1 5 3\n2,0 4:1 0:2\n"))
    assert a.hash() == LabelData([[2, 0, 0, 0, 1]], [[1, 0, 1]]).hash()


BAD = {
    "no header": ("0,1 0:1\n", 1, r"the first line must be 'rows features labels', found '0,1 0:1'"),
    "empty": ("", 1, "the first line must be"),
    "fewer rows": ("3 2 2\n0 0:1\n", 1, "declares 3 rows, but 1 follow"),
    "more rows": ("1 2 2\n0 0:1\n1 1:1\n", 3, "declares 1 rows, but more follow"),
    "no rows": ("0 2 2\n", 1, "declares 0 rows and 2 labels"),
    "feature range": ("2 2 2\n0 0:1\n0 2:1\n", 3, r"feature 2 is outside 0\.\.1$"),
    "label range": ("2 2 2\n0 0:1\n0,2 0:1\n", 3, r"label 2 is outside 0\.\.1$"),
    "negative label": ("1 2 2\n-1 0:1\n", 2, "label '-1' is not a whole number"),
    "text label": ("1 2 2\nx,1 0:1\n", 2, "label 'x' is not a whole number"),
    "bad number": ("1 2 2\n0 0:1_0\n", 2, "value '1_0' in '0:1_0' is not a finite number"),
    "nan": ("1 2 2\n0 0:nan\n", 2, "value 'nan' in '0:nan' is not a finite number"),
    "overflow": ("2 2 2\n0 0:1\n0 0:1 1:1e999\n", 3, "the value of feature 1 is too large"),
    "arabic digits": ("1 2 2\n0 0:\u0661\n", 2, "is not a finite number"),
    "no colon": ("1 2 2\n0 0:1 7\n", 2, "'7' is not feature:value"),
    "two colons": ("1 2 2\n0 0:1:2\n", 2, "value '1:2'"),
    "bad feature": ("1 2 2\n0 a:1\n", 2, "feature 'a' in 'a:1' is not a whole number"),
    "repeated feature": ("1 3 2\n0 2:1 0:1 2:1\n", 2, "feature 2 stands twice"),
    "repeated label": ("1 3 2\n1,0,1 2:1\n", 2, "label 1 stands twice"),
    "huge counts": ("1 2 999999999999\n0 0:1\n", 1, "declares 999999999999 labels, but holds 1 entries"),
    "huge features": ("1 99999999999 2\n0 0:1\n", 1, "declares 99999999999 features"),
}


@pytest.mark.parametrize("name", BAD)
def test_malformed(tmp_path: Path, name: str) -> None:
    text, line, message = BAD[name]
    with pytest.raises(DataError, match=message) as caught:
        load(written(tmp_path, text), format="xmc")
    assert caught.value.line == line
    assert str(caught.value).startswith(f"{tmp_path / 't.txt'}:{line}: ")


def test_split_files_beside_the_data(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD, "set_data.txt")
    written(tmp_path, "1 2\n3 1\n", "set_trSplit.txt")
    written(tmp_path, "2 3\n4 4\n", "set_tstSplit.txt")
    data = load(path)
    np.testing.assert_array_equal(data.train_index, [0, 2])
    np.testing.assert_array_equal(data.test_index, [1, 3])
    other = load(path, split_column=1)
    np.testing.assert_array_equal(other.train_index, [1, 0])
    assert load(path, split=False).train_index is None
    files = (tmp_path / "set_tstSplit.txt", tmp_path / "set_trSplit.txt")
    np.testing.assert_array_equal(load(path, split=files).train_index, [1, 3])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 1\n", r"set_trSplit\.txt:1: '0' is not a row number between 1 and 4"),
        ("1\n\n5\n", r"set_trSplit\.txt:3: '5' is not a row"),
        ("1\nx\n", r"set_trSplit\.txt:2: 'x' is not a row"),
        ("2\n2\n", r"set_trSplit\.txt:2: row 2 stands twice"),
    ],
)
def test_bad_split_files(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, GOOD, "set.txt")
    written(tmp_path, text, "set_trSplit.txt")
    written(tmp_path, "3\n", "set_tstSplit.txt")
    with pytest.raises(DataError, match=message):
        load(path)


def test_bad_split_options(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    with pytest.raises(DataError, match="split must be"):
        load(path, split="x")
    written(tmp_path, "1\n", "t_trSplit.txt")
    written(tmp_path, "2\n", "t_tstSplit.txt")
    with pytest.raises(DataError, match="has 1 columns, so no split_column 1"):
        load(path, split_column=1)
    with pytest.raises(DataError, match="split_column must be a whole number"):
        load(path, split_column=-1)


def test_writing_tells_what_is_lost(tmp_path: Path) -> None:
    data = LabelData([[1.0]], [[1]], label_names=["rain"])
    with pytest.warns(UserWarning, match=r"t\.xmc\.gz: XMC text cannot hold label names$"):
        save_data(data, tmp_path / "t.xmc.gz")
    assert gzip.decompress((tmp_path / "t.xmc.gz").read_bytes()) == b"1 1 1\n0 0:1\n"
    holes = LabelData([[1.0]], [[np.nan]])
    with pytest.raises(ValueError, match=r"unobserved labels \(1 cells\): write npz, netCDF, CSV or ARFF"):
        save_data(holes, tmp_path / "u.xmc")
    assert [path.name for path in tmp_path.iterdir()] == ["t.xmc.gz"]


def test_bibtex_is_that_of_the_npz(shared_data: Path) -> None:
    data = load(shared_data / "xmc" / "Bibtex_data.txt.gz")
    same = load(shared_data / "npz" / "bibtex.npz")
    assert (data.num_rows, data.num_features, data.num_labels, data.num_positives) == (7395, 1836, 159, 17762)
    assert (data.Y != same.Y).nnz == 0
    assert abs(data.X - same.X).nnz == 0
    assert (len(data.train_index), len(data.test_index)) == (4880, 2515)
    assert (data.train_index[0], data.test_index[0]) == (1477, 5220)
