"""The dispatcher: formats by suffix and contents, folders, options, and archives that lie about sizes."""

import bz2
import io
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelzoo.data import LabelData
from labelzoo.data.errors import DataError
from labelzoo.data.files import FORMATS, load, save_data

XMC = "2 2 2\n0 0:1\n 1:2\n"
SVM = "0 1:1\n1 2:2\n"
ARFF = "@relation 't: -C -1'\n@attribute x numeric\n@attribute y {0,1}\n@data\n1,0\n2,1\n"
TABLE = LabelData([[0.5, 0], [0, 2]], [[1, 0], [0, 1]])


def test_every_format_by_its_suffixes(tmp_path: Path) -> None:
    for name, known in FORMATS.items():
        for suffix in known.suffixes:
            assert save_data(TABLE, tmp_path / f"t{suffix}") == name
            assert load(tmp_path / f"t{suffix}").hash() == TABLE.hash()
            assert load(str(tmp_path / f"t{suffix}"), format=name).hash() == TABLE.hash()


@pytest.mark.parametrize("suffix", ["txt", "dat", "", "txt.gz"])
@pytest.mark.parametrize(
    ("name", "rows"), [("xmc", 2), ("svmlight", 2), ("arff", 2), ("npz", 2), ("netcdf", 2)]
)
def test_contents_decide_where_the_suffix_says_nothing(
    tmp_path: Path, name: str, rows: int, suffix: str
) -> None:
    packed = suffix.endswith(".gz") and FORMATS[name].packed
    source = tmp_path / f"source{FORMATS[name].suffixes[0]}{'.gz' * packed}"
    save_data(TABLE, source)
    target = tmp_path / f"t.{suffix}".rstrip(".")
    if name == "arff":
        source.with_name("source.xml").rename(tmp_path / "t.xml")
    source.rename(target)
    assert load(target).num_rows == rows


def test_three_numbers_are_an_xmc_header(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(XMC)
    (tmp_path / "b.txt.bz2").write_bytes(bz2.compress(SVM.encode()))
    assert load(tmp_path / "a.txt").num_positives == 1
    assert load(tmp_path / "b.txt.bz2").num_positives == 2


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("t.xmc", {"labels": 2}, r"format 'xmc' has no option 'labels' \(its own: split, split_column\)"),
        ("t.npz", {"sep": ","}, r"format 'npz' has no option 'sep' \(its own: none\)"),
        ("t.svm", {"xml": "x", "split": 1}, r"format 'svmlight' has no option 'xml'; 'split' \(its own: n_f"),
        ("emoji", {"labels": 3}, "a built-in data set has no option 'labels'"),
        ("t.npz", {"format": "parquet"}, "no format 'parquet'.*known: npz, netcdf, arff"),
        ("t.what", {}, r"t\.what: the suffix '\.what' is not known \(\.npz, .*give the format, one of npz"),
        ("gone.csv", {}, r"gone\.csv: no such file, and no built-in data set of that name .*emoji"),
        ("t.npz", {"format": "netcdf"}, r"t\.npz: is not a netCDF-4"),
        ("t.xmc", {"format": "npz"}, r"t\.xmc: cannot be read as \.npz: it is not a zip archive"),
    ],
)
def test_refusals(tmp_path: Path, name: str, options: dict[str, Any], message: str) -> None:
    for suffix in ("xmc", "npz", "svm"):
        save_data(TABLE, tmp_path / f"t.{suffix}")
    (tmp_path / "t.what").write_text("1")
    source = tmp_path / name if "." in name else name
    with pytest.raises(ValueError, match=message) as caught:
        load(source, **options)
    assert "\n" not in str(caught.value)


def test_options_that_are_none_are_not_given(tmp_path: Path) -> None:
    save_data(TABLE, tmp_path / "t.xmc")
    assert load(tmp_path / "t.xmc", labels=None, xml=None).hash() == TABLE.hash()


