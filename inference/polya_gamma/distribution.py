"""The Polya-Gamma law as a NumPyro distribution."""

from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import Distribution, constraints
from numpyro.distributions.util import validate_sample

from labelzoo.inference.polya_gamma.density import log_density
from labelzoo.inference.polya_gamma.moments import as_floats, log_tilt, mean, variance
from labelzoo.inference.polya_gamma.sampler import sample_polya_gamma


class PolyaGamma(Distribution):
    """Polya-Gamma distribution PG(b, c).

    Parameters
    ----------
    concentration : array_like
        Shape ``b``, positive.
    tilting : array_like
        Tilt ``c``, real.
    validate_args : bool, optional
        NumPyro's argument checks.
    """

    arg_constraints = {"concentration": constraints.positive, "tilting": constraints.real}
    support = constraints.positive
    reparametrized_params: list[str] = []
    pytree_data_fields = ("concentration", "tilting")

    def __init__(self, concentration: Any = 1.0, tilting: Any = 0.0, *, validate_args: bool | None = None):
        concentration, tilting = as_floats(concentration, tilting)
        self.concentration, self.tilting = jnp.broadcast_arrays(concentration, tilting)
        super().__init__(batch_shape=self.concentration.shape, validate_args=validate_args)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draw an array of shape ``sample_shape + batch_shape``; see :func:`sample_polya_gamma`."""
        return sample_polya_gamma(
            key, self.concentration, self.tilting, shape=tuple(sample_shape) + self.batch_shape
        )

    @validate_sample
    def log_prob(self, value: Any) -> jax.Array:
        """Log density at ``value``: the base density by inversion, plus the tilt."""
        return log_density(value, self.concentration) + log_tilt(value, self.concentration, self.tilting)

    @property
    def mean(self) -> jax.Array:
        """Exact mean."""
        return mean(self.concentration, self.tilting)

    @property
    def variance(self) -> jax.Array:
        """Exact variance."""
        return variance(self.concentration, self.tilting)
