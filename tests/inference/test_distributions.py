"""Shared distributions: draws against their own densities, normalisation, edges, gradients, float32.

The goodness-of-fit tests here (GATES of them, seeds fixed beforehand) share a false-alarm rate of .001.
"""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.special import gammaln, logsumexp

from labelzoo.inference.distributions import (
    FirstArrival,
    GaussianNatural,
    LogGamma,
    NegativeBinomialLogits,
    TableCount,
    TiltedDirichlet,
    ZeroTruncatedPoisson,
    draw_table_counts,
    log_stirling_first,
    log_tilted_dirichlet,
    tilted_dirichlet_step,
)
from labelzoo.inference.distributions.tilted_dirichlet import proposal_rates

GATES = 60
LEVEL = 0.001 / GATES
DRAWS = 40_000


@partial(jax.jit, static_argnums=2)
def jitted_sample(law, key, shape):
    return law.sample(key, shape)


@jax.jit
def jitted_log_prob(law, value):
    return law.log_prob(value)


@jax.jit
def jitted_moments(law):
    return law.mean, law.variance


def drawn(law, seed, shape=(DRAWS,)):
    """Jitted draws: laws of one class and shape share a compilation."""
    return np.asarray(jitted_sample(law, jax.random.key(seed), shape))


def check_counts(law, draws, label, seed):
    """Chi-square of counts against exp(log_prob), cells of at least 8 expected, the rest pooled."""
    values = np.arange(draws.min(), draws.max() + 1)
    expected = len(draws) * np.exp(np.asarray(law.log_prob(values)))
    observed = np.array([(draws == v).sum() for v in values])
    large = expected >= 8
    expected = np.append(expected[large], max(len(draws) - expected[large].sum(), 1e-3))
    observed = np.append(observed[large], len(draws) - observed[large].sum())
    if expected[-1] < 8:
        expected = np.append(expected[:-2], expected[-2] + expected[-1])
        observed = np.append(observed[:-2], observed[-2] + observed[-1])
    statistic = ((observed - expected) ** 2 / expected).sum()
    p = stats.chi2.sf(statistic, max(len(expected) - 1, 1))
    assert p > LEVEL, f"{label}, seed {seed}: chi-square {statistic:.1f} on {len(expected) - 1}, p {p:.2e}"


def check_continuous(law, draws, label, seed):
    """Kolmogorov-Smirnov distance to the integral of exp(log_prob) on a fine grid between extreme draws."""
    span = np.ptp(draws)
    low, high = draws.min() - 1e-9 * span, draws.max() + 1e-9 * span
    grid = np.linspace(low, high, 200_001)
    density = np.exp(np.asarray(jitted_log_prob(law, grid)))
    cdf = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(grid))])
    assert abs(cdf[-1] - 1) < 2e-3, f"{label}: mass {cdf[-1]} between the extreme draws"
    p = stats.kstest(draws, lambda x: np.interp(x, grid, cdf / cdf[-1])).pvalue
    assert p > LEVEL, f"{label}, seed {seed}: Kolmogorov-Smirnov p {p:.2e}"


def check_moments(law, draws, label, seed):
    """Mean and variance within 5 Monte Carlo standard errors."""
    mean, variance = (float(value) for value in jitted_moments(law))
    centred = (draws - mean) ** 2
    for what, values, target in [("mean", draws, mean), ("variance", centred, variance)]:
        error = np.std(values) / np.sqrt(len(values)) + 1e-12 * abs(target) + 1e-300
        z = (np.mean(values) - target) / error
        assert abs(z) < 5, f"{label} {what}, seed {seed}: {np.mean(values)} for {target}, z {z:.1f}"


