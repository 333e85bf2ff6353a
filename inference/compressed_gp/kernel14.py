"""One Gaussian process a target, all targets on the same rows: kernel, likelihood, posterior.

    k_g(x, x') = th0 exp(-th1 |x - x'|^2 / 2) + th2 x.x' + th3,      C_g = K_g + noise_g I

with theta_g = (th0, th1, th2, th3, noise_g), all above 0. Squared distances and inner products do not depend
on theta, are kept (`Caches`) and grow by rows. An evaluation of the likelihood is rows^2 + rows^3 / 3 flops a
target; the gradient needs the inverse once, rows^3 + 5 rows^2, since each trace is a sum of products. That
the targets are independent given x is an assumption: uncorrelated observed targets do not imply it.

Shi and Yu, ICML 2019, eqs. 12, 14 and 15, with the noise in C and among the parameters.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import lapack, solve_triangular
from scipy.spatial.distance import cdist

from labelzoo.arguments import whole_number
from labelzoo.inference.sparse_bayes.terms import read_matrix

Array = Any

NAMES = ("signal", "inverse_length2", "linear", "constant", "noise")
"""th0, th1, th2, th3 and the noise variance: the columns of every theta (target, 5)."""
BLOCK_BYTES = 2**26


class Caches:
    """Features with their squared distances and inner products, grown by rows.

    Appending q rows to m costs q (m + q) features flops and no copy of what is there, but for a doubling of
    the reserve now and then. Distances are sums of squared differences, never differences of squares, so that
    near rows keep their digits; the diagonal is zero.

    Parameters
    ----------
    X : (row, feature)
        Dense and finite; at least one feature.

    Raises
    ------
    ValueError
        Naming the row and column of what is not finite, or the shape that does not fit.
    """

    def __init__(self, X: Any) -> None:
        X = read_matrix(X, "X")
        if not X.shape[1]:
            raise ValueError("X must have at least one feature")
        self._size = 0
        self._X = np.empty((0, X.shape[1]))
        self._distances2 = np.empty((0, 0))
        self._products = np.empty((0, 0))
        self.append(X)

    def __len__(self) -> int:
        return self._size

    @property
    def X(self) -> Array:
        """Features (row, feature), read-only."""
        return _locked(self._X[: self._size])

    @property
    def distances2(self) -> Array:
        """Squared distances (row, row), read-only."""
        return _locked(self._distances2[: self._size, : self._size])

    @property
    def products(self) -> Array:
        """Inner products (row, row), read-only."""
        return _locked(self._products[: self._size, : self._size])

    def append(self, X: Any) -> None:
        """Add rows (row, feature) at the end."""
        X = read_matrix(X, "X", self._X.shape[1])
        begin, end = self._size, self._size + len(X)
        self._reserve(end)
        self._X[begin:end] = X
        whole = self._X[:end]
        far, inner = squared_distances(X, whole), X @ whole.T
        own = slice(begin, end)
        far[:, own] = 0.5 * (far[:, own] + far[:, own].T)
        inner[:, own] = 0.5 * (inner[:, own] + inner[:, own].T)
        np.fill_diagonal(far[:, own], 0.0)
        for table, rows in ((self._distances2, far), (self._products, inner)):
            table[begin:end, :end] = rows
            table[:begin, begin:end] = rows[:, :begin].T
        self._size = end

    def shorten(self, size: Any) -> None:
        """Keep the first `size` rows alone; ValueError unless `size` is from 0 to the number of rows."""
        self._size = whole_number("size", size, 0, self._size)

    def _reserve(self, size: int) -> None:
        if size <= len(self._X):
            return
        room, n = max(size, 2 * len(self._X)), self._size
        X = np.empty((room, self._X.shape[1]))
        X[:n] = self._X[:n]
        tables = []
        for old in (self._distances2, self._products):
            table = np.empty((room, room))
            table[:n, :n] = old[:n, :n]
            tables.append(table)
        # X last: its length says what is reserved, should an interrupt fall between the two.
        (self._distances2, self._products), self._X = tables, X


class Evidence(NamedTuple):
    """Log likelihood of each target, nats (target,), and its gradient by log theta (target, 5)."""

    value: Array
    gradient: Array


class Posterior(NamedTuple):
    """Exact posterior of all targets.

    Attributes
    ----------
    theta : (target, 5)
    factors : (target, row, row)
        Lower Cholesky factors of C_g.
    weights : (target, row)
        C_g^-1 u_g.
    """

    theta: Array
    factors: Array
    weights: Array


class Prediction(NamedTuple):
    """Predictive mean and variance, the noise included, of each new row: (row, target)."""

    mean: Array
    variance: Array


def squared_distances(left: Any, right: Any) -> Array:
    """Return |x - x'|^2 by subtraction, at least 0: (left, right)."""
    return np.maximum(cdist(left, right, "sqeuclidean"), 0.0)


