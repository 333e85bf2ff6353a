"""Entropy and information of a row's labels against sums over every outcome."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

from labelzoo.acquisition.draws import RowBlocks, binary_entropy, log_odds, outcome_table, read_blocks, whole
from labelzoo.acquisition.information import bald, bald_joint, entropy, margin, mean_prob


def shared(samples: int = 40, rows: int = 5, labels: int = 3, seed: int = 0, size: float = 1.5) -> Any:
    """Draws in which one or two latents move several labels and rows."""
    rng = np.random.default_rng(seed)
    logits = np.tensordot(rng.standard_normal((samples, 2)), rng.standard_normal((2, rows, labels)), axes=1)
    return 1 / (1 + np.exp(-size * logits))


def plain_entropy(weights: Any) -> float:
    return -sum(float(w) * math.log(w) for w in weights if w > 0)


def joint_by_outcomes(probs: Any, row: int) -> float:
    """I(labels; draw) by a sum over all outcomes, written without any of the package's tables."""
    samples, _, labels = probs.shape
    total = 0.0
    for outcome in itertools.product((0, 1), repeat=labels):
        under = [
            math.prod(p if y else 1 - p for p, y in zip(probs[s, row], outcome, strict=True))
            for s in range(samples)
        ]
        mixture = sum(under) / samples
        total += sum(u / samples * math.log(u / mixture) for u in under if u > 0)
    return total


def test_entropy_margin_and_bald_equal_their_definitions() -> None:
    probs = shared()
    for row in range(probs.shape[1]):
        mean = probs[:, row].mean(axis=0)
        wanted = sum(plain_entropy((q, 1 - q)) for q in mean)
        inside = np.mean([sum(plain_entropy((p, 1 - p)) for p in draw) for draw in probs[:, row]])
        assert entropy(probs)[row] == pytest.approx(wanted, abs=1e-12)
        assert bald(probs)[row] == pytest.approx(wanted - inside, abs=1e-12)
        assert margin(probs)[row] == pytest.approx(-min(abs(2 * q - 1) for q in mean), abs=1e-12)
    np.testing.assert_allclose(entropy(probs.mean(axis=0)), entropy(probs), atol=1e-14)
    np.testing.assert_allclose(margin(probs.mean(axis=0)), margin(probs), atol=1e-14)


def test_joint_information_equals_the_sum_over_outcomes() -> None:
    for labels in (1, 2, 3, 5):
        probs = shared(labels=labels, seed=labels)
        found = bald_joint(probs)
        wanted = [joint_by_outcomes(probs, row) for row in range(probs.shape[1])]
        np.testing.assert_allclose(found.score, wanted, atol=1e-10)
        assert (found.error == 0).all()


def test_drawn_joint_information_is_unbiased_for_the_mixture() -> None:
    """Twenty seeds: z-values against enumeration, centred and of size one."""
    probs = shared(labels=4, seed=3)
    exact = bald_joint(probs).score
    runs = [bald_joint(probs, seed=seed, enumerate_to=0, repeats=6) for seed in range(20)]
    z = np.array([(run.score - exact) / run.error for run in runs])
    assert np.abs(z).max() < 4.5, f"largest z {np.abs(z).max():.2f}, seeds 0..19"
    assert abs(z.mean(axis=0)).max() * math.sqrt(20) < 4, "biased over seeds 0..19"
    assert 0.6 < z.std() < 1.5, "the stated standard error is not the spread, seeds 0..19"


def test_joint_information_lies_between_the_largest_label_and_the_sum() -> None:
    for seed in range(30):
        probs = shared(seed=seed, size=4.0)
        joint = bald_joint(probs[:, :, :], enumerate_to=12).score
        alone = np.stack([bald(probs[:, :, [label]]) for label in range(3)])
        assert (joint <= alone.sum(axis=0) + 1e-12).all()
        assert (joint >= alone.max(axis=0) - 1e-12).all()
        assert (joint <= math.log(40) + 1e-12).all()


def test_joint_equals_sum_where_one_label_moves() -> None:
    probs = shared()
    probs[:, :, 1:] = 0.3
    np.testing.assert_allclose(bald_joint(probs).score, bald(probs), atol=1e-12)