COUNT_LAWS = {
    "ztp 0.001": lambda: ZeroTruncatedPoisson(1e-3),
    "ztp 0.7": lambda: ZeroTruncatedPoisson(0.7),
    "ztp 6": lambda: ZeroTruncatedPoisson(6.0),
    "ztp 90": lambda: ZeroTruncatedPoisson(90.0),
    "tables 1, 0.5": lambda: TableCount(1, 0.5, max_count=60),
    "tables 2, 0.3": lambda: TableCount(2, 0.3, max_count=60),
    "tables 7, 1": lambda: TableCount(7, 1.0, max_count=60),
    "tables 60, 0.02": lambda: TableCount(60, 0.02, max_count=60),
    "tables 60, 0.9": lambda: TableCount(60, 0.9, max_count=60),
    "tables 60, 7": lambda: TableCount(60, 7.0, max_count=60),
    "tables 60, 300": lambda: TableCount(60, 300.0, max_count=60),
    "negative binomial 0.05, 1": lambda: NegativeBinomialLogits(0.05, 1.0),
    "negative binomial 2.5, -0.5": lambda: NegativeBinomialLogits(2.5, -0.5),
    "negative binomial 40, 0.3": lambda: NegativeBinomialLogits(40.0, 0.3),
}
REAL_LAWS = {
    "arrival 1e-9": lambda: FirstArrival(1e-9),
    "arrival 0": lambda: FirstArrival(0.0),
    "arrival 0.8": lambda: FirstArrival(0.8),
    "arrival 30": lambda: FirstArrival(30.0),
    "log gamma 0.05": lambda: LogGamma(0.05, 1.0),
    "log gamma 0.6": lambda: LogGamma(0.6, -2.0),
    "log gamma 1": lambda: LogGamma(1.0, 0.0),
    "log gamma 25": lambda: LogGamma(25.0, 3.0),
}


@pytest.mark.parametrize("name", COUNT_LAWS)
def test_count_draws_match_their_density(name):
    law, seed = COUNT_LAWS[name](), 11
    draws = drawn(law, seed)
    check_counts(law, draws, name, seed)
    check_moments(law, draws.astype(float), name, seed)


@pytest.mark.parametrize("name", REAL_LAWS)
def test_real_draws_match_their_density(name):
    law, seed = REAL_LAWS[name](), 12
    draws = drawn(law, seed)
    check_continuous(law, draws, name, seed)
    check_moments(law, draws, name, seed)


@pytest.mark.parametrize("name", COUNT_LAWS)
def test_count_densities_sum_to_one(name):
    law = COUNT_LAWS[name]()
    values = np.arange(3000)
    values = values[np.asarray(law.support(values))]
    total = logsumexp(np.asarray(law.log_prob(values)))
    assert abs(total) < 1e-10, total


def test_density_is_zero_outside_the_support():
    off = {"validate_args": False}
    for law, outside in [
        (ZeroTruncatedPoisson(0.7, **off), [-3, -1, 0]),
        (TableCount(5, 0.7, **off), [-1, 0, 6, 99]),
        (TableCount(0, 0.7, **off), [-1, 1]),
        (NegativeBinomialLogits(0.7, 0.2, **off), [-2, -1]),
        (FirstArrival(0.7, **off), [-0.1, 1.1]),
    ]:
        assert (np.asarray(law.log_prob(np.array(outside))) == -np.inf).all(), type(law).__name__


@pytest.mark.parametrize("name", REAL_LAWS)
def test_real_densities_integrate_to_one(name):
    law = REAL_LAWS[name]()
    low, high = (0.0, 1.0) if "arrival" in name else (-1200.0, 12.0)
    grid = np.linspace(low, high, 1_000_001)
    total = np.trapezoid(np.exp(np.asarray(jitted_log_prob(law, grid))), grid)
    assert abs(total - 1) < 1e-6, total


# Zero-truncated Poisson, first arrival ------------------------------------------------------------------


def test_truncated_poisson_from_tiny_to_huge_rates():
    rate = jnp.asarray([0.0, 1e-12, 1e-8, 1e3, 1e6])
    law = ZeroTruncatedPoisson(rate)
    draws = drawn(law, 3, (2000,))
    assert (draws[:, :3] == 1).all()
    z = (draws[:, 3:].mean(0) - np.asarray(rate[3:])) / np.sqrt(np.asarray(rate[3:]) / 2000)
    assert np.abs(z).max() < 5, z
    np.testing.assert_allclose(law.mean, [1, 1 + 5e-13, 1 + 5e-9, 1e3, 1e6], rtol=1e-14)
    np.testing.assert_allclose(law.variance, [0, 5e-13, 5e-9, 1e3, 1e6], rtol=1e-7)
    np.testing.assert_allclose(law.log_prob(1)[:3], [0, -5e-13, -5e-9], rtol=1e-4, atol=1e-16)
    assert law.log_prob(2)[0] == -np.inf
    exact = stats.poisson.logpmf(1_000_100, 1e6)
    np.testing.assert_allclose(law.log_prob(1_000_100)[4], exact, rtol=1e-8)


