"""The whole job behind ``labelzoo compare`` and ``labelzoo demo``: compare, score, draw, report."""

import io
import json
import os
import platform
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from labelzoo.query_table import Queries, best_sampler, choose_next
from labelzoo.report import Picture, render_html, render_text, write_bytes
from labelzoo.topic_table import has_topics, topic_table, topics_as_json
from labelzoo.whole_run import HeldOut, fit_whole, score_trees

DEMO_SETTINGS: dict[str, Any] = {"num_topics": 3, "topic_concentration": 0.5}
"""Settings of the program on the demo's small subset."""

DEMO_ENGINES = ("gibbs", "gibbs_counts", "map_em", "vb_em", "svi", "nuts")
"""Engines of the demo; those that the model lacks are left out."""

DEMO_OPTIONS: dict[str, dict[str, Any]] = {}
"""Options of single engines in the demo."""

DEMO_WHOLE_SETTINGS: dict[str, Any] = {"num_topics": 20}
"""Settings of the program on the demo's whole data: enough topics to be readable."""

DEMO_POOL = 40
"""Rows of the demo's subset whose labels are hidden from every engine."""

TEST_FRACTION = 0.2

WHOLE_SHARE = 0.3
"""Part of the budget that fits on the whole data may use."""

REPORT_SECONDS = 12.0
"""Kept for scores, pictures and files, or a fifth of the budget where that is less."""

POINT_KINDS = ("point",)


class RunResult(NamedTuple):
    """What the command line prints: JSON payload, text, and whether an agreement was refuted."""

    payload: dict[str, Any]
    text: str
    refuted: bool


@dataclass(frozen=True)
class Job:
    """Everything that decides what is run.

    Attributes
    ----------
    entry : labelzoo.models.registry.Entry
    data_name, data : str, LabelData
    engines, reference : names
    program : settings of the program; whole_program for fits on the whole data
    options : options of single engines, by name
    budget : seconds in all, or None
    whole : samplers on the whole data too
    test_fraction : part of the compared rows that is held out
    command : the command line that repeats the run
    """

    entry: Any
    data_name: str
    data: Any
    out: Path
    engines: tuple[str, ...]
    reference: str
    program: Mapping[str, Any]
    whole_program: Mapping[str, Any]
    options: Mapping[str, Mapping[str, Any]]
    budget: float | None
    whole: bool
    seed: int
    test_fraction: float
    command: str
    title: str
    say: Callable[[str], None]
    start: float = field(default_factory=time.perf_counter)

    def left(self, reserve: float = 0.0) -> float:
        """Return the seconds left of the budget, less `reserve`."""
        return (
            float("inf")
            if self.budget is None
            else self.budget - (time.perf_counter() - self.start) - reserve
        )

    @property
    def report_seconds(self) -> float:
        """Return what is kept for scores, pictures and files."""
        return 0.0 if self.budget is None else min(REPORT_SECONDS, self.budget / 5)


def compare_and_report(
    model: Any,
    data_name: Any,
    out: Any,
    *,
    engines: Sequence[str] | None = None,
    reference: str = "nuts",
    budget: float | None = 120.0,
    whole: bool = False,
    seed: int = 0,
    say: Callable[[str], None] | None = None,
    **settings: Any,
) -> RunResult:
    """Compare engines on data given by name, and write report.html, pictures, posteriors, JSON and CSV.

    Samplers and variational bounds run on a small real subset where the data are large, unless `whole`;
    point engines run on the whole data as well.

    Parameters
    ----------
    model : str or ModelSpec
    data_name : str or path
        A built-in name or an .npz file.
    out : str or path
        Folder; made if absent.
    engines : sequence of str or None
        Default: all engines of the model.
    budget : float or None
        Seconds in all, compilation included.
    **settings
        Settings of the program, and options of any engine that is run.

    Raises
    ------
    ValueError
        If a name, a setting or the folder cannot be used.
    """
    start = time.perf_counter()
    from labelzoo.data import load
    from labelzoo.models import registry

    entry = registry.get(model)
    chosen = _checked_engines(entry, engines, reference)
    program, options = split_settings(entry, chosen, settings)
    data = load(data_name)
    command = [
        "labelzoo",
        "compare",
        str(model if isinstance(model, str) else entry.spec.name),
        "--data",
        str(data_name),
    ]
    command += [
        "--engines",
        ",".join(chosen),
        "--reference",
        reference,
        "--seed",
        str(seed),
        "--out",
        str(out),
    ]
    command += ([] if budget is None else ["--budget", f"{budget:g}"]) + (["--whole"] if whole else [])
    for name, value in settings.items():
        command += ["--set", f"{name}={json.dumps(value)}"]
    job = Job(
        entry, str(data_name), data, Path(out), chosen, reference, program, program, options, budget, whole, seed,
        TEST_FRACTION, shlex.join(command), f"{entry.spec.name} on {data_name}", say or _silent, start,
    )  # fmt: skip
    return run_job(job)


