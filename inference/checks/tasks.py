"""The checks of one model as a list of tasks, and two processes that take them from one list.

Tracing holds Python's lock and compilation is nearly the whole cost, so a second process halves the time. It
is started for models that are found by name or in a file; a card that exists only in this process is checked
here alone.
"""

import json
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

from labelzoo.inference.checks.agreement import check_agreement
from labelzoo.inference.checks.case_rungs import enumeration_rung, stationarity_rung
from labelzoo.inference.checks.cases import find_cases
from labelzoo.inference.checks.geweke import geweke_check
from labelzoo.inference.checks.order import order_rung
from labelzoo.inference.checks.reference_files import reference_names
from labelzoo.inference.checks.report import CheckResult, MutantResult
from labelzoo.inference.checks.rungs import (
    Rows,
    Setting,
    update_rungs,
)
from labelzoo.inference.checks.sbc import sbc_check
from labelzoo.inference.checks.sweeps import sweep_kernel
from labelzoo.inference.engine import Engine
from labelzoo.inference.run_mcmc import MCMC_OPTIONS, run_mcmc
from labelzoo.inference.update import Update
from labelzoo.models.spec import ModelSpec

Say = Callable[[str], None]


class Task(NamedTuple):
    """A part of the ladder that can run in any process: its name and what it adds to the report."""

    name: str
    run: Callable[[], Rows]


def tasks_of(
    updates: tuple[Update, ...], engines: Mapping[str, Any], setting: Setting, say: Say
) -> list[Task]:
    """Return the tasks, those that take longest first; the same list in every process."""
    tasks = joint_tasks(updates, engines, setting, say) if setting.full else []
    by_view = sorted(updates, key=lambda update: update.view)
    groups = [tuple(group) for _, group in groupby(by_view, key=lambda update: update.view)]
    for group in sorted(groups, key=len, reverse=True):
        tasks.append(Task(f"view {group[0].view}", partial(_view_rows, group, setting, say)))
    for case in find_cases(setting.spec, "stationarity"):
        tasks.append(Task(case.name, partial(stationarity_rung, case, setting, say)))
    for case in find_cases(setting.spec, "order"):
        tasks.append(Task(case.name, partial(_order_rows, case, setting, say)))
    for case in find_cases(setting.spec, "enumeration"):
        tasks.append(Task(case.name, partial(enumeration_rung, case, setting, say)))
    return tasks


def joint_tasks(
    updates: tuple[Update, ...], engines: Mapping[str, Any], setting: Setting, say: Say
) -> list[Task]:
    """Return the joint tests, calibration and agreement of every engine, or of the updates' own sweep."""
    spec, seed, tasks = setting.spec, setting.seed, []
    judged = dict(engines)
    if updates and not any(set(e.conditionals) & {u.name for u in updates} for e in engines.values()):
        judged["updates in order"] = sweep_engine(updates)
    families = setting.families + 3 * len(judged)
    for name, engine in judged.items():
        if engine.kind == "mcmc":
            tasks.append(Task(f"geweke {name}", partial(_geweke_row, spec, engine, seed, families, say)))
        tasks.append(Task(f"sbc {name}", partial(_sbc_row, spec, engine, seed, families, say)))
        reference = f"{spec.name}_tiny"
        if engine.kind != "point" and name in engines and reference in reference_names():
            tasks.append(Task(f"agreement {name}", partial(_agreement_row, reference, name, seed, say)))
    return tasks


def sweep_engine(updates: tuple[Update, ...]) -> Engine:
    """Return the updates, made one after another in their order, as an engine for the joint tests."""

    def run(spec: ModelSpec, inputs: Any, *, rng_key: Any, progress: bool = False, **options: Any) -> Any:
        return run_mcmc(sweep_kernel(updates, spec), inputs, rng_key=rng_key, progress=progress, **options)

    return Engine(
        "updates in order",
        "mcmc",
        run,
        random_sites=tuple(dict.fromkeys(site for update in updates for site in update.sites)),
        options=MCMC_OPTIONS,
        kernel=lambda spec: sweep_kernel(updates, spec),
    )


def _geweke_row(spec: ModelSpec, engine: Engine, seed: int, families: int, say: Say) -> Rows:
    return _row(geweke_check(spec, engine, seed, families, say))


def _sbc_row(spec: ModelSpec, engine: Engine, seed: int, families: int, say: Say) -> Rows:
    return _row(sbc_check(spec, engine, seed, families, say)[0])


def _row(check: CheckResult) -> Rows:
    return Rows([check], [])


def _agreement_row(reference: str, engine: str, seed: int, say: Say) -> Rows:
    say(f"{reference}: {engine}, agreement with the stored reference")
    return _row(check_agreement(reference, engine, seed=seed))


def _view_rows(updates: tuple[Update, ...], setting: Setting, say: Say) -> Rows:
    # Of its own, so that the report does not depend on which process does which task.
    own = setting._replace(sampled=set())
    return joined([update_rungs(update, own, say) for update in updates])


def _order_rows(case: Any, setting: Setting, say: Say) -> Rows:
    say(f"{setting.spec.name}: order of {case.name}")
    return Rows(*order_rung(case, setting.spec, setting.seed))


def joined(parts: list[Rows]) -> Rows:
    """Return the rows of several parts as one."""
    return Rows(
        [row for part in parts for row in part.checks],
        [row for part in parts for row in part.mutants],
        tuple(note for part in parts for note in part.notes),
    )


def run_all(tasks: list[Task], worker: Any = None) -> list[Rows]:
    """Run the tasks here, and in `worker` side by side if there is one; rows in the order of `tasks`."""
    waiting = deque(range(len(tasks)))
    done: dict[int, Rows] = {}

    def beside() -> None:
        while waiting:
            try:
                index = waiting.popleft()
            except IndexError:
                return
            try:
                done[index] = rows_from_json(worker.ask(index))
            except Exception:  # the process is gone or its answer is cut short: the task is done here
                waiting.append(index)
                return

    helper = threading.Thread(target=beside, daemon=True) if worker is not None else None
    if helper is not None:
        helper.start()
    while True:
        while waiting:
            try:
                index = waiting.popleft()
            except IndexError:
                break
            done[index] = tasks[index].run()
        if helper is None or not helper.is_alive():
            if not waiting:
                break
            continue
        helper.join()
    return [done[index] for index in range(len(tasks))]


def rows_to_json(rows: Rows) -> str:
    """Return the rows as one line of JSON; infinities are kept."""
    return json.dumps(
        {
            "checks": [asdict(row) for row in rows.checks],
            "mutants": [asdict(row) for row in rows.mutants],
            "notes": rows.notes,
        }
    )


def rows_from_json(text: str) -> Rows:
    """Undo `rows_to_json`."""
    read = json.loads(text)
    return Rows(
        [CheckResult(**row) for row in read["checks"]],
        [MutantResult(**row) for row in read["mutants"]],
        tuple(read["notes"]),
    )
