"""The joint test: right samplers pass, wrong conditionals and wrong orders of blocks do not."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from labelzoo.data import LabelData
from labelzoo.inference.bernoulli_poisson_topics import gibbs, gibbs_counts
from labelzoo.inference.bernoulli_poisson_topics.arrivals import (
    counts_by_row,
    row_exposure,
    topics_step,
)
from labelzoo.inference.bernoulli_poisson_topics.starts_mcmc import (
    draw_embedding,
    draw_precision,
    kept_sites,
    place_sites,
    precision_of,
    start_sites,
)
from labelzoo.inference.checks.geweke import drift, geweke_check, joint_drift, normal_limit
from labelzoo.inference.checks.joint import NoJointPriorError, missing_cells, replicates
from labelzoo.inference.checks.programs import ClaimError
from labelzoo.inference.checks.sweeps import sweep_kernel
from labelzoo.inference.engine import Engine, EngineResult
from labelzoo.inference.kernel import SweepKernel
from labelzoo.inference.linalg import draw_gaussian_natural
from labelzoo.inference.update import Update
from labelzoo.models import registry
from labelzoo.models.spec import ModelSpec

Given = Callable[[Mapping[str, Any], Mapping[str, Any]], Any]
FAMILIES = 50


def program(X: Any, Y: Any, observed: Any) -> None:
    """Independent label rates under a common level, which is what ties the blocks together."""
    level = numpyro.sample("level", dist.Gamma(2.0, 1.0))
    with numpyro.plate("labels", Y.shape[1]):
        rate = numpyro.sample("rate", dist.Exponential(level))
    seen = jnp.ones_like(Y, bool) if observed is None else observed
    with numpyro.plate("obs", Y.shape[0]):
        prob = jnp.broadcast_to(-jnp.expm1(-rate), Y.shape)
        numpyro.sample("Y", dist.Bernoulli(prob).mask(seen).to_event(1), obs=Y)


def with_times(X: Any, Y: Any, observed: Any) -> None:
    """The same with the time in (0, 1) of every positive's first arrival explicit."""
    level = numpyro.sample("level", dist.Gamma(2.0, 1.0))
    with numpyro.plate("labels", Y.shape[1]):
        rate = numpyro.sample("rate", dist.Exponential(level))
    with numpyro.plate("obs", Y.shape[0]):
        time = numpyro.sample("time", dist.Uniform(jnp.zeros_like(Y), 1.0).to_event(1))
    seen = jnp.ones_like(Y, bool) if observed is None else observed
    numpyro.factor("Y", jnp.where(seen, Y * (jnp.log(rate) - rate * time) - (1 - Y) * rate, 0.0).sum())


