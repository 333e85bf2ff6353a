"""label_gp: its closed form against dense Gaussian algebra, its guards, and what its draws say."""

import jax
import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from labelzoo.data import LabelData
from labelzoo.inference.checks.agreement import agreement, check_agreement
from labelzoo.inference.checks.reference_files import load_reference, reference_data
from labelzoo.inference.checks.sbc import sbc_check
from labelzoo.inference.fit import fit
from labelzoo.inference.label_gp.conjugate import draw_white
from labelzoo.inference.label_gp.evidence import (
    choose_hyperparameters,
    log_evidence,
    observed_patterns,
    spectrum,
)
from labelzoo.inference.label_gp.regression import (
    fit_regression,
    regression_draws,
    regression_mean,
    regression_variance,
)
from labelzoo.inference.label_gp.updates import white_given_labels
from labelzoo.inference.predict import label_prob, mean_prob
from labelzoo.models import registry
from labelzoo.models.gp_kernel import feature_map
from labelzoo.models.label_gp import SETTINGS, probit_slope, spec, squash

RNG = np.random.default_rng(11)
X = RNG.standard_normal((14, 2))
Y = (RNG.random((14, 3)) < 0.4).astype(float)
Y[2, 0] = Y[5, 1] = Y[6, 1] = np.nan
Y[9] = np.nan
NEW = RNG.standard_normal((4, 2))


