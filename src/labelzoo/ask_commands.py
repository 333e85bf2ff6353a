"""The verbs ``labelzoo ask`` and ``labelzoo tell``: what to label next, and a person's answers."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from labelzoo.command_options import emit
from labelzoo.data_commands import SOURCE_HELP, Json, told

Posterior = Annotated[Path, typer.Argument(help="A posterior that 'fit' wrote.", metavar="F.nc")]
POOL_HELP = SOURCE_HELP + " Asked are rows without labels; single labels also of rows with some known."
Pool = Annotated[str, typer.Option("--pool", help=POOL_HELP)]
Acquire = Annotated[str, typer.Option("--acquire", help="An acquisition function (labelzoo list).")]
Batch = Annotated[int, typer.Option("--batch", min=1, help="How many rows, or single labels.")]
Targets = Annotated[
    str | None, typer.Option("--targets", help="Data whose rows will be predicted; default: the candidates.")
]
Labelled = Annotated[
    str | None,
    typer.Option("--labelled", help="What is labelled so far, where the pool does not hold it."),
]
Seed = Annotated[int, typer.Option("--seed", min=0, max=2**32 - 1, help="Same seed, same result.")]
Out = Annotated[Path | None, typer.Option("--out", help="Questions file to write, JSON: 'tell' reads it.")]
Form = Annotated[Path | None, typer.Option("--form", help="Empty answer form to write, CSV.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is at --out and --form already.")]
OwnModel = Annotated[
    str | None, typer.Option("--model", help="path/to/file.py:spec, if it is a model of your own.")
]


def ask_command(
    posterior: Posterior,
    pool: Pool,
    acquire: Acquire = "ensemble_ivr",
    batch: Batch = 10,
    targets: Targets = None,
    labelled: Labelled = None,
    out: Out = None,
    form: Form = None,
    model: OwnModel = None,
    force: Force = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Say which rows (or which single labels) to label next."""
    from labelzoo.acquisition import ask, find
    from labelzoo.ask_files import refuse_existing, refuse_inputs_as_outputs
    from labelzoo.command_options import check_writable
    from labelzoo.questions import make_questions, save_questions, write_form

    entry = find(acquire)
    outputs = {"--out": out, "--form": form}
    inputs = {"--pool": pool, "--targets": targets, "--labelled": labelled}
    refuse_inputs_as_outputs(outputs, {"the posterior": posterior, **inputs, "--model": code_file(model)})
    refuse_existing(outputs, force)
    for path in (out, form):
        if path is not None:
            check_writable(path)
    with told() as messages:
        tree = read_posterior(posterior, model)
        data = read_beside("--pool", pool, tree)
        more = {
            name: None if source is None else read_beside(f"--{name}", source, tree)
            for name, source in (("targets", targets), ("labelled", labelled))
        }
        table = ask(tree, data, acquire=acquire, batch=batch, seed=seed, **more)
        names = {option.removeprefix("--"): source for option, source in inputs.items()}
        questions = make_questions(tree, data, table, acquire=acquire, seed=seed, inputs=names)
    questions.posterior.update(file=str(posterior), sha256=file_hash(posterior))
    refuse_existing(outputs, force)  # again: scores may have taken an hour
    if not len(table):  # an early stop: a file without questions could not be answered
        out = form = None
    if out is not None:
        save_questions(questions, out)
    if form is not None:
        write_form(questions, form)
    emit(as_json, ask_payload(questions, table, out, form, messages), ask_text(entry, table, out, form))


def code_file(model: str | None) -> str | None:
    """Return the file of ``path/to/file.py:spec``."""
    return None if model is None else model.rpartition(":")[0] or model


def read_posterior(path: Path, model: str | None) -> Any:
    """Load a posterior of a model that is known here; a file of the user's own makes its model known."""
    from labelzoo.acquisition.front_checks import check_posterior
    from labelzoo.inference.posterior import load
    from labelzoo.models import registry

    tree = load(path)
    with named(str(path)):
        check_posterior(tree)
    fitted = tree.attrs["model"]
    if model is not None and registry.get(model).spec.name != fitted:
        raise ValueError(f"--model {model}: the posterior is of the model {fitted!r}")
    if fitted not in registry.names():
        raise ValueError(f"{path}: of a model of your own, {fitted!r}; pass --model path/to/file.py:spec")
    return tree


