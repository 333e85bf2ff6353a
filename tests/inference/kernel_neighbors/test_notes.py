"""What docs/errata.md notes on class kernels: class vectors, increments, start, projections, totals."""

import numpy as np
import pytest

from labelzoo.inference.kernel_neighbors import block, multipliers
from labelzoo.inference.kernel_neighbors.bregman import bregman, sweep
from labelzoo.inference.kernel_neighbors.dual import dual
from labelzoo.inference.kernel_neighbors.problem import read_problem
from tests.inference.kernel_neighbors.problems import features, problem, rbf

Matrix = np.ndarray


def updated(K: Matrix, v: Matrix, w: Matrix) -> Matrix:
    """(K^-1 + w v' + v w')^-1 by eqs. 5 and 7."""
    wv, vw = np.column_stack([w, v]), np.column_stack([v, w])
    S = np.linalg.inv(np.eye(2) + vw.T @ K @ wv)
    return K - K @ wv @ S @ vw.T @ K


def example() -> tuple[Matrix, Matrix, Matrix, Matrix]:
    X, y = features(3, 8, 2)
    rng = np.random.default_rng(0)
    return rbf(X, X), (y == 0) / (y == 0).sum(), 0.1 * rng.normal(size=8), 0.1 * rng.normal(size=8)


def own_constraint(K: Matrix, y: Matrix, plain: bool) -> Matrix:
    """g_iy of eq. 4 at one kernel for both classes, alpha = .6, with v = 1 or v = 1 / n_l."""
    sums = np.stack([K[:, y == c].sum(axis=1) for c in (0, 1)])
    s = sums if plain else sums / np.bincount(y)[:, None]
    return s.sum(axis=0) - s[y, np.arange(len(y))] / 0.6


@pytest.mark.parametrize(("y", "same"), [([0, 1, 0, 1, 1, 0, 0, 1], True), ([0, 1, 1, 1, 1, 1, 1, 0], False)])
def test_plain_class_vectors_are_means_for_classes_of_equal_size_alone(y: list[int], same: bool) -> None:
    K, codes = example()[0], np.array(y)
    g, plain = (own_constraint(K, codes, one) for one in (False, True))
    assert (np.sign(g) == np.sign(plain)).all() == same
    assert np.allclose(plain, 4 * g) == same


def test_increments_are_relative_to_the_kernel_before_the_step() -> None:
    K0, v, first, second = example()
    before = updated(K0, v, first)
    after = updated(K0, v, first + second)
    np.testing.assert_allclose(updated(before, v, second), after, atol=1e-12)
    # The total put in as an increment counts the first step twice.
    np.testing.assert_allclose(
        updated(before, v, first + second), updated(K0, v, 2 * first + second), atol=1e-12
    )
    assert np.abs(updated(before, v, first + second) - after).max() > 1e-2


def test_either_start_is_the_prior() -> None:
    K0, v, w, _ = example()
    a, none = v @ K0 @ v, np.zeros_like(v)
    wv, vw = np.column_stack([none, v]), np.column_stack([v, none])
    S = np.linalg.inv(np.eye(2) + vw.T @ K0 @ wv)
    np.testing.assert_allclose(S, [[1.0, -a], [0.0, 1.0]], atol=1e-14)
    for start in (S, np.zeros((2, 2))):
        np.testing.assert_allclose(K0 - K0 @ wv @ start @ vw.T @ K0, K0, atol=1e-14)
    assert np.abs(updated(K0, v, w) - K0).max() > 1e-2


def test_projections_of_the_prior_forget_the_rows_before() -> None:
    p = problem(2, 10, 3)
    table, rows = block.sides(multipliers.own_weights(p), p.columns), np.arange(10)
    none = np.zeros((10, p.columns))
    left = []
    for i in rows:
        state = multipliers.inside(p, none.copy())
        for _ in range(4):
            sweep(p, state, np.array([i]), table)
            state = multipliers.state_of(p, state.lam)
        g = multipliers.constraints(p, multipliers.similarity_of(p, state))
        assert g[i].max() < 1e-8
        left.append(g.max())
    assert min(left) > 0.1
    fit = bregman(p)
    assert multipliers.constraints(p, fit.similarity).max() < 1e-8


def test_linear_constraints_are_those_of_shares_where_totals_are_positive() -> None:
    X, y = features(1, 30, 3)
    p = read_problem(rbf(X, X), y, alpha=0.66, beta=1 / 6, positive_total=False)
    with pytest.warns(UserWarning, match="of 30 training rows have a total similarity"):
        s = dual(p).similarity
    assert p.K0.min() >= 0 and multipliers.constraints(p, s).max() < 1e-6
    total = s.sum(axis=1)
    own = s[np.arange(30), y] / total
    positive = total > 1e-6
    assert (own[positive] >= p.alpha - 1e-4).all()
    assert (total < -1e-3).any() and (own[total < -1e-3] < p.alpha).any()
