"""Decisions of highest expected utility against enumeration of every label set; thresholds."""

from itertools import product

import numpy as np
import pytest
from scipy import sparse
from sklearn import metrics as sk

from labelzoo.data import metrics
from labelzoo.data.metrics import decide, expected_f

NAN = np.nan


def all_sets(length: int) -> np.ndarray:
    return np.array(list(product([0, 1], repeat=length)))


def law(probs: np.ndarray) -> np.ndarray:
    """Return the probability of every label set under each draw (draws, 2^l), from probs (draws, l)."""
    sets = all_sets(probs.shape[1])
    return np.prod(np.where(sets == 1, probs[:, None], 1 - probs[:, None]), axis=2)


def f1(truth: np.ndarray, chosen: np.ndarray, empty: float) -> float:
    total = truth.sum() + chosen.sum()
    return 2 * (truth & chosen).sum() / total if total else empty


def f1_table(length: int, empty: float) -> np.ndarray:
    sets = all_sets(length)
    return np.array([[f1(y, h, empty) for h in sets] for y in sets])


def draws_of(seed: int, shape: tuple[int, int, int]) -> np.ndarray:
    """Return draws with certain cells among them and labels that move together."""
    rng = np.random.default_rng(seed)
    shift = rng.normal(0, 2, (shape[0], 1, 1))
    draws = 1 / (1 + np.exp(-rng.normal(-0.5, 1, shape) - shift))
    draws[0, 0, 0], draws[-1, -1, -1] = 0, 1
    return draws


@pytest.mark.parametrize("empty", [0.0, 1.0])
@pytest.mark.parametrize("length", [1, 2, 5, 8])
def test_f1_example_is_the_exact_maximiser(length: int, empty: float) -> None:
    draws = draws_of(length, (6, 4, length))
    found = decide(draws, "f1_example", empty=empty)
    table = f1_table(length, empty)
    for i in range(4):
        each = law(draws[:, i]) @ table  # (draws, chosen set)
        assert found.each[i] == pytest.approx(each.mean(axis=0).max(), rel=1e-12)
        chosen = found.labels.toarray()[i]
        at = int(chosen @ 2 ** np.arange(length)[::-1])
        assert found.each[i] == pytest.approx(each[:, at].mean(), rel=1e-12)
        assert found.each_error[i] == pytest.approx(each[:, at].std(ddof=1) / np.sqrt(6), rel=1e-9)


def test_f1_macro_takes_the_best_number_of_rows() -> None:
    rows = 6
    draws = draws_of(11, (5, rows, 3))
    found = decide(draws, "f1_macro", empty=0.5)
    table, sets = f1_table(rows, 0.5), all_sets(rows)
    values = []
    for j in range(3):
        each = law(draws[:, :, j]) @ table
        order = np.argsort(-draws[:, :, j].mean(axis=0))
        tops = [np.isin(np.arange(rows), order[:m]).astype(int) for m in range(rows + 1)]
        at = [int(np.flatnonzero((sets == top).all(axis=1))[0]) for top in tops]
        best = int(np.argmax(each.mean(axis=0)[at]))
        np.testing.assert_array_equal(found.labels.toarray()[:, j], tops[best])
        assert found.each[j] == pytest.approx(each.mean(axis=0)[at[best]], rel=1e-12)
        values.append(each[:, at[best]])
    assert found.value == pytest.approx(np.mean(values))
    assert found.error == pytest.approx(np.mean(values, axis=0).std(ddof=1) / np.sqrt(5), rel=1e-9)


def test_f1_macro_of_one_draw_is_the_exact_maximiser() -> None:
    draws = draws_of(12, (1, 7, 2))
    found = decide(draws, "f1_macro")
    for j in range(2):
        assert found.each[j] == pytest.approx((law(draws[:, :, j]) @ f1_table(7, 1.0)).max(), rel=1e-12)
    assert np.isnan(found.error)
    assert np.isnan(found.each_error).all()


