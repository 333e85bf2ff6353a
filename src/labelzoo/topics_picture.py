"""A picture of topics: the most probable labels of each as bars, beside the labels' overall shares."""

from typing import Any

import numpy as np
import pandas as pd

from labelzoo.figures import new_figure, plain, to_png

MAX_NAME = 26
"""Characters of a label or topic name that are shown."""

BAR, TICK = "#4878a8", "#d1605e"


def topics_png(table: pd.DataFrame, num_labels: int = 8, columns: int | None = None) -> bytes:
    """Draw a table of `labelzoo.topics.topic_table` and return the PNG.

    One panel a topic: bars are the probabilities v_kl of its top labels, each panel on its own scale with the
    largest printed; the red tick is v_kl / lift, the label's overall share.

    Parameters
    ----------
    table : DataFrame
    num_labels : int
        Bars a panel, at most.
    columns : int or None
        Panels side by side; None: 3 up to 9 topics, 4 up to 20, then 5.
    """
    count = len(table)
    if columns is None:
        columns = min(count, 3 if count <= 9 else 4 if count <= 20 else 5)
    rows = -(-count // columns)
    bars = max(1, min(num_labels, max(len(p) for p in table["probable"])))
    figure, axes = new_figure(3.4 * columns, rows * (0.55 + 0.19 * bars) + 0.4, rows, columns)
    overall = table.attrs.get("overall", {})
    for axis, (_, topic) in zip(axes.flat, table.iterrows(), strict=False):
        _panel(axis, topic, bars, overall)
    for axis in axes.flat[count:]:
        axis.set_axis_off()
    figure.suptitle("bars: probability of a label in the topic; red tick: its share overall", fontsize=9)
    return to_png(figure)


def _panel(axis: Any, topic: Any, bars: int, overall: dict[str, float]) -> None:
    shown = topic["probable"][:bars]
    places = np.arange(len(shown))
    values = np.array([value for _, value in shown])
    axis.barh(places, values, color=BAR, height=0.72)
    for place, (name, _) in enumerate(shown):
        if name in overall:
            axis.plot([overall[name]] * 2, [place - 0.36, place + 0.36], color=TICK, lw=1.6)
    axis.set_yticks(places, [_short(name) for name, _ in shown], fontsize=8)
    axis.set_ylim(bars - 0.4, -0.6)
    axis.set_xlim(0, 1.12 * max(values.max(), 1e-12))
    axis.set_xticks([values.max()], [f"{values.max():.2g}"], fontsize=8)
    weight = "" if np.isnan(topic["weight"]) else f"{topic['weight']:.1%}  "
    axis.set_title(weight + _short(topic["name"], MAX_NAME + 10), fontsize=9, loc="right")


def _short(text: str, length: int = MAX_NAME) -> str:
    return plain(text if len(text) <= length else text[: length - 1] + "…")
