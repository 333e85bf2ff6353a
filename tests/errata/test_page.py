"""docs/errata.toml and docs/errata.md: classes, ids, checks that exist, a page that is up to date."""

import ast
import copy
import importlib.util
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
GENERATOR = ROOT / "docs" / "make_errata.py"
TESTED = {"error", "inconsistent"}


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    """docs/make_errata.py as a module."""
    spec = importlib.util.spec_from_file_location("make_errata", GENERATOR)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def functions_of(path: Path) -> set[str]:
    """Return the node ids of the test functions in a file."""
    name = path.relative_to(ROOT).as_posix()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = (node.name for node in tree.body if isinstance(node, ast.FunctionDef))
    return {f"{name}::{function}" for function in names if function.startswith("test_")}


def test_ids_are_unique_and_classes_valid(errata: dict[str, Any]) -> None:
    assert [key for key, n in Counter(r["id"] for r in errata["record"]).items() if n > 1] == []
    allowed = {"error", "inconsistent", "notation", "unclear copy"}
    assert {r["class"] for r in errata["record"]} == allowed
    assert {r["paper"] for r in errata["record"]} == errata["papers"].keys()


def test_checks_exist_and_only_where_they_are_due(errata: dict[str, Any]) -> None:
    existing = set().union(*(functions_of(path) for path in (ROOT / "tests" / "errata").glob("test_*.py")))
    named = [r["check"] for r in errata["record"] if "check" in r]
    assert {r["id"] for r in errata["record"] if "check" in r} == {
        r["id"] for r in errata["record"] if r["class"] in TESTED
    }
    assert set(named) <= existing and len(named) == len(set(named))
    own = functions_of(Path(__file__).resolve())
    assert existing - own == set(named), "a test of a formula that no record names"


def test_reconstruction_notes_hold_no_error(errata: dict[str, Any]) -> None:
    notes = {key for key, paper in errata["papers"].items() if paper["section"] == "reconstruction notes"}
    assert notes == {"pknn"}
    assert not [r["id"] for r in errata["record"] if r["paper"] in notes and r["class"] in TESTED]


def test_wording(errata: dict[str, Any]) -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*errata*")]
    assert len(texts) == 3
    assert not [text for text in texts if re.search(r"\bproven\b", text, re.IGNORECASE)]
    names = {
        name for paper in errata["papers"].values() for name in re.findall(r"[A-Z]\w+", paper["authors"])
    }
    people = re.compile(rf"\b({'|'.join(names)})\b|\bauthors?\b")
    for record in errata["record"]:
        assert not people.search(record["wording"]), f"{record['id']} names a person, not the finding"


def test_page_is_up_to_date() -> None:
    command = [sys.executable, "-I", str(GENERATOR), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr


def test_page_opens_with_its_source_and_shows_every_record(errata: dict[str, Any]) -> None:
    page = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
    opening = " ".join(page.split("\n\n")[1].split())
    assert opening.startswith("This page was made from machine-read text of the papers, not compared with")
    assert "Corrections are welcome" in opening
    for record in errata["record"]:
        assert f"`{record['id']}`" in page and record["printed"] in page and record["right"] in page


def test_generator_writes_and_notices_changes(generator: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "errata.md"
    assert generator.main(["--check"], page=page) == 1  # no page yet
    assert generator.main([], page=page) == 0
    assert generator.main(["--check"], page=page) == 0
    assert page.read_bytes() == generator.PAGE.read_bytes()
    page.write_text(page.read_text(encoding="utf-8").replace("0.549", "0.550"), encoding="utf-8")
    assert generator.main(["--check"], page=page) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"class": "mistake"}, "unknown class"),
        ({"class": "notation"}, "takes no check"),
        ({"check": None}, "needs check"),
        ({"effect": 1}, "effect must be a decimal"),
        ({"wording": " "}, "no wording"),
        ({"paper": "pknn"}, "among reconstruction notes"),
        ({"id": "bmlpl-gibbs-order"}, "twice"),
        ({"remark": "x"}, "unknown field"),
    ],
)
def test_bad_records_are_refused(
    generator: ModuleType, errata: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    data = copy.deepcopy(errata)
    record = data["record"][0] | change
    data["record"][0] = {key: value for key, value in record.items() if value is not None}
    assert generator.problems(errata) == []
    assert any(message in line for line in generator.problems(data))
