"""Batches by information against brute force over every label configuration and every batch."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

from labelzoo.acquisition import PoolExhausted
from labelzoo.acquisition.batch_bald import ENTRIES, batch_bald, batch_information
from labelzoo.acquisition.information import bald, bald_joint
from labelzoo.acquisition.problem import Problem


def shared(samples: int = 30, rows: int = 6, labels: int = 2, seed: int = 0, size: float = 1.5) -> Any:
    rng = np.random.default_rng(seed)
    logits = np.tensordot(rng.standard_normal((samples, 3)), rng.standard_normal((3, rows, labels)), axes=1)
    return 1 / (1 + np.exp(-size * logits))


def by_configurations(probs: Any, rows: Any) -> float:
    """I(labels of rows; draw) over 2^(rows labels) label configurations, in plain loops."""
    samples = len(probs)
    cells = probs[:, list(rows)].reshape(samples, -1)
    total = 0.0
    for y in itertools.product((0, 1), repeat=cells.shape[1]):
        under = [
            math.prod(p if v else 1 - p for p, v in zip(cells[s], y, strict=True)) for s in range(samples)
        ]
        mixture = sum(under) / samples
        total += sum(u / samples * math.log(u / mixture) for u in under if u > 0)
    return total


def test_information_of_pairs_equals_brute_force() -> None:
    """Two rows, two labels: 16 label configurations, for every pair of rows."""
    probs = shared()
    for pair in itertools.combinations(range(6), 2):
        assert batch_information(probs, pair) == pytest.approx(by_configurations(probs, pair), abs=1e-10)


@pytest.mark.parametrize("labels", [1, 2, 3])
def test_greedy_gains_equal_brute_force(labels: int) -> None:
    probs = shared(labels=labels, seed=labels)
    found = batch_bald(probs, 3, saturation=math.inf)
    chosen: list[int] = []
    before = 0.0
    for row, gain in zip(found.rows, found.gains, strict=True):
        values = {n: by_configurations(probs, [*chosen, n]) for n in range(6) if n not in chosen}
        assert row == max(values, key=lambda n: values[n])
        assert gain == pytest.approx(values[row] - before, abs=1e-10)
        before = values[row]
        chosen.append(int(row))
    assert found.information == pytest.approx(before, abs=1e-10) and found.error == 0
    assert (np.diff(found.gains) <= 1e-12).all()
    best = max(by_configurations(probs, trio) for trio in itertools.combinations(range(6), 3))
    assert found.information >= (1 - math.exp(-1)) * best


@pytest.mark.parametrize("outcomes", [1, 4])
def test_drawn_configurations_agree_with_enumeration(outcomes: int) -> None:
    """Drawn from the first row on, and after one enumerated row."""
    probs = shared(labels=2)
    for seed in range(6):
        drawn = batch_bald(probs, 4, outcomes=outcomes, vectors=3000, saturation=math.inf, seed=seed)
        exact = batch_information(probs, drawn.rows)
        assert 0 < drawn.error < 0.05
        assert abs(drawn.information - exact) < 4 * drawn.error, f"seed {seed}"


def test_drawn_outcomes_of_many_labels_agree_with_enumeration() -> None:
    probs = shared(labels=7, rows=3, size=0.6)
    drawn = batch_bald(probs, 2, outcomes=1, vectors=6000, saturation=math.inf)
    assert abs(drawn.information - batch_information(probs, drawn.rows)) < 4 * drawn.error
    alone = bald_joint(probs).score
    assert drawn.gains[0] == pytest.approx(alone[drawn.rows[0]], abs=0.1)


def test_shuffled_draws_destroy_the_sharing() -> None:
    """Two copies of a row add less than two rows whose draws are not aligned."""
    probs = shared(samples=200, rows=1, labels=1)
    copies = np.concatenate([probs, probs], axis=1)
    shuffled = np.concatenate([probs, probs[np.random.default_rng(0).permutation(200)]], axis=1)
    assert batch_information(copies, [0, 1]) < batch_information(shuffled, [0, 1]) - 0.05


def test_a_copy_of_the_best_row_comes_last_where_bald_takes_it_second() -> None:
    probs = shared(samples=200, rows=6, labels=2, size=2.5)
    best = int(np.argmax(bald_joint(probs).score))
    doubled = np.concatenate([probs, probs[:, [best]]], axis=1)
    found = batch_bald(doubled, 2, saturation=math.inf)
    assert found.rows[0] in (best, 6) and found.rows[1] not in (best, 6)


def test_saturation_stops_and_fills_at_random() -> None:
    probs = np.random.default_rng(0).beta(0.1, 0.1, (20, 30, 4))
    found = batch_bald(probs, 8)
    assert found.saturated_after is not None and 1 <= found.saturated_after < 8
    assert found.information > 0.8 * math.log(20)
    assert np.isnan(found.gains[found.saturated_after :]).all()
    assert np.isfinite(found.gains[: found.saturated_after]).all()
    assert len(set(found.rows.tolist())) == 8
    other = batch_bald(probs, 8, seed=1)
    assert list(other.rows[-3:]) != list(found.rows[-3:])
    assert batch_bald(probs, 8, saturation=math.inf).information <= math.log(20) + 1e-9


def test_the_sum_over_labels_is_an_upper_bound_and_the_form_for_many_labels() -> None:
    probs = shared(labels=3)
    for pair in itertools.combinations(range(6), 2):
        apart = batch_information(probs, pair, form="labels")
        assert apart >= batch_information(probs, pair) - 1e-12
        alone = sum(by_configurations(probs[:, :, [label]], pair) for label in range(3))
        assert apart == pytest.approx(alone, abs=1e-10)
    found = batch_bald(shared(labels=15, size=0.5), 3)
    assert found.form == "labels" and found.error == 0 and found.saturated_after is None
    assert found.information == pytest.approx(
        batch_information(shared(labels=15, size=0.5), found.rows, form="labels"), abs=1e-10
    )
    assert found.gains[0] == pytest.approx(bald(shared(labels=15, size=0.5)).max(), abs=1e-10)


def test_order_of_draws_and_labels_does_not_matter() -> None:
    probs = shared()
    rng = np.random.default_rng(1)
    other = batch_bald(probs[rng.permutation(30)][:, :, ::-1], 4, saturation=math.inf)
    same = batch_bald(probs, 4, saturation=math.inf)
    assert list(other.rows) == list(same.rows)
    np.testing.assert_allclose(other.gains, same.gains, atol=1e-10)


def test_entry_reports_and_scores() -> None:
    probs = shared(samples=200)
    choice = ENTRIES[0](Problem(probs=lambda: probs), 3)
    assert set(choice.report) == {"information", "monte_carlo_error", "saturated_after", "form"}
    np.testing.assert_allclose(ENTRIES[0].score(Problem(probs=probs)), bald_joint(probs).score)
    with pytest.raises(ValueError, match="'batchbald' needs probs"):
        ENTRIES[0](Problem(), 3)


def test_bad_input_is_refused() -> None:
    with pytest.raises(PoolExhausted):
        batch_bald(np.zeros((5, 0, 2)), 2)
    with pytest.raises(ValueError, match="form must be 'auto', 'joint' or 'labels', got 'both'"):
        batch_bald(shared(), 2, form="both")
    bad = shared()
    bad[4, 3, 1] = np.nan
    with pytest.raises(ValueError, match="sample 4, row 3, label 1 is nan"):
        batch_bald(bad, 2)
    with pytest.raises(ValueError, match=r"2\^30 configurations"):
        batch_information(shared(labels=5), range(6))
