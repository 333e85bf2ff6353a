"""Projection, interior point and primal reference agree; kernels satisfy the optimality conditions."""

import re
import tracemalloc
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from labelzoo.inference.kernel_neighbors import block, multipliers
from labelzoo.inference.kernel_neighbors.bregman import bregman, sweep
from labelzoo.inference.kernel_neighbors.dual import dual, free_of, hessian, maximize
from labelzoo.inference.kernel_neighbors.predict import kernel
from labelzoo.inference.kernel_neighbors.primal import (
    certified_gap,
    nearest_kernels,
    solve_primal,
)
from labelzoo.inference.kernel_neighbors.problem import read_problem
from labelzoo.inference.kernel_neighbors.stationarity import never_given_back
from labelzoo.inference.kernel_neighbors.warm import warm_start
from tests.inference.kernel_neighbors.problems import CASES, features, inner_state, problem, rbf


def fit_of(name: str, solver: Any = dual) -> Any:
    return solver(problem(**CASES[name]), **({"tolerance": 1e-12} if solver is bregman else {}))


def formed(fit: Any) -> np.ndarray:
    K0 = fit.problem.K0
    return np.array([kernel(fit, c, K0, K0, K0) for c in range(len(fit.problem.classes))])


def centres(p: Any) -> np.ndarray:
    return np.array([(p.y == c) / (p.y == c).sum() for c in range(len(p.classes))]).T


def weights_behind(kernels: np.ndarray, p: Any) -> np.ndarray:
    """Solve K^-1 - K0^-1 = w v' + v w' for w."""
    out = []
    for K, v in zip(kernels, centres(p).T, strict=True):
        M = np.linalg.inv(K) - np.linalg.inv(p.K0)
        along = v @ M @ v / (2 * v @ v)
        out.append((M @ v - v * along) / (v @ v))
    return np.array(out).T


@pytest.mark.parametrize("name", CASES)
def test_solvers_agree_with_the_primal(name: str) -> None:
    p = problem(**CASES[name])
    wanted = solve_primal(p)
    kernels = nearest_kernels(p, wanted.similarity)
    W = weights_behind(kernels, p)
    for solver in (dual, bregman):
        fit = fit_of(name, solver)
        assert fit.converged, fit.message
        assert -1e-9 <= certified_gap(p, fit) < 1e-8
        assert abs(wanted.value - fit.dual) < 1e-8
        np.testing.assert_allclose(fit.similarity, wanted.similarity, atol=1e-6)
        np.testing.assert_allclose(formed(fit), kernels, atol=1e-6)
        np.testing.assert_allclose(fit.W, W, atol=1e-6 * max(1.0, np.abs(W).max()))


def lagrangian(kernels: Any, lam: Any, p: Any) -> Any:
    """The divergences plus the weighted constraints of eq. 4, from formed kernels."""
    total, inverse = 0.0, jnp.linalg.inv(p.K0)
    for K in kernels:
        total = total + jnp.trace(K @ inverse) - jnp.linalg.slogdet(K @ inverse)[1] - len(K)
    s = jnp.stack([K[:, p.y == c].mean(axis=1) for c, K in enumerate(kernels)])
    for c in range(len(s)):
        own = p.y == c
        total = total + (lam[own, c] * (s.sum(axis=0) - s[c] / p.alpha)[own]).sum()
        total = total + (lam[~own, c] * (s[c] / p.beta - s.sum(axis=0))[~own]).sum()
    if p.positive_total:
        total = total - (lam[:, -1] * s.sum(axis=0)).sum()
    return total


@pytest.mark.parametrize("name", ["two", "three", "gamma"])
def test_multipliers_are_those_of_equation_4(name: str) -> None:
    fit = fit_of(name)
    p = fit.problem
    gradient = jax.jit(jax.grad(lambda kernels, lam: lagrangian(kernels, lam, p)))
    slope = gradient(formed(fit), fit.lam)
    assert float(jnp.abs(slope + slope.transpose(0, 2, 1)).max()) < 1e-6
    g = multipliers.constraints(p, fit.similarity)
    assert (fit.lam >= 0).all() and (fit.lam <= p.upper).all()
    if np.isinf(p.upper):
        assert g.max() < 1e-8 and np.abs(fit.lam * g).max() < 1e-8
    without_half = gradient(formed(fit), 2 * fit.lam)
    assert float(jnp.abs(without_half).max()) > 1e-2


