"""Metrics against scikit-learn, against brute force, and at their undefined edges."""

import warnings
from itertools import permutations

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.metrics import average_precision_score, roc_auc_score

from labelzoo.data import LabelData, metrics
from labelzoo.data.metrics import averages

NAN = np.nan


def problem(seed: int, shape: tuple[int, int] = (60, 9), ties: bool = True) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    Y = (rng.random(shape) < rng.random(shape[1])).astype(np.int8)
    scores = np.clip(0.4 * Y + 0.6 * rng.random(shape), 0, 1)
    return Y, np.round(scores, 1) if ties else scores


def reference_auc(Y: np.ndarray, scores: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Return scikit-learn's AUC of each row over its observed cells, NaN without both classes."""
    result = []
    for y, s, o in zip(Y, scores, seen, strict=True):
        both = len(set(y[o].tolist())) == 2
        result.append(roc_auc_score(y[o], s[o]) if both else NAN)
    return np.array(result)


@pytest.mark.parametrize("ties", [True, False])
@pytest.mark.parametrize("hidden", [0.0, 0.4])
@pytest.mark.parametrize("seed", range(3))
def test_auc_equals_scikit_learn(seed: int, hidden: float, ties: bool) -> None:
    Y, scores = problem(seed, ties=ties)
    seen = np.random.default_rng(seed + 50).random(Y.shape) >= hidden
    rows = metrics.per_example_auc(Y, scores, seen)
    np.testing.assert_allclose(rows.each, reference_auc(Y, scores, seen), rtol=1e-12)
    labels = metrics.macro_auc(Y, scores, seen)
    np.testing.assert_allclose(labels.each, reference_auc(Y.T, scores.T, seen.T), rtol=1e-12)
    assert rows.value == pytest.approx(np.nanmean(rows.each))
    assert rows.num_undefined == np.isnan(rows.each).sum()
    assert metrics.micro_auc(Y, scores, seen) == pytest.approx(roc_auc_score(Y[seen], scores[seen]))
    average = metrics.macro_average_precision(Y, scores, seen)
    wanted = [average_precision_score(Y[o, j], scores[o, j]) for j, o in enumerate(seen.T)]
    np.testing.assert_allclose(average.each, wanted, rtol=1e-12)


def test_blocks_do_not_change_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    Y, scores = problem(7)
    whole = metrics.per_example_auc(Y, scores)
    monkeypatch.setattr(averages, "BLOCK_CELLS", 20)
    np.testing.assert_array_equal(metrics.per_example_auc(Y, scores).each, whole.each)
    blocks = metrics.macro_average_precision(Y, scores).each
    monkeypatch.undo()
    np.testing.assert_array_equal(metrics.macro_average_precision(Y, scores).each, blocks)


def test_label_without_both_classes_is_undefined_and_counted() -> None:
    Y = np.array([[1, 0], [1, 0], [0, 0]])
    scores = np.array([[0.9, 0.1], [0.2, 0.3], [0.4, 0.5]])
    auc = metrics.macro_auc(Y, scores)
    np.testing.assert_array_equal(auc.each, [0.5, NAN])
    assert (auc.value, auc.num_undefined) == (0.5, 1)
    precision = metrics.macro_average_precision(Y, scores)
    assert np.isnan(precision.each[1])
    assert precision.num_undefined == 1
    assert precision.value == pytest.approx(average_precision_score(Y[:, 0], scores[:, 0]))


def test_nothing_defined_gives_nan_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = metrics.evaluate(np.full((3, 2), NAN), np.full((3, 2), 0.5))
        empty = metrics.evaluate(np.zeros((3, 2)), np.full((3, 2), 0.5))
        none = metrics.evaluate(np.zeros((0, 2)), np.zeros((0, 2)))
    assert result["observed_cells"] == 0
    assert (result["log_score_undefined"], result["per_example_auc_undefined"]) == (3, 3)
    assert (result["macro_auc_undefined"], result["precision_at_1_undefined"]) == (2, 3)
    for key in (
        "log_score",
        "per_example_auc",
        "macro_auc",
        "micro_auc",
        "precision_at_3",
        "calibration_error",
    ):
        assert np.isnan(result[key])
    assert np.isnan(empty["micro_auc"])
    assert empty["precision_at_1"] == 0.0
    assert np.isnan(none["log_score"])


def test_constant_scores_are_a_coin() -> None:
    Y, _ = problem(1)
    flat = np.full(Y.shape, 0.3)
    assert metrics.per_example_auc(Y, flat).value == 0.5
    assert metrics.macro_auc(Y, flat).value == 0.5
    expected = np.mean(Y.mean(axis=1))
    assert metrics.precision_at_k(Y, flat, 3).value == pytest.approx(expected)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 9])
