"""What is maximised, by gradients and by the simplex, and when it is."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize

from labelzoo.inference.compressed_gp import hyperparameters as hyper
from labelzoo.inference.compressed_gp import kernel14 as k14
from labelzoo.inference.compressed_gp import simplex
from labelzoo.inference.compressed_gp.simplex import s_opt


def planted(rows=20, targets=5, seed=3):
    """Targets drawn from processes of kernel (14)."""
    rng = np.random.default_rng(seed)
    caches = k14.Caches(rng.normal(size=(rows, 2)))
    shape = (targets, 2), (targets, 3)
    theta = np.exp(np.hstack([rng.normal(0, 0.5, shape[0]), rng.normal(-1, 0.5, shape[1])]))
    K = k14.kernel(theta, caches.distances2, caches.products)
    roots = [np.linalg.cholesky(C + t[4] * np.eye(rows)) for C, t in zip(K, theta, strict=True)]
    return np.column_stack([root @ rng.normal(size=rows) for root in roots]), caches


def test_objective_is_likelihood_and_prior_within_bounds():
    U, caches = planted()
    x = np.random.default_rng(1).normal(size=(5, 5))
    want = k14.log_likelihood(np.exp(x), U, caches) - (x**2).sum(axis=1) / 18
    np.testing.assert_allclose(hyper.objective(x, U, caches), want, rtol=1e-13)
    x[2, 4] = np.log(0.9e-6)
    assert np.flatnonzero(hyper.objective(x, U, caches) == -np.inf).tolist() == [2]


def test_gradient_of_the_objective():
    U, caches = planted(targets=1)
    x = np.random.default_rng(1).normal(size=5)
    slope = hyper.objective_gradient(x[None], U, caches).gradient[0]
    want = approx_fprime(x, lambda z: hyper.objective(z[None], U, caches)[0], 1e-7)
    np.testing.assert_allclose(slope, want, atol=2e-5)


def test_gradient_stops_where_the_slope_is_zero():
    U, caches = planted()
    fit = hyper.gradient(U, caches)
    inner = np.log(fit.theta) > hyper.LOW + 1e-6
    slope = hyper.objective_gradient(np.log(fit.theta), U, caches)
    assert fit.converged.all() and np.abs(slope.gradient[inner]).max() < 1e-3
    np.testing.assert_allclose(fit.objective, slope.value, rtol=1e-10)


def test_s_opt_reaches_the_gradient_optimum():
    U, caches = planted()
    best, fit = hyper.gradient(U, caches), s_opt(U, caches)
    assert np.median(best.objective - fit.objective) < 1e-4
    assert fit.converged.all() and (fit.evaluations <= 606).all()
    np.testing.assert_allclose(hyper.objective(np.log(fit.theta), U, caches), fit.objective, rtol=1e-12)
    again = s_opt(U, caches, theta=best.theta)
    assert np.median(best.objective - again.objective) < 1e-4


@pytest.mark.parametrize("search", [hyper.gradient, s_opt])
def test_a_mode_of_short_length_scale_is_found(search):
    """Waves that are short beside a unit of the features: ln theta_1 is above 2.5, and no bound is met."""
    z = np.linspace(-0.5, 0.5, 30)[:, None]
    U = np.sqrt(2.0) * np.sin(12.0 * z + 0.3) + 0.1 * np.random.default_rng(0).normal(size=z.shape)
    caches, start = k14.Caches(z), np.array([1.0, 3.0, -1.0, -1.0, -4.0])
    fit = search(U, caches, theta=np.exp(start)[None])
    free = minimize(lambda x: -hyper.objective_gradient(x[None], U, caches).value[0], start)
    x = np.log(fit.theta[0])
    assert x[1] > 2.5 and fit.converged.all()
    assert abs(fit.objective[0] + free.fun) < 1e-3
    np.testing.assert_allclose(x[[0, 1, 4]], free.x[[0, 1, 4]], atol=0.05)
    assert (x > hyper.LOW + 0.1).all() and (x < hyper.HIGH - 0.1).all()


def test_targets_in_lock_step_go_as_alone():
    U, caches = planted(targets=3)
    together = s_opt(U, caches)
    for g in range(3):
        alone = s_opt(U[:, [g]], caches)
        np.testing.assert_allclose(alone.theta[0], together.theta[g], rtol=1e-9)
        assert alone.evaluations[0] == together.evaluations[g]


def test_s_opt_is_nelder_mead(monkeypatch):
    """It makes scipy's steps, which differ only where two values are equal."""

    def bowl(x, *_):
        return -((np.asarray(x) - [0.3, -1.0, 2.0, 0.1, -0.7]) ** 2 @ [1, 2, 3, 4, 5.0]) - np.abs(x).sum(1)

    monkeypatch.setattr(simplex, "objective", bowl)
    fit = s_opt(np.zeros((2, 1)), k14.Caches(np.ones((2, 1))), budget=120)
    first = np.vstack([np.zeros(5), 0.5 * np.eye(5)])
    want = minimize(
        lambda x: -bowl(x[None])[0],
        np.zeros(5),
        method="Nelder-Mead",
        options={"initial_simplex": first, "maxfev": int(fit.evaluations[0]), "xatol": 0, "fatol": 0},
    )
    np.testing.assert_allclose(np.log(fit.theta[0]), want.x, atol=1e-12)


