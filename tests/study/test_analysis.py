"""Areas, paired intervals, Holm, rows saved, verdicts: against numbers worked out by hand."""

import json
import math

import numpy as np
import pytest

from labelzoo.study.analysis import (
    Comparison,
    Curves,
    Paired,
    area,
    compare_with_random,
    curves,
    holm,
    paired,
    rows_saved,
    verdict,
)
from labelzoo.study.database import Round
from labelzoo.study.pictures import draw_pictures, mean_band, spread_heights, styles
from labelzoo.study.results import finite, named, summary
from tests.study.small import small_data, small_plan

PLACE = ("own", "E", "precision")


def test_area_is_the_mean_height() -> None:
    values = np.array([[0.0, 1.0, 2.0, 3.0], [1.0, 1.0, 1.0, 1.0], [0.0, 4.0, 0.0, np.nan]])
    found = area(values)
    assert found[:2] == pytest.approx([1.5, 1.0]) and np.isnan(found[2])
    assert area(np.array([[0.0, 4.0, 0.0]])) == pytest.approx([2.0])  # (2 + 2) / 2
    assert area(np.array([[7.0]])) == pytest.approx([7.0])


def test_paired_interval_by_hand() -> None:
    # Mean 2, s^2 = 1, J = 3: error = sqrt(1/3 + 1/2); t(.975, 2) = 4.302653, t(1 - .05/4, 2) = 6.205347.
    gap = np.array([1.0, 2.0, 3.0])
    error = math.sqrt(1 / 3 + 1 / 2)
    alone = paired(gap, 0.5, 1)
    assert alone.difference == 2.0 and alone.num_seeds == 3
    assert alone.interval == pytest.approx((2 - 4.302653 * error, 2 + 4.302653 * error), abs=1e-5)
    family = paired(gap, 0.5, 2)
    assert family.interval == pytest.approx((2 - 6.205347 * error, 2 + 6.205347 * error), abs=1e-5)
    # With 2 degrees of freedom P(|T| > t) = 1 - t / sqrt(2 + t^2).
    t = 2 / error
    assert alone.p_value == pytest.approx(1 - t / math.sqrt(2 + t * t), abs=1e-12)
    assert family.p_value == alone.p_value


def test_paired_with_few_or_equal_seeds() -> None:
    assert paired(np.array([0.3]), 0.5, 1) == Paired(0.3, (-math.inf, math.inf), None, 1)
    assert paired(np.zeros(4), 0.5, 3) == Paired(0.0, (0.0, 0.0), 1.0, 4)
    assert paired(np.full(4, 0.5), 0.5, 3).p_value == 0.0
    assert paired(np.zeros(0), 0.5, 1).num_seeds == 0


def test_holm_by_hand() -> None:
    # Sorted .005 .01 .02 .04 times 4, 3, 2, 1, then the running maximum.
    found = holm({"a": 0.01, "b": 0.04, "c": 0.005, "d": 0.02})
    assert found == pytest.approx({"c": 0.02, "a": 0.03, "d": 0.04, "b": 0.04})
    assert holm({"a": 0.6, "b": 0.7}) == {"a": 1.0, "b": 1.0}
    assert holm({}) == {}


def test_rows_saved_is_interpolated() -> None:
    labelled = np.array([[20.0, 30.0, 40.0]])
    found = Curves(
        {
            ("random", *PLACE): np.array([[0.1, 0.2, 0.4]]),
            ("quick", *PLACE): np.array([[0.1, 0.5, 0.3]]),
            ("slow", *PLACE): np.array([[0.1, 0.1, 0.3]]),
        },
        dict.fromkeys(("random", "quick", "slow"), labelled),
        (0,),
    )
    assert rows_saved(found, "quick", PLACE) == pytest.approx(40 - (20 + 10 * 0.3 / 0.4))
    assert rows_saved(found, "slow", PLACE) is None
    assert rows_saved(found, "random", PLACE) == 0.0


def test_verdicts_say_who_loses() -> None:
    assert "LOSES to random: -2.00 points" in verdict("a", "precision", Paired(-0.02, (-0.03, -0.01), 0, 5))
    assert "a beats random: +2.00 points" in verdict("a", "precision", Paired(0.02, (0.01, 0.03), 0, 5))
    assert "no difference from random shown" in verdict("a", "precision", Paired(0.02, (-0.01, 0.03), 0, 5))
    assert "no interval" in verdict("a", "precision", Paired(0.02, (-math.inf, math.inf), None, 1))
    assert "+0.50 nats a row" in verdict("a", "log_score", Paired(0.5, (0.1, 0.9), 0, 5))


def made_rows(acquire: str, seed: int, heights: list[float]) -> list[Round]:
    """Rounds whose metrics all have these heights."""
    rows = []
    for number, height in enumerate(heights):
        part = {"precision": height, "macro_auc": None, "micro_f1": height, "log_score": height}
        metrics = {"rows": 6 + 3 * number, "cells": 18 + 9 * number}
        judged = {name: {"E": part, "T": part} for name in ("own", "common")}
        rows.append(Round(acquire, seed, number, [0], {**metrics, **judged}, {}, 0.1))
    return rows


