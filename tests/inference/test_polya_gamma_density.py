"""Polya-Gamma density, exact moments and the NumPyro distribution."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro import handlers
from scipy.integrate import simpson

from labelzoo.inference.polya_gamma import (
    PolyaGamma,
    kl_from_untilted,
    log_cosh_half,
    log_density,
    log_laplace,
    log_tilt,
    mean,
    third_cumulant,
    variance,
)
from labelzoo.inference.polya_gamma.envelope import passage_ratio


def quadrature_grid(b):
    """Points in log x that hold the mass of PG(b, 0) to 1e-12."""
    m, sd = float(mean(b, 0)), float(variance(b, 0)) ** 0.5
    low = b * b / 8 / 800 if b < 50 else max(m - 14 * sd, m / 100)
    high = m + 60 * sd + 8 if b < 50 else m + 18 * sd
    return np.linspace(np.log(low), np.log(high), 20_001)


@pytest.mark.parametrize("b", [1e-3, 0.05, 0.3, 1.0, 2.7, 8.0, 20.0, 170.5, 2000.0])
def test_density_integrates_to_one_and_has_the_moments(b):
    grid = quadrature_grid(b)
    x = np.exp(grid)
    density = np.exp(np.asarray(log_density(x, b))) * x
    assert simpson(density, x=grid) == pytest.approx(1, abs=1e-8)
    m, v = float(mean(b, 0)), float(variance(b, 0))
    # the error of the log density enters in units of the standard deviation
    scores = [simpson(density * ((x - m) / v**0.5) ** j, x=grid) for j in (1, 2, 3)]
    np.testing.assert_allclose(scores, [0, 1, float(third_cumulant(b, 0)) / v**1.5], rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 1e-3)])
def test_density_equals_the_alternating_series(dtype, tolerance):
    b, x = (g.ravel() for g in np.meshgrid([1e-6, 1e-3, 0.05, 0.3, 1, 2.7, 8], np.geomspace(1e-3, 4, 60)))
    ratio = np.asarray(passage_ratio(jnp.asarray(b), jnp.asarray(x))[0])
    keep = (ratio > 1e-4) & (b * b / (8 * x) < 200)
    b, x, ratio = b[keep], x[keep], ratio[keep]
    series = b * np.log(2) + np.log(b / 2) - 0.5 * np.log(2 * np.pi * x**3) - b * b / (8 * x) + np.log(ratio)
    np.testing.assert_allclose(log_density(x.astype(dtype), b.astype(dtype)), series, atol=tolerance, rtol=0)


@pytest.mark.parametrize("b", [1e-10, 0.01, 1.0, 30.0, 1e4])
def test_density_is_finite_far_out_and_falls_at_the_rate_of_its_pole(b):
    x = jnp.geomspace(1e-200, 1e6, 400)
    assert bool(jnp.all(jnp.isfinite(log_density(x, b))))
    far = max(1e3, 1e4 * b)
    slope = (log_density(far + 1, b) - log_density(far - 1, b)) / 2
    assert float(slope) == pytest.approx(-(np.pi**2) / 2 + (b - 1) / far, rel=1e-3)


def test_density_outside_the_support_and_with_bad_shapes():
    assert log_density(jnp.array([-1.0, 0.0, np.inf]), 1.0).tolist() == [-np.inf] * 3
    assert bool(
        jnp.all(jnp.isnan(log_density(jnp.array([np.nan, 1.0, 1.0]), jnp.array([1.0, -1.0, np.nan]))))
    )


def test_density_gradients_match_differences():
    for b, x in ((0.3, 0.02), (1.5, 0.3), (40.0, 9.0)):
        for argument in (0, 1):
            gradient = jax.grad(log_density, argument)(x, b)
            point = np.array([x, b])
            step = np.zeros(2)
            step[argument] = 1e-5
            difference = (log_density(*(point + step)) - log_density(*(point - step))) / 2e-5
            assert float(gradient) == pytest.approx(float(difference), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("c", [0.0, 1e-6, 0.1, 1.0, 1.549, 1.55, 5.0, 50.0, 800.0])
def test_moments_equal_long_sums(c):
    w = 1 / (2 * np.pi**2 * ((np.arange(1, 1_000_001) - 0.5) ** 2 + c * c / (4 * np.pi**2)))
    sums = [w.sum() + 1 / (2 * np.pi**2 * 1e6), np.sum(w**2), 2 * np.sum(w**3)]
    for function, value in zip((mean, variance, third_cumulant), sums, strict=True):
        assert float(function(3.0, c)) == pytest.approx(3 * value, rel=1e-10)
        single = function(jnp.float32(3), jnp.float32(c))
        assert single.dtype == jnp.float32
        assert float(single) == pytest.approx(3 * value, rel=5e-6)


@pytest.mark.parametrize("c", [0.0, 0.3, 3.0, 600.0])
def test_laplace_tilt_and_divergence_identities(c):
    b = 1.7
    m, v = float(mean(b, c)), float(variance(b, c))
    t = 1e-7 / m
    assert float(log_laplace(b, c, t)) == pytest.approx(-t * m + t * t * v / 2, rel=1e-12)
    # the tilt is an Esscher transform: PG(b, c) is PG(b, 0) tilted by c^2/2
    assert float(-log_laplace(b, 0.0, c * c / 2)) == pytest.approx(float(b * log_cosh_half(c)), rel=1e-12)
    assert float(log_tilt(m, b, c)) == pytest.approx(float(kl_from_untilted(b, c)), rel=1e-9, abs=1e-15)
    z = np.longdouble(c) / 2
    direct = float(np.log(np.cosh(z))) if c < 20 else float(z - np.log(np.longdouble(2)))
    assert float(log_cosh_half(c)) == pytest.approx(direct, rel=1e-12)


def test_divergence_keeps_its_digits_near_zero_and_gradients_are_finite():
    assert float(kl_from_untilted(1.0, 1e-3)) == pytest.approx(1e-12 / 192, rel=1e-6)
    for function in (mean, variance, third_cumulant, kl_from_untilted):
        for c in (0.0, 1e-3, 1.55, 900.0):
            assert np.isfinite(float(jax.grad(function, 1)(1.0, c))), (function.__name__, c)


def test_laplace_transform_of_the_density():
    b, c, grid = 0.7, 1.3, quadrature_grid(0.7)
    x = np.exp(grid)
    density = np.exp(np.asarray(PolyaGamma(b, c).log_prob(x))) * x
    for t in (0.5, 5.0):
        assert np.log(simpson(density * np.exp(-t * x), x=grid)) == pytest.approx(
            float(log_laplace(b, c, t)), abs=1e-9
        )


def test_distribution_broadcasts_samples_and_scores():
    law = PolyaGamma(jnp.array([0.5, 1.0, 12.0]), jnp.array([[0.0], [2.0]]))
    draws = law.sample(jax.random.key(0), (4,))
    assert law.batch_shape == (2, 3)
    assert draws.shape == (4, 2, 3)
    assert law.log_prob(draws).shape == (4, 2, 3)
    np.testing.assert_allclose(law.mean, mean(law.concentration, law.tilting))
    np.testing.assert_allclose(law.variance, variance(law.concentration, law.tilting))
    expected = log_density(draws, law.concentration) + log_tilt(draws, law.concentration, law.tilting)
    np.testing.assert_allclose(law.log_prob(draws), expected)


def test_distribution_is_a_pytree_under_vmap_and_jit():
    laws = jax.vmap(PolyaGamma)(jnp.array([1.0, 2.0]), jnp.zeros(2))
    keys = jax.random.split(jax.random.key(0), 2)
    draws = jax.vmap(lambda law, k: law.sample(k, (3,)))(laws, keys)
    assert draws.shape == (2, 3)
    value = jax.jit(lambda law: law.log_prob(0.3))(PolyaGamma(1.0, 0.5))
    assert float(value) == pytest.approx(float(PolyaGamma(1.0, 0.5).log_prob(0.3)), rel=1e-12)


def test_distribution_in_a_program():
    def program(psi):
        with numpyro.plate("obs", 3):
            numpyro.sample("omega", PolyaGamma(1.0, psi))

    trace = handlers.trace(handlers.seed(program, 0)).get_trace(jnp.zeros(3))
    assert trace["omega"]["value"].shape == (3,)
    fixed = handlers.substitute(program, {"omega": jnp.array([0.1, 0.2, 0.3])})
    scored = handlers.trace(fixed).get_trace(jnp.ones(3))["omega"]
    assert bool(jnp.all(jnp.isfinite(scored["fn"].log_prob(scored["value"]))))


def test_distribution_refuses_bad_parameters():
    with pytest.raises(ValueError, match="concentration"):
        PolyaGamma(-1.0, 0.0, validate_args=True)
    with pytest.raises(ValueError, match="b must be positive and finite"):
        PolyaGamma(-1.0, 0.0, validate_args=False).sample(jax.random.key(0))
