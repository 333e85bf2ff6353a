"""The header of an ARFF file: the relation and its attributes, with the line of each."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from labelzoo.data.arff_words import BLANK, Word, at_end, next_word, problem_at, short, skip_blank
from labelzoo.data.errors import DataError

KINDS = {"numeric": "numeric", "real": "numeric", "integer": "numeric", "string": "string", "date": "date"}
DECLARATION = re.compile(r"@([A-Za-z]+)(?=[\x00-\x20'\"{]|\Z)")
RANGE = re.compile(r"[\x00-\x20]*\[[^\]]*\]")


class Attribute(NamedTuple):
    """One column: ``kind`` is numeric, nominal, string, date or relational; ``values`` of nominals only."""

    name: str
    kind: str
    values: tuple[str, ...]
    line: int


class Header(NamedTuple):
    """The relation as it is written (its options such as ``-C 6`` included) and the columns in order."""

    relation: str
    attributes: tuple[Attribute, ...]


def read_header(lines: Iterator[tuple[int, str]], path: str) -> Header:
    """Read up to and with the ``@data`` line.

    Parameters
    ----------
    lines : iterator of (line number, text)
    path : str
        For messages.

    Raises
    ------
    DataError
        With file and line: no ``@relation``, no ``@attribute`` or no ``@data``, a name used twice, an unknown
        type, a nominal without values or with a repeated one, a quote that is never closed.
    """
    relation: str | None = None
    attributes: dict[str, Attribute] = {}
    number = 0
    for number, raw in lines:
        text = raw.strip(BLANK)
        if not text or text[0] == "%":
            continue
        found = DECLARATION.match(text)
        word = found[1].lower() if found else ""
        if not found or (relation is None and word != "relation"):
            raise DataError(
                f"is not ARFF: expected @relation or @attribute, found {short(text)}", path, number
            )
        if word == "relation" and relation is None:
            relation = read_relation(text, found.end(), path, number)
        elif word == "attribute":
            add(attributes, read_attribute(text, found.end(), path, number), path)
            if attributes[next(reversed(attributes))].kind == "relational":
                skip_relational(lines, path, number)
        elif word == "data" and at_end(text, found.end()):
            break
        else:
            raise DataError(f"unexpected declaration {short(text)} in the header", path, number)
    else:
        raise DataError("has no @data line: the file is empty, cut short or not ARFF", path, number or None)
    if not attributes:
        raise DataError("has no @attribute before @data", path, number)
    return Header(relation or "", tuple(attributes.values()))


def read_relation(text: str, start: int, path: str, line: int) -> str:
    """Return the relation's name; one without quotes may hold spaces (``Music: -C 6``)."""
    word = parsed_word(text, start, path, line)
    if word is None:
        raise DataError(f"@relation has no name: {problem_at(text, start)}", path, line)
    return word.text if at_end(text, word.end) else text[start:].strip(BLANK)


def read_attribute(text: str, start: int, path: str, line: int) -> Attribute:
    """Return one attribute; a numeric range such as KEEL's ``real [0, 1]`` is passed over."""
    name = parsed_word(text, start, path, line)
    if name is None:
        raise DataError(f"@attribute has no name: {problem_at(text, start)}", path, line)
    shown = short(name.text)
    place = skip_blank(text, name.end)
    if text[place : place + 1] == "{":
        return Attribute(name.text, "nominal", read_values(text, place + 1, shown, path, line), line)
    kind = parsed_word(text, place, path, line)
    if kind is None:
        raise DataError(f"attribute {shown} has no type", path, line)
    if kind.text.lower() == "relational":
        return Attribute(name.text, "relational", (), line)
    if kind.text.lower() not in KINDS:
        known = "numeric, real, integer, string, date, relational or {value, value}"
        raise DataError(f"attribute {shown} has unknown type {short(kind.text)} (known: {known})", path, line)
    found = KINDS[kind.text.lower()]
    end = kind.end
    if found == "date" and not at_end(text, end):
        date_format = parsed_word(text, end, path, line)
        end = end if date_format is None else date_format.end
    if found == "numeric" and (limits := RANGE.match(text, end)):
        end = limits.end()
    if not at_end(text, end):
        raise DataError(f"attribute {shown} has text after its type: {short(text[end:].strip())}", path, line)
    return Attribute(name.text, found, (), line)


def read_values(text: str, start: int, shown: str, path: str, line: int) -> tuple[str, ...]:
    """Return the distinct values of a nominal attribute, from after its opening brace."""
    values: dict[str, None] = {}
    while True:
        word = parsed_word(text, start, path, line)
        if word is None:
            raise DataError(f"values of attribute {shown}: {problem_at(text, start)}", path, line)
        if word.text in values:
            raise DataError(f"attribute {shown} lists the value {short(word.text)} twice", path, line)
        values[word.text] = None
        start = skip_blank(text, word.end)
        mark = text[start : start + 1]
        start += 1
        if mark == "}":
            break
        if mark != ",":
            reason = "a comma or } must follow each; quote values that hold spaces"
            raise DataError(f"values of attribute {shown}: after {short(word.text)}, {reason}", path, line)
    if not at_end(text, start):
        raise DataError(f"attribute {shown} has text after its values: {short(text[start:])}", path, line)
    return tuple(values)


def parsed_word(text: str, start: int, path: str, line: int) -> Word | None:
    """Return the next word or None; a broken escape is a DataError."""
    try:
        return next_word(text, start)
    except UnicodeDecodeError as error:
        raise DataError("an escape \\u.... is half of a surrogate pair", path, line) from error


def add(attributes: dict[str, Attribute], new: Attribute, path: str) -> None:
    """Add an attribute, or refuse a name used twice."""
    if new.name in attributes:
        first = attributes[new.name].line
        raise DataError(
            f"attribute name {short(new.name)} is used twice, first in line {first}", path, new.line
        )
    attributes[new.name] = new


def skip_relational(lines: Iterator[tuple[int, str]], path: str, start: int) -> None:
    """Pass over the nested declarations of a relational attribute, to its ``@end``."""
    depth = 1
    for _, raw in lines:
        words = raw.strip(BLANK).lower().split(None, 1)
        if words[:1] == ["@attribute"] and words[-1].rstrip(BLANK).endswith("relational"):
            depth += 1
        depth -= words[:1] == ["@end"]
        if depth == 0:
            return
    raise DataError("a relational attribute has no @end", path, start)
