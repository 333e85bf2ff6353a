"""The logarithm of a gamma variable, for shapes so small that the variable itself underflows."""

from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.scipy.special import digamma, polygamma
from numpyro.distributions import constraints
from numpyro.distributions.distribution import Distribution
from numpyro.distributions.util import validate_sample

from labelzoo.inference.gamma_draws import blocked_log_gamma
from labelzoo.inference.stable import as_floats, gammaln_positive


def finite_log_gamma(key: Array, concentration: Array) -> Array:
    """Draw log Gamma(concentration, 1), floored at an eighth of the lowest float so that sums stay finite."""
    return jnp.maximum(blocked_log_gamma(key, concentration), jnp.finfo(concentration.dtype).min / 8)


class LogGamma(Distribution):
    r"""Law of x = log u for u ~ Gamma(a, rate = exp(log_rate)).

    Density :math:`\exp(a (x + \rho) - e^{x + \rho}) / \Gamma(a)` on the real line, :math:`\rho` the log rate.

    Parameters
    ----------
    concentration : array
        Shapes a > 0, down to 1e-30.
    log_rate : array
        Logarithms of the rates, finite reals; broadcast against ``concentration``.
    """

    arg_constraints = {"concentration": constraints.positive, "log_rate": constraints.real}
    support = constraints.real

    def __init__(self, concentration: Any, log_rate: Any = 0.0, *, validate_args: bool | None = None) -> None:
        self.concentration, self.log_rate = jnp.broadcast_arrays(*as_floats(concentration, log_rate))
        super().__init__(jnp.shape(self.concentration), validate_args=validate_args)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw log u; finite for every shape."""
        shape = sample_shape + jnp.shape(self.concentration)
        return finite_log_gamma(key, jnp.broadcast_to(self.concentration, shape)) - self.log_rate

    @validate_sample
    def log_prob(self, value: Any) -> Array:
        """Log density of x = log u."""
        shifted = jnp.asarray(value, self.concentration.dtype) + self.log_rate
        return self.concentration * shifted - jnp.exp(shifted) - gammaln_positive(self.concentration)

    @property
    def mean(self) -> Array:
        """digamma(a) - log_rate, as digamma(1 + a) - 1/a: finite for tiny shapes."""
        return digamma(1.0 + self.concentration) - 1.0 / self.concentration - self.log_rate

    @property
    def variance(self) -> Array:
        """trigamma(a), as trigamma(1 + a) + 1/a^2."""
        return polygamma(1, 1.0 + self.concentration) + 1.0 / self.concentration**2
