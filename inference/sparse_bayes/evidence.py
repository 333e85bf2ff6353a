"""Noise, scale and length scale by the evidence of the compressed labels of fully observed rows.

log p(T) = sum over measurements of log N(T_j; 0, C), C = scale K + noise I. It is the evidence of the
directed regression: the graph itself is a product of experts, whose normaliser depends on all three. Only the
sum sigma2 + chi2 = noise is identified. Rows^3 flops an evaluation, whatever the number of labels.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import lapack
from scipy.optimize import minimize

from labelzoo.inference.sparse_bayes.terms import read_matrix

Array = Any

MAX_ROWS = 1000
"""Rows, evenly spaced, that the evidence reads: an evaluation costs their third power."""
NOISE_RANGE = (1e-4, 1e2)
"""Noise over the mean square of T. The floor keeps C well conditioned where K has low rank."""
SCALE_RANGE = (1e-3, 1e3)
"""scale x mean diagonal of K over the mean square of T."""
LENGTH_RANGE = (0.05, 20.0)
"""Length over the root of the median squared distance."""
STARTS = ((1.0, 0.5, 0.5), (0.3, 0.5, 0.2), (2.0, 0.7, 0.1), (0.7, 0.1, 1.0))
"""Length, scale x diagonal, noise in the units of the ranges; the first without effect where K is fixed."""


class Evidence(NamedTuple):
    """Log evidence in nats and its derivatives by log noise, log scale and, where asked for, log length."""

    value: float
    gradient: Array


class Hyperparameters(NamedTuple):
    """What maximises the evidence.

    Attributes
    ----------
    noise, scale : float
        sigma2 + chi2, and the factor of K.
    length2 : float or None
        Squared length of the RBF kernel; None where K was given.
    log_evidence : float
        Nats, of the `rows` rows that were read.
    at_bound : tuple of str
        Which of "noise", "scale", "length" lie at the edge of their range ("noise low" and so on).
    values : (start,)
        Log evidence that each start reached.
    rows : int
    """

    noise: float
    scale: float
    length2: float | None
    log_evidence: float
    at_bound: tuple[str, ...]
    values: Array
    rows: int


def log_evidence(T: Any, K: Any, scale: Any, noise: Any, slope: Any = None) -> Evidence:
    """Return the log evidence of T with its gradient.

    Rows^3 + rows^2 measurement flops.

    Parameters
    ----------
    T : (row, measurement)
    K : (row, row)
        Kernel of unit scale.
    scale, noise : float
        Above 0.
    slope : (row, row) or None
        dK / d log length; for K = exp(-d2 / 2 length^2) it is K d2 / length^2.

    Raises
    ------
    ValueError
        For shapes that do not fit, or where scale K + noise I is not positive definite.
    """
    T = read_matrix(T, "T")
    K = read_matrix(K, "K", len(T))
    if not len(T) or len(K) != len(T):
        raise ValueError(f"K must have shape {(len(T), len(T))} with at least one row, got {K.shape}")
    if not (scale > 0 and noise > 0):
        raise ValueError(f"scale and noise must be above 0, got {scale!r} and {noise!r}")
    n, k = T.shape
    C = np.asfortranarray(scale * K)
    C[np.diag_indices(n)] += noise
    factor, failed = lapack.dpotrf(C, lower=1, overwrite_a=1)
    if failed:
        raise ValueError("scale K + noise I is not positive definite: K is no kernel, or noise is too small")
    A = lapack.dpotrs(factor, T, lower=1)[0]
    value = -0.5 * float((A * T).sum()) - k * float(np.log(np.diagonal(factor)).sum())
    value -= 0.5 * n * k * np.log(2 * np.pi)
    inverse = lapack.dpotri(factor, lower=1)[0]
    G = A @ A.T
    G -= k * (np.tril(inverse) + np.tril(inverse, -1).T)
    parts = [noise * float(np.trace(G)), scale * float((G * K).sum())]
    if slope is not None:
        parts.append(scale * float((G * read_matrix(slope, "slope", n)).sum()))
    return Evidence(value, 0.5 * np.array(parts))


def evidence_rows(rows: int) -> Array:
    """Return the positions of at most 1000 rows, evenly spaced."""
    if rows <= MAX_ROWS:
        return np.arange(rows)
    return np.linspace(0, rows - 1, MAX_ROWS).round().astype(int)


def fit_hyperparameters(
    T: Any, *, K: Any = None, distances2: Any = None, noise: Any = None, length2: Any = None
) -> Hyperparameters:
    """Maximise the evidence by L-BFGS-B from four starts, in logarithms and between bounds.

    Parameters
    ----------
    T : (row, measurement)
        Compressed labels of rows that have all labels. Above 1000 rows call it with `evidence_rows` of them.
    K : (row, row) or None
        A kernel without a length of its own (linear, cosine, precomputed).
    distances2 : (row, row) or None
        Squared distances, for the RBF kernel. Either this or `K`.
    noise, length2 : float or None
        Held where given.

    Raises
    ------
    ValueError
        Unless exactly one of `K` and `distances2` is given, if there are no rows or more than 1000, or if K
        is not positive semi-definite.
    """
    T = read_matrix(T, "T")
    if (K is None) == (distances2 is None):
        raise ValueError("give either K or distances2")
    if not 1 <= len(T) <= MAX_ROWS:
        raise ValueError(f"T must have 1 to {MAX_ROWS} rows, got {len(T)}: take those of evidence_rows")
    base = read_matrix(K if K is not None else distances2, "K" if K is not None else "distances2", len(T))
    units = _units(T, base, distances2 is not None)
    low, high = _ranges(units, noise, length2)

    def objective(theta: Array) -> tuple[float, Array]:
        found = _at(T, base, theta)
        return -found.value, -found.gradient

    results = []
    for start in STARTS if len(low) == 3 else STARTS[:1] + STARTS[2:]:
        first = np.clip(np.log([start[2], start[1], start[0]][: len(low)]) + units, low, high)
        edges = list(zip(low, high, strict=True))
        results.append(minimize(objective, first, jac=True, method="L-BFGS-B", bounds=edges))
    best = min(results, key=lambda r: r.fun)
    values = np.exp(best.x)
    found2 = float(values[2] ** 2) if len(values) == 3 else None
    told = _edges(best.x, low, high)
    reached = np.array([-float(r.fun) for r in results])
    return Hyperparameters(
        float(values[0]), float(values[1]), found2, -float(best.fun), told, reached, len(T)
    )


def _at(T: Array, base: Array, theta: Array) -> Evidence:
    noise, scale = np.exp(theta[:2])
    if len(theta) == 2:
        return log_evidence(T, base, scale, noise)
    scaled = base / np.exp(2 * theta[2])
    K = np.exp(-0.5 * scaled)
    return log_evidence(T, K, scale, noise, K * scaled)


def _units(T: Array, base: Array, is_distance: bool) -> Array:
    """Return log of the units of noise, scale and, for distances, length."""
    square = float((T**2).mean()) or 1.0
    if not is_distance:
        diagonal = float(np.diagonal(base).mean())
        if diagonal <= 0:
            raise ValueError("K has no positive diagonal: no kernel, or all rows are zero")
        return np.log([square, square / diagonal])
    pairs = base[np.triu_indices(len(base), 1)]
    positive = pairs[pairs > 1e-12 * max(float(pairs.max(initial=0.0)), 1e-300)]
    median = float(np.median(positive)) if positive.size else 1.0
    return np.log([square, square, np.sqrt(median)])


def _ranges(units: Array, noise: Any, length2: Any) -> tuple[Array, Array]:
    edges = np.log([NOISE_RANGE, SCALE_RANGE, LENGTH_RANGE][: len(units)]) + units[:, None]
    if noise is not None:
        edges[0] = np.log(float(noise))
    if length2 is not None and len(units) == 3:
        edges[2] = 0.5 * np.log(float(length2))
    return edges[:, 0], edges[:, 1]


def _edges(theta: Array, low: Array, high: Array) -> tuple[str, ...]:
    out = []
    for name, value, first, last in zip(("noise", "scale", "length"), theta, low, high, strict=False):
        if first < last and value - first < 1e-6:
            out.append(f"{name} low")
        elif first < last and last - value < 1e-6:
            out.append(f"{name} high")
    return tuple(out)
