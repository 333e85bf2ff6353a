"""Gibbs and mean field of label_logistic against quadrature, NUTS, edge-case labels and bad options."""

from functools import cache

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from scipy.special import expit

from labelzoo.data import LabelData
from labelzoo.inference.checks.states import data_cases
from labelzoo.inference.checks.stationarity import check_stationarity
from labelzoo.inference.fit import fit
from labelzoo.inference.label_logistic import mean_field, updates
from labelzoo.inference.label_logistic.stationarity import CASES
from labelzoo.inference.posterior import load, save
from labelzoo.inference.predict import label_prob, mean_prob
from labelzoo.models.label_logistic import spec

MODEL = "label_logistic"
SHORT = {"num_warmup": 5, "num_samples": 6}


def masked_data() -> LabelData:
    """Return rows of zeros, of ones, without labels, and labels that are never, always, or not observed."""
    rng = np.random.default_rng(2)
    Y = (rng.random((12, 5)) < 0.5).astype(float)
    Y[:, 0], Y[:, 1] = 0.0, 1.0
    Y[3, 3:], Y[4, 3:] = 0.0, 1.0
    Y[0], Y[1, :2], Y[:, 2] = np.nan, np.nan, np.nan
    return LabelData(rng.standard_normal((12, 2)), Y)


def exact_moments(x: np.ndarray, y: np.ndarray, sd: float) -> tuple[float, float]:
    """Return posterior mean and variance of one weight, no intercept, by quadrature on a fine grid."""
    w = np.linspace(-12 * sd, 12 * sd, 200_001)
    log_p = -0.5 * (w / sd) ** 2
    for x_n, y_n in zip(x, y, strict=True):
        log_p += y_n * w * x_n - np.logaddexp(0, w * x_n)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean = (p * w).sum()
    return mean, (p * (w - mean) ** 2).sum()


