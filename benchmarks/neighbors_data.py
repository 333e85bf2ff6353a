"""Data and prior kernels for the benchmarks of class kernels (pKNN).

Features: numeric ones are standardised by the rows that may be learned from, constant ones left out; nominal
ones (those that the file's ``nominal_json`` names: 35 of soybean's) become one 0/1 column a declared level,
and a missing value is all zeros. Sparse counts become unit rows of counts times log(rows / document count).

The prior kernel is exp(-d / (2 w m)), d the squared distance, m its median over pairs of rows known without
their labels, and w the width: 1 is the usual rule of the median, 0.03 nearly a unit matrix.
"""

import argparse
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

Array = Any

FOLDER = (
    Path(os.environ.get("LABELZOO_DATA", Path(__file__).resolve().parents[1] / ".." / "shared" / "data"))
    / "npz"
)
SPARSE = ("bibtex", "emoji-keywords", "debtags", "stackex-chess", "corel5k")


class Rows(NamedTuple):
    """Rows of one class each.

    Attributes
    ----------
    X : (row, feature)
        NaN where missing.
    y : int (row,)
    levels : dict of int to int
        Number of levels of the nominal features, by column.
    """

    X: Array
    y: Array
    levels: dict[int, int]


def load_rows(name: str, folder: Path) -> Rows:
    """Return a ``uci_`` set with its nominal features told; ValueError where the file is not there."""
    path = Path(folder) / f"uci_{name}.npz"
    if not path.is_file():
        raise ValueError(f"no file {path}; give another name in --data, or --data-folder")
    with np.load(path) as found:
        X, y = found["X"].astype(float), found["y"].astype(int)
        nominal = json.loads(str(found["nominal_json"])) if "nominal_json" in found.files else {}
        names = [str(one) for one in found["feature_names"]]
    return Rows(X, y, {names.index(key): len(levels) for key, levels in nominal.items()})


def prepared(rows: Rows, known: Array) -> Array:
    """Return the features of all rows, scaled by the `known` ones: (row, column)."""
    columns = []
    for j in range(rows.X.shape[1]):
        x = rows.X[:, j]
        if j in rows.levels:
            columns.append((x[:, None] == np.arange(rows.levels[j])).astype(float))
            continue
        spread = x[known].std()
        if spread > 0:
            columns.append(((x - x[known].mean()) / spread)[:, None])
    return np.concatenate(columns, axis=1)


def rarest_label(Y: sparse.csr_array, least: int) -> Array:
    """Return each row's rarest label among those with at least `least` rows, -1 without one: int (row,).

    A row's rarest label says most of it, and classes made so are of even size; that of the most common label
    would put most rows into a few classes. Equally rare ones: the first.
    """
    support = np.asarray(Y.sum(axis=0)).ravel()
    out = np.full(Y.shape[0], -1)
    for i in range(len(out)):
        own = np.sort(Y.indices[Y.indptr[i] : Y.indptr[i + 1]])
        own = own[support[own] >= least]
        if len(own):
            out[i] = own[np.argmin(support[own])]
    return out


def load_sparse(name: str, folder: Path, least: int) -> Rows:
    """Return rows of a multi-label set with one class each (`rarest_label`) and at least one feature."""
    path = Path(folder) / f"{name}.npz"
    if not path.is_file():
        raise ValueError(f"no file {path}; give another name in --data, or --data-folder")
    with np.load(path) as d:
        shape = tuple(d["Y_shape"])
        Y = sparse.csr_array((np.ones(len(d["Y_indices"])), d["Y_indices"], d["Y_indptr"]), shape=shape)
        if "X_data" in d.files:
            parts = (d["X_data"].astype(float), d["X_indices"], d["X_indptr"])
            X = sparse.csr_array(parts, shape=tuple(d["X_shape"]))
        else:
            X = sparse.csr_array(d["X"].astype(float))
    y = rarest_label(Y, least)
    kept = np.flatnonzero((y >= 0) & (np.diff(X.indptr) > 0))
    X = X[kept]
    weight = np.log(X.shape[0] / np.maximum(np.bincount(X.indices, minlength=X.shape[1]), 1))
    X = sparse.csr_array(X.multiply(weight[None, :] + 1e-3))
    length = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    return Rows(sparse.csr_array(X.multiply(1.0 / length[:, None])), y[kept], {})


def squared_distances(left: Array, right: Array) -> Array:
    """Return squared distances, not below 0: (left, right)."""
    squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1)
    return np.maximum(squares - 2.0 * left @ right.T, 0.0)


def median_distance(squared: Array) -> float:
    """Return the median over pairs of different rows."""
    return float(np.median(squared[np.triu_indices(len(squared), 1)]))


def names_among(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Return the reader of an option that is names with commas between, all of them known."""

    def read(text: str) -> list[str]:
        asked = text.split(",")
        if unknown := sorted(set(asked) - set(known)):
            raise argparse.ArgumentTypeError(f"unknown {', '.join(unknown)}; known: {', '.join(known)}")
        return asked

    return read


def whole(least: int) -> Callable[[str], int]:
    """Return the reader of an option that is a whole number."""

    def read(text: str) -> int:
        if not text.strip().isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"must be a whole number of at least {least}, got {text!r}")
        return int(text)

    return read


def wholes(least: int) -> Callable[[str], list[int]]:
    """Return the reader of an option that is whole numbers with commas between."""
    return lambda text: [whole(least)(one) for one in text.split(",")]


def above_zero(text: str) -> float:
    """Read an option that is a finite number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = np.nan
    if not 0 < number < np.inf:
        raise argparse.ArgumentTypeError(f"must be a finite number above 0, got {text!r}")
    return number
