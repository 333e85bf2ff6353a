"""The text format of the extreme-classification repository: ``N D L``, then ``l1,l2 f:v f:v`` a row."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelzoo.data.errors import DataError
from labelzoo.data.labeldata import LabelData
from labelzoo.data.limits import refuse_unbacked
from labelzoo.data.npz import without_overlap
from labelzoo.data.sparse_text import check_rows, parse_rows, refuse_holes, row_texts, tables_of
from labelzoo.data.text_files import open_text
from labelzoo.data.text_writing import things_beyond_rows, warn_lost, whole_text

HEADER = re.compile(r"[ \t]*(\d{1,15})[ \t]+(\d{1,15})[ \t]+(\d{1,15})[ \t]*", re.ASCII)
SPLIT_ENDINGS = (("_trSplit", "_tstSplit"), ("_trSplit", "_tsSplit"), ("_trIndex", "_tsIndex"))
"""What the names of index files end in, before ``.txt``, beside a data file NAME.txt or NAME_data.txt."""


def read_xmc(
    path: str | os.PathLike[str],
    *,
    split: Any = None,
    split_column: Any = 0,
    allow_missing_features: bool = False,
) -> LabelData:
    """Read an XMC text file, plain or compressed. Rows, features and labels are numbered from 0.

    A row without labels begins with a space, or at once with a feature. NaN cannot be written in the format,
    so ``allow_missing_features`` changes nothing.

    Parameters
    ----------
    path : str or path
    split : (train file, test file), or False, optional
        Files of row numbers counted from 1, one row a line, one column for each split. By default they are
        looked for beside ``path`` under the usual names (`SPLIT_ENDINGS`); False leaves them alone.
    split_column : int
        Which split, from 0.

    Raises
    ------
    DataError
        With path and line, for counts that do not fit, numbers out of range and anything malformed.
    """
    with open_text(path) as stream:
        shape = read_header(stream, path)
        rows = parse_rows(numbered(stream, shape[0], path), os.fspath(path))
    n, num_features, num_labels = shape
    check_rows(rows, num_features, num_labels, os.fspath(path))
    try:
        refuse_unbacked(num_features, len(rows.features), "features")
        refuse_unbacked(num_labels, len(rows.labels), "labels")
    except ValueError as error:
        raise DataError(str(error), path, 1) from None
    X, Y = tables_of(rows, num_features, num_labels)
    files = found_split(Path(path)) if split is None else split
    train, test = (None, None) if not files else read_split(files, n, split_column, path)
    return LabelData(
        X, Y, train_index=train, test_index=test, allow_missing_features=bool(allow_missing_features)
    )


def read_header(stream: Any, path: str | os.PathLike[str]) -> tuple[int, int, int]:
    """Return (N, D, L) of the first line."""
    first = stream.readline().rstrip("\n")
    found = HEADER.fullmatch(first)
    if found is None:
        raise DataError(f"the first line must be 'rows features labels', found {first[:60]!r}", path, 1)
    n, num_features, num_labels = (int(text) for text in found.groups())
    if n == 0 or num_labels == 0:
        raise DataError(f"declares {n} rows and {num_labels} labels: one of each is needed", path, 1)
    return n, num_features, num_labels


def numbered(stream: Any, n: int, path: str | os.PathLike[str]) -> Iterator[tuple[int, str]]:
    """Yield (line number, text) of n rows; blank lines may follow them, more or fewer rows may not."""
    held = 0
    for line, text in enumerate(stream, start=2):
        if held == n:
            if text.strip():
                raise DataError(f"the first line declares {n} rows, but more follow", path, line)
            continue
        held += 1
        yield line, text.rstrip("\n")
    if held < n:
        raise DataError(f"the first line declares {n} rows, but {held} follow", path, 1)


def found_split(path: Path) -> tuple[Path, Path] | None:
    """Return the (train, test) index files that stand beside a data file under the usual names."""
    name = re.sub(r"(\.(gz|bz2))?$", "", path.name, count=1, flags=re.IGNORECASE)
    stem = name.rsplit(".", 1)[0]
    for base in dict.fromkeys((stem, re.sub(r"_data$", "", stem, flags=re.IGNORECASE))):
        for endings in SPLIT_ENDINGS:
            train, test = (path.with_name(f"{base}{ending}.txt") for ending in endings)
            if train.is_file() and test.is_file():
                return train, test
    return None


def read_split(
    files: Any, n: int, column: Any, path: str | os.PathLike[str]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (train, test) rows, counted from 0, of the two index files."""
    if isinstance(files, (str, os.PathLike)) or not hasattr(files, "__len__") or len(files) != 2:
        raise DataError(f"split must be (train file, test file) or False, got {files!r}", path)
    if isinstance(column, bool) or not isinstance(column, int) or column < 0:
        raise DataError(f"split_column must be a whole number from 0, got {column!r}", path)
    train, test = (read_index(file, n, column) for file in files)
    return without_overlap(train, test, str(path))


def read_index(path: str | os.PathLike[str], n: int, column: int) -> NDArray[np.int64]:
    """Return one column of a file of row numbers, which count from 1, as positions from 0."""
    found: list[int] = []
    seen: set[int] = set()
    with open_text(path) as stream:
        for line, text in enumerate(stream, start=1):
            tokens = text.split()
            if not tokens:
                continue
            if column >= len(tokens):
                raise DataError(f"has {len(tokens)} columns, so no split_column {column}", path, line)
            token = tokens[column]
            row = int(token) if re.fullmatch(r"\d{1,15}", token, re.ASCII) else 0
            if not 1 <= row <= n:
                raise DataError(f"{token!r} is not a row number between 1 and {n}", path, line)
            if row in seen:
                raise DataError(f"row {row} stands twice", path, line)
            seen.add(row)
            found.append(row - 1)
    return np.array(found, np.int64)


def write_xmc(data: LabelData, path: str | os.PathLike[str]) -> None:
    """Write an XMC text file, gzipped where ``path`` ends in .gz; names and split are lost, with a warning.

    Raises
    ------
    ValueError
        For unobserved labels and NaN in features, which the format cannot hold.
    """
    refuse_holes(data, "XMC text")
    with whole_text(path) as stream:
        stream.write(f"{data.num_rows} {data.num_features} {data.num_labels}\n")
        for labels, pairs in row_texts(data):
            stream.write(f"{labels} {pairs}\n")
    warn_lost(things_beyond_rows(data), path, "XMC text")
