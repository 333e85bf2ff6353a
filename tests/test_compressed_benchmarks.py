"""The experiments on compressed targets, on data made up for the purpose."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import compressed_methods as methods
import compressed_races as races
import compressed_sweeps as sweeps
from compressed_data import Prepared

from labelzoo.inference.compressed_gp import kernel14
from labelzoo.inference.compressed_gp.hyperparameters import gradient

Array = Any


@pytest.fixture(scope="module")
def made() -> Prepared:
    rng = np.random.default_rng(12)
    X = rng.standard_normal((120, 4)) / 2
    Y = (X @ rng.standard_normal((4, 10)) + 0.3 * rng.standard_normal((120, 10)) > 0.8).astype(np.int8)
    X, Y = X[Y.any(axis=1)], Y[Y.any(axis=1)]
    parts = np.split(rng.permutation(len(X)), [15, 60])
    return Prepared(X, sparse.csr_array(Y), [f"l{j}" for j in range(10)], *parts)


def variance_at(fitted: methods.Targets, X: Array, rows: Array) -> Array:
    """Return predictive variances of X given the fitted rows and more rows, by conditioning anew."""
    caches = kernel14.Caches(np.concatenate([fitted.caches.X, rows]))
    U = np.zeros((len(caches), len(fitted.theta)))
    return kernel14.predict(kernel14.condition(fitted.theta, U, caches), caches, X).variance


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_rows_between_fits_are_those_of_the_criterion_given_the_rows_before(
    made: Prepared, sign: float
) -> None:
    fitted = methods.fit_targets(made, made.start, 0, search=short)
    X = made.X[made.pool]
    taken = methods.greedy(fitted, X, 6, sign)
    assert len(set(taken.tolist())) == 6
    for step in range(6):
        scores = sign * np.log(variance_at(fitted, X, X[taken[:step]])) @ fitted.canonical.weights
        scores[taken[:step]] = -np.inf
        assert scores[taken[step]] == pytest.approx(scores.max(), abs=1e-8)


def short(targets: Array, caches: Any, *, theta: Any = None) -> Any:
    """Stop the search early: what is chosen and predicted is under test, not theta."""
    return gradient(targets, caches, theta=theta, tolerance=1e-3)


def test_bayesian_ridge_is_the_gaussian_posterior_of_a_linear_map(made: Prepared) -> None:
    rng = np.random.default_rng(3)
    X, R, X_new = made.X[:30], rng.standard_normal((30, 2)), made.X[30:35]
    found = methods.bayesian_ridge(X, R, X_new)
    Z, N, center, offset = X - X.mean(axis=0), X_new - X.mean(axis=0), X.mean(axis=0), R.mean(axis=0)
    assert center.shape == (4,)
    for j in range(2):
        best = (-np.inf, None, None)
        for ratio in methods.RATIOS:
            C = np.eye(30) + ratio * Z @ Z.T
            noise = (R[:, j] - offset[j]) @ np.linalg.solve(C, R[:, j] - offset[j]) / 30
            value = -0.5 * np.linalg.slogdet(C)[1] - 15 * np.log(noise)
            best = max(best, (value, ratio, noise), key=lambda one: one[0])
        _, ratio, noise = best
        precision = Z.T @ Z / noise + np.eye(4) / (ratio * noise)
        w = np.linalg.solve(precision, Z.T @ (R[:, j] - offset[j]) / noise)
        np.testing.assert_allclose(found.mean[:, j], offset[j] + N @ w, atol=1e-8)
        spread = noise + (N * np.linalg.solve(precision, N.T).T).sum(axis=1)
        np.testing.assert_allclose(found.variance[:, j], spread, rtol=1e-8)


def test_metrics_by_hand(made: Prepared) -> None:
    p = made._replace(Y=sparse.csr_array(np.array([[1, 0, 1], [0, 1, 0], [1, 0, 0]])), test=np.arange(3))
    labels = np.array([[1, 0, 0], [0, 0, 1], [1, 0, 0]], bool)
    found = races.measured(p, methods.Answer(labels.astype(float) + [[0.2, 0.1, 0.0]] * 3, labels))
    assert found["recall"] == [1.0, 0.0, 0.0]
    assert found["macro_f1"] == pytest.approx(1 / 3)
    assert found["micro_f1"] == pytest.approx(2 * 2 / (3 + 4))
    run = {"support": [9, 1, 5], "curve": [{"omp": found}]}
    assert races.rare(run, "omp") == (1, 0.0)


def test_choosers_take_distinct_pool_rows_and_predictors_answer(made: Prepared) -> None:
    for name in ("random", "cs_miml", "cs_br", "ivr", "mmc"):
        rows = methods.choose_rows(made, name, 0, 12, period=6)
        assert len(set(rows.tolist())) == 12 and np.isin(rows, made.pool).all(), name
    found = methods.answers(
        made, ("omp", "regression", "cs_omp", "cs_br", "cs_rr", "cs_miml", "logistic"), made.pool, 0
    )
    count = methods.training_level(made.Y[made.pool].toarray())
    for name, answer in found.items():
        assert (answer.labels.sum(axis=1) == count).all(), name
        assert races.measured(made, answer)["precision"] > 0.3, name


def test_the_penalty_is_that_of_the_best_held_out_score(
    made: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A penalty so strong that all rows get about even odds loses to one that lets the features speak."""
    monkeypatch.setattr(methods, "PENALTIES", (1e-6, 10.0))
    assert methods.tuned_penalty(made, made.pool, 0) == 10.0
    noise = made._replace(X=np.random.default_rng(4).standard_normal(made.X.shape))
    monkeypatch.setattr(methods, "PENALTIES", (1e-3, 1e4))
    assert methods.tuned_penalty(noise, made.pool, 0) == 1e-3


def test_sweeps_run(made: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = sweeps.learned_rows(made, 0, 40)
    assert set(sweeps.levels(made, 0, rows)) >= {"bpca, omp, mean", "none, regression, item"}
    monkeypatch.setattr(sweeps, "ASKED", 4)
    monkeypatch.setattr(sweeps, "CHECK", 2)
    found = sweeps.period(made, 0, 2)
    assert len(found["curve"]) == 2 and all(0 <= row["macro_f1"] <= 1 for row in found["curve"])
