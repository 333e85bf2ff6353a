"""Class kernels as a learner: a killed study resumed, questions of the command, another process's answers."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from labelzoo.acquisition import ask
from labelzoo.acquisition.selectors import PoolExhausted
from labelzoo.cli import run as labelzoo
from labelzoo.data import LabelData, save_npz
from labelzoo.inference.fit import fit
from labelzoo.inference.posterior import save
from labelzoo.inference.predict import class_similarity, mean_prob
from tests.study.small import results, small_data

TRAIN, POOL, FAR = 16, 9, 5
RNG = np.random.default_rng(17)
X = np.concatenate([RNG.normal(size=(TRAIN + POOL - FAR, 3)), 1e3 + 1e2 * RNG.normal(size=(FAR, 3))])
CODES = np.argmax(X + 0.4 * RNG.normal(size=X.shape), axis=1)
NAMES = [f"r{i}" for i in range(len(X))]
FARTHEST = set(NAMES[-FAR:])
"""Rows whose similarities all round to 0, so that their largest share is 1 / C and they tie."""


def table(labelled: int, rows: range, labels: Any = None) -> LabelData:
    """Some rows, the first `labelled` of all with their labels."""
    Y = np.eye(3)[CODES] if labels is None else labels
    Y = np.where(np.arange(len(X))[:, None] < labelled, Y, np.nan)[rows]
    return LabelData.from_arrays(X[rows], Y, example_names=[NAMES[i] for i in rows])


@pytest.fixture(scope="module")
def tree() -> xr.DataTree:
    return fit("kernel_neighbors", table(TRAIN, range(TRAIN)), "dual")


@pytest.fixture
def files(tree: xr.DataTree, tmp_path: Path) -> Path:
    """A folder with a posterior, its pool, and a pool with nothing left to ask."""
    save(tree, tmp_path / "f.nc")
    save_npz(table(0, range(TRAIN, len(X))), tmp_path / "pool.npz")
    save_npz(table(TRAIN, range(TRAIN)), tmp_path / "known.npz")
    return tmp_path


def asked(files: Path, capsys: Any, *more: str, pool: str = "pool.npz") -> tuple[int, Any, str]:
    """Exit code, JSON and stderr of ``labelzoo ask``."""
    words = ["ask", str(files / "f.nc"), "--pool", str(files / pool), "--acquire", "max_probability"]
    code = labelzoo([*words, "--json", *more])
    printed = capsys.readouterr()
    return code, json.loads(printed.out) if code == 0 else None, printed.err


def test_rows_that_tie_are_asked_first_and_in_the_order_of_the_seed(files: Path, capsys: Any) -> None:
    seen = []
    for seed in (3, 3, 4):
        code, found, err = asked(files, capsys, "--batch", str(FAR), "--seed", str(seed))
        assert (code, err) == (0, "")
        assert [row["gain"] for row in found["questions"]] == [-1 / 3] * FAR
        seen.append([row["id"] for row in found["questions"]])
    assert all(set(ids) == FARTHEST for ids in seen)
    assert seen[0] == seen[1] != seen[2]


def test_a_batch_above_the_pool_is_the_pool_and_said_so(files: Path, capsys: Any) -> None:
    code, found, err = asked(files, capsys, "--batch", "50")
    assert code == 0 and err == (
        f"labelzoo: warning: batch of 50 from a pool of {POOL}: the whole pool is returned\n"
    )
    ids = [row["id"] for row in found["questions"]]
    assert sorted(ids) == sorted(NAMES[TRAIN:]) and set(ids[:FAR]) == FARTHEST
    gains = [row["gain"] for row in found["questions"]]
    assert gains == sorted(gains, reverse=True) and gains[-1] < -1 / 3


def test_a_pool_with_nothing_left_is_refused_in_one_line(files: Path, tree: xr.DataTree, capsys: Any) -> None:
    code, _, err = asked(files, capsys, pool="known.npz")
    assert code == 2 and err.count("\n") == 1 and "the pool has no row left to ask" in err
    with pytest.raises(PoolExhausted, match="no row left to ask"):
        ask(tree, table(TRAIN, range(TRAIN)), acquire="max_probability_raw")


ELSEWHERE = """
import sys
import numpy as np
from labelzoo.inference.posterior import load
from labelzoo.inference.predict import class_similarity, mean_prob
for path in sys.argv[2:]:
    tree, X = load(path), np.load(sys.argv[1])
    np.savez(path + ".npz", mean=np.asarray(mean_prob(tree, X)), s=class_similarity(tree, X).similarity)
"""


def test_a_posterior_loaded_in_another_process_predicts_to_the_bit(tree: xr.DataTree, tmp_path: Path) -> None:
    labels = (X[:, :2] + 0.4 * RNG.normal(size=(len(X), 2)) > 0).astype(float)
    several = fit("kernel_neighbors", table(TRAIN, range(TRAIN), labels), "bregman")
    made = {"one.nc": tree, "several.nc": several}
    np.save(tmp_path / "X.npy", X)
    paths = [str(save(one, tmp_path / name)) for name, one in made.items()]
    subprocess.run([sys.executable, "-c", ELSEWHERE, str(tmp_path / "X.npy"), *paths], check=True)
    for path, one in zip(paths, made.values(), strict=True):
        with np.load(path + ".npz") as found:
            np.testing.assert_array_equal(found["mean"], np.asarray(mean_prob(one, X)))
            np.testing.assert_array_equal(found["s"], class_similarity(one, X).similarity)
            assert np.ptp(found["s"]) > 0.1


@pytest.mark.slow
def test_a_study_killed_after_a_round_goes_on_to_the_same_rows(tmp_path: Path) -> None:
    save_npz(small_data(), tmp_path / "small.npz")

    def command(out: str, *more: str) -> list[str]:
        words = [sys.executable, "-m", "labelzoo", "active", "--data", str(tmp_path / "small.npz")]
        words += ["--learner", "kernel_neighbors:bregman", "--acquire", "max_probability,random"]
        words += ["--start", "6", "--rounds", "6", "--batch", "3", "--seeds", "1", "--evaluator", "own"]
        return [*words, "--processes", "1", "--out", str(tmp_path / out), "--json", *more]

    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    killed = subprocess.Popen(command("killed"), start_new_session=True, **quiet)
    database, end = tmp_path / "killed" / "study.db", time.monotonic() + 300
    try:
        while not (database.exists() and results(database)):
            assert killed.poll() is None and time.monotonic() < end, "it ended before a round was written"
            time.sleep(0.01)
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    before = results(database)
    assert 1 <= len(before) < 14
    subprocess.run(command("killed", "--resume"), check=True, **quiet)
    subprocess.run(command("whole"), check=True, **quiet)
    rows = results(database)
    assert len(rows) == 14 and rows == results(tmp_path / "whole" / "study.db")
    assert all(row in rows for row in before)
