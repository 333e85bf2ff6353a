"""Sums over labels: counts, expected log likelihoods, divergences of Beta factors; dense or csr labels.

Positives P and unobserved cells M are kept apart, with zeros of P at M, so that every sum over observed
negatives is (all rows) - (positives) - (unobserved): the cost follows the positives where they are csr.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import betaln, digamma

Array = Any


class Labels(NamedTuple):
    """Observed labels.

    Attributes
    ----------
    positive : (obs, labels), dense or csr
        1 at observed positives, 0 elsewhere.
    missing : (obs, labels), dense or csr, or None
        1 at unobserved cells; None where there are none.
    """

    positive: Array
    missing: Array | None

    def rows(self, index: Array) -> "Labels":
        """Return some rows."""
        return Labels(self.positive[index], None if self.missing is None else self.missing[index])


def labels_of(Y: Any, observed: Any = None, dtype: Any = np.float64, missing: Any = None) -> Labels:
    """Return the labels; the values of `Y` at unobserved cells are not read.

    Parameters
    ----------
    Y : (obs, labels), dense or csr
        0 or 1.
    observed : bool (obs, labels) or None
        For dense `Y`; None: all.
    dtype : dtype
    missing : csr (obs, labels) or None
        For csr `Y`: the unobserved cells.

    Raises
    ------
    ValueError
        If an observed label is neither 0 nor 1, naming row and label, or the shapes differ.
    """
    if sparse.issparse(Y):
        return _sparse_labels(Y, missing, dtype)
    Y = np.asarray(Y)
    mask = np.ones(Y.shape, bool) if observed is None else np.asarray(observed, bool)
    if Y.ndim != 2 or mask.shape != Y.shape:
        raise ValueError(f"Y and observed must be tables of one shape, got {Y.shape} and {mask.shape}")
    bad = np.argwhere(mask & (Y != 0) & (Y != 1))
    if len(bad):
        row, label = bad[0]
        raise ValueError(f"Y must be 0 or 1 where observed, got {Y[row, label]} at row {row}, label {label}")
    positive = np.where(mask, Y, 0).astype(dtype)
    return Labels(positive, None if mask.all() else (~mask).astype(dtype))


def _sparse_labels(Y: Any, missing: Any, dtype: Any) -> Labels:
    positive = sparse.csr_array(Y, dtype=dtype, copy=True)
    positive.sum_duplicates()
    hidden = None
    if missing is not None and missing.nnz:
        hidden = sparse.csr_array(missing, copy=True).astype(dtype)
        hidden.eliminate_zeros()
        hidden.data[:] = 1
        if hidden.shape != positive.shape:
            raise ValueError(f"missing must have the shape of Y, {positive.shape}, got {hidden.shape}")
        positive = sparse.csr_array(positive - positive.multiply(hidden))
    positive.eliminate_zeros()
    bad = np.flatnonzero(positive.data != 1)
    if len(bad):
        row = int(np.searchsorted(positive.indptr, bad[0], side="right") - 1)
        raise ValueError(
            f"Y must be 0 or 1, got {positive.data[bad[0]]} at row {row}, label {positive.indices[bad[0]]}"
        )
    return Labels(positive, hidden)


def expected_logs(a: Array, b: Array) -> tuple[Array, Array]:
    """Return E ln theta and E ln(1 - theta) of Beta(a, b)."""
    both = digamma(a + b)
    return digamma(a) - both, digamma(b) - both


def label_scores(labels: Labels, a: Array, b: Array) -> Array:
    """Return E ln p(observed labels of row n | theta_k): (obs, component), 2 positives component flops."""
    on, off = expected_logs(a, b)
    scores = np.asarray(labels.positive @ (on - off).T)
    if labels.missing is not None:
        scores -= labels.missing @ off.T
    scores += off.sum(axis=1)
    return scores


def label_counts(labels: Labels, phi: Array) -> tuple[Array, Array]:
    """Return phi' y and phi' (1 - y) over observed cells: both (component, labels)."""
    on = np.asarray((labels.positive.T @ phi).T)
    off = phi.sum(axis=0)[:, None] - on
    if labels.missing is not None:
        off -= np.asarray((labels.missing.T @ phi).T)
    return on, np.maximum(off, 0.0)


def beta_divergence(a: Array, b: Array, a0: Array, b0: Array) -> float:
    """Return the sum of KL(Beta(a, b) || Beta(a0, b0)), nats."""
    on, off = expected_logs(a, b)
    each = betaln(a0, b0) - betaln(a, b) + (a - a0) * on + (b - b0) * off
    return float(each.sum(dtype=np.float64))


def entropy(phi: Array) -> float:
    """Return -sum phi ln phi, nats."""
    logs = np.log(np.where(phi > 0, phi, 1.0))
    return -float((phi * logs).sum(dtype=np.float64))
