"""A study in a plain script: it needs no main guard, and says so where it does."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from labelzoo.acquisition.problem import Acquisition
from labelzoo.study import read_failed, read_rounds, workers

ROOT = Path(__file__).parents[2]
SCRIPT = """
from pathlib import Path
from labelzoo.study import run_study
from tests.study.small import small_data, small_plan
{before}
data = small_data()
plan = small_plan(data, rounds=1, seeds=(0,), acquire={acquire})
run_study(plan, data, Path("a.db"))
print("done")
"""
OWN = """
from labelzoo.acquisition.catalogue import register_acquisition
from labelzoo.acquisition.problem import Acquisition

def score(problem):
    return problem.X_pool[:, 0]

words = dict.fromkeys(("units", "bias", "cost", "helps", "source"), "")
register_acquisition(Acquisition(name="mine", query="row", needs=("X_pool",), score=score, **words))
"""


def run_script(folder: Path, **parts: Any) -> subprocess.CompletedProcess[str]:
    """Run the script in `folder`."""
    path = folder / "script.py"
    path.write_text(SCRIPT.format(**parts))
    command = [sys.executable, str(path)]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=240,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.mark.slow
def test_a_script_without_a_guard_runs_once(tmp_path: Path) -> None:
    done = run_script(tmp_path, before="", acquire=("k_center", "random"))
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr
    assert len(read_rounds(tmp_path / "a.db")) == 4 and read_failed(tmp_path / "a.db") == {}


@pytest.mark.slow
def test_a_function_of_a_script_without_a_guard_is_an_error_and_no_loop(tmp_path: Path) -> None:
    begin = time.monotonic()
    done = run_script(tmp_path, before=OWN, acquire=("mine", "random"))
    assert done.returncode == 1 and not done.stdout
    assert "RuntimeError: worker processes could not start" in done.stderr
    assert "put what it does under `if __name__ == '__main__':`" in done.stderr
    assert time.monotonic() - begin < 120  # some seconds on an idle machine


def score_here(problem: Any) -> Any:
    """Score as a user's function does."""
    return problem.X_pool[:, 0]


@pytest.mark.parametrize("given", [True, False])
def test_children_do_not_see_the_script(monkeypatch: Any, given: bool) -> None:
    main = sys.modules["__main__"]
    if given:
        monkeypatch.setattr(main, "__file__", "script.py", raising=False)
    else:
        monkeypatch.delattr(main, "__file__", raising=False)
    before = (main.__spec__, getattr(main, "__file__", None))
    with workers._no_script_for_children(()):
        assert main.__spec__ is None and main.__file__ is None
    assert (main.__spec__, getattr(main, "__file__", None)) == before and hasattr(main, "__file__") == given


def test_children_see_the_script_where_functions_are_defined_in_it(monkeypatch: Any) -> None:
    words = dict.fromkeys(("units", "bias", "cost", "helps", "source"), "")
    entry = Acquisition(name="mine", query="row", needs=(), score=score_here, **words)
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "__file__", "script.py", raising=False)
    with workers._no_script_for_children((entry,)):
        assert main.__file__ is None  # a function of a module
    monkeypatch.setattr(main, "score_here", score_here, raising=False)
    monkeypatch.setattr(score_here, "__module__", "__main__")
    with workers._no_script_for_children((entry,)):
        assert main.__file__ == "script.py"
