"""Where the samplers of Bernoulli-Poisson topics overtake NUTS: minimum ESS a second over sizes.

    python benchmarks/crossover.py --out FOLDER [--picture PNG] [--json]

Data are simulated with N rows, L labels, so many positives a row and K topics (10 features, predictor of
variance 3, topic concentration .5); one size at a time is varied around 500 rows, 50 labels, 5 positives a
row, 5 topics. Every engine runs 4 scattered chains of the same length in every cell (`LENGTHS`). The figure
is the smallest rank-normalised multi-chain ESS of 200 fixed label probabilities a CPU second of kept draws.
Where R-hat exceeds 1.05 the chains have not settled in that many draws: the cell is marked, and its figure,
though printed, means little.

The rule is least squares of log(ESS a second of `gibbs` over that of NUTS) on the logarithms of the sizes,
over cells where both settled. Each cell is written when it is done; an interrupted run goes on from there.
"""

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from kept_runs import kept
from topic_sampler import RHAT_LIMIT, probabilities, run_engine, simulate_sizes

from labelzoo.inference.compare.verdict import moments
from labelzoo.models import registry

AXES = ("rows", "labels", "positives_a_row", "topics")
BASE = (500, 50, 5, 5)
CELLS = (
    BASE,
    (500, 50, 15, 5),
    (2000, 50, 5, 5),
    (100, 50, 5, 5),
    (500, 50, 5, 15),
    (500, 300, 5, 5),
    (500, 50, 2, 5),
    (500, 20, 5, 5),
    (500, 50, 5, 2),
)
"""(rows, labels, positives a row, topics)."""

LENGTHS = {"gibbs": (800, 500, 4), "gibbs_counts": (300, 150, 2), "nuts": (150, 150, 1)}
"""Warm-up, draws kept of a chain, and sweeps between them."""
MODEL = "bernoulli_poisson_topics"
COLOURS = {"gibbs": "#0072B2", "gibbs_counts": "#D55E00", "nuts": "#555555"}


def measure(engine: Any, entry: Any, data: Any, settings: Any, seed: int) -> dict[str, Any]:
    """Return the figures of one engine on one data set."""
    warmup, kept, thinning = LENGTHS[engine.name]
    options = {"num_warmup": warmup, "thinning": thinning, **settings}
    run = run_engine(engine, entry.spec, data, kept, seed, **options)
    m = moments(probabilities(entry.spec, run.tree, data, settings))
    return {
        "min_ess_per_second": float(np.nanmin(m.ess_bulk)) / run.lasted,
        "median_ess_per_second": float(np.nanmedian(m.ess_bulk)) / run.lasted,
        "max_rhat": float(np.nanmax(m.rhat)),
        "kept_seconds": run.lasted,
        "seconds_before": run.first,
    }


def cell_figures(cell: tuple[int, ...], seed: int) -> dict[str, Any]:
    """Simulate the data of a cell and run every engine on it."""
    rows, labels, each, topics = cell
    size = {"rows": rows, "features": 10, "labels": labels, "topics": topics, "eta": 0.5, "var": 3}
    data, settings = simulate_sizes({**size, "positives": rows * each}, np.random.default_rng([seed, *cell]))
    entry = registry.get(MODEL)
    figures: dict[str, Any] = dict(zip(AXES, cell, strict=True))
    for name in LENGTHS:
        figures[name] = measure(entry.engines[name], entry, data, settings, seed)
        print(f"{cell} {name}: {json.dumps(figures[name])}", file=sys.stderr)
    return figures