def read_beside(option: str, source: str, tree: Any) -> Any:
    """Load data whose features must be those of the posterior; errors name the option."""
    from labelzoo.data import load
    from labelzoo.inference.predict import features_of

    data = load(source)
    with named(f"{option} {source}"):
        features_of(tree, data)
    return data


@contextmanager
def named(place: str) -> Iterator[None]:
    """Put `place` before the message of a ValueError."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error


def file_hash(path: Path) -> str:
    """Return the SHA-256 (hex) of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def ask_payload(
    questions: Any, table: Any, out: Path | None, form: Path | None, messages: list[str]
) -> dict[str, Any]:
    """Return the answer of ``ask --json``."""
    rows = []
    for one, likely in zip(questions.questions, table.get("likely_labels", [None] * len(table)), strict=True):
        row = {"id": one.id, "gain": one.gain, "likely_labels": likely}
        rows.append(row if one.label is None else {**row, "label": one.label})
    return {
        "acquisition": questions.acquisition, "query": questions.query, "units": questions.units,
        "questions": rows, "report": questions.report, "pool_hash": questions.pool_hash,
        "out": None if out is None else str(out), "form": None if form is None else str(form),
        "warnings": messages,
    }  # fmt: skip


def ask_text(entry: Any, table: Any, out: Path | None, form: Path | None) -> str:
    """Return the table as text, with the units and what was written."""
    shown = table.rename(columns={"obs": "id"})
    shown.index = range(1, len(shown) + 1)
    what = "rows" if entry.query == "row" else "single labels"
    lines = [f"{len(shown)} {what} to label next by {entry.name}; gain: {entry.units}"]
    if len(shown):
        lines.append(shown.to_string(float_format=lambda value: f"{value:.4g}", justify="left"))
    stopped = table.attrs.get("report", {}).get("stopped")
    lines += [] if stopped is None else [f"stopped: {stopped}"]
    lines += [] if len(shown) else ["nothing was written"]
    lines += [f"wrote {path}" for path in (out, form) if path is not None]
    return "\n".join(lines)


def tell_command(
    questions: Annotated[Path, typer.Argument(help="What 'ask --out' wrote.", metavar="Q.json")],
    answers: Annotated[
        Path, typer.Argument(help="CSV (id, one column a label: 0, 1 or nothing) or JSON.", metavar="ANSWERS")
    ],
    pool: Annotated[str, typer.Option("--pool", help="The pool that was asked about.")],
    out: Annotated[Path, typer.Option("--out", help="Data to write; answers that it holds are kept.")],
    force: Annotated[
        bool,
        typer.Option("--force", help="Take answers that were not asked or that contradict known labels."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Write answers into the data: what was answered is observed, everything else stays as it was."""
    from labelzoo.answers import tell, with_earlier
    from labelzoo.ask_files import one_writer, refuse_inputs_as_outputs
    from labelzoo.command_options import check_writable
    from labelzoo.data import load
    from labelzoo.data.files import save_data, written_format
    from labelzoo.questions import load_questions

    written_format(out)
    refuse_inputs_as_outputs({"--out": out}, {"the questions": questions, "the answers": answers})
    check_writable(out)
    asked = load_questions(questions)
    # Read, told and written under one lock: answers that another process tells meanwhile are not lost.
    with told() as messages, one_writer(out):
        data = load(pool)
        earlier = load(out) if out.exists() else None
        if earlier is not None:
            with named(f"--out {out}"):
                data = with_earlier(data, earlier, force=force)
        with named(f"{questions}, {answers}"):
            result = tell(data, asked, answers, force=force)
        if earlier is None or earlier.hash() != result.data.hash():
            save_data(result.data, out)
    payload = {
        "out": str(out), "new_cells": result.new, "same_cells": result.same,
        "changed_cells": result.changed, "open_cells": result.open, "open_rows": list(result.open_ids),
        "rows": result.data.num_rows, "labelled_rows": int((~result.data.unlabelled_rows).sum()),
        "hash": result.data.hash(), "warnings": messages,
    }  # fmt: skip
    emit(as_json, payload, tell_text(result, out))


def tell_text(result: Any, out: Path) -> str:
    """Return one line on what was new and one on what is still open."""
    counts = [f"{result.new} labels are new", f"{result.same} were known"]
    counts += [f"{result.changed} replaced"] if result.changed else []
    rows = f"{result.open} in {len(result.open_ids)} rows are" if result.open else "none is"
    return f"{', '.join(counts)}; of those asked {rows} still open\nwrote {out}"