def test_no_factor_is_never_the_best(monkeypatch):
    """Half of the space, into which the slope leads, has no factor; a start inside it ends unconverged."""

    def wall(x, *_):
        x = np.asarray(x)
        return np.where(x[:, 0] > 0.2, -np.inf, 3 * x[:, 0] - (x**2).sum(axis=1))

    monkeypatch.setattr(simplex, "objective", wall)
    one = np.zeros((2, 1)), k14.Caches(np.ones((2, 1)))
    fit = s_opt(*one)
    assert 0.5 < fit.objective[0] <= 0.56 and np.log(fit.theta[0, 0]) <= 0.2
    lost = s_opt(*one, theta=np.full((1, 5), np.exp(9.0)), budget=12)
    assert lost.objective[0] == -np.inf and not lost.converged[0]


def test_gradient_that_starts_without_a_factor_says_so(monkeypatch):
    def none(x, *_):
        return k14.Evidence(np.full(len(x), -np.inf), np.zeros((len(x), 5)))

    monkeypatch.setattr(hyper, "objective_gradient", none)
    fit = hyper.gradient(np.zeros((2, 1)), k14.Caches(np.ones((2, 1))))
    assert fit.objective[0] == -np.inf and not fit.converged[0]


@pytest.mark.parametrize("search", [hyper.gradient, s_opt])
def test_no_target_and_one_row(search):
    caches = k14.Caches(np.ones((1, 2)))
    assert search(np.empty((1, 0)), caches).theta.shape == (0, 5)
    assert np.isfinite(search(np.zeros((1, 1)), caches).objective).all()


def test_kernel_updates_every_period():
    U, caches = planted(targets=2)
    searched = []

    def search(targets, rows, *, theta):
        searched.append(theta)
        return hyper.Fit(np.full((targets.shape[1], 5), float(len(searched))), *[np.zeros(2)] * 3)

    state = hyper.schedule(3)
    for _ in range(7):
        state = hyper.advance(state, U, caches, search)
    assert len(searched) == 3 and searched[0] is None and searched[2][0, 0] == 2.0
    state = hyper.advance(state, U[:, :1], caches, search)
    assert len(searched) == 3 and state.theta.shape == (1, 5)
    state = hyper.advance(state, np.hstack([U[:, :1], U]), caches, search)
    assert len(searched) == 4 and searched[3].shape == (2, 5)
    assert state.theta[:, 0].tolist() == [3.0, 4.0, 4.0] and state.age == 3
    with pytest.raises(ValueError, match="period must be an integer of at least 1, got 0"):
        hyper.schedule(0)


def test_start_keeps_what_is_known():
    got = hyper.start_of(np.full((2, 5), np.e), 3)
    np.testing.assert_allclose(got, [[1] * 5, [1] * 5, [0] * 5])
    assert hyper.start_of(np.full((2, 5), np.e), 1).shape == (1, 5)
    with pytest.raises(ValueError, match="theta must be above 0"):
        hyper.start_of(np.zeros((1, 5)), 1)


def test_bad_budget_is_named():
    U, caches = planted(targets=1)
    with pytest.raises(ValueError, match="budget must be an integer of at least 6, got 5"):
        s_opt(U, caches, budget=5)