def test_first_arrival_is_the_first_of_the_truncated_process():
    """A cut exponential: exact cdf, extreme rates inside (0, 1], zero density outside."""
    law = FirstArrival(jnp.asarray([0.0, 1e-300, 1e-12, 1.0, 1e4, 1e6]))
    draws = drawn(law, 4, (5000,))
    assert ((draws > 0) & (draws <= 1)).all()
    for column, rate in [(2, 1e-12), (3, 1.0), (4, 1e4), (5, 1e6)]:
        p = stats.kstest(draws[:, column], lambda t, r=rate: np.expm1(-r * t) / np.expm1(-r)).pvalue
        assert p > LEVEL, (rate, p)
    np.testing.assert_allclose(law.log_prob(0.5)[0], 0.0, atol=1e-15)


def test_arrival_and_count_make_one_poisson_process():
    """P(y=1) p(t) p(m | y=1) summed over the count is the density lam exp(-lam t) of a first arrival."""
    rate, t = 1.7, 0.3
    left = rate * (1 - t)
    later = np.exp(stats.poisson.logpmf(np.arange(60), left)).sum()
    joint = np.exp(np.log(-np.expm1(-rate)) + float(FirstArrival(rate).log_prob(t)))
    np.testing.assert_allclose(joint, rate * np.exp(-rate * t) * later, rtol=1e-13)


# Table counts ---------------------------------------------------------------------------------------------


def test_stirling_numbers_are_exact():
    table = np.zeros((16, 16), dtype=object)
    table[0, 0] = 1
    for n in range(15):
        for k in range(1, n + 2):
            table[n + 1, k] = n * table[n, k] + table[n, k - 1]
    computed = np.exp(log_stirling_first(15))
    np.testing.assert_allclose(computed, table.astype(float), rtol=1e-13)


@pytest.mark.parametrize(("count", "rate"), [(1, 0.4), (9, 1e-30), (40, 2.0), (40, 1e9)])
def test_table_density_is_the_convolution_of_the_bernoullis(count, rate):
    probs = rate / (rate + np.arange(count))
    exact = np.array([1.0])
    for p in probs:
        exact = np.convolve(exact, [1 - p, p])
    law = TableCount(count, rate)
    got = np.exp(np.asarray(law.log_prob(np.arange(1, count + 1))))
    np.testing.assert_allclose(got, exact[1:], rtol=1e-9, atol=1e-14)
    mean, variance = jitted_moments(law)
    np.testing.assert_allclose(mean, probs.sum(), rtol=1e-12)
    np.testing.assert_allclose(variance, (probs * (1 - probs)).sum(), rtol=1e-6, atol=1e-14)


@pytest.mark.parametrize(("count", "rate", "seed"), [(1e5, 0.3, 5), (1e5, 40.0, 6), (1e9, 2.0, 7)])
def test_table_draws_have_no_cap(count, rate, seed):
    """A cap at any static number of customers would miss by many standard errors here."""
    law = TableCount(count, rate)
    draws = drawn(law, seed, (20_000,)).astype(float)
    check_moments(law, draws, f"tables {count:g}, {rate}", seed)
    capped = TableCount(512, rate)
    assert float(law.mean - capped.mean) > 20 * np.std(draws) / np.sqrt(len(draws))


