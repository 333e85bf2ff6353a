"""Closed-form Gaussian regression on labels, in NumPy: means and variances at new rows, without draws."""

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.special import ndtr, ndtri

from labelzoo.inference.label_gp.evidence import Hyperparameters, choose_hyperparameters
from labelzoo.models.gp_kernel import GPKernel, feature_map
from labelzoo.models.label_gp import MIN_PROB, SETTINGS, probit_slope

Array = Any

JITTER = 1e-9
"""Added to the posterior variance, in parts of the kernel's amplitude, before its Cholesky factor."""


class Regression(NamedTuple):
    """A fitted regression.

    Attributes
    ----------
    kernel : GPKernel
    rows : mapped features of the labelled rows
    weights : (labelled, labels)
        (K + ratio I)^-1 (y_l - mean_l), 0 at unobserved cells.
    mean, amplitude : (labels,)
    """

    kernel: GPKernel
    rows: Array
    weights: Array
    mean: Array
    amplitude: Array


def fit_regression(
    X: Array, Y: Array, *, features: GPKernel | None = None, settings: dict[str, Any] | None = None
) -> Regression:
    """Fit on labelled rows.

    Parameters
    ----------
    X : (labelled, feature) dense or csr
    Y : float (labelled, labels)
        0, 1, NaN for unobserved.
    features : GPKernel or None
        The map of the features where it comes from more rows than the labelled ones; its length and noise
        ratio are chosen anew.
    settings : dict
        Settings of `labelzoo.models.label_gp`.
    """
    chosen_settings = {**SETTINGS, **(settings or {})}
    observed = ~np.isnan(Y)
    filled = np.where(observed, Y, 0.0)
    kernel = feature_map(X, chosen_settings["kernel"]) if features is None else features
    found: Hyperparameters = choose_hyperparameters(kernel, X, filled, observed, chosen_settings)
    rows = found.kernel.mapped(X)
    K = found.kernel.of_mapped(rows, rows)
    weights = solve_observed(K, filled - found.mean, observed, found.kernel.noise_ratio)
    return Regression(found.kernel, rows, weights, found.mean, found.amplitude)


def solve_observed(K: Array, residual: Array, observed: Array, ratio: float) -> Array:
    """Return (K_oo + ratio I)^-1 r_o of each label over its observed rows o, 0 elsewhere: (rows, labels).

    One Cholesky factor, rows^3 / 3 flops, for each distinct set of observed rows.
    """
    out = np.zeros_like(residual)
    columns, inverse = np.unique(observed.T, axis=0, return_inverse=True)
    for group, column in enumerate(columns):
        rows, labels = np.flatnonzero(column), np.flatnonzero(inverse.ravel() == group)
        if rows.size:
            cells = np.ix_(rows, labels)
            factor = cho_factor(K[np.ix_(rows, rows)] + ratio * np.eye(len(rows)), lower=True)
            out[cells] = cho_solve(factor, residual[cells])
    return out


def regression_mean(fitted: Regression, X: Array) -> Array:
    """Return the posterior mean at new rows, clipped to probabilities: (row, labels)."""
    cross = fitted.kernel.of_mapped(fitted.kernel.mapped(X), fitted.rows)
    return np.clip(fitted.mean + cross @ fitted.weights, MIN_PROB, 1 - MIN_PROB)


def regression_variance(kernel: GPKernel, rows: Array, X: Array) -> Array:
    """Return the posterior variance of the function over the amplitude at new rows: (row,).

    `rows` are the mapped labelled rows; k(x, x) - k(x, R) (K + ratio I)^-1 k(R, x).
    """
    K = kernel.of_mapped(rows, rows) + kernel.noise_ratio * np.eye(rows.shape[0])
    cross = kernel.of_mapped(kernel.mapped(X), rows)
    half = solve_triangular(np.linalg.cholesky(K), cross.T, lower=True)
    return np.maximum(kernel.diagonal(X) - (half**2).sum(axis=0), 0.0)


def regression_draws(
    fitted: Regression, X: Array, observed: Array, num_draws: int, rng: np.random.Generator
) -> Array:
    """Return P(label = 1) at new rows, draw by draw and joint over the rows: (sample, row, labels).

    Draws of the posterior function, squashed as `labelzoo.models.label_gp.squash` says, but about the exact
    mean and variance. Cost rows^3 / 3 for each distinct set of observed rows, and 2 sample labels rows^2
    flops in single precision.

    Parameters
    ----------
    observed : bool (labelled, labels)
        Which labels of the fitted rows were observed.
    """
    Z = fitted.kernel.mapped(X)
    prior = fitted.kernel.of_mapped(Z, Z)
    cross = fitted.kernel.of_mapped(fitted.rows, Z)
    K = fitted.kernel.of_mapped(fitted.rows, fitted.rows)
    p = np.clip(fitted.mean + cross.T @ fitted.weights, MIN_PROB, 1 - MIN_PROB)
    out = np.empty((num_draws, *p.shape))
    normal = rng.standard_normal((num_draws, p.shape[1], p.shape[0]), dtype=np.float32)
    columns, inverse = np.unique(observed.T, axis=0, return_inverse=True)
    for group, column in enumerate(columns):
        labels = np.flatnonzero(inverse.ravel() == group)
        lower = np.linalg.cholesky(
            K[np.ix_(column, column)] + fitted.kernel.noise_ratio * np.eye(int(column.sum()))
        )
        half = solve_triangular(lower, cross[column], lower=True)
        rest = prior - half.T @ half
        rest[np.diag_indices_from(rest)] += JITTER  # rows may be equal
        root = np.linalg.cholesky(rest).astype(np.float32)
        variance = (root.astype(float) ** 2).sum(axis=1)
        field = normal[:, labels] @ root.T  # draws in single precision: a sixth digit of noise is no matter
        z = np.divide(field, np.sqrt(variance), out=np.zeros_like(field), where=variance > 0)
        b = probit_slope(p[:, labels], variance[:, None] * fitted.amplitude[labels])
        out[:, :, labels] = ndtr(ndtri(p[:, labels]) * np.sqrt(1 + b**2) + b * np.swapaxes(z, 1, 2))
    return out
