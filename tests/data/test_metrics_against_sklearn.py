"""Rankings and decisions against scikit-learn wherever it defines the same thing, and where it does not."""

import numpy as np
import pytest
from scipy import sparse
from sklearn import metrics as sk

from labelzoo.data import metrics, missing_from_observed

NAN = np.nan
SHAPE = (50, 8)


def problem(seed: int, edges: str = "rows") -> tuple[np.ndarray, np.ndarray]:
    """Return labels and scores with ties; with an empty and a full row, or with two labels of one class."""
    rng = np.random.default_rng(seed)
    Y = (rng.random(SHAPE) < rng.uniform(0.05, 0.5, SHAPE[1])).astype(int)
    lines = Y if edges == "rows" else Y.T
    lines[0], lines[1] = 0, 1
    return Y, np.round(np.clip(0.4 * Y + 0.6 * rng.random(SHAPE), 0, 1), 1)


@pytest.mark.parametrize("seed", range(3))
def test_row_rankings(seed: int) -> None:
    Y, scores = problem(seed)
    pairs = [
        (metrics.lrap, sk.label_ranking_average_precision_score),
        (metrics.coverage_error, sk.coverage_error),
        (metrics.ranking_loss, sk.label_ranking_loss),
    ]
    for ours, theirs in pairs:
        assert ours(Y, scores, empty="scikit-learn").value == pytest.approx(theirs(Y, scores), rel=1e-12)
        found = ours(Y, scores)
        rows = [i for i in range(len(Y)) if Y[i].any() and not (ours is metrics.ranking_loss and Y[i].all())]
        assert found.num_undefined == len(Y) - len(rows) > 0
        assert ours(Y, scores, empty="scikit-learn").num_undefined == found.num_undefined
        assert found.value == pytest.approx(theirs(Y[rows], scores[rows]), rel=1e-12)


def test_rows_without_an_observed_label_stay_undefined_under_the_policy_of_scikit_learn() -> None:
    Y = np.array([[NAN, NAN], [0, NAN], [1, 0]])
    found = metrics.lrap(Y, np.array([[0.1, 0.2]] * 3), empty="scikit-learn")
    np.testing.assert_array_equal(found.each, [NAN, 1.0, 0.5])
    assert found.num_undefined == 2
    with pytest.raises(ValueError, match="empty must be 'undefined' or 'scikit-learn', got 'one'"):
        metrics.lrap(Y, np.zeros((3, 2)), empty="one")


@pytest.mark.parametrize("seed", range(3))
def test_areas_and_average_precision(seed: int) -> None:
    Y, scores = problem(seed, edges="labels")
    both = [j for j in range(SHAPE[1]) if 0 < Y[:, j].sum() < len(Y)]
    auc = metrics.macro_auc(Y, scores)
    assert auc.num_undefined == SHAPE[1] - len(both) == 2
    np.testing.assert_allclose(auc.each[both], sk.roc_auc_score(Y[:, both], scores[:, both], average=None))
    precision = metrics.macro_average_precision(Y, scores)
    assert np.isnan(precision.each).tolist() == (~Y.any(axis=0)).tolist()
    wanted = sk.average_precision_score(Y[:, 1:], scores[:, 1:], average="macro")
    assert precision.value == pytest.approx(wanted, rel=1e-12)
    wanted = sk.average_precision_score(Y, scores, average="micro")
    assert metrics.micro_average_precision(Y, scores) == pytest.approx(wanted, rel=1e-12)
    assert metrics.micro_auc(Y, scores) == pytest.approx(sk.roc_auc_score(Y, scores, average="micro"))


SCORES = {
    metrics.precision: sk.precision_score,
    metrics.recall: sk.recall_score,
    metrics.jaccard: sk.jaccard_score,
    metrics.f_score: sk.f1_score,
}


@pytest.mark.parametrize(
    ("ours", "theirs", "zero"),
    # scikit-learn's Jaccard score takes no NaN for 0/0.
    [
        (f, g, z)
        for f, g in SCORES.items()
        for z in (0, 1, NAN)
        if not (g is sk.jaccard_score and np.isnan(z))
    ],
)
@pytest.mark.parametrize("average", ["macro", "micro", "example"])
def test_decisions(average: str, ours: object, theirs: object, zero: float) -> None:
    Y, scores = problem(5, edges="rows" if average == "example" else "labels")
    predicted = (scores > 0.6).astype(int)
    predicted[:3], predicted[:, :3] = 0, 0
    name = {"example": "samples"}.get(average, average)
    wanted = theirs(Y, predicted, average=name, zero_division=zero)  # type: ignore[operator]
    for kind in (np.asarray, sparse.csr_array, sparse.csc_matrix, np.ndarray.tolist):
        found = ours(kind(Y), kind(predicted), average, zero_division=zero)  # type: ignore[operator]
        assert found.value == pytest.approx(wanted, rel=1e-12, nan_ok=True)
    alone = ours(Y, predicted, average)  # type: ignore[operator]
    assert alone.num_undefined == found.num_undefined == np.isnan(alone.each).sum()


