"""Probabilistic principal components by maximum likelihood, in closed form: what mean field starts from.

With S the covariance of the rows (divisor m), lambda_1 >= ... its eigenvalues and E its eigenvectors, the
likelihood is greatest at mu = row mean, sigma2 = mean of the discarded eigenvalues and
W = E_p (Lambda_p - sigma2 I)^(1/2), up to a rotation, here none (Tipping and Bishop, "Probabilistic principal
component analysis", JRSS B 61, 1999, section 3.2). The priors are not read.
"""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from labelzoo.inference.engine import Engine, EngineResult
from labelzoo.models.bpca_card import log_likelihood
from labelzoo.models.spec import ModelSpec

Array = Any

FLOOR = 1e-6
"""Least noise variance, relative to the mean variance of a measurement (1 where nothing varies)."""


class Ppca(NamedTuple):
    """A fit by maximum likelihood.

    Attributes
    ----------
    mean : (measurement,)
    loadings : (measurement, component)
        W, columns orthogonal, the largest first, signs such that the largest entry is positive.
    noise_variance : float
        sigma2, not below `FLOOR`.
    discarded : float
        Mean of the discarded eigenvalues; 0 where none is discarded.
    eigenvalues : (measurement,)
        Of the covariance, the largest first.
    """

    mean: Array
    loadings: Array
    noise_variance: float
    discarded: float
    eigenvalues: Array


def ppca(inputs: Mapping[str, Any], num_components: int) -> Ppca:
    """Return the fit with so many components: measurement^3 flops."""
    m = inputs["compressed"].shape[0]
    values, vectors = np.linalg.eigh(np.asarray(inputs["scatter"]) / m)
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    rest = values[num_components:]
    discarded = float(rest.mean()) if len(rest) else 0.0
    noise = max(discarded, FLOOR * (float(values.mean()) or 1.0))
    top = np.sqrt(np.maximum(values[:num_components] - noise, 0.0))
    loadings = with_signs(vectors[:, :num_components]) * top
    return Ppca(np.asarray(inputs["row_mean"]), loadings, noise, discarded, values)


def with_signs(columns: Array) -> Array:
    """Return the columns with the sign that makes the entry of largest size positive."""
    at = np.abs(columns).argmax(axis=0)
    signs = np.sign(columns[at, np.arange(columns.shape[1])])
    return columns * np.where(signs == 0, 1.0, signs)


def score_means(fit: Ppca, compressed: Array) -> Array:
    """Return E[u | r] = M^-1 W'(r - mu), M = W'W + sigma2 I: (row, component)."""
    W = fit.loadings
    M = W.T @ W + fit.noise_variance * np.eye(W.shape[1])
    return np.linalg.solve(M, W.T @ (compressed - fit.mean).T).T


def run_ml(
    spec: ModelSpec, inputs: Mapping[str, Any], *, rng_key: Any, progress: bool = False
) -> EngineResult:
    """Return the maximum of the likelihood as one draw; nothing is random.

    Where all eigenvalues are kept, or those that are not vanish, the noise is not identified: it is put at
    `FLOOR`, and ``converged`` says no.
    """
    begin = time.perf_counter()
    fit = ppca(inputs, inputs["num_components"])
    draw = {"mean": fit.mean, "loadings": fit.loadings, "noise_precision": np.asarray(1 / fit.noise_variance)}
    is_noisy = fit.discarded >= fit.noise_variance
    message = (
        "closed form"
        if is_noisy
        else f"the likelihood has no maximum in the noise variance: held at {fit.noise_variance:.3g}"
    )
    return EngineResult(
        draws={name: np.asarray(value)[None, None] for name, value in draw.items()},
        optimization={"objective": np.asarray([float(log_likelihood(draw, inputs))])},
        run_seconds=time.perf_counter() - begin,
        converged=is_noisy,
        message=message,
        state={
            "scores_mean": score_means(fit, np.asarray(inputs["compressed"])),
            "loadings_mean": fit.loadings,
            "mean_mean": fit.mean,
            "noise_variance": np.asarray(fit.noise_variance),
        },
    )


engine = Engine(
    "ml",
    "point",
    run_ml,
    random_sites=(),
    description="Maximum likelihood in closed form, without priors: for checks and as a start.",
)
