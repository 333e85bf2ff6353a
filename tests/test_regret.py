"""Regret of asking from an approximation: known answers on toy draws, and refusals."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.stats import t as student

from labelzoo.acquisition.anomalies import condition as condition_ensemble
from labelzoo.acquisition.anomalies import condition_gram, make_ensemble, target_gram
from labelzoo.cli import run
from labelzoo.data import LabelData
from labelzoo.inference.engine import Engine, EngineResult
from labelzoo.models import registry
from labelzoo.models.spec import ModelSpec
from labelzoo.regret import (
    Draws,
    Judge,
    Regret,
    find_usable,
    judge_engine,
    make_judge,
    ratio,
    usable,
    value_function,
)
from labelzoo.regret_fits import largest_rhat, split_parts
from labelzoo.regret_run import measure_regret, regret_and_report
from labelzoo.regret_text import verdict

POOL, TARGETS, LABELS, SAMPLES, REPLICATES, BATCH = 30, 20, 2, 250, 6, 4
LIMIT = float(student.ppf(1 - 5e-4, REPLICATES - 1))
"""Student's t beyond which a mean over the replicates is not 0, at .001 on two sides."""
Array = Any


def field(rng: np.random.Generator, turned: bool = False) -> Draws:
    """Return draws of three latents; rows differ in how much these move them, `turned` in reverse order."""
    strength = np.linspace(0.0, 1.5, POOL)
    strength = strength[::-1] if turned else strength
    shape = np.random.default_rng(7)
    loads = shape.standard_normal((POOL + TARGETS, LABELS, 3))
    loads[:POOL] *= strength[:, None, None] / np.linalg.norm(loads[:POOL], axis=2, keepdims=True)
    probs = 1 / (1 + np.exp(-np.einsum("sk,nlk->snl", rng.standard_normal((SAMPLES, 3)), loads)))
    return Draws(probs[:, :POOL], probs[:, POOL:])


def judge_of(name: str, seed: int = 0) -> Judge:
    """Return the exact side on toy draws."""
    rng = np.random.default_rng(seed)
    sets = [[field(rng) for _ in range(4)] for _ in range(REPLICATES)]
    return make_judge(find_usable(name), sets, BATCH)


@pytest.fixture(scope="module")
def judges() -> dict[str, Judge]:
    return {name: judge_of(name) for name in ("ensemble_ivr", "bald", "epig")}


def runs(seed: int, **changes: Any) -> list[Draws]:
    rng = np.random.default_rng(seed)
    return [field(rng, **changes) for _ in range(REPLICATES)]


@pytest.mark.parametrize("name", ["ensemble_ivr", "bald", "epig"])
def test_exact_draws_lose_nothing_beyond_the_floor(judges: dict[str, Judge], name: str) -> None:
    found = judge_engine(judges[name], runs(100))
    assert abs(found.excess) <= LIMIT * found.excess_error, f"{name}: {found}, seed 100"
    assert abs(found.regret) < 0.1
    assert found.overlap > 0.6
    sentence = verdict("exact", name, found, BATCH, comparisons=50)
    assert "no loss" in sentence or "undecided" in sentence, sentence


@pytest.mark.parametrize("name", ["ensemble_ivr", "bald", "epig"])
def test_reversed_order_is_worse_than_random(judges: dict[str, Judge], name: str) -> None:
    found = judge_engine(judges[name], runs(100, turned=True))
    assert found.regret > 1, name
    assert found.overlap == 0
    assert found.rank_correlation < -0.5
    assert "loses" in verdict("turned", name, found, BATCH, comparisons=20)


def test_order_of_samples_does_not_matter(judges: dict[str, Judge]) -> None:
    plain = runs(3)
    order = np.random.default_rng(0).permutation(SAMPLES)
    mixed = [Draws(one.pool[order], one.targets[order]) for one in plain]
    for judge in judges.values():
        np.testing.assert_allclose(judge_engine(judge, plain), judge_engine(judge, mixed), rtol=1e-9)


