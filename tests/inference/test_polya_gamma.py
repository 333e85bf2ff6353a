"""Polya-Gamma draws against exact moments, an exact distribution function, bad input and another kernel."""

import functools
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.integrate import cumulative_simpson
from scipy.interpolate import CubicSpline

from labelzoo.inference.gamma_draws import blocked_gamma, blocked_log_gamma
from labelzoo.inference.polya_gamma import (
    log_density,
    log_laplace,
    log_tilt,
    mean,
    sample_polya_gamma,
    variance,
)
from labelzoo.inference.polya_gamma.envelope import envelope_holds, passage_ratio, tangent
from labelzoo.inference.polya_gamma.remainder import tail_sums
from labelzoo.inference.polya_gamma.sampler import augax_runs

SHAPES = (1e-3, 0.05, 0.3, 1.0, 1.5, 2.0, 2.7, 3.5, 5.5, 8.0, 20.0, 60.0, 170.5)
TILTS = (0.0, 0.5, 2.0, 10.0, 180.0, 800.0)
PAIRS = np.array([(b, c) for b in SHAPES for c in TILTS])
COMMON = PAIRS[PAIRS[:, 0] >= 0.05]  # fewer draws than a million tell nothing of b = .001
GATE = 5.0
MIXED_SEED = 20
P_VALUE = 1e-3  # family-wise, divided by the number of laws tested
needs_augax = pytest.mark.skipif(not augax_runs(jnp.float64), reason="augax is not installed or no CPU")


def weights(c):
    """Weights of the gamma terms, many of them (Polson, Scott and Windle 2013, equation 1)."""
    k = np.arange(1, 20_001) - 0.5
    return 1 / (2 * np.pi**2 * (k**2 + c * c / (4 * np.pi**2)))


def moment_scores(draws, b, c):
    """Scores of mean, variance and Laplace transform (t = .3, 1, 3 over the mean), a row a pair."""
    count = draws.shape[1]
    squares, fourths = (np.array([np.sum(weights(tilt) ** j) for tilt in c]) for j in (2, 4))
    m, v, fourth = np.asarray(mean(b, c)), b * squares, 6 * b * fourths
    scores = [(draws.mean(1) - m) / np.sqrt(v / count)]
    scores.append((np.mean((draws - m[:, None]) ** 2, 1) - v) / np.sqrt((fourth + 2 * v * v) / count))
    for share in (0.3, 1.0, 3.0):
        t = share / m
        first, second = np.exp(log_laplace(b, c, t)), np.exp(log_laplace(b, c, 2 * t))
        error = np.mean(np.exp(-t[:, None] * draws), 1) - first
        scores.append(error / np.sqrt((second - first**2) / count))
    return np.stack(scores, 1)


def assert_moments(draws, pairs, seed):
    """Every score of every row of ``draws`` is within the gate."""
    pairs = np.asarray(pairs)
    scores = moment_scores(np.asarray(draws, np.float64), pairs[:, 0], pairs[:, 1])
    worst = np.unravel_index(np.abs(scores).argmax(), scores.shape)
    b, c = pairs[worst[0]]
    assert np.abs(scores).max() < GATE, f"b={b}, c={c}: z={scores[worst]:.2f} (score {worst[1]}), seed {seed}"


@functools.cache
def exact_distribution(b, c):
    """Distribution function of PG(b, c), by quadrature of the density in log x."""
    m, sd = float(mean(b, c)), float(variance(b, c)) ** 0.5
    low = np.log(b * b / 8 / 300) if b < 30 else np.log(max(m - 12 * sd, m / 50))
    grid = np.linspace(max(low, np.log(m) - 40), np.log(m + 30 * sd + 3 / (1 + c)), 2001)
    x = np.exp(grid)
    density = np.exp(np.asarray(log_density(x, b) + log_tilt(x, b, c))) * x
    cdf = cumulative_simpson(density, x=grid, initial=0)
    assert abs(cdf[-1] - 1) < 1e-6, (b, c, cdf[-1])
    spline = CubicSpline(grid, cdf)
    return lambda points: spline(np.clip(np.log(points), grid[0], grid[-1]))


