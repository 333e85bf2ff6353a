r"""Mean field of bpca: the factors q(U) q(W) q(mu) q(alpha) q(tau), their updates and their bound.

t = E tau, Phi = E U'U = mU'mU + m SU, Omega = E W'W = mW'mW + d SW. Bishop, "Variational principal
components", ICANN 1999, equations (11) to (15), re-derived.

The rows enter through the inner products of the columns of [1, R] alone. They may therefore be replaced by
any (1~, R~) of equal inner products: `inputs` holds them as ``ones`` (graph,) and ``compressed``, and the
true number of rows m as ``num_rows``. A sweep then costs measurement^2 component flops, whatever m is
(`labelzoo.inference.bpca.pseudo_rows`). A column whose q(W) is the point 0, covariance and all, takes no
part: its q(U) is the prior, and it adds nothing to the bound.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.scipy.special import digamma, gammaln

Array = Any
Inputs = Mapping[str, Any]


class Factors(NamedTuple):
    """The factors.

    Attributes
    ----------
    scores_mean : (graph, component)
    scores_covariance : (component, component)
        Of every q(u_n).
    loadings_mean : (measurement, component)
    loadings_covariance : (component, component)
        Of every row of W.
    mean_mean : (measurement,)
    mean_variance : ()
        Of every entry of mu.
    precision_shape, noise_shape : ()
    precision_rate : (component,)
    noise_rate : ()
    """

    scores_mean: Array
    scores_covariance: Array
    loadings_mean: Array
    loadings_covariance: Array
    mean_mean: Array
    mean_variance: Array
    precision_shape: Array
    precision_rate: Array
    noise_shape: Array
    noise_rate: Array


def noise_mean(factors: Factors) -> Array:
    """Return t = E tau."""
    return factors.noise_shape / factors.noise_rate


def live_columns(factors: Factors) -> Array:
    """Return which columns take part: (component,), 1 or 0."""
    return jnp.where(jnp.diagonal(factors.loadings_covariance) > 0, 1.0, 0.0)


def residual(factors: Factors, inputs: Inputs) -> Array:
    """Return R - 1 mm': (graph, measurement)."""
    return inputs["compressed"] - inputs["ones"][:, None] * factors.mean_mean


def score_moment(factors: Factors, inputs: Inputs) -> Array:
    """Return Phi = E U'U: (component, component)."""
    mU = factors.scores_mean
    return mU.T @ mU + inputs["num_rows"] * factors.scores_covariance


def loading_moment(factors: Factors) -> Array:
    """Return Omega = E W'W: (component, component)."""
    mW = factors.loadings_mean
    return mW.T @ mW + mW.shape[0] * factors.loadings_covariance


def symmetric_inverse(matrix: Array) -> Array:
    """Return the inverse of a positive definite matrix, exactly symmetric."""
    inverse = jnp.linalg.inv(matrix)
    return 0.5 * (inverse + inverse.T)


def update_scores(factors: Factors, inputs: Inputs) -> Factors:
    """q(u_n): SU = (I + t Omega)^-1, mU = t (R - mm) mW SU."""
    t, mW = noise_mean(factors), factors.loadings_mean
    covariance = symmetric_inverse(jnp.eye(mW.shape[1]) + t * loading_moment(factors))
    mean = t * residual(factors, inputs) @ mW @ covariance
    return factors._replace(scores_mean=mean, scores_covariance=covariance)


def update_loadings(factors: Factors, inputs: Inputs) -> Factors:
    """q(W): SW = (diag E alpha + t Phi)^-1, mW = t (R - mm)' mU SW."""
    t, mU = noise_mean(factors), factors.scores_mean
    prior = jnp.diag(factors.precision_shape / factors.precision_rate)
    live = live_columns(factors)
    covariance = symmetric_inverse(prior + t * score_moment(factors, inputs)) * jnp.outer(live, live)
    mean = t * residual(factors, inputs).T @ mU @ covariance
    return factors._replace(loadings_mean=mean, loadings_covariance=covariance)


def update_mean(factors: Factors, inputs: Inputs) -> Factors:
    """q(mu): vm = 1 / (beta + m t), mm = t vm sum_n (r_n - mW mU_n)."""
    t, ones = noise_mean(factors), inputs["ones"]
    variance = 1.0 / (inputs["mean_precision"] + inputs["num_rows"] * t)
    total = ones @ (inputs["compressed"] - factors.scores_mean @ factors.loadings_mean.T)
    return factors._replace(mean_mean=t * variance * total, mean_variance=variance)


