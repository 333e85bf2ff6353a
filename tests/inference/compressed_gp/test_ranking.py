"""Scores that rank all labels, ties, sparsity levels."""

import numpy as np
import pytest
from scipy.special import expit

from labelzoo.inference.compressed_gp import decoding, ranking

METHODS = ("bp", "omp", "corr")


def sample(seed=0, labels=8, d=4, rows=5):
    rng = np.random.default_rng(seed)
    A = rng.normal(0, d**-0.5, (d, labels))
    Y = (rng.random((rows, labels)) < 0.3).astype(float)
    return A, Y, Y @ A.T


@pytest.mark.parametrize("method", METHODS)
def test_scores_are_as_defined_and_the_answer_is_their_top(method):
    A, _, R = sample()
    levels = np.array([1, 2, 3, 2, 1])
    got = ranking.decode(R, A, levels=levels, method=method)
    c = expit(decoding.correlation(R, A))
    if method == "omp":
        found = decoding.matching_pursuit(R, A, levels)
        c = c + (found.selected & (found.coefficients > 0))
    if method == "bp":
        c = decoding.basis_pursuit(R, A) + 1e-6 * c
    np.testing.assert_allclose(got.scores, c, atol=1e-9)
    assert got.labels.sum(axis=1).tolist() == levels.tolist()
    for row, k in enumerate(levels):
        best = np.argsort(-got.scores[row])[:k]
        assert got.labels[row, best].all()
        assert len(set(got.scores[row])) == 8


@pytest.mark.parametrize("method", METHODS)
def test_an_empty_row_ties_by_frequency_then_index(method):
    A = sample()[0]
    frequency = np.array([1, 5, 2, 5, 0, 2, 9, 0])
    got = ranking.decode(np.zeros((2, 4)), A, levels=2, frequency=frequency, method=method)
    want = [6, 1, 3, 2, 5, 0, 4, 7]
    assert np.argsort(-got.scores, axis=1).tolist() == [want] * 2
    assert np.flatnonzero(got.labels[0]).tolist() == [1, 6]
    alone = ranking.decode(np.zeros((1, 4)), A, levels=3, method=method)
    assert np.argsort(-alone.scores[0]).tolist() == list(range(8))
    np.testing.assert_allclose(alone.scores, 0.5e-6 if method == "bp" else 0.5, rtol=1e-12)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("row", [[50.0, 100.0], [-800.0, -750.0], [36.8, 40.0], [-900.0, -746.0]])
def test_labels_are_ranked_by_correlations_beyond_the_reach_of_the_sigmoid(method, row):
    for flip in (slice(None), slice(None, None, -1)):
        R = np.array([row[flip]])
        got = ranking.decode(R, np.eye(2), levels=1, frequency=[9, 9], method=method)
        assert got.labels.tolist() == (max(row) == R).tolist()
        assert got.scores.argmax() == R.argmax() and got.scores[0, 0] != got.scores[0, 1]


def test_what_a_method_selects_ranks_before_any_correlation():
    """With omp at level 1 the label of largest |a.r| / |a| is not that of the largest correlation."""
    A = np.array([[0.01, 10.0]])
    got = ranking.decode([[100.0]], A, levels=1, frequency=[9, 0], method="omp")
    assert decoding.correlation([[100.0]], A).argmax() == 0
    chosen = decoding.matching_pursuit([[100.0]], A, 1).selected
    assert got.labels.tolist() == chosen.tolist()
    first = np.array([[0.2, 0.7, 0.2]])
    scores = ranking.scored([[60.0, -900.0, 90.0]], first, weight=1e-6)
    assert np.argsort(-scores[0]).tolist() == [1, 2, 0]
    np.testing.assert_allclose(scores, [[0.200001, 0.7, 0.200001]], atol=1e-12)


def test_ties_are_broken_without_changing_any_order():
    next_down = np.nextafter(0.5, 0.0)
    scores = np.array([[next_down, 0.5, 0.5, 0.7, 0.5]])
    got = ranking.untied(scores, [0, 1, 9, 0, 1])
    assert np.argsort(-got[0]).tolist() == [3, 2, 1, 4, 0]
    np.testing.assert_allclose(got, scores, rtol=1e-15 * 5)
    assert ranking.ranking(scores, [0, 1, 9, 0, 1]).tolist() == [[3, 2, 1, 4, 0]]


@pytest.mark.parametrize("method", METHODS)
def test_identity_projection_is_decoded_exactly(method):
    Y = np.array([[1, 0, 1, 0], [0, 1, 0, 0], [1, 1, 1, 0]], float)
    got = ranking.decode(Y, np.eye(4), levels=Y.sum(axis=1).astype(int), method=method)
    assert np.array_equal(got.labels, Y == 1)


