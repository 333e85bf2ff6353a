"""NUTS and SVI on programs whose posterior is known, and what they keep, refuse and report."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray as xr
from numpyro.infer import psis_diagnostic
from numpyro.infer.autoguide import AutoNormal

from labelzoo.data import LabelData
from labelzoo.inference.reference import psis_khat, reference_engines, svi
from labelzoo.inference.reference.sites import find_sites, kept_sites
from labelzoo.models.spec import ModelSpec

SD = 0.5
SHORT: dict[str, dict[str, Any]] = {
    "nuts": {"num_warmup": 10, "num_samples": 5, "num_chains": 2},
    "svi": {"num_steps": 20, "num_samples": 5, "khat_samples": 0},
}


def make_spec(program: Callable[..., Any], **fields: Any) -> ModelSpec:
    return ModelSpec("known", {"summed": program}, predict=lambda draw, X, constants: X, **fields)


def gaussian(X: Any, Y: Any, observed: Any, scale: float) -> None:
    """Linear regression with known noise, the weights written non-centred: the posterior is normal."""
    unit = numpyro.sample("unit", dist.Normal(0, 1).expand([X.shape[1], Y.shape[1]]).to_event(2))
    weights = numpyro.deterministic("weights", scale * unit)
    numpyro.deterministic("fixed", jnp.full(2, scale))
    with numpyro.plate("obs", X.shape[0]):
        numpyro.sample("Y", dist.Normal(X @ weights, SD).to_event(1), obs=Y)


KNOWN = make_spec(
    gaussian,
    settings={"scale": 2.0},
    dims={"weights": ("feature", "labels"), "fixed": ("component",), "elsewhere": ("obs",)},
)


def known_data() -> LabelData:
    rng = np.random.default_rng(3)
    return LabelData(rng.standard_normal((20, 2)), (rng.random((20, 3)) < 0.5).astype(int))


def known_posterior() -> tuple[np.ndarray, np.ndarray]:
    """Return mean (feature, labels) and covariance (feature, feature) of the weights."""
    data = known_data()
    covariance = np.linalg.inv(data.X.T @ data.X / SD**2 + np.eye(2) / 4.0)
    return covariance @ data.X.T @ data.Y.toarray() / SD**2, covariance


def run(engine: str, spec: ModelSpec = KNOWN, seed: int = 0, **options: Any) -> xr.DataTree:
    nuts, svi_engine = reference_engines(spec)
    return {"nuts": nuts, "svi": svi_engine}[engine](spec, known_data(), rng_key=seed, **options)


def test_nuts_has_the_known_moments() -> None:
    mean, covariance = known_posterior()
    tree = run("nuts", seed=5, num_warmup=200, num_samples=500)
    weights = tree["posterior"]["weights"]
    squares = (weights - mean[None, None]) ** 2
    for name, values, truth in (
        ("mean", weights, mean),
        ("variance", squares, np.broadcast_to(np.diag(covariance)[:, None], mean.shape)),
    ):
        ess = az.ess(values.to_dataset(name="x"))["x"].values
        z = (values.mean(("chain", "draw")) - truth) / (values.std(("chain", "draw")) / np.sqrt(ess))
        assert np.abs(z).max() < 5, f"{name}: largest |z| {np.abs(z).max():.2f} at seed 5"


def test_svi_finds_the_normal_posterior_and_says_so() -> None:
    mean, covariance = known_posterior()
    tree = run("svi", seed=1, guide="multivariate", num_steps=2000, num_samples=4000, num_particles=4)
    weights = tree["posterior"]["weights"].values[0]
    sd = np.sqrt(np.diag(covariance))[:, None]
    # Draws of the guide have a Monte Carlo error of 0.016 sd; the rest is what Adam leaves.
    assert (np.abs(weights.mean(axis=0) - mean) / sd).max() < 0.15
    assert (np.abs(weights.std(axis=0) / sd - 1)).max() < 0.15
    assert tree.attrs["khat"] < 0.7
    assert tree.attrs["converged"] == "yes"
    assert "settled" in tree.attrs["message"]


def test_a_short_svi_says_that_it_has_not_settled() -> None:
    tree = run("svi", num_steps=400, step_size=2e-3, num_samples=5, khat_samples=0)
    assert tree.attrs["converged"] == "no"
    assert "still falling" in tree.attrs["message"]
    assert "khat" not in tree.attrs


@pytest.mark.parametrize("engine", ["nuts", "svi"])
@pytest.mark.slow
def test_only_named_sites_are_kept_with_their_dims(engine: str) -> None:
    tree = run(engine, **SHORT[engine])
    posterior = tree["posterior"]
    assert set(posterior.data_vars) == {"weights", "fixed"}
    assert posterior["weights"].dims == ("chain", "draw", "feature", "labels")
    assert tree.attrs["random_sites"] == '["weights"]'
    np.testing.assert_allclose(posterior["fixed"], 2.0)


@pytest.mark.parametrize("engine", ["nuts", "svi"])
def test_every_site_is_kept_where_no_dims_are_named(engine: str) -> None:
    tree = run(engine, make_spec(gaussian, settings={"scale": 2.0}), **SHORT[engine])
    posterior = tree["posterior"]
    assert set(posterior.data_vars) == {"unit", "weights", "fixed"}
    np.testing.assert_allclose(posterior["weights"], 2.0 * posterior["unit"].values, rtol=1e-12)
    assert tree.attrs["random_sites"] == '["unit", "weights"]'


@pytest.mark.slow
def test_nuts_statistics_have_the_names_that_arviz_knows() -> None:
    stats = run("nuts", max_tree_depth=3, **SHORT["nuts"])["sample_stats"]
    names = {"diverging", "energy", "n_steps", "acceptance_rate", "lp", "tree_depth", "step_size"}
    assert set(stats.data_vars) == names
    assert all(stats[name].shape == (2, 5) for name in names)
    assert stats["n_steps"].max() <= 7
    assert stats["tree_depth"].max() <= 3
    assert (2 ** stats["tree_depth"] > stats["n_steps"]).all()
    assert (stats["energy"] >= -stats["lp"]).all()


@pytest.mark.parametrize("engine", ["nuts", "svi"])
@pytest.mark.slow
def test_a_seed_fixes_the_result(engine: str) -> None:
    first, same, other = (
        run(engine, seed=seed, **SHORT[engine])["posterior"]["weights"] for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, same)
    assert (first.values != other.values).all()


@pytest.mark.parametrize("chain_method", ["sequential", "vectorized"])
@pytest.mark.slow
def test_nuts_runs_its_chains_either_way(chain_method: str) -> None:
    tree = run("nuts", chain_method=chain_method, **SHORT["nuts"])
    weights = tree["posterior"]["weights"]
    assert weights.shape == (2, 5, 2, 3)
    assert (weights[0] != weights[1]).all()


@pytest.mark.parametrize("guide", ["normal", "diagonal", "multivariate", "lowrank"])
def test_every_guide_runs(guide: str) -> None:
    tree = run("svi", guide=guide, **SHORT["svi"])
    assert tree["posterior"]["weights"].shape == (1, 5, 2, 3)
    assert tree["optimization"]["objective"].shape == (20,)


class Pair(NamedTuple):
    left: Any
    right: Any


@pytest.mark.parametrize("engine", ["nuts", "svi"])
def test_inputs_may_be_numbers_words_none_and_trees(engine: str) -> None:
    def program(pair: Pair, table: dict[str, Any], count: int, word: str, nothing: None, rate: float) -> None:
        assert isinstance(count, int)
        assert word == "word"
        assert nothing is None
        mean = numpyro.sample("mean", dist.Normal(0, rate).expand([count]).to_event(1))
        numpyro.factor("fit", -((pair.left - mean[0]) ** 2).sum() - pair.right * (table["y"] ** 2).sum())

    def prepare(data: LabelData, settings: Any) -> dict[str, Any]:
        pair, table = Pair(jnp.asarray(data.X), 2), {"y": np.ones(3)}
        return {"pair": pair, "table": table, "count": 3, "word": "word", "nothing": None, "rate": 1.5}

    tree = run(engine, make_spec(program, prepare=prepare), **SHORT[engine])
    assert tree["posterior"]["mean"].shape[2:] == (3,)


def test_a_loss_that_breaks_stops_svi_and_names_the_step() -> None:
    def program(X: Any, Y: Any, observed: Any) -> None:
        w = numpyro.sample("w", dist.Normal(0, 1))
        numpyro.factor("up", 50.0 * w + jnp.where(w > 3.0, jnp.nan, 0.0))

    with pytest.raises(FloatingPointError, match=r"svi: the loss is nan at step \d+ of 500"):
        run("svi", make_spec(program), num_steps=500)


def test_views_that_cannot_run_are_refused() -> None:
    def discrete(X: Any, Y: Any, observed: Any) -> None:
        numpyro.sample("p", dist.Beta(1.0, 1.0))
        numpyro.sample("z", dist.Bernoulli(0.5))

    def empty(X: Any, Y: Any, observed: Any) -> None:
        numpyro.deterministic("one", 1.0)

    for engine in ("nuts", "svi"):
        with pytest.raises(ValueError, match="discrete sites z; NUTS and SVI need them summed out"):
            run(engine, make_spec(discrete))
        with pytest.raises(ValueError, match="has no latent site"):
            run(engine, make_spec(empty))


def test_sites_are_found_without_running_the_program() -> None:
    inputs = KNOWN.prepare(known_data(), KNOWN.settings)
    sites = find_sites(KNOWN, inputs)
    assert sites[:2] == (("unit",), ("weights", "fixed"))
    assert kept_sites(KNOWN, sites) == ("weights", "fixed")


@pytest.mark.parametrize(
    ("engine", "options", "words"),
    [
        ("nuts", {"target_accept_prob": 1.0}, "target_accept_prob must be between 0 and 1, got 1.0"),
        ("nuts", {"max_tree_depth": 0}, "max_tree_depth must be a positive integer, got 0"),
        ("nuts", {"init": "zero"}, "init must be one of uniform, median, sample, feasible, got 'zero'"),
        ("nuts", {"num_samples": 0}, "num_samples must be an integer of at least 1, got 0"),
        ("nuts", {"guide": "normal"}, "engine 'nuts' knows no setting 'guide'"),
        (
            "svi",
            {"guide": "delta"},
            "guide must be one of normal, diagonal, multivariate, lowrank, got 'delta'",
        ),
        ("svi", {"num_steps": 0}, "num_steps must be a positive integer, got 0"),
        ("svi", {"num_samples": 2.5}, "num_samples must be a positive integer, got 2.5"),
        ("svi", {"step_size": 0.0}, "step_size must be positive and finite, got 0.0"),
        ("svi", {"khat_samples": 50}, "khat_samples must be 0 or an integer of at least 100, got 50"),
        ("svi", {"init": 3}, "init must be one of"),
    ],
)
def test_bad_options_are_named(engine: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        run(engine, **options)


def test_a_long_trace_is_thinned_to_end_at_the_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run("svi", **SHORT["svi"])["optimization"]["objective"].values
    monkeypatch.setattr(svi, "MAX_TRACE", 7)
    thinned = run("svi", **SHORT["svi"])["optimization"]["objective"].values
    np.testing.assert_array_equal(thinned, whole[[1, 4, 7, 10, 13, 16, 19]])


def test_judge_knows_a_flat_trace_from_a_falling_one() -> None:
    noise = np.random.default_rng(0).standard_normal(1000)
    flat, _ = svi.judge(500 + noise)
    falling, words = svi.judge(500 + noise - np.arange(1000) * 0.02)
    few, why = svi.judge(np.zeros(50))
    assert flat
    assert not falling
    assert "still falling" in words
    assert not few
    assert "too few" in why


@pytest.mark.parametrize("shape", [0.2, 0.5, 0.9])
def test_khat_is_the_shape_of_a_pareto_tail(shape: float) -> None:
    """Weights exp(shape * exponential) are Pareto with that shape.

    With M = 3 sqrt(S) tail points the estimate has s.d. (1 + k) / sqrt(M) (Zhang and Stephens 2009), and the
    prior pulls it by 10 / (M + 10) towards 1/2.
    """
    size = 20_000
    tail = 3 * math.sqrt(size)
    log_weights = shape * np.random.default_rng(17).exponential(size=size)
    expected = (tail * shape + 10 * 0.5) / (tail + 10)
    z = (psis_khat(log_weights) - expected) / ((1 + shape) / math.sqrt(tail))
    assert abs(z) < 5, f"k-hat of a tail of shape {shape}: z = {z:.2f} at seed 17"


def test_khat_at_the_edges() -> None:
    rng = np.random.default_rng(1)
    assert psis_khat(np.full(200, 3.0)) == -np.inf
    assert psis_khat(np.r_[np.nan, rng.standard_normal(200)]) == np.inf
    assert psis_khat(np.r_[np.inf, rng.standard_normal(200)]) == np.inf
    assert psis_khat(np.r_[np.full(150, -np.inf), 0.0]) > 0.7
    with pytest.raises(ValueError, match="k-hat needs at least 100 weights, got 99"):
        psis_khat(rng.standard_normal(99))


def test_khat_of_a_guide_is_that_of_numpyro() -> None:
    """A guide with half the posterior's sd in one dimension has weights of known shape, as NumPyro finds."""

    def program() -> None:
        numpyro.sample("w", dist.Normal(0, 1))

    guide = AutoNormal(program)
    with numpyro.handlers.seed(rng_seed=0):
        guide()
    params = {"w_auto_loc": jnp.zeros(()), "w_auto_scale": jnp.asarray(0.5)}
    from labelzoo.inference.reference import guide_log_weights

    ours = psis_khat(guide_log_weights(jax.random.key(1), params, program, guide, {}, 4000))
    theirs = psis_diagnostic(jax.random.key(2), params, program, guide, num_particles=4000)
    # Two estimates from tails of 190 weights: s.d. of each about (1 + k) / sqrt(190) = .13.
    assert abs(ours - theirs) < 5 * 0.13 * math.sqrt(2), (ours, theirs)
    assert ours > 0.5
