r"""Gamma draws in cache-sized blocks, exact for every shape, and their logarithms for small shapes.

Marsaglia and Tsang (2000), "A simple method for generating gamma variables", ACM Transactions on
Mathematical Software 26(3): with :math:`d = \alpha - 1/3` and :math:`z = x / (3 \sqrt d)`, :math:`x`
standard normal, the proposal :math:`d (1 + z)^3` is accepted when :math:`\log u < x^2/2 + d - d (1+z)^3 + 3
d \log(1 + z)`. Since :math:`x^2 / 2 = 9 d z^2 / 2`, the right-hand side equals :math:`d\,[3 (\log(1+z) - z
+ z^2/2) - z^3]`, which keeps its digits when :math:`\alpha` is large.
"""

from typing import Any

import jax
import jax.numpy as jnp

from labelzoo.inference.rejection import map_blocks, normal_and_uniforms, rejection_draws

_SERIES_BELOW = 0.1
_SERIES_TERMS = 12


def _log_acceptance(d: jax.Array, z: jax.Array) -> jax.Array:
    """Log acceptance rate of the proposal ``d (1 + z)^3``: a series near z = 0, else the closed form."""
    near = jnp.abs(z) < _SERIES_BELOW
    small = jnp.where(near, z, 0)
    series = jnp.zeros_like(z)
    for n in range(_SERIES_TERMS, 3, -1):
        series = series * small + 3 * (-1) ** (n + 1) / n
    big = jnp.where(near | (z <= -1), 1, z)
    closed = 3 * (jnp.log1p(big) - big + big**2 / 2) - big**3
    return jnp.where(z > -1, d * jnp.where(near, series * small**4, closed), -jnp.inf)


def _propose_ratio(key: jax.Array, alpha: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Propose ``(1 + z)^3``, the draw over ``alpha - 1/3``, for ``alpha >= 1``."""
    normal, u = normal_and_uniforms(key, alpha, 1)
    d = alpha - 1 / 3
    z = normal / (3 * jnp.sqrt(d))
    return (1 + z) ** 3, u < jnp.exp(_log_acceptance(d, z))


def unit_gamma_block(key: jax.Array, alpha: jax.Array, active: jax.Array | None = None) -> jax.Array:
    """Draw Gamma(alpha, 1) for one flat block with every ``alpha >= 1``."""
    return rejection_draws(key, _propose_ratio, (alpha,), active) * (alpha - 1 / 3)


def _safe_alpha(alpha: Any) -> tuple[jax.Array, jax.Array]:
    """Return alpha as a floating array with bad entries replaced by 1, and the mask of good entries."""
    alpha = jnp.asarray(alpha)
    if not jnp.issubdtype(alpha.dtype, jnp.floating):
        alpha = alpha.astype(jnp.result_type(float))
    good = jnp.isfinite(alpha) & (alpha > 0)
    return jnp.where(good, alpha, 1), good


def blocked_gamma(key: jax.Array, alpha: Any) -> jax.Array:
    """Draw Gamma variates with unit rate, about ten times faster than ``jax.random.gamma`` on a CPU.

    Parameters
    ----------
    key : jax.Array
        JAX key.
    alpha : array_like
        Shapes, any shape of array, positive and finite; the dtype of the draws follows it.

    Returns
    -------
    jax.Array
        Draws of the shape and dtype of ``alpha``; never 0 (floored at the smallest normal number: take
        ``blocked_log_gamma`` where alpha is below .1 or so and a logarithm follows). NaN where alpha is not a
        positive finite number.
    """
    safe, good = _safe_alpha(alpha)
    gamma_key, boost_key = jax.random.split(key)
    lifted = jnp.where(safe < 1, safe + 1, safe)
    draws = map_blocks(unit_gamma_block, gamma_key, (lifted,), (1.0,))
    exponential = jax.random.exponential(boost_key, safe.shape, safe.dtype)
    draws = draws * jnp.exp(jnp.where(safe < 1, -exponential / safe, 0))
    return jnp.where(good, jnp.maximum(draws, jnp.finfo(safe.dtype).tiny), jnp.nan)


def blocked_log_gamma(key: jax.Array, alpha: Any) -> jax.Array:
    """Draw the logarithm of Gamma variates with unit rate; finite for shapes as small as 1e-30.

    Uses ``log Gamma(a) = log Gamma(a + 1) + log(U) / a`` below shape 1 (Marsaglia and Tsang 2000, section 6).

    Parameters
    ----------
    key : jax.Array
        JAX key.
    alpha : array_like
        Shapes, any shape of array, positive and finite; the dtype of the draws follows it.

    Returns
    -------
    jax.Array
        Log draws of the shape and dtype of ``alpha``; NaN where alpha is not a positive finite number.
    """
    safe, good = _safe_alpha(alpha)
    gamma_key, boost_key = jax.random.split(key)
    lifted = jnp.where(safe < 1, safe + 1, safe)
    log_draws = jnp.log(map_blocks(unit_gamma_block, gamma_key, (lifted,), (1.0,)))
    exponential = jax.random.exponential(boost_key, safe.shape, safe.dtype)
    log_draws = log_draws - jnp.where(safe < 1, exponential / safe, 0)
    return jnp.where(good, log_draws, jnp.nan)
