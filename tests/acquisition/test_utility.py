"""Expected gains against loops over every answer, with metrics written out a second time."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

from labelzoo.acquisition.problem import Problem
from labelzoo.acquisition.utility import ENTRIES, Metric, expected_utility


def shared(samples: int = 50, rows: int = 6, labels: int = 2, seed: int = 0, size: float = 1.5) -> Any:
    rng = np.random.default_rng(seed)
    logits = np.tensordot(rng.standard_normal((samples, 2)), rng.standard_normal((2, rows, labels)), axes=1)
    return 1 / (1 + np.exp(-size * logits))


def f1_by_subsets(q: Any, weights: Any) -> float:
    """Best ratio of expectations over every set of cells called positive."""
    cells, mass = q.ravel(), np.repeat(weights, q.shape[1])
    sets = np.array(list(itertools.product((0, 1), repeat=cells.size)), float)[1:]
    return float((2 * sets @ (mass * cells) / (sets @ mass + mass @ cells)).max())


def plain(name: str, q: Any, weights: Any) -> float:
    mass = weights / weights.sum()
    if name == "f1":
        return f1_by_subsets(q, mass)
    cell = {
        "accuracy": lambda v: max(v, 1 - v),
        "brier": lambda v: -v * (1 - v),
        "log": lambda v: v * math.log(v) + (1 - v) * math.log(1 - v),
    }
    if name == "precision@1":
        return float(sum(w * max(line) for w, line in zip(mass, q, strict=True)))
    return float(sum(w * np.mean([cell[name](v) for v in line]) for w, line in zip(mass, q, strict=True)))


def by_answers(name: str, p: Any, q: Any, weights: Any) -> float:
    """E over all answers of the metric after reweighting the draws, minus the metric before."""
    total = 0.0
    for y in itertools.product((0, 1), repeat=p.shape[1]):
        like = np.array([math.prod(a if v else 1 - a for a, v in zip(d, y, strict=True)) for d in p])
        after = np.tensordot(like / like.sum(), q, axes=1)
        total += like.mean() * plain(name, after, weights)
    return total - plain(name, q.mean(axis=0), weights)


NAMES = ["accuracy", "brier", "log", "f1", "precision@1"]


@pytest.mark.parametrize("name", NAMES)
def test_gain_equals_enumeration(name: str) -> None:
    draws, weights = shared(), np.array([1.0, 3.0, 0.5])
    probs, targets = draws[:, :3], draws[:, 3:]
    found = expected_utility(probs, targets, weights, metric=name)
    wanted = [by_answers(name, probs[:, n], targets, weights) for n in range(3)]
    np.testing.assert_allclose(found.score, wanted, atol=1e-12)
    assert (found.error == 0).all() and found.targets == 3


@pytest.mark.parametrize("name", NAMES)
def test_drawn_answers_agree_with_enumeration(name: str) -> None:
    draws = shared(labels=3, size=2.5)
    exact = expected_utility(draws, metric=name).score
    runs = [
        expected_utility(draws, metric=name, enumerate_to=0, answers=400, seed=seed) for seed in range(10)
    ]
    z = np.array([(run.score - exact) / np.maximum(run.error, 1e-12) for run in runs])
    assert np.abs(z).max() < 4.5, f"{name}: largest z {np.abs(z).max():.2f}, seeds 0..9"
    assert min(run.error.min() for run in runs) > 0


def test_taking_off_the_slope_lowers_the_error() -> None:
    """Rare labels: what is linear in the probabilities is most of what an answer moves."""
    draws = 0.2 * shared(labels=3)
    slow = Metric(lambda q, w: -np.einsum("atl,t->a", q * (1 - q), w) / 3)
    both = [expected_utility(draws, metric=m, enumerate_to=0, answers=500) for m in ("brier", slow)]
    assert both[0].error.mean() < both[1].error.mean() / 2
    exact = expected_utility(draws, metric=slow).score
    assert (np.abs(both[1].score - exact) < 4 * both[1].error).all()


def test_gains_of_convex_metrics_are_never_negative() -> None:
    for seed in range(20):
        probs = shared(seed=seed, size=3.0)
        probs[:, 0] = probs[:, 0].round()
        for name in ("accuracy", "brier", "log", "precision@1"):
            assert (expected_utility(probs, metric=name).score > -1e-14).all(), f"{name}, seed {seed}"


def test_the_pool_is_its_own_target_without_the_own_row() -> None:
    probs, weights = shared(), np.arange(6.0)
    for name in NAMES[:3]:
        found = expected_utility(probs, None, weights, metric=name).score
        for row in range(6):
            others = np.setdiff1d(np.arange(6), row)
            alone = expected_utility(probs[:, [row]], probs[:, others], weights[others], metric=name)
            assert found[row] == pytest.approx(alone.score[0], abs=1e-12)
    assert expected_utility(probs[:, :1]).score.tolist() == [0.0]


def test_a_row_that_settles_the_targets_gains_all_there_is() -> None:
    targets = np.repeat([0.0, 1.0], 25)[:, None, None] * np.ones((50, 2, 1))
    probs = np.concatenate([targets[:, :1], np.full((50, 1, 1), 0.5)], axis=1)
    np.testing.assert_allclose(expected_utility(probs, targets).score, [0.5, 0.0], atol=1e-14)
    found = expected_utility(probs, targets, metric="log").score
    np.testing.assert_allclose(found, [math.log(2), 0.0], atol=1e-12)


def test_many_targets_are_drawn_down() -> None:
    draws = shared(rows=60)
    every = expected_utility(draws[:, :10], draws, metric="brier")
    fewer = expected_utility(draws[:, :10], draws, metric="brier", max_targets=40)
    assert every.targets == 60 and fewer.targets <= 40
    assert np.corrcoef(every.score, fewer.score)[0, 1] > 0.8
    own = expected_utility(draws, metric="brier", max_targets=40)
    assert (
        own.score.shape == (60,)
        and np.corrcoef(own.score, expected_utility(draws, metric="brier").score)[0, 1] > 0.8
    )


def test_order_of_draws_and_labels_does_not_matter() -> None:
    draws = shared(labels=3)
    rng = np.random.default_rng(1)
    other = draws[rng.permutation(50)][:, :, rng.permutation(3)]
    for name in NAMES:
        np.testing.assert_allclose(
            expected_utility(other, metric=name).score, expected_utility(draws, metric=name).score, atol=1e-12
        )


def test_entry_reports_its_error() -> None:
    draws = shared(labels=7)
    choice = ENTRIES[0](Problem(probs=draws, weights=np.ones(6)), 2)
    assert choice.report["monte_carlo_error"] > 0 and choice.report["targets"] == 6
    wanted = expected_utility(draws, metric="brier").score
    np.testing.assert_allclose(choice.gains, np.sort(wanted)[::-1][:2])


def test_bad_input_is_refused() -> None:
    draws = shared()
    with pytest.raises(ValueError, match="no metric 'speed'; metrics: accuracy, brier, log, f1, precision@1"):
        expected_utility(draws, metric="speed")
    with pytest.raises(ValueError, match="no metric 'precision@3'"):
        expected_utility(draws, metric="precision@3")
    with pytest.raises(ValueError, match="target_probs must have the draws and labels of probs"):
        expected_utility(draws, shared(samples=51))
    with pytest.raises(ValueError, match="answers must be 2 or more, got 1"):
        expected_utility(draws, enumerate_to=0, answers=1)
    with pytest.raises(ValueError, match=r"600000 rows x 4 answers .* pass fewer rows, draws or max_targets"):
        expected_utility(np.broadcast_to(np.full((50, 1, 2), 0.5), (50, 600000, 2)), max_targets=5000)
    bad = draws.copy()
    bad[3, 2, 1] = np.nan
    with pytest.raises(ValueError, match="sample 3, row 2, label 1 is nan"):
        expected_utility(bad)
