"""Weighted log variance of compressed targets."""

import numpy as np
import pytest

from labelzoo.acquisition.weighted_entropy import weighted_entropy
from labelzoo.inference.compressed_gp import kernel14 as k14


def near_and_far():
    """One pool row on top of the labelled ones, one far from all."""
    rng = np.random.default_rng(0)
    caches = k14.Caches(rng.normal(0, 0.1, (8, 2)))
    theta = np.array([[1.0, 1.0, 0.01, 0.01, 0.1], [2.0, 0.5, 0.01, 0.01, 0.2]])
    posterior = k14.condition(theta, rng.normal(size=(8, 2)), caches)
    return k14.predict(posterior, caches, [[0.0, 0.0], [4.0, 4.0], [0.5, 0.5]]).variance


def test_the_sum_itself():
    C, lam = near_and_far(), np.array([3.0, 0.5])
    want = [sum(w * np.log(c) for w, c in zip(lam, row, strict=True)) for row in C]
    np.testing.assert_allclose(weighted_entropy(C, lam), want, rtol=1e-13)


def test_plus_asks_for_the_least_certain_row_and_the_printed_minus_for_the_best_known():
    C, lam = near_and_far(), np.array([3.0, 0.5])
    score = weighted_entropy(C, lam)
    assert score.argmax() == 1 == C.sum(axis=1).argmax()
    assert (-score).argmax() == 0 == C.sum(axis=1).argmin()


def test_equal_weights_are_twice_the_entropy_of_the_targets():
    C = near_and_far()
    entropy = [0.5 * np.linalg.slogdet(2 * np.pi * np.e * np.diag(row))[1] for row in C]
    np.testing.assert_allclose(np.diff(weighted_entropy(C, [1.0, 1.0])), 2 * np.diff(entropy), rtol=1e-12)


def test_the_scale_of_the_weights_does_not_matter():
    C, lam = near_and_far(), np.array([3.0, 0.5])
    assert np.array_equal(np.argsort(weighted_entropy(C, lam)), np.argsort(weighted_entropy(C, 1e4 * lam)))


def test_without_targets_the_prior_decides_or_nothing_does():
    none = np.empty((3, 0))
    assert weighted_entropy(none, []).tolist() == [0.0, 0.0, 0.0]
    got = weighted_entropy(none, [], prior_variance=[1.0, 3.0, 2.0])
    np.testing.assert_allclose(got, np.log([1.0, 3.0, 2.0]))


@pytest.mark.parametrize(
    ("variance", "weights", "message"),
    [
        ([[1.0, np.nan]], [1, 1], "variance has nan at row 0, column 1"),
        ([[1.0, 2.0], [0.0, 1.0]], [1, 1], "variance has 0.0 at row 1, target 0"),
        ([[1.0, 2.0]], [1], r"weights must have shape \(2,\)"),
        ([[1.0, 2.0]], [1, -1], "weights has -1.0 at target 1"),
        ([[1.0, 2.0]], [np.inf, 1], "weights has inf at target 0"),
    ],
)
def test_bad_input_is_named(variance, weights, message):
    with pytest.raises(ValueError, match=message):
        weighted_entropy(variance, weights)
    with pytest.raises(ValueError, match="prior_variance has -1.0 at row 0"):
        weighted_entropy(np.empty((1, 0)), [], prior_variance=[-1.0])
