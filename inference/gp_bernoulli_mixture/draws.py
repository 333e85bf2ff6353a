"""Fast draws of two conditionals of gp_bernoulli_mixture: gates without an inverse, probabilities by logs."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from labelzoo.inference.gamma_draws import blocked_log_gamma

Array = Any
Inputs = Mapping[str, Any]

LOW_RANK = 0.35
"""Below this share of the rows, the basis is cheaper than the rows: 2 obs basis^2 flops to form a precision
against obs^3 / 3 to factor I + s F F' s."""
NARROWEST = 1e-12
"""Probabilities of components are kept this far from 0 and 1."""


def by_rows(inputs: Inputs) -> bool:
    """Return whether gates are drawn by a factorisation among rows rather than in the basis."""
    rows, basis = np.shape(inputs["factor"])
    return basis >= LOW_RANK * rows


def draw_white(key: Array, omega: Array, potential: Array, inputs: Inputs) -> Array:
    """Draw white_k from the normal law exp(potential_k' f - omega_k f^2 / 2) N(0, I): (component, basis).

    `omega` and `potential` are (obs, component), the latter 0 where omega is; f = F white. One component
    after another, without the inverse of a kernel. By rows (Matheron's rule), with s = omega^(1/2), r the
    potential and B = I + s F F' s,

        white = w + F' s B^-1 (r / s - s F w - e),   w and e standard normal.

    B has no eigenvalue below 1, whatever the rows: duplicates and omega = 0 are harmless. One Cholesky
    factorisation a component, of obs x obs, obs^3 / 3 flops, or of basis x basis where that is cheaper (see
    `LOW_RANK`). Memory a chain: two such matrices, whatever the number of components.
    """
    F = jnp.asarray(inputs["factor"])
    noise = jax.random.normal(key, (potential.shape[1], F.shape[1] + F.shape[0]), F.dtype)
    if not by_rows(inputs):
        return jax.lax.map(lambda part: _in_basis(F, *part), (omega.T, potential.T, noise))
    K = jnp.asarray(inputs["gram"]) if "gram" in inputs else F @ F.T
    return jax.lax.map(lambda part: _among_rows(F, K, *part), (omega.T, potential.T, noise))


def _among_rows(F: Array, K: Array, omega: Array, potential: Array, noise: Array) -> Array:
    s = jnp.sqrt(omega)
    target = jnp.where(omega > 0, potential / jnp.where(omega > 0, s, 1.0), 0.0)
    white, rest = noise[: F.shape[1]], noise[F.shape[1] :]
    L = jax.lax.linalg.cholesky(jnp.eye(F.shape[0]) + s[:, None] * K * s, symmetrize_input=False)
    half = solve_triangular(L, target - s * (F @ white) - rest, lower=True)
    return white + (s * solve_triangular(L, half, lower=True, trans=1)) @ F


def _in_basis(F: Array, omega: Array, potential: Array, noise: Array) -> Array:
    P = jnp.eye(F.shape[1]) + (F * omega[:, None]).T @ F
    L = jax.lax.linalg.cholesky(P, symmetrize_input=False)
    half = solve_triangular(L, potential @ F, lower=True) + noise[: F.shape[1]]
    return solve_triangular(L, half, lower=True, trans=1)


def draw_beta(key: Array, positive: Array, negative: Array) -> Array:
    """Draw Beta(positive, negative) within `NARROWEST` of 0 and 1, by logarithms of gamma variates.

    Both arrays of one shape; small parameters do not vanish.
    """
    on, off = blocked_log_gamma(key, jnp.stack([positive, negative]))
    return jnp.clip(jax.nn.sigmoid(on - off), NARROWEST, 1.0 - NARROWEST)
