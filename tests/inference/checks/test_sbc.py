"""Ranks: the test's level, ties, right and wrong samplers, bounds and points."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from labelzoo.inference.checks.ranks import Ranks, rank_among, thinned, uniformity_p
from labelzoo.inference.checks.sbc import calibration, sbc_check
from labelzoo.inference.checks.sweeps import sweep_kernel
from labelzoo.inference.engine import Engine, EngineResult
from labelzoo.inference.update import Update
from labelzoo.models import registry
from labelzoo.models.spec import ModelSpec

FAMILIES = 50


def program(X: Any, Y: Any, observed: Any) -> None:
    """Independent label rates."""
    with numpyro.plate("labels", Y.shape[1]):
        rate = numpyro.sample("rate", dist.Beta(2.0, 3.0))
    with numpyro.plate("obs", Y.shape[0]):
        numpyro.sample("Y", dist.Bernoulli(jnp.broadcast_to(rate, Y.shape)).to_event(1), obs=Y)


def rate_given(state: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
    """Return the conjugate posterior."""
    Y = inputs["Y"]
    return dist.Beta(2.0 + Y.sum(0), 3.0 + (1 - Y).sum(0))


def prior(state: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
    """Return the prior: what a sampler that ignores the data draws from."""
    return dist.Beta(jnp.full(inputs["Y"].shape[1], 2.0), 3.0)


def too_narrow(state: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
    """Return the posterior with four times the counts."""
    law = rate_given(state, inputs)
    return dist.Beta(4.0 * law.concentration1, 4.0 * law.concentration0)


card = ModelSpec(
    name="beta_rates",
    views={"summed": program},
    predict=lambda draw, X, constants: jnp.broadcast_to(draw["rate"], (X.shape[0], draw["rate"].shape[0])),
    dims={"rate": ("labels",)},
    tiny={"num_obs": 8, "num_features": 1, "num_labels": 2},
)


def sampler(given: Any) -> Engine:
    """Return an engine that is nothing but its kernel."""

    def run(*args: Any, **options: Any) -> EngineResult:
        raise AssertionError("the checks drive the kernel")

    updates = (Update("rate_given", ("rate",), "summed", given),)
    return Engine("draws", "mcmc", run, kernel=lambda spec: sweep_kernel(updates, spec))


def bound(given: Any) -> Engine:
    """Return a deterministic engine whose posterior is `given`, 200 draws."""

    def run(spec: Any, inputs: Any, *, rng_key: Any, progress: bool, **options: Any) -> EngineResult:
        return EngineResult({"rate": np.asarray(given({}, inputs).sample(rng_key, (200,)))[None]})

    return Engine("bound", "bound", run, random_sites=("rate",))


def check(engine: Engine, count: int = 200) -> tuple[Any, list[Ranks]]:
    """Run the check small: draws are independent, so no warm-up and no thinning."""
    return sbc_check(card, engine, 0, FAMILIES, count=count, warmup=1, thinning=1)


def test_exact_draws_pass_and_every_quantity_is_ranked() -> None:
    result, ranks = check(sampler(rate_given))
    assert result.passed, f"z {result.statistic:.1f}, limit {result.threshold:.1f}: {result.detail}, seed 0"
    assert [one.name for one in ranks] == ["log_likelihood", "rate[0]", "rate[1]"]
    assert all(len(one.rank) == 200 and one.rank.max() <= one.draws for one in ranks)


@pytest.mark.parametrize(
    ("wrong", "where"),
    [(prior, "log_likelihood"), pytest.param(too_narrow, "", marks=pytest.mark.slow)],
)
def test_wrong_posteriors_are_rejected(wrong: Any, where: str) -> None:
    """The prior is calibrated in the sites and not in the log likelihood, which depends on the data."""
    result, ranks = check(sampler(wrong), count=100)
    assert result.passed is False and "four times" in result.detail
    assert where in result.site
    if wrong is prior:
        assert max(one.z for one in ranks if one.name != "log_likelihood") < result.threshold


def test_bounds_are_reported_and_not_judged() -> None:
    result, _ = sbc_check(card, bound(too_narrow), 0, 1, count=60)
    right, _ = sbc_check(card, bound(rate_given), 0, 1, count=60)
    assert result.passed is None and right.passed is None
    assert result.statistic > 1.2 > right.statistic > 0.75
    assert "posterior sds" in result.detail and "60 data sets" in result.detail


def test_points_and_bare_engines_do_not_apply() -> None:
    point = Engine("map", "point", bound(rate_given).run)
    result, ranks = sbc_check(card, point, 0, 1)
    assert result.passed is None and "points" in result.detail and not ranks
    bare = replace(sampler(rate_given), kernel=None)
    assert "no kernel" in sbc_check(card, bare, 0, 1)[0].detail


def test_uniform_ranks_have_uniform_p_values() -> None:
    """Discrete uniform ranks, 600 sets of 100; seed 3: shares below .05 and .3 within 5 s.e."""
    rng = np.random.default_rng(3)
    p = np.array([uniformity_p(rng.integers(0, 20, 100), 19) for _ in range(600)])
    for level in (0.05, 0.3):
        share, error = (p <= level).mean(), np.sqrt(level * (1 - level) / 600)
        # The statistic is discrete, so its level may be below the nominal one, never above.
        assert level - 0.02 - 5 * error < share < level + 5 * error, f"share {share:.3f} at {level}, seed 3"


def test_shapes_of_miscalibration_have_small_p_values() -> None:
    rng = np.random.default_rng(4)
    uniform = rng.random(400)
    shapes = {
        "shifted": uniform**1.5,
        "too narrow": 0.5 + 0.5 * np.sign(uniform - 0.5) * np.abs(2 * uniform - 1) ** 0.6,
        "too wide": 0.5 + 0.5 * np.sign(uniform - 0.5) * np.abs(2 * uniform - 1) ** 1.7,
    }
    for name, values in shapes.items():
        assert uniformity_p((values * 64).astype(int), 63) < 1e-4, name


def test_ties_are_broken_at_random() -> None:
    """Binary quantities: among equal draws every rank is as likely; seed 5."""
    rng = np.random.default_rng(5)
    rank = rank_among(np.ones(6000), np.ones((6000, 4)), rng)
    counts = np.bincount(rank, minlength=5)
    assert counts.shape == (5,) and np.abs(counts - 1200).max() < 5 * np.sqrt(1200 * 0.8), "seed 5"
    assert (rank_among(np.full(3, 2.0), np.ones((3, 4)), rng) == 4).all()
    assert thinned(100, 20.7).shape == (20,) and thinned(100, 1e9).shape == (100,)


def test_slow_quantities_are_named_and_constants_left_out() -> None:
    """A random walk has too few effective draws to be ranked; a constant has no rank; seed 6."""
    rng = np.random.default_rng(6)
    walk = rng.standard_normal((50, 200)).cumsum(axis=1)
    draws = np.stack([rng.standard_normal((50, 200)), walk, np.ones((50, 200))], axis=2)
    found = calibration({"x": np.zeros((50, 3))}, {"x": draws}, 0, exact=False)
    assert [one.name for one in found.ranks] == ["x[0]"] and found.unranked == ["x[1]"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "engine"),
    [
        ("label_logistic", "gibbs"),
        ("label_logistic", "nuts"),
        ("bernoulli_poisson_topics", "gibbs"),
        ("bernoulli_poisson_topics", "gibbs_counts"),
    ],
)
def test_samplers_are_calibrated(name: str, engine: str) -> None:
    """Seed 0; 300 data sets of the tiny size (100 for trajectories)."""
    entry = registry.get(name)
    result, _ = sbc_check(entry.spec, entry.engines[engine], 0, FAMILIES)
    assert result.passed, f"z {result.statistic:.1f} above {result.threshold:.1f}: {result.detail}, seed 0"


@pytest.mark.slow
def test_a_forgotten_half_is_not_calibrated() -> None:
    entry = registry.get("label_logistic")
    weights, omega = entry.updates
    wrong = replace(weights, given=weights.mutants[0].given)
    engine = Engine(
        "wrong",
        "mcmc",
        entry.engines["gibbs"].run,
        kernel=lambda spec: sweep_kernel((omega, wrong), spec),
    )
    result, _ = sbc_check(entry.spec, engine, 0, FAMILIES, count=100)
    assert result.passed is False, result.detail
    assert jax.config.jax_enable_x64


def test_nan_draws_fail_and_have_no_rank() -> None:
    class Lost(dist.Beta):
        """Draws now and then what is no number."""

        def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
            draws = super().sample(key, sample_shape)
            return jnp.where(draws < 0.1, jnp.nan, draws)

    def lost(state: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
        right = rate_given(state, inputs)
        return Lost(right.concentration1, right.concentration0)

    result, ranks = check(sampler(lost), count=30)
    assert result.passed is False
    assert "NaN" in result.detail
    assert not ranks
    with pytest.raises(ValueError, match="NaN"):
        rank_among(np.array([np.nan]), np.array([[1.0, 2.0]]), np.random.default_rng(0))
    with pytest.raises(ValueError, match="no ranks"):
        uniformity_p(np.array([], int), 9)