def test_table_draws_of_many_cells_at_once():
    """Cells of unlike size share blocks; more cells than one block; zero exactly where no customer is."""
    key = jax.random.key(8)
    count = jnp.tile(jnp.asarray([0, 1, 3, 200]), 5000)
    draws = np.asarray(jax.jit(draw_table_counts)(key, count, jnp.full(20_000, 0.8))).reshape(-1, 4)
    assert (draws[:, 0] == 0).all() and (draws[:, 1] == 1).all()
    assert draws.dtype == np.int64 and draws[:, 2].max() <= 3
    for column, m in [(2, 3), (3, 200)]:
        check_counts(TableCount(m, 0.8), draws[:, column], f"tables {m} in a batch", 8)
    assert abs(np.corrcoef(draws[:, 2], draws[:, 3])[0, 1]) < 5 / np.sqrt(5000)


def test_table_limits_of_the_concentration():
    draws = drawn(TableCount(jnp.asarray([50, 50, 0]), jnp.asarray([1e-30, 1e12, 1.0])), 9, (500,))
    np.testing.assert_array_equal(draws, np.tile([1, 50, 0], (500, 1)))


def test_traced_counts_need_a_table_size():
    def density(count, size):
        return TableCount(count, 0.5, max_count=size).log_prob(2)

    with pytest.raises(ValueError, match="max_count"):
        jax.jit(lambda m: density(m, None))(4)
    np.testing.assert_allclose(jax.jit(lambda m: density(m, 30))(4), density(4, None), rtol=1e-14)
    assert np.isnan(density(31, 30))


# Tilted Dirichlet -----------------------------------------------------------------------------------------


def test_proposal_rates_solve_their_equation():
    rng = np.random.default_rng(10)
    for spread in (0.1, 1.0, 5.0):
        a = jnp.asarray(np.exp(rng.normal(0, spread, (200, 40))))
        c = jnp.asarray(np.exp(rng.normal(2, spread, (200, 40))) - 3.0)
        rates = np.asarray(proposal_rates(a, c))
        np.testing.assert_allclose((a / rates).sum(-1), 1.0, rtol=1e-10)
        np.testing.assert_allclose(np.ptp(rates - c, axis=-1), 0.0, atol=1e-8 * np.abs(rates).max())


@pytest.mark.parametrize(
    ("a", "c"), [((2.0, 3.0), (1.0, 9.0)), ((0.4, 0.7), (6.0, 0.0)), ((5.0, 1.0), (-3.0, 40.0))]
)
def test_two_labels_against_quadrature(a, c):
    law, seed = TiltedDirichlet(jnp.asarray(a), jnp.asarray(c)), 13
    first = drawn(law, seed)[:, 0]

    def density(v):
        return v ** (a[0] - 1) * (1 - v) ** (a[1] - 1) * np.exp(-(c[0] - c[1]) * v)

    grid = np.concatenate([[0.0], np.quantile(first, np.linspace(0.002, 0.998, 400)), [1.0]])
    pieces = [quad(density, low, high, limit=200)[0] for low, high in zip(grid[:-1], grid[1:], strict=True)]
    expected = len(first) * np.array(pieces) / np.sum(pieces)
    ranks = np.searchsorted(np.sort(first), grid[1:], side="right")
    distance = np.abs(ranks - np.cumsum(expected)).max() / len(first)
    p = stats.kstwo.sf(distance, len(first))
    assert p > LEVEL, f"a {a}, c {c}, seed {seed}: distance {distance:.4f}, p {p:.2e}"


def test_three_labels_against_quadrature():
    a, c, seed = jnp.asarray([1.5, 0.8, 3.0]), jnp.asarray([0.0, 12.0, 4.0]), 14
    law = TiltedDirichlet(a, c)
    draws = drawn(law, seed)
    # v = (x, (1 - x) y, (1 - x)(1 - y)) by Gauss-Jacobi-like substitution x = s^2, y = t^4: smooth at 0.
    nodes, weights = np.polynomial.legendre.leggauss(120)
    s, w = (nodes + 1) / 2, weights / 2
    x, y = (s**2)[:, None], (s**4)[None, :]
    jacobian = (2 * s)[:, None] * (4 * s**3)[None, :] * (1 - x) * w[:, None] * w[None, :]
    points = np.stack(np.broadcast_arrays(x, (1 - x) * y, (1 - x) * (1 - y)), -1)
    mass = np.exp(np.asarray(law.log_prob(points))) * jacobian
    for i in range(3):
        for power in (1, 2):
            exact = (mass * points[..., i] ** power).sum() / mass.sum()
            values = draws[:, i] ** power
            z = (values.mean() - exact) / (values.std() / np.sqrt(len(values)))
            assert abs(z) < 5, f"label {i}, moment {power}, seed {seed}: z {z:.1f}"


