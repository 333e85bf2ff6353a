"""The whole compare job, run on a toy model whose engines are closed-form draws."""

import csv
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from labelzoo import whole_run
from labelzoo.comparison_run import compare_and_report, demo_run, file_stem, split_settings
from labelzoo.data import LabelData
from labelzoo.inference.engine import Engine, EngineResult
from labelzoo.inference.posterior import load as load_posterior
from labelzoo.models import registry
from labelzoo.models.spec import ModelSpec

SEEN: dict[str, dict[str, Any]] = {}


def rates_program(X: Any, Y: Any, observed: Any, prior: float) -> None:
    """Beta rates, one a label."""
    with numpyro.plate("labels", Y.shape[1]):
        numpyro.sample("rate", dist.Beta(prior, prior))


def predict(draw: Any, X_new: Any, constants: Any) -> Any:
    """Return the rates for every row."""
    return jnp.broadcast_to(draw["rate"], (X_new.shape[0], draw["rate"].shape[0]))


SPEC = ModelSpec(
    name="toy_rates",
    views={"summed": rates_program},
    predict=predict,
    settings={"prior": 1.0},
    dims={"rate": ("labels",), "topics": ("topic", "labels"), "embedding": ("obs", "topic")},
    functionals=lambda draw, inputs: {"rate": draw["rate"]},
)


def draw_rates(name: str, shift: float, inputs: Any, rng_key: Any, num_samples: int) -> EngineResult:
    """Draw from the Beta posterior, moved by `shift`; four chains."""
    positives, rows = inputs["Y"].sum(axis=0), len(inputs["Y"])
    rng = np.random.default_rng([len(name), *np.asarray(jax.random.key_data(rng_key)).ravel()])
    a, b = positives + inputs["prior"], rows - positives + inputs["prior"]
    rate = rng.beta(a, b, (4, num_samples, len(positives)))
    topics = (rate / rate.sum(axis=2, keepdims=True))[:, :, None]
    draws = {"rate": np.clip(rate + shift, 1e-6, 1 - 1e-6), "topics": topics}
    return EngineResult(draws=draws, compile_seconds=0.01, run_seconds=0.02)


def sampler(name: str, shift: float) -> Engine:
    """Return a toy engine of kind mcmc that notes how it was called."""

    def run(spec: Any, inputs: Any, *, rng_key: Any, progress: bool, **options: Any) -> EngineResult:
        SEEN[name] = {**options, "rows": len(inputs["Y"]), "prior": inputs["prior"]}
        return draw_rates(name, shift, inputs, rng_key, options["num_samples"])

    return Engine(name, "mcmc", run, ("rate",), {"num_samples": 200, "max_seconds": None})


def run_mode(spec: Any, inputs: Any, *, rng_key: Any, progress: bool, **options: Any) -> EngineResult:
    """Return the posterior mean as a point, with topics and an objective."""
    SEEN["mode"] = {**options, "rows": len(inputs["Y"]), "prior": inputs["prior"]}
    rate = (inputs["Y"].sum(axis=0) + inputs["prior"]) / (len(inputs["Y"]) + 2 * inputs["prior"])
    topics = np.tile(rate / rate.sum(), (2, 1))
    embedding = np.tile([0.1, 0.9], (len(inputs["Y"]), 1))
    draws = {"rate": rate, "topics": topics, "embedding": embedding}
    return EngineResult(
        draws={site: np.asarray(value, float)[None, None] for site, value in draws.items()},
        optimization={"objective": np.array([-9.0, -3.0, -2.9])},
        run_seconds=0.02,
        converged=False,
        message="stopped early",
    )


MODE = Engine("mode", "point", run_mode, (), {"max_iter": 50, "tolerance": 1e-5})


@pytest.fixture(scope="module", autouse=True)
def toy_model() -> Iterator[None]:
    """Register the toy model for this file alone."""
    registry.register(SPEC, engines=[sampler("exact", 0.0), sampler("same", 0.0), sampler("off", 0.2), MODE])
    yield
    registry._registry.pop(SPEC.name)


def save_toy(path: Path, rows: int, labels: int, unlabelled: int = 0) -> str:
    """Write random data; the first rows have no labels; names are hostile to HTML and to Matplotlib."""
    rng = np.random.default_rng(3)
    Y = (rng.random((rows, labels)) < np.linspace(0.15, 0.6, labels)).astype(float)
    Y[:, 0] = np.maximum(Y[:, 0], Y.sum(axis=1) == 0)
    Y[:unlabelled] = np.nan
    names = [f"<b>${i}$" for i in range(labels)]
    data = LabelData.from_arrays(rng.normal(size=(rows, 9)), Y, label_names=names)
    data.save_npz(path / "toy.npz")
    return str(path / "toy.npz")


