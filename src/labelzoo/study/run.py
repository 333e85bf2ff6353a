"""Run the cells of a study: what is missing, in processes of one thread each, stoppable at any moment."""

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from labelzoo.data import LabelData
from labelzoo.study import database
from labelzoo.study.lock import only_runner
from labelzoo.study.plan import Plan
from labelzoo.study.sqlite_file import reading
from labelzoo.study.validity import check_rounds
from labelzoo.study.workers import run_cells, users_functions

LIBRARIES = ("labelzoo", "numpy", "scipy", "scikit-learn", "jax", "numpyro")
PROVIDED = frozenset(
    ["X_pool", "X_labelled", "Y_labelled", "X_targets", "probs", "target_probs", "mean_probs", "kernel"]
    + ["asked", "seed"]
)
"""Fields of a `Problem` that a study knows."""


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

    A cell that ends in an unexpected error does not stop the others: `read_failed` tells of it.

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
        For bad input, before any work; StudyMismatch if `out` is another study or damaged; StudyRunning if
        another process runs it; StudyNotWritten if a round cannot be written, those before it being kept.
    """
    if isinstance(processes, bool) or not isinstance(processes, int) or processes < 1:
        raise ValueError(f"processes must be a positive integer, got {processes!r}")
    check_plan(plan, data)
    with only_runner(out):
        if resume:
            database.extend(out, plan, versions())
        else:
            database.create(out, plan, versions())
        todo = missing_cells(plan, data, out)
        if todo:
            total = len(plan.cells()) * (plan.rounds + 1)
            tick = None if say is None else lambda: say(count_done(plan, out), total)
            run_cells(plan, data, out, todo, processes, tick)
    return out


def missing_cells(plan: Plan, data: LabelData, out: Path) -> list[tuple[str, int]]:
    """Return the cells that lack rounds and are not left out; what the database holds is checked."""
    rows = database.read_rounds(out)
    check_rounds(out, plan, (data.num_rows, data.num_labels), rows)
    done = {(row.acquire, row.seed): row.round for row in rows}
    skipped = database.read_skipped(out)
    return [cell for cell in plan.cells() if done.get(cell, -1) < plan.rounds and cell not in skipped]


def check_plan(plan: Plan, data: LabelData) -> None:
    """Refuse a plan that could not run, before anything is written."""
    from labelzoo.acquisition.catalogue import find_all
    from labelzoo.acquisition.problem import LAWS
    from labelzoo.inference.fit import find_engine
    from labelzoo.models import registry
    from labelzoo.study.cell import ORACLE, Setting

    entries = find_all(name for name in plan.acquire if name != ORACLE)
    known = PROVIDED - {"X_targets", "target_probs"} if plan.targets == "pool" else PROVIDED
    learner = registry.get(plan.learner)
    known = known | {name for name in LAWS if getattr(learner.spec, name) is not None}
    for acquisition in entries:
        lacking = [name for name in acquisition.needs if name not in known]
        if len(lacking) == 1 and lacking[0] in LAWS:
            law, model = LAWS[lacking[0]]
            raise ValueError(
                f"acquire: {acquisition.name} needs the {law}, and learner "
                f"{plan.learner} has none ({model} has one)"
            )
        if lacking:
            raise ValueError(
                f"acquire: {acquisition.name} needs {', '.join(lacking)}, which a study with targets "
                f"{plan.targets!r} does not know"
            )
    users_functions(plan)
    engine = find_engine(learner, plan.engine)
    unknown = sorted(set(plan.settings) - set(learner.spec.settings) - set(engine.options))
    if unknown:
        raise ValueError(f"{plan.learner}: engine {plan.engine!r} knows no setting {', '.join(unknown)}")
    if data.hash() != plan.data_hash:
        raise ValueError("data: contents differ from those the plan was made for")
    if data.has_missing_features:
        raise ValueError("data: X has missing features (NaN): impute them first")
    for seed in plan.seeds[:1]:
        Setting(plan, data, "random", seed).split  # noqa: B018


def count_done(plan: Plan, out: Path) -> int:
    """Return how many rounds of the plan need no more work: written, or of cells that are not run."""
    with reading(out) as connection:
        query = "SELECT acquire, seed, COUNT(*) FROM rounds GROUP BY acquire, seed"
        rounds = {(a, s): n for a, s, n in connection.execute(query)}
    skipped = database.read_skipped(out)
    whole = plan.rounds + 1
    return sum(whole if cell in skipped else min(rounds.get(cell, 0), whole) for cell in plan.cells())
