"""docs/acquisition.md: its table is made from the catalogue and up to date, its examples are real."""

import importlib.util
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from labelzoo.acquisition.catalogue import find
from labelzoo.cli import run

ROOT = Path(__file__).resolve().parents[2]
GENERATOR = ROOT / "docs" / "make_acquisition.py"
PAGE = ROOT / "docs" / "acquisition.md"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    """docs/make_acquisition.py as a module."""
    spec = importlib.util.spec_from_file_location("make_acquisition", GENERATOR)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_page_is_up_to_date() -> None:
    command = [sys.executable, str(GENERATOR), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=ROOT)
    assert done.returncode == 0, f"run .venv/bin/python docs/make_acquisition.py\n{done.stderr}"


def test_page_has_every_function_and_every_field(generator: ModuleType) -> None:
    page, entries = PAGE.read_text(encoding="utf-8"), generator.own_entries()
    assert {"ivr", "ensemble_ivr", "random", "audi"} <= set(entries)
    for name, entry in entries.items():
        assert page.count(f"\n### {name}\n") == page.count(f"(#{name})") == 1
        for field in generator.FIELDS[1:]:
            value = getattr(entry, field)
            for text in value if field == "needs" else (value,):
                shown = generator.cell(text) if field in ("needs", "helps") else text
                assert shown in page, f"{name}: {field}"


def test_generator_notices_changes(generator: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"above\n{generator.BEGIN}\nold\n{generator.END}\nbelow\n", encoding="utf-8")
    assert generator.main(["--check"], page=page) == 1
    assert generator.main([], page=page) == 0
    assert generator.main(["--check"], page=page) == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith("above\n") and text.endswith("\nbelow\n") and "\nold\n" not in text
    page.write_text(text.replace("Units: nats", "Units: bits", 1), encoding="utf-8")
    assert generator.main(["--check"], page=page) == 1
    with pytest.raises(ValueError, match="0 times"):
        generator.replaced("no marks", "table")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"helps": " "}, "no helps"),
        ({"cost": "a\nb"}, "several lines"),
        ({"name": "other"}, "its own name is other"),
    ],
)
def test_bad_entries_are_refused(generator: ModuleType, change: dict[str, str], message: str) -> None:
    assert generator.problems(generator.own_entries()) == []
    entry = replace(find("random"), **change)
    assert any(message in line for line in generator.problems({"random": entry}))


def test_names_in_the_guidance_exist(generator: ModuleType) -> None:
    """Functions, options and files that the text names are there."""
    guidance = PAGE.read_text(encoding="utf-8").split(generator.BEGIN)[0]
    for name in re.findall(r"--acquire ([\w,]+)", guidance):
        for one in name.split(","):
            find(one)
    for name in ("uncertainty", "entropy", "bald", "k_center", "min_margin", "miml", "random_cells"):
        assert f"`{name}`" in guidance and find(name)
    for name in re.findall(r"^from (labelzoo[\w.]*) import (\w+)$", guidance, re.MULTILINE):
        assert hasattr(importlib.import_module(name[0]), name[1])


@pytest.mark.parametrize("verb", ["ask", "tell", "fit", "active"])
def test_options_in_the_guidance_exist(
    generator: ModuleType, verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    guidance = PAGE.read_text(encoding="utf-8").split(generator.BEGIN)[0]
    lines = re.findall(rf"^    labelzoo {verb} .*$", guidance, re.MULTILINE)
    assert lines
    monkeypatch.setenv("COLUMNS", "200")
    assert run([verb, "--help"]) == 0
    known = set(re.findall(r"--[a-z]+", capsys.readouterr().out))
    assert {option for line in lines for option in re.findall(r"--[a-z]+", line)} <= known
