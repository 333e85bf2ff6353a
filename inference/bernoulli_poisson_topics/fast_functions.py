"""Log gamma, its derivatives and log(e^a + e^b), several times faster in XLA than the general ones.

Gamma functions of positive arguments: shift above 8 by the recurrence, then Stirling's series. The general
functions also serve negative arguments (a tangent for every value) and, for the trigamma, arbitrary orders (a
zeta function).
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

Array = Any

_SHIFT = 8
_FAR = 1e3
_HALF_LOG_TWO_PI = 0.5 * float(np.log(2 * np.pi))
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)


def _ratio_of_shift(x: Array) -> tuple[Array, Array]:
    """Return the product of x + i, i < 8, and the sum of its inverses times it: one division for all."""
    product, inverse_sum = x, jnp.ones_like(x)
    for i in range(1, _SHIFT):
        inverse_sum = inverse_sum * (x + i) + product
        product = product * (x + i)
    return product, inverse_sum


def _series(inverse: Array, coefficients: Any) -> Array:
    """Return sum_j c_j inverse^(2 j), j from 0."""
    square, total = inverse * inverse, jnp.zeros_like(inverse)
    for c in reversed(tuple(coefficients)):
        total = total * square + c
    return total


def positive_digamma(x: Array) -> Array:
    """Return digamma of x > 0, to 1e-14 relative to 1 + |digamma| in float64."""
    product, inverse_sum = _ratio_of_shift(jnp.minimum(x, _FAR))
    # Far out no shift is needed, and its product would overflow.
    z = jnp.where(x < _FAR, x + _SHIFT, x)
    inverse = 1.0 / z
    tail = inverse * inverse * _series(inverse, (b / (2 * (j + 1)) for j, b in enumerate(_BERNOULLI)))
    return jnp.log(z) - 0.5 * inverse - tail - jnp.where(x < _FAR, inverse_sum / product, 0.0)


def positive_trigamma(x: Array) -> Array:
    """Return trigamma of x > 0, to 1e-12 relative in float64."""
    shift = sum(1.0 / (x + i) ** 2 for i in range(_SHIFT))
    inverse = 1.0 / (x + _SHIFT)
    return shift + inverse + 0.5 * inverse**2 + inverse**3 * _series(inverse, _BERNOULLI)


def positive_gammaln(x: Array) -> Array:
    """Return log gamma of x > 0, to 1e-13 relative to 1 + |log gamma| in float64."""
    z = jnp.where(x < _FAR, x + _SHIFT, x)
    product = jnp.where(x < _FAR, _ratio_of_shift(jnp.minimum(x, _FAR))[0], 1.0)
    inverse = 1.0 / z
    terms = (b / ((2 * j + 1) * (2 * j + 2)) for j, b in enumerate(_BERNOULLI))
    stirling = (z - 0.5) * jnp.log(z) - z + _HALF_LOG_TWO_PI + inverse * _series(inverse, terms)
    return stirling - jnp.log(product)


def log_add(a: Array, b: Array) -> Array:
    """Return log(e^a + e^b), to 1e-16 absolute; one of them may be -inf."""
    return jnp.maximum(a, b) + jnp.log(1.0 + jnp.exp(-jnp.abs(a - b)))


def soft_plus(x: Array) -> Array:
    """Return log(1 + e^x), to 1e-16 absolute: enough where it is summed."""
    return jnp.maximum(x, 0.0) + jnp.log(1.0 + jnp.exp(-jnp.abs(x)))
