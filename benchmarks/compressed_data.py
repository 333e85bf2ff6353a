"""Data sets prepared as in Shi and Yu, ICML 2019, section 4.1, for the benchmarks of compressed targets.

Labels that fewer than .5 % of the rows have are removed, then rows without a label; rows are shuffled, 1 % of
them are labelled at the start, 40 % are the pool, the rest is the test part. `limit` takes random rows first.
The map of the features comes from start and pool alone: unit rows of weighted counts for sparse features,
standardised features over the root of their number else, as the model `compressed_gp` has them.
"""

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from labelzoo.data import load
from labelzoo.models.gp_kernel import feature_map

Array = Any

FOLDER = Path(os.environ.get("LABELZOO_DATA", Path(__file__).resolve().parents[1] / ".." / "shared" / "data"))
SHARE, START, POOL = 0.005, 0.01, 0.4
LIMITS = {"corel5k": None, "bibtex": None, "emoji-keywords": None, "debtags": 8000}
"""Rows that are taken of each data set; None: all."""


class Prepared(NamedTuple):
    """A data set cut as in the paper.

    Attributes
    ----------
    X : (row, feature)
        Mapped features, dense.
    Y : csr_array int8 (row, labels)
    label_names : list of str
    start, pool, test : int arrays
        Rows, disjoint, in random order.
    """

    X: Array
    Y: Array
    label_names: list[str]
    start: Array
    pool: Array
    test: Array


def prepared(name: str, seed: int, limit: int | None = None, most_labels: int | None = None) -> Prepared:
    """Return the data set `name` cut by `seed`.

    Parameters
    ----------
    limit : int or None
        Random rows taken first, the same for every seed.
    most_labels : int or None
        Keep so many of the most frequent labels (the paper keeps 50 for one comparison).
    """
    data = load(FOLDER / "npz" / f"{name}.npz")
    if limit is not None and limit < data.num_rows:
        rows = np.random.default_rng([9, 2019]).permutation(data.num_rows)[:limit]
        data = data.subset(rows=np.sort(rows))
    positives = np.asarray(data.Y.sum(axis=0)).ravel()
    labels = np.flatnonzero(positives >= SHARE * data.num_rows)
    if most_labels is not None:
        labels = np.sort(labels[np.argsort(-positives[labels], kind="stable")[:most_labels]])
    data = data.subset(labels=labels)
    data = data.subset(rows=np.flatnonzero(np.asarray(data.Y.sum(axis=1)).ravel() > 0))
    order = np.random.default_rng([9, seed]).permutation(data.num_rows)
    start, pool = max(2, round(START * data.num_rows)), round(POOL * data.num_rows)
    known = np.sort(order[: start + pool])
    kernel = feature_map(data.X[known], "auto")
    X = kernel.mapped(data.X)
    X = np.asarray(X.toarray() if sparse.issparse(X) else X, float)
    if not kernel.is_cosine:
        X /= np.sqrt(X.shape[1])
    parts = np.split(order, [start, start + pool])
    return Prepared(X, sparse.csr_array(data.Y), list(data.label_names), *parts)


if __name__ == "__main__":
    for name, limit in LIMITS.items():
        p = prepared(name, 0, limit)
        share = np.asarray(p.Y.sum(axis=0)).ravel()
        print(
            f"{name}: {p.X.shape[0]} rows, {p.X.shape[1]} features, {p.Y.shape[1]} labels, least support "
            f"{share.min()}, {p.Y.sum() / p.Y.shape[0]:.2f} labels a row; {len(p.start)} at the start, "
            f"{len(p.pool)} in the pool, {len(p.test)} in the test part"
        )