def test_closed_forms_against_formed_kernels() -> None:
    p, state = inner_state()
    V = centres(p)
    s = multipliers.similarity_of(p, state)
    for c in range(3):
        v, w = V[:, c], state.W[:, c]
        K = np.linalg.inv(np.linalg.inv(p.K0) + np.outer(w, v) + np.outer(v, w))
        assert np.linalg.eigvalsh(K).min() > 0
        np.testing.assert_allclose(s[:, c], K[:, p.y == c].mean(axis=1), atol=1e-9)
        wv, vw = np.column_stack([w, v]), np.column_stack([v, w])
        S = np.linalg.inv(np.eye(2) + vw.T @ p.K0 @ wv)
        np.testing.assert_allclose(K, p.K0 - p.K0 @ wv @ S @ vw.T @ p.K0, atol=1e-9)
        a, b, D = p.a[c], state.b[c], state.D[c]
        np.testing.assert_allclose(-np.log(np.linalg.det(S)), np.log(D), rtol=1e-9)
        np.testing.assert_allclose(
            [v @ K @ v, w @ K @ w, v @ K @ w], [a / D, state.c[c] / D, 1 - (1 + b) / D]
        )
        rho = v @ K @ v * np.diag(K) - s[:, c] ** 2
        np.testing.assert_allclose(rho, p.spread[:, c] / D, atol=1e-9)


def test_domain_is_where_all_kernels_are_positive_definite() -> None:
    p, state = inner_state()
    for share in (1.0, 3.0, 10.0, 100.0):
        there = multipliers.state_of(p, share * state.lam)
        updates = (
            np.linalg.inv(p.K0) + np.outer(w, v) + np.outer(v, w)
            for v, w in zip(centres(p).T, there.W.T, strict=True)
        )
        definite = all(np.linalg.eigvalsh(one).min() > 0 for one in updates)
        assert multipliers.is_inside(p, there) == definite
    assert multipliers.is_inside(p, multipliers.inside(p, 100.0 * state.lam))


def test_gradient_and_hessian_by_differences() -> None:
    p, state = inner_state(2)
    s = multipliers.similarity_of(p, state)
    everything = free_of(p, state.lam, np.ones(state.lam.shape, bool))
    H = hessian(p, state, s, everything).reshape(*state.lam.shape, *state.lam.shape)
    rng, size = np.random.default_rng(3), 1e-5
    for _ in range(3):
        move = rng.normal(size=state.lam.shape)
        ends = [multipliers.state_of(p, state.lam + e * size * move) for e in (1, -1)]
        g = [multipliers.constraints(p, multipliers.similarity_of(p, end)) for end in ends]
        slope = (np.log(ends[0].D).sum() - np.log(ends[1].D).sum()) / (2 * size)
        np.testing.assert_allclose(slope, (move * multipliers.constraints(p, s)).sum(), rtol=1e-6)
        np.testing.assert_allclose(
            -np.einsum("icjd,jd->ic", H, move), (g[0] - g[1]) / (2 * size), atol=1e-6 * np.abs(H).max()
        )


@pytest.mark.parametrize("positive_total", [True, False])
@pytest.mark.parametrize("classes", [2, 6])
def test_newton_step_solves_the_model_of_the_block(classes: int, positive_total: bool) -> None:
    rng = np.random.default_rng(classes)
    own = np.full(classes, 1 / 0.17)
    own[1] = -1 / 0.3
    sign = -np.ones(classes + positive_total)
    sign[1] = 1.0
    side = block.Side(own, sign, sign[:classes] / own)
    A = np.outer(np.ones(classes), sign)
    A[:, :classes] += np.diag(own)
    for _ in range(5):
        slope, phi = rng.normal(size=classes), rng.exponential(size=classes)
        free = rng.random(classes + positive_total) < 0.6
        step = block.newton_step(slope, phi, free, side)
        left = A.T @ (slope - phi * (A @ step) / 2) / 2
        assert np.abs(left[free]).max(initial=0.0) < 1e-9 and not step[~free].any()


