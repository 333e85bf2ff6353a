"""Plans that are refused, and databases that are not what they should be."""

import errno
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from labelzoo.study import Plan, StudyMismatch, StudyNotWritten, database, read_failed, read_plan
from labelzoo.study.run import versions
from tests.study.small import small_data, small_plan

DATA = small_data()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"split": "none"}, "split must be one of published, random, stratified"),
        ({"targets": "test"}, "targets must be one of pool, predict, all"),
        ({"score_kernel": "best"}, "score_kernel must be one of guarded"),
        ({"evaluators": ("mine",)}, "evaluators must be among own, common"),
        ({"evaluators": ()}, "evaluators must be among"),
        ({"evaluators": ("own", "own")}, "evaluators must be among own, common, each once"),
        ({"max_seconds": 0.0}, "must be a positive number, got 0.0"),
        ({"max_seconds": float("nan")}, "must be a positive number, got nan"),
        ({"max_seconds": float("inf")}, "must be a positive number, got inf"),
        ({"start": 0}, "start must be a positive integer, got 0"),
        ({"batch": -3}, "batch must be a positive integer, got -3"),
        ({"refit": True}, "refit must be a positive integer"),
        ({"num_draws": -1}, "num_draws must be a positive integer"),
        ({"rounds": -1}, "rounds must be an integer of at least 0"),
        ({"test_fraction": 1.0}, "test_fraction must lie between 0 and 1"),
        ({"seeds": (1, 1)}, "seeds must be distinct"),
        ({"seeds": ()}, "seeds must be distinct"),
        ({"oracle": -1}, "oracle must be an integer of at least 0"),
        ({"oracle": 2}, "acquire names 'oracle' exactly when"),
        ({"acquire": ("random", "oracle")}, "acquire names 'oracle' exactly when"),
        ({"acquire": ("random", "random")}, "acquire must name functions, each once"),
        ({"acquire": ()}, "acquire must name functions"),
    ],
)
def test_plan_refusals(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small_plan(DATA, **changes)


def test_plan_round_trip_and_identity() -> None:
    plan = small_plan(DATA)
    assert Plan.from_json(plan.to_json()) == plan
    grown = small_plan(DATA, rounds=9, seeds=(0, 1, 2), acquire=("ivr", "random"), data="elsewhere")
    assert grown.identity() == plan.identity()
    for changes in ({"batch": 4}, {"settings": {"noise": 1.0}}, {"refit": 2}, {"data_hash": "0"}):
        assert small_plan(DATA, **changes).identity() != plan.identity(), changes


def make(path: Path, **changes: Any) -> Path:
    database.create(path, small_plan(DATA, **changes), versions())
    return path


def test_create_never_overwrites(tmp_path: Path) -> None:
    path = make(tmp_path / "a.db")
    with pytest.raises(ValueError, match="exists: continue it with --resume"):
        database.create(path, small_plan(DATA), versions())
    assert [one.name for one in tmp_path.iterdir()] == ["a.db"]


@pytest.mark.parametrize("links", [True, False])
def test_create_never_overwrites_what_came_a_moment_ago(
    tmp_path: Path, monkeypatch: Any, links: bool
) -> None:
    def no_links(*_: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    if not links:
        monkeypatch.setattr(os, "link", no_links)
    path = make(tmp_path / "a.db")
    assert read_plan(path)[0] == small_plan(DATA)
    monkeypatch.setattr(Path, "exists", lambda *_, **__: False)  # as another process made it just now
    with pytest.raises(ValueError, match=r"a\.db' exists: continue it with --resume"):
        make(path, batch=4)
    assert read_plan(path)[0].batch == 3 and [one.name for one in tmp_path.iterdir()] == ["a.db"]


def test_nothing_is_written_into_another_study(tmp_path: Path) -> None:
    path, other = make(tmp_path / "a.db"), small_plan(DATA, batch=4)
    for write in (
        lambda: database.write_round(path, other, database.Round("random", 0, 0, [1], {}, {}, 0.0)),
        lambda: database.write_skipped(path, other, "random", 0, "why"),
        lambda: database.write_failed(path, other, "random", 0, "why"),
    ):
        with pytest.raises(StudyMismatch, match=r"a\.db' holds another study now"):
            write()
    assert not database.read_rounds(path) and not read_failed(path) and not database.read_skipped(path)


def test_a_database_that_was_taken_away_is_not_made_anew(tmp_path: Path) -> None:
    path, row = make(tmp_path / "a.db"), database.Round("random", 0, 0, [1], {}, {}, 0.0)
    path.unlink()
    with pytest.raises(StudyNotWritten, match=r"cannot write .*a\.db': unable to open"):
        database.write_round(path, small_plan(DATA), row)
    with pytest.raises(StudyMismatch, match=r"cannot read .*a\.db': unable to open"):
        database.read_rounds(path)
    assert not path.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch": 4}, "another study: batch is 3 there and 4 here"),
        ({"learner": "label_logistic"}, "learner is 'label_gp' there"),
        ({"data_hash": "0"}, "data_hash is"),
        ({"rounds": 1}, "rounds is 2 there and 1 here"),
        ({"seeds": (0,)}, "seeds lacks 1"),
        ({"acquire": ("random",)}, "acquire lacks k_center"),
    ],
)
def test_another_study_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = make(tmp_path / "a.db")
    with pytest.raises(StudyMismatch, match=message):
        database.extend(path, small_plan(DATA, **changes), versions())
    assert read_plan(path)[0] == small_plan(DATA)