def test_beta_subset_accuracy_and_hamming_loss() -> None:
    Y, scores = problem(6)
    predicted = (scores > 0.5).astype(int)
    predicted[:20] = Y[:20]
    wanted = sk.fbeta_score(Y, predicted, beta=0.5, average=None, zero_division=NAN)
    np.testing.assert_allclose(metrics.f_score(Y, predicted, beta=0.5).each, wanted)
    assert metrics.subset_accuracy(Y, predicted).value == pytest.approx(sk.accuracy_score(Y, predicted))
    assert metrics.hamming_loss(Y, predicted) == pytest.approx(sk.hamming_loss(Y, predicted))
    counts = metrics.confusion(Y, predicted)
    theirs = sk.multilabel_confusion_matrix(Y, predicted)
    np.testing.assert_array_equal(
        np.stack([counts.tn, counts.fp, counts.fn, counts.tp], axis=1), theirs.reshape(-1, 4)
    )
    rows = metrics.confusion(sparse.csr_array(Y), sparse.csr_array(predicted), "example")
    theirs = sk.multilabel_confusion_matrix(Y, predicted, samplewise=True).reshape(-1, 4)
    np.testing.assert_array_equal(np.stack([rows.tn, rows.fp, rows.fn, rows.tp], axis=1), theirs)


def test_labels_without_positives_and_predictions_are_counted() -> None:
    found = metrics.f_score([[1, 0, 0], [0, 0, 1]], [[1, 0, 1], [0, 0, 0]])
    np.testing.assert_array_equal(found.each, [1.0, NAN, 0.0])
    assert (found.value, found.num_undefined) == (0.5, 1)
    one = metrics.f_score([[1, 0, 0], [0, 0, 1]], [[1, 0, 1], [0, 0, 0]], zero_division=1)
    assert (one.value, one.num_undefined) == (pytest.approx(2 / 3), 1)


def test_a_label_without_an_observed_cell_is_undefined_whatever_the_policy() -> None:
    found = metrics.f_score([[1, NAN, 0]], [[1, 1, 0]], zero_division=0)
    np.testing.assert_array_equal(found.each, [1.0, NAN, 0.0])
    assert found.num_undefined == 2
    np.testing.assert_array_equal(metrics.subset_accuracy([[NAN], [1]], [[1], [1]]).each, [NAN, 1.0])
    assert np.isnan(metrics.hamming_loss([[NAN]], [[1]]))


@pytest.mark.parametrize("average", ["macro", "micro", "example"])
def test_masks_of_every_kind_mean_the_same(average: str) -> None:
    Y, scores = problem(7)
    predicted = (scores > 0.5).astype(int)
    rng = np.random.default_rng(8)
    for share in (0.2, 0.8):  # the shorter list of cells is kept: the missing ones, then the observed ones
        seen = rng.random(SHAPE) >= share
        seen[4], seen[5] = False, True
        known = missing_from_observed(seen)
        wanted = metrics.confusion(np.where(seen, Y, NAN), predicted, average)
        # Whatever stands in a masked cell of truth and prediction changes nothing.
        spoilt = np.where(seen, Y, 7), np.where(seen, predicted, 3)
        stored = sparse.csr_array(np.where(seen, Y, NAN))
        half = np.where(rng.random(SHAPE) < 0.5, np.where(seen, Y, NAN), Y)
        same = [
            metrics.confusion(*spoilt, average, observed=seen),
            metrics.confusion(*spoilt, average, missing=known),
            metrics.confusion(*map(sparse.csr_array, spoilt), average, missing=known),
            metrics.confusion(stored, sparse.csr_array(predicted), average),
            metrics.confusion(sparse.csr_array(half), predicted, average, missing=known),
            metrics.confusion(half, predicted, average, missing=known, observed=seen),
        ]
        for counts in same:
            np.testing.assert_array_equal(counts, wanted)
        cells = [seen.sum(axis=0), seen.sum(), seen.sum(axis=1)][["macro", "micro", "example"].index(average)]
        np.testing.assert_array_equal(np.sum(wanted, axis=0), np.atleast_1d(cells))


def test_decisions_of_a_large_label_set_stay_sparse() -> None:
    n, num_labels = 20_000, 50_000
    rng = np.random.default_rng(9)
    keys = np.unique(rng.integers(0, n * num_labels, 60_000))
    Y = sparse.csr_array((np.ones(len(keys), np.int8), np.divmod(keys, num_labels)), shape=(n, num_labels))
    predicted = Y.copy()
    predicted.data[::2] = 0
    assert metrics.recall(Y, predicted, "micro").value == pytest.approx(0.5, abs=1e-4)
    assert metrics.precision(Y, predicted, "micro").value == 1.0
    assert metrics.hamming_loss(Y, predicted) == pytest.approx(len(keys[::2]) / n / num_labels)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([[1, 0]], [[1, 0, 1]]), {}, r"one shape \(rows, labels\): \(1, 2\), \(1, 3\)"),
        (([[1, 0]], [[0.3, 0]]), {}, r"Y_pred may hold 0 or 1 only: row 0, label 0: 0\.3"),
        (([[1, 0]], [[NAN, 0]]), {}, r"Y_pred may hold 0 or 1 only: row 0, label 0: nan"),
        (([[1, 2]], [[1, 0]]), {}, r"Y_true may hold 0, 1 or NaN only: row 0, label 1: 2"),
        (([1, 0], [1, 0]), {}, r"Y_true must be two-dimensional \(rows, labels\), got shape \(2,\)"),
        (([[1, 0]], [[1, 0]]), {"average": "weighted"}, "average must be one of macro, micro, example"),
        (
            ([[1, 0]], [[1, 0]]),
            {"zero_division": 2},
            "zero_division must be NaN or a number in",
        ),
        (([[1, 0]], [[1, 0]]), {"beta": 0}, "beta must be a positive number"),
        (([[1, 0], [1]], [[1, 0]]), {}, "Y_true has rows of different lengths: row 0 has 2; row 1 has 1"),
        (([[1, 0]], [["a", "b"]]), {}, "Y_pred must hold 0 or 1, got dtype <U1"),
    ],
)
def test_bad_decisions(arguments: tuple, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        metrics.f_score(*arguments, **options)