KEYS = (
    "name kind seconds compile_seconds ess_per_second max_z max_rhat khat log_score log_score_marginals "
    "upper verdict"
)


def test_small_data_are_compared_whole(tmp_path: Path) -> None:
    source = save_toy(tmp_path, 60, 4)
    result = compare_and_report(
        "toy_rates",
        source,
        tmp_path / "out",
        engines=["exact", "same", "mode"],
        reference="exact",
        budget=60.0,
    )
    payload = result.payload
    assert payload["subset"] is None and not result.refuted and not payload["refuted"]
    assert set(KEYS.split()) <= set(payload["engines"][0])
    by_name = {row["name"]: row for row in payload["engines"]}
    assert by_name["same"]["verdict"].startswith(("agrees", "no difference"))
    assert by_name["mode"]["verdict"].startswith("approximation")
    assert all(
        by_name["mode"][key] is None for key in ("max_rhat", "khat", "max_z", "upper", "ess_per_second")
    )
    assert [row["name"] for row in payload["whole"]] == ["exact", "same", "mode", "label frequencies"]
    assert 0 < payload["seconds"] < 60
    assert payload["notes"][0] == "mode: stopped early"
    assert "held against exact on 60 rows" in payload["summary"]
    assert payload["settings"] == {"prior": SPEC.settings["prior"]}


def test_every_file_is_whole_and_the_report_stands_alone(tmp_path: Path) -> None:
    source = save_toy(tmp_path, 60, 4)
    out = tmp_path / "deep" / "out"
    result = compare_and_report(
        "toy_rates", source, out, engines=["exact", "mode"], reference="exact", prior=2.0
    )
    assert {str(path) for path in out.iterdir()} == set(result.payload["files"])
    assert json.loads((out / "comparison.json").read_text()) == result.payload
    assert load_posterior(out / "exact.nc").attrs["engine"] == "exact"
    rows = list(csv.DictReader((out / "comparison.csv").read_text().splitlines()))
    assert [row["engine"] for row in rows] == ["exact", "mode"]
    text = (out / "report.html").read_text()
    assert "<b>$" not in text and "&lt;b&gt;$0$" in text
    assert text.count("data:image/png;base64,") == len(list(out.glob("*.png"))) >= 4
    assert "prior=2.0" in result.payload["command"] and SEEN["exact"]["prior"] == 2.0


def test_a_wrong_sampler_is_refuted(tmp_path: Path) -> None:
    source = save_toy(tmp_path, 60, 4)
    result = compare_and_report(
        "toy_rates", source, tmp_path / "out", engines=["exact", "off"], reference="exact"
    )
    assert result.refuted and "off: refuted" in result.text


def test_large_data_are_cut_for_samplers_and_whole_for_points(tmp_path: Path) -> None:
    source = save_toy(tmp_path, 400, 30)
    options = {"engines": ["exact", "mode"], "reference": "exact", "budget": 60.0, "max_iter": 7}
    result = compare_and_report("toy_rates", source, tmp_path / "out", **options)
    payload = result.payload
    assert payload["subset"] == {"rows": 150, "labels": 20, "features": 8}
    assert (payload["train_rows"], payload["test_rows"]) == (120, 30) and SEEN["exact"]["rows"] == 120
    assert [row["name"] for row in payload["whole"]] == ["mode", "label frequencies"]
    assert payload["whole"][1]["macro_auc"] == 0.5 and payload["whole"][1]["macro_auc_undefined"] == 0
    assert (tmp_path / "out" / "mode_whole.nc").exists()
    assert SEEN["mode"]["max_iter"] == 7 and "max_iter" not in SEEN["exact"]
    assert 1.0 <= SEEN["exact"]["max_seconds"] < 60.0
    assert len(payload["topics"]) == 2
    assert payload["topics"][0]["weight"] == pytest.approx(0.9)
    assert len({row["obs"] for row in payload["next"]}) == 5


def test_a_missing_reference_and_an_unused_split_are_said(tmp_path: Path) -> None:
    data = LabelData.from_npz(save_toy(tmp_path, 60, 4))
    train, test = np.arange(40), np.arange(40, 60)
    split = LabelData(data.X, data.Y, label_names=data.label_names, train_index=train, test_index=test)
    split.save_npz(tmp_path / "split.npz")
    source, out = str(tmp_path / "split.npz"), tmp_path / "out"
    found = compare_and_report(
        "toy_rates", source, out, engines=["same", "mode"], reference="exact", prior=2.0
    )
    assert "toy_rates, no reference among them, on 60 rows" in found.payload["summary"]
    assert any("published split" in note for note in found.payload["notes"])
    assert found.payload["settings"]["prior"] == 2.0


