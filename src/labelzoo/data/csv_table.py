"""Tables with a header: CSV and TSV, plain or compressed.

Python's csv reader splits the lines, not pandas: pandas renames repeated headers, fills short lines with NaN
(which would read as unobserved labels) and gives no line numbers.
"""

import csv
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from labelzoo.data.errors import DataError
from labelzoo.data.labeldata import LabelData
from labelzoo.data.text_columns import (
    checked_encoding,
    label_value,
    number_value,
    numbers_or_texts,
    one_hot_columns,
    refuse_text_features,
    without_dropped,
)
from labelzoo.data.text_files import open_text
from labelzoo.data.text_writing import own_names, warn_lost, whole_text
from labelzoo.data.validate import listed

PREFIX = "label:"
"""Headers that begin so are labels by default; the prefix is no part of the name."""

HOW = "give labels= as a list of column names, as a number (3: the first three; -3: the last three) or as a"
HOW += f" prefix such as 'tag:*', or let the headers of the labels begin with {PREFIX!r}"


BLOCK_CELLS = 1_000_000  # dense cells made at one time when a table is written


class Table(NamedTuple):
    """A table as text: the header, the cells of each column, and the line of each row."""

    header: list[str]
    columns: list[tuple[str, ...]]
    lines: list[int]


def read_csv(
    path: str | os.PathLike[str],
    *,
    labels: Any = None,
    index: Any = None,
    sep: Any = None,
    encode: Any = None,
    drop: Any = (),
    encoding: str = "utf-8",
    allow_missing_features: bool = False,
) -> LabelData:
    """Read a table with a header.

    Parameters
    ----------
    path : str or path
    labels : list of str, int or str, optional
        Which columns are labels: names; ``n``, the first n (without the index column); ``-n``, the last n;
        ``"tag:*"``, those whose header begins with ``tag:``, which is taken off. Default: ``"label:*"``.
    index : str or int, optional
        The column of row names, by header or position. Default: a first column without a header, as pandas
        writes its index.
    sep : str, optional
        One character. Default: a tab for ``.tsv``, else a comma.
    encode : "none" or "onehot"
        What to do with text in feature columns: refuse it by column name, or make one 0/1 column a value,
        named ``"column=value"``.
    drop : list of str
        Columns to leave out.
    encoding : str
    allow_missing_features : bool
        Take empty cells and NA in features as NaN; in labels they always mean unobserved.

    Raises
    ------
    DataError
        With path and, where there is one, the line.
    """
    table = read_table(path, separator_of(path, sep), encoding)
    try:
        return from_table(table, path, labels, index, checked_encoding(encode), drop, allow_missing_features)
    except DataError:
        raise
    except ValueError as error:
        raise DataError(str(error), path) from error


def separator_of(path: str | os.PathLike[str], sep: Any) -> str:
    """Return the character between cells."""
    if sep is None:
        return "\t" if ".tsv" in (suffix.lower() for suffix in Path(path).suffixes[-2:]) else ","
    if not isinstance(sep, str) or len(sep) != 1 or sep in '"\r\n':
        raise DataError(f"sep must be one character, got {sep!r}", path)
    return sep


def read_table(path: str | os.PathLike[str], sep: str, encoding: str) -> Table:
    """Split a file into columns of text; repeated headers and ragged lines are refused."""
    rows: list[list[str]] = []
    lines: list[int] = []
    with open_text(path, encoding) as stream, long_cells():
        reader = csv.reader(stream, delimiter=sep, strict=True)
        try:
            header = next(reader, None)
            if header is None:
                raise DataError("is empty: a header is needed", path)
            refuse_bad_header(header, sep, path)
            for row in reader:
                if not row:
                    continue  # a blank line
                if len(row) != len(header):
                    reason = f"has {len(row)} cells, but the header has {len(header)}"
                    raise DataError(reason, path, reader.line_num)
                rows.append(row)
                lines.append(reader.line_num)
        except csv.Error as error:
            raise DataError(f"is not CSV: {error}", path, reader.line_num) from error
    if not rows:
        raise DataError("has a header, but no rows", path, 1)
    return Table(header, list(zip(*rows, strict=True)), lines)


