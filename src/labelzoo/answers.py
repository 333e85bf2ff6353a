"""A person's answers: read from CSV or JSON, checked against what was asked, written into the data."""

import csv
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from labelzoo.data import LabelData
from labelzoo.data.errors import DataError
from labelzoo.data.missing import Missing
from labelzoo.data.text_columns import label_value
from labelzoo.data.text_files import open_text
from labelzoo.data.validate import listed
from labelzoo.questions import NOT_ASKED, Questions, encoding_of, pool_hash, read_json, refuse_shared_names

Array = Any
Answers = Mapping[str, Mapping[str, int]]
ID_HEADERS = ("id", "obs", "")
BLOCK_CELLS = 1_000_000


class Told(NamedTuple):
    """Data after answers were told.

    Attributes
    ----------
    data : LabelData
        What was answered is observed, what was not stays as it was.
    new, same, changed : int
        Cells that were unobserved before, that said the same before, and that said the opposite.
    open : int
        Cells that were asked and are still unobserved.
    open_ids : tuple of str
        Rows with such cells.
    """

    data: LabelData
    new: int
    same: int
    changed: int
    open: int
    open_ids: tuple[str, ...]


class Cells(NamedTuple):
    """Labels of single cells: positions of row and label (cell,), values 0 or 1 (cell,)."""

    rows: Array
    labels: Array
    values: Array


def tell(pool: LabelData, questions: Questions, answers: Any, *, force: bool = False) -> Told:
    """Return `pool` with the answers in it.

    Parameters
    ----------
    pool : LabelData
        The pool that was asked about, with or without earlier answers.
    questions : Questions
    answers : mapping, or path of a CSV or JSON file
        Row id to ``{label: 0 or 1}`` (None: not known), or to the list of its positive labels: the others are
        then negative where the row was asked whole, and stay unobserved where single labels were asked.
    force : bool
        Take answers about rows or labels that were not asked, and let answers replace what they contradict.

    Raises
    ------
    ValueError
        If the questions are about another pool; for an unknown row or label; and, without `force`, for one
        that was not asked and for a contradiction. The message names row and label.
    """
    refuse_other_pool(pool, questions)
    found = answers if isinstance(answers, Mapping) else read_answers(answers)
    cells = _cells(pool, questions, _by_label(questions, found), force)
    observed, values = _now(pool, cells)
    against = observed & (values != cells.values)
    if against.any() and not force:
        raise ValueError(_contradiction(pool, cells, values, against))
    data = with_cells(pool, cells)
    left = {name: count for name, count in _open(data, questions).items() if count}
    new, changed = int(np.count_nonzero(~observed)), int(np.count_nonzero(against))
    same = len(observed) - new - changed
    return Told(data, new, same, changed, sum(left.values()), tuple(left))


def refuse_other_pool(pool: LabelData, questions: Questions) -> None:
    """Raise ValueError unless `questions` were asked about the rows of `pool`."""
    if tuple(pool.label_names) != questions.label_names:
        raise ValueError("the questions are about another pool: its labels differ")
    if pool_hash(pool) != questions.pool_hash:
        raise ValueError("the questions are about another pool: its rows, features or names differ")


