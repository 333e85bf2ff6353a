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
    """Return every picture that the results support."""
    found = [_differences(comparison), _functionals(comparison), _efficiency(comparison)]
    found.append(_traces(comparison.trees, whole.trees if whole else {}))
    found.append(_reliability(small, "reliability", "the comparison's held-out rows", comparison.reference))
    if whole is not None and whole.trees:
        found.append(_reliability(whole, "reliability_whole", "held-out rows of the whole data", None))
    return [picture for picture in found if picture is not None]


def _differences(comparison: Any) -> Picture | None:
    reference = comparison.reference
    others = [name for name in comparison.moments if name != reference]
    if reference not in comparison.moments or not others or not (comparison.moments[reference].sd > 0).any():
        return None
    figure = figures.standardised_differences(comparison.moments, reference)
    caption = (
        f"A dot is one quantity of the posterior. An engine that agrees with {reference} keeps its dots inside the "
        f"light band; triangles lie beyond ±{figures.CLIP_SD:g} sd."
    )
    if not _reference_converged(comparison):
        caption += f" {reference} has not converged here, so distances from it prove nothing."
    return Picture("differences.png", f"Posterior means against {reference}", caption, figures.to_png(figure))


def _reference_converged(comparison: Any) -> bool:
    table = comparison.table
    sentence = table.loc[table["engine"] == comparison.reference, "verdict"]
    return sentence.empty or "not converged" not in str(sentence.iloc[0])


def _functionals(comparison: Any) -> Picture:
    figure = figures.functionals_by_engine(
        comparison.moments, comparison.functional_names, comparison.reference
    )
    family, _ = figures.functional_family(comparison.functional_names)
    caption = (
        f"Ten of the quantities {family}, ordered by their mean. Points of one group should stand at one height, and "
        "bars should be equally long; an engine with short bars is too sure of itself; points have no bars."
    )
    return Picture("functionals.png", "The same quantities by engine", caption, figures.to_png(figure))


def _efficiency(comparison: Any) -> Picture | None:
    rows = [
        (str(row["engine"]), float(row["ess_per_second"]))
        for row in comparison.table.to_dict(orient="records")
        if row["ess_per_second"] is not None
        and np.isfinite(row["ess_per_second"])
        and row["ess_per_second"] > 0
    ]
    if len(rows) < 2:
        return None
    figure = figures.efficiency(rows, comparison.reference)
    caption = "Longer is better, by factors: the axis is logarithmic. Only for samplers; meaningless where R-hat is high."
    return Picture("efficiency.png", "Effective draws a second", caption, figures.to_png(figure))


def _traces(small: Mapping[str, xr.DataTree], whole: Mapping[str, xr.DataTree]) -> Picture | None:
    traces: dict[str, tuple[str, Any]] = {}
    for trees, where in ((small, ""), (whole, ", whole data")):
        for name, tree in trees.items():
            if "optimization" in tree.children and "objective" in tree["optimization"]:
                values = np.asarray(tree["optimization"]["objective"])
                if values.size > 1 and np.isfinite(values).all():
                    traces[f"{name}{where}"] = (STEPS.get(name, "sweep"), values)
    if not traces:
        return None
    caption = (
        "Each curve should rise and then lie flat. EM never falls; SVI is noisy. The first steps may lie below the "
        "frame; heights of different engines are not comparable."
    )
    return Picture(
        "objectives.png",
        "Objectives of the optimisers",
        caption,
        figures.to_png(figures.objective_traces(traces)),
    )


def _reliability(found: HeldOut, stem: str, where: str, reference: str | None) -> Picture | None:
    curves = {name: curve for name, curve in found.curves.items() if curve[1].size and np.sum(curve[1]) > 0}
    if not curves:
        return None
    caption = (
        f"On {where}: points on the dashed line mean that labels given 10 % come true in 10 % of cells; points below it "
        "mean too sure. Each point holds equally many expected positives."
    )
    title = "Calibration" if stem == "reliability" else "Calibration, whole data"
    return Picture(f"{stem}.png", title, caption, figures.to_png(figures.reliability(curves, reference)))
