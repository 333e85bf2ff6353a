"""A Poisson count known to be positive, and the time of its first arrival.

A positive label of the Bernoulli-Poisson link is a Poisson process of rate ``lam`` on [0, 1] with at least
one arrival (Rai et al. 2015, equation 10). Its number of arrivals is zero-truncated Poisson; its first
arrival time is an exponential cut to (0, 1).
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import gammaln
from numpyro.distributions import constraints
from numpyro.distributions.distribution import Distribution
from numpyro.distributions.util import validate_sample

from labelzoo.inference.stable import (
    as_floats,
    first_arrival_mean,
    first_arrival_variance,
    zero_truncated_poisson_mean,
)


class ZeroTruncatedPoisson(Distribution):
    r"""Poisson count given that it is at least one.

    :math:`P(m) = \lambda^m / (m!\,(e^\lambda - 1))`, m = 1, 2, ... At rate 0 the limit: m = 1.

    Parameters
    ----------
    rate : array
        Rates, non-negative; tested from 1e-12 to 1e6. In float32 ``log_prob`` at rates and counts above 1e4
        carries the rounding of numbers of size m log m.
    """

    arg_constraints = {"rate": constraints.nonnegative}
    support = constraints.positive_integer

    def __init__(self, rate: Any, *, validate_args: bool | None = None) -> None:
        (self.rate,) = as_floats(rate)
        super().__init__(jnp.shape(self.rate), validate_args=validate_args)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw without rejection: the first arrival, then a Poisson count over the time that is left."""
        uniform_key, poisson_key = jax.random.split(key)
        shape = sample_shape + jnp.shape(self.rate)
        u = jax.random.uniform(uniform_key, shape, self.rate.dtype)
        left = self.rate + jnp.log1p(u * jnp.expm1(-self.rate))
        return 1 + jax.random.poisson(poisson_key, jnp.maximum(left, 0.0), shape)

    @validate_sample
    def log_prob(self, value: Any) -> Array:
        """Log probability of counts ``value``; ``-inf`` below 1."""
        extra = jnp.asarray(value, self.rate.dtype) - 1.0
        safe_rate = jnp.where(self.rate > 0, self.rate, 1.0)
        zero_rate = jnp.where(extra > 0, -jnp.inf, 0.0)
        power = jnp.where(self.rate > 0, extra * jnp.log(safe_rate), zero_rate)
        first = jnp.log(zero_truncated_poisson_mean(self.rate)) - self.rate
        inside = extra >= 0
        return jnp.where(inside, power + first - gammaln(jnp.where(inside, extra, 0.0) + 2.0), -jnp.inf)

    @property
    def mean(self) -> Array:
        """lam / (1 - exp(-lam))."""
        return zero_truncated_poisson_mean(self.rate)

    @property
    def variance(self) -> Array:
        """mean (1 + lam - mean), without the cancellation at small rates."""
        return self.mean * self.rate * first_arrival_mean(self.rate)


class FirstArrival(Distribution):
    r"""First arrival time of a Poisson process on (0, 1), given that there is one.

    Density :math:`\lambda e^{-\lambda t} / (1 - e^{-\lambda})`; uniform at rate 0.

    Parameters
    ----------
    rate : array
        Rates, non-negative.
    """

    arg_constraints = {"rate": constraints.nonnegative}
    support = constraints.unit_interval

    def __init__(self, rate: Any, *, validate_args: bool | None = None) -> None:
        (self.rate,) = as_floats(rate)
        super().__init__(jnp.shape(self.rate), validate_args=validate_args)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw by inversion, t = -log1p(U expm1(-lam)) / lam; never exactly 0."""
        shape = sample_shape + jnp.shape(self.rate)
        tiny = jnp.finfo(self.rate.dtype).tiny
        u = jax.random.uniform(key, shape, self.rate.dtype, minval=tiny)
        some = self.rate > jnp.sqrt(tiny)
        safe_rate = jnp.where(some, self.rate, 1.0)
        t = jnp.where(some, -jnp.log1p(u * jnp.expm1(-safe_rate)) / safe_rate, u)
        return jnp.clip(t, tiny, 1.0)

    @validate_sample
    def log_prob(self, value: Any) -> Array:
        """Log density at times ``value``; ``-inf`` outside [0, 1]."""
        t = jnp.asarray(value, self.rate.dtype)
        density = jnp.log(zero_truncated_poisson_mean(self.rate)) - t * self.rate
        return jnp.where((t >= 0) & (t <= 1), density, -jnp.inf)

    @property
    def mean(self) -> Array:
        """1/lam - 1/expm1(lam); 1/2 at rate 0."""
        return first_arrival_mean(self.rate)

    @property
    def variance(self) -> Array:
        """1/lam^2 - 1/(4 sinh^2(lam/2)); 1/12 at rate 0."""
        return first_arrival_variance(self.rate)
