"""The real-data experiments of the sparse Bayesian model, on tiny data."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import sparse_diagnosis
import sparse_races

from labelzoo.acquisition.label_law import LabelLaw
from labelzoo.data import LabelData


@pytest.fixture
def data() -> LabelData:
    rng = np.random.default_rng(4)
    X = rng.standard_normal((80, 3))
    Y = (X @ rng.standard_normal((3, 6)) + rng.standard_normal((80, 6)) > 0.7).astype(int)
    return LabelData.from_arrays(X, Y)


def test_f_scores_by_hand() -> None:
    truth = np.array([[1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 1]], bool)
    guess = np.array([[1, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]], bool)
    seen = np.ones_like(truth)
    np.testing.assert_allclose(sparse_diagnosis.f_scores(truth, guess, seen), [0.5, 1.0, 0.0])
    seen[0, 1:3] = False
    assert sparse_diagnosis.f_scores(truth, guess, seen)[0] == 1.0


def test_variances_are_those_given_the_revealed_labels() -> None:
    A = np.random.default_rng(1).standard_normal((5, 5))
    P = A @ A.T + np.eye(5)
    S, known = np.linalg.inv(P), np.array([True, False, False, True, False])
    rest = S[np.ix_(~known, ~known)] - S[np.ix_(~known, known)] @ np.linalg.solve(
        S[np.ix_(known, known)], S[np.ix_(known, ~known)]
    )
    found = sparse_diagnosis.variances(P, known)
    np.testing.assert_allclose(found[~known], rest.diagonal())
    assert np.isnan(found[known]).all()


def test_log_determinants_are_those_of_the_dense_precision() -> None:
    rng = np.random.default_rng(2)
    law = LabelLaw(rng.gamma(2.0, 1.0, (3, 6)), rng.standard_normal((2, 6)), rng.gamma(2.0, 1.0, 3))
    dense = [
        np.linalg.slogdet(np.diag(a) + law.projection.T @ law.projection / v)[1]
        for a, v in zip(law.diagonal, law.variance, strict=True)
    ]
    np.testing.assert_allclose(sparse_races.log_determinants(law), dense)


@pytest.mark.parametrize("rule", ["evidence", "guarded"])
def test_a_split_runs_and_its_choosers_take_distinct_pool_rows(
    data: LabelData, monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    for name, value in {"START": 12, "PICKS": 12, "EVERY": 6, "LI_PICKS": 6}.items():
        monkeypatch.setattr(sparse_races, name, value)
    split = sparse_races.make_split(data, 0, rule)
    np.testing.assert_allclose(split.C, split.C.T)
    assert np.linalg.eigvalsh(split.C).min() > 0
    for name in sparse_races.CHOOSERS:
        rows = sparse_races.chosen_rows(split, name, 0)
        assert len(np.unique(rows)) == len(rows) == (6 if name == "li_adaptive" else 12)
        assert np.isin(rows, np.setdiff1d(split.pool, split.start)).all(), name
    names = ("random", "miml", "miml_test", "ivr_test", "uncertainty")
    runs = [sparse_races.one_split(data, seed, rule, names) for seed in (0, 1)]
    found = sparse_races.summary(runs)
    assert "| miml - random |" in sparse_races.table("toy", found)
    assert found["predictors"]["ml_oss"]["gaps"]["miml - random"]["num_seeds"] == 2


def test_diagnosis_reveals_each_label_once_and_ends_with_the_truth(
    data: LabelData, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"TRAIN": 30, "TEST": 4, "BUDGET": 6, "GROUND": 4, "CHOSEN": 4, "EVERY": 2}.items():
        monkeypatch.setattr(sparse_diagnosis, name, value)
    for run in (sparse_diagnosis.diagnosis_run, sparse_diagnosis.generalised_run):
        curves: dict[str, Any] = run(data, 0)
        for method, curve in curves.items():
            assert curve["all"][-1] == 1.0, f"{method}: everything is known at the end"
            assert all(0 <= value <= 1 for value in curve["all"] + curve["hidden"])
    found = sparse_diagnosis.summary([sparse_diagnosis.diagnosis_run(data, seed) for seed in (0, 1)], 3)
    assert "| mi - uncertainty |" in sparse_diagnosis.table(found, "labels revealed a row", 1)
