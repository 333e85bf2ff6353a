"""Diversity baselines against brute force, and what every documented baseline promises."""

import itertools
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from labelzoo.acquisition import diversity, li_adaptive, margins, near_targets, pairs
from labelzoo.acquisition.distances import make_space
from labelzoo.acquisition.problem import Acquisition, Problem
from labelzoo.acquisition.selectors import PoolExhausted

ENTRIES = diversity.ENTRIES + margins.ENTRIES + pairs.ENTRIES
DIVERSITY = {entry.name: entry for entry in diversity.ENTRIES}


class Rbf:
    """A kernel as problems carry it."""

    noise_ratio = 0.5

    def between(self, A: Any, B: Any) -> np.ndarray:
        return np.exp(-0.5 * ((A[:, None] - B[None]) ** 2).sum(axis=-1))

    def diagonal(self, A: Any) -> np.ndarray:
        return np.ones(len(A))


def make_problem(pool: int = 24, labelled: int = 12, labels: int = 3, seed: int = 1, **more: Any) -> Problem:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(pool + labelled, 3))
    Y = (X[pool:] @ rng.normal(size=(3, labels)) > 0).astype(float)
    known = {"X_pool": X[:pool], "X_labelled": X[pool:], "Y_labelled": Y, "kernel": Rbf(), "seed": seed}
    return Problem(**{**known, "X_targets": rng.normal(size=(5, 3)), **more})


def queries(entry: Acquisition, problem: Problem, batch: int) -> list[tuple[int, ...]]:
    choice = entry(problem, batch)
    columns = [choice.rows] if choice.labels is None else [choice.rows, choice.labels]
    assert np.shape(choice.gains) == np.shape(choice.rows)
    assert np.isfinite(choice.gains).all()
    return [tuple(int(value) for value in query) for query in zip(*columns, strict=True)]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
class TestEveryBaseline:
    def test_distinct_and_repeatable_whatever_numpy_s_global_state(self, entry: Acquisition) -> None:
        np.random.seed(3)  # noqa: NPY002
        before = np.random.get_state()[1].copy()  # noqa: NPY002
        first = queries(entry, make_problem(), 6)
        assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002
        np.random.seed(4)  # noqa: NPY002
        assert queries(entry, make_problem(), 6) == first
        assert len(set(first)) == 6

    def test_repeated_rows_are_not_asked_twice(self, entry: Acquisition) -> None:
        two = np.repeat([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]], 5, axis=0)
        assert len(set(queries(entry, make_problem(X_pool=two), 6))) == 6

    def test_batch_above_the_pool_gives_all_with_a_warning(self, entry: Acquisition) -> None:
        with pytest.warns(UserWarning, match="whole pool"):
            found = queries(entry, make_problem(pool=4), 50)
        assert len(set(found)) == (12 if entry.query == "cell" else 4)

    def test_empty_pool(self, entry: Acquisition) -> None:
        with pytest.raises(PoolExhausted, match="nothing left"):
            entry(make_problem(X_pool=np.zeros((0, 3))), 2)

    def test_bad_batch(self, entry: Acquisition) -> None:
        with pytest.raises(ValueError, match="batch must be a positive integer"):
            entry(make_problem(), 0)

    def test_one_row_one_label(self, entry: Acquisition) -> None:
        assert queries(entry, make_problem(pool=1, labels=1), 1)[0][0] == 0

    def test_words(self, entry: Acquisition) -> None:
        assert all((entry.units, entry.bias, entry.cost, entry.helps, entry.source))

    def test_ties_follow_the_seed(self, entry: Acquisition) -> None:
        same = make_problem(X_pool=np.ones((12, 3)), mean_probs=np.full((12, 3), 0.3))
        first = {queries(entry, replace(same, seed=seed, _made={}), 1)[0] for seed in range(8)}
        assert len(first) > 1

    def test_nan_features_are_refused_with_row_and_column(self, entry: Acquisition) -> None:
        if entry.name in ("random", "random_cells"):
            pytest.skip("random queries do not read the features")
        problem = make_problem()
        problem.X_pool[4, 2] = np.nan
        with pytest.raises(ValueError, match="X_pool: row 4, column 2 is nan"):
            entry(problem, 2)


