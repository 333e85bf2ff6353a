"""Brier score, calibration bins and errors, and the picture of them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss

from labelzoo.data import metrics, missing_from_observed

NAN = np.nan


def problem(seed: int, shape: tuple[int, int] = (300, 6)) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    probs = rng.random(shape) ** 2
    return (rng.random(shape) < probs).astype(int), probs


def test_brier_score() -> None:
    Y, probs = problem(0)
    wanted = [brier_score_loss(Y[:, j], probs[:, j]) for j in range(Y.shape[1])]
    assert metrics.brier_score_per_cell(Y, probs) == pytest.approx(np.mean(wanted))
    assert metrics.brier_score(Y, probs).value == pytest.approx(np.sum(wanted))
    part = metrics.brier_score([[1, NAN], [NAN, NAN]], [[0.8, NAN], [0.1, 0.1]])
    np.testing.assert_allclose(part.each, [0.04, NAN])
    assert part.num_undefined == 1
    assert metrics.brier_score_per_cell([[1, NAN], [0, NAN]], [[0.8, NAN], [0.1, 0]]) == pytest.approx(0.025)
    grid = np.linspace(0, 1, 101)
    expected = [
        0.37 * metrics.brier_score_per_cell([[1]], [[p]]) + 0.63 * metrics.brier_score_per_cell([[0]], [[p]])
        for p in grid
    ]
    assert grid[int(np.argmin(expected))] == pytest.approx(0.37)


@pytest.mark.parametrize("strategy", ["width", "mass"])
def test_bins_equal_those_of_scikit_learn(strategy: str) -> None:
    Y, probs = problem(1)
    table = metrics.reliability(Y, probs, bins=7, strategy=strategy)
    name = {"width": "uniform", "mass": "quantile"}[strategy]
    share, predicted = calibration_curve(Y.ravel(), probs.ravel(), n_bins=7, strategy=name)
    tolerance = {"width": 1e-12, "mass": 0.02}[strategy]  # scikit-learn interpolates its quantiles
    np.testing.assert_allclose(table["predicted"], predicted, rtol=tolerance)
    np.testing.assert_allclose(table["share"], share, rtol=tolerance)
    assert table["cells"].sum() == Y.size
    assert table["positives"].sum() == Y.sum()
    gap = (table["share"] - table["predicted"]).abs()
    error = metrics.expected_calibration_error(Y, probs, bins=7, strategy=strategy)
    assert error == pytest.approx((gap * table["cells"]).sum() / Y.size)
    if strategy == "mass":
        assert table["cells"].max() - table["cells"].min() <= 1


def test_bins_of_equal_mass_keep_equal_probabilities_together() -> None:
    probs = np.array([[0.1] * 6 + [0.3, 0.9, 0.9, 1.0]])
    table = metrics.reliability(probs > 0.5, probs, bins=4, strategy="mass")
    assert table["cells"].tolist() == [6, 3, 1]
    np.testing.assert_allclose(table["low"], [0, 0.1, 0.9])
    np.testing.assert_allclose(table["high"], [0.1, 0.9, 1.0])


def test_standard_errors_and_intervals() -> None:
    Y = np.array([[1, 0, 0, 0, 1, 1]])
    table = metrics.reliability(Y, [[0.2] * 4 + [0.9, 0.55]])
    assert table["cells"].tolist() == [4, 1, 1]
    np.testing.assert_allclose(table["standard_error"], [np.sqrt(0.25 * 0.75 / 3), NAN, NAN])
    low, high = stats.beta(1.5, 3.5).interval(0.95)
    assert (table["share_low"][0], table["share_high"][0]) == (pytest.approx(low), pytest.approx(high))
    assert table["share_high"][1] == 1.0


def test_the_debiased_error_is_unbiased() -> None:
    rng = np.random.default_rng(20)
    probs = np.repeat([0.2, 0.6, 0.9], 20)[None]
    truth = np.repeat([0.3, 0.6, 0.8], 20)
    wanted = (0.1**2 + 0 + 0.1**2) / 3
    draws = [(rng.random(60) < truth)[None] for _ in range(500)]
    plain, debiased = (
        np.array([metrics.squared_calibration_error(Y, probs, strategy="width", debiased=d) for Y in draws])
        for d in (False, True)
    )
    error = debiased.std() / np.sqrt(len(draws))
    z = (debiased.mean() - wanted) / error
    assert abs(z) < 5, f"seed 20, z = {z:.2f}"
    assert (plain.mean() - wanted) / error > 10
    assert debiased.min() < 0


def test_bins_of_one_cell_are_left_out_of_the_debiased_error() -> None:
    Y, probs = np.array([[1, 0, 0, 1]]), np.array([[0.2, 0.2, 0.2, 0.9]])
    found = metrics.squared_calibration_error(Y, probs, strategy="width")
    assert found == pytest.approx((1 / 3 - 0.2) ** 2 - (2 / 9) / 2)
    plain = metrics.squared_calibration_error(Y, probs, strategy="width", debiased=False)
    assert plain == pytest.approx((3 * (1 / 3 - 0.2) ** 2 + 0.1**2) / 4)
    assert np.isnan(metrics.squared_calibration_error(Y[:, 3:], probs[:, 3:]))


def test_label_calibration_error_is_the_error_of_each_label() -> None:
    Y, probs = problem(2)
    Y = Y.astype(float)
    Y[:, 3] = NAN
    Y[:50, 2] = NAN
    for strategy in ("width", "mass"):
        found = metrics.label_calibration_error(Y, probs, strategy=strategy)
        wanted = [
            metrics.expected_calibration_error(Y[:, [j]], probs[:, [j]], strategy=strategy) for j in range(6)
        ]
        np.testing.assert_allclose(found.each, wanted)
        assert found.num_undefined == 1


def test_masked_probabilities_are_never_read() -> None:
    Y, probs = problem(3)
    seen = np.random.default_rng(4).random(Y.shape) > 0.3
    known = missing_from_observed(seen)
    spoilt = np.where(seen, probs, np.where(np.random.default_rng(5).random(Y.shape) < 0.5, NAN, -7))
    wanted = metrics.evaluate(np.where(seen, Y, NAN), probs)
    assert not np.isnan(list(wanted.values())).any()
    assert metrics.evaluate(np.where(seen, Y, 9), spoilt, seen) == wanted
    assert metrics.evaluate(np.where(seen, Y, 9), spoilt, missing=known) == wanted
    wanted_table = metrics.reliability(np.where(seen, Y, NAN), probs)
    pd.testing.assert_frame_equal(metrics.reliability(Y, spoilt, seen), wanted_table)


def test_order_of_rows_and_labels_does_not_matter() -> None:
    Y, probs = problem(6)
    probs = np.round(probs, 2)
    p = np.linspace(0.2, 1, 6)
    rng = np.random.default_rng(7)
    rows, labels = rng.permutation(len(Y)), rng.permutation(6)
    before = metrics.evaluate(Y, probs, propensities=p)
    after = metrics.evaluate(Y[rows][:, labels], probs[rows][:, labels], propensities=p[labels])
    assert after == pytest.approx(before, rel=1e-11)


def test_reliability_plot(tmp_path: Path) -> None:
    Y, probs = problem(8)
    tables = {
        "cost $1": metrics.reliability(Y, probs),
        "sharp": metrics.reliability(Y, probs**3, strategy="mass"),
    }
    path = tmp_path / "bins.png"
    figure = metrics.reliability_plot(tables, path, title="Held-out rows")
    assert path.read_bytes().startswith(b"\x89PNG")
    top, bottom = figure.axes
    assert top.get_title() == "Held-out rows"
    lines = {line.get_label(): line for line in top.get_lines()}
    assert "calibrated" in lines
    heights = sorted(patch.get_height() for patch in bottom.patches)
    assert heights == sorted([*tables["cost $1"]["cells"], *tables["sharp"]["cells"]])
    single = metrics.reliability_plot(tables["sharp"])
    assert len(single.axes[0].containers) == 1
    empty = metrics.reliability_plot(
        metrics.reliability(np.full((2, 2), NAN), np.zeros((2, 2))), tmp_path / "e.png"
    )
    assert empty.axes
    rare = metrics.reliability_plot(tables, tmp_path / "log.png", scale="log")
    assert rare.axes[0].get_xscale() == rare.axes[0].get_yscale() == rare.axes[1].get_xscale() == "log"
    with pytest.raises(ValueError, match="scale must be 'linear' or 'log', got 'logit'"):
        metrics.reliability_plot(tables, scale="logit")
    with pytest.raises(ValueError, match="no table to draw"):
        metrics.reliability_plot({})
    with pytest.raises(ValueError, match="table '' lacks the columns cells, high, low"):
        metrics.reliability_plot(pd.DataFrame())
    with pytest.raises(ValueError, match="at most 8 tables, got 9"):
        metrics.reliability_plot({str(i): tables["sharp"] for i in range(9)})


def test_bad_bins() -> None:
    for call in (metrics.reliability, metrics.expected_calibration_error, metrics.label_calibration_error):
        with pytest.raises(ValueError, match="bins must be at least 1, got 0"):
            call([[1]], [[0.5]], bins=0)
        with pytest.raises(ValueError, match="strategy must be 'width' or 'mass', got 'uniform'"):
            call([[1]], [[0.5]], strategy="uniform")
    with pytest.raises(ValueError, match=r"probabilities must lie in \[0, 1\]: row 0, label 0: 1\.5"):
        metrics.brier_score([[1]], [[1.5]])
