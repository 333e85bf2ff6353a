"""Predictive information at targets against sums over outcomes, its bounds, and its floor."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

from labelzoo.acquisition.epig import ENTRIES, epig, epig_joint
from labelzoo.acquisition.information import bald, bald_joint, entropy
from labelzoo.acquisition.problem import Problem


def shared(samples: int = 200, rows: int = 5, labels: int = 2, seed: int = 0, size: float = 1.5) -> Any:
    rng = np.random.default_rng(seed)
    logits = np.tensordot(rng.standard_normal((samples, 2)), rng.standard_normal((2, rows, labels)), axes=1)
    return 1 / (1 + np.exp(-size * logits))


def likelihood(p: Any, y: Any) -> float:
    return math.prod(float(a) if v else 1 - float(a) for a, v in zip(p, y, strict=True))


def pair_information(p: Any, q: Any) -> float:
    """I(y; y*) of the label vectors with draws p (sample, labels) and q, in plain loops over outcomes."""
    outcomes = list(itertools.product((0, 1), repeat=p.shape[1]))
    table = {
        (y, z): sum(likelihood(a, y) * likelihood(b, z) for a, b in zip(p, q, strict=True)) / len(p)
        for y in outcomes
        for z in outcomes
    }
    left = {y: sum(table[y, z] for z in outcomes) for y in outcomes}
    right = {z: sum(table[y, z] for y in outcomes) for z in outcomes}
    return sum(t * math.log(t / (left[y] * right[z])) for (y, z), t in table.items() if t > 0)


def test_same_and_all_pairs_equal_the_sums_over_tables() -> None:
    draws = shared(rows=5)
    probs, targets, weights = draws[:, :3], draws[:, 3:], np.array([1.0, 3.0])
    for pairs, ahead in (("same", [(0, 0), (1, 1)]), ("all", list(itertools.product((0, 1), repeat=2)))):
        wanted = [
            sum(
                w * sum(pair_information(probs[:, n, [j]], targets[:, t, [k]]) for j, k in ahead)
                for t, w in enumerate(weights)
            )
            / 4
            for n in range(3)
        ]
        found = epig(probs, targets, weights, pairs=pairs, correct=False)
        np.testing.assert_allclose(found, wanted, atol=1e-10)


def test_joint_equals_the_sum_over_outcomes() -> None:
    draws = shared(rows=5)
    wanted = [np.mean([pair_information(draws[:, n], draws[:, t]) for t in range(3, 5)]) for n in range(3)]
    np.testing.assert_allclose(epig_joint(draws[:, :3], draws[:, 3:]), wanted, atol=1e-10)


@pytest.mark.parametrize("score", [lambda p, *a: epig(p, *a, correct=False), epig, epig_joint])
def test_the_pool_is_its_own_target_without_the_own_row(score: Any) -> None:
    probs = shared()
    weights = np.array([1.0, 2.0, 0.5, 0.0, 3.0])
    found = score(probs, None, weights)
    for row in range(5):
        others = np.setdiff1d(np.arange(5), row)
        alone = score(probs[:, [row]], probs[:, others], weights[others])
        assert found[row] == pytest.approx(alone[0], abs=1e-12)
    assert score(probs[:, :1]).tolist() == [0.0]


def test_bounds_on_a_thousand_posteriors() -> None:
    """0 <= EPIG <= BALD <= entropy, for the same label and for all labels together."""
    rng = np.random.default_rng(0)
    for seed in range(125):
        probs = shared(rows=8, seed=seed, size=float(rng.gamma(2.0)))
        probs = np.where(rng.random(probs.shape[1:]) < 0.1, probs.round(), probs)
        targets = shared(rows=3, seed=seed + 1000, size=2.0)
        targets[:, 0] = probs[:, 1]
        same, joint = epig(probs, targets, correct=False), epig_joint(probs, targets)
        together = bald_joint(probs).score
        assert (same >= 0).all() and (joint >= 0).all(), f"seed {seed}"
        assert (same <= bald(probs) + 1e-12).all() and (joint <= together + 1e-12).all(), f"seed {seed}"
        assert (bald(probs) <= entropy(probs) + 1e-12).all(), f"seed {seed}"


def test_all_pairs_pass_bald() -> None:
    """Why the bound is not claimed for all pairs: L^2 log 2 against L log 2."""
    probs = np.repeat([0.0, 1.0], 100)[:, None, None] * np.ones((200, 2, 3))
    np.testing.assert_allclose(epig(probs, pairs="all", correct=False), 9 * math.log(2), atol=1e-12)
    np.testing.assert_allclose(bald(probs), 3 * math.log(2), atol=1e-12)
    np.testing.assert_allclose(epig_joint(probs), math.log(2), atol=1e-12)


def test_certain_targets_give_nothing() -> None:
    probs = shared()
    targets = np.ones((200, 2, 2)) * np.array([0.0, 1.0])
    for score in (epig, epig_joint):
        np.testing.assert_allclose(score(probs, targets), 0, atol=1e-12)


def test_correction_takes_off_the_floor_of_independent_rows() -> None:
    """The truth is 0: the plug-in is clearly above it, the corrected one within its standard error."""
    plain, corrected = [], []
    for seed in range(40):
        probs, targets = shared(seed=seed, rows=4), shared(seed=seed + 500, rows=4)
        plain.append(epig(probs, targets, correct=False).mean())
        corrected.append(epig(probs, targets).mean())
    error = np.std(corrected, ddof=1) / math.sqrt(40)
    assert np.mean(plain) > 8 * error
    assert abs(np.mean(corrected)) < 4 * error, f"{np.mean(corrected):.2e} +- {error:.1e}, seeds 0..39"


def test_correction_is_the_mean_over_permutations_of_the_targets() -> None:
    probs, targets = shared(seed=1), shared(seed=2)
    floor = epig(probs, targets, correct=False) - epig(probs, targets)
    rng = np.random.default_rng(0)
    permuted = np.array([epig(probs, targets[rng.permutation(200)], correct=False) for _ in range(400)])
    error = permuted.std(axis=0, ddof=1) / 20
    # Second order in the covariance: what is left out is a few per cent of the floor at 200 draws.
    assert (np.abs(permuted.mean(axis=0) - floor) < 4 * error + 0.05 * floor).all()


def test_correction_comes_nearer_to_the_known_information() -> None:
    """Fifty Gaussian parameters a label, sixty targets: truth from 20 000 draws of the same model."""
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((12, 50)) / math.sqrt(50), rng.standard_normal((60, 50)) / math.sqrt(50)

    def draw(samples: int, seed: int) -> list[Any]:
        theta = 2 * np.random.default_rng(seed).standard_normal((samples, 50, 3))
        return [1 / (1 + np.exp(-np.einsum("nd,sdl->snl", side, theta))) for side in (X, Z)]

    truth = epig(*draw(20000, 1))
    plain, corrected = 0.0, 0.0
    for seed in range(2, 12):
        both = draw(200, seed)
        plain += float(((epig(*both, correct=False) - truth) ** 2).mean())
        corrected += float(((epig(*both) - truth) ** 2).mean())
    assert corrected < plain / 3, f"squared errors {corrected:.2e} and {plain:.2e}, seeds 2..11"


def test_order_of_draws_and_labels_does_not_matter() -> None:
    draws = shared(labels=3)
    rng = np.random.default_rng(1)
    other = draws[rng.permutation(200)][:, :, rng.permutation(3)]
    for score in (epig, epig_joint):
        np.testing.assert_allclose(
            score(other[:, :3], other[:, 3:]), score(draws[:, :3], draws[:, 3:]), atol=1e-12
        )


def test_entries_read_targets_and_weights() -> None:
    draws, weights = shared(), np.array([1.0, 0.0])
    problem = Problem(probs=draws[:, :3], target_probs=lambda: draws[:, 3:], weights=weights)
    for entry, score in zip(ENTRIES, (epig, epig_joint), strict=True):
        np.testing.assert_allclose(entry.score(problem), score(draws[:, :3], draws[:, [3]]), atol=1e-12)
        np.testing.assert_allclose(entry.score(Problem(probs=draws)), score(draws))


def test_bad_input_is_refused() -> None:
    draws = shared()
    with pytest.warns(UserWarning, match="20 draws: epig needs at least 200"):
        epig(draws[:20])
    with pytest.warns(UserWarning, match="20 draws: epig_joint needs at least 200"):
        epig_joint(draws[:20])
    with pytest.raises(ValueError, match="target_probs must have the draws and labels of probs"):
        epig(draws, shared(samples=201))
    with pytest.raises(ValueError, match="pairs must be 'same' or 'all', got 'none'"):
        epig(draws, pairs="none")
    with pytest.raises(ValueError, match="not run: cost of 'epig_joint'.*up to 6 labels, these draws have 7"):
        epig_joint(shared(labels=7))
    with pytest.raises(ValueError, match="weights must be 5 finite numbers"):
        epig(draws, None, np.ones(4))
    bad = draws.copy()
    bad[3, 2, 1] = np.nan
    with pytest.raises(ValueError, match=r"target_probs .*sample 3, row 2, label 1 is nan"):
        epig(draws, bad)
