"""The card and the two views of label_logistic against formulas written out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer.util import log_density
from scipy import sparse, stats

from labelzoo.data import LabelData
from labelzoo.inference.checks.marginal import check_marginal
from labelzoo.inference.label_logistic.enumeration import CASES
from labelzoo.models import label_logistic
from labelzoo.models.label_logistic import spec


def small_data(missing: bool = False) -> LabelData:
    rng = np.random.default_rng(5)
    Y = (rng.random((7, 3)) < 0.4).astype(float)
    if missing:
        Y[0], Y[1, 2], Y[4, 0] = np.nan, np.nan, np.nan
    return LabelData(rng.standard_normal((7, 2)), Y)


def settings(**changes: object) -> dict[str, object]:
    return {**spec.settings, **changes}


@pytest.mark.parametrize("missing", [False, True])
def test_summed_is_the_density_written_by_hand(missing: bool) -> None:
    data = small_data(missing)
    inputs = spec.prepare(data, settings(prior_scale=0.5, intercept_precision=0.04))
    weights = np.random.default_rng(0).standard_normal((3, 3))
    X = np.column_stack([data.X, np.ones(7)])
    p = 1 / (1 + np.exp(-X @ weights.T))
    cells = stats.bernoulli.logpmf(data.Y.toarray(), p)
    expected = cells[data.observed_mask()].sum() + stats.norm.logpdf(weights, 0, [0.5, 0.5, 5.0]).sum()
    got, _ = log_density(spec.views["summed"], (), inputs, {"weights": jnp.asarray(weights)})
    np.testing.assert_allclose(got, expected, rtol=1e-12)
    likelihood = label_logistic.log_likelihood(jnp.asarray(weights), inputs)
    np.testing.assert_allclose(likelihood, cells[data.observed_mask()].sum(), rtol=1e-12)


@pytest.mark.parametrize("view", ["summed", "polya_gamma"])
def test_unobserved_cells_are_never_read(view: str) -> None:
    inputs = spec.prepare(small_data(missing=True), settings())
    state = {"weights": jnp.ones((3, 3)), "omega": jnp.full((7, 3), 0.2)}
    before, _ = log_density(spec.views[view], (), inputs, state)
    flipped = jnp.where(inputs["observed"], inputs["Y"], 1.0)
    assert (flipped != inputs["Y"]).any()
    after, _ = log_density(spec.views[view], (), {**inputs, "Y": flipped}, state)
    assert before == after


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_polya_gamma_view_integrates_to_summed(case: object) -> None:
    result = check_marginal(case, spec, 0)
    assert result.passed, result.detail


@pytest.mark.parametrize("intercept", [True, False])
def test_predict_is_the_sigmoid(intercept: bool) -> None:
    rng = np.random.default_rng(1)
    X, weights = rng.standard_normal((4, 2)), rng.standard_normal((3, 2 + intercept))
    probs = spec.predict({"weights": jnp.asarray(weights)}, X, {"intercept": intercept})
    psi = X @ weights[:, :2].T + (weights[:, 2] if intercept else 0.0)
    np.testing.assert_allclose(probs, 1 / (1 + np.exp(-psi)), rtol=1e-12)


def test_prepare_builds_the_prior_precisions() -> None:
    inputs = spec.prepare(small_data(), settings(prior_scale=2.0))
    np.testing.assert_allclose(inputs["precision"], [0.25, 0.25, 0.01])
    assert inputs["X"].shape == (7, 3)
    inputs = spec.prepare(small_data(), settings(prior_scale=2.0, intercept=False))
    np.testing.assert_allclose(inputs["precision"], [0.25, 0.25])


def test_prepare_takes_sparse_features() -> None:
    data = small_data()
    twin = LabelData(sparse.csr_array(data.X), data.Y)
    for name, value in spec.prepare(twin, settings()).items():
        np.testing.assert_array_equal(value, spec.prepare(data, settings())[name])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prior_scale": 0.0}, "prior_scale must be a positive finite number, got 0.0"),
        ({"prior_scale": np.nan}, "prior_scale must be a positive finite number, got nan"),
        ({"prior_scale": "wide"}, "prior_scale must be a positive finite number, got 'wide'"),
        ({"intercept_precision": -1.0}, "intercept_precision must be a positive finite number, got -1.0"),
        ({"intercept": "yes"}, "intercept must be True or False, got 'yes'"),
    ],
)
def test_bad_settings_are_named(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        spec.prepare(small_data(), settings(**changes))


def test_large_tables_are_refused_before_they_are_made() -> None:
    n = 100_000
    data = LabelData(np.zeros((n, 1)), sparse.csr_array((n, 50_000), dtype=np.int8))
    with pytest.raises(
        ValueError, match=r"100000 rows x 50000 labels .* 41.9 GiB together, above the cap of 2 GiB"
    ):
        spec.prepare(data, settings())


def test_missing_features_are_refused() -> None:
    data = LabelData(np.array([[1.0], [np.nan]]), np.array([[1], [0]]), allow_missing_features=True)
    with pytest.raises(ValueError, match="X has missing features"):
        spec.prepare(data, settings())


def test_functionals_are_capped_and_right() -> None:
    data, sites = spec.simulate(jax.random.key(0), {"num_obs": 8, "num_features": 20, "num_labels": 15})
    inputs = spec.prepare(data, settings())
    found = spec.functionals({"weights": jnp.asarray(sites["weights"])}, inputs)
    assert found["weights"].shape == (200,)
    assert found["weights"][0] == sites["weights"][0, 0]
    assert found["weights"][-1] == sites["weights"][-1, -1]
    probs = spec.predict(sites, data.X, settings())
    np.testing.assert_allclose(found["label_rate"], np.mean(probs, axis=0), rtol=1e-12)


def test_simulate_draws_from_the_prior() -> None:
    sizes = {"num_obs": 400, "num_features": 50, "num_labels": 40}
    data, sites = spec.simulate(jax.random.key(3), sizes, prior_scale=0.3, intercept_precision=4.0)
    again, _ = spec.simulate(jax.random.key(3), sizes, prior_scale=0.3, intercept_precision=4.0)
    assert data.hash() == again.hash()
    z = sites["weights"] / np.r_[np.full(50, 0.3), 0.5]
    score = ((z**2).sum() - z.size) / np.sqrt(2 * z.size)
    assert abs(score) < 5, f"prior variance of the weights: z = {score:.1f} at seed 3"
    probs = np.asarray(spec.predict(sites, data.X, settings()))
    score = (data.Y.toarray() - probs).sum() / np.sqrt((probs * (1 - probs)).sum())
    assert abs(score) < 5, f"rate of the labels: z = {score:.1f} at seed 3"
