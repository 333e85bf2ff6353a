"""A file to start a model from: ``labelzoo new NAME``."""

import keyword
import os
import shlex
import sys
from importlib.metadata import packages_distributions
from importlib.resources import files
from pathlib import Path

from labelzoo.models.registry import BUILT_IN
from labelzoo.report import write_bytes

TEMPLATE = "model.py.txt"


def new_model(name: str, out: str | os.PathLike[str] | None = None) -> Path:
    """Write a model with two hand-derived conditionals, one of them wrong on purpose.

    Parameters
    ----------
    name : str
        Of the model: a Python identifier.
    out : path, optional
        The file; default ``NAME.py`` in the working folder.

    Returns
    -------
    Path
        The file, written whole or not at all.

    Raises
    ------
    ValueError
        If the name or the file cannot be used, or the file exists.
    """
    check_name(name)
    path = Path(f"{name}.py" if out is None else out)
    check_file(path)
    return write_bytes(path, template(name, path.name).encode("utf-8"))


def template(name: str, file: str) -> str:
    """Return the text of the file for a model called `name`."""
    text = (files("labelzoo") / "templates" / TEMPLATE).read_text(encoding="utf-8")
    return text.replace("@NAME@", name).replace("@SPEC@", shlex.quote(f"{file}:spec"))


def check_name(name: str) -> None:
    """Refuse names that are no identifiers or that are taken.

    Raises
    ------
    ValueError
    """
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(f"NAME {name!r}: must be a Python identifier (letters, digits, _)")
    if name in BUILT_IN:
        raise ValueError(f"NAME {name!r}: there is a model of this name; models: {', '.join(BUILT_IN)}")


def check_file(path: Path) -> None:
    """Refuse files that exist, that ``file.py:spec`` could not name, or that would hide a module.

    Raises
    ------
    ValueError
    """
    shown = str(path)
    if path.suffix != ".py" or ":" in shown or not shown.isprintable():
        raise ValueError(f"{shown!r}: the file must be called something.py, without a colon")
    if os.path.lexists(path):
        raise ValueError(f"{shown!r} exists and is left as it is; choose another name or --out FILE")
    if path.stem in sys.stdlib_module_names or path.stem in packages_distributions():
        raise ValueError(f"{shown!r}: a file of this name would hide the module {path.stem!r} beside it")
