"""The verbs ``labelzoo data describe`` and ``labelzoo data convert``."""

import json
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

data_app = typer.Typer(
    help="Look at data, and write it in another format.", no_args_is_help=True, rich_markup_mode=None
)

SOURCE_HELP = (
    "A built-in name (emoji), a file (ARFF, XMC, svmlight, CSV, npz, netCDF), or a folder with ARFF."
)
Source = Annotated[str, typer.Argument(help=SOURCE_HELP)]
Labels = Annotated[
    str | None,
    typer.Option(
        "--labels",
        metavar="RULE",
        help="Label columns of CSV or ARFF: 6 (the first six), -6 (the last six), names separated by commas "
        "or as a JSON list, and for CSV a prefix: 'tag:*'.",
    ),
]
Xml = Annotated[Path | None, typer.Option("--xml", metavar="FILE", help="Mulan's list of labels, for ARFF.")]
FormatName = Annotated[
    str | None,
    typer.Option("--format", metavar="F", help="npz, netcdf, arff, xmc, svmlight or csv; default by suffix."),
]
Encode = Annotated[
    str | None,
    typer.Option("--encode", metavar="onehot|none", help="Nominal features of ARFF, text features of CSV."),
]
Drop = Annotated[
    list[str] | None, typer.Option("--drop", metavar="NAME", help="A column to leave out; repeat.")
]
Missing = Annotated[
    bool,
    typer.Option("--allow-missing-features", help="Take missing features as NaN; describe always does."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


def labels_rule(text: str | None) -> Any:
    """Return the value of ``labels=`` that a RULE on the command line means.

    A whole number counts columns, a text that ends in ``*`` is a prefix, one that begins with ``[`` a JSON
    list of names, anything else names separated by commas.
    """
    if text is None:
        return None
    if re.fullmatch(r"[-+]?\d+", text, re.ASCII):
        return int(text)
    if text.endswith("*") and "," not in text:
        return text
    if text.startswith("["):
        try:
            names = json.loads(text)
        except ValueError as error:
            raise ValueError(f"--labels {text!r}: is no JSON list: {error}") from error
        if not names or not all(isinstance(name, str) for name in names):
            raise ValueError(f"--labels {text!r}: a list of names is needed")
        return names
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise ValueError(f"--labels {text!r}: a name is empty; write a,b,c")
    return names


def read(
    source: str,
    labels: str | None,
    xml: Path | None,
    format: str | None,
    encode: str | None,
    drop: list[str] | None,
    allow_missing_features: bool,
) -> Any:
    """Load a data set with the options of the command line; those not given are not passed on."""
    from labelzoo.data.files import load

    options = {"labels": labels_rule(labels), "xml": xml, "encode": encode, "drop": drop or None}
    return load(source, format=format, allow_missing_features=allow_missing_features, **options)


@contextmanager
def told() -> Iterator[list[str]]:
    """Gather warnings into a list and print each as one line on stderr at the end."""
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield messages
        messages += dict.fromkeys(" ".join(str(one.message).split()) for one in caught)
    for message in messages:
        print(f"labelzoo: warning: {message}", file=sys.stderr)


@data_app.command("describe")
def describe(
    source: Source,
    labels: Labels = None,
    xml: Xml = None,
    format: FormatName = None,
    encode: Encode = None,
    drop: Drop = None,
    allow_missing_features: Missing = False,
    as_json: Json = False,
) -> None:
    """Print what a data set holds: sizes, cardinality, missing cells, labels never positive."""
    from labelzoo.data.describe_text import describe_text

    with told():
        data = read(source, labels, xml, format, encode, drop, True)
        summary = {**data.summary(), "label_names": list(data.label_names)}
    emitter()(as_json, summary, describe_text(summary))


@data_app.command("convert")
def convert(
    source: Source,
    target: Annotated[Path, typer.Argument(help="File to write; its suffix is the format (.gz for text).")],
    labels: Labels = None,
    xml: Xml = None,
    format: FormatName = None,
    encode: Encode = None,
    drop: Drop = None,
    allow_missing_features: Missing = False,
    to: Annotated[
        str | None, typer.Option("--to", metavar="F", help="Format to write; default by suffix.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    as_json: Json = False,
) -> None:
    """Read a data set and write it in another format; what that format cannot hold is refused or told."""
    from labelzoo.data.files import save_data, written_format

    name = written_format(target, to)
    beside = [target] if name != "arff" else [target, xml_beside(target)]
    for path in beside:
        if path.exists() and not force:
            raise ValueError(f"{path} exists: give --force to overwrite it")
    with told() as messages:
        data = read(source, labels, xml, format, encode, drop, allow_missing_features)
        save_data(data, target, format=name)
    payload = {
        "out": str(target), "format": name, "rows": data.num_rows, "features": data.num_features,
        "labels": data.num_labels, "positives": data.num_positives, "missing_cells": data.num_missing_cells,
        "warnings": messages,
    }  # fmt: skip
    emitter()(as_json, payload, f"wrote {target} ({name}): {data}")


def xml_beside(target: Path) -> Path:
    """Return the list of labels that is written beside an ARFF file."""
    from labelzoo.data.mulan_labels import arff_stem

    stem = arff_stem(target)
    return stem.with_name(f"{stem.name}.xml")


def emitter() -> Callable[[bool, dict[str, Any], str], None]:
    """Return the function that prints JSON or text; its module imports this one."""
    from labelzoo.command_options import emit

    return emit