def test_whole_runs_samplers_on_everything(tmp_path: Path) -> None:
    source = save_toy(tmp_path, 250, 25)
    result = compare_and_report(
        "toy_rates", source, tmp_path / "out", engines=["exact"], reference="exact", whole=True
    )
    assert result.payload["subset"] is None and SEEN["exact"]["rows"] == 200
    assert [row["name"] for row in result.payload["whole"]] == ["exact", "label frequencies"]


def test_rows_without_labels_are_the_pool(tmp_path: Path) -> None:
    source = save_toy(tmp_path, 60, 4, unlabelled=3)
    result = compare_and_report(
        "toy_rates", source, tmp_path / "out", engines=["exact"], reference="exact", seed=2
    )
    assert {row["obs"] for row in result.payload["next"]} == {"row 0", "row 1", "row 2"}
    assert all(row["hidden_labels"] == "" for row in result.payload["next"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engines": ["exactly"]}, "no engine 'exactly'"),
        ({"engines": []}, "none given"),
        ({"reference": "truth"}, "no engine 'truth'"),
        ({"num_topics": 3}, "no setting 'num_topics'.*prior.*max_iter"),
    ],
)
def test_bad_names_are_refused_before_any_run(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    source = save_toy(tmp_path, 60, 4)
    SEEN.clear()
    with pytest.raises(ValueError, match=message):
        compare_and_report("toy_rates", source, tmp_path / "out", **{"engines": ["exact", "mode"], **options})
    assert not SEEN


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    source = save_toy(tmp_path, 60, 4)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot make the folder"):
        compare_and_report(
            "toy_rates", source, tmp_path / "file" / "out", engines=["exact"], reference="exact"
        )


def test_settings_go_to_the_engines_that_know_them() -> None:
    entry = registry.get("toy_rates")
    program, options = split_settings(
        entry, ["exact", "mode"], {"prior": 2.0, "num_samples": 9, "max_iter": 3}
    )
    assert program == {"prior": 2.0}
    assert options == {"exact": {"num_samples": 9}, "mode": {"max_iter": 3}}


def test_engines_for_which_no_time_is_left_are_named() -> None:
    data = LabelData.from_arrays(np.zeros((20, 1)), np.eye(20, 4))
    found = whole_run.fit_whole(
        registry.get("toy_rates"), data, ["mode"], options={}, settings={}, seconds_left=lambda: -1.0, seed=0,
        say=lambda message: None,
    )  # fmt: skip
    assert found.notes == ["mode was left out on the whole data: 0 s left for it"]
    assert [row["name"] for row in found.rows] == ["label frequencies"] and not found.trees


def test_sweeps_are_cut_to_the_time_on_large_data(monkeypatch: pytest.MonkeyPatch) -> None:
    data = LabelData.from_arrays(np.zeros((20, 1)), np.eye(20, 4))
    cut = {"engine": MODE, "spec": SPEC, "train": data, "settings": {}, "seed": 0}
    assert whole_run.sweeps_that_fit(**cut, seconds=1.0) == {}
    monkeypatch.setattr(whole_run, "LARGE", 1)
    # Two sweeps take .02 s, so that half of .5 s less one run leaves room for 23.
    assert whole_run.sweeps_that_fit(**cut, seconds=0.5) == {"max_iter": 23}
    assert whole_run.sweeps_that_fit(**cut, seconds=0.01) == {"max_iter": 2}


def test_file_stems_stay_in_the_folder() -> None:
    assert file_stem("../a b$") == "_a_b_" and file_stem("vb_em") == "vb_em" and file_stem("..") == "_"


@pytest.mark.slow
def test_demo(tmp_path: Path) -> None:
    start = time.perf_counter()
    result = demo_run(tmp_path, budget=120.0)
    payload = result.payload
    assert payload["seconds"] <= time.perf_counter() - start + 1
    assert (tmp_path / "report.html").stat().st_size > 100_000
    assert len(payload["topics"]) == 20 and len(payload["next"]) == 5 and payload["test_rows"] == 40
    by_name = {row["name"]: row for row in payload["whole"]}
    assert by_name["vb_em"]["per_example_auc"] > by_name["label frequencies"]["per_example_auc"] + 0.05
    assert not result.refuted