def test_projection_is_the_maximiser_of_its_row_and_raises_the_dual() -> None:
    p, state = inner_state(4)
    state = multipliers.inside(p, np.zeros_like(state.lam))
    table, last = block.sides(multipliers.own_weights(p), p.columns), 0.0
    for i in [*range(len(p.y))] * 3:
        for _ in range(4):
            sweep(p, state, np.array([i]), table)
            state = multipliers.state_of(p, state.lam)
            value = float(np.log(state.D).sum())
            assert value >= last - 1e-12
            last = value
        g = multipliers.constraints(p, multipliers.similarity_of(p, state))[i]
        assert g.max() < 1e-9 and np.abs(g * state.lam[i]).max() < 1e-9


def test_running_numbers_are_those_computed_anew() -> None:
    p = problem(5, 70, 3)
    state = multipliers.inside(p, np.zeros((70, p.columns)))
    sweep(p, state, np.arange(70), block.sides(multipliers.own_weights(p), p.columns))
    anew = multipliers.state_of(p, state.lam)
    for name in ("W", "b", "D"):
        np.testing.assert_allclose(getattr(state, name), getattr(anew, name), rtol=1e-9, atol=1e-12)


def test_without_giving_back_the_optimum_is_not_reached() -> None:
    right = fit_of("three", bregman)
    p = problem(**CASES["three"])
    wrong = bregman(p, max_sweeps=300, extrapolate=False, polish=False, projection=never_given_back)
    assert not wrong.converged and max(wrong.gap, wrong.violation) > 1e-3
    assert right.dual - wrong.dual > 1e-3


def test_dual_begins_again_where_a_run_goes_astray() -> None:
    """Demanding shares of two rows: the first run ends at a gap of .24."""
    p = read_problem(np.array([[1.0, 0.6518], [0.6518, 1.0]]), [1, 0], alpha=0.01, beta=0.01)
    lam, _ = maximize(p, np.zeros((2, 3)), np.ones((2, 3), bool), tolerance=1e-10)
    assert not multipliers.is_optimal(p, lam, 1e-3)
    fit = dual(p)
    assert fit.converged and certified_gap(p, fit) < 1e-8
    assert abs(fit.dual - bregman(p).dual) < 1e-8


@pytest.mark.parametrize("gamma", [None, 0.5])
def test_scale_of_the_kernel_scales_the_kernels_alone(gamma: float | None) -> None:
    X, y = features(7, 12, 3)
    one, other = (dual(read_problem(k * rbf(X, X), y, gamma=gamma)) for k in (1.0, 50.0))
    np.testing.assert_allclose(other.similarity, 50.0 * one.similarity, atol=1e-6)
    np.testing.assert_allclose(50.0 * other.W, one.W, atol=1e-5)
    assert abs(other.dual - one.dual) < 1e-8


def test_constraints_that_hold_already_teach_nothing() -> None:
    for solver in (dual, bregman):
        fit = fit_of("loose", solver)
        np.testing.assert_allclose(formed(fit), np.array([fit.problem.K0] * 2), atol=1e-7)
    assert fit.projections == 0 and not fit.lam.any()


def test_one_class_keeps_the_prior() -> None:
    X, _ = features(1, 6, 2)
    for solver in (dual, bregman):
        fit = solver(read_problem(rbf(X, X), np.zeros(6, int)))
        assert fit.converged and not fit.W.any() and fit.dual == 0.0


def test_learned_kernels_of_a_nonnegative_prior_may_be_negative() -> None:
    fit = fit_of("three")
    assert fit.problem.K0.min() >= 0 and formed(fit).min() < -1e-3


