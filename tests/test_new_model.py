"""``labelzoo new``: the file it writes fails the check for the reason it says, and passes once mended."""

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelzoo.cli import run
from labelzoo.data import LabelData
from labelzoo.new_model import new_model, template

ROOT = Path(__file__).resolve().parents[1]
WRONG = "    return dist.Gamma(shape, 1.0 / rate)  # WRONG\n"
RIGHT = "    return dist.Gamma(shape, rate)\n"


def call(capsys: pytest.CaptureFixture[str], *args: Any) -> tuple[int, str, str]:
    code = run([str(a) for a in args])
    out, err = capsys.readouterr()
    return code, out, err


def mend(path: Path) -> None:
    """Do what the comment in the file says."""
    text = path.read_text(encoding="utf-8")
    assert text.count("# WRONG\n") == 1
    path.write_text(text.replace(WRONG + RIGHT.replace("    r", "    # r", 1), RIGHT), encoding="utf-8")
    assert "# WRONG" not in path.read_text(encoding="utf-8")


@pytest.fixture
def mended(tmp_path: Path) -> Path:
    path = new_model("probe", tmp_path / "probe.py")
    mend(path)
    return path


def test_new_check_mend_check(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = call(capsys, "new", "probe", "--json")
    assert (code, json.loads(out), err) == (0, {"out": "probe.py"}, "")
    assert [path.name for path in tmp_path.iterdir()] == ["probe.py"]

    code, out, err = call(capsys, "check", "probe.py:spec", "--json")
    assert code == 1, err
    checked = json.loads(out)
    assert checked["passed"] is False
    failed = [row for row in checked["models"][0]["checks"] if row["passed"] is False]
    assert [(row["name"], row["kind"], row["site"]) for row in failed] == [
        ("level_given_probs", "identity", "level")
    ]
    slip = "rate of level is the reciprocal of what it should be (scale for rate"
    assert failed[0]["explanation"].startswith(slip)
    assert checked["mutants_killed"] == checked["mutants_total"] > 1

    mend(tmp_path / "probe.py")
    code, out, err = call(capsys, "check", "probe.py:spec", "--json")
    assert code == 0, out
    checked = json.loads(out)
    assert checked["passed"] is True
    by_update = {row["update"] for row in checked["models"][0]["mutants"]}
    assert by_update == {"prob_given_level", "level_given_probs"}
    assert checked["mutants_killed"] == checked["mutants_total"] > 1


def test_text_names_the_next_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "my file.py"
    code, out, _ = call(capsys, "new", "probe", "--out", path)
    assert code == 0
    assert out.endswith(f"labelzoo check '{path}:spec'\n")
    text = path.read_text(encoding="utf-8")
    assert "labelzoo check 'my file.py:spec'\n" in text
    assert "@" not in text
    assert 'name="probe"' in text


def test_file_obeys_the_style_of_the_repository(tmp_path: Path) -> None:
    path = tmp_path / "probe.py"
    path.write_text(template("probe", path.name), encoding="utf-8")
    ruff = [sys.executable, "-m", "ruff"]
    options = ["--no-cache", "--config", str(ROOT / "pyproject.toml"), str(path)]
    for verb in (["check", "--ignore=I001"], ["format", "--check"]):  # labelzoo is not first-party elsewhere
        done = subprocess.run([*ruff, *verb, *options], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    body = ast.parse(path.read_text(encoding="utf-8")).body
    assert all(ast.get_docstring(node) for node in body if isinstance(node, ast.FunctionDef))


BAD = {
    "no identifier": (("two words",), "must be a Python identifier"),
    "a path": (("../probe",), "must be a Python identifier"),
    "a keyword": (("class",), "must be a Python identifier"),
    "a registered model": (("label_logistic",), "there is a model of this name"),
    "hides a dependency": (("numpyro",), "would hide the module 'numpyro'"),
    "hides Python's own": (("random",), "would hide the module 'random'"),
    "file exists": (("taken",), "'taken.py' exists"),
    "no folder": (("probe", "--out", "no/such/probe.py"), "cannot write 'no/such/probe.py'"),
    "a folder": (("probe", "--out", "folder.py"), "'folder.py' exists"),
    "not Python": (("probe", "--out", "probe.txt"), "must be called something.py"),
    "colon": (("probe", "--out", "a:b.py"), "without a colon"),
    "no name": ((), "Missing argument 'NAME'"),
}


@pytest.mark.parametrize("name", BAD)
def test_refused(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken.py").write_text("mine\n", encoding="utf-8")
    (tmp_path / "folder.py").mkdir()
    arguments, expected = BAD[name]
    code, out, err = call(capsys, "new", *arguments)
    assert (code, out) == (2, "")
    assert expected in err
    assert err.startswith("labelzoo: ")
    assert err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder.py", "taken.py"]
    assert (tmp_path / "taken.py").read_text(encoding="utf-8") == "mine\n"


def test_missing_cells_add_nothing(mended: Path) -> None:
    """A missing cell is not counted, in the program and in the claim alike: drop the row instead."""
    from labelzoo.models import registry

    entry = registry.get(f"{mended}:spec")
    claim = {update.name: update.given for update in entry.updates}["prob_given_level"]
    Y = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, np.nan]])
    X = np.zeros((3, 1))
    laws = []
    for label, rows in ((0, [0, 1, 2]), (1, [0, 1])):
        whole = entry.spec.prepare(LabelData.from_arrays(X, Y), {})
        part = entry.spec.prepare(LabelData.from_arrays(X[rows], Y[rows][:, [label]]), {})
        laws = [claim({"level": 0.7}, inputs) for inputs in (whole, part)]
        for parameter in ("concentration1", "concentration0"):
            np.testing.assert_allclose(getattr(laws[0], parameter)[label], getattr(laws[1], parameter)[0])


