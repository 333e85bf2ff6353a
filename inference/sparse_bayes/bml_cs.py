"""Mean field q(Y) q(Z) q(W) q(alpha) of Kapoor et al. (2012), to compare variances with.

At equal E[alpha] its means are those of ``ml_oss`` exactly, since mean field is right about Gaussian means;
its covariance of a row, (diag(alpha) + Phi' Phi / chi2)^-1, is smaller in the Loewner order and does not know
the row's features at all.
"""

from typing import Any, NamedTuple

import numpy as np

from labelzoo.inference.sparse_bayes.inductive import RowFit, RowLaw, row_law
from labelzoo.inference.sparse_bayes.terms import (
    Sketch,
    read_labels,
    read_matrix,
    read_positive,
    read_precision,
    read_prior,
    read_projection,
    rows_in_block,
    second_moments_to_rate,
    student_terms,
)

Array = Any


class MeanField(NamedTuple):
    """The factors of q.

    Attributes
    ----------
    mean, variance : (cell,)
        Of the unobserved labels, row by row.
    precision : (cell,)
        E[alpha] after the last sweep; as ``start`` it continues the ascent, with ``compressed_mean``.
    bound : (sweep,)
        Nats, on the scale of ``complete``: both bound the same integral, this one from further below.
    cells : int (cell, 2)
    used : (cell,)
        The E[alpha] under which mean and variance were taken.
    compressed_mean : (obs, measurement)
        Of q(Z).
    compressed_variance : float
        Of every entry of Z, 1 / (1 / sigma2 + 1 / chi2).
    weights_mean : (component, measurement)
    weights_covariance : (component, component)
        Of every column of W.
    """

    mean: Array
    variance: Array
    precision: Array
    bound: Array
    cells: Array
    used: Array
    compressed_mean: Array
    compressed_variance: float
    weights_mean: Array
    weights_covariance: Array


class _Fixed(NamedTuple):
    """What no sweep changes."""

    F: Array
    phi: Sketch
    values: Array
    free: Array
    sigma2: float
    chi2: float
    covariance: Array
    constant: float


def mean_field(
    F: Any,
    projection: Any,
    Y: Any,
    observed: Any = None,
    *,
    sigma2: Any,
    chi2: Any,
    shape: Any,
    rate: Any,
    sweeps: Any,
    start: Any = None,
    compressed_start: Any = None,
    hold: Any = False,
) -> MeanField:
    """Fit by sweeps over q(Y), q(Z), q(W), q(alpha).

    Cost obs (4 labels measurement^2 + 3 measurement^3 + 2 component measurement) flops a sweep. Means move by
    a share of about chi2 / (chi2 + sigma2) a sweep: slow where sigma2 is small.

    Parameters
    ----------
    F : (obs, component)
        Factor of the kernel, F F' = scale K.
    projection : (measurement, labels)
    Y, observed : (obs, labels)
        NaN in `Y` is unobserved where no mask is given.
    sigma2, chi2 : float
        Noise of the regression and of the compression, separately.
    shape, rate : float
        a0 and b0.
    start : (cell,) or None
        E[alpha], 1 by default.
    compressed_start : (obs, measurement) or None
        Mean of q(Z) to start from, Y_O Phi' by default.
    hold : bool
        Keep E[alpha] at `start`.

    Raises
    ------
    ValueError
        For shapes that do not fit, numbers that are not finite, or a variance, shape or rate not above 0.
    """
    a0, b0, sweeps = read_prior(shape, rate, sweeps)
    fixed = _fixed(F, projection, Y, observed, sigma2, chi2)
    free, phi = fixed.free, fixed.phi
    alpha = np.ones(free.shape)
    alpha[free] = read_precision(start, (int(free.sum()),))
    Z = fixed.values @ phi.projection.T
    if compressed_start is not None:
        given = read_matrix(compressed_start, "compressed_start", Z.shape[1])
        if given.shape != Z.shape:
            raise ValueError(f"compressed_start must have shape {Z.shape}, got {given.shape}")
        Z = given
    W = _weights(fixed, Z)
    bound = np.empty(sweeps)
    for sweep in range(sweeps):
        used, law = alpha, _labels(fixed, Z, alpha)
        Z = _compressed(fixed, law.mean, W)
        W = _weights(fixed, Z)
        posterior_rate = second_moments_to_rate(law.mean**2 + law.variance, b0)
        student = student_terms(posterior_rate, a0, b0)
        bound[sweep] = _bound(fixed, law, alpha, Z, W, float(student[free].sum()))
        alpha = alpha if hold else (a0 + 0.5) / posterior_rate
    share = 1.0 / (1.0 / fixed.sigma2 + 1.0 / fixed.chi2)
    parts = (law.mean[free], law.variance[free], alpha[free], bound, np.argwhere(free), used[free])
    return MeanField(*parts, Z, share, W, fixed.covariance)


def _fixed(F: Any, projection: Any, Y: Any, observed: Any, sigma2: Any, chi2: Any) -> _Fixed:
    phi, F = read_projection(projection), read_matrix(F, "F")
    s2, c2 = read_positive(sigma2, "sigma2"), read_positive(chi2, "chi2")
    values, mask = read_labels(Y, observed, (len(F), phi.projection.shape[1]))
    (n, d), k = F.shape, phi.projection.shape[0]
    G = F.T @ F
    covariance = np.linalg.inv(np.eye(d) + G / s2)
    covariance = 0.5 * (covariance + covariance.T)
    log_W = -np.linalg.slogdet(np.eye(d) + G / s2)[1]
    log_C = n * np.log(s2 + c2) + np.linalg.slogdet(np.eye(d) + G / (s2 + c2))[1]
    share = 1.0 / (1.0 / s2 + 1.0 / c2)
    # H(Z) - E log N(Z; F W, sigma2) - E log N(Phi y; Z, chi2) in their constants and in the variance of Z
    # cancel to log(share / (sigma2 chi2)); the last two terms bring the bound to the scale of `complete`.
    constant = 0.5 * n * k * np.log(share / (s2 * c2)) + 0.5 * k * (log_W + log_C)
    return _Fixed(F, phi, values, ~mask, s2, c2, covariance, float(constant))


