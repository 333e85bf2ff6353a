"""What the verbs of the command line share: options read from text, output checked, results printed."""

import ast
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RESERVED = frozenset(
    ["model", "data", "data_name", "out", "engine", "engines", "reference", "budget", "whole"]
    + ["seed", "spec", "progress", "rng_key", "say", "read", "test", "test_fraction"]
    + ["engine_settings", "command"]
)
"""Arguments of the functions behind the verbs, which ``--set`` must not reach."""


ADVISED = ("labels", "encode", "drop", "xml", "sep", "encoding")
ADVICE = "; here such options are written --read NAME=VALUE"


class BadInput(Exception):
    """What the user gave cannot be used; the message is one line."""


def emit(as_json: bool, payload: dict[str, Any], text: str) -> None:
    """Print the payload as JSON, or the text; what stdout cannot encode is written as an escape."""
    coding = getattr(sys.stdout, "encoding", None) or "utf-8"
    line = json.dumps(payload, ensure_ascii=False, allow_nan=False) if as_json else text
    try:
        line.encode(coding)
    except UnicodeEncodeError:
        if as_json:
            line = json.dumps(payload, allow_nan=False)
        else:
            line = line.encode(coding, "backslashreplace").decode(coding)
    print(line)


def parse_settings(pairs: Sequence[str] | None) -> dict[str, Any]:
    """Return {name: value} of NAME=VALUE pairs; values are read by `read_setting`."""
    out: dict[str, Any] = {}
    for pair in pairs or ():
        name, separator, text = pair.partition("=")
        if not separator or not name:
            raise BadInput(f"--set {pair!r}: write NAME=VALUE")
        if name in RESERVED:
            raise BadInput(f"--set {pair!r}: {name!r} is no setting of a model or an engine")
        value = read_setting(name, text)
        out[name] = tuple(value) if isinstance(value, list) else value
    return out


def read_setting(name: str, text: str) -> Any:
    """Return the value of a setting: `read_value`, and None for ``none`` in any case.

    Settings of the zoo whose default is a word (``compression=none``) keep the word; for one of a model in a
    file of the user's, JSON's quotes do: ``name="none"``.
    """
    return None if text.lower() == "none" and not _is_word(name) else read_value(text)


def _is_word(name: str) -> bool:
    """Return whether a model of the zoo has a setting of that name whose default is a word."""
    from labelzoo.models import registry

    return any(isinstance(registry.get(one).spec.settings.get(name), str) for one in registry.names())


def read_value(text: str) -> Any:
    """Return a value written as JSON, or as Python writes True, False, None and numbers; else the text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        pass
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return value if value is None or isinstance(value, bool | int | float) else text


def load_data(source: str, read: Sequence[str] | None) -> Any:
    """Read data with the options that ``--read`` gives."""
    from labelzoo.data import DataError, load

    try:
        return load(source, **read_options(read))
    except DataError as error:
        advised = any(f"{name}=" in error.reason for name in ADVISED)
        raise BadInput(f"{error}{ADVICE if advised else ''}") from error


def read_options(read: Sequence[str] | None) -> dict[str, Any]:
    """Return {name: value} of the NAME=VALUE of ``--read``; ``drop`` may be given several times."""
    options: dict[str, Any] = {}
    for pair in read or ():
        name, separator, text = pair.partition("=")
        if not separator or not name:
            raise BadInput(f"--read {pair!r}: write NAME=VALUE")
        if name == "drop":
            options[name] = (*options.get(name, ()), text)
            continue
        if name in options:
            raise BadInput(f"--read {name}=: given twice")
        if name == "labels":
            from labelzoo.data_commands import labels_rule

            options[name] = labels_rule(text)
            continue
        try:
            options[name] = json.loads(text)
        except json.JSONDecodeError:
            options[name] = text
    return options


def parse_duration(text: str) -> float:
    """Return seconds of ``90``, ``90s``, ``2m`` or ``1h``."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1.0)
    try:
        seconds = float(number) * unit
    except ValueError:
        raise BadInput(f"--budget {text!r}: write seconds, or a number with s, m or h") from None
    if not 0 < seconds < float("inf"):
        raise BadInput(f"--budget {text!r}: must be positive")
    return seconds


def check_writable(path: Path, *, folder: bool = False) -> Path:
    """Refuse an output path that cannot be written, before any work is done."""
    target = path if folder else path.absolute().parent
    try:
        if folder:
            target.mkdir(parents=True, exist_ok=True)
        probe = target / ".labelzoo-write-test"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise BadInput(f"--out {str(path)!r}: {error.strerror or error}") from error
    if not folder and path.is_dir():
        raise BadInput(f"--out {str(path)!r} is a folder")
    return path
