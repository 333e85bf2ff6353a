"""The generator and the scores behind the experiments of the Bernoulli mixture."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import mixture_acquisition
import mixture_synthetic
import mixture_synthetic_data as synthetic

from labelzoo.acquisition.label_covariance import EPS, log_determinants


def test_population_of_the_synthetic_labels() -> None:
    size = 400_000
    rows = synthetic.draw_rows(np.random.default_rng(11), size)
    share = dict(zip(synthetic.NAMES, rows.Y.mean(axis=0), strict=True))
    lens = 2 * 0.35**2 * np.arccos(0.6 * np.sin(np.pi / 8) / 0.35)
    half = 0.6 * np.sin(np.pi / 8)
    lens -= 2 * half * np.sqrt(0.35**2 - half**2)
    expected = dict.fromkeys(("O1", "O2", "O3", "O4"), lens / 4)
    assert expected["O1"] == pytest.approx(0.02206, abs=5e-6)
    expected |= {"E1": 0.38485, "E2": 0.3 * 0.38485, "E3": 0.3 * 0.38485, "E4": 0.08082}
    expected |= {f"G{i}": np.pi * 0.35**2 / 4 for i in range(1, 9)}
    expected |= {"C2": 8 * lens / 4, "C1": 8 * np.pi * 0.35**2 / 4 - 16 * lens / 4}
    for name, value in expected.items():
        z = (share[name] - value) / np.sqrt(value * (1 - value) / size)
        assert abs(z) < 5, f"{name}: z = {z:.1f}, seed 11"
    assert set(expected) == set(synthetic.NAMES)


def test_labels_are_what_their_names_say() -> None:
    rng = np.random.default_rng(3)
    X, Y = synthetic.draw_rows(rng, 3000)
    again = np.random.default_rng(3)
    np.testing.assert_array_equal(X, 2 * again.random((3000, 2)) - 1)
    coins = again.random((3000, 3))
    column = dict(zip(synthetic.NAMES, Y.T.astype(bool), strict=True))
    count = Y[:, :8].sum(axis=1)
    assert count.max() == 2
    np.testing.assert_array_equal(column["C1"], count == 1)
    np.testing.assert_array_equal(column["C2"], count >= 2)
    for i in range(1, 5):
        np.testing.assert_array_equal(column[f"O{i}"], column[f"G{2 * i - 1}"] & column[f"G{2 * i}"])
    np.testing.assert_array_equal(column["E1"], np.hypot(X[:, 0] - 0.3, X[:, 1]) <= 0.7)
    np.testing.assert_array_equal(column["E2"], column["E1"] & (coins[:, 0] < 0.3))
    np.testing.assert_array_equal(column["E3"], column["E1"] & (coins[:, 1] < 0.3))
    np.testing.assert_array_equal(column["E4"], column["E3"] & ~column["E2"])
    half = synthetic.draw_rows(np.random.default_rng(3), 3000, p_e4=0.5).Y
    np.testing.assert_array_equal(half[:, 17] > 0, column["E4"] & (coins[:, 2] < 0.5))
    np.testing.assert_array_equal(half[:, :17], Y[:, :17])


def test_the_ceiling_is_the_auc_of_the_region() -> None:
    X, Y = synthetic.draw_rows(np.random.default_rng(5), 100_000)
    found, error = mixture_synthetic.auc(Y[:, 17], synthetic.in_e1(X).astype(float))
    assert pytest.approx(0.8346, abs=5e-5) == synthetic.CEILING
    assert abs(found - synthetic.CEILING) < 5 * error


def test_auc_and_its_error() -> None:
    rng = np.random.default_rng(6)
    y = (rng.random(300) < 0.2).astype(float)
    score = np.round(y + 1.5 * rng.standard_normal(300), 1)  # with ties
    found, error = mixture_synthetic.auc(y, score)
    assert found == pytest.approx(roc_auc_score(y, score), abs=1e-12)
    pairs = [rng.integers(300, size=300) for _ in range(400)]
    spread = np.std([mixture_synthetic.auc(y[at], score[at])[0] for at in pairs])
    assert error == pytest.approx(spread, rel=0.15)


def made_up(e4: float, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    scores = {m: rng.uniform(0.6, 0.62, 18).tolist() for m in mixture_synthetic.METHODS}
    scores["mixture"] = [0.75] * 17 + [e4]
    seconds = dict.fromkeys(mixture_synthetic.METHODS, 1.0)
    rest = {"settings": {}, "seconds": seconds, "region": 0.83, "e4_error": 0.008, "absent": []}
    return {"seed": seed, "auc": scores, **rest}


def test_leaks_and_lost_races_fail() -> None:
    good = mixture_synthetic.summary([made_up(0.80, seed) for seed in range(4)])
    assert good["failed"] == [] and good["ceiling"]["error"] == pytest.approx(0.004)
    high = mixture_synthetic.summary([made_up(0.8346 + 0.015, seed) for seed in range(4)])
    assert high["failed"] == []
    leak = mixture_synthetic.summary([made_up(0.8346 + 0.0175, seed) for seed in range(4)])
    assert len(leak["failed"]) == 1 and leak["failed"][0].startswith("leak: AUC of E4 is 0.8521")
    lost = mixture_synthetic.summary([made_up(0.55, seed) for seed in range(4)])
    assert "not ahead of one_vs_rest on E4" in lost["failed"][0]
    assert "FAILED: mixture is not ahead" in mixture_synthetic.table(lost)


def test_baselines_are_tuned_and_survive_rare_labels() -> None:
    train, test = mixture_synthetic.drawn(1, {"train": 60, "test": 80})
    Y = train.Y[:, [0, 8, 10, 17]].copy()
    Y[:, 2] = 0.0
    Y[:, 3] = np.arange(60) == 7
    few = train._replace(Y=Y)
    for method in ("one_vs_rest", "kernel"):
        probs = mixture_synthetic.PREDICTORS[method](few, test.X, {})
        assert probs.shape == (80, 4) and np.isfinite(probs).all()
        assert (probs[:, 2] == 0).all()
        assert mixture_synthetic.auc(test.Y[:, 0], probs[:, 0])[0] > 0.7


def test_the_dense_form_beside_which_speed_is_told() -> None:
    rng = np.random.default_rng(0)
    weights, parts = rng.dirichlet(np.ones(3), 4), rng.beta(1, 2, (3, 7))
    quick = log_determinants(weights, parts, EPS)
    np.testing.assert_allclose(mixture_acquisition.dense(weights, parts, EPS), quick, atol=1e-8)


@pytest.mark.slow
def test_a_seed_of_the_synthetic_experiment() -> None:
    found = mixture_synthetic.summary([mixture_synthetic.one_run(0, mixture_synthetic.SETTINGS)])
    assert found["failed"] == [], mixture_synthetic.table(found)
    assert found["auc"]["mixture"]["E4"]["mean"] > 0.72
    assert found["auc"]["mixture"]["O"]["mean"] > 0.9
