"""One new row at a time, given training rows whose labels are all observed: q(y) q(alpha), batched over rows.

A row x with t = T' C^-1 c(x) and v = C(x, x) - c(x)' C^-1 c(x) meets the potential exp(-|Phi y - t|^2 / 2 v)
and the sparsity prior of its labels. With W = diag(1 / E[alpha]) over unobserved labels and B = v I + Phi W
Phi', q(y) has mean W Phi' B^-1 t and covariance W - W Phi' B^-1 Phi W. Vasisht et al. (2014), section 4, with
observed labels conditioned on in every sweep: the text's order, q(Y) before any label is seen, collapses to
zeros.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from labelzoo.inference.sparse_bayes.terms import (
    Sketch,
    forms,
    grams,
    read_labels,
    read_matrix,
    read_precision,
    read_prior,
    read_projection,
    rows_in_block,
    second_moments_to_rate,
    student_terms,
)

Array = Any


class RowFit(NamedTuple):
    """What q is of each new row.

    Attributes
    ----------
    mean, variance : (row, labels)
        Of q(y); an observed label has its value and 0.
    precision : (row, labels)
        E[alpha] after the last sweep: as ``start`` of another call it continues the same ascent.
    bound : (sweep, row)
        Lower bound in nats of log of the integral of exp(-|Phi y - t|^2 / 2 v) times the Student priors over
        the row's unobserved labels; it never falls.
    used : (row, labels)
        The E[alpha] under which mean and variance were taken, one sweep older than `precision`.
    """

    mean: Array
    variance: Array
    precision: Array
    bound: Array
    used: Array


class RowLaw(NamedTuple):
    """Gaussian q(y): mean, variance (row, labels), B^-1 t (row, measurement), log |B| (row,)."""

    mean: Array
    variance: Array
    solved: Array
    log_determinant: Array


def condition(factor: Any, cross: Any, own: Any, T: Any) -> tuple[Array, Array]:
    """Return t (row, measurement) and v (row,) of new rows given fully observed training rows.

    Cost train^2 (row + measurement) flops.

    Parameters
    ----------
    factor : (train, train)
        Lower Cholesky factor of C = scale K + noise I.
    cross : (train, row)
        scale K between training and new rows.
    own : (row,)
        scale k(x, x) + noise of the new rows.
    T : (train, measurement)
        Compressed labels Y Phi'.

    Raises
    ------
    ValueError
        For shapes that do not fit, or a row whose v is not above 0 (its number is named).
    """
    T, cross = read_matrix(T, "T"), read_matrix(cross, "cross")
    own = np.asarray(own, dtype=np.float64)
    if np.shape(factor) != (len(T), len(T)) or cross.shape[0] != len(T) or own.shape != cross.shape[1:]:
        raise ValueError(
            f"factor {np.shape(factor)}, cross {cross.shape}, own {own.shape} and T {T.shape} do not fit: "
            "they must be (train, train), (train, row), (row,) and (train, measurement)"
        )
    half = solve_triangular(factor, cross, lower=True)
    mean = half.T @ solve_triangular(factor, T, lower=True)
    variance = own - (half**2).sum(axis=0)
    check_variance(variance)
    return mean, variance


def check_variance(variance: Array) -> None:
    """Raise ValueError at the first variance (row,) that is not finite and above 0."""
    bad = np.flatnonzero(~(np.isfinite(variance) & (variance > 0)))
    if bad.size:
        raise ValueError(f"variance must be finite and above 0, got {variance[bad[0]]} at row {bad[0]}")


def row_law(t: Array, v: Array, weights: Array, phi: Sketch) -> RowLaw:
    """Return q(y) at weights 1 / E[alpha] (row, labels), 0 at observed labels.

    4 labels measurement^2 + 3 measurement^3 flops and 24 measurement^2 bytes a row.
    """
    B = grams(phi, weights)
    diagonal = np.arange(B.shape[1])
    B[:, diagonal, diagonal] += v[:, None]
    root = np.linalg.cholesky(B)
    log_determinant = 2 * np.log(root[:, diagonal, diagonal]).sum(axis=1)
    inverse = np.linalg.inv(B)
    solved = (inverse @ t[:, :, None])[:, :, 0]
    mean = weights * (solved @ phi.projection)
    variance = weights * (1.0 - weights * forms(phi, inverse))
    return RowLaw(mean, np.maximum(variance, 0.0), solved, log_determinant)


def fit_rows(
    compressed_mean: Any,
    variance: Any,
    projection: Any,
    *,
    shape: Any,
    rate: Any,
    sweeps: Any,
    start: Any = None,
    hold: Any = False,
    Y: Any = None,
    observed: Any = None,
) -> RowFit:
    """Fit q(y) q(alpha) of each row by coordinate ascent, row by row independent.

    Cost 4 labels measurement^2 + 3 measurement^3 flops a row and sweep; beside the answer some 100 MB for a
    block of rows, no matter how many there are.

    Parameters
    ----------
    compressed_mean : (row, measurement)
        t from `condition`.
    variance : (row,)
        v from `condition`; it contains the noise.
    projection : (measurement, labels)
    shape, rate : float
        a0 and b0 of the labels' precisions.
    sweeps : int
        q(y), then q(alpha), so many times. More is not better for ranking: fix it and record it.
    start : (row, labels) or None
        E[alpha] to start from, 1 by default. The bound has several maxima.
    hold : bool
        Keep E[alpha] at `start`: q(y) given these precisions (the bound then has q(alpha) at its best for
        that q(y), so that it can be compared).
    Y, observed : (row, labels) or None
        Labels of the new rows that are observed already; NaN in `Y` is unobserved where no mask is given.

    Raises
    ------
    ValueError
        For shapes that do not fit, a number that is not finite, a variance, precision, shape or rate not
        above 0.
    """
    a0, b0, sweeps = read_prior(shape, rate, sweeps)
    phi = read_projection(projection)
    k, labels = phi.projection.shape
    t, v = read_matrix(compressed_mean, "compressed_mean", k), np.asarray(variance, dtype=np.float64)
    if v.shape != t.shape[:1]:
        raise ValueError(f"variance must have shape {t.shape[:1]}, got {v.shape}")
    check_variance(v)
    cells = (len(t), labels)
    values, seen = (np.zeros(cells), np.zeros(cells, bool)) if Y is None else read_labels(Y, observed, cells)
    t = t - values @ phi.projection.T
    alpha = read_precision(start, cells)
    mean, spread, last, used = (np.empty(cells) for _ in range(4))
    out = RowFit(mean, spread, last, np.empty((sweeps, len(t))), used)
    size = rows_in_block(phi)
    for first in range(0, len(t), size):
        part = slice(first, first + size)
        one = _fit_block(t[part], v[part], phi, values[part], seen[part], alpha[part], (a0, b0, sweeps), hold)
        for name in RowFit._fields:
            getattr(out, name)[(slice(None), part) if name == "bound" else part] = getattr(one, name)
    return out


def _fit_block(
    t: Array,
    v: Array,
    phi: Sketch,
    values: Array,
    seen: Array,
    alpha: Array,
    prior: tuple[float, float, int],
    hold: bool,
) -> RowFit:
    shape, rate, sweeps = prior
    bound, used = np.empty((sweeps, len(t))), alpha
    for sweep in range(sweeps):
        used = alpha
        law = row_law(t, v, np.where(seen, 0.0, 1.0 / alpha), phi)
        posterior_rate = second_moments_to_rate((law.mean + values) ** 2 + law.variance, rate)
        bound[sweep] = row_bound(law, v, alpha, ~seen, student_terms(posterior_rate, shape, rate))
        if not hold:
            alpha = (shape + 0.5) / posterior_rate
    return RowFit(law.mean + values, law.variance, alpha, bound, used)


def row_bound(law: RowLaw, v: Array, alpha: Array, free: Array, student: Array) -> Array:
    """Return the bound of each row in nats, (row,).

    |Phi mu - t| = v |B^-1 t|, tr(Phi Sigma Phi') / v = labels - sum alpha var, and log |Sigma| = -sum log
    alpha - log |B| + k log v, all over the unobserved labels `free` (row, labels).
    """
    cells = np.where(free, student + 0.5 * alpha * law.variance - 0.5 * np.log(alpha), 0.0).sum(axis=1)
    k = law.solved.shape[1]
    return cells - 0.5 * v * (law.solved**2).sum(axis=1) - 0.5 * law.log_determinant + 0.5 * k * np.log(v)


def at_alpha(
    compressed_mean: Any, variance: Any, projection: Any, precision: Any, Y: Any = None, observed: Any = None
) -> tuple[Array, Array]:
    """Return mean and variance (row, labels) of q(y) at given E[alpha] (row, labels)."""
    options: dict[str, Any] = {"shape": 1.0, "rate": 1.0, "sweeps": 1, "hold": True}
    fit = fit_rows(compressed_mean, variance, projection, start=precision, Y=Y, observed=observed, **options)
    return fit.mean, fit.variance


def row_precision(precision: Any, variance: Any, projection: Any) -> Array:
    """Return P = diag(E[alpha]) + Phi' Phi / v of one row, the precision of q(y): (labels, labels).

    Parameters
    ----------
    precision : (labels,)
        E[alpha] of the row: ``used`` of `RowFit` for the law that its mean and variance belong to.
    variance : float
        v of the row. `chi2` in its place gives the precision under the 2012 mean field.
    projection : (measurement, labels)
    """
    phi = read_projection(projection).projection
    alpha = read_precision(precision, phi.shape[1:], "precision")
    v = np.asarray(variance, dtype=np.float64).reshape(1)
    check_variance(v)
    out = phi.T @ phi / v
    out[np.diag_indices_from(out)] += alpha
    return out
