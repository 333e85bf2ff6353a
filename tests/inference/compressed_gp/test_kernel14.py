"""One Gaussian process a target: caches, likelihood, gradient, posterior and appended factors."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from labelzoo.inference.compressed_gp import kernel14 as k14


def problem(rows=9, features=3, targets=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, features))
    U = rng.normal(size=(rows, targets))
    return X, U, np.exp(rng.normal(0, 0.5, (targets, 5)))


def brute_kernel(t, A, B):
    return np.array(
        [[t[0] * np.exp(-0.5 * t[1] * ((a - b) ** 2).sum()) + t[2] * (a @ b) + t[3] for b in B] for a in A]
    )


def test_caches_grown_by_rows_equal_those_made_at_once():
    X, _, _ = problem(rows=23)
    grown = k14.Caches(X[:1])
    for begin, end in ((1, 2), (2, 7), (7, 7), (7, 23)):
        grown.append(X[begin:end])
    brute = ((X[:, None] - X[None]) ** 2).sum(-1)
    np.testing.assert_allclose(grown.distances2, brute, rtol=1e-13, atol=0)
    np.testing.assert_allclose(grown.products, X @ X.T, rtol=1e-12, atol=1e-14)
    assert np.array_equal(grown.distances2, grown.distances2.T)
    assert not grown.distances2.diagonal().any()
    assert np.array_equal(grown.X, X)
    with pytest.raises(ValueError, match="read-only"):
        grown.distances2[0, 0] = 1.0


def test_growing_does_not_copy_what_is_there():
    caches = k14.Caches(np.zeros((4, 2)))
    caches.append(np.ones((1, 2)))
    table = caches.distances2.base
    caches.append(np.ones((3, 2)))
    assert caches.distances2.base is table


def test_near_rows_far_from_zero_keep_their_distance():
    X = np.array([[1e8, 0.0], [1e8, 1e-6], [1e8, 0.0]])
    caches = k14.Caches(X)
    assert caches.distances2[0, 1] == pytest.approx(1e-12, rel=1e-12)
    assert caches.distances2[0, 2] == 0.0


def test_log_likelihood_is_the_normal_density():
    X, U, theta = problem()
    got = k14.log_likelihood(theta, U, k14.Caches(X))
    for g, t in enumerate(theta):
        C = brute_kernel(t, X, X) + t[4] * np.eye(len(X))
        want = multivariate_normal(np.zeros(len(X)), C).logpdf(U[:, g])
        assert got[g] == pytest.approx(want, abs=1e-9)


def test_gradient_is_the_slope_of_the_likelihood():
    X, U, theta = problem()
    caches, h = k14.Caches(X), 1e-6
    evidence = k14.log_likelihood_gradient(theta, U, caches)
    np.testing.assert_allclose(evidence.value, k14.log_likelihood(theta, U, caches), rtol=1e-14)
    for i in range(5):
        step = np.zeros(5)
        step[i] = h
        up, down = (k14.log_likelihood(theta * np.exp(s), U, caches) for s in (step, -step))
        np.testing.assert_allclose(evidence.gradient[:, i], (up - down) / (2 * h), rtol=1e-6, atol=1e-7)


def test_prediction_is_the_conditional_normal():
    X, U, theta = problem()
    new = np.random.default_rng(5).normal(size=(4, 3))
    caches = k14.Caches(X)
    got = k14.predict(k14.condition(theta, U, caches), caches, new)
    both = np.vstack([X, new])
    for g, t in enumerate(theta):
        joint = brute_kernel(t, both, both) + t[4] * np.eye(len(both))
        gain = joint[9:, :9] @ np.linalg.inv(joint[:9, :9])
        np.testing.assert_allclose(got.mean[:, g], gain @ U[:, g], atol=1e-9)
        cov = joint[9:, 9:] - gain @ joint[:9, 9:]
        np.testing.assert_allclose(got.variance[:, g], cov.diagonal(), atol=1e-9)


def test_prediction_in_blocks_is_the_same(monkeypatch):
    X, U, theta = problem()
    caches = k14.Caches(X)
    posterior = k14.condition(theta, U, caches)
    whole = k14.predict(posterior, caches, X)
    monkeypatch.setattr(k14, "BLOCK_BYTES", 8 * 9 * 2)
    np.testing.assert_allclose(k14.predict(posterior, caches, X).variance, whole.variance, rtol=1e-13)


@pytest.mark.parametrize("added", [0, 1, 4])
def test_appended_factors_equal_new_ones(added):
    X, U, theta = problem()
    caches = k14.Caches(X[: 9 - added])
    posterior = k14.condition(theta, U[: 9 - added], caches)
    caches.append(X[9 - added :])
    got, want = k14.extend(posterior, U, caches), k14.condition(theta, U, caches)
    np.testing.assert_allclose(got.factors, want.factors, atol=1e-12)
    np.testing.assert_allclose(got.weights, want.weights, atol=1e-10)


def test_duplicates_constant_features_one_row_and_no_target_are_finite():
    for X in (np.ones((6, 2)), np.zeros((5, 1)), np.ones((1, 3))):
        caches = k14.Caches(X)
        theta, U = np.full((1, 5), 0.5), np.zeros((len(X), 1))
        posterior = k14.condition(theta, U, caches)
        prediction = k14.predict(posterior, caches, X)
        assert np.isfinite(prediction.mean).all() and (prediction.variance >= 0.5).all()
        assert np.isfinite(k14.log_likelihood_gradient(theta, U, caches).gradient).all()
    caches = k14.Caches(np.ones((3, 2)))
    empty = k14.condition(np.empty((0, 5)), np.empty((3, 0)), caches)
    assert k14.predict(empty, caches, np.ones((4, 2))).mean.shape == (4, 0)


def test_a_matrix_without_factor_is_minus_infinity():
    caches = k14.Caches(np.ones((4, 1)))
    theta = np.array([[1e12, 1.0, 1.0, 1e12, 1e-8]])
    assert k14.log_likelihood(theta, np.ones((4, 1)), caches)[0] == -np.inf
    with pytest.raises(ValueError, match="target 0 is not positive definite"):
        k14.condition(theta, np.ones((4, 1)), caches)


def test_bad_input_is_named():
    X, U, theta = problem()
    caches = k14.Caches(X)
    bad = X.copy()
    bad[2, 1] = np.nan
    with pytest.raises(ValueError, match="X has nan at row 2, column 1"):
        k14.Caches(bad)
    with pytest.raises(ValueError, match="X has nan at row 2, column 1"):
        k14.predict(k14.condition(theta, U, caches), caches, bad)
    with pytest.raises(ValueError, match=r"targets must have shape \(9, 2\)"):
        k14.log_likelihood(theta, U[:5], caches)
    with pytest.raises(ValueError, match="noise 0.0 at target 1"):
        k14.log_likelihood(np.vstack([theta[0], [1, 1, 1, 1, 0.0]]), U, caches)
