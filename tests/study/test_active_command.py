"""``labelzoo active``: JSON, files, refusals in one line, a stop that says how to go on."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from labelzoo.cli import run as labelzoo
from labelzoo.data import save_npz
from labelzoo.study import database, progress, run
from labelzoo.study.progress import study_progress
from labelzoo.study.report import left_out, points, span, verdict_word
from tests.study.small import run_here, small_data

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture
def source(tmp_path: Path, monkeypatch: Any) -> Path:
    """Data in a file; cells run in this process."""
    monkeypatch.setattr(run, "run_cells", run_here)
    save_npz(small_data(), tmp_path / "small.npz")
    return tmp_path / "small.npz"


def arguments(source: Path, *more: str, acquire: str = "ivr,k_center") -> list[str]:
    """Return a command line of a small study."""
    small = ["--start", "6", "--rounds", "1", "--batch", "3", "--seeds", "2", "--draws", "10"]
    learner = ["--learner", "label_gp:conjugate", "--acquire", acquire]
    return ["active", "--data", str(source), *learner, *small, "--out", str(source.parent / "s"), *more]


def test_json_and_files(source: Path, capsys: Any) -> None:
    assert labelzoo(arguments(source, "--oracle", "2", "--json")) == 0
    printed = capsys.readouterr()
    assert printed.err == "labelzoo: random is added: every function is compared with it\n"
    payload = json.loads(printed.out)
    point = payload["curves"][0]
    assert set(point) >= {"acquire", "seed", "round", "labelled", "metrics"} and point["labelled"] == 6.0
    assert set(point["metrics"]) == {"own", "common"} and set(point["metrics"]["own"]) == {"E", "T"}
    assert set(payload["comparison"][0]) == {
        "acquire", "evaluator", "part", "metric", "difference", "interval", "p_value", "holm", "num_seeds",
        "share_of_oracle", "rows_saved", "verdict",
    }  # fmt: skip
    assert len(payload["curves"]) == 4 * 2 * 2 and len(payload["comparison"]) == 2 * 2 * 2 * 4
    assert {"plan", "versions", "notes", "not_run", "failed", "summary", "report"} <= set(payload)
    assert payload["plan"]["acquire"] == ["ivr", "k_center", "random", "oracle"]
    assert any("transductive" in note for note in payload["notes"])
    names = {path.name for path in (source.parent / "s").iterdir()}
    assert names == {
        "study.db", "results.json", "report.html", "curves_own.png", "curves_common.png", "areas.png",
    }  # fmt: skip
    assert json.loads((source.parent / "s" / "results.json").read_text()) == payload
    page = (source.parent / "s" / "report.html").read_text()
    assert page.index("<h1>") < page.index("Judged by") < page.index("<img") and "--oracle 2" in page
    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", page) and "<script" not in page


@pytest.mark.slow
def test_resume_extends_and_the_printed_command_makes_the_same(source: Path, capsys: Any) -> None:
    assert labelzoo(arguments(source, acquire="k_center,random")) == 0
    assert "Judged by the learner itself, against random:" in capsys.readouterr().out
    assert labelzoo(arguments(source, acquire="k_center,random")) == 2
    assert "continue it with --resume" in capsys.readouterr().err
    assert labelzoo(arguments(source, "--resume", "--refit", "3", acquire="k_center,random")) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert labelzoo(arguments(source, "--resume", "--json", acquire="k_center,random,ivr")) == 0
    payload = json.loads(capsys.readouterr().out)
    words = shlex.split(payload["command"])
    words[words.index("--out") + 1] = str(source.parent / "again")
    assert labelzoo([*words[1:], "--draws", "10", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["curves"] == payload["curves"] and again["comparison"] == payload["comparison"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--learner", "label_gp"], "write MODEL:ENGINE"),
        (["--learner", "nonsense:nuts"], "no model 'nonsense'"),
        (["--learner", "label_gp:nonsense"], "has no engine 'nonsense'"),
        (["--acquire", "ivr,,random"], "a name is empty"),
        (["--acquire", "nonsense,random"], "no acquisition function 'nonsense'"),
        (["--acquire", "oracle,random"], "--oracle N"),
        (["--acquire", "ivr,ivr,random"], "each once"),
        (["--set", "nonsense=1", "--acquire", "random"], "knows no setting nonsense"),
        (["--split", "published", "--acquire", "random"], "no published split"),
        (["--split", "half", "--acquire", "random"], "split must be one of"),
        (["--start", "60", "--acquire", "random"], "leave nothing to ask"),
        (["--evaluator", "theirs", "--acquire", "random"], "evaluators must be among"),
        (["--test-fraction", "2", "--acquire", "random"], "test_fraction must lie between"),
        (["--batch", "0", "--acquire", "random"], "batch"),
        (["--cost-cap", "-1", "--acquire", "random"], "(the cost cap) must be a positive number, got -1.0"),
        (["--cost-cap", "nan", "--acquire", "random"], "(the cost cap) must be a positive number, got nan"),
        (
            ["--evaluator", "own,own", "--acquire", "random"],
            "must be among own, common, each once",
        ),
        (["--resume", "--acquire", "random"], "holds no study to resume"),
        (["--set", "noise_ratio=-1", "--acquire", "random"], "noise_ratio must be a positive finite number"),
        (["--set", "kernel=sine", "--acquire", "random"], "kernel must be one of"),
    ],
)
def test_bad_input_is_one_line(source: Path, capsys: Any, more: list[str], message: str) -> None:
    assert labelzoo(arguments(source, *more)) == 2
    printed = capsys.readouterr()
    lines = [line for line in printed.err.splitlines() if "random is added" not in line]
    assert len(lines) == 1 and message in lines[0] and not printed.out
    assert not (source.parent / "s" / "study.db").exists()


def test_the_folder_of_a_study_has_a_name_by_default(
    source: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(source.parent)
    line = arguments(source, "--json", acquire="random")
    at = line.index("--out")
    assert labelzoo(line[:at] + line[at + 2 :]) == 0
    assert json.loads(capsys.readouterr().out)["curves"]
    assert (source.parent / "study" / "study.db").exists()


def test_a_damaged_database_is_refused(source: Path, capsys: Any) -> None:
    assert labelzoo(arguments(source, acquire="random")) == 0
    path = source.parent / "s" / "study.db"
    path.write_bytes(path.read_bytes()[:3000])
    capsys.readouterr()
    assert labelzoo(arguments(source, "--resume", acquire="random")) == 2
    assert "damaged" in capsys.readouterr().err


@pytest.fixture
def heard() -> Iterator[None]:
    """A shell that starts the tests in the background has them ignore SIGINT: hear it for one test."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize(
    ("number", "more"), [(signal.SIGINT, []), (signal.SIGTERM, ["--json", "--processes", "1"])]
)
def test_a_stop_says_how_to_go_on(
    source: Path, capsys: Any, monkeypatch: Any, number: int, more: list[str]
) -> None:
    def stopped(plan: Any, data: Any, out: Path, cells: Any, *_: Any) -> None:
        run_here(plan, data, out, cells[:1])
        os.kill(os.getpid(), number)
        run_here(plan, data, out, cells[1:])

    monkeypatch.setattr(run, "run_cells", stopped)
    before = signal.getsignal(signal.SIGTERM)
    assert labelzoo(arguments(source, *more, acquire="k_center,random")) == 130
    assert signal.getsignal(signal.SIGTERM) == before
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "labelzoo: stopped with 2 of 8 rounds done, none lost; to go on:"
    monkeypatch.setattr(run, "run_cells", run_here)
    words = shlex.split(told[1])
    assert words[:2] == ["labelzoo", "active"] and words[-1] == "--resume"
    assert ("--json" in words) == ("--processes" in words) == bool(more), "the same command"
    assert labelzoo([*words[1:], *([] if more else ["--json"])]) == 0
    assert len(json.loads(capsys.readouterr().out)["curves"]) == 8