def test_draws_of_label_vectors_are_certain_draws() -> None:
    rng = np.random.default_rng(13)
    vectors = rng.integers(0, 2, (9, 3, 4))
    table, sets = f1_table(4, 1.0), all_sets(4)
    f, subset = decide(vectors, "f1_example"), decide(vectors, "subset")
    for i in range(3):
        at = vectors[:, i] @ 2 ** np.arange(4)[::-1]
        assert f.each[i] == pytest.approx(table[at].mean(axis=0).max(), rel=1e-12)
        assert subset.each[i] == pytest.approx(np.bincount(at).max() / 9, rel=1e-9)
        assert (sets[np.bincount(at).argmax()] == subset.labels.toarray()[i]).all() or (
            np.bincount(at).max() == (at == subset.labels.toarray()[i] @ 2 ** np.arange(4)[::-1]).sum()
        )


def test_subset_is_a_local_maximum_of_the_posterior() -> None:
    draws = draws_of(14, (5, 60, 5))
    found = decide(draws, "subset")
    sets, chosen = all_sets(5), found.labels.toarray()
    hits = 0
    for i in range(60):
        values = law(draws[:, i]).mean(axis=0)
        at = int(chosen[i] @ 2 ** np.arange(5)[::-1])
        assert found.each[i] == pytest.approx(values[at], rel=1e-9)
        near = np.abs(sets - chosen[i]).sum(axis=1) <= 1
        starts = np.concatenate([draws[:, i] > 0.5, draws[:, i].mean(axis=0, keepdims=True) > 0.5])
        tried = starts.astype(int) @ 2 ** np.arange(5)[::-1]
        assert values[at] >= max(values[near].max(), values[tried].max()) * (1 - 1e-9)
        hits += values[at] >= values.max() * (1 - 1e-9)
    assert hits >= 57  # a local maximum that is not the global one is rare here


def test_joint_choices_differ_from_marginal_ones() -> None:
    # Two draws, of weights 3 : 2, in which either both labels or neither are almost sure.
    draws = np.array([[[0.1, 0.1, 0.6]]] * 3 + [[[0.95, 0.95, 0.6]]] * 2)
    assert decide(draws, "hamming").labels.toarray().tolist() == [[0, 0, 1]]
    assert decide(draws, "f1_example").labels.toarray().tolist() == [[1, 1, 1]]


def test_hamming_and_cost() -> None:
    draws = draws_of(15, (7, 5, 4))
    mean = draws.mean(axis=0)
    found = decide(draws, "hamming")
    np.testing.assert_array_equal(found.labels.toarray(), mean > 0.5)
    right = np.where(mean > 0.5, draws, 1 - draws).mean(axis=2)
    np.testing.assert_allclose(found.each, right.mean(axis=0))
    np.testing.assert_allclose(found.each_error, right.std(axis=0, ddof=1) / np.sqrt(7))
    assert found.error == pytest.approx(right.mean(axis=1).std(ddof=1) / np.sqrt(7))
    paid = decide(draws, "cost", cost=(1, 3))
    np.testing.assert_array_equal(paid.labels.toarray(), mean > 0.25)
    np.testing.assert_allclose(paid.each, -np.where(mean > 0.25, 1 - mean, 3 * mean).sum(axis=1))
    chains = decide(draws[:6].reshape(2, 3, 5, 4), "hamming")
    np.testing.assert_array_equal(chains.each, decide(draws[:6], "hamming").each)
    assert isinstance(found.labels, sparse.csr_array)
    assert found.labels.dtype == np.int8


@pytest.mark.parametrize("utility", ["hamming", "subset", "f1_example", "f1_macro"])
def test_the_value_is_what_simulated_truths_give(utility: str) -> None:
    draws = draws_of(16, (4, 5, 6))
    found = decide(draws, utility)
    rng = np.random.default_rng(17)
    chosen = found.labels.toarray()
    values = []
    for _ in range(1500):
        Y = (rng.random((5, 6)) < draws[rng.integers(4)]).astype(int)
        values.append(
            {
                "hamming": lambda Y: 1 - metrics.hamming_loss(Y, chosen),
                "subset": lambda Y: metrics.subset_accuracy(Y, chosen).value,
                "f1_example": lambda Y: metrics.f_score(Y, chosen, "example", zero_division=1).value,
                "f1_macro": lambda Y: metrics.f_score(Y, chosen, "macro", zero_division=1).value,
            }[utility](Y)
        )
    z = (np.mean(values) - found.value) / (np.std(values) / np.sqrt(len(values)))
    assert abs(z) < 5, f"seeds 16 and 17, z = {z:.2f}"