@pytest.fixture(scope="module", params=["float32", "float64"])
def mixed_draws(request):
    """20 000 draws of every common pair from one call: all regimes in one array, as in a Gibbs sweep."""
    count = 20_000
    b, c = (jnp.asarray(np.repeat(COMMON[:, i], count), request.param) for i in (0, 1))
    draws = sample_polya_gamma(jax.random.key(MIXED_SEED), b, -c)
    assert draws.dtype == request.param
    assert bool(jnp.all(draws > 0) & jnp.all(jnp.isfinite(draws)))
    return np.asarray(draws, np.float64).reshape(len(COMMON), count)


def test_moments_of_a_mixed_call(mixed_draws):
    assert_moments(mixed_draws, COMMON, MIXED_SEED)


def test_law_against_the_exact_distribution_function(mixed_draws):
    chosen = [i for i, (b, c) in enumerate(COMMON) if b in (0.05, 1, 2.7, 8, 20) and c in (0, 2, 10)]
    for i in chosen:
        b, c = COMMON[i]
        p = stats.kstest(mixed_draws[i], exact_distribution(b, c)).pvalue
        assert p > P_VALUE / len(chosen), f"b={b}, c={c}: KS p={p:.2e}, seed {MIXED_SEED}"


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_moments_of_the_full_grid(dtype):
    count, seed = 1_000_000, 21
    for i, (b, c) in enumerate(PAIRS):
        key = jax.random.fold_in(jax.random.key(seed), i)
        draws = sample_polya_gamma(key, jnp.full(count, b, dtype), jnp.full(count, c, dtype))
        assert_moments(np.asarray(draws)[None], [(b, c)], f"{seed} folded with {i}")


def long_series(rng, b, c, count, terms=150):
    """Draw PG(b, c) with NumPy: many gamma terms, one matched to mean and variance of the others."""
    w = weights(c)
    total = np.zeros(count)
    for weight in w[:terms]:
        total += weight * rng.gamma(b, size=count)
    m, v = float(mean(b, c)) - b * w[:terms].sum(), b * np.sum(w[terms:] ** 2)
    return total + rng.gamma(m * m / v, v / m, size=count)


@pytest.mark.slow
def test_law_against_a_long_series():
    pairs, count, seed = [(b, c) for b in SHAPES[1:] for c in (0.0, 0.5, 2.0, 10.0, 25.0)], 100_000, 23
    rng = np.random.default_rng(seed)
    for i, (b, c) in enumerate(pairs):
        key = jax.random.fold_in(jax.random.key(seed), i)
        draws = np.asarray(sample_polya_gamma(key, jnp.full(count, b), jnp.full(count, c)))
        p = stats.ks_2samp(draws, long_series(rng, b, c, count), method="asymp").pvalue
        assert p > P_VALUE / len(pairs), f"b={b}, c={c}: KS p={p:.2e}, seed {seed}"


def test_tangent_bounds_the_ratio_and_accepts_four_in_five():
    shapes, tilts = jnp.geomspace(1e-6, 1e3, 60), jnp.append(0.0, jnp.geomspace(0.01, 100, 40))
    b, c = (g.ravel() for g in jnp.meshgrid(shapes, tilts))
    keep = np.asarray(envelope_holds(b, c))
    b, c = b[keep], c[keep]
    s, bound = tangent(b, c)
    x = (b / (2 * jnp.sqrt(c * c + s)) + 0.02) * jnp.geomspace(1e-3, 8, 400)[:, None]
    ratio = passage_ratio(jnp.broadcast_to(b, x.shape), x)[0]
    assert float(jnp.max(ratio * jnp.exp(s * x / 2 - bound))) < 1 + 1e-9
    rate = b * jnp.sqrt(c * c + s) / 2 - bound - b * (c / 2 + jnp.log1p(jnp.exp(-c)))
    assert float(jnp.exp(rate).min()) > 0.81