def test_precision_at_k_averages_over_the_orders_of_ties(k: int) -> None:
    scores = np.array([0.7, 0.7, 0.2, 0.7])
    y = np.array([1, 0, 1, 0])
    orders = [p for p in permutations(range(4)) if list(scores[list(p)]) == sorted(scores, reverse=True)]
    wanted = np.mean([y[list(p)][:k].mean() for p in orders])
    assert metrics.precision_at_k(y[None], scores[None], k).value == pytest.approx(wanted)


def test_precision_at_k_skips_unobserved_labels() -> None:
    Y = np.array([[1, NAN, 0, 1], [NAN] * 4, [0, 0, 0, 0]])
    scores = np.tile([0.1, 0.9, 0.5, 0.3], (3, 1))
    result = metrics.precision_at_k(Y, scores, 2)
    np.testing.assert_array_equal(result.each, [0.5, NAN, 0.0])
    assert result.num_undefined == 1


def test_log_score() -> None:
    Y = np.array([[1, 0], [NAN, 1], [NAN, NAN]])
    probs = np.array([[0.8, 0.3], [NAN, 0.25], [0.5, 0.5]])
    result = metrics.log_score(Y, probs)
    np.testing.assert_allclose(result.each, [np.log(0.8) + np.log(0.7), np.log(0.25), NAN])
    assert result.num_undefined == 1
    certain = metrics.log_score([[1, 0, 1]], [[1.0, 0.0, 0.0]])
    assert certain.value == pytest.approx(np.log(metrics.CLIP), rel=1e-6)
    tiny = metrics.log_score([[0]], [[1e-10]], clip=1e-15)
    assert tiny.value == pytest.approx(-1e-10, rel=1e-6)


def test_log_score_is_proper() -> None:
    truth = 0.37
    grid = np.linspace(0.01, 0.99, 99)
    expected = [
        truth * metrics.log_score([[1]], [[p]]).value + (1 - truth) * metrics.log_score([[0]], [[p]]).value
        for p in grid
    ]
    assert grid[int(np.argmax(expected))] == pytest.approx(truth)


def test_calibration_error() -> None:
    probs = np.array([[0.2, 0.2, 0.2, 0.2, 0.2], [0.9, 0.9, 1.0, 1.0, 0.95]])
    Y = np.array([[1, 0, 0, 0, 0], [1, 1, 0, 1, 1]])
    assert metrics.expected_calibration_error(Y, probs) == pytest.approx((0.0 * 5 + abs(4 - 4.75)) / 10)
    assert metrics.expected_calibration_error(Y, Y.astype(float)) == 0.0
    assert metrics.expected_calibration_error(1 - Y, Y.astype(float)) == 1.0
    Y_hidden = np.where(probs > 0.5, NAN, Y)
    assert metrics.expected_calibration_error(Y_hidden, probs) == pytest.approx(0.0)


def test_top_label_calibration_error() -> None:
    Y = np.array([[1, 0, 0], [1, 0, 0], [NAN, 0, 1], [NAN, NAN, NAN]])
    probs = np.array([[0.8, 0.1, 0.2], [0.1, 0.8, 0.8], [0.99, 0.3, 0.3], [0.5, 0.5, 0.5]])
    # Tops: 0.8 right; 0.8 tied and wrong twice; 0.3 tied, one of two right.
    wanted = (abs(1 + 0 - 1.6) + abs(0.5 - 0.3)) / 3
    assert metrics.top_label_calibration_error(Y, probs) == pytest.approx(wanted)


