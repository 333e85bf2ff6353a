"""The Polya-Gamma law for shapes b >= 0: PG(0, c) is the point mass at 0."""

from typing import Any

import jax.numpy as jnp
from jax import Array
from numpyro.distributions import constraints
from numpyro.distributions.constraints import Constraint
from numpyro.distributions.distribution import Distribution
from numpyro.distributions.util import validate_sample

from labelzoo.inference.polya_gamma import PolyaGamma
from labelzoo.inference.stable import as_floats


class AtomOrPositive(Constraint):
    """Exactly 0 where `is_atom`, positive elsewhere."""

    is_discrete = False
    event_dim = 0

    def __init__(self, is_atom: Any) -> None:
        self.is_atom = is_atom

    def __call__(self, x: Any) -> Any:
        """Return where `x` lies in the support."""
        return jnp.where(self.is_atom, x == 0, x > 0)

    def feasible_like(self, prototype: Any) -> Array:
        """Return a value in the support of the shape of `prototype`."""
        return jnp.where(self.is_atom, 0.0, jnp.ones_like(prototype))

    def tree_flatten(self) -> Any:
        """Return what is traced and what is not."""
        return (self.is_atom,), (("is_atom",), {})


class AtomPolyaGamma(Distribution):
    """PG(b, c) for b >= 0, its density that of `labelzoo.inference.polya_gamma.PolyaGamma` where b > 0.

    Where b = 0 the law is the point mass at 0, of log density 0 there with respect to the counting measure.

    Parameters
    ----------
    concentration : array_like
        Shape b, at least 0.
    tilting : array_like
        Tilt c, real.
    """

    arg_constraints = {"concentration": constraints.nonnegative, "tilting": constraints.real}
    reparametrized_params: list[str] = []
    pytree_data_fields = ("concentration", "tilting")
    exact_zeros = True
    """A draw of 0 is a value of the law and no underflow."""

    def __init__(
        self, concentration: Any = 1.0, tilting: Any = 0.0, *, validate_args: bool | None = None
    ) -> None:
        concentration, tilting = as_floats(concentration, tilting)
        self.concentration, self.tilting = jnp.broadcast_arrays(concentration, tilting)
        super().__init__(batch_shape=self.concentration.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Constraint:
        """Zero where the shape is 0, positive elsewhere."""
        return AtomOrPositive(self.concentration == 0)

    def _positive(self) -> PolyaGamma:
        is_atom = self.concentration == 0
        shape = jnp.where(is_atom, 1.0, self.concentration)
        return PolyaGamma(shape, jnp.where(is_atom, 0.0, self.tilting), validate_args=False)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw an array of shape ``sample_shape + batch_shape``."""
        return jnp.where(self.concentration == 0, 0.0, self._positive().sample(key, sample_shape))

    @validate_sample
    def log_prob(self, value: Any) -> Array:
        """Log density where b > 0; 0 at the atom."""
        value = jnp.asarray(value, self.concentration.dtype)
        inside = jnp.where(value > 0, value, 1.0)
        density = jnp.where(value > 0, self._positive().log_prob(inside), -jnp.inf)
        return jnp.where(self.concentration == 0, jnp.where(value == 0, 0.0, -jnp.inf), density)

    @property
    def mean(self) -> Array:
        """Exact mean."""
        return jnp.where(self.concentration == 0, 0.0, self._positive().mean)

    @property
    def variance(self) -> Array:
        """Exact variance."""
        return jnp.where(self.concentration == 0, 0.0, self._positive().variance)
