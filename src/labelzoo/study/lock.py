"""One process at a time runs a study: a lock of the operating system, gone with the process that holds it."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from labelzoo.whole_file import named_errors

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
"""What file systems say that know no locks: there a study runs without one."""


class StudyRunning(ValueError):
    """Another process runs this study now."""


@contextmanager
def only_runner(path: Path) -> Iterator[None]:
    """Hold the lock of the study in the database `path`; it lies beside it and is gone at the end.

    The kernel releases it when the process ends, however that happens: no lock is ever stale. A file that a
    killed process left behind says nothing.

    Raises
    ------
    StudyRunning
        If another process holds it.
    ValueError
        If the folder cannot be written to.
    """
    target = path.resolve()
    place = target.with_name(f"{target.name}.lock")
    with named_errors(path):
        descriptor = _taken(place, path)
    try:
        yield
    finally:
        with suppress(OSError):
            place.unlink()  # before the release: who opens the name after it makes a new file
        os.close(descriptor)


def _taken(place: Path, path: Path) -> int:
    """Return the descriptor of the locked file `place`."""
    while True:
        descriptor = os.open(place, os.O_CREAT | os.O_RDWR, 0o666)
        try:
            _lock(descriptor, path)
            if _same_file(descriptor, place):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # its holder removed it between our two steps


def _same_file(descriptor: int, place: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), place.stat())
    except FileNotFoundError:
        return False


def _lock(descriptor: int, path: Path) -> None:
    if sys.platform == "win32":
        return  # the database still takes every round once, and a new study never overwrites one
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        words = "is being run by another process: wait until it has ended"
        raise StudyRunning(f"{str(path)!r} {words}") from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
