"""The law of a row's labels as an object, as a field of a problem, and from sparse_bayes by study and ask."""

from typing import Any

import numpy as np
import pytest

from labelzoo.acquisition.label_law import LabelLaw
from labelzoo.acquisition.problem import Problem

GOOD: dict[str, Any] = {
    "diagonal": np.full((4, 3), 2.0),
    "projection": np.arange(6.0).reshape(2, 3),
    "variance": np.array([1.0, 2.0, 0.5, 1.0]),
}


def test_precision_and_subset() -> None:
    covariance = np.diag(GOOD["variance"]) + 0.1 * (1 - np.eye(4))
    law = LabelLaw(**GOOD, covariance=lambda: covariance)
    assert law.shape == (4, 3)
    expected = np.diag([2.0] * 3) + GOOD["projection"].T @ GOOD["projection"] / 0.5
    np.testing.assert_allclose(law.precision(2), expected)
    part = law.subset(np.array([2, 0]))
    np.testing.assert_allclose(part.precision(0), expected)
    np.testing.assert_allclose(part.joint_covariance(), covariance[np.ix_([2, 0], [2, 0])])
    with pytest.raises(ValueError, match="no covariance over rows"):
        LabelLaw(**GOOD).joint_covariance()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"diagonal": np.zeros((4, 3))}, r"diagonal\[0, 0\] is 0.0, not a finite number above 0"),
        ({"variance": np.array([1, 1, -1, 1])}, r"variance\[2\] is -1.0"),
        ({"projection": np.array([[np.nan, 1, 1]])}, r"projection\[0, 0\] is nan, not a finite number"),
        ({"projection": np.ones((2, 4))}, "diagonal has 3 labels, projection 4"),
        ({"variance": np.ones(5)}, "diagonal has 4 rows, variance 5"),
        ({"variance": np.ones((4, 1))}, "variance must have 1 axes"),
        ({"covariance": np.eye(3)}, r"covariance must be \(4, 4\), got shape \(3, 3\)"),
        ({"covariance": np.full((4, 4), np.nan)}, "covariance row 0, column 0 is no number"),
        ({"covariance": 2 * np.eye(4)}, "covariance has the variance 2 for row 0, variance says 1"),
    ],
)
def test_pieces_that_do_not_fit_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LabelLaw(**{**GOOD, **change})


def test_a_problem_names_what_it_lacks_and_counts_its_rows() -> None:
    with pytest.raises(ValueError, match="'label_mi' needs label_law: the Gaussian law"):
        Problem(X_pool=np.zeros((2, 1))).need("label_law", "label_mi")
    assert Problem(label_law=LabelLaw(**GOOD)).pool_size() == 4
