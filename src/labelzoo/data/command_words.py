"""What loaders say to Python users, said to users of the command line."""

import ast
import re
import shlex
from collections.abc import Callable

OPTIONS = (
    "labels", "xml", "format", "encode", "drop", "index", "sep", "encoding", "n_labels", "n_features",
)  # fmt: skip
"""Arguments of the loaders that ``data describe`` and ``data convert`` have as options."""

ADVICE = (
    "give labels= as a list of column names, as a number (3: the first three; -3: the last three) or as a"
    " prefix such as 'tag:*'"
)


def flag(name: str) -> str:
    """Return the option of an argument."""
    return "--" + name.replace("_", "-")


def dropped(found: re.Match[str]) -> str:
    """Turn ``drop=['a', 'b']`` into ``--drop a --drop b``."""
    try:
        names = ast.literal_eval(found[1])
    except (ValueError, SyntaxError):
        return f"--drop {found[1]}"
    return " ".join(f"--drop {shlex.quote(str(name))}" for name in names)


def valued(found: re.Match[str]) -> str:
    """Turn ``sep=';'`` into ``--sep ';'``."""
    text = found[2]
    return f"{flag(found[1])} {shlex.quote(text.strip(chr(39)))}"


def listed_options(found: re.Match[str]) -> str:
    """Write the names in ``has no option 'sep' (its own: labels, xml)`` as options."""
    names = ", ".join(flag(name) for name in re.findall(r"'(\w+)'", found[1]))
    own = [flag(name) for name in re.findall(r"\w+", found[2]) if name in OPTIONS]
    return f"has no option {names} (its own: {', '.join(own) or 'none'})"


Change = str | Callable[[re.Match[str]], str]
CHANGES: tuple[tuple[str, Change], ...] = (
    (r"has no option ((?:'\w+'(?:; )?)+) \(its own: ([^)]*)\)", listed_options),
    (re.escape(ADVICE), "give --labels names separated by commas, a number (3: the first three; -3: the last "
     "three) or a prefix such as 'tag:*'"),
    (r"labels=n \(first n columns\), labels=-n \(last n\), a list of names or an XML path,",
     "--labels n (first n columns), --labels -n (last n), names separated by commas, or --xml FILE,"),
    (r"drop=(\[[^\]]*\])", dropped),
    (r"(?:pass )?allow_missing_features=True", "give --allow-missing-features"),
    (rf"\b({'|'.join(OPTIONS)})=('[^']*'|-?\w+)", valued),
    (r"\blabels=(?=\[)", "--labels "),
    (r"\b(n_labels|n_features)\b", lambda found: flag(found[1])),
    (r"(?<!-)\b(drop|labels) (names|must)\b", lambda found: f"{flag(found[1])} {found[2]}"),
    (r"\b(sep|index|encode) must\b", lambda found: f"{flag(found[1])} must"),
    (r"\bgive the format, one of", "give --format, one of"),
)  # fmt: skip


def spoken(message: str) -> str:
    """Return a message of a loader with the options of the command line in place of keyword arguments."""
    for pattern, change in CHANGES:
        message = re.sub(pattern, change, message)
    return message
