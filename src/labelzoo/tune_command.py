"""The verb ``labelzoo tune``."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from labelzoo.command_options import BadInput, check_writable, emit, load_data, parse_settings, read_setting
from labelzoo.data_commands import SOURCE_HELP

OWN = ("grid", "metric", "valid", "rule")
"""Arguments of `labelzoo.tuning.tune` that ``--set`` must not reach."""


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("tune")(tune)


def tune(
    model: str,
    data: Annotated[str, typer.Option("--data", help=SOURCE_HELP + " A published test part is not read.")],
    grid: Annotated[
        list[str],
        typer.Option("--grid", metavar="NAME=V,V,..", help="Values to try, simplest first; repeat."),
    ],
    engine: Annotated[
        str, typer.Option("--engine", help="One of the model's engines (labelzoo list).")
    ] = "vb_em",
    metric: Annotated[
        str, typer.Option("--metric", help="log_score, per_example_auc, p@1, micro_auc or macro_auc.")
    ] = "log_score",
    valid: Annotated[float, typer.Option("--valid", help="Share of the rows to score on.")] = 0.2,
    rule: Annotated[
        str,
        typer.Option("--rule", help="best, or one_se: the first setting within one standard error of it."),
    ] = "best",
    out: Annotated[Path | None, typer.Option("--out", help="Table to write, .csv.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting held fixed; repeat."),
    ] = None,
    read: Annotated[
        list[str] | None,
        typer.Option("--read", metavar="NAME=VALUE", help="How to read --data (docs/data.md); repeat."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, max=2**32 - 1, help="Same seed, same result.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Choose settings by a held-out metric: every combination of --grid is fitted and scored."""
    if out is not None:
        if out.suffix != ".csv":
            raise BadInput(f"--out {str(out)!r}: the name must end in .csv")
        check_writable(out)
    fixed = parse_settings(settings)
    for name in OWN:
        if name in fixed:
            raise BadInput(f"--set {name}=: {name!r} is no setting of a model or an engine; use --{name}")
    from labelzoo.tuning import tune as run_tune

    found = run_tune(
        model, load_data(data, read), engine, parse_grid(grid), metric=metric, valid=valid, seed=seed,
        rule=rule, say=_say, **fixed,
    )  # fmt: skip
    if out is not None:
        _write(found.table, out)
    emit(as_json, _payload(found, out), _text(found, out))


def parse_grid(pairs: list[str]) -> dict[str, list[Any]]:
    """Return {name: values} of NAME=V,V,...; the values are read as a JSON list, else each like ``--set``."""
    grid: dict[str, list[Any]] = {}
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator or not name or not text:
            raise BadInput(f"--grid {pair!r}: write NAME=VALUE,VALUE,...")
        if name in grid:
            raise BadInput(f"--grid {name}=: given twice; write its values in one")
        try:
            grid[name] = json.loads(f"[{text}]")
        except json.JSONDecodeError:
            grid[name] = [read_setting(name, part) for part in text.split(",")]
    return grid


def _write(table: Any, out: Path) -> None:
    from labelzoo.whole_file import whole_file

    with whole_file(out) as temporary:
        table.to_csv(temporary, index=False)


def _payload(found: Any, out: Path | None) -> dict[str, Any]:
    rows = found.table.to_dict(orient="records")
    return {
        "metric": found.metric,
        "rule": found.rule,
        "best": found.best,
        "chosen": found.chosen,
        "train_rows": found.train_rows,
        "valid_rows": found.valid_rows,
        "table": [{name: _finite(value) for name, value in row.items()} for row in rows],
        "out": None if out is None else str(out),
    }


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and value != value else value


def _text(found: Any, out: Path | None) -> str:
    from labelzoo.tuning import words

    shown = found.table.drop(columns=["compile_seconds", "problem"])
    lines = [
        f"{found.metric}, fitted on {found.train_rows} rows, scored on {found.valid_rows}:",
        shown.to_string(index=False, float_format=lambda value: f"{value:.4g}"),
        f"best: {words(found.best)}",
    ]
    if found.chosen != found.best:
        lines.append(f"chosen by {found.rule}: {words(found.chosen)}")
    return "\n".join(lines if out is None else [*lines, f"wrote {out}"])


def _say(message: str) -> None:
    if sys.stderr.isatty():
        print(message, file=sys.stderr, flush=True)
