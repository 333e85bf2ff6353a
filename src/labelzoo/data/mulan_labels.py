"""Which columns of an ARFF file are labels: by Mulan's XML list, MEKA's ``-C``, or what the caller says."""

import operator
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.parsers import expat

from labelzoo.data.arff import ArffTable
from labelzoo.data.arff_words import short
from labelzoo.data.errors import DataError
from labelzoo.data.text_files import refuse_irregular
from labelzoo.data.validate import listed

OPTION = re.compile(r"(?:^|\s)-C\s+([+-]?[0-9]++)(?![\w.])")
WAYS = (
    "give labels=n (first n columns), labels=-n (last n), a list of names or an XML path, "
    "put Mulan's XML beside the file, or '-C n' in the relation (MEKA)"
)


def label_columns(table: ArffTable, xml: Any, labels: Any) -> list[int]:
    """Return the columns of the labels, in label order.

    ``labels`` wins over the XML list, which wins over ``-C``. Names are matched to columns exactly, and the
    order is the XML's; with a number of columns it is the order of the columns.

    Parameters
    ----------
    table : ArffTable
    xml : path, None (the XML of the same stem, see `companion_xml`) or False (none)
    labels : None, int, list of names or path of an XML list

    Raises
    ------
    DataError
        Where nothing says which columns are labels, or what says so does not fit the columns.
    """
    if labels is not None:
        return from_argument(table, labels)
    chosen = companion_xml(table.path) if xml is None else xml
    if chosen is not None and chosen is not False:
        return by_name(table, read_label_xml(checked_path(chosen, "xml")), os.fspath(chosen))
    option = OPTION.search(table.relation)
    if option is not None:
        return by_count(table, int(option[1][:18]), f"-C {option[1][:18]} in the relation")
    raise DataError(f"has no label specification: {WAYS}", table.path)


def from_argument(table: ArffTable, labels: Any) -> list[int]:
    """Return the columns that the argument ``labels`` names."""
    if isinstance(labels, (str, os.PathLike)):
        if not os.fspath(labels).lower().endswith(".xml"):
            raise DataError(
                f"labels={labels!r} is not an XML path: give one label as a list, [{labels!r}]", table.path
            )
        return by_name(table, read_label_xml(labels), os.fspath(labels))
    if isinstance(labels, bool):
        raise DataError(f"labels={labels!r}: {WAYS}", table.path)
    try:
        return by_count(table, operator.index(labels), f"labels={labels}")
    except TypeError:
        pass
    try:
        names = list(labels)
    except TypeError:
        names = [None]
    if not names or not all(isinstance(name, str) for name in names):
        raise DataError(f"labels={str(labels)[:60]}: {WAYS}", table.path)
    return by_name(table, names, "labels")


def checked_path(value: Any, argument: str) -> str:
    """Return a path as text, or refuse another type."""
    if not isinstance(value, (str, os.PathLike)):
        raise DataError(f"{argument} must be a path, None or False, got {value!r}")
    return os.fspath(value)


def companion_xml(path: str) -> Path | None:
    """Return the existing XML list of an ARFF file: its stem, or NAME.xml for NAME-train and NAME-test.

    Endings after a dot are dropped one after another, so that ``music-test.crlf.arff`` finds ``music.xml``
    where neither ``music-test.crlf.xml`` nor ``music-test.xml`` is there.
    """
    base = arff_stem(path)
    stems = [base.name]
    while "." in stems[-1].strip("."):
        stems.append(stems[-1].rpartition(".")[0])
    names: list[str] = []
    for stem in stems:
        shared = re.fullmatch(r"(.+)-(?:train|test)", stem, re.IGNORECASE | re.DOTALL)
        names += [stem] if shared is None else [stem, shared[1]]
    candidates = [base.with_name(f"{name}.xml") for name in names if name]
    return next((one for one in candidates if one.is_file()), None)