def test_sparse_features_give_the_same_rows() -> None:
    problem = make_problem(kernel=None)
    thin = {"X_pool": sparse.csr_array(problem.X_pool), "X_labelled": sparse.csr_array(problem.X_labelled)}
    for name in ("k_center", "cluster", "nearest_target"):
        with_target = replace(problem, X_targets=None, _made={})
        assert queries(DIVERSITY[name], with_target, 5) == queries(
            DIVERSITY[name], replace(with_target, **thin, _made={}), 5
        )


def long_indices(X: np.ndarray) -> Any:
    thin = sparse.csr_array(X)
    return sparse.csr_array((thin.data, thin.indices.astype(np.int64), thin.indptr.astype(np.int64)))


@pytest.mark.parametrize("entry", margins.ENTRIES + diversity.ENTRIES, ids=lambda entry: entry.name)
def test_indices_of_64_bits_are_taken(entry: Acquisition) -> None:
    problem = make_problem(kernel=None, X_targets=None)
    if entry.name == "k_center_top10":
        problem = replace(problem, mean_probs=np.linspace(0.1, 0.4, 72).reshape(24, 3), _made={})
    thin = {"X_pool": long_indices(problem.X_pool), "X_labelled": long_indices(problem.X_labelled)}
    assert thin["X_pool"].indices.dtype == np.int64
    if "kernel" in entry.needs:
        pytest.skip("this kernel takes arrays only")
    assert queries(entry, replace(problem, **thin, _made={}), 2) == queries(entry, problem, 2)


class TestKCenter:
    def test_covering_radius_is_at_most_twice_the_optimum(self) -> None:
        for seed in range(15):
            problem = make_problem(pool=9, labelled=1, seed=seed)
            space = make_space(problem, "k_center")
            gaps = np.sqrt(space.squared(space.pool, np.vstack([space.pool, space.labelled])))

            def radius(rows: Any, gaps: np.ndarray = gaps) -> float:
                return float(gaps[:, [*rows, 9]].min(axis=1).max())

            best = min(radius(rows) for rows in itertools.combinations(range(9), 3))
            assert radius(DIVERSITY["k_center"](problem, 3).rows) <= 2 * best + 1e-12

    def test_greedy_by_hand_and_duplicates_last(self) -> None:
        pool = np.array([[0.0], [10.0], [10.0], [4.0], [0.0]])
        problem = Problem(X_pool=pool, X_labelled=np.array([[1.0]]))
        choice = DIVERSITY["k_center"](problem, 5)
        assert pool[choice.rows[:3], 0].tolist() == [10, 4, 0]
        scale = np.vstack([pool, [[1.0]]]).std()
        np.testing.assert_allclose(choice.gains, np.array([9, 3, 1, 0, 0]) / scale, atol=1e-12)
        # Without the running minimum the first two picks are the two copies of 10.
        static = np.argsort(-DIVERSITY["k_center"].score(problem), kind="stable")[:2]
        assert pool[static, 0].tolist() == [10, 10]

    def test_nothing_labelled_starts_by_seed(self) -> None:
        bare = make_problem(X_labelled=None, Y_labelled=None)
        first = {int(DIVERSITY["k_center"](replace(bare, seed=s, _made={}), 1).rows[0]) for s in range(8)}
        assert len(first) > 3

    def test_hybrid_stays_among_the_most_uncertain(self) -> None:
        probs = np.full((60, 2), 0.01)
        probs[7:27] = 0.5
        choice = DIVERSITY["k_center_top10"](make_problem(pool=60, labels=2, mean_probs=probs), 2)
        assert ((choice.rows >= 7) & (choice.rows < 27)).all()
        assert choice.report["rows_compared"] == 20
        with pytest.raises(ValueError, match="mean_probs or a kernel"):
            DIVERSITY["k_center_top10"](make_problem(kernel=None), 2)


class TestKernelVariance:
    def test_sequential_variance_by_dense_algebra(self) -> None:
        problem, kernel = make_problem(), Rbf()
        choice = DIVERSITY["uncertainty"](problem, 4)
        seen = problem.X_labelled
        for row, gain in zip(choice.rows, choice.gains, strict=True):
            cross = kernel.between(problem.X_pool, seen)
            inverse = np.linalg.inv(kernel.between(seen, seen) + 0.5 * np.eye(len(seen)))
            variance = 1 - np.einsum("ij,jk,ik->i", cross, inverse, cross)
            assert gain == pytest.approx(variance[row], abs=1e-10)
            seen = np.vstack([seen, problem.X_pool[row]])
        first = DIVERSITY["uncertainty"].score(problem)
        assert int(np.argmax(first)) == choice.rows[0]
        # Without conditioning inside the batch the gains would be the first scores.
        assert not np.allclose(first[choice.rows[1:]], choice.gains[1:])


