"""Files that are read and written: kinds, links, pairs, names that must come back."""

import csv
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelzoo.data import DataError, LabelData, load, save_data
from labelzoo.data import mulan_write as module

NAMES = ["x" * 200_000, "\ufeffx", "x\ufeff", "a;b", " a ", '"', "'", "a\tb", "#", "é" * 99]
REFUSED = (("csv", True, False), ("svm", False, True))
SUFFIXES = ("npz", "nc", "arff", "csv", "svm", "xmc")


def table(labels: Any = ("a", "b"), **names: Any) -> LabelData:
    return LabelData(np.array([[0.5, 1.0], [2.0, 0.0]]), np.eye(2), label_names=list(labels), **names)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("linked", [False, True])
def test_only_regular_files_are_read_and_written(tmp_path: Path, suffix: str, linked: bool) -> None:
    os.mkfifo(tmp_path / f"pipe.{suffix}")
    for place, kind in ((tmp_path / f"pipe.{suffix}", "a named pipe"), (Path("/dev/zero"), "a device")):
        source = place
        if linked or place.parent == Path("/dev"):
            source = tmp_path / f"{place.stem}-link.{suffix}"
            source.symlink_to(place)
        before = sorted(tmp_path.iterdir())
        with pytest.raises(DataError, match=f"cannot be read: it is {kind}"):
            load(source)
        with pytest.raises(ValueError, match=f"cannot write .*{source.name}.*: it is {kind}"):
            save_data(table(), source)
        assert sorted(tmp_path.iterdir()) == before


def test_files_that_are_found_beside_or_within_are_regular_too(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "a.arff").symlink_to("/dev/null")
    save_data(table(), tmp_path / "t.arff")
    (tmp_path / "l.xml").symlink_to("/dev/null")
    for source, options in ((tmp_path / "f", {}), (tmp_path / "t.arff", {"xml": tmp_path / "l.xml"})):
        with pytest.raises(DataError, match="cannot be read: it is a device"):
            load(source, **options)


def test_a_list_that_cannot_come_leaves_the_new_file_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_data(table(("b", "c")), tmp_path / "t.arff")
    (tmp_path / "t.xml").chmod(0o600)
    real, fails = os.replace, [True]

    def fail(source: Any, target: Any) -> None:
        if fails and str(target).endswith(".xml"):
            raise OSError("disk full")
        real(source, target)

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(ValueError, match="t.xml.*disk full"):
        save_data(table(), tmp_path / "t.arff")
    assert [path.name for path in tmp_path.iterdir()] == ["t.arff"]
    assert load(tmp_path / "t.arff").hash() == table().hash()
    fails.clear()
    save_data(table(), tmp_path / "t.arff")
    (tmp_path / "t.xml").chmod(0o600)
    save_data(table(("c", "d")), tmp_path / "t.arff")
    assert (tmp_path / "t.xml").stat().st_mode & 0o777 == 0o600


@pytest.mark.filterwarnings("ignore:.*cannot hold")
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_mode_and_link_stay(tmp_path: Path, suffix: str) -> None:
    target, link = tmp_path / f"t.{suffix}", tmp_path / f"l.{suffix}"
    save_data(table(), target)
    target.chmod(0o600)
    link.symlink_to(target.name)
    save_data(table(), link)
    assert link.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o600
    assert load(target).num_rows == 2


@pytest.mark.parametrize("name", ["x" * 300 + ".csv", "x" * 300, "a\0b", "a\0b.csv"])
def test_names_that_no_file_has(name: str) -> None:
    with pytest.raises(DataError) as caught:
        load(name)
    assert "\n" not in str(caught.value)


def test_what_save_data_takes_and_replaces(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"data must be a LabelData, got ndarray: .*from_arrays"):
        save_data(np.eye(2), tmp_path / "a.npz")
    for attempt in (lambda: load(5), lambda: save_data(table(), 5)):
        with pytest.raises(ValueError, match="must be a path or a name, got int"):
            attempt()
    assert not list(tmp_path.iterdir())
    save_data(table(), tmp_path / "a.npz", overwrite=False)
    with pytest.raises(ValueError, match="a.npz exists, and overwrite=False"):
        save_data(table(), tmp_path / "a.npz", overwrite=False)
    save_data(table(), tmp_path / "a.npz")
    (tmp_path / "b.xml").write_text("<labels/>")
    with pytest.raises(ValueError, match="b.xml exists, and overwrite=False"):
        save_data(table(), tmp_path / "b.arff", overwrite=False)