def time_given(state: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
    """Return a truncated exponential at positives, the flat prior elsewhere."""
    hit = inputs["Y"] * _seen(inputs)
    return Arrivals(jnp.where(hit > 0, state["rate"], 0.0)).to_event(1)


def rate_given(state: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
    """Return the gamma conditional of the rates."""
    Y, seen = inputs["Y"], _seen(inputs)
    exposure = (seen * jnp.where(Y > 0, state["time"], 1.0)).sum(0)
    return dist.Gamma(1.0 + (seen * Y).sum(0), state["level"] + exposure)


def level_given(state: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
    """Return the gamma conditional of the level."""
    return dist.Gamma(2.0 + state["rate"].shape[0], 1.0 + state["rate"].sum())


def _seen(inputs: Mapping[str, Any]) -> Any:
    return jnp.ones_like(inputs["Y"]) if inputs["observed"] is None else inputs["observed"]


class Arrivals(dist.Distribution):
    """Exponential times cut to (0, 1); uniform where the rate is 0."""

    support = dist.constraints.unit_interval

    def __init__(self, rate: Any) -> None:
        self.rate = rate
        super().__init__(rate.shape)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        u = jax.random.uniform(key, sample_shape + self.rate.shape)
        safe = jnp.where(self.rate > 1e-6, self.rate, 1.0)
        return jnp.where(self.rate > 1e-6, -jnp.log1p(u * jnp.expm1(-safe)) / safe, u)


UPDATES = (
    Update("time_given", ("time",), "with_times", time_given),
    Update("rate_given", ("rate",), "with_times", rate_given),
    Update("level_given", ("level",), "with_times", level_given),
)

card = ModelSpec(
    name="rates",
    views={"summed": program, "with_times": with_times},
    predict=lambda draw, X, constants: jnp.broadcast_to(
        -jnp.expm1(-draw["rate"]), (X.shape[0], draw["rate"].shape[0])
    ),
    dims={"rate": ("labels",), "level": ()},
    tiny={"num_obs": 6, "num_features": 1, "num_labels": 3},
)


def engine_of(updates: tuple[Update, ...], name: str = "sweep") -> Engine:
    """Return an engine that is nothing but its kernel."""

    def run(*args: Any, **options: Any) -> EngineResult:
        raise AssertionError("the checks drive the kernel")

    return Engine(name, "mcmc", run, kernel=lambda spec: sweep_kernel(updates, spec))


@pytest.mark.parametrize("step", [1, pytest.param(-1, marks=pytest.mark.slow)])
def test_right_updates_pass_in_any_order_from_exact_starts(step: int) -> None:
    """Auxiliary times are drawn from their conditional first; discrete labels, hidden cells. Seed 0."""
    result = geweke_check(card, engine_of(UPDATES[::step]), 0, FAMILIES, count=1200, missing=0.3)
    assert result.passed, f"z {result.statistic:.1f} above {result.threshold:.1f}: {result.detail}, seed 0"
    assert result.kind == "geweke" and "1200 joint draws" in result.detail


def _without_exposure(state: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
    return rate_given({**state, "time": jnp.ones_like(state["time"])}, inputs)


def _mean_right(state: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
    law = rate_given(state, inputs)
    return dist.Gamma(8.0 * law.concentration, 8.0 * law.rate)


@pytest.mark.parametrize(
    ("index", "wrong"),
    [
        pytest.param(1, _without_exposure, id="whole exposure"),
        pytest.param(1, _mean_right, id="an eighth of the variance", marks=pytest.mark.slow),
    ],
)
def test_wrong_conditionals_are_rejected_twice(index: int, wrong: Given) -> None:
    """A law with the right mean and an eighth of the variance among them; the repeat is said."""
    said: list[str] = []
    updates = list(UPDATES)
    updates[index] = replace(updates[index], given=wrong)
    result = geweke_check(card, engine_of(tuple(updates)), 0, FAMILIES, said.append, count=600, missing=0.3)
    assert result.passed is False and "four times" in result.detail
    assert any("repeated" in line for line in said)


def test_z_scores_are_those_of_paired_differences() -> None:
    """A shift of one column is seen in it and in nothing that does not involve it; seed 1."""
    rng = np.random.default_rng(1)
    before = {"a": rng.standard_normal((2000, 2)), "b": rng.standard_normal((2000, 1))}
    after = {"a": rng.standard_normal((2000, 2)), "b": rng.standard_normal((2000, 1)) + 0.3}
    found = drift(before, after, [rng.integers(0, 2, (2000, 3))])
    z = dict(zip(found.names, np.abs(found.z), strict=True))
    assert found.worst == "b" and z["b"] > 8
    assert max(value for name, value in z.items() if "b" not in name.replace("b^", "b")) < 4.5
    assert drift(before, before, []).z.size == 0


def test_the_limit_shares_the_rate_among_all_scores() -> None:
    assert normal_limit(1, 1) == pytest.approx(3.2905, abs=1e-3)
    assert normal_limit(2000, 10) > normal_limit(2000, 1) > normal_limit(10, 1)


def test_models_without_a_joint_prior_say_why() -> None:
    spec = ModelSpec(
        name="factor",
        views={"summed": with_times, "with_times": with_times},
        predict=card.predict,
        no_simulate="a product of experts",
    )
    with pytest.raises(NoJointPriorError, match="product of experts.*Y is a factor"):
        replicates(spec, 0, 10)
    result = geweke_check(spec, engine_of(UPDATES), 0, 1)
    assert result.passed is None and result.detail.startswith("not applicable: ")


def test_engines_without_a_kernel_and_claims_without_draws_are_refused_in_words() -> None:
    bare = replace(engine_of(UPDATES), kernel=None)
    assert "no kernel" in geweke_check(card, bare, 0, 1).detail
    density = Update("level_density", ("level",), "with_times", lambda state, inputs: lambda block: 0.0)
    with pytest.raises(ClaimError, match="level_density.*no kernel"):
        geweke_check(card, engine_of((density,)), 0, 1, count=50)
    with pytest.raises(ValueError, match="at least one update"):
        sweep_kernel((), card)
    with pytest.raises(ValueError, match="which rates lacks"):
        sweep_kernel((replace(UPDATES[0], view="nowhere"),), card)


def test_replicates_share_one_shape_and_hide_the_same_cells() -> None:
    """Lists of positives: every kept data set has the same arrays but other values."""
    spec = registry.get("bernoulli_poisson_topics").spec
    joint = replicates(spec, 3, 20, missing=0.5)
    assert joint.size == 20 and 0 < joint.share < 0.5
    assert all(len(leaf) == 20 for leaf in joint.arrays)
    assert joint.sites["embedding"].shape == (20, 5, 2)
    hidden = missing_cells(5, 4, 0.5)
    assert hidden.sum() <= 10 and not hidden.all(axis=0).any() and not hidden.all(axis=1).any()
    for index in (0, 17):
        positives = joint.inputs(index)["positives"]
        assert not hidden[np.asarray(positives.row), np.asarray(positives.label)].any()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["label_logistic", "bernoulli_poisson_topics"])
def test_program_and_simulate_draw_one_law(name: str) -> None:
    """Number of positives a label from 400 data sets each; seed 5, 5 s.e."""
    spec = registry.get(name).spec
    settings = {**spec.check_settings, **{n: v for n, v in spec.tiny.items() if n in spec.settings}}
    overrides = {n: v for n, v in settings.items() if n not in spec.tiny}
    counts = []
    for index in range(400):
        data, _ = spec.simulate(jax.random.fold_in(jax.random.key(5), index), spec.tiny, **overrides)
        counts.append(data.Y.toarray().mean())
    from labelzoo.inference.checks.joint import joint_source

    other = []
    for seed in range(8):
        source = joint_source(spec, seed, dict(spec.tiny), settings, 0.0)
        other += [
            source(index).size / (spec.tiny["num_obs"] * spec.tiny["num_labels"]) for index in range(50)
        ]
    error = np.sqrt((np.var(counts) + np.var(other)) / 400 * 2)
    z = (np.mean(counts) - np.mean(other)) / error
    assert abs(z) < 5, f"{name}: z {z:.1f}, seed 5"
    assert isinstance(data, LabelData)


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
def test_engines_stay_in_the_joint_law(name: str, engine: str) -> None:
    """Seed 0; 3000 joint draws, five sweeps."""
    entry = registry.get(name)
    result = geweke_check(entry.spec, entry.engines[engine], 0, FAMILIES)
    assert result.passed, f"z {result.statistic:.1f} above {result.threshold:.1f}: {result.detail}, seed 0"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("update", "mutant"),
    [
        ("weights_given_omega", "kappa = y, the 1/2 dropped"),
        ("weights_given_omega", "missing cells read as zeros"),
        ("weights_given_omega", "prior precision counted twice"),
        ("omega_given_weights", "b = 2"),
    ],
)
def test_wrong_conditionals_of_label_logistic_are_rejected(update: str, mutant: str) -> None:
    entry = registry.get("label_logistic")
    wrong = [m for u in entry.updates if u.name == update for m in u.mutants if m.name == mutant]
    updates = tuple(replace(u, given=wrong[0].given) if u.name == update else u for u in entry.updates)
    _assert_rejected(entry.spec, engine_of(updates[::-1]), 1500, missing=0.25)


def _assert_rejected(spec: ModelSpec, engine: Engine, count: int, **case: Any) -> None:
    """One attempt is far enough above the limit; seed 0."""
    joint = replicates(spec, 0, count, **case)
    found = joint_drift(spec, engine, 0, joint, 5, lambda line: None)
    limit = normal_limit(found.z.size, FAMILIES)
    assert found.largest > limit, f"z {found.largest:.1f} at {found.worst}, limit {limit:.1f}, seed 0"


def _embedding_before_weights(key: Any, sites: Any, root: Any, inputs: Any) -> Any:
    """U before (r, W), not redrawn."""
    keys = jax.random.split(key, 5)
    now = gibbs.draw_first_arrivals(keys[0], sites, inputs)
    now = topics_step(keys[1], now, inputs)
    counts, exposure = counts_by_row(now, inputs), row_exposure(now, inputs)
    now = draw_embedding(keys[2], counts, exposure, now, inputs)
    now = gibbs.shape_and_weights_move(keys[3], counts, exposure, root, now, inputs)
    return draw_precision(keys[4], now, inputs)


def _topics_between(key: Any, sites: Any, root: Any, inputs: Any) -> Any:
    """V between (r, W) and U: the same as (r, W) with the exposure of the old V."""
    keys = jax.random.split(key, 5)
    now = gibbs.draw_first_arrivals(keys[0], sites, inputs)
    counts = counts_by_row(now, inputs)
    now = gibbs.shape_and_weights_move(keys[1], counts, row_exposure(now, inputs), root, now, inputs)
    now = topics_step(keys[2], now, inputs)
    now = draw_embedding(keys[3], counts, row_exposure(now, inputs), now, inputs)
    return draw_precision(keys[4], now, inputs)


def _whole_exposure(key: Any, sites: Any, root: Any, inputs: Any) -> Any:
    """Positives exposed for the whole unit of time where V is drawn."""
    keys = jax.random.split(key, 5)
    now = gibbs.draw_first_arrivals(keys[0], sites, inputs)
    whole = {**now, "arrival_time": jnp.ones_like(now["arrival_time"])}
    now = {**topics_step(keys[1], whole, inputs), "arrival_time": now["arrival_time"]}
    counts, exposure = counts_by_row(now, inputs), row_exposure(now, inputs)
    now = gibbs.shape_and_weights_move(keys[2], counts, exposure, root, now, inputs)
    now = draw_embedding(keys[3], counts, exposure, now, inputs)
    return draw_precision(keys[4], now, inputs)


def _arrival_engine(wrong: Any) -> Engine:
    def sweep(key: Any, sites: Any, adapted: Any, inputs: Any) -> Any:
        now = wrong(key, sites, adapted["whitening"], inputs)
        return {name: now[name] if name in now else sites[name] for name in sites}, {}

    def build(spec: ModelSpec) -> SweepKernel:
        return SweepKernel(spec.views["summed"], gibbs.start, sweep, outputs=kept_sites, place=place_sites)

    return Engine("wrong", "mcmc", gibbs.run, kernel=build)


def _omega_before_shape(key: Any, sites: Any, adapted: Any, inputs: Any) -> Any:
    """The count sampler with omega of the old r."""
    keys = jax.random.split(key, 7)
    now = gibbs_counts.draw_topics(keys[1], gibbs_counts.draw_counts(keys[0], sites, inputs), inputs)
    now = {**now, "omega": gibbs_counts.omega_given_rest(now, inputs).sample(keys[2])}
    now = gibbs_counts.draw_shape(keys[3], now, inputs)
    omega, potential = gibbs_counts.weights_natural(now, inputs)
    precision = precision_of(now, inputs)
    now["weights"] = draw_gaussian_natural(keys[4], inputs["X"], omega, potential, precision)
    counts, exposure = gibbs_counts.row_counts(now, inputs), gibbs_counts.count_exposure(now, inputs)
    now = draw_precision(keys[6], draw_embedding(keys[5], counts, exposure, now, inputs), inputs)
    return {name: now[name] for name in sites}, {}


def _count_engine(wrong: Any) -> Engine:
    def build(spec: ModelSpec) -> SweepKernel:
        start = lambda key, inputs: (start_sites(key, inputs), ())  # noqa: E731
        return SweepKernel(spec.views["summed"], start, wrong, outputs=kept_sites, place=place_sites)

    return Engine("wrong", "mcmc", gibbs_counts.run, kernel=build)


TIED = {
    "count": 3000,
    "settings": {
        "num_topics": 1,
        "topic_concentration": 0.5,
        "shape": 1.0,
        "intercept_precision": 0.25,
    },
    "sizes": {"num_obs": 10, "num_features": 1, "num_labels": 2},
    "missing": np.tile([False, True], (10, 1)),
}
"""One topic whose exposure is its share of the one label that is seen: V and W then depend on each other."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "case"),
    [
        (_arrival_engine(_embedding_before_weights), {"count": 2000, "missing": 0.5}),
        (_arrival_engine(_topics_between), TIED),
        (_arrival_engine(_whole_exposure), {"count": 3000, "missing": 0.5}),
        (
            _count_engine(_omega_before_shape),
            {
                "count": 4000,
                "missing": 0.5,
                "settings": {"num_topics": 2, "topic_concentration": 0.5, "intercept_precision": 1.0},
                "sizes": {"num_obs": 6, "num_features": 1, "num_labels": 2},
            },
        ),
    ],
    ids=["embedding before weights", "topics between", "whole exposure", "omega before shape"],
)
def test_wrong_orders_of_the_topic_samplers_are_rejected(engine: Engine, case: dict[str, Any]) -> None:
    """What the derivation of the partially collapsed sweep rules out."""
    _assert_rejected(registry.get("bernoulli_poisson_topics").spec, engine, **case)
