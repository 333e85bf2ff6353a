"""Draws of labels given precisions against dense algebra, sweeps against a reference, and planted faults."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from labelzoo.data import LabelData
from labelzoo.inference.checks.agreement import check_agreement
from labelzoo.inference.checks.case_rungs import FAR
from labelzoo.inference.checks.marginal import compare_at, residual
from labelzoo.inference.checks.order import order_rung
from labelzoo.inference.checks.stationarity import MUTANT_FLOOR, Gradients
from labelzoo.inference.fit import fit
from labelzoo.inference.sparse_bayes import enumeration, order, stationarity
from labelzoo.inference.sparse_bayes.bounds import bml_cs_step, row_draws
from labelzoo.inference.sparse_bayes.gibbs import draw_precision
from labelzoo.inference.sparse_bayes.updates import (
    labels_given_compressed,
    labels_given_precision,
    weights_given_compressed,
)
from labelzoo.models.sparse_bayes_card import spec

RNG = np.random.default_rng(8)
X = RNG.standard_normal((6, 2))
Y = (RNG.random((6, 4)) < 0.5).astype(float)
Y[RNG.random(Y.shape) < 0.4] = np.nan
Y[0] = [1.0, 0.0, 1.0, 0.0]
DRAWS = 20_000


def inputs() -> dict[str, Any]:
    return spec.prepare(LabelData(X, Y), spec.settings)


def moments_z(draws: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> float:
    """Return the largest z of means and second moments of independent normal draws."""
    centred = draws - mean
    sd = np.sqrt(np.diag(covariance))
    z_mean = np.abs(centred.mean(axis=0)) / (sd / np.sqrt(len(draws)))
    second = centred.T @ centred / len(draws)
    error = np.sqrt((np.outer(sd, sd) ** 2 + covariance**2) / len(draws))
    return float(max(z_mean.max(), (np.abs(second - covariance) / error).max()))


def test_joint_draws_have_the_dense_law() -> None:
    given = inputs()
    row, label, Phi = given["cell_row"], given["cell_label"], given["projection"]
    C = given["cholesky"] @ given["cholesky"].T
    alpha = RNG.gamma(1.0, 1.0, len(row))
    prior = np.linalg.inv(C)[np.ix_(row, row)] * (Phi.T @ Phi)[np.ix_(label, label)]
    covariance = np.linalg.inv(np.diag(alpha) + prior)
    mean = -covariance @ (np.linalg.solve(C, given["Y"] @ Phi.T) @ Phi)[row, label]
    law = labels_given_precision({"precision": jnp.asarray(alpha)}, given)
    draws = np.asarray(law.sample(jax.random.key(1), (DRAWS,)))
    z = moments_z(draws, mean, covariance)
    assert z < 5, f"z = {z:.1f}, seed 1"
    points = RNG.standard_normal((3, len(row)))
    dense = [-0.5 * (p - mean) @ np.linalg.solve(covariance, p - mean) for p in points]
    gap = np.asarray(law.log_prob(points)) - dense
    np.testing.assert_allclose(gap, gap[0], atol=1e-10)


def test_draws_by_row_have_the_dense_law() -> None:
    given = inputs()
    row, label, Phi, chi2 = given["cell_row"], given["cell_label"], given["projection"], given["chi2"]
    alpha, Z = RNG.gamma(1.0, 1.0, len(row)), RNG.standard_normal((6, 2))
    prior = np.where(row[:, None] == row, (Phi.T @ Phi)[np.ix_(label, label)], 0.0) / chi2
    covariance = np.linalg.inv(np.diag(alpha) + prior)
    mean = covariance @ ((Z - given["Y"] @ Phi.T) @ Phi)[row, label] / chi2
    state = {"precision": jnp.asarray(alpha), "compressed": jnp.asarray(Z)}
    draws = np.asarray(labels_given_compressed(state, given).sample(jax.random.key(2), (DRAWS,)))
    z = moments_z(draws, mean, covariance)
    assert z < 5, f"z = {z:.1f}, seed 2"


def test_bml_cs_draws_have_its_means_and_variances() -> None:
    given = inputs()
    last = bml_cs_step(given, 15)(None)
    draws = row_draws(last, given, DRAWS, np.random.default_rng(3))
    row, label, Phi = given["cell_row"], given["cell_label"], given["projection"]
    gram = np.where(row[:, None] == row, (Phi.T @ Phi)[np.ix_(label, label)], 0.0)
    covariance = np.linalg.inv(np.diag(last.used) + gram / given["chi2"])
    np.testing.assert_allclose(np.diag(covariance), last.variance, rtol=1e-9)
    z = moments_z(draws, last.mean, covariance)
    assert z < 5, f"z = {z:.1f}, seed 3"


def test_weights_law_is_the_dense_one() -> None:
    given, Z = inputs(), RNG.standard_normal((6, 2))
    F, s2 = given["factor"], given["sigma2"]
    covariance = np.linalg.inv(np.eye(F.shape[1]) + F.T @ F / s2)
    law = weights_given_compressed({"compressed": jnp.asarray(Z)}, given)
    np.testing.assert_allclose(law.loc, covariance @ F.T @ Z / s2, atol=1e-10)
    root = np.asarray(law.scale_tril_row)
    np.testing.assert_allclose(root @ root.T, covariance, atol=1e-10)
    np.testing.assert_array_equal(np.triu(root, 1), 0.0)


def test_precision_draws_have_the_claimed_moments() -> None:
    sites = {"y_unobserved": jnp.full(DRAWS, 1.3)}
    draws = np.asarray(draw_precision(jax.random.key(4), sites, inputs()))
    rate = 0.5 + 0.5 * 1.3**2
    z = (draws.mean() - 1.0 / rate) / (1.0 / rate / np.sqrt(DRAWS))
    assert abs(z) < 5, f"z = {z:.1f}, seed 4"


@pytest.mark.parametrize("block", ["joint", "rows"])
def test_both_sweeps_agree_with_the_stored_reference(block: str) -> None:
    found = check_agreement("sparse_bayes_tiny", "gibbs", block=block, num_samples=2500, thinning=1)
    assert found.passed, found.detail


@pytest.mark.parametrize("case", order.CASES, ids=lambda case: case.name)
def test_sweeps_leave_the_posterior_as_it_is(case: Any) -> None:
    checks, mutants = order_rung(case, spec)
    assert checks[0].passed, checks[0].detail
    assert all(row.killed_by for row in mutants), [row.mutant for row in mutants if not row.killed_by]


@pytest.mark.parametrize("case", enumeration.CASES, ids=lambda case: case.name)
def test_views_marginalise_to_one_another(case: Any) -> None:
    view_from = spec.views[case.view_from]
    found = compare_at(case, spec.views[case.view_to], 0)
    assert residual(found, view_from) < case.threshold
    for name, change in case.wrong_inputs:
        assert residual(found, view_from, change) > FAR * case.threshold, name


@pytest.mark.parametrize("case", stationarity.CASES, ids=lambda case: case.engine)
def test_engines_rest_where_the_bound_of_the_program_has_no_slope(case: Any) -> None:
    with jax.enable_x64(True):
        gradients = Gradients(case, {"labels": inputs()})
        assert gradients.check("labels").passed
        for name, wrong in case.mutants[:2]:
            assert gradients.largest(wrong, "labels")[0] > MUTANT_FLOOR, name


def test_options_are_checked() -> None:
    data = LabelData(X, Y)
    with pytest.raises(ValueError, match="block must be one of auto, joint, rows, got 'row'"):
        fit("sparse_bayes", data, "gibbs", block="row")
    with pytest.raises(ValueError, match="above max_bytes"):
        fit("sparse_bayes", data, "gibbs", max_bytes=1000)
    with pytest.raises(ValueError, match="sweeps must be"):
        fit("sparse_bayes", data, "ml_oss", sweeps=0)
    with pytest.raises(ValueError, match="tolerance must be a positive number or None"):
        fit("sparse_bayes", data, "bml_cs", tolerance=-1.0)


def test_bounds_stop_at_the_tolerance_and_never_fall() -> None:
    for engine in ("ml_oss", "bml_cs"):
        tree = fit("sparse_bayes", LabelData(X, Y), engine, sweeps=500, tolerance=1e-4)
        objective = tree["optimization"]["objective"].values
        assert tree.attrs["converged"] == "yes" and len(objective) < 500
        assert (np.diff(objective) > -1e-9).all()
