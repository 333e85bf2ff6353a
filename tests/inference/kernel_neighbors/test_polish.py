"""Multipliers solved for together where sweeps are slow: Hessian, some held, both steps, warm starts."""

from typing import Any

import numpy as np
import pytest

from labelzoo.inference.kernel_neighbors import multipliers
from labelzoo.inference.kernel_neighbors.bregman import bregman
from labelzoo.inference.kernel_neighbors.dual import dual, free_of, hessian, maximize
from labelzoo.inference.kernel_neighbors.problem import read_problem
from labelzoo.inference.kernel_neighbors.truncated import hessian_diagonal, hessian_product, newton_rise
from labelzoo.inference.kernel_neighbors.warm import warm_start
from tests.inference.kernel_neighbors.problems import features, inner_state, problem, rbf


def grown(seed: int, rows: int, **options: Any) -> tuple[Any, Any]:
    """A problem without its last row, and with it."""
    X, y = features(seed, rows + 1, 5)
    K = rbf(X, X)
    return read_problem(K[:rows, :rows], y[:rows], **options), read_problem(K, y, **options)


@pytest.mark.parametrize("positive_total", [True, False])
def test_products_and_diagonal_of_the_hessian_are_those_of_the_matrix(positive_total: bool) -> None:
    p, state = inner_state(2, positive_total=positive_total)
    s, shape = multipliers.similarity_of(p, state), state.lam.shape
    H = hessian(p, state, s, free_of(p, state.lam, np.ones(shape, bool)))
    d = np.random.default_rng(1).normal(size=shape)
    size = np.abs(H).max()
    np.testing.assert_allclose(hessian_product(p, state, s, d).ravel(), H @ d.ravel(), atol=1e-12 * size)
    np.testing.assert_allclose(hessian_diagonal(p, state, s).ravel(), np.diag(H), atol=1e-12 * size)
    some = np.random.default_rng(2).random(shape) < 0.4
    part = hessian(p, state, s, free_of(p, state.lam, some))
    np.testing.assert_allclose(part, H[np.ix_(some.ravel(), some.ravel())], atol=1e-12 * size)


def test_some_multipliers_are_solved_for_and_the_others_held() -> None:
    p, state = inner_state(4, gamma=0.5)
    some = np.random.default_rng(2).random(state.lam.shape) < 0.5
    lam, steps = maximize(p, state.lam, some, tolerance=1e-10)
    assert steps > 0 and (lam[~some] == state.lam[~some]).all()
    there = multipliers.state_of(p, lam)
    g = multipliers.constraints(p, multipliers.similarity_of(p, there))
    terms = multipliers.gap_terms(p, lam, g)
    assert terms[some].sum() < 1e-8 < terms[~some].sum()


def by_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    for most in ("MAX_SIZE", "FEW"):
        monkeypatch.setattr(f"labelzoo.inference.kernel_neighbors.bregman.{most}", 0)


@pytest.mark.parametrize("gamma", [1.0, 0.1])
def test_steps_by_conjugate_gradients_end_where_the_dual_does(
    monkeypatch: pytest.MonkeyPatch, gamma: float
) -> None:
    by_gradients(monkeypatch)
    rng = np.random.default_rng(2)
    y = np.r_[np.arange(4), rng.integers(4, size=76)]
    X = rng.normal(size=(80, 15)) + 0.8 * rng.normal(size=(4, 15))[y]
    p = read_problem(np.exp(-((X[:, None] - X) ** 2).sum(axis=-1) / 30), y, gamma=gamma)
    fit = bregman(p, tolerance=1e-9)
    assert fit.converged and 0 < fit.steps < 20 and fit.sweeps < 40
    np.testing.assert_allclose(fit.similarity, dual(p).similarity, atol=1e-6)


def test_steps_that_are_cut_off_are_not_taken_for_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    by_gradients(monkeypatch)
    p = problem(5, 60, 4, gamma=0.1)
    fit = bregman(p, max_sweeps=300)
    assert fit.converged and fit.steps > 0, fit.message
    np.testing.assert_allclose(fit.similarity, dual(p).similarity, atol=1e-6)


def test_a_newton_step_that_leads_no_higher_is_none() -> None:
    p = problem(5, 20, 3, gamma=0.5)
    fit = dual(p)
    state = multipliers.state_of(p, fit.lam)
    s = multipliers.similarity_of(p, state)
    g = multipliers.constraints(p, s)
    there, share = newton_rise(p, state, s, g, np.zeros(g.shape, bool))
    assert there is state and share == 0.0


def test_rows_that_add_nothing_to_the_gap_are_not_projected() -> None:
    p = problem(5, 60, 4, gamma=1.0)
    near = bregman(p, tolerance=1e-2, polish=False)
    again = bregman(p, start=near.lam, tolerance=1e-2)
    assert again.projections == again.steps == 0
    further = bregman(p, start=near.lam, tolerance=1e-4, polish=False)
    assert further.converged and further.projections < 60 * further.sweeps


@pytest.mark.filterwarnings("ignore:.*training rows have a total")
def test_what_rounding_prevents_is_said_and_ends() -> None:
    """Two rows of different classes that the kernel can hardly tell apart, under hard constraints."""
    X, y = features(3, 40, 3)
    X[1], y[:2] = X[0] + 1e-5, (0, 1)
    p = read_problem(rbf(X, X), y)
    fit = bregman(p, tolerance=1e-15)
    assert not fit.converged and fit.sweeps < 1000 and "rounding lets it come no nearer" in fit.message


@pytest.mark.filterwarnings("ignore:.*training rows have a total")
@pytest.mark.parametrize("tolerance", [1e-2, 1e-8])
@pytest.mark.parametrize("gamma", [None, 0.3])
def test_warm_start_needs_a_tenth_of_the_projections(gamma: float | None, tolerance: float) -> None:
    ratios = []
    for seed in range(3):
        before, after = grown(seed, 50, gamma=gamma)
        cold = bregman(after, tolerance=tolerance)
        warm = bregman(after, start=warm_start(dual(before), after), tolerance=tolerance)
        assert warm.converged and cold.converged
        ratios.append(cold.projections / max(warm.projections, 1))
    assert np.median(ratios) >= 10
