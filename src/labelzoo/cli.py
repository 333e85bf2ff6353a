"""The command line: exit 0 ok, 1 a check or a verdict failed, 2 usage or bad input (one line on stderr)."""

import contextlib
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from labelzoo.active_command import register as register_active
from labelzoo.ask_commands import ask_command, tell_command
from labelzoo.command_options import (
    BadInput,
    check_writable,
    emit,
    load_data,
    parse_duration,
    parse_settings,
    read_options,
)
from labelzoo.data_commands import SOURCE_HELP, data_app
from labelzoo.regret_command import regret
from labelzoo.topics_command import register as register_topics
from labelzoo.tune_command import register as register_tune

app = typer.Typer(
    name="labelzoo",
    help="Bayesian multi-label models: exact against custom inference, and what to label next.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(data_app, name="data")
app.command("regret")(regret)
app.command("ask")(ask_command)
app.command("tell")(tell_command)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
Seed = Annotated[int, typer.Option("--seed", min=0, max=2**32 - 1, help="Same seed, same result.")]
Data = Annotated[str, typer.Option("--data", help=SOURCE_HELP)]
Read = Annotated[
    list[str] | None,
    typer.Option(
        "--read",
        metavar="NAME=VALUE",
        help="How to read --data: labels=-6, xml=FILE, encode=none, drop=COLUMN ... (docs/data.md); repeat.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting of the model or engine; repeat."),
]


NOT_JUDGED = "chains not judged: labelzoo compare judges them"

REFERENCE_HELP = (
    "Write summaries to hold engines against: --engine nuts and --out F.json; --data tiny:SEED simulates. "
    "Admitted are runs with R-hat below 1.01, 10000 effective draws in bulk and tail of every functional and "
    "no divergence; too short a run is made again and longer, and exit code 1 tells of one not admitted."
)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    sys.exit(run(argv))


def run(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    try:
        code = app(args=list(argv) if argv is not None else None, standalone_mode=False)
        return int(code) if isinstance(code, int) else 0
    except typer.TyperException as error:
        message = error.format_message()
        if message.startswith("Usage:"):  # no arguments at all: the help, not an error
            print(message, file=sys.stderr)
            return 2
        return _fail(message, 2)
    except (typer.Abort, KeyboardInterrupt):
        return _fail("interrupted", 130)
    except (BadInput, ValueError) as error:
        return _fail(str(error), 2)
    except FloatingPointError as error:
        return _fail(str(error), 1)
    except MemoryError:
        return _fail("out of memory: use fewer rows, labels or draws", 1)
    except BrokenPipeError:
        return 1


def _fail(message: str, code: int) -> int:
    print("labelzoo: " + " ".join(message.split()), file=sys.stderr)
    return code


@app.command("list")
def list_command(as_json: Json = False) -> None:
    """List models, their engines and hand-derived updates, acquisition functions and built-in data."""
    from labelzoo.listing import as_text, listing

    payload = listing()
    emit(as_json, payload, as_text(payload))


@app.command()
def fit(
    model: str,
    data: Data,
    engine: Annotated[str, typer.Option("--engine", help="One of the model's engines (labelzoo list).")],
    out: Annotated[Path, typer.Option("--out", help="Posterior to write, netCDF; a reference: .json.")],
    reference: Annotated[bool, typer.Option("--reference", help=REFERENCE_HELP)] = False,
    settings: Settings = None,
    read: Read = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Fit a model with one engine and save the posterior, or its summaries as a reference."""
    check_writable(out)
    if reference:
        _fit_reference(model, data, engine, out, settings, seed, as_json)
        return
    from labelzoo.inference.fit import fit as fit_model
    from labelzoo.inference.posterior import save

    table, chosen = load_data(data, read), parse_settings(settings)
    tree = fit_model(model, table, engine, seed=seed, progress=_interactive(), **chosen)
    save(tree, out)
    attrs = tree.attrs
    payload = {
        "out": str(out),
        "seconds": attrs["run_seconds"] + attrs["compile_seconds"],
        "compile_seconds": attrs["compile_seconds"],
        "kind": attrs["kind"],
        "converged": {"yes": True, "no": False}.get(attrs["converged"]),
        "message": attrs["message"],
    }
    timing = f"{attrs['run_seconds']:.1f} s and {attrs['compile_seconds']:.1f} s to compile"
    told = [timing, attrs["message"], NOT_JUDGED if attrs["kind"] == "mcmc" else ""]
    text = f"{model} by {engine} ({attrs['kind']}): {'; '.join(filter(None, told))}\nwrote {out}"
    emit(as_json, payload, text)


def _fit_reference(
    model: str, data: str, engine: str, out: Path, settings: list[str] | None, seed: int, as_json: bool
) -> None:
    """Write a reference; a run that is not admitted leaves nothing behind and exit code 1."""
    if engine != "nuts":
        raise BadInput(f"--reference is made by --engine nuts, not by {engine!r}")
    from labelzoo.inference.checks.reference_posterior import ReferenceRefused, write_reference

    chosen = parse_settings(settings)
    try:
        found = write_reference(model, out, data=data, seed=seed, progress=_interactive(), **chosen)
    except ReferenceRefused as error:
        raise typer.Exit(_fail(str(error), 1)) from error
    last = found["diagnostics"]
    payload = {
        "out": str(out),
        "seconds": sum(run["seconds"] for run in [*found["refused_runs"], last]),
        "kind": "mcmc",
        "converged": True,
        "min_ess": min(last["min_ess_bulk"], last["min_ess_tail"]),
        "max_rhat": last["max_rhat"],
    }
    numbers = f"{payload['min_ess']:.0f} effective draws or more, R-hat {last['max_rhat']:.4f} or less"
    emit(as_json, payload, f"{model} by nuts, admitted as a reference: {numbers}\nwrote {out}")


@app.command()
def predict(
    posterior: Annotated[Path, typer.Argument(help="A posterior that 'fit' wrote.")],
    data: Data,
    out: Annotated[Path, typer.Option("--out", help="Probabilities to write, .npz or .csv.")],
    top: Annotated[
        int | None, typer.Option("--top", min=1, help="Keep the K most probable labels a row.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="path/to/file.py:spec, if it is a model of your own."),
    ] = None,
    read: Read = None,
    as_json: Json = False,
) -> None:
    """Predict label probabilities for every row of a data set from a saved posterior."""
    from labelzoo.inference.posterior import load as load_posterior
    from labelzoo.inference.predictions import write_predictions
    from labelzoo.models import registry

    check_writable(out)
    tree = load_posterior(posterior)
    fitted = tree.attrs["model"]
    if model is not None and registry.get(model).spec.name != fitted:
        raise BadInput(f"--model {model}: the posterior is of the model {fitted!r}")
    if fitted not in registry.names():
        raise BadInput(f"{posterior}: of a model of your own, {fitted!r}; pass --model path/to/file.py:spec")
    rows, labels = write_predictions(tree, load_data(data, read), out, top=top)
    emit(
        as_json,
        {"rows": rows, "labels": labels, "out": str(out)},
        f"wrote {rows} rows x {labels} labels to {out}",
    )


@app.command()
def check(
    models: Annotated[
        list[str] | None, typer.Argument(help="Models (default: all), or path/to/file.py:spec.")
    ] = None,
    tier: Annotated[str, typer.Option("--tier", help="fast (seconds) or full (minutes).")] = "fast",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Hold every hand-derived update against the program; exit 1 if one fails or a mutant survives."""
    if tier not in ("fast", "full"):
        raise BadInput(f"--tier {tier!r}: write fast or full")
    from labelzoo.models.registry import names

    reports = [_checked(model, tier, seed) for model in models or names()]
    killed, total = sum(r.mutants_killed for r in reports), sum(r.mutants_total for r in reports)
    passed = all(report.passed for report in reports)
    payload = {
        "models": [report.as_dict() for report in reports],
        "mutants_killed": killed,
        "mutants_total": total,
        "passed": passed,
    }
    if as_json:
        emit(as_json, payload, "")
    else:
        from rich.console import Console

        own_width = sys.stdout.isatty() or "COLUMNS" in os.environ
        Console(width=None if own_width else 150).print(*reports, sep="\n")
    raise typer.Exit(0 if passed else 1)


def _checked(model: str, tier: str, seed: int) -> Any:
    """Return the report of one model, made by two processes where there are two processors."""
    from labelzoo.check_process import Worker

    progress = _interactive()
    alone = (os.cpu_count() or 1) < 2
    worker = None if alone else Worker(model, seed=seed, tier=tier, progress=progress)
    try:
        from labelzoo.inference.checks import check as run_check

        # What a user's file prints must not mix with the report.
        with contextlib.redirect_stdout(sys.stderr):
            return run_check(model, seed=seed, tier=tier, progress=progress, worker=worker)
    finally:
        if worker is not None:
            worker.close()


@app.command("new")
def new_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the model, a Python identifier.")],
    out: Annotated[Path | None, typer.Option("--out", help="File to write; default NAME.py.")] = None,
    as_json: Json = False,
) -> None:
    """Write a model of your own to start from: a program, and two conditionals to check, one wrong."""
    from labelzoo.new_model import new_model

    path = new_model(name, out)
    told = f"wrote {path}: one of its two conditionals is wrong on purpose. Next:"
    emit(as_json, {"out": str(path)}, f"{told}\n  labelzoo check {shlex.quote(f'{path}:spec')}")


@app.command()
def compare(
    model: str,
    data: Data,
    out: Annotated[
        Path, typer.Option("--out", help="Folder for report.html, pictures and posteriors.")
    ] = Path("out"),
    engines: Annotated[str | None, typer.Option("--engines", help="Names, separated by commas.")] = None,
    reference: Annotated[
        str, typer.Option("--reference", help="Engine to hold the others against.")
    ] = "nuts",
    budget: Annotated[
        str, typer.Option("--budget", help="Total time, compilation included: 90, 2m, 1h.")
    ] = "2m",
    whole: Annotated[
        bool, typer.Option("--whole", help="Samplers on the whole data, not on a small subset.")
    ] = False,
    settings: Settings = None,
    read: Read = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Run engines side by side, judge them against a reference, and write a report."""
    from labelzoo.comparison_run import compare_and_report

    seconds = parse_duration(budget)
    check_writable(out, folder=True)
    names = [name.strip() for name in engines.split(",") if name.strip()] if engines else None
    result = compare_and_report(
        model, data, out, engines=names, reference=reference, budget=seconds, whole=whole, seed=seed,
        say=_say, read=read_options(read), **parse_settings(settings),
    )  # fmt: skip
    emit(as_json, result.payload, result.text)
    raise typer.Exit(1 if result.refuted else 0)


register_active(app)
register_topics(app)
register_tune(app)


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for the report.")] = Path("demo"),
    budget: Annotated[str, typer.Option("--budget", help="Total time; a quiet machine needs half.")] = "3m",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Show the whole job on the built-in emoji: engines compared, topics, and what to label next."""
    from labelzoo.comparison_run import demo_run

    seconds = parse_duration(budget)
    check_writable(out, folder=True)
    result = demo_run(out, budget=seconds, seed=seed, say=_say)
    emit(as_json, result.payload, result.text)
    raise typer.Exit(1 if result.refuted else 0)


def _interactive() -> bool:
    return sys.stderr.isatty()


def _say(message: str) -> None:
    if _interactive():
        print(message, file=sys.stderr, flush=True)
