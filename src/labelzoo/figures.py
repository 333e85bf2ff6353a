"""Pictures of a comparison: functions that return Matplotlib figures and touch no global state."""

import io
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from labelzoo.held_out import BASELINE

Array = Any
Look = Mapping[str, Mapping[str, Any]]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D31", "#6A3D9A")
"""Engines in order; told apart by people who see colours differently, and by markers besides."""

MARKERS = "sD^vPX*d"

REFERENCE_COLOUR = "#222222"
BASELINE_COLOUR = "#999999"

AGREE_SD = 0.2
"""Half width of the band in which means count as equal, in posterior sds of the reference."""

CLIP_SD = 3.0
"""Differences beyond so many sds are drawn at the edge."""

DPI = 150


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Any, Any]:
    """Return a figure of `width` x `height` inches and its array of axes (rows, columns)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=9)
    return figure, axes


def to_png(figure: Any) -> bytes:
    """Render a figure; a glyph that the font lacks is drawn as a box, without a warning."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(buffer, format="png", dpi=DPI, facecolor="white")
    return buffer.getvalue()


def plain(text: Any) -> str:
    """Return `text` with dollar signs that start no formula."""
    return str(text).replace("$", r"\$")


def styles(engines: Sequence[str], reference: str) -> dict[str, dict[str, Any]]:
    """Return colour and marker by engine for all pictures; the reference is black, the baseline grey."""
    found: dict[str, dict[str, Any]] = {}
    for i, name in enumerate(name for name in engines if name != reference):
        found[name] = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}
    found[reference] = {"color": REFERENCE_COLOUR, "marker": "o"}
    found[BASELINE] = {"color": BASELINE_COLOUR, "marker": "x"}
    return found


def standardised_differences(moments: Mapping[str, Any], reference: str, look: Look) -> Any:
    """Draw, for each engine, (its mean - the reference's mean) / the reference's sd: a dot a functional.

    Parameters
    ----------
    moments : mapping of str to Moments
        As `labelzoo.inference.compare` gives them.
    reference : str
    look : mapping
        As `styles` returns it.
    """
    ref = moments[reference]
    moves = ref.sd > 0
    engines = [name for name in moments if name != reference]
    figure, axes = new_figure(7.0, 1.3 + 0.5 * len(engines))
    axis = axes[0, 0]
    axis.axvspan(-AGREE_SD, AGREE_SD, color="#dddddd", zorder=0, label=f"±{AGREE_SD} sd: counts as equal")
    _mark_monte_carlo_error(axis, ref, moves)
    rng = np.random.default_rng(0)
    for row, name in enumerate(engines):
        gap = (moments[name].mean - ref.mean)[moves] / ref.sd[moves]
        height = row + rng.uniform(-0.25, 0.25, gap.size)
        inside = np.abs(gap) <= CLIP_SD
        dots = {"color": look[name]["color"], "alpha": 0.6, "linewidths": 0}
        axis.scatter(gap[inside], height[inside], s=14, **dots)
        for sign, shape in ((-1, "<"), (1, ">")):
            far = sign * gap > CLIP_SD
            axis.scatter(np.full(far.sum(), sign * CLIP_SD), height[far], s=24, marker=shape, **dots)
    axis.set_yticks(range(len(engines)), [plain(name) for name in engines])
    axis.set(xlim=(-1.06 * CLIP_SD, 1.06 * CLIP_SD), ylim=(len(engines) - 0.4, -0.6))
    axis.set_xlabel(f"(mean − mean of {plain(reference)}) / posterior sd of {plain(reference)}", fontsize=9)
    figure.legend(loc="outside upper left", fontsize=8, frameon=False, ncols=2)
    return figure


def _mark_monte_carlo_error(axis: Any, ref: Any, moves: Array) -> None:
    ratios = ref.mcse[moves] / ref.sd[moves]
    if not np.isfinite(ratios).any():
        return
    error = float(np.median(ratios[np.isfinite(ratios)]))
    dotted: dict[str, Any] = {"color": REFERENCE_COLOUR, "linestyle": ":", "linewidth": 1, "zorder": 1}
    axis.axvline(-2 * error, **dotted)
    axis.axvline(2 * error, label="±2 Monte Carlo errors of the reference (median)", **dotted)