def test_regret_of_a_known_batch() -> None:
    # Entropy reads the means alone. Exact: row i has P = i / 20, so entropy grows with i; the batch is
    # {10, 9}. The engine's means put rows 0 and 1 (entropy h(0) and h(1/20)) on top.
    mean = np.arange(11) / 20
    entropy = -mean * np.log(np.maximum(mean, 1e-300)) - (1 - mean) * np.log(1 - mean)
    exact = Draws(np.tile(mean[None, :, None], (5, 1, 1)))
    judge = make_judge(find_usable("entropy"), [[exact] * 4] * 3, 2)
    point = Draws(mean[::-1][None, :, None])
    found = judge_engine(judge, [point] * 3)
    gain = entropy[[10, 9]].sum() - judge.turns[0][0].random_value
    np.testing.assert_allclose(found.gain, gain)
    np.testing.assert_allclose(found.regret, (entropy[[10, 9]].sum() - entropy[[0, 1]].sum()) / gain)
    assert abs(judge.turns[0][0].random_value - 2 * entropy.mean()) < 5 * 2 * entropy.std() / np.sqrt(2 * 200)
    assert (found.floor, found.overlap, found.overlap_floor) == (0, 0, 1)
    np.testing.assert_allclose(found.rank_correlation, -1)


@pytest.mark.parametrize("own", [False, True])
def test_value_is_the_variance_removed_row_by_row(own: bool) -> None:
    draws = field(np.random.default_rng(2))
    batch = np.array([3, 28, 11])
    value = value_function(find_usable("ensemble_ivr"), Draws(draws.pool) if own else draws, debias=False)
    rest = np.setdiff1d(np.arange(POOL), batch)
    targets = draws.pool[:, rest] if own else draws.targets
    gram, ensemble = target_gram(targets), make_ensemble(draws.pool)
    before = np.trace(gram)
    for row in batch:
        gram, ensemble = condition_gram(ensemble, int(row), gram), condition_ensemble(ensemble, int(row))
    np.testing.assert_allclose(value(batch), before - np.trace(gram), rtol=1e-8)
    np.testing.assert_allclose(value(batch[::-1]), value(batch), rtol=1e-10)


def test_values_come_from_draws_that_chose_nothing() -> None:
    # Pure noise: nothing separates the rows, so the choice is worth no more than chance, which a value from
    # the draws that chose would hide.
    rng = np.random.default_rng(5)
    sets = [[Draws(rng.uniform(0.3, 0.7, (SAMPLES, POOL, LABELS))) for _ in range(4)] for _ in range(8)]
    judge = make_judge(find_usable("bald"), sets, BATCH)
    found = judge_engine(judge, [sets[i][0] for i in range(8)])
    z = found.gain / found.gain_error
    assert abs(z) < student.ppf(1 - 5e-4, 7), f"z {z:.1f}, seed 5"
    assert verdict("q", "bald", found, BATCH).startswith("no verdict") == (z < 1.9)


def test_ratio_and_its_error() -> None:
    rng = np.random.default_rng(1)
    d = rng.normal(3, 0.3, (4000, 12))
    n = 0.2 * d + rng.normal(0, 0.5, d.shape)
    found = np.array([ratio(a, b) for a, b in zip(n, d, strict=True)])
    spread = found[:, 0].std()
    np.testing.assert_allclose(np.sqrt((found[:, 1] ** 2).mean()), spread, rtol=0.06)
    assert abs(found[:, 0].mean() - 0.2) < 5 * spread / np.sqrt(4000), "seed 1"
    assert np.isnan(ratio([0.0, 0.0, 0.0], [0.0, 0.0, 0.0])).all()


def numbers(**changes: float) -> Regret:
    base = dict.fromkeys(Regret._fields, 0.0) | {"gain": 1.0, "gain_error": 0.01, "replicates": 6}
    return Regret(**(base | changes))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"excess": 0.12, "excess_error": 0.02}, "svi: loses 12 % ± 2 % of the gain over random"),
        ({"excess": 0.01, "excess_error": 0.01}, "svi: no loss beyond Monte Carlo noise (1 % ± 1 %"),
        ({"excess": 0.12, "excess_error": 0.06}, "svi: undecided"),
        ({"excess": -0.12, "excess_error": 0.01}, "svi: asks better than exact inference"),
        ({"excess": 0.12, "excess_error": 0.01, "gain_error": 2.0}, "no verdict: with bald the exact choice"),
    ],
)
def test_verdict(changes: dict[str, float], said: str) -> None:
    assert verdict("svi", "bald", numbers(**changes), 10, comparisons=4).startswith(said)


def test_rounding_is_no_percentage() -> None:
    said = verdict("svi", "bald", numbers(excess=-7.5e-17, excess_error=2e-16), 10)
    assert "(0 % ± 0 % of the gain over random, below 0 % at 95 %)" in said


