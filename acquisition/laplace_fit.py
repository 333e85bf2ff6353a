"""Laplace's approximation of logistic Gaussian processes, one a label, all with one kernel.

f_l ~ GP(mean_l, a K) and P(y_l = 1 | x) = sigmoid(f_l(x)); labels are independent given the features.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from scipy.special import expit

from labelzoo.acquisition.random_features import row_blocks

Array = Any

NODES = np.linspace(-6.5, 6.5, 49)
WEIGHTS = np.exp(-(NODES**2) / 2) / np.exp(-(NODES**2) / 2).sum()
"""Trapezoidal rule for a standard normal. Largest errors of E p and E p(1-p) over means -8 to 8: 2e-11 up to
variance 4, 2e-7 at 16, 3e-6 at 25. The poles of the sigmoid at i pi make Gauss-Hermite worse: with 64 nodes
7e-10, 2e-5 and 2e-4."""


class LaplaceFit(NamedTuple):
    """Laplace's approximation of every label.

    Attributes
    ----------
    amplitude : float
        a, the prior variance of f where k(x, x) = 1.
    offset : (labels,)
        logit of the smoothed label frequency.
    weights : (labelled, labels)
        Gradient of the log likelihood at the mode, so that E f(x) = mean(x) + a K(x, labelled) weights.
    root : (labelled, labels)
        sqrt(p (1 - p)) at the mode, 0 where the label is unknown.
    factors : list of (labelled, labelled)
        Lower Cholesky factors of I + root a K root.
    steps : int
        Newton steps of the label that took most.
    """

    amplitude: float
    offset: Array
    weights: Array
    root: Array
    factors: list[Array]
    steps: int


def amplitude_of(noise_ratio: float) -> float:
    """Return 4 / noise_ratio within [1, 16].

    At p = 1/2 a label observes f with variance 4, so that a balanced label has the noise ratio of the
    regression. Above 16 the latent functions of rare labels are mostly prior.
    """
    return float(np.clip(4 / noise_ratio, 1.0, 16.0))


def prior_mean(offset: Array, amplitude: float, diagonal: Array) -> Array:
    """Return offset sqrt(1 + pi a k(x,x) / 8): (row, labels).

    It makes E sigmoid(f) about the label's frequency, by MacKay's approximation of that integral (1992)
    solved for the mean: .012, .093 and .30 for .02, .1 and .3 at a = 4, where the logit alone gives more
    than twice a rare label's frequency.
    """
    return np.sqrt(1 + np.pi * amplitude * diagonal / 8)[:, None] * offset


def fit_laplace(
    K: Array, diagonal: Array, Y: Array, amplitude: float, *, tolerance: float = 1e-8, limit: int = 100
) -> LaplaceFit:
    """Find the mode of every label by Newton steps that are halved until the objective does not fall.

    Rasmussen and Williams 2006, algorithm 3.1, with a prior mean; all labels step together, each until its
    latent values move by less than `tolerance`. Cost labelled^3 / 3 flops a step and label.

    Parameters
    ----------
    K : (labelled, labelled)
        Kernel, not scaled by the amplitude.
    diagonal : (labelled,)
        k(x, x).
    Y : (labelled, labels)
        0, 1, or NaN where unknown: the label's likelihood leaves the row out.
    amplitude : float
    tolerance : float
    limit : int
        Most Newton steps.

    Raises
    ------
    ValueError
        If a label has not converged after `limit` steps.
    """
    known = ~np.isnan(Y)
    y, K = np.where(known, Y, 0.0), amplitude * K
    frequency = (y.sum(axis=0) + 0.5) / (known.sum(axis=0) + 1)
    offset = np.log(frequency) - np.log1p(-frequency)
    mean = prior_mean(offset, amplitude, diagonal)
    weights, moving, step = np.zeros(Y.shape), np.arange(Y.shape[1]), 0
    while moving.size and step < limit:
        data = (y[:, moving], known[:, moving], mean[:, moving])
        weights[:, moving], moved = _newton_step(K, weights[:, moving], data)
        moving, step = moving[moved > tolerance], step + 1
    if moving.size:
        raise ValueError(f"Laplace's approximation of label {moving[0]} did not converge in {limit} steps")
    p = expit(mean + K @ weights)
    root = np.sqrt(known * p * (1 - p))
    factors = [np.linalg.cholesky(_weighted(K, column)) for column in root.T]
    return LaplaceFit(amplitude, offset, weights, root, factors, step)


def _newton_step(K: Array, weights: Array, data: tuple[Array, Array, Array]) -> tuple[Array, Array]:
    """Return new weights (labelled, labels) and how far the latent values of each label moved (labels,)."""
    y, known, mean = data
    g = K @ weights
    p = expit(mean + g)
    curvature = known * p * (1 - p)
    root, b = np.sqrt(curvature), curvature * g + known * (y - p)
    right = root * (K @ b)
    solved = np.empty_like(b)
    for label, column in enumerate(root.T):
        factor = scipy.linalg.cho_factor(_weighted(K, column), overwrite_a=True, check_finite=False)
        solved[:, label] = scipy.linalg.cho_solve(factor, right[:, label], check_finite=False)
    direction = b - root * solved - weights
    towards = K @ direction
    size, start = np.ones(y.shape[1]), _objective(weights, g, data)
    for _ in range(40):
        fell = _objective(weights + size * direction, g + size * towards, data) < start - 1e-10 * (
            1 + np.abs(start)
        )
        if not fell.any():
            break
        size = np.where(fell, size / 2, size)
    return weights + size * direction, np.abs(size * towards).max(axis=0, initial=0.0)


def _objective(weights: Array, g: Array, data: tuple[Array, Array, Array]) -> Array:
    y, known, mean = data
    f = mean + g
    return (known * (y * f - np.logaddexp(0, f))).sum(axis=0) - (weights * g).sum(axis=0) / 2


def _weighted(K: Array, root: Array) -> Array:
    B = root[:, None] * K * root
    B[np.diag_indices_from(B)] += 1.0
    return B


def logistic_moments(mean: Array, variance: Array) -> tuple[Array, Array]:
    """Return E p and E p(1 - p) for p = sigmoid(f), f normal; arrays of any one shape.

    Trapezoidal rule with 49 nodes; its error is stated at `WEIGHTS`.
    """
    sd, shape = np.sqrt(np.asarray(variance, float)).ravel(), np.shape(mean)
    centre, expected, slope = np.ravel(mean), np.empty(sd.size), np.empty(sd.size)
    for part in row_blocks(sd.size, NODES.size):
        p = expit(centre[part, None] + sd[part, None] * NODES)
        expected[part] = p @ WEIGHTS
        slope[part] = (p * (1 - p)) @ WEIGHTS
    return expected.reshape(shape), slope.reshape(shape)


class Prediction(NamedTuple):
    """Latent moments at some rows.

    Attributes
    ----------
    mean, probability, slope : (labels, row)
        E f, E p and E p(1 - p).
    factor : (labels, labelled, row)
        V with posterior covariance a K - V'V.
    """

    mean: Array
    probability: Array
    slope: Array
    factor: Array


def predict_laplace(fit: LaplaceFit, cross: Array, diagonal: Array) -> Prediction:
    """Return the moments at rows with kernel `cross` (labelled, row) and k(x, x) `diagonal` (row,)."""
    scaled = fit.amplitude * cross
    mean = (prior_mean(fit.offset, fit.amplitude, diagonal) + scaled.T @ fit.weights).T
    factor = np.empty((len(fit.factors), *cross.shape))
    for label, lower in enumerate(fit.factors):
        right = fit.root[:, [label]] * scaled
        factor[label] = scipy.linalg.solve_triangular(lower, right, lower=True, check_finite=False)
    variance = np.maximum(fit.amplitude * diagonal - (factor**2).sum(axis=1), 0.0)
    return Prediction(mean, *logistic_moments(mean, variance), factor)
