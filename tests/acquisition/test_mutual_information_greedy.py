"""Greedy mutual information on a covariance against determinants; lazy greedy; landmarks."""

from typing import Any, NamedTuple

import numpy as np
import pytest

from labelzoo.acquisition.mutual_information import (
    LazyGreedy,
    StaleBounds,
    greedy_entropy,
    greedy_mutual_information,
    information,
    lazy_greedy,
    miml_with,
)
from labelzoo.acquisition.mutual_information_large import LowRankState, low_rank, low_rank_state
from labelzoo.acquisition.problem import Problem
from labelzoo.acquisition.selectors import PoolExhausted


def make_covariance(rows: int, seed: int, noise: float = 0.1, copies: bool = False) -> np.ndarray:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 2))
    if copies:
        X[rows // 2 :] = X[: rows - rows // 2]
    square = ((X[:, None] - X[None]) ** 2).sum(axis=-1)
    return np.exp(-square / 2) + noise * np.eye(rows)


def brute(C: np.ndarray, seeds: list[int], picks: int, allowed: list[int] | None = None) -> tuple[list, list]:
    """Return picks and gains, each candidate by three determinants; ties within 1e-8 to the lowest index."""
    chosen, rows, gains = list(seeds), [], []
    for _ in range(picks):
        start = information(C, chosen)
        left = [i for i in (range(len(C)) if allowed is None else allowed) if i not in chosen]
        values = np.array([information(C, [*chosen, i]) - start for i in left])
        at = int(np.flatnonzero(values >= values.max() - 1e-8)[0])
        if values[at] < -1e-8:
            break
        rows.append(left[at])
        gains.append(values[at])
        chosen.append(left[at])
    return rows, gains


@pytest.mark.parametrize("seeds", [[], [5], [9, 2, 0]])
@pytest.mark.parametrize("copies", [False, True])
def test_picks_gains_and_values_equal_those_by_determinants(seeds: list[int], copies: bool) -> None:
    for number in range(3):
        C = make_covariance(14, number, copies=copies)
        before = C.copy()
        found = greedy_mutual_information(C, seeds, 8)
        rows, gains = brute(C, seeds, 8)
        assert found.rows.tolist() == rows
        np.testing.assert_allclose(found.gains, gains, atol=1e-9)
        for count in range(len(rows) + 1):
            assert found.values[count] == pytest.approx(information(C, [*seeds, *rows[:count]]), abs=1e-9)
        assert found.stopped == (len(rows) < 8)
        np.testing.assert_array_equal(C, before)


def test_candidates_alone_are_picked_and_the_others_stay_in_the_rest() -> None:
    C = make_covariance(12, 4)
    found = greedy_mutual_information(C, [3], 3, candidates=[1, 4, 8, 10])
    assert found.rows.tolist() == brute(C, [3], 3, [1, 4, 8, 10])[0]
    assert set(found.rows) <= {1, 4, 8, 10}
    lazy = lazy_greedy(C, [3], 3, candidates=[1, 4, 8, 10])
    assert lazy.rows.tolist() == found.rows.tolist()


def test_it_stops_before_the_information_falls_and_goes_on_when_told() -> None:
    C = make_covariance(9, 1)
    found = greedy_mutual_information(C, [], 9)
    assert found.stopped and (found.gains > 0).all() and len(found.values) == len(found.rows) + 1
    whole = greedy_mutual_information(C, [], 9, stop=False)
    assert not whole.stopped and sorted(whole.rows) == list(range(9))
    assert whole.gains[len(found.rows)] < 0
    assert whole.values[-1] == pytest.approx(0, abs=1e-10)


def test_ties_go_to_the_lowest_index() -> None:
    """Rows that know nothing of each other all tie at 0."""
    for pick in (greedy_mutual_information, lazy_greedy):
        assert pick(np.diag([1.0, 2.0, 3.0, 2.0]), [1], 3).rows.tolist() == [0, 2, 3]


@pytest.mark.parametrize("number", range(20))
def test_lazy_picks_are_those_of_plain_greedy(number: int) -> None:
    """Ten problems each: seeds, copies of rows, noise from 1e-6 to 1, with and without the stop."""
    rng = np.random.default_rng(number)
    for case in range(10):
        rows = int(rng.integers(6, 40))
        C = make_covariance(rows, int(rng.integers(1000)), 10.0 ** rng.uniform(-6, 0), case % 3 == 0)
        seeds = rng.permutation(rows)[: rng.integers(0, 5)]
        picks, stop = int(rng.integers(1, rows - len(seeds) + 1)), bool(case % 2)
        plain = greedy_mutual_information(C, seeds, picks, stop=stop)
        lazy = lazy_greedy(C, seeds, picks, stop=stop)
        assert lazy.rows.tolist() == plain.rows.tolist(), (number, case)
        np.testing.assert_allclose(lazy.gains, plain.gains, atol=1e-6)
        assert lazy.values[-1] == pytest.approx(information(C, [*seeds, *plain.rows]), abs=1e-6)
        assert lazy.evaluations <= plain.evaluations


def test_laziness_saves_evaluations_and_can_be_continued() -> None:
    C = make_covariance(150, 3)
    plain = greedy_mutual_information(C, [4, 5], 30)
    lazy = LazyGreedy(C, [4, 5])
    first, second = lazy.pick(12), lazy.pick(18)
    assert [*first.rows, *second.rows] == plain.rows.tolist()
    assert first.values[-1] == second.values[0]
    assert lazy.evaluations < plain.evaluations / 3
    lazy.check(C.copy(), [4, 5, *plain.rows])


def test_bounds_die_when_covariance_pool_or_seeds_change() -> None:
    C = make_covariance(12, 0)
    lazy = LazyGreedy(C, [1], candidates=[0, 2, 3, 4])
    rows = [1, *lazy.pick(2).rows.tolist()]
    left = sorted({0, 2, 3, 4} - set(rows))
    lazy.check(C, rows, left)
    changed = C.copy()
    changed[3, 3] += 1e-12
    for arguments, message in (
        ((changed, rows), "covariance changed"),
        ((C[:11, :11], rows), "the pool changed: 11 rows, the bounds are those of 12"),
        ((C, rows[:-1]), "no longer a seed"),
        ((C, [*rows, 11]), "row 11 is a seed now, but was not picked here"),
        ((C, rows, [*left, 7]), "candidates changed, row 7"),
    ):
        with pytest.raises(StaleBounds, match=message):
            lazy.check(*arguments)
    C[0, 0] += 1.0  # in place: the very array that it was made from
    with pytest.raises(StaleBounds, match="covariance changed"):
        lazy.check(C, rows)


def test_stale_bounds_would_give_other_rows() -> None:
    """Why they are refused: with the bounds of one kernel a greedy choice under another goes wrong."""
    wrong = 0
    for seed in range(20):
        old, new = (make_covariance(20, seed, noise) for noise in (2.0, 0.01))
        bounds = {i: information(old, [i]) for i in range(20)}
        true = {i: information(new, [i]) for i in range(20)}
        wrong += any(true[i] > bounds[i] + 1e-6 for i in range(20))
    assert wrong == 20


def test_greedy_entropy_takes_the_largest_conditional_variance() -> None:
    C = make_covariance(15, 2)
    found = greedy_entropy(C, [7], 5)
    chosen = [7]
    for row, gain in zip(found.rows.tolist(), found.gains, strict=True):
        given = np.linalg.solve(C[np.ix_(chosen, chosen)], C[chosen])
        variance = C.diagonal() - (C[chosen] * given).sum(axis=0)
        variance[chosen] = -np.inf
        assert row == variance.argmax()
        assert gain == pytest.approx(0.5 * np.log(2 * np.pi * np.e * variance[row]), abs=1e-10)
        chosen.append(row)
    expected = 0.5 * np.linalg.slogdet(2 * np.pi * np.e * C[np.ix_(chosen, chosen)])[1]
    assert found.values[-1] == pytest.approx(expected, abs=1e-9)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"C": np.ones((3, 4))}, r"C must be \(row, row\), got shape \(3, 4\)"),
    ({"C": np.where(np.eye(6), 1.0, np.nan)}, "C row 0, column 1: nan is no number"),
    ({"C": np.triu(np.full((6, 6), 0.5)) + np.eye(6)}, "C is not symmetric: rows"),
    ({"C": np.eye(6) - 0.4}, "not positive definite: its smallest eigenvalue is -1.4"),
    ({"C": np.eye(6) - 0.4, "seeds": [1, 2]}, "not positive definite: its smallest eigenvalue is -1.4"),
    ({"C": np.diag([1.0, 0, 1, 1, 1, 1])}, "the variance of row 1 is 0"),
    ({"seeds": [0, 0]}, "seeds: row 0 is given twice"),
    ({"seeds": [6]}, "seeds: row 6 is outside 0 to 5"),
    ({"seeds": [-1]}, "seeds: row -1 is outside 0 to 5"),
    ({"seeds": [0.5]}, "seeds must be integers"),
    ({"seeds": range(9)}, "seeds: 9 of them, C has 6 rows"),
    ({"candidates": [2], "seeds": [2]}, "candidates: row 2 is a seed"),
    ({"picks": 0}, "batch must be a positive integer"),
    ({"picks": 2.0}, "batch must be a positive integer"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_input_is_named(change: dict[str, Any], message: str) -> None:
    good = {"C": make_covariance(6, 0), "seeds": [0], "picks": 2}
    for pick in (greedy_mutual_information, lazy_greedy):
        with pytest.raises(ValueError, match=message):
            pick(**{**good, **change})


def test_pools_that_end() -> None:
    C = make_covariance(4, 0)
    with pytest.raises(PoolExhausted, match="all 4 rows of C are seeds"):
        greedy_mutual_information(C, [0, 1, 2, 3], 1)
    with pytest.raises(PoolExhausted, match="no rows"):
        greedy_mutual_information(np.zeros((0, 0)), [], 1)
    with pytest.warns(UserWarning, match="batch of 9 from a pool of 3"):
        assert len(greedy_mutual_information(C, [1], 9, stop=False).rows) == 3
    lazy = LazyGreedy(C, [0])
    lazy.pick(3, stop=False)
    with pytest.raises(PoolExhausted, match="every candidate is picked"):
        lazy.pick(1)


class Rbf(NamedTuple):
    noise_ratio: float = 0.2
    length2: float = 1.0

    def between(self, A: np.ndarray, B: np.ndarray) -> np.ndarray:
        return np.exp(-((A[:, None] - B[None]) ** 2).sum(axis=-1) / (2 * self.length2))

    def diagonal(self, A: np.ndarray) -> np.ndarray:
        return np.ones(len(A))


@pytest.mark.parametrize("labelled", [0, 5])
def test_as_many_landmarks_as_rows_are_exact(labelled: int) -> None:
    rng = np.random.default_rng(0)
    X, seen = rng.normal(size=(40, 2)), rng.normal(size=(labelled, 2))
    state, told = low_rank_state(Rbf(), X, seen if labelled else None, 45, 0)
    assert told["outside_max"] < 1e-10
    both = np.vstack([X, seen])
    C = Rbf().between(both, both) + 0.2 * np.eye(len(both))
    seeds = list(range(40, 40 + labelled))
    found = greedy_mutual_information(C, seeds, 30, stop=False)
    for row, gain in zip(found.rows.tolist(), found.gains, strict=True):
        assert state.scores()[row] == pytest.approx(gain, abs=1e-7)
        state.take(row)


def test_low_rank_gains_are_those_of_its_own_covariance() -> None:
    """Few landmarks: U U' + diag(d) is a covariance, and the gains are its by determinants."""
    rng = np.random.default_rng(1)
    X, seen = rng.normal(size=(25, 3)), rng.normal(size=(4, 3))
    kernel = Rbf(0.3, 0.5)
    both = np.vstack([seen, X])
    U, left = low_rank(kernel, both, 6, 3)
    assert U.shape == (29, 6) and left.max() > 0.1
    np.testing.assert_allclose((U**2).sum(axis=1) + left, 1.0, atol=1e-12)
    own = left + 0.3
    C = U @ U.T + np.diag(own)
    state = LowRankState(U[4:], own[4:], U[:4], own[:4])
    found = greedy_mutual_information(C, range(4), 15, stop=False)
    for row, gain in zip(found.rows.tolist(), found.gains, strict=True):
        assert state.scores()[row - 4] == pytest.approx(gain, abs=1e-9)
        state.take(row - 4)


def test_the_low_rank_part_is_that_of_its_pivots() -> None:
    """K - U U' is 0 at as many rows as there are landmarks, and positive semidefinite."""
    X = np.random.default_rng(2).normal(size=(60, 2))
    kernel = Rbf(0.1, 0.3)
    U, left = low_rank(kernel, X, 12, 0)
    rest = kernel.between(X, X) - U @ U.T
    pivots = np.flatnonzero(left == 0)
    assert len(pivots) == 12 and np.abs(rest[pivots]).max() < 1e-10
    assert np.linalg.eigvalsh(rest)[0] > -1e-10
    np.testing.assert_allclose(left, rest.diagonal(), atol=1e-10)


def test_what_the_low_rank_leaves_is_kept_as_variance_of_the_row() -> None:
    rng = np.random.default_rng(4)
    X, seen = rng.normal(size=(30, 3)), rng.normal(size=(5, 3))
    state, told = low_rank_state(Rbf(0.2, 0.3), X, seen, 4, 0)
    np.testing.assert_allclose((state.U**2).sum(axis=1) + state.own, 1.2, atol=1e-12)
    assert told["outside_max"] == pytest.approx(state.own.max() - 0.2)
    assert told["outside_mean"] == pytest.approx(state.own.mean() - 0.2)
    U, own = state.labelled
    np.testing.assert_allclose((U**2).sum(axis=1) + own, 1.2, atol=1e-12)


def test_the_error_of_first_gains_is_that_of_the_subset_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    X, seen = rng.normal(size=(30, 2)), rng.normal(size=(3, 2))
    problem = Problem(X_pool=X, X_labelled=seen, kernel=Rbf(0.2, 0.5), seed=1)
    monkeypatch.setattr("labelzoo.acquisition.mutual_information_large.CHECKED", 12)
    report = miml_with(landmarks=5)(problem, 2).report
    kept = np.sort(np.random.default_rng(1).permutation(30)[:12])
    both = np.vstack([X[kept], seen])
    C = Rbf(0.2, 0.5).between(both, both) + 0.2 * np.eye(15)
    seeds = [12, 13, 14]
    exact = np.array([information(C, [*seeds, i]) - information(C, seeds) for i in range(12)])
    U, left = low_rank(Rbf(0.2, 0.5), np.vstack([seen, X]), 5, 1)
    rows = [*(3 + kept), 0, 1, 2]
    low = U[rows] @ U[rows].T + np.diag(left[rows] + 0.2)
    gains = np.array([information(low, [*seeds, i]) - information(low, seeds) for i in range(12)])
    assert report["first_gain_rows"] == 12
    assert report["first_gain_error"] == pytest.approx(np.abs(exact - gains).max(), abs=1e-9)
    assert report["first_gain_spread"] == pytest.approx(exact.std(), abs=1e-9)


def test_copies_need_no_more_landmarks_than_there_are_places() -> None:
    X = np.repeat(np.random.default_rng(3).normal(size=(5, 2)), 20, axis=0)
    U, left = low_rank(Rbf(), X, 40, 0)
    assert U.shape[1] == 5 and left.max() < 1e-10


def test_too_large_a_factor_names_the_landmarks_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labelzoo.acquisition.mutual_information_large.MOST_BYTES", 8 * 30 * 10)
    with pytest.raises(ValueError, match=r"miml_with\(landmarks=10\)"):
        low_rank_state(Rbf(), np.zeros((30, 2)), None, 20, 0)
