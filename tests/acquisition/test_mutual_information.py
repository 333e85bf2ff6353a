"""Greedy mutual information against log-determinants and brute force."""

import itertools
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.spatial.distance import cdist

from labelzoo.acquisition.catalogue import find
from labelzoo.acquisition.mutual_information import ENTRIES, information, miml_with
from labelzoo.acquisition.problem import Problem

MIML = ENTRIES[0]


class Rbf(NamedTuple):
    length2: float = 2.0
    noise_ratio: float = 0.4

    def between(self, A: np.ndarray, B: np.ndarray) -> np.ndarray:
        return np.exp(-cdist(A, B, "sqeuclidean") / (2 * self.length2))

    def diagonal(self, A: np.ndarray) -> np.ndarray:
        return np.ones(A.shape[0])


def make_problem(pool: int = 7, labelled: int = 3, targets: int = 4, seed: int = 0) -> Problem:
    rng = np.random.default_rng(seed)
    return Problem(
        X_pool=rng.normal(size=(pool, 2)),
        X_labelled=rng.normal(size=(labelled, 2)) if labelled else None,
        X_targets=rng.normal(size=(targets, 2)) if targets else None,
        kernel=Rbf(),
    )


def covariance(problem: Problem) -> tuple[np.ndarray, int]:
    """C over pool, targets and labelled rows, and the position of the first labelled row."""
    parts = [part for part in (problem.X_pool, problem.X_targets, problem.X_labelled) if part is not None]
    X = np.vstack(parts)
    seen = 0 if problem.X_labelled is None else len(problem.X_labelled)
    return problem.kernel.between(X, X) + problem.kernel.noise_ratio * np.eye(len(X)), len(X) - seen


@pytest.mark.parametrize("labelled", [0, 3])
@pytest.mark.parametrize("targets", [0, 4])
def test_gains_equal_differences_of_log_determinants(labelled: int, targets: int) -> None:
    problem = make_problem(labelled=labelled, targets=targets)
    C, first = covariance(problem)
    chosen = list(range(first, len(C)))
    batch = MIML(problem, 5)
    for row, gain in zip(batch.rows.tolist(), batch.gains, strict=True):
        start = information(C, chosen) if chosen else 0.0
        gains = [information(C, [*chosen, i]) - start if i not in chosen else -np.inf for i in range(7)]
        assert gain == pytest.approx(gains[row], abs=1e-8)
        assert gains[row] == pytest.approx(max(gains), abs=1e-8)
        chosen.append(row)
    scores = [information(C, [*range(first, len(C)), i]) - _start(C, first) for i in range(7)]
    np.testing.assert_allclose(MIML.score(problem), scores, atol=1e-8)


def _start(C: np.ndarray, first: int) -> float:
    return information(C, list(range(first, len(C)))) if first < len(C) else 0.0


def test_information_equals_the_entropy_of_the_gaussian() -> None:
    """I(A; R) = H(y_A) - H(y_A | y_R), by conditioning."""
    C, _ = covariance(make_problem())
    A, R = [0, 3, 5], [1, 2, 4, *range(6, len(C))]
    left = C[np.ix_(A, A)] - C[np.ix_(A, R)] @ np.linalg.solve(C[np.ix_(R, R)], C[np.ix_(R, A)])
    expected = (np.linalg.slogdet(C[np.ix_(A, A)])[1] - np.linalg.slogdet(left)[1]) / 2
    assert information(C, A) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("seed", range(4))
def test_greedy_keeps_its_share_of_the_best_set(seed: int) -> None:
    """Every set of 3 of 9 rows; greedy has at least 1 - 1/e of the best."""
    problem = make_problem(pool=9, labelled=0, targets=0, seed=seed)
    C, _ = covariance(problem)
    best = max(information(C, list(rows)) for rows in itertools.combinations(range(9), 3))
    choice = MIML(problem, 3)
    assert choice.gains.sum() == pytest.approx(information(C, choice.rows.tolist()), abs=1e-8)
    assert (1 - 1 / np.e) * best <= choice.gains.sum() <= best + 1e-10


def test_gains_are_submodular_and_the_information_of_everything_is_none() -> None:
    """A row's gain never grows as rows join A, over every pair of nested sets of 6 rows."""
    C, _ = covariance(make_problem(pool=6, labelled=0, targets=0))
    sets = [list(rows) for size in range(6) for rows in itertools.combinations(range(6), size)]
    value = {tuple(rows): information(C, rows) for rows in [*sets, list(range(6))]}
    for small, big in itertools.product(sets, sets):
        if set(small) <= set(big):
            for x in set(range(6)) - set(big):
                gains = [value[tuple(sorted([*rows, x]))] - value[tuple(rows)] for rows in (small, big)]
                assert gains[0] >= gains[1] - 1e-12
    assert value[tuple(range(6))] == pytest.approx(0, abs=1e-12)


def test_it_stops_where_every_row_left_would_lower_the_information() -> None:
    """With no targets the last picks take information away; without the stop their sum ends at 0."""
    problem = make_problem(labelled=0, targets=0)
    whole = miml_with(stop=False)(problem, 7)
    assert sorted(whole.rows) == list(range(7))
    assert whole.report["negative_gains"] == (whole.gains < 0).sum() > 0
    assert whole.gains.sum() == pytest.approx(0, abs=1e-8)
    choice = MIML(problem, 7)
    count = len(choice.rows)
    assert choice.rows.tolist() == whole.rows[:count].tolist()
    assert (choice.gains > 0).all() and whole.gains[count] < 0
    assert choice.report["stopped"].startswith(f"{count} of 7 rows picked")
    assert "stopped" not in MIML(problem, count).report