def test_many_labels_saturate_at_log_samples_and_say_so() -> None:
    probs = np.random.default_rng(0).beta(0.2, 0.2, (30, 2, 60))
    with pytest.warns(UserWarning, match=r"of log\(samples = 30\)"):
        found = bald_joint(probs)
    np.testing.assert_allclose(found.score, math.log(30), atol=1e-6)
    assert found.saturation.max() <= 1 + 1e-9


def test_certain_draws_give_no_nan() -> None:
    probs = np.zeros((10, 3, 14))
    probs[5:, 0] = 1.0
    found = bald_joint(probs)
    np.testing.assert_allclose(found.score, [math.log(2), 0, 0], atol=1e-12)
    np.testing.assert_allclose(bald(probs), [14 * math.log(2), 0, 0], atol=1e-12)
    np.testing.assert_allclose(entropy(probs), [14 * math.log(2), 0, 0], atol=1e-12)


def test_order_of_draws_and_labels_does_not_matter() -> None:
    probs = shared(labels=4)
    rng = np.random.default_rng(1)
    other = probs[rng.permutation(40)][:, :, rng.permutation(4)]
    for score in (entropy, margin, bald, lambda p: bald_joint(p).score):
        np.testing.assert_allclose(score(other), score(probs), atol=1e-12)


def test_equal_rows_have_equal_drawn_scores() -> None:
    probs = shared(labels=14, size=0.5)
    probs[:, 3] = probs[:, 1]
    found = bald_joint(probs)
    assert found.score[3] == found.score[1] and found.error.min() > 0


def test_blocks_give_what_the_array_gives() -> None:
    probs = shared(rows=50, labels=6)
    calls: list[slice] = []

    def make(rows: slice) -> Any:
        calls.append(rows)
        return probs[:, rows]

    blocks = RowBlocks(make, *probs.shape)
    assert [part for part, _ in read_blocks(blocks, rows=20)] == [slice(0, 20), slice(20, 40), slice(40, 50)]
    for score in (entropy, margin, bald, mean_prob, lambda p: bald_joint(p).score, whole):
        np.testing.assert_allclose(score(blocks), score(probs), atol=1e-13)
    single = RowBlocks(lambda rows: probs[:, rows].astype(np.float32), *probs.shape)
    np.testing.assert_allclose(bald(single), bald(probs), atol=6e-6)
    assert len(calls) > 8
    with pytest.raises(ValueError, match=r"rows 0 to 50 came with shape \(40, 50, 5\)"):
        bald(RowBlocks(lambda rows: probs[:, rows, :5], *probs.shape))


@pytest.mark.parametrize("bad", [np.nan, -0.1, 1.5, np.inf])
def test_bad_numbers_are_named(bad: float) -> None:
    probs = shared(rows=50)
    probs[3, 17, 2] = bad
    for score in (entropy, margin, bald, bald_joint, whole):
        with pytest.raises(ValueError, match=r"sample 3, row 17, label 2 is"):
            score(probs)
    with pytest.raises(ValueError, match="mean_probs must be probabilities.*row 17, label 2"):
        entropy(probs[3])


def test_bad_shapes_and_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"probs must be \(sample, row, labels\), got shape \(4,\)"):
        bald(np.ones(4))
    with pytest.raises(ValueError, match="one draw and one label or more"):
        bald(np.ones((0, 3, 2)))
    with pytest.raises(ValueError, match="repeats must be 2 or more, got 1"):
        bald_joint(shared(), repeats=1)


def test_kernels_of_the_draws() -> None:
    assert binary_entropy(np.array([0.0, 1.0, 1e-320])).tolist()[:2] == [0.0, 0.0]
    table = outcome_table(shared(labels=4))
    np.testing.assert_allclose(table.sum(axis=-1), 1, atol=1e-12)
    probs = shared(labels=2)
    np.testing.assert_allclose(outcome_table(probs)[:, :, 2], probs[:, :, 0] * (1 - probs[:, :, 1]))
    odds, no = log_odds(np.array([0.0, 1.0, 0.25]))
    np.testing.assert_allclose(np.exp(no), [1, 0, 0.75])
    np.testing.assert_allclose(np.exp(odds + no), [0, 1, 0.25])