def test_an_extension_is_kept_and_failures_are_forgotten(tmp_path: Path) -> None:
    path = make(tmp_path / "a.db")
    database.write_failed(path, small_plan(DATA), "k_center", 0, "why")
    assert read_failed(path) == {("k_center", 0): "why"}
    grown = small_plan(DATA, rounds=3, seeds=(0, 1, 5), acquire=("k_center", "random", "ivr"))
    database.extend(path, grown, versions())
    assert read_plan(path)[0] == grown and read_failed(path) == {}


def test_other_versions_are_refused(tmp_path: Path) -> None:
    path = make(tmp_path / "a.db")
    with pytest.raises(StudyMismatch, match="other versions of numpy: results could differ"):
        database.extend(path, small_plan(DATA), versions() | {"numpy": "0.1"})
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE study SET format = 99")
    with pytest.raises(StudyMismatch, match="has layout 99, this version"):
        read_plan(path)


def test_files_that_are_no_study(tmp_path: Path) -> None:
    with pytest.raises(StudyMismatch, match=r"no study database .* to resume"):
        read_plan(tmp_path / "absent.db")
    text = tmp_path / "text.db"
    text.write_text("no database at all, but text that is long enough" * 50)
    with pytest.raises(StudyMismatch, match="not a study database"):
        read_plan(text)
    empty = tmp_path / "empty.db"
    empty.touch()
    with pytest.raises(StudyMismatch, match="no such table"):
        read_plan(empty)
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection, connection:
        connection.execute("CREATE TABLE study (format, plan)")
    with pytest.raises(StudyMismatch, match="not a study database"):
        read_plan(tmp_path / "other.db")


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_a_truncated_file_is_refused(tmp_path: Path, share: float) -> None:
    path = make(tmp_path / "a.db")
    for number in range(40):
        database.write_round(
            path, small_plan(DATA), database.Round("random", 0, number, [1] * 500, {}, {}, 0.0)
        )
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(StudyMismatch, match="damaged"):
        read_plan(path)


def test_a_page_of_rubbish_is_noticed(tmp_path: Path) -> None:
    path = make(tmp_path / "a.db")
    for number in range(40):
        database.write_round(
            path, small_plan(DATA), database.Round("random", 0, number, [1] * 500, {}, {}, 0.0)
        )
    content = bytearray(path.read_bytes())
    content[-3 * 4096 : -2 * 4096] = b"\xff" * 4096
    path.write_bytes(content)
    with pytest.raises(StudyMismatch, match="is damaged"):
        read_plan(path)


def test_a_round_is_written_once(tmp_path: Path) -> None:
    path = make(tmp_path / "a.db")
    row = database.Round("random", 0, 0, [1, 2], {"cells": 6}, {}, 0.5)
    database.write_round(path, small_plan(DATA), row)
    database.write_round(path, small_plan(DATA), row._replace(asked=[3]))
    assert database.read_rounds(path) == [row]