def test_more_comparisons_ask_for_more_evidence() -> None:
    found = numbers(excess=0.12, excess_error=0.04)
    assert "loses" in verdict("svi", "bald", found, 10)
    assert "undecided" in verdict("svi", "bald", found, 10, comparisons=20)


def test_usable_functions_read_a_posterior_alone() -> None:
    assert {"ensemble_ivr", "bald", "epig", "entropy", "margin", "bald_joint"} <= set(usable())
    for name in ("random", "ivr", "audi", "k_center", "batchbald"):
        with pytest.raises(ValueError, match=f"{name}.*regret is defined for"):
            find_usable(name)
    with pytest.raises(ValueError, match="no acquisition function 'bold'"):
        find_usable("bold")


def test_judges_refuse(judges: dict[str, Judge]) -> None:
    one = field(np.random.default_rng(0))
    with pytest.raises(ValueError, match="batch: 30 of a pool of 30 rows leaves no choice"):
        make_judge(find_usable("bald"), [[one] * 4] * 3, POOL)
    with pytest.raises(ValueError, match="three or more"):
        make_judge(find_usable("bald"), [[one] * 4] * 2, 3)
    with pytest.raises(ValueError, match="runs: 6 are needed"):
        judge_engine(judges["bald"], [one])
    with pytest.raises(ValueError, match="needs probs"):
        judge_engine(judges["bald"], [Draws(one.pool[:1])] * REPLICATES)


@pytest.fixture(scope="module")
def data() -> LabelData:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((70, 3))
    Y = (X @ rng.standard_normal((3, 2)) + rng.standard_normal((70, 2)) > 0).astype(int)
    return LabelData.from_arrays(X, Y, label_names=["a", "b"])


def test_parts_are_disjoint(data: LabelData) -> None:
    parts = split_parts(data, 20, 80, 80, 5, seed=1)
    names = [set(part.example_names) for part in parts]
    assert [len(part) for part in names] == [20, 25, 25]
    assert len(set.union(*names)) == 70


QUICK: dict[str, Any] = {"rows": 25, "pool": 25, "targets": 20, "batch": 4, "draws": 200, "repeats": 3}


def test_closed_form_against_itself(data: LabelData) -> None:
    six = QUICK | {"repeats": REPLICATES}
    payload = measure_regret("label_gp", data, engines=["conjugate"], acquire=["bald", "entropy"], **six)
    assert (payload["reference"], payload["rhat"]) == ("conjugate", None)
    for row in payload["engines"]:
        assert abs(row["excess"]) <= LIMIT * row["excess_error"], (row["acquisition"], "seed 0")
        assert len(row["asked"]) == 4
    assert set(payload["exact_choices"]) == {"bald", "entropy"}
    again = measure_regret("label_gp", data, engines=["conjugate"], acquire=["bald"], **six)
    assert again["engines"][0] == payload["engines"][0] | {"verdict": again["engines"][0]["verdict"]}


def toy_program(X: Any, Y: Any, observed: Any) -> None:
    """Slopes, one a label and feature; never run."""
    numpyro.sample("slope", dist.Normal().expand([Y.shape[1], X.shape[1]]).to_event(2))


TOY = ModelSpec(
    name="toy_slopes",
    views={"summed": toy_program},
    predict=lambda draw, X, constants: jax.nn.sigmoid(X @ draw["slope"].T),
    dims={"slope": ("labels", "feature")},
)
SEEN: list[dict[str, Any]] = []


def draw_slopes(
    spec: Any, inputs: Any, *, rng_key: Any, progress: bool, num_samples: int = 200, num_chains: int = 1,
    apart: float = 0.0, **options: Any,
) -> EngineResult:  # fmt: skip
    """Return independent normal draws; the mean of the chains differs by `apart` / thinning."""
    SEEN.append({**options, "num_chains": num_chains, "num_samples": num_samples})
    rng = np.random.default_rng(np.asarray(jax.random.key_data(rng_key)).ravel())
    shape = (num_chains, num_samples, inputs["Y"].shape[1], inputs["X"].shape[1])
    shift = apart / options.get("thinning", 1) ** 3 * np.arange(num_chains)
    return EngineResult({"slope": 0.5 * rng.standard_normal(shape) + shift[:, None, None, None]})


def fails(spec: Any, inputs: Any, **options: Any) -> EngineResult:
    """Diverge."""
    raise FloatingPointError("the bound\nis NaN")


CHAINS = {"num_samples": 500, "num_chains": 4, "thinning": 1, "num_warmup": 100, "apart": 0.0}


