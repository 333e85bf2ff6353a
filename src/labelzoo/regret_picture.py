"""The picture of acquisition regret: a panel an acquisition function, engines down, the floor as a band."""

from collections.abc import Mapping, Sequence
from typing import Any

from labelzoo import figures

TWO_SIDED = 0.95


def regret_picture(payloads: Sequence[Mapping[str, Any]]) -> bytes:
    """Return a PNG; one line of panels a payload of `labelzoo.regret_run.measure_regret`.

    Dots are regrets with 95 % intervals by Student's t over the replicates, the grey band is the floor's.
    """
    shown = [payload for payload in payloads if any(row["regret"] is not None for row in payload["engines"])]
    names = list(dict.fromkeys(row["acquisition"] for payload in shown for row in payload["engines"]))
    engines = {id(p): list(dict.fromkeys(row["name"] for row in p["engines"])) for p in shown}
    height = sum(1.3 + 0.34 * len(engines[id(p)]) for p in shown)
    figure, axes = figures.new_figure(2.0 + 2.3 * len(names), height + 0.4, len(shown), len(names))
    for line, payload in zip(axes, shown, strict=True):
        look = figures.styles(engines[id(payload)], payload["reference"])
        for axis, name in zip(line, names, strict=True):
            rows = {row["name"]: row for row in payload["engines"] if row["acquisition"] == name}
            _panel(axis, name, rows, engines[id(payload)], look, payload["repeats"])
        line[0].set_yticks(range(len(engines[id(payload)])), [figures.plain(e) for e in engines[id(payload)]])
        title = f"{payload['model']}, {payload['data']}" if payload["data"] else payload["model"]
        line[0].annotate(figures.plain(title), (0, 1), (0, 20), xycoords="axes fraction",
                         textcoords="offset points", fontsize=9, weight="bold")  # fmt: skip
    figure.supxlabel(
        "regret: part of the exact choice's gain over random that is lost (0 exact, 1 random)\n"
        "bars: 95 % intervals; grey band: exact inference with as many draws; scales differ",
        fontsize=9,
    )
    return figures.to_png(figure)


def _panel(
    axis: Any, name: str, rows: Mapping[str, Any], engines: Sequence[str], look: figures.Look, repeats: int
) -> None:
    from scipy.stats import t as student

    wide = float(student.ppf(0.5 + TWO_SIDED / 2, repeats - 1))
    found = [row for row in rows.values() if row["regret"] is not None]
    axis.axvline(0, color=figures.REFERENCE_COLOUR, linewidth=0.8, zorder=1)
    axis.axvline(1, color=figures.BASELINE_COLOUR, linewidth=0.8, linestyle="--", zorder=1)
    if found:
        ends = [row[key] + sign * wide * row[f"{key}_error"] for row in found for key in ("regret", "floor")
                for sign in (-1, 1)]  # fmt: skip
        # Most losses are small: the axis ends where the bars do, and shows chance only where that is near.
        low, high = min(-0.01, *ends), max(0.05, *ends)
        axis.set_xlim(low - 0.05 * (high - low), high + 0.05 * (high - low))
        floor, error = found[0]["floor"], wide * found[0]["floor_error"]
        axis.axvspan(floor - error, floor + error, color="#dddddd", zorder=0)
    for height, engine in enumerate(engines):
        row = rows.get(engine)
        if row is None or row["regret"] is None:
            axis.annotate("n/a", (0.5, height), xycoords=("axes fraction", "data"), ha="center", va="center",
                          fontsize=8, color="#777777")  # fmt: skip
            continue
        axis.errorbar(row["regret"], height, xerr=wide * row["regret_error"], fmt=look[engine]["marker"],
                      color=look[engine]["color"], markersize=5, linewidth=1.2, zorder=2)  # fmt: skip
    axis.set_ylim(len(engines) - 0.5, -0.5)
    axis.set_title(figures.plain(name), fontsize=9, loc="left")
    axis.set_yticks(range(len(engines)), [""] * len(engines))
    axis.tick_params(labelsize=8)
