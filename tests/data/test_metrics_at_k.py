"""Metrics at k: dense, csr and top-k predictions against brute force over orders and against scikit-learn."""

import time
import tracemalloc
from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.metrics import ndcg_score

from labelzoo.data import LabelData, metrics, missing_from_observed
from labelzoo.data.metrics import TopK, averages, top_k

NAN = np.nan


def brute(y: np.ndarray, s: np.ndarray, k: int, p: np.ndarray) -> np.ndarray:
    """Return P, recall, nDCG, PSP, PSnDCG at k of one row, averaged over all orders that sort the scores."""
    seen = ~np.isnan(y)
    y, s, p = y[seen], s[seen], p[seen]
    if not len(y):
        return np.full(5, NAN)
    size, positives = min(k, len(y)), int(y.sum())
    rows = []
    for order in permutations(range(len(y))):
        if (np.diff(s[list(order)]) > 0).any():
            continue
        hits = y[list(order)][:size]
        gain, discount = hits / p[list(order)][:size], 1 / np.log2(np.arange(2, size + 2))
        ideal = discount[: min(size, positives)].sum()
        none = positives == 0
        rows.append(
            [
                hits.mean(),
                NAN if none else hits.sum() / positives,
                NAN if none else (hits * discount).sum() / ideal,
                gain.mean(),
                NAN if none else (gain * discount).sum() / ideal,
            ]
        )
    return np.mean(rows, axis=0)


def all_at_k(Y: object, scores: object, k: int, p: np.ndarray, **known: object) -> np.ndarray:
    return np.stack(
        [
            metrics.precision_at_k(Y, scores, k, **known).each,
            metrics.recall_at_k(Y, scores, k, **known).each,
            metrics.ndcg_at_k(Y, scores, k, **known).each,
            metrics.psp_at_k(Y, scores, p, k, **known).raw.each,
            metrics.psndcg_at_k(Y, scores, p, k, **known).raw.each,
        ],
        axis=1,
    )


cells = st.tuples(st.sampled_from([0.0, 1.0, NAN]), st.integers(0, 3))
tables = st.integers(1, 5).flatmap(
    lambda width: st.lists(st.lists(cells, min_size=width, max_size=width), min_size=1, max_size=4)
)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(tables, st.integers(1, 6))
def test_dense_and_csr_scores_average_over_the_orders_of_ties(table: list, k: int) -> None:
    Y, scores = np.moveaxis(np.array(table, dtype=np.float64), 2, 0)
    p = np.linspace(0.2, 1, Y.shape[1])
    wanted = np.stack([brute(y, s, k, p) for y, s in zip(Y, scores, strict=True)])
    np.testing.assert_allclose(all_at_k(Y, scores, k, p), wanted, atol=1e-12)
    # Absent labels of csr scores tie below all stored ones: here the lowest score, 0, is left out.
    stored = sparse.csr_array(scores)
    np.testing.assert_allclose(all_at_k(Y, stored, k, p), wanted, atol=1e-12)


def test_a_negative_stored_score_is_above_an_absent_one() -> None:
    scores = sparse.csr_array((np.array([-2.0, -1.0]), ([0, 0], [1, 2])), shape=(1, 4))
    assert metrics.precision_at_k([[0, 1, 1, 0]], scores, 2).value == 1.0
    zero = sparse.csr_array((np.array([0.0, -1.0]), ([0, 0], [0, 2])), shape=(1, 4))
    assert metrics.precision_at_k([[1, 0, 0, 0]], zero, 1).value == 1.0


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("k", [1, 3, 8])
def test_ndcg_equals_scikit_learn(k: int, ties: bool) -> None:
    rng = np.random.default_rng(3)
    Y = (rng.random((40, 8)) < 0.3).astype(int)
    scores = rng.random(Y.shape)
    scores = np.round(scores, 1) if ties else scores
    some = Y.any(axis=1)
    assert 0 < some.sum() < 40
    found = metrics.ndcg_at_k(Y, scores, k)
    assert found.value == pytest.approx(ndcg_score(Y[some], scores[some], k=k), rel=1e-12)
    assert found.num_undefined == (~some).sum()


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    Y, scores = (rng.random((30, 7)) < 0.3).astype(int), np.round(rng.random((30, 7)), 1)
    p = np.linspace(0.2, 1, 7)
    whole, best = all_at_k(Y, scores, 3, p), top_k(scores, 3)
    monkeypatch.setattr(averages, "BLOCK_CELLS", 20)
    np.testing.assert_array_equal(all_at_k(Y, scores, 3, p), whole)
    np.testing.assert_array_equal(top_k(scores, 3).labels, best.labels)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(tables, st.data())
