"""Integrated variance reduction from posterior draws: which row sharpens the predictions at other rows most.

The draws of the label probabilities are used as an ensemble: their anomalies give every covariance between
rows and labels, label correlation included, and conditioning on a row's labels is one linear (Kalman) step.
"""

import warnings
from typing import Any, NamedTuple

import numpy as np

Array = Any

MIN_SAMPLES = 200
"""Below so many draws the ensemble's covariances are mostly noise."""


class Ensemble(NamedTuple):
    """Anomalies of the label probabilities, scaled so that inner products are covariances.

    Attributes
    ----------
    anomalies : ndarray (sample, row, labels)
        (p - mean p) / sqrt(sample - 1).
    noise : ndarray (row, labels)
        E[p (1 - p)], the variance of a label that no draw explains.
    """

    anomalies: Array
    noise: Array


def make_ensemble(probs: Array) -> Ensemble:
    """Return the ensemble of `probs` (sample, row, labels).

    Raises
    ------
    ValueError
        If `probs` is not a 3-d array of probabilities with at least two samples.

    Warns
    -----
    UserWarning
        With fewer than 200 samples.
    """
    probs = np.asarray(probs, float)
    if probs.ndim != 3 or probs.shape[0] < 2:
        raise ValueError(
            f"probs must be (sample, row, labels) with two samples or more, got shape {probs.shape}"
        )
    if not (np.isfinite(probs).all() and probs.min(initial=0.0) >= 0 and probs.max(initial=1.0) <= 1):
        raise ValueError("probs must be probabilities between 0 and 1, without NaN")
    if probs.shape[0] < MIN_SAMPLES:
        warnings.warn(f"{probs.shape[0]} draws: ensemble scores need at least {MIN_SAMPLES}", stacklevel=2)
    anomalies = (probs - probs.mean(axis=0)) / np.sqrt(probs.shape[0] - 1)
    return Ensemble(anomalies, (probs * (1 - probs)).mean(axis=0))


def variance_reduction(ensemble: Ensemble, weights: Array | None = None) -> Array:
    """Return the predictive variance that observing each row's labels removes at the other rows: (row,).

    With anomalies A_n (sample, labels) of row n and observation variance R_n = A_n'A_n + diag(noise_n),
    the score is sum over targets t of tr(A_t'A_n R_n^-1 A_n'A_t), targets weighted by `weights`
    (default 1) and row n itself left out. Units: variance of a probability, summed over labels and rows.
    Linear in the draws, so it is exact for jointly Gaussian probabilities and an approximation otherwise.

    Cost 2 rows labels sample^2 flops for the Gram matrix of the targets, then the same again for the scores
    and rows labels^3 / 3 for the solves; memory sample^2 beside the draws.
    """
    A, noise = ensemble
    samples, rows, _ = A.shape
    weights = np.ones(rows) if weights is None else np.asarray(weights, float)
    if weights.shape != (rows,) or not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError(f"weights must be {rows} finite numbers of at least 0, got shape {weights.shape}")
    flat = (A * np.sqrt(weights)[None, :, None]).reshape(samples, -1)
    gram = flat @ flat.T
    scores = np.empty(rows)
    for n in range(rows):
        own = A[:, n]
        cross = own.T @ own
        seen = own.T @ (gram @ own) - weights[n] * cross @ cross
        scores[n] = np.trace(np.linalg.solve(cross + np.diag(_floor(noise[n])), seen))
    return np.maximum(scores, 0.0)


def condition(ensemble: Ensemble, row: int) -> Ensemble:
    """Return the ensemble after the labels of `row` have been asked, whatever the answers will be.

    The square-root update A <- (I + A_n diag(noise)^-1 A_n')^(-1/2) A leaves exactly the covariance of
    the linear-Gaussian posterior. Cost 2 rows labels sample^2 flops and one sample x sample eigenproblem.
    """
    A, noise = ensemble
    own = A[:, row] / np.sqrt(_floor(noise[row]))
    values, vectors = np.linalg.eigh(own @ own.T)
    root = (vectors / np.sqrt(1 + np.maximum(values, 0.0))) @ vectors.T
    return Ensemble(np.tensordot(root, A, axes=1), noise)


def _floor(noise: Array) -> Array:
    # A label that every draw calls certain has no noise; its anomalies are zero too.
    return np.maximum(noise, 1e-12)
