"""A study is run by one process, survives a full disk, and refuses a database that was damaged."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from labelzoo.cli import run as labelzoo
from labelzoo.data import save_npz
from labelzoo.study import StudyNotWritten, StudyRunning, database, read_failed, run, run_study, workers
from labelzoo.study.lock import only_runner
from tests.study.small import run_here, small_data, small_plan, whole_study

DATA = small_data()
PLAN = small_plan(DATA, rounds=1, num_draws=10)
HOLD = """
import fcntl, os, sys, time
fcntl.flock(os.open(sys.argv[1], os.O_CREAT | os.O_RDWR), fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: Any) -> Path:
    """A folder with data and a finished study, which nobody changes."""
    folder = Path(tmp_path_factory.mktemp("base"))
    save_npz(DATA, folder / "small.npz")
    (folder / "s").mkdir()
    whole_study(PLAN, DATA, folder / "s" / "study.db")
    return folder


@pytest.fixture
def copied(base: Path, tmp_path: Path, monkeypatch: Any) -> Path:
    """A copy of it; cells run in this process."""
    monkeypatch.setattr(run, "run_cells", run_here)
    shutil.copytree(base, tmp_path / "copy")
    return tmp_path / "copy"


def resumed(folder: Path, *more: str) -> list[str]:
    """Return the command line that goes on with the study."""
    words = "--learner label_gp:conjugate --acquire k_center,random --start 6 --batch 3 --seeds 2 --draws 10"
    data = ["--data", str(folder / "small.npz")]
    return ["active", *data, *words.split(), "--rounds", "1", "--out", str(folder / "s"), "--resume", *more]


def refusal(folder: Path, capsys: Any, *more: str) -> str:
    """Go on with the study and return the one line of the refusal."""
    assert labelzoo(resumed(folder, *more)) == 2
    printed = capsys.readouterr()
    assert not printed.out and printed.err.count("\n") == 1, printed.err
    return str(printed.err)


def changed_plan(**changes: Any) -> str:
    """Return the plan of the study as JSON with changes; None takes a field away."""
    values = json.loads(PLAN.to_json()) | changes
    away = {name for name, value in changes.items() if value is None}
    return json.dumps({name: value for name, value in values.items() if name not in away})


def changed_metrics(part: Any) -> str:
    """Return metrics whose part T of the common classifier is `part`."""
    good = {"precision": 0.5, "macro_auc": None, "micro_f1": 0.5, "log_score": -1.0}
    judged = {"own": {"E": good, "T": good}, "common": {"E": good, "T": part}}
    return json.dumps({"rows": 6, "cells": 18, **judged})


PLACE = "round 1 of k_center, seed 0"
ROW = "WHERE round = 1 AND acquire = 'k_center' AND seed = 0"