def demo_run(
    out: Any, *, budget: float | None = 120.0, seed: int = 0, say: Callable[[str], None] | None = None
) -> RunResult:
    """Show the whole job on the built-in emoji: engines compared, topics, and what to label next."""
    start = time.perf_counter()
    from labelzoo.data import load
    from labelzoo.inference.compare.subset import small_subset
    from labelzoo.models import registry

    entry = registry.get("bernoulli_poisson_topics")
    chosen = tuple(name for name in DEMO_ENGINES if name in entry.engines)
    data = load("emoji")
    pool_share = DEMO_POOL / small_subset(data, seed=seed).num_rows
    command = ["labelzoo", "demo", "--seed", str(seed), "--out", str(out)]
    command += [] if budget is None else ["--budget", f"{budget:g}"]
    whole_program = {**DEMO_SETTINGS, "topic_concentration": None, **DEMO_WHOLE_SETTINGS}
    job = Job(
        entry, "emoji", data, Path(out), chosen, "nuts", DEMO_SETTINGS, whole_program, DEMO_OPTIONS, budget, False,
        seed, pool_share, shlex.join(command), "labelzoo demo: topics of emoji", say or _silent, start,
    )  # fmt: skip
    return run_job(job)


def _silent(message: str) -> None:
    """Say nothing."""


def _checked_engines(entry: Any, engines: Sequence[str] | None, reference: str) -> tuple[str, ...]:
    from labelzoo.inference.fit import find_engine

    chosen = tuple(dict.fromkeys(engines)) if engines is not None else tuple(entry.engines)
    if not chosen:
        raise ValueError("engines: none given")
    for name in (*chosen, reference):
        find_engine(entry, name)
    return chosen