def test_an_xml_of_something_else_is_not_replaced(tmp_path: Path) -> None:
    other = tmp_path / "p.xml"
    other.write_text("<project/>")
    with pytest.raises(ValueError, match=r"p\.xml' would be replaced .* is none: is not a Mulan label list"):
        save_data(table(), tmp_path / "p.arff")
    assert [path.name for path in tmp_path.iterdir()] == ["p.xml"]
    other.write_text(module.label_xml(("c", "d")))
    with pytest.raises(ValueError, match="lists other labels"):
        save_data(table(), tmp_path / "p.arff")
    assert other.read_text() == module.label_xml(("c", "d"))
    save_data(table(), tmp_path / "p.arff", force=True)
    assert load(tmp_path / "p.arff").label_names == ("a", "b")
    save_data(table(("c", "d")), tmp_path / "p.arff")  # the list of the file that is replaced
    assert load(tmp_path / "p.arff").label_names == ("c", "d")


def test_a_folder_in_the_way_of_either_file_changes_neither(tmp_path: Path) -> None:
    save_data(table(), tmp_path / "y.arff")
    (tmp_path / "z.arff").mkdir()
    (tmp_path / "z.xml").write_text(module.label_xml(("a", "b")))
    with pytest.raises(ValueError, match=r"cannot write .*z\.arff': it is a folder"):
        save_data(table(("b", "c")), tmp_path / "z.arff", force=True)
    assert (tmp_path / "z.xml").read_text() == module.label_xml(("a", "b"))
    (tmp_path / "y.xml").unlink()
    (tmp_path / "y.xml").mkdir()
    before = (tmp_path / "y.arff").read_bytes()
    with pytest.raises(ValueError, match=r"cannot write .*y\.xml': it is a folder"):
        save_data(table(("b", "c")), tmp_path / "y.arff", force=True)
    assert (tmp_path / "y.arff").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["y.arff", "y.xml", "z.arff", "z.xml"]


@pytest.mark.parametrize("step", range(4))
@pytest.mark.parametrize("old", [None, ("b", "feature 0")])
def test_a_kill_between_the_renames_leaves_what_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, old: Any
) -> None:
    before = None
    if old is not None:
        before = table(old, feature_names=["a", "x"])
        save_data(before, tmp_path / "t.arff")
    folder = tmp_path / "at the kill"
    real, calls = os.replace, []

    def replace(source: Any, target: Any) -> None:
        if len(calls) == step:
            folder.mkdir()
            for path in tmp_path.glob("t.*"):
                (folder / path.name).write_bytes(path.read_bytes())
        calls.append(target)
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    save_data(table(), tmp_path / "t.arff")
    assert len(calls) == (2 if old is None else 3)
    assert load(tmp_path / "t.arff").hash() == table().hash()
    if step < len(calls) and (folder / "t.arff").exists():
        hashes = [one.hash() for one in (before, table()) if one is not None]
        assert load(folder / "t.arff").hash() in hashes


def test_a_failure_between_the_renames_brings_the_old_pair_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_data(table(("b", "c")), tmp_path / "t.arff")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    real = os.replace

    def fail(source: Any, target: Any) -> None:
        if str(target).endswith(".arff"):
            raise OSError("disk full")
        real(source, target)

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(ValueError, match="disk full"):
        save_data(table(), tmp_path / "t.arff")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.filterwarnings("ignore:.*cannot hold")
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_names_come_back_or_are_refused(tmp_path: Path, suffix: str, name: str) -> None:
    limit = csv.field_size_limit()
    several = LabelData(np.eye(2), np.eye(2), feature_names=[name, "y"], label_names=[f"{name}l", "m"])
    alone = LabelData(np.zeros((2, 0)), np.array([[1], [0]]), label_names=[name])
    named = LabelData(np.eye(2), np.eye(2), example_names=[name, "r"])
    for data, key in ((several, "feature_names"), (alone, "label_names"), (named, "example_names")):
        target = tmp_path / f"{key}.{suffix}"
        try:
            save_data(data, target)
        except ValueError as error:
            assert (suffix, "byte-order" in str(error), "without features" in str(error)) in REFUSED  # noqa: PT017
            continue
        if suffix == "xmc" or (suffix, key) == ("arff", "example_names"):
            continue  # lost with a warning
        assert getattr(load(target), key) == getattr(data, key)
    assert csv.field_size_limit() == limit
