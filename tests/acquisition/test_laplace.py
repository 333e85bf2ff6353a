"""Laplace's approximation against an optimiser and sampled fields; scores against dense algebra."""

from typing import NamedTuple

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from scipy.special import expit

from labelzoo.acquisition.laplace import ENTRIES, epig_laplace_with, laplace_setting, table_information
from labelzoo.acquisition.laplace_fit import (
    LaplaceFit,
    amplitude_of,
    fit_laplace,
    logistic_moments,
    predict_laplace,
    prior_mean,
)
from labelzoo.acquisition.problem import Problem

IVRP, EPIG = ENTRIES


class Rbf(NamedTuple):
    length2: float = 2.0
    noise_ratio: float = 1.0

    def between(self, A: np.ndarray, B: np.ndarray) -> np.ndarray:
        return np.exp(-cdist(A, B, "sqeuclidean") / (2 * self.length2))

    def diagonal(self, A: np.ndarray) -> np.ndarray:
        return np.ones(A.shape[0])


def make_problem(
    pool: int = 9, labelled: int = 8, targets: int = 6, labels: int = 3, seed: int = 0
) -> Problem:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(labelled, 2))
    Y = (X @ rng.normal(size=(2, labels)) + 0.5 * rng.normal(size=(labelled, labels)) > 0.3).astype(float)
    Y[rng.random(Y.shape) < 0.15] = np.nan
    return Problem(
        X_pool=rng.normal(size=(pool, 2)),
        X_labelled=X,
        Y_labelled=Y,
        X_targets=rng.normal(size=(targets, 2)) if targets else None,
        weights=rng.uniform(0, 2, targets) if targets else None,
        kernel=Rbf(),
    )


def fitted(problem: Problem, amplitude: float) -> LaplaceFit:
    X, kernel = problem.X_labelled, problem.kernel
    return fit_laplace(kernel.between(X, X), kernel.diagonal(X), problem.Y_labelled, amplitude)


@pytest.mark.parametrize("amplitude", [1.0, 4.0, 64.0])
def test_mode_equals_the_optimisers(amplitude: float) -> None:
    problem = make_problem()
    fit = fitted(problem, amplitude)
    K = amplitude * problem.kernel.between(problem.X_labelled, problem.X_labelled)
    for label in range(3):
        y = problem.Y_labelled[:, label]
        known = ~np.isnan(y)
        mean = fit.offset[label] * np.sqrt(1 + np.pi * amplitude / 8)
        signs = 2 * y[known] - 1
        root = np.linalg.cholesky(K + 1e-12 * np.eye(len(K)))

        def loss(z: np.ndarray, root=root, known=known, mean=mean, signs=signs) -> tuple[float, np.ndarray]:
            f = (mean + root @ z)[known]
            slope = root[known].T @ (signs * expit(-signs * f))
            return np.logaddexp(0, -signs * f).sum() + z @ z / 2, z - slope

        best = minimize(loss, np.zeros(len(K)), jac=True, method="BFGS", options={"gtol": 1e-9})
        np.testing.assert_allclose(K @ fit.weights[:, label], root @ best.x, atol=2e-6)
        assert np.all(fit.weights[~known, label] == 0) and np.all(fit.root[~known, label] == 0)


def test_weights_are_the_gradient_at_the_mode_even_for_rare_labels() -> None:
    """One positive of 60 and amplitude 64, where whole Newton steps diverge."""
    rng = np.random.default_rng(3)
    X, Y = rng.normal(size=(60, 2)), np.zeros((60, 2))
    Y[0, 0] = Y[1:, 1] = 1
    K = Rbf(0.2).between(X, X)
    fit = fit_laplace(K, np.ones(60), Y, 64.0)
    f = prior_mean(fit.offset, 64.0, np.ones(60)) + 64 * K @ fit.weights
    np.testing.assert_allclose(fit.weights, Y - expit(f), atol=1e-7)


