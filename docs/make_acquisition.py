"""Make the table of docs/acquisition.md from the catalogue: without arguments it writes, `--check` compares.

Only what stands between the two marks is made; the guidance around them is written by hand.
Exit codes: 0 done or up to date, 1 the page differs, 2 bad data or usage.
"""

import argparse
import difflib
import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from labelzoo.acquisition.catalogue import MODULES
from labelzoo.acquisition.problem import Acquisition

HERE = Path(__file__).resolve().parent
PAGE = HERE / "acquisition.md"
BEGIN = "<!-- made by docs/make_acquisition.py from the catalogue: begin -->"
END = "<!-- made by docs/make_acquisition.py from the catalogue: end -->"
FIELDS = ("query", "units", "needs", "helps", "cost", "bias", "source")


def problems(entries: Mapping[str, Acquisition]) -> list[str]:
    """Return what is wrong with the entries, one line each."""
    found = []
    for name, entry in entries.items():
        if name != entry.name:
            found.append(f"{name}: its own name is {entry.name}")
        if entry.query not in ("row", "cell"):
            found.append(f"{name}: unknown query {entry.query!r}")
        texts = {field: getattr(entry, field) for field in FIELDS if field != "needs"}
        found += [f"{name}: no {field}" for field, text in texts.items() if not text.strip()]
        found += [f"{name}: {field} has several lines" for field, text in texts.items() if "\n" in text]
    return found


def own_entries() -> dict[str, Acquisition]:
    """Return the functions of the package, without those that a user registers, in their order."""
    return {entry.name: entry for module in MODULES for entry in importlib.import_module(module).ENTRIES}


def cell(text: str) -> str:
    """Return text for a cell of a Markdown table."""
    return text.replace("|", "\\|")


def summary(entries: Mapping[str, Acquisition]) -> list[str]:
    """Return the table of all functions, a line each."""
    lines = ["| name | query | needs | when it helps |", "|---|---|---|---|"]
    for entry in entries.values():
        needs = ", ".join(f"`{name}`" for name in entry.needs) or "nothing"
        lines.append(f"| [`{entry.name}`](#{entry.name}) | {entry.query} | {needs} | {cell(entry.helps)} |")
    return lines


def details(entry: Acquisition) -> list[str]:
    """Return one function: heading, then a list of its fields."""
    lines = [f"### {entry.name}", ""]
    lines += [f"- Asks for: {'whole rows' if entry.query == 'row' else 'single labels of rows'}"]
    batch = "one after another, each given the ones before" if entry.choose else "the highest scores"
    lines += [f"- Batch: {batch}", f"- Units: {entry.units}", f"- Cost: {entry.cost}"]
    return [*lines, f"- Bias: {entry.bias}", f"- Source: {entry.source}", ""]


def render(entries: Mapping[str, Acquisition]) -> str:
    """Return what belongs between the marks."""
    lines = [BEGIN, "", *summary(entries), "", "## Each function", ""]
    for entry in entries.values():
        lines += details(entry)
    return "\n".join([*lines, END])


def replaced(page: str, table: str) -> str:
    """Return the page with the part between the marks replaced; ValueError where a mark is not there once."""
    for mark in (BEGIN, END):
        if page.count(mark) != 1:
            raise ValueError(f"the page has the mark {mark!r} {page.count(mark)} times")
    head, rest = page.split(BEGIN)
    return head + table + rest.split(END)[1]


def main(arguments: Sequence[str] | None = None, page: Path = PAGE) -> int:
    """Write the page, or with --check say whether it is up to date; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit 1 if the page differs from the catalogue")
    options = parser.parse_args(arguments)
    entries = own_entries()
    if found := problems(entries):
        print("\n".join(found), file=sys.stderr)
        return 2
    present = page.read_text(encoding="utf-8")
    wanted = replaced(present, render(entries))
    if not options.check:
        page.write_text(wanted, encoding="utf-8")
        return 0
    if present == wanted:
        return 0
    changes = difflib.unified_diff(
        present.splitlines(), wanted.splitlines(), str(page), "from the catalogue", lineterm=""
    )
    print("\n".join(list(changes)[:40]), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
