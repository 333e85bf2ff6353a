"""Statistics and the content hash of a LabelData."""

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

if TYPE_CHECKING:
    from labelzoo.data.labeldata import LabelData

HASH_ROWS = 1024  # rows hashed at one time; the same for dense and sparse X, so that both hash alike


def describe(data: "LabelData") -> dict[str, Any]:
    """Return a JSON-ready summary.

    Returns
    -------
    dict
        ``rows, features, labels, positives``; ``cardinality`` (positives a labelled row) and ``density``
        (positives an observed cell), None where nothing is observed; ``label_sets`` (distinct sets of
        positives over the labelled rows); ``never_positive`` and ``always_positive`` (label names; always
        means in each of the one or more rows where the label is observed); ``empty_rows`` (labelled rows
        without a positive); ``missing_cells``; ``unlabelled_rows`` (rows without any observed label).
    """
    labelled = ~data.unlabelled_rows
    num_labelled = int(np.count_nonzero(labelled))
    num_observed = data.num_rows * data.num_labels - data.num_missing_cells
    positives = np.bincount(data.Y.indices, minlength=data.num_labels)
    observed = observed_per_label(data)
    always = (positives == observed) & (observed > 0)
    return {
        "rows": data.num_rows,
        "features": data.num_features,
        "labels": data.num_labels,
        "positives": data.num_positives,
        "cardinality": data.num_positives / num_labelled if num_labelled else None,
        "density": data.num_positives / num_observed if num_observed else None,
        "label_sets": count_label_sets(data.Y, labelled),
        "never_positive": [data.label_names[i] for i in np.flatnonzero(positives == 0)],
        "always_positive": [data.label_names[i] for i in np.flatnonzero(always)],
        "empty_rows": int(np.count_nonzero((np.diff(data.Y.indptr) == 0) & labelled)),
        "missing_cells": data.num_missing_cells,
        "unlabelled_rows": data.num_rows - num_labelled,
    }


def observed_per_label(data: "LabelData") -> NDArray[np.int64]:
    """Count the rows in which each label is observed, int64 (l,)."""
    if data.missing is None:
        return np.full(data.num_labels, data.num_rows)
    row, label = data.missing.cells
    listed = np.bincount(label, minlength=data.num_labels)
    labelled = data.num_rows - np.count_nonzero(data.missing.rows)
    if data.missing.cells_are == "missing":
        return np.asarray(labelled - listed)
    return np.asarray(labelled - len(np.unique(row)) + listed)


def count_label_sets(Y: csr_array, labelled: NDArray[np.bool_]) -> int:
    """Count the distinct sets of positive labels over the labelled rows."""
    bounds = Y.indptr
    return len({Y.indices[bounds[i] : bounds[i + 1]].tobytes() for i in np.flatnonzero(labelled)})


def content_hash(data: "LabelData") -> str:
    """Return the SHA-256 (hex) of all contents except the published split."""
    digest = hashlib.sha256(b"labelzoo.LabelData 1")
    digest.update(json.dumps([data.num_rows, data.num_features, data.num_labels]).encode())
    for first in range(0, data.num_rows, HASH_ROWS):
        counts, columns, values = row_entries(data.X[first : first + HASH_ROWS])
        for part, kind in ((counts, "<i8"), (columns, "<i8"), (values, "<f8")):
            digest.update(part.astype(kind).tobytes())
    for part in (data.Y.indptr, data.Y.indices):
        digest.update(part.astype("<i8").tobytes())
    if data.missing is not None:
        digest.update(data.missing.cells_are.encode() + np.packbits(data.missing.rows).tobytes())
        for part in data.missing.cells:
            digest.update(part.astype("<i8").tobytes())
    digest.update(json.dumps([data.feature_names, data.label_names, data.example_names]).encode())
    return digest.hexdigest()


def row_entries(block: Any) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return the number of nonzeros a row, their columns and their values, for a dense or sparse block."""
    if issparse(block):
        return np.diff(block.indptr), block.indices, block.data
    rows, columns = np.nonzero(block)
    return np.bincount(rows, minlength=block.shape[0]), columns, block[rows, columns]
