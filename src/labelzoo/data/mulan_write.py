"""LabelData as a multi-label ARFF file with Mulan's XML list beside it and MEKA's ``-C`` in the relation."""

import bz2
import gzip
import io
import os
import re
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO
from xml.sax.saxutils import quoteattr

import numpy as np
from scipy.sparse import issparse

from labelzoo.data.arff_words import quoted
from labelzoo.data.errors import DataError
from labelzoo.data.labeldata import LabelData
from labelzoo.data.mulan_labels import arff_stem, read_label_xml
from labelzoo.data.validate import listed
from labelzoo.whole_file import existing_mode, named_errors, put_in_place, temporary_file

BLOCK_CELLS = 1_000_000  # dense cells made at one time, so that no table of rows x labels arises
NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
NAMESPACE = "http://mulan.sourceforge.net/labels"


def write_arff(data: LabelData, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write ``data`` as ARFF, labels last, and beside it the XML list of its labels.

    Both `read_arff` and Mulan find the labels by the XML, MEKA by ``-C`` in the relation. A sparse ``X``
    gives sparse rows. Numbers are written so that they are read back exactly; unobserved labels and NaN
    features as ``?``. Row names and a published split have no place in ARFF and are left out.

    Parameters
    ----------
    data : LabelData
    path : str or path
        Ends in ``.arff``, ``.arff.gz`` or ``.arff.bz2``; the list is NAME.xml. Both files are written in full
        before either takes its place. A list that says something else is taken away first, then the ARFF
        comes, then the new list: whatever interrupts it, an ARFF stands beside its own list or beside none,
        and the relation of one that was written here names the labels as well.
    force : bool
        Replace a NAME.xml that is no list of these labels, or of those of the ARFF that is replaced.

    Raises
    ------
    ValueError
        For another ending, a NAME.xml that is something else (unless ``force``), a name used by two columns,
        a name that text or XML cannot hold, a file that cannot be written.
    ImportError
        Where the installed module ``arff`` is not liac-arff, which quotes the names.
    """
    target = Path(path)
    stem = arff_stem(target)
    if not re.search(r"\.arff(\.gz|\.bz2)?$", target.name, re.IGNORECASE):
        raise ValueError(f"path must end in .arff, .arff.gz or .arff.bz2, got {str(path)!r}")
    refuse_names(data)
    listing = stem.with_name(f"{stem.name}.xml")
    if not force:
        refuse_other_list(listing, data, existing_mode(target) is not None)
    contents = label_xml(data.label_names).encode()
    with temporary_file(target) as arff_part, temporary_file(listing) as xml_part:
        xml_part.write_bytes(contents)
        with text_writer(arff_part, target.suffix) as text:
            for line in arff_lines(data, stem.name):
                text.write(line + "\n")
        mode = existing_mode(listing)
        if mode is not None and listing.read_bytes() == contents:
            put_in_place(arff_part, target)
            return
        with taken_away(listing):
            put_in_place(arff_part, target)
        with named_errors(listing):
            if mode is not None:
                xml_part.chmod(mode)
            put_in_place(xml_part, listing)


@contextmanager
def taken_away(listing: Path) -> Iterator[None]:
    """Take the old list of labels away; it comes back where the block fails, as its ARFF stays."""
    old = listing.resolve()
    if existing_mode(listing) is None:
        yield
        return
    aside = old.with_name(f".{old.stem[:60]}.{uuid.uuid4().hex}.old")
    os.replace(old, aside)
    try:
        yield
    except BaseException:
        os.replace(aside, old)
        raise
    aside.unlink()


def refuse_other_list(listing: Path, data: LabelData, replaces: bool) -> None:
    """Raise ValueError naming a NAME.xml that lists no labels of this data or of the ARFF it replaces."""
    if existing_mode(listing) is None:
        return
    what = f"{str(listing)!r} would be replaced by the list of labels, but it"
    try:
        names = read_label_xml(listing)
    except DataError as error:
        raise ValueError(f"{what} is none: {error.reason}; move it, or write under another name") from error
    if not replaces and set(names) != set(data.label_names):
        raise ValueError(f"{what} lists other labels; move it, or write under another name")


def refuse_names(data: LabelData) -> None:
    """Raise ValueError for names that the two files cannot hold or tell apart."""
    names = [*data.feature_names, *data.label_names]
    twice = [repr(name) for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ValueError(f"ARFF needs distinct attribute names; features and labels share {listed(twice)}")
    broken = [repr(name) for name in names if re.search("[\ud800-\udfff]", name)]
    if broken:
        raise ValueError(
            f"names hold half of a surrogate pair, which no text file can hold: {listed(broken)}"
        )
    unfit = [repr(name) for name in data.label_names if NOT_IN_XML.search(name)]
    if unfit:
        raise ValueError(f"label names hold control characters, which XML cannot hold: {listed(unfit)}")


def label_xml(names: tuple[str, ...]) -> str:
    """Return Mulan's list of labels."""
    # Line ends and tabs become character references, since XML reads them as spaces otherwise.
    labels = "".join(f"<label name={quoteattr(name)}></label>\n" for name in names)
    return f'<?xml version="1.0" encoding="utf-8"?>\n<labels xmlns="{NAMESPACE}">\n{labels}</labels>\n'


@contextmanager
def text_writer(path: Path, suffix: str) -> Iterator[TextIO]:
    """Open a UTF-8 text to be written, compressed as ``suffix`` says; the same text gives the same bytes."""
    with path.open("wb") as raw:
        stream: Any = raw
        if suffix.lower() == ".gz":
            stream = gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0)
        elif suffix.lower() == ".bz2":
            stream = bz2.BZ2File(raw, "wb")
        with stream, io.TextIOWrapper(stream, encoding="utf-8", newline="\n") as text:
            yield text


