"""One kernel for all labels: which features it sees, its length scale and its noise ratio.

Rows are mapped first, x -> (x - center) * scale, and divided by their length for the cosine kernel:

* ``rbf``: k(x, z) = exp(-|x - z|^2 / (2 length2)) on standardised features (a sparse X is scaled but not
  centred, so that it stays sparse);
* ``cosine``: k(x, z) = x'z / (|x| |z|) on tf-idf weighted counts; 0 for a row without any feature.

k(x, x) is 1 (or 0), so that the amplitude and the noise ratio carry all scale.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

Array = Any

KINDS = ("auto", "rbf", "cosine")
"""``auto`` takes cosine for a sparse X of numbers that are at least 0, rbf otherwise."""
RULES = ("guarded", "floor", "evidence", "fixed")
"""Ways to choose length scale and noise ratio, see `labelzoo.inference.label_gp.evidence`."""
LARGEST = 1e100
"""Features beyond this, or all below its inverse, are refused."""
MEDIAN_ROWS = 1000
"""Rows, evenly spaced, whose pairwise distances give the median."""


class GPKernel(NamedTuple):
    """A kernel with everything that it needs at new rows.

    Attributes
    ----------
    is_cosine : bool
    center, scale : float (feature,)
        The map of the features; center is 0 where they are sparse.
    length2 : float
        Squared length scale, in units of mapped features; not read by the cosine kernel.
    noise_ratio : float
        Variance of the noise over that of the function.
    """

    is_cosine: bool
    center: Array
    scale: Array
    length2: float = 1.0
    noise_ratio: float = 1.0

    def mapped(self, X: Array) -> Array:
        """Return the mapped rows, dense or csr as `X` is; dense where there is a center: (row, feature)."""
        if sparse.issparse(X) and self.center.any():
            X = X.toarray()
        if sparse.issparse(X):
            Z = sparse.csr_array(X * self.scale[None, :])
            norm = np.sqrt(np.asarray(Z.multiply(Z).sum(axis=1)).ravel())
            inverse = np.divide(1.0, norm, out=np.zeros_like(norm), where=norm > 0)
            return sparse.csr_array(sparse.diags_array(inverse) @ Z) if self.is_cosine else Z
        Z = (np.asarray(X, float) - self.center) * self.scale
        if not self.is_cosine:
            return Z
        norm = np.linalg.norm(Z, axis=1, keepdims=True)
        return np.divide(Z, norm, out=np.zeros_like(Z), where=norm > 0)

    def between(self, A: Array, B: Array) -> Array:
        """Return k of the raw rows of `A` and `B`: dense (a, b). 2 a b features flops."""
        return self.of_mapped(self.mapped(A), self.mapped(B))

    def of_mapped(self, A: Array, B: Array) -> Array:
        """Return k of rows that are mapped already: dense (a, b)."""
        if self.is_cosine:
            return _product(A, B)
        return np.exp(squared_distances(A, B) / (-2.0 * self.length2))

    def diagonal(self, A: Array) -> Array:
        """Return k(x, x) of raw rows: (a,)."""
        if not self.is_cosine:
            return np.ones(A.shape[0])
        Z = self.mapped(A)
        return np.asarray((Z.multiply(Z) if sparse.issparse(Z) else Z * Z).sum(axis=1)).ravel()


def _product(A: Array, B: Array) -> Array:
    product = A @ B.T
    return product.toarray() if sparse.issparse(product) else np.asarray(product)


def squared_distances(A: Array, B: Array) -> Array:
    """Return |a - b|^2 of all pairs, at least 0: (a, b)."""
    out = _product(A, B)
    out *= -2.0
    out += _squares(A)[:, None]
    out += _squares(B)[None, :]
    return np.maximum(out, 0.0, out=out)


def _squares(A: Array) -> Array:
    return np.asarray((A.multiply(A) if sparse.issparse(A) else A * A).sum(axis=1)).ravel()


def feature_map(X: Array, kind: str = "auto") -> GPKernel:
    """Return the kernel with its map of the features, from the rows `X` (row, feature).

    Raises
    ------
    ValueError
        For an unknown kind, or features that are NaN, infinite, or too large or small to be squared.
    """
    if kind not in KINDS:
        raise ValueError(f"kernel must be one of {', '.join(KINDS)}, got {kind!r}")
    values = X.data if sparse.issparse(X) else np.asarray(X, float)
    if not np.isfinite(values).all():
        raise ValueError("X has missing or infinite features, which a kernel cannot read: impute them first")
    _check_sizes(X)
    if kind == "auto":
        kind = "cosine" if sparse.issparse(X) and not (values < 0).any() else "rbf"
    if kind == "cosine":
        counts = not (values < 0).any()
        weight = inverse_frequencies(X) if counts else np.ones(X.shape[1])
        return GPKernel(True, np.zeros(X.shape[1]), weight)
    return GPKernel(False, *standardisation(X))


def _check_sizes(X: Array) -> None:
    if not X.shape[0]:
        return
    high, low = (_row_of(X.max(axis=0)), _row_of(X.min(axis=0)))
    largest = np.maximum(high, -low)
    bad = np.flatnonzero((largest > LARGEST) | ((largest > 0) & (largest < 1 / LARGEST)))
    if len(bad):
        raise ValueError(
            f"X: feature {bad[0]} has numbers as far out as {largest[bad[0]]:g}, whose squares a number "
            "cannot hold: rescale it"
        )


def _row_of(values: Array) -> Array:
    return np.asarray(values.toarray() if sparse.issparse(values) else values, float).ravel()


def inverse_frequencies(X: Array) -> Array:
    """Return log((1 + n) / (1 + rows with the feature)) + 1: (feature,), the smooth idf of scikit-learn."""
    n = X.shape[0]
    present = sparse.csr_array(X) if sparse.issparse(X) else np.asarray(X) != 0
    rows = np.bincount(present.indices, minlength=X.shape[1]) if sparse.issparse(X) else present.sum(axis=0)
    return np.log((1.0 + n) / (1.0 + rows)) + 1.0


def standardisation(X: Array) -> tuple[Array, Array]:
    """Return center and scale, 1 / sd (1 for a constant feature); center is 0 for a sparse X."""
    mean = np.asarray(X.mean(axis=0)).ravel()
    if sparse.issparse(X):
        square = np.asarray(X.multiply(X).mean(axis=0)).ravel()
        sd = np.sqrt(np.maximum(square - mean**2, 0.0))
        center = np.zeros_like(mean)
    else:
        center, sd = mean, np.asarray(X, float).std(axis=0)
    flat = sd <= 1e-12 * np.maximum(np.abs(mean), 1e-300)
    return center, 1.0 / np.where(flat | (sd == 0), 1.0, sd)


def median_squared_distance(Z: Array) -> float:
    """Return the median of |z - z'|^2 over pairs of distinct mapped rows; 1 where all rows are alike."""
    rows = np.unique(np.linspace(0, Z.shape[0] - 1, min(Z.shape[0], MEDIAN_ROWS)).round().astype(int))
    some = Z[rows]
    pairs = squared_distances(some, some)[np.triu_indices(len(rows), 1)]
    positive = pairs[pairs > 1e-12 * max(float(pairs.max(initial=0.0)), 1e-300)]
    return float(np.median(positive)) if positive.size else 1.0