def test_top_k_takes_the_lowest_label_of_a_tie(table: list, data: st.DataObject) -> None:
    Y, scores = np.moveaxis(np.array(table, dtype=np.float64), 2, 0)
    k = data.draw(st.integers(1, Y.shape[1]))
    seen = ~np.isnan(Y)
    spoilt = np.where(seen, scores, NAN)
    found = top_k(spoilt, k, observed=seen)
    for i in range(len(Y)):
        order = [j for j in sorted(range(Y.shape[1]), key=lambda j: (-scores[i, j], j)) if seen[i, j]][:k]
        assert found.labels[i].tolist() == order + [-1] * (k - len(order))
        assert found.scores[i, : len(order)].tolist() == scores[i, order].tolist()
    stored = sparse.csr_array(scores + 1)
    np.testing.assert_array_equal(top_k(stored, k, observed=seen).labels, found.labels)
    known = missing_from_observed(seen)
    np.testing.assert_array_equal(top_k(spoilt, k, missing=known).labels, found.labels)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(tables, st.data())
def test_top_k_predictions_equal_dense_ones_without_ties(table: list, data: st.DataObject) -> None:
    Y = np.array(table, dtype=np.float64)[:, :, 0]
    order = np.random.default_rng(len(table)).random(Y.shape).argsort(axis=1)
    width = data.draw(st.integers(1, Y.shape[1]))
    k = data.draw(st.integers(1, width))
    p = np.linspace(0.2, 1, Y.shape[1])
    seen = ~np.isnan(Y)
    best = top_k(order.astype(float), width)
    dense = all_at_k(Y, order, k, p)
    held = np.array([seen[i, best.labels[i]].sum() for i in range(len(Y))])
    short = held < np.minimum(k, seen.sum(axis=1))
    found = all_at_k(Y, best, k, p)
    np.testing.assert_allclose(found[~short], dense[~short], atol=1e-12)
    assert not (found[short] > dense[short] + 1e-12).any()  # NaN on both sides where undefined
    assert metrics.precision_at_k(Y, best, k).num_short == short.sum()
    # The truth as csr, with the unobserved cells in a list, is the same; so is a top k that knows of them.
    csr, known = sparse.csr_array(np.where(seen, Y, 0)), missing_from_observed(seen)
    np.testing.assert_array_equal(all_at_k(csr, best, k, p, missing=known), found)
    np.testing.assert_array_equal(all_at_k(csr, best, k, p, observed=seen), found)
    aware = top_k(order.astype(float), width, missing=known)
    np.testing.assert_allclose(all_at_k(csr, aware, k, p, missing=known), dense, atol=1e-12)
    assert metrics.precision_at_k(csr, aware, k, missing=known).num_short == 0


def test_empty_places_are_misses() -> None:
    best = TopK([[2, -1], [0, 1]], [[0.9, 0.0], [0.5, 0.4]], 3)
    found = metrics.precision_at_k([[0, 0, 1], [1, 1, 0]], best, 2)
    assert found.each.tolist() == [0.5, 1.0]
    assert (found.num_short, found.num_undefined) == (1, 0)
    value, each, undefined = found  # still the three fields of every average
    assert (value, undefined) == (0.75, 0)


def test_top_k_and_csr_round_trip() -> None:
    scores = np.random.default_rng(5).random((6, 9))
    best = top_k(scores, 4)
    again = top_k(best.to_csr(), 4)
    np.testing.assert_array_equal(again.labels, best.labels)
    np.testing.assert_array_equal(again.scores, best.scores)


