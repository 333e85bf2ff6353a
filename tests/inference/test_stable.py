"""Stable scalars against 250-digit decimals, at the edges, and their gradients (rates 0 and 1e-30 to 1e3)."""

from decimal import Decimal, getcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import gammaln, poch

from labelzoo.inference import stable

getcontext().prec = 250  # the cubes of 1e-30 have to survive differences
GRID = [1e-30, 1e-12, 1e-8, 1e-3, 0.1, 0.5, 0.69, 0.7, 0.9999, 1.0001, 3.0, 30.0, 200.0, 1e3]
LIMIT = {jnp.float32: 1e-6, jnp.float64: 1e-14}


def _log1mexp(x: Decimal) -> Decimal:
    return (1 - (-x).exp()).ln()


def _arrival_mean(x: Decimal) -> Decimal:
    return 1 / x - 1 / (x.exp() - 1)


def _arrival_variance(x: Decimal) -> Decimal:
    return 1 / x**2 - x.exp() / (x.exp() - 1) ** 2


def _log_cosh_half(x: Decimal) -> Decimal:
    return (((x / 2).exp() + (-x / 2).exp()) / 2).ln()


EXACT = {
    "log1mexp": _log1mexp,
    "log_expm1": lambda x: (x.exp() - 1).ln(),
    "softplus": lambda x: (1 + x.exp()).ln(),
    "zero_truncated_poisson_mean": lambda x: x / (1 - (-x).exp()),
    "first_arrival_mean": _arrival_mean,
    "first_arrival_variance": _arrival_variance,
    "log_cosh_half": _log_cosh_half,
}


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("name", EXACT)
def test_value_and_gradient_match_decimals(name, dtype):
    function, exact = getattr(stable, name), EXACT[name]
    x = jnp.asarray(GRID, dtype)
    with_care = [Decimal(float(v)) for v in x]
    expected = np.array([float(exact(v)) for v in with_care])
    slopes = []
    for v in with_care:
        h = v * Decimal("1e-15")
        slopes.append(float((exact(v + h) - exact(v - h)) / (2 * h)))
    value = jax.jit(function)(x)
    gradient = jax.vmap(jax.grad(function))(x)
    assert value.dtype == dtype
    tiny = 1e-30  # values below the range of float32
    conditioning = np.abs(expected) + np.abs(np.array(GRID) * slopes)
    error = np.abs(value - expected) / (LIMIT[dtype] * conditioning + tiny)
    assert error.max() <= 1, dict(zip(GRID, error, strict=True))
    loss = 100 if name.startswith("first_arrival") else 10  # terms of size 2 leave .008 just above 1
    error = np.abs(gradient - np.array(slopes)) / (loss * LIMIT[dtype] * np.abs(slopes) + tiny)
    assert error.max() <= 1, dict(zip(GRID, error, strict=True))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize(
    ("name", "value", "slope"),
    [
        ("log1mexp", -np.inf, 0.0),
        ("log_expm1", -np.inf, 1.0),
        ("softplus", np.log(2), 0.5),
        ("zero_truncated_poisson_mean", 1.0, 0.5),
        ("first_arrival_mean", 0.5, -1 / 12),
        ("first_arrival_variance", 1 / 12, 0.0),
        ("log_cosh_half", 0.0, 0.0),
    ],
)
def test_value_and_gradient_at_zero(name, value, slope, dtype):
    got, gradient = jax.value_and_grad(getattr(stable, name))(jnp.zeros((), dtype))
    np.testing.assert_allclose(got, value, rtol=1e-6)
    np.testing.assert_allclose(gradient, slope, rtol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_bernoulli_poisson_log_likelihood_has_finite_gradients(dtype):
    def log_likelihood(rate, y):
        return jnp.where(y, stable.log1mexp(rate), -rate)

    for rate in [0.0, 1e-30, 1e-8, 1.0, 1e3]:
        for y in (True, False):
            value, slope = jax.value_and_grad(log_likelihood)(jnp.asarray(rate, dtype), y)
            assert np.isfinite(slope), (rate, y)
            assert np.isfinite(value) or (rate == 0 and y and value == -np.inf), (rate, y)


def test_limits_and_outside():
    infinity = jnp.asarray([-jnp.inf, jnp.inf])
    np.testing.assert_array_equal(jax.jit(stable.softplus)(infinity), [0.0, np.inf])
    np.testing.assert_array_equal(jax.vmap(jax.grad(stable.softplus))(infinity), [0.0, 1.0])
    assert np.isnan(stable.log1mexp(-1.0)) and np.isnan(stable.softplus(jnp.nan))
    assert stable.log1mexp(jnp.inf) == 0 and stable.zero_truncated_poisson_mean(jnp.inf) == jnp.inf
    np.testing.assert_allclose(stable.log_cosh_half(-7.0), stable.log_cosh_half(7.0), rtol=1e-15)
    np.testing.assert_allclose(jax.grad(jax.grad(stable.log_cosh_half))(0.0), 0.25, rtol=1e-14)
    np.testing.assert_allclose(stable.log_cosh_half(1e4), 5e3 - np.log(2), rtol=1e-14)


def test_log_rising_against_scipy_and_at_the_edges():
    start = np.array([1e-300, 1e-30, 0.3, 1.0, 15.9, 16.1, 400.0])[:, None]
    steps = np.array([0, 1, 2, 7, 50])
    expected = gammaln(start + steps) - gammaln(start)
    np.testing.assert_allclose(stable.log_rising(start, steps), expected, rtol=1e-12, atol=1e-12)
    huge = jnp.asarray([1e8, 1e14])
    np.testing.assert_allclose(stable.log_rising(huge, 3), np.log(poch(huge, 3)), rtol=1e-14)
    np.testing.assert_allclose(stable.log_rising(2.5, 1e9), gammaln(2.5 + 1e9) - gammaln(2.5), rtol=1e-13)
    small = jnp.asarray([1e-37, 1e-5, 1.0, 20.0, 1e12], jnp.float32)
    slope = jax.vmap(jax.grad(stable.log_rising), (0, None))(small, 3)
    exact = sum(1 / (np.asarray(small, float) + i) for i in range(3))
    np.testing.assert_allclose(slope, exact, rtol=1e-4)
    assert jax.grad(stable.log_rising)(1e-37, 0) == 0


def test_gammaln_positive_and_integers_become_floats():
    x = np.array([1e-300, 1e-3, 0.5, 3.0, 1e5])
    np.testing.assert_allclose(stable.gammaln_positive(x), gammaln(x), rtol=1e-13, atol=1e-13)
    assert np.isfinite(jax.grad(stable.gammaln_positive)(jnp.float32(1e-37)))
    (converted,) = stable.as_floats([1, 2])
    assert converted.dtype == jnp.float64
    mixed = stable.as_floats(jnp.float32(1), 2, 3.0)
    assert {array.dtype for array in mixed} == {jnp.dtype("float32")}
