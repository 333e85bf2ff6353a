"""The verb ``labelzoo active``: simulated active learning, judged against random rows."""

import os
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from labelzoo.data_commands import SOURCE_HELP

DATABASE = "study.db"
RANDOM, ORACLE = "random", "oracle"
STOPPED = 130
FIRST_ROWS = 20
"""Rows on which values of settings are tried before a study begins."""
BATCH_HELP = "Rows asked in a round; functions that ask single labels ask rows x labels cells."


def active(
    data: Annotated[str, typer.Option("--data", help=SOURCE_HELP)],
    learner: Annotated[
        str, typer.Option("--learner", metavar="MODEL:ENGINE", help="Fitted in each round (labelzoo list).")
    ],
    acquire: Annotated[
        str,
        typer.Option("--acquire", metavar="A,B", help="Acquisition functions; random is always among them."),
    ],
    out: Annotated[
        Path, typer.Option("--out", help="Folder for study.db, report.html, pictures, results.")
    ] = Path("study"),
    start: Annotated[int, typer.Option("--start", min=1, help="Rows labelled at the start.")] = 20,
    rounds: Annotated[int, typer.Option("--rounds", min=0, help="Rounds after it.")] = 20,
    batch: Annotated[int, typer.Option("--batch", min=1, help=BATCH_HELP)] = 10,
    seeds: Annotated[int, typer.Option("--seeds", min=1, metavar="N", help="Seeds 0 to N-1.")] = 5,
    targets: Annotated[
        str, typer.Option("--targets", help="Where predictions matter: pool, predict or all.")
    ] = "predict",
    split: Annotated[str, typer.Option("--split", help="published, random or stratified.")] = "random",
    evaluator: Annotated[
        str, typer.Option("--evaluator", help="own (the learner), common (logistic regression), or both.")
    ] = "own,common",
    test_fraction: Annotated[
        float, typer.Option("--test-fraction", help="Share of deployment rows in a re-split.")
    ] = 1 / 3,
    refit: Annotated[int, typer.Option("--refit", min=1, help="Refit the learner every K rounds.")] = 1,
    draws: Annotated[
        int, typer.Option("--draws", min=1, help="Posterior draws that a function may read.")
    ] = 200,
    oracle: Annotated[
        int, typer.Option("--oracle", min=0, metavar="N", help="Add the best of N random batches, a scale.")
    ] = 0,
    score_kernel: Annotated[
        str, typer.Option("--score-kernel", metavar="RULE", help="How scores choose their kernel's length.")
    ] = "guarded",
    cost_cap: Annotated[
        float | None,
        typer.Option("--cost-cap", metavar="SECONDS", help="Give up what takes more CPU to choose, a seed."),
    ] = None,
    processes: Annotated[
        int | None, typer.Option("--processes", min=1, help="Worker processes; default: the cores.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of the model or engine; repeat."),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue in --out; rounds, seeds and functions may be added."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Simulate active learning and say, with intervals, what it gains or loses against random rows.

    Exit code 0 whatever the verdict, 1 if a part of the study failed, 2 for bad input.
    """
    from labelzoo.command_options import check_writable, emit, parse_settings

    names = functions(acquire, oracle)
    database = out / DATABASE
    if database.exists() and not resume:
        raise ValueError(f"--out {str(out)!r} holds a study: continue it with --resume, or choose another")
    if resume and not database.exists():
        raise ValueError(f"--out {str(out)!r} holds no study to resume")
    model, engine = learner_of(learner)
    from labelzoo.data import load
    from labelzoo.study.plan import Plan

    table = load(data)
    plan = Plan(
        data=data, data_hash=table.hash(), learner=model, engine=engine, settings=parse_settings(settings),
        acquire=names, start=start, rounds=rounds, batch=batch, seeds=tuple(range(seeds)), split=split,
        test_fraction=test_fraction, targets=targets, evaluators=words(evaluator, "--evaluator"), refit=refit,
        num_draws=draws, oracle=oracle, score_kernel=score_kernel, max_seconds=cost_cap,
    )  # fmt: skip
    refuse_settings(model, plan.settings, table)
    check_writable(out, folder=True)
    command = command_of(plan, out, settings or ())
    count = min(processes or os.cpu_count() or 1, len(plan.cells()))
    same = command + (f" --processes {processes}" if processes else "") + (" --json" if as_json else "")
    with stoppable(plan, database, same):
        run_shown(plan, table, database, count, resume)
        payload, text = written(database, table, out, command)
    emit(as_json, payload, text)
    for row in payload["failed"]:
        print(f"labelzoo: {row['acquire']}, seed {row['seed']} failed: {row['reason']}", file=sys.stderr)
    raise typer.Exit(1 if payload["failed"] else 0)


def words(text: str, option: str) -> tuple[str, ...]:
    """Return names separated by commas."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise ValueError(f"{option} {text!r}: a name is empty; write a,b,c")
    return names


def functions(text: str, oracle: int) -> tuple[str, ...]:
    """Return the acquisition functions of a study; random, and the oracle where asked, are added."""
    names = words(text, "--acquire")
    if ORACLE in names and not oracle:
        raise ValueError("--acquire oracle: say of how many random batches it takes the best, --oracle N")
    if RANDOM not in names:
        names = (*names, RANDOM)
        print("labelzoo: random is added: every function is compared with it", file=sys.stderr)
    return (*names, ORACLE) if oracle and ORACLE not in names else names


def learner_of(text: str) -> tuple[str, str]:
    """Return (model, engine) of MODEL:ENGINE; the model may be path/to/file.py:spec."""
    model, separator, engine = text.rpartition(":")
    if not separator or not model or not engine:
        raise ValueError(f"--learner {text!r}: write MODEL:ENGINE, label_gp:conjugate for instance")
    return model, engine


def refuse_settings(model: str, settings: Mapping[str, Any], table: Any) -> None:
    """Refuse values that the model refuses, before anything is written; tried on the first rows.

    Raises
    ------
    ValueError
        As the model, where its message begins with a setting that was given.
    """
    from labelzoo.models.registry import get

    spec = get(model).spec
    own = {name: value for name, value in settings.items() if name in spec.settings}
    if not own:
        return
    try:
        spec.prepare(table.subset(rows=slice(0, FIRST_ROWS)), spec.resolve(own))
    except ValueError as error:
        if str(error).startswith(tuple(own)):
            raise


def command_of(plan: Any, out: Path, settings: Sequence[str]) -> str:
    """Return the command line that makes this study anew; options at their default are left out."""
    from labelzoo.study.plan import Plan

    options = {
        "--data": plan.data, "--learner": f"{plan.learner}:{plan.engine}",
        "--acquire": ",".join(name for name in plan.acquire if name != ORACLE), "--start": plan.start,
        "--rounds": plan.rounds, "--batch": plan.batch, "--seeds": len(plan.seeds), "--targets": plan.targets,
        "--split": plan.split, "--evaluator": ",".join(plan.evaluators),
    }  # fmt: skip
    rest = {"--test-fraction": "test_fraction", "--refit": "refit", "--draws": "num_draws",
            "--oracle": "oracle", "--score-kernel": "score_kernel", "--cost-cap": "max_seconds"}  # fmt: skip
    default = Plan.__dataclass_fields__
    for option, name in rest.items():
        if getattr(plan, name) != default[name].default:
            options[option] = getattr(plan, name)
    parts = [part for option, value in options.items() for part in (option, str(value))]
    parts += [part for pair in settings for part in ("--set", pair)]
    return shlex.join(["labelzoo", "active", *parts, "--out", str(out)])


@contextmanager
def stoppable(plan: Any, database: Path, command: str) -> Iterator[None]:
    """End on Ctrl-C and SIGTERM with a line that says how to go on."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop) if in_main_thread() else None
    try:
        yield
    except KeyboardInterrupt:
        if not database.exists():
            raise
        from labelzoo.study.run import count_done

        done, total = count_done(plan, database), len(plan.cells()) * (plan.rounds + 1)
        print(f"labelzoo: stopped with {done} of {total} rounds done, none lost; to go on:", file=sys.stderr)
        print(f"  {command} --resume", file=sys.stderr)
        raise typer.Exit(STOPPED) from None
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def in_main_thread() -> bool:
    """Say whether signal handlers may be set here."""
    import threading

    return threading.current_thread() is threading.main_thread()


def run_shown(plan: Any, table: Any, database: Path, processes: int, resume: bool) -> None:
    """Run the study with its progress on stderr, where that is a terminal."""
    from labelzoo.study.progress import study_progress
    from labelzoo.study.run import run_study

    with study_progress() as say:
        run_study(plan, table, database, processes=processes, resume=resume, say=say)


def written(database: Path, table: Any, out: Path, command: str) -> tuple[dict[str, Any], str]:
    """Write results.json, pictures and report.html; return the payload and the terminal text."""
    import json

    from labelzoo.report import write_bytes
    from labelzoo.study.pictures import study_pictures
    from labelzoo.study.report import render_html, render_text
    from labelzoo.study.results import study_results

    pictures = study_pictures(database, table)
    payload = study_results(database, table) | {
        "command": command,
        "database": str(database),
        "report": str(out / "report.html"),
        "pictures": [str(out / picture.file) for picture in pictures],
    }
    for picture in pictures:
        write_bytes(out / picture.file, picture.png)
    text = json.dumps(payload, ensure_ascii=False, allow_nan=False, indent=1)
    write_bytes(out / "results.json", text.encode())
    write_bytes(out / "report.html", render_html(payload, pictures).encode())
    return payload, render_text(payload)


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("active")(active)
