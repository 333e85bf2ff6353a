"""Files written whole or not at all: under a temporary name beside the target, then renamed.

The target keeps its mode, a new file has the one the umask leaves; the target of a symbolic link is
replaced, and the link stays. What is no regular file (a folder, a device, a pipe, a socket) is refused before
anything is written.
"""

import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe (FIFO)",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def kind_of(mode: int) -> str | None:
    """Return what a path of this mode is in words, None for a regular file."""
    return None if stat.S_ISREG(mode) else KINDS.get(stat.S_IFMT(mode), "no regular file")


def existing_mode(path: Path) -> int | None:
    """Return the mode of the regular file that `path` leads to, None where nothing is there yet.

    Raises
    ------
    ValueError
        Naming the path, for anything but a regular file and for a path that cannot be looked at.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(f"cannot write {str(path)!r}: {error.strerror or error}") from error
    kind = kind_of(mode)
    if kind is not None:
        raise ValueError(f"cannot write {str(path)!r}: it is {kind}")
    return stat.S_IMODE(mode)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path that takes the place of `path` when the block ends without an error.

    Its name ends as that of `path` does, for writers that look at the suffix.

    Raises
    ------
    ValueError
        If the folder or the file cannot be written to, or `path` leads to something that is no regular file;
        then, and after any other error, nothing is left.
    """
    with temporary_file(path) as temporary:
        yield temporary
        with named_errors(path):
            put_in_place(temporary, path)


@contextmanager
def temporary_file(path: Path) -> Iterator[Path]:
    """Yield a new, empty file beside the target of `path`; gone at the end unless put in place."""
    existing_mode(path)
    with named_errors(path), ExitStack() as stack:
        target = path.resolve()
        name = f".{target.stem[:60]}.{uuid.uuid4().hex}.part{target.suffix[:20]}"
        temporary = target.with_name(name)
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))  # less the umask
        stack.callback(temporary.unlink, missing_ok=True)
        mode = existing_mode(path)
        if mode is not None:
            temporary.chmod(mode | stat.S_IWUSR)  # what others may not read they may not read half-written
        yield temporary


def put_in_place(temporary: Path, path: Path) -> None:
    """Rename `temporary` to the target of `path`, whose mode it takes over."""
    mode = existing_mode(path)
    if mode is not None:
        temporary.chmod(mode)
    os.replace(temporary, path.resolve())


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Turn OSError into a ValueError that names the path."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"cannot write {str(path)!r}: {error.strerror or error}") from error