@pytest.mark.parametrize(
    ("name", "format", "message"),
    [
        ("t.txt", None, "the suffix names no format, so give one of npz, netcdf"),
        ("t.npz.gz", None, r"npz is not written as \.gz"),
        ("t.npz", "parquet", "no format 'parquet'"),
        ("no/t.csv", None, "cannot write .*No such file"),
        ("no/t.npz", None, "cannot write .*No such file"),
    ],
)
def test_refused_targets(tmp_path: Path, name: str, format: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        save_data(TABLE, tmp_path / name, format=format)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", ["npz", "nc", "csv", "svm", "xmc", "arff"])
@pytest.mark.parametrize("name", ["a\0", "\ud800"])
def test_names_that_no_file_holds(tmp_path: Path, suffix: str, name: str) -> None:
    data = LabelData([[1.0]], [[1]], label_names=[name])
    with pytest.raises(ValueError, match=r"names that no file holds .* label_names\[0\]"):
        save_data(data, tmp_path / f"t.{suffix}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", ["nc", "csv", "svm", "xmc", "arff", "csv.gz"])
def test_the_same_contents_give_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        save_data(TABLE, tmp_path / folder / f"t.{suffix}")
    assert (tmp_path / "a" / f"t.{suffix}").read_bytes() == (tmp_path / "b" / f"t.{suffix}").read_bytes()


def folder_with(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name.replace('_', '-')}.arff").write_text(text)
    return folder


def test_a_folder_with_one_file(tmp_path: Path) -> None:
    save_data(TABLE, tmp_path / "t.arff")
    assert load(tmp_path).hash() == TABLE.hash()
    (tmp_path / "t.xml").rename(tmp_path / "other.xml")
    assert load(tmp_path).label_names == TABLE.label_names


@pytest.mark.parametrize("names", [("t_train", "t_test"), ("t_train", "t_test", "t")])
def test_train_and_test_become_one_table(tmp_path: Path, names: tuple[str, ...]) -> None:
    unknown = ARFF.replace("2,1", "2,?\n3,1")
    folder = folder_with(tmp_path, **dict(zip(names, (ARFF, unknown, ARFF), strict=False)))
    data = load(folder)
    same = LabelData(
        [[1], [2], [1], [2], [3]], [[0], [1], [0], [np.nan], [1]], feature_names=["x"], label_names=["y"]
    )
    assert data.hash() == same.hash()
    np.testing.assert_array_equal(data.train_index, [0, 1])
    np.testing.assert_array_equal(data.test_index, [2, 3, 4])


def test_folders_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is a folder without an .arff file"):
        load(tmp_path)
    folder_with(tmp_path, t_train=ARFF, t_test=ARFF.replace("attribute x", "attribute z"))
    with pytest.raises(DataError, match="differ in their features: 'x' .train only.; 'z' .test only."):
        load(tmp_path)
    folder_with(tmp_path, other=ARFF)
    with pytest.raises(DataError, match="holds several data sets, give one file: other; t$"):
        load(tmp_path)
    with pytest.raises(DataError, match="folders are read as ARFF, not as csv"):
        load(tmp_path, format="csv")
    with pytest.raises(ValueError, match="a folder with ARFF has no option 'sep'"):
        load(tmp_path, sep=";")


def test_stacked_missing_of_both_kinds(tmp_path: Path) -> None:
    from labelzoo.data.arff_folder import stacked

    a = LabelData(np.ones((2, 1)), [[np.nan, np.nan, np.nan, 1], [np.nan] * 4])  # stored as observed cells
    b = LabelData(np.ones((2, 1)), [[np.nan, 1, 0, 1], [1, 0, 0, 0]])  # stored as missing cells
    assert (a.missing.cells_are, b.missing.cells_are) == ("observed", "missing")
    both = stacked(a, b, tmp_path)
    expected = np.vstack([a.observed_mask(), b.observed_mask()])
    np.testing.assert_array_equal(both.observed_mask(), expected)


def test_real_folder(shared_data: Path, tmp_path: Path) -> None:
    for name in ("enron-test.arff", "enron.xml"):
        shutil.copy(shared_data / "awkward" / name, tmp_path / name)
    data = load(tmp_path)
    assert (data.num_rows, data.num_features, data.num_labels) == (579, 1001, 53)


LIES: dict[str, tuple[dict[str, Any], str]] = {
    "labels": ({"Y_shape": [1, 10**12]}, "declares 1000000000000 labels, but holds 1 entries and no names"),
    "rows": ({"Y_shape": [10**12, 2]}, "Y_shape declares 1000000000000 rows, but Y_indptr has 2 entries"),
    "scalar shape": ({"Y_shape": 2}, "Y_shape must hold integers in one row"),
    "float shape": ({"Y_shape": [1.0, 2.0]}, "Y_shape must hold integers in one row, got float64"),
    "three sizes": ({"Y_shape": [1, 2, 3]}, "Y_shape must be two sizes"),
    "negative": ({"Y_shape": [1, -2]}, "Y_shape must be two sizes"),
    "huge": ({"Y_shape": np.array([1, 2**63], np.uint64)}, "Y_shape holds 9223372036854775808"),
    "float indices": ({"Y_indices": [0.0]}, "Y_indices must hold integers"),
    "nested indices": ({"Y_indices": [[0]]}, "Y_indices must hold integers in one row"),
    "column": ({"Y_indices": [5]}, r"columns outside 0\.\.1: Y_indices\[0\] = 5"),
    "below": ({"Y_indices": [-1]}, r"columns outside 0\.\.1: Y_indices\[0\] = -1"),
    "indptr": ({"Y_indptr": [0, 7]}, "Y_indptr must rise from 0 to the 1 entries"),
    "falling": ({"Y_indptr": [1, 0]}, "Y_indptr must rise"),
    "names": ({"label_names": ["a"]}, "Y_shape declares 2 labels, but 1 names are stored"),
    "named huge": ({"label_names": ["a"], "Y_shape": [1, 10**12]}, "but 1 names are stored"),
    "scalar names": ({"label_names": "a"}, "label_names must be one-dimensional"),
    "scalar X": ({"X": 1.0}, "X must be two-dimensional"),
    "missing": ({"missing_rows": [0.5]}, "has no array 'missing_cell_rows'"),
    "features": (
        {"X": None, "X_data": [1.0], "X_indices": [0], "X_indptr": [0, 1], "X_shape": [1, 10**12]},
        "declares 1000000000000 features",
    ),
    "values": (
        {"X": None, "X_data": [1.0, 2.0], "X_indices": [0], "X_indptr": [0, 1], "X_shape": [1, 1]},
        "X_indices has 1 entries, but X_data has 2",
    ),
}


@pytest.mark.parametrize("name", LIES)
def test_archives_that_lie(tmp_path: Path, name: str) -> None:
    changes, message = LIES[name]
    arrays: dict[str, Any] = {"X": [[1.0]], "Y_indices": [0], "Y_indptr": [0, 1], "Y_shape": [1, 2]} | changes
    np.savez(tmp_path / "x.npz", **{key: value for key, value in arrays.items() if value is not None})
    with pytest.raises(DataError, match=message) as caught:
        load(tmp_path / "x.npz")
    assert "x.npz: " in str(caught.value)


def test_a_million_labels_without_names_are_accepted(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", X=[[1.0]], Y_indices=[999_999], Y_indptr=[0, 1], Y_shape=[1, 1_000_000])
    assert load(tmp_path / "x.npz").num_labels == 1_000_000


def test_array_headers_are_held_against_the_bytes(tmp_path: Path) -> None:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, {"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**6)}
    )
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("X.npy", stream.getvalue() + bytes(8))
    with pytest.raises(DataError, match=r"'X\.npy' declares shape \(1000000, 1000000\), but holds 8 bytes"):
        load(tmp_path / "x.npz")


def test_a_short_fuzz_run_finds_nothing() -> None:
    script = Path(__file__).resolve().parents[2] / "benchmarks" / "fuzz_loaders.py"
    command = [sys.executable, str(script), "--inputs", "500", "--seed", "7", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = json.loads(done.stdout)["outcomes"]
    assert set(outcomes) == {"loaded", "refused"}
    assert min(outcomes.values()) >= 30  # the inputs are neither all sound nor all hopeless
