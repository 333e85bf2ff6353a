"""From ARFF codes to the label matrix and the features: by what a value means, never by its position."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from labelzoo.data.arff import ArffTable
from labelzoo.data.arff_header import Attribute
from labelzoo.data.arff_words import short
from labelzoo.data.errors import DataError
from labelzoo.data.missing import Missing, missing_from_cells
from labelzoo.data.validate import listed

DENSE_SHARE = 0.1
"""Dense rows become a dense ``X`` where at least this share of the cells is not zero, else a csr_array."""

NEGATIVE = ["0", "0.0", "-1", "-1", "false", "no", "n", "f", "absent"]
POSITIVE = ["1", "1.0", "+1", "1", "true", "yes", "y", "t", "present"]

NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")

Entries = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]


def encode_labels(table: ArffTable, columns: Sequence[int]) -> tuple[csr_array, Missing | None]:
    """Return the positives, int8 csr_array (n, l), and the unobserved cells (``?``).

    Raises
    ------
    DataError
        For a label with more than two values or with numbers other than 0 and 1 (a multi-target file), and
        for two values that do not say which of them is positive.
    """
    part = table.codes[:, list(columns)].tocsc()
    n, num_labels = part.shape
    rows, labels = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    no_rows, no_labels = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for j, column in enumerate(columns):
        cells = slice(part.indptr[j], part.indptr[j + 1])
        at, codes = part.indices[cells].astype(np.int64), part.data[cells]
        unknown = np.isnan(codes)
        positive = positive_rows(table, column, at[~unknown], codes[~unknown], at[unknown], n)
        rows.append(positive)
        labels.append(np.full(len(positive), j))
        no_rows.append(at[unknown])
        no_labels.append(np.full(int(unknown.sum()), j))
    at, label = np.concatenate(rows), np.concatenate(labels)
    Y = csr_array((np.ones(len(at), np.int8), (at, label)), shape=(n, num_labels))
    return Y, missing_from_cells(np.concatenate(no_rows), np.concatenate(no_labels), (n, num_labels))


def positive_rows(
    table: ArffTable, column: int, at: NDArray[Any], codes: NDArray[Any], unknown: NDArray[Any], n: int
) -> NDArray[Any]:
    """Return the positive rows of one label, given its observed nonzero codes and its unobserved rows."""
    attribute = table.attributes[column]
    if attribute.kind == "numeric":
        wrong = np.flatnonzero(codes != 1)
        if wrong.size:
            line = int(table.lines[at[wrong[0]]])
            refuse_target(table, attribute, f"holds {codes[wrong[0]]:g}", line)
        return at
    meaning = label_meaning(table, attribute)
    if meaning[0] == 0:
        return at if len(meaning) > 1 else at[:0]
    # The first value is the positive one: every cell that is not stored holds it.
    negative = np.zeros(n, dtype=bool)
    negative[at] = True
    negative[unknown] = True
    return np.flatnonzero(~negative)


def label_meaning(table: ArffTable, attribute: Attribute) -> tuple[int, ...]:
    """Return 0 or 1 for each value of a nominal label, by what the word says, in any letter case."""
    if attribute.kind != "nominal":
        raise DataError(
            f"label {short(attribute.name)} is of type {attribute.kind}: labels take 0 or 1",
            table.path,
            attribute.line,
        )
    words = [value.strip().lower() for value in attribute.values]
    if len(words) > 2:
        refuse_target(
            table, attribute, f"has the values {listed([short(v) for v in attribute.values])}", attribute.line
        )
    for pair in zip(NEGATIVE, POSITIVE, strict=True):
        if set(words) <= set(pair) and len(set(words)) == len(words):
            return tuple(pair.index(word) for word in words)
    reason = f"label {short(attribute.name)} has the values {' and '.join(map(short, attribute.values))}"
    raise DataError(
        f"{reason}, which do not say which one is positive: use 0 and 1", table.path, attribute.line
    )


def refuse_target(table: ArffTable, attribute: Attribute, found: str, line: int) -> None:
    """Raise DataError for a label that is not binary."""
    reason = "labelzoo models are binary per label, and this is a multi-target file"
    raise DataError(f"{reason}: label {short(attribute.name)} {found}", table.path, line)


def encode_features(table: ArffTable, columns: Sequence[int], encode: str) -> tuple[Any, list[str]]:
    """Return the features, float64 ndarray or csr_array (n, d), and their names.

    Numeric columns keep their numbers; nominals of 0 and 1 are one column by value. With ``"onehot"`` any
    other nominal becomes one column a value, named ``attribute=value``, all NaN where the cell is ``?``;
    with ``"none"`` it is one column: its numbers, where all its values are numbers, else positions in its
    list.
    """
    part = table.codes[:, list(columns)].tocsc()
    n = part.shape[0]
    entries: list[Entries] = []
    names: list[str] = []
    for j, column in enumerate(columns):
        attribute = table.attributes[column]
        cells = slice(part.indptr[j], part.indptr[j + 1])
        at, codes = part.indices[cells].astype(np.int64), part.data[cells]
        values = numbers_of(attribute, encode)
        if values is not None:
            entries.append(shifted(by_value(at, codes, values, n), len(names)))
        elif attribute.kind == "nominal" and encode == "onehot":
            entries.append(shifted(one_hot(at, codes, len(attribute.values), n), len(names)))
            names += [f"{attribute.name}={value}" for value in attribute.values]
            continue
        else:
            entries.append((at, np.full(len(at), len(names)), codes))
        names.append(attribute.name)
    return assembled(entries, (n, len(names)), table.num_sparse_rows > n / 2), names


def numbers_of(attribute: Attribute, encode: str) -> NDArray[np.float64] | None:
    """Return the values of a nominal as numbers where one column is to hold them, None for any other column.

    That is where the values are 0 and 1, and with ``encode="none"`` where all of them are distinct numbers.
    """
    if attribute.kind != "nominal" or not all(NUMBER.fullmatch(value.strip()) for value in attribute.values):
        return None
    numbers = np.array([float(value) for value in attribute.values])
    distinct = len(set(numbers.tolist())) == len(numbers) and bool(np.isfinite(numbers).all())
    wanted = encode == "none" or bool(np.isin(numbers, (0.0, 1.0)).all())
    return numbers if distinct and wanted else None


def by_value(at: NDArray[Any], codes: NDArray[Any], values: NDArray[Any], n: int) -> Entries:
    """Return the nonzero entries of one column of numbers, given its nonzero codes."""
    numbers = np.append(values, np.nan)[np.where(np.isnan(codes), len(values), codes).astype(np.int64)]
    if values[0] != 0:  # cells that are not stored hold the first value
        column = np.full(n, values[0])
        column[at] = numbers
        at, numbers = np.arange(n), column
    kept = numbers != 0
    return at[kept], np.zeros(int(kept.sum()), np.int64), numbers[kept]


def one_hot(at: NDArray[Any], codes: NDArray[Any], count: int, n: int) -> Entries:
    """Return the nonzero entries of ``count`` indicator columns, given the nonzero codes of n rows."""
    column = np.zeros(n)
    column[at] = codes
    unknown = np.flatnonzero(np.isnan(column))
    known = np.flatnonzero(~np.isnan(column))
    rows = np.concatenate([known, np.repeat(unknown, count)])
    columns = np.concatenate([column[known].astype(np.int64), np.tile(np.arange(count), len(unknown))])
    return rows, columns, np.concatenate([np.ones(len(known)), np.full(len(unknown) * count, np.nan)])


def shifted(entries: Entries, offset: int) -> Entries:
    """Return the entries with ``offset`` added to their columns."""
    return entries[0], entries[1] + offset, entries[2]


def assembled(entries: list[Entries], shape: tuple[int, int], sparse: bool) -> Any:
    """Return X from its nonzero entries: csr_array if ``sparse`` or mostly zeros, ndarray else."""
    if not entries:
        return np.zeros(shape)
    rows, columns, values = (np.concatenate(part) for part in zip(*entries, strict=True))
    X = coo_array((values, (rows, columns)), shape=shape).tocsr()
    return X if sparse or len(values) < DENSE_SHARE * shape[0] * shape[1] else X.toarray()
