"""Fields that do not fit together, and functions that answer with nonsense, are named."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from labelzoo.acquisition import register_acquisition
from labelzoo.acquisition.catalogue import _EXTRA, find
from labelzoo.acquisition.problem import Acquisition, Choice, Problem
from labelzoo.models.gp_kernel import GPKernel, feature_map

RNG = np.random.default_rng(0)
GOOD: dict[str, Any] = {
    "X_pool": RNG.normal(size=(12, 3)),
    "X_labelled": RNG.normal(size=(6, 3)),
    "Y_labelled": np.arange(24.0).reshape(6, 4) % 2,
    "X_targets": RNG.normal(size=(5, 3)),
    "mean_probs": RNG.uniform(size=(12, 4)),
    "probs": RNG.uniform(size=(200, 12, 4)),
    "target_probs": RNG.uniform(size=(200, 5, 4)),
    "asked": np.zeros((12, 4), bool),
    "kernel": GPKernel(False, np.zeros(3), np.ones(3)),
}


def changed(name: str, row: int, column: int, value: float) -> np.ndarray:
    out = GOOD[name].copy()
    out[row, column] = value
    return out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"asked": np.zeros((3, 3), bool)}, "asked has 3 pool rows, X_pool has 12"),
        ({"mean_probs": np.full((7, 4), 0.5)}, "mean_probs has 7 pool rows, X_pool has 12"),
        ({"X_targets": np.ones((5, 4))}, "X_targets has 4 features, X_pool has 3"),
        ({"Y_labelled": np.ones((6, 2))}, "Y_labelled has 2 labels, mean_probs has 4"),
        ({"Y_labelled": sparse.csr_array(np.ones((6, 4)))}, "Y_labelled must be a dense array"),
        ({"target_probs": np.full((100, 5, 4), 0.5)}, "target_probs has 100 draws, probs has 200"),
        ({"X_targets": np.ones((0, 3)), "target_probs": None}, "X_targets has no targets"),
        ({"X_pool": np.ones((12, 0)), "X_labelled": None, "X_targets": None}, "X_pool has no features"),
        ({"X_pool": np.ones(12)}, r"X_pool must be \(pool rows, features\), got shape \(12,\)"),
        ({"X_pool": changed("X_pool", 4, 1, 1e300)}, r"X_pool: row 4, column 1 is 1e\+300, too large"),
        (
            {"X_pool": sparse.csr_array(changed("X_pool", 4, 1, -1e200))},
            r"row 4, column 1 is -1e\+200",
        ),
        (
            {"weights": np.array([1.0, 2, -1, 0, 1])},
            r"at least 0: weights\[2\] is -1",
        ),
        ({"weights": np.zeros(5)}, "weights are all 0"),
        ({"weights": ["a"] * 5}, "weights must be numbers"),
        ({"weights": np.ones(12)}, "weights must be one number for each of 5 targets"),
        ({"kernel": "rbf"}, "kernel must have between"),
        ({"seed": -1}, "seed must be an integer of at least 0, got -1"),
        ({"seed": 1.5}, "seed must be an integer of at least 0, got 1.5"),
        ({"seed": True}, "seed must be an integer of at least 0, got True"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], message: str) -> None:
    assert len(find("random")(Problem(**GOOD), 3).rows) == 3
    for name in ("random", "ivr"):
        with pytest.raises(ValueError, match=message):
            find(name)(Problem(**{**GOOD, **change}), 3)


def own(**changes: Any) -> Acquisition:
    words = dict.fromkeys(("units", "bias", "cost", "helps", "source"), "")
    return Acquisition(
        **{"name": "own", "query": "row", "needs": (), "score": lambda p: np.zeros(12), **words, **changes}
    )


def choosing(rows: list[int], gains: list[float], labels: list[int] | None = None) -> Acquisition:
    chosen = None if labels is None else np.array(labels)
    return own(choose=lambda problem, batch: Choice(np.array(rows), np.array(gains), chosen))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (own(score=lambda p: np.zeros(3)), r"'own' must return scores \(pool,\) of 12 rows .*shape \(3,\)"),
        (own(score=lambda p: np.zeros(99)), r"got shape \(99,\)"),
        (own(score=lambda p: 1.0), r"got shape \(\)"),
        (own(score=lambda p: np.zeros((12, 4))), r"got shape \(12, 4\)"),
        (own(query="cell", score=lambda p: np.zeros(12)), r"scores \(pool, labels\) of 12 rows"),
        (own(score=lambda p: np.where(np.arange(12) == 5, np.nan, 0)), "gives NaN for row 5 of the pool"),
        (
            own(query="cell", score=lambda p: np.where(np.arange(48).reshape(12, 4) == 9, np.nan, 0)),
            "gives NaN for row 2, label 1 of the pool",
        ),
        (choosing([0, 0], [1.0, 1.0]), "chose the same query twice"),
        (choosing([0, 12], [1.0, 1.0]), "chose a row outside the pool of 12 rows"),
        (choosing([0, -1], [1.0, 1.0]), "chose a row outside the pool"),
        (choosing([0, 0], [1.0, 1.0], [2, 2]), "chose the same query twice"),
    ],
)
def test_nonsense_of_a_function_is_refused(entry: Acquisition, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        entry(Problem(**GOOD), 2)


def test_distinct_cells_of_one_row_and_the_lowest_scores_are_allowed() -> None:
    assert choosing([0, 0], [1.0, 1.0], [2, 3])(Problem(**GOOD), 2).rows.tolist() == [0, 0]
    low = own(score=lambda p: np.where(np.arange(12) > 1, -np.inf, 0.0))
    assert set(low(Problem(**GOOD), 2).rows.tolist()) == {0, 1}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"query": "rows"}, "query must be 'row' or 'cell', got 'rows'"),
        ({"needs": ("meen_probs",)}, "needs names no field of Problem: meen_probs"),
    ],
)
def test_entries_that_could_not_work_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        own(**changes)


@pytest.mark.parametrize("name", ["", "a,b", "oracle", "1st", "random"])
def test_registering_is_all_or_nothing(name: str) -> None:
    before = dict(_EXTRA)
    with pytest.raises(ValueError, match=r"acquisition"):
        register_acquisition(own(name="fine"), own(name=name))
    assert before == _EXTRA
    with pytest.raises(ValueError, match="'twice' is registered already"):
        register_acquisition(own(name="twice"), own(name="twice"))
    assert before == _EXTRA


@pytest.mark.parametrize("scale", [1e160, 1e-200])
def test_features_that_cannot_be_squared_are_refused(scale: float) -> None:
    X = RNG.normal(size=(8, 3)) * np.array([1.0, scale, 1.0])
    for table in (X, sparse.csr_array(X)):
        with pytest.raises(ValueError, match=r"X: feature 1 has numbers as far out as .*rescale it"):
            feature_map(table)
