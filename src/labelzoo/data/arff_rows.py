"""Rows of an ARFF file as codes: a fast path for plain lines, a careful one for the others and for errors."""

import re
from array import array
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from labelzoo.data.arff_header import Attribute
from labelzoo.data.arff_words import Word, at_end, next_word, problem_at, short, skip_blank
from labelzoo.data.errors import DataError

# Where a line holds one of these, the careful parser reads it; the fast one splits at commas.
UNUSUAL = re.compile(r"""['"%{}_?\x00-\x1f]""")
INDEX = re.compile(r"[\x00-\x20]*+([+-]?[0-9]++)(?=[\x00-\x20])")
WEIGHT = re.compile(r"[\x00-\x20]*+\{[\x00-\x20]*+([^{}]*+)\}")


class RowReader:
    """Gathers rows in the three arrays of a csr_array; zeros are not stored."""

    def __init__(self, attributes: tuple[Attribute, ...], path: str) -> None:
        self.attributes, self.path, self.line = attributes, path, 0
        self.lookup = [
            dict(zip(a.values, range(len(a.values)), strict=True)) if a.kind == "nominal" else None
            for a in attributes
        ]
        self.fast: list[Callable[[str], Any]] = [float if d is None else d.__getitem__ for d in self.lookup]
        self.texts: dict[int, dict[str, int]] = {
            i: {} for i, a in enumerate(attributes) if a.kind in ("string", "date", "relational")
        }
        self.data, self.columns, self.ends, self.lines = array("d"), array("i"), array("q", [0]), array("q")
        self.num_sparse = 0

    def add(self, line: str, number: int) -> None:
        """Parse one stripped, non-empty data line."""
        self.line = number
        sparse = line[0] == "{"
        row = self.sparse_fast(line) if sparse else self.dense_fast(line)
        if row is None:
            row = self.sparse_careful(line) if sparse else self.dense_careful(line)
        columns, values = row
        kept = np.flatnonzero(values)  # NaN is not zero
        self.columns.frombytes(columns[kept].astype(np.int32).tobytes())
        self.data.frombytes(values[kept].tobytes())
        self.ends.append(len(self.data))
        self.lines.append(number)
        self.num_sparse += sparse

    def dense_fast(self, line: str) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """Return (columns, codes) of a plain dense row, or None where it needs care or is wrong."""
        if self.texts or UNUSUAL.search(line):
            return None
        parts = line.split(",")
        if len(parts) != len(self.fast):
            return None
        if " " in line:
            parts = [part.strip(" ") for part in parts]
        try:
            values = np.array([code(p) for code, p in zip(self.fast, parts, strict=True)], np.float64)
        except (ValueError, KeyError):
            return None
        return (np.arange(len(values)), values) if np.isfinite(values).all() else None

    def sparse_fast(self, line: str) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """Return (columns, codes) of a plain sparse row, or None where it needs care or is wrong."""
        body = line[1:-1].strip(" ")
        if self.texts or not body or line[-1] != "}" or UNUSUAL.search(body):
            return None
        fast, count = self.fast, len(self.fast)
        try:
            pairs = [part.strip(" ").partition(" ") for part in body.split(",")]
            keys = [int(key) for key, _, _ in pairs]
            if min(keys) < 0 or max(keys) >= count or len(set(keys)) != len(keys):
                return None
            codes = [fast[k](part.lstrip(" ")) for k, (_, _, part) in zip(keys, pairs, strict=True)]
        except (ValueError, KeyError):
            return None
        return in_order(keys, codes) if np.isfinite(codes).all() else None

    def dense_careful(self, line: str) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return (columns, codes) of any dense row, or say what is wrong with it."""
        cells: list[str | None] = []
        start = 0
        while True:
            if cells and self.weight(line, start):
                break
            word = self.word(line, start, f"cell {len(cells) + 1}")
            cells.append(None if word.text == "?" and not word.quoted else word.text)
            start = skip_blank(line, word.end)
            if at_end(line, word.end):
                break
            if len(cells) > 2 * len(self.attributes) + 1000:
                self.refuse(
                    f"the row has over {len(cells)} cells, but there are {len(self.attributes)} attributes"
                )
            if line[start] != ",":
                self.refuse(
                    f"cell {len(cells)}: a comma must follow {short(word.text)}; quote values with spaces"
                )
            start += 1
        if len(cells) != len(self.attributes):
            self.refuse(f"the row has {len(cells)} cells, but there are {len(self.attributes)} attributes")
        codes = [self.code(i, cell) for i, cell in enumerate(cells)]
        return np.arange(len(codes)), np.array(codes, np.float64)

    def sparse_careful(self, line: str) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return (columns, codes) of any sparse row, or say what is wrong with it."""
        codes: dict[int, float] = {}
        start = skip_blank(line, 1)
        while line[start : start + 1] != "}" or codes:
            index = INDEX.match(line, start)
            if index is None:
                self.refuse(
                    f"sparse cell {len(codes) + 1}: expected 'index value', found {short(line[start:])}"
                )
            key = self.index(index[1], codes)
            word = self.word(line, index.end(), f"sparse cell {key}")
            codes[key] = self.code(key, None if word.text == "?" and not word.quoted else word.text)
            start = skip_blank(line, word.end)
            if line[start : start + 1] == "}":
                break
            if line[start : start + 1] != ",":
                self.refuse(f"sparse cell {key}: a comma or }} must follow {short(word.text)}")
            start += 1
        after = skip_blank(line, start + 1)
        if not (at_end(line, start + 1) or (line[after] == "," and self.weight(line, after + 1))):
            self.refuse(f"text after the sparse row: {short(line[after:])}")
        return in_order(list(codes), list(codes.values()))

    def index(self, text: str, seen: dict[int, float]) -> int:
        """Return a sparse index within range and not seen before in its row."""
        key = int(text) if len(text) < 19 else -1
        if not 0 <= key < len(self.attributes):
            self.refuse(f"sparse index {text[:40]} is outside 0..{len(self.attributes) - 1}")
        if key in seen:
            self.refuse(f"sparse index {key} stands twice in one row")
        return key

    def word(self, line: str, start: int, what: str) -> Word:
        """Return the next word, or refuse."""
        try:
            word = next_word(line, start)
        except UnicodeDecodeError:
            self.refuse(f"{what}: an escape \\u.... is half of a surrogate pair")
        if word is None:
            place = skip_blank(line, start)
            empty = line[place : place + 1] in ("", ",", "}")
            self.refuse(
                f"{what} is empty: write ? for a missing value"
                if empty
                else f"{what}: {problem_at(line, start)}"
            )
        return word

    def weight(self, line: str, start: int) -> bool:
        """Say whether the row ends here in a weight of 1; any other weight is refused."""
        found = WEIGHT.match(line, start)
        if found is None or not at_end(line, found.end()):
            return False
        try:
            one = float(found[1]) == 1.0
        except ValueError:
            one = False
        if not one:
            self.refuse(f"the row has weight {short(found[1])}: labelzoo does not weigh rows, remove it")
        return True

    def code(self, column: int, cell: str | None) -> float:
        """Return the code of one cell, or refuse it by the attribute's name."""
        attribute, values = self.attributes[column], self.lookup[column]
        if cell is None:
            return np.nan
        if column in self.texts:
            return float(self.texts[column].setdefault(cell, len(self.texts[column])) + 1)
        shown = f"attribute {short(attribute.name)}"
        if values is not None:
            if cell not in values:
                listed = ", ".join(value[:20] for value in attribute.values[:8])
                more = ", ..." if len(attribute.values) > 8 else ""
                self.refuse(f"{shown}: {short(cell)} is not one of its values {{{listed}{more}}}")
            return float(values[cell])
        try:
            number = float(cell) if "_" not in cell else np.nan
        except ValueError:
            number = np.nan
        if not np.isfinite(number):
            self.refuse(f"{shown}: {short(cell)} is not a finite number; write ? for a missing value")
        return number

    def refuse(self, reason: str) -> NoReturn:
        """Raise DataError for the line at hand."""
        raise DataError(reason, self.path, self.line)

    def finished(self) -> tuple[Any, NDArray[np.int64], int, dict[int, list[str]]]:
        """Return the last four fields of the table."""
        shape = (len(self.lines), len(self.attributes))
        parts = np.array(self.data), np.array(self.columns), np.array(self.ends)
        strings = {column: list(texts) for column, texts in self.texts.items()}
        return csr_array(parts, shape=shape), np.array(self.lines, np.int64), self.num_sparse, strings


def in_order(keys: list[int], codes: list[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return a sparse row's (columns, codes) by ascending column."""
    columns = np.array(keys, np.int64)
    order = np.argsort(columns)
    return columns[order], np.array(codes, np.float64)[order]
