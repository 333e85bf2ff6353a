"""What a warm start keeps, each multiplier at its row and class, and fits that begin where others ended."""

import json
from typing import Any

import numpy as np
import pytest

from labelzoo.data import LabelData
from labelzoo.inference.fit import fit
from labelzoo.inference.kernel_neighbors.dual import dual
from labelzoo.inference.kernel_neighbors.problem import read_problem
from labelzoo.inference.kernel_neighbors.refit import refit
from labelzoo.inference.kernel_neighbors.warm import warm_start
from labelzoo.inference.predict import mean_prob
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


def test_rows_and_classes_that_have_gone_are_left_out() -> None:
    old = dual(problem(np.arange(12), gamma=1.0))
    rows = np.full(12, -1)
    rows[OLD] = np.arange(len(OLD))
    found = warm_start(old, problem(OLD, gamma=1.0), rows)
    np.testing.assert_array_equal(found[:, :2], old.lam[OLD, 1:3])
    np.testing.assert_array_equal(found[:, 2], old.lam[OLD, 3])


POINTS, CODES = features(7, 40, 4)
LABELS = {"classes": np.eye(4, dtype=int)[CODES], "labels": (POINTS > 0.4).astype(int)}


def data_of(form: str, rows: Any, labels: Any = None) -> LabelData:
    table = LABELS[form] if labels is None else labels
    return LabelData.from_arrays(POINTS[rows], table[rows], example_names=[f"point {i}" for i in rows])


@pytest.mark.parametrize("engine", ["bregman", "dual"])
@pytest.mark.parametrize("form", LABELS)
def test_refit_ends_where_a_cold_fit_ends_with_fewer_projections(form: str, engine: str) -> None:
    """Rows in another order, one more, one less, one of another class."""
    before = fit("kernel_neighbors", data_of(form, np.arange(39)), engine, gamma=0.3)
    changed = LABELS[form].copy()
    changed[20] = changed[20][::-1]
    data = data_of(form, np.r_[39, np.arange(38)[::-1]], changed)
    cold, warm = fit("kernel_neighbors", data, "bregman", gamma=0.3), refit(before, data)
    assert warm.attrs["converged"] == "yes" and warm.attrs["engine"] == "bregman"
    assert warm.attrs["projections"] < cold.attrs["projections"] / 3
    np.testing.assert_allclose(mean_prob(warm, POINTS), mean_prob(cold, POINTS), atol=1e-7)
    np.testing.assert_allclose(
        warm["posterior"]["coefficients"], cold["posterior"]["coefficients"], atol=1e-5
    )
    again = refit(warm, data)
    assert again.attrs["projections"] <= len(data.example_names)


def test_refit_takes_up_a_class_that_was_not_there() -> None:
    old = np.flatnonzero(CODES != 1)
    before = fit("kernel_neighbors", data_of("classes", old), "bregman")
    data = data_of("classes", np.arange(40))
    cold, warm = fit("kernel_neighbors", data, "bregman"), refit(before, data, tolerance=1e-10)
    np.testing.assert_allclose(mean_prob(warm, POINTS), mean_prob(cold, POINTS), atol=1e-7)
    assert json.loads(warm.attrs["options"])["tolerance"] == 1e-10


def test_refit_takes_up_labels_by_their_names() -> None:
    """A class vector names its classes as they come: c0, c2, c3, and then c1 between them."""
    names = np.array(["c0", "c1", "c2", "c3"])[CODES]
    old = np.flatnonzero(CODES != 1)

    def rows(at: Any) -> LabelData:
        return LabelData.from_classes(POINTS[at], names[at], example_names=[f"point {i}" for i in at])

    before = fit("kernel_neighbors", rows(old), "bregman")
    cold, warm = fit("kernel_neighbors", rows(np.arange(40)), "bregman"), refit(before, rows(np.arange(40)))
    assert warm.attrs["projections"] < cold.attrs["projections"]
    np.testing.assert_allclose(mean_prob(warm, POINTS), mean_prob(cold, POINTS), atol=1e-7)


def test_refit_of_rows_of_one_class_is_the_prior() -> None:
    before = fit("kernel_neighbors", data_of("classes", np.arange(40)), "bregman")
    data = data_of("classes", np.flatnonzero(CODES == 2))
    cold, warm = fit("kernel_neighbors", data, "bregman"), refit(before, data)
    assert warm.attrs["converged"] == cold.attrs["converged"] == "yes"
    np.testing.assert_array_equal(warm["posterior"]["coefficients"], cold["posterior"]["coefficients"])


def test_refit_begins_rows_anew_whose_name_is_not_theirs_alone() -> None:
    rows = ["same"] * 5 + [f"point {i}" for i in range(35)]
    data = LabelData.from_arrays(POINTS, LABELS["classes"], example_names=rows)
    before = fit("kernel_neighbors", data, "bregman")
    np.testing.assert_allclose(mean_prob(refit(before, data), POINTS), mean_prob(before, POINTS), atol=1e-7)


def test_refit_from_one_class_a_row_to_several_starts_anew() -> None:
    before = fit("kernel_neighbors", data_of("classes", np.arange(30)), "bregman")
    several = LABELS["classes"].copy()
    several[35] = 1
    data = data_of("classes", np.arange(40), several)
    cold = fit("kernel_neighbors", data, "bregman", form="labels")
    with pytest.warns(UserWarning, match="takes each label by itself"):
        warm = refit(before, data)
    np.testing.assert_allclose(mean_prob(warm, POINTS), mean_prob(cold, POINTS), atol=1e-7)


def test_refit_says_what_does_not_fit() -> None:
    before = fit("kernel_neighbors", data_of("classes", np.arange(30)), "bregman")
    with pytest.raises(ValueError, match="settings are those of the posterior; got gamma, sweeps"):
        refit(before, data_of("classes", np.arange(40)), sweeps=3, gamma=1.0)
    narrow = LabelData.from_arrays(POINTS[:, :2], LABELS["classes"])
    with pytest.raises(ValueError, match="must have the features of the rows before"):
        refit(before, narrow)
    with pytest.raises(ValueError, match="tree must be a posterior of kernel_neighbors, got 'ndarray'"):
        refit(POINTS, data_of("classes", np.arange(40)))