def arff_lines(data: LabelData, name: str) -> Iterator[str]:
    """Yield the lines of the ARFF file."""
    # A space or -C within the file's own name must not pass for MEKA's option.
    relation = re.sub(r"[^\w.]+", "_", name) or "labelzoo"
    yield f"@relation '{relation}: -C -{data.num_labels}'"
    yield ""
    yield from (f"@attribute {quoted(name)} numeric" for name in data.feature_names)
    yield from (f"@attribute {quoted(name)} {{0,1}}" for name in data.label_names)
    yield ""
    yield "@data"
    step = max(1, BLOCK_CELLS // max(1, data.num_labels + data.num_features))
    for first in range(0, data.num_rows, step):
        rows = np.arange(first, min(first + step, data.num_rows))
        yield from sparse_rows(data, rows) if issparse(data.X) else dense_rows(data, rows)


def dense_rows(data: LabelData, rows: Any) -> Iterator[str]:
    """Yield rows with every cell."""
    labels = np.where(data.Y[rows].toarray() != 0, "1", "0")
    labels[~data.observed_mask(rows)] = "?"
    for row, cells in zip(rows.tolist(), labels.tolist(), strict=True):
        yield ",".join([*map(number, data.X[row].tolist()), *cells])


def sparse_rows(data: LabelData, rows: Any) -> Iterator[str]:
    """Yield rows ``{index value,...}`` of the features that are not zero and the labels that are not 0."""
    d, X, Y = data.num_features, data.X[rows], data.Y[rows]
    unknown = ~data.observed_mask(rows)
    for i in range(len(rows)):
        cells = slice(X.indptr[i], X.indptr[i + 1])
        pairs = zip(X.indices[cells].tolist(), X.data[cells].tolist(), strict=True)
        texts = [f"{column} {number(value)}" for column, value in pairs]
        marks = dict.fromkeys(Y.indices[Y.indptr[i] : Y.indptr[i + 1]].tolist(), "1")
        marks |= dict.fromkeys(np.flatnonzero(unknown[i]).tolist(), "?")
        texts += [f"{d + label} {marks[label]}" for label in sorted(marks)]
        yield "{" + ",".join(texts) + "}"


def number(value: float) -> str:
    """Write a float with the fewest digits that read back exactly; NaN is ``?``."""
    return "?" if value != value else repr(value).removesuffix(".0")
