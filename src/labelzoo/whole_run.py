"""Point engines on the whole data, judged on held-out rows beside plain label frequencies."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import xarray as xr

from labelzoo.held_out import BASELINE, baseline, metrics_row, observed_cells, random_parts, thin_rows
from labelzoo.inference.predict import mean_prob

Array = Any

TEST_FRACTION = 0.2
"""Part of the rows that is held out."""

LARGE = 300_000
"""From so many positives on, two sweeps are timed first, to see how many fit into the time."""

PREDICTION_DRAWS = 200
"""Draws over which held-out probabilities are averaged."""


@dataclass
class HeldOut:
    """Held-out results: rows of metrics, reliability curves (truth, probs) and posteriors, by engine."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    curves: dict[str, tuple[Array, Array]] = field(default_factory=dict)
    trees: dict[str, xr.DataTree] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(
        self, name: str, probs: Array, test: Any, seconds: float | None, converged: str | None = None
    ) -> None:
        """Score `probs` (row, labels) at `test`."""
        self.rows.append(
            {"name": name, "seconds": seconds, "converged": converged, **metrics_row(probs, test)}
        )
        self.curves[name] = observed_cells(probs, test)


def score_trees(trees: Mapping[str, xr.DataTree], train: Any, test: Any, seed: int) -> HeldOut:
    """Score posteriors of the same training rows, and the label frequencies."""
    found = HeldOut()
    test = thin_rows(test, seed)
    for name, tree in trees.items():
        probs = mean_prob(tree, test, num_draws=PREDICTION_DRAWS)
        found.add(name, probs, test, seconds_of(tree), str(tree.attrs["converged"]))
    found.add(BASELINE, baseline(train, test), test, None)
    return found


def fit_whole(
    entry: Any,
    data: Any,
    engines: Sequence[str],
    *,
    options: Mapping[str, Mapping[str, Any]],
    settings: Mapping[str, Any],
    seconds_left: Callable[[], float],
    seed: int,
    say: Callable[[str], None],
) -> HeldOut:
    """Fit the engines on a random part of `data` and score them on the rest.

    Parameters
    ----------
    entry : labelzoo.models.registry.Entry
    engines : sequence of str
        Point engines.
    options : mapping
        Options by engine.
    settings : mapping
        Settings of the program.
    seconds_left : callable
        Seconds that may still be spent here; engines that would pass it are left out, with a note.
    """
    train, test = random_parts(data, TEST_FRACTION, seed)
    found = HeldOut()
    slowest = 0.0
    for name in engines:
        left = seconds_left()
        if left <= slowest:
            found.notes.append(f"{name} was left out on the whole data: {max(left, 0):.0f} s left for it")
            continue
        say(f"{name}: running on the whole data")
        engine, own = entry.engines[name], {**settings, **options.get(name, {})}
        own |= sweeps_that_fit(engine, entry.spec, train, own, seed, left)
        tree = engine(entry.spec, train, rng_key=seed, **own)
        found.trees[name] = tree
        slowest = max(slowest, left - seconds_left())
    scored = score_trees(found.trees, train, test, seed)
    scored.trees, scored.notes = found.trees, found.notes
    return scored


def sweeps_that_fit(
    engine: Any, spec: Any, train: Any, settings: Mapping[str, Any], seed: int, seconds: float
) -> dict[str, Any]:
    """Return ``max_iter`` cut to what fits into half of `seconds`, for large data and engines that sweep."""
    if train.num_positives < LARGE or "max_iter" not in engine.options:
        return {}
    asked = int(settings.get("max_iter", engine.options["max_iter"]))
    pilot = engine(spec, train, rng_key=seed, **{**settings, "max_iter": 2, "tolerance": 0.0})
    sweep = max(pilot.attrs["run_seconds"] / 2, 1e-6)
    spare = seconds / 2 - seconds_of(pilot) - pilot.attrs["compile_seconds"]
    return {"max_iter": int(min(asked, max(2, spare / sweep)))}


def seconds_of(tree: xr.DataTree) -> float:
    """Return the seconds an engine took, compilation included."""
    return float(tree.attrs["run_seconds"] + tree.attrs["compile_seconds"])
