"""Run the cells of a study: in processes of one thread each, stoppable at any moment."""

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from labelzoo.data import LabelData
from labelzoo.study import database
from labelzoo.study.cell import ORACLE, NotRun, Setting, run_cell
from labelzoo.study.plan import Plan

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}
"""Processes share the cores; and sums over one thread do not depend on how many there are."""
LIBRARIES = ("labelzoo", "numpy", "scipy", "scikit-learn", "jax", "numpyro")

_worker: dict[str, Any] = {}


def versions() -> dict[str, str]:
    """Return the versions of everything that could change a result."""
    return {name: version(name) for name in LIBRARIES}


def run_study(
    plan: Plan,
    data: LabelData,
    out: Path,
    *,
    processes: int = 1,
    resume: bool = False,
    say: Callable[[int, int], None] | None = None,
) -> Path:
    """Run what is missing of a study and return its database.

    Parameters
    ----------
    plan : Plan
    data : LabelData
    out : Path
        The SQLite file.
    processes : int
        Worker processes of one thread each; results do not depend on it.
    resume : bool
        Continue the study in `out`; without it the file must not exist.
    say : callable
        ``say(rounds done, rounds in all)``, from time to time.

    Raises
    ------
    ValueError
        For bad input, before any work; StudyMismatch if `out` is another study.
    """
    if isinstance(processes, bool) or not isinstance(processes, int) or processes < 1:
        raise ValueError(f"processes must be a positive integer, got {processes!r}")
    check_plan(plan, data)
    if resume:
        database.extend(out, plan, versions())
    else:
        database.create(out, plan, versions())
    cells = plan.cells()
    done = {(row.acquire, row.seed): row.round for row in database.read_rounds(out)}
    skipped = database.read_skipped(out)
    todo = [cell for cell in cells if done.get(cell, -1) < plan.rounds and cell not in skipped]
    if todo:
        _run_processes(plan, data, out, todo, processes, say)
    return out


def check_plan(plan: Plan, data: LabelData) -> None:
    """Refuse a plan that could not run, before anything is written."""
    from labelzoo.acquisition.catalogue import find_all
    from labelzoo.inference.fit import find_engine
    from labelzoo.models import registry

    find_all(name for name in plan.acquire if name != ORACLE)
    entry = registry.get(plan.learner)
    engine = find_engine(entry, plan.engine)
    unknown = sorted(set(plan.settings) - set(entry.spec.settings) - set(engine.options))
    if unknown:
        raise ValueError(f"{plan.learner}: engine {plan.engine!r} knows no setting {', '.join(unknown)}")
    if data.hash() != plan.data_hash:
        raise ValueError("data: contents differ from those the plan was made for")
    if data.has_missing_features:
        raise ValueError("data: X has missing features (NaN): impute them first")
    for seed in plan.seeds[:1]:
        Setting(plan, data, "random", seed).split  # noqa: B018


def _run_processes(
    plan: Plan,
    data: LabelData,
    out: Path,
    todo: list[tuple[str, int]],
    processes: int,
    say: Callable[[int, int], None] | None,
) -> None:
    context = multiprocessing.get_context("spawn")
    total = len(plan.cells()) * (plan.rounds + 1)
    with _environment(ONE_THREAD):
        pool = ProcessPoolExecutor(processes, context, _start_worker, (plan, data, out, os.getpid()))
        try:
            waiting: set[Future[None]] = {pool.submit(_work, *cell) for cell in todo}
            while waiting:
                finished, waiting = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
                for future in finished:
                    future.result()
                if say is not None:
                    say(count_done(plan, out), total)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        pool.shutdown()


def count_done(plan: Plan, out: Path) -> int:
    """Return how many rounds of the plan need no more work: written, or of cells that are not run."""
    with database.connect(out) as connection:
        query = "SELECT acquire, seed, COUNT(*) FROM rounds GROUP BY acquire, seed"
        rounds = {(a, s): n for a, s, n in connection.execute(query)}
    skipped = database.read_skipped(out)
    whole = plan.rounds + 1
    return sum(whole if cell in skipped else min(rounds.get(cell, 0), whole) for cell in plan.cells())


@contextmanager
def _environment(values: dict[str, str]) -> Any:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _start_worker(plan: Plan, data: LabelData, out: Path, parent: int) -> None:
    _worker.update(plan=plan, data=data, out=out, parent=parent)


def _work(acquire: str, seed: int) -> None:
    """Run one cell, a transaction a round; stop where the parent is gone."""
    plan, out = _worker["plan"], _worker["out"]
    setting = Setting(plan, _worker["data"], acquire, seed)
    try:
        for row in run_cell(setting, database.read_rounds(out, acquire, seed)):
            database.write_round(out, row)
            if os.getppid() != _worker["parent"]:
                return
    except NotRun as reason:
        database.write_skipped(out, acquire, seed, str(reason))
