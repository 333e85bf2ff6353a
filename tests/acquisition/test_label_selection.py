"""Entries that ask single labels by the law of a row's labels, against whole precisions."""

from typing import Any

import numpy as np
import pytest

from labelzoo.acquisition.catalogue import find
from labelzoo.acquisition.label_gains import CRITERIA, DenseGains, label_gains
from labelzoo.acquisition.label_joint import CellGains
from labelzoo.acquisition.label_law import LabelLaw
from labelzoo.acquisition.label_selection import row_scores, two_way_with
from labelzoo.acquisition.problem import Problem
from labelzoo.acquisition.selectors import PoolExhausted
from labelzoo.models.gp_kernel import GPKernel

NAMES = {"mi": "label_mi", "cond": "label_cond"}


def make_law(rows: int = 5, labels: int = 4, k: int = 2, seed: int = 0, joint: bool = True) -> LabelLaw:
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(rows, rows))
    C = factor @ factor.T / rows + 0.3 * np.eye(rows)
    diagonal = rng.uniform(0.2, 4, (rows, labels))
    return LabelLaw(diagonal, rng.normal(size=(k, labels)), C.diagonal(), C if joint else None)


def make_asked(law: LabelLaw, seed: int = 0, share: float = 0.3) -> np.ndarray:
    return np.random.default_rng(seed).random(law.shape) < share


def whole_precision(law: LabelLaw) -> np.ndarray:
    own = law.projection.T @ law.projection
    return np.diag(law.diagonal.ravel()) + np.kron(np.linalg.inv(law.joint_covariance()), own)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_scores_are_the_gains_row_by_row(criterion: str, monkeypatch: pytest.MonkeyPatch) -> None:
    law = make_law(9)
    asked = make_asked(law)
    scores = find(NAMES[criterion]).scores(Problem(label_law=law, asked=asked))
    for row in range(9):
        expected = np.nan_to_num(label_gains(law.precision(row), asked[row], criterion))
        np.testing.assert_allclose(scores[row], expected, atol=1e-9)
    monkeypatch.setattr("labelzoo.acquisition.label_selection.WORK_BYTES", 1)
    np.testing.assert_allclose(row_scores(law, asked, criterion), scores, atol=1e-12)


def test_uncertainty_is_the_variance_given_what_is_known() -> None:
    law = make_law(4)
    asked = make_asked(law, 2)
    scores = find("label_uncertainty").scores(Problem(label_law=law, asked=asked))
    for row in range(4):
        U = np.flatnonzero(~asked[row])
        expected = np.diag(np.linalg.inv(law.precision(row)[np.ix_(U, U)]))
        np.testing.assert_allclose(scores[row, U], expected, rtol=1e-9)
    choice = find("label_uncertainty")(Problem(label_law=law, asked=asked), 6)
    known = asked.copy()
    for row, label, gain in zip(choice.rows, choice.labels, choice.gains, strict=True):
        now = row_scores(law, known, "uncertainty")
        assert gain == pytest.approx(now.max()) and now[row, label] == pytest.approx(now.max())
        known[row, label] = True


@pytest.mark.parametrize("criterion", CRITERIA)
def test_a_batch_takes_the_best_cell_again_and_again(criterion: str) -> None:
    law = make_law(6, 5, 3, 1, joint=False)
    asked = make_asked(law, 1)
    still = int((~asked).sum())
    choice = find(NAMES[criterion])(Problem(label_law=law, asked=asked), still)
    states = [DenseGains(law.precision(row), asked[row], criterion) for row in range(6)]
    for row, label, gain in zip(choice.rows, choice.labels, choice.gains, strict=True):
        now = np.array([state.scores() for state in states])
        assert gain == pytest.approx(np.nanmax(now), abs=1e-9)
        assert now[row, label] == pytest.approx(gain, abs=1e-9)
        states[row].reveal(int(label))
    assert len({*zip(choice.rows.tolist(), choice.labels.tolist(), strict=True)}) == still


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("share", [0.0, 0.4])
def test_joint_gains_are_those_of_the_whole_precision(criterion: str, share: float) -> None:
    law = make_law(5, 4, 2, 3)
    asked = make_asked(law, 5, share)
    dense = DenseGains(whole_precision(law), asked.ravel(), criterion)
    state = CellGains(law, asked, criterion, 10)
    for _ in range(10):
        np.testing.assert_allclose(state.scores().ravel(), dense.scores(), atol=1e-9)
        np.testing.assert_allclose(state.variances().ravel(), dense.variances(), rtol=1e-8)
        cell = int(np.nanargmax(dense.scores()))
        state.reveal(*divmod(cell, 4))
        dense.reveal(cell)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_joint_entries_choose_by_the_whole_precision(criterion: str) -> None:
    law = make_law(4, 3, 2, 6)
    choice = find(NAMES[criterion] + "_joint")(Problem(label_law=law), 7)
    dense = DenseGains(whole_precision(law), np.zeros(12, bool), criterion)
    for row, label, gain in zip(choice.rows, choice.labels, choice.gains, strict=True):
        scores = dense.scores()
        assert gain == pytest.approx(np.nanmax(scores), abs=1e-9)
        dense.reveal(int(row * 3 + label))
        assert scores[row * 3 + label] == pytest.approx(gain, abs=1e-9)


