"""Files that ``ask`` and ``tell`` write: never an input, nothing replaced unasked, one writer at a time."""

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

SAY_AFTER = 1.0
"""Seconds of waiting for another writer before the user is told."""
POLL = 0.05


def same_file(one: Any, other: Any) -> bool:
    """Return whether two paths lead to one file, over links; also where it is not there yet."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)


def is_read(path: Any, source: Any) -> bool:
    """Return whether the file `path` is `source`, or an existing file in the folder `source`."""
    inside = os.path.isdir(source) and os.path.exists(path)
    return same_file(path, source) or (inside and same_file(os.path.dirname(os.path.realpath(path)), source))


def refuse_inputs_as_outputs(outputs: Mapping[str, Any], inputs: Mapping[str, Any]) -> None:
    """Raise ValueError where a file to write is also one that is read, or is to be written twice.

    Parameters
    ----------
    outputs, inputs : mapping of option to path
        None: not given. An input may be the name of a built-in data set, which is no file.
    """
    written = [(name, path) for name, path in outputs.items() if path is not None]
    read = [(name, path) for name, path in inputs.items() if path is not None and os.path.exists(path)]
    for i, (name, path) in enumerate(written):
        for other, known in read:
            if is_read(path, known):
                raise ValueError(
                    f"{name} {str(path)!r} is the file that is read as {other}: it would be replaced; "
                    "give another name"
                )
        for other, known in written[:i]:
            if same_file(path, known):
                raise ValueError(f"{other} and {name} are one file, {str(path)!r}: only one would be left")


def refuse_existing(outputs: Mapping[str, Any], force: bool) -> None:
    """Raise ValueError where a file to write is there already, unless `force`."""
    for name, path in outputs.items():
        if path is not None and os.path.exists(path) and not force:
            what = "answers that were filled in would be lost" if name == "--form" else "it may be in use"
            raise ValueError(
                f"{name} {str(path)!r} is there already and {what}: give another name, or --force"
            )


@contextmanager
def one_writer(path: Path) -> Iterator[None]:
    """Hold a lock on `path` while the block runs: a second process waits until the first has written.

    The lock is the kernel's (flock) on a hidden file beside the target of `path`, so it ends with the process
    that holds it, however that ends. Where the system or the file system has no such locks, nothing is locked
    and one line on stderr says so.
    """
    if sys.platform == "win32":
        yield
        return
    target = Path(os.path.realpath(path))
    lock = target.with_name(f".{target.name}.lock")
    try:
        handle = _locked(lock, path)
    except OSError as error:
        _say(f"warning: {str(path)!r} cannot be locked ({error.strerror or error}): tell one after another")
        yield
        return
    try:
        yield
    finally:
        # Taken away while still held: who waits for it sees that it is gone and makes a new one.
        with suppress(OSError):
            lock.unlink()
        os.close(handle)


def _locked(lock: Path, path: Path) -> int:
    """Return a handle of the file `lock`, locked; the file is still the one of that name."""
    began, told = time.monotonic(), False
    while True:
        handle = _opened(lock)
        try:
            while not _taken(handle):
                if not told and time.monotonic() - began > SAY_AFTER:
                    told = True
                    _say(f"waiting for another 'labelzoo tell' to finish with {str(path)!r}")
                time.sleep(POLL)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), os.stat(lock)):
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _opened(lock: Path) -> int:
    try:
        return os.open(lock, os.O_CREAT | os.O_RDWR, 0o666)
    except PermissionError:  # made by another user, who lets others only read it: that is enough to lock
        return os.open(lock, os.O_RDONLY)


def _taken(handle: int) -> bool:
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _say(message: str) -> None:
    print(f"labelzoo: {message}", file=sys.stderr, flush=True)
