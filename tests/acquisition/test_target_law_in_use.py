"""The law of compressed targets: its pieces, batches by conditioning, and questions through the one front."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from scipy import sparse

from labelzoo.acquisition import ask
from labelzoo.acquisition.catalogue import find
from labelzoo.acquisition.problem import Problem
from labelzoo.acquisition.target_law import TargetLaw
from labelzoo.acquisition.weighted_entropy import greedy_entropy, weighted_entropy
from labelzoo.data import LabelData
from labelzoo.inference.compressed_gp import kernel14 as k14
from labelzoo.inference.fit import fit
from labelzoo.inference.posterior import load, save
from labelzoo.inference.predict import constants_of, point_draws, target_law
from labelzoo.models import compressed_gp_law
from labelzoo.models.compressed_gp_card import TARGETS_KEPT
from labelzoo.models.compressed_gp_predict import kernel_of, mapped_rows, theta_of
from labelzoo.study import database, read_skipped
from labelzoo.study.run import check_plan
from tests.study.small import run_here, small_data, small_plan, whole_study

DATA = small_data(40)
ENTRY = find("weighted_entropy")


def with_pool(hidden: int) -> LabelData:
    """The small data, the last rows without labels."""
    Y = DATA.Y.toarray().astype(float)
    Y[-hidden:] = np.nan
    return LabelData.from_arrays(DATA.X, Y)


@cache
def fitted(engine: str = "gradient") -> xr.DataTree:
    words = {"num_warmup": 40, "num_samples": 10, "num_chains": 2} if engine == "nuts" else {}
    return fit("compressed_gp", with_pool(25), engine, num_measurements=3, **TARGETS_KEPT, **words)


def made_up(rows: int = 9, targets: int = 2, seed: int = 0) -> tuple[TargetLaw, np.ndarray, np.ndarray]:
    """A law with its covariances (target, row, row), noise apart."""
    rng = np.random.default_rng(seed)
    roots = rng.standard_normal((targets, rows, 4))
    K = roots @ roots.swapaxes(1, 2)
    noise = rng.uniform(0.1, 0.5, targets)
    variance = np.diagonal(K, axis1=1, axis2=2).T + noise
    return TargetLaw(variance, rng.uniform(0.5, 2, targets), np.ones(rows), lambda i: K[:, i].T), K, noise


def test_batches_are_those_of_conditioning_anew() -> None:
    law, K, noise = made_up()
    rows, gains = greedy_entropy(law, 5)
    for step in range(5):
        before = rows[:step]
        scores = np.zeros(9)
        for g, weight in enumerate(law.weights):
            C = K[g] + noise[g] * np.eye(9)
            seen = np.linalg.solve(C[np.ix_(before, before)], K[g][before])
            scores += weight * np.log(np.diagonal(C) - (K[g][before] * seen).sum(axis=0))
        scores[before] = -np.inf
        assert scores.argmax() == rows[step]
        np.testing.assert_allclose(gains[step], scores.max(), rtol=1e-9)


def test_a_batch_of_one_is_the_papers_and_rows_alike_are_not_asked_twice() -> None:
    law, K, _ = made_up()
    score = weighted_entropy(law.variance, law.weights)
    chosen = ENTRY(Problem(target_law=law), 1)
    assert chosen.rows.tolist() == [score.argmax()]
    assert chosen.gains[0] == score.max()
    twin = law.subset([*range(9), int(score.argmax())])
    rows = greedy_entropy(twin, 2)[0]
    assert set(rows.tolist()) != {9, int(score.argmax())}
    assert set(np.argsort(-weighted_entropy(twin.variance, twin.weights))[:2].tolist()) == {9, score.argmax()}


def test_without_a_target_the_seed_decides() -> None:
    law = TargetLaw(np.empty((30, 0)), [], np.ones(30), lambda i: np.empty((30, 0)))
    picks = {seed: tuple(ENTRY(Problem(target_law=law, seed=seed), 3).rows) for seed in (0, 1, 2)}
    assert picks[0] == tuple(ENTRY(Problem(target_law=law, seed=0), 3).rows)
    assert len(set(picks.values())) == 3 and all(len(set(rows)) == 3 for rows in picks.values())


GOOD: dict[str, Any] = {
    "variance": [[1.0, 2.0]],
    "weights": [1.0, 0.0],
    "prior_variance": [1.0],
    "covariance": lambda i: np.zeros((1, 2)),
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"variance": [[1.0, np.nan]]}, r"variance\[0, 1\] is nan, not a finite number above 0"),
        ({"variance": [[1.0, 0.0]]}, r"variance\[0, 1\] is 0.0"),
        ({"variance": [1.0]}, "variance must have 2 axes"),
        ({"variance": "much"}, "variance must be numbers"),
        ({"weights": [1.0, -1.0]}, r"weights\[1\] is -1.0, not a finite number of at least 0"),
        ({"weights": [1.0]}, "variance has 2 targets, weights 1"),
        ({"prior_variance": [1.0, 1.0]}, "variance has 1 rows, prior_variance 2"),
        ({"prior_variance": [0.0]}, r"prior_variance\[0\] is 0.0"),
        ({"covariance": np.zeros((1, 2))}, "covariance must be a function"),
    ],
)
def test_bad_laws_are_refused(change: dict[str, Any], message: str) -> None:
    TargetLaw(**GOOD)
    with pytest.raises(ValueError, match=f"target_law: .*{message}"):
        TargetLaw(**{**GOOD, **change})


def test_bad_covariances_and_problems_are_refused() -> None:
    wrong = TargetLaw(**{**GOOD, "covariance": lambda i: np.zeros(2)})
    with pytest.raises(
        ValueError, match=r"covariance\(0\) must be finite numbers \(1, 2\), got shape \(2,\)"
    ):
        wrong.cross(0)
    with pytest.raises(ValueError, match="'weighted_entropy' needs target_law: the law of each pool row's"):
        ENTRY(Problem(), 1)
    with pytest.raises(ValueError, match="target_law must be a TargetLaw, got ndarray"):
        ENTRY(Problem(target_law=np.eye(3)), 1)
    with pytest.raises(ValueError, match="target_law has 1 rows, the pool has 3"):
        ENTRY(Problem(target_law=TargetLaw(**GOOD), X_pool=np.zeros((3, 1))), 1)
    with pytest.raises(ValueError, match="chooses a batch as a whole and reads no costs"):
        ENTRY(Problem(target_law=TargetLaw(**GOOD), costs=[1.0]), 1)


def brute(tree: xr.DataTree, X: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Means (row, target) and covariances without noise (target, row, row) of each draw, by inversion."""
    kept, theta = constants_of(tree), theta_of(point_draws(tree))
    Z = mapped_rows(kernel_of(kept), X)
    whole = np.concatenate([kept["mapped"], Z])
    n = len(kept["mapped"])
    far, inner = k14.squared_distances(whole, whole), whole @ whole.T
    means, covariances = [], []
    for one in theta:
        K = k14.kernel(one, far, inner)
        C = K[:, :n, :n] + one[:, 4, None, None] * np.eye(n)
        gain = np.linalg.solve(C, K[:, :n, n:])
        means.append(np.stack([kept["targets"][:, g] @ gain[g] for g in range(len(one))], axis=1))
        covariances.append(K[:, n:, n:] - K[:, n:, :n] @ gain)
    return means, covariances


