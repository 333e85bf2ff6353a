"""One way in and one way out: data sets by built-in name, by file of any format, by folder."""

import os
import stat
from collections.abc import Callable
from importlib import import_module, resources
from pathlib import Path
from typing import Any, NamedTuple

from labelzoo.data.errors import DataError
from labelzoo.data.labeldata import LabelData
from labelzoo.data.limits import refuse_unwritable
from labelzoo.data.npz import from_npz, save_npz
from labelzoo.data.text_files import mode_of, open_text, refuse_irregular
from labelzoo.data.text_writing import things_beyond_rows, warn_lost
from labelzoo.data.validate import listed
from labelzoo.data.xmc import HEADER

__all__ = ["BUILTIN", "FORMATS", "from_npz", "load", "save_data", "save_npz"]

BUILTIN = ("emoji",)


class Format(NamedTuple):
    """A file format: where its reader and writer live, and what may be said about reading.

    Attributes
    ----------
    suffixes : tuple of str
        Lower case; a further ``.gz`` or ``.bz2`` is taken off before they are asked.
    reader, writer : str
        ``"module:function"``, imported when needed.
    options : tuple of str
        Keyword arguments of the reader beside ``allow_missing_features``.
    packed : bool
        Whether the file may be compressed as a whole.
    """

    suffixes: tuple[str, ...]
    reader: str
    writer: str
    options: tuple[str, ...] = ()
    packed: bool = True


HERE = "labelzoo.data."
FORMATS: dict[str, Format] = {
    "npz": Format((".npz",), f"{HERE}npz:from_npz", f"{HERE}npz:save_npz", packed=False),
    "netcdf": Format(
        (".nc", ".nc4"), f"{HERE}netcdf:read_netcdf", f"{HERE}netcdf:write_netcdf", packed=False
    ),
    "arff": Format(
        (".arff",), f"{HERE}mulan:read_arff", f"{HERE}mulan_write:write_arff",
        ("xml", "labels", "encode", "drop", "encoding"),
    ),
    "xmc": Format((".xmc",), f"{HERE}xmc:read_xmc", f"{HERE}xmc:write_xmc", ("split", "split_column")),
    "svmlight": Format(
        (".svm", ".svmlight", ".libsvm"), f"{HERE}svmlight:read_svmlight", f"{HERE}svmlight:write_svmlight",
        ("n_features", "n_labels", "zero_based"),
    ),
    "csv": Format(
        (".csv", ".tsv"), f"{HERE}csv_table:read_csv", f"{HERE}csv_table:write_csv",
        ("labels", "index", "sep", "encode", "drop", "encoding"),
    ),
}  # fmt: skip
"""What `load` reads and `save_data` writes."""

ARFF_LOSES = ("row names", "the published split")

UNCLEAR = (".txt", ".dat", "")
"""Suffixes that say nothing: the contents are looked at."""


def load(
    source: Any,
    *,
    format: str | None = None,
    allow_missing_features: bool = False,
    **options: Any,
) -> LabelData:
    """Return a built-in data set by its name (``"emoji"``), or read a file or a folder.

    Parameters
    ----------
    source : str or path
        A name of `BUILTIN`, a file of any of `FORMATS`, or a folder that holds ARFF (and XML): NAME.arff, or
        NAME-train.arff and NAME-test.arff, which become one table with a published split.
    format : str, optional
        A name of `FORMATS`. Default: by the suffix, ``.gz`` and ``.bz2`` taken off; by the contents for
        ``.txt``, ``.dat`` and no suffix.
    allow_missing_features : bool
        Accept NaN in the features.
    **options
        Those of the format's reader, such as ``labels=`` for CSV and ARFF; None means not given.

    Raises
    ------
    DataError
        A ValueError with one line that names the path, and the line in it where there is one.
    ValueError
        For an option that the format does not know.
    """
    options = {name: value for name, value in options.items() if value is not None}
    path = as_path(source, "source")
    if format is not None and format not in FORMATS:
        raise ValueError(f"no format {format!r} (known: {', '.join(FORMATS)})")
    if format is None and str(source) in BUILTIN:
        refuse_options(options, (), "a built-in data set")
        with resources.as_file(resources.files("labelzoo.data") / f"{source}.npz") as built_in:
            return from_npz(built_in)
    if stat.S_ISDIR(source_mode(path)):
        if format not in (None, "arff"):
            raise DataError(f"is a folder: folders are read as ARFF, not as {format}", path)
        refuse_options(options, FORMATS["arff"].options, "a folder with ARFF")
        from labelzoo.data.arff_folder import read_folder

        return guarded(read_folder, path, allow_missing_features=allow_missing_features, **options)
    refuse_irregular(path)
    name = format or format_of(path)
    refuse_options(options, FORMATS[name].options, f"format {name!r}")
    reader = imported(FORMATS[name].reader)
    return guarded(reader, path, allow_missing_features=allow_missing_features, **options)


def as_path(value: Any, argument: str) -> Path:
    """Return a path, or raise ValueError naming the argument."""
    try:
        return Path(value)
    except TypeError:
        raise ValueError(f"{argument} must be a path or a name, got {type(value).__name__}") from None


def source_mode(path: Path) -> int:
    """Return the mode of a source; where nothing is there, DataError lists the built-in data sets."""
    if not os.path.lexists(path):
        raise DataError(f"no such file, and no built-in data set of that name ({known()})", path)
    return mode_of(path)


