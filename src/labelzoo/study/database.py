"""One SQLite file a study: a row for each round of each cell, written in one transaction."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from labelzoo.study.plan import FORMAT, OPEN, Plan

TABLES = """
CREATE TABLE study (
    format INTEGER NOT NULL, identity TEXT NOT NULL, plan TEXT NOT NULL, versions TEXT NOT NULL
);
CREATE TABLE rounds (
    acquire TEXT NOT NULL, seed INTEGER NOT NULL, round INTEGER NOT NULL,
    asked TEXT NOT NULL, metrics TEXT NOT NULL, report TEXT NOT NULL, seconds REAL NOT NULL,
    PRIMARY KEY (acquire, seed, round)
) WITHOUT ROWID;
CREATE TABLE skipped (acquire TEXT NOT NULL, seed INTEGER NOT NULL, reason TEXT NOT NULL,
    PRIMARY KEY (acquire, seed)) WITHOUT ROWID;
CREATE TABLE failed (acquire TEXT NOT NULL, seed INTEGER NOT NULL, reason TEXT NOT NULL,
    PRIMARY KEY (acquire, seed)) WITHOUT ROWID;
"""
WAIT_SECONDS = 60.0


class Round(NamedTuple):
    """One row: what was asked in this round (positions in the data) and how well its labels predict.

    Round 0 holds the start. ``seconds`` is the time to choose; it is no part of the result.
    """

    acquire: str
    seed: int
    round: int
    asked: list[Any]
    metrics: dict[str, Any]
    report: dict[str, Any]
    seconds: float


class StudyMismatch(ValueError):
    """The database belongs to another study, another version, or is no study at all."""


@contextmanager
def connect(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the database; every statement outside ``with connection`` commits at once."""
    with closing(sqlite3.connect(path, timeout=WAIT_SECONDS, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = FULL")
        yield connection


def create(path: Path, plan: Plan, versions: dict[str, str]) -> None:
    """Make the database, whole or not at all.

    Raises
    ------
    ValueError
        If the file exists already.
    """
    from labelzoo.whole_file import whole_file

    if path.exists():
        raise ValueError(f"{str(path)!r} exists: continue it with --resume, or choose another --out")
    with whole_file(path) as temporary, connect(temporary) as connection:
        connection.executescript(TABLES)
        row = (FORMAT, plan.identity(), plan.to_json(), json.dumps(versions, sort_keys=True))
        connection.execute("INSERT INTO study VALUES (?, ?, ?, ?)", row)


def read_plan(path: Path) -> tuple[Plan, dict[str, str]]:
    """Return the plan and the versions that a database was made with.

    Raises
    ------
    StudyMismatch
        If the file is no study of this layout.
    """
    if not path.is_file():
        raise StudyMismatch(f"no study database {str(path)!r} to resume")
    try:
        with connect(path) as connection:
            (number,) = connection.execute("SELECT format FROM study").fetchone()
            if number != FORMAT:
                words = f"{str(path)!r} has layout {number}, this version of labelzoo writes {FORMAT}"
                raise StudyMismatch(f"{words}: start a new study")
            (health,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if health != "ok":
                raise StudyMismatch(f"{str(path)!r} is damaged: {health}")
            plan, versions = connection.execute("SELECT plan, versions FROM study").fetchone()
            return Plan.from_json(plan), json.loads(versions)
    except StudyMismatch:
        raise
    except (sqlite3.Error, TypeError, ValueError) as error:
        raise StudyMismatch(f"{str(path)!r} is not a study database, or damaged: {error}") from error


def extend(path: Path, plan: Plan, versions: dict[str, str]) -> None:
    """Check that `plan` continues the study in the database, and keep the larger plan.

    More rounds, seeds and acquisition functions are an extension; anything else, fewer of them too, is
    another study. Cells that failed are forgotten: they are run again.

    Raises
    ------
    StudyMismatch
        Naming what differs.
    """
    old, old_versions = read_plan(path)
    if old.identity() != plan.identity():
        differ = [
            f"{name} is {getattr(old, name)!r} there and {getattr(plan, name)!r} here"
            for name in plan.__dataclass_fields__
            if name not in OPEN and getattr(old, name) != getattr(plan, name)
        ]
        raise StudyMismatch(f"{str(path)!r} is another study: {'; '.join(differ)}")
    fewer = [
        f"{name} lacks {', '.join(str(one) for one in getattr(old, name) if one not in getattr(plan, name))}"
        for name in ("acquire", "seeds")
        if set(getattr(old, name)) - set(getattr(plan, name))
    ]
    if plan.rounds < old.rounds:
        fewer.append(f"rounds is {old.rounds} there and {plan.rounds} here")
    if fewer:
        raise StudyMismatch(f"{str(path)!r} is a larger study, which can only grow: {'; '.join(fewer)}")
    if old_versions != versions:
        names = sorted(
            name for name in {*versions, *old_versions} if old_versions.get(name) != versions.get(name)
        )
        raise StudyMismatch(
            f"{str(path)!r} was made with other versions of {', '.join(names)}: results could differ, "
            "start a new study"
        )
    with connect(path) as connection:
        connection.execute("UPDATE study SET plan = ?", (plan.to_json(),))
        connection.execute("DELETE FROM failed")


def write_round(path: Path, row: Round) -> None:
    """Write one round; a round that is there already stays as it is (it would be the same)."""
    values = (
        row.acquire,
        row.seed,
        row.round,
        json.dumps(row.asked),
        json.dumps(row.metrics, sort_keys=True),
        json.dumps(row.report, sort_keys=True),
        row.seconds,
    )
    with connect(path) as connection:
        connection.execute("INSERT OR IGNORE INTO rounds VALUES (?, ?, ?, ?, ?, ?, ?)", values)


def write_skipped(path: Path, acquire: str, seed: int, reason: str) -> None:
    """Note that a cell was not run, and why."""
    with connect(path) as connection:
        connection.execute("INSERT OR REPLACE INTO skipped VALUES (?, ?, ?)", (acquire, seed, reason))


def write_failed(path: Path, acquire: str, seed: int, reason: str) -> None:
    """Note that a cell ended in an error that nobody expected."""
    with connect(path) as connection:
        connection.execute("INSERT OR REPLACE INTO failed VALUES (?, ?, ?)", (acquire, seed, reason))


def read_rounds(path: Path, acquire: str | None = None, seed: int | None = None) -> list[Round]:
    """Return the rounds of one cell, or of the whole study, in order."""
    where, values = "", ()
    if acquire is not None:
        where, values = " WHERE acquire = ? AND seed = ?", (acquire, seed)  # type: ignore[assignment]
    query = f"SELECT * FROM rounds{where} ORDER BY acquire, seed, round"
    with connect(path) as connection:
        rows = connection.execute(query, values).fetchall()
    return [Round(a, s, r, json.loads(x), json.loads(m), json.loads(p), t) for a, s, r, x, m, p, t in rows]


def read_skipped(path: Path) -> dict[tuple[str, int], str]:
    """Return why cells were not run, by (acquisition, seed)."""
    with connect(path) as connection:
        return {(a, s): reason for a, s, reason in connection.execute("SELECT * FROM skipped")}


def read_failed(path: Path) -> dict[tuple[str, int], str]:
    """Return the errors of cells that failed, by (acquisition, seed)."""
    with connect(path) as connection:
        return {(a, s): reason for a, s, reason in connection.execute("SELECT * FROM failed")}