def test_a_joint_law_whose_rows_know_nothing_of_each_other_is_that_of_rows_alone() -> None:
    law = make_law(5, 4, 2, 7, joint=False)
    apart = LabelLaw(law.diagonal, law.projection, law.variance, np.diag(law.variance))
    for criterion in CRITERIA:
        joint = find(NAMES[criterion] + "_joint")(Problem(label_law=apart), 9)
        alone = find(NAMES[criterion])(Problem(label_law=law), 9)
        np.testing.assert_allclose(joint.gains, alone.gains, atol=1e-9)


def make_two_way(asked: Any = None) -> Problem:
    rng = np.random.default_rng(8)
    X = rng.normal(size=(8, 2))
    kernel = GPKernel(False, np.zeros(2), np.ones(2), 1.0, 0.3)
    law = make_law(8, 5, 3, 9, joint=False)
    return Problem(X_pool=X, kernel=kernel, label_law=law, asked=asked, seed=3)


def test_two_way_takes_rows_by_miml_and_labels_by_mi_within_them() -> None:
    problem = make_two_way()
    choice = two_way_with(labels_per_row=2)(problem, 5)
    rows = find("miml")(problem, 3).rows
    assert choice.rows.tolist() == [rows[0], rows[0], rows[1], rows[1], rows[2]]
    law = problem.label_law
    for row in rows[:2]:
        labels = choice.labels[choice.rows == row]
        gains = label_gains(law.precision(int(row)))
        assert labels[0] == gains.argmax()
        assert labels[1] == np.nanargmax(label_gains(law.precision(int(row)), [labels[0]]))
    assert choice.report["rows_chosen"] == 3
    assert len(find("label_two_way")(problem, 3).rows) == 3  # half of five labels, one row


def test_two_way_leaves_out_what_is_known() -> None:
    asked = np.zeros((8, 5), bool)
    asked[:3] = True
    asked[3, :4] = True
    choice = find("label_two_way")(make_two_way(asked), 9)
    assert not asked[choice.rows, choice.labels].any()
    assert len({*zip(choice.rows.tolist(), choice.labels.tolist(), strict=True)}) == len(choice.rows)


def test_bad_input_is_named() -> None:
    law = make_law()
    entry = find("label_mi")
    for problem, message in (
        (Problem(X_pool=np.zeros((5, 1))), "needs label_law"),
        (Problem(label_law=np.eye(3)), "label_law must be a LabelLaw, got ndarray"),
        (Problem(label_law=law, X_pool=np.zeros((3, 1))), "label_law has 5 rows, the pool has 3"),
        (Problem(label_law=law, asked=np.zeros((5, 3), bool)), r"asked must be bool \(5, 4\)"),
        (Problem(label_law=law, asked=np.zeros((5, 4))), "asked must be bool"),
        (Problem(label_law=law, costs=np.ones(4)), "reads no costs"),
    ):
        with pytest.raises(ValueError, match=message):
            entry(problem, 2)
    with pytest.raises(PoolExhausted, match="every label of the pool is known"):
        entry(Problem(label_law=law, asked=np.ones((5, 4), bool)), 1)
    with pytest.raises(ValueError, match="no covariance over rows"):
        find("label_mi_joint")(Problem(label_law=make_law(joint=False)), 1)
    with pytest.raises(ValueError, match="labels_per_row must be an integer of at least 1"):
        two_way_with(labels_per_row=0)


def test_large_joint_pools_are_refused_with_what_to_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labelzoo.acquisition.label_joint.LARGEST", 9)
    with pytest.raises(ValueError, match=r"matrix of 10 rows, above 9: .*label_two_way"):
        find("label_mi_joint")(Problem(label_law=make_law()), 1)


def test_an_indefinite_covariance_is_named_with_its_eigenvalue() -> None:
    law = make_law(3)
    bad = LabelLaw(law.diagonal, law.projection, np.ones(3), 2 * np.ones((3, 3)) - np.eye(3))
    for name in ("label_mi_joint", "label_cond_joint"):
        with pytest.raises(ValueError, match="not positive definite: its smallest eigenvalue is -"):
            find(name)(Problem(label_law=bad), 1)
