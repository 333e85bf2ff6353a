"""Multi-label ARFF files of Mulan (labels by an XML list) and MEKA (labels by ``-C``), read as LabelData."""

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from labelzoo.data.arff import ArffTable, read_table
from labelzoo.data.arff_words import short
from labelzoo.data.errors import DataError
from labelzoo.data.labeldata import LabelData
from labelzoo.data.mulan_encode import encode_features, encode_labels
from labelzoo.data.mulan_labels import label_columns
from labelzoo.data.validate import listed

ENCODINGS = ("onehot", "none")


def read_arff(
    path: str | os.PathLike[str],
    *,
    xml: Any = None,
    labels: Any = None,
    encode: str = "onehot",
    drop: Any = (),
    encoding: str = "utf-8",
    allow_missing_features: bool = False,
) -> LabelData:
    """Read a multi-label ARFF file, dense or sparse, plain or compressed (gzip, bzip2).

    Which columns are labels: ``labels`` if given; else the XML list, whose order the labels then have; else
    ``-C n`` in the relation (first n columns, or the last n for a negative number).

    Two-valued labels are read by what their values say (0/1, false/true, no/yes, n/y, f/t, -1/+1,
    absent/present, in any order and letter case); ``?`` is an unobserved label. In a sparse row an omitted
    cell is 0, or the *first* value of a nominal attribute: a label ``{YES,NO}`` that is omitted is a YES.

    Parameters
    ----------
    path : str or path
    xml : path, None or False
        Mulan's label list; None takes the file of the same stem (for NAME-train and NAME-test also
        NAME.xml) where there is one, False ignores it.
    labels : int, list of str or path, optional
        ``n``: the first n columns; ``-n``: the last n; names; or the path of an XML list.
    encode : "onehot" or "none"
        Nominal features other than {0, 1}: an indicator column for each value, named ``attribute=value``, or
        one column holding the value's number (where all values are numbers) or its position in the list.
    drop : list of str
        Attributes to leave out, such as identifiers. String, date and relational features must be dropped.
    encoding : str
        Of the text; ``"latin-1"`` for older files.
    allow_missing_features : bool
        Accept ``?`` in features, as NaN; in a one-hot attribute all its columns are NaN.

    Returns
    -------
    LabelData
        ``X`` is a csr_array for a file of sparse rows, and for dense rows of which less than a tenth of the
        cells is not zero; otherwise an ndarray.

    Raises
    ------
    DataError
        One line with the file and the line in it.
    """
    if encode not in ENCODINGS:
        raise ValueError(f"encode must be 'onehot' or 'none', got {encode!r}")
    table = read_table(path, encoding)
    if not len(table.lines):
        raise DataError("has no rows after @data", table.path)
    chosen = label_columns(table, xml, labels)
    features = feature_columns(table, chosen, drop)
    if not allow_missing_features:
        refuse_missing_features(table, features)
    Y, missing = encode_labels(table, chosen)
    X, names = encode_features(table, features, encode)
    return LabelData(
        X=X,
        Y=Y,
        missing=missing,
        feature_names=names,
        label_names=[table.attributes[i].name for i in chosen],
        allow_missing_features=allow_missing_features,
    )


def feature_columns(table: ArffTable, labels: Sequence[int], drop: Any) -> list[int]:
    """Return the columns that are neither labels nor dropped; a type that is no number is refused."""
    names = [drop] if isinstance(drop, str) else list(drop) if isinstance(drop, Iterable) else None
    if names is None:
        raise ValueError(f"drop must be a list of attribute names, got {drop!r}")
    columns = {attribute.name: i for i, attribute in enumerate(table.attributes)}
    unknown = [short(name) for name in names if name not in columns]
    if unknown:
        raise DataError(f"drop names no attribute of the file: {listed(unknown)}", table.path)
    both = [short(name) for name in names if columns[name] in set(labels)]
    if both:
        raise DataError(f"drop names labels, not features: {listed(both)}", table.path)
    left_out = {*labels, *(columns[name] for name in names)}
    kept = [i for i in range(len(table.attributes)) if i not in left_out]
    refuse_text_features(table, kept)
    return kept


def refuse_text_features(table: ArffTable, columns: Sequence[int]) -> None:
    """Raise DataError listing the string, date and relational features and how to leave them out."""
    wrong = [table.attributes[i] for i in columns if table.attributes[i].kind not in ("numeric", "nominal")]
    if wrong:
        texts = listed([f"{short(attribute.name)} ({attribute.kind})" for attribute in wrong])
        remedy = f"drop={[attribute.name for attribute in wrong[:5]]!r}"
        reason = f"features must be numeric or nominal, not text: {texts}; leave them out with {remedy}"
        raise DataError(reason, table.path, wrong[0].line)


def refuse_missing_features(table: ArffTable, columns: Sequence[int]) -> None:
    """Raise DataError naming the features with ``?`` cells, how many each, and the remedy."""
    unknown = np.isnan(table.codes.data)
    if not unknown.any():
        return
    counts = np.bincount(table.codes.indices[unknown], minlength=len(table.attributes))
    texts = [f"{short(table.attributes[i].name)} has {counts[i]}" for i in columns if counts[i]]
    if texts:
        total = int(counts[list(columns)].sum())
        remedy = "pass allow_missing_features=True and impute before fitting, or drop the attributes"
        raise DataError(f"has {total} missing feature cells (?): {listed(texts)}; {remedy}", table.path)