def test_linear_constraints_allow_totals_below_zero() -> None:
    X, y = features(1, 30, 3)
    p = read_problem(rbf(X, X), y, alpha=0.66, beta=1 / 6, positive_total=False)
    with pytest.warns(UserWarning, match="of 30 training rows have a total similarity"):
        fit = dual(p)
    total = fit.similarity.sum(axis=1)
    assert total.min() < -1e-3 and fit.nonpositive >= (total < 0).sum() > 0
    share = fit.similarity[np.arange(30), p.y] / total
    assert (share[total < 0] > 0.66 - 1e-6).sum() < (total < 0).sum() or (total < 0).all()


def test_sweep_forms_no_class_kernel() -> None:
    p = problem(2, 400, 20)
    state = multipliers.inside(p, np.zeros((400, p.columns)))
    table = block.sides(multipliers.own_weights(p), p.columns)
    tracemalloc.start()
    sweep(p, state, np.arange(400), table)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < p.K0.nbytes


def test_warm_start_ends_where_a_cold_start_ends_with_a_new_class_too() -> None:
    X, y = features(3, 16, 3)
    names = np.array(["b", "c", "a"])[y]
    K, old = rbf(X, X), np.flatnonzero(names != "a")
    before = dual(read_problem(K[np.ix_(old, old)], names[old], gamma=1.0))
    after = read_problem(K, names, gamma=1.0)
    start = warm_start(before, after, old)
    assert not start[names == "a"].any() and not start[:, 0].any() and start[old].any()
    np.testing.assert_allclose(bregman(after, start=start).similarity, bregman(after).similarity, atol=1e-6)


def test_sweeps_that_run_out_are_said_to() -> None:
    fit = bregman(problem(1, 10, 3), max_sweeps=2)
    assert not fit.converged and fit.sweeps == 2 and fit.message.startswith("not converged: gap")


def tiny(**options: Any) -> Any:
    return read_problem(np.eye(3), [0, 1, 1], **options)