def test_a_failed_cell_gives_exit_code_one(source: Path, capsys: Any, monkeypatch: Any) -> None:
    def failing(plan: Any, data: Any, out: Path, cells: Any, *_: Any) -> None:
        run_here(plan, data, out, [cell for cell in cells if cell != ("k_center", 1)])
        database.write_failed(out, plan, "k_center", 1, "RuntimeError: <b>bad</b>")

    monkeypatch.setattr(run, "run_cells", failing)
    assert labelzoo(arguments(source, "--json", acquire="k_center,random")) == 1
    printed = capsys.readouterr()
    assert printed.err == "labelzoo: k_center, seed 1 failed: RuntimeError: <b>bad</b>\n"
    payload = json.loads(printed.out)
    assert payload["failed"] == [{"acquire": "k_center", "seed": 1, "reason": "RuntimeError: <b>bad</b>"}]
    assert payload["comparison"][0]["num_seeds"] == 1 and payload["comparison"][0]["interval"] is None
    page = (source.parent / "s" / "report.html").read_text()
    assert "<h2>Failed</h2>" in page and "<b>bad" not in page


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium to open the page with")
@pytest.mark.slow
def test_the_page_opens_in_a_browser(source: Path, tmp_path: Path, capsys: Any) -> None:
    assert labelzoo(arguments(source, acquire="k_center,random")) == 0
    capsys.readouterr()
    page = source.parent / "s" / "report.html"
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/c"]
    done = subprocess.run(
        [*command, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    assert "Judged by the learner itself" in done.stdout and done.stdout.count("<img") == 3


def test_help_says_what_a_batch_of_labels_is(capsys: Any) -> None:
    assert labelzoo(["active", "--help"]) == 0
    text = re.sub(r"[\s│]+", " ", capsys.readouterr().out)
    assert "functions that ask single labels ask rows x labels cells" in text


def test_lines_off_a_terminal_come_from_time_to_time(capsys: Any, monkeypatch: Any) -> None:
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    with study_progress() as say:
        assert say is not None
        for at, done in ((101.0, 10), (129.0, 11), (160.0, 40), (161.0, 41), (220.0, 70), (280.0, 130)):
            clock[0] = at
            say(done, 130)
    assert capsys.readouterr().err.splitlines() == [
        "labelzoo: 40 of 130 rounds, about 3 min left",  # 30 rounds a minute since it began: 90 are left
        "labelzoo: 70 of 130 rounds, about 2 min left",
        "labelzoo: 130 of 130 rounds, about 0 min left",
    ]


def test_lines_know_no_time_left_before_a_round_is_done(capsys: Any) -> None:
    say = progress.lines(every=0.0)
    say(5, 9)
    assert capsys.readouterr().err == "labelzoo: 5 of 9 rounds\n"


def test_the_bar_counts(capsys: Any) -> None:
    with study_progress(shown=True) as say:
        assert say is not None
        say(3, 8)
        say(8, 8)
    assert "8/8" in capsys.readouterr().err


def test_written_numbers() -> None:
    assert points(0.0123) == "+1.23" and points(None) == "–"
    assert span([-0.01, 0.02]) == "-1.00 to +2.00" and span(None) == "–"
    assert verdict_word("a LOSES to random: -1") == "LOSES" and verdict_word("odd") == "odd"
    rows = [{"acquire": "a", "seed": seed, "reason": "why"} for seed in (0, 1)]
    assert left_out(rows) == ["a, seeds 0, 1: why"]