def dense_posterior(label: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of one label's function at `rows`, from the joint normal of all values."""
    inputs = spec.prepare(LabelData(X, Y), SETTINGS)
    kernel = feature_map(X)._replace(length2=float(inputs["length2"]))
    seen = ~np.isnan(Y[:, label])
    amplitude, ratio = inputs["amplitude"][label], inputs["noise_ratio"]
    K = amplitude * kernel.between(X[seen], X[seen]) + amplitude * ratio * np.eye(seen.sum())
    cross = amplitude * kernel.between(rows, X[seen])
    gain = np.linalg.solve(K, cross.T).T
    mean = inputs["mean"][label] + gain @ (Y[seen, label] - inputs["mean"][label])
    return mean, amplitude * kernel.between(rows, rows) - gain @ cross.T


def test_white_posterior_is_that_of_the_dense_joint() -> None:
    with jax.enable_x64(True):
        inputs = spec.prepare(LabelData(X, Y), SETTINGS)
        law = white_given_labels({}, inputs)
        mean = np.asarray(law.mean)
        covariance = np.linalg.inv(np.asarray(law.precision))
    for label in range(3):
        root = inputs["factor"] * np.sqrt(inputs["amplitude"][label])
        expected, spread = dense_posterior(label, X)
        np.testing.assert_allclose(inputs["mean"][label] + root @ mean[label], expected, atol=1e-10)
        np.testing.assert_allclose(root @ covariance[label] @ root.T, spread, atol=1e-10)


def test_engine_draws_what_the_update_claims() -> None:
    with jax.enable_x64(True):
        inputs = spec.prepare(LabelData(X, Y), SETTINGS)
        law = white_given_labels({}, inputs)
        rank = inputs["factor"].shape[1]
        centre = draw_white(inputs, np.zeros((1, 3, rank)))[0]
        np.testing.assert_allclose(centre, np.asarray(law.mean), atol=1e-10)
        unit = draw_white(inputs, np.broadcast_to(np.eye(rank)[:, None], (rank, 3, rank)).copy()) - centre
        for label in range(3):
            spread = unit[:, label].T @ unit[:, label]
            np.testing.assert_allclose(spread, np.linalg.inv(np.asarray(law.precision)[label]), atol=1e-10)


def test_quick_regression_is_the_same_posterior() -> None:
    fitted = fit_regression(X, Y)
    means = regression_mean(fitted, NEW)
    for label in range(3):
        expected, _ = dense_posterior(label, NEW)
        np.testing.assert_allclose(means[:, label], np.clip(expected, 1e-3, 1 - 1e-3), atol=1e-10)
    whole = ~np.isnan(Y).any(axis=1)
    variance = regression_variance(fitted.kernel, fitted.rows[whole], NEW)
    K = fitted.kernel.between(X[whole], X[whole]) + fitted.kernel.noise_ratio * np.eye(whole.sum())
    cross = fitted.kernel.between(NEW, X[whole])
    expected = 1 - np.einsum("ij,ji->i", cross, np.linalg.solve(K, cross.T))
    np.testing.assert_allclose(variance, expected, atol=1e-10)


def test_evidence_is_the_normal_density_with_its_best_amplitude() -> None:
    seen = ~np.isnan(Y)
    residual = np.where(seen, Y - 0.4, 0.0)
    K = feature_map(X).between(X, X)
    value = log_evidence([spectrum(K, p) for p in observed_patterns(residual, seen)], 0.8)
    dense = -np.inf
    for amplitude in np.geomspace(0.05, 1.0, 4000):
        total = 0.0
        for label in range(3):
            at = np.flatnonzero(seen[:, label])
            cov = amplitude * (K[np.ix_(at, at)] + 0.8 * np.eye(len(at)))
            total += multivariate_normal.logpdf(residual[at, label], np.zeros(len(at)), cov)
        dense = max(dense, total)
    assert abs(value - dense) < 1e-5


def test_few_rows_send_bare_evidence_to_the_edge_and_the_guard_holds() -> None:
    """Labels that are pure noise in twelve rows: the best of a wide grid is a spike at every row."""
    rng = np.random.default_rng(0)
    edges = 0
    for _ in range(20):
        X, Y = rng.standard_normal((12, 5)), (rng.random((12, 1)) < 0.5).astype(float)
        observed = np.ones_like(Y, bool)
        kernel = feature_map(X)
        bare = choose_hyperparameters(kernel, X, Y, observed, {**SETTINGS, "hyperparameters": "evidence"})
        held = choose_hyperparameters(kernel, X, Y, observed, SETTINGS)
        edges += bare.kernel.noise_ratio < 0.01
        assert held.kernel.noise_ratio >= 0.2
    assert edges >= 2


def test_settings_override_the_evidence_and_bad_ones_are_named() -> None:
    data = LabelData(X, Y)
    inputs = spec.prepare(data, {**SETTINGS, "noise_ratio": 3.0, "length_factor": 2.0})
    assert float(inputs["noise_ratio"]) == 3.0
    for change, words in [
        ({"kernel": "linear"}, "kernel must be one of"),
        ({"noise_ratio": -1.0}, "noise_ratio must be a positive finite number"),
        ({"hyperparameters": "best"}, "hyperparameters must be one of guarded, floor, evidence, fixed"),
    ]:
        with pytest.raises(ValueError, match=words):
            spec.prepare(data, {**SETTINGS, **change})
    with pytest.raises(ValueError, match="no row has an observed label"):
        spec.prepare(LabelData(X, np.full((14, 2), np.nan)), SETTINGS)


@pytest.mark.parametrize(("mean", "sd"), [(0.5, 0.3), (0.02, 0.05), (0.9, 0.1), (0.3, 0.0)])
def test_squash_keeps_mean_and_variance(mean: float, sd: float) -> None:
    b = probit_slope(np.array(mean), np.array(sd**2))
    a = norm.ppf(mean) * np.sqrt(1 + b**2)
    z = norm.ppf((np.arange(200_000) + 0.5) / 200_000)
    p = norm.cdf(a + b * z)
    assert abs(p.mean() - mean) < 1e-5
    assert abs(p.std() - sd) < 2e-4


def test_squashed_draws_stay_in_order() -> None:
    values = RNG.normal(0.1, 0.2, (50, 2, 2))
    p = squash(values)
    assert ((p > 0) & (p < 1)).all()
    assert (np.argsort(values, axis=0) == np.argsort(p, axis=0)).all()


def test_predictive_draws_are_joint_and_know_new_rows() -> None:
    tree = fit("label_gp", LabelData(X, Y), "conjugate", num_samples=4000)
    far = np.array([[30.0, 30.0], [30.0, 30.0001], [-30.0, 0.0]])
    rows = np.vstack([NEW, far])
    draws = label_prob(tree, rows).values[0]
    error = 5 * draws.std(axis=0) / np.sqrt(len(draws))
    for label in range(3):
        expected, cov = dense_posterior(label, rows)
        assert (
            np.abs(draws[:, :, label].mean(axis=0) - np.clip(expected, 1e-3, None)) < error[:, label] + 1e-3
        ).all()
        wanted = np.minimum(np.sqrt(np.diag(cov)), np.sqrt(0.98 * expected * (1 - expected)))
        np.testing.assert_allclose(draws[:, :, label].std(axis=0), wanted, rtol=0.1)
    together, apart = (
        np.corrcoef(draws[:, 4, 0], draws[:, 5, 0])[0, 1],
        np.corrcoef(draws[:, 4, 0], draws[:, 6, 0]),
    )
    assert together > 0.99
    assert abs(apart[0, 1]) < 0.1
    np.testing.assert_allclose(mean_prob(tree, rows), draws.mean(axis=0), atol=0.03)


def test_quick_draws_have_the_law_of_the_tree() -> None:
    fitted = fit_regression(X, Y)
    quick = regression_draws(fitted, NEW, ~np.isnan(Y), 4000, np.random.default_rng(1))
    for label in range(3):
        expected, cov = dense_posterior(label, NEW)
        error = 5 * quick[:, :, label].std(axis=0) / np.sqrt(len(quick))
        assert (np.abs(quick[:, :, label].mean(axis=0) - np.clip(expected, 1e-3, 1)) < error).all()
        wanted = np.minimum(np.sqrt(np.diag(cov)), np.sqrt(0.98 * expected * (1 - expected)))
        np.testing.assert_allclose(quick[:, :, label].std(axis=0), wanted, rtol=0.1)


def test_closed_form_agrees_with_long_nuts_and_a_shifted_one_does_not() -> None:
    found = check_agreement("label_gp_tiny", "conjugate", seed=3)
    assert found.passed, found.detail
    stored = load_reference("label_gp_tiny")
    tree = fit(
        "label_gp", reference_data(stored), "conjugate", seed=3, num_samples=4000, **stored["settings"]
    )
    tree["posterior"]["white"].values *= 1.1
    assert agreement(tree, stored).passed is False


def test_joint_tests_are_left_out_for_a_program_of_real_numbers() -> None:
    entry = registry.get("label_gp")
    found = sbc_check(entry.spec, entry.engines["conjugate"], 0, 1, lambda line: None)[0]
    assert found.passed is None
    assert "draws real numbers for the labels Y" in found.detail