def read_answers(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a file of answers: JSON by its suffix or first character, else CSV (``.tsv``: tabs).

    Raises
    ------
    DataError
        One line that begins with path and line.
    """
    with open_text(path, encoding_of(path)) as stream:
        is_json = Path(path).suffix.lower() == ".json" or stream.read(64).lstrip().startswith("{")
    if not is_json:
        return _read_csv(path)
    values = read_json(path)
    if not isinstance(values, dict):
        raise DataError("answers are a JSON object: row id to a list of labels, or to {label: 0 or 1}", path)
    return values


def _read_csv(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return id to {label: 0 or 1} of the filled cells."""
    found: dict[str, Any] = {}
    with open_text(path, encoding_of(path)) as stream:
        reader = csv.reader(stream, delimiter="\t" if Path(path).suffix.lower() == ".tsv" else ",")
        header = _checked_header(next(reader, []), path)
        try:
            for line in reader:
                if line:
                    name, cells = _read_line(header, line, path, reader.line_num)
                    if name in found:
                        raise DataError(f"row {name!r} stands twice", path, reader.line_num)
                    found[name] = cells
        except csv.Error as error:
            raise DataError(f"is not CSV: {error}", path, reader.line_num) from error
    return found


def _checked_header(header: list[str], path: Any) -> list[str]:
    if not header or header[0].strip().lower() not in ID_HEADERS:
        other = next((mark for mark in (";", "\t") if len(header) == 1 and mark in header[0]), None)
        hint = "" if other is None else f"; its columns are separated by {other!r}, not by commas"
        raise DataError(f"the first column must be 'id', the others labels{hint}", path, 1)
    repeated = sorted({name for name in header[1:] if header[1:].count(name) > 1})
    if repeated:
        raise DataError(f"the header repeats {listed(repeated)}", path, 1)
    return header


def _read_line(header: list[str], line: list[str], path: Any, number: int) -> tuple[str, dict[str, int]]:
    if len(line) != len(header):
        raise DataError(f"has {len(line)} cells, the header {len(header)}", path, number)
    out = {}
    for label, cell in zip(header[1:], line[1:], strict=True):
        value = np.nan if cell.strip() == NOT_ASKED else label_value(cell)
        if value is None:
            raise DataError(f"label {label!r} is {cell!r}: write 0, 1 or nothing", path, number)
        if not np.isnan(value):
            out[label] = int(value)
    return line[0], out


def _by_label(questions: Questions, answers: Mapping[Any, Any]) -> dict[str, dict[str, int]]:
    """Return every answer as {label: 0 or 1}."""
    asked = questions.asked
    out = {}
    for key, said in answers.items():
        name = str(key)
        if isinstance(said, Mapping):
            out[name] = {str(k): v for k, v in ((k, _value(name, k, v)) for k, v in said.items()) if v >= 0}
        elif isinstance(said, list | tuple | set | frozenset):
            out[name] = _from_list(questions, name, said, whole=questions.query == "row" and name in asked)
        else:
            raise ValueError(f"row {name!r}: answer with a list of labels or with {{label: 0 or 1}}")
    return out


def _value(name: str, label: Any, value: Any) -> int:
    """Return 0, 1, or -1 where the label is not known."""
    found = label_value(value)
    if found is None:
        raise ValueError(f"row {name!r}, label {label!r}: the answer is {value!r}, not 0, 1 or nothing")
    return -1 if np.isnan(found) else int(found)


def _from_list(questions: Questions, name: str, positive: Any, whole: bool) -> dict[str, int]:
    wrong = [repr(label) for label in positive if not isinstance(label, str)]
    if wrong:
        raise ValueError(f"row {name!r}: {listed(wrong)} is no name of a label")
    if not whole and not positive:
        raise ValueError(f"row {name!r} was not asked whole: answer {{label: 0 or 1}}, not an empty list")
    others = dict.fromkeys(questions.label_names, 0) if whole else {}
    return {**others, **dict.fromkeys(positive, 1)}


def _cells(pool: LabelData, questions: Questions, answers: Answers, force: bool) -> Cells:
    """Return the answers by position, after unknown and unasked ones are refused."""
    refuse_shared_names(pool, set(answers))
    row_of = {name: i for i, name in enumerate(pool.example_names)}
    label_of = {name: j for j, name in enumerate(pool.label_names)}
    asked = {name: frozenset(labels) for name, labels in questions.asked.items()}
    rows, labels, values = [], [], []
    for name, said in answers.items():
        if name not in row_of:
            raise ValueError(f"row {name!r} is not in the pool")
        if name not in asked and not force:
            raise ValueError(f"row {name!r} was not asked; force=True (--force) takes it all the same")
        for label, value in said.items():
            if label not in label_of:
                raise ValueError(f"row {name!r}: the pool has no label {label!r}")
            if not force and label not in asked[name]:
                raise ValueError(
                    f"row {name!r}, label {label!r} was not asked; force=True (--force) takes it all the same"
                )
            rows.append(row_of[name])
            labels.append(label_of[label])
            values.append(value)
    return Cells(np.array(rows, np.int64), np.array(labels, np.int64), np.array(values, np.int8))


def _now(data: LabelData, cells: Cells) -> tuple[Array, Array]:
    """Return what the data say at the cells: observed (cell,) bool and values (cell,)."""
    rows, at = np.unique(cells.rows, return_inverse=True)
    if not len(rows):
        return np.zeros(0, bool), np.zeros(0, np.int8)
    mask = data.observed_mask(rows, max_bytes=len(rows) * data.num_labels)
    return mask[at, cells.labels], data.Y[rows].toarray()[at, cells.labels]


def _contradiction(data: LabelData, cells: Cells, values: Array, against: Array) -> str:
    first = int(np.flatnonzero(against)[0])
    others = int(np.count_nonzero(against)) - 1
    more = f" (and {others} more)" if others else ""
    row, label = data.example_names[cells.rows[first]], data.label_names[cells.labels[first]]
    return (
        f"row {row!r}, label {label!r}: the data say {int(values[first])}, the answer "
        f"{int(cells.values[first])}{more}; force lets answers replace what is known"
    )


def _open(data: LabelData, questions: Questions) -> dict[str, int]:
    """Return how many cells of each asked row are still unobserved."""
    refuse_shared_names(data, set(questions.asked))
    row_of = {name: i for i, name in enumerate(data.example_names)}
    label_of = {name: j for j, name in enumerate(data.label_names)}
    absent = [name for name in questions.asked if name not in row_of]
    if absent:
        raise ValueError(f"the questions are damaged: the pool has no row {absent[0]!r}")
    rows = [row_of[name] for name in questions.asked]
    mask = data.observed_mask(rows, max_bytes=len(rows) * data.num_labels)
    return {
        name: int(np.count_nonzero(~line[[label_of[label] for label in labels]]))
        for (name, labels), line in zip(questions.asked.items(), mask, strict=True)
    }


def with_cells(data: LabelData, cells: Cells) -> LabelData:
    """Return `data` with the labels at `cells` observed as given; no table of rows x labels is made.

    Only the rows that `cells` touches become dense for a moment.
    """
    rows, at = np.unique(cells.rows, return_inverse=True)
    if not len(rows):
        return data
    mask = np.array(data.observed_mask(rows, max_bytes=len(rows) * data.num_labels))
    table = data.Y[rows].toarray()
    mask[at, cells.labels], table[at, cells.labels] = True, cells.values
    return LabelData(
        X=data.X,
        Y=_replaced_rows(data.Y, rows, table),
        missing=_replaced_missing(data, rows, mask),
        feature_names=data.feature_names,
        label_names=data.label_names,
        example_names=data.example_names,
        train_index=data.train_index,
        test_index=data.test_index,
        allow_missing_features=data.allow_missing_features,
    )


def _replaced_rows(Y: Any, rows: Array, table: Array) -> sparse.csr_array:
    old = Y.tocoo()
    keep = ~np.isin(old.row, rows)
    at, label = np.nonzero(table)
    where = np.concatenate([old.row[keep], rows[at]]), np.concatenate([old.col[keep], label])
    return sparse.csr_array((np.ones(len(where[0]), np.int8), where), shape=Y.shape)


def _replaced_missing(data: LabelData, rows: Array, mask: Array) -> Missing:
    """Return what is unobserved after the labels `mask` (row, labels) of `rows` are observed."""
    old = data.missing if data.missing is not None else Missing(np.zeros(data.num_rows, bool))
    flags = np.array(old.rows)
    flags[rows] = ~mask.any(axis=1)
    cell_row, cell_label = old.cells
    keep = ~np.isin(cell_row, rows)
    at, label = np.nonzero(mask if old.cells_are == "observed" else ~mask & mask.any(axis=1, keepdims=True))
    cells = np.concatenate([cell_row[keep], rows[at]]), np.concatenate([cell_label[keep], label])
    return Missing(flags, cells, old.cells_are)


def with_earlier(pool: LabelData, earlier: LabelData, *, force: bool = False) -> LabelData:
    """Return `pool` with every label that `earlier`, the same pool after some answers, has observed.

    Raises
    ------
    ValueError
        If `earlier` is another pool; without `force` also where the two contradict each other (with it,
        `earlier` is believed).
    """
    if pool_hash(pool) != pool_hash(earlier):
        raise ValueError("it is not this pool with answers: its rows, features or names differ")
    parts = list(_gained(pool, earlier, force))
    return with_cells(pool, Cells(*(np.concatenate(column) for column in zip(*parts, strict=True))))


def _gained(pool: LabelData, earlier: LabelData, force: bool) -> Iterator[Cells]:
    """Yield the cells that `earlier` knows and `pool` does not, or says otherwise, by blocks of rows."""
    step = max(1, BLOCK_CELLS // pool.num_labels)
    for first in range(0, pool.num_rows, step):
        rows = np.arange(first, min(first + step, pool.num_rows))
        size = len(rows) * pool.num_labels
        seen, known = (data.observed_mask(rows, max_bytes=size) for data in (pool, earlier))
        old, new = (data.Y[rows].toarray() for data in (pool, earlier))
        against = seen & known & (old != new)
        if against.any() and not force:
            at, label = np.nonzero(against)
            cells = Cells(rows[at], label, new[at, label])
            raise ValueError(_contradiction(pool, cells, old[at, label], np.ones(len(at), bool)))
        at, label = np.nonzero((known & ~seen) | against)
        yield Cells(rows[at], label, new[at, label])