BAD: dict[str, Any] = {
    "K0 is singular with jitter=0: leave jitter at None": lambda: read_problem(
        np.ones((3, 3)), [0, 1, 1], jitter=0, gamma=1.0
    ),
    "class 2 has no labelled row": lambda: tiny(classes=[0, 1, 2]),
    "y has class 1 at row 1, which is not among classes": lambda: tiny(classes=[0]),
    "alpha must be a number above 0 and below 1, got 1": lambda: tiny(alpha=1),
    "alpha must be a number above 0 and below 1, got True": lambda: tiny(alpha=True),
    "beta must be a finite number above 0, got 0.0": lambda: tiny(beta=0.0),
    "gamma must be a finite number above 0, or None, got -1": lambda: tiny(gamma=-1),
    "jitter must be a share of the mean diagonal, from 0 to 1, got -0.1": lambda: tiny(jitter=-0.1),
    "K0 must be square": lambda: read_problem(np.ones((2, 3)), [0, 1]),
    "K0 must be symmetric": lambda: read_problem([[1.0, 0.5], [0.0, 1.0]], [0, 1]),
    "K0 has nan at row 0, column 1": lambda: read_problem([[1.0, np.nan], [0.0, 1.0]], [0, 1]),
    "K0 must have a positive diagonal, got 0.0 at row 1": lambda: read_problem(np.diag([1.0, 0]), [0, 1]),
    "K0 is not positive semidefinite": lambda: read_problem([[1.0, 2.0], [2.0, 1.0]], [0, 0]),
    "y must have 3 classes": lambda: read_problem(np.eye(3), [0, 1]),
    "y has no class at row 2": lambda: read_problem(np.eye(3), [0.0, 1.0, np.nan]),
    "start must have shape (3, 3), got (2, 3)": lambda: bregman(tiny(), start=np.zeros((2, 3))),
    "start must not be negative": lambda: bregman(tiny(), start=-np.ones((3, 3))),
    "tolerance must be a number above 0 and below 1, got 0": lambda: bregman(tiny(), tolerance=0),
    "tolerance must be a number above 0 and below 1, got 2": lambda: dual(tiny(), tolerance=2),
    "polish must be True or False, got 'no'": lambda: bregman(tiny(), polish="no"),
    "extrapolate must be True or False, got 1": lambda: bregman(tiny(), extrapolate=1),
    "max_sweeps must be an integer of at least 1": lambda: bregman(tiny(), max_sweeps=0),
    "rows must be 3 distinct rows": lambda: warm_start(dual(tiny()), tiny(), [0, 0, 1]),
    "row 1 was of class 1 and is of class 0": lambda: warm_start(
        dual(tiny()), read_problem(np.eye(3), [0, 0, 1])
    ),
    "use bregman": lambda: dual(read_problem(np.eye(2000), np.arange(2000) % 2)),
    "the reference is for 400 unknowns": lambda: solve_primal(problem(1, 150, 3)),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_refused(message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        BAD[message]()


@pytest.mark.parametrize("gamma", [None, 1e-300])
def test_a_solver_that_cannot_go_on_stops_without_noise(gamma: float | None) -> None:
    """Warnings of NumPy are errors here; multipliers come to their bounds exactly."""
    fit = dual(problem(1, 10, 3, gamma=gamma), tolerance=1e-300)
    assert fit.gap < 1e-12


def test_the_advice_on_totals_fits_the_constraints() -> None:
    K = np.array([[1.0, -0.9, -0.9], [-0.9, 1.0, 0.7], [-0.9, 0.7, 1.0]])
    for gamma, words in ((None, "set gamma"), (1.0, "lower gamma")):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            dual(read_problem(K, [0, 1, 1], gamma=gamma, alpha=0.9, beta=0.9, positive_total=False))
        said = [str(one.message) for one in seen]
        assert any(words in one and "another prior kernel" in one for one in said), said


def test_conflicting_duplicates_need_gamma() -> None:
    X, y = features(1, 10, 2)
    X = np.vstack([X, X[:1]])
    K, y = rbf(X, X), np.r_[y, 1 - y[0]]
    with pytest.raises(ValueError, match="rows 0 and 10 are alike in K0 and of classes 0 and 1.*set gamma"):
        read_problem(K, y)
    fit = dual(read_problem(K, y, gamma=1.0))
    assert fit.converged and np.isfinite(fit.similarity).all()
    same = dual(read_problem(K, np.r_[y[:10], y[0]]))
    np.testing.assert_allclose(same.similarity[0], same.similarity[10], atol=1e-4)


@pytest.mark.filterwarnings("ignore:the prior gives", "ignore:.*training rows have a total")
def test_singular_priors_get_the_least_jitter_that_works() -> None:
    X, y = features(2, 12, 3)
    p = read_problem(X @ X.T, y, gamma=1.0)
    assert 0 < p.jitter <= 1e-3 * np.trace(X @ X.T) / 12
    assert dual(p).converged and bregman(p).converged
    assert read_problem(rbf(X, X), y).jitter == 0.0
    assert read_problem(rbf(X, X), y, jitter=1e-3).jitter == pytest.approx(1e-3)


def test_a_tiny_pivot_counts_as_singular() -> None:
    K = np.eye(3)
    K[0, 1] = K[1, 0] = 1 - 1e-13
    np.linalg.cholesky(K)
    assert read_problem(K, [0, 0, 1]).jitter == pytest.approx(1e-6)


def test_negative_priors_are_warned_of_and_counted() -> None:
    X = np.array([[1.0, 0.0], [1.0, 0.2], [-1.5, 0.1], [-0.5, 0.3], [-1.0, -0.2]])
    K, y = X @ X.T + 0.01 * np.eye(5), np.array([0, 0, 1, 1, 1])
    low = int((np.column_stack([K[:, y == c].mean(axis=1) for c in (0, 1)]).sum(axis=1) <= 0).sum())
    assert 0 < low < 5
    with pytest.warns(UserWarning, match=f"the prior gives {low} of 5 rows"):
        p = read_problem(K, y, positive_total=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit = dual(p)
    count = int((fit.similarity.sum(axis=1) <= 1e-9).sum())
    assert fit.nonpositive == count
    assert len(caught) == (count > 0)
