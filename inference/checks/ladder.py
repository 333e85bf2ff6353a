"""The ladder: every rung on every update of a model, and every planted fault through the same rungs."""

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import jax
from rich.console import Console

from labelzoo.inference.checks.cases import find_cases
from labelzoo.inference.checks.programs import forget_programs
from labelzoo.inference.checks.report import CheckReport, CheckResult
from labelzoo.inference.checks.rungs import Setting
from labelzoo.inference.checks.states import DataCase, data_cases
from labelzoo.inference.checks.tasks import Task, joined, run_all, tasks_of
from labelzoo.inference.update import Update
from labelzoo.models import registry
from labelzoo.models.spec import ModelSpec


def check(
    model: str | ModelSpec,
    *,
    updates: Iterable[Update] | None = None,
    seed: int = 0,
    tier: str = "fast",
    states: int = 16,
    progress: bool = False,
    worker: Any = None,
) -> CheckReport:
    """Check the hand-derived updates of a model against its program.

    Rungs: *draws* of every claimed distribution follow its density; *identity*: ratios of the claimed
    density are ratios of the joint of its view, and a claim that fails is explained; *stationarity*: the
    gradient of an independent objective vanishes at the fixed point of each engine; *order*: a whole sweep
    leaves the exact posterior of a tiny case as it is; *enumeration*: the views marginalise to one another on
    a tiny case. The full tier adds *geweke* (joint test of every sampler), *sbc* (calibration: a gate for
    samplers, a report for bounds) and *agreement* with a stored reference. Every planted fault goes through
    the same rungs and must be noticed. Stationarity, order and enumeration run where the model has cases:
    ``CASES`` of ``labelzoo.inference.<model>.stationarity`` and so on.

    Parameters
    ----------
    model : str or ModelSpec
        Registry name, card, or ``path/to/file.py:spec``.
    updates : iterable of Update, optional
        Updates to check; default those registered with the model.
    seed : int
        Seeds data, states and draws.
    tier : {"fast", "full"}
        ``fast`` checks an update under labels with masked cells, and the draws of each of NumPyro's own
        distributions once; ``full`` under complete labels and the card's `check_settings` as well, at four
        times the states, some of them prior draws, with the joint tests (minutes).
    states : int
        States a view and a data set.
    progress : bool
        Name each update on stderr as it starts.
    worker : labelzoo.check_process.Worker, optional
        A second process that takes half of the tasks; the command line starts one.

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
    if seed < 0:
        raise ValueError(f"seed must not be negative, got {seed}")
    start = time.perf_counter()
    forget_programs()
    plan = make_plan(model, updates, seed, tier, states, progress)
    with jax.enable_x64(True):
        rows = joined(run_all(plan.tasks, worker))
    if not rows.checks:
        raise ValueError(
            f"{plan.spec.name}: there is nothing to check: register(spec, updates=[...]) names none"
        )
    order = [update.name for update in plan.updates]
    checks = sorted(rows.checks, key=lambda row: _place(row, order))
    notes = _notes(plan.spec, plan.updates) + rows.notes
    seconds = time.perf_counter() - start
    return CheckReport(plan.spec.name, tuple(checks), tuple(rows.mutants), notes, seconds)


def _cases(spec: ModelSpec, seed: int) -> list[DataCase]:
    try:
        return data_cases(spec, seed)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise ValueError(f"{spec.name}: no inputs to check at; simulate or prepare raised {what}") from error


class Plan(NamedTuple):
    """What is to be checked, and as which tasks."""

    spec: ModelSpec
    updates: tuple[Update, ...]
    tasks: list[Task]


def make_plan(
    model: str | ModelSpec,
    updates: Iterable[Update] | None,
    seed: int,
    tier: str,
    states: int,
    progress: bool,
) -> Plan:
    """Return the tasks of `check`, the same in every process for the same arguments."""
    spec, chosen, engines = _model_and_updates(model, updates)
    _require_views(spec, chosen)
    full = tier == "full"
    with jax.enable_x64(True):
        setting = Setting(
            spec,
            _cases(spec, seed),
            {},
            {},
            states * (4 if full else 1),
            seed,
            max(2 * len(chosen), 1),
            full,
            set(),
        )
        return Plan(spec, chosen, tasks_of(chosen, engines, setting, _speaker(progress)))


LAST_RUNGS = ("stationarity", "order", "enumeration", "geweke", "sbc", "agreement")


def _place(row: CheckResult, updates: list[str]) -> tuple[int, int]:
    """Return where a row stands in the report: updates in their order, then rung by rung."""
    if row.kind in LAST_RUNGS:
        return 1 + LAST_RUNGS.index(row.kind), 0
    return 0, updates.index(row.name)


def _model_and_updates(
    model: str | ModelSpec, updates: Iterable[Update] | None
) -> tuple[ModelSpec, tuple[Update, ...], dict[str, Any]]:
    """Return card, updates and engines; a card that comes with its updates need not be registered."""
    if isinstance(model, ModelSpec) and updates is not None:
        return model, tuple(updates), {}
    entry = registry.get(model)
    return entry.spec, tuple(entry.updates if updates is None else updates), entry.engines


def _require_views(spec: ModelSpec, updates: Iterable[Update]) -> None:
    for update in updates:
        if update.view not in spec.views:
            raise ValueError(
                f"update {update.name!r} names the view {update.view!r}; views: {', '.join(spec.views)}"
            )


def _speaker(progress: bool) -> Callable[[str], None]:
    console = Console(stderr=True, highlight=False)
    return partial(console.print, markup=False) if progress else lambda line: None


def _notes(spec: ModelSpec, updates: tuple[Update, ...]) -> tuple[str, ...]:
    notes = []
    if not updates:
        notes.append("No hand-derived update is registered: rungs 0 and 1 had nothing to check.")
    if spec.simulate is None:
        reason = f": {spec.no_simulate}" if spec.no_simulate else ""
        notes.append(
            f"The labels checked at are fair coins, which serve as well: the card has no simulate{reason}."
        )
    missing = [kind for kind in ("stationarity", "order", "enumeration") if not find_cases(spec, kind)]
    if missing:
        notes.append(f"No {' or '.join(missing)} case: register(spec, cases=[...]) takes them.")
    return tuple(notes)