def test_predictions_equal_dense_linear_algebra() -> None:
    """Mean and covariance with (K + W^-1)^-1 written out; rows of unknown labels taken out by hand."""
    problem, amplitude = make_problem(), 5.0
    fit = fitted(problem, amplitude)
    X, kernel, at = problem.X_labelled, problem.kernel, problem.X_pool
    made = predict_laplace(fit, kernel.between(X, at), kernel.diagonal(at))
    for label in range(3):
        known = ~np.isnan(problem.Y_labelled[:, label])
        seen, cross = X[known], amplitude * kernel.between(X[known], at)
        mean = fit.offset[label] * np.sqrt(1 + np.pi * amplitude / 8)
        p = expit(mean + amplitude * kernel.between(seen, seen) @ fit.weights[known, label])
        noise = np.diag(1 / (p * (1 - p)))
        gain = np.linalg.solve(amplitude * kernel.between(seen, seen) + noise, cross)
        covariance = amplitude * kernel.between(at, at) - cross.T @ gain
        V = made.factor[label]
        np.testing.assert_allclose(amplitude * kernel.between(at, at) - V.T @ V, covariance, atol=1e-9)
        expected = mean + cross.T @ fit.weights[known, label]
        np.testing.assert_allclose(made.mean[label], expected, atol=1e-9)
        moments = logistic_moments(expected, np.diag(covariance))
        np.testing.assert_allclose(made.probability[label], moments[0], atol=1e-9)
        np.testing.assert_allclose(made.slope[label], moments[1], atol=1e-9)


@pytest.mark.parametrize(
    ("variance", "error"), [(0.0, 1e-15), (1.0, 3e-11), (4.0, 3e-11), (16.0, 2e-7), (25.0, 3e-6)]
)
def test_moments_have_the_stated_error(variance: float, error: float) -> None:
    """Against a trapezoidal rule of 20 times as many nodes, whose own error is below 1e-13."""
    mean = np.linspace(-8, 8, 33)
    z = np.linspace(-12, 12, 1921)
    weights = np.exp(-(z**2) / 2) / np.exp(-(z**2) / 2).sum()
    p = expit(mean[:, None] + np.sqrt(variance) * z)
    expected, slope = logistic_moments(mean, np.full(33, variance))
    np.testing.assert_allclose(expected, p @ weights, atol=error)
    np.testing.assert_allclose(slope, (p * (1 - p)) @ weights, atol=error)


def test_prior_mean_keeps_the_frequency() -> None:
    """At amplitude 4 within 7 % from .1 to .9, and .012 for .02, where the logit alone gives .04."""
    frequency = np.array([0.02, 0.1, 0.3, 0.5, 0.9])
    offset = np.log(frequency / (1 - frequency))
    mean = prior_mean(offset, 4.0, np.array([1.0, 0.0]))
    np.testing.assert_allclose(mean[1], offset)
    found = logistic_moments(mean[0], np.full(5, 4.0))[0]
    np.testing.assert_allclose(found[1:], frequency[1:], rtol=0.07)
    assert found[0] == pytest.approx(0.0115, abs=5e-4)
    assert logistic_moments(offset, np.full(5, 4.0))[0][0] > 0.04


def test_amplitude_rule() -> None:
    assert [amplitude_of(r) for r in (0.01, 0.5, 1.0, 2.0, 50.0)] == [16, 8, 4, 2, 1]


def test_covariances_of_probabilities_are_near_those_of_the_field() -> None:
    """Second order against 200000 draws of the approximate posterior field, amplitude 4.

    Stated tolerance: the error summed over pairs is below 15 % of the sum of sizes, and single pairs are
    within .03 sd sd* + 5 Monte Carlo errors of the truth or 30 %.
    """
    problem = make_problem(seed=4)
    setting = laplace_setting(problem, 0, "ivrp")
    rng = np.random.default_rng(11)
    X, kernel = problem.X_labelled, problem.kernel
    fit = fitted(problem, 4.0)
    both = np.vstack([problem.X_pool, problem.X_targets])
    made = predict_laplace(fit, kernel.between(X, both), kernel.diagonal(both))
    for label in range(3):
        V = made.factor[label]
        covariance = 4 * kernel.between(both, both) - V.T @ V
        f = (
            made.mean[label]
            + rng.normal(size=(200000, 15)) @ np.linalg.cholesky(covariance + 1e-10 * np.eye(15)).T
        )
        p = expit(f)
        p -= p.mean(axis=0)
        sampled = p.T @ p / len(p)
        C = setting.belief.covariance(label, slice(0, 6))
        approximate = setting.target.slope[label][:, None] * setting.pool.slope[label] * C
        truth = sampled[9:, :9]
        sd = np.sqrt(np.diag(sampled))
        error = np.abs(approximate - truth)
        assert error.sum() < 0.15 * np.abs(truth).sum(), (
            f"label {label}: {error.sum() / np.abs(truth).sum():.3f}"
        )
        slack = 0.03 * np.outer(sd[9:], sd[:9]) + 5 * np.outer(sd[9:], sd[:9]) / np.sqrt(len(p))
        assert (error < np.maximum(slack, 0.3 * np.abs(truth))).all(), f"label {label}, seed 11"


