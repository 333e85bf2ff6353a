"""Negative binomial counts by shape and logits, with the exact limits at logits of minus infinity."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import gammaln
from numpyro.distributions import constraints
from numpyro.distributions.distribution import Distribution
from numpyro.distributions.util import validate_sample

from labelzoo.inference.distributions.log_gamma import finite_log_gamma
from labelzoo.inference.stable import as_floats, log_rising, softplus


class NegativeBinomialLogits(Distribution):
    r"""Poisson counts with a Gamma(r, rate = exp(-logits)) mean integrated out.

    :math:`P(m) = \Gamma(m + r) / (m!\,\Gamma(r))\; p^m (1 - p)^r`, p = sigmoid(logits), real r > 0
    (Rai et al. 2015, before equation 14; the convention for p is the one that makes the update of
    equation 16 a logistic one). Logits of ``-inf`` put all mass on m = 0.

    Parameters
    ----------
    concentration : array
        Shapes r > 0.
    logits : array
        Reals or ``-inf``; broadcast against ``concentration``.
    """

    arg_constraints = {"concentration": constraints.positive, "logits": constraints.less_than(float("inf"))}
    support = constraints.nonnegative_integer

    def __init__(self, concentration: Any, logits: Any, *, validate_args: bool | None = None) -> None:
        self.concentration, self.logits = jnp.broadcast_arrays(*as_floats(concentration, logits))
        super().__init__(jnp.shape(self.concentration), validate_args=validate_args)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw the gamma mean on the log scale, then the Poisson count."""
        gamma_key, poisson_key = jax.random.split(key)
        shape = sample_shape + jnp.shape(self.concentration)
        log_mean = finite_log_gamma(gamma_key, jnp.broadcast_to(self.concentration, shape)) + self.logits
        return jax.random.poisson(poisson_key, jnp.exp(log_mean), shape)

    @validate_sample
    def log_prob(self, value: Any) -> Array:
        """Log probability of counts ``value``; ``-inf`` below 0."""
        count = jnp.asarray(value, self.concentration.dtype)
        inside = count >= 0
        safe_count = jnp.where(inside, count, 0.0)
        some = self.logits > -jnp.inf
        safe_logits = jnp.where(some, self.logits, 0.0)
        coefficient = log_rising(self.concentration, safe_count) - gammaln(safe_count + 1.0)
        powers = -safe_count * softplus(-safe_logits) - self.concentration * softplus(safe_logits)
        limit = jnp.where(safe_count > 0, -jnp.inf, 0.0)
        return jnp.where(inside, jnp.where(some, coefficient + powers, limit), -jnp.inf)

    @property
    def mean(self) -> Array:
        """r exp(logits)."""
        return self.concentration * jnp.exp(self.logits)

    @property
    def variance(self) -> Array:
        """r exp(logits) (1 + exp(logits))."""
        return self.mean * (1.0 + jnp.exp(self.logits))
