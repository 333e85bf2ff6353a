r"""Exact Polya-Gamma draws by rejection from a tilted inverse Gaussian.

**Envelope.** Expanding :math:`\cosh^{-b}` in powers of :math:`e^{-2z}` (Polson, Scott and Windle 2013,
section 2.3) gives :math:`f(x | b, 0) = 2^b \ell_{b/2}(x) \rho_b(x)`, where :math:`\ell_{b/2}` is the
density of the first passage of Brownian motion at :math:`b/2` (Levy's, the inverse Gaussian of infinite
mean and shape :math:`b^2/4`) and

.. math:: \rho_b(x) = \sum_{n \ge 0} (-1)^n \binom{n+b-1}{n} \frac{b + 2n}{b} e^{-n(n+b)/(2x)} .

:math:`(1 + e^{-2z})^{b}` is :math:`2^b` times the Laplace transform of a compound Poisson law with an atom
:math:`2^{-b}` at 0, so the first passage is a Polya-Gamma plus an independent compound Poisson jump: hence
:math:`0 < \rho_b \le 1` for every real :math:`b > 0` and every :math:`x`. :math:`\log \rho_b` is concave
and decreasing (checked on a grid of b and x by the tests), so the tangent at any point :math:`x_0` bounds
it, :math:`\rho_b(x) \le \exp(L - s x / 2)` with :math:`s = -2 (\log \rho_b)'(x_0)`. The proposal is
therefore inverse Gaussian, shape :math:`b^2/4` and mean :math:`b / (2\sqrt{c^2 + s})`, accepted with
probability :math:`\rho_b(x) \exp(s x/2 - L)`. With :math:`x_0` near the proposal's own mean the acceptance
rate is at least .81 for every b and c (.99 at b = .01, .85 at b = 1) and tends to 1 as c grows: the tilted
law becomes the proposal.

The alternating sum loses digits like :math:`\exp(2 b e^{-\sqrt{c^2+4}})`; :func:`envelope_holds` says where
the sum keeps them in 32 bits, and the rest is left to :mod:`labelzoo.inference.polya_gamma.remainder`.
"""

from typing import Any

import jax
import jax.numpy as jnp

from labelzoo.inference.rejection import normal_and_uniforms, rejection_draws

_CANCELLATION = 1.15
_TANGENT_FLOOR = 4e-3


def envelope_holds(b: jax.Array, c: jax.Array) -> jax.Array:
    """Whether the alternating sum keeps its digits: all ``b < 8.4``, and larger ``b`` the larger ``c`` is."""
    return b * jnp.exp(-jnp.sqrt(c * c + 4)) <= _CANCELLATION


def _terms(dtype: Any) -> tuple[int, float]:
    """Return the terms kept and the size of the last one above which the sum counts as 0 (far right tail)."""
    return (16, 1e-6) if jnp.finfo(dtype).bits <= 32 else (26, 1e-13)


def passage_ratio(b: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return ``rho_b(x)`` and its derivative in ``x`` by the alternating sum, elementwise.

    Parameters
    ----------
    b, x : jax.Array
        Shape and point, positive, of one shape and dtype.

    Returns
    -------
    ratio : jax.Array
        ``rho_b(x)`` with an absolute error near the machine epsilon; 0 where the sum has not converged.
    slope : jax.Array
        Its derivative.
    """
    count, tolerance = _terms(x.dtype)
    half = 1 / (2 * x)
    first, square = jnp.exp(-(1 + b) * half), jnp.exp(-2 * half)
    term, power = first, jnp.ones_like(first)
    ratio, slope = jnp.ones_like(first), jnp.zeros_like(first)
    for n in range(1, count + 1):
        signed = (1 if n % 2 == 0 else -1) * term * (b + 2 * n)
        ratio = ratio + signed
        slope = slope + signed * (n * (n + b))
        power = power * square
        term = term * ((n + b) * (1 / (n + 1))) * (first * power)
    converged = jnp.abs(signed) < tolerance
    return jnp.where(converged, ratio, 0), slope * half / x


def tangent(b: jax.Array, c: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return ``(s, L)`` of the bound ``rho_b(x) <= exp(L - s x / 2)``, near the best one for PG(b, c)."""
    # the optimal extra tilt at c = 0, fitted: 2 for large b, 1.65 at b = 1; any value gives a valid bound
    extra = -2 * jnp.expm1(-1.74 * b**0.64)
    x0 = jnp.maximum(b / (2 * jnp.sqrt(c * c + extra * extra)), _TANGENT_FLOOR)
    ratio, slope = passage_ratio(b, x0)
    s = jnp.maximum(-2 * slope / ratio, 0)
    return s, jnp.log(ratio) + s * x0 / 2


def _inverse_gaussian(normal: jax.Array, u: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
    """Inverse Gaussian of mean ``b/(2c)`` and shape ``b^2/4`` (Michael, Schucany, Haas 1976); Levy at c=0."""
    y, product = normal * normal, b * c
    small = b * (b / 2 / (product + y + jnp.sqrt(y * (y + 2 * product))))
    scaled = 2 * c * (small / b)
    large = b / jnp.where(scaled > 0, 2 * c * scaled, 1)
    return jnp.where(u * (1 + scaled) < 1, small, large)


def _propose(
    key: jax.Array, b: jax.Array, tilt: jax.Array, s: jax.Array, log_bound: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Propose from the tilted inverse Gaussian and accept with ``rho_b(x) exp(s x / 2 - L)``."""
    normal, choice, u = normal_and_uniforms(key, b, 2)
    x = _inverse_gaussian(normal, choice, b, tilt)
    return x, u * jnp.exp(log_bound - s * x / 2) < passage_ratio(b, x)[0]


def exact_block(key: jax.Array, b: jax.Array, c: jax.Array, active: jax.Array) -> jax.Array:
    """Draw PG(b, c) for the ``active`` elements of a flat block, ``c >= 0``; the others are arbitrary."""
    b, c = jnp.where(active, b, 1), jnp.where(active, c, 0)
    s, log_bound = tangent(b, c)
    return rejection_draws(key, _propose, (b, jnp.sqrt(c * c + s), s, log_bound), active)
