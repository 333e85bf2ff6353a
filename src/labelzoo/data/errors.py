"""The one error of the loaders: which file, and which line of it."""

import os


class DataError(ValueError):
    """A data file that cannot be read: one line that begins with ``path:line`` or ``path``.

    Attributes
    ----------
    path : str or None
        The file, as the caller named it.
    line : int or None
        The line at fault, counted from 1, where one line is at fault.
    reason : str
        What is wrong, without the place.
    """

    def __init__(
        self, reason: str, path: str | os.PathLike[str] | None = None, line: int | None = None
    ) -> None:
        self.path = None if path is None else os.fspath(path)
        self.line = line
        self.reason = " ".join(str(reason).split()) or "unknown reason"
        place = ":".join(str(part) for part in (self.path, line) if part is not None)
        super().__init__(f"{place}: {self.reason}" if place else self.reason)
