"""The command line by its JSON and its exit codes; every bad input is one line on stderr and code 2."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelzoo.cli import run
from labelzoo.command_options import parse_duration, parse_settings
from labelzoo.data import LabelData
from labelzoo.tune_command import parse_grid

SMALL = ["--set", "num_topics=2", "--set", "max_iter=5"]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12, 3))
    Y = (rng.random((12, 4)) < 0.4).astype(int)
    Y[:, 0] = 0
    Y[:, 1] = 1
    Y[3] = 0
    path = tmp_path_factory.mktemp("data") / "small.npz"
    LabelData.from_arrays(X, Y, label_names=["café", "b", "c", "d"]).save_npz(path)
    return path


def call(capsys: pytest.CaptureFixture[str], *args: Any) -> tuple[int, str, str]:
    code = run([str(a) for a in args])
    out, err = capsys.readouterr()
    return code, out, err


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "list", "--json")
    assert code == 0
    listed = json.loads(out)
    engines = {m["name"]: {e["name"]: e["kind"] for e in m["engines"]} for m in listed["models"]}
    assert engines["bernoulli_poisson_topics"] == {
        "nuts": "mcmc",
        "svi": "bound",
        "gibbs": "mcmc",
        "gibbs_counts": "mcmc",
        "map_em": "point",
        "vb_em": "point",
        "online_em": "point",
        "exact_em": "point",
    }
    assert engines["label_logistic"] == {
        "nuts": "mcmc",
        "svi": "bound",
        "gibbs": "mcmc",
        "mean_field": "bound",
        "streaming": "bound",
    }
    assert engines["label_gp"] == {"nuts": "mcmc", "svi": "bound", "conjugate": "conjugate"}
    assert {"ivr", "ensemble_ivr", "epig", "miml", "random"} <= {s["name"] for s in listed["acquisition"]}
    assert [d["name"] for d in listed["datasets"]] == ["emoji"]
    topics = next(m for m in listed["models"] if m["name"] == "bernoulli_poisson_topics")
    options = {e["name"]: e["options"] for e in topics["engines"]}
    assert options["gibbs"]["thinning"] == 5 and options["gibbs"]["max_seconds"] is None
    assert options["vb_em"]["w_step"] == "newton"
    code, out, _ = call(capsys, "list")
    words = " ".join(out.split())
    assert code == 0 and "options: max_iter=1000, tolerance=1e-05" in words


def test_data_describe(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "data", "describe", "emoji", "--json")
    described = json.loads(out)
    assert code == 0
    assert (described["rows"], described["features"], described["labels"]) == (1885, 658, 1513)
    assert described["missing_cells"] == 0
    assert len(described["label_names"]) == 1513


def test_fit_then_predict(capsys: pytest.CaptureFixture[str], small: Path, tmp_path: Path) -> None:
    posterior, probs = tmp_path / "f.nc", tmp_path / "p.npz"
    code, out, err = call(
        capsys,
        "fit",
        "bernoulli_poisson_topics",
        "--data",
        small,
        "--engine",
        "map_em",
        "--out",
        posterior,
        *SMALL,
        "--json",
    )
    assert code == 0, err
    fitted = json.loads(out)
    assert fitted["kind"] == "point"
    assert isinstance(fitted["converged"], bool)
    code, out, err = call(capsys, "predict", posterior, "--data", small, "--out", probs, "--json")
    assert code == 0, err
    assert json.loads(out) == {"rows": 12, "labels": 4, "out": str(probs)}
    with np.load(probs) as saved:
        assert saved["prob"].shape == (12, 4)
        assert ((saved["prob"] >= 0) & (saved["prob"] <= 1)).all()
        assert saved["label_names"][0] == "café"
        whole = saved["prob"]
    code, _, err = call(capsys, "predict", posterior, "--data", small, "--out", probs, "--top", 2)
    assert code == 0, err
    with np.load(probs) as saved:
        assert saved["prob_indptr"].tolist() == list(range(0, 26, 2))
        best = np.sort(whole, axis=1)[:, -2:].sum(axis=1)
        np.testing.assert_allclose(saved["prob_data"].reshape(12, 2).sum(axis=1), best)
    code, _, err = call(capsys, "predict", posterior, "--data", small, "--out", tmp_path / "p.csv")
    assert code == 0, err
    assert (tmp_path / "p.csv").read_text(encoding="utf-8").startswith("row,café,b,c,d")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["f.nc", "p.csv", "p.npz"]


def test_same_seed_same_posterior(capsys: pytest.CaptureFixture[str], small: Path, tmp_path: Path) -> None:
    from labelzoo import load

    for name in ("a.nc", "b.nc"):
        np.random.seed(len(name))  # noqa: NPY002  the global state must not matter
        code, _, err = call(
            capsys,
            "fit",
            "bernoulli_poisson_topics",
            "--data",
            small,
            "--engine",
            "vb_em",
            "--out",
            tmp_path / name,
            *SMALL,
        )
        assert code == 0, err
    a, b = (load(tmp_path / name)["posterior"]["topics"].values for name in ("a.nc", "b.nc"))
    np.testing.assert_array_equal(a, b)


FIT = ("fit", "bernoulli_poisson_topics", "--engine", "map_em", "--out", "{tmp}/f.nc", "--data")
NUTS = ("fit", "label_logistic", "--engine", "nuts", "--reference", "--out")
BAD = {
    "no such command": (("frob",), "No such command 'frob'"),
    "no such data": ((*FIT, "nope.npz"), "nope.npz: no such file"),
    "no such model": (
        ("fit", "nope", "--engine", "gibbs", "--out", "{tmp}/f.nc", "--data", "emoji"),
        "no model 'nope'",
    ),
    "no such engine": (
        ("fit", "label_logistic", "--engine", "x", "--out", "{tmp}/f.nc", "--data", "emoji"),
        "has no engine 'x'",
    ),
    "no such setting": ((*FIT, "{small}", "--set", "nope=1"), "knows no setting 'nope'"),
    "setting without value": ((*FIT, "{small}", "--set", "nope"), "write NAME=VALUE"),
    "more topics than labels": (
        (*FIT, "{small}", "--set", "num_topics=9"),
        "num_topics=9 exceeds the number of labels, 4",
    ),
    "no topics": ((*FIT, "{small}", "--set", "num_topics=0"), "num_topics must be a positive integer"),
    "improper prior": (
        (*FIT, "{small}", "--set", "num_topics=2", "--set", "shape_prior=[0,0]"),
        "the prior must be proper",
    ),
    "truncated data": ((*FIT, "{truncated}"), "truncated.npz"),
    "folder not writable": (
        ("fit", "label_logistic", "--engine", "gibbs", "--out", "{tmp}/no/such/f.nc", "--data", "emoji"),
        "No such file or directory",
    ),
    "out is a folder": (
        ("fit", "label_logistic", "--engine", "gibbs", "--out", "{tmp}", "--data", "emoji"),
        "is a folder",
    ),
    "compare into a file": (("compare", "label_logistic", "--data", "emoji", "--out", "{small}"), "--out"),
    "budget": (
        ("compare", "label_logistic", "--data", "emoji", "--budget", "x", "--out", "{tmp}/o"),
        "--budget 'x'",
    ),
    "posterior absent": (("predict", "{tmp}/f.nc", "--data", "emoji", "--out", "{tmp}/p.npz"), "no file"),
    "posterior unreadable": (
        ("predict", "{small}", "--data", "emoji", "--out", "{tmp}/p.npz"),
        "not a readable netCDF",
    ),
    "user file absent": (("check", "{tmp}/none.py:spec"), "no file"),
    "reference by another engine": (
        (*FIT[:4], "--reference", "--out", "{tmp}/r.json", "--data", "tiny:1"),
        "--reference is made by --engine nuts, not by 'map_em'",
    ),
    "reference that is no JSON": ((*NUTS, "{tmp}/r.nc", "--data", "tiny:1"), "written to a .json file"),
    "reference of no data": ((*NUTS, "{tmp}/r.json", "--data", "tiny:x"), "write tiny or tiny:SEED"),
    "reference with a command": (
        (*NUTS, "{tmp}/r.json", "--data", "tiny:1", "--set", "command=x"),
        "'command' is no setting",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(
    name: str,
    capsys: pytest.CaptureFixture[str],
    small: Path,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    arguments, expected = BAD[name]
    truncated = tmp_path_factory.mktemp("bad") / "truncated.npz"
    truncated.write_bytes(small.read_bytes()[:300])
    places = {"tmp": tmp_path, "small": small, "truncated": truncated}
    code, out, err = call(capsys, *(a.format(**places) for a in arguments))
    assert code == 2
    assert expected in err
    assert err.startswith("labelzoo: ")
    assert err.count("\n") == 1
    assert out == ""
    assert list(tmp_path.iterdir()) == []


def test_posterior_of_other_features_is_refused(
    capsys: pytest.CaptureFixture[str], small: Path, tmp_path: Path
) -> None:
    posterior = tmp_path / "f.nc"
    code, _, err = call(
        capsys,
        "fit",
        "bernoulli_poisson_topics",
        "--data",
        small,
        "--engine",
        "map_em",
        "--out",
        posterior,
        *SMALL,
    )
    assert code == 0, err
    code, _, err = call(capsys, "predict", posterior, "--data", "emoji", "--out", tmp_path / "p.npz")
    assert code == 2
    assert "the posterior was fitted on 3 features" in err
    assert not (tmp_path / "p.npz").exists()


def test_durations() -> None:
    assert [parse_duration(t) for t in ("90", "90s", "2m", "1.5h")] == [90, 90, 120, 5400]


def test_predictions_carry_the_labels_of_the_posterior(
    capsys: pytest.CaptureFixture[str], small: Path, tmp_path: Path
) -> None:
    """New rows may come with other labels: the columns are those that were fitted."""
    posterior, other = tmp_path / "f.nc", tmp_path / "other.npz"
    code, _, err = call(
        capsys,
        "fit",
        "bernoulli_poisson_topics",
        "--data",
        small,
        "--engine",
        "map_em",
        "--out",
        posterior,
        *SMALL,
    )
    assert code == 0, err
    rng = np.random.default_rng(1)
    LabelData.from_arrays(rng.standard_normal((3, 3)), np.eye(3, 2), label_names=["x", "y"]).save_npz(other)
    for extra in ((), ("--top", 2)):
        code, _, err = call(
            capsys, "predict", posterior, "--data", other, "--out", tmp_path / "q.npz", *extra
        )
        assert code == 0, err
        with np.load(tmp_path / "q.npz") as saved:
            assert saved["label_names"].tolist() == ["café", "b", "c", "d"]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("seed=1", "is no setting"),
        ("tolerance=x", "tolerance must be a number"),
        ("max_iter=2.5", "max_iter must be an integer"),
        ("prior_scale=null", "prior_scale must be positive"),
        ("shape_prior=3", "shape_prior must be two positive numbers"),
        ("intercept=no", "intercept must be true or false"),
        ("standardize=x", "standardize must be true or false"),
    ],
)
def test_wrongly_typed_settings_are_one_line(
    setting: str, expected: str, capsys: pytest.CaptureFixture[str], small: Path, tmp_path: Path
) -> None:
    arguments = ("--data", small, "--engine", "map_em", "--out", tmp_path / "f.nc", "--set", "num_topics=2")
    code, _, err = call(capsys, "fit", "bernoulli_poisson_topics", *arguments, "--set", setting)
    assert code == 2
    assert expected in err
    assert err.count("\n") == 1


def test_user_files_that_leave_or_claim_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    leaving = tmp_path / "leaving.py"
    leaving.write_text("import sys\nsys.exit(0)\n", encoding="utf-8")
    code, _, err = call(capsys, "check", f"{leaving}:spec")
    assert code == 2
    assert "SystemExit" in err
    silent = tmp_path / "silent.py"
    silent.write_text(
        "import numpyro\nimport numpyro.distributions as dist\nfrom labelzoo import ModelSpec\n"
        "def program(X, Y=None, observed=None):\n    numpyro.sample('a', dist.Normal(0.0, 1.0))\n"
        "spec = ModelSpec(name='silent', views={'summed': program}, predict=lambda d, X, c: X)\n",
        encoding="utf-8",
    )
    code, _, err = call(capsys, "check", f"{silent}:spec")
    assert code == 2
    assert "nothing to check" in err


@pytest.mark.slow
def test_reference_is_admitted_by_numbers_or_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from labelzoo.inference.checks.reference_posterior import load_reference, reference_data

    out = tmp_path / "r.json"
    common = (*NUTS, out, "--data", "tiny:3", "--seed", 2, "--json", "--set")
    code, printed, err = call(capsys, *common, "max_draws=50")
    assert (code, printed) == (1, "")
    assert "no reference after 1 run of at most 50 draws a chain" in err
    assert "effective bulk draws of weights" in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []

    code, printed, err = call(capsys, *common, "min_ess=300", "--set", "num_samples=500")
    assert code == 0, err
    made = json.loads(printed)
    assert made.keys() == {"out", "seconds", "kind", "converged", "min_ess", "max_rhat"}
    assert (made["out"], made["kind"], made["converged"]) == (str(out), "mcmc", True)
    assert made["min_ess"] >= 300
    assert made["max_rhat"] < 1.01
    stored = load_reference(out)
    assert reference_data(stored).hash() == stored["data_hash"]
    assert stored["command"] == (
        "labelzoo fit label_logistic --data tiny:3 --engine nuts --reference --seed 2 --set min_ess=300 "
        "--set num_samples=500 --out r.json"
    )


def test_read_says_how_data_are_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    table = tmp_path / "films.csv"
    lines = ["id,length,drama,comedy", *(f"f{i},{i % 7},{i % 2},{(i // 2) % 2}" for i in range(20))]
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    read = ["--read", "labels=drama,comedy", "--read", "drop=id"]
    out = tmp_path / "f.nc"
    fit = ["fit", "label_gp", "--data", str(table), "--engine", "conjugate", "--out", str(out)]
    assert call(capsys, *fit, *read)[0] == 0
    code, printed, _ = call(
        capsys, "predict", str(out), "--data", str(table), "--out", str(tmp_path / "p.csv"), "--json", *read
    )
    assert code == 0
    assert json.loads(printed)["labels"] == 2
    code, _, err = call(capsys, *fit, "--read", "labels")
    assert (code, err) == (2, "labelzoo: --read 'labels': write NAME=VALUE\n")
    code, _, err = call(capsys, *fit, *read, "--read", "colour=red")
    assert code == 2
    assert "colour" in err


@pytest.mark.parametrize(
    "text, value",
    [
        ("true", True), ("True", True), ("False", False), ("None", None), ("null", None), (".1", 0.1),
        ("1e-3", 0.001), ("5", 5), ("[1, 2]", (1, 2)), ("rbf", "rbf"), ("'x'", "'x'"), ("01", "01"),
        ("1+1j", "1+1j"), ("none", None), ("NONE", None), ('"none"', "none"), ("nothing", "nothing"),
    ],
)  # fmt: skip
def test_settings_are_read_as_json_or_as_python_writes_them(text: str, value: Any) -> None:
    assert parse_settings([f"name={text}"]) == {"name": value}


def test_none_is_none_but_where_a_setting_takes_words() -> None:
    given = [f"{name}=none" for name in ("gamma", "max_seconds", "compression", "form")]
    assert parse_settings(given) == {
        "gamma": None,
        "max_seconds": None,
        "compression": "none",
        "form": "none",
    }
    assert parse_grid(["gamma=none,1", "form=auto,none"]) == {"gamma": [None, 1], "form": ["auto", "none"]}
