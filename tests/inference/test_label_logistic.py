"""Gibbs and mean field of label_logistic against quadrature, NUTS, edge-case labels and bad options."""

from functools import cache

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from scipy import sparse
from scipy.special import expit

from labelzoo.data import LabelData
from labelzoo.inference.checks.states import data_cases
from labelzoo.inference.checks.stationarity import check_stationarity
from labelzoo.inference.fit import fit
from labelzoo.inference.label_logistic import ascent, climb, draws, forms, mean_field, updates
from labelzoo.inference.label_logistic.stationarity import CASES, fixed_point
from labelzoo.inference.polya_gamma import mean as mean_omega
from labelzoo.inference.posterior import load, save
from labelzoo.inference.predict import label_prob, mean_prob
from labelzoo.models.label_logistic import log_likelihood, spec

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
        for name, values, truth in (
            ("mean", w[..., label], mean[label]),
            ("variance", (w[..., label] - mean[label]) ** 2, variance[label]),
        ):
            error = values.std() / np.sqrt(float(az.ess(values)))
            z = (values.mean() - truth) / error
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
    rows = climb.labels_first(inputs)
    omega = np.asarray(mean_omega(1.0, factors.tilt.T))
    found = []
    for by_rows in (False, True):
        form = forms.form_of(rows.X, inputs["precision"], by_rows=by_rows)
        ratios = draws.log_weights(jax.random.key(0), form, omega, rows.kappa, rows.observed, 4000)
        found.append(np.logaddexp.reduce(ratios) - np.log(4000))
        assert 0 < found[-1] - float(mean_field.bound(factors, inputs)) < 3
    law = mean_field.update_weights(factors.tilt, inputs)
    weights = law.sample(jax.random.key(1), (4000,))
    prior = 0.5 * (np.log(inputs["precision"] / (2 * np.pi)) - inputs["precision"] * weights**2)
    direct = jax.vmap(lambda w: log_likelihood(w, inputs))(weights) + prior.sum(axis=(1, 2))
    direct = np.asarray(direct - law.log_prob(weights).sum(axis=1))
    for estimate in (*found, np.logaddexp.reduce(direct) - np.log(4000)):
        error = 3 * np.exp(direct - direct.max()).std() / np.exp(direct - direct.max()).mean() / np.sqrt(4000)
        assert abs(estimate - found[0]) < 5 * error, f"seed 0: {estimate} and {found[0]}, s.e. below {error}"


def test_mean_field_rests_where_the_gradient_vanishes() -> None:
    for data in data_cases(spec, 0):
        for case in CASES[:3]:
            result = check_stationarity(case, data.inputs, data.name)
            assert result.passed, result.detail


def random_inputs(rows: int, features: int) -> dict[str, jax.Array]:
    """Return three labels, one of them rare, gaps among them, and a row without any label."""
    rng = np.random.default_rng(7)
    Y = (rng.random((rows, 3)) < [0.5, 0.3, 0.0]).astype(float)
    Y[rng.random(Y.shape) < 0.2] = np.nan
    Y[0] = np.nan
    return dict(spec.prepare(LabelData(rng.standard_normal((rows, features)), Y), spec.settings))


