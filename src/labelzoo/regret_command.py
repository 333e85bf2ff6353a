"""The verb ``labelzoo regret``."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from labelzoo.command_options import emit
from labelzoo.data_commands import SOURCE_HELP

Names = str | None

FILES = ("regret.json", "regret.csv", "regret.png")
SMALLER = "another exact --reference (gibbs, say), fewer --engines, smaller --repeats, --draws or --rows"


def regret(
    model: str,
    data: Annotated[str, typer.Option("--data", help=SOURCE_HELP)],
    out: Annotated[
        Path, typer.Option("--out", help="Folder for regret.json, regret.csv and regret.png.")
    ] = Path("regret"),
    reference: Annotated[
        Names,
        typer.Option("--reference", help="An exact engine; default the closed form, or nuts."),
    ] = None,
    engines: Annotated[
        Names, typer.Option("--engines", help="Names, separated by commas; default all others.")
    ] = None,
    acquire: Annotated[
        str, typer.Option("--acquire", help="Acquisition functions that read posterior draws.")
    ] = "ensemble_ivr,bald,epig,entropy",
    batch: Annotated[int, typer.Option("--batch", min=1, help="Rows asked at once.")] = 10,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Labelled rows.")] = 60,
    pool: Annotated[int, typer.Option("--pool", min=2, help="Rows that can be asked, at most.")] = 80,
    targets: Annotated[int, typer.Option("--targets", min=1, help="Rows to be predicted, at most.")] = 80,
    draws: Annotated[int, typer.Option("--draws", min=200, help="Draws an engine asks from.")] = 300,
    repeats: Annotated[
        int, typer.Option("--repeats", min=3, help="Runs of every engine; errors are over these.")
    ] = 6,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of the model or engine; repeat."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier run in --out.")] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, max=2**31, help="Same seed, same result.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Measure what is lost by asking for labels from an approximate posterior; exit 1 without a verdict."""
    from labelzoo.command_options import check_writable, parse_settings
    from labelzoo.regret_run import regret_and_report

    refuse_earlier(out, force)
    chosen: dict[str, Any] = {
        "reference": reference, "engines": listed(engines), "acquire": listed(acquire) or (), "batch": batch,
        "rows": rows, "pool": pool, "targets": targets, "draws": draws, "repeats": repeats, "seed": seed,
    }  # fmt: skip
    more = parse_settings(settings)
    with folder_of_results(out):
        check_writable(out, folder=True)
        result = regret_and_report(
            model, data, out, command=command_line(model, data, out, chosen, settings), say=_say,
            **chosen, **more,
        )  # fmt: skip
    emit(as_json, result.payload, f"{result.text}\nwrote {', '.join(result.payload['files'])}")
    raise typer.Exit(0 if result.judged else 1)


def refuse_earlier(out: Path, force: bool) -> None:
    """Raise ValueError where `out` holds results of an earlier run, unless `force`."""
    found = [name for name in FILES if (out / name).exists()]
    if found and not force:
        raise ValueError(
            f"--out {str(out)!r} holds {', '.join(found)} of an earlier run: choose another, or --force "
            "to replace them"
        )


@contextmanager
def folder_of_results(out: Path) -> Iterator[None]:
    """Take a new folder away again if nothing was written into it; Ctrl-C says so in one line."""
    from labelzoo.regret_interrupt import stopped_by_ctrl_c

    is_new, before = not out.exists(), _stamps(out)

    def take_away() -> None:
        if is_new:
            with suppress(OSError):  # not empty
                out.rmdir()

    def line() -> str:
        what = "nothing was written" if _stamps(out) == before else f"only a part was written to {out}"
        take_away()
        return f"interrupted, {what}; quicker: {SMALLER}"

    try:
        with stopped_by_ctrl_c(line):
            yield
    finally:
        take_away()


def _stamps(out: Path) -> list[int | None]:
    paths = (out / name for name in FILES)
    return [path.stat().st_mtime_ns if path.exists() else None for path in paths]


def listed(text: str | None) -> list[str] | None:
    """Return names separated by commas as a list; None stays None."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def command_line(model: str, data: str, out: Path, chosen: dict[str, Any], settings: list[str] | None) -> str:
    """Return the command that repeats a run."""
    parts = ["labelzoo", "regret", model, "--data", data]
    for name, value in chosen.items():
        if value is not None:
            parts += [f"--{name}", ",".join(value) if isinstance(value, list) else str(value)]
    parts += [part for pair in settings or () for part in ("--set", pair)]
    return shlex.join([*parts, "--out", str(out)])


def _say(message: str) -> None:
    print(f"labelzoo: {message}", file=sys.stderr, flush=True)