def functional_family(names: Sequence[str]) -> tuple[str, Array]:
    """Return the largest family ``name[i]`` of functionals, and the positions of its members."""
    bases = np.asarray([name.partition("[")[0] for name in names])
    unique, counts = np.unique(bases, return_counts=True)
    family = str(unique[np.argmax(counts)])
    return family, np.flatnonzero(bases == family)


def spread_out(means: Array, candidates: Array, count: int = 10) -> Array:
    """Return at most `count` of the candidates, nearest to values spread evenly over their means."""
    ordered = candidates[np.argsort(means[candidates], kind="stable")]
    values = means[ordered]
    targets = np.linspace(values[0], values[-1], count)
    picks = np.unique(np.abs(values[:, None] - targets).argmin(axis=0))
    # Ties and gaps leave places free: fill them by rank.
    more = np.linspace(0, ordered.size - 1, min(count, ordered.size)).round().astype(int)
    extra = [i for i in more if i not in picks][: max(0, count - picks.size)]
    return ordered[np.sort(np.r_[picks, np.asarray(extra, int)])]


def functionals_by_engine(
    moments: Mapping[str, Any], names: Sequence[str], reference: str, look: Look
) -> Any:
    """Draw a few functionals of the largest family, ordered by the reference: mean and sd by engine."""
    family, members = functional_family(names)
    base = moments.get(reference, next(iter(moments.values())))
    chosen = spread_out(base.mean, members)
    engines = sorted(moments, key=lambda name: name != reference)
    figure, axes = new_figure(7.0, 3.6)
    axis = axes[0, 0]
    width = 0.7 / len(engines)
    for j, name in enumerate(engines):
        x = np.arange(chosen.size) + (j - (len(engines) - 1) / 2) * width
        mean, sd = moments[name].mean[chosen], moments[name].sd[chosen]
        bars = {"yerr": sd} if sd.any() else {}
        axis.errorbar(x, mean, fmt=look[name]["marker"], markersize=4, linewidth=1, label=plain(name),
                      color=look[name]["color"], **bars)  # fmt: skip
    ticks = [plain(names[i]) for i in chosen]
    axis.set_xticks(np.arange(chosen.size), ticks, rotation=40, ha="right", fontsize=8)
    for x in np.arange(1, chosen.size) - 0.5:
        axis.axvline(x, color="#eeeeee", linewidth=0.8, zorder=0)
    axis.set_ylabel(f"{plain(family)}: mean ± posterior sd", fontsize=9)
    figure.legend(loc="outside upper left", fontsize=8, frameon=False, ncols=min(len(engines), 6))
    return figure


