r"""Exact moments, Laplace transform and tilt of the Polya-Gamma distribution, stable for every tilt.

Polson, Scott and Windle (2013), JASA 108, equations 1 to 7: :math:`\omega \sim PG(b, c)` has :math:`E e^{-t
\omega} = \cosh^b(c/2) / \cosh^b(\sqrt{c^2/4 + t/2})`. With :math:`h(s) = \log\cosh\sqrt s` and :math:`s =
c^2/4` every quantity here is a combination of :math:`h` and its derivatives: mean :math:`b h'/2`, variance
:math:`-b h''/4`, third cumulant :math:`b h'''/8`. The closed forms cancel for small :math:`s`, where the
power series :math:`h(s) = \sum_n a_n s^n` is used instead (:math:`a_n = (-1)^{n-1} \pi^{-2n} \zeta(2n, 1/2)
/ n`, radius :math:`\pi^2/4`); only :math:`e^{-|c|}` is ever exponentiated, so nothing overflows.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import zeta

SERIES_BELOW = 0.6
_LOG2 = float(np.log(2.0))
_N = np.arange(1, 31)
_COEFFICIENTS = (-1.0) ** (_N - 1) * zeta(2.0 * _N, 0.5) / (_N * np.pi ** (2.0 * _N))


def as_floats(*values: Any) -> tuple[jax.Array, ...]:
    """Return the inputs as arrays of one floating dtype: JAX promotion, integers to the default float."""
    values = tuple(jnp.asarray(v) if isinstance(v, list | tuple) else v for v in values)
    dtype = jnp.result_type(*values)
    if not jnp.issubdtype(dtype, jnp.floating):
        dtype = jnp.result_type(float)
    return tuple(jnp.asarray(v, dtype) for v in values)


def _series(s: jax.Array, weights: np.ndarray, lowest_power: int) -> jax.Array:
    """Evaluate ``sum_n a_n weights_n s^(n - lowest_power)`` over ``n >= max(lowest_power, 1)`` by Horner."""
    coefficients = (_COEFFICIENTS * weights)[max(lowest_power, 1) - 1 :]
    total = jnp.zeros_like(s)
    for a in coefficients[::-1].tolist():  # Python floats: they keep float32
        total = total * s + a
    return total * s if lowest_power == 0 else total


def _split(c: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]:
    """Return (use series, s for the series, z, tanh z, sech^2 z, log cosh z), z = |c|/2 kept off zero."""
    s = c * c / 4
    near = jnp.abs(c) < 2 * SERIES_BELOW**0.5
    z = jnp.where(near, 1, jnp.abs(c) / 2)
    e = jnp.exp(-2 * z)
    return near, jnp.where(near, s, 0), z, (1 - e) / (1 + e), 4 * e / (1 + e) ** 2, z + jnp.log1p(e) - _LOG2


@jax.jit
def log_cosh_half(c: Any) -> jax.Array:
    """Return ``log cosh(c / 2)`` elementwise, exact to rounding for small and for large ``c``."""
    (c,) = as_floats(c)
    near, s, _, _, _, log_cosh = _split(c)
    return jnp.where(near, _series(s, np.ones(30), 0), log_cosh)


@jax.jit
def mean(b: Any, c: Any) -> jax.Array:
    """Mean ``b tanh(c/2) / (2 c)`` of PG(b, c), elementwise, in the dtype of the inputs."""
    b, c = as_floats(b, c)
    near, s, z, tanh, _, _ = _split(c)
    return b * jnp.where(near, _series(s, _N / 2, 1), tanh / (4 * z))


@jax.jit
def variance(b: Any, c: Any) -> jax.Array:
    """Variance ``b (sinh c - c) / (4 c^3 cosh^2(c/2))`` of PG(b, c), elementwise."""
    b, c = as_floats(b, c)
    near, s, z, tanh, sech2, _ = _split(c)
    return b * jnp.where(near, _series(s, -_N * (_N - 1) / 4, 2), (tanh - z * sech2) / (16 * z) / z / z)


@jax.jit
def third_cumulant(b: Any, c: Any) -> jax.Array:
    """Third cumulant ``b (3 tanh z - 3 z sech^2 z - 2 z^2 sech^2 z tanh z) / (64 z^5)``, z = c/2."""
    b, c = as_floats(b, c)
    near, s, z, tanh, sech2, _ = _split(c)
    numerator = 3 * tanh - 3 * z * sech2 - 2 * z * z * sech2 * tanh
    far = numerator / (64 * z) / (z * z) / (z * z)
    return b * jnp.where(near, _series(s, _N * (_N - 1) * (_N - 2) / 8, 3), far)


@jax.jit
def log_laplace(b: Any, c: Any, t: Any) -> jax.Array:
    r"""Log Laplace transform :math:`\log E \exp(-t \omega)` of PG(b, c), elementwise.

    Parameters
    ----------
    b, c : array_like
        Shape (positive) and tilt.
    t : array_like
        Argument, ``t >= -c**2 / 2``; below it the result is NaN.

    Returns
    -------
    jax.Array
        ``-b (log cosh z1 - log cosh z0)``, ``z0 = |c|/2``, ``z1 = sqrt(c^2/4 + t/2)``, without cancellation:
        from ``cosh z1 - cosh z0 = 2 sinh((z1+z0)/2) sinh((z1-z0)/2)`` scaled by ``exp(-z0)``.
    """
    b, c, t = as_floats(b, c, t)
    z0 = jnp.abs(c) / 2
    z1 = jnp.sqrt(z0 * z0 + t / 2)
    total = z1 + z0
    delta = jnp.where(total > 0, t / 2 / jnp.where(total > 0, total, 1), 0)
    # ratio = (cosh z1 - cosh z0) / cosh z0, numerator and denominator scaled by e^{-z0}
    near = delta < 1
    small = jnp.where(near, delta, 0)
    ratio = -jnp.expm1(-total) * jnp.sinh(small / 2) * jnp.exp(small / 2) * 2 / (1 + jnp.exp(-2 * z0))
    far = delta + jnp.log1p(jnp.exp(-2 * z1)) - jnp.log1p(jnp.exp(-2 * z0))
    return -b * jnp.where(near, jnp.log1p(ratio), far)


@jax.jit
def log_tilt(omega: Any, b: Any, c: Any) -> jax.Array:
    """``log PG(omega | b, c) - log PG(omega | b, 0) = -c^2 omega / 2 + b log cosh(c/2)``, elementwise."""
    omega, b, c = as_floats(omega, b, c)
    return b * log_cosh_half(c) - c * (c * omega) / 2


@jax.jit
def kl_from_untilted(b: Any, c: Any) -> jax.Array:
    """KL(PG(b, c) || PG(b, 0)) = ``b log cosh(c/2) - c^2 E[omega] / 2`` in nats, elementwise."""
    b, c = as_floats(b, c)
    near, s, z, tanh, _, log_cosh = _split(c)
    return b * jnp.where(near, _series(s, 1.0 - _N, 0), log_cosh - z * tanh / 2)
