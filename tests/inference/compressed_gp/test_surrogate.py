"""Grid search with a surrogate: improvements, the optimum, and no point twice."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from labelzoo.inference.compressed_gp import hyperparameters as hyper
from labelzoo.inference.compressed_gp import kernel14 as k14
from labelzoo.inference.compressed_gp import surrogate


def planted(rows, targets, seed):
    rng = np.random.default_rng(seed)
    caches = k14.Caches(rng.normal(size=(rows, 2)))
    theta = np.exp(rng.normal([0, 0, -1, -1, -1], 0.5, (targets, 5)))
    K = k14.kernel(theta, caches.distances2, caches.products)
    roots = [np.linalg.cholesky(C + t[4] * np.eye(rows)) for C, t in zip(K, theta, strict=True)]
    return np.column_stack([root @ rng.normal(size=rows) for root in roots]), caches


@pytest.mark.parametrize(("mean", "sd", "best"), [(0.3, 1.2, 0.0), (-2.0, 0.5, 1.0), (4.0, 0.7, 1.0)])
def test_expected_improvement_by_quadrature(mean, sd, best):
    density = norm(mean, sd)
    want, _ = quad(lambda f: (f - best) * density.pdf(f), best, best + 40 * sd, points=[mean], epsabs=1e-13)
    assert surrogate.expected_improvement(mean, sd, best) == pytest.approx(want, abs=1e-11)


def test_improvements_at_no_spread_and_below():
    got = surrogate.expected_improvement([1.0, -1.0], [0.0, 0.0], 0.5)
    np.testing.assert_array_equal(got, [0.5, 0.0])
    got = surrogate.improvement_95([0.0, -3.0], [1.0, 1.0], 0.5)
    np.testing.assert_allclose(got, [1.46, 0.0])


def test_ei95_ties_go_to_the_upper_limit_among_open_points():
    mean, sd = np.array([-5.0, -4.0, -3.0]), np.array([0.1, 1.0, 0.1])
    open_ = np.array([True, True, True])
    assert surrogate._chosen(mean, sd, 0.0, open_, "ei95")[0] == 1
    open_[1] = False
    assert surrogate._chosen(mean, sd, 0.0, open_, "ei95")[0] == 2


@pytest.mark.parametrize("improvement", ["ei", "ei95"])
def test_b_opt_reaches_the_gradient_optimum(improvement):
    U, caches = planted(15, 3, seed=4)
    best, fit = hyper.gradient(U, caches), surrogate.b_opt(U, caches, improvement=improvement)
    assert np.median(best.objective - fit.objective) < 1e-2, (best.objective, fit.objective)
    np.testing.assert_allclose(hyper.objective(np.log(fit.theta), U, caches), fit.objective, rtol=1e-12)


def one_length(points, values):
    """The likeliest length that is the same for all parameters."""
    y = surrogate._standardised(values)
    tried = [np.full(5, length) for length in surrogate.LENGTHS]
    return max(tried, key=lambda lengths: surrogate._fitness(points, y, lengths))


@pytest.mark.parametrize(
    ("curvature", "seed", "optimum", "mutant", "least"),
    [
        ((200, 50, 5, 0.5, 0.1), None, (3.3, -5.2, 1.1, -2.7, 4.9), {"_likeliest": one_length}, 0.1),
        ((100, 30, 10, 3, 1), 1, (1.3, -3.2, 1.1, -2.7, 0.9), {"_on_edge": lambda offset: False}, 0.04),
    ],
)
def test_unlike_curvatures_and_a_far_optimum(curvature, seed, optimum, mutant, least, monkeypatch):
    """What a length a parameter and a grid that follows the best point are for, evaluations being few."""
    turn = np.eye(5)
    if seed is not None:
        turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(5, 5)))[0]

    def bowl(x, *args):
        return -0.5 * ((x - optimum) @ turn) ** 2 @ np.array(curvature, float)

    monkeypatch.setattr(surrogate, "objective", bowl)
    monkeypatch.setattr(surrogate, "PATIENCE", 12)
    U, caches = np.ones((2, 1)), k14.Caches(np.ones((2, 1)))
    assert -1e-2 < surrogate.b_opt(U, caches, share=33).objective[0] <= 0
    for name, wrong in mutant.items():
        monkeypatch.setattr(surrogate, name, wrong)
    assert surrogate.b_opt(U, caches, share=33).objective[0] < -least


def test_no_point_is_evaluated_twice(monkeypatch):
    U, caches = planted(6, 1, seed=5)
    asked = []

    def watched(x, *args):
        asked.append(tuple(np.round(x[0], 9)))
        return hyper.objective(x, *args)

    monkeypatch.setattr(surrogate, "objective", watched)
    fit = surrogate.b_opt(U, caches, levels=3, share=12)
    assert len(asked) == len(set(asked)) == fit.evaluations[0] == 37


def test_a_grid_that_is_small_is_searched_whole(monkeypatch):
    monkeypatch.setattr(surrogate, "_offsets", lambda: np.array([[i, 0, 0, 0, 0] for i in range(-2, 3)]))
    U, caches = planted(6, 1, seed=5)
    fit = surrogate.b_opt(U, caches, levels=1, share=30)
    points = np.zeros((5, 5))
    points[:, 0] = surrogate.STEP * np.arange(-2, 3)
    want = hyper.objective(points, np.repeat(U, 5, axis=1), caches).max()
    assert fit.evaluations[0] == 5 and fit.objective[0] == pytest.approx(want, rel=1e-12)


def test_bad_options_are_named():
    U, caches = planted(4, 1, seed=5)
    with pytest.raises(ValueError, match="improvement must be 'ei' or 'ei95', got 'ucb'"):
        surrogate.b_opt(U, caches, improvement="ucb")
    with pytest.raises(ValueError, match="levels must be an integer of at least 1, got 0"):
        surrogate.b_opt(U, caches, levels=0)
    assert surrogate.b_opt(np.empty((4, 0)), caches).theta.shape == (0, 5)
