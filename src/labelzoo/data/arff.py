"""ARFF files as a table of codes: dense rows, sparse rows or both, compressed or not, with each row's line.

The parser is the package's own. liac-arff 2.5 cannot read dates, tabs after ``@attribute`` or escapes in
names, takes the last of two cells with one index, and its pattern for nominal values needs exponential time
on some lines; it serves as the yardstick in the tests and quotes the names that are written.
"""

import os
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelzoo.data.arff_header import Attribute, read_header
from labelzoo.data.arff_rows import RowReader
from labelzoo.data.arff_words import BLANK
from labelzoo.data.text_files import open_text


class ArffTable(NamedTuple):
    """What an ARFF file says, before labels and features are told apart.

    Attributes
    ----------
    path, relation : str
    attributes : tuple of Attribute
        m columns.
    codes : float64 csr_array (n, m)
        Numbers of numeric columns; the position of the value (from 0) in a nominal's list; for string, date
        and relational columns 1 + the position in ``strings``, 0 where a sparse row omits the cell. NaN is
        ``?``. A cell that a sparse row omits is 0, hence the *first* value of a nominal, as ARFF has it.
    lines : int64 array (n,)
        The line of each row in the file, from 1.
    num_sparse_rows : int
        How many rows are written as ``{index value, ...}``.
    strings : dict from column to list of str
        Distinct texts of the string, date and relational columns.
    """

    path: str
    relation: str
    attributes: tuple[Attribute, ...]
    codes: Any
    lines: NDArray[np.int64]
    num_sparse_rows: int
    strings: dict[int, list[str]]

    @property
    def num_missing_cells(self) -> int:
        """Number of ``?`` cells."""
        return int(np.isnan(self.codes.data).sum())


def read_table(path: str | os.PathLike[str], encoding: str = "utf-8") -> ArffTable:
    """Read an ARFF file, compressed by gzip or bzip2 or not, in memory proportional to its nonzero cells.

    An instance weight is accepted where it is 1 and refused otherwise, since no model here weighs rows.

    Raises
    ------
    DataError
        With file and line: whatever `read_header` refuses, a row with a wrong number of cells, an unknown
        nominal value, text or an infinite number in a numeric column, an empty cell, a sparse index that is
        negative, repeated or too large, a weight other than 1.
    """
    shown = os.fspath(path)
    with open_text(path, encoding) as text:
        numbered = enumerate(text, start=1)
        header = read_header(numbered, shown)
        reader = RowReader(header.attributes, shown)
        for number, line in numbered:
            stripped = line.strip(BLANK)
            if stripped and stripped[0] != "%":
                reader.add(stripped, number)
    return ArffTable(shown, header.relation, header.attributes, *reader.finished())
