"""Poisson counts as floats, for rates of any size."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.distributions import Poisson

from labelzoo.inference.stable import as_floats

LARGE = {64: 1e7, 32: 1e4}
"""Rates from which a draw is a rounded quantile, by the bits of the floats."""
LARGE_ERROR = 0.012
"""Largest error of the distribution function at a rate from `LARGE` on, times the rate."""


def draw_counts(key: Array, rate: Any) -> Array:
    """Draw Poisson counts as whole floats, of the shape of `rate`.

    Up to `LARGE` by `jax.random.poisson`. Beyond, where that loses the digits of log k! or the integers end,
    by the Cornish-Fisher quantile rate + rate^(1/2) z + (z^2 - 1) / 6 at a normal z, rounded: the error of
    the distribution function is below `LARGE_ERROR` / rate, 1.2e-9 in float64.
    """
    rate = as_floats(rate)[0]
    large = LARGE[jnp.finfo(rate.dtype).bits]
    small_key, large_key = jax.random.split(key)
    exact = jax.random.poisson(small_key, jnp.minimum(rate, large)).astype(rate.dtype)
    z = jax.random.normal(large_key, rate.shape, rate.dtype)
    quantile = jnp.round(rate + jnp.sqrt(rate) * z + (z**2 - 1.0) / 6.0)
    return jnp.where(rate > large, quantile, exact)


class FloatPoisson(Poisson):
    """`numpyro.distributions.Poisson` with draws that are whole floats and do not saturate.

    Parameters
    ----------
    rate : array_like
        At least 0.
    """

    exact_zeros = True
    """A draw of 0 is a value of the law and no underflow."""

    def sample(self, key: Array | None, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw an array of shape ``sample_shape + batch_shape``; see `draw_counts`."""
        assert key is not None
        return draw_counts(key, jnp.broadcast_to(self.rate, sample_shape + self.batch_shape))
