"""Selectors: lazy greedy against plain greedy, costs, ties by seed."""

import numpy as np
import pytest

from labelzoo.acquisition.problem import Acquisition, Problem, best
from labelzoo.acquisition.selectors import PoolExhausted, lazy_greedy, per_cost

RNG = np.random.default_rng(3)
COVERS = RNG.random((40, 60)) < 0.1


def coverage(item: int, chosen: list[int]) -> float:
    """How many more points are covered: submodular."""
    covered = COVERS[chosen].any(axis=0) if chosen else np.zeros(60, bool)
    return float((COVERS[item] & ~covered).sum())


def test_lazy_greedy_gains_what_greedy_gains_with_fewer_evaluations() -> None:
    rows, gains, evaluations = lazy_greedy(coverage, 40, 12, seed=1)
    chosen: list[int] = []
    for gain in gains:
        open_items = [i for i in range(40) if i not in chosen]
        values = [coverage(i, chosen) for i in open_items]
        assert gain == max(values)
        chosen.append(int(rows[len(chosen)]))
        assert coverage(chosen[-1], chosen[:-1]) == gain
    assert len(set(rows.tolist())) == 12
    assert evaluations < 40 * 12 / 2


def test_lazy_greedy_breaks_ties_by_seed_and_refuses_an_empty_pool() -> None:
    picks = {tuple(lazy_greedy(lambda item, chosen: 1.0, 9, 2, seed=s)[0].tolist()) for s in range(20)}
    assert len(picks) > 5
    with pytest.raises(PoolExhausted):
        lazy_greedy(coverage, 0, 2)
    with pytest.warns(UserWarning, match="the whole pool"):
        assert len(lazy_greedy(coverage, 3, 5)[0]) == 3


def test_costs_divide_scores_of_rows_and_labels() -> None:
    rows = best(np.array([4.0, 3.0, 1.0]), 2, Problem(costs=[4.0, 1.0, 1.0]))
    assert rows.rows.tolist()[0] == 1
    cells = best(np.array([[4.0, 3.0], [2.0, 2.9]]), 1, Problem(costs=np.array([10.0, 1.0])))
    assert (cells.rows.tolist(), cells.labels.tolist()) == ([0], [1])


@pytest.mark.parametrize(
    ("scores", "costs", "words"),
    [
        ([1.0, 2.0], [1.0, 0.0], "above 0"),
        ([1.0, 2.0], [1.0, np.nan], "above 0"),
        ([1.0, 2.0], [1.0], "do not fit"),
        ([-1.0, 2.0], [1.0, 1.0], "can be negative"),
    ],
)
def test_bad_costs_are_named(scores: list[float], costs: list[float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        per_cost(np.array(scores), np.array(costs))


def test_costs_are_refused_by_functions_that_choose_a_batch_as_a_whole() -> None:
    text = dict.fromkeys(("units", "bias", "cost", "helps", "source"), "")
    entry = Acquisition("whole", "row", needs=(), score=lambda p: p, choose=lambda p, b: p, **text)
    with pytest.raises(ValueError, match="'whole' chooses a batch as a whole"):
        entry(Problem(costs=[1.0]), 1)