@pytest.mark.slow
def test_mended_file_is_compared_fitted_and_predicted_from(
    capsys: pytest.CaptureFixture[str], mended: Path, tmp_path: Path
) -> None:
    spec, out = f"{mended}:spec", tmp_path / "out"
    arguments = ("--data", "emoji", "--engines", "nuts,svi", "--budget", "2m", "--out", out, "--json")
    code, printed, err = call(capsys, "compare", spec, *arguments)
    assert code == 0, err
    engines = {row["name"]: row for row in json.loads(printed)["engines"]}
    assert engines["nuts"]["verdict"].startswith("reference: converged")
    assert engines["nuts"]["max_rhat"] < 1.01
    assert engines["svi"]["verdict"].startswith("approximation")
    assert (out / "report.html").is_file()
    posterior, probs = tmp_path / "f.nc", tmp_path / "p.npz"
    code, _, err = call(capsys, "fit", spec, "--data", "emoji", "--engine", "svi", "--out", posterior)
    assert code == 0, err

    fresh = [sys.executable, "-m", "labelzoo", "predict", posterior, "--data", "emoji", "--out", probs]
    done = subprocess.run(fresh, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "of a model of your own, 'probe'; pass --model path/to/file.py:spec" in done.stderr
    code, _, err = call(capsys, *fresh[3:], "--model", "label_logistic")
    assert code == 2
    assert "--model label_logistic: the posterior is of the model 'probe'" in err
    done = subprocess.run([*fresh, "--model", spec], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with np.load(probs) as saved:
        assert saved["prob"].shape == (1885, 1513)
        assert ((saved["prob"] > 0) & (saved["prob"] < 1)).all()


@pytest.mark.slow
def test_full_tier_runs_the_joint_tests_on_a_file(capsys: pytest.CaptureFixture[str], mended: Path) -> None:
    code, out, err = call(capsys, "check", f"{mended}:spec", "--tier", "full", "--json")
    assert code == 0, out + err
    ran = {(row["name"], row["kind"]): row["passed"] for row in json.loads(out)["models"][0]["checks"]}
    assert ran["updates in order", "geweke"] is True
    assert ran["updates in order", "sbc"] is True
    assert ran["nuts", "geweke"] is True