@contextmanager
def long_cells() -> Iterator[None]:
    """Let the csv module read cells of any length; its limit is of the whole process and comes back."""
    before = csv.field_size_limit()
    csv.field_size_limit(2**31 - 1)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def refuse_bad_header(header: list[str], sep: str, path: str | os.PathLike[str]) -> None:
    """Raise DataError for repeated or empty names, and where the file is separated by something else."""
    repeated = [repr(name) for name, times in Counter(header).items() if times > 1]
    if repeated:
        raise DataError(f"the header repeats {listed(repeated)}", path, 1)
    if "" in header[1:]:
        raise DataError(f"column {header.index('', 1) + 1} has no header", path, 1)
    alone = len(header) == 1 and not header[0].startswith(PREFIX)
    other = next((mark for mark in ";\t|" if alone and mark != sep and mark in header[0]), None)
    if other is not None:
        raise DataError(f"the header has one column, but holds {other!r}: give sep={other!r}", path, 1)


def from_table(
    table: Table,
    path: str | os.PathLike[str],
    labels: Any,
    index: Any,
    encode: str,
    drop: Any,
    allow_missing_features: bool,
) -> LabelData:
    """Build LabelData from columns of text."""
    cells = dict(zip(table.header, table.columns, strict=True))
    index_column = find_index(table.header, index)
    kept = without_dropped([name for name in table.header if name != index_column], drop)
    label_columns = find_labels(kept, labels)
    Y = np.column_stack([label_column(table, path, name, cells[name]) for name in label_columns])
    names, X = feature_columns(table, cells, [name for name in kept if name not in label_columns], encode)
    return LabelData(
        X=np.column_stack(X) if X else np.zeros((len(table.lines), 0)),
        Y=Y,
        feature_names=names,
        label_names=list(label_columns.values()),
        example_names=None if index_column is None else list(cells[index_column]),
        allow_missing_features=allow_missing_features,
    )


def find_index(header: list[str], index: Any) -> str | None:
    """Return the header of the column of row names, or None."""
    if index is None:
        return "" if header[0] == "" else None
    if isinstance(index, str) and index in header:
        return index
    if isinstance(index, int) and not isinstance(index, bool) and -len(header) <= index < len(header):
        return header[index]
    raise ValueError(f"index must be a header or a position, got {index!r} (columns: {listed(header)})")


def find_labels(columns: list[str], rule: Any) -> dict[str, str]:
    """Return {column: label name} of the label columns, by the rule that `read_csv` states."""
    if rule is None or (isinstance(rule, str) and rule.endswith("*")):
        prefix = PREFIX if rule is None else rule[:-1]
        found = {name: name[len(prefix) :] for name in columns if name.startswith(prefix)}
        if not found:
            raise ValueError(f"no header begins with {prefix!r}, so no column is a label: {HOW}")
        return found
    if isinstance(rule, (int, np.integer)) and not isinstance(rule, bool):
        count = int(rule)
        if not 0 < abs(count) <= len(columns):
            raise ValueError(
                f"labels={rule}, but the table has {len(columns)} columns of features and labels"
            )
        return {
            name: name.removeprefix(PREFIX) for name in (columns[:count] if count > 0 else columns[count:])
        }
    names = [rule] if isinstance(rule, str) else list(rule) if hasattr(rule, "__iter__") else None
    if not names:
        raise ValueError(f"labels={rule!r} names no column: {HOW}")
    repeated = [repr(name) for name, times in Counter(map(str, names)).items() if times > 1]
    if repeated:
        raise ValueError(f"labels names columns twice: {listed(repeated)}")
    absent = [repr(name) for name in names if name not in columns]
    if absent:
        raise ValueError(f"labels names columns that are not there: {listed(absent)}")
    return {name: name.removeprefix(PREFIX) for name in names}