def guarded(reader: Callable[..., LabelData], path: Path, **options: Any) -> LabelData:
    """Call a reader; a ValueError that does not name the file yet becomes a DataError that does."""
    try:
        return reader(path, **options)
    except DataError:
        raise
    except ValueError as error:
        raise DataError(str(error), path) from error
    except MemoryError as error:
        raise DataError("needs more memory than there is", path) from error
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", path) from error


def save_data(
    data: Any,
    path: Any,
    *,
    format: str | None = None,
    overwrite: bool = True,
    force: bool = False,
) -> str:
    """Write ``data`` to a file, at once or not at all, and return the name of its format.

    A file that is there is replaced and keeps its mode; of a symbolic link the target is replaced.

    Parameters
    ----------
    data : LabelData
    path : str or path
        Text formats are compressed where it ends in ``.gz`` or ``.bz2``.
    format : str, optional
        A name of `FORMATS`. Default: by the suffix.
    overwrite : bool
        False refuses where the file is there (beside ARFF also NAME.xml, its list of labels).
    force : bool
        For ARFF: replace a NAME.xml even where it is no list of labels of this data.

    Raises
    ------
    ValueError
        Where ``data`` is no LabelData, the format cannot hold it (the message names those that can), or the
        file cannot be written. Names and splits that are lost give a warning that lists them.
    """
    if not isinstance(data, LabelData):
        raise ValueError(
            f"data must be a LabelData, got {type(data).__name__}: labelzoo.data.from_arrays(X, Y) makes one"
        )
    target = as_path(path, "path")
    name = written_format(target, format)
    refuse_unwritable(data)
    files = written_files(target, name)
    found = [] if overwrite else [str(one) for one in files if os.path.lexists(one)]
    if found:
        raise ValueError(f"{found[0]} exists, and overwrite=False")
    extra = {"force": force} if name == "arff" else {}
    try:
        imported(FORMATS[name].writer)(data, target, **extra)
    except OSError as error:
        raise ValueError(f"cannot write {str(target)!r}: {error.strerror or error}") from error
    if name == "arff":
        warn_lost([lost for lost in things_beyond_rows(data) if lost in ARFF_LOSES], path, "ARFF")
    return name


def written_files(target: Path, name: str) -> list[Path]:
    """Return the files that are written for a path in the format of this name."""
    if name != "arff":
        return [target]
    from labelzoo.data.mulan_labels import arff_stem

    stem = arff_stem(target)
    return [target, stem.with_name(f"{stem.name}.xml")]


def written_format(target: Path, format: str | None = None) -> str:
    """Return the format that `save_data` writes to a path; ValueError where there is none."""
    if format is not None and format not in FORMATS:
        raise ValueError(f"no format {format!r} (known: {', '.join(FORMATS)})")
    name = format or format_by_suffix(target)
    if name is None:
        raise ValueError(f"{target}: the suffix names no format, so give one of {', '.join(FORMATS)}")
    if target.suffix.lower() in (".gz", ".bz2") and not FORMATS[name].packed:
        raise ValueError(f"{target}: {name} is not written as {target.suffix}")
    return name


def imported(place: str) -> Callable[..., Any]:
    """Return the function at ``"module:function"``."""
    module, _, function = place.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


def refuse_options(options: dict[str, Any], own: tuple[str, ...], what: str) -> None:
    """Raise ValueError naming the options that are not among ``own``."""
    unknown = [repr(name) for name in options if name not in own]
    if unknown:
        its_own = ", ".join(own) or "none"
        raise ValueError(f"{what} has no option {listed(unknown)} (its own: {its_own})")


def known() -> str:
    """Return the sentence part that lists the built-in data sets."""
    return f"built-in data sets: {', '.join(BUILTIN)}"


def bare_suffix(path: Path) -> str:
    """Return the suffix in lower case, after ``.gz`` or ``.bz2`` is taken off."""
    suffix = path.suffix.lower()
    return path.with_suffix("").suffix.lower() if suffix in (".gz", ".bz2") else suffix


def format_by_suffix(path: Path) -> str | None:
    """Return the name of the format that the suffix means, or None."""
    suffix = bare_suffix(path)
    return next((name for name, found in FORMATS.items() if suffix in found.suffixes), None)


def format_of(path: Path) -> str:
    """Return the name of the format of a file: by its suffix, else by its contents.

    Raises
    ------
    DataError
        For a suffix that no format has.
    """
    by_suffix = format_by_suffix(path)
    if by_suffix is not None:
        return by_suffix
    if bare_suffix(path) not in UNCLEAR:
        suffixes = ", ".join(suffix for found in FORMATS.values() for suffix in found.suffixes)
        raise DataError(
            f"the suffix {bare_suffix(path)!r} is not known ({suffixes}): give the format, one of "
            f"{', '.join(FORMATS)}",
            path,
        )
    return format_by_contents(path)


def format_by_contents(path: Path) -> str:
    """Tell npz and netCDF by their first bytes, ARFF by its first word, XMC by its header; else svmlight."""
    try:
        with path.open("rb") as stream:
            head = stream.read(4)
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", path) from error
    if head in (b"PK\x03\x04", b"\x89HDF"):
        return "npz" if head.startswith(b"PK") else "netcdf"
    with open_text(path) as text:
        first = next((line.strip() for line in text if line.strip()), "")
    if first.startswith("%") or first.lower().startswith("@relation"):
        return "arff"
    return "xmc" if HEADER.fullmatch(first) else "svmlight"
