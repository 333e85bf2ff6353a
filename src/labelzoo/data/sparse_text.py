"""Lines of ``labels feature:value ...``, which XMC and svmlight share: one strict parser, one writer.

scikit-learn's svmlight reader is not used: it gives no line with its errors, takes labels such as 0.5 or
-1 as they come, sums up nothing and refuses nothing where a label repeats, and skips rows that are empty.
Here a regular expression accepts a whole line or not at all, so that NumPy may convert thousands of rows
at one time; a line that is not accepted is looked at token by token, to say what is wrong with it.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from labelzoo.data.errors import DataError
from labelzoo.data.labeldata import LabelData

NUMBER = r"[-+]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)?"
INTEGER = r"\d{1,15}+"  # exact in float64, through which the numbers of a block pass
LABELS = rf"{INTEGER}(?:,{INTEGER})*+"
PAIRS = rf"(?:(?:^|[ \t]++){INTEGER}:{NUMBER})*+"
ROW = re.compile(rf"(?:({LABELS})(?=[ \t]|\Z))?+({PAIRS})[ \t]*+", re.ASCII)
PAIR = re.compile(rf"({INTEGER}):({NUMBER})", re.ASCII)
WHOLE = re.compile(INTEGER, re.ASCII)
BLOCK = 4096  # rows converted at one time


class SparseRows(NamedTuple):
    """Rows as read: labels and feature:value pairs of all rows end to end.

    Attributes
    ----------
    lines : int64 (n,)
        The line of each row, counted from 1.
    label_counts, pair_counts : int64 (n,)
    labels : int64, sum of label_counts
    features : int64, values : float64, sum of pair_counts
    """

    lines: NDArray[np.int64]
    label_counts: NDArray[np.int64]
    labels: NDArray[np.int64]
    pair_counts: NDArray[np.int64]
    features: NDArray[np.int64]
    values: NDArray[np.float64]


def parse_rows(rows: Iterable[tuple[int, str]], path: str) -> SparseRows:
    """Parse (line number, text without line end) pairs.

    Raises
    ------
    DataError
        For the first line that is not ``l1,l2 f:v f:v``, with the token at fault.
    """
    parts: list[SparseRows] = []
    block: list[tuple[int, str, str]] = []
    for line, text in rows:
        found = ROW.fullmatch(text)
        if found is None:
            raise DataError(fault_of(text), path, line)
        block.append((line, found[1] or "", found[2]))
        if len(block) == BLOCK:
            parts.append(convert(block))
            block = []
    parts.append(convert(block))
    return SparseRows(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def convert(block: list[tuple[int, str, str]]) -> SparseRows:
    """Convert the accepted texts of a block of rows into numbers."""
    label_texts = [labels for _, labels, _ in block if labels]
    pair_texts = [pairs for _, _, pairs in block]
    labels = numbers_of(",".join(label_texts), ",")
    pairs = numbers_of(" ".join(pair_texts).replace(":", " "), " ")
    return SparseRows(
        lines=np.array([line for line, _, _ in block], np.int64),
        label_counts=np.array([text.count(",") + 1 if text else 0 for _, text, _ in block], np.int64),
        labels=labels.astype(np.int64),
        pair_counts=np.array([text.count(":") for text in pair_texts], np.int64),
        features=pairs[0::2].astype(np.int64),
        values=pairs[1::2].copy(),
    )


def numbers_of(text: str, separator: str) -> NDArray[np.float64]:
    """Return the numbers of a text that is known to hold numbers and separators only."""
    if not text.strip():
        return np.zeros(0)
    return np.fromstring(text, dtype=np.float64, sep=separator)


def fault_of(text: str) -> str:
    """Say what is wrong with a line that `ROW` does not accept."""
    tokens = text.split()
    if tokens and ":" not in tokens[0] and not text[0].isspace():
        for label in tokens.pop(0).split(","):
            if not WHOLE.fullmatch(label):
                return f"label {label!r} is not a whole number from 0 (labels are written 3,17)"
    for token in tokens:
        if token.startswith("qid:"):
            return f"{token!r}: query ids are for ranking data, which labelzoo does not read"
        if ":" not in token:
            return f"{token!r} is not feature:value"
        feature, _, value = token.partition(":")
        if not WHOLE.fullmatch(feature):
            return f"feature {feature!r} in {token!r} is not a whole number from 0"
        if not PAIR.fullmatch(token):
            return f"value {value!r} in {token!r} is not a finite number"
    return "is not 'label,label feature:value feature:value'"


def check_rows(rows: SparseRows, num_features: int, num_labels: int, path: str, first: int = 0) -> None:
    """Raise DataError for a number out of range, a repeat within a row, or a value that overflows.

    ``first`` is the number that the file gives its first feature (0 or 1), for the messages.
    """
    for what, ids, counts, columns, base in (
        ("label", rows.labels, rows.label_counts, num_labels, 0),
        ("feature", rows.features, rows.pair_counts, num_features, first),
    ):
        row = np.repeat(np.arange(len(counts)), counts)
        bad = np.flatnonzero((ids < 0) | (ids >= columns))
        if len(bad):
            number, line = int(ids[bad[0]]) + base, int(rows.lines[row[bad[0]]])
            raise DataError(f"{what} {number} is outside {base}..{columns - 1 + base}", path, line)
        repeated = first_repeat(row, ids)
        if repeated is not None:
            number, line = int(ids[repeated]) + base, int(rows.lines[row[repeated]])
            raise DataError(f"{what} {number} stands twice", path, line)
    large = np.flatnonzero(~np.isfinite(rows.values))
    if len(large):
        at = int(np.searchsorted(np.cumsum(rows.pair_counts), large[0], side="right"))
        number = int(rows.features[large[0]]) + first
        raise DataError(f"the value of feature {number} is too large for a float", path, int(rows.lines[at]))


def first_repeat(row: NDArray[np.int64], ids: NDArray[np.int64]) -> int | None:
    """Return the position of the first id that its row already holds, or None."""
    same_row = row[1:] == row[:-1]
    if not (same_row & (ids[1:] <= ids[:-1])).any():  # rows are sorted, as most files are
        return None
    order = np.lexsort((ids, row))
    again = (row[order][1:] == row[order][:-1]) & (ids[order][1:] == ids[order][:-1])
    return int(order[1:][again].min()) if again.any() else None


def tables_of(
    rows: SparseRows, num_features: int, num_labels: int
) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Return X (n, features) and Y (n, labels) of rows that `check_rows` passed."""
    n = len(rows.lines)
    starts = np.concatenate([[0], np.cumsum(rows.pair_counts)])
    X = sparse.csr_array((rows.values, rows.features, starts), shape=(n, num_features))
    starts = np.concatenate([[0], np.cumsum(rows.label_counts)])
    Y = sparse.csr_array((np.ones(len(rows.labels), np.int8), rows.labels, starts), shape=(n, num_labels))
    return X, Y


