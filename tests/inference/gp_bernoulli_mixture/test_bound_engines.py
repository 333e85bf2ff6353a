"""The engines structured, mean_field and sparse from data to posterior."""

from typing import Any

import numpy as np
import pytest
from scipy.special import betaln

from labelzoo.acquisition import ask
from labelzoo.data import LabelData
from labelzoo.inference.fit import fit
from labelzoo.inference.gp_bernoulli_mixture import bounds, stationarity
from labelzoo.inference.gp_bernoulli_mixture.bound_draws import log_weights
from labelzoo.inference.gp_bernoulli_mixture.factors import Factors, problem_of
from labelzoo.inference.posterior import save
from labelzoo.inference.predict import mean_prob
from labelzoo.models.gp_bernoulli_mixture_card import spec
from labelzoo.models.sparse_bayes_kernel import register_kernel

QUICK: dict[str, Any] = {"num_components": 3, "gate_mean": -3.0}


def two_groups(rows: int = 50, seed: int = 0) -> LabelData:
    """Return rows whose labels follow the sign of the first feature, some labels unobserved."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 3))
    Y = (rng.random((rows, 5)) < np.where(X[:, :1] > 0, 0.85, 0.1)).astype(float)
    Y[rng.random(Y.shape) < 0.1] = np.nan
    return LabelData(X, Y)


@pytest.mark.parametrize("name", ["structured", "mean_field", "sparse"])
def test_an_engine_fits_and_predicts(name: str) -> None:
    data = two_groups()
    tree = fit("gp_bernoulli_mixture", data, name, seed=1, num_samples=150, **QUICK)
    assert tree.attrs["converged"] == "yes"
    objective = tree["optimization"]["objective"].values
    assert (np.diff(objective) >= -1e-9 * np.abs(objective[1:])).all()
    probs = np.asarray(mean_prob(tree, np.array([[2.0, 0.0, 0.0], [-2.0, 0.0, 0.0]])))
    assert (probs[0] > 0.6).all()
    assert (probs[1] < 0.4).all()
    again = fit("gp_bernoulli_mixture", data, name, seed=1, num_samples=150, **QUICK)
    np.testing.assert_array_equal(again["posterior"]["white"], tree["posterior"]["white"])
    assert set(bounds.starts.STATE) <= set(tree["engine_state"].data_vars)


@pytest.mark.parametrize("name", ["structured", "mean_field", "sparse"])
def test_the_draws_are_those_of_q(name: str) -> None:
    count, seed = 4000, 3
    tree = fit("gp_bernoulli_mixture", two_groups(20), name, seed=seed, num_samples=count, **QUICK)
    inputs = spec.prepare(two_groups(20), spec.resolve(QUICK))
    problem = problem_of(inputs)
    state = {str(key): value.values for key, value in tree["engine_state"].data_vars.items()}
    draws = tree["posterior"]["white"].values[0]
    if name == "sparse":
        mean, root = state["white_mean"], state["white_root"]
    else:
        beta = state["potential"] - problem.gate_mean * state["weight"]
        mean, root = stationarity.white_of(problem, state["weight"], beta)
    variance = (root**2).sum(axis=2)
    z = (draws.mean(axis=0) - mean) / np.sqrt(variance / count)
    assert np.abs(z).max() < 5, f"largest z {np.abs(z).max():.1f}, seed {seed}"
    ratio = draws.var(axis=0) / variance
    assert np.abs(ratio - 1).max() < 6 * np.sqrt(2 / count), f"seed {seed}"
    cross = np.einsum("skd,ske->kde", draws - mean, draws - mean) / count
    np.testing.assert_allclose(cross, root @ np.swapaxes(root, 1, 2), atol=0.12)
    theta = tree["posterior"]["component_probs"].values[0]
    a, b = state["positive"], state["negative"]
    sd = np.sqrt(a * b / (a + b + 1)) / (a + b)
    z = (theta.mean(axis=0) - a / (a + b)) / (sd / np.sqrt(count))
    assert np.abs(z).max() < 5, f"largest z {np.abs(z).max():.1f}, seed {seed}"


def test_khat_is_kept_where_it_is_asked_for() -> None:
    tree = fit("gp_bernoulli_mixture", two_groups(15), "structured", seed=0, num_samples=10, **QUICK)
    assert np.isfinite(tree.attrs["khat"])
    without = fit("gp_bernoulli_mixture", two_groups(15), "structured", seed=0, khat_samples=0, **QUICK)
    assert "khat" not in without.attrs


def test_importance_weights_of_an_exact_posterior_are_the_evidence() -> None:
    data = LabelData(np.array([[0.0], [1.0], [2.0]]), np.array([[1, 0], [0, 0], [1, 1]]))
    inputs = spec.prepare(data, spec.resolve({"num_components": 1, "prior_mean": 0.4}))
    problem = problem_of(inputs)
    on = data.Y.toarray().sum(axis=0)
    a0, b0 = problem.prior_positive, problem.prior_negative
    one, W = np.ones((3, 1)), np.full((3, 1), 1e-200)
    exact = Factors(a0 + on, b0 + 3 - on, one, 0 * one, one, W, problem.gate_mean * W)
    weights = log_weights(problem, exact, 100, np.random.default_rng(0))
    evidence = float((betaln(a0 + on, b0 + 3 - on) - betaln(a0, b0)).sum())
    np.testing.assert_allclose(weights, evidence, rtol=1e-9)


def test_refit_goes_on_from_the_earlier_posterior(tmp_path: Any) -> None:
    data = two_groups(60)
    options: dict[str, Any] = {**QUICK, "num_samples": 10, "khat_samples": 0}
    part = data.subset(rows=np.arange(52))
    before = fit("gp_bernoulli_mixture", part, "structured", seed=0, **options)
    cold = fit("gp_bernoulli_mixture", data, "structured", seed=0, **options)
    warm = bounds.refit(before, data, rng_key=0)
    size = [tree["optimization"].sizes["iteration"] for tree in (warm, cold)]
    assert size[0] < size[1]
    assert warm.attrs["start"] == "earlier posterior"
    first = warm["optimization"]["objective"].values[0]
    assert first > cold["optimization"]["objective"].values[0]
    turned = bounds.refit(before, data.subset(rows=np.arange(60)[::-1]), rng_key=0)
    assert turned["optimization"]["objective"].values[0] == pytest.approx(first, rel=1e-6)
    path = save(before, tmp_path / "before.nc")
    stored = fit("gp_bernoulli_mixture", data, "structured", seed=0, warm_from=str(path), **options)
    assert stored["optimization"]["objective"].values[0] == pytest.approx(first, rel=1e-9)
    with pytest.raises(ValueError, match="previous must be a posterior"):
        bounds.refit(fit("gp_bernoulli_mixture", part, "sparse", seed=0, **QUICK), data, rng_key=0)
    with pytest.raises(ValueError, match="components, labels"):
        bounds.refit(before, data, rng_key=0, num_components=4)


@pytest.mark.parametrize(
    ("engine", "options", "words"),
    [
        ("structured", {"max_iter": 0}, "max_iter"),
        ("structured", {"num_starts": 0}, "num_starts"),
        ("structured", {"num_samples": -1}, "num_samples"),
        ("structured", {"khat_samples": 5}, "khat_samples"),
        ("structured", {"accelerate": "yes"}, "accelerate"),
        ("structured", {"max_bytes": 1000}, "max_bytes"),
        ("structured", {"warm_from": "nowhere.nc"}, "no file"),
        ("structured", {"num_inducing": 4}, "num_inducing"),
        ("mean_field", {"inner": "both"}, "inner"),
        ("mean_field", {"tolerance": -1}, "tolerance"),
        ("sparse", {"epochs": 0}, "epochs must"),
        ("sparse", {"batch_size": 0}, "batch_size"),
        ("sparse", {"single": 1}, "single"),
        ("sparse", {"step": 2.0}, "step"),
        ("sparse", {"max_bytes": 1000}, "max_bytes"),
    ],
)
def test_wrong_options_are_named(engine: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fit("gp_bernoulli_mixture", two_groups(8), engine, seed=0, **QUICK, **options)


def test_mean_field_by_iteration_and_by_root_agree() -> None:
    options: dict[str, Any] = {**QUICK, "gate_mean": 0.0, "num_samples": 5, "khat_samples": 0}
    options |= {"num_starts": 1, "tolerance": 1e-11, "max_iter": 3000}
    trees = [
        fit("gp_bernoulli_mixture", two_groups(25), "mean_field", seed=0, inner=inner, **options)
        for inner in ("root", "iterate")
    ]
    ends = [tree["optimization"]["objective"].values[-1] for tree in trees]
    assert ends[0] == pytest.approx(ends[1], rel=1e-3)


def test_a_damaged_start_and_wrong_arguments_of_refit_are_named(tmp_path: Any) -> None:
    data = two_groups(12)
    tree = fit("gp_bernoulli_mixture", data, "structured", seed=0, num_samples=10, khat_samples=0, **QUICK)
    path = tmp_path / "damaged.nc"
    for name, value, words in (
        ("potential", np.nan, "potential"),
        ("responsibility", -3.0, "responsibility"),
    ):
        other = tree.copy(deep=True)
        other["engine_state"][name].values[0, 0] = value
        save(other, path)
        with pytest.raises(ValueError, match=f"engine_state/{words} has values"):
            fit("gp_bernoulli_mixture", data, "structured", seed=0, warm_from=str(path), **QUICK)
        with pytest.raises(ValueError, match="damaged"):
            bounds.refit(other, data, rng_key=0)
    with pytest.raises(ValueError, match="warm_from: "):
        fit("gp_bernoulli_mixture", data, "structured", warm_from=str(tmp_path / "none.nc"), **QUICK)
    with pytest.raises(ValueError, match="previous must be a posterior"):
        bounds.refit({}, data, rng_key=0)
    with pytest.raises(ValueError, match="data must be a LabelData"):
        bounds.refit(tree, data.X, rng_key=0)


def test_sparse_refuses_what_is_no_kernel() -> None:
    def indefinite(A: Any, B: Any) -> Any:
        return np.cos(3.0 * np.abs(A[:, :1] - B[:, :1].T)) + 2.0 * (A @ B.T > 0) - 1.0

    register_kernel("mixture_indefinite", indefinite)
    with pytest.raises(ValueError, match="mixture_indefinite"):
        fit("gp_bernoulli_mixture", two_groups(40), "sparse", kernel="mixture_indefinite", **QUICK)


def test_eta_counts_the_rows_of_the_fit_where_the_pool_has_none() -> None:
    data = two_groups(30)
    tree = fit("gp_bernoulli_mixture", data, "structured", seed=0, num_samples=10, khat_samples=0, **QUICK)
    X = np.random.default_rng(5).normal(size=(40, 3))
    pool = LabelData(X, np.full((40, 5), np.nan), label_names=data.label_names)
    alone = ask(tree, pool, acquire="gp_b2m", batch=10)
    told = ask(tree, pool, acquire="gp_b2m", batch=10, labelled=data)
    assert list(alone["obs"]) == list(told["obs"])
    np.testing.assert_allclose(alone["gain"], told["gain"])