def _labels(fixed: _Fixed, Z: Array, alpha: Array) -> RowLaw:
    """Return q(Y), observed labels in their place: one noise chi2 for every row, whatever its features."""
    weights = np.where(fixed.free, 1.0 / alpha, 0.0)
    t = Z - fixed.values @ fixed.phi.projection.T
    size, parts = rows_in_block(fixed.phi), []
    for first in range(0, len(t), size):
        rows = slice(first, first + size)
        v = np.full(len(t[rows]), fixed.chi2)
        parts.append(row_law(t[rows], v, weights[rows], fixed.phi))
    law = RowLaw(*(np.concatenate(pieces) for pieces in zip(*parts, strict=True)))
    return law._replace(mean=law.mean + fixed.values)


def _compressed(fixed: _Fixed, labels: Array, W: Array) -> Array:
    share = 1.0 / (1.0 / fixed.sigma2 + 1.0 / fixed.chi2)
    return share * (fixed.F @ W / fixed.sigma2 + labels @ fixed.phi.projection.T / fixed.chi2)


def _weights(fixed: _Fixed, Z: Array) -> Array:
    return fixed.covariance @ (fixed.F.T @ Z) / fixed.sigma2


def _bound(fixed: _Fixed, law: RowLaw, alpha: Array, Z: Array, W: Array, student: float) -> float:
    """Return the bound in nats; tr(Sigma_W (I + F'F / sigma2)) and its like are the sizes, which cancel."""
    k, free = Z.shape[1], fixed.free
    log_Sigma = -float(np.log(alpha[free]).sum()) - float(law.log_determinant.sum())
    log_Sigma += len(Z) * k * np.log(fixed.chi2)
    fit = ((Z - fixed.F @ W) ** 2).sum() / fixed.sigma2
    fit += ((law.mean @ fixed.phi.projection.T - Z) ** 2).sum() / fixed.chi2
    trace = float((alpha * law.variance)[free].sum())
    return student + 0.5 * (trace + log_Sigma - float(fit) - float((W**2).sum())) + fixed.constant


def new_rows(
    compressed_mean: Any,
    variance: Any,
    projection: Any,
    *,
    chi2: Any,
    shape: Any,
    rate: Any,
    sweeps: Any,
    start: Any = None,
) -> RowFit:
    """Fit each new row beside fully observed training rows; q(Y), q(Z), q(W) run to their end in each sweep.

    Their end has the exact Gaussian mean, so that t and v of
    `labelzoo.inference.sparse_bayes.inductive.condition` serve; the variance is that of chi2 alone. The bound
    of a row is up to a constant that no q changes. Cost twice that of ``fit_rows``.

    Raises
    ------
    ValueError
        As ``fit_rows``, and unless chi2 is above 0 and at most every v.
    """
    a0, b0, sweeps = read_prior(shape, rate, sweeps)
    phi, c2 = read_projection(projection), read_positive(chi2, "chi2")
    t = read_matrix(compressed_mean, "compressed_mean", phi.projection.shape[0])
    v = np.asarray(variance, dtype=np.float64)
    if v.shape != t.shape[:1] or not (np.isfinite(v) & (v >= c2)).all():
        raise ValueError(f"variance must have shape {t.shape[:1]}, with no number below chi2={c2:g}")
    alpha = read_precision(start, (len(t), phi.projection.shape[1]))
    mean, spread, used = np.empty_like(alpha), np.empty_like(alpha), alpha.copy()
    bound, size = np.empty((sweeps, len(t))), rows_in_block(phi)
    for first in range(0, len(t), size):
        rows = slice(first, first + size)
        for sweep in range(sweeps):
            used[rows] = alpha[rows]
            law = _two_variances(t[rows], v[rows], c2, alpha[rows], phi)
            posterior_rate = second_moments_to_rate(law.mean**2 + law.variance, b0)
            cells = student_terms(posterior_rate, a0, b0) + 0.5 * alpha[rows] * law.variance
            fit = v[rows] * (law.solved**2).sum(axis=1) + law.log_determinant
            bound[sweep, rows] = (cells - 0.5 * np.log(alpha[rows])).sum(axis=1) - 0.5 * fit
            alpha[rows] = (a0 + 0.5) / posterior_rate
        mean[rows], spread[rows] = law.mean, law.variance
    return RowFit(mean, spread, alpha, bound, used)


def _two_variances(t: Array, v: Array, chi2: float, alpha: Array, phi: Sketch) -> RowLaw:
    """Return the mean under v with the variance and log |B| under chi2."""
    exact = row_law(t, v, 1.0 / alpha, phi)
    narrow = row_law(t, np.full(len(t), chi2), 1.0 / alpha, phi)
    return RowLaw(exact.mean, narrow.variance, exact.solved, narrow.log_determinant)


def at_alpha(
    compressed_mean: Any, variance: Any, projection: Any, precision: Any, *, chi2: Any
) -> tuple[Array, Array]:
    """Return mean and variance (row, labels) of q(y) at given E[alpha]; the means are those of ``ml_oss``."""
    options: dict[str, Any] = {"shape": 1.0, "rate": 1.0, "sweeps": 1}
    fit = new_rows(compressed_mean, variance, projection, chi2=chi2, start=precision, **options)
    return fit.mean, fit.variance
