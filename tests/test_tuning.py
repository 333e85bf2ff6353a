"""`tune`: what it scores, how it chooses, what it refuses; the verb by its JSON; errors over rows."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import labelzoo
from labelzoo.cli import run
from labelzoo.data import LabelData
from labelzoo.data.metrics import log_score, micro_auc
from labelzoo.inference.engine import Engine, EngineResult
from labelzoo.inference.fit import fit
from labelzoo.inference.predict import mean_prob
from labelzoo.models import registry
from labelzoo.tune_command import parse_grid
from labelzoo.tuning import _result, tune
from labelzoo.tuning_scores import METRICS, Score, difference, score, standard_error

MODEL = "bernoulli_poisson_topics"
NAME = "toy_ridge"
TOY = Path(__file__).parent / "toy_ridge.py"


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    registry.get(f"{TOY}:spec")
    yield
    registry._registry.pop(NAME)


def toy(rows: int = 120, seed: int = 0, missing: float = 0.0, **more: Any) -> LabelData:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 3))
    Y = (rng.random((rows, 6)) < 1 / (1 + np.exp(1.0 - 2.0 * X[:, [0, 1, 2, 0, 1, 2]]))).astype(float)
    Y[rng.random(Y.shape) < missing] = np.nan
    return LabelData.from_arrays(X, Y, **more)


def test_each_row_is_the_score_of_a_fit_on_the_other_rows() -> None:
    data = toy(missing=0.2)
    train, held = data.split(0.25, seed=3)
    fixed = {"num_topics": 3, "max_iter": 15}
    found = tune(MODEL, data, "map_em", {"prior_scale": [0.5, 2.0]}, valid=0.25, seed=3, **fixed)
    assert (found.train_rows, found.valid_rows) == (90, 30)
    assert found.table["prior_scale"].tolist() == [0.5, 2.0]
    for _, row in found.table.iterrows():
        tree = fit(MODEL, train, "map_em", seed=3, prior_scale=row["prior_scale"], **fixed)
        own = log_score(held, mean_prob(tree, held))
        assert row["mean"] == pytest.approx(own.value, rel=1e-12)
        each = own.each[~np.isnan(own.each)]
        assert row["se"] == pytest.approx(each.std(ddof=1) / len(each) ** 0.5)
        assert row["objective"] == pytest.approx(float(tree["optimization"]["objective"][-1]))
        assert row["problem"] == "" and row["converged"] in ("yes", "no") and row["seconds"] > 0
    top = found.table.loc[found.table["mean"].idxmax()]
    assert found.best == found.chosen == {"prior_scale": top["prior_scale"]}
    assert (found.table["below_best"] >= 0).all() and found.table["below_best"].min() == 0.0


def test_any_model_and_engine_can_be_tuned_and_rows_of_the_test_stay_unseen() -> None:
    whole = toy(train_index=range(80), test_index=range(80, 120))
    told: list[str] = []
    found = tune(NAME, whole, "batch", {"penalty": [1e-3, 1.0, 1e4]}, metric="p@1", say=told.append)
    assert found.train_rows + found.valid_rows == 80
    assert found.table["objective"].isna().all()
    assert [line[:3] for line in told] == ["1/3", "2/3", "3/3"] and "penalty=10000.0" in told[2]
    part = whole.subset(rows=np.arange(80))
    held = LabelData(part.X[60:], part.Y.toarray()[60:])
    given = tune(NAME, LabelData(part.X[:60], part.Y.toarray()[:60]), "batch", {"penalty": [1.0]}, valid=held)
    assert (given.train_rows, given.valid_rows) == (60, 20)
    assert labelzoo.tune is tune


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_has_a_value_and_an_error(metric: str) -> None:
    found = tune(NAME, toy(missing=0.1), "batch", {"penalty": [1.0, 30.0]}, metric=metric)
    assert np.isfinite(found.table[["mean", "se", "below_best_se"]].to_numpy(float)).all()
    assert 0 < found.table["below_best_se"].max() < found.table["se"].min(), "rows are shared: pairs say more"


def test_one_standard_error_takes_the_first_that_is_near_the_best() -> None:
    """Of means 0, 9.5, 9.9 and 10 on shared rows: the second differs by five, the third by half an error."""
    rng = np.random.default_rng(2)
    rows, noise = 3.0 * rng.standard_normal(100), rng.standard_normal((4, 100))
    noise -= noise.mean(axis=1, keepdims=True)
    means, sizes = (0.0, 9.5, 9.9, 10.0), (1.0, 1.0, 2.0, 0.0)
    scores: list[Any] = [
        Score(mean, mean + rows - rows.mean() + size * one / one.std(), True)
        for mean, size, one in zip(means, sizes, noise, strict=True)
    ]
    grid = [{"k": k} for k in range(4)]
    near = _result([{**one, "problem": ""} for one in grid], scores, grid, "log_score", "one_se", (1, 1))
    best = _result([{**one, "problem": ""} for one in grid], scores, grid, "log_score", "best", (1, 1))
    np.testing.assert_allclose(near.table["below_best"], [10.0, 0.5, 0.1, 0.0], atol=1e-12)
    np.testing.assert_allclose(near.table["below_best_se"], [0.1005, 0.1005, 0.201, 0.0], rtol=1e-3)
    assert (near.best, near.chosen, best.chosen) == ({"k": 3}, {"k": 2}, {"k": 3})
    spread = scores[3].parts.std() / 10
    assert spread > 0.25, "the error of the best alone would not tell the second from it by as much"


def test_jackknife_error_is_that_of_repeated_samples() -> None:
    """Of micro AUC and of a difference, against 150 fresh samples of 200 rows."""
    rng = np.random.default_rng(5)

    def draw() -> tuple[Score, Score]:
        truth = (rng.random((200, 4)) < 0.3).astype(np.int8)
        good = truth + rng.standard_normal(truth.shape)
        other = good + 0.5 * rng.standard_normal(truth.shape)
        squash = lambda z: 1 / (1 + np.exp(-z))  # noqa: E731
        return score("micro_auc", truth, squash(good)), score("micro_auc", truth, squash(other))

    pairs = [draw() for _ in range(150)]
    values = np.array([[one.value, one.value - other.value] for one, other in pairs])
    errors = np.array([[standard_error(a.parts, a.by_rows), difference(a, b)[1]] for a, b in pairs])
    ratio = np.sqrt((errors**2).mean(axis=0)) / values.std(axis=0)
    assert (np.abs(np.log(ratio)) < 0.3).all(), ratio
    truth, probs = np.array([[1, 0], [0, 1]], np.int8), np.array([[0.9, 0.2], [0.1, 0.8]])
    assert score("micro_auc", truth, probs).value == micro_auc(truth, probs) == 1.0
    assert np.isnan(standard_error(np.ones(1), True))


def diverging(spec: Any, inputs: Any, *, rng_key: Any, progress: bool, level: float) -> EngineResult:
    if level > 1:
        raise FloatingPointError("the objective is nan after sweep 3")
    return registry.get(NAME).engines["batch"].run(spec, inputs, rng_key=rng_key, progress=progress)


def test_a_setting_that_diverges_has_no_score_and_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine("wild", "point", diverging, options={"level": 0.0})
    monkeypatch.setitem(registry.get(NAME).engines, "wild", engine)
    found = tune(NAME, toy(), "wild", {"level": [9.0, 1.0]}, rule="one_se")
    assert found.best == found.chosen == {"level": 1.0}
    assert "nan after sweep 3" in found.table["problem"][0] and np.isnan(found.table["mean"][0])
    with pytest.raises(ValueError, match="no setting could be fitted; the first: the objective is nan"):
        tune(NAME, toy(), "wild", {"level": [9.0]})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"grid": {"topics": [1]}},
            "grid: 'topics' is no setting of bernoulli_poisson_topics and no option of",
        ),
        (
            {"grid": {"num_topics": [2, 9]}},
            "grid: num_topics=9: num_topics=9 exceeds the number of labels, 6",
        ),
        ({"grid": {"prior_scale": [1, -2]}}, "grid: prior_scale=-2: prior_scale must be positive"),
        ({"grid": {"w_step": ["fast"]}}, "grid: w_step='fast': w_step must be one of"),
        ({"grid": {"num_topics": 3}}, "grid: num_topics must be a list of at least one value, got 3"),
        ({"grid": {"num_topics": []}}, "grid: num_topics must be a list of at least one value"),
        ({"grid": {"w_step": "newton"}}, "grid: w_step must be a list"),
        ({"grid": None}, "grid must be a mapping"),
        ({"grid": {}}, "grid must be a mapping"),
        ({"num_topics": 2}, "grid: 'num_topics' is held fixed at 2 too"),
        ({"metric": "accuracy"}, "metric must be one of log_score, per_example_auc, p@1"),
        ({"rule": "worst"}, "rule must be one of best, one_se, got 'worst'"),
        ({"valid": 1.5}, "valid=1.5"),
        ({"valid": "half"}, "valid must be a share of the rows or a LabelData, got 'half'"),
        ({"valid": toy(label_names=list("abcdef"))}, "valid must have the labels of data"),
        ({"engine": "vb"}, "no engine 'vb'"),
        ({"engine": 3}, "engine must be a name"),
        ({"data": np.ones((3, 2))}, "data must be a LabelData"),
        ({"model": "bpt"}, "no model 'bpt'"),
    ],
)
def test_bad_grids_are_refused_in_one_line(change: dict[str, Any], message: str) -> None:
    call: dict[str, Any] = {
        "model": MODEL,
        "data": toy(),
        "engine": "vb_em",
        "grid": {"num_topics": [2]},
        "max_iter": 2,
    }
    with pytest.raises(ValueError) as caught:
        tune(**{**call, **change})
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_validation_rows_without_labels_are_refused() -> None:
    data = toy()
    blank = LabelData.from_arrays(data.X[:4], np.full((4, 6), np.nan))
    with pytest.raises(ValueError, match="valid: log_score is undefined on these 4 validation rows"):
        tune(NAME, data, "batch", {"penalty": [1.0]}, valid=blank)


def call(*parts: Any) -> int:
    return run([str(part) for part in parts])


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "toy.npz", tmp_path / "table.csv"
    toy().save_npz(source)
    more = ["--set", "num_topics=2", "--set", "max_iter=3", "--metric", "micro_auc", "--json", "--out", out]
    grid = "precision_prior=null,[2,1]"
    assert call("tune", MODEL, "--data", source, "--engine", "map_em", "--grid", grid, *more) == 0
    payload = json.loads(capsys.readouterr().out)
    assert payload["metric"] == "micro_auc" and payload["best"] == payload["chosen"]
    assert [row["precision_prior"] for row in payload["table"]] == [None, [2, 1]]
    table = pd.read_csv(out)
    assert table["mean"].tolist() == pytest.approx([row["mean"] for row in payload["table"]])
    assert table["converged"].tolist() == ["no"] * 2
    for wrong, message in (
        (["--grid", "num_topics"], "--grid 'num_topics': write NAME=VALUE"),
        (["--grid", "num_topics=2", "--grid", "num_topics=3"], "--grid num_topics=: given twice"),
        (["--grid", "num_topics=2", "--set", "metric=p@1"], "--set metric=: 'metric' is no setting"),
        (["--grid", "num_topics=2", "--out", "table.txt"], "must end in .csv"),
        (["--grid", "num_topics=99"], "num_topics=99 exceeds the number of labels"),
    ):
        assert call("tune", MODEL, "--data", source, *wrong) == 2
        err = capsys.readouterr().err
        assert message in err and err.count("\n") == 1, err


def test_the_verb_takes_models_of_your_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "toy.npz"
    toy().save_npz(source)
    own = ["--engine", "batch", "--grid", "penalty=1,100"]
    assert call("tune", f"{TOY}:spec", "--data", source, *own, "--rule", "one_se") == 0
    text = capsys.readouterr().out
    assert "fitted on 96 rows, scored on 24" in text and "best: penalty=" in text


def test_values_of_a_grid_are_read_as_json_or_text() -> None:
    grid = parse_grid(["a=1,2.5,null", "b=fast,3,true", "c=[1,2],[3,4]", 'd="x"'])
    assert grid == {"a": [1, 2.5, None], "b": ["fast", 3, True], "c": [[1, 2], [3, 4]], "d": ["x"]}
