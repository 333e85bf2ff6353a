"""Gains of single labels against determinants; the limit of flat priors against expansions."""

import itertools
import math
import operator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from labelzoo.acquisition.label_gains import (
    CRITERIA,
    DenseGains,
    WoodburyGains,
    diagnose,
    greedy_labels,
    label_gains,
    limit_keys,
    limit_ranking,
)
from labelzoo.acquisition.selectors import PoolExhausted


def make_law(labels: int = 6, k: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray, float]:
    """Return diag(a), Phi (k, labels), v."""
    rng = np.random.default_rng(seed)
    return rng.uniform(0.1, 5, labels), rng.normal(size=(k, labels)) / np.sqrt(k), float(rng.uniform(0.2, 2))


def precision_of(a: np.ndarray, Phi: np.ndarray, v: float) -> np.ndarray:
    return np.diag(a) + Phi.T @ Phi / v


def log_det(A: np.ndarray) -> float:
    return float(np.linalg.slogdet(A)[1]) if len(A) else 0.0


def entropy_terms(C: np.ndarray, A: list[int]) -> float:
    """Entropy of the coordinates A of a Gaussian with covariance C, without its constants."""
    return log_det(C[np.ix_(A, A)]) / 2


def brute(P: np.ndarray, revealed: list[int], j: int, criterion: str) -> float:
    """Mutual informations by determinants of covariances, with nothing of the formulas under test."""
    C, everything = np.linalg.inv(P), list(range(len(P)))

    def between(A: list[int], B: list[int]) -> float:
        return entropy_terms(C, A) + entropy_terms(C, B) - entropy_terms(C, A + B)

    rest = [i for i in everything if i not in revealed and i != j]
    if criterion == "mi":
        return between([*revealed, j], rest) - between(revealed, [j, *rest])
    own, others = [j], rest
    joint = entropy_terms(C, [*own, *others, *revealed]) - entropy_terms(C, revealed)
    alone = entropy_terms(C, [*own, *revealed]) - entropy_terms(C, revealed)
    return alone + entropy_terms(C, [*others, *revealed]) - entropy_terms(C, revealed) - joint


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("seed", range(3))
def test_gains_equal_mutual_informations_for_every_set_of_revealed_labels(criterion: str, seed: int) -> None:
    a, Phi, v = make_law(5, 3, seed)
    P = precision_of(a, Phi, v)
    for size in range(5):
        for revealed in itertools.combinations(range(5), size):
            gains = label_gains(P, revealed, criterion)
            quick = WoodburyGains(a, Phi, v, np.isin(np.arange(5), revealed), criterion).scores()
            for j in range(5):
                if j in revealed:
                    assert np.isnan(gains[j]) and np.isnan(quick[j])
                    continue
                expected = brute(P, list(revealed), j, criterion)
                assert gains[j] == pytest.approx(expected, abs=1e-9)
                assert quick[j] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize(("labels", "k"), [(7, 3), (5, 5), (4, 6)])
def test_revealing_one_by_one_equals_starting_anew(criterion: str, labels: int, k: int) -> None:
    a, Phi, v = make_law(labels, k, 1)
    P = precision_of(a, Phi, v)
    none = np.zeros(labels, bool)
    states = (DenseGains(P, none, criterion), WoodburyGains(a, Phi, v, none, criterion))
    revealed: list[int] = []
    for label in np.random.default_rng(2).permutation(labels)[:-1].tolist():
        for state in states:
            state.reveal(label)
        revealed.append(label)
        mask = np.isin(np.arange(labels), revealed)
        U = np.flatnonzero(~mask)
        for state in states:
            np.testing.assert_allclose(state.scores(), label_gains(P, revealed, criterion), atol=1e-9)
            expected = np.diag(np.linalg.inv(P[np.ix_(U, U)]))
            np.testing.assert_allclose(state.variances()[U], expected, rtol=1e-9)


@pytest.mark.parametrize("revealed", [[], [4]])
def test_mi_gains_add_up_to_the_information_of_the_set(revealed: list[int]) -> None:
    a, Phi, v = make_law(seed=3)
    P = precision_of(a, Phi, v)
    C = np.linalg.inv(P)

    def value(A: list[int]) -> float:
        rest = [i for i in range(6) if i not in A]
        return entropy_terms(C, A) + entropy_terms(C, rest) - entropy_terms(C, list(range(6)))

    found = diagnose(P, 4, "mi", revealed)
    chosen = [*revealed, *found.labels.tolist()]
    assert found.gains.sum() == pytest.approx(value(chosen) - value(revealed), abs=1e-10)
    assert len(set(chosen)) == len(chosen)
    whole = diagnose(P, 6 - len(revealed), "mi", revealed)
    assert whole.gains.sum() == pytest.approx(-value(revealed), abs=1e-10)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_each_step_is_the_best_one(criterion: str) -> None:
    P = precision_of(*make_law(6, 2, 5))
    found = diagnose(P, 5, criterion)
    revealed: list[int] = []
    for label, gain in zip(found.labels.tolist(), found.gains, strict=True):
        rest = [j for j in range(6) if j not in revealed]
        gains = {j: brute(P, revealed, j, criterion) for j in rest}
        assert gain == pytest.approx(max(gains.values()), abs=1e-9) == gains[label]
        revealed.append(label)


def test_cond_ties_with_two_labels_left_and_mi_does_not() -> None:
    P = precision_of(*make_law(6, 3, 4))
    left = label_gains(P, [0, 1, 2, 3], "cond")[4:]
    assert left[0] == pytest.approx(left[1], abs=1e-12)
    other = label_gains(P, [0, 1, 2, 3], "mi")[4:]
    assert abs(other[0] - other[1]) > 1e-3
    assert diagnose(P, 1, "cond", [0, 1, 2, 3]).labels.tolist() == [4]


