"""Text files written whole or not at all, compressed by their ending, and what a format loses."""

import bz2
import gzip
import io
import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TextIO

from labelzoo.data.labeldata import LabelData
from labelzoo.data.validate import listed
from labelzoo.whole_file import whole_file


@contextmanager
def whole_text(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    r"""Yield a UTF-8 stream (lines end in ``"\n"``) whose contents take the place of ``path`` at the end.

    The same contents give the same bytes, compressed or not.

    Raises
    ------
    ValueError
        If the file cannot be written; then nothing is left.
    """
    target = Path(path)
    with whole_file(target) as temporary, temporary.open("wb") as raw, ExitStack() as stack:
        packed: Any = raw
        if target.suffix.lower() == ".gz":
            packed = stack.enter_context(gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0))
        elif target.suffix.lower() == ".bz2":
            packed = stack.enter_context(bz2.BZ2File(raw, "wb"))
        with io.TextIOWrapper(packed, encoding="utf-8", newline="\n") as text:
            yield text


def own_names(names: tuple[str, ...], prefix: str) -> bool:
    """Return whether the names are others than ``'prefix 0', 'prefix 1', ...``."""
    return any(name != f"{prefix} {i}" for i, name in enumerate(names))


def things_beyond_rows(data: LabelData) -> list[str]:
    """List what ``data`` carries besides its numbers: names other than the defaults, a published split."""
    kinds = {"feature": data.feature_names, "label": data.label_names, "row": data.example_names}
    found = [f"{prefix} names" for prefix, names in kinds.items() if own_names(names, prefix)]
    return found + (["the published split"] if data.train_index is not None else [])


def warn_lost(lost: list[str], path: str | os.PathLike[str], what: str) -> None:
    """Warn of what is not in the file, where there is any."""
    if lost:
        warnings.warn(f"{path}: {what} cannot hold {listed(lost)}", UserWarning, stacklevel=4)
