"""Mean field of bpca: bound, monotone updates, rotation, pruning and the planted rank."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import gamma, multivariate_normal, norm

from labelzoo.data import LabelData
from labelzoo.inference.bpca import factors as steps
from labelzoo.inference.bpca.factors import Factors, bound, expected_square
from labelzoo.inference.bpca.mean_field import climb, dropped, kept_columns, start
from labelzoo.inference.bpca.pseudo_rows import arrays_of
from labelzoo.inference.bpca.rotation import rotated, rotation_step
from labelzoo.models.bpca_card import spec

STRONG = {**dict(spec.small_settings)}


def inputs_of(Y: Any, **settings: Any) -> dict[str, Any]:
    Y = np.asarray(Y)
    return spec.prepare(LabelData(np.zeros((len(Y), 1)), Y), spec.resolve(settings))


def rows_of(R: np.ndarray, **settings: Any) -> dict[str, Any]:
    """Return inputs whose compressed rows are `R`."""
    d = R.shape[1]
    inputs = inputs_of(np.eye(d, dtype=int), **{"num_measurements": d, **settings})
    mean = R.mean(axis=0)
    return {**inputs, "compressed": R, "row_mean": mean, "scatter": (R - mean).T @ (R - mean)}


def planted(seed: int, m: int = 200, d: int = 10, rank: int = 3, noise: float = 0.1) -> np.ndarray:
    """Return rows of the given rank and noise variance about a mean, scaled to unit mean variance."""
    rng = np.random.default_rng(seed)
    signal = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, d)) + rng.standard_normal(d)
    R = signal + np.sqrt(noise) * rng.standard_normal((m, d))
    return R / np.sqrt(R.var(axis=0).mean())


def small() -> tuple[dict[str, Any], dict[str, Any], Factors]:
    inputs = rows_of(planted(0, m=12, d=4, rank=2), num_components=3, **STRONG)
    arrays = arrays_of(inputs)
    return inputs, arrays, jax.tree.map(jnp.asarray, start(jax.random.key(0), inputs, 3))


def test_square_is_its_expectation() -> None:
    _, arrays, factors = small()
    rng = np.random.default_rng(1)
    count, (m, d), p = 40_000, arrays["compressed"].shape, 3
    U = (
        factors.scores_mean
        + rng.standard_normal((count, m, p)) @ np.linalg.cholesky(factors.scores_covariance).T
    )
    W = factors.loadings_mean + rng.standard_normal((count, d, p)) * np.sqrt(1e-2)
    mu = factors.mean_mean + np.sqrt(factors.mean_variance) * rng.standard_normal((count, d))
    R = arrays["compressed"] - np.einsum("smp,sdp->smd", U, W) - mu[:, None]
    drawn = np.asarray((R**2).sum(axis=(1, 2)))
    z = (drawn.mean() - float(expected_square(factors, arrays))) / (drawn.std() / np.sqrt(count))
    assert abs(z) < 5, f"z = {z:.1f}, seed 1"


def test_every_update_and_the_rotation_raise_the_bound() -> None:
    _, arrays, factors = small()
    value = float(bound(factors, arrays))
    for _ in range(10):
        for update in steps.UPDATES:
            factors = update(factors, arrays)
            new = float(bound(factors, arrays))
            assert new >= value - 1e-9 * abs(value), update.__name__
            value = new
        factors, new = rotation_step(factors, arrays)
        assert float(new) >= value - 1e-9 * abs(value)
        assert float(bound(factors, arrays)) == pytest.approx(float(new), rel=1e-12)
        value = float(new)


def test_rotation_keeps_the_fit_and_makes_the_moments_diagonal() -> None:
    _, arrays, factors = small()
    new = rotated(factors, arrays)
    np.testing.assert_allclose(
        new.scores_mean @ new.loadings_mean.T, factors.scores_mean @ factors.loadings_mean.T, atol=1e-10
    )
    assert float(expected_square(new, arrays)) == pytest.approx(float(expected_square(factors, arrays)))
    Phi, Omega = steps.score_moment(new, arrays), steps.loading_moment(new)
    np.testing.assert_allclose(Phi, (12 + 2 * STRONG["precision_shape"]) * np.eye(3), atol=1e-9)
    np.testing.assert_allclose(Omega, np.diag(np.diagonal(Omega)), atol=1e-10)


def test_a_rotation_that_would_lower_the_bound_is_refused() -> None:
    _, arrays, factors = small()
    for _ in range(300):
        factors = steps.sweep(factors, arrays)
    before = float(bound(factors, arrays))
    assert float(bound(rotated(factors, arrays), arrays)) < before
    kept, value = rotation_step(factors, arrays)
    assert float(value) == before
    np.testing.assert_array_equal(kept.scores_mean, factors.scores_mean)


def exact_evidence(inputs: dict[str, Any]) -> float:
    """Return ln p(R) for one measurement and one component, by quadrature over alpha, tau, w and mu."""
    R = inputs["compressed"][:, 0]
    x, weight = np.polynomial.legendre.leggauss(60)
    ln_a, ln_t = 6.0 * x - 1.0, 5.0 * x
    alpha, tau = np.exp(ln_a), np.exp(ln_t)
    log_alpha = gamma.logpdf(alpha, inputs["precision_shape"], scale=1 / inputs["precision_rate"]) + ln_a
    log_tau = gamma.logpdf(tau, inputs["noise_shape"], scale=1 / inputs["noise_rate"]) + ln_t
    v = 12.0 * x  # w = sinh v / alpha^(1/2) would waste nodes: the standardised loading itself
    log_v = norm.logpdf(v) + np.log(12.0 * weight)
    variance = v[None, :, None] ** 2 / alpha[:, None, None] + 1.0 / tau
    m, beta = len(R), inputs["mean_precision"]
    total = beta + m / variance
    quadratic = (R**2).sum() / variance - (R.sum() / variance) ** 2 / total
    like = -0.5 * (m * np.log(2 * np.pi * variance) + np.log(total / beta) + quadratic)
    terms = like + (log_alpha + np.log(6.0 * weight))[:, None, None] + log_v[None, :, None]
    return float(logsumexp(terms + log_tau + np.log(5.0 * weight)))


def test_bound_is_below_the_exact_evidence_of_one_measurement() -> None:
    inputs = rows_of(np.array([[0.3], [1.9], [-0.4], [1.1]]), **STRONG)
    evidence = exact_evidence(inputs)
    found = climb(
        start(jax.random.key(0), inputs, 1), inputs, max_iter=500, tolerance=1e-12, rotation=True, prune=0.0
    )
    assert found.converged
    assert np.diff(found.objective).min() > -1e-10
    gap = evidence - found.objective[-1]
    assert 0.01 < gap < 2.0, f"bound {found.objective[-1]:.4f}, evidence {evidence:.4f}"


def test_quadrature_of_the_evidence_agrees_with_simple_monte_carlo() -> None:
    inputs = rows_of(np.array([[0.3], [1.9], [-0.4], [1.1]]), **STRONG)
    rng = np.random.default_rng(5)
    count = 200_000
    alpha, tau = rng.gamma(1.0, 1.0, (2, count))
    w, mu = rng.standard_normal((2, count)) / np.sqrt(np.stack([alpha, np.full(count, 0.1)]))
    sd = np.sqrt(w**2 + 1 / tau)
    weights = np.exp(norm.logpdf(inputs["compressed"], mu, sd).sum(axis=0))
    error = weights.std() / np.sqrt(count)
    z = (weights.mean() - np.exp(exact_evidence(inputs))) / error
    assert abs(z) < 5, f"z = {z:.1f}, seed 5"


def test_the_planted_rank_is_found_in_20_of_20_runs() -> None:
    ranks = []
    for seed in range(20):
        inputs = rows_of(planted(seed))
        first = start(jax.random.key(seed), inputs, 9)
        found = climb(first, inputs, max_iter=2000, tolerance=1e-9, rotation=True, prune=1e-3)
        assert found.converged
        ranks.append(found.factors.loadings_mean.shape[1])
    assert ranks == [3] * 20


def test_the_largest_column_is_never_dropped() -> None:
    assert kept_columns(np.zeros((4, 3)), 1e-3).sum() >= 1
    loadings = np.diag([1.0, 0.02, 0.04])
    assert kept_columns(loadings, 1e-3).tolist() == [True, False, True]
    assert kept_columns(loadings, 0.0).all()


def test_dropping_a_column_keeps_the_others() -> None:
    factors = Factors(*map(np.asarray, small()[2]))
    fewer = dropped(factors, np.array([True, False, True]))
    np.testing.assert_array_equal(fewer.scores_mean, factors.scores_mean[:, [0, 2]])
    np.testing.assert_array_equal(fewer.scores_covariance, factors.scores_covariance[[0, 2]][:, [0, 2]])
    assert fewer.precision_rate.shape == (2,)


def test_rows_in_the_likelihood_are_normal() -> None:
    from labelzoo.models.bpca_card import covariance_of, log_likelihood

    inputs = rows_of(planted(3, m=7, d=3, rank=1))
    rng = np.random.default_rng(2)
    draw = {
        "loadings": rng.standard_normal((3, 2)),
        "mean": rng.standard_normal(3),
        "noise_precision": np.asarray(1.7),
    }
    direct = multivariate_normal.logpdf(inputs["compressed"], draw["mean"], np.asarray(covariance_of(draw)))
    assert float(log_likelihood(draw, inputs)) == pytest.approx(direct.sum(), rel=1e-10)
