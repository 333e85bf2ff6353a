"""Pictures of calibration: rank histograms, and rank distribution functions within their envelope.

``python -m labelzoo.inference.checks.calibration_pictures --out docs/pictures`` makes those of the docs.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from arviz_stats.ecdf_utils import ecdf_pit
from rich.console import Console
from scipy.stats import binom

from labelzoo.figures import new_figure
from labelzoo.inference.checks.ranks import Ranks
from labelzoo.inference.checks.sbc import sbc_check
from labelzoo.models import registry

Array = Any

BINS, INSIDE, SIMULATIONS, DPI = 12, 0.95, 1000, 90
"""Bins of a histogram, probability of the bands, simulations for the envelope, dots an inch."""

WIDE = {"prior_scale": 3.0, "intercept_precision": 0.1}
"""Weights free enough for the logistic likelihood not to look normal."""

CASES: tuple[tuple[str, str, dict[str, Any] | None, str], ...] = (
    ("label_logistic", "gibbs", WIDE, "exact"),
    (
        "label_logistic",
        "mean_field",
        WIDE,
        "a bound: its ranks crowd at the ends where its sds are too small",
    ),
    ("bernoulli_poisson_topics", "gibbs", None, "exact"),
)
"""Model, engine, settings (None: those of the checks), and what is to be seen."""


def rank_histogram(axis: Any, ranks: Ranks) -> None:
    """Draw counts of ranks in equal bins, and the band that holds a bin of uniform ranks."""
    size = len(ranks.rank)
    low, high = binom.interval(INSIDE, size, 1 / BINS)
    axis.axhspan(low, high, color="#dddddd", zorder=0)
    axis.axhline(size / BINS, color="#999999", linewidth=0.8, zorder=1)
    rng = np.random.default_rng(0)
    spread = (ranks.rank + rng.random(size)) / (ranks.draws + 1)
    axis.hist(spread, bins=BINS, range=(0, 1), color="#3b75af", edgecolor="white", zorder=2)
    axis.set_title(ranks.name, fontsize=9)


def rank_difference(axis: Any, ranks: Ranks) -> None:
    """Draw the distribution function of the ranks less that of uniform ones, in its simultaneous envelope."""
    rng = np.random.default_rng(0)
    spread = (ranks.rank + rng.random(len(ranks.rank))) / (ranks.draws + 1)
    at, found, low, high = ecdf_pit(spread, INSIDE, SIMULATIONS, rng=rng)
    axis.fill_between(at, low - at, high - at, color="#dddddd", step="post")
    axis.axhline(0, color="#999999", linewidth=0.8)
    axis.plot(at, found - at, color="#3b75af", linewidth=1.3, drawstyle="steps-post")


def calibration_picture(ranks: Sequence[Ranks], title: str) -> Any:
    """Return a figure with a column a quantity: histogram above, difference below.

    Parameters
    ----------
    ranks : sequence of Ranks
    title : str
    """
    figure, axes = new_figure(2.3 * len(ranks), 4.2, 2, len(ranks))
    grid = np.asarray(axes).reshape(2, len(ranks))
    for column, one in enumerate(ranks):
        rank_histogram(grid[0, column], one)
        rank_difference(grid[1, column], one)
        grid[1, column].set_xlabel("rank / draws", fontsize=8)
    grid[0, 0].set_ylabel("data sets", fontsize=8)
    grid[1, 0].set_ylabel("ECDF less uniform", fontsize=8)
    for axis in grid.flat:
        axis.tick_params(labelsize=7)
    figure.suptitle(title, fontsize=10)
    return figure


def few(ranks: Sequence[Ranks], count: int = 4) -> list[Ranks]:
    """Return the log likelihood and the last, middle and first of the others, at most `count`."""
    first = [one for one in ranks if one.name == "log_likelihood"]
    others = [one for one in ranks if one.name != "log_likelihood"]
    places = np.unique(np.linspace(0, len(others) - 1, min(count - len(first), len(others))).astype(int))
    return first + [others[place] for place in places]


def main(
    out: Annotated[Path, typer.Option(help="Folder for the PNG files.")],
    count: Annotated[int, typer.Option(help="Data sets.")] = 300,
    seed: Annotated[int, typer.Option(help="Seed.")] = 0,
) -> None:
    """Run simulation-based calibration of three engines and draw it."""
    console = Console(stderr=True)
    out.mkdir(parents=True, exist_ok=True)
    for model, engine, settings, note in CASES:
        entry = registry.get(model)
        result, ranks = sbc_check(
            entry.spec,
            entry.engines[engine],
            seed,
            len(CASES),
            console.print,
            count=count,
            settings=settings,
            seconds=600.0,
        )
        console.print(result.detail)
        figure = calibration_picture(
            few(ranks), f"{model}, {engine} ({note}): {len(ranks[0].rank)} data sets"
        )
        figure.savefig(out / f"calibration_{model}_{engine}.png", dpi=DPI, facecolor="white")


if __name__ == "__main__":
    typer.run(main)