def matched_law_error(b, c):
    """Largest distance between the distribution functions of PG(b, c) and of its matched form."""
    w = weights(c)
    s1, s2, s3 = (float(s) / (2 * np.pi**2) ** j for j, s in enumerate(tail_sums(jnp.asarray(c)), 1))
    alpha, scale, shift = b * s2**3 / s3**2, s3 / s2, b * (s1 - s2 * s2 / s3)
    sd = np.sqrt(b * np.sum(w**2))
    t = (np.arange(8000) + 0.5) * 0.01 / sd
    z0, z1 = c / 2, np.sqrt(c * c / 4 - 0.5j * t)
    exact = np.exp(b * (z0 - z1 + np.log1p(np.exp(-2 * z0)) - np.log1p(np.exp(-2 * z1))))
    matched = np.exp(1j * t * shift - alpha * np.log(1 - 1j * t * scale) - b * np.log(1 - 1j * t * w[0]))
    x = float(mean(b, c)) + sd * np.linspace(-6, 10, 161)
    kernel = np.exp(-1j * np.outer(x, t)) / (1j * t)
    return np.abs((kernel @ (exact - matched)).real).max() * (t[1] - t[0]) / np.pi


@pytest.mark.parametrize("c", [0.0, 1.0, 2.0, 3.0, 4.0, 6.0])
def test_matched_remainder_is_invisible_where_it_is_used(c):
    smallest = 1.15 * np.exp(np.sqrt(c * c + 4))
    assert not envelope_holds(jnp.asarray(smallest * 1.001), jnp.asarray(c))
    for b in (smallest, 3 * smallest, 30 * smallest):
        assert matched_law_error(b, c) < 8e-7, (b, c)


def test_tail_sums_match_long_sums():
    for c in (0.0, 1.0, 8.0, 30.0, 50.0):
        terms = 1 / ((np.arange(2, 2_000_001) - 0.5) ** 2 + c * c / (4 * np.pi**2))
        for j, value in enumerate(tail_sums(jnp.asarray(c)), 1):
            rest = 1 / 2_000_000 if j == 1 else 0
            assert float(value) == pytest.approx(np.sum(terms**j) + rest, rel=1e-8)


@pytest.mark.parametrize(
    ("b", "c", "message"),
    [
        (0.0, 1.0, r"b must be positive and finite; got 0\.0"),
        ([1.0, -1.0], 0.0, r"b must be positive and finite; got -1\.0 at index \(1,\)"),
        ([[1.0, 2.0], [np.nan, np.inf]], 0.0, r"b must .* got nan at index \(1, 0\) \(2 bad in all\)"),
        (1.0, [0.0, np.inf], r"c must be finite; got inf at index \(1,\)"),
        (np.ones(50), np.full(50, np.nan), r"c must be finite; got nan at index \(0,\) \(50 bad in all\)"),
    ],
)
@pytest.mark.parametrize("backend", ["auto", "jax", "augax"])
def test_bad_parameters_are_refused_before_any_loop(b, c, message, backend):
    with pytest.raises(ValueError, match=message):
        sample_polya_gamma(jax.random.key(0), b, c, backend=backend)


@pytest.mark.parametrize("backend", ["jax", pytest.param("augax", marks=needs_augax)])
def test_bad_traced_parameters_give_nan_and_never_hang(backend):
    b = jnp.array([1.0, 0.0, -1.0, np.nan, np.inf, 1.0, 1.0, 20.0, 1e300])
    c = jnp.array([0.0, 0.0, 0.0, 0.0, 0.0, np.nan, -np.inf, 1e300, 1e-300])
    result = []
    draw = jax.jit(lambda k, b, c: sample_polya_gamma(k, b, c, backend=backend))
    worker = threading.Thread(target=lambda: result.append(draw(jax.random.key(0), b, c)), daemon=True)
    worker.start()
    worker.join(timeout=60)
    assert result, "the sampler did not return"
    assert np.isnan(np.asarray(result[0])).tolist() == [False] + [True] * 6 + [False] * 2


