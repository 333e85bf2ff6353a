"""Where ml_oss and bml_cs must come to rest: their bounds written from the programs, and wrong versions."""

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma, gammaln

from labelzoo.inference.checks.stationarity import StationarityCase
from labelzoo.inference.sparse_bayes.bounds import bml_cs_step, ml_oss_step
from labelzoo.models.sparse_bayes import filled

Array = Any
Inputs = Mapping[str, Any]
Params = dict[str, Array]

SWEEPS = 6000
"""The ascent is slow at some precisions: the gradient falls like a power of the sweeps."""


def _sparsity(params: Mapping[str, Array], square: Array, inputs: Inputs) -> Array:
    """Return E log N(y; 0, 1 / alpha) + E log Gamma(alpha) + H(q(alpha)), constants of pi left out.

    q(alpha) = Gamma(a, b), given by logarithms; `square` is E y^2 (cell,).
    """
    a, b = jnp.exp(params["log_shape"]), jnp.exp(params["log_rate"])
    a0, b0 = inputs["precision_shape"], inputs["precision_rate"]
    mean, log_mean = a / b, digamma(a) - jnp.log(b)
    likelihood = 0.5 * log_mean - 0.5 * mean * square
    prior = a0 * jnp.log(b0) - gammaln(a0) + (a0 - 1.0) * log_mean - b0 * mean
    entropy = a - jnp.log(b) + gammaln(a) + (1.0 - a) * digamma(a)
    return (likelihood + prior + entropy).sum()


def _log_volume(root: Array) -> Array:
    return jnp.linalg.slogdet(root)[1].sum() if root.shape[-1] else jnp.zeros(())


def graph_objective(params: Mapping[str, Array], inputs: Inputs) -> Array:
    """Return the bound of q(Y_U) q(alpha) from the program: dense, with C^-1 kron Phi' Phi over the cells.

    Parameters
    ----------
    params : mapping
        ``mean`` (cell,), ``root`` (cell, cell), any A with covariance A A'; ``log_shape``, ``log_rate``
        (cell,).
    inputs : mapping
        What ``spec.prepare`` returned.
    """
    projection, L = jnp.asarray(inputs["projection"]), jnp.tril(jnp.asarray(inputs["cholesky"]))
    row, label = inputs["cell_row"], inputs["cell_label"]
    inverse, gram = jnp.linalg.inv(L @ L.T), projection.T @ projection
    covariance = params["root"] @ params["root"].T
    T = filled(inputs["Y"], row, label, params["mean"]) @ projection.T
    quadratic = (T * (inverse @ T)).sum()
    trace = (inverse[jnp.ix_(row, row)] * gram[jnp.ix_(label, label)] * covariance).sum()
    square = params["mean"] ** 2 + jnp.diagonal(covariance)
    return -0.5 * (quadratic + trace) + _sparsity(params, square, inputs) + _log_volume(params["root"])


def field_objective(params: Mapping[str, Array], inputs: Inputs) -> Array:
    """Return the bound of q(Y) q(Z) q(W) q(alpha) from the program ``augmented``.

    Parameters
    ----------
    params : mapping
        As in `graph_objective`, with ``compressed`` (obs, measurement), the log of its variance
        ``log_variance`` (), ``weights`` (component, measurement) and ``weights_root`` (component, component).
    inputs : mapping
    """
    projection, F = jnp.asarray(inputs["projection"]), jnp.asarray(inputs["factor"])
    row, label = inputs["cell_row"], inputs["cell_label"]
    sigma2, chi2 = inputs["sigma2"], inputs["chi2"]
    Z, W, s = params["compressed"], params["weights"], jnp.exp(params["log_variance"])
    (n, k), spread = Z.shape, params["weights_root"] @ params["weights_root"].T
    covariance = params["root"] @ params["root"].T
    gram = jnp.where(row[:, None] == row[None, :], (projection.T @ projection)[jnp.ix_(label, label)], 0.0)
    T = filled(inputs["Y"], row, label, params["mean"]) @ projection.T
    regression = ((Z - F @ W) ** 2).sum() + n * k * s + k * ((F @ spread) * F).sum()
    compression = ((T - Z) ** 2).sum() + n * k * s + (gram * covariance).sum()
    prior = (W**2).sum() + k * jnp.trace(spread)
    fit = -0.5 * (regression / sigma2 + compression / chi2 + prior)
    entropy = _log_volume(params["root"]) + 0.5 * n * k * params["log_variance"]
    entropy = entropy + k * _log_volume(params["weights_root"])
    square = params["mean"] ** 2 + jnp.diagonal(covariance)
    return fit + entropy + _sparsity(params, square, inputs)


def _sparsity_params(last: Any, inputs: Inputs, variance: Array) -> Params:
    shape = float(inputs["precision_shape"]) + 0.5
    rate = float(inputs["precision_rate"]) + 0.5 * (last.mean**2 + variance)
    return {"log_shape": np.full(len(rate), np.log(shape)), "log_rate": np.log(rate)}


def _root(precision: Array) -> Array:
    """Return A with A A' = precision^-1."""
    return np.linalg.inv(np.linalg.cholesky(precision)).T if len(precision) else np.zeros((0, 0))