@pytest.mark.parametrize("engine", ["gradient", "nuts"])
@pytest.mark.parametrize("blocks", [False, True])
def test_the_law_is_that_of_joint_inversion(
    engine: str, blocks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over draws: mean of the variances plus variance of the means; in blocks of rows as well."""
    if blocks:
        monkeypatch.setattr(compressed_gp_law, "TABLE_BYTES", 16 * 15 * 4)
    tree, X = fitted(engine), DATA.X[-25:]
    law = target_law(tree, X)
    means, covariances = brute(tree, X)
    spread = np.stack(means) - np.mean(means, axis=0)
    both = np.mean(covariances, axis=0) + np.einsum("sig,sjg->gij", spread, spread) / len(means)
    noise = theta_of(point_draws(tree))[:, :, 4].mean(axis=0)
    np.testing.assert_allclose(law.variance, np.diagonal(both, axis1=1, axis2=2).T + noise, rtol=1e-8)
    for i in (0, 7, 24):
        np.testing.assert_allclose(law.cross(i), both[:, i].T, atol=1e-9)
    some = law.subset([7, 3])
    np.testing.assert_allclose(some.cross(0), both[:, 7, [7, 3]].T, atol=1e-9)
    assert law.report == {"draws": len(means), "fitted_rows": 15}
    np.testing.assert_array_equal(law.weights, constants_of(tree)["target_weights"])
    again = target_law(load(save(tree, tmp_path / "f.nc")), X)
    np.testing.assert_array_equal(again.variance, law.variance)


def test_draws_are_thinned_to_fit_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed_gp_law, "FACTOR_BYTES", 8 * 3 * 15**2 * 4)
    count = fitted("nuts").posterior.sizes["target"]
    assert target_law(fitted("nuts"), DATA.X[:2]).report["draws"] == 3 * 4 // count


def test_pools_beyond_the_cap_are_refused_before_any_work() -> None:
    pool = sparse.csr_array((200_000, 3_000))
    with pytest.raises(
        ValueError, match="keeps 200000 rows of 3000 features as a dense table, 4.* GiB, above"
    ):
        compressed_gp_law.target_law({}, pool, {})


def test_questions_are_asked_and_other_models_refused() -> None:
    pool = with_pool(25)
    table = ask(fitted(), pool, acquire="weighted_entropy", batch=4)
    assert len(set(table["obs"])) == 4 and set(table["obs"]) <= set(pool.example_names[15:])
    assert table.attrs["report"]["fitted_rows"] == 15
    other = fit("label_gp", pool, "conjugate", num_samples=5)
    with pytest.raises(
        ValueError, match="law of compressed targets, and model 'label_gp' has none; compressed_gp"
    ):
        ask(other, pool, acquire="weighted_entropy", batch=2)
    with pytest.raises(ValueError, match="model 'label_gp' has no law of compressed targets"):
        target_law(other, DATA.X)


def test_a_study_runs_by_the_law_and_skips_learners_without(tmp_path: Path) -> None:
    words = {
        "learner": "compressed_gp",
        "engine": "s_opt",
        "seeds": (0,),
        "settings": {"max_evaluations": 30, **TARGETS_KEPT},
    }
    plan = small_plan(DATA, acquire=("weighted_entropy", "random"), rounds=1, **words)
    rows = whole_study(plan, DATA, tmp_path / "a.db")
    assert read_skipped(tmp_path / "a.db") == {}
    (asked,) = [row for row in rows if row.acquire == "weighted_entropy" and row.round > 0]
    assert len(set(asked.asked)) == 3 and asked.report["targets"] > 0
    plan = small_plan(DATA, acquire=("weighted_entropy", "random"), seeds=(0,))
    with pytest.raises(ValueError, match="weighted_entropy needs the law of compressed targets, and learner"):
        check_plan(plan, DATA)
    database.create(tmp_path / "b.db", plan, {})
    run_here(plan, DATA, tmp_path / "b.db", plan.cells())
    (reason,) = read_skipped(tmp_path / "b.db").values()
    assert "needs the law of compressed targets, and learner label_gp has none" in reason