def kernel(theta: Any, distances2: Any, products: Any) -> Array:
    """Return k of each target without noise: (target, left, right)."""
    th0, th1, th2, th3 = (np.asarray(theta)[:, i, None, None] for i in range(4))
    K = np.multiply(distances2, -0.5 * th1)
    np.exp(K, out=K)
    K *= th0
    K += th2 * products
    K += th3
    return K


def log_likelihood(theta: Any, targets: Any, caches: Caches) -> Array:
    """Return log N(u_g; 0, C_g) of each target, nats: (target,); -inf where C_g has no Cholesky factor.

    Parameters
    ----------
    theta : (target, 5)
        th0, th1, th2, th3, noise.
    targets : (row, target)
    caches : Caches
        Of the same rows.
    """
    theta, U = read_theta(theta, targets, caches)
    return np.array([_value(*_factor(one, caches), u) for one, u in zip(theta, U.T, strict=True)])


def log_likelihood_gradient(theta: Any, targets: Any, caches: Caches) -> Evidence:
    """Return the log likelihood of each target and its gradient by log theta.

    rows^3 + 5 rows^2 flops a target; -inf and a zero gradient where C_g has no Cholesky factor.
    """
    theta, U = read_theta(theta, targets, caches)
    both = [_value_and_slope(one, u, caches) for one, u in zip(theta, U.T, strict=True)]
    return Evidence(np.array([v for v, _ in both]), np.array([g for _, g in both]).reshape(-1, 5))


def condition(theta: Any, targets: Any, caches: Caches) -> Posterior:
    """Return the exact posterior of all targets given their values at the cached rows.

    Raises
    ------
    ValueError
        Naming the target whose C_g has no Cholesky factor.
    """
    theta, U = read_theta(theta, targets, caches)
    factors = np.empty((len(theta), len(caches), len(caches)))
    for g, one in enumerate(theta):
        lower, failed = _factor(one, caches)
        if failed:
            raise ValueError(f"C of target {g} is not positive definite at theta={one.tolist()}")
        factors[g] = np.tril(lower)
    return Posterior(theta, factors, _solved(factors, U))


def extend(posterior: Posterior, targets: Any, caches: Caches) -> Posterior:
    """Return the posterior after `caches` grew, theta unchanged: rows^2 flops a target and new row.

    Parameters
    ----------
    posterior : Posterior
        Of the first rows of `caches`.
    targets : (row, target)
        Of all rows; the old ones may have changed (the compression's targets move with every new label).

    Raises
    ------
    ValueError
        Where the caches have fewer rows than the posterior, or C_g has no Cholesky factor.
    """
    theta, U = read_theta(posterior.theta, targets, caches)
    old, m = posterior.factors.shape[1], len(caches)
    if m < old:
        raise ValueError(f"caches has {m} rows, the posterior {old}")
    factors = np.zeros((len(theta), m, m))
    factors[:, :old, :old] = posterior.factors
    if m > old:
        # Cut before the kernel is made: its cost is that of the new rows alone.
        K = kernel(theta, caches.distances2[:, old:], caches.products[:, old:])
        for g in range(len(theta)):
            half = solve_triangular(posterior.factors[g], K[g, :old], lower=True, check_finite=False)
            rest = K[g, old:] + theta[g, 4] * np.eye(m - old) - half.T @ half
            corner, failed = lapack.dpotrf(rest, lower=1)
            if failed:
                raise ValueError(f"C of target {g} is not positive definite after {m - old} new rows")
            factors[g, old:, :old], factors[g, old:, old:] = half.T, np.tril(corner)
    return Posterior(theta, factors, _solved(factors, U))


