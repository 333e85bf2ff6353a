"""Rounds of a study: reproducible, resumable, disjoint parts, honest about what is not known."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelzoo.acquisition.catalogue import _EXTRA, register_acquisition
from labelzoo.acquisition.problem import Acquisition
from labelzoo.data import LabelData
from labelzoo.models.kernel_neighbors_card import spec
from labelzoo.models.spec import RepeatedWarning
from labelzoo.study import database, read_failed, read_skipped, run, run_study, workers
from labelzoo.study.cell import ORACLE, NotRun, Setting, labelled_data, labels_after, make_split, run_cell
from labelzoo.study.workers import DIED, run_cells
from tests.study.small import results, run_here, small_data, small_plan, whole_study

DATA = small_data()


@pytest.mark.slow
def test_processes_and_global_randomness_change_nothing(tmp_path: Path) -> None:
    plan = small_plan(DATA, rounds=1, seeds=(0,))
    for count in (1, 2):
        np.random.seed(count)  # noqa: NPY002
        run_study(plan, DATA, tmp_path / f"{count}.db", processes=count)
    assert results(tmp_path / "1.db") == results(tmp_path / "2.db")
    assert len(results(tmp_path / "1.db")) == 4 and read_failed(tmp_path / "1.db") == {}
    for a, b in zip(results(tmp_path / "1.db"), whole_study(plan, DATA, tmp_path / "3.db"), strict=True):
        assert a.asked == b.asked


@pytest.mark.parametrize("acquire", [("bald", "random"), ("audi", "oracle", "random")])
def test_resuming_after_each_round_is_bit_identical(tmp_path: Path, acquire: tuple[str, ...]) -> None:
    plan = small_plan(DATA, acquire=acquire, oracle=2 * (ORACLE in acquire), seeds=(3,), rounds=3, refit=2)
    whole = whole_study(plan, DATA, tmp_path / "whole.db")
    out = tmp_path / "parts.db"
    database.create(out, plan, run.versions())
    for number in range(plan.rounds + 1):
        np.random.seed(number)  # noqa: NPY002
        run_here(plan, DATA, out, plan.cells(), stop_after=1)
        assert len(results(out)) == len(acquire) * (number + 1)
    assert results(out) == whole


def test_extended_studies_equal_whole_ones(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(run, "run_cells", run_here)
    out = tmp_path / "a.db"
    run_study(small_plan(DATA, rounds=0, seeds=(0,), acquire=("random",)), DATA, out)
    for changes in ({"rounds": 1}, {"seeds": (0, 1)}, {"acquire": ("random", "ivr")}):
        plan = small_plan(DATA, **(growing(out) | changes))
        run_study(plan, DATA, out, resume=True)
    final = small_plan(DATA, rounds=1, seeds=(0, 1), acquire=("random", "ivr"))
    assert results(out) == whole_study(final, DATA, tmp_path / "b.db")
    assert run.count_done(final, out) == 8


def test_what_a_model_says_at_every_fit_is_left_out(tmp_path: Path) -> None:
    """Warnings are errors here: one that is heard would fail its cell."""
    codes = np.arange(60) % 3
    Y = np.eye(3)[codes]
    Y[::20] = 1.0
    table = LabelData.from_arrays(DATA.X, Y)
    with pytest.warns(RepeatedWarning, match="3 of 60 rows"):
        spec.prepare(table, spec.settings)
    plan = small_plan(
        table, learner="kernel_neighbors", engine="dual", acquire=("random",), start=24, rounds=1, seeds=(0,),
        evaluators=("own",),
    )  # fmt: skip
    whole_study(plan, table, tmp_path / "a.db")
    assert read_failed(tmp_path / "a.db") == {} and len(results(tmp_path / "a.db")) == 2


def test_the_learner_is_refitted_every_so_many_rounds(tmp_path: Path) -> None:
    plan = small_plan(DATA, acquire=("random",), seeds=(0,), refit=2)
    first, second, third = (row.metrics for row in whole_study(plan, DATA, tmp_path / "a.db"))
    assert first["own"] == second["own"] != third["own"]
    assert first["common"] != second["common"]


def growing(out: Path) -> dict[str, Any]:
    """Return what may grow of the plan in a database."""
    plan = database.read_plan(out)[0]
    return {"rounds": plan.rounds, "seeds": plan.seeds, "acquire": plan.acquire}


@pytest.mark.parametrize("split", ["published", "random", "stratified"])
def test_pool_targets_and_scored_rows_are_disjoint(split: str) -> None:
    data = small_data(published=True)
    plan = small_plan(data, split=split)
    parts = [make_split(plan, data, seed) for seed in (0, 1)]
    for part in parts:
        together = np.concatenate(part)
        assert len(set(together.tolist())) == len(together) == 60
        assert abs(len(part.targets) - len(part.scored)) <= 1
    assert not np.array_equal(parts[0].targets, parts[1].targets)
    assert np.array_equal(parts[0].pool, parts[1].pool) == (split == "published")
    if split == "published":
        assert np.array_equal(parts[0].pool, np.arange(0, 60, 2))


def test_questions_stay_in_the_pool_and_repeat_nothing(tmp_path: Path) -> None:
    plan = small_plan(DATA, acquire=("ivr", "random"), rounds=3, seeds=(0,))
    rows = whole_study(plan, DATA, tmp_path / "a.db")
    pool = set(make_split(plan, DATA, 0).pool.tolist())
    for name in plan.acquire:
        asked = [query for row in rows if row.acquire == name for query in row.asked]
        assert len(asked) == len(set(asked)) == 6 + 3 * 3 and set(asked) <= pool
    assert rows[0].asked == rows[4].asked  # one start for all


def test_label_queries_leave_other_labels_unobserved(tmp_path: Path) -> None:
    plan = small_plan(DATA, acquire=("audi",), seeds=(0,))
    rows = whole_study(plan, DATA, tmp_path / "a.db")
    setting = Setting(plan, DATA, "audi", 0)
    labels = labels_after(setting, [row.asked for row in rows])
    assert all(isinstance(query, list) and len(query) == 2 for query in rows[1].asked)
    assert labels.known.sum() == rows[-1].metrics["cells"] == 6 * 3 + 2 * 3 * 3
    seen = labelled_data(setting, labels)
    observed = seen.observed_mask(max_bytes=10_000)
    assert np.array_equal(observed, labels.known[labels.rows]) and not observed.all()
    truth = setting.truth[labels.rows]
    assert np.array_equal(seen.Y.toarray()[observed], truth[observed])
    assert not seen.Y.toarray()[~observed].any()


def test_rows_with_missing_labels_take_no_part() -> None:
    data = small_data(missing=20)
    for split in ("random", "stratified"):
        together = np.concatenate(make_split(small_plan(data, split=split), data, 0))
        assert sorted(together.tolist()) == list(range(20, 60))


def test_an_exhausted_pool_ends_quietly(tmp_path: Path) -> None:
    plan = small_plan(DATA, acquire=("ivr", "audi", "random"), start=36, batch=50, seeds=(0,))
    rows = whole_study(plan, DATA, tmp_path / "a.db")
    assert [len(row.asked) for row in rows if row.acquire != "audi"] == [36, 4, 0] * 2
    assert [len(row.asked) for row in rows if row.acquire == "audi"] == [36, 12, 0]
    assert rows[1].metrics == rows[2].metrics


def broken(problem: Any) -> Any:
    """Fail as a faulty score would."""
    raise RuntimeError("two\nlines")


@pytest.fixture
def faulty() -> Iterator[None]:
    """Register a function that fails, and one that needs what no study has."""
    shared = {
        "query": "row", "units": "", "bias": "", "cost": "", "helps": "", "source": "", "score": broken,
    }  # fmt: skip
    entries = [Acquisition(name="faulty", needs=(), **shared)]
    entries.append(Acquisition(name="needy", needs=("own_score",), **shared))
    entries.append(Acquisition(name="aimed", needs=("X_targets",), **shared))
    register_acquisition(*entries)
    yield
    for entry in entries:
        _EXTRA.pop(entry.name)


@pytest.mark.usefixtures("faulty")
def test_a_failing_cell_does_not_take_the_others_along(tmp_path: Path, monkeypatch: Any) -> None:
    plan = small_plan(DATA, acquire=("faulty", "random"), seeds=(0,))
    monkeypatch.setattr(run, "run_cells", run_here)
    run_study(plan, DATA, tmp_path / "a.db")
    failed = read_failed(tmp_path / "a.db")
    assert list(failed) == [("faulty", 0)]
    assert failed["faulty", 0].startswith("RuntimeError: two lines (test_cells.py:")
    assert [(row.acquire, row.round) for row in results(tmp_path / "a.db")] == [
        ("faulty", 0), ("random", 0), ("random", 1), ("random", 2),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="semaphores are files only here")
def test_a_stop_leaves_no_semaphores_behind(tmp_path: Path) -> None:
    """Once the command says how to go on, a second signal must leave nothing to be warned of."""

    def held() -> set[str]:
        return {path.name for path in Path("/dev/shm").glob(f"sem.*-{os.getpid()}-*")}

    def stop() -> None:
        seen.append(held())
        raise KeyboardInterrupt

    before = held()
    plan = small_plan(DATA, seeds=(0,))
    database.create(tmp_path / "a.db", plan, run.versions())
    seen: list[set[str]] = []
    with pytest.raises(KeyboardInterrupt) as caught:
        run_cells(plan, DATA, tmp_path / "a.db", plan.cells(), 1, stop)
    assert caught.value.__traceback__ is not None  # whose frames live, as they do in the command
    assert seen[0] > before and held() == before


def test_a_dead_worker_is_recorded(tmp_path: Path, monkeypatch: Any) -> None:
    plan = small_plan(DATA, seeds=(0,))
    database.create(tmp_path / "a.db", plan, run.versions())
    monkeypatch.setattr(workers, "_run_pool", lambda _, cells, *__: [c for c in cells if c[0] != "random"])
    run_cells(plan, DATA, tmp_path / "a.db", plan.cells(), 2)
    assert read_failed(tmp_path / "a.db") == {("k_center", 0): DIED}


def test_what_costs_too_much_is_not_run(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("labelzoo.study.cell.MAX_DRAW_BYTES", 1000)
    plan = small_plan(DATA, acquire=("bald", "random"), seeds=(0,))
    whole_study(plan, DATA, tmp_path / "a.db")
    assert "GiB of posterior draws" in read_skipped(tmp_path / "a.db")["bald", 0]
    assert run.count_done(plan, tmp_path / "a.db") == 6


def test_the_cap_counts_all_rounds_of_a_cell(tmp_path: Path) -> None:
    plan = small_plan(DATA, acquire=("k_center", "random"), seeds=(0,), max_seconds=100.0)
    rows = [r for r in whole_study(plan, DATA, tmp_path / "a.db") if r.acquire == "k_center"]
    cell = Setting(plan, DATA, "k_center", 0)
    last = f"not run: cost, .* CPU s of choosing by round {plan.rounds} of {plan.rounds}"
    halves = [row._replace(seconds=99.9 / (len(rows) - 1)) for row in rows[:-1]]
    assert len(list(run_cell(cell, halves))) == 1
    halves[0] = halves[0]._replace(seconds=99.9)
    with pytest.raises(NotRun, match=last):
        list(run_cell(cell, halves))


def test_what_cost_too_much_with_one_seed_is_not_begun_with_others(tmp_path: Path, monkeypatch: Any) -> None:
    plan, out = small_plan(DATA, acquire=("k_center", "random"), seeds=(0, 1)), tmp_path / "a.db"
    database.create(out, plan, run.versions())
    database.write_skipped(out, plan, "k_center", 0, "not run: cost, 9 s of choosing by round 1 of 2")
    monkeypatch.setattr(workers, "_worker", {"plan": plan, "data": DATA, "out": out})
    for name in plan.acquire:
        workers._work(name, 1)
    assert read_skipped(out)["k_center", 1] == "not run: cost, as with seed 0"
    assert {row.acquire for row in results(out)} == {"random"}


def nan_data() -> LabelData:
    X = np.arange(120.0).reshape(60, 2)
    X[3, 1] = np.nan
    return LabelData.from_arrays(X, DATA.Y.toarray(), allow_missing_features=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"acquire": ("nonsense",)}, "no acquisition function 'nonsense'; functions: "),
        ({"learner": "nonsense"}, "no model 'nonsense'; models: "),
        ({"engine": "nonsense"}, "model 'label_gp' has no engine 'nonsense'; engines: "),
        ({"settings": {"nonsense": 1}}, "label_gp: engine 'conjugate' knows no setting nonsense"),
        ({"data_hash": "0"}, "data: contents differ"),
        ({"start": 40}, "40 rows to start with leave nothing to ask of a pool of 40 rows"),
        ({"split": "published"}, "the data have no published split"),
        ({"acquire": ("needy",)}, "needy needs own_score, which a study"),
        (
            {"acquire": ("aimed",), "targets": "pool"},
            "aimed needs X_targets, which a study with targets 'pool'",
        ),
    ],
)
@pytest.mark.usefixtures("faulty")
def test_bad_input_is_refused_before_anything_is_written(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        run_study(small_plan(DATA, **changes), DATA, tmp_path / "a.db")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("data", "message"),
    [(nan_data(), "X has missing features"), (small_data(missing=60), "0 rows have every label observed")],
)
def test_bad_data_are_refused(tmp_path: Path, data: LabelData, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run_study(small_plan(data), data, tmp_path / "a.db")
    assert not list(tmp_path.iterdir())


def test_processes_must_be_positive(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="processes must be a positive integer, got 0"):
        run_study(small_plan(DATA), DATA, tmp_path / "a.db", processes=0)