def conditioned(problem: Problem, picked: list[int]) -> list[np.ndarray]:
    """Covariance of f over pool and targets, a label at a time, given pseudo-observations of `picked`."""
    setting = laplace_setting(problem, 0, "ivrp")
    fit = fitted(problem, 4.0)
    X, kernel = problem.X_labelled, problem.kernel
    both = problem.X_pool if problem.X_targets is None else np.vstack([problem.X_pool, problem.X_targets])
    V = predict_laplace(fit, kernel.between(X, both), kernel.diagonal(both)).factor
    found = []
    for label in range(len(V)):
        C = 4 * kernel.between(both, both) - V[label].T @ V[label]
        noise = np.diag(1 / setting.pool.slope[label][picked])
        found.append(C - C[:, picked] @ np.linalg.solve(C[np.ix_(picked, picked)] + noise, C[picked]))
    return found


def expected_scores(problem: Problem, picked: list[int], name: str) -> np.ndarray:
    setting = laplace_setting(problem, 0, "ivrp")
    pool = len(problem.X_pool)
    own = problem.X_targets is None
    at = np.arange(pool) if own else pool + np.arange(len(problem.X_targets))
    weights = np.ones(pool) if problem.weights is None else problem.weights.copy()
    if own:
        weights[picked] = 0
    scores = np.zeros(pool)
    for C, h, g in zip(conditioned(problem, picked), setting.pool.slope, setting.target.slope, strict=True):
        cross, own_noise = C[at][:, :pool], 1 / h
        if name == "ivrp":
            terms = (weights * g**2)[:, None] * cross**2 / (np.diag(C)[:pool] + own_noise)
        else:
            rho2 = cross**2 / np.outer(np.diag(C)[at] + 1 / g, np.diag(C)[:pool] + own_noise)
            terms = -weights[:, None] * np.log(1 - rho2) / 2 / weights.sum()
        if own:
            terms[np.arange(pool), np.arange(pool)] = 0
        scores += terms.sum(axis=0)
    scores[picked] = -np.inf
    return scores


@pytest.mark.parametrize("name", ["ivrp", "epig_laplace"])
@pytest.mark.parametrize("targets", [6, 0])
def test_batch_equals_conditioning_row_by_row(name: str, targets: int) -> None:
    """Every pick is the best, with its gain, once those before it are conditioned on densely."""
    problem = make_problem(targets=targets, seed=2)
    entry = {entry.name: entry for entry in ENTRIES}[name]
    np.testing.assert_allclose(entry.score(problem), expected_scores(problem, [], name), atol=1e-8)
    choice, picked = entry(problem, 6), []
    for row, gain in zip(choice.rows.tolist(), choice.gains, strict=True):
        scores = expected_scores(problem, picked, name)
        assert gain == pytest.approx(scores[row], abs=1e-8)
        assert scores[row] == pytest.approx(scores.max(), abs=1e-8)
        picked.append(row)


def test_table_information_equals_the_definition_and_stays_valid() -> None:
    rng = np.random.default_rng(0)
    p, q = rng.uniform(0.05, 0.95, (2, 50))
    covariance = rng.uniform(-0.3, 0.3, 50)
    found = table_information(p, q, covariance)
    for i in range(50):
        c = np.clip(
            covariance[i],
            max(-p[i] * q[i], -(1 - p[i]) * (1 - q[i])),
            min(p[i] * (1 - q[i]), (1 - p[i]) * q[i]),
        )
        table = np.outer([p[i], 1 - p[i]], [q[i], 1 - q[i]]) + c * np.array([[1, -1], [-1, 1]])
        positive = table > 1e-15
        independent = np.outer(table.sum(axis=1), table.sum(axis=0))
        assert found[i] == pytest.approx(
            (table * np.log(np.where(positive, table, 1) / independent))[positive].sum(), abs=1e-10
        )
    assert table_information(np.array(0.0), np.array(0.5), np.array(0.1)) == 0
    small = table_information(np.array(0.3), np.array(0.4), np.array(1e-3))
    assert small == pytest.approx(1e-6 / (0.3 * 0.7 * 0.4 * 0.6) / 2, rel=2e-2)


