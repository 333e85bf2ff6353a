"""The SQLite file of a study: opened, written by whole transactions, its errors in one line with its name."""

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from labelzoo.study.plan import Plan
from labelzoo.study.validity import StudyMismatch, damaged

WAIT_SECONDS = 60.0
FAULTS = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
"""Codes of SQLite that tell of what is in a file: tables that are missing, pages that are none."""


class StudyNotWritten(ValueError):
    """The database cannot be written to (a full disk, for instance); what it holds already is kept."""


@contextmanager
def connect(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database that exists; every statement outside a transaction commits at once."""
    address = f"{path.absolute().as_uri()}?mode=rw"  # never make one where a file was taken away
    opened = sqlite3.connect(address, timeout=WAIT_SECONDS, isolation_level=None, uri=True)
    with closing(opened) as connection:
        connection.execute("PRAGMA synchronous = FULL")
        yield connection


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database to read; what SQLite says of it becomes a StudyMismatch that names it."""
    try:
        with connect(path) as connection:
            yield connection
    except sqlite3.Error as error:
        if is_damage(error):
            raise damaged(path, error) from error
        raise StudyMismatch(f"cannot read {str(path)!r}: {error}") from error


@contextmanager
def writing(path: Path, plan: Plan) -> Iterator[sqlite3.Connection]:
    """Open a transaction in the database of `plan`; it is written whole or not at all.

    Raises
    ------
    StudyMismatch
        If the database belongs to another study, or is damaged.
    StudyNotWritten
        If it cannot be written, naming it and the reason.
    """
    try:
        with connect(path) as connection:
            connection.execute("BEGIN IMMEDIATE")
            if connection.execute("SELECT identity FROM study").fetchall() != [(plan.identity(),)]:
                raise StudyMismatch(f"{str(path)!r} holds another study now: nothing is written to it")
            yield connection
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        if is_damage(error):
            raise damaged(path, error) from error
        raise StudyNotWritten(
            f"cannot write {str(path)!r}: {error}; the rounds in it are kept, go on with --resume"
        ) from error


def is_damage(error: sqlite3.Error) -> bool:
    """Say whether SQLite found a database at fault, and not its surroundings."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is None or code & 0xFF in FAULTS


def put_under_free_name(temporary: Path, target: Path) -> None:
    """Give a file the name `target`; FileExistsError if that is taken, however short a time ago."""
    try:
        os.link(temporary, target)
        return
    except OSError as error:
        if error.errno == errno.EEXIST:
            raise
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY))  # no links here: take the name first
    os.replace(temporary, target)