def test_unknown_back_end_and_float32_augax_are_refused():
    with pytest.raises(ValueError, match="backend must be one of"):
        sample_polya_gamma(jax.random.key(0), 1.0, 0.0, backend="gpu")
    with pytest.raises(ValueError, match="needs the augax package, a CPU and float64"):
        sample_polya_gamma(jax.random.key(0), jnp.float32(1), jnp.float32(0), backend="augax")


@needs_augax
def test_augax_back_end_has_the_same_moments():
    seed, count = 24, 10_000
    b, c = (jnp.asarray(np.repeat(COMMON[:, i], count)) for i in (0, 1))
    draws = sample_polya_gamma(jax.random.key(seed), b, c, backend="augax")
    assert_moments(np.asarray(draws).reshape(len(COMMON), count), COMMON, seed)


def test_vmap_equals_a_loop_and_keys_decide():
    keys = jax.random.split(jax.random.key(5), 3)
    b, c = jnp.array([[0.2, 1.0, 30.0]] * 3), jnp.array([0.0, 1.0, 5.0])
    batched = jax.vmap(lambda k, b: sample_polya_gamma(k, b, c))(keys, b)
    looped = jnp.stack([sample_polya_gamma(k, row, c) for k, row in zip(keys, b, strict=True)])
    np.testing.assert_allclose(batched, np.stack(looped), rtol=1e-12)
    assert len(np.unique(np.asarray(batched))) == 9


def test_shapes_dtypes_and_empty_input():
    key = jax.random.key(1)
    assert sample_polya_gamma(key, 1, 0).dtype == jnp.float64
    assert sample_polya_gamma(key, [1.0, 2.0], [[0.0], [1.0], [2.0]]).shape == (3, 2)
    assert sample_polya_gamma(key, 1.0, jnp.zeros(4, jnp.float32)).dtype == jnp.float32
    assert sample_polya_gamma(key, 1.0, jnp.zeros((0, 3))).shape == (0, 3)
    assert sample_polya_gamma(key, 1.0, 0.0, shape=(2, 0)).shape == (2, 0)
    with jax.enable_x64(False):
        assert sample_polya_gamma(key, np.ones(3), np.zeros(3)).dtype == jnp.float32


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("alpha", [0.2, 1.0, 3.7, 400.0, 1e6])
def test_gamma_draws_have_their_law(alpha, dtype):
    draws = np.asarray(blocked_gamma(jax.random.key(6), jnp.full(40_000, alpha, dtype)), np.float64)
    p = stats.kstest(draws, stats.gamma(alpha).cdf).pvalue
    assert p > P_VALUE / 10, f"alpha={alpha}, {dtype}: KS p={p:.2e}, seed 6"


@pytest.mark.parametrize("alpha", [0.02, 5.0])
def test_log_gamma_draws_have_their_law(alpha):
    draws = np.asarray(blocked_log_gamma(jax.random.key(7), jnp.full(40_000, alpha)))
    p = stats.kstest(draws, stats.loggamma(alpha).cdf).pvalue
    assert p > P_VALUE / 2, f"alpha={alpha}: KS p={p:.2e}, seed 7"


def test_small_gamma_shapes_never_reach_zero_and_bad_ones_are_nan():
    tiny = jnp.full(1000, 1e-3, jnp.float32)
    assert bool(jnp.all(blocked_gamma(jax.random.key(8), tiny) > 0))
    assert bool(jnp.all(jnp.isfinite(blocked_log_gamma(jax.random.key(8), tiny * 1e-27))))
    bad = jnp.array([1.0, 0.0, -1.0, np.nan, np.inf])
    for draw in (blocked_gamma, blocked_log_gamma):
        assert np.isnan(np.asarray(draw(jax.random.key(9), bad))).tolist() == [False] + [True] * 4
