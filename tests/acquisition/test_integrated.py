"""Integrated variance reduction against refitting and integrating, and its form for large pools."""

from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.spatial.distance import cdist
from scipy.stats import spearmanr

from labelzoo.acquisition import random_features
from labelzoo.acquisition.integrated import ENTRIES, ivr_state, ivr_with
from labelzoo.acquisition.problem import Problem
from labelzoo.acquisition.random_features import make_features, orthogonal_directions
from labelzoo.models.gp_kernel import feature_map

IVR = ENTRIES[0]


class Rbf(NamedTuple):
    length2: float = 2.0
    noise_ratio: float = 0.5

    def between(self, A: np.ndarray, B: np.ndarray) -> np.ndarray:
        return np.exp(-cdist(A, B, "sqeuclidean") / (2 * self.length2))

    def diagonal(self, A: np.ndarray) -> np.ndarray:
        return np.ones(A.shape[0])


class Cosine(NamedTuple):
    noise_ratio: float = 0.7

    def between(self, A: sp.csr_array, B: sp.csr_array) -> np.ndarray:
        return np.asarray((unit(A) @ unit(B).T).todense())

    def diagonal(self, A: sp.csr_array) -> np.ndarray:
        return (np.asarray(abs(A).sum(axis=1)).ravel() > 0).astype(float)


def unit(X: sp.csr_array) -> sp.csr_array:
    lengths = np.sqrt(np.asarray((X * X).sum(axis=1)).ravel())
    return sp.csr_array(X / np.where(lengths > 0, lengths, 1.0)[:, None])


def dense_problem(pool: int = 12, labelled: int = 5, targets: int | None = 7, seed: int = 0) -> Problem:
    rng = np.random.default_rng(seed)
    return Problem(
        X_pool=rng.normal(size=(pool, 3)),
        X_labelled=rng.normal(size=(labelled, 3)),
        X_targets=None if targets is None else rng.normal(size=(targets, 3)),
        weights=None if targets is None else rng.uniform(0, 2, targets),
        kernel=Rbf(),
    )


def sparse_problem(pool: int = 14, labelled: int = 4, targets: int | None = 6, seed: int = 1) -> Problem:
    rng = np.random.default_rng(seed)
    count = pool + labelled + (targets or 0)
    dense = rng.poisson(0.4, size=(count, 9)) * rng.uniform(0.5, 2, size=(count, 9))
    dense[2] = 0.0
    X = sp.csr_array(dense)
    return Problem(
        X_pool=X[:pool],
        X_labelled=X[pool : pool + labelled],
        X_targets=None if targets is None else X[pool + labelled :],
        kernel=Cosine(),
    )


def variance_after(problem: Problem, rows: list[int], at: object) -> np.ndarray:
    """Posterior variance at `at` after the pool rows `rows` were labelled too, refitted from nothing."""
    kernel, pool, labelled = problem.kernel, problem.X_pool, problem.X_labelled
    stack = sp.vstack if sp.issparse(pool) else np.vstack
    seen = stack([labelled, pool[rows]]) if rows else labelled
    seen = sp.csr_array(seen) if sp.issparse(pool) else seen
    block = kernel.between(seen, seen) + kernel.noise_ratio * np.eye(seen.shape[0])
    cross = kernel.between(seen, at)
    return kernel.diagonal(at) - np.einsum("mt,mt->t", cross, np.linalg.solve(block, cross))


def removed(problem: Problem, picked: list[int], row: int) -> float:
    """Weighted variance that `row` removes at the targets that are left, by two refits."""
    at = problem.X_pool if problem.X_targets is None else problem.X_targets
    weights = np.ones(at.shape[0]) if problem.weights is None else problem.weights.copy()
    if problem.X_targets is None:
        weights[[*picked, row]] = 0.0
    drop = variance_after(problem, picked, at) - variance_after(problem, [*picked, row], at)
    return float(weights @ drop)


@pytest.mark.parametrize("method", ["exact", "features"])
@pytest.mark.parametrize("problem", [sparse_problem(), sparse_problem(targets=None)], ids=["targets", "pool"])
def test_sparse_cosine_equals_refitting(problem: Problem, method: str) -> None:
    """The linear features of a cosine kernel are exact, so both forms must agree with two refits."""
    check_greedy(problem, method)


@pytest.mark.parametrize("problem", [dense_problem(), dense_problem(targets=None)], ids=["targets", "pool"])
def test_rbf_equals_refitting(problem: Problem) -> None:
    check_greedy(problem, "exact")


def check_greedy(problem: Problem, method: str) -> None:
    entry = ivr_with(method=method)
    pool = problem.X_pool.shape[0]
    np.testing.assert_allclose(
        entry.score(problem), [removed(problem, [], row) for row in range(pool)], atol=1e-8
    )
    choice = entry(problem, 6)
    picked: list[int] = []
    for row, gain in zip(choice.rows.tolist(), choice.gains, strict=True):
        scores = [removed(problem, picked, i) if i not in picked else -np.inf for i in range(pool)]
        assert scores[row] == pytest.approx(max(scores), abs=1e-8)
        assert gain == pytest.approx(scores[row], abs=1e-8)
        picked.append(row)
    assert len(set(picked)) == 6