def arff_stem(path: str | os.PathLike[str]) -> Path:
    """Return the path without ``.gz`` or ``.bz2``, and then without ``.arff``."""
    base = Path(path)
    for suffixes in ((".gz", ".bz2"), (".arff",)):
        if base.suffix.lower() in suffixes:
            base = base.with_suffix("")
    return base


def by_count(table: ArffTable, count: int, source: str) -> list[int]:
    """Return the first ``count`` columns, or the last ``-count``."""
    total = len(table.attributes)
    if count == 0 or abs(count) > total:
        raise DataError(
            f"{source}: expected 1 to {total} labels, as the file has {total} attributes", table.path
        )
    return list(range(count)) if count > 0 else list(range(total + count, total))


def by_name(table: ArffTable, names: Sequence[str], source: str) -> list[int]:
    """Return the columns of the names, in their order; names that no column has are refused."""
    columns = {attribute.name: i for i, attribute in enumerate(table.attributes)}
    absent = [short(name) for name in names if name not in columns]
    if absent:
        raise DataError(f"has no attribute for labels of {source}: {listed(absent)}", table.path)
    repeated = (
        [short(name) for i, name in enumerate(names) if name in set(names[:i])] if repeats(names) else []
    )
    if repeated:
        raise DataError(f"{source} lists labels twice: {listed(repeated)}", table.path)
    return [columns[name] for name in names]


def repeats(names: Sequence[str]) -> bool:
    """Say whether a name occurs twice."""
    return len(set(names)) < len(names)


class LabelList:
    """What expat calls while it reads Mulan's XML; nested labels come in document order."""

    def __init__(self, path: str, parser: Any) -> None:
        self.path, self.parser, self.depth = path, parser, 0
        self.names: dict[str, int] = {}

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """Take one opening tag."""
        kind = tag.rpartition(" ")[2]
        if self.depth == 0 and kind != "labels":
            self.refuse(f"is not a Mulan label list: its root is <{kind[:40]}>, not <labels>")
        if self.depth > 0 and kind == "label":
            name = attributes.get("name")
            if name is None:
                self.refuse("<label> has no attribute 'name'")
            elif name in self.names:
                self.refuse(f"label {short(name)} is listed twice, first in line {self.names[name]}")
            else:
                self.names[name] = self.parser.CurrentLineNumber
        self.depth += 1

    def end(self, tag: str) -> None:
        """Take one closing tag."""
        self.depth -= 1

    def doctype(self, *_: Any) -> None:
        """Refuse a document type: entities are how a small XML file fills the memory."""
        self.refuse("has a document type (<!DOCTYPE ...>): entities are not read, remove it")

    def refuse(self, reason: str) -> None:
        """Raise DataError for the line at hand."""
        raise DataError(reason, self.path, self.parser.CurrentLineNumber)


def read_label_xml(path: str | os.PathLike[str]) -> list[str]:
    """Return the label names of Mulan's XML list in document order, nested labels (hierarchies) flattened.

    Raises
    ------
    DataError
        With file and line: not well formed, a document type, another root than ``<labels>``, a label without
        or with a repeated name, no label.
    """
    shown = os.fspath(path)
    refuse_irregular(path)
    parser = expat.ParserCreate(namespace_separator=" ")
    found = LabelList(shown, parser)
    parser.StartElementHandler, parser.EndElementHandler = found.start, found.end
    parser.StartDoctypeDeclHandler = found.doctype
    try:
        with open(path, "rb") as stream:
            parser.ParseFile(stream)
    except expat.ExpatError as error:
        raise DataError(
            f"is not well-formed XML: {expat.ErrorString(error.code)}", shown, error.lineno
        ) from error
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", shown) from error
    except DataError:
        raise
    except (ValueError, LookupError) as error:
        raise DataError(f"cannot be read as XML: {error}", shown) from error
    if not found.names:
        raise DataError("lists no label", shown)
    return list(found.names)
