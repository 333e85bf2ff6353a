"""Multivariate normal law by potential and precision: what a Gaussian conditional is before any solve."""

from math import log, pi
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import solve_triangular
from numpyro.distributions import constraints
from numpyro.distributions.distribution import Distribution
from numpyro.distributions.util import validate_sample

from labelzoo.inference.linalg import MAX_ESCALATIONS, cholesky_with_jitter
from labelzoo.inference.stable import as_floats


def _solve(factor: Array, vector: Array, transpose: bool) -> Array:
    """Solve L x = b or L' x = b for batches of vectors b, shapes (..., D, D) and (..., D)."""
    shape = jnp.broadcast_shapes(factor.shape[:-1], vector.shape)
    factor = jnp.broadcast_to(factor, (*shape, shape[-1]))
    vector = jnp.broadcast_to(vector, shape)[..., None]
    return solve_triangular(factor, vector, lower=True, trans=1 if transpose else 0)[..., 0]


class GaussianNatural(Distribution):
    """Normal law with mean P^-1 h and covariance P^-1, from potential h and precision matrix P.

    One Cholesky factorisation P = L L' serves everything: w = L'^-1 (L^-1 h + z).

    Parameters
    ----------
    potential : array, shape (..., D)
        h, the linear coefficient of the log density.
    precision : array, shape (..., D, D)
        P, symmetric positive definite. Where the factorisation fails, a jitter relative to the mean diagonal
        is added (attributes ``jitter`` and ``escalations``: 0 in the regular case). Inside ``jit``, or
        without argument validation, an indefinite P ends in NaN everywhere.

    Raises
    ------
    ValueError
        If the shapes of ``potential`` and ``precision`` do not fit, or ``precision`` is not positive
        definite.
    """

    arg_constraints = {"potential": constraints.real_vector, "precision": constraints.real_matrix}
    support = constraints.real_vector
    pytree_data_fields = ("potential", "precision", "factor", "jitter", "escalations")

    def __init__(self, potential: Any, precision: Any, *, validate_args: bool | None = None) -> None:
        potential, precision = as_floats(potential, precision)
        size = jnp.shape(potential)[-1:]
        if not size or jnp.shape(precision)[-2:] != size * 2:
            raise ValueError(
                f"GaussianNatural: precision of shape {jnp.shape(precision)} does not fit "
                f"potential of shape {jnp.shape(potential)}"
            )
        batch = jnp.broadcast_shapes(jnp.shape(potential)[:-1], jnp.shape(precision)[:-2])
        self.factor, self.jitter, self.escalations = cholesky_with_jitter(precision)
        self.potential, self.precision = jnp.broadcast_to(potential, batch + size), precision
        super().__init__(batch, size, validate_args=validate_args)
        checked = self._validate_args and not isinstance(self.escalations, jax.core.Tracer)
        if checked and bool((self.escalations > MAX_ESCALATIONS).any()):
            raise ValueError("GaussianNatural: precision is not positive definite, even with jitter")

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw w = L'^-1 (L^-1 h + z), z standard normal."""
        shape = sample_shape + jnp.shape(self.potential)
        noise = jax.random.normal(key, shape, self.potential.dtype)
        return _solve(self.factor, self._whitened() + noise, transpose=True)

    @validate_sample
    def log_prob(self, value: Any) -> Array:
        """Log density, by |L' w - L^-1 h|^2: no solve with P."""
        value = jnp.asarray(value, self.potential.dtype)
        white = jnp.einsum("...ij,...i->...j", self.factor, value) - self._whitened()
        log_diagonal = jnp.log(jnp.diagonal(self.factor, axis1=-2, axis2=-1)).sum(-1)
        return log_diagonal - 0.5 * (white**2).sum(-1) - 0.5 * value.shape[-1] * log(2 * pi)

    def _whitened(self) -> Array:
        return _solve(self.factor, self.potential, transpose=False)

    @property
    def mean(self) -> Array:
        """P^-1 h, shape (..., D)."""
        return _solve(self.factor, self._whitened(), transpose=True)

    @property
    def covariance_matrix(self) -> Array:
        """P^-1, shape (..., D, D), symmetric by construction."""
        identity = jnp.broadcast_to(
            jnp.eye(self.factor.shape[-1], dtype=self.factor.dtype), self.factor.shape
        )
        root = solve_triangular(self.factor, identity, lower=True)
        covariance = jnp.swapaxes(root, -1, -2) @ root
        return jnp.broadcast_to(covariance, jnp.shape(self.potential) + covariance.shape[-1:])

    @property
    def variance(self) -> Array:
        """Diagonal of P^-1, shape (..., D)."""
        return jnp.diagonal(self.covariance_matrix, axis1=-2, axis2=-1)
