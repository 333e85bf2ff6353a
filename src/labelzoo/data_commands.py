"""The verbs ``labelzoo data describe`` and ``labelzoo data convert``."""

import json
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from labelzoo.command_options import emit

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
Separator = Annotated[
    str | None, typer.Option("--sep", metavar="C", help="Character between the cells of CSV; tab for a tab.")
]
Encoding = Annotated[
    str | None, typer.Option("--encoding", metavar="E", help="Of ARFF and CSV text, such as latin-1.")
]
Index = Annotated[
    str | None,
    typer.Option("--index", metavar="NAME|N", help="Row names of CSV, by header or place."),
]
NumLabels = Annotated[int | None, typer.Option("--n-labels", metavar="N", help="Labels of svmlight.")]
NumFeatures = Annotated[int | None, typer.Option("--n-features", metavar="N", help="Features of svmlight.")]
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


def read(source: str, allow_missing_features: bool, format: str | None, **options: Any) -> Any:
    """Load a data set with the options of the command line; those not given are not passed on.

    Raises
    ------
    ValueError
        As `labelzoo.data.load`, with the options of the command line in place of keyword arguments.
    """
    from labelzoo.data.command_words import spoken
    from labelzoo.data.files import load

    options["labels"] = labels_rule(options["labels"])
    options["sep"] = {"tab": "\t", "\\t": "\t"}.get(options["sep"] or "", options["sep"])
    if re.fullmatch(r"-?\d+", options["index"] or "", re.ASCII):
        options["index"] = int(options["index"])
    options["drop"] = options["drop"] or None
    try:
        return load(source, format=format, allow_missing_features=allow_missing_features, **options)
    except ValueError as error:
        raise ValueError(spoken(str(error))) from error


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
    index: Index = None,
    sep: Separator = None,
    encoding: Encoding = None,
    n_labels: NumLabels = None,
    n_features: NumFeatures = None,
    allow_missing_features: Missing = False,
    as_json: Json = False,
) -> None:
    """Print what a data set holds: sizes, cardinality, missing cells, labels never positive."""
    from labelzoo.data.describe_text import describe_text

    with told():
        data = read(
            source, True, format,
            labels=labels, xml=xml, encode=encode, drop=drop, index=index, sep=sep,
            encoding=encoding, n_labels=n_labels, n_features=n_features,
        )  # fmt: skip
        summary = {**data.summary(), "label_names": list(data.label_names)}
    emit(as_json, summary, describe_text(summary))


@data_app.command("convert")
def convert(
    source: Source,
    target: Annotated[Path, typer.Argument(help="File to write; its suffix is the format (.gz for text).")],
    labels: Labels = None,
    xml: Xml = None,
    format: FormatName = None,
    encode: Encode = None,
    drop: Drop = None,
    index: Index = None,
    sep: Separator = None,
    encoding: Encoding = None,
    n_labels: NumLabels = None,
    n_features: NumFeatures = None,
    allow_missing_features: Missing = False,
    to: Annotated[
        str | None, typer.Option("--to", metavar="F", help="Format to write; default by suffix.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    as_json: Json = False,
) -> None:
    """Read a data set and write it in another format; what that format cannot hold is refused or told."""
    from labelzoo.data.files import save_data, written_files, written_format

    name = written_format(target, to)
    for path in written_files(target, name):
        if os.path.lexists(path) and not force:
            raise ValueError(f"{path} exists: give --force to overwrite it")
    with told() as messages:
        data = read(
            source, allow_missing_features, format,
            labels=labels, xml=xml, encode=encode, drop=drop, index=index, sep=sep,
            encoding=encoding, n_labels=n_labels, n_features=n_features,
        )  # fmt: skip
        save_data(data, target, format=name, force=force)
    payload = {
        "out": str(target), "format": name, "rows": data.num_rows, "features": data.num_features,
        "labels": data.num_labels, "positives": data.num_positives, "missing_cells": data.num_missing_cells,
        "warnings": messages,
    }  # fmt: skip
    emit(as_json, payload, f"wrote {target} ({name}): {data}")
