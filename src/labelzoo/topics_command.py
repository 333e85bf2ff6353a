"""The verbs ``labelzoo topics`` and ``labelzoo complete``, which read a fitted topic model."""

from pathlib import Path
from typing import Annotated, Any

import typer

from labelzoo.command_options import BadInput, check_writable, emit, load_data
from labelzoo.data_commands import SOURCE_HELP

Posterior = Annotated[Path, typer.Argument(help="A posterior that 'fit' wrote.")]
Read = Annotated[
    list[str] | None,
    typer.Option("--read", metavar="NAME=VALUE", help="How to read --data (docs/data.md); repeat."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


def register(app: typer.Typer) -> None:
    """Add the verbs to the command line."""
    app.command("topics")(topics)
    app.command("complete")(complete)


def topics(
    posterior: Posterior,
    data: Annotated[
        str | None, typer.Option("--data", help="Labels for shares and coherence; default: those fitted.")
    ] = None,
    labels: Annotated[int, typer.Option("--labels", min=1, help="Labels listed per topic.")] = 10,
    out: Annotated[Path | None, typer.Option("--out", help="Picture to write, .png.")] = None,
    chain: Annotated[int | None, typer.Option("--chain", min=0, help="Chain to take the draw from.")] = None,
    draw: Annotated[int | None, typer.Option("--draw", min=0, help="Draw to take.")] = None,
    read: Read = None,
    as_json: Json = False,
) -> None:
    """Show the topics of a fitted topic model: probable and distinctive labels, weight, coherence."""
    from labelzoo.inference.posterior import load
    from labelzoo.topics import as_json as table_as_json
    from labelzoo.topics import as_text, topic_table

    if out is not None:
        if out.suffix != ".png":
            raise BadInput(f"--out {str(out)!r}: the name must end in .png")
        check_writable(out)
    given = None if data is None else load_data(data, read)
    table = topic_table(load(posterior), labels, data=given, chain=chain, draw=draw)
    payload: dict[str, Any] = {
        "chain": table.attrs["chain"],
        "draw": table.attrs["draw"],
        "why": table.attrs["why"],
        "topics": table_as_json(table),
        "out": None if out is None else str(out),
    }
    text = as_text(table, labels)
    if out is not None:
        _write_picture(table, out, labels)
        text += f"\nwrote {out}"
    emit(as_json, payload, text)


def _write_picture(table: Any, out: Path, labels: int) -> None:
    from labelzoo.topics_picture import topics_png
    from labelzoo.whole_file import whole_file

    with whole_file(out) as temporary:
        Path(temporary).write_bytes(topics_png(table, labels))


def complete(
    posterior: Posterior,
    data: Annotated[str, typer.Option("--data", help=SOURCE_HELP + " Labels asked for are missing.")],
    out: Annotated[Path, typer.Option("--out", help="Probabilities to write, .npz.")],
    top: Annotated[
        int | None, typer.Option("--top", min=1, help="Keep the K most probable missing labels a row.")
    ] = None,
    draws: Annotated[int, typer.Option("--draws", min=1, help="Posterior draws to average over.")] = 50,
    samples: Annotated[int, typer.Option("--samples", min=2, help="Samples of a row's embedding.")] = 400,
    seed: Annotated[int, typer.Option("--seed", min=0, max=2**32 - 1, help="Same seed, same result.")] = 0,
    read: Read = None,
    as_json: Json = False,
) -> None:
    """Predict the missing labels of rows from their features and known labels, without fitting anew."""
    from labelzoo.completion import write_completion
    from labelzoo.inference.posterior import load

    if out.suffix != ".npz":
        raise BadInput(f"--out {str(out)!r}: the name must end in .npz")
    check_writable(out)
    table = load_data(data, read)
    found = write_completion(
        load(posterior), table, out, top=top, num_draws=draws, num_samples=samples, seed=seed
    )
    payload = {"rows": table.num_rows, "labels": table.num_labels, "out": str(out), **found}
    text = f"wrote {table.num_rows} rows x {table.num_labels} labels to {out}"
    if "largest_error" in found:
        exact = set(found["methods"]) <= {"exact"}
        what = "largest error (rounding bound)" if exact else "largest error"
        text += f"; {found['missing']} missing labels, {what} {found['largest_error']:.2g}"
    emit(as_json, payload, text)
