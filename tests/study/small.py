"""A small study that runs in this process: data, plan, and a stand-in for the worker processes."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from labelzoo.data import LabelData
from labelzoo.study import Plan, StudyMismatch, StudyNotWritten, database
from labelzoo.study.cell import NotRun, Setting, run_cell
from labelzoo.study.run import versions
from labelzoo.study.workers import described


def small_data(rows: int = 60, published: bool = False, missing: int = 0) -> LabelData:
    """Return 60 rows, 3 features, 3 labels; the first `missing` rows lack a label."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(rows, 3))
    Y = (X @ rng.normal(size=(3, 3)) + 0.5 * rng.normal(size=(rows, 3)) > 0.3).astype(float)
    Y[:missing, 1] = np.nan
    split = {"train_index": np.arange(0, rows, 2), "test_index": np.arange(1, rows, 2)} if published else {}
    return LabelData.from_arrays(X, Y, **split)


def small_plan(table: LabelData, /, **changes: Any) -> Plan:
    """Return a plan of two functions, two seeds and two rounds."""
    values: dict[str, Any] = {
        "data": "made up", "data_hash": table.hash(), "learner": "label_gp", "engine": "conjugate",
        "settings": {}, "acquire": ("k_center", "random"), "start": 6, "rounds": 2, "batch": 3,
        "seeds": (0, 1), "num_draws": 20,
    }  # fmt: skip
    return Plan(**(values | changes))


def run_here(
    plan: Plan,
    data: LabelData,
    out: Path,
    cells: Sequence[tuple[str, int]],
    processes: int = 1,
    tick: Callable[[], None] | None = None,
    stop_after: int | None = None,
) -> None:
    """Do what `run_cells` does, in this process; leave each cell after `stop_after` new rounds."""
    for acquire, seed in cells:
        try:
            done = database.read_rounds(out, acquire, seed)
            for count, row in enumerate(run_cell(Setting(plan, data, acquire, seed), done), 1):
                database.write_round(out, plan, row)
                if count == stop_after:
                    break
        except NotRun as reason:
            database.write_skipped(out, plan, acquire, seed, str(reason))
        except (StudyMismatch, StudyNotWritten):
            raise
        except Exception as error:
            database.write_failed(out, plan, acquire, seed, described(error))


def whole_study(plan: Plan, data: LabelData, out: Path) -> list[Any]:
    """Run a study in this process and return its rounds without their seconds."""
    database.create(out, plan, versions())
    run_here(plan, data, out, plan.cells())
    return results(out)


def results(out: Path) -> list[Any]:
    """Return all rounds but for their seconds."""
    return [row._replace(seconds=0.0) for row in database.read_rounds(out)]
