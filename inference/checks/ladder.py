"""The fast ladder: every rung on every update of a model, and every planted fault through the same rungs."""

import importlib
import importlib.util
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
from rich.console import Console

from labelzoo.inference.checks.report import CheckReport
from labelzoo.inference.checks.rungs import (
    Rows,
    Setting,
    enumeration_rung,
    stationarity_rung,
    update_rungs,
)
from labelzoo.inference.checks.states import data_cases
from labelzoo.inference.update import Update
from labelzoo.models import registry
from labelzoo.models.spec import ModelSpec

THREADS = 2
"""Views checked side by side: compilation leaves Python's lock."""


def check(
    model: str | ModelSpec,
    *,
    updates: Iterable[Update] | None = None,
    seed: int = 0,
    tier: str = "fast",
    states: int = 16,
    progress: bool = False,
) -> CheckReport:
    """Check the hand-derived updates of a model against its program.

    Rungs: *draws* of every claimed distribution follow its density; *identity*: ratios of the claimed
    density are ratios of the joint of its view; *stationarity*: the gradient of an independent objective
    vanishes at the fixed point of each engine; *enumeration*: the views marginalise to one another on a
    tiny case. Every planted fault goes through the same rungs and must be noticed. The last two run where
    the model has cases: ``labelzoo.inference.<model>.stationarity`` and ``.enumeration``.

    Parameters
    ----------
    model : str or ModelSpec
        Registry name, card, or ``path/to/file.py:spec``.
    updates : iterable of Update, optional
        Updates to check; default those registered with the model.
    seed : int
        Seeds data, states and draws.
    tier : {"fast", "full"}
        ``fast`` checks an update under labels with masked cells; ``full`` under complete labels and the
        card's `check_settings` as well, at four times the states, some of them prior draws.
    states : int
        States a view and a data set.
    progress : bool
        Name each update on stderr as it starts.

    Returns
    -------
    CheckReport

    Raises
    ------
    ValueError
        If there is no such model or tier, an update names an unknown view, or `states` is below 4.
    """
    if tier not in ("fast", "full"):
        raise ValueError(f"tier must be 'fast' or 'full', got {tier!r}")
    if states < 4:
        raise ValueError(f"states must be at least 4, got {states}")
    start = time.perf_counter()
    spec, chosen = _model_and_updates(model, updates)
    _require_views(spec, chosen)
    say = _speaker(progress)
    with jax.enable_x64(True):
        setting = Setting(
            spec,
            data_cases(spec, seed),
            {},
            {},
            states * (4 if tier == "full" else 1),
            seed,
            max(2 * len(chosen), 1),
            tier == "full",
        )
        parts = all_updates(chosen, setting, say)
        parts += [stationarity_rung(case, setting, say) for case in find_cases(spec, "stationarity")]
        parts += [enumeration_rung(case, setting, say) for case in find_cases(spec, "enumeration")]
    checks = tuple(row for part in parts for row in part.checks)
    if not checks:
        raise ValueError(f"{spec.name}: there is nothing to check: register(spec, updates=[...]) names none")
    mutants = tuple(row for part in parts for row in part.mutants)
    notes = _notes(spec, chosen) + tuple(note for part in parts for note in part.notes)
    return CheckReport(spec.name, checks, mutants, notes, time.perf_counter() - start)


def all_updates(updates: tuple[Update, ...], setting: Setting, say: Callable[[str], None]) -> list[Rows]:
    """Run the updates of each view one after another, and two views at a time."""
    views = list(dict.fromkeys(update.view for update in updates))

    def one(view: str) -> list[tuple[int, Rows]]:
        with jax.enable_x64(True):
            own = [(i, update) for i, update in enumerate(updates) if update.view == view]
            return [(i, update_rungs(update, setting, say)) for i, update in own]

    with ThreadPoolExecutor(THREADS) as pool:
        rows = [row for part in pool.map(one, views) for row in part]
    return [rows_of_update for _, rows_of_update in sorted(rows, key=lambda row: row[0])]


def find_cases(spec: ModelSpec, kind: str) -> tuple[Any, ...]:
    """Return ``CASES`` of ``labelzoo.inference.<model>.<kind>``, none where there is no such module."""
    package = f"labelzoo.inference.{spec.name}"
    if not spec.name.isidentifier() or importlib.util.find_spec(package) is None:
        return ()
    if importlib.util.find_spec(f"{package}.{kind}") is None:
        return ()
    return tuple(importlib.import_module(f"{package}.{kind}").CASES)


def _model_and_updates(
    model: str | ModelSpec, updates: Iterable[Update] | None
) -> tuple[ModelSpec, tuple[Update, ...]]:
    """Return the card and its updates; a card that comes with its updates need not be registered."""
    if isinstance(model, ModelSpec) and updates is not None:
        return model, tuple(updates)
    entry = registry.get(model)
    return entry.spec, tuple(entry.updates if updates is None else updates)


def _require_views(spec: ModelSpec, updates: Iterable[Update]) -> None:
    for update in updates:
        if update.view not in spec.views:
            raise ValueError(
                f"update {update.name!r} names the view {update.view!r}; views: {', '.join(spec.views)}"
            )


def _speaker(progress: bool) -> Callable[[str], None]:
    console = Console(stderr=True, highlight=False)
    return console.print if progress else lambda line: None


def _notes(spec: ModelSpec, updates: tuple[Update, ...]) -> tuple[str, ...]:
    notes = []
    if not updates:
        notes.append("No hand-derived update is registered: rungs 0 and 1 had nothing to check.")
    if spec.simulate is None:
        reason = f": {spec.no_simulate}" if spec.no_simulate else ""
        notes.append(f"Labels for the checks are fair coins, since the model does not simulate{reason}.")
    notes += [f"No {kind} case." for kind in ("stationarity", "enumeration") if not find_cases(spec, kind)]
    return tuple(notes)
