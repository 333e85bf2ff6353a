"""Make docs/errata.md from docs/errata.toml: `make_errata.py` writes the page, `--check` compares it.

Standard library only. Exit codes: 0 done or up to date, 1 the page differs, 2 bad data or usage.
"""

import argparse
import difflib
import sys
import tomllib
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DATA, PAGE = HERE / "errata.toml", HERE / "errata.md"

CLASSES = {
    "error": "the right form follows from the paper's own other equations",
    "inconsistent": "two statements do not fit together, or one needs a condition that is not stated",
    "notation": "a convention or condition to know before the formula is used; not a mistake",
    "unclear copy": "our copy is damaged or doubtful at this place; the published paper may well be right",
}
TESTED = ("error", "inconsistent")
REQUIRED = ("id", "paper", "equation", "printed", "right", "class", "wording")
OPTIONAL = ("check", "effect", "effect_is")

OPENING = """\
# Errata of the papers

This page was made from machine-read text of the papers, not compared with the published PDFs. What is called
printed here is what our copy prints, in our notation; the published paper may differ and be right.
Corrections are welcome. A record names a finding about a formula; it says nothing about reported experiments.

Records of class *error* and *inconsistent* each have a test in which the printed form fails and the right one
passes. The test also computes the number called effect, which belongs to its own small example only.
The page is generated: edit `docs/errata.toml`, then run `.venv/bin/python docs/make_errata.py`.
"""


def load(path: Path = DATA) -> dict[str, Any]:
    """Return the data; decimals keep their digits."""
    with path.open("rb") as stream:
        return tomllib.load(stream, parse_float=Decimal)


def problems(data: dict[str, Any]) -> list[str]:
    """Return what is wrong with the data, one line each."""
    found, seen = [], set()
    for record in data["record"]:
        name = record.get("id", "a record without id")
        tested = record.get("class") in TESTED
        found += [f"{name}: no {field}" for field in REQUIRED if not str(record.get(field, "")).strip()]
        found += [f"{name}: unknown field {field}" for field in record if field not in REQUIRED + OPTIONAL]
        if name in seen:
            found.append(f"{name}: twice")
        seen.add(name)
        if record.get("class") not in CLASSES:
            found.append(f"{name}: unknown class {record.get('class')!r}")
        if record.get("paper") not in data["papers"]:
            found.append(f"{name}: unknown paper {record.get('paper')!r}")
        elif tested and data["papers"][record["paper"]]["section"] != "errata":
            found.append(f"{name}: {record['class']} among reconstruction notes")
        for field in OPTIONAL:
            if (field in record) != tested:
                found.append(
                    f"{name}: class {record.get('class')} {'needs' if tested else 'takes no'} {field}"
                )
        if tested and not isinstance(record.get("effect"), Decimal):
            found.append(f"{name}: effect must be a decimal number, its digits being those that are tested")
    return found


def records_of(data: dict[str, Any], paper: str) -> list[dict[str, Any]]:
    """Return the records of one paper, in the order of the file."""
    return [record for record in data["record"] if record["paper"] == paper]


def reference(paper: dict[str, Any]) -> str:
    """Return authors, venue and year."""
    return f"{paper['authors']}, {paper['venue']} {paper['year']}"


def summary(data: dict[str, Any]) -> list[str]:
    """Return the table of counts, papers by classes."""
    lines = ["| paper | " + " | ".join(CLASSES) + " |", "|---|" + "---:|" * len(CLASSES)]
    total = dict.fromkeys(CLASSES, 0)
    for key, paper in data["papers"].items():
        classes = [record["class"] for record in records_of(data, key)]
        for name in CLASSES:
            total[name] += classes.count(name)
        note = "" if paper["section"] == "errata" else f" ({paper['section']})"
        counts = " | ".join(str(classes.count(name)) for name in CLASSES)
        lines.append(f"| [{reference(paper)}](#{key}){note} | {counts} |")
    return [*lines, "| all | " + " | ".join(str(total[name]) for name in CLASSES) + " |"]


def entry(record: dict[str, Any], right: str) -> list[str]:
    """Return one record: heading, wording, then a list of what is printed, what is right, and the test."""
    place = record["equation"]
    lines = [f"### {place[0].upper()}{place[1:]}: {record['class']}", "", record["wording"], ""]
    lines += [f"- Printed: {record['printed']}", f"- {right}: {record['right']}"]
    if record["class"] in TESTED:
        lines.append(f"- Effect: **{record['effect']}**, {record['effect_is']}")
        lines.append(f"- Test: `{record['check']}`")
    return [*lines, f"- Id: `{record['id']}`", ""]


def render(data: dict[str, Any]) -> str:
    """Return the page."""
    lines = [OPENING, "| class | meaning |", "|---|---|"]
    lines += [f"| {name} | {meaning} |" for name, meaning in CLASSES.items()]
    lines += ["", "## Summary", "", *summary(data), ""]
    for key, paper in data["papers"].items():
        notes = paper["section"] != "errata"
        title = f"{reference(paper)}: {paper['section']}" if notes else reference(paper)
        lines += [f'<a id="{key}"></a>', "", f"## {title}", "", f"*{paper['title']}*", ""]
        lines += [paper["note"], ""] if "note" in paper else []
        for record in records_of(data, key):
            lines += entry(record, "Our reading" if notes else "Right")
    return "\n".join(lines).rstrip() + "\n"


def main(arguments: Sequence[str] | None = None, data: Path = DATA, page: Path = PAGE) -> int:
    """Write the page, or with --check say whether it is up to date; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="exit 1 if the page differs from the data")
    options = parser.parse_args(arguments)
    content = load(data)
    if found := problems(content):
        print("\n".join(found), file=sys.stderr)
        return 2
    wanted = render(content)
    if not options.check:
        page.write_text(wanted, encoding="utf-8")
        return 0
    present = page.read_text(encoding="utf-8") if page.exists() else ""
    if present == wanted:
        return 0
    changes = difflib.unified_diff(
        present.splitlines(), wanted.splitlines(), str(page), "from the data", lineterm=""
    )
    print("\n".join(list(changes)[:40]), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
