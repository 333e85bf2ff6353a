"""The normal law of the unobserved labels given their precisions, and draws of it that never form its matrix.

Matheron's rule: with y ~ N(0, D^-1), D = diag(precision), and e ~ N(0, S), where S is the covariance under
which 0 = A y + r + e is observed,

    y - D^-1 A' (A D^-1 A' + S)^-1 (A y + r + e)

has the law exp(-y' D y / 2 - (A y + r)' S^-1 (A y + r) / 2). Over the whole graph A y + r is Phi Y' and S =
C kron I, of size rows x measurements; given the compressed labels each row is on its own, of size
measurements.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular
from numpyro.distributions import constraints
from numpyro.distributions.distribution import Distribution

from labelzoo.inference.stable import as_floats
from labelzoo.models.sparse_bayes import filled, log_regression

Array = Any

ARGUMENTS = {
    "precision": constraints.independent(constraints.positive, 1),
    "Y": constraints.real_matrix,
    "cell_row": constraints.independent(constraints.nonnegative_integer, 1),
    "cell_label": constraints.independent(constraints.nonnegative_integer, 1),
    "projection": constraints.real_matrix,
}


class _Cells(Distribution):
    """What both laws share: a log density up to a constant, one event axis (cell,)."""

    support = constraints.real_vector
    normalized = False

    precision: Array
    Y: Array
    cell_row: Array
    cell_label: Array
    projection: Array

    def _hold(self, precision: Any, Y: Any, cell_row: Any, cell_label: Any, projection: Any) -> None:
        self.precision, self.Y, self.projection = as_floats(precision, Y, projection)
        self.cell_row, self.cell_label = jnp.asarray(cell_row), jnp.asarray(cell_label)

    def log_prob(self, value: Any) -> Array:
        """Log density up to a constant, of a value or of several."""
        value = jnp.asarray(value, self.precision.dtype)
        flat = value.reshape(-1, value.shape[-1])
        return jax.vmap(self._log_density)(flat).reshape(value.shape[:-1])

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw by Matheron's rule."""
        count = 1
        for size in sample_shape:
            count *= size
        draws = jax.lax.map(self._draw, jax.random.split(key, count))
        return draws.reshape(*sample_shape, draws.shape[-1])

    def _compressed(self, y: Array) -> Array:
        return filled(self.Y, self.cell_row, self.cell_label, y) @ self.projection.T

    def _weights(self) -> Array:
        """Return 1 / precision at the cells and 0 elsewhere: (obs, labels)."""
        return filled(jnp.zeros_like(self.Y), self.cell_row, self.cell_label, 1.0 / self.precision)

    def _grams(self, weights: Array) -> Array:
        """Return Phi W_n Phi' of every row: (obs, measurement, measurement)."""
        scaled = self.projection[None] * weights[:, None, :]
        return scaled @ self.projection.T

    def _log_density(self, y: Array) -> Array:
        raise AssertionError("each law has its own")  # pragma: no cover

    def _draw(self, key: Array) -> Array:
        raise AssertionError("each law has its own")  # pragma: no cover


class CompletedGraph(_Cells):
    """p(Y_U | alpha, Y_O), all cells jointly: log density -y' D y / 2 - tr(Phi Y' C^-1 Y Phi') / 2.

    A draw costs (rows measurements)^3 / 3 flops and 8 (rows measurements)^2 bytes.

    Parameters
    ----------
    precision : array (cell,)
    Y : array (obs, labels)
        What stands at the cells is not read.
    cell_row, cell_label : int array (cell,)
    projection : array (measurement, labels)
    cholesky : array (obs, obs)
        Lower factor of C.
    """

    arg_constraints = {**ARGUMENTS, "cholesky": constraints.real_matrix}
    pytree_data_fields = tuple(arg_constraints)

    def __init__(
        self,
        precision: Any,
        Y: Any,
        cell_row: Any,
        cell_label: Any,
        projection: Any,
        cholesky: Any,
        *,
        validate_args: bool | None = None,
    ) -> None:
        self._hold(precision, Y, cell_row, cell_label, projection)
        (self.cholesky,) = as_floats(cholesky)
        super().__init__((), jnp.shape(self.precision), validate_args=validate_args)

    def _log_density(self, y: Array) -> Array:
        return -0.5 * (self.precision * y**2).sum() + log_regression(self._compressed(y), self.cholesky)

    def _draw(self, key: Array) -> Array:
        prior_key, error_key = jax.random.split(key)
        (n, k), dtype = (self.Y.shape[0], self.projection.shape[0]), self.precision.dtype
        weights, L = self._weights(), jnp.tril(self.cholesky)
        blocks, rows = self._grams(weights), jnp.arange(n)
        M = (L @ L.T)[:, None, :, None] * jnp.eye(k, dtype=dtype)[None, :, None, :]
        M = M.at[rows, :, rows, :].add(blocks).reshape(n * k, n * k)
        prior = jax.random.normal(prior_key, self.precision.shape, dtype) * self.precision**-0.5
        right = self._compressed(prior) + L @ jax.random.normal(error_key, (n, k), dtype)
        solved = cho_solve((jnp.linalg.cholesky(M), True), right.reshape(-1)).reshape(n, k)
        shift = weights * (solved @ self.projection)
        return prior - shift[self.cell_row, self.cell_label]


class CompletedRows(_Cells):
    """p(Y_U | alpha, Z, Y_O): rows independent, log density -y' D y / 2 - |Z - Y Phi'|^2 / (2 chi2).

    A draw costs labels measurement^2 + measurement^3 / 3 flops a row.

    Parameters
    ----------
    precision, Y, cell_row, cell_label, projection
        As in `CompletedGraph`.
    compressed : array (obs, measurement)
    chi2 : float
    """

    arg_constraints = {**ARGUMENTS, "compressed": constraints.real_matrix, "chi2": constraints.positive}
    pytree_data_fields = tuple(arg_constraints)

    def __init__(
        self,
        precision: Any,
        Y: Any,
        cell_row: Any,
        cell_label: Any,
        projection: Any,
        compressed: Any,
        chi2: Any,
        *,
        validate_args: bool | None = None,
    ) -> None:
        self._hold(precision, Y, cell_row, cell_label, projection)
        self.compressed, self.chi2 = as_floats(compressed, chi2)
        super().__init__((), jnp.shape(self.precision), validate_args=validate_args)

    def _log_density(self, y: Array) -> Array:
        gap = self.compressed - self._compressed(y)
        return -0.5 * (self.precision * y**2).sum() - 0.5 * (gap**2).sum() / self.chi2

    def _draw(self, key: Array) -> Array:
        prior_key, error_key = jax.random.split(key)
        dtype, weights = self.precision.dtype, self._weights()
        eye = jnp.eye(self.projection.shape[0], dtype=dtype)
        root = jnp.linalg.cholesky(self._grams(weights) + self.chi2 * eye)
        prior = jax.random.normal(prior_key, self.precision.shape, dtype) * self.precision**-0.5
        error = jnp.sqrt(self.chi2) * jax.random.normal(error_key, self.compressed.shape, dtype)
        right = (self._compressed(prior) - self.compressed + error)[..., None]
        half = solve_triangular(root, right, lower=True)
        solved = solve_triangular(root, half, lower=True, trans=1)[..., 0]
        shift = weights * (solved @ self.projection)
        return prior - shift[self.cell_row, self.cell_label]
