"""The whole job behind ``labelzoo compare`` and ``labelzoo demo``: compare, score, draw, report."""

import io
import json
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from labelzoo.comparison_payload import build_payload
from labelzoo.report import Picture, render_html, render_text, write_bytes
from labelzoo.whole_run import TEST_FRACTION, HeldOut, fit_whole, score_trees

DEMO_ENGINES = ("gibbs", "map_em", "vb_em", "svi", "nuts")
"""Engines of the demo; those that the model lacks are left out."""

SMALL_OPTIONS: dict[str, dict[str, Any]] = {
    "gibbs": {"num_warmup": 2000, "thinning": 20},
    "gibbs_counts": {"num_warmup": 2000, "thinning": 20},
}
"""Options of single engines on a small subset, where a sweep costs next to nothing."""

DEMO_OPTIONS: dict[str, dict[str, Any]] = {"svi": {"num_steps": 2000}}
"""Options of single engines in the demo."""

DEMO_WHOLE_SETTINGS: dict[str, Any] = {"num_topics": 20}
"""Settings of the program on the demo's whole data: enough topics to be readable."""

DEMO_POOL = 40
"""Rows of the demo's subset whose labels are hidden from every engine."""

WHOLE_SHARE = 0.3
"""Part of the budget that fits on the whole data may use."""

REPORT_SECONDS = 12.0
"""Kept for scores, pictures and files, or a fifth of the budget where that is less."""

POINT_KINDS = ("point",)


class RunResult(NamedTuple):
    """What is printed: JSON payload, text, and whether an agreement was refuted or an engine failed."""

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
        spent = time.perf_counter() - self.start
        return float("inf") if self.budget is None else self.budget - spent - reserve

    @property
    def report_seconds(self) -> float:
        """Return what is kept for scores, pictures and files."""
        return 0.0 if self.budget is None else min(REPORT_SECONDS, self.budget / 5)


