"""Stored references: how they are admitted, written and read, and what agrees with them."""

import importlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray as xr
from scipy.stats import norm

from labelzoo.data import LabelData
from labelzoo.inference.checks import reference_files
from labelzoo.inference.checks.agreement import (
    agreement,
    check_agreement,
    gaps,
    sequential_agreement,
)
from labelzoo.inference.checks.reference_files import as_settings, find_data
from labelzoo.inference.checks.reference_posterior import (
    NUTS_SETTINGS,
    ReferenceRefused,
    load_reference,
    next_options,
    reference_data,
    reference_names,
    reference_posterior,
    sd_errors,
    shortcomings,
    write_reference,
)
from labelzoo.inference.compare.verdict import RHAT_LIMIT, moments
from labelzoo.inference.fit import fit
from labelzoo.models import registry
from labelzoo.models.spec import ModelSpec

# By import_module, since a package may export functions of the same names as its modules.
agreement_module = importlib.import_module("labelzoo.inference.checks.agreement")
reference_module = importlib.import_module("labelzoo.inference.checks.reference_posterior")

SHIPPED = (
    "bernoulli_poisson_topics_tiny",
    "bpca_tiny",
    "compressed_gp_tiny",
    "gp_bernoulli_mixture_tiny",
    "kernel_neighbors_tiny",
    "label_gp_tiny",
    "label_logistic_tiny",
    "sparse_bayes_tiny",
)


def _program(X: Any, Y: Any, observed: Any, scale: float) -> None:
    numpyro.sample("theta", dist.Normal(jnp.arange(3.0), scale).to_event(1))


