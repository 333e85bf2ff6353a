"""Features as a program wants them: standardised, rows of unit length, an intercept; arrays or sparse."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

Array = Any


def binary_unit(peak: Array, xp: Any = jnp) -> Array:
    """Return the power of two in [peak / 2, peak], one where `peak` is zero or below the normal numbers.

    Values divided by it have squares that neither overflow nor vanish, and lose no digit.
    """
    usable = peak >= np.finfo(np.float64 if peak.dtype == np.float64 else np.float32).tiny
    safe = xp.where(usable, peak, 1.0)
    return xp.where(usable, safe / (2.0 * xp.frexp(safe)[0]), 1.0)


def column_moments(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of the columns of `X` (obs, feature), whatever their scale.

    The deviation of a column that is constant up to rounding, relative to its largest value, is one.
    """
    peak = np.abs(X).max(axis=0)
    unit = binary_unit(peak, np)
    Z = X / unit
    mean, sd = Z.mean(axis=0), Z.std(axis=0)
    return mean * unit, np.where(sd > 1e-12 * peak / unit, sd * unit, 1.0)


def sparse_design(X: sparse.csr_array, *, intercept: bool, scale_rows: bool) -> sparse.csr_array:
    """Return `design_matrix` of sparse rows without standardisation, as a csr matrix."""
    X = sparse.csr_array(X, dtype=float, copy=True)
    X.sum_duplicates()
    X.eliminate_zeros()
    per_row = np.diff(X.indptr)
    if scale_rows:
        row = np.repeat(np.arange(X.shape[0]), per_row)
        peak = np.zeros(X.shape[0])
        peak[per_row > 0] = np.maximum.reduceat(np.abs(X.data), X.indptr[:-1][per_row > 0])
        X.data /= binary_unit(peak, np)[row]
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
        # Rows of unit length do not depend on the unit: its gradient is left out.
        X = X / jax.lax.stop_gradient(binary_unit(jnp.abs(X).max(axis=1, keepdims=True, initial=0.0)))
        norm = jnp.sqrt((X**2).sum(axis=1, keepdims=True))
        X = X / jnp.where(norm > 0, norm, 1.0)
    return jnp.concatenate([X, jnp.ones((X.shape[0], 1), X.dtype)], axis=1) if intercept else jnp.asarray(X)
