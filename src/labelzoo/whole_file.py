"""Files written whole or not at all: under a temporary name beside the target, then renamed."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path that takes the place of `path` when the block ends without an error.

    Its name ends as that of `path` does, for writers that look at the suffix.

    Raises
    ------
    ValueError
        If the folder or the file cannot be written to; then, and after any other error, nothing is left.
    """
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(
            prefix=f".{path.stem}.", suffix=f".part{path.suffix}", dir=path.absolute().parent
        )
        os.close(handle)
        yield Path(temporary)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        raise ValueError(f"cannot write {str(path)!r}: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
