"""``labelzoo data describe`` and ``convert`` by their JSON, and every format as ``--data``."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelzoo.cli import run
from labelzoo.data import LabelData
from labelzoo.data.files import load, save_data
from labelzoo.data_commands import labels_rule

KEYS = {
    "rows",
    "features",
    "labels",
    "cardinality",
    "density",
    "never_positive",
    "empty_rows",
    "missing_cells",
}
KEYS |= {"label_names", "missing_feature_cells"}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "t.csv").write_text("id,x,colour,rain,sun\na,1,red,1,0\nb,,blue,,0\nc,3,red,0,0\n")
    return tmp_path / "t.csv"


def call(capsys: pytest.CaptureFixture[str], *args: Any) -> tuple[int, str, str]:
    code = run([str(a) for a in args])
    out, err = capsys.readouterr()
    return code, out, err


def test_describe(capsys: pytest.CaptureFixture[str], table: Path) -> None:
    options = ("--labels", -2, "--drop", "id", "--encode", "onehot")
    code, out, err = call(capsys, "data", "describe", table, *options, "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert set(told) >= KEYS
    assert (told["rows"], told["features"], told["labels"]) == (3, 3, 2)
    assert (told["missing_cells"], told["missing_feature_cells"], told["empty_rows"]) == (1, 1, 2)
    assert told["never_positive"] == ["sun"]
    assert told["label_names"] == ["rain", "sun"]
    code, out, _ = call(capsys, "data", "describe", table, *options)
    assert code == 0
    assert "rain, sun" in out


def test_describe_all_formats_alike(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data = LabelData([[0.5, 0], [0, 2], [1, 1]], [[1, 0], [0, 1], [0, 0]])
    told = []
    for suffix in ("npz", "nc", "arff", "xmc", "svm", "csv"):
        save_data(data, tmp_path / f"t.{suffix}")
        code, out, _ = call(capsys, "data", "describe", tmp_path / f"t.{suffix}", "--json")
        assert code == 0
        told.append(json.loads(out))
    assert all(one == told[0] for one in told)


def test_convert(capsys: pytest.CaptureFixture[str], table: Path, tmp_path: Path) -> None:
    out_path = tmp_path / "t.nc"
    options = ("--labels", "rain,sun", "--drop", "id", "--drop", "colour", "--allow-missing-features")
    code, out, err = call(capsys, "data", "convert", table, out_path, *options, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "out": str(out_path), "format": "netcdf", "rows": 3, "features": 1, "labels": 2, "positives": 1,
        "missing_cells": 1, "warnings": [],
    }  # fmt: skip
    data = load(out_path, allow_missing_features=True)
    np.testing.assert_array_equal(data.X, [[1], [np.nan], [3]])
    code, out, err = call(capsys, "data", "convert", table, out_path, *options)
    assert (code, out) == (2, "")
    assert err == f"labelzoo: {out_path} exists: give --force to overwrite it\n"
    code, out, err = call(capsys, "data", "convert", table, out_path, *options, "--force")
    assert (code, err) == (0, "")
    assert out.startswith(f"wrote {out_path} (netcdf): LabelData(3 rows, 1 dense features")
    assert out.count("\n") == 1


def test_convert_says_what_is_lost(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    save_data(LabelData([[1.0]], [[1]], label_names=["rain"]), tmp_path / "t.npz")
    code, out, err = call(
        capsys, "data", "convert", tmp_path / "t.npz", tmp_path / "t.txt", "--to", "xmc", "--json"
    )
    assert code == 0
    assert err == f"labelzoo: warning: {tmp_path / 't.txt'}: XMC text cannot hold label names\n"
    assert json.loads(out)["warnings"] == [f"{tmp_path / 't.txt'}: XMC text cannot hold label names"]


def test_convert_to_arff_guards_both_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    save_data(LabelData([[1.0]], [[1]]), tmp_path / "t.npz")
    (tmp_path / "u.xml").write_text("mine")
    code, _, err = call(capsys, "data", "convert", tmp_path / "t.npz", tmp_path / "u.arff")
    assert code == 2
    assert "u.xml exists" in err
    assert not (tmp_path / "u.arff").exists()


BAD = {
    "no file": (("describe", "gone.csv"), "gone.csv: no such file"),
    "no rule": (("describe", "{table}"), "so no column is a label"),
    "empty rule": (("describe", "{table}", "--labels", "a,,b"), "--labels 'a,,b': a name is empty"),
    "no JSON": (("describe", "{table}", "--labels", "[a"), "is no JSON list"),
    "JSON numbers": (("describe", "{table}", "--labels", "[1]"), "a list of names is needed"),
    "text": (("describe", "{table}", "--labels", "-2"), "feature columns hold text: 'id'"),
    "encode": (("describe", "{table}", "--labels", "-2", "--encode", "x"), "encode must be"),
    "format": (("describe", "{table}", "--format", "x"), "no format 'x'"),
    "option": (("describe", "emoji", "--labels", "2"), "a built-in data set has no option 'labels'"),
    "xml": (("describe", "{table}", "--xml", "a.xml"), "format 'csv' has no option 'xml'"),
    "target": (("convert", "emoji", "{tmp}/t.what"), "the suffix names no format"),
    "target folder": (("convert", "emoji", "{tmp}/no/t.npz"), "cannot write"),
    "missing": (
        ("convert", "{table}", "{tmp}/t.npz", "--labels", "-2", "--drop", "id", "--drop", "colour"),
        "missing values",
    ),
    "cannot hold": (
        (
            "convert",
            "{table}",
            "{tmp}/t.svm",
            "--labels",
            "-2",
            "--drop",
            "id",
            "--drop",
            "colour",
            "--drop",
            "x",
        ),
        "svmlight text cannot hold unobserved labels (1 cells): write npz, netCDF, CSV or ARFF",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str, capsys: pytest.CaptureFixture[str], table: Path, tmp_path: Path) -> None:
    arguments, message = BAD[name]
    code, out, err = call(capsys, "data", *(a.format(table=table, tmp=tmp_path) for a in arguments))
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("labelzoo: ")
    assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (None, None),
        ("6", 6),
        ("-6", -6),
        ("tag:*", "tag:*"),
        ("a, b", ["a", "b"]),
        ('["a,b", "6"]', ["a,b", "6"]),
        ("rain", ["rain"]),
    ],
)
def test_labels_rule(text: str | None, rule: Any) -> None:
    assert labels_rule(text) == rule


@pytest.mark.parametrize("suffix", ["nc", "arff", "svm", "csv"])
def test_any_format_as_data_of_fit(capsys: pytest.CaptureFixture[str], tmp_path: Path, suffix: str) -> None:
    rng = np.random.default_rng(0)
    data = LabelData(rng.standard_normal((8, 2)), (rng.random((8, 3)) < 0.5).astype(int))
    save_data(data, tmp_path / f"t.{suffix}")
    fit = ("fit", "bernoulli_poisson_topics", "--engine", "map_em", "--data", tmp_path / f"t.{suffix}")
    settings = ("--set", "num_topics=2", "--set", "max_iter=2", "--out", tmp_path / "f.nc", "--json")
    code, out, err = call(capsys, *fit, *settings)
    assert code == 0, err
    assert json.loads(out)["kind"] == "point"