def test_a_batch_can_be_empty() -> None:
    """Labelled rows at every place and no targets: nothing left is worth asking."""
    X = np.repeat(np.linspace(0, 3, 4), 6)[:, None]
    problem = Problem(X_pool=X[:3], X_labelled=X, kernel=Rbf(0.1, 0.01))
    choice = MIML(problem, 2)
    assert choice.rows.shape == choice.gains.shape == (0,)
    assert choice.report["stopped"].startswith("0 of 2 rows picked")
    assert len(miml_with(stop=False)(problem, 2).rows) == 2


@pytest.mark.parametrize("labelled", [0, 3])
def test_kernel_entropy_asks_the_rows_of_uncertainty(labelled: int) -> None:
    """Its gains add up to the entropy of the batch given the labelled rows."""
    problem = make_problem(pool=20, labelled=labelled)
    entropy, uncertainty = find("kernel_entropy"), find("uncertainty")
    choice = entropy(problem, 6)
    if labelled:  # without labelled rows every row ties at first, and the two break ties by other draws
        assert choice.rows.tolist() == uncertainty(problem, 6).rows.tolist()
    C, first = covariance(problem)
    seen = list(range(first, len(C)))
    both = np.linalg.slogdet(C[np.ix_([*choice.rows, *seen], [*choice.rows, *seen])])[1]
    alone = np.linalg.slogdet(C[np.ix_(seen, seen)])[1] if seen else 0.0
    expected = (both - alone) / 2 + 3 * np.log(2 * np.pi * np.e)
    assert choice.gains.sum() == pytest.approx(expected, abs=1e-9)
    assert entropy.score(problem)[choice.rows[0]] == pytest.approx(choice.gains[0])


def test_targets_are_never_chosen_and_change_the_choice() -> None:
    """Twenty targets at one remote pool row make that row worth asking."""
    alone = make_problem(pool=30, targets=0, seed=2)
    remote = np.linalg.norm(alone.X_pool, axis=1).argmax()
    targets = alone.X_pool[remote] + 0.1 * np.random.default_rng(0).normal(size=(20, 2))
    problem = Problem(alone.X_pool, alone.X_labelled, None, targets, kernel=alone.kernel)
    assert MIML(problem, 1).rows[0] == remote != MIML(alone, 1).rows[0]
    assert MIML(problem, 5).rows.max() < 30


def test_csr_rows_give_what_dense_rows_give() -> None:
    class Linear(NamedTuple):
        noise_ratio: float = 0.4

        def between(self, A: sp.csr_array, B: sp.csr_array) -> np.ndarray:
            product = A @ B.T
            return product.toarray() if sp.issparse(product) else product

        def diagonal(self, A: sp.csr_array) -> np.ndarray:
            return np.ones(A.shape[0])

    rng = np.random.default_rng(4)
    X = rng.poisson(0.6, size=(20, 8)) + np.eye(20, 8) * 0.1
    X /= np.linalg.norm(X, axis=1, keepdims=True) + 1e-12
    keep = np.linalg.norm(X, axis=1) > 0.9
    X = X[keep]
    dense = Problem(X[:9], X[9:12], None, X[12:], kernel=Linear())
    sparse = Problem(
        *(sp.csr_array(part) for part in (X[:9], X[9:12])), None, sp.csr_array(X[12:]), kernel=Linear()
    )
    np.testing.assert_allclose(MIML.score(dense), MIML.score(sparse), rtol=1e-10)
    assert MIML(dense, 4).rows.tolist() == MIML(sparse, 4).rows.tolist()


def test_a_subsample_is_drawn_by_the_seed() -> None:
    problem = make_problem(pool=40, targets=20)
    choice = miml_with(subsample=30)(problem, 3)
    assert choice.report["rows"] == "30 of 60 in the ground set, drawn at random"
    scores = miml_with(subsample=30).score(problem)
    assert np.isfinite(scores).sum() == 20 and np.isfinite(scores[choice.rows]).all()
    assert choice.rows.tolist() == miml_with(subsample=30)(problem, 3).rows.tolist()
    assert miml_with(subsample=60)(problem, 3).rows.tolist() == MIML(problem, 3).rows.tolist()
    for name in ("subsample", "landmarks"):
        with pytest.raises(ValueError, match=f"{name} must be at least"):
            miml_with(**{name: 0})


def test_large_ground_sets_take_landmarks_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem(pool=40, targets=20)
    exact = MIML(problem, 5)
    assert "form" not in exact.report
    monkeypatch.setattr("labelzoo.acquisition.mutual_information.LARGEST_GROUND", 50)
    choice = MIML(problem, 5)
    assert "landmarks and an exact diagonal" in choice.report["form"]
    assert choice.report["first_gain_error"] < 1e-6 and choice.report["outside_max"] < 1e-6
    assert set(choice.rows.tolist()) == set(exact.rows.tolist())
    np.testing.assert_allclose(choice.gains, exact.gains, atol=1e-6)


def test_bad_kernels_are_named() -> None:
    class Wrong(Rbf):
        def between(self, A: np.ndarray, B: np.ndarray) -> np.ndarray:
            return -10 * cdist(A, B) ** 0.5 - 3

    problem = make_problem(labelled=0)
    with pytest.raises(ValueError, match="not positive definite: its smallest eigenvalue is -"):
        MIML(Problem(problem.X_pool, kernel=Wrong()), 2)
    with pytest.raises(ValueError, match="kernel.*not positive definite"):
        miml_with(landmarks=5)(Problem(problem.X_pool, kernel=Wrong()), 2)