@pytest.mark.parametrize("method", METHODS)
def test_one_label_and_more_levels_than_labels(method):
    got = ranking.decode([[0.2], [1.0], [-3.0]], [[1.0]], levels=5, method=method)
    assert got.labels.all() and got.scores.shape == (3, 1)
    empty = ranking.decode(np.empty((0, 1)), [[1.0]], levels=1, method=method)
    assert empty.labels.shape == (0, 1)


@pytest.mark.parametrize("method", METHODS)
def test_not_a_number_is_refused(method):
    with pytest.raises(ValueError, match="compressed has nan at row 0, column 1"):
        ranking.decode([[0.0, np.nan]], np.eye(2), levels=1, method=method)
    with pytest.raises(ValueError, match="levels must be at least 1, got 0"):
        ranking.decode([[0.0, 1.0]], np.eye(2), levels=0, method=method)


def test_bad_names_are_refused():
    with pytest.raises(ValueError, match="method must be one of bp, omp, corr, got 'l2'"):
        ranking.decode([[0.0]], [[1.0]], levels=1, method="l2")
    with pytest.raises(ValueError, match="frequency must be 1 finite numbers"):
        ranking.decode([[0.0]], [[1.0]], levels=1, frequency=[1, 2])


def test_training_level():
    assert ranking.training_level([[0, 0], [0, 0]]) == 1
    assert ranking.training_level([[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 0]]) == 3
    # Shares 1, 1/2 and 1: an unobserved cell is neither a one nor a zero.
    assert ranking.training_level([[1, np.nan, 1], [1, 1, np.nan], [np.nan, 0, np.nan]]) == 2
    with pytest.raises(ValueError, match="Y has 2.0 at row 0, label 1"):
        ranking.training_level([[0, 2]])


def test_inferred_levels_are_exact_where_the_count_is_a_function_of_the_row():
    rng = np.random.default_rng(0)
    Y = (rng.random((40, 6)) < 0.4).astype(float)
    Y[0] = 0
    A = rng.normal(size=(6, 6))
    rule = ranking.fit_levels(Y @ A.T, Y)
    np.testing.assert_array_equal(ranking.inferred_levels(rule, Y @ A.T), np.maximum(Y.sum(axis=1), 1))
    np.testing.assert_allclose(rule.slope, np.linalg.solve(A.T, np.ones(6)), rtol=1e-4)


def test_inferred_levels_beat_the_mean_on_new_rows_and_fall_back_to_it():
    rng = np.random.default_rng(1)
    A = rng.normal(0, 10**-0.5, (10, 20))
    rate = rng.choice([0.1, 0.5], size=(400, 1))
    Y = (rng.random((400, 20)) < rate).astype(float)
    R, count = Y @ A.T, Y.sum(axis=1)
    rule = ranking.fit_levels(R[:200], Y[:200])
    new = np.abs(ranking.inferred_levels(rule, R[200:]) - count[200:])
    one = np.abs(ranking.training_level(Y[:200]) - count[200:])
    gain = one - new
    z = gain.mean() / (gain.std() / np.sqrt(200))
    assert z > 5, f"gain {gain.mean():.2f} labels a row, z {z:.1f}, seed 1"
    same = np.repeat([[1.0, 1.0, 0.0]], 30, axis=0)
    flat = ranking.fit_levels(rng.normal(size=(30, 3)), same)
    assert np.isinf(flat.ridge)
    assert ranking.inferred_levels(flat, [[5.0, -9.0, 2.0]]).tolist() == [2]


@pytest.mark.parametrize("ridge", [0.0, 0.7, 30.0])
def test_the_leave_one_out_error_is_that_of_refitting(ridge):
    rng = np.random.default_rng(3)
    R, count = rng.normal(2, 1, (12, 3)), rng.poisson(3, 12).astype(float)
    left, sizes, _ = np.linalg.svd(R - R.mean(axis=0), full_matrices=False)
    got = ranking._left_out(left, sizes**2 / (sizes**2 + ridge), count - count.mean())
    for out in range(12):
        keep = np.arange(12) != out
        X, c = R[keep] - R[keep].mean(axis=0), count[keep] - count[keep].mean()
        b = np.linalg.solve(X.T @ X + ridge * np.eye(3), X.T @ c)
        want = count[out] - count[keep].mean() - (R[out] - R[keep].mean(axis=0)) @ b
        assert got[out] == pytest.approx(want, abs=1e-10)


def test_levels_refuse_what_does_not_fit():
    with pytest.raises(ValueError, match="compressed must have 2 rows as Y, got 1"):
        ranking.fit_levels([[1.0]], [[1, 0], [0, 1]])
    with pytest.raises(ValueError, match="Y has no row whose labels are all observed"):
        ranking.fit_levels([[1.0]], [[np.nan]])
    assert ranking.inferred_levels(ranking.fit_levels([[1.0]], [[1]]), [[3.0]]).tolist() == [1]
