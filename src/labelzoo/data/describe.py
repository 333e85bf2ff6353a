"""Statistics and the content hash of a LabelData."""

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from labelzoo.data.statistics import (
    diversity,
    frequent_pairs,
    imbalance_ratios,
    label_sets,
    mean_imbalance,
    scumble,
)

if TYPE_CHECKING:
    from labelzoo.data.labeldata import LabelData

HASH_ROWS = 1024  # rows hashed at one time; the same for dense and sparse X, so that both hash alike


def describe(data: "LabelData") -> dict[str, Any]:
    """Return a JSON-ready summary; formulas are in `labelzoo.data.statistics`.

    A value that is undefined is None; `describe_text` says why. Unobserved cells never count as negatives.

    Returns
    -------
    dict
        *Sizes*: ``rows, features, labels, positives``; ``missing_cells``; ``unlabelled_rows`` (without any
        observed label); ``missing_feature_cells`` (NaN in X); ``empty_rows`` (labelled, without a positive).

        *Labels*: ``cardinality`` (positives a labelled row); ``density`` (positives an observed cell);
        ``never_positive`` and ``always_positive`` (names; always means in each of the one or more rows where
        the label is observed); ``positives_per_label`` (``min, median, max``); ``imbalance_ratios`` (IRLbl
        in the order of the labels, None without a positive); ``mean_imbalance_ratio``; ``cvir``;
        ``labels_without_ratio`` (left out of both); ``scumble``; ``scumble_cv``.

        *Label sets* over the labelled rows: ``label_sets`` (distinct); ``label_sets_proportion`` (over the
        labelled rows); ``label_set_diversity`` (over the most that there can be); ``label_sets_once``;
        ``largest_label_set_rows``.

        *Pairs*: ``frequent_pairs``, up to ten of ``{"labels": [a, b], "rows": count}``.
    """
    positives = np.bincount(data.Y.indices, minlength=data.num_labels)
    observed = observed_per_label(data)
    return {
        **_sizes(data),
        **_rates(data, positives, observed),
        **_imbalance(data, positives, observed),
        **_label_sets(data),
        "frequent_pairs": _pairs(data),
    }


def _sizes(data: "LabelData") -> dict[str, Any]:
    values = data.X.data if issparse(data.X) else data.X
    holes = np.count_nonzero(np.isnan(values)) if data.allow_missing_features else 0
    empty = (np.diff(data.Y.indptr) == 0) & ~data.unlabelled_rows
    return {
        "rows": data.num_rows,
        "features": data.num_features,
        "labels": data.num_labels,
        "positives": data.num_positives,
        "empty_rows": int(np.count_nonzero(empty)),
        "missing_cells": data.num_missing_cells,
        "unlabelled_rows": int(np.count_nonzero(data.unlabelled_rows)),
        "missing_feature_cells": int(holes),
    }


def _rates(data: "LabelData", positives: NDArray[Any], observed: NDArray[np.int64]) -> dict[str, Any]:
    num_labelled = data.num_rows - int(np.count_nonzero(data.unlabelled_rows))
    num_observed = data.num_rows * data.num_labels - data.num_missing_cells
    always = (positives == observed) & (observed > 0)
    return {
        "cardinality": data.num_positives / num_labelled if num_labelled else None,
        "density": data.num_positives / num_observed if num_observed else None,
        "never_positive": [data.label_names[i] for i in np.flatnonzero(positives == 0)],
        "always_positive": [data.label_names[i] for i in np.flatnonzero(always)],
        "positives_per_label": {
            "min": int(positives.min()),
            "median": float(np.median(positives)),
            "max": int(positives.max()),
        },
    }


def _imbalance(data: "LabelData", positives: NDArray[Any], observed: NDArray[np.int64]) -> dict[str, Any]:
    ratios = imbalance_ratios(positives, observed)
    mean, cv = mean_imbalance(ratios)
    concurrence = scumble(data.Y, ratios, ~data.unlabelled_rows)
    return {
        "imbalance_ratios": [None if np.isnan(r) else r for r in ratios.tolist()],
        "mean_imbalance_ratio": mean,
        "cvir": cv,
        "labels_without_ratio": int(np.count_nonzero(np.isnan(ratios))),
        "scumble": concurrence.mean,
        "scumble_cv": concurrence.cv,
    }


def _label_sets(data: "LabelData") -> dict[str, Any]:
    labelled = ~data.unlabelled_rows
    count = int(np.count_nonzero(labelled))
    sets = label_sets(data.Y, labelled)
    return {
        "label_sets": sets.distinct,
        "label_sets_proportion": sets.distinct / count if count else None,
        "label_set_diversity": diversity(sets.distinct, count, data.num_labels),
        "label_sets_once": sets.once,
        "largest_label_set_rows": sets.largest,
    }


def _pairs(data: "LabelData") -> list[dict[str, Any]] | None:
    pairs = frequent_pairs(data.Y)
    if pairs is None:
        return None
    names = data.label_names
    return [{"labels": [names[p.first], names[p.second]], "rows": p.rows} for p in pairs]


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
