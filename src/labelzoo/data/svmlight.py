"""Multi-label svmlight (libsvm) text: ``1,3 4:0.5 7:1 # comment``."""

import json
import os
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from labelzoo.data.errors import DataError
from labelzoo.data.labeldata import LabelData
from labelzoo.data.limits import refuse_unbacked
from labelzoo.data.sparse_text import SparseRows, check_rows, parse_rows, refuse_holes, row_texts, tables_of
from labelzoo.data.text_files import open_text
from labelzoo.data.text_writing import own_names, whole_text

MARK = "# labelzoo "
"""Comments that begin so hold one JSON object each: sizes, names and split, which have no other place."""

NAMED = ("feature_names", "label_names", "example_names", "train_index", "test_index")
KEYS = ("zero_based", "features", "labels", *NAMED)
WHOLE_FLOATS = re.compile(r"\.0*(?=,|\Z)")


def read_svmlight(
    path: str | os.PathLike[str],
    *,
    n_features: Any = None,
    n_labels: Any = None,
    zero_based: Any = None,
    allow_missing_features: bool = False,
) -> LabelData:
    """Read a multi-label svmlight file, plain or compressed.

    Labels are whole numbers from 0, separated by commas; a row without labels begins with a feature. Blank
    lines and comments are passed over.

    Parameters
    ----------
    path : str or path
    n_features, n_labels : int, optional
        Default: one more than the largest number in the file.
    zero_based : bool, optional
        Whether the first feature is number 0. By default a file in which feature 0 never occurs counts
        from 1, as in scikit-learn.
    allow_missing_features : bool
        Of no effect: the format has no NaN.

    Raises
    ------
    DataError
        With path and line, for numbers out of range or repeated, query ids and anything malformed.
    """
    noted: dict[str, Any] = {}
    with open_text(path) as stream:
        rows = parse_rows(lines_of(enumerate(stream, start=1), noted, path), os.fspath(path))
    if not len(rows.lines):
        raise DataError("has no rows", path)
    given = {"zero_based": zero_based, "features": n_features, "labels": n_labels}
    noted |= {key: value for key, value in given.items() if value is not None}
    rows, first = shifted(rows, noted.get("zero_based"), path)
    sizes = [
        declared(noted.get("features"), rows.features, "n_features", 0, path),
        declared(noted.get("labels"), rows.labels, "n_labels", 1, path),
    ]
    check_rows(rows, sizes[0], sizes[1], os.fspath(path), first)
    try:
        for what, size, entries in (("feature", sizes[0], rows.features), ("label", sizes[1], rows.labels)):
            if len(noted.get(f"{what}_names") or ()) != size:
                refuse_unbacked(size, len(entries), f"{what}s")
        X, Y = tables_of(rows, *sizes)
        kept = {key: noted[key] for key in NAMED if key in noted}
        return LabelData(X, Y, allow_missing_features=bool(allow_missing_features), **kept)
    except (ValueError, TypeError, OverflowError) as error:
        raise DataError(str(error), path) from error


def lines_of(lines: Any, noted: dict[str, Any], path: str | os.PathLike[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines that hold rows, without comments; what our own comments say goes into ``noted``."""
    for line, text in lines:
        if text.startswith(MARK):
            noted |= note_of(text[len(MARK) :], path, line)
            continue
        row = text.partition("#")[0].strip()
        if not row:
            continue
        labels, space, rest = row.partition(" ")
        if "." in labels and ":" not in labels:  # scikit-learn writes labels as floats: 1.0,3.0
            row = WHOLE_FLOATS.sub("", labels) + space + rest
        yield line, row


def note_of(text: str, path: str | os.PathLike[str], line: int) -> dict[str, Any]:
    """Return what one of our own comments says, or raise DataError where it is damaged."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"a comment of labelzoo is damaged: {error}", path, line) from error
    if not isinstance(found, dict) or not set(found) <= set(KEYS):
        raise DataError("a comment of labelzoo is damaged: it has keys that are not known", path, line)
    return found


def shifted(rows: SparseRows, zero_based: Any, path: str | os.PathLike[str]) -> tuple[SparseRows, int]:
    """Return the rows with features counted from 0, and the number the file gives its first feature."""
    if zero_based is not None and not isinstance(zero_based, (bool, np.bool_)):
        raise DataError(f"zero_based must be True, False or None, got {zero_based!r}", path)
    lowest = int(rows.features.min()) if len(rows.features) else 0
    first = int(lowest > 0) if zero_based is None else int(not zero_based)
    return rows._replace(features=rows.features - first), first


def declared(size: Any, ids: Any, name: str, least: int, path: str | os.PathLike[str]) -> int:
    """Return the number of columns: as declared, or one more than the largest number found."""
    if size is None:
        if not len(ids) and least:
            raise DataError(f"no row has a label, so give {name}", path)
        return int(ids.max()) + 1 if len(ids) else 0
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < least:
        raise DataError(f"{name} must be a whole number from {least}, got {size!r}", path)
    return int(size)


def write_svmlight(data: LabelData, path: str | os.PathLike[str]) -> None:
    """Write an svmlight file, features counted from 1; comments hold sizes, names and split.

    A row without labels and features is written as an explicit zero, since other readers drop blank lines.

    Raises
    ------
    ValueError
        For unobserved labels, NaN in features and data without features, which the format cannot hold.
    """
    refuse_holes(data, "svmlight text")
    if data.num_features == 0:
        raise ValueError("svmlight text cannot hold data without features: write npz, netCDF or CSV")
    with whole_text(path) as stream:
        for note in notes_for(data):
            stream.write(f"{MARK}{json.dumps(note)}\n")
        for labels, pairs in row_texts(data, first=1):
            stream.write(f"{labels} {pairs}".strip() or "1:0")
            stream.write("\n")


def notes_for(data: LabelData) -> Iterator[dict[str, Any]]:
    """Yield the comments: the sizes, then the names that are not the defaults, then the split."""
    yield {"zero_based": False, "features": data.num_features, "labels": data.num_labels}
    for key, prefix in (("feature", "feature"), ("label", "label"), ("example", "row")):
        names = getattr(data, f"{key}_names")
        if own_names(names, prefix):
            yield {f"{key}_names": list(names)}
    if data.train_index is not None:
        yield {"train_index": data.train_index.tolist(), "test_index": data.test_index.tolist()}
