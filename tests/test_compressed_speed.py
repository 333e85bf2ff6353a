"""The benchmarks of compressed targets on small, made-up data."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import compressed_decoding
import compressed_optimisers as optimisers
import compressed_speed
from compressed_data import Prepared

from labelzoo.inference.compressed_gp.hyperparameters import objective, objective_gradient


def made_up(rows: int = 80, labels: int = 12, seed: int = 3) -> Prepared:
    rng = np.random.default_rng(seed)
    group = rng.integers(5, size=rows)
    X = rng.normal(size=(5, 4))[group] + 0.5 * rng.normal(size=(rows, 4))
    Y = (rng.random((rows, labels)) < rng.beta(0.1, 0.2, (5, labels))[group]).astype(np.int8)
    parts = np.split(rng.permutation(rows), [12, 60])
    return Prepared(X, sparse.csr_array(Y), [f"label{i}" for i in range(labels)], *parts)


def test_rounds_and_compression_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    run = compressed_speed.rounds(made_up(), 6, period=3, budget=20, every=3)
    assert len(run) == 18 and len(run.remaining) == 42
    assert set(run.seconds) == set(compressed_speed.PARTS) and min(run.seconds.values()) > 0
    told = compressed_speed.compression(made_up(), [12, 50], repeats=1)
    assert [row[0] for row in told] == [12, 50] and all(row[3] > 0 for row in told)
    text = capsys.readouterr().out
    assert "6 rounds in" in text and text.count("first call") == 2


def posed(monkeypatch: pytest.MonkeyPatch) -> list[optimisers.Problem]:
    monkeypatch.setattr(optimisers, "prepared", lambda name, seed: made_up(seed=seed))
    return optimisers.problems(20, sources=(("one", 3), ("other", 4), ("third", 5)), targets=3)


def test_the_ascent_of_the_paper_climbs_the_same_objective(monkeypatch: pytest.MonkeyPatch) -> None:
    problems = posed(monkeypatch)
    assert sum(p.targets.shape[1] for p in problems) == 3
    x = np.random.default_rng(1).normal(size=5)
    for _, U, caches in problems:
        for u in U.T:
            want = objective_gradient(x[None], u[:, None], caches)
            value = optimisers.value_from_features(x, u, caches.X)
            assert value == pytest.approx(want.value[0], rel=1e-10)
            slope = optimisers.slope_from_features(x, u, caches.X)
            np.testing.assert_allclose(slope, want.gradient[0], atol=1e-7)
    outside = np.full(5, 13.0)
    assert optimisers.value_from_features(outside, u, caches.X) == -np.inf
    fit = optimisers.paper_ascent(U, caches)
    np.testing.assert_allclose(fit.objective, objective(np.log(fit.theta), U, caches), rtol=1e-8)
    best = optimisers.best_known(problems[-1])
    assert (best - fit.objective < 0.1).all() and (fit.objective <= best + 1e-6).all()


def test_optimisers_come_near_the_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    posed(monkeypatch)
    names = ("paper_ascent", "gradient", "s_opt", "b_opt")
    which: Any = {"sources": (("one", 3), ("other", 4)), "targets": 3}
    told = optimisers.race(20, names, **which)
    for name in ("s_opt", "b_opt"):
        assert np.median(told[name]["below_gradient"]) < 1e-2, name
    assert told["gradient"]["evaluations"] < told["s_opt"]["evaluations"]
    assert all((told[name]["below_best"] >= 0).all() for name in names)


def test_decoders_are_compared_with_stated_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed_decoding, "STATED", {(40, 20, 3): (1.00, 0.93, 0.40, 0.78)})
    scores = compressed_decoding.table(20, seed=7)
    # Four scores at |z| < 4: one false alarm in four thousand.
    assert len(scores) == 4 and max(map(abs, scores)) < 4
    assert compressed_decoding.z_of(0.5, 0.93, 200) < -4