@pytest.mark.parametrize(
    ("statement", "values", "what"),
    [
        ("UPDATE study SET plan = ?", ["{}"], "plan lacks acquire, batch, data, "),
        ("UPDATE study SET plan = ?", ["x"], "plan is 'x', no JSON"),
        ("UPDATE study SET plan = ?", ["[1]"], "plan is [1], expected a JSON object"),
        ("UPDATE study SET plan = ?", [changed_plan(batch=None)], "plan lacks batch"),
        ("UPDATE study SET plan = ?", [changed_plan(more=1)], "plan has unknown more"),
        ("UPDATE study SET plan = ?", [changed_plan(start=0)], "plan: start must be a positive integer"),
        ("UPDATE study SET plan = ?", [changed_plan(seeds=7)], "plan: 'int' object is not iterable"),
        ("UPDATE study SET plan = ?", [changed_plan(batch=4)], "plan and identity do not belong together"),
        ("UPDATE study SET versions = ?", ["[]"], "versions is [], expected a JSON object"),
        ("INSERT INTO study SELECT * FROM study", [], "table study holds 2 rows, expected 1"),
        ("DROP TABLE rounds", [], "table rounds is missing"),
        ("DROP TABLE failed", [], "table failed is missing"),
        ("ALTER TABLE rounds ADD COLUMN more TEXT", [], "table rounds has columns acquire, seed, round, "),
        ("INSERT INTO skipped VALUES ('random', 'x', 'y')", [], "table skipped holds ('random', 'x', 'y')"),
        (f"UPDATE rounds SET metrics = 'x' {ROW}", [], f"{PLACE}: metrics is 'x', no JSON"),
        (f"UPDATE rounds SET metrics = '{{}}' {ROW}", [], f"{PLACE}: metrics have no count of rows"),
        (f"UPDATE rounds SET metrics = ? {ROW}", [changed_metrics(None)], "metrics of common lack T"),
        (f"UPDATE rounds SET metrics = ? {ROW}", [changed_metrics({})], "metrics of common lack precision"),
        (
            f"UPDATE rounds SET metrics = ? {ROW}",
            [changed_metrics({"precision": "high"})],
            "metrics of common have precision 'high' on T",
        ),
        (f"UPDATE rounds SET report = '[]' {ROW}", [], f"{PLACE}: report is [], expected a JSON object"),
        (f"UPDATE rounds SET asked = '{{}}' {ROW}", [], f"{PLACE}: asked is {{}}, expected a list"),
        (f"UPDATE rounds SET asked = '[9999]' {ROW}", [], f"{PLACE}: asked holds 9999, no row"),
        (f"UPDATE rounds SET asked = '[-1]' {ROW}", [], f"{PLACE}: asked holds -1, no row"),
        (f"UPDATE rounds SET asked = '[true]' {ROW}", [], f"{PLACE}: asked holds True, no row"),
        (f"UPDATE rounds SET asked = '[[1, 3]]' {ROW}", [], f"{PLACE}: asked holds [1, 3], no row"),
        (f"UPDATE rounds SET seconds = 'long' {ROW}", [], f"{PLACE}: seconds is 'long'"),
        (f"UPDATE rounds SET round = 2 {ROW}", [], f"{PLACE} is missing, but round 2 is there"),
        (f"UPDATE rounds SET acquire = 'ivr' {ROW}", [], "its plan lacks the function or the seed of "),
    ],
)  # fmt: skip
def test_damage_is_refused_in_one_line(
    copied: Path, capsys: Any, statement: str, values: list[str], what: str
) -> None:
    with closing(sqlite3.connect(copied / "s" / "study.db")) as connection, connection:
        connection.execute(statement, values)
    told = refusal(copied, capsys)
    assert f"study.db' is damaged: {what}" in told or (f"study.db' is damaged: {PLACE}: {what}" in told)
    assert [one.name for one in (copied / "s").iterdir()] == ["study.db"]


def test_a_gap_is_refused_and_nothing_is_built_on_it(copied: Path, capsys: Any) -> None:
    path = copied / "s" / "study.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM rounds WHERE round = 0 AND acquire = 'random' AND seed = 1")
    told = refusal(copied, capsys)
    assert "study.db' is damaged: round 0 of random, seed 1 is missing, but round 1 is there" in told
    assert len(database.read_rounds(path)) == 7


def test_a_round_beyond_the_plan_is_refused(copied: Path, capsys: Any) -> None:
    path = copied / "s" / "study.db"
    rows = database.read_rounds(path, "random", 1)
    database.write_round(path, PLAN, rows[-1]._replace(round=2))
    assert "round 2 of random, seed 1 is beyond the 1 rounds of its plan" in refusal(copied, capsys)


