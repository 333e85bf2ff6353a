"""One SQLite file a study: a row for each round of each cell, written in one transaction."""

import json
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

from labelzoo.study.plan import FORMAT, OPEN, Plan
from labelzoo.study.sqlite_file import StudyNotWritten, connect, put_under_free_name, reading, writing
from labelzoo.study.validity import (
    StudyMismatch,
    check_tables,
    damaged,
    parsed,
    parsed_object,
    short,
    where,
)
from labelzoo.whole_file import named_errors, temporary_file

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


def create(path: Path, plan: Plan, versions: dict[str, str]) -> None:
    """Make the database, whole or not at all, and only if its name is free.

    Raises
    ------
    ValueError
        If the file exists already, or cannot be written.
    """
    taken = f"{str(path)!r} exists: continue it with --resume, or choose another --out"
    if path.exists():
        raise ValueError(taken)
    row = (FORMAT, plan.identity(), plan.to_json(), json.dumps(versions, sort_keys=True))
    with temporary_file(path) as temporary:
        try:
            with connect(temporary) as connection:
                connection.executescript(TABLES)
                connection.execute("INSERT INTO study VALUES (?, ?, ?, ?)", row)
        except sqlite3.Error as error:
            raise StudyNotWritten(f"cannot write {str(path)!r}: {error}") from error
        try:
            with named_errors(path):
                put_under_free_name(temporary, path.resolve())
        except ValueError as error:
            raise (ValueError(taken) if isinstance(error.__cause__, FileExistsError) else error) from None


def read_plan(path: Path) -> tuple[Plan, dict[str, str]]:
    """Return the plan and the versions that a database was made with.

    Raises
    ------
    StudyMismatch
        If the file is no study of this layout, or damaged.
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
                raise damaged(path, health)
    except (sqlite3.Error, TypeError) as error:
        raise StudyMismatch(f"{str(path)!r} is not a study database, or damaged: {error}") from error
    try:
        with reading(path) as connection:
            check_tables(connection)
            rows = connection.execute("SELECT identity, plan, versions FROM study").fetchall()
        if len(rows) != 1:
            raise ValueError(f"table study holds {len(rows)} rows, expected 1")
        ((identity, plan, versions),) = rows
        return checked_plan(identity, plan), parsed_object(versions, "versions")
    except StudyMismatch:
        raise
    except ValueError as error:
        raise damaged(path, error) from error


def checked_plan(identity: str, text: str) -> Plan:
    """Return the plan in `text`, or raise a ValueError that says what is wrong with it."""
    values = parsed_object(text, "plan")
    names = Plan.__dataclass_fields__
    for words, wrong in (("lacks", set(names) - set(values)), ("has unknown", set(values) - set(names))):
        if wrong:
            raise ValueError(f"plan {words} {', '.join(sorted(wrong))}")
    try:
        plan = Plan.from_json(text)
        same = plan.identity() == identity
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"plan: {error}") from error
    if not same:
        raise ValueError("plan and identity do not belong together")
    return plan


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
    with writing(path, plan) as connection:
        connection.execute("UPDATE study SET plan = ?", (plan.to_json(),))
        connection.execute("DELETE FROM failed")


def write_round(path: Path, plan: Plan, row: Round) -> None:
    """Write one round; a round that is there already stays as it is (it would be the same).

    Raises
    ------
    StudyMismatch, StudyNotWritten
        As `writing` does; so do the functions below.
    """
    values = (
        row.acquire,
        row.seed,
        row.round,
        json.dumps(row.asked),
        json.dumps(row.metrics, sort_keys=True),
        json.dumps(row.report, sort_keys=True),
        row.seconds,
    )
    with writing(path, plan) as connection:
        connection.execute("INSERT OR IGNORE INTO rounds VALUES (?, ?, ?, ?, ?, ?, ?)", values)


def write_skipped(path: Path, plan: Plan, acquire: str, seed: int, reason: str) -> None:
    """Note that a cell was not run, and why."""
    with writing(path, plan) as connection:
        connection.execute("INSERT OR REPLACE INTO skipped VALUES (?, ?, ?)", (acquire, seed, reason))


def write_failed(path: Path, plan: Plan, acquire: str, seed: int, reason: str) -> None:
    """Note that a cell ended in an error that nobody expected."""
    with writing(path, plan) as connection:
        connection.execute("INSERT OR REPLACE INTO failed VALUES (?, ?, ?)", (acquire, seed, reason))


def read_rounds(path: Path, acquire: str | None = None, seed: int | None = None) -> list[Round]:
    """Return the rounds of one cell, or of the whole study, in order.

    Raises
    ------
    StudyMismatch
        Naming the database and the round, if a row is no round.
    """
    condition, values = "", ()
    if acquire is not None:
        condition, values = " WHERE acquire = ? AND seed = ?", (acquire, seed)  # type: ignore[assignment]
    columns = ", ".join(Round._fields)
    query = f"SELECT {columns} FROM rounds{condition} ORDER BY acquire, seed, round"
    with reading(path) as connection:
        rows = connection.execute(query, values).fetchall()
    try:
        return [round_of(row) for row in rows]
    except ValueError as error:
        raise damaged(path, error) from error


def round_of(row: tuple[Any, ...]) -> Round:
    """Return one row as a Round, or raise a ValueError that names it."""
    acquire, seed, number, asked, metrics, report, seconds = row
    name = where(acquire, seed, number)
    queries = parsed(asked, f"{name}: asked")
    if not isinstance(queries, list):
        raise ValueError(f"{name}: asked is {short(queries)}, expected a list")
    return Round(
        acquire,
        seed,
        number,
        queries,
        parsed_object(metrics, f"{name}: metrics"),
        parsed_object(report, f"{name}: report"),
        seconds,
    )


def read_skipped(path: Path) -> dict[tuple[str, int], str]:
    """Return why cells were not run, by (acquisition, seed)."""
    return _read_reasons(path, "skipped")


def read_failed(path: Path) -> dict[tuple[str, int], str]:
    """Return the errors of cells that failed, by (acquisition, seed)."""
    return _read_reasons(path, "failed")


def _read_reasons(path: Path, table: str) -> dict[tuple[str, int], str]:
    with reading(path) as connection:
        rows = connection.execute(f"SELECT acquire, seed, reason FROM {table}").fetchall()
    for row in rows:
        if tuple(map(type, row)) != (str, int, str):
            raise damaged(path, f"table {table} holds {short(row)}, expected a function, a seed and a reason")
    return {(acquire, seed): reason for acquire, seed, reason in rows}
