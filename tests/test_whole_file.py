"""One way to write a file: whole, or not at all; what is no regular file is left alone."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from labelzoo import whole_file as module
from labelzoo.whole_file import whole_file


@pytest.fixture
def umask() -> Iterator[int]:
    """A umask that leaves a group its reading."""
    before = os.umask(0o027)
    yield 0o027
    os.umask(before)


def written(target: Path, text: str = "new") -> None:
    with whole_file(target) as temporary:
        temporary.write_text(text, encoding="utf-8")


def test_a_file_is_replaced_and_no_other_is_left(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    target.write_text("old", encoding="utf-8")
    with whole_file(target) as temporary:
        assert temporary.suffix == ".json"
        temporary.write_text("new", encoding="utf-8")
        assert target.read_text(encoding="utf-8") == "old"
    assert target.read_text(encoding="utf-8") == "new"
    assert list(tmp_path.iterdir()) == [target]


def test_a_new_file_has_the_mode_that_the_umask_leaves(tmp_path: Path, umask: int) -> None:
    written(tmp_path / "a")
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o666 & ~umask


@pytest.mark.parametrize("mode", [0o600, 0o444, 0o755])
def test_the_mode_of_a_file_that_is_replaced_stays(tmp_path: Path, mode: int, umask: int) -> None:
    target = tmp_path / "a"
    target.write_text("old", encoding="utf-8")
    target.chmod(mode)
    with whole_file(target) as temporary:
        assert temporary.stat().st_mode & 0o777 == mode | 0o200  # nor can others read the half-written one
        temporary.write_text("new", encoding="utf-8")
    assert target.stat().st_mode & 0o777 == mode
    assert target.read_text(encoding="utf-8") == "new"


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    real, link, ahead = tmp_path / "far" / "real", tmp_path / "link", tmp_path / "ahead"
    real.write_text("old", encoding="utf-8")
    real.chmod(0o600)
    link.symlink_to("far/real")
    ahead.symlink_to("far/later")
    written(link)
    written(ahead)
    assert link.is_symlink()
    assert ahead.is_symlink()
    assert (
        real.read_text(encoding="utf-8") == (tmp_path / "far" / "later").read_text(encoding="utf-8") == "new"
    )
    assert real.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["ahead", "far", "later", "link", "real"]
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(ValueError, match="cannot write .*round"):
        written(tmp_path / "round")


@pytest.mark.parametrize("linked", [False, True])
def test_what_is_no_regular_file_is_refused_before_anything_is_written(tmp_path: Path, linked: bool) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    places = {"pipe": "a named pipe", "folder": "a folder", "socket": "a socket", "/dev/null": "a device"}
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        for place, kind in places.items():
            target = tmp_path / place
            if linked:
                target = tmp_path / f"to-{Path(place).name}"
                target.symlink_to(tmp_path / place)
            before = sorted(tmp_path.iterdir())
            with (
                pytest.raises(ValueError, match=f"cannot write .*{target.name}.*: it is {kind}"),
                whole_file(target),
            ):
                raise AssertionError("nothing to write to")
            assert sorted(tmp_path.iterdir()) == before


def test_long_names_are_written(tmp_path: Path) -> None:
    target = tmp_path / ("x" * 250 + ".json")
    written(target)
    assert list(tmp_path.iterdir()) == [target]
    with pytest.raises(ValueError, match="cannot write .*File name too long"):
        written(tmp_path / ("x" * 300))


def test_what_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "a.json"
    target.write_text("old", encoding="utf-8")
    with pytest.raises(KeyError), whole_file(target) as temporary:
        temporary.write_text("half", encoding="utf-8")
        raise KeyError("in the middle")

    def fail(*arguments: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(module.os, "replace", fail)
    with pytest.raises(ValueError, match="cannot write .*disk full"), whole_file(target) as temporary:
        temporary.write_text("new", encoding="utf-8")
    assert target.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_that_is_absent_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot write .*absent"), whole_file(tmp_path / "absent" / "a"):
        raise AssertionError("nothing to write to")
