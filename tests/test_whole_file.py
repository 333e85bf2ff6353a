"""One way to write a file: whole, or not at all."""

from pathlib import Path
from typing import Any

import pytest

from labelzoo import whole_file as module
from labelzoo.whole_file import whole_file


def test_a_file_is_replaced_and_no_other_is_left(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    target.write_text("old", encoding="utf-8")
    with whole_file(target) as temporary:
        assert temporary.suffix == ".json"
        temporary.write_text("new", encoding="utf-8")
        assert target.read_text(encoding="utf-8") == "old"
    assert target.read_text(encoding="utf-8") == "new"
    assert target.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.iterdir()) == [target]


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
