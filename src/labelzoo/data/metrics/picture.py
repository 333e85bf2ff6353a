"""The reliability diagram: shares against probabilities, with intervals, above the number of cells a bin."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from labelzoo.whole_file import whole_file


def reliability_plot(
    tables: Any, path: str | os.PathLike[str] | None = None, title: str = "", scale: Any = "linear"
) -> Any:
    """Draw one or more tables that `reliability` gives; return the Matplotlib figure.

    Parameters
    ----------
    tables : DataFrame, or mapping of name to DataFrame
        At most eight.
    path : path of a PNG, optional
        Written at once or not at all.
    title : str
    scale : "linear" or "log"
        Of both axes. Where labels are rare, "log" with bins of equal mass shows the small probabilities; a
        share of 0 is then drawn at the lower edge.

    Raises
    ------
    ValueError
        For no table, more than eight, a table without the columns of `reliability`, or another scale.
    """
    from labelzoo.figures import COLOURS, MARKERS, new_figure, plain, to_png

    curves = _checked(tables)
    if len(curves) > len(COLOURS):
        raise ValueError(f"reliability_plot draws at most {len(COLOURS)} tables, got {len(curves)}")
    if scale not in ("linear", "log"):
        raise ValueError(f"scale must be 'linear' or 'log', got {scale!r}")
    floor = _floor(curves) if scale == "log" else 0.0
    figure, axes = new_figure(5.2, 5.6, rows=2)
    axes[0, 0].get_gridspec().set_height_ratios([3, 1])
    top, bottom = axes[0, 0], axes[1, 0]
    top.plot([floor, 1], [floor, 1], color="#bbbbbb", linewidth=1, linestyle="--", label="calibrated")
    for (name, table), colour, marker in zip(curves.items(), COLOURS, MARKERS, strict=False):
        _curve(top, table, colour, marker, plain(name), floor)
        _counts(bottom, table, colour, floor, filled=len(curves) == 1)
    _dress(top, bottom, floor, any(len(table) for table in curves.values()))
    top.set_title(plain(title), fontsize=10)
    if path is not None:
        with whole_file(Path(path)) as temporary:
            temporary.write_bytes(to_png(figure))
    return figure


def _floor(curves: Mapping[str, pd.DataFrame]) -> float:
    """Return where the logarithmic axes begin: a little below the smallest positive number drawn."""
    seen = np.concatenate([np.r_[t["predicted"], t["share"]] for t in curves.values()])
    return 0.6 * float(np.min(seen[seen > 0], initial=1.0))


def _dress(top: Any, bottom: Any, floor: float, any_cells: bool) -> None:
    """Set limits, scales and texts of the two panels."""
    limits = (floor, 1.15) if floor else (-0.02, 1.02)
    scale = "log" if floor else "linear"
    top.set(xscale=scale, yscale=scale, xlim=limits, ylim=limits)
    top.set_ylabel("share of positives, with 95 % interval", fontsize=9)
    top.tick_params(labelbottom=False)
    top.legend(fontsize=8, frameon=False, loc="upper left")
    bottom.set(xscale=scale, xlim=limits)
    if any_cells:
        bottom.set(yscale="log", ylim=(0.7, None))
    bottom.set_ylabel("cells in the bin", fontsize=9)
    bottom.set_xlabel("predicted probability of a label", fontsize=9)


def _checked(tables: Any) -> dict[str, pd.DataFrame]:
    """Return the tables by name, those without a bin left out; a single table has no name."""
    curves = dict(tables) if isinstance(tables, Mapping) else {"": tables}
    if not curves:
        raise ValueError("reliability_plot has no table to draw")
    for name, table in curves.items():
        lacking = {"low", "high", "cells", "predicted", "share", "share_low", "share_high"}
        lacking -= set(getattr(table, "columns", ()))
        if lacking:
            raise ValueError(f"reliability table {name!r} lacks the columns {', '.join(sorted(lacking))}")
    return {str(name): table for name, table in curves.items()}


def _curve(axis: Any, table: pd.DataFrame, colour: str, marker: str, name: str, floor: float) -> None:
    """Draw the bins of one table as points with error bars."""
    share, low = (np.maximum(table[key].to_numpy(float), floor) for key in ("share", "share_low"))
    high = np.maximum(table["share_high"].to_numpy(float), share)
    bars = np.stack([share - np.minimum(low, share), high - share])
    axis.errorbar(
        np.maximum(table["predicted"], floor), share, yerr=bars,
        fmt=f"{marker}-", markersize=4, linewidth=0.9, elinewidth=0.8, capsize=2, color=colour,
        label=name or "bins",
    )  # fmt: skip


def _counts(axis: Any, table: pd.DataFrame, colour: str, floor: float, filled: bool) -> None:
    """Draw the number of cells of each bin of one table; several tables as outlines, to see them all."""
    left = np.maximum(table["low"].to_numpy(float), floor)
    width = table["high"].to_numpy(float) - left
    face = (colour, 0.35) if filled else "none"
    axis.bar(left, table["cells"], width, align="edge", facecolor=face, edgecolor=colour, linewidth=1)