def test_comparison_of_a_whole_study() -> None:
    data = small_data()
    plan = small_plan(data, acquire=("bad", "absent", "random", "oracle"), oracle=2, seeds=(0, 1, 2))
    rows = []
    for seed in range(3):
        rows += made_rows("random", seed, [0.1, 0.3, 0.5 + 0.01 * seed])
        rows += made_rows("bad", seed, [0.1, 0.2, 0.4 + 0.01 * seed])
        rows += made_rows("oracle", seed, [0.1, 0.5, 0.6 + 0.01 * seed])
    rows += made_rows("absent", 0, [0.1])  # stopped after the start: not compared
    found = curves(plan, rows, 3)
    comparison = compare_with_random(plan, found, 0.5)
    assert {one.acquire for one in comparison} == {"bad"}
    one = next(c for c in comparison if (c.evaluator, c.part, c.metric) == PLACE)
    assert one.difference == pytest.approx(-0.075)  # areas .225 and .3
    assert one.share_of_oracle == pytest.approx(-0.075 / 0.125)
    assert one.interval[1] < 0 and "LOSES" in one.verdict and one.rows_saved is None
    assert one.holm == one.p_value
    assert not [c for c in comparison if c.metric == "macro_auc"]
    text = summary(plan, comparison)
    assert "0 beat random rows and 1 LOSES (bad) to them" in text
    pictures = draw_pictures(plan, found, comparison)
    assert [p.file for p in pictures] == ["curves_own.png", "curves_common.png", "areas.png"]
    assert all(p.png.startswith(b"\x89PNG") for p in pictures)


def test_rows_are_saved_only_where_a_difference_is_shown() -> None:
    plan = small_plan(small_data(), acquire=("even", "good", "random"), seeds=(0, 1, 2))
    rows = []
    for seed, luck in enumerate((0.2, -0.2, 0.01)):
        rows += made_rows("random", seed, [0.1, 0.2, 0.3])
        rows += made_rows("good", seed, [0.1, 0.4 + 0.001 * seed, 0.5])
        rows += made_rows("even", seed, [0.1, 0.2 + luck, 0.31])
    found = curves(plan, rows, 3)
    even, good = (c for c in compare_with_random(plan, found, 0.5) if _place(c) == PLACE)
    assert rows_saved(found, "even", PLACE) is not None  # it gets there, by chance: nothing is claimed
    assert even.interval[0] < 0 < even.interval[1] and even.rows_saved is None
    assert good.interval[0] > 0 and good.rows_saved == rows_saved(found, "good", PLACE)
    assert good.rows_saved == pytest.approx(12 - (6 + 3 * 0.2 / 0.301), abs=1e-9)


def _place(one: Comparison) -> tuple[str, str, str]:
    return one.evaluator, one.part, one.metric


def compared(name: str, part: str, low: float, high: float, evaluator: str = "own") -> Comparison:
    """A comparison on the headline metric with this interval."""
    middle = (low + high) / 2
    return Comparison(name, evaluator, part, "precision", middle, (low, high), 0.1, 0.1, 5, None, None, "")


def test_the_target_rows_have_a_sentence_where_they_show_something() -> None:
    plan = small_plan(small_data(), evaluators=("own",))
    scored = [compared("a", "E", -0.1, 0.2), compared("b", "E", -0.1, 0.1)]
    nothing = "Judged by the learner itself, no acquisition function is shown to differ from random rows"
    quiet = [compared("a", "T", -0.1, 0.2), compared("b", "T", -0.2, 0.1)]
    assert summary(plan, scored + quiet) == f"{nothing} (2 compared)."
    shown = [compared("a", "T", 0.1, 0.2), compared("b", "T", -0.2, -0.1)]
    assert summary(plan, scored + shown) == (
        f"{nothing} (2 compared). At the target rows themselves, of 2 acquisition functions 1 beats (a) "
        "random rows and 1 LOSES (b) to them."
    )
    other = [compared(name, "T", 0.1, 0.2, "common") for name in ("a", "b")]
    assert summary(plan, scored + quiet + other) == f"{nothing} (2 compared)."  # of another evaluator


def test_json_holds_no_nan() -> None:
    value = finite({"a": [math.nan, np.float64(1.5), (math.inf, 2)], "b": np.int64(3), "c": "nan", 4: True})
    assert value == {"a": [None, 1.5, [None, 2]], "b": 3, "c": "nan", "4": True}
    assert json.dumps(value, allow_nan=False)
    assert named([], "beat") == "0 beat" and named(["a", "b"], "LOSE") == "2 LOSE (a, b)"


def test_names_at_the_ends_keep_apart() -> None:
    heights = spread_heights([1.0, 1.1, 1.05, 5.0, 1.0], 0.5)
    assert (np.diff(np.sort(heights)) >= 0.5 - 1e-12).all() and heights[3] == 5.0
    assert heights[0] < heights[2] < heights[1]
    assert np.mean(heights[[0, 1, 2, 4]]) == pytest.approx(np.mean([1.0, 1.1, 1.05, 1.0]))


def test_band_and_styles() -> None:
    mean, half = mean_band(np.array([[1.0, 2.0], [3.0, 2.0], [np.nan, 9.0]]))
    assert mean.tolist() == [2.0, 2.0] and half == pytest.approx([12.7062, 0.0], abs=1e-3)  # t(.975, 1) * 1
    assert np.isnan(mean_band(np.array([[1.0, 2.0]]))[1]).all()
    look = styles([f"f{i}" for i in range(16)])
    assert len({(str(s["color"]), str(s["linestyle"])) for s in look.values()}) == 18
