"""The pictures of a comparison, with captions that say what to look for."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from labelzoo import figures
from labelzoo.report import Picture
from labelzoo.whole_run import HeldOut

STEPS = {"svi": "step"}
"""What one entry of an engine's objective is called; others sweep."""


def draw_pictures(comparison: Any, small: HeldOut, whole: HeldOut | None) -> list[Picture]:
    """Return every picture that the results support.

    Parameters
    ----------
    comparison : labelzoo.inference.compare.Comparison
    small : HeldOut
        Scores of the compared engines.
    whole : HeldOut or None
        Fits on the whole data, where the compared rows are a subset of them.
    """
    look = figures.styles([str(name) for name in comparison.table["engine"]], comparison.reference)
    found = [_differences(comparison, look), _functionals(comparison, look), _efficiency(comparison, look)]
    found.append(_traces(comparison.trees, whole.trees if whole else {}, look))
    found.append(_reliability(small, "reliability", "the comparison's held-out rows", look))
    if whole is not None and whole.trees:
        found.append(_reliability(whole, "reliability_whole", "held-out rows of the whole data", look))
    return [picture for picture in found if picture is not None]


def _differences(comparison: Any, look: figures.Look) -> Picture | None:
    reference = comparison.reference
    others = [name for name in comparison.moments if name != reference]
    if reference not in comparison.moments or not others or not (comparison.moments[reference].sd > 0).any():
        return None
    if not _reference_converged(comparison):
        return None
    figure = figures.standardised_differences(comparison.moments, reference, look)
    caption = (
        f"A dot is one quantity of the posterior. An engine that agrees with {reference} keeps its dots "
        f"inside the grey band; triangles lie beyond ±{figures.CLIP_SD:g} sd."
    )
    return Picture("differences.png", f"Posterior means against {reference}", caption, figures.to_png(figure))


def _reference_converged(comparison: Any) -> bool:
    table = comparison.table
    sentence = table.loc[table["engine"] == comparison.reference, "verdict"]
    return bool(sentence.empty or "not converged" not in str(sentence.iloc[0]))


def _functionals(comparison: Any, look: figures.Look) -> Picture | None:
    if not comparison.moments:
        return None
    names = comparison.functional_names
    figure = figures.functionals_by_engine(comparison.moments, names, comparison.reference, look)
    caption = (
        f"Some of the quantities {figures.functional_family(names)[0]}, ordered by their mean. Points of one "
        "group should stand at one height with bars of one length; an engine with short bars is too sure of "
        "itself. Point engines have no bars."
    )
    return Picture("functionals.png", "The same quantities by engine", caption, figures.to_png(figure))


def _efficiency(comparison: Any, look: figures.Look) -> Picture | None:
    rows = []
    for row in comparison.table.to_dict(orient="records"):
        value = row["ess_per_second"]
        if value is not None and np.isfinite(value) and value > 0:
            rows.append((str(row["engine"]), float(value)))
    if len(rows) < 2:
        return None
    caption = (
        "Further right is better, by factors: the axis is logarithmic. Engines whose chains have not "
        "converged are left out."
    )
    figure = figures.efficiency(rows, look)
    return Picture("efficiency.png", "Effective draws a second", caption, figures.to_png(figure))


def _traces(
    small: Mapping[str, xr.DataTree], whole: Mapping[str, xr.DataTree], look: figures.Look
) -> Picture | None:
    traces: dict[str, tuple[str, Any, str]] = {}
    for trees, where in ((small, ""), (whole, ", whole data")):
        for name, tree in trees.items():
            values = _objective(tree)
            if values.size > 1 and np.isfinite(values).all():
                traces[f"{name}{where}"] = (STEPS.get(name, "sweep"), values, look[name]["color"])
    if not traces:
        return None
    caption = (
        "Each curve should rise and then lie flat. EM never falls; SVI is noisy. The first steps may lie "
        "below the frame; heights of different engines are not comparable."
    )
    picture = figures.to_png(figures.objective_traces(traces))
    return Picture("objectives.png", "Objectives of the optimisers", caption, picture)


def _objective(tree: xr.DataTree) -> Any:
    if "optimization" not in tree.children or "objective" not in tree["optimization"]:
        return np.zeros(0)
    return np.asarray(tree["optimization"]["objective"])


def _reliability(found: HeldOut, stem: str, where: str, look: figures.Look) -> Picture | None:
    curves = {name: curve for name, curve in found.curves.items() if np.sum(curve[1]) > 0}
    if not curves:
        return None
    caption = (
        f"On {where}: on the dashed line, labels given 10 % are there in 10 % of the cells; below it the "
        "engine promises too much, above it too little. Each point holds equally many expected positives."
    )
    title = "Calibration" if stem == "reliability" else "Calibration, whole data"
    return Picture(f"{stem}.png", title, caption, figures.to_png(figures.reliability(curves, look)))