def update_precision(factors: Factors, inputs: Inputs) -> Factors:
    """q(alpha_i): Gamma(a + d / 2, b + Omega_ii / 2)."""
    shape = jnp.asarray(inputs["precision_shape"] + 0.5 * factors.loadings_mean.shape[0])
    rate = inputs["precision_rate"] + 0.5 * jnp.diagonal(loading_moment(factors))
    return factors._replace(precision_shape=shape, precision_rate=rate)


def expected_square(factors: Factors, inputs: Inputs) -> Array:
    """Return Q = E sum_n norm(r_n - W u_n - mu)^2: the square at the means, and what the variances add."""
    mU, mW = factors.scores_mean, factors.loadings_mean
    SU, SW = factors.scores_covariance, factors.loadings_covariance
    m, d = inputs["num_rows"], mW.shape[0]
    at_means = ((residual(factors, inputs) - mU @ mW.T) ** 2).sum()
    spread = m * (SU * (mW.T @ mW)).sum() + d * (SW * (mU.T @ mU)).sum() + m * d * (SU * SW).sum()
    return at_means + spread + m * d * factors.mean_variance


def update_noise(factors: Factors, inputs: Inputs) -> Factors:
    """q(tau): Gamma(c + m d / 2, d + Q / 2)."""
    size = inputs["num_rows"] * factors.loadings_mean.shape[0]
    shape = jnp.asarray(inputs["noise_shape"] + 0.5 * size)
    rate = inputs["noise_rate"] + 0.5 * expected_square(factors, inputs)
    return factors._replace(noise_shape=shape, noise_rate=rate)


UPDATES = (update_scores, update_loadings, update_mean, update_precision, update_noise)


def sweep(factors: Factors, inputs: Inputs) -> Factors:
    """Update every factor once: coordinate ascent, so `bound` does not fall."""
    for update in UPDATES:
        factors = update(factors, inputs)
    return factors


def gamma_kl(shape: Array, rate: Array, prior_shape: Array, prior_rate: Array) -> Array:
    """Return KL(Gamma(shape, rate) || Gamma(prior_shape, prior_rate)), nats."""
    return (
        (shape - prior_shape) * digamma(shape)
        - gammaln(shape)
        + gammaln(prior_shape)
        + prior_shape * (jnp.log(rate) - jnp.log(prior_rate))
        + shape * (prior_rate / rate - 1.0)
    )


def bound(factors: Factors, inputs: Inputs) -> Array:
    """Return the evidence lower bound, for factors of any values, nats."""
    (d, p), m, live = factors.loadings_mean.shape, inputs["num_rows"], live_columns(factors)
    log_tau = digamma(factors.noise_shape) - jnp.log(factors.noise_rate)
    fit = 0.5 * m * d * (log_tau - jnp.log(2 * jnp.pi))
    fit -= 0.5 * noise_mean(factors) * expected_square(factors, inputs)
    log_det = jnp.linalg.slogdet(factors.scores_covariance)[1]
    scores = -0.5 * (jnp.trace(score_moment(factors, inputs)) - m * p - m * log_det)
    log_alpha = digamma(factors.precision_shape) - jnp.log(factors.precision_rate)
    alpha = factors.precision_shape / factors.precision_rate
    loadings = 0.5 * d * (live @ log_alpha) - 0.5 * (alpha * jnp.diagonal(loading_moment(factors))).sum()
    log_det = jnp.linalg.slogdet(factors.loadings_covariance + jnp.diag(1.0 - live))[1]
    loadings += 0.5 * d * (live.sum() + log_det)
    beta, vm = inputs["mean_precision"], factors.mean_variance
    mean = -0.5 * (beta * ((factors.mean_mean**2).sum() + d * vm) - d - d * jnp.log(beta * vm))
    prior = (inputs["precision_shape"], inputs["precision_rate"])
    columns = live @ gamma_kl(factors.precision_shape, factors.precision_rate, *prior)
    noise = gamma_kl(factors.noise_shape, factors.noise_rate, inputs["noise_shape"], inputs["noise_rate"])
    return fit + scores + loadings + mean - columns - noise
