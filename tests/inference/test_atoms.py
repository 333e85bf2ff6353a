"""Laws with exact zeros: counts as floats, and Polya-Gamma variables of shape 0."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.stats import norm, poisson

from labelzoo.inference.checks.identity import sites_with_zeros
from labelzoo.inference.distributions import AtomPolyaGamma, FloatPoisson, draw_counts
from labelzoo.inference.polya_gamma import PolyaGamma


@pytest.mark.parametrize("rate", [0.3, 8.0, 40.0, 3e4, 3e7, 5e12])
def test_counts_follow_the_poisson_law(rate: float) -> None:
    draws = np.asarray(draw_counts(jax.random.key(1), jnp.full(20_000, rate)))
    assert draws.dtype == np.float64
    np.testing.assert_array_equal(draws, np.round(draws))
    levels = np.unique(poisson.ppf([0.001, 0.1, 0.4, 0.7, 0.99], rate))
    if rate > 1e9:  # scipy's own numbers end
        levels = np.round(rate + np.sqrt(rate) * np.array([-2.0, 0.0, 1.0]))
        wanted = norm.cdf((levels - rate) / np.sqrt(rate))
    else:
        wanted = poisson.cdf(levels, rate)
    found = (draws[:, None] <= levels).mean(axis=0)
    z = (found - wanted) / np.sqrt(np.maximum(wanted * (1 - wanted), 1e-9) / 20_000)
    assert np.abs(z).max() < 5, (rate, z)


@pytest.mark.parametrize("rate", [1e10, 1e18, 1e150])
def test_counts_of_huge_rates_do_not_saturate(rate: float) -> None:
    draws = np.asarray(FloatPoisson(rate).sample(jax.random.key(0), (1000,)))
    assert np.isfinite(draws).all()
    np.testing.assert_allclose(draws, rate, rtol=6 / np.sqrt(rate) + 1e-15)


def test_single_precision_counts_are_whole() -> None:
    with jax.enable_x64(False):
        draws = np.asarray(draw_counts(jax.random.key(0), jnp.array([0.0, 5.0, 3e4, 1e12], jnp.float32)))
    assert draws.dtype == np.float32
    assert draws[0] == 0.0
    np.testing.assert_allclose(draws[2:], [3e4, 1e12], rtol=0.05)


def test_shape_0_is_a_point_mass() -> None:
    law = AtomPolyaGamma(jnp.array([0.0, 1.0, 3.0]), jnp.array([-2.0, 0.5, -1.0]))
    draws = np.asarray(law.sample(jax.random.key(0), (2000,)))
    assert (draws[:, 0] == 0).all()
    assert (draws[:, 1:] > 0).all()
    z = (draws.mean(axis=0) - law.mean)[1:] / np.sqrt(law.variance[1:] / 2000)
    assert np.abs(z).max() < 5
    plain = PolyaGamma(jnp.array([1.0, 3.0]), jnp.array([0.5, -1.0]))
    values = jnp.array([0.0, 0.2, 0.7])
    np.testing.assert_allclose(law.log_prob(values)[1:], plain.log_prob(values[1:]), rtol=1e-12)
    assert law.log_prob(values)[0] == 0.0
    outside = jax.jit(law.log_prob)(jnp.array([0.1, 0.0, -1.0]))  # values that NumPyro does not look at
    assert (np.asarray(outside) == -np.inf).all()
    assert law.support(values).all()
    assert not law.support(jnp.array([0.1, 0.0, -1.0])).any()


def test_laws_with_zeros_are_found_in_a_program() -> None:
    def program() -> None:
        numpyro.sample("count", FloatPoisson(jnp.ones(2)).to_event(1))
        numpyro.sample("gamma", dist.Gamma(1.0, 1.0))
        numpyro.sample("omega", AtomPolyaGamma(jnp.ones(2), 0.0))

    assert sites_with_zeros(program, {}) == {"count", "omega"}