def row_texts(data: LabelData, first: int = 0) -> Iterator[tuple[str, str]]:
    """Yield (labels, pairs) of each row, as ``"3,17"`` and ``"0:1 5:0.25"``; floats read back exactly.

    ``first`` is the number written for the first feature.
    """
    X = sparse.csr_array(data.X)
    for i in range(data.num_rows):
        labels = data.Y.indices[data.Y.indptr[i] : data.Y.indptr[i + 1]].tolist()
        part = slice(X.indptr[i], X.indptr[i + 1])
        columns = (X.indices[part].astype(np.int64) + first).tolist()
        pairs = " ".join(f"{c}:{v!r}" for c, v in zip(columns, X.data[part].tolist(), strict=True))
        yield ",".join(map(str, labels)), f"{pairs} ".replace(".0 ", " ").rstrip()


def refuse_holes(data: LabelData, what: str) -> None:
    """Raise ValueError where ``data`` holds what such rows cannot say, and name the formats that can."""
    if data.missing is not None:
        raise ValueError(
            f"{what} cannot hold unobserved labels ({data.num_missing_cells} cells): write npz, netCDF, CSV "
            f"or ARFF"
        )
    if data.has_missing_features:
        raise ValueError(f"{what} cannot hold NaN in features: write npz, netCDF, CSV or ARFF")
