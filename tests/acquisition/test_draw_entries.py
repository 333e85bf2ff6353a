"""What every acquisition function that reads posterior draws promises, entry by entry."""

from typing import Any

import numpy as np
import pytest

from labelzoo.acquisition import batch_bald, ensemble, epig, information, utility
from labelzoo.acquisition.problem import Acquisition, Problem
from labelzoo.acquisition.selectors import PoolExhausted

MODULES = (information, batch_bald, epig, ensemble, utility)
ENTRIES = [entry for module in MODULES for entry in module.ENTRIES]
each = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)


def draws(rows: int = 9, seed: int = 0, samples: int = 200) -> Any:
    rng = np.random.default_rng(seed)
    logits = np.tensordot(rng.standard_normal((samples, 2)), rng.standard_normal((2, rows, 2)), axes=1)
    return 1 / (1 + np.exp(-logits))


def problem(probs: Any, seed: int = 0) -> Problem:
    return Problem(probs=lambda: probs, mean_probs=lambda: probs.mean(axis=0), seed=seed)


@each
def test_a_batch_has_distinct_rows_and_a_seed_repeats_it(entry: Acquisition) -> None:
    choice = entry(problem(draws()), 5)
    assert len(choice.rows) == len(choice.gains) == len(set(choice.rows.tolist())) == 5
    assert set(choice.rows.tolist()) <= set(range(9))
    again = entry(problem(draws()), 5)
    assert (again.rows == choice.rows).all()
    np.testing.assert_array_equal(again.gains, choice.gains)


@each
def test_ties_are_broken_by_seed(entry: Acquisition) -> None:
    same = np.repeat(draws(rows=1), 6, axis=1)
    first = {int(entry(problem(same, seed), 1).rows[0]) for seed in range(12)}
    assert len(first) > 1


@each
def test_a_batch_larger_than_the_pool_is_the_pool(entry: Acquisition) -> None:
    with pytest.warns(UserWarning, match="the whole pool is returned"):
        choice = entry(problem(draws(rows=3)), 5)
    assert sorted(choice.rows.tolist()) == [0, 1, 2]


@each
def test_an_empty_pool_is_exhausted(entry: Acquisition) -> None:
    with pytest.raises(PoolExhausted):
        entry(problem(np.zeros((200, 0, 2))), 2)


@each
@pytest.mark.parametrize("bad", [np.nan, np.inf, -0.5, 1.5])
def test_bad_probabilities_are_named(entry: Acquisition, bad: float) -> None:
    probs = draws()
    probs[:, 4, 1] = bad
    with pytest.raises(ValueError, match="row 4, label 1"):
        entry(problem(probs), 2)


@each
def test_order_of_draws_labels_and_rows_does_not_matter(entry: Acquisition) -> None:
    probs = draws()
    rng = np.random.default_rng(1)
    rows = rng.permutation(9)
    other = probs[rng.permutation(200)][:, rows][:, :, ::-1]
    np.testing.assert_allclose(entry.score(problem(other)), entry.score(problem(probs))[rows], atol=1e-12)


@each
def test_the_highest_score_is_asked_first(entry: Acquisition) -> None:
    scores = np.asarray(entry.score(problem(draws())))
    choice = entry(problem(draws()), 1)
    assert scores.shape == (9,)
    assert choice.rows[0] == scores.argmax()
    assert choice.gains[0] == pytest.approx(scores.max(), abs=1e-10)


@each
def test_what_is_missing_is_named(entry: Acquisition) -> None:
    with pytest.raises(ValueError, match=f"{entry.name!r} needs {entry.needs[0]}"):
        entry(Problem(), 1)
    for text in (entry.units, entry.bias, entry.cost, entry.helps, entry.source):
        assert text.strip()
