"""Predictions by formed kernels and by loops; kernels on new rows; one problem a label."""

import re
from typing import Any

import numpy as np
import pytest
from sklearn.svm import SVC

from labelzoo.inference.kernel_neighbors import predict
from labelzoo.inference.kernel_neighbors.bregman import bregman
from labelzoo.inference.kernel_neighbors.dual import dual
from labelzoo.inference.kernel_neighbors.one_vs_all import label_probabilities, one_vs_all
from labelzoo.inference.kernel_neighbors.problem import read_problem
from tests.inference.kernel_neighbors.problems import features, rbf

X, Y = features(3, 14, 3)
NAMES = np.array(["b", "a", "c"])[Y]
NEW = features(8, 6, 3)[0]
FIT = dual(read_problem(rbf(X, X), NAMES, gamma=2.0))
CROSS = rbf(NEW, X)


def extended() -> np.ndarray:
    """The class kernels over training and new rows together: K0 there, with v = w = 0 at new rows."""
    everything = np.vstack([X, NEW])
    inverse = np.linalg.inv(rbf(everything, everything))
    out = []
    for c in range(3):
        v, w = np.zeros(20), np.zeros(20)
        v[:14] = (FIT.problem.y == c) / (FIT.problem.y == c).sum()
        w[:14] = FIT.W[:, c]
        out.append(np.linalg.inv(inverse + np.outer(v, w) + np.outer(w, v)))
    return np.array(out)


def test_kernels_on_new_rows_are_those_of_the_joint_kernel() -> None:
    joint = extended()
    for c in range(3):
        K = predict.kernel(FIT, c, rbf(NEW, NEW), CROSS, CROSS)
        np.testing.assert_allclose(K, joint[c, 14:, 14:], atol=1e-8)
        assert np.linalg.eigvalsh(K).min() > -1e-12
        mixed = predict.kernel(FIT, c, CROSS, CROSS, FIT.problem.K0)
        np.testing.assert_allclose(mixed, joint[c, 14:, :14], atol=1e-8)
        mean = joint[c, 14:, :14][:, FIT.problem.y == c].mean(axis=1)
        np.testing.assert_allclose(predict.similarity(FIT, CROSS)[:, c], mean, atol=1e-8)


def test_classes_by_shares() -> None:
    s = predict.similarity(FIT, CROSS)
    assert list(predict.classify(FIT, CROSS)) == ["abc"[k] for k in s.argmax(axis=1)]
    p = predict.probabilities(FIT, CROSS, classes=["c", "unseen", "a", "b"])
    own = predict.probabilities(FIT, CROSS)
    np.testing.assert_allclose(own.sum(axis=1), 1.0)
    np.testing.assert_array_equal(p, np.column_stack([own[:, 2], np.zeros(6), own[:, 0], own[:, 1]]))
    np.testing.assert_allclose(predict.similarity(FIT, FIT.problem.K0), FIT.similarity, atol=1e-12)


@pytest.mark.parametrize("neighbors", [1, 4])
def test_neighbours_by_loops(neighbors: int) -> None:
    joint, codes = extended(), FIT.problem.y
    got = predict.classify_by_neighbors(FIT, CROSS, np.ones(6), neighbors=neighbors)
    for x in range(6):
        K = [joint[codes[i]] for i in range(14)]
        d = np.array([K[i][14 + x, 14 + x] + K[i][i, i] - 2 * K[i][14 + x, i] for i in range(14)])
        np.testing.assert_allclose(predict.squared_distances(FIT, CROSS, np.ones(6))[x], d, atol=1e-8)
        near = np.argsort(d)[:neighbors]
        best = min(range(3), key=lambda c: (-(codes[near] == c).sum(), d[near][codes[near] == c].sum(), c))
        assert got[x] == "abc"[best]


def test_a_vote_that_ties_goes_to_the_nearer_class() -> None:
    fit = dual(read_problem(np.eye(4), [1, 1, 0, 0], gamma=1e-6))
    cross = np.array([[0.5, 0, 0.4, 0], [0.4, 0, 0.5, 0], [0.5, 0, 0.5, 0], [0.5, 0.4, 0, 0]])
    # The last row's vote is not tied, and has nothing to say of the others.
    got = predict.classify_by_neighbors(fit, cross, np.ones(4), neighbors=2)
    assert list(got) == [1, 0, 0, 1]