def objective_traces(traces: Mapping[str, tuple[str, Array, str]]) -> Any:
    """Draw the objective of every optimiser, one panel each: their scales differ.

    Parameters
    ----------
    traces : mapping of str to (str, array, str)
        By title: what a step is called, the objective after each, and the colour.
    """
    columns = min(len(traces), 2)
    rows = -(-len(traces) // columns)
    figure, axes = new_figure(7.0 if columns == 2 else 4.2, 2.2 * rows + 0.2, rows, columns)
    for axis, (title, (step, values, colour)) in zip(axes.flat, traces.items(), strict=False):
        axis.plot(np.arange(len(values)), values, color=colour, linewidth=1.2)
        # The first steps from a rough start would flatten all that follows.
        low, high = np.min(values[min(max(1, len(values) // 20), len(values) - 1) :]), np.max(values)
        margin = 0.08 * (high - low) or 1.0
        axis.set_ylim(low - margin, high + margin)
        axis.set_title(plain(title), fontsize=9)
        axis.set_xlabel(step, fontsize=8)
        axis.ticklabel_format(axis="y", useOffset=False, style="plain")
    for axis in axes.flat[len(traces) :]:
        axis.set_visible(False)
    figure.supylabel("objective (nats, higher is better)", fontsize=9)
    return figure


def reliability_bins(truth: Array, probs: Array, bins: int = 8) -> pd.DataFrame:
    """Return bins that hold equal predicted positives: columns predicted, share, low, high, cells.

    `low` and `high` are the 95 % Jeffreys interval of the share of positives; cells are taken as independent.
    """
    from scipy.stats import beta

    order = np.argsort(probs, kind="stable")
    p, y = np.asarray(probs, float)[order], np.asarray(truth, float)[order]
    mass = np.cumsum(p)
    targets = np.linspace(0, mass[-1], bins + 1)[1:-1] if p.size else np.zeros(0)
    edges = np.searchsorted(mass, targets, side="right")
    rows = []
    for part_p, part_y in zip(np.split(p, edges), np.split(y, edges), strict=True):
        if part_p.size:
            k, n = part_y.sum(), part_y.size
            low, high = beta.ppf([0.025, 0.975], k + 0.5, n - k + 0.5)
            rows.append((part_p.mean(), k / n, 0.0 if k == 0 else low, 1.0 if k == n else high, n))
    return pd.DataFrame(rows, columns=["predicted", "share", "low", "high", "cells"])


def reliability(curves: Mapping[str, tuple[Array, Array]], look: Look) -> Any:
    """Draw the share of positives against the predicted probability, on logarithmic axes.

    Parameters
    ----------
    curves : mapping of str to (truth, probs)
        Held-out cells of each engine, arrays (cell,).
    look : mapping
    """
    positives = max(float(np.sum(truth)) for truth, _ in curves.values())
    bins = int(np.clip(positives // 15, 3, 8))
    tables = {name: reliability_bins(*curve, bins) for name, curve in curves.items()}
    seen = np.concatenate([np.r_[t["predicted"], t["share"]] for t in tables.values()])
    floor = 0.7 * float(np.min(seen[seen > 0], initial=1.0))
    figure, axes = new_figure(5.2, 4.4)
    axis = axes[0, 0]
    axis.plot([floor, 1], [floor, 1], color="#bbbbbb", linewidth=1, linestyle="--", label="perfect")
    for j, (name, table) in enumerate(tables.items()):
        shift = 1 + 0.05 * (j - (len(tables) - 1) / 2)  # error bars of engines must not hide one another
        share, low = np.maximum(table["share"], floor), np.maximum(table["low"], floor)
        bars = np.clip(np.array([share - low, table["high"] - share]), 0, None)
        axis.errorbar(
            np.maximum(table["predicted"], floor) * shift, share, yerr=bars, fmt=look[name]["marker"] + "-",
            markersize=4, linewidth=0.9, elinewidth=0.7, color=look[name]["color"], label=plain(name),
        )  # fmt: skip
    axis.set(xscale="log", yscale="log", xlim=(floor / 1.1, 1.2), ylim=(floor / 1.1, 1.2))
    axis.set_xlabel("predicted probability of a label (mean of the bin)", fontsize=9)
    axis.set_ylabel("share of positives, with 95 % interval", fontsize=9)
    axis.legend(fontsize=8, frameon=False, loc="upper left")
    return figure


def efficiency(rows: Sequence[tuple[str, float]], look: Look) -> Any:
    """Draw effective draws a second, one point an engine, on a logarithmic axis.

    Parameters
    ----------
    rows : sequence of (engine, smallest effective sample size over the functionals a second)
    look : mapping
    """
    figure, axes = new_figure(6.0, 0.9 + 0.45 * len(rows))
    axis = axes[0, 0]
    values = np.asarray([value for _, value in rows])
    for i, (name, value) in enumerate(rows):
        axis.plot(value, i, markersize=9, linestyle="none", **look[name])
        axis.annotate(f"{value:.3g}", (value, i), (9, 0), textcoords="offset points", va="center", fontsize=9)
    axis.grid(axis="x", color="#eeeeee")
    axis.set(xscale="log", xlim=(values.min() / 3, values.max() * 3), ylim=(len(rows) - 0.5, -0.5))
    axis.set_yticks(range(len(rows)), [plain(name) for name, _ in rows])
    axis.set_xlabel("effective draws a second (worst functional, without compilation)", fontsize=9)
    return figure
