"""Queries of single labels: AUDI by hand, random cells, and cells that were asked already."""

from typing import Any

import numpy as np
import pytest

from labelzoo.acquisition import pairs
from labelzoo.acquisition.problem import Problem
from labelzoo.acquisition.selectors import PoolExhausted

ENTRIES = {entry.name: entry for entry in pairs.ENTRIES}
Q = np.array([[0.9, 0.8, 0.6], [0.1, 0.45, 0.2], [0.9, 0.2, 0.3]])
Y = np.array([[1.0, 0, 0], [0, 1, 0], [1, 0, 1], [0, 0, 0]])
"""Mean cardinality 1; every label has both classes. Predicted counts of `Q`: 3, 0, 1."""


def problem(**more: Any) -> Problem:
    return Problem(**{"mean_probs": Q, "Y_labelled": Y, "seed": 0, **more})


def test_instance_scores_by_hand() -> None:
    asked = np.array([[True, False, False], [False, False, False], [True, True, True]])
    found = pairs.instance_scores(2 * Q - 1, asked, 1.25)
    np.testing.assert_allclose(found, [1.75 / 1, 1.25 / 0.5, -np.inf])
    other = pairs.instance_scores(2 * Q - 1, asked, 1.25, diversity="unlabelled")
    np.testing.assert_allclose(other, [1.75 / 2, 1.25 / 3, -np.inf])
    # The inverted denominator turns the preference round.
    assert np.argmax(found) != np.argmax(other)
    with pytest.raises(ValueError, match="diversity must be one of"):
        pairs.instance_scores(2 * Q - 1, asked, 1.0, diversity="both")


def test_threshold_of_the_dummy_label() -> None:
    none = np.zeros((1, 3), bool)
    assert pairs.instance_scores([[0.2, 0.4, 0.6]], none, 0.0, threshold=0.3)[0] == 2 / 0.5
    assert pairs.instance_scores([[0.3, 0.4, 0.6]], none, 0.0, threshold=np.array([0.3]))[0] == 2 / 0.5
    np.testing.assert_allclose(
        pairs.label_scores([[0.2, 0.4, 0.6]], np.array([True, True, False]), threshold=0.3)[0, :2], -0.1
    )


def test_audi_counts_what_the_batch_has_asked() -> None:
    choice = ENTRIES["audi"](problem(), 4)
    # Row 0 (|3 - 1| / .5 = 4), then row 0 or 1 at 2; the labels nearest to .5 first.
    assert (choice.rows[0], choice.labels[0], choice.gains[0]) == (0, 2, 4.0)
    assert sorted(zip(choice.rows[1:3].tolist(), choice.labels[1:3].tolist(), strict=True)) == [
        (0, 1),
        (1, 1),
    ]
    np.testing.assert_allclose(choice.gains, [4, 2, 2, 1])


def test_score_of_cells_is_the_greedy_order() -> None:
    scores = ENTRIES["audi"].score(problem())
    np.testing.assert_allclose(scores[0], [1, 2, 4])
    np.testing.assert_allclose(scores[1], [0.5, 2, 1])
    np.testing.assert_allclose(scores[2], 0)


def test_cells_asked_already_are_not_asked_again() -> None:
    asked = np.array([[True, True, False], [True, False, True], [True, True, True]])
    for name, entry in ENTRIES.items():
        choice = entry(problem(asked=asked), 2)
        assert set(zip(choice.rows.tolist(), choice.labels.tolist(), strict=True)) == {(0, 2), (1, 1)}, name
        assert not asked.sum() - 7
        with pytest.raises(PoolExhausted):
            entry(problem(asked=np.ones((3, 3), bool)), 1)


def test_label_of_one_class_is_asked_last() -> None:
    one_class = Y.copy()
    one_class[:, 2] = 0
    choice = ENTRIES["audi"](problem(Y_labelled=one_class), 1)
    assert (choice.rows[0], choice.labels[0]) == (0, 1)


def test_many_labels_are_refused_with_the_cost() -> None:
    wide = problem(mean_probs=np.full((2, 51), 0.5), Y_labelled=np.zeros((3, 51)))
    with pytest.raises(ValueError, match="not run: cost of 'audi' is 51 classifier fits"):
        ENTRIES["audi"](wide, 1)


def test_asked_of_another_shape_is_named() -> None:
    with pytest.raises(ValueError, match="asked has 2 labels, mean_probs has 3"):
        ENTRIES["audi"](problem(asked=np.zeros((3, 2), bool)), 1)


def test_random_cells_are_uniform_over_open_cells() -> None:
    asked = np.zeros((2, 3), bool)
    asked[0, 0] = True
    counts = np.zeros((2, 3))
    for seed in range(2000):
        choice = ENTRIES["random_cells"](Problem(asked=asked, seed=seed), 1)
        counts[choice.rows[0], choice.labels[0]] += 1
    z = (counts[~asked] / 2000 - 0.2) / np.sqrt(0.2 * 0.8 / 2000)
    assert counts[0, 0] == 0
    assert np.abs(z).max() < 5, f"z {z}, seeds 0 to 1999"