@cache
def single_weight() -> tuple[LabelData, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    x = rng.standard_normal((15, 1))
    Y = np.column_stack([rng.random(15) < expit(1.5 * x[:, 0]), np.zeros(15), np.ones(15)]).astype(int)
    moments = [exact_moments(x[:, 0], Y[:, label], 1.5) for label in range(3)]
    return LabelData(x, Y), *map(np.array, zip(*moments, strict=True))


def test_gibbs_has_the_moments_of_quadrature() -> None:
    data, mean, variance = single_weight()
    seed = 11
    tree = fit(
        MODEL, data, "gibbs", seed=seed, prior_scale=1.5, intercept=False, num_warmup=100, num_samples=2000
    )
    w = tree["posterior"]["weights"].values[..., 0]
    for label in range(3):
        for name, draws, truth in (
            ("mean", w[..., label], mean[label]),
            ("variance", (w[..., label] - mean[label]) ** 2, variance[label]),
        ):
            error = draws.std() / np.sqrt(float(az.ess(draws)))
            z = (draws.mean() - truth) / error
            assert abs(z) < 5, f"{name} of label {label}: z = {z:.2f} at seed {seed}, s.e. {error:.2g}"


def largest_z(left: xr.DataTree, right: xr.DataTree) -> tuple[float, int]:
    """Return the largest difference of means and of squares over its pooled Monte Carlo error."""
    scores = []
    for power in (1, 2):
        a, b = (tree["posterior"]["weights"] ** power for tree in (left, right))
        errors = [x.std(("chain", "draw")) / np.sqrt(az.ess(x.to_dataset(name="x"))["x"]) for x in (a, b)]
        gap = a.mean(("chain", "draw")) - b.mean(("chain", "draw"))
        scores.append(np.abs(gap.values) / np.hypot(*[e.values for e in errors]))
    return float(np.max(scores)), int(np.size(scores))


def test_gibbs_agrees_with_nuts() -> None:
    data, _ = spec.simulate(jax.random.key(4), {"num_obs": 25, "num_features": 2, "num_labels": 3})
    gibbs = fit(MODEL, data, "gibbs", seed=21, intercept_precision=1.0, num_warmup=200, num_samples=1500)
    nuts = fit(MODEL, data, "nuts", seed=22, intercept_precision=1.0, num_warmup=300, num_samples=700)
    z, count = largest_z(gibbs, nuts)
    assert z < 5, f"largest of {count} |z| is {z:.2f} at seeds 21 and 22"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_gibbs_agrees_with_nuts_on_more_rows_with_missing_labels(seed: int) -> None:
    full, _ = spec.simulate(jax.random.key(40 + seed), {"num_obs": 80, "num_features": 4, "num_labels": 4})
    Y = full.Y.toarray().astype(float)
    Y[np.random.default_rng(seed).random(Y.shape) < 0.3] = np.nan
    data = LabelData(full.X, Y)
    gibbs = fit(MODEL, data, "gibbs", seed=50 + seed, num_warmup=1000, num_samples=10_000)
    nuts = fit(MODEL, data, "nuts", seed=60 + seed, num_warmup=1000, num_samples=3000)
    z, count = largest_z(gibbs, nuts)
    assert z < 5, f"largest of {count} |z| is {z:.2f} at seeds {50 + seed} and {60 + seed}"


def test_conditionals_are_the_formulas_written_by_hand() -> None:
    data = masked_data()
    inputs = spec.prepare(data, spec.settings)
    rng = np.random.default_rng(0)
    omega, weights = rng.gamma(1.0, 0.25, (12, 5)), rng.standard_normal((5, 3))
    law = updates.weights_given_omega({"omega": jnp.asarray(omega)}, inputs)
    X, seen = np.asarray(inputs["X"]), data.observed_mask()
    for label in range(5):
        rows = seen[:, label]
        precision = np.diag([1.0, 1.0, 0.01]) + (X[rows].T * omega[rows, label]) @ X[rows]
        mean = np.linalg.solve(precision, X[rows].T @ (data.Y.toarray()[rows, label] - 0.5))
        np.testing.assert_allclose(law.mean[label], mean, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(law.covariance_matrix[label], np.linalg.inv(precision), rtol=1e-8)
    tilt = updates.omega_given_weights({"weights": jnp.asarray(weights)}, inputs).base_dist.tilting
    np.testing.assert_allclose(tilt, np.where(seen, X @ weights.T, 0.0))


@pytest.mark.parametrize("engine", ["gibbs", "mean_field"])
def test_edge_case_labels_give_finite_draws_and_the_prior_where_nothing_is_observed(engine: str) -> None:
    options = {"num_samples": 400} | ({"num_warmup": 50} if engine == "gibbs" else {"khat_samples": 0})
    tree = fit(MODEL, masked_data(), engine, seed=3, **options)
    weights = tree["posterior"]["weights"].values
    assert np.isfinite(weights).all()
    # Given its own omega, the weights of an unobserved label are independent draws from the prior.
    free = weights[:, :, 2].reshape(-1, 3) / np.array([1.0, 1.0, 10.0])
    z = np.abs(free.mean(axis=0)).max() * np.sqrt(len(free))
    assert z < 5, f"mean of the unobserved label: |z| = {z:.2f} at seed 3"
    z = np.abs((free**2).mean(axis=0) - 1).max() * np.sqrt(len(free) / 2)
    assert z < 5, f"variance of the unobserved label: |z| = {z:.2f} at seed 3"
    probs = mean_prob(tree, masked_data().X)
    assert (probs[:, 0] < 0.5).all()
    assert (probs[:, 1] > 0.5).all()


def test_mean_field_climbs_rests_and_keeps_means_close() -> None:
    data, mean, variance = single_weight()
    tree = fit(MODEL, data, "mean_field", prior_scale=1.5, intercept=False, num_samples=4000)
    objective = tree["optimization"]["objective"].values
    assert np.diff(objective).min() >= -1e-10
    assert tree.attrs["converged"] == "yes"
    assert tree.attrs["khat"] < 0.7
    w = tree["posterior"]["weights"].values[0, :, :, 0]
    assert (np.abs(w.mean(axis=0) - mean) < 0.35 * np.sqrt(variance)).all()
    assert (w.var(axis=0) < 1.1 * variance).all()


def test_bound_is_below_the_evidence_and_is_the_objective() -> None:
    data, _, _ = single_weight()
    inputs = spec.prepare(data, {**spec.settings, "prior_scale": 1.5, "intercept": False})
    factors = mean_field.start(inputs)
    objective = jax.jit(lambda params: CASES[0].objective(params, inputs))
    for _ in range(3):
        params = {
            "mean": factors.mean,
            "root": jnp.linalg.cholesky(factors.covariance),
            "tilt": factors.tilt,
        }
        np.testing.assert_allclose(mean_field.bound(factors, inputs), objective(params), rtol=1e-10)
        factors = mean_field.sweep(factors, inputs)
    law = mean_field.update_weights(factors.tilt, inputs)
    log_weights = mean_field.log_weights(jax.random.key(0), law, inputs, 4000)
    evidence = np.logaddexp.reduce(log_weights) - np.log(4000)
    assert 0 < evidence - float(mean_field.bound(factors, inputs)) < 3


def test_mean_field_rests_where_the_gradient_vanishes() -> None:
    for data in data_cases(spec, 0):
        result = check_stationarity(CASES[0], data.inputs, data.name)
        assert result.passed, result.detail


@pytest.mark.parametrize(
    ("num_chains", "chain_method"),
    [(1, "vectorized"), (2, "sequential"), (2, "vectorized"), (4, "vectorized")],
)
def test_gibbs_runs_any_number_of_chains(num_chains: int, chain_method: str) -> None:
    data = masked_data()
    tree = fit(MODEL, data, "gibbs", num_chains=num_chains, chain_method=chain_method, **SHORT)
    weights = tree["posterior"]["weights"]
    assert weights.dims == ("chain", "draw", "labels", "feature")
    assert weights.shape == (num_chains, 6, 5, 3)
    assert tree["sample_stats"]["log_likelihood"].shape == (num_chains, 6)
    assert len(np.unique(weights.values)) == weights.size


@pytest.mark.parametrize("engine", ["gibbs", "nuts"])
def test_parallel_chains_fall_back_with_a_warning_on_one_device(engine: str) -> None:
    assert jax.local_device_count() == 1, "this test is about a single device"
    with pytest.warns(UserWarning, match="not enough devices"):
        tree = fit(MODEL, masked_data(), engine, num_chains=2, chain_method="parallel", **SHORT)
    assert tree["posterior"]["weights"].shape == (2, 6, 5, 3)


@pytest.mark.parametrize(("engine", "options"), [("gibbs", SHORT), ("mean_field", {"num_samples": 5})])
def test_a_seed_fixes_the_result(engine: str, options: dict[str, int]) -> None:
    first, same, other = (fit(MODEL, masked_data(), engine, seed=seed, **options) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first["posterior"]["weights"], same["posterior"]["weights"])
    assert (first["posterior"]["weights"].values != other["posterior"]["weights"].values).all()


def test_kept_log_likelihood_is_that_of_the_kept_draw() -> None:
    tree = fit(MODEL, masked_data(), "gibbs", **SHORT)
    inputs = spec.prepare(masked_data(), spec.settings)
    for chain, draw in ((0, 0), (2, 5)):
        weights = tree["posterior"]["weights"].values[chain, draw]
        found = spec.functionals({"weights": weights}, inputs)["log_likelihood"]
        kept = tree["sample_stats"]["log_likelihood"].values[chain, draw]
        np.testing.assert_allclose(kept, found, rtol=1e-12)


def test_a_saved_posterior_predicts_the_same(tmp_path: object) -> None:
    tree = fit(MODEL, masked_data(), "gibbs", **SHORT)
    loaded = load(save(tree, f"{tmp_path}/posterior.nc"))
    rows = np.random.default_rng(1).standard_normal((3, 2))
    before, after = label_prob(tree, rows), label_prob(loaded, rows)
    assert before.shape == (4, 6, 3, 5)
    np.testing.assert_array_equal(before, after)
    weights = tree["posterior"]["weights"].values[1, 2]
    expected = expit(np.column_stack([rows, np.ones(3)]) @ weights.T)
    np.testing.assert_allclose(before.values[1, 2], expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("engine", "options", "words"),
    [
        ("gibbs", {"num_chains": 0}, "num_chains must be an integer of at least 1, got 0"),
        ("gibbs", {"step": 1}, "engine 'gibbs' knows no setting 'step'"),
        ("gibbs", {"prior_scale": -1.0}, "prior_scale must be a positive finite number"),
        ("mean_field", {"num_samples": 0}, "num_samples must be a positive integer, got 0"),
        ("mean_field", {"khat_samples": 7}, "khat_samples must be 0 or an integer of at least 100, got 7"),
        ("mean_field", {"max_iter": 0}, "max_iter must be an integer of at least 1, got 0"),
        ("mean_field", {"tolerance": -1.0}, "tolerance must be a number of at least 0"),
    ],
)
def test_bad_options_are_named(engine: str, options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fit(MODEL, masked_data(), engine, **options)


def test_too_many_features_for_the_precisions_are_refused() -> None:
    data = LabelData(np.zeros((2, 3000)), np.zeros((2, 40), int))
    with pytest.raises(ValueError, match="40 precision matrices of 3001 x 3001 take 2.7 GiB"):
        fit(MODEL, data, "gibbs")
