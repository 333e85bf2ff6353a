"""What a warm start keeps: each multiplier at its row and class, of the totals too, none above gamma."""

from typing import Any

import numpy as np
import pytest

from labelzoo.inference.kernel_neighbors.dual import dual
from labelzoo.inference.kernel_neighbors.problem import read_problem
from labelzoo.inference.kernel_neighbors.warm import warm_start
from tests.inference.kernel_neighbors.problems import features, rbf

X, Y = features(3, 12, 3)
NAMES = np.array(["b", "c", "a"])[Y]
"""The class a is new in the second problem, and comes first there."""
OLD = np.flatnonzero(NAMES != "a")
K = rbf(X, X)


def problem(rows: Any, **options: Any) -> Any:
    return read_problem(K[np.ix_(rows, rows)], NAMES[rows], **options)


@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("before", [True, False])
def test_multipliers_stay_with_their_rows_and_classes(before: bool, after: bool) -> None:
    """Totals are constrained before, after, at both times, or never."""
    old = dual(problem(OLD, gamma=1.0, positive_total=before))
    lam = np.random.default_rng(1).random(old.lam.shape)
    assert lam.shape[1] == 2 + before
    new = problem(np.arange(12), gamma=0.8, positive_total=after)
    wanted = np.zeros((12, 3 + after))
    wanted[OLD, 1:3] = lam[:, :2]
    if before and after:
        wanted[OLD, 3] = lam[:, 2]
    found = warm_start(old._replace(lam=lam), new, OLD)
    np.testing.assert_array_equal(found, np.minimum(wanted, 0.8))
    assert (wanted > 0.8).any()


def test_the_first_rows_are_the_old_ones_unless_told() -> None:
    order = np.r_[OLD, np.flatnonzero(NAMES == "a")]
    old = dual(problem(OLD, gamma=1.0))
    found = warm_start(old, problem(order, gamma=1.0))
    np.testing.assert_array_equal(found, warm_start(old, problem(order, gamma=1.0), np.arange(len(OLD))))
    np.testing.assert_array_equal(found[: len(OLD), 1:3], old.lam[:, :2])
    assert found[: len(OLD)].any() and not found[len(OLD) :].any()
