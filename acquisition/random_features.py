"""Finite features whose inner products are the kernel: variance reduction for pools of 100 000 rows.

An rbf kernel is a mean of cosines (Rahimi and Recht 2007), with orthogonal directions for less noise (Yu and
others 2016); a cosine kernel is an inner product already, so its features are exact and stay sparse.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from sklearn.random_projection import SparseRandomProjection

Array = Any

FEATURES = 1024
"""Default number of random features; the error of a covariance falls as 1 / sqrt(FEATURES)."""

LARGEST_LINEAR = 4096
"""A cosine kernel of more features than this is projected at random: square matrices are that large."""

BLOCK_ENTRIES = 4_000_000
"""Numbers in a block of working memory (32 MB in float64)."""


class Features(NamedTuple):
    """Features z(x) with z(x)'z(y) close to k(x, y).

    Attributes
    ----------
    name : str
        For reports, ``random features, m = 1024`` for instance.
    size : int
        Their number m.
    transform : callable
        Rows (row, feature) to z (row, m), dense float32 for random features, else as the input was.
    """

    name: str
    size: int
    transform: Callable[[Array], Array]


def make_features(kernel: Any, X: Array, *, size: int = FEATURES, seed: int = 0) -> Features | None:
    """Return features of `kernel`, or None where it is neither an rbf nor a cosine kernel on these rows.

    Parameters
    ----------
    kernel : object
        With ``between(A, B)`` and, where it does not read raw rows, ``mapped(A)``; it is recognised by its
        values at a few pairs of rows, not by its class.
    X : (row, feature)
        Dense or csr; only a few rows are looked at.
    size : int
        Number of random features, even and at least 2; a cosine kernel of up to 4096 features keeps its own.
    seed : int

    Raises
    ------
    ValueError
        If `size` is not an even number of at least 2.
    """
    if not isinstance(size, int | np.integer) or size < 2 or size % 2:
        raise ValueError(f"features must be an even number of at least 2, got {size!r}")
    rng = np.random.default_rng(seed)
    raw = X[np.sort(rng.permutation(X.shape[0])[:40])]
    values = np.asarray(kernel.between(raw, raw), float)
    mapped = getattr(kernel, "mapped", lambda rows: rows)
    sample = mapped(raw)
    if np.abs(values - _dense(_unit(sample) @ _unit(sample).T)).max(initial=0.0) < 1e-8:
        return _linear_features(sample.shape[1], int(size), seed, mapped)
    length2 = squared_length(sample, values)
    if length2 is None:
        return None
    frequencies = orthogonal_directions(sample.shape[1], int(size) // 2, rng) / np.sqrt(length2)

    def transform(rows: Array) -> Array:
        phase = np.asarray(mapped(rows) @ frequencies)
        waves = np.hstack([np.cos(phase), np.sin(phase)]) * np.sqrt(2 / size)
        return waves.astype(np.float32)

    return Features(f"random features, m = {size}", int(size), transform)


def squared_length(X: Array, values: Array) -> float | None:
    """Return l^2 if `values` (row, row) are exp(-|x - y|^2 / (2 l^2)) on these rows, else None."""
    dense = _dense(X)
    distance = ((dense[:, None] - dense[None]) ** 2).sum(axis=2)
    clear = (values > 1e-6) & (values < 1 - 1e-4) & (distance > 0)
    if not clear.any():
        return None
    lengths = -distance[clear] / (2 * np.log(values[clear]))
    length2 = float(np.median(lengths))
    same = np.exp(-distance / (2 * length2))
    return length2 if length2 > 0 and np.abs(same - values).max() < 1e-6 else None


def orthogonal_directions(features: int, count: int, rng: np.random.Generator) -> Array:
    """Return `count` standard normal vectors as columns (features, count), orthogonal within each block.

    Blocks of at most `features` vectors are orthogonal, each with the length of a normal vector of its own:
    unbiased for the rbf kernel, with a smaller variance than independent vectors.
    """
    blocks = []
    for start in range(0, count, features):
        directions, _ = np.linalg.qr(rng.standard_normal((features, features)))
        lengths = np.sqrt(rng.chisquare(features, size=features))
        blocks.append((directions * lengths)[:, : min(features, count - start)])
    return np.hstack(blocks)


class FeatureReduction:
    """Integrated variance reduction of every pool row in feature space, kept up to date pick by pick.

    With features z, the weights' posterior covariance is S = (I + Z_L'Z_L / r)^-1 and the targets enter by
    M = sum_t w_t z_t z_t'; then C_ti = z_t'S z_i and sum_t w_t C_ti^2 = z_i'S M S z_i.

    Cost (targets + pool) m^2 flops to start (csr features: m per stored number), pool m + m^2 a pick;
    4 pool m bytes for random features.

    Attributes
    ----------
    variance : (pool,)
        C_ii, in units of the kernel's variance.
    reach : (pool,)
        sum_t w_t C_ti^2.
    """

    def __init__(
        self,
        features: Features,
        X_pool: Array,
        X_labelled: Array,
        noise_ratio: float,
        targets: tuple[Array | None, Array],
    ) -> None:
        X_targets, weights = targets
        self._pool = transform_blocks(features, X_pool)
        self._noise = noise_ratio
        self._scatter, self._spread = np.eye(features.size), np.zeros((features.size, features.size))
        if X_labelled is not None and X_labelled.shape[0]:
            seen = _dense(features.transform(X_labelled)).astype(float)
            self._scatter = weight_covariance(seen, noise_ratio)
        for Z, w in _weighted_blocks(features, self._pool, X_targets, weights):
            self._spread += _gram(Z, w)
        self._own = weights.astype(float) if X_targets is None else np.zeros(self._pool.shape[0])
        self.variance = self._quadratic(self._scatter)
        self.reach = self._quadratic(self._scatter @ self._spread @ self._scatter)

    def scores(self) -> Array:
        """Return the variance that each row would remove at the targets, its own left out: (pool,)."""
        reach = self.reach - self._own * self.variance**2
        return np.maximum(reach, 0.0) / (self.variance + self._noise)

    def take(self, row: int) -> None:
        """Condition on the labels of `row`, which is no longer a target."""
        z = _dense(self._pool[[row]]).astype(float)[0]
        u = self._scatter @ z
        if self._own[row]:
            self.reach -= self._own[row] * self._times(u[:, None])[:, 0] ** 2
            self._spread -= self._own[row] * np.outer(z, z)
        pull = self._scatter @ (self._spread @ u)
        d, p = self._times(np.stack([u, pull], axis=1)).T
        total = float(z @ u) + self._noise
        self.reach += (-2 * p + d * float(u @ self._spread @ u) / total) * d / total
        self.variance = np.maximum(self.variance - d * d / total, 0.0)
        self._scatter -= np.outer(u, u) / total

    def _times(self, x: Array) -> Array:
        # In the precision of the features: a float64 x would copy all of them.
        return np.asarray(self._pool @ x.astype(self._pool.dtype), float)

    def _quadratic(self, matrix: Array) -> Array:
        # z'(matrix)z for every pool row, a block at a time: the product is as large as the block is dense.
        out = np.empty(self._pool.shape[0])
        for rows in row_blocks(self._pool.shape[0], matrix.shape[0]):
            Z = self._pool[rows]
            product = Z @ matrix.astype(Z.dtype)
            out[rows] = Z.multiply(product).sum(axis=1) if sp.issparse(Z) else (Z * product).sum(axis=1)
        return np.maximum(out, 0.0)


def weight_covariance(Z: Array, noise_ratio: float) -> Array:
    """Return (I + Z'Z / noise_ratio)^-1 for features Z (labelled, m), by the smaller of the two systems."""
    labelled, size = Z.shape
    if labelled >= size:
        return np.linalg.inv(np.eye(size) + Z.T @ Z / noise_ratio)
    factor = np.linalg.cholesky(Z @ Z.T + noise_ratio * np.eye(labelled))
    half = scipy.linalg.solve_triangular(factor, Z, lower=True)
    return np.eye(size) - half.T @ half


def transform_blocks(features: Features, X: Array) -> Array:
    """Return the features of all rows (row, m), computed in blocks."""
    first, *rest = row_blocks(X.shape[0], features.size)
    start = features.transform(X[first])
    if sp.issparse(start):
        return sp.vstack([start, *(features.transform(X[rows]) for rows in rest)], format="csr")
    out = np.empty((X.shape[0], features.size), start.dtype)
    out[first] = start
    for rows in rest:
        out[rows] = features.transform(X[rows])
    return out


def row_blocks(rows: int, width: int) -> list[slice]:
    """Return slices over `rows` such that a block of `width` columns stays within `BLOCK_ENTRIES`."""
    step = max(1, BLOCK_ENTRIES // max(width, 1))
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]


def _weighted_blocks(features: Features, pool: Array, X_targets: Array | None, weights: Array) -> Any:
    total = pool.shape[0] if X_targets is None else X_targets.shape[0]
    for rows in row_blocks(total, features.size):
        yield pool[rows] if X_targets is None else features.transform(X_targets[rows]), weights[rows]


def _gram(Z: Array, weights: Array) -> Array:
    if sp.issparse(Z):
        return (Z.T @ sp.diags_array(weights) @ Z).toarray()
    return Z.T @ (Z * weights[:, None].astype(Z.dtype))


def _linear_features(width: int, size: int, seed: int, mapped: Callable[[Array], Array]) -> Features:
    if width <= max(LARGEST_LINEAR, size):
        return Features(f"exact linear features, m = {width}", width, lambda rows: _unit(mapped(rows)))
    projection = SparseRandomProjection(n_components=size, random_state=seed, dense_output=True)
    projection.fit(sp.csr_array((1, width)))
    return Features(
        f"random projection of linear features, m = {size}",
        size,
        lambda rows: _unit(_dense(projection.transform(mapped(rows)))),
    )


def _unit(X: Array) -> Array:
    # Rows of length one; a row of zeros stays one, as its cosine with everything is 0.
    lengths = np.sqrt(np.asarray((X.multiply(X) if sp.issparse(X) else X * X).sum(axis=1)).ravel())
    inverse = 1 / np.where(lengths > 0, lengths, 1.0)
    return (sp.diags_array(inverse) @ X).tocsr() if sp.issparse(X) else X * inverse[:, None]


def _dense(X: Array) -> Array:
    return X.toarray() if sp.issparse(X) else np.asarray(X)