def test_distances_read_each_rows_own_diagonal_and_are_not_below_zero() -> None:
    size = np.linspace(0.5, 2.0, 14)
    fit = dual(read_problem(rbf(X, X) * np.outer(size, size), NAMES, gamma=2.0))
    K0 = fit.problem.K0
    formed = [predict.kernel(fit, c, K0, K0, K0) for c in fit.problem.y]
    wanted = np.array([np.diag(K) + K[i, i] - 2 * K[:, i] for i, K in enumerate(formed)]).T
    found = predict.squared_distances(fit, K0, np.diag(K0))
    np.testing.assert_allclose(found, wanted, atol=1e-10)
    # A diagonal without the jitter of the training rows would give the rows themselves less than nothing.
    found = predict.squared_distances(fit, K0, np.diag(K0) - 1e-3)
    np.testing.assert_allclose(found, np.maximum(wanted - 1e-3, 0.0), atol=1e-10)
    assert np.diag(found).tolist() == [0.0] * 14


def test_svm_on_formed_kernels() -> None:
    joint = extended()
    decision = [
        SVC(C=10.0, kernel="precomputed").fit(K[:14, :14], FIT.problem.y == c).decision_function(K[14:, :14])
        for c, K in enumerate(joint)
    ]
    wanted = ["abc"[k] for k in np.argmax(decision, axis=0)]
    assert list(predict.classify_by_svm(FIT, CROSS, penalty=10.0)) == wanted


def test_one_class_is_predicted_without_a_machine() -> None:
    fit = dual(read_problem(rbf(X, X), np.full(14, 7)))
    assert list(predict.classify_by_svm(fit, CROSS)) == list(predict.classify(fit, CROSS)) == [7] * 6
    assert predict.probabilities(fit, CROSS).tolist() == [[1.0]] * 6


def test_labels_are_problems_of_their_own_on_one_kernel() -> None:
    labels = np.column_stack([NAMES == "a", NAMES != "b", np.zeros(14), np.ones(14)]).astype(float)
    labels[3, 1] = labels[5, 1] = np.nan
    found = one_vs_all(rbf(X, X), labels, gamma=1.0)
    got = label_probabilities(found, CROSS)
    for j in range(2):
        rows = np.flatnonzero(~np.isnan(labels[:, j]))
        alone = bregman(read_problem(rbf(X, X)[np.ix_(rows, rows)], labels[rows, j], gamma=1.0))
        np.testing.assert_allclose(got[:, j], predict.probabilities(alone, CROSS[:, rows])[:, 1], atol=1e-6)
    assert found.fits[2] is found.fits[3] is None
    assert got[:, 2:].tolist() == [[0.0, 1.0]] * 6
    assert one_vs_all(rbf(X, X), np.full((14, 1), np.nan)).constant.tolist() == [0.5]


def test_labels_take_the_jitter_and_the_rule_for_negative_similarities_that_are_asked_for() -> None:
    labels = np.column_stack([NAMES == "a", NAMES == "b"]).astype(float)
    found = one_vs_all(rbf(X, X), labels, jitter=0.1, gamma=1.0)
    cross = CROSS - 0.3
    for j, fit in enumerate(found.fits):
        assert fit is not None
        np.testing.assert_allclose(np.diag(fit.problem.K0), 1.1)
        assert (predict.similarity(fit, cross) < 0).any()
        for negative in ("clip", "raw"):
            got = label_probabilities(found, cross, negative=negative)[:, j]
            np.testing.assert_array_equal(got, predict.probabilities(fit, cross, negative=negative)[:, 1])


BAD: dict[str, Any] = {
    "cross must have shape (rows, 14), got shape (6, 6)": lambda: predict.similarity(FIT, CROSS[:, :6]),
    "classes must have all of the fit's, a is not among": lambda: predict.probabilities(
        FIT, CROSS, classes=["b", "c"]
    ),
    "negative must be 'clip' or 'raw', got 'cut'": lambda: predict.probabilities(FIT, CROSS, negative="cut"),
    "place must be an integer from 0 to 2, got 3": lambda: predict.kernel(FIT, 3, CROSS, CROSS, CROSS),
    "between must have shape (6, 6)": lambda: predict.kernel(FIT, 0, CROSS, CROSS, CROSS),
    "diagonal must be 6 finite numbers": lambda: predict.squared_distances(FIT, CROSS, np.ones(5)),
    "neighbors must be an integer from 1 to 14, got 15": lambda: predict.classify_by_neighbors(
        FIT, CROSS, np.ones(6), neighbors=15
    ),
    "penalty must be a finite number above 0, got 0": lambda: predict.classify_by_svm(FIT, CROSS, penalty=0),
    "Y must have 14 rows": lambda: one_vs_all(rbf(X, X), np.ones((13, 2))),
    "Y has 2.0 at row 1, label 0": lambda: one_vs_all(rbf(X, X), 2.0 * np.eye(14)[:, 1:]),
    "label 1: alpha must be": lambda: one_vs_all(rbf(X, X), np.eye(14)[:, :2] * [0, 1], alpha=2),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_refused(message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        BAD[message]()
