"""Features as a program wants them: standardised, rows of unit length, an intercept; arrays or sparse."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy import sparse

Array = Any


def sparse_design(X: sparse.csr_array, *, intercept: bool, scale_rows: bool) -> sparse.csr_array:
    """Return `design_matrix` of sparse rows without standardisation, as a csr matrix."""
    X = sparse.csr_array(X, dtype=float, copy=True)
    X.sum_duplicates()
    X.eliminate_zeros()
    per_row = np.diff(X.indptr)
    if scale_rows:
        row = np.repeat(np.arange(X.shape[0]), per_row)
        norm = np.sqrt(np.bincount(row, X.data**2, X.shape[0]))
        X.data /= np.where(norm > 0, norm, 1.0)[row]
    if not intercept:
        return X
    # The last entry of every row is the one of the intercept: no sorting, no second format.
    at = X.indptr[1:].astype(np.int64)
    indices, values = np.insert(X.indices, at, X.shape[1]), np.insert(X.data, at, 1.0)
    indptr = X.indptr + np.arange(X.shape[0] + 1, dtype=X.indptr.dtype)
    return sparse.csr_array((values, indices, indptr), shape=(X.shape[0], X.shape[1] + 1))


def design_matrix(
    X: Any, *, intercept: bool, scale_rows: bool, mean: Array | None = None, scale: Array | None = None
) -> Array:
    """Return standardised rows, of unit length if `scale_rows`, with a last column of ones if `intercept`."""
    if mean is not None and scale is not None:
        X = (X - mean[: X.shape[1]]) / scale[: X.shape[1]]
    if scale_rows:
        norm = jnp.sqrt((X**2).sum(axis=1, keepdims=True))
        X = X / jnp.where(norm > 0, norm, 1.0)
    return jnp.concatenate([X, jnp.ones((X.shape[0], 1), X.dtype)], axis=1) if intercept else jnp.asarray(X)
