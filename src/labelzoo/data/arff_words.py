r"""Words of an ARFF line: quotes, backslash escapes, comments; how a name is written to be read back.

A word is quoted by ``'`` or ``"``, or runs to the next space, comma or brace. Escapes hold inside quotes:
``\\ \' \" \% \t \n \r \b \f``, octal ``\012`` and ``\u00e9``; any other escaped character stands for itself.
``%`` begins a comment at the start of a line and after white space. White space is ASCII 0 to 32, as in Weka.
"""

import importlib
import importlib.metadata
import re
from functools import cache
from typing import Any, NamedTuple

BLANK = "".join(map(chr, range(33)))
"""Characters that separate words."""

# Possessive quantifiers: no backtracking, so that a line of ten million quotes takes linear time.
WORD = re.compile(
    r"""[\x00-\x20]*+(?:'((?:[^'\\]++|\\.)*+)'|"((?:[^"\\]++|\\.)*+)"|([^\x00-\x20,{}'"%][^\x00-\x20,{}]*+))""",
    re.DOTALL,
)
END = re.compile(r"[\x00-\x20]*+(?:%.*)?\Z", re.DOTALL)
ESCAPE = re.compile(r"\\([0-7]{1,3}|u[0-9a-fA-F]{4}|.)", re.DOTALL)
LETTERS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
PLAIN = re.compile(r"[A-Za-z0-9_.:+*/\-]+")


class Word(NamedTuple):
    """One word, where it ends, and whether it stood in quotes (a quoted ``?`` is a value)."""

    text: str
    quoted: bool
    end: int


def next_word(line: str, start: int) -> Word | None:
    """Return the word at ``start`` (after white space), or None where none begins or its quote never ends."""
    found = WORD.match(line, start)
    if found is None:
        return None
    if found.lastindex == 3:
        return Word(found[3], False, found.end())
    return Word(unescaped(found[found.lastindex or 1]), True, found.end())


def unescaped(text: str) -> str:
    """Replace the escapes of a quoted word; ValueError for half of a surrogate pair."""
    if "\\" not in text:
        return text
    result = ESCAPE.sub(one_escape, text)
    return result.encode("utf-16", "surrogatepass").decode("utf-16")


def one_escape(found: re.Match[str]) -> str:
    """Return what one escape stands for."""
    code = found[1]
    if code[0] in "01234567":
        return chr(int(code, 8))
    if len(code) == 5:
        return chr(int(code[1:], 16))
    return LETTERS.get(code, code)


def skip_blank(line: str, start: int) -> int:
    """Return the position of the first character at or after ``start`` that is not white space."""
    while start < len(line) and line[start] <= " ":
        start += 1
    return start


def short(text: str) -> str:
    """Return ``text`` for a message: quoted, and cut where it is long."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def at_end(line: str, start: int) -> bool:
    """Say whether nothing but white space and a comment follows."""
    return END.match(line, start) is not None


def problem_at(line: str, start: int) -> str:
    """Say in words why no word begins at ``start``."""
    start = skip_blank(line, start)
    if start >= len(line):
        return "the line ends too early"
    if line[start] in "'\"":
        return f"a quote {line[start]} is never closed"
    return f"found {line[start : start + 20]!r} where a value belongs"


def quoted(name: str) -> str:
    """Write ``name`` so that this package, liac-arff and Weka read it back."""
    if PLAIN.fullmatch(name):
        return name
    text = str(liac_arff().encode_string(name))
    return text if text.startswith("'") else f"'{text}'"


@cache
def liac_arff() -> Any:
    """Import liac-arff and make sure that it is that package: another one has the same module name.

    Raises
    ------
    ImportError
        Naming the file and the distributions found, and the remedy.
    """
    remedy = "pip uninstall arff && pip install --force-reinstall liac-arff"
    try:
        module = importlib.import_module("arff")
    except ImportError as error:
        raise ImportError(f"writing ARFF needs liac-arff, which is not installed: {remedy}") from error
    if not (hasattr(module, "ArffEncoder") and callable(getattr(module, "encode_string", None))):
        names = importlib.metadata.packages_distributions().get("arff", [])
        place = getattr(module, "__file__", None) or "an unknown place"
        found = f"distribution {', '.join(sorted(set(names))) or 'unknown'}, version "
        found += str(getattr(module, "__version__", "unknown"))
        raise ImportError(f"the module 'arff' at {place} ({found}) is not liac-arff: {remedy}")
    return module