def test_propensities_are_those_of_the_paper() -> None:
    Y = np.zeros((100, 3))
    Y[:7, 1] = 1
    Y[:, 2] = 1
    scale = (np.log(100) - 1) * 2.5**0.55
    wanted = [1 / (1 + scale * np.exp(-0.55 * np.log(count + 1.5))) for count in (0, 7, 100)]
    np.testing.assert_allclose(metrics.label_propensities(Y), wanted, rtol=1e-12)
    other = 1 / (1 + (np.log(100) - 1) * 1.4**0.5 * (7 + 0.4) ** -0.5)
    assert metrics.label_propensities(sparse.csr_array(Y), 0.5, 0.4)[1] == pytest.approx(other)


def test_normalised_propensity_scores_are_a_ratio_of_sums() -> None:
    Y = np.array([[1, 1, 0], [0, 0, 1], [0, 0, 0]])
    scores = np.array([[0.9, 0.5, 0.1], [0.9, 0.5, 0.1], [0.1, 0.2, 0.3]])
    p = np.array([0.5, 0.25, 0.1])
    found = metrics.psp_at_k(Y, scores, p, 1)
    assert found.raw.each.tolist() == [2.0, 0.0, 0.0]
    assert found.ideal.each.tolist() == [4.0, 10.0, 0.0]
    assert found.normalised == pytest.approx(2 / 14)
    discount = 1 / np.log2(3)
    ndcg = metrics.psndcg_at_k(Y, scores, p, 2)
    np.testing.assert_allclose(ndcg.raw.each, [(2 + 4 * discount) / (1 + discount), 0, NAN])
    np.testing.assert_allclose(ndcg.ideal.each, [(4 + 2 * discount) / (1 + discount), 10, NAN])
    assert ndcg.raw.num_undefined == 1
    assert metrics.psp_at_k(Y, Y / p, p, 2).normalised == 1.0
    assert np.isnan(metrics.psp_at_k(np.zeros((2, 3)), scores[:2], p, 1).normalised)


