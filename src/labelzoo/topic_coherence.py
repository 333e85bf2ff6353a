"""Coherence of topics: how much oftener their top labels occur together than independence would have it."""

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

Array = Any


class LabelCounts(NamedTuple):
    """Labels of n rows, to count pairs in.

    Attributes
    ----------
    Y : csc_array (row, labels)
        Ones at the positives.
    unlabelled : bool array (row,)
        Rows without any observed label.
    cells : csc_array (row, labels)
        Ones at the listed cells of partly labelled rows.
    cells_are : "missing" or "observed"
    """

    Y: Any
    unlabelled: Array
    cells: Any
    cells_are: str

    @classmethod
    def of_data(cls, data: Any) -> "LabelCounts":
        """Return the labels of `data` (LabelData)."""
        Y = sparse.csc_array(data.Y.astype(float))
        if data.missing is None:
            return cls(Y, np.zeros(Y.shape[0], bool), sparse.csc_array(Y.shape), "missing")
        row, label = data.missing.cells
        cells = sparse.csc_array((np.ones(len(row)), (row, label)), shape=Y.shape)
        return cls(Y, data.missing.rows, cells, data.missing.cells_are)

    @property
    def positives(self) -> Array:
        """Positives per label: (labels,)."""
        return np.diff(self.Y.indptr).astype(float)

    def observed(self, labels: Array) -> Array:
        """Return which rows have the given labels observed: float (row, len(labels))."""
        listed = self.cells[:, labels].toarray()
        if self.cells_are == "missing":
            seen = 1.0 - listed
        else:
            partly = np.zeros(self.Y.shape[0], bool)
            partly[self.cells.indices] = True
            seen = np.where(partly[:, None], listed, 1.0)
        seen[self.unlabelled] = 0.0
        return np.asarray(seen)


def coherence(counts: LabelCounts, labels: Array) -> float:
    """Return the mean normalised pointwise mutual information (NPMI) over pairs of labels.

    Pair (i, j) is counted in the N rows where both are observed. With p_i = (n_i + 1/2) / (N + 1) and
    p_ij = (n_ij + p_i p_j) / (N + 1), which adds one row's worth of independence,
    NPMI = log(p_ij / (p_i p_j)) / -log p_ij: 1 where the two always come together, about 0 where they are
    independent, negative where they avoid each other. Labels without positives are left out: nothing is
    known of their company.

    Parameters
    ----------
    counts : LabelCounts
    labels : int array (label,)

    Returns
    -------
    float
        NaN with fewer than two labels that have positives.
    """
    chosen = np.asarray(labels)[counts.positives[np.asarray(labels)] > 0]
    if len(chosen) < 2:
        return float("nan")
    y = counts.Y[:, chosen].toarray()
    seen = counts.observed(chosen)
    N, together, alone = seen.T @ seen, y.T @ y, y.T @ seen
    p = (alone + 0.5) / (N + 1)
    independent = p * p.T
    joint = (together + independent) / (N + 1)
    npmi = np.log(joint / independent) / -np.log(joint)
    return float(npmi[np.triu_indices(len(chosen), 1)].mean())