@pytest.mark.parametrize("shape", [(12, 30), (30, 12)])
def test_rows_and_features_give_the_same_law_and_newton_rests_where_coordinate_ascent_does(
    shape: tuple[int, int],
) -> None:
    inputs = random_inputs(*shape)
    rows = climb.labels_first(inputs)
    assert rows.X.shape[0] == shape[0] - 1, "the row without labels is left out"
    omega = np.random.default_rng(1).random(rows.kappa.shape) * rows.observed / 4
    by_form = [forms.form_of(rows.X, inputs["precision"], by_rows=flag) for flag in (True, False)]
    assert isinstance(forms.form_of(rows.X, inputs["precision"]), forms.ByRows) == (shape[0] < shape[1])
    v = np.linspace(-1, 1, rows.X.shape[0])
    for label in range(3):
        found = []
        for form in by_form:
            psi = forms.psi_given_omega(form, omega[label], rows.kappa[label])
            bound = forms.bound_at(psi, omega[label], rows.kappa[label], rows.observed[label])
            change = forms.second_moment_change(form, forms.core_of(form, psi), psi.mean, v)
            found.append((psi.mean, psi.variance, psi.log_det, bound, change))
        for one, other in zip(*found, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
    rest = fixed_point(inputs)
    kept = np.asarray(inputs["observed"]).any(axis=1)
    for form in by_form:
        limits = {"max_iter": 100, "tolerance": 1e-13, "progress": False}
        end = climb.climb_labels(form, rows, inputs["precision"], **limits)
        np.testing.assert_allclose(end.tilt.T, np.asarray(rest["tilt"])[kept], rtol=1e-8, atol=1e-10)
        assert end.converged
        assert np.diff(end.objective).min() > -1e-8


def test_the_change_of_moments_and_of_omega_are_derivatives() -> None:
    inputs = random_inputs(9, 3)
    rows = climb.labels_first(inputs)
    omega = jnp.where(rows.observed[0], 0.2, 0.0)
    v = np.where(rows.observed[0], np.linspace(0.5, 1.5, rows.X.shape[0]), 0.0)
    for by_rows in (True, False):
        form = forms.form_of(rows.X, inputs["precision"], by_rows=by_rows)

        def second(omega: jax.Array, form: forms.Form = form) -> jax.Array:
            psi = forms.psi_given_omega(form, omega, rows.kappa[0])
            return psi.mean**2 + psi.variance

        step = 1e-5 * v
        slope = (second(omega + step) - second(omega - step)) / 2e-5
        psi = forms.psi_given_omega(form, omega, rows.kappa[0])
        found = forms.second_moment_change(form, forms.core_of(form, psi), psi.mean, v)
        np.testing.assert_allclose(found, -slope, rtol=1e-6, atol=1e-8)
    square = np.array([1e-9, 0.01, 0.039, 0.041, 1.0, 50.0, 1e4])
    slope = jax.vmap(jax.grad(lambda s: mean_omega(1.0, jnp.sqrt(s))))(square)
    np.testing.assert_allclose(ascent.omega_slope(square)[1:], -slope[1:], rtol=1e-6)
    assert float(ascent.omega_slope(square)[0]) == pytest.approx(1 / 48)


@pytest.mark.parametrize("by_rows", [True, False])
def test_draws_have_the_law_of_the_weights(by_rows: bool) -> None:
    inputs = random_inputs(6, 8)
    rows, tau, count = climb.labels_first(inputs), inputs["precision"], 20_000
    omega = np.random.default_rng(3).random(rows.kappa.shape) * rows.observed / 4
    omega[2], kappa = 0.0, rows.kappa.copy()
    kappa[2] = 0.0  # nothing observed: the prior
    form = forms.form_of(rows.X, tau, by_rows=by_rows)
    found = draws.draw_weights(jax.random.key(5), form, rows.X, tau, omega, kappa, count)
    X = np.asarray(rows.X)
    for label in range(3):
        covariance = np.linalg.inv(np.diag(tau) + (X.T * omega[label]) @ X)
        expected = covariance @ X.T @ kappa[label]
        sd = np.sqrt(np.diag(covariance))
        z = np.abs((found[:, label].mean(axis=0) - expected) / sd).max() * np.sqrt(count)
        assert z < 5, f"mean of label {label}: |z| = {z:.2f} at seed 5"
        sample = np.cov(found[:, label].T)
        z = np.abs((sample - covariance) / np.sqrt(np.outer(sd**2, sd**2) + covariance**2)).max()
        assert z * np.sqrt(count) < 5, f"covariance of label {label} at seed 5"


def test_a_bound_that_is_not_finite_and_large_tables_are_named() -> None:
    data = LabelData(np.full((3, 1), 1e200), np.array([[1], [0], [1]]))
    with pytest.raises(FloatingPointError, match="objective is nan at label 0"):
        fit(MODEL, data, "mean_field", khat_samples=0)
    wide = LabelData(np.zeros((1000, 10)), sparse.csr_array((1000, 50_000), dtype=np.int8))
    for engine in ("mean_field", "streaming", "gibbs"):
        with pytest.raises(
            ValueError, match=rf"{engine} of .* would need .* draws .* above the cap of 2 GiB"
        ):
            fit(MODEL, wide, engine)


def test_progress_names_labels_on_stderr(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as if stderr were a terminal
    fit(MODEL, masked_data(), "mean_field", num_samples=5, khat_samples=0)
    assert capsys.readouterr().err == ""
    fit(MODEL, masked_data(), "mean_field", num_samples=5, khat_samples=0, progress=True)
    assert "mean field, labels" in capsys.readouterr().err


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
    with pytest.raises(ValueError, match="40 precision matrices of 3001 x 3001 8.05"):
        fit(MODEL, data, "gibbs")