def predict(posterior: Posterior, caches: Caches, X: Any) -> Prediction:
    """Return the predictive mean and variance of new rows, noise included.

    rows^2 flops a target and new row; in blocks of 64 MiB.

    Parameters
    ----------
    X : (new, feature)
        Finite.

    Raises
    ------
    ValueError
        Naming the row and column of X that is not finite.
    """
    X = read_matrix(X, "X", caches.X.shape[1])
    theta, m = posterior.theta, len(caches)
    if posterior.weights.shape[1] != m:
        raise ValueError(f"the posterior has {posterior.weights.shape[1]} rows, caches has {m}")
    mean, variance = np.empty((len(X), len(theta))), np.empty((len(X), len(theta)))
    block = max(1, BLOCK_BYTES // (8 * m))
    for begin in range(0, len(X), block):
        rows = slice(begin, begin + block)
        far, inner = squared_distances(caches.X, X[rows]), caches.X @ X[rows].T
        own = prior_variance(theta, X[rows])
        for g in range(len(theta)):
            cross = kernel(theta[g : g + 1], far, inner)[0]
            mean[rows, g] = posterior.weights[g] @ cross
            half = solve_triangular(posterior.factors[g], cross, lower=True, check_finite=False)
            variance[rows, g] = own[:, g] - (half**2).sum(axis=0)
    # What is left can fall below the noise by rounding alone.
    return Prediction(mean, np.maximum(variance, theta[:, 4]))


def prior_variance(theta: Any, X: Any) -> Array:
    """Return the variance of a row before any target is seen, noise included: (row, target)."""
    theta, X = np.asarray(theta), np.asarray(X)
    return theta[:, 0] + theta[:, 3] + theta[:, 4] + (X**2).sum(axis=1)[:, None] * theta[:, 2]


def read_theta(theta: Any, targets: Any, caches: Caches) -> tuple[Array, Array]:
    """Return theta (target, 5) and targets (row, target), checked; ValueError naming what does not fit."""
    theta, U = read_matrix(theta, "theta", 5), read_matrix(targets, "targets")
    if U.shape != (len(caches), len(theta)):
        raise ValueError(f"targets must have shape {(len(caches), len(theta))}, got {U.shape}")
    bad = np.argwhere(theta <= 0)
    if bad.size:
        g, i = bad[0]
        raise ValueError(f"theta has {NAMES[i]} {theta[g, i]} at target {g}: it must be above 0")
    return theta, U


def _locked(view: Array) -> Array:
    view.flags.writeable = False
    return view


def _factor(theta: Array, caches: Caches) -> tuple[Array, bool]:
    """Return the lower factor of C (its upper triangle is garbage), and whether there is none."""
    C = kernel(theta[None], caches.distances2, caches.products)[0]
    C.reshape(-1)[:: len(C) + 1] += theta[4]
    # C is symmetric: its transpose is the same matrix in the order LAPACK overwrites without a copy.
    lower, failed = lapack.dpotrf(C.T, lower=1, overwrite_a=1, clean=0)
    return lower, bool(failed)


def _value(lower: Array, failed: bool, u: Array) -> float:
    if failed:
        return -np.inf
    half = lapack.dtrtrs(lower, u, lower=1)[0]
    return float(-0.5 * half @ half - np.log(lower.diagonal()).sum() - 0.5 * len(u) * np.log(2 * np.pi))


def _value_and_slope(theta: Array, u: Array, caches: Caches) -> tuple[float, Array]:
    lower, failed = _factor(theta, caches)
    value = _value(lower, failed, u)
    if failed:
        return value, np.zeros(5)
    a = lapack.dpotrs(lower, u, lower=1)[0].ravel()
    inverse = np.tril(lapack.dpotri(lower, lower=1)[0])
    G = np.outer(a, a) - inverse - np.tril(inverse, -1).T
    E = G * np.exp(-0.5 * theta[1] * caches.distances2)
    by_theta = [E.sum(), -0.5 * theta[0] * np.vdot(E, caches.distances2), np.vdot(G, caches.products)]
    return value, 0.5 * theta * np.array([*by_theta, G.sum(), np.trace(G)])


def _solved(factors: Array, U: Array) -> Array:
    out = np.empty(factors.shape[:2])
    for g, lower in enumerate(factors):
        out[g] = lapack.dpotrs(lower, np.ascontiguousarray(U[:, g]), lower=1)[0].ravel()
    return out
