"""Precisions of the features by type-II maximum likelihood: empirical Bayes in place of a gamma prior.

Given the Polya-Gamma variables of a sweep, X w_k is observed with Gaussian noise: target / omega with the
variance 1 / omega. The evidence of that linear model, w integrated out, has the EM step
tau_d = K / sum_k (mu_kd^2 + Sigma_k,dd), with the mean and the covariance (X' Omega_k X + diag tau)^-1 of the
weights (Tipping, "Sparse Bayesian learning and the relevance vector machine", JMLR 2001, his EM form; the
fixed points are those of scikit-learn's ARDRegression with flat hyperpriors). It cannot lower that evidence.
The joint mode K / sum_k w_kd^2 is another thing: it grows without bound as w_d goes to zero.
"""

from collections.abc import Mapping
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from labelzoo.inference.bernoulli_poisson_topics.em_data import EMData, weighted_gram
from labelzoo.inference.bernoulli_poisson_topics.em_state import EMConfig, EMState
from labelzoo.inference.bernoulli_poisson_topics.em_weights import polya_gamma_terms

Array = Any
PrecisionUpdate = Literal["prior", "type2"]

UPDATES: tuple[PrecisionUpdate, ...] = get_args(PrecisionUpdate)


def checked_update(value: Any, inputs: Mapping[str, Any]) -> PrecisionUpdate:
    """Return the option ``precision_update``.

    Raises
    ------
    ValueError
        If it is unknown, or "type2" beside a prior of the precisions.
    """
    if value not in UPDATES:
        raise ValueError(f"precision_update must be one of {', '.join(UPDATES)}, got {value!r}")
    if value == "type2" and inputs["precision_prior"] is not None:
        raise ValueError(
            "precision_update='type2' learns the precisions without a prior: leave precision_prior out, or "
            "use precision_update='prior'"
        )
    return UPDATES[UPDATES.index(value)]


def update_precision(before: EMState, weights: Array, data: EMData, config: EMConfig) -> tuple[Array, Array]:
    """Return K / sum_k (mu_kd^2 + Sigma_k,dd), (feature,), and what integrating the weights out adds.

    The second, sum_k log(|T| / |X' Omega_k X + T|) / 2 with T = diag tau as it was, turns a log density at
    the weights into the logarithm of its integral over them by Laplace's method, up to (2 pi)^(K D / 2).
    Unlike the density, which grows for ever with the precision of a feature that no topic needs, it settles.

    With w_step "exact" the mean is `weights` and Sigma_k that of topic k: the EM step. With the other steps
    the mean is where they came to, and one Sigma stands for all topics, that of the mean of omega over them:
    as the inverse is convex, its diagonal is never above the mean of the exact ones, so that precisions come
    out too large rather than too small, and equal where omega is alike in all topics.

    Parameters
    ----------
    before : EMState
        What the weight step saw; ``data.precision`` is the precision it used.
    weights : (feature, topic)
        What the weight step returned.

    Notes
    -----
    Beside the sweep, N D^2 + D^3 flops, times K with w_step "exact" (N^2 D + N^3 where X is dense and has
    fewer rows than features).
    """
    omega, _, _ = polya_gamma_terms(before)
    num_topics = weights.shape[1]
    squares = (weights**2).sum(axis=1)
    if config.w_step == "exact":
        variance, spread = jax.lax.map(lambda one: covariance(data, one), omega.T)
        variance, spread = variance.sum(axis=0), spread.sum()
    else:
        variance, spread = (num_topics * part for part in covariance(data, omega.mean(axis=1)))
    return num_topics / (squares + variance), -0.5 * spread


def covariance(data: EMData, omega: Array) -> tuple[Array, Array]:
    """Return of P = X' diag(omega) X + diag tau the diagonal of P^-1, (feature,), and log |P| - sum log tau.

    By the smaller of two systems, (feature, feature) or, for dense X, (row, row).
    """
    tau = jnp.asarray(data.precision)
    if data.X is not None and data.X.shape[0] < data.X.shape[1]:
        # T^-1 - T^-1 X' R (I + R X T^-1 X' R)^-1 R X T^-1 with R = diag(omega)^1/2.
        half = jnp.sqrt(omega)[:, None] * data.X
        inner = jnp.eye(half.shape[0], dtype=half.dtype) + (half / tau) @ half.T
        factor = jnp.linalg.cholesky(inner)
        spread = solve_triangular(factor, half / tau, lower=True)
        return jnp.maximum(1.0 / tau - (spread**2).sum(axis=0), 0.0), _log_det(factor)
    factor = jnp.linalg.cholesky(weighted_gram(data, omega) + jnp.diag(tau))
    inverse = solve_triangular(factor, jnp.eye(tau.shape[0], dtype=tau.dtype), lower=True)
    return (inverse**2).sum(axis=0), _log_det(factor) - jnp.log(tau.astype(jnp.float64)).sum()


def _log_det(factor: Array) -> Array:
    return 2.0 * jnp.log(jnp.diagonal(factor).astype(jnp.float64)).sum()