@pytest.fixture
def toy() -> Iterator[str]:
    mode = lambda spec, inputs, **options: draw_slopes(spec, inputs, num_samples=1, **options)  # noqa: E731
    engines = [
        Engine("chains", "mcmc", draw_slopes, ("slope",), CHAINS),
        Engine("normal", "bound", draw_slopes, ("slope",), {"num_samples": 400}),
        Engine("mode", "point", mode),
        Engine("broken", "bound", fails),
    ]
    registry.register(TOY, engines=engines)
    SEEN.clear()
    yield TOY.name
    registry._registry.pop(TOY.name)


def test_engines_of_all_kinds(toy: str, data: LabelData) -> None:
    names = ["normal", "mode", "broken"]
    payload = measure_regret(
        toy, data, reference="chains", engines=names, acquire=["bald", "entropy"], **QUICK
    )
    assert payload["rhat"] < 1.01
    rows = {(row["name"], row["acquisition"]): row for row in payload["engines"]}
    assert rows["normal", "bald"]["overlap"] > 0.5
    assert abs(rows["normal", "bald"]["regret"]) < 0.2
    assert rows["mode", "bald"]["verdict"] == "not defined: bald reads draws, mode gives a point"
    assert rows["mode", "entropy"]["regret"] is not None
    assert rows["broken", "bald"]["verdict"] == "failed: the bound is NaN"
    assert SEEN[0] == {"num_chains": 12, "num_samples": 200, "thinning": 1, "num_warmup": 100}


def test_reference_is_run_again_until_it_converges(toy: str, data: LabelData) -> None:
    options = {"reference": "chains", "engines": ["normal"], "acquire": ["bald"], **QUICK}
    payload = measure_regret(toy, data, engine_settings={"chains": {"apart": 0.5}}, **options)
    assert [(one["thinning"], one["num_warmup"]) for one in SEEN if "thinning" in one] == [(1, 100), (4, 200)]
    assert payload["thinning"] == 4
    assert payload["engines"][0]["regret"] is not None


def test_unconverged_reference_gives_no_verdict(toy: str, data: LabelData, tmp_path: Path) -> None:
    path = tmp_path / "toy.npz"
    data.save_npz(path)
    options = {"reference": "chains", "engines": ["normal"], "acquire": ["bald"], **QUICK}
    own = {"engine_settings": {"chains": {"apart": 1e6}}}
    result = regret_and_report(toy, path, tmp_path / "out", **options, **own)
    (row,) = result.payload["engines"]
    assert result.payload["rhat"] > 1.01
    assert [one["thinning"] for one in SEEN] == [1, 4, 16]
    assert (row["regret"], row["overlap"], result.judged) == (None, None, False)
    assert row["verdict"].startswith("no verdict: reference not converged (R-hat")
    assert not (tmp_path / "out/regret.png").exists()
    assert "no verdict" in result.text


