"""The card of sparse_bayes: graphs, settings, kernels, refusals, and how new rows become probabilities."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from scipy.stats import norm

from labelzoo.data import LabelData
from labelzoo.inference.compare.driver import compare
from labelzoo.inference.fit import fit
from labelzoo.inference.posterior import load, save
from labelzoo.inference.predict import constants_of, label_prob, mean_prob, point_draws
from labelzoo.inference.sparse_bayes.complete import complete
from labelzoo.models import registry
from labelzoo.models.sparse_bayes_card import hide, spec
from labelzoo.models.sparse_bayes_kernel import graph_kernel, kernel_factor, register_kernel
from labelzoo.models.sparse_bayes_predict import (
    EDGE,
    chain,
    cross_and_own,
    predict,
    predict_draws,
    soft_clip,
    spread,
)

RNG = np.random.default_rng(3)
X = RNG.standard_normal((16, 2))
Y = (RNG.random((16, 5)) < 0.4).astype(float)
PART = Y.copy()
PART[RNG.random(Y.shape) < 0.25] = np.nan
PART[3] = np.nan
PART[[5, 6, 7, 8, 9, 10]] = Y[[5, 6, 7, 8, 9, 10]]
NEW = RNG.standard_normal((4, 2))
HELD = {"hyperparameters": "fixed", "noise": 0.3, "scale": 0.8}


def inputs_of(table: np.ndarray = PART, **settings: Any) -> dict[str, Any]:
    with jax.enable_x64(True):
        return spec.prepare(LabelData(X, table), spec.resolve(settings))


def test_inductive_graphs_leave_rows_without_labels_out() -> None:
    inductive, transductive = inputs_of(), inputs_of(mode="transductive")
    assert 3 not in inductive["graph_row"] and len(inductive["graph_row"]) == 15
    assert len(transductive["graph_row"]) == 16
    rows = inductive["graph_row"][inductive["cell_row"]]
    assert np.isnan(PART[rows, inductive["cell_label"]]).all()
    assert len(rows) == np.isnan(PART).sum() - 5
    assert (inductive["Y"][inductive["cell_row"], inductive["cell_label"]] == 0).all()


@pytest.mark.parametrize("kernel", ["linear", "rbf", "cosine"])
def test_covariance_is_the_kernel_and_the_noise(kernel: str) -> None:
    inputs = inputs_of(kernel=kernel, **HELD)
    L = inputs["cholesky"]
    K = 0.8 * graph_kernel(X, kernel)._replace(length2=inputs["length2"]).of_mapped(*[inputs["mapped"]] * 2)
    np.testing.assert_allclose(inputs["factor"] @ inputs["factor"].T, K, atol=1e-10)
    np.testing.assert_allclose(L @ L.T, K + 0.3 * np.eye(15), atol=1e-10)
    assert inputs["sigma2"] + inputs["chi2"] == pytest.approx(0.3)


def test_projection_is_drawn_once_and_kept() -> None:
    first, again, other = inputs_of(), inputs_of(), inputs_of(projection_seed=1)
    np.testing.assert_array_equal(first["projection"], again["projection"])
    assert first["projection"].shape == (3, 5) and (first["projection"] != other["projection"]).all()
    tree = fit("sparse_bayes", LabelData(X, PART), "ml_oss", projection_seed=4)
    kept = tree["constant_data"]["projection"].values
    np.testing.assert_array_equal(kept, inputs_of(projection_seed=4)["projection"])
    wide = inputs_of(num_measurements=9)
    assert wide["projection"].shape == (9, 5)


def sum_kernel(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    return np.exp(-np.abs(A[:, None] - B[None]).sum(axis=2))


def test_kernels_are_found_by_name_and_saved(tmp_path: Path) -> None:
    register_kernel("laplace", sum_kernel)
    file = tmp_path / "own.py"
    file.write_text(
        "import numpy as np\ndef k(A, B):\n    return np.exp(-np.abs(A[:, None] - B[None]).sum(axis=2))\n"
    )
    first = inputs_of(kernel="laplace", **HELD)
    second = inputs_of(kernel=f"{file}:k", **HELD)
    third = inputs_of(kernel="sklearn.metrics.pairwise:laplacian_kernel", **HELD)
    np.testing.assert_array_equal(first["cholesky"], second["cholesky"])
    assert not np.allclose(first["cholesky"], third["cholesky"])
    tree = fit("sparse_bayes", LabelData(X, PART), "ml_oss", kernel=f"{file}:k", **HELD)
    before = mean_prob(tree, NEW)
    again = load(save(tree, tmp_path / "p.nc"))
    np.testing.assert_array_equal(mean_prob(again, NEW), before)
    draw = {name: value[0] for name, value in point_draws(again).items()}
    with jax.enable_x64(True):
        assert np.asarray(predict(draw, NEW, constants_of(again))).shape == (4, 5)


def nan_kernel(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    K = sum_kernel(A, B)
    K[-1, 0] = np.nan
    return K


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"kernel": "indefinite"}, "kernel 'indefinite' is not positive definite: its smallest eigenvalue"),
        ({"kernel": "with nan"}, "kernel 'with nan' gave nan for row 14 and row 0"),
        ({"kernel": "short"}, r"kernel 'short' gave shape \(15,\) for 15 and 15 rows"),
        ({"kernel": "skew"}, "kernel 'skew' is not symmetric"),
        ({"kernel": "nowhere"}, "kernel must be one of auto, linear, rbf, cosine"),
        ({"kernel": "numpy:nothing"}, "'numpy' has no function 'nothing'"),
        ({"kernel": "no_such_module:f"}, "ModuleNotFoundError"),
        ({"mode": "both"}, "mode must be one of inductive, transductive"),
        ({"precision_shape": 0.0}, "precision_shape must be a number between"),
        ({"noise": -1.0}, "noise must be a number between"),
        ({"noise_share": 1.0}, "noise_share must lie between 0 and 1"),
        ({"num_measurements": 0}, "num_measurements must be an integer of at least 1, got 0"),
        ({"sweeps": 2.5}, "sweeps must be an integer of at least 1"),
        ({"new_rows": "nuts"}, "new_rows must be one of gibbs, ml_oss, bml_cs"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], words: str) -> None:
    register_kernel("indefinite", lambda A, B: -sum_kernel(A, B))
    register_kernel("with nan", nan_kernel)
    register_kernel("short", lambda A, B: np.ones(len(A)))
    register_kernel("skew", lambda A, B: A @ np.array([[1.0, 1.0], [0.0, 1.0]]) @ B.T)
    with pytest.raises(ValueError, match=words):
        inputs_of(**settings)


def test_smallest_eigenvalue_is_named() -> None:
    K = np.diag([2.0, -0.25, 1.0])
    with pytest.raises(ValueError, match=r"smallest eigenvalue at these 3 rows is -0\.25"):
        kernel_factor(K, "mine")


def test_nothing_observed_is_refused_and_says_what_it_would_predict() -> None:
    with pytest.raises(ValueError, match="every label of every row would be predicted as 0"):
        inputs_of(np.full_like(Y, np.nan))


def test_too_many_rows_and_missing_features_are_refused() -> None:
    big = LabelData(np.zeros((5001, 1)) + np.arange(5001)[:, None], np.ones((5001, 1)))
    with pytest.raises(ValueError, match="at most 5000 rows in its graph, got 5001"):
        spec.prepare(big, spec.settings)
    holes = LabelData(np.where(X > 1, np.nan, X), Y, allow_missing_features=True)
    with pytest.raises(ValueError, match="no model for missing features"):
        spec.prepare(holes, spec.settings)


@pytest.mark.parametrize("kernel", ["linear", "rbf", "cosine"])
def test_a_row_of_zeros_works(kernel: str) -> None:
    rows = X.copy()
    rows[0] = 0.0
    tree = fit("sparse_bayes", LabelData(rows, PART), "ml_oss", kernel=kernel, num_measurements=7)
    assert np.isfinite(mean_prob(tree, np.vstack([NEW, np.zeros((1, 2))]))).all()


@pytest.mark.parametrize("engine", ["nuts", "svi"])
def test_gradients_are_refused_where_the_prior_is_a_spike_or_nothing_is_unobserved(engine: str) -> None:
    with pytest.raises(ValueError, match=r"precision_rate=1e-06 makes the prior of a label a spike"):
        fit("sparse_bayes", LabelData(X, PART), engine, precision_rate=1e-6)
    with pytest.raises(ValueError, match=f"nothing to sample for {engine}"):
        fit("sparse_bayes", LabelData(X, Y), engine)


@pytest.mark.parametrize("engine", ["ml_oss", "bml_cs", "gibbs"])
def test_complete_labels_give_a_posterior_without_cells_that_predicts(engine: str, tmp_path: Path) -> None:
    tree = fit("sparse_bayes", LabelData(X, Y), engine)
    assert tree["posterior"]["y_unobserved"].shape[2] == 0
    again = load(save(tree, tmp_path / "p.nc"))
    probs = mean_prob(again, NEW)
    np.testing.assert_array_equal(probs, mean_prob(tree, NEW))
    assert ((probs > 0) & (probs < 1)).all()


def test_soft_clip_is_smooth_increasing_and_the_identity_inside() -> None:
    x = np.linspace(-3.0, 4.0, 70_001)
    p = soft_clip(x)
    inside = (x >= EDGE) & (x <= 1 - EDGE)
    np.testing.assert_array_equal(p[inside], x[inside])
    assert ((p > 0) & (p <= 1)).all() and (np.diff(p[(x > -1.5) & (x < 2)]) > 0).all()
    slope = np.gradient(p, x)
    assert np.abs(np.diff(slope)).max() < 3e-3
    np.testing.assert_allclose(soft_clip(1 - x), 1 - p, atol=1e-12)


def test_spread_keeps_the_mean_exactly_and_the_variance_nearly() -> None:
    n = 200
    z = RNG.permuted(np.tile(norm.ppf((np.arange(n) + 0.5) / n)[:, None, None], (1, 1, 4)), axis=0)
    mean, variance = np.array([[0.02, 0.3, 0.5, 0.97]]), np.array([[1e-4, 0.02, 0.05, 1e-3]])
    p = spread(mean, variance, z)
    np.testing.assert_allclose(p.mean(axis=0), mean, atol=1e-10)
    np.testing.assert_allclose(p.var(axis=0), variance, rtol=0.05)


def test_plug_in_of_one_new_row_is_the_graph_with_that_row() -> None:
    """S: for one test point the inductive and the transductive estimator are one."""
    tree = fit("sparse_bayes", LabelData(X, Y), "ml_oss", kernel="rbf", **HELD)
    constants = constants_of(tree)
    with jax.enable_x64(True):
        probs = np.asarray(predict({"y_unobserved": np.zeros(0)}, NEW[:1], constants))
    np.testing.assert_allclose(mean_prob(tree, NEW)[0], probs[0], atol=1e-9)
    cross, own = cross_and_own(constants, NEW[:1])
    L = constants["cholesky"]
    C = np.block([[L @ L.T, cross], [cross.T, own[:, None]]])
    table = np.vstack([Y, np.full((1, 5), np.nan)])
    whole = complete(C, constants["projection"], table, shape=0.5, rate=0.5, sweeps=20)
    np.testing.assert_allclose(probs[0], soft_clip(whole.mean), atol=1e-9)


def test_chain_of_a_new_row_has_the_posterior_of_quadrature() -> None:
    """One label, one measurement: the posterior mean and sd of y* by a grid."""
    data = LabelData(X, Y[:, :1])
    tree = fit("sparse_bayes", data, "gibbs", num_chains=4, num_samples=2000, kernel="rbf", **HELD)
    constants = constants_of(tree)
    cross, own = cross_and_own(constants, NEW[:2])
    mean, values = chain(np.zeros((8000, 0)), cross, own, constants, np.random.default_rng(0))
    L, phi = constants["cholesky"], constants["projection"][0, 0]
    gain = np.linalg.solve(L @ L.T, cross)
    t, v = gain.T @ (Y[:, 0] * phi), own - (cross * gain).sum(axis=0)
    grid = np.linspace(-60, 60, 240_001)
    for row in range(2):
        log_p = -0.5 * (phi * grid - t[row]) ** 2 / v[row] - np.log1p(grid**2)
        p = np.exp(log_p - log_p.max())
        p /= p.sum()
        exact = (grid * p).sum()
        sd = np.sqrt(((grid - exact) ** 2 * p).sum())
        draws = values[:, row, 0]
        error = draws.reshape(80, 100).mean(axis=1).std(ddof=1) / np.sqrt(80)
        z = (draws.mean() - exact) / error
        assert abs(z) < 5, f"z = {z:.1f}, seed 0"
        assert abs(mean[row, 0] - exact) < 5 * error
        assert draws.std() == pytest.approx(sd, rel=0.15)


def test_order_of_labels_is_that_of_the_means_and_new_rows_are_independent_of_each_other() -> None:
    tree = fit("sparse_bayes", LabelData(X, PART), "ml_oss")
    assert json.loads(tree.attrs["settings"])["new_rows"] == "ml_oss"
    several, one = mean_prob(tree, NEW), mean_prob(tree, NEW[2:3])
    np.testing.assert_allclose(several[2], one[0], atol=1e-10)
    probs = label_prob(tree, NEW).values
    np.testing.assert_allclose(probs.mean(axis=(0, 1)), several, atol=1e-10)
    constants, draws = constants_of(tree), point_draws(tree)
    again = predict_draws(draws, NEW, constants, np.random.default_rng(9))
    np.testing.assert_allclose(again.mean(axis=0), several, atol=1e-10)


def test_comparisons_hide_labels_of_complete_data_alone() -> None:
    data = LabelData(X, Y)
    hidden, other = hide(data, 0), hide(LabelData(X, PART), 0)
    assert 0.15 < hidden.num_missing_cells / Y.size < 0.45
    assert other.num_missing_cells == int(np.isnan(PART).sum())
    seen = hidden.observed_mask()
    np.testing.assert_array_equal(hidden.Y.toarray()[seen], Y[seen])
    found = compare("sparse_bayes", data, ["ml_oss", "bml_cs"], test_fraction=0.25)
    payload = found.to_json()
    assert payload["hidden_labels"] == found.train.num_missing_cells > 0
    assert f"{found.hidden} of their 60 observed labels" in payload["advice"]
    assert compare("sparse_bayes", LabelData(X, PART), ["ml_oss"], test_fraction=0.25).hidden == 0


def test_registered_with_its_engines() -> None:
    entry = registry.get("sparse_bayes")
    assert set(entry.engines) == {"nuts", "svi", "ml_oss", "bml_cs", "gibbs"}
    assert len(entry.updates) == 5


@pytest.mark.parametrize("engine", ["ml_oss", "bml_cs", "gibbs"])
def test_moments_are_those_of_the_draws(engine: str) -> None:
    rng = np.random.default_rng(5)
    X, Y = rng.standard_normal((24, 3)), (rng.random((24, 4)) < 0.4).astype(float)
    Y[3, 1] = Y[5, 0] = np.nan
    options = {"num_warmup": 50, "num_chains": 1, "num_samples": 300} if engine == "gibbs" else {}
    tree = fit("sparse_bayes", LabelData.from_arrays(X, Y), engine, seed=1, **options)
    new = rng.standard_normal((9, 3))
    mean, sd = mean_prob(tree, new, with_sd=True)
    draws = label_prob(tree, new).values.reshape(-1, 9, 4)
    np.testing.assert_allclose(mean, draws.mean(axis=0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(sd, draws.std(axis=0), rtol=0.15, atol=0.01)


def _kernel_file(path: Path, body: str) -> str:
    path.write_text(f"def k(A, B):\n    {body}\n", encoding="utf-8")
    return f"{path}:k"


def test_a_kernel_file_that_has_changed_or_gone_is_refused_at_prediction(tmp_path: Path) -> None:
    name = _kernel_file(tmp_path / "own.py", "return A @ B.T + 1.0")
    tree = fit("sparse_bayes", LabelData.from_arrays(X, Y), "ml_oss", seed=0, kernel=name)
    before = mean_prob(tree, NEW)
    np.testing.assert_array_equal(mean_prob(tree, NEW), before)
    _kernel_file(tmp_path / "own.py", "return 0.5 * (A @ B.T)")
    with pytest.raises(ValueError, match="is not the function of the fit: at 16 training rows"):
        mean_prob(tree, NEW)
    (tmp_path / "own.py").unlink()
    with pytest.raises(ValueError, match="there is no file .*own.py.; put the one used in the fit there"):
        mean_prob(tree, NEW)


def test_a_kernel_that_exits_is_an_error(tmp_path: Path) -> None:
    name = _kernel_file(tmp_path / "out.py", "raise SystemExit(0)")
    with pytest.raises(ValueError, match="raised SystemExit"):
        fit("sparse_bayes", LabelData.from_arrays(X, Y), "ml_oss", seed=0, kernel=name)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_measurements": 10**9}, "num_measurements=1000000000 for 5 labels.*take at most 20"),
        ({"noise": 10**400}, "noise must be a number between 1e-100 and 1e100 or None"),
        ({"precision_rate": 1e300}, "precision_rate must be a number between"),
    ],
)
def test_settings_out_of_reach_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit("sparse_bayes", LabelData.from_arrays(X, Y), "ml_oss", seed=0, **settings)


def test_a_noise_that_rounding_swallows_is_named_with_the_smallest_eigenvalue() -> None:
    twice = LabelData.from_arrays(np.tile(X[:8], (2, 1)), Y)
    with pytest.raises(ValueError, match="smallest eigenvalue .* with"):
        fit("sparse_bayes", twice, "ml_oss", seed=0, noise=1e-14)


@pytest.mark.parametrize("new_rows", ["ml_oss", "gibbs"])
def test_new_rows_of_no_variance_are_refused_under_either_inference(new_rows: str) -> None:
    held = {"noise": 1e-18, "scale": 1.0, "new_rows": new_rows}
    tree = fit("sparse_bayes", LabelData.from_arrays(X, Y), "ml_oss", seed=0, **held)
    with pytest.raises(ValueError, match="variance must be finite and above 0"):
        mean_prob(tree, X)


def test_a_kernel_sees_copies_and_must_not_depend_on_the_company_of_a_row(tmp_path: Path) -> None:
    data = LabelData.from_arrays(X, Y)
    name = _kernel_file(tmp_path / "norm.py", "return A @ B.T / (len(A) * len(B)) ** 0.5")
    with pytest.raises(ValueError, match="depends on which rows it is given together"):
        fit("sparse_bayes", data, "ml_oss", seed=0, kernel=name)
    name = _kernel_file(tmp_path / "place.py", "A *= 2.0; return A @ (2.0 * B).T")
    tree, new = fit("sparse_bayes", data, "ml_oss", seed=0, kernel=name), NEW.copy()
    mean_prob(tree, new)
    np.testing.assert_array_equal(new, NEW)