def label_column(table: Table, path: str | os.PathLike[str], name: str, cells: tuple[str, ...]) -> Any:
    """Return a label column as 0.0, 1.0 and NaN (unobserved)."""
    meaning = {cell: label_value(cell) for cell in set(cells)}
    if None in meaning.values():
        at = next(i for i, cell in enumerate(cells) if meaning[cell] is None)
        reason = f"row {at}, label {name!r}: {cells[at]!r} is not 0, 1, true, false or empty (unobserved)"
        raise DataError(reason, path, table.lines[at])
    return np.array([meaning[cell] for cell in cells], dtype=np.float64)


def feature_columns(
    table: Table, cells: dict[str, tuple[str, ...]], columns: list[str], encode: str
) -> tuple[list[str], list[Any]]:
    """Return names and float64 columns of the features; text is refused, or one-hot where asked for."""
    names: list[str] = []
    X: list[Any] = []
    text: dict[str, str] = {}
    for column in columns:
        numbers = numbers_or_texts(cells[column])
        if numbers is not None:
            names.append(column)
            X.append(numbers)
        elif encode == "onehot":
            more_names, more = one_hot_columns(column, cells[column])
            names += more_names
            X += more
        else:
            at = next(i for i, cell in enumerate(cells[column]) if number_value(cell) is None)
            text[column] = f"line {table.lines[at]}: {cells[column][at]!r}"
    refuse_text_features(text)
    return names, X


def write_csv(data: LabelData, path: str | os.PathLike[str]) -> None:
    """Write a table, features first; label headers begin with ``label:``, row names stand in a first column.

    Names other than the defaults are kept, ``NaN`` features and unobserved labels are empty cells, floats
    read back exactly. The published split is lost, with a warning.

    Raises
    ------
    ValueError
        Where headers could not be told apart on reading, or would be read as others.
    """
    tabbed = ".tsv" in (suffix.lower() for suffix in Path(path).suffixes[-2:])
    refuse_confusing(data)
    named = own_names(data.example_names, "row")
    with whole_text(path) as stream:
        writer = csv.writer(stream, delimiter="\t" if tabbed else ",", lineterminator="\n")
        header = [*data.feature_names, *(PREFIX + name for name in data.label_names)]
        writer.writerow(["", *header] if named else header)
        for i, (x, y) in enumerate(dense_rows(data)):
            cells = ["" if v != v else "0" if v == 0 else repr(v).removesuffix(".0") for v in x]
            cells += ["" if v < 0 else str(v) for v in y]
            writer.writerow([data.example_names[i], *cells] if named else cells)
    warn_lost(["the published split"] if data.train_index is not None else [], path, "CSV")


def dense_rows(data: LabelData) -> Iterator[tuple[list[float], list[int]]]:
    """Yield features and labels (-1 for unobserved) of each row, from dense blocks of bounded size."""
    step = max(1, BLOCK_CELLS // (data.num_features + data.num_labels))
    for first in range(0, data.num_rows, step):
        rows = np.arange(first, min(first + step, data.num_rows))
        X = data.X[rows].toarray() if sparse.issparse(data.X) else data.X[rows]
        Y = np.where(data.observed_mask(rows), data.Y[rows].toarray(), -1)
        yield from zip(X.tolist(), Y.tolist(), strict=True)


def refuse_confusing(data: LabelData) -> None:
    """Raise ValueError for feature names that the header cannot hold: empty, repeated, or like a label's."""
    repeated = [repr(name) for name, times in Counter(data.feature_names).items() if times > 1]
    if repeated:
        raise ValueError(f"CSV cannot hold feature names twice: {listed(repeated)}")
    names = [*data.feature_names, *data.label_names, *data.example_names]
    broken = [repr(name) for name in names if "\r" in name]
    if broken:
        raise ValueError(f"CSV cannot hold names with a carriage return: {listed(broken)}")
    first = "" if own_names(data.example_names, "row") else next(iter(data.feature_names), "")
    if first.startswith("\ufeff"):
        raise ValueError(f"CSV cannot begin with a name that begins with a byte-order mark: {first!r}")
    bad = [repr(name) for name in data.feature_names if not name or name.startswith(PREFIX)]
    if bad:
        raise ValueError(
            f"CSV cannot hold feature names that are empty or begin with {PREFIX!r}: {listed(bad)}"
        )