def test_tilted_density_by_ratio_and_without_tilt():
    a, c = jnp.asarray([0.5, 2.0, 1.0]), jnp.asarray([3.0, -1.0, 0.5])
    law, flat = TiltedDirichlet(a, c), dist.Dirichlet(a)
    assert law.normalized is False
    points = np.random.default_rng(15).dirichlet(np.ones(3), 6)
    ratio = np.asarray(law.log_prob(points) - flat.log_prob(points)) + points @ np.asarray(c)
    assert np.ptp(ratio) < 1e-13
    np.testing.assert_allclose(law.log_prob_at_log(np.log(points)), law.log_prob(points), rtol=1e-12)
    assert law.log_prob(np.array([0.0, 0.4, 0.6])) == np.inf  # a < 1
    assert law.log_prob(np.array([0.4, 0.0, 0.6])) == -np.inf  # a > 1
    assert np.isfinite(law.log_prob(np.array([0.4, 0.6, 0.0])))  # a = 1
    seed = 16
    untilted = drawn(TiltedDirichlet(a, 0.0), seed)
    for i in range(3):
        p = stats.kstest(untilted[:, i], stats.beta(float(a[i]), float(a.sum() - a[i])).cdf).pvalue
        assert p > LEVEL, f"label {i}, seed {seed}: p {p:.2e}"


def start_and_step(seed, a, c, chains=60_000):
    draw_key, step_key = jax.random.split(jax.random.key(seed))
    start = log_tilted_dirichlet(draw_key, jnp.broadcast_to(a, (chains, a.shape[-1])), c)
    return start, jax.jit(tilted_dirichlet_step)(step_key, start, a, c)


@pytest.mark.parametrize("case", ["plain", "strong tilt", "tiny shapes"])
def test_step_leaves_the_law_invariant(case):
    """Exact draws, one step: first, second and cross moments of v and log v by paired differences."""
    a, c = {
        "plain": ([2.0, 0.7, 4.0], [3.0, 0.0, 8.0]),
        "strong tilt": ([3.0, 2.0, 2.0], [0.0, 60.0, 90.0]),
        "tiny shapes": ([1e-3, 5e-3, 2e-3], [0.0, 2.0, 1.0]),
    }[case]
    seed = 17
    before, step = start_and_step(seed, jnp.asarray(a), jnp.asarray(c))
    accepted = float(step.accepted.mean())
    assert 0.2 < accepted < 1.0, accepted
    assert bool(jnp.isfinite(step.log_v).all())

    def functions(log_v):
        log_v = np.asarray(log_v)
        v = np.exp(log_v)
        return np.concatenate([v, v**2, v[:, [0]] * v[:, 1:], np.arctan(log_v)], -1)

    change = functions(step.log_v) - functions(before)
    z = change.mean(0) / (change.std(0) / np.sqrt(len(change)) + 1e-300)
    assert np.abs(z).max() < 5, f"{case}, seed {seed}: z {z}"


@pytest.mark.slow
def test_step_forgets_a_wrong_start():
    """Thirty steps from a corner reach the law: the step moves towards it, not merely around."""
    a, c = jnp.asarray([2.0, 3.0]), jnp.asarray([20.0, 0.0])
    log_v = jnp.broadcast_to(jnp.log(jnp.asarray([0.999, 0.001])), (20_000, 2))
    for key in jax.random.split(jax.random.key(18), 30):
        log_v = jax.jit(tilted_dirichlet_step)(key, log_v, a, c).log_v
    exact = drawn(TiltedDirichlet(a, c), 19, (20_000,))
    p = stats.ks_2samp(np.exp(np.asarray(log_v))[:, 0], exact[:, 0]).pvalue
    assert p > LEVEL, p


