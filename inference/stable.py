"""Scalar functions that keep their digits, and finite gradients, where the plain formula loses them.

Every function works on any shape, in float32 and float64, under ``jit``, ``vmap`` and ``grad``. Branches
guard their *inputs* as well as their outputs (``where`` inside and outside): a branch that is not taken
must not send an infinite or NaN derivative through the reverse pass.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import factorial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import gammaln

LOG_2 = 0.6931471805599453

_SERIES_LIMIT = 1.0
_SERIES_TERMS = 11  # the first term left out is below 1e-18 at x = 1


def _even_coefficients(terms: int) -> list[Fraction]:
    """Return c_2, c_4, ... of x / (1 - exp(-x)) = 1 + x/2 + c_2 x^2 + c_4 x^4 + ..., by series inversion."""
    series = [Fraction(1)]
    for n in range(1, 2 * terms + 1):
        series.append(-sum((-1) ** j * series[n - j] / factorial(j + 1) for j in range(1, n + 1)))
    return series[2::2]


_MEAN_COEFFICIENTS = tuple(float(term) for term in _even_coefficients(_SERIES_TERMS))
_VARIANCE_COEFFICIENTS = tuple((2 * k + 1) * term for k, term in enumerate(_MEAN_COEFFICIENTS))

# lgamma(x) - (x - 1/2) log x + x - log(2 pi)/2 = 1/(12 x) - 1/(360 x^3) + ...: below 1e-16 at x = 16.
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)
_STIRLING_LIMIT = 16.0


def as_floats(*values: Any) -> tuple[Array, ...]:
    """Convert to arrays of one floating dtype: that of the inputs, or the default float for integers."""
    values = tuple(jnp.asarray(v) if isinstance(v, (list, tuple)) else v for v in values)
    dtype = jnp.result_type(*values)
    if not jnp.issubdtype(dtype, jnp.floating):
        dtype = jnp.result_type(float)
    return tuple(jnp.asarray(value, dtype) for value in values)


def _horner(x: Array, coefficients: Sequence[float]) -> Array:
    total = jnp.zeros_like(x)
    for coefficient in reversed(coefficients):
        total = total * x + coefficient
    return total


def log1mexp(x: Any) -> Array:
    """Return log(1 - exp(-x)) for x >= 0: the log probability of at least one arrival at rate x.

    Parameters
    ----------
    x : array
        Rates. ``x = 0`` gives ``-inf`` with gradient 0; ``x < 0`` gives NaN.

    Returns
    -------
    Array
        Same shape as ``x``; the gradient ``1 / expm1(x)`` is finite for ``x`` in [1e-30, inf) and at 0.
    """
    (x,) = as_floats(x)
    positive = x > 0
    small = x < LOG_2
    low = jnp.log(-jnp.expm1(-jnp.where(positive & small, x, LOG_2)))
    high = jnp.log1p(-jnp.exp(-jnp.where(small, LOG_2, x)))
    outside = jnp.where(x == 0, -jnp.inf, jnp.nan)
    return jnp.where(positive, jnp.where(small, low, high), outside)


def log_expm1(x: Any) -> Array:
    """Return log(exp(x) - 1) for x >= 0, as x + log(1 - exp(-x)); ``x = 0`` gives ``-inf``, gradient 1."""
    (x,) = as_floats(x)
    return x + log1mexp(x)


def softplus(x: Any) -> Array:
    """Return log(1 + exp(x)); exact limits at both infinities, with gradient sigmoid(x)."""
    (x,) = as_floats(x)
    finite = jnp.isfinite(x)
    limit = jnp.where(x == -jnp.inf, 0.0, x)
    return jnp.where(finite, jax.nn.softplus(jnp.where(finite, x, 0.0)), limit)


def first_arrival_mean(rate: Any) -> Array:
    """Return 1/x - 1/expm1(x): the mean of the first arrival time in (0, 1) given that there is one.

    Parameters
    ----------
    rate : array
        Rates x >= 0; the limit at 0 is 1/2, with gradient -1/12.
    """
    (x,) = as_floats(rate)
    near = x < _SERIES_LIMIT
    small, large = jnp.where(near, x, 0.0), jnp.where(near, _SERIES_LIMIT, x)
    series = 0.5 - small * _horner(small * small, _MEAN_COEFFICIENTS)
    direct = 1.0 / large + jnp.exp(-large) / jnp.expm1(-large)
    return jnp.where(near, series, direct)


def first_arrival_variance(rate: Any) -> Array:
    """Return 1/x^2 - 1/(4 sinh^2(x/2)): the variance of the first arrival time; 1/12 at rate 0."""
    (x,) = as_floats(rate)
    near = x < _SERIES_LIMIT
    small, large = jnp.where(near, x, 0.0), jnp.where(near, _SERIES_LIMIT, x)
    series = _horner(small * small, _VARIANCE_COEFFICIENTS)
    direct = 1.0 / large**2 - jnp.exp(-large) / jnp.expm1(-large) ** 2
    return jnp.where(near, series, direct)


def zero_truncated_poisson_mean(lam: Any) -> Array:
    """Return lam / (1 - exp(-lam)), the mean of a Poisson count known to be at least one.

    Parameters
    ----------
    lam : array
        Rates >= 0; the limit at 0 is 1, with gradient 1/2.
    """
    (lam,) = as_floats(lam)
    return 1.0 + lam * (1.0 - first_arrival_mean(lam))


def log_cosh_half(c: Any) -> Array:
    """Return log cosh(c/2), to relative precision near 0 and without overflow for large ``|c|``."""
    (c,) = as_floats(c)
    near = jnp.abs(c) < 1.0
    small, large = jnp.where(near, c, 0.0), jnp.where(near, 1.0, jnp.abs(c))
    series = jnp.log1p(2.0 * jnp.sinh(small / 4.0) ** 2)
    return jnp.where(near, series, large / 2.0 + jnp.log1p(jnp.exp(-large)) - LOG_2)


def log_rising(start: Any, steps: Any) -> Array:
    """Return log Gamma(start + steps) - log Gamma(start), for start > 0 and whole steps >= 0.

    The difference of two ``gammaln`` loses all digits for a large start and its gradient is NaN for a start
    near the smallest float. Here the first factor ``log(start)`` is split off, and from 16 on
    Stirling's series is subtracted term by term.

    Parameters
    ----------
    start : array
        Positive reals (shapes, concentrations).
    steps : array
        Non-negative whole numbers (counts), broadcast against ``start``.
    """
    start, steps = jnp.broadcast_arrays(*as_floats(start, steps))
    near, some = start < _STIRLING_LIMIT, steps > 0
    small, large = jnp.where(near, start, 1.0), jnp.where(near, _STIRLING_LIMIT, start)
    direct = jnp.log(small) + gammaln(small + jnp.where(some, steps, 1.0)) - gammaln(1.0 + small)
    return jnp.where(some, jnp.where(near, direct, _stirling_difference(large, steps)), 0.0)


def _stirling_difference(start: Array, steps: Array) -> Array:
    end = start + steps
    leading = (start - 0.5) * jnp.log1p(steps / start) + steps * (jnp.log(end) - 1.0)
    return leading + _stirling_tail(end) - _stirling_tail(start)


def _stirling_tail(x: Array) -> Array:
    return _horner(1.0 / (x * x), _STIRLING) / x


def gammaln_positive(x: Any) -> Array:
    """Return log Gamma(x), x > 0, as log Gamma(1 + x) - log x, whose gradient is finite for tiny x."""
    (x,) = as_floats(x)
    return gammaln(1.0 + x) - jnp.log(x)