def all_cells(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the figures of every cell, those that are stored read back."""
    folder = Path(args.out)
    folder.mkdir(parents=True, exist_ok=True)
    results = []
    for cell in CELLS:
        path = folder / ("_".join(map(str, cell)) + f"_seed{args.seed}.json")
        results.append(kept(path, partial(cell_figures, cell, args.seed)))
    return results


def settled(figures: dict[str, Any]) -> bool:
    """Return whether the chains of an engine agree."""
    return bool(figures["max_rhat"] < RHAT_LIMIT)


def rule(results: list[dict[str, Any]], engine: str) -> dict[str, Any] | None:
    """Return log(engine / nuts) as constant + slopes x logs of sizes over `BASE`, with standard errors."""
    both = [row for row in results if settled(row[engine]) and settled(row["nuts"])]
    if len(both) <= len(AXES) + 1:
        return None
    design = np.array([[1.0, *(np.log(row[a] / b) for a, b in zip(AXES, BASE, strict=True))] for row in both])
    ratio = np.array([row[engine]["min_ess_per_second"] / row["nuts"]["min_ess_per_second"] for row in both])
    slopes = np.linalg.lstsq(design, np.log(ratio), rcond=None)[0]
    left = np.log(ratio) - design @ slopes
    spread = np.sqrt((left**2).sum() / (len(both) - design.shape[1]))
    errors = spread * np.sqrt(np.diag(np.linalg.pinv(design.T @ design)))
    names = ("at_base", *AXES)
    return {
        "cells": len(both),
        "faster_in": int((ratio > 1).sum()),
        "slopes": dict(zip(names, slopes.tolist(), strict=True)),
        "standard_errors": dict(zip(names, errors.tolist(), strict=True)),
        "residual_factor": float(np.exp(spread)),
    }


def as_text(results: list[dict[str, Any]], rules: dict[str, Any]) -> str:
    """Return a Markdown table, one line a cell, and the rules."""
    lines = [
        "| rows | labels | positives a row | topics | `gibbs` | `gibbs_counts` | `nuts` | gibbs / nuts |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in results:
        shown = [
            f"{row[name]['min_ess_per_second']:.3g}{'' if settled(row[name]) else ' (R-hat)'}"
            for name in LENGTHS
        ]
        ratio = row["gibbs"]["min_ess_per_second"] / row["nuts"]["min_ess_per_second"]
        lines.append("| " + " | ".join([*(str(row[a]) for a in AXES), *shown, f"{ratio:.2g}"]) + " |")
    for name, found in rules.items():
        if found is None:
            lines.append(f"{name}: too few cells in which it and nuts settled for a rule")
            continue
        powers = ", ".join(
            f"{a} ^ {found['slopes'][a]:.2f} +- {found['standard_errors'][a]:.2f}" for a in AXES
        )
        lines.append(
            f"{name} / nuts = {np.exp(found['slopes']['at_base']):.2g} at {BASE}, times {powers} (sizes over "
            f"those of the base); {found['cells']} cells, faster in {found['faster_in']}, residual factor "
            f"{found['residual_factor']:.2g}"
        )
    return "\n".join(lines)


def draw(results: list[dict[str, Any]], path: str) -> None:
    """Draw minimum ESS a second against each size, the others at the base; hollow where chains disagree."""
    figure, axes = plt.subplots(1, 4, figsize=(13, 3.6), sharey=True, layout="constrained")
    for index, (panel, axis) in enumerate(zip(axes, AXES, strict=True)):
        line = [
            r
            for r in results
            if all(r[a] == b for j, (a, b) in enumerate(zip(AXES, BASE, strict=True)) if j != index)
        ]
        line.sort(key=lambda r: r[axis])
        for name, colour in COLOURS.items():
            x = [r[axis] for r in line]
            y = [r[name]["min_ess_per_second"] for r in line]
            panel.plot(x, y, color=colour, label=name)
            for r, a, b in zip(line, x, y, strict=True):
                panel.plot(a, b, "o", color=colour, markerfacecolor=colour if settled(r[name]) else "white")
        panel.set(xscale="log", yscale="log", xlabel=axis.replace("_", " "))
        panel.set_xticks(x, [str(v) for v in x])
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    axes[0].set_ylabel("minimum ESS a second")
    axes[0].legend(frameon=False)
    figure.suptitle(
        "Hollow: chains disagree (R-hat above 1.05). Others: 500 rows, 50 labels, 5 positives a row, 5 topics"
    )
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    """Read the options, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", required=True, help="folder of the results of single cells")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--picture")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    results = all_cells(args)
    rules = {name: rule(results, name) for name in ("gibbs", "gibbs_counts")}
    if args.picture:
        draw(results, args.picture)
    print(json.dumps({"cells": results, "rules": rules}) if args.json else as_text(results, rules))


if __name__ == "__main__":
    main()
