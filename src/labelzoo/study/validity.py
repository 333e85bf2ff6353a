"""Whether what a study database holds can be what a study writes; if not, one line says what is wrong."""

import json
import math
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from labelzoo.study.plan import Plan

COLUMNS = {
    "study": ("format", "identity", "plan", "versions"),
    "rounds": ("acquire", "seed", "round", "asked", "metrics", "report", "seconds"),
    "skipped": ("acquire", "seed", "reason"),
    "failed": ("acquire", "seed", "reason"),
}


class StudyMismatch(ValueError):
    """The database belongs to another study, another version, or is no study at all."""


def damaged(path: Path, what: object) -> StudyMismatch:
    """Return the error of a database that holds what no study writes."""
    return StudyMismatch(f"{str(path)!r} is damaged: {what}")


def check_tables(connection: sqlite3.Connection) -> None:
    """Raise a ValueError for a table that is missing or has other columns."""
    for table, wanted in COLUMNS.items():
        found = tuple(row[1] for row in connection.execute(f"PRAGMA table_info({table})"))
        if not found:
            raise ValueError(f"table {table} is missing")
        if found != wanted:
            raise ValueError(f"table {table} has columns {', '.join(found)}, expected {', '.join(wanted)}")


def parsed_object(text: Any, what: str) -> dict[str, Any]:
    """Return the JSON object in `text`, or raise a ValueError that names it."""
    value = parsed(text, what)
    if not isinstance(value, dict):
        raise ValueError(f"{what} is {short(value)}, expected a JSON object")
    return value


def parsed(text: Any, what: str) -> Any:
    """Return the JSON value in `text`, or raise a ValueError that names it."""
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        raise ValueError(f"{what} is {short(text)}, no JSON") from None


def short(value: Any) -> str:
    """Return a value as text of at most 40 characters."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def where(acquire: Any, seed: Any, number: Any) -> str:
    """Return how one round is named."""
    return f"round {number} of {acquire}, seed {seed}"


def check_rounds(path: Path, plan: Plan, shape: tuple[int, int], rows: Iterable[Any]) -> None:
    """Refuse rounds that this study cannot have written.

    Parameters
    ----------
    path : Path
    plan : Plan
    shape : (int, int)
        Rows and labels of the data.
    rows : iterable of Round
        In order.

    Raises
    ------
    StudyMismatch
        Naming the database, the function, the seed and the round.
    """
    cells = set(plan.cells())
    numbers: dict[tuple[str, int], int] = {}
    for row in rows:
        name = where(row.acquire, row.seed, row.round)
        cell = (row.acquire, row.seed)
        if cell not in cells:
            raise damaged(path, f"its plan lacks the function or the seed of {name}")
        expected = numbers.get(cell, -1) + 1
        if row.round != expected:  # what comes after it was chosen with it: nothing to build on
            raise damaged(
                path,
                f"{where(*cell, expected)} is missing, but round {row.round} is there; start a new study",
            )
        if row.round > plan.rounds:
            raise damaged(path, f"{name} is beyond the {plan.rounds} rounds of its plan")
        numbers[cell] = row.round
        wrong = wrong_in_round(row, plan.evaluators, shape)
        if wrong is not None:
            raise damaged(path, f"{name}: {wrong}")


def wrong_in_round(row: Any, evaluators: Sequence[str], shape: tuple[int, int]) -> str | None:
    """Return what is wrong with the contents of one round, None if nothing is."""
    for query in row.asked:
        if not is_query(query, shape):
            return (
                f"asked holds {short(query)}, no row (or row and label) of {shape[0]} rows, {shape[1]} labels"
            )
    if not is_number(row.seconds) or row.seconds < 0:
        return f"seconds is {short(row.seconds)}"
    for name in ("rows", "cells"):
        if not is_index(row.metrics.get(name), shape[0] * shape[1] + 1):
            return f"metrics have no count of {name}"
    from labelzoo.study.analysis import PARTS

    for evaluator in evaluators:
        for part in PARTS:
            wrong = wrong_metrics(row.metrics.get(evaluator), part)
            if wrong is not None:
                return f"metrics of {evaluator} {wrong}"
    return None


def wrong_metrics(judged: Any, part: str) -> str | None:
    """Return what the metrics of one evaluator lack on one part, None if nothing."""
    from labelzoo.study.scoring import METRICS

    values = judged.get(part) if isinstance(judged, dict) else None
    if not isinstance(values, dict):
        return f"lack {part}"
    for metric in METRICS:
        if metric not in values:
            return f"lack {metric} on {part}"
        if values[metric] is not None and not is_number(values[metric]):
            return f"have {metric} {short(values[metric])} on {part}"
    return None


def is_query(query: Any, shape: tuple[int, int]) -> bool:
    """Say whether `query` is a row of the data, or a row and a label."""
    if isinstance(query, list):
        return len(query) == 2 and all(map(is_index, query, shape))
    return is_index(query, shape[0])


def is_index(value: Any, size: int) -> bool:
    """Say whether `value` is an integer from 0 to size - 1."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < size


def is_number(value: Any) -> bool:
    """Say whether `value` is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
