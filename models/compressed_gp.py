"""Gaussian processes on compressed labels as NumPyro programs: one process a target, all on the same rows.

Rows of labels are compressed and reduced to a few uncorrelated targets of unit variance, as
`labelzoo.inference.compressed_gp.compression` says; the targets are data here. Target g at the rows x is

    u_g ~ Normal(0, K_g + noise_g I),
    k_g(x, x') = th0 exp(-th1 |x - x'|^2 / 2) + th2 x.x' + th3,

each of th0, th1, th2, th3 and the noise with a logarithm that is Normal(0, 3^2). That prior is ours: where
the linear part or the constant goes to 0 the likelihood is flat. That the targets are independent given x is
an assumption: uncorrelated observed targets do not imply it. What is modelled is a real number and not a
label: the program cannot simulate labels, and how labels are read off a target is a stated rule
(`labelzoo.models.compressed_gp_predict`).

Shi and Yu, "Fast direct search in an optimally compressed continuous target space for efficient multi-label
active learning", ICML 2019, eqs. 11 to 15, with the noise in the covariance and among the parameters.
"""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax.scipy.linalg import solve_triangular

Array = Any

SITES = ("log_signal", "log_inverse_length2", "log_linear", "log_constant", "log_noise")
"""Logarithms of th0, th1, th2, th3 and the noise variance, each (target,)."""
PRIOR_SD = 3.0
"""Standard deviation of each logarithm under the prior."""
DECIBEL = math.log(10.0) / 10.0
"""A decibel in units of the natural logarithm."""


class Logs(NamedTuple):
    """The five logarithms, each (target,), in the order of `SITES`."""

    signal: Array
    inverse_length2: Array
    linear: Array
    constant: Array
    noise: Array


def sample_logs(num_targets: int) -> Logs:
    """Sample the logarithms of th0, th1, th2, th3 and the noise, each (target,)."""
    prior = dist.Normal(0.0, PRIOR_SD).expand([num_targets]).to_event(1)
    return Logs(*(numpyro.sample(name, prior) for name in SITES))


def signal_covariance(logs: Logs, distances2: Array) -> Array:
    """Return th0 exp(-th1 distances2 / 2): (target, left, right)."""
    th0, th1 = (jnp.exp(log)[:, None, None] for log in (logs.signal, logs.inverse_length2))
    return th0 * jnp.exp(-0.5 * th1 * distances2)


def function_covariance(logs: Logs, distances2: Array, products: Array) -> Array:
    """Return k without noise: (target, left, right)."""
    th2, th3 = (jnp.exp(log)[:, None, None] for log in (logs.linear, logs.constant))
    return signal_covariance(logs, distances2) + th2 * products + th3


def with_noise(covariance: Array, logs: Logs) -> Array:
    """Return the covariance (target, row, row) with the noise on its diagonal."""
    return covariance + jnp.exp(logs.noise)[:, None, None] * jnp.eye(covariance.shape[-1])


def summed(targets: Array, distances2: Array, products: Array, **rest: Any) -> None:
    """The program with the functions integrated out: what NUTS and SVI run.

    Parameters
    ----------
    targets : array (graph, target)
        Canonical targets of the rows with all labels observed; without any, nothing is observed.
    distances2, products : array (graph, graph)
        Squared distances and inner products of their mapped features.
    **rest
        What the other views, updates and prediction need; not read here.
    """
    logs = sample_logs(targets.shape[1])
    if not targets.shape[1]:  # a plate cannot be empty
        return
    C = with_noise(function_covariance(logs, distances2, products), logs)
    with numpyro.plate("target", targets.shape[1]):
        numpyro.sample("targets", dist.MultivariateNormal(jnp.zeros(len(distances2)), C), obs=targets.T)


def predictive(
    targets: Array,
    distances2: Array,
    products: Array,
    new_distances2: Array,
    new_products: Array,
    **rest: Any,
) -> None:
    """The program with the targets of rows without labels among its sites: ``new_targets`` (target, new).

    The parameters are in decibels, ``decibels`` (target, 5), 10 log10 of what the logarithms are of: states
    some units apart are then factors and not powers of e apart, and the covariance of all rows keeps the
    digits that a comparison needs.

    Old and new targets are jointly normal with the noise on the whole diagonal. With the new rows first and
    L the Cholesky factor of their joint covariance, new = L11 white, old = L21 white + L22 (more white).
    Without new rows there is no such site.

    Parameters
    ----------
    targets, distances2, products
        As in `summed`.
    new_distances2, new_products : array (new, graph + new)
        From new rows to the old and to the new ones, in this order.
    """
    count = targets.shape[1]
    prior = dist.Normal(0.0, PRIOR_SD / DECIBEL).expand([count, len(SITES)])
    logs = Logs(*(DECIBEL * numpyro.sample("decibels", prior.to_event(2))).T)
    if not count:
        return
    n, q = len(distances2), len(new_distances2)
    whole = [_new_first(*pair) for pair in ((new_distances2, distances2), (new_products, products))]
    L = jnp.linalg.cholesky(with_noise(function_covariance(logs, *whole), logs))
    loc = jnp.zeros((count, n))
    with numpyro.plate("target", count):
        if q:
            first = L[:, :q, :q]
            new = numpyro.sample("new_targets", dist.MultivariateNormal(jnp.zeros(q), scale_tril=first))
            white = solve_triangular(first, new[..., None], lower=True)
            loc = (L[:, q:, :q] @ white)[..., 0]
        numpyro.sample("targets", dist.MultivariateNormal(loc, scale_tril=L[:, q:, q:]), obs=targets.T)


def _new_first(new: Array, old: Array) -> Array:
    """Return the table of all rows, the new ones first, from (new, old + new) and (old, old)."""
    n = len(old)
    across, own = jnp.asarray(new)[:, :n], jnp.asarray(new)[:, n:]
    return jnp.block([[own, across], [across.T, jnp.asarray(old)]])


def linear(targets: Array, distances2: Array, mapped: Array, **rest: Any) -> None:
    """The program with the linear part and the constant explicit: ``line`` (target, feature + 1).

    th2 x.x' + th3 is the covariance of x.w + c with w ~ Normal(0, th2 I) and c ~ Normal(0, th3), c the last
    entry of a target's line.

    Parameters
    ----------
    targets, distances2
        As in `summed`.
    mapped : array (graph, feature)
        The mapped features, whose inner products are ``products``.
    """
    logs = sample_logs(targets.shape[1])
    if not targets.shape[1]:
        return
    H = with_one(mapped)
    scale = jnp.exp(0.5 * line_log_variance(logs, H.shape[1]))
    line = numpyro.sample("line", dist.Normal(0.0, scale).to_event(2))
    C = with_noise(signal_covariance(logs, distances2), logs)
    with numpyro.plate("target", targets.shape[1]):
        numpyro.sample("targets", dist.MultivariateNormal(line @ H.T, C), obs=targets.T)


def with_one(mapped: Array) -> Array:
    """Return the mapped features with a column of ones at the end: (row, feature + 1)."""
    return jnp.concatenate([jnp.asarray(mapped), jnp.ones((len(mapped), 1))], axis=1)


def line_log_variance(logs: Logs, width: int) -> Array:
    """Return ln th2 of the slopes and ln th3 of the constant: (target, width)."""
    slopes = jnp.broadcast_to(logs.linear[:, None], (logs.linear.shape[0], width - 1))
    return jnp.concatenate([slopes, logs.constant[:, None]], axis=1)