@pytest.mark.slow
def test_tilted_draws_at_the_edges():
    law = TiltedDirichlet(jnp.full((4, 300), 1e-3), jnp.linspace(0.0, 3.0, 300))
    log_v = law.sample_log(jax.random.key(20), (50,))
    assert log_v.shape == (50, 4, 300) and bool(jnp.isfinite(log_v).all())
    np.testing.assert_allclose(jnp.exp(log_v).sum(-1), 1.0, rtol=1e-12)
    assert bool(jnp.isfinite(law.log_prob_at_log(log_v)).all())
    heavy = TiltedDirichlet(jnp.full(50, 2e4), jnp.linspace(0, 1e5, 50)).sample(jax.random.key(21), (20,))
    assert bool(jnp.isfinite(heavy).all())
    broken = log_tilted_dirichlet(jax.random.key(22), jnp.ones(3), jnp.asarray([0.0, jnp.nan, 1.0]))
    assert bool(jnp.isnan(broken).all())
    with pytest.raises(ValueError, match="last axis"):
        TiltedDirichlet(1.0, 1.0)


# Log gamma, Gaussian, negative binomial -------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_log_gamma_of_tiny_shape_never_underflows(dtype):
    law, seed = LogGamma(jnp.asarray([1e-30, 1e-3, 1.0], dtype), jnp.asarray(5.0, dtype)), 23
    draws = drawn(law, seed, (2000,))
    assert draws.dtype == dtype and np.isfinite(draws).all()
    tail = -1e-3 * (draws[:, 1] + 5.0)  # log Gamma(a) is Exponential / -a but for a correction of order a
    p = stats.kstest(tail.astype(float), stats.expon.cdf).pvalue
    assert p > LEVEL, f"seed {seed}: p {p:.2e}"
    np.testing.assert_allclose(law.mean[0], -1e30, rtol=1e-6)


