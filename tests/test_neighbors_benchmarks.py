"""The experiments on class kernels: tiny runs of both commands, and their parts by hand."""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import neighbors_choosers as choosers
import neighbors_classes as classes
import neighbors_data as data
import neighbors_table as table

from labelzoo.inference.kernel_neighbors.dual import dual
from labelzoo.inference.kernel_neighbors.problem import read_problem

Array = Any


def kernel_of(X: Array) -> Array:
    return np.exp(-0.5 * data.squared_distances(X, X))


def refuse(*args: Any, **kwargs: Any) -> Any:
    raise AssertionError("a kept run was made again")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small iris with a nominal feature and a missing value."""
    rng = np.random.default_rng(5)
    y = np.repeat(np.arange(3), 16)
    X = np.column_stack([rng.normal(size=48) + 2.0 * y, rng.normal(size=48), rng.integers(0, 2, 48)])
    X[4, 2] = np.nan
    names = np.array(["a", "b", "c"])
    nominal = '{"c": ["no", "yes"]}'
    np.savez(tmp_path / "uci_iris.npz", X=X, y=y, feature_names=names, nominal_json=nominal)
    return tmp_path


def command(
    module: Any, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    monkeypatch.setattr(sys, "argv", ["benchmark", *arguments])
    module.main()
    return capsys.readouterr().out


@pytest.mark.parametrize(("part", "run"), [("table", "one_split"), ("readings", "one_reading")])
def test_table_runs_and_goes_on_from_kept_splits(
    folder: Path, part: str, run: str, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.setattr(table, "WIDTHS", (0.3,))
    monkeypatch.setattr(table, "PRIORS", (0.3, table.LINEAR))
    monkeypatch.setattr(table, "GAMMAS", (0.1,))
    monkeypatch.setattr(table, "PENALTIES", (1.0, 10.0))
    arguments = [part, "--data", "iris", "--repeats", "1", "--data-folder", str(folder)]
    arguments += ["--out", str(folder / "out")]
    first = command(table, arguments, monkeypatch, capsys)
    assert len(list((folder / "out").glob("*.json"))) == 2
    if part == "table":
        for name in (*table.OURS, "prior", "1-NN", "k-NN", "NCA + k-NN", "RBF SVM", "logistic regression"):
            assert f"| {name} | " in first
        assert "| LMNN | | | unreadable |" in first and "| ITML | | | 4.3 |" in first
    else:
        assert first.count("| linear |") == len(table.MORE_READINGS) * len(table.GAMMAS)
    kept, lost = (folder / "out" / f"{part}_iris_0_{half}.json" for half in (0, 1))
    before, found = kept.read_bytes(), json.loads(lost.read_text(encoding="utf-8"))
    lost.unlink()
    command(table, arguments, monkeypatch, capsys)
    assert kept.read_bytes() == before
    again, key = json.loads(lost.read_text(encoding="utf-8")), "errors" if part == "table" else "rows"
    assert again[key] == found[key]
    monkeypatch.setattr(table, run, refuse)
    command(table, arguments, monkeypatch, capsys)


def test_classes_run_and_go_on_from_kept_runs(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    arguments = ["--data", "digits", "--classes", "2,3", "--runs", "2,1", "--rounds", "2", "--out"]
    arguments += [str(tmp_path)]
    first = command(classes, arguments, monkeypatch, capsys)
    for arm in choosers.ARMS:
        assert f"| {arm} | " in first
    assert "digits, 2 classes: 2 runs, 2 rounds of 1 rows of 26" in first
    assert "slope a doubling" in first
    assert len(list(tmp_path.iterdir())) == 3 * len(choosers.ARMS)
    monkeypatch.setattr(classes, "one_run", refuse)
    assert command(classes, arguments, monkeypatch, capsys) == first


@pytest.mark.parametrize(
    ("module", "arguments", "words"),
    [
        (table, ["--data", "wine"], "argument --data: unknown wine; known: ionosphere, "),
        (table, ["--repeats", "0"], "argument --repeats: must be a whole number of at least 1, got '0'"),
        (table, ["--data", "iris", "--data-folder", "nowhere"], "error: iris: no file nowhere"),
        (classes, ["--arms", "gp:most"], "argument --arms: unknown gp:most; known: pknn:random, "),
        (classes, ["--data", "nosuch", "--data-folder", "nowhere"], "error: nosuch: no file nowhere"),
        (classes, ["--data", "bibtex", "--data-folder", "nowhere"], "error: bibtex: no file nowhere"),
        (classes, ["--classes", "3,x"], "argument --classes: must be a whole number of at least 2, got 'x'"),
        (classes, ["--data", "digits", "--classes", "11"], "digits: 11 classes asked for, 10 have 30 rows"),
        (classes, ["--data", "digits", "--runs", "2,1"], "digits: --runs has 2 numbers for 3 numbers of cl"),
        (classes, ["--gamma", "0"], "argument --gamma: must be a finite number above 0, got '0'"),
        (classes, ["--gamma", "much"], "argument --gamma: must be a finite number above 0, got 'much'"),
        (classes, ["--rows", "4"], "argument --rows: must be a whole number of at least 5, got '4'"),
    ],
)
def test_bad_options_end_with_one_line(
    module: Any, arguments: list[str], words: str, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmark", *arguments, "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        module.main()
    printed = capsys.readouterr()
    assert words in printed.err.splitlines()[-1] and not printed.out


@pytest.mark.parametrize("module", [table, classes])
def test_every_option_has_a_line_of_help(module: Any, monkeypatch: Any) -> None:
    def stop(parser: Any) -> None:
        assert len(parser._actions) > 4 and all(action.help for action in parser._actions)
        parser.exit(0)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)
    with pytest.raises(SystemExit, match="0"):
        module.main()


def test_gains_by_number_of_classes_come_with_intervals() -> None:
    def arms(gains: list[float]) -> dict[str, Any]:
        runs = {"gp:random": [0.5, 0.5], "gp:least": [0.5 + gain / 100 for gain in gains]}
        return {arm: [{"curve": [height, height]} for height in own] for arm, own in runs.items()}

    lines = classes.growth("made up", {2: arms([1.0, 3.0]), 4: arms([5.0, 5.0])}).splitlines()
    # Student's t of one degree of freedom, 12.706, by sqrt(2) sqrt(1 / 2 + 1).
    assert lines[-1].startswith("| gp:least | +2.0 [-20.0, +24.0] | +5.0 [+5.0, +5.0] | +3.00 +- ")


def test_spreads_over_readings_and_priors_by_hand() -> None:
    own = {(1.0, 0.1): (4, 5, 6, 8), (1.0, 10.0): (3, 3, 3, 4), ("linear", 0.1): (9, 9, 11, 10)}
    rows = [
        [width, reading, gamma, own[width, gamma][k] / 100, (20 + k) / 100, (30 - k) / 100]
        for (width, gamma) in own
        for k, reading in enumerate(table.MORE_READINGS)
    ]
    lines = table.spread([{"rows": rows}]).splitlines()
    found = [re.findall(r"(?<![\d/.])\d+\.\d(?![\d/])", line.rpartition(": ")[2]) for line in lines]
    assert found[0] == ["2.0", "4.0", "1.0", "0.1", "2.0", "0.1"]
    assert found[1:5] == [["3.0", "9.0"], ["3.0", "9.0"], ["3.0", "11.0"], ["4.0", "10.0"]]
    assert found[5] == ["20.0", "27.0"]


def test_a_rows_class_is_its_rarest_label_with_enough_rows() -> None:
    Y = sparse.csr_array(np.array([[1, 1, 0, 1], [1, 1, 0, 0], [1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 1, 0]]))
    # Rows of the labels: 3, 3, 2, 1.
    assert data.rarest_label(Y, 1).tolist() == [3, 0, 0, 2, 2]
    assert data.rarest_label(Y, 2).tolist() == [0, 0, 0, 2, 2]
    assert data.rarest_label(Y, 3).tolist() == [0, 0, 0, 1, -1]


def test_features_are_scaled_by_known_rows_and_missing_levels_are_zero(folder: Path) -> None:
    rows = data.load_rows("iris", folder)
    known = np.arange(0, 48, 2)
    X = data.prepared(rows, known)
    assert X.shape == (48, 4)
    np.testing.assert_allclose(X[known, :2].mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(X[known, :2].std(axis=0), 1)
    assert X[4, 2:].tolist() == [0, 0]
    assert (X[:, 2:].sum(axis=1) == 1).sum() == 47


def test_a_draw_has_two_rows_a_class_labelled_and_half_to_test() -> None:
    rng = np.random.default_rng(1)
    y = np.repeat([3, 5, 8], [10, 10, 9])
    draw = classes.drawn(data.Rows(rng.normal(size=(29, 2)), y, {}), 2, 10, 4)
    parts = [draw.start, draw.pool, draw.test]
    assert sorted(np.concatenate(parts).tolist()) == list(range(20))
    for part, each in zip(parts, (2, 3, 5), strict=True):
        assert np.bincount(draw.y[part]).tolist() == [each, each]
    with pytest.raises(ValueError, match="3 classes asked for, 2 have"):
        classes.drawn(data.Rows(rng.normal(size=(29, 2)), y, {}), 3, 10, 4)


def test_accuracy_is_the_mean_over_classes() -> None:
    assert classes.accuracy(np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1])) == pytest.approx((2 / 3 + 1) / 2)


def test_gaussian_scores_by_the_inverse() -> None:
    rng = np.random.default_rng(2)
    K = kernel_of(rng.normal(size=(9, 2)))
    labelled, pool, y = np.array([0, 2, 4, 6]), np.array([1, 3, 5, 7, 8]), np.array([0, 1, 2, 1])
    model = choosers.Gaussian(K)
    model.fit(labelled, y)
    inverse = np.linalg.inv(K[np.ix_(labelled, labelled)] + 1e-5 * np.eye(4))
    for place, x in enumerate(pool):
        k = K[x, labelled]
        mean = k @ inverse @ np.array([[1, -1, -1], [-1, 1, -1], [-1, -1, 1], [-1, 1, -1]])
        sd = np.sqrt(1 - k @ inverse @ k + 1e-5)
        np.testing.assert_allclose(model.scores(pool)[place], mean, atol=1e-8)
        np.testing.assert_allclose(
            choosers.gaussian_uncertainty(model, pool)[place], np.abs(mean) / sd, rtol=1e-6
        )
    least = choosers.CHOOSERS["gp"]["least"](model, pool, 1, rng)
    assert least[0] == np.argmin(choosers.gaussian_uncertainty(model, pool).min(axis=1))


def test_svm_of_two_rows_is_their_difference_over_the_margin() -> None:
    """Hard margin of two rows at similarity r: both multipliers 1 / (1 - r)."""
    K = kernel_of(np.array([[0.0], [1.0], [0.2], [0.7]]))
    model = choosers.Machines(K, choosers.HARD, 0)
    model.fit(np.array([0, 1]), np.array([0, 1]))
    f = (K[2:, 0] - K[2:, 1]) / (1 - K[0, 1])
    np.testing.assert_allclose(model.scores(np.array([2, 3])), np.column_stack([f, -f]), atol=1e-3)


def test_tuned_machines_choose_again_when_the_rows_have_doubled(monkeypatch: Any) -> None:
    rng = np.random.default_rng(3)
    y = np.tile([0, 1], 10)
    model, calls = choosers.Machines(kernel_of(rng.normal(size=(20, 2)) + y[:, None]), None, 0), []
    monkeypatch.setattr(model, "_tuned", lambda rows, own: calls.append(len(rows)) or 1.0)
    for size in (4, 6, 8, 14, 16):
        model.fit(np.arange(size), y[:size])
    assert calls == [4, 8, 16]


def test_choosers_by_hand() -> None:
    scores = np.array([[0.9, -0.2, 0.5], [0.6, 0.3, 0.55], [-0.7, 0.1, 0.9]])
    np.testing.assert_allclose(choosers.by_nearest_boundary(scores), [-0.2, -0.3, -0.1])
    np.testing.assert_allclose(choosers.by_two_best(scores), [-0.4, -0.05, -0.8])
    unsure = np.array([[0.1, 0.1], [0.2, 0.2], [0.3, 0.3]])
    assert choosers.by_each_class(unsure, 2, np.random.default_rng(0)).tolist() == [0, 1]
    assert sorted(choosers.by_each_class(unsure, 5, np.random.default_rng(0))) == [0, 1, 2]


def test_neighbors_carried_over_rounds_reach_the_optimum_of_a_cold_start() -> None:
    rng = np.random.default_rng(4)
    y = np.r_[np.arange(3), np.arange(3), rng.integers(0, 3, 18)]
    K = kernel_of(rng.normal(size=(24, 2)) + y[:, None])
    model = choosers.Neighbors(K, 0.1, 5000)
    for size in (6, 12, 24):
        model.fit(np.arange(size), y[:size])
    cold = dual(read_problem(K, y, gamma=0.1))
    assert model.stopped == 0 and model.found.lam.any()
    assert abs(model.found.dual - cold.dual) <= 2 * choosers.TOLERANCE * (1 + cold.dual)
    assert (model.scores(np.arange(24)).argmax(1) == cold.similarity.argmax(1)).mean() > 0.95


def test_linear_prior_is_the_product_over_the_mean_square() -> None:
    Z, T = np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([[1.0, 1.0]])
    K0, K, square = table.Kernels(Z, T).of(table.LINEAR)
    np.testing.assert_allclose(K0, [[0.4, 0.0], [0.0, 1.6]])
    np.testing.assert_allclose(K, [[0.4, 0.8]])
    np.testing.assert_allclose(square, [0.8])
    K0, K, square = table.Kernels(Z, T).of(1.0)
    np.testing.assert_allclose(K0, [[1.0, np.exp(-0.5)], [np.exp(-0.5), 1.0]])
    np.testing.assert_allclose(K, np.exp([[-0.1, -0.2]]))