def read_values(value: Any) -> list[str]:
    """Return the values of one option of ``--read`` as they are written on the command line."""
    if isinstance(value, tuple):
        return [str(one) for one in value]
    return [value if isinstance(value, str) else json.dumps(value)]


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
    read: Mapping[str, Any] | None = None,
    **settings: Any,
) -> RunResult:
    """Compare engines on data given by name, and write report.html, pictures, posteriors, JSON and CSV.

    Samplers and variational bounds run on a small real subset where the data are large, unless `whole`;
    point engines run on the whole data as well.

    Parameters
    ----------
    model : str or ModelSpec
    data_name : str or path
        A built-in name, a file or a folder: whatever `labelzoo.data.load` reads.
    out : str or path
        Folder; made if absent.
    engines : sequence of str or None
        Default: all engines of the model.
    budget : float or None
        Seconds in all, compilation included.
    read : mapping or None
        Options of `labelzoo.data.load`.
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
    data = load(data_name, **(read or {}))
    name = model if isinstance(model, str) else entry.spec.name
    chosen_text = {"data": str(data_name), "engines": ",".join(chosen), "reference": reference}
    command = ["labelzoo", "compare", name, *_flags(chosen_text, seed, out, budget)]
    command += ["--whole"] if whole else []
    for key, value in (read or {}).items():
        command += [part for one in read_values(value) for part in ("--read", f"{key}={one}")]
    command += [part for key, value in settings.items() for part in ("--set", f"{key}={json.dumps(value)}")]
    job = Job(
        entry, str(data_name), data, Path(out), chosen, reference, program, program, options, budget, whole,
        seed, TEST_FRACTION, shlex.join(command), f"{entry.spec.name} on {data_name}", say or _silent, start,
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
    command = ["labelzoo", "demo", *_flags({}, seed, out, budget)]
    job = Job(
        entry, "emoji", data, Path(out), chosen, "nuts", {}, DEMO_WHOLE_SETTINGS, DEMO_OPTIONS, budget, False,
        seed, pool_share, shlex.join(command), "labelzoo demo: emoji", say or _silent, start,
    )  # fmt: skip
    return run_job(job)


def _silent(message: str) -> None:
    """Say nothing."""


def _flags(named: Mapping[str, str], seed: int, out: Any, budget: float | None) -> list[str]:
    parts = [part for name, value in named.items() for part in (f"--{name}", value)]
    limit = [] if budget is None else ["--budget", f"{budget:g}"]
    return [*parts, "--seed", str(seed), *limit, "--out", str(out)]


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
            f"{entry.spec.name} has no setting {', '.join(map(repr, unknown))}; "
            f"settings: {', '.join(sorted(entry.spec.settings)) or 'none'}; "
            f"options of its engines: {', '.join(sorted(known))}"
        )
    return program, options


def run_job(job: Job) -> RunResult:
    """Run a job and write all its files."""
    from labelzoo.comparison_pictures import draw_pictures
    from labelzoo.inference.compare.driver import compare
    from labelzoo.inference.compare.subset import needs_subset, small_subset

    _make_folder(job.out)
    kinds = {job.entry.engines[name].kind for name in job.engines}
    cut = needs_subset(job.data, kinds) and not job.whole
    rows = small_subset(job.data, seed=job.seed) if cut else job.data
    whole = _whole_part(job) if cut else None
    program = {**job.entry.spec.small_settings, **job.program} if cut else dict(job.program)
    small_options = SMALL_OPTIONS if cut else {}
    options = {name: {**small_options.get(name, {}), **job.options.get(name, {})} for name in job.engines}
    comparison = compare(
        job.entry.spec, rows, list(job.engines), reference=job.reference,
        budget=None if job.budget is None else max(1.0, job.left(job.report_seconds)),
        test_fraction=job.test_fraction, seed=job.seed, progress=job.say, engine_settings=options,
        **program,
    )  # fmt: skip
    job.say("scores and pictures")
    in_order = {name: comparison.trees[name] for name in job.engines if name in comparison.trees}
    small = score_trees(in_order, comparison.train, comparison.test, job.seed)
    payload = build_payload(job, comparison, rows if cut else None, small, whole)
    pictures = draw_pictures(comparison, small, whole)
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
        seconds_left=lambda: job.left(share), seed=job.seed, say=job.say,
    )  # fmt: skip


def file_stem(name: str) -> str:
    """Return an engine's name with all but letters, digits, dots and dashes replaced."""
    return re.sub(r"[^\w.-]", "_", name).lstrip(".") or "_"


def _write_all(
    job: Job, payload: dict[str, Any], pictures: list[Picture], comparison: Any, whole: HeldOut | None
) -> RunResult:
    from labelzoo.inference.posterior import save

    trees = dict(comparison.trees) | {f"{n}_whole": t for n, t in (whole.trees if whole else {}).items()}
    files = [str(save(tree, job.out / f"{file_stem(name)}.nc")) for name, tree in trees.items()]
    files += [str(write_bytes(job.out / picture.file, picture.png)) for picture in pictures]
    text = io.StringIO()
    comparison.table.to_csv(text, index=False)
    files.append(str(write_bytes(job.out / "comparison.csv", text.getvalue().encode())))
    payload |= {"files": [*files, str(job.out / "comparison.json"), payload["report"]]}
    payload |= {"seconds": time.perf_counter() - job.start, "refuted": bool(comparison.refuted)}
    if job.budget is not None and payload["seconds"] > 1.05 * job.budget:
        payload["notes"].append(
            f"the budget of {job.budget:.0f} s was passed: compilation and single steps cannot be cut short."
        )
    write_bytes(job.out / "report.html", render_html(payload, pictures).encode())
    content = json.dumps(payload, ensure_ascii=False, allow_nan=False, indent=1)
    write_bytes(job.out / "comparison.json", content.encode())
    wrong = bool(comparison.refuted or comparison.failures)
    return RunResult(payload, render_text(payload), wrong)