def test_gaussian_against_the_dense_formulas():
    rng = np.random.default_rng(24)
    root = rng.normal(size=(2, 3, 4, 4))
    precision, potential = root @ np.swapaxes(root, -1, -2) + np.eye(4), rng.normal(size=(2, 3, 4))
    law = GaussianNatural(potential, precision)
    covariance = np.linalg.inv(precision)
    mean = np.einsum("...ij,...j->...i", covariance, potential)
    x = rng.normal(size=(5, 2, 3, 4))
    got = jax.jit(lambda d, x: (d.mean, d.covariance_matrix, d.variance, d.log_prob(x)))(law, x)
    np.testing.assert_allclose(got[0], mean, rtol=1e-9)
    np.testing.assert_allclose(got[1], covariance, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(got[2], np.diagonal(covariance, axis1=-2, axis2=-1), rtol=1e-9)
    exact = [
        stats.multivariate_normal(mean[i, j], covariance[i, j]).logpdf(x[:, i, j])
        for i in range(2)
        for j in range(3)
    ]
    np.testing.assert_allclose(got[3].reshape(5, 6), np.transpose(exact), rtol=1e-9)
    assert (np.asarray(law.escalations) == 0).all() and (np.asarray(law.jitter) == 0).all()
    draws = drawn(law, 25)
    centred = draws - mean
    z = centred.mean(0) / np.sqrt(got[2] / len(draws))
    assert np.abs(z).max() < 5, f"mean, seed 25: z {np.abs(z).max():.1f}"
    products = centred[..., :, None] * centred[..., None, :]
    z = (products.mean(0) - covariance) / (products.std(0) / np.sqrt(len(draws)))
    assert np.abs(z).max() < 5, f"covariance, seed 25: z {np.abs(z).max():.1f}"
    white = np.einsum("nabi,abij->nabj", centred, np.linalg.cholesky(precision))
    p = stats.kstest(white[:, 1, 2, 3], stats.norm.cdf).pvalue
    assert p > LEVEL, p


def test_gaussian_broadcasts_and_refuses_misfits():
    shared = GaussianNatural(jnp.ones((5, 3)), jnp.eye(3))
    shapes = jax.eval_shape(
        lambda d, key: (d.sample(key, (2,)), d.covariance_matrix, d.log_prob(jnp.zeros(3))),
        shared,
        jax.random.key(0),
    )
    assert shared.batch_shape == (5,)
    assert [a.shape for a in shapes] == [(2, 5, 3), (5, 3, 3), (5,)]
    with pytest.raises(ValueError, match="does not fit"):
        GaussianNatural(jnp.ones(3), jnp.eye(4))
    with pytest.raises(ValueError, match="not positive definite"):
        GaussianNatural(jnp.ones(2), jnp.asarray([[1.0, 2.0], [2.0, 1.0]]))
    indefinite = GaussianNatural(jnp.ones(2), jnp.asarray([[1.0, 2.0], [2.0, 1.0]]), validate_args=False)
    assert np.isnan(jitted_log_prob(indefinite, jnp.zeros(2)))


def test_negative_binomial_values_and_limits():
    r, logits, m = 3.3, -0.4, np.arange(30)
    exact = stats.nbinom.logpmf(m, r, 1 / (1 + np.exp(logits)))
    np.testing.assert_allclose(NegativeBinomialLogits(r, logits).log_prob(m), exact, rtol=1e-12)
    silent = NegativeBinomialLogits(jnp.asarray([0.3, 1e-30]), -jnp.inf)
    np.testing.assert_array_equal(silent.log_prob(0), 0.0)
    np.testing.assert_array_equal(silent.log_prob(2), -np.inf)
    np.testing.assert_array_equal(drawn(silent, 26, (50,)), 0)
    poisson = NegativeBinomialLogits(1e10, np.log(3.0) - np.log(1e10)).log_prob(m)
    np.testing.assert_allclose(poisson, stats.poisson.logpmf(m, 3.0), atol=1e-6)
    edge = NegativeBinomialLogits(jnp.asarray([1e-30, 0.5, 0.5]), jnp.asarray([0.0, 800.0, -800.0]))
    np.testing.assert_allclose(edge.log_prob(0), [-1e-30 * np.log(2), -400, 0], rtol=1e-12, atol=1e-200)
    np.testing.assert_allclose(edge.log_prob(1)[2], np.log(0.5) - 800, rtol=1e-12)


def test_negative_binomial_is_the_poisson_gamma_mixture():
    r, logits, m = 0.7, 0.5, 3

    log_u = np.linspace(-60, 6, 200_001)
    log_joint = np.asarray(jitted_log_prob(LogGamma(r, -logits), log_u))
    total = np.trapezoid(np.exp(log_joint + m * log_u - np.exp(log_u) - gammaln(m + 1)), log_u)
    np.testing.assert_allclose(np.log(total), NegativeBinomialLogits(r, logits).log_prob(m), rtol=1e-8)


# All of them ----------------------------------------------------------------------------------------------


@cache
def all_laws(dtype):
    one = jnp.asarray([0.5, 1.3, 4.0], dtype)
    pair = jnp.ones(2, dtype)
    return {
        "ZeroTruncatedPoisson": ZeroTruncatedPoisson(one),
        "FirstArrival": FirstArrival(one),
        "TableCount": TableCount(jnp.asarray([0, 3, 9]), one, max_count=9),
        "TiltedDirichlet": TiltedDirichlet(one[:, None] * jnp.ones(4, dtype), jnp.arange(4, dtype=dtype)),
        "LogGamma": LogGamma(one, -one),
        "GaussianNatural": GaussianNatural(one[:, None] * pair, one[:, None, None] * jnp.diag(pair)),
        "NegativeBinomialLogits": NegativeBinomialLogits(one, -one),
    }


NAMES = [
    "ZeroTruncatedPoisson",
    "FirstArrival",
    "TableCount",
    "TiltedDirichlet",
    "LogGamma",
    "GaussianNatural",
    "NegativeBinomialLogits",
]


@jax.jit
def densities(law, x):
    """Log density of x, shape (draw, batch, ...), at once and mapped over the batch axis."""
    return law.log_prob(x), jax.vmap(lambda d, x: d.log_prob(x), (0, 1), 1)(law, x)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_jit_vmap_dtypes_and_shapes(name):
    single, double = all_laws(jnp.float32)[name], all_laws(jnp.float64)[name]
    x = drawn(double, 27, (100,))
    expected, mapped = densities(double, x)
    assert x.shape == (100, 3, *double.event_shape) and expected.shape == (100, 3)
    assert x.dtype in (np.float64, np.int64) and expected.dtype == np.float64
    np.testing.assert_allclose(mapped, expected, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(double.log_prob(x), expected, rtol=1e-11, atol=1e-12)
    assert bool(double.support(x).all())
    np.testing.assert_array_equal(drawn(double, 27, (100,)), x)
    draws = drawn(single, 28, (100,))
    assert draws.dtype in (np.float32, np.int64) and bool(single.support(draws).all())
    density, mapped = densities(single, x)
    assert density.dtype == mapped.dtype == np.float32
    np.testing.assert_allclose(density, expected, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(mapped, expected, rtol=2e-5, atol=2e-5)
    keys = jax.random.split(jax.random.key(29), 3)
    inside = jax.eval_shape(jax.vmap(lambda d, key: d.sample(key, (2,))), double, keys)
    assert inside.shape == (3, 2, *double.event_shape)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_gradients_are_finite_at_the_edges(dtype):
    rates = jnp.asarray([0.0, 1e-30, 1e-8, 1.0, 1e3], dtype)
    shapes = jnp.asarray([1e-30, 1e-3, 1.0, 1e6], dtype)
    logits = jnp.asarray([-50.0, -1.0, 0.0, 50.0], dtype)
    pair, t = jnp.asarray([0.2, 0.8], dtype), jnp.asarray(0.3, dtype)
    precision = jnp.asarray([[2.0, 0.3], [0.3, 1.0]], dtype)
    x = jnp.asarray([-1e30, -700.0, 0.1, 13.8], dtype)
    cases = {
        "truncated, one": (lambda lam: ZeroTruncatedPoisson(lam).log_prob(1), rates),
        "truncated, four": (lambda lam: ZeroTruncatedPoisson(lam).log_prob(4), rates[1:]),
        "arrival": (lambda lam: FirstArrival(lam).log_prob(t), rates),
        "tables, one": (lambda r: TableCount(9, r).log_prob(1), shapes),
        "tables, five": (lambda r: TableCount(9, r).log_prob(5), shapes),
        "negative binomial, none": (lambda r, c: NegativeBinomialLogits(r, c).log_prob(0), shapes, logits),
        "negative binomial, seven": (lambda r, c: NegativeBinomialLogits(r, c).log_prob(7), shapes, logits),
        "silent": (lambda c: NegativeBinomialLogits(1.0, c).log_prob(0), jnp.asarray(-jnp.inf, dtype)),
        "log gamma": (lambda a, x: LogGamma(a, 0.0).log_prob(x), shapes, x),
        "tilted": (lambda a, c, v: TiltedDirichlet(a, c).log_prob(v), shapes[:2], rates[2:4], pair),
        "gaussian": (lambda h, p: GaussianNatural(h, p).log_prob(pair), pair, precision),
    }

    @jax.jit
    def slopes(arguments):
        return {
            name: jax.grad(lambda *a, f=cases[name][0]: f(*a).sum(), tuple(range(len(given))))(*given)
            for name, given in arguments.items()
        }

    for name, gradient in slopes({name: case[1:] for name, case in cases.items()}).items():
        assert all(np.isfinite(g).all() for g in gradient), (name, gradient)


def test_validation_names_the_parameter():
    with pytest.raises(ValueError, match="rate"):
        ZeroTruncatedPoisson(-1.0, validate_args=True)
    with pytest.raises(ValueError, match="concentration"):
        LogGamma(0.0, 1.0, validate_args=True)
    with pytest.raises(ValueError, match="count"):
        TableCount(-1, 1.0, validate_args=True)
    with pytest.raises(ValueError, match="concentration"):
        TiltedDirichlet(jnp.asarray([1.0, -1.0]), 0.0, validate_args=True)