def ml_oss_point(
    inputs: Inputs, *, mean_sign: float = 1.0, rate_of: str = "both", shape: float = 0.5
) -> Params:
    """Run ml_oss to its end and return `graph_objective`'s parameters.

    What the core reports (means, variances, E alpha) is used wherever it reports it; the covariance is the
    one that its precisions imply, and its diagonal must be the reported variance.
    """
    last = ml_oss_step(inputs, SWEEPS)(None)
    L = np.tril(np.asarray(inputs["cholesky"]))
    projection = np.asarray(inputs["projection"])
    row, label = last.cells[:, 0], last.cells[:, 1]
    inverse, gram = np.linalg.inv(L @ L.T), projection.T @ projection
    P = np.diag(last.used) + inverse[np.ix_(row, row)] * gram[np.ix_(label, label)]
    root = _root(P)
    np.testing.assert_allclose((root**2).sum(axis=1), last.variance, rtol=1e-7, atol=1e-12)
    params = {"mean": mean_sign * last.mean, "root": root, **_sparsity_params(last, inputs, last.variance)}
    if rate_of == "variance":
        rate = float(inputs["precision_rate"]) + 0.5 * last.variance
        params["log_rate"] = np.log(rate)
    params["log_shape"] = np.full(len(row), np.log(float(inputs["precision_shape"]) + shape))
    return params


def bml_cs_point(inputs: Inputs, *, read: Callable[[Inputs], Inputs] = lambda inputs: inputs) -> Params:
    """Run bml_cs to its end, on inputs that `read` may change, and return `field_objective`'s parameters."""
    inputs = read(inputs)
    last = bml_cs_step(inputs, SWEEPS)(None)
    projection = np.asarray(inputs["projection"])
    row, label = last.cells[:, 0], last.cells[:, 1]
    gram = np.where(row[:, None] == row, (projection.T @ projection)[np.ix_(label, label)], 0.0)
    root = _root(np.diag(last.used) + gram / float(inputs["chi2"]))
    np.testing.assert_allclose((root**2).sum(axis=1), last.variance, rtol=1e-7, atol=1e-12)
    return {
        "mean": last.mean,
        "root": root,
        "compressed": last.compressed_mean,
        "log_variance": np.asarray(np.log(last.compressed_variance)),
        "weights": last.weights_mean,
        "weights_root": np.linalg.cholesky(last.weights_covariance),
        **_sparsity_params(last, inputs, last.variance),
    }


def _changed(**change: Callable[[Inputs], Any]) -> Callable[[Inputs], Inputs]:
    return lambda inputs: {**inputs, **{name: wrong(inputs) for name, wrong in change.items()}}


def _ml_oss_on(**change: Callable[[Inputs], Any]) -> Callable[[Inputs], Params]:
    return lambda inputs: ml_oss_point(_changed(**change)(inputs))


def _bml_cs_on(**change: Callable[[Inputs], Any]) -> Callable[[Inputs], Params]:
    return lambda inputs: bml_cs_point(inputs, read=_changed(**change))


def _zeros(inputs: Inputs) -> Array:
    return np.zeros_like(np.asarray(inputs["Y"]))


def _chi2_factor(inputs: Inputs) -> Array:
    L = np.tril(np.asarray(inputs["cholesky"]))
    return np.linalg.cholesky(L @ L.T - float(inputs["sigma2"]) * np.eye(len(L)))


CASES = (
    StationarityCase(
        name="bound of q(Y_U) q(alpha)",
        engine="ml_oss",
        fixed_point=ml_oss_point,
        objective=graph_objective,
        mutants=(
            ("the mean's sign is wrong", lambda inputs: ml_oss_point(inputs, mean_sign=-1.0)),
            ("rate without the mean", lambda inputs: ml_oss_point(inputs, rate_of="variance")),
            ("shape a0, the 1/2 missing", lambda inputs: ml_oss_point(inputs, shape=0.0)),
            ("chi2 for the noise", _ml_oss_on(cholesky=_chi2_factor)),
            ("observed labels read as zeros", _ml_oss_on(Y=_zeros)),
            ("b0 doubled", _ml_oss_on(precision_rate=lambda inputs: 2.0 * inputs["precision_rate"])),
        ),
    ),
    StationarityCase(
        name="bound of q(Y) q(Z) q(W) q(alpha)",
        engine="bml_cs",
        fixed_point=bml_cs_point,
        objective=field_objective,
        mutants=(
            ("sigma2 + chi2 for chi2", _bml_cs_on(chi2=lambda i: i["sigma2"] + i["chi2"])),
            ("sigma2 doubled", _bml_cs_on(sigma2=lambda i: 2.0 * i["sigma2"])),
            ("observed labels read as zeros", _bml_cs_on(Y=_zeros)),
            ("b0 doubled", _bml_cs_on(precision_rate=lambda i: 2.0 * i["precision_rate"])),
            ("a0 + 1", _bml_cs_on(precision_shape=lambda i: i["precision_shape"] + 1.0)),
        ),
    ),
)
