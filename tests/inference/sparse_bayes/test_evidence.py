"""Evidence of the compressed labels: value, gradient, and the maximum that the fit finds."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from labelzoo.inference.sparse_bayes.evidence import (
    MAX_ROWS,
    evidence_rows,
    fit_hyperparameters,
    log_evidence,
)


def data(seed, rows=12, k=3, noise=0.2, scale=1.5, length=0.8):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 4, (rows, 2))
    d2 = ((X[:, None] - X) ** 2).sum(axis=2)
    C = scale * np.exp(-d2 / (2 * length**2)) + noise * np.eye(rows)
    return X, d2, np.linalg.cholesky(C) @ rng.standard_normal((rows, k))


def at(T, d2, log_noise, log_scale, log_length):
    scaled = d2 / np.exp(2 * log_length)
    K = np.exp(-0.5 * scaled)
    return log_evidence(T, K, np.exp(log_scale), np.exp(log_noise), K * scaled)


def test_value_is_the_gaussian_density():
    _, d2, T = data(0)
    found = at(T, d2, np.log(0.3), np.log(2.0), 0.1)
    C = 2.0 * np.exp(-d2 / (2 * np.exp(0.2))) + 0.3 * np.eye(12)
    exact = sum(multivariate_normal(np.zeros(12), C).logpdf(T[:, j]) for j in range(3))
    np.testing.assert_allclose(found.value, exact, rtol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_gradient_is_the_finite_difference(seed):
    _, d2, T = data(seed)
    theta = np.random.default_rng(seed).uniform(-1, 1, 3)
    gradient = at(T, d2, *theta).gradient
    for j in range(3):
        step = 1e-5 * np.eye(3)[j]
        difference = (at(T, d2, *(theta + step)).value - at(T, d2, *(theta - step)).value) / 2e-5
        np.testing.assert_allclose(gradient[j], difference, rtol=1e-6, atol=1e-7)


def test_fit_is_a_stationary_maximum():
    _, d2, T = data(5, rows=60, k=12)
    found = fit_hyperparameters(T, distances2=d2)
    assert found.at_bound == ()
    theta = np.log([found.noise, found.scale, np.sqrt(found.length2)])
    here = at(T, d2, *theta)
    np.testing.assert_allclose(here.value, found.log_evidence, rtol=1e-10)
    assert np.abs(here.gradient).max() < 0.05
    truth = at(T, d2, np.log(0.2), np.log(1.5), np.log(0.8))
    assert found.log_evidence >= truth.value
    assert 0.6 < np.sqrt(found.length2) < 1.1
    assert found.values.max() == found.log_evidence


def test_given_kernel_has_no_length_and_bounds_are_told():
    X, _, T = data(6)
    found = fit_hyperparameters(T, K=X @ X.T)
    assert found.length2 is None
    flat = fit_hyperparameters(np.zeros((12, 3)), K=X @ X.T)
    assert "noise low" in flat.at_bound
    assert "scale low" in flat.at_bound


def test_noise_free_targets_of_a_kernel_of_low_rank_stop_at_the_floor():
    X, _, _ = data(7)
    T = X @ np.random.default_rng(7).standard_normal((2, 3))
    found = fit_hyperparameters(T, K=X @ X.T)
    assert found.at_bound == ("noise low",)
    assert found.noise == pytest.approx(1e-4 * (T**2).mean())
    assert np.isfinite(found.log_evidence)


def test_held_values_stay():
    _, d2, T = data(8)
    found = fit_hyperparameters(T, distances2=d2, noise=0.37, length2=0.5)
    assert (found.noise, found.length2) == (pytest.approx(0.37), pytest.approx(0.5))
    assert not any(name.startswith(("noise", "length")) for name in found.at_bound)


def test_bad_input():
    _, d2, T = data(9)
    with pytest.raises(ValueError, match="either K or distances2"):
        fit_hyperparameters(T)
    with pytest.raises(ValueError, match="evidence_rows"):
        fit_hyperparameters(np.zeros((MAX_ROWS + 1, 2)), K=np.eye(MAX_ROWS + 1))
    with pytest.raises(ValueError, match="positive definite"):
        log_evidence(T, -np.eye(12), 1.0, 0.1)
    assert len(evidence_rows(5000)) == MAX_ROWS
    assert evidence_rows(3).tolist() == [0, 1, 2]