def test_rhat_sees_a_chain_apart() -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((8, 200, 30))
    assert largest_rhat(values) < 1.02
    values[0] += 1
    assert largest_rhat(values) > 1.05
    assert largest_rhat(np.zeros((4, 50, 3))) == 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reference": "svi"}, "reference 'svi' is a bound"),
        ({"reference": "gold"}, "no engine 'gold'"),
        ({"engines": ["gold"]}, "no engine 'gold'"),
        ({"engines": []}, "engines: none given"),
        ({"acquire": ["bold"]}, "no acquisition function 'bold'"),
        ({"acquire": []}, "acquire: no acquisition function given"),
        ({"batch": 25}, "batch: 25 of a pool of 25 rows"),
        ({"rows": 70}, "rows: 70 labelled of 70 leave 0 where a pool of 25 and 20 targets are asked for"),
        ({"rows": 62}, "rows: 62 labelled of 70 leave 8 .* a batch of 4 needs a pool of more than 4 rows"),
        ({"rows": 71}, "rows: 71 labelled rows are asked for, but 70 of the 70"),
        ({"draws": 20}, "draws must be an integer of at least 200"),
        ({"repeats": 2}, "repeats must be an integer of at least 3"),
        ({"depth": 3}, "no setting 'depth'"),
    ],
)
def test_bad_input(data: LabelData, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        measure_regret("label_gp", data, **(QUICK | options))


def test_command(data: LabelData, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "small.npz"
    data.save_npz(path)
    flags = [part for name, value in QUICK.items() for part in (f"--{name}", str(value))]
    common = ["regret", "label_gp", "--data", str(path), "--acquire", "bald,entropy", *flags]
    code = run([*common, "--engines", "conjugate", "--out", str(tmp_path / "out"), "--json"])
    out = capsys.readouterr().out
    assert code == 0
    payload = json.loads(out)
    assert payload == json.loads((tmp_path / "out/regret.json").read_text())
    assert {"name", "kind", "acquisition", "regret", "regret_error", "floor", "overlap", "rank_correlation",
            "verdict"} <= set(payload["engines"][0])  # fmt: skip
    assert (tmp_path / "out/regret.png").read_bytes()[:4] == b"\x89PNG"
    assert "--engines conjugate" in payload["command"]
    before = (tmp_path / "out/regret.json").read_bytes()
    assert run([*common, "--engines", "gold", "--out", str(tmp_path / "new")]) == 2
    assert capsys.readouterr().err.startswith("labelzoo: model 'label_gp' has no engine 'gold'")
    assert not (tmp_path / "new").exists()
    again = [*common, "--engines", "conjugate", "--out", str(tmp_path / "out"), "--seed", "1"]
    assert run(again) == 2
    err = capsys.readouterr().err
    assert re.search(r"^labelzoo: --out .* holds regret.json, .* of an earlier run: .*--force", err), err
    assert (tmp_path / "out/regret.json").read_bytes() == before
    assert run([*again, "--force"]) == 0
    assert (tmp_path / "out/regret.json").read_bytes() != before


def half_labelled(data: LabelData, known: int) -> LabelData:
    """Return `data` with labels in `known` of its rows, every second one first."""
    Y = np.full(data.Y.shape, np.nan)
    keep = np.r_[0:70:2, 1:70:2][:known]
    Y[keep] = data.Y[keep].toarray()
    return LabelData.from_arrays(data.X, Y, label_names=["a", "b"])


def test_labelled_rows_have_labels(data: LabelData) -> None:
    parts = split_parts(half_labelled(data, 30), 25, 25, 20, 4, seed=1)
    assert [len(part.example_names) for part in parts] == [25, 25, 20]
    assert not parts.labelled.unlabelled_rows.any() and parts.pool.unlabelled_rows.any()
    assert len(set().union(*(part.example_names for part in parts))) == 70
    with pytest.raises(ValueError, match="rows: 25 labelled rows .* but 10 of the 70 rows .*fewer"):
        split_parts(half_labelled(data, 10), 25, 25, 20, 4, seed=1)


@pytest.mark.parametrize("times", [1, 60])  # so many rows that a subset would be taken
def test_a_prior_is_not_judged(tmp_path: Path, times: int) -> None:
    path = tmp_path / "blank.npz"
    Y = np.full((70 * times, 2), np.nan)
    LabelData.from_arrays(np.ones((70 * times, 1)), Y, label_names=["a", "b"]).save_npz(path)
    message = f"none of the {70 * times} rows of the data has an observed label: every posterior would be"
    with pytest.raises(ValueError, match=message):
        regret_and_report("label_gp", path, tmp_path / "out", engines=["conjugate"], **QUICK)
    with pytest.raises(ValueError, match=message):
        split_parts(LabelData.from_npz(path), 25, 25, 20, 4, seed=1)


def test_targets_are_never_more_than_asked(data: LabelData) -> None:
    parts = split_parts(data, 20, 60, 3, 5, seed=1)
    assert (parts.pool.num_rows, parts.targets.num_rows) == (25, 3)


INTERRUPTED = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
from pathlib import Path
import labelzoo.regret_run
from labelzoo.cli import run

def compiled(*args, **options):
    print("running", flush=True)
    BLOCK

labelzoo.regret_run.measure_regret = compiled
sys.exit(run(["regret", "label_gp", "--data", "emoji", "--out", sys.argv[1]]))
"""
COMPILED = "import hashlib; hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)"
"""Minutes in C, which let go of the interpreter but look at no signal, as a compiled run is."""


@pytest.mark.parametrize("block", ["time.sleep(60)", COMPILED])
def test_ctrl_c_ends_at_once_and_says_so(tmp_path: Path, block: str) -> None:
    out = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED.replace("BLOCK", block), str(out)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None and process.stdout.readline() == "running\n"
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert time.monotonic() - began < 20, err
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130 and not out.exists()
    assert err.startswith("labelzoo: interrupted, nothing was written; quicker: ") and "--repeats" in err
    assert err.count("\n") == 1