def test_many_items_are_integrated_closely(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(18)
    for probs in (rng.random((2, 300)), rng.random((2, 300)) ** 8, 1 - rng.random((2, 300)) / 100):
        monkeypatch.setattr(expected_f, "MAX_NODES", 300)
        chosen, exact = expected_f.best_set(probs, expected_f.nodes(300), 1.0)
        number, values = expected_f.best_number(probs, expected_f.nodes(300), 1.0)
        monkeypatch.setattr(expected_f, "MAX_NODES", 256)
        for found, wanted in (
            (expected_f.best_set, (chosen, exact)),
            (expected_f.best_number, (number, values)),
        ):
            near = found(probs, expected_f.nodes(300), 1.0)
            np.testing.assert_array_equal(near[0], wanted[0])
            np.testing.assert_allclose(near[1], wanted[1], rtol=1e-10)
    # All outcomes certain: F1 is 1, an integral of t to the power 2 m - 1.
    certain = np.ones((1, 20_000))
    grid = expected_f.nodes(20_000)
    product = np.ones((1, len(grid.t))) * grid.t**20_000
    value = expected_f.draw_values(certain[:, :1], product, np.zeros(1, np.int64), grid, 1.0)
    # With one chosen: 2 / 20001.
    assert value[0] == pytest.approx(2 / 20_001, rel=1e-11)


@pytest.mark.parametrize(
    ("draws", "options", "message"),
    [
        (
            np.zeros((2, 3)),
            {},
            r"draws must be numbers \(sample, rows, labels\), got float64 of shape \(2, 3\)",
        ),
        (np.zeros((0, 2, 3)), {}, r"draws are empty: shape \(0, 2, 3\)"),
        (np.full((2, 1, 1), 1.2), {}, r"draws must lie in \[0, 1\]: draw 0, row 0, label 0: 1\.2"),
        (np.array([[[0.5]], [[NAN]]]), {}, r"draw 1, row 0, label 0: nan"),
        (np.zeros((1, 1, 1)), {"utility": "f1"}, "utility must be one of hamming, cost, subset, f1_example"),
        (np.zeros((1, 1, 1)), {"utility": "cost"}, "cost = .* goes with utility='cost', and only with it"),
        (np.zeros((1, 1, 1)), {"cost": (1, 1)}, "cost = .* goes with utility='cost', and only with it"),
        (
            np.zeros((1, 1, 1)),
            {"utility": "cost", "cost": (0, 0)},
            "cost must be two numbers >= 0, not both 0",
        ),
        (np.zeros((1, 1, 1)), {"empty": 2}, r"empty must lie in \[0, 1\], got 2"),
    ],
)
def test_bad_draws(draws: np.ndarray, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decide(draws, **options)


SCORES = {
    "f1": lambda y, h: sk.f1_score(y, h, zero_division=0),
    "jaccard": lambda y, h: sk.jaccard_score(y, h, zero_division=0),
    "accuracy": sk.accuracy_score,
    "balanced_accuracy": sk.balanced_accuracy_score,
}


@pytest.mark.parametrize("metric", SCORES)
def test_tuned_thresholds_are_the_best_there_are(metric: str) -> None:
    rng = np.random.default_rng(19)
    probs = np.round(rng.random((40, 5)), 1)
    Y = (rng.random(probs.shape) < probs**2).astype(float)
    seen = rng.random(probs.shape) > 0.2
    found = metrics.tune_thresholds(
        np.where(seen, Y, NAN), np.where(seen, probs, NAN), metric, min_positives=0
    )
    decided = metrics.apply_thresholds(probs, found).toarray()
    for j in range(5):
        y, p = Y[seen[:, j], j], probs[seen[:, j], j]
        best = max(SCORES[metric](y, p >= t) for t in [*np.unique(p), 2.0])
        assert found.values[j] == pytest.approx(best)
        assert SCORES[metric](y, decided[seen[:, j], j]) == pytest.approx(best)
    assert found.num_pooled == 0
    np.testing.assert_array_equal(found.num_positives, (Y * seen).sum(axis=0))


def test_rare_labels_get_the_pooled_threshold() -> None:
    rng = np.random.default_rng(21)
    probs = rng.random((60, 3))
    Y = (rng.random(probs.shape) < probs).astype(int)
    Y[:, 1], Y[:, 2] = 0, 0
    Y[:2, 2] = 1
    found = metrics.tune_thresholds(Y, probs)
    pooled = metrics.tune_thresholds(Y.reshape(-1, 1), probs.reshape(-1, 1)).thresholds[0]
    assert found.pooled == pooled
    assert found.thresholds.tolist()[1:] == [pooled, pooled]
    assert found.thresholds[0] != pooled
    assert found.num_pooled == 2
    assert found.values[2] == pytest.approx(sk.f1_score(Y[:, 2], probs[:, 2] > pooled, zero_division=0))


def test_thresholds_at_their_edges() -> None:
    none = metrics.tune_thresholds(
        [[0, NAN], [0, NAN]], [[0.4, 0.2], [0.3, 0.1]], "accuracy", min_positives=0
    )
    assert none.thresholds.tolist() == [np.inf, np.inf]
    assert (none.values[0], none.num_pooled) == (1.0, 2)
    assert np.isnan(none.values[1])
    empty = metrics.tune_thresholds(np.full((2, 1), NAN), np.zeros((2, 1)))
    assert (empty.pooled, empty.thresholds.tolist()) == (0.5, [0.5])
    assert metrics.apply_thresholds([[0.2, 0.5, 0.6]], 0.5).toarray().tolist() == [[0, 0, 1]]
    near = np.nextafter(0.5, 1)
    tight = metrics.tune_thresholds([[1], [0]], [[near], [0.5]], min_positives=1)
    assert metrics.apply_thresholds([[near], [0.5]], tight).toarray().ravel().tolist() == [1, 0]
    for call, message in [
        (lambda: metrics.tune_thresholds([[1]], [[0.5]], "auc"), "metric must be one of f1, jaccard"),
        (
            lambda: metrics.tune_thresholds([[1]], [[0.5]], min_positives=-1),
            "min_positives must be at least 0",
        ),
        (
            lambda: metrics.apply_thresholds([[0.5]], [0.1, 0.2]),
            r"a label, \(1,\), not NaN; got shape \(2,\)",
        ),
        (lambda: metrics.apply_thresholds([[NAN]], 0.5), "probs must not be NaN: row 0, label 0"),
        (lambda: metrics.apply_thresholds([0.5], 0.5), "probs must be two-dimensional"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


def test_subset_finds_a_mode_far_from_that_of_the_mean() -> None:
    # The mean prefers all labels, a local maximum of probability 0.26; none at all has 0.40.
    draws = np.array([[[0.9] * 8]] * 3 + [[[0.001] * 8]] * 2)
    found = decide(draws, "subset")
    assert found.labels.nnz == 0
    assert found.value == pytest.approx(0.6 * 0.1**8 + 0.4 * 0.999**8)


def test_subset_improves_on_every_start_by_flips() -> None:
    draws = np.array([[[0.0, 0.2, 0.3, 0.6]], [[0.7, 0.8, 0.7, 0.9]], [[0.9, 0.5, 0.0, 1.0]]])
    values = law(draws[:, 0]).mean(axis=0)
    starts = np.concatenate([draws > 0.5, draws.mean(axis=0, keepdims=True) > 0.5])[:, 0]
    assert values[starts @ 2 ** np.arange(4)[::-1]].max() == pytest.approx(0.1626)
    assert decide(draws, "subset").value == pytest.approx(values.max()) == pytest.approx(0.2004)


def test_of_equally_good_thresholds_the_highest_is_taken() -> None:
    # One hit of one, or two hits of four: F1 is 2/3 either way.
    found = metrics.tune_thresholds([[1], [0], [0], [1]], [[0.9], [0.8], [0.7], [0.6]], min_positives=1)
    assert found.thresholds[0] == pytest.approx(0.85)


def test_evaluate_decides_labels_above_the_threshold() -> None:
    assert metrics.evaluate([[1, 0]], [[0.5, 0.2]], threshold=0.4)["f1_micro"] == 1.0
    assert metrics.evaluate([[1, 0]], [[0.5, 0.2]], threshold=0.5)["f1_micro"] == 0.0