def test_quick_and_dense_forms_choose_the_same_labels_at_extreme_precisions() -> None:
    """From 0.1 to 1e6: the range that sparse labels reach."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        a, Phi = 10.0 ** rng.uniform(-1, 6, 12), rng.normal(size=(5, 12)) / np.sqrt(5)
        none = np.zeros(12, bool)
        for criterion in CRITERIA:
            dense = greedy_labels(DenseGains(precision_of(a, Phi, 0.3), none, criterion), 11)
            quick = greedy_labels(WoodburyGains(a, Phi, 0.3, none, criterion), 11)
            np.testing.assert_allclose(quick.gains, dense.gains, atol=1e-6)


def determinant(A: list[list[Fraction]]) -> Fraction:
    """By elimination in exact fractions; all leading minors must be above 0."""
    rows, out = [list(row) for row in A], Fraction(1)
    for i, pivot in enumerate(rows):
        out *= pivot[i]
        for row in rows[i + 1 :]:
            factor = row[i] / pivot[i]
            for j in range(i, len(rows)):
                row[j] -= factor * pivot[j]
    return out


def exact_gain(Phi: np.ndarray, v: float, eps: Any, revealed: list[int], j: int, criterion: str) -> float:
    """The gain at diag(a) = eps in exact fractions, up to one logarithm."""
    columns = [[Fraction(value) for value in column] for column in Phi.T.tolist()]
    size = range(len(columns))

    def product(r: int, c: int) -> Fraction:
        return sum(map(operator.mul, columns[r], columns[c]), Fraction(0)) / Fraction(v)

    P = [[product(r, c) for c in size] for r in size]
    for i in size:
        P[i][i] += Fraction(eps)

    def minor(rows: list[int]) -> Fraction:
        return determinant([[P[r][c] for c in rows] for r in rows])

    U = [i for i in size if i not in revealed]
    known = revealed if criterion == "mi" else []
    ratio = minor([i for i in U if i != j]) / minor(U) * minor([*known, j]) / minor(known)
    return (math.log(ratio.numerator) - math.log(ratio.denominator)) / 2


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize(("labels", "k"), [(6, 3), (5, 2), (4, 4)])
def test_limit_keys_are_the_expansion(criterion: str, labels: int, k: int) -> None:
    """Every number of revealed labels, eps from 1e-6 to 1e-8 in exact fractions; the error falls with eps."""
    rng = np.random.default_rng(labels)
    Phi, v = np.round(rng.normal(size=(k, labels)) * 64) / 128, 0.75
    for size in range(labels):
        revealed = rng.permutation(labels)[:size].tolist()
        order, constant = limit_keys(Phi, v, revealed, criterion)
        errors = []
        for eps in (Fraction(1, 10**6), Fraction(1, 10**7), Fraction(1, 10**8)):
            gaps = [
                exact_gain(Phi, v, eps, revealed, j, criterion)
                - 0.5 * (order[j] * math.log(1 / eps) + constant[j])
                for j in range(labels)
                if j not in revealed
            ]
            errors.append(np.abs(gaps).max())
        assert errors[0] < 1e-2 and errors[2] < 1e-6 + errors[0] / 50, (revealed, errors)
        assert np.isnan(order[revealed]).all()
        ranked = limit_ranking(order, constant)
        exact = sorted(
            (j for j in range(labels) if j not in revealed),
            key=lambda j: -exact_gain(Phi, v, Fraction(1, 10**8), revealed, j, criterion),
        )
        if criterion == "mi" or len(exact) > 2:
            assert ranked.tolist() == exact


def test_limit_orders_of_labels_that_no_measurement_sees_or_that_repeat() -> None:
    """A zero column, two equal columns and one more: orders differ, and come before constants."""
    Phi = np.array([[1.0, 1.0, 0.0, 0.5], [0.25, 0.25, 0.0, -1.0]])
    for revealed in ([], [0], [3], [0, 3]):
        for criterion in CRITERIA:
            order, constant = limit_keys(Phi, 0.5, revealed, criterion)
            for j in set(range(4)) - set(revealed):
                exact = exact_gain(Phi, 0.5, Fraction(1, 10**9), revealed, j, criterion)
                assert exact == pytest.approx(0.5 * (order[j] * np.log(1e9) + constant[j]), abs=1e-4)
    order, _ = limit_keys(Phi, 0.5)
    assert order.tolist() == [1, 1, 0, 0]


def test_bad_input_is_named() -> None:
    P = np.eye(3)
    for arguments, message in (
        ((P, [3]), "label 3 is outside 0 to 2"),
        ((P, [1, 1]), "given twice"),
        ((P, [0.5]), "revealed must be label numbers"),
        ((P, [], "entropy"), "criterion must be one of mi, cond, got 'entropy'"),
        ((np.ones((3, 3)), []), "not positive definite: its smallest eigenvalue is .*limit_keys"),
        ((np.full((3, 3), np.nan), []), "P row 0, column 0 is no number"),
        ((np.ones((2, 3)), []), r"P must be \(labels, labels\)"),
        ((np.array([[1, 0.5], [0, 1]]), []), "not symmetric"),
    ):
        with pytest.raises(ValueError, match=message):
            label_gains(*arguments)
    with pytest.raises(PoolExhausted, match="every label is revealed"):
        diagnose(P, 1, revealed=[0, 1, 2])
    with pytest.warns(UserWarning, match="batch of 9 from a pool of 3"):
        assert len(diagnose(P, 9).labels) == 3
    with pytest.raises(ValueError, match="v must be a finite number above 0"):
        limit_keys(np.eye(2), 0.0)
    with pytest.raises(ValueError, match="projection must be finite"):
        limit_keys(np.full((2, 2), np.inf), 1.0)