def test_a_large_label_set_needs_no_dense_table() -> None:
    n, num_labels, k = 20_000, 50_000, 5
    rng = np.random.default_rng(6)
    keys = np.unique(rng.integers(0, n * num_labels, 60_000))
    Y = sparse.csr_array((np.ones(len(keys), np.int8), np.divmod(keys, num_labels)), shape=(n, num_labels))
    labels = rng.integers(0, num_labels // k, (n, k)) * k + np.arange(k)
    labels[Y.indptr[:-1] < Y.indptr[1:], 0] = Y.indices[Y.indptr[:-1][Y.indptr[:-1] < Y.indptr[1:]]] // k * k
    best = TopK(labels, np.tile(np.arange(k, 0.0, -1), (n, 1)), num_labels)
    p = metrics.label_propensities(Y)
    tracemalloc.start()
    start = time.perf_counter()
    found = all_at_k(Y, best, k, p)
    seconds = time.perf_counter() - start
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.nansum(found[:, 0]) > 0
    assert seconds < 5, seconds  # 0.1 s without tracing
    assert peak < 40 * 2**20, peak  # a dense bool table would take 1 GB


@pytest.mark.parametrize(
    ("labels", "scores", "num_labels", "message"),
    [
        ([[0, 1]], [[1.0]], 3, r"one shape \(rows, k\): \(1, 2\), \(1, 1\)"),
        ([0, 1], [1.0, 0.5], 3, r"one shape"),
        ([[0.0, 1.0]], [[1.0, 0.5]], 3, r"labels must be integers, got dtype float64"),
        ([[0, 3]], [[1.0, 0.5]], 3, r"labels outside 0\.\.2: row 0: \[0, 3\]"),
        ([[0, 1], [-2, 1]], [[1.0, 0.5]] * 2, 3, r"labels outside 0\.\.2: row 1"),
        ([[0, 1], [1, 1]], [[1.0, 0.5]] * 2, 3, r"a label twice: row 1: \[1, 1\]"),
        ([[-1, 1]], [[1.0, 0.5]], 3, r"-1 \(no label\) before another label: row 0"),
        ([[0, 1]], [[1.0, NAN]], 3, r"scores that are NaN: row 0"),
        ([[0, 1]], [[0.5, 1.0]], 3, r"scores that increase along the row: row 0"),
        ([[0, 1]], [[1.0, 0.5]], 1, r"TopK has k = 2, must lie in 1\.\.1"),
        ([[0]], [[1.0]], 0, r"num_labels must be an integer of at least 1, got 0"),
    ],
)
def test_bad_top_k(labels: list, scores: list, num_labels: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TopK(labels, scores, num_labels)


def test_bad_arguments_at_k() -> None:
    best = top_k(np.eye(3), 2)
    cases = [
        (lambda: top_k(np.eye(3), 4), "k must be at most the number of labels, 3, got 4"),
        (lambda: top_k(np.eye(3), 0), "k must be at least 1, got 0"),
        (lambda: top_k(np.eye(3), 1.5), r"k must be an integer of at least 1, got 1\.5"),
        (lambda: top_k([[1.0, NAN]], 1), r"scores must be finite .*row 0, label 1: nan"),
        (lambda: top_k(sparse.csr_array([[1.0, NAN]]), 1), "scores must be finite: row 0, label 1: nan"),
        (lambda: metrics.precision_at_k(np.eye(3), best, 3), "k = 3, but the TopK holds only 2 labels a row"),
        (lambda: metrics.recall_at_k(np.eye(2), best, 1), r"one shape \(rows, labels\): \(2, 2\), \(3, 3\)"),
        (lambda: metrics.macro_auc(np.eye(3), best), "needs the score of every cell, dense .* a TopK holds"),
        (lambda: metrics.log_score(np.eye(3), sparse.csr_array(np.eye(3))), "needs the score of every cell"),
        (
            lambda: metrics.psp_at_k(np.eye(3), best, [1, 1], 1),
            r"one number a label, \(3,\), got int64 of shape \(2,\)",
        ),
        (lambda: metrics.psp_at_k(np.eye(3), best, [1, 0, 1], 1), r"lie in \(0, 1\]: label 1: 0\.0"),
        (lambda: metrics.label_propensities(np.eye(2)), "at least 3 training rows, got 2"),
        (lambda: metrics.label_propensities(np.eye(3), a=0.0), r"a and b must be positive, got a=0\.0"),
        (lambda: metrics.precision_at_k(np.eye(3), best, True), "k must be an integer"),
        (lambda: metrics.macro_auc([[1, 0]], [["a", "b"]]), "scores must hold numbers, got dtype <U1"),
        (lambda: top_k([["a", "b"]], 1), "scores must hold numbers, got dtype <U1"),
        (lambda: top_k([0.1, 0.2], 1), r"scores must be two-dimensional \(rows, labels\), got shape \(2,\)"),
        (
            lambda: metrics.precision_at_k(np.eye(3), best, 1, missing=3),
            "missing must be a labelzoo",
        ),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()


def test_label_data_and_frames_carry_truth_and_names() -> None:
    Y = np.array([[1, NAN, 0], [0, 1, 1], [NAN, NAN, NAN]])
    scores = np.array([[0.1, 0.9, 0.5], [0.2, 0.7, 0.6], [0.3, 0.2, 0.1]])
    data = LabelData(np.zeros((3, 1)), Y)
    wanted = metrics.evaluate(Y, scores)
    np.testing.assert_equal(metrics.evaluate(data, scores), wanted)
    np.testing.assert_equal(metrics.evaluate(data.Y, scores, missing=data.missing), wanted)
    names = ["rain", "sun", "snow"]
    frame, table = pd.DataFrame(Y, columns=names), pd.DataFrame(scores, columns=names)
    np.testing.assert_equal(metrics.evaluate(frame, table), wanted)
    sparse_table = table.astype(pd.SparseDtype("float64", 0.0))
    np.testing.assert_equal(metrics.evaluate(frame, sparse_table), wanted)
    with pytest.raises(ValueError, match="Y_true and scores differ in their columns: 'rain' and 'sun' at 0"):
        metrics.evaluate(frame, table[["sun", "rain", "snow"]])
    with pytest.raises(ValueError, match="missing is given twice"):
        metrics.evaluate(data, scores, missing=data.missing)
    best = top_k(scores, 2)
    few = metrics.evaluate(data, best, ks=(1, 2), propensities=[0.1, 0.5, 0.9])
    assert set(few) < set(metrics.evaluate(data, scores, ks=(1, 2), propensities=[0.1, 0.5, 0.9]))
    assert "macro_auc" not in few
    assert few["observed_cells"] == 5
    assert few["precision_at_2_short"] == 1  # row 0 lists the unobserved label and one more
