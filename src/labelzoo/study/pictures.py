"""Pictures of a study: learning curves with their difference to random, and areas with intervals."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

from labelzoo.data import LabelData
from labelzoo.figures import BASELINE_COLOUR, COLOURS, REFERENCE_COLOUR, new_figure, plain, to_png
from labelzoo.report import Picture
from labelzoo.study.analysis import CONFIDENCE, HEADLINE, RANDOM, Comparison, Curves
from labelzoo.study.plan import Plan
from labelzoo.study.results import gather, headline

Array = Any
ORACLE = "oracle"
WHO = {"own": "the learner itself", "common": "the common classifier"}
POINTS = 100.0
"""Precision is drawn in points (hundredths)."""
COLUMNS = 4
WIDTH = 9.0


def study_pictures(path: Path, data: LabelData) -> list[Picture]:
    """Return the pictures of the study in the database `path`, made of `data`."""
    gathered = gather(path, data)
    return draw_pictures(gathered.plan, gathered.found, gathered.comparison)


def draw_pictures(plan: Plan, found: Curves, comparison: list[Comparison]) -> list[Picture]:
    """Return every picture that the results support."""
    pictures = [_curves_picture(plan, found, evaluator) for evaluator in plan.evaluators]
    pictures.append(_forest_picture(plan, comparison))
    return [picture for picture in pictures if picture is not None]


def styles(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return colour and line by acquisition function; random is black, the oracle grey."""
    look: dict[str, dict[str, Any]] = {
        RANDOM: {"color": REFERENCE_COLOUR, "linestyle": "-", "linewidth": 2.2, "zorder": 4},
        ORACLE: {"color": BASELINE_COLOUR, "linestyle": (0, (1, 1)), "linewidth": 1.6},
    }
    for i, name in enumerate(name for name in names if name not in look):
        line = ("-", (0, (5, 1.5)), (0, (1.5, 1)))[i // len(COLOURS) % 3]
        look[name] = {"color": COLOURS[i % len(COLOURS)], "linestyle": line, "linewidth": 1.4}
    return look


def mean_band(values: Array) -> tuple[Array, Array]:
    """Return mean (round,) and half width (round,) of its 95 % t interval over seeds (seed, round).

    Seeds with a round missing are left out; the width is NaN below two seeds.
    """
    whole = values[~np.isnan(values).any(axis=1)]
    if not len(whole):
        return np.full(values.shape[1], np.nan), np.full(values.shape[1], np.nan)
    if len(whole) < 2:
        return whole[0], np.full(values.shape[1], np.nan)
    error = whole.std(axis=0, ddof=1) / np.sqrt(len(whole))
    return whole.mean(axis=0), student.isf((1 - CONFIDENCE) / 2, len(whole) - 1) * error


def spread_heights(heights: Sequence[float], gap: float) -> Array:
    """Return heights moved as little as a few passes can, in their order and at least `gap` apart."""
    order = np.argsort(heights, kind="stable")
    blocks: list[list[Any]] = []  # [members, centre]
    for i in order:
        blocks.append([[i], float(heights[i])])
        while len(blocks) > 1 and _too_near(blocks[-2], blocks[-1], gap):
            members = blocks[-2][0] + blocks[-1][0]
            blocks[-2:] = [[members, float(np.mean([heights[k] for k in members]))]]
    out = np.zeros(len(order))
    for members, centre in blocks:
        out[members] = centre + gap * (np.arange(len(members)) - (len(members) - 1) / 2)
    return out


def _too_near(low: list[Any], high: list[Any], gap: float) -> bool:
    room = gap * (len(low[0]) + len(high[0])) / 2
    return bool(high[1] - low[1] < room)


def _curves_picture(plan: Plan, found: Curves, evaluator: str) -> Picture | None:
    values = {
        name: POINTS * found.values[(name, evaluator, "E", HEADLINE)]
        for name in plan.acquire
        if (name, evaluator, "E", HEADLINE) in found.values
        and np.isfinite(mean_band(found.values[(name, evaluator, "E", HEADLINE)])[0]).any()
    }
    if not values or plan.rounds < 1:
        return None
    caption = (
        "Above, the mean over seeds by rows labelled (the band is random's 95 % t interval); below, each "
        "function's paired difference to random, in points, with its own band at each number of rows: a band "
        "wholly above zero is better there, wholly below worse. The verdicts are about whole areas."
    )
    title = f"Learning curves, judged by {WHO[evaluator]}"
    return Picture(f"curves_{evaluator}.png", title, caption, to_png(learning_curves(values, found.labelled)))


def learning_curves(values: dict[str, Array], labelled: dict[str, Array]) -> Any:
    """Draw mean curves with names at their ends, and below them each difference to random.

    Parameters
    ----------
    values : dict of str to (seed, round) array
        In points.
    labelled : dict of str to (seed, round) array
    """
    look = styles(list(values))
    others = [name for name in values if name != RANDOM] if RANDOM in values else []
    rows = -(-len(others) // COLUMNS)
    figure, _ = new_figure(WIDTH, 4.2 + 1.55 * rows, 1, 1)
    figure.clear()
    grid = figure.add_gridspec(1 + rows, COLUMNS, height_ratios=[2.7, *[1.0] * rows])
    _draw_means(_panel(figure, grid[0, :]), values, labelled, look)
    first = None
    for i, name in enumerate(others):
        axis = _panel(figure, grid[1 + i // COLUMNS, i % COLUMNS], first)
        first = first or axis
        _draw_difference(axis, values[name] - values[RANDOM], labelled[name], look[name], name)
        axis.tick_params(labelleft=i % COLUMNS == 0, labelbottom=i + COLUMNS >= len(others))
        if i % COLUMNS == 0:
            axis.set_ylabel("points to random", fontsize=8)
    return figure


def _panel(figure: Any, place: Any, shared: Any = None) -> Any:
    axis = figure.add_subplot(place, sharex=shared, sharey=shared)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=8)
    return axis


def _draw_means(axis: Any, values: dict[str, Array], labelled: dict[str, Array], look: Any) -> None:
    ends: dict[str, tuple[float, float]] = {}
    for name, table in values.items():
        mean, half = mean_band(table)
        x = mean_band(labelled[name])[0]
        if not np.isfinite(mean).any():
            continue
        axis.plot(x, mean, **look[name])
        if name == RANDOM:
            axis.fill_between(x, mean - half, mean + half, color=look[name]["color"], alpha=0.12, linewidth=0)
        ends[name] = (float(x[-1]), float(mean[-1]))
    low, high = axis.get_ylim()
    right = max(x for x, _ in ends.values())
    left = axis.get_xlim()[0]
    heights = spread_heights([y for _, y in ends.values()], (high - low) / 19)
    axis.set_xlim(left, right + 0.2 * (right - left))
    axis.set_ylim(min(low, heights.min() - (high - low) / 40), max(high, heights.max() + (high - low) / 40))
    for (name, (x, y)), height in zip(ends.items(), heights, strict=True):
        bold = "bold" if name == RANDOM else "normal"
        near = right + 0.035 * (right - left)
        axis.plot([x, near], [y, height], color=look[name]["color"], linewidth=0.6)
        axis.text(
            near + 0.005 * (right - left), height, plain(name), va="center", fontsize=8.5, weight=bold,
            color=look[name]["color"],
        )  # fmt: skip
    axis.grid(axis="y", color="#eeeeee")
    axis.set_ylabel("mean of P@1, P@2, P@3 on E (points)", fontsize=9)
    axis.set_xlabel("rows labelled", fontsize=9)


def _draw_difference(axis: Any, gap: Array, labelled: Array, style: dict[str, Any], name: str) -> None:
    mean, half = mean_band(gap)
    x = mean_band(labelled)[0]
    axis.axhline(0, color=REFERENCE_COLOUR, linewidth=0.9)
    axis.fill_between(x, mean - half, mean + half, color=style["color"], alpha=0.25, linewidth=0)
    axis.plot(x, mean, **style)
    axis.set_title(plain(name), fontsize=9, color=style["color"], pad=2, loc="left")
    axis.grid(axis="y", color="#eeeeee")


def _forest_picture(plan: Plan, comparison: list[Comparison]) -> Picture | None:
    panels = {evaluator: headline(comparison, evaluator) for evaluator in plan.evaluators}
    panels = {evaluator: mine for evaluator, mine in panels.items() if mine}
    if not panels:
        return None
    caption = (
        "Mean difference of areas to random, in points, with intervals that hold at 95 % for all functions "
        "together. Blue lies wholly above zero (better than random), red wholly below (worse), grey shows no "
        "difference."
    )
    return Picture("areas.png", "Areas against random, rows scored only", caption, to_png(forest(panels)))


def forest(panels: dict[str, list[Comparison]]) -> Any:
    """Draw area differences with intervals, one panel an evaluator, in the order of the first."""
    names = [one.acquire for one in next(iter(panels.values()))]
    figure, axes = new_figure(WIDTH if len(panels) > 1 else 6.0, 1.1 + 0.32 * len(names), 1, len(panels))
    for axis in axes.flat[1:]:
        axis.sharex(axes.flat[0])
    for axis, (evaluator, mine) in zip(axes.flat, panels.items(), strict=True):
        for one in mine:
            _draw_interval(axis, names.index(one.acquire), one)
        axis.axvline(0, color=REFERENCE_COLOUR, linewidth=0.9, zorder=1)
        axis.set_ylim(len(names) - 0.4, -0.6)
        axis.set_yticks(range(len(names)), [plain(name) for name in names])
        axis.tick_params(labelleft=axis is axes.flat[0], length=0, axis="y")
        axis.grid(axis="x", color="#eeeeee")
        axis.set_title(f"judged by {WHO[evaluator]}", fontsize=9)
        axis.set_xlabel("worse  ←  points of area against random  →  better", fontsize=8.5)
    return figure


def _draw_interval(axis: Any, row: int, one: Comparison) -> None:
    low, high = (POINTS * end for end in one.interval)
    colour = COLOURS[0] if low > 0 else "#c0392b" if high < 0 else "#777777"
    if np.isfinite(low):
        axis.plot([low, high], [row, row], color=colour, linewidth=2, solid_capstyle="butt")
    axis.plot(POINTS * one.difference, row, marker="o", color=colour, markersize=5)