def test_label_queries_are_no_damage(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(run, "run_cells", run_here)
    plan = small_plan(DATA, acquire=("audi", "random"), seeds=(0,), rounds=1)
    run_study(plan, DATA, tmp_path / "a.db")
    run_study(plan, DATA, tmp_path / "a.db", resume=True)
    assert isinstance(database.read_rounds(tmp_path / "a.db", "audi", 0)[1].asked[0], list)


def test_a_second_process_is_refused_while_one_runs(base: Path, tmp_path: Path, monkeypatch: Any) -> None:
    tried = []

    def beside(plan: Any, data: Any, out: Path, cells: Any, *_: Any) -> None:
        for resume in (False, True):
            with pytest.raises(StudyRunning, match=r"a\.db' is being run by another process"):
                run_study(plan, data, out, resume=resume)
            tried.append(resume)

    monkeypatch.setattr(run, "run_cells", beside)
    run_study(PLAN, DATA, tmp_path / "a.db")
    assert tried == [False, True]
    assert [one.name for one in tmp_path.iterdir()] == ["a.db"]
    with pytest.raises(ValueError, match="exists: continue it with --resume"):
        run_study(PLAN, DATA, tmp_path / "a.db")


def test_a_new_study_beside_one_that_is_about_to_begin(copied: Path, capsys: Any) -> None:
    path = copied / "s" / "study.db"
    path.unlink()
    with only_runner(path):
        words = [word for word in resumed(copied) if word != "--resume"]
        assert labelzoo(words) == 2
    assert "study.db' is being run by another process: wait until it has ended" in capsys.readouterr().err
    assert not path.exists()


def test_the_lock_of_a_killed_process_blocks_nobody(tmp_path: Path) -> None:
    pytest.importorskip("fcntl", reason="locks of this kind are those of POSIX systems")
    path, place = tmp_path / "a.db", tmp_path / "a.db.lock"
    with subprocess.Popen([sys.executable, "-c", HOLD, place], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(StudyRunning), only_runner(path):
            pass
        assert place.exists()  # the holder's
        os.kill(holder.pid, signal.SIGKILL)
    assert place.exists()
    with only_runner(path), pytest.raises(StudyRunning), only_runner(path):
        pass
    assert not place.exists()


def test_a_lock_file_that_its_holder_removed_is_no_lock(tmp_path: Path, monkeypatch: Any) -> None:
    """Between opening the name and locking it, the holder ends: the file that was opened has no name more."""
    path, place, opened = tmp_path / "a.db", tmp_path / "a.db.lock", os.open
    first = [True]

    def open_then_lose(*arguments: Any) -> int:
        descriptor = opened(*arguments)
        if first.pop() if first else False:
            place.unlink()
        return descriptor

    monkeypatch.setattr(os, "open", open_then_lose)
    with only_runner(path):
        assert place.exists() and not first
        with pytest.raises(StudyRunning), only_runner(path):
            pass


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """No file of this process grows beyond `size` bytes."""
    resource = pytest.importorskip("resource", reason="limits of this kind are those of POSIX systems")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_round_that_cannot_be_written_stops_the_study(base: Path, tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "study.db"
    shutil.copy(base / "s" / "study.db", path)
    plan = small_plan(DATA, rounds=40, num_draws=10)
    before = database.read_rounds(path)
    monkeypatch.setattr(workers, "_worker", {"plan": plan, "data": DATA, "out": path})
    with full_disk(path.stat().st_size), pytest.raises(StudyNotWritten) as caught:
        workers._work("random", 0)
    told = str(caught.value)
    assert told.startswith(f"cannot write {str(path)!r}: ") and "are kept, go on with --resume" in told
    after = database.read_rounds(path)
    assert [row for row in after if row in before] == before and read_failed(path) == {}
    numbers = [row.round for row in after if (row.acquire, row.seed) == ("random", 0)]
    assert numbers == list(range(len(numbers)))


def test_a_new_study_on_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    with full_disk(4096), pytest.raises(StudyNotWritten, match=r"cannot write .*a\.db': "):
        run_study(PLAN, DATA, tmp_path / "a.db")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_full_disk_ends_the_command_in_one_line(base: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(base, folder)
    code = (
        "import resource, sys; from labelzoo.cli import main; "
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({(folder / 's' / 'study.db').stat().st_size},) * 2); "
        "main(sys.argv[1:])"
    )
    words = [*resumed(folder, "--rounds", "40", "--processes", "1")]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and not done.stdout, done.stderr
    (line,) = done.stderr.splitlines()
    assert "study.db': " in line and line.startswith("labelzoo: cannot write ")
    assert len(database.read_rounds(folder / "s" / "study.db")) >= 8
    assert read_failed(folder / "s" / "study.db") == {}