@pytest.mark.parametrize("method", ["exact", "features"])
def test_batch_equals_a_refit_after_every_pick(method: str) -> None:
    """Moving the picked rows to the labelled ones one at a time gives the same rows and gains."""
    problem = sparse_problem(targets=6)
    choice = ivr_with(method=method)(problem, 4)
    left, labelled = list(range(problem.X_pool.shape[0])), problem.X_labelled
    for row, gain in zip(choice.rows, choice.gains, strict=True):
        refit = Problem(problem.X_pool[left], labelled, None, problem.X_targets, kernel=problem.kernel)
        first = ivr_with(method=method)(refit, 1)
        assert left[int(first.rows[0])] == row
        assert first.gains[0] == pytest.approx(gain, abs=1e-8)
        left.remove(int(row))
        labelled = sp.csr_array(sp.vstack([labelled, problem.X_pool[[int(row)]]]))


def test_rows_with_any_label_known_are_labelled_and_others_not() -> None:
    problem = dense_problem()
    Y = np.array([[1, np.nan], [np.nan, np.nan], [0, 1], [np.nan, 0], [np.nan, np.nan]])
    partly = Problem(problem.X_pool, problem.X_labelled, Y, problem.X_targets, kernel=problem.kernel)
    kept = Problem(
        problem.X_pool, problem.X_labelled[[0, 2, 3]], None, problem.X_targets, kernel=problem.kernel
    )
    np.testing.assert_allclose(IVR.score(partly), IVR.score(kept), rtol=1e-12)


def test_nothing_labelled_starts_from_the_prior() -> None:
    problem = dense_problem()
    K = problem.kernel.between(problem.X_targets, problem.X_pool)
    start = Problem(problem.X_pool, None, None, problem.X_targets, problem.weights, kernel=problem.kernel)
    np.testing.assert_allclose(IVR.score(start), problem.weights @ K**2 / 1.5, rtol=1e-12)


def large(seed: int, features: int = 20) -> Problem:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(30, features)) * 1.2
    X = centres[rng.integers(30, size=1540)] + rng.normal(size=(1540, features))
    length2 = 0.5 * float(np.median(cdist(X[:300], X[300:600], "sqeuclidean")))
    return Problem(X[:1000], X[1000:1040], None, X[1040:], kernel=Rbf(length2, 1.0), seed=seed)


def regret(problem: Problem, exact: np.ndarray, other: np.ndarray) -> float:
    """Share of the variance removed by the exact batch that the other batch leaves at the targets."""
    start = variance_after(problem, [], problem.X_targets).sum()
    best, got = (
        start - variance_after(problem, rows.tolist(), problem.X_targets).sum() for rows in (exact, other)
    )
    return 1 - got / best


@pytest.mark.parametrize("targets", ["given", "pool"])
def test_random_features_rank_and_choose_like_the_exact_form(targets: str) -> None:
    """N = 1000, m = 1024, batches of 10. Seeds 0 to 4: rank correlation .986 to .996, regret -.008 to .011
    (random rows: .27 to .48)."""
    problem = large(0)
    if targets == "pool":
        problem = Problem(problem.X_pool, problem.X_labelled, kernel=problem.kernel)
        evaluated = Problem(problem.X_pool, problem.X_labelled, None, problem.X_pool, kernel=problem.kernel)
    else:
        evaluated = problem
    exact, approximate = ivr_with(method="exact"), ivr_with(method="features")
    rank = spearmanr(exact.score(problem), approximate.score(problem)).statistic
    batches = exact(problem, 10), approximate(problem, 10)
    assert batches[1].report["form"] == "random features, m = 1024"
    lost = regret(evaluated, batches[0].rows, batches[1].rows)
    assert rank > 0.97, f"rank correlation {rank:.4f}"
    assert lost < 0.03, f"regret {lost:.4f}"