class TestTargets:
    def test_each_target_gets_its_nearest_free_row(self) -> None:
        pool = np.array([[0.0], [0.2], [5.0], [9.0]])
        problem = Problem(X_pool=pool, X_targets=np.array([[0.0], [0.05], [6.0]]))
        choice = DIVERSITY["nearest_target"](problem, 3)
        assert choice.rows.tolist() == [0, 1, 2]
        # The plain top of the score would take both rows at 0 before the one target 6 has.
        assert DIVERSITY["nearest_target"].score(problem)[3] == pytest.approx(-3 / pool.std())

    def test_own_row_is_no_target(self) -> None:
        problem = Problem(X_pool=np.array([[0.0], [1.0], [5.0]]))
        gaps = -DIVERSITY["nearest_target"].score(problem) * np.array([0.0, 1.0, 5.0]).std()
        np.testing.assert_allclose(gaps, [1, 1, 4])

    def test_density_by_hand_and_weights(self) -> None:
        problem, weights = make_problem(), np.array([0.0, 1.0, 2.0, 0.0, 1.0])
        K = Rbf().between(problem.X_pool, problem.X_targets)
        found = near_targets.density(Rbf(), problem.X_pool, problem.X_targets, weights)
        np.testing.assert_allclose(found, K @ weights, rtol=1e-12)
        own = near_targets.density(Rbf(), problem.X_pool, problem.X_pool, np.ones(24), np.arange(24))
        inner = Rbf().between(problem.X_pool, problem.X_pool)
        np.testing.assert_allclose(own, inner.sum(axis=1) - 1, rtol=1e-10)

    def test_draws_are_in_proportion_to_the_density(self) -> None:
        pool, target = np.array([[0.0], [1.0], [2.0]]), np.array([[0.0]])
        entry, draws = DIVERSITY["density_random"], 3000
        rows = [
            int(entry(Problem(X_pool=pool, X_targets=target, kernel=Rbf(), seed=s), 1).rows[0])
            for s in range(draws)
        ]
        share = np.exp([0, -0.5, -2])
        share /= share.sum()
        z = (np.bincount(rows, minlength=3) / draws - share) / np.sqrt(share * (1 - share) / draws)
        assert np.abs(z).max() < 5, f"z {z}, seeds 0 to {draws - 1}"

    def test_no_target_of_positive_weight(self) -> None:
        with pytest.raises(ValueError, match="weights are all 0: no target matters"):
            DIVERSITY["nearest_target"](make_problem(weights=np.zeros(5)), 2)
        with pytest.raises(ValueError, match="weights must be finite and at least 0: weights.0. is -1"):
            DIVERSITY["density_random"](make_problem(weights=-np.ones(5)), 2)


def test_cluster_takes_one_row_of_every_clump() -> None:
    rng = np.random.default_rng(2)
    centres = np.array([[0.0, 0.0], [50.0, 0.0], [0.0, 50.0]])
    pool = np.repeat(centres, 8, axis=0) + rng.normal(size=(24, 2))
    choice = DIVERSITY["cluster"](Problem(X_pool=pool, seed=0), 3)
    assert sorted(choice.rows // 8) == [0, 1, 2]
    for row in choice.rows:
        clump = pool[row // 8 * 8 : row // 8 * 8 + 8] / pool.std(axis=0)
        gaps = np.linalg.norm(clump - clump.mean(axis=0), axis=1)
        assert row % 8 == np.argmin(gaps)


def test_rows_of_random_do_not_make_the_draws() -> None:
    def dear() -> Any:
        raise AssertionError("made")

    assert DIVERSITY["random"](make_problem(probs=dear, mean_probs=dear), 3).rows.size == 3


def test_convergence_warnings_of_the_learner_stay_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labelzoo.acquisition.binary_relevance.SVM_STEPS", 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        li_adaptive.choose(make_problem(), 1)
