"""``labelzoo data describe`` and ``convert`` by their JSON, and every format as ``--data``."""

import json
import os
import subprocess
import sys
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
    "option": (("describe", "emoji", "--labels", "2"), "a built-in data set has no option --labels"),
    "xml": (("describe", "{table}", "--xml", "a.xml"), "format 'csv' has no option --xml"),
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


SPOKEN = {
    "text features": (("t.csv", "--labels", "rain,sun"), ["--encode onehot", "--drop id --drop colour"]),
    "no label": (("t.csv",), ["give --labels names separated by commas, a number"]),
    "an ARFF without labels": (("plain.arff",), ["--labels n (first n columns)", "--xml FILE"]),
    "text in ARFF": (("text.arff", "--labels", "1"), ["leave them out with --drop 'a text'"]),
    "gaps": (("gaps.csv",), ["gaps.csv"]),
    "another separator": (("semicolon.csv",), ["give --sep ';'"]),
    "another encoding": (("latin.csv",), ["try --encoding latin-1"]),
    "an option of another format": (("t.svm", "--sep", ";"), ["has no option --sep (its own: --n-features"]),
    "no labels in svmlight": (("none.svm",), ["give --n-labels"]),
    "an unknown suffix": (("t.what",), ["give --format, one of"]),
    "drop": (("t.csv", "--labels", "1", "--drop", "nope"), ["--drop names columns that are not there"]),
    "index": (("t.csv", "--labels", "1", "--index", "nope"), ["--index must be a header"]),
}


@pytest.fixture
def folder(tmp_path: Path, table: Path) -> Path:
    (tmp_path / "plain.arff").write_text("@relation r\n@attribute a {0,1}\n@data\n1\n")
    text = "@relation r\n@attribute l {0,1}\n@attribute 'a text' string\n@data\n1,x\n"
    (tmp_path / "text.arff").write_text(text)
    (tmp_path / "gaps.csv").write_text("x,label:a\n,1\n1,0\n")
    (tmp_path / "semicolon.csv").write_text("x;label:a\n1;1\n2;0\n")
    (tmp_path / "latin.csv").write_bytes("x,label:caf\u00e9\n1,1\n2,0\n".encode("latin-1"))
    (tmp_path / "t.svm").write_text("0 1:1\n1 1:2\n")
    (tmp_path / "none.svm").write_text("1:1\n1:2\n")
    (tmp_path / "t.what").write_text("?")
    return tmp_path


@pytest.mark.parametrize("case", SPOKEN)
def test_errors_speak_the_language_of_the_command_line(
    capsys: pytest.CaptureFixture[str], folder: Path, case: str
) -> None:
    (name, *options), parts = SPOKEN[case]
    code, _, err = call(capsys, "data", "convert", folder / name, folder / "out.npz", *options)
    assert code == 2
    assert all(part in err for part in parts), err
    assert "=" not in err.replace(str(folder), ""), err


def test_gaps_are_told_by_their_option(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "gap.arff").write_text(
        "@relation r\n@attribute l {0,1}\n@attribute a numeric\n@data\n1,?\n0,2\n"
    )
    options = (folder / "gap.arff", folder / "o.npz", "--labels", 1)
    code, _, err = call(capsys, "data", "convert", *options)
    assert code == 2
    assert "give --allow-missing-features" in err
    assert call(capsys, "data", "convert", *options, "--allow-missing-features")[0] == 0


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("semicolon.csv", ("--sep", ";")),
        ("latin.csv", ("--encoding", "latin-1")),
        ("none.svm", ("--n-labels", 3, "--n-features", 2)),
        ("t.csv", ("--labels", "rain,sun", "--index", "id", "--drop", "colour")),
        ("t.csv", ("--labels", "rain,sun", "--index", "0", "--drop", "colour")),
    ],
)
def test_the_options_that_errors_advise(
    capsys: pytest.CaptureFixture[str], folder: Path, name: str, options: tuple[Any, ...]
) -> None:
    code, out, err = call(capsys, "data", "describe", folder / name, *options, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["features"] == (2 if name == "none.svm" else 1)


@pytest.mark.parametrize("coding", ["latin-1", "ascii"])
@pytest.mark.parametrize("as_json", [True, False])
def test_labels_that_the_terminal_cannot_write(tmp_path: Path, coding: str, as_json: bool) -> None:
    names = ["\U0001f600", "caf\u00e9", "\u2026"]
    save_data(LabelData(np.zeros((3, 1)), np.eye(3), label_names=names), tmp_path / "t.npz")
    command = [sys.executable, "-m", "labelzoo", "data", "describe", str(tmp_path / "t.npz")]
    command += ["--json"] * as_json
    done = subprocess.run(
        command, capture_output=True, check=False, env=os.environ | {"PYTHONIOENCODING": coding}
    )
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode(coding)
    if as_json:
        assert json.loads(text)["label_names"] == names
    else:
        assert "\\U0001f600" in text


def test_an_unrelated_xml_needs_force(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "o.xml").write_text("<project/>")
    options = (folder / "t.svm", folder / "o.arff")
    code, _, err = call(capsys, "data", "convert", *options)
    assert (code, "o.xml exists: give --force" in err) == (2, True)
    assert (folder / "o.xml").read_text() == "<project/>"
    assert call(capsys, "data", "convert", *options, "--force")[0] == 0
    assert load(folder / "o.arff").num_labels == 2