def test_tables_and_gaussian_pairs_are_near_the_information_of_the_field() -> None:
    """E p p* by 200000 draws gives the true table; both forms rank rows alike and sum to within 25 %."""
    problem = make_problem(seed=5, labels=1)
    fit = fitted(problem, 4.0)
    X, kernel = problem.X_labelled, problem.kernel
    both = np.vstack([problem.X_pool, problem.X_targets])
    made = predict_laplace(fit, kernel.between(X, both), kernel.diagonal(both))
    V = made.factor[0]
    root = np.linalg.cholesky(4 * kernel.between(both, both) - V.T @ V + 1e-10 * np.eye(15))
    p = expit(made.mean[0] + np.random.default_rng(12).normal(size=(200000, 15)) @ root.T)
    covariance = np.cov(p, rowvar=False)[9:, :9]
    mean = p.mean(axis=0)
    truth = problem.weights @ table_information(mean[:9], mean[9:, None], covariance) / problem.weights.sum()
    for pair in ("gaussian", "table"):
        scores = epig_laplace_with(pair=pair).score(problem)
        assert scores.argmax() == truth.argmax()
        assert np.abs(scores - truth).sum() < 0.25 * truth.sum(), f"{pair}, seed 12"


@pytest.mark.parametrize("entry", [*ENTRIES, epig_laplace_with(pair="table")])
def test_order_of_the_labels_does_not_matter(entry: object) -> None:
    problem = make_problem(labels=5, pool=20)
    order = np.random.default_rng(1).permutation(5)
    shuffled = Problem(
        problem.X_pool,
        problem.X_labelled,
        problem.Y_labelled[:, order],
        problem.X_targets,
        problem.weights,
        kernel=problem.kernel,
    )
    first, second = entry(problem, 5), entry(shuffled, 5)
    assert first.rows.tolist() == second.rows.tolist()
    np.testing.assert_allclose(first.gains, second.gains, rtol=1e-9)


def test_many_labels_do_not_lose_logarithms() -> None:
    """Thirty-three copies of one label give thirty-three times its score."""
    problem = make_problem(labels=1)
    many = Problem(
        problem.X_pool,
        problem.X_labelled,
        np.repeat(problem.Y_labelled, 33, axis=1),
        problem.X_targets,
        problem.weights,
        kernel=problem.kernel,
    )
    for entry in ENTRIES:
        np.testing.assert_allclose(entry.score(many), 33 * entry.score(problem), rtol=1e-8)


def test_targets_and_candidates_are_thinned_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem(pool=40, targets=0)
    monkeypatch.setattr("labelzoo.acquisition.laplace.POOL_TARGETS", 10)
    monkeypatch.setattr("labelzoo.acquisition.laplace.WORKING_ENTRIES", 3 * 21 * 15)
    for entry in ENTRIES:
        choice = entry(problem, 3)
        assert choice.report["targets"] == "10 of 40, drawn at random"
        assert choice.report["candidates"] == "15 of 40, drawn at random"
        assert len(set(choice.rows.tolist())) == 3
        scores = entry.score(problem)
        assert np.isfinite(scores[choice.rows]).all() and np.isnan(scores).any()


def test_labels_never_or_always_seen() -> None:
    """A label without any known cell and constant labels give finite scores."""
    problem = make_problem()
    Y = problem.Y_labelled.copy()
    Y[:, 0], Y[:, 1], Y[:, 2] = np.nan, 0.0, 1.0
    changed = Problem(problem.X_pool, problem.X_labelled, Y, problem.X_targets, kernel=problem.kernel)
    for entry in ENTRIES:
        assert np.isfinite(entry(changed, 4).gains).all()


def test_bad_input_is_named() -> None:
    problem = make_problem()
    empty = np.full_like(problem.Y_labelled, np.nan)
    with pytest.raises(ValueError, match="needs a labelled row"):
        IVRP(Problem(problem.X_pool, problem.X_labelled, empty, kernel=problem.kernel), 2)
    with pytest.raises(ValueError, match="'epig_laplace' needs Y_labelled"):
        EPIG(Problem(problem.X_pool, problem.X_labelled, kernel=problem.kernel), 2)
    with pytest.raises(ValueError, match="pair must be"):
        epig_laplace_with(pair="exact")(problem, 2)
    with pytest.raises(ValueError, match="label 0 did not converge in 1 steps"):
        fit_laplace(np.eye(4), np.ones(4), np.array([[1.0], [0], [1], [1]]), 16.0, limit=1)