def split_settings(
    entry: Any, engines: Sequence[str], settings: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Part settings of the program from options of the engines, by engine.

    Raises
    ------
    ValueError
        If a name is neither, with those that exist.
    """
    program = {name: value for name, value in settings.items() if name in entry.spec.settings}
    rest = {name: value for name, value in settings.items() if name not in program}
    options = {e: {n: v for n, v in rest.items() if n in entry.engines[e].options} for e in engines}
    known = {name for e in engines for name in entry.engines[e].options}
    unknown = sorted(set(rest) - known)
    if unknown:
        raise ValueError(
            f"{entry.spec.name} has no setting {', '.join(map(repr, unknown))}; settings: "
            f"{', '.join(sorted(entry.spec.settings)) or 'none'}; options of its engines: {', '.join(sorted(known))}"
        )
    return program, options


def run_job(job: Job) -> RunResult:
    """Run a job and write all its files."""
    from labelzoo.inference.compare.driver import compare
    from labelzoo.inference.compare.subset import needs_subset, small_subset

    _make_folder(job.out)
    kinds = {job.entry.engines[name].kind for name in job.engines}
    cut = needs_subset(job.data, kinds) and not job.whole
    rows = small_subset(job.data, seed=job.seed) if cut else job.data
    whole = _whole_part(job) if cut else None
    comparison = compare(
        job.entry.spec, rows, list(job.engines), reference=job.reference,
        budget=None if job.budget is None else max(1.0, job.left(job.report_seconds)),
        test_fraction=job.test_fraction, seed=job.seed, progress=job.say, engine_settings=job.options,
        **job.program,
    )  # fmt: skip
    job.say("scores and pictures")
    small = score_trees(comparison.trees, comparison.train, comparison.test, job.seed)
    payload = _payload(job, comparison, rows if cut else None, small, whole)
    pictures = _pictures(comparison, small, whole)
    return _write_all(job, payload, pictures, comparison, whole)


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"cannot make the folder {str(path)!r}: {error.strerror or error}") from error


def _whole_part(job: Job) -> HeldOut:
    points = [name for name in job.engines if job.entry.engines[name].kind in POINT_KINDS]
    if not points:
        return HeldOut()
    share = 0.0 if job.budget is None else job.budget * (1 - WHOLE_SHARE)
    return fit_whole(
        job.entry, job.data, points, options=job.options, settings=job.whole_program,
        seconds_left=lambda: job.left(share), test_fraction=TEST_FRACTION, seed=job.seed, say=job.say,
    )  # fmt: skip


def _payload(job: Job, comparison: Any, subset: Any, small: HeldOut, whole: HeldOut | None) -> dict[str, Any]:
    engines = comparison.to_json()["engines"]
    held_out = {row["name"]: row for row in small.rows}
    for row in engines:
        row |= {k: v for k, v in held_out[row["name"]].items() if k not in row}
    shown = small if whole is None else whole
    queries = _queries(job, comparison, engines)
    topics, topics_summary = _topics(comparison, engines, whole)
    return {
        "title": job.title,
        "model": job.entry.spec.name,
        "data": job.data_name,
        "data_hash": job.data.hash(),
        "rows": job.data.num_rows,
        "features": job.data.num_features,
        "labels": job.data.num_labels,
        "subset": None if subset is None else _sizes(subset),
        "train_rows": comparison.train.num_rows,
        "test_rows": comparison.test.num_rows,
        "reference": job.reference,
        "seed": job.seed,
        "budget": job.budget,
        "summary": _summary(job, comparison, subset),
        "engines": engines,
        "whole": shown.rows if shown.rows else [],
        "whole_summary": _whole_summary(job, comparison, whole),
        "topics": topics,
        "topics_summary": topics_summary,
        "next": queries.rows,
        "next_summary": queries.summary,
        "notes": _notes(comparison, whole, queries),
        "command": job.command,
        "versions": json.loads(str(next(iter(comparison.trees.values())).attrs["versions"])),
        "machine": f"{len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()} cores, "
        f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "report": str(job.out / "report.html"),
    }


def _sizes(data: Any) -> dict[str, int]:
    return {"rows": data.num_rows, "labels": data.num_labels, "features": data.num_features}


def _summary(job: Job, comparison: Any, subset: Any) -> str:
    used = job.data if subset is None else subset
    size = f"{used.num_rows} rows, {used.num_labels} labels and {used.num_features} features"
    if subset is not None:
        size += f", a subset of {job.data_name} ({job.data.num_rows} rows, {job.data.num_labels} labels, "
        size += f"{job.data.num_features} features) small enough for a sampler to converge"
    else:
        size += f" of {job.data_name}"
    return (
        f"{len(job.engines)} engines for {job.entry.spec.name} ({', '.join(job.engines)}), held against {job.reference} "
        f"on {size}. {comparison.train.num_rows} rows were fitted and {comparison.test.num_rows} held out."
    )


def _whole_summary(job: Job, comparison: Any, whole: HeldOut | None) -> str:
    if whole is None:
        return (
            f"Every engine on the {comparison.test.num_rows} held-out rows, beside plain label frequencies."
        )
    if not whole.rows:
        return ""
    held_out = max(1, round(job.data.num_rows * TEST_FRACTION))
    changed = {k: v for k, v in job.whole_program.items() if job.program.get(k) != v and v is not None}
    setting = f" ({', '.join(f'{k}={v}' for k, v in changed.items())})" if changed else ""
    return (
        f"Point engines on the whole of {job.data_name}{setting}: {job.data.num_rows - held_out} rows fitted, {held_out} "
        f"held out, {job.data.num_labels} labels, beside plain label frequencies."
    )


def _notes(comparison: Any, whole: HeldOut | None, queries: Queries) -> list[str]:
    notes = [f"{name} failed: {reason}" for name, reason in comparison.failures.items()]
    notes += whole.notes if whole else []
    unsettled = [n for n, tree in comparison.trees.items() if tree.attrs["converged"] == "no"]
    notes += [f"{name} on the compared rows: {comparison.trees[name].attrs['message']}" for name in unsettled]
    return notes + ([] if queries.rows else [queries.summary])


def _queries(job: Job, comparison: Any, engines: list[dict[str, Any]]) -> Queries:
    """Ask among the rows without labels, or else among the held-out rows, whose labels no engine has seen."""
    pool, compared = comparison.test, comparison.train
    unlabelled = np.flatnonzero(job.data.unlabelled_rows)
    if unlabelled.size:
        pool = job.data.subset(rows=unlabelled, labels=compared.label_names, features=compared.feature_names)
    return choose_next(comparison.trees, best_sampler(engines, comparison.trees), pool, seed=job.seed)


def _topics(
    comparison: Any, engines: list[dict[str, Any]], whole: HeldOut | None
) -> tuple[list[dict[str, Any]], str]:
    """Return topics of a fit on the whole data where there is one, else of the best posterior."""
    if whole is not None and whole.trees:
        name = "vb_em" if "vb_em" in whole.trees else next(iter(whole.trees))
        tree, where = whole.trees[name], "the whole data"
    else:
        name = best_sampler(engines, comparison.trees) or next(iter(comparison.trees))
        tree, where = comparison.trees[name], "the compared rows"
    if not has_topics(tree):
        return [], ""
    topics = topic_table(tree)
    draws = tree["posterior"].sizes["chain"] * tree["posterior"].sizes["draw"]
    how = (
        ""
        if draws == 1
        else " Posterior means after matching topics between draws: for looking, not for judging."
    )
    summary = f"{len(topics)} topics by {name} on {where}, ordered by the share of positive labels that each explains.{how}"
    return topics_as_json(topics), summary


def _pictures(comparison: Any, small: HeldOut, whole: HeldOut | None) -> list[Picture]:
    from labelzoo.comparison_pictures import draw_pictures

    return draw_pictures(comparison, small, whole)


def _write_all(
    job: Job, payload: dict[str, Any], pictures: list[Picture], comparison: Any, whole: HeldOut | None
) -> RunResult:
    from labelzoo.inference.posterior import save

    trees = dict(comparison.trees) | {f"{n}_whole": t for n, t in (whole.trees if whole else {}).items()}
    files = []
    for name, tree in trees.items():
        files.append(str(save(tree, job.out / f"{name}.nc")))
    for picture in pictures:
        files.append(str(write_bytes(job.out / picture.file, picture.png)))
    text = io.StringIO()
    comparison.table.to_csv(text, index=False)
    files.append(str(write_bytes(job.out / "comparison.csv", text.getvalue().encode())))
    payload |= {"files": [*files, str(job.out / "comparison.json"), payload["report"]]}
    payload |= {"seconds": time.perf_counter() - job.start, "refuted": bool(comparison.refuted)}
    write_bytes(job.out / "report.html", render_html(payload, pictures).encode())
    content = json.dumps(payload, ensure_ascii=False, allow_nan=False, indent=1)
    write_bytes(job.out / "comparison.json", content.encode())
    return RunResult(payload, render_text(payload), bool(comparison.refuted))
