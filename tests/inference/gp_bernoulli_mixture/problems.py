"""Small problems that the tests of the variational cores share."""

from typing import Any

import numpy as np

Array = Any


def covariance(X: Array, amplitude: float) -> Array:
    """Return an rbf covariance with the median squared distance."""
    square = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    positive = square[square > 0]
    return amplitude * np.exp(-square / (2.0 * (np.median(positive) if positive.size else 1.0)))


def factor_of(Sigma: Array) -> Array:
    """Return F with F F' = Sigma, without directions of no variance."""
    values, vectors = np.linalg.eigh(Sigma)
    keep = values > 1e-10 * values[-1]
    return vectors[:, keep] * np.sqrt(values[keep])


def small(
    rows: int = 12,
    labels: int = 4,
    components: int = 3,
    *,
    seed: int = 0,
    gate_mean: float = -1.0,
    amplitude: float = 3.0,
    seen: float = 0.8,
    features: int = 2,
) -> dict[str, Any]:
    """Return inputs as ``prepare`` gives them, labels from two groups of rows, priors unlike one another."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, features))
    theta = rng.beta(0.4, 0.8, (2, labels))
    Y = (rng.random((rows, labels)) < theta[(X[:, 0] > 0).astype(int)]).astype(float)
    observed = rng.random((rows, labels)) < seen
    observed[:, 0] = True
    return {
        "factor": factor_of(covariance(X, amplitude)),
        "Y": np.where(observed, Y, 0.0),
        "observed": observed,
        "gate_mean": gate_mean,
        "prior_positive": rng.uniform(0.3, 1.0, (components, labels)),
        "prior_negative": rng.uniform(0.8, 2.0, (components, labels)),
    }
