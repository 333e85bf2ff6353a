"""Text files as lines: gzip and bzip2 by first bytes, one encoding, any line end, no byte-order mark."""

import bz2
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from labelzoo.data.errors import DataError
from labelzoo.whole_file import kind_of

COMPRESSED: tuple[tuple[bytes, Any], ...] = ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open))
"""First bytes of a compressed file and what opens it; the suffix is not asked."""

BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError)
"""What reading a truncated or damaged compressed file raises."""


@contextmanager
def open_text(path: str | os.PathLike[str], encoding: str = "utf-8") -> Iterator[TextIO]:
    r"""Open a text file that may be compressed; every line ends in ``"\n"``, a byte-order mark is dropped.

    Parameters
    ----------
    path : str or path
    encoding : str
        ``"utf-8"`` unless the caller knows better (``"latin-1"``); the platform's own is never used.

    Raises
    ------
    DataError
        For a file that is absent, unreadable, damaged, or not of this encoding; also where the block that
        reads it meets such damage.
    """
    refuse_irregular(path)
    codec = "utf-8-sig" if encoding.lower().replace("_", "-") in ("utf-8", "utf8") else encoding
    try:
        with open(path, "rb") as raw:
            head = raw.read(3)
            raw.seek(0)
            opener = next((function for magic, function in COMPRESSED if head.startswith(magic)), None)
            stream = raw if opener is None else opener(raw, "rb")
            with io.TextIOWrapper(stream, encoding=codec, newline=None) as text:
                yield text
    except DataError:
        raise
    except UnicodeDecodeError as error:
        hint = "" if encoding.lower() == "latin-1" else "; if it is older text, try encoding='latin-1'"
        raise DataError(
            f"is not {encoding} text: {error.reason} at byte {error.start}{hint}", path
        ) from error
    except LookupError as error:
        raise DataError(f"unknown encoding {encoding!r}", path) from error
    except BROKEN as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise DataError(f"cannot be read: {reason}", path) from error


def refuse_irregular(path: str | os.PathLike[str]) -> None:
    """Raise DataError unless ``path`` leads to a regular file: reading a pipe or a device may never end."""
    kind = kind_of(mode_of(path))
    if kind is not None:
        raise DataError(f"cannot be read: it is {kind}, not a file", path)


def mode_of(path: str | os.PathLike[str]) -> int:
    """Return the mode of what ``path`` leads to, or raise DataError where that cannot be found out."""
    try:
        return os.stat(path).st_mode
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", path) from error
    except ValueError as error:  # a zero character
        raise DataError(f"is no path: {error}", path) from error