def test_calibrated_probabilities_have_a_small_error() -> None:
    rng = np.random.default_rng(11)
    probs = rng.random((20_000, 4))
    Y = rng.random(probs.shape) < probs
    # Each of ten bins holds about 8000 cells with a binomial sd below 0.5 / sqrt(8000) = 0.0056.
    assert metrics.expected_calibration_error(Y, probs) < 5 * 0.0056
    assert metrics.expected_calibration_error(Y, probs**2) > 0.1


@pytest.mark.parametrize(
    "kind", [sparse.csr_array, sparse.csc_matrix, np.asarray, jnp.asarray, np.ndarray.tolist]
)
def test_every_type_gives_the_same_numbers(kind: object) -> None:
    Y, scores = problem(2)
    wanted = metrics.evaluate(Y, scores)
    assert metrics.evaluate(kind(Y), jnp.asarray(scores)) == wanted  # type: ignore[operator]
    assert all(isinstance(value, (int, float)) for value in wanted.values())


def test_nan_and_mask_mean_the_same() -> None:
    Y, scores = problem(4)
    seen = np.random.default_rng(5).random(Y.shape) > 0.3
    assert metrics.evaluate(np.where(seen, Y, NAN), scores) == metrics.evaluate(Y, scores, seen)
    other = np.where(seen, scores, 1 - scores)
    assert metrics.evaluate(Y, other, seen) == metrics.evaluate(Y, scores, seen)


@pytest.mark.parametrize(
    ("Y", "scores", "options", "message"),
    [
        (np.ones((2, 2)), np.ones((2, 3)), {}, r"one shape \(rows, labels\): \(2, 2\), \(2, 3\)"),
        (np.ones(2), np.ones(2), {}, r"one shape"),
        ([[2, 0]], [[0.1, 0.2]], {}, r"Y_true may hold 0, 1 or NaN only: row 0, label 0: 2$"),
        ([["a", "b"]], [[0.1, 0.2]], {}, r"Y_true must hold 0, 1 or NaN, got dtype <U1"),
        ([[1, 0]], [[0.1, NAN]], {}, r"scores must be finite: row 0, label 1: nan"),
        ([[1, 0]], [[1.1, 0.2]], {}, r"probabilities must lie in \[0, 1\]: row 0, label 0: 1\.1"),
        ([[1, 0]], [[0.1, 0.2]], {"observed": [[1, 0]]}, r"observed must be bool of shape \(1, 2\)"),
        ([[1, 0]], [[0.1, 0.2]], {"observed": [[True]]}, r"observed must be bool of shape \(1, 2\)"),
        ([[1, 0]], [[0.1, 0.2]], {"ks": (0,)}, r"k must be at least 1, got 0"),
    ],
)
def test_bad_arguments(Y: object, scores: object, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        metrics.evaluate(Y, scores, **options)


def test_clip_and_bins_are_checked() -> None:
    with pytest.raises(ValueError, match="clip must lie between 0 and 0.5"):
        metrics.log_score([[1]], [[0.5]], clip=0.0)
    with pytest.raises(ValueError, match="bins must be at least 1"):
        metrics.expected_calibration_error([[1]], [[0.5]], bins=0)


def test_a_part_of_a_table_and_its_own_names_go_together() -> None:
    whole = LabelData(np.eye(6), np.eye(6)[:, :3], label_names=["a", "b", "c"])
    part = whole.subset(rows=[4, 1, 0])
    probs = np.full((3, 3), 0.5)
    for index in (part.example_names, [4, 1, 0]):
        frame = pd.DataFrame(probs, columns=part.label_names, index=list(index))
        assert np.isfinite(metrics.log_score(part, frame).value)
    with pytest.raises(ValueError, match="differ in their rows"):
        metrics.log_score(
            part, pd.DataFrame(probs, columns=part.label_names, index=["row 4", "row 0", "row 1"])
        )


def test_names_that_end_alike_are_not_alike() -> None:
    films = LabelData(np.eye(2), np.eye(2), example_names=["film7", "film8"])
    with pytest.raises(ValueError, match="differ in their rows"):
        metrics.log_score(films, pd.DataFrame(np.full((2, 2), 0.5), index=["tape7", "tape8"]))