def _functionals(draw: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {"theta": draw["theta"], "constant": 0.0 * draw["theta"][0] + 2.0}


def _simulate(key: Any, sizes: Mapping[str, int], **overrides: Any) -> tuple[LabelData, dict[str, Any]]:
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
    X = rng.standard_normal((sizes["num_obs"], 1))
    return LabelData.from_arrays(X, np.zeros((sizes["num_obs"], 2), int)), {}


NORMALS = ModelSpec(
    name="three_normals",
    views={"summed": _program},
    predict=lambda draw, X, constants: jnp.zeros((X.shape[0], 2)),
    settings={"scale": 1.0},
    dims={"theta": ("component",)},
    functionals=_functionals,
    simulate=_simulate,
    tiny={"num_obs": 2},
)


class _Exact:
    """Stands for NUTS: independent draws of the three normals, and divergences where asked."""

    name, kind = "nuts", "mcmc"
    options = {"num_warmup": 0, "num_chains": 4, "num_samples": 0, "target_accept_prob": 0, "dense_mass": 0}

    def __init__(self, divergent_below: float = 0.0) -> None:
        self.divergent_below = divergent_below

    def __call__(
        self, spec: ModelSpec, data: Any, *, rng_key: int, progress: bool, **told: Any
    ) -> xr.DataTree:
        size = (told["num_chains"], told["num_samples"])
        rng = np.random.default_rng(rng_key)
        theta = np.arange(3.0) + told["scale"] * rng.standard_normal((*size, 3))
        stats = dict.fromkeys(("n_steps", "tree_depth"), np.ones(size))
        stats["diverging"] = np.full(size, told["target_accept_prob"] < self.divergent_below)
        return _tree({"theta": theta}, data, stats, told)


def _tree(draws: Any, data: Any, stats: Any, told: Any, kind: str = "mcmc") -> xr.DataTree:
    groups = {
        group: xr.Dataset(
            {n: (("chain", "draw", *[f"{n}_{i}" for i in range(v.ndim - 2)]), v) for n, v in values.items()}
        )
        for group, values in (("posterior", draws), ("sample_stats", stats))
    }
    tree = xr.DataTree.from_dict(groups)
    settings = json.dumps({"scale": told["scale"]})
    attrs = {"model": NORMALS.name, "engine": "exact", "kind": kind, "settings": settings}
    tree.attrs = {**attrs, "data_hash": data.hash()}
    return tree


@pytest.fixture(scope="module", autouse=True)
def forget() -> Iterator[None]:
    """Take the made-up model off the registry again."""
    yield
    registry._registry.pop(NORMALS.name, None)


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put an engine of independent draws in the place of NUTS."""
    return lambda engine: monkeypatch.setattr(reference_module, "find_engine", lambda *arguments: engine)


@pytest.fixture(scope="module")
def reference() -> dict[str, Any]:
    """A reference to three normals, made by NUTS under easier rules."""
    options = {"num_warmup": 300, "num_samples": 1000, "num_chains": 2}
    return reference_posterior(NORMALS, "tiny:3", seed=5, min_ess=400, **options)


def _draws(shift: float = 0.0, scale: float = 1.0, count: int = 1000, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"theta": np.arange(3.0) + shift + scale * rng.standard_normal((4, count, 3))}


def test_reference_holds_numbers_and_what_made_them(reference: dict[str, Any]) -> None:
    assert set(reference["functionals"]) == {"constant", "theta[0]", "theta[1]", "theta[2]"}
    for i in range(3):
        row = reference["functionals"][f"theta[{i}]"]
        assert abs(row["mean"] - i) < 5 * row["mcse_mean"]
        assert abs(row["sd"] - 1.0) < 5 * row["mcse_sd"]
        assert row["rhat"] < RHAT_LIMIT
        assert min(row["ess_bulk"], row["ess_tail"]) >= 400
    assert reference["functionals"]["constant"] == {
        "mean": 2.0,
        "sd": 0.0,
        **dict.fromkeys(("mcse_mean", "mcse_sd", "rhat", "ess_bulk", "ess_tail")),
    }
    assert reference["data"] == {"source": "tiny", "seed": 3, "sizes": {"num_obs": 2}, "settings": {}}
    assert set(reference["versions"]) == {"python", "labelzoo", "numpyro", "jax", "arviz"}
    assert reference["diagnostics"]["divergences"] == 0
    assert reference["diagnostics"]["options"]["num_chains"] == 2
    assert reference["admission"] == {"max_rhat": RHAT_LIMIT, "min_ess": 400, "divergences": 0}
    assert json.loads(json.dumps(reference, allow_nan=False)) == reference


def test_too_short_a_run_is_made_again_longer(exact: Any) -> None:
    exact(_Exact())
    made = reference_posterior(NORMALS, seed=5, min_ess=3000, num_samples=500)
    assert [run["seed"] for run in made["refused_runs"]] == [5]
    assert made["refused_runs"][0]["min_ess_tail"] < 3000
    assert made["diagnostics"]["seed"] == 6
    assert made["diagnostics"]["draws_a_chain"] > 750
    assert made["diagnostics"]["min_ess_tail"] >= 3000


def test_divergences_ask_for_smaller_steps(exact: Any) -> None:
    exact(_Exact(divergent_below=0.99))
    made = reference_posterior(NORMALS, seed=5, min_ess=1000, num_samples=1000)
    assert [run["divergences"] for run in made["refused_runs"]] == [4000, 4000]
    targets = [run["options"]["target_accept_prob"] for run in [*made["refused_runs"], made["diagnostics"]]]
    assert targets == pytest.approx([0.9, 0.975, 0.99375])
    exact(_Exact(divergent_below=1.0))
    with pytest.raises(
        ReferenceRefused, match="no reference after 4 runs .*: 4000 divergent draws, none allowed"
    ):
        reference_posterior(NORMALS, seed=5, min_ess=1000, num_samples=1000)


def test_refused_reference_is_not_written(tmp_path: Path, exact: Any) -> None:
    exact(_Exact())
    words = r"no reference after 1 run of at most 100 draws a chain: .*\d+ effective bulk draws of theta"
    with pytest.raises(ReferenceRefused, match=words):
        write_reference(NORMALS, tmp_path / "normals.json", max_draws=100)
    assert list(tmp_path.iterdir()) == []
    assert issubclass(ReferenceRefused, ValueError)


def test_write_and_load(tmp_path: Path, exact: Any) -> None:
    exact(_Exact())
    out = tmp_path / "normals.json"
    made = write_reference(NORMALS, out, data="tiny:2", seed=1, scale=0.5)
    assert load_reference(out) == made
    assert made["command"] == (
        "labelzoo fit three_normals --data tiny:2 --engine nuts --reference --seed 1 --set scale=0.5 "
        "--out normals.json"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["normals.json"]
    assert made["settings"] == {"scale": 0.5}
    assert made["functionals"]["theta[0]"]["sd"] == pytest.approx(0.5, rel=0.03)
    assert reference_data(made).hash() == made["data_hash"]


GOOD = {
    "max_rhat": 1.002,
    "max_rhat_of": "a",
    "min_ess_bulk": 12_000.0,
    "min_ess_bulk_of": "a",
    "min_ess_tail": 11_000.0,
    "min_ess_tail_of": "b",
    "divergences": 0,
}


@pytest.mark.parametrize(
    ("change", "said", "options"),
    [
        ({}, [], None),
        (
            {"max_rhat": 1.0113},
            ["R-hat 1.0113 of a, not below 1.01"],
            {"num_samples": 7500},
        ),
        ({"max_rhat": np.nan}, ["R-hat nan of a, not below 1.01"], {"num_samples": 7500}),
        (
            {"min_ess_tail": 4000.0},
            ["4000 effective tail draws of b, 10000 needed"],
            {"num_samples": 15_000},
        ),
        ({"divergences": 2}, ["2 divergent draws, none allowed"], {"target_accept_prob": 0.975}),
        (
            {"divergences": 1, "min_ess_bulk": 100.0},
            ["100 effective bulk draws of a, 10000 needed", "1 divergent draws, none allowed"],
            {"target_accept_prob": 0.975, "num_samples": 40_000},
        ),
    ],
)
def test_rules_of_admission(change: dict[str, Any], said: list[str], options: dict[str, Any] | None) -> None:
    found = {**GOOD, **change}
    assert shortcomings(found, 10_000) == said
    if options is not None:
        after = next_options(NUTS_SETTINGS, found, 10_000, 40_000)
        assert after == pytest.approx({**NUTS_SETTINGS, **options})


def test_no_run_beyond_the_limit() -> None:
    at_limit = {**NUTS_SETTINGS, "num_samples": 40_000}
    assert next_options(at_limit, {**GOOD, "min_ess_bulk": 9000.0}, 10_000, 40_000) is None
    assert next_options(at_limit, {**GOOD, "divergences": 1}, 10_000, 40_000) is not None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": "nonesuch"}, "no model 'nonesuch'"),
        ({"data": "tiny:x"}, "data 'tiny:x': write tiny or tiny:SEED"),
        ({"data": "no-such-file.npz"}, "no-such-file.npz: no such file"),
        ({"depth": 3}, "has no setting 'depth'"),
        ({"min_ess": 0}, "min_ess must be a positive integer, got 0"),
        ({"max_draws": 1.5}, "max_draws must be a positive integer, got 1.5"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reference_posterior(**{"model": NORMALS, **arguments})


def test_a_model_that_cannot_simulate_needs_data() -> None:
    spec = ModelSpec("silent", {"summed": _program}, NORMALS.predict, no_simulate="a product of experts")
    with pytest.raises(ValueError, match="'silent' does not simulate: a product of experts; pass data"):
        find_data(spec, "tiny", {})


@pytest.mark.parametrize("name", ["normals.nc", "nowhere/normals.json"])
def test_bad_output_is_refused_before_any_work(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="a reference is written to a .json file in a folder that exists"):
        write_reference(NORMALS, tmp_path / name)


def test_wrong_files(tmp_path: Path, reference: dict[str, Any]) -> None:
    path = tmp_path / "wrong.json"

    def refuses(text: str, message: str) -> None:
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            load_reference(path)

    with pytest.raises(ValueError, match=r"no reference 'absent': .*label_logistic_tiny.*, or a .json file"):
        load_reference("absent")
    refuses("{", "is not JSON")
    refuses("[1]", "is not of format 1")
    refuses(json.dumps({**reference, "format": 2}), "is not of format 1")
    refuses(json.dumps({k: v for k, v in reference.items() if k != "seed"}), "lacks seed")
    broken = {**reference, "functionals": {"theta[0]": {"mean": 1.0}}}
    refuses(json.dumps(broken), r"theta\[0\] lacks sd, mcse_mean, mcse_sd, rhat, ess_bulk, ess_tail")
    hollow = {**reference["functionals"]["constant"], "mean": None}
    refuses(json.dumps({**reference, "functionals": {"constant": hollow}}), "constant lacks mean")


def test_right_draws_agree_and_wrong_ones_are_refuted(reference: dict[str, Any]) -> None:
    right = agreement(_draws(seed=1), reference)
    assert right.passed, right.detail
    assert (right.kind, right.name) == ("agreement", "draws")
    shifted = agreement(_draws(shift=0.5, seed=1), reference)
    assert shifted.passed is False
    assert "refuted" in shifted.detail
    assert "the mean of theta" in shifted.detail
    narrow = agreement(_draws(scale=0.7, seed=1), reference)
    assert narrow.passed is False
    assert "the sd of theta" in narrow.detail


def test_a_functional_that_should_not_move_is_noticed(reference: dict[str, Any]) -> None:
    frozen = _draws(seed=1)
    frozen["theta"][:, :, 0] = 0.0
    result = agreement(frozen, reference)
    assert result.passed is False
    assert result.statistic == np.inf


def test_no_verdict_without_convergence(reference: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    apart = _draws(seed=1)
    apart["theta"][0] += 1.0
    result = agreement(apart, reference)
    assert result.passed is None
    assert "no verdict: chains not converged, R-hat" in result.detail
    monkeypatch.setattr(agreement_module, "MIN_OWN_ESS", 10**6)
    few = agreement(_draws(seed=1), reference)
    assert few.passed is None
    assert "no verdict: 3" in few.detail
    assert "effective draws, 1000000 needed" in few.detail


def test_false_alarms_are_as_rare_as_stated(reference: dict[str, Any]) -> None:
    # 150 exact samplers against an exact reference at a family-wise rate of .1, 3 means and 3 sds.
    exact = {"mean": np.arange(3.0), "sd": np.ones(3), "mcse_mean": np.zeros(3), "mcse_sd": np.zeros(3)}
    limit = norm.isf(0.1 / 12)
    alarms = 0
    for seed in range(150):
        values = _draws(count=250, seed=1000 + seed)["theta"]
        found = gaps(moments(values), sd_errors(values), exact)
        alarms += max(found.z_mean.max(), found.z_sd.max()) > limit
    expected, spread = 15.0, np.sqrt(150 * 0.1 * 0.9)
    assert abs(alarms - expected) < 5 * spread, (
        f"{alarms} alarms of 150, z = {(alarms - expected) / spread:.1f}"
    )


def test_a_fresh_run_decides(reference: dict[str, Any]) -> None:
    asked: list[tuple[int, int]] = []

    def run(seed: int, factor: int, *shifts: float) -> dict[str, Any]:
        asked.append((seed, factor))
        return _draws(shift=shifts[len(asked) - 1], seed=11 + len(asked), count=800 * factor)

    unlucky = sequential_agreement(lambda s, f: run(s, f, 1.0, 0.0), reference, seed=4)
    assert unlucky.passed, unlucky.detail
    assert asked[0] == (4, 1)
    assert asked[1][0] != 4
    assert asked[1][1] == 4
    assert "after seed 4: refuted" in unlucky.detail
    asked.clear()
    wrong = sequential_agreement(lambda s, f: run(s, f, 1.0, 1.0), reference, seed=4)
    assert wrong.passed is False
    asked.clear()
    right = sequential_agreement(lambda s, f: run(s, f, 0.0), reference, seed=4)
    assert right.passed
    assert asked == [(4, 1)]


def test_a_sampler_that_never_converges_fails(reference: dict[str, Any]) -> None:
    def run(seed: int, factor: int) -> dict[str, Any]:
        draws = _draws(seed=seed % 1000, count=400 * factor)
        draws["theta"][0] += 2.0
        return draws

    result = sequential_agreement(run, reference, seed=4)
    assert result.passed is False
    assert "not converged" in result.detail


@pytest.mark.parametrize(
    ("posterior", "message"),
    [
        ({}, "posterior must be a DataTree, or a mapping"),
        ([1.0], "posterior must be a DataTree, or a mapping"),
        (
            {"other": np.zeros((2, 500, 3))},
            "lacks the site 'theta', which the functionals of three_normals read",
        ),
        ({"theta": np.zeros(500)}, r"draws must share their first two axes \(chain, draw\)"),
        (
            {"theta": np.zeros((4, 500, 3)), "b": np.zeros((4, 400))},
            r"draws must share their first two axes \(chain, draw\)",
        ),
        ({"theta": np.zeros((4, 500, 2))}, "are not those of the reference of three_normals"),
    ],
)
def test_wrong_posteriors(reference: dict[str, Any], posterior: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        agreement(posterior, reference)


def test_wrong_rate_engine_and_reference(reference: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="rate must be between 0 and 1, got 0"):
        agreement(_draws(), reference, rate=0)
    with pytest.raises(ValueError, match="has no engine 'gibbs'"):
        check_agreement(reference, "gibbs")
    with pytest.raises(ValueError, match="reference 'given' is not of format 1"):
        agreement(_draws(), {"mean": 0.0})
    other = LabelData.from_arrays(np.ones((2, 1)), np.zeros((2, 2), int))
    with pytest.raises(ValueError, match="the data are not those of the reference: hash"):
        agreement(_draws(), reference, data=other)
    unnamed = {**reference, "data": {"source": "given"}}
    with pytest.raises(ValueError, match="made from data in memory: pass data"):
        agreement(_draws(), unnamed)
    assert agreement(_draws(seed=1), unnamed, data=reference_data(reference)).passed


def test_posteriors_of_other_models_data_or_settings_are_refused(reference: dict[str, Any]) -> None:
    data = reference_data(reference)
    tree = _tree(_draws(seed=1), data, {}, {"scale": 1.0})
    assert agreement(tree, reference).passed
    for attribute, value, message in (
        ("model", "other", "the posterior is of other, the reference of three_normals"),
        ("data_hash", "0", "fitted to other data than the reference"),
        ("settings", '{"scale": 2.0}', "the posterior has scale=2.0, the reference 1.0"),
    ):
        changed = tree.copy()
        changed.attrs = {**tree.attrs, attribute: value}
        with pytest.raises(ValueError, match=message):
            agreement(changed, reference)


def test_bounds_and_points_are_reported_and_not_judged(reference: dict[str, Any]) -> None:
    data = reference_data(reference)
    for kind in ("bound", "point"):
        result = agreement(_tree(_draws(shift=0.3), data, {}, {"scale": 1.0}, kind), reference)
        assert result.passed is None
        assert f"{kind} engine, not judged: means up to 0.3" in result.detail


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_references(name: str) -> None:
    stored = load_reference(name)
    path = Path(reference_files.__file__).parents[2] / "references" / f"{name}.json"
    assert path.stat().st_size < 60_000
    assert shortcomings(stored["diagnostics"], 10_000) == []
    assert stored["admission"] == {"max_rhat": 1.01, "min_ess": 10_000, "divergences": 0}
    moving = [row for row in stored["functionals"].values() if row["sd"] > 0]
    assert max(row["rhat"] for row in moving) < 1.01
    assert min(min(row["ess_bulk"], row["ess_tail"]) for row in moving) >= 10_000
    assert reference_data(stored).hash() == stored["data_hash"]
    assert stored["command"].startswith(f"labelzoo fit {stored['model']} --data tiny:")


def test_every_shipped_reference_is_tested() -> None:
    assert tuple(reference_names()) == SHIPPED
    assert {load_reference(name)["model"] for name in SHIPPED} == set(registry.BUILT_IN)


def test_gibbs_of_label_logistic_agrees_and_labels_swapped_do_not() -> None:
    stored = load_reference("label_logistic_tiny")
    kept: list[xr.DataTree] = []

    def run(seed: int, factor: int) -> xr.DataTree:
        options = {"num_warmup": 200, "num_samples": 1500 * factor, **as_settings(stored["settings"])}
        kept.append(fit("label_logistic", reference_data(stored), "gibbs", seed=seed, **options))
        return kept[-1]

    result = sequential_agreement(run, stored, seed=21)
    assert result.passed, result.detail
    swapped = kept[-1]["posterior"]["weights"].values[:, :, [1, 0, 2]]
    refuted = agreement({"weights": swapped}, stored)
    assert refuted.passed is False, refuted.detail


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["gibbs", "gibbs_counts"])
def test_samplers_of_topics_agree(engine: str) -> None:
    result = check_agreement("bernoulli_poisson_topics_tiny", engine, seed=21)
    assert result.passed, result.detail


@pytest.mark.slow
def test_gibbs_of_the_mixture_agrees() -> None:
    result = check_agreement("gp_bernoulli_mixture_tiny", "gibbs", seed=21)
    assert result.passed, result.detail


@pytest.mark.slow
def test_a_slightly_wrong_prior_is_refuted() -> None:
    stored = load_reference("label_logistic_tiny")
    right = as_settings(stored["settings"])
    options = {**right, "prior_scale": 1.1, "num_warmup": 200, "num_samples": 4000}
    tree = fit("label_logistic", reference_data(stored), "gibbs", seed=21, **options)
    result = agreement({"weights": tree["posterior"]["weights"].values}, stored)
    assert result.passed is False, result.detail
    mean_field = check_agreement(stored, "mean_field")
    assert mean_field.passed is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mcse_mean": float("inf")}, "no finite number"),
        ({"mcse_mean": 1e3}, "larger than its sd"),
        ({"mcse_sd": -1.0}, "negative"),
        ({"mean": "x"}, "no finite number"),
        ({"mean": float("nan")}, "no finite number"),
    ],
)
def test_edited_numbers_of_a_reference_are_refused(change: dict[str, Any], words: str) -> None:
    stored = reference_files.load_reference("label_logistic_tiny")
    first = next(iter(stored["functionals"]))
    edited = {**stored["functionals"], first: {**stored["functionals"][first], **change}}
    with pytest.raises(ValueError, match=words):
        reference_files.validated({**stored, "functionals": edited}, "edited")


@pytest.mark.parametrize(
    "change",
    [
        {"diagnostics": {"max_rhat": 9.0, "min_ess_bulk": 2e4, "min_ess_tail": 2e4, "divergences": 0}},
        {"diagnostics": {"max_rhat": 1.0, "min_ess_bulk": 2e4, "min_ess_tail": 2e4, "divergences": 100}},
        {"diagnostics": {}},
        {"functionals": []},
        {"functionals": {}},
        {"data": "tiny"},
        {"settings": [1]},
        {"model": None},
    ],
)
def test_references_that_break_their_rules_or_types_are_refused(change: dict[str, Any]) -> None:
    stored = reference_files.load_reference("label_logistic_tiny")
    with pytest.raises(ValueError, match="reference 'edited'"):
        reference_files.validated({**stored, **change}, "edited")


def test_seeds_of_tiny_data_are_plain_numbers() -> None:
    for source in ("tiny:x", "tiny:²", "tiny:99999999999999999999"):
        with pytest.raises(ValueError, match="write tiny or tiny:SEED"):
            find_data(registry.get("label_logistic").spec, source, {})