def test_features_switch_on_above_the_stated_size(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = dense_problem(pool=60, targets=50)
    assert IVR(problem, 3).report["form"] == "exact"
    monkeypatch.setattr("labelzoo.acquisition.integrated.EXACT_ENTRIES", 2999)
    choice = IVR(problem, 3)
    assert choice.report["form"] == "random features, m = 1024"
    assert len(set(choice.rows.tolist())) == 3
    assert ivr_with(method="exact")(problem, 3).report["form"] == "exact"


@pytest.mark.parametrize("kind", ["rbf", "cosine"])
def test_kernels_of_the_package_have_features(kind: str) -> None:
    """Features follow the map of the kernel: centred and scaled rows, or tf-idf."""
    rng = np.random.default_rng(8)
    X = (
        rng.normal(size=(40, 4)) * [1, 5, 0.2, 3] + 2
        if kind == "rbf"
        else sp.csr_array(rng.poisson(0.5, (40, 12)))
    )
    kernel = feature_map(X.astype(float), kind)._replace(length2=4.0)
    features = make_features(kernel, X, size=8192)
    assert features is not None
    Z = features.transform(X)
    error = np.abs((Z @ Z.T if kind == "rbf" else (Z @ Z.T).toarray()) - kernel.between(X, X)).max()
    assert error < (0.05 if kind == "rbf" else 1e-12)
    problem = Problem(X[:20], X[20:25], None, X[25:], kernel=kernel)
    np.testing.assert_allclose(
        IVR.score(problem), [removed(problem, [], row) for row in range(20)], atol=1e-8
    )
    assert IVR(problem, 4).gains[1] == pytest.approx(
        max(removed(problem, [int(IVR(problem, 1).rows[0])], row) for row in range(20)), abs=1e-8
    )


def test_a_kernel_without_features_gets_fewer_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    class Matern(Rbf):
        def between(self, A: np.ndarray, B: np.ndarray) -> np.ndarray:
            return np.exp(-cdist(A, B))

    problem = dense_problem(pool=60, targets=50)
    problem = Problem(problem.X_pool, problem.X_labelled, None, problem.X_targets, kernel=Matern())
    monkeypatch.setattr("labelzoo.acquisition.integrated.EXACT_ENTRIES", 1500)
    choice = IVR(problem, 3)
    assert choice.report == {"form": "exact", "targets": "25 of 50, drawn at random"}
    with pytest.raises(ValueError, match="neither rbf nor cosine"):
        ivr_with(method="features")(problem, 3)


def test_wide_cosine_kernels_are_projected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_features, "LARGEST_LINEAR", 100)
    X = sp.random_array((200, 400), density=0.03, rng=np.random.default_rng(3)).tocsr()
    features = make_features(Cosine(), X, size=128)
    assert features is not None and features.name == "random projection of linear features, m = 128"
    Z = features.transform(X)
    error = Z @ Z.T - Cosine().between(X, X)
    assert np.sqrt((error**2).mean()) < 2 / np.sqrt(128)


def test_random_features_are_unbiased_and_better_than_independent_ones() -> None:
    """Mean over 200 draws within 5 standard errors of the kernel, and less error than independent ones."""
    X = np.random.default_rng(5).normal(size=(12, 6))
    K = Rbf(4.0).between(X, X)
    values = []
    for seed in range(200):
        made = make_features(Rbf(4.0), X, size=64, seed=seed)
        assert made is not None
        Z = made.transform(X).astype(float)
        values.append(Z @ Z.T)
    draws, upper = np.array(values), np.triu_indices(12, 1)
    z = (draws.mean(0) - K)[upper] / (draws.std(0, ddof=1)[upper] / np.sqrt(200))
    assert np.abs(z).max() < 5, f"z = {np.abs(z).max():.2f}, seeds 0 to 199"
    independent = (1 - K**2) ** 2 / 2 / 32  # variance of a mean of 32 cosines
    assert draws.var(0)[upper].mean() < 0.9 * independent[upper].mean()


def test_orthogonal_directions() -> None:
    W = orthogonal_directions(7, 10, np.random.default_rng(0))
    gram = W[:, :7].T @ W[:, :7]
    np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-10)
    assert W.shape == (7, 10)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X_pool": np.array([[0.0, np.nan, 0.0]])}, "X_pool row 0, feature 1"),
        ({"X_targets": np.full((7, 3), np.inf)}, "X_targets row 0, feature 0"),
        ({"weights": np.array([1.0, -1, 1, 1, 1, 1, 1])}, "at least 0: weights.1. is -1"),
        ({"kernel": Rbf(noise_ratio=0.0)}, "noise_ratio must be a positive number"),
        ({"Y_labelled": np.full((5, 2), 2.0)}, "Y_labelled row 0, label 0: 2.0"),
        ({"Y_labelled": np.zeros((4, 2))}, "Y_labelled has 4 labelled rows, X_labelled has 5"),
        ({"X_targets": np.zeros((0, 3))}, "X_targets has no targets"),
        ({"kernel": None}, "needs kernel"),
    ],
)
def test_bad_input_is_named(change: dict, message: str) -> None:
    known = {
        name: getattr(dense_problem(), name)
        for name in ("X_pool", "X_labelled", "X_targets", "weights", "kernel")
    }
    with pytest.raises(ValueError, match=message):
        IVR(Problem(**{**known, **change}), 1)


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="method must be"):
        ivr_state(dense_problem(), 1, method="fast")
    with pytest.raises(ValueError, match="even number"):
        ivr_with(method="features", features=3)(dense_problem(), 1)
    with pytest.warns(UserWarning, match="whole pool"):
        assert sorted(IVR(dense_problem(), 10**12).rows) == list(range(12))
