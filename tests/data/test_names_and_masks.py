"""Other names, masked cells, positions outside a sparse table: refused or honoured, never passed over."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from labelzoo.data import (
    LabelData,
    Missing,
    from_arrays,
    from_frame,
    metrics,
    missing_from_observed,
    split_rows,
)

Y = np.eye(4)[[0, 1, 2, 3, 0]]
P = np.random.default_rng(0).random((5, 4))
NAMES = list("abcd")
OTHER = list("abdc")
TRUTHS: dict[str, Any] = {
    "LabelData": LabelData(np.zeros((5, 1)), Y, label_names=NAMES),
    "frame": pd.DataFrame(Y, columns=NAMES),
    "sparse frame": pd.DataFrame.sparse.from_spmatrix(sparse.csr_matrix(Y), columns=NAMES),
}


def frame(values: Any, columns: Any = None) -> pd.DataFrame:
    """Return a frame."""
    return pd.DataFrame(values, columns=OTHER if columns is None else columns)


CALLS: dict[str, Callable[[Any], Any]] = {
    "log_score": lambda Y: metrics.log_score(Y, frame(P)),
    "macro_auc": lambda Y: metrics.macro_auc(Y, frame(P)),
    "reliability": lambda Y: metrics.reliability(Y, frame(P)),
    "tune_thresholds": lambda Y: metrics.tune_thresholds(Y, frame(P)),
    "evaluate": lambda Y: metrics.evaluate(Y, frame(P)),
    "precision_at_k": lambda Y: metrics.precision_at_k(Y, frame(P)),
    "f_score": lambda Y: metrics.f_score(Y, frame(1.0 * (P > 0.5))),
    "observed": lambda Y: metrics.log_score(Y, P, observed=frame(P > 0)),
    "observed, decided": lambda Y: metrics.hamming_loss(Y, Y_of(Y), observed=frame(P > 0)),
    "observed, top-k": lambda Y: metrics.ndcg_at_k(Y, metrics.top_k(P, 2), 2, observed=frame(P > 0)),
    "propensities": lambda Y: metrics.psp_at_k(Y, P, pd.Series(0.5, index=OTHER)),
    "propensities, evaluate": lambda Y: metrics.evaluate(Y, P, propensities=pd.Series(0.5, index=OTHER)),
    "threshold": lambda Y: metrics.evaluate(Y, P, threshold=pd.Series(0.5, index=OTHER)),
    "rows": lambda Y: metrics.log_score(
        Y if isinstance(Y, pd.DataFrame) else Y.to_frame()[NAMES], pd.DataFrame(P, columns=NAMES).iloc[::-1]
    ),
}


def Y_of(truth: Any) -> Any:
    """Return the cells of a truth without names."""
    return truth.Y if isinstance(truth, LabelData) else truth.to_numpy()


@pytest.mark.parametrize("kind", TRUTHS)
@pytest.mark.parametrize("call", CALLS)
def test_other_names_or_another_order_are_refused(kind: str, call: str) -> None:
    if (kind, call) == ("LabelData", "rows"):
        names = [f"r{i}" for i in range(5)]
        data = LabelData(np.zeros((5, 1)), Y, label_names=NAMES, example_names=names)
        with pytest.raises(ValueError, match="differ in their rows: 'r0' and 'r4' at 0"):
            metrics.log_score(data, pd.DataFrame(P, columns=NAMES, index=names).iloc[::-1])
        return
    with pytest.raises(
        ValueError, match=r"differ in their (columns: 'c' and 'd' at 2|rows: '0' and '4' at 0)"
    ):
        CALLS[call](TRUTHS[kind])


def test_numbers_in_another_order_are_names() -> None:
    scores, truth = pd.DataFrame(P), pd.DataFrame(Y)
    with pytest.raises(ValueError, match="columns: '0' and '3' at 0 .the same names in another order"):
        metrics.log_score(truth, scores[[3, 2, 1, 0]])
    for backwards in (scores.iloc[::-1], scores.loc[[4, 3, 2, 1, 0]]):
        with pytest.raises(ValueError, match="rows: '0' and '4'"):
            metrics.log_score(truth, backwards)
    with pytest.raises(ValueError, match="scores and observed differ in their columns"):
        metrics.top_k(scores, 2, observed=pd.DataFrame(P > 0)[[3, 2, 1, 0]])


def test_unnamed_sides_are_taken_as_they_come() -> None:
    score = metrics.log_score(Y, P).value
    data = LabelData(np.zeros((5, 1)), Y, label_names=NAMES)
    for truth in (Y, data, pd.DataFrame(Y), pd.DataFrame(Y, columns=NAMES)):
        for probs in (P, pd.DataFrame(P), pd.DataFrame(P, columns=NAMES)):
            assert metrics.log_score(truth, probs).value == score
    rows = [4, 2]
    part = metrics.log_score(Y[rows], P[rows]).value
    truth = pd.DataFrame(Y, columns=NAMES).loc[rows]
    for probs in (P[rows], pd.DataFrame(P[rows], columns=NAMES), pd.DataFrame(P, columns=NAMES).loc[rows]):
        assert metrics.log_score(truth, probs).value == part
        assert metrics.log_score(data.subset(rows=rows), probs).value == part


def broken(kind: str) -> Any:
    """Return a sparse matrix of the given format whose first stored position lies outside."""
    if kind == "coo":
        matrix = sparse.coo_array(np.ones((3, 3)))
        matrix.coords[1][0] = 9
        return matrix
    matrix = getattr(sparse, f"{kind}_array")(np.ones((3, 3)))
    if kind == "lil":
        matrix.rows[0] = [-7, 1, 2]
    else:
        matrix.indices[0] = -1 if kind == "csc" else 9
    return matrix


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "lil"])
def test_positions_outside_a_sparse_table_are_refused(kind: str) -> None:
    tries: list[Callable[[Any], Any]] = [
        lambda m: LabelData(m, np.eye(3)),
        lambda m: LabelData(np.zeros((3, 1)), m),
        lambda m: metrics.precision_at_k(np.eye(3), m, 1),
        lambda m: metrics.top_k(m, 1),
        lambda m: metrics.f_score(np.eye(3), m),
        lambda m: metrics.log_score(m, np.full((3, 3), 0.5)),
        lambda m: split_rows(m),
    ]
    for attempt in tries:
        with pytest.raises(ValueError, match=r"no valid sparse matrix|negative|index"):
            attempt(broken(kind))


def test_a_broken_indptr_is_refused_and_the_arrays_of_the_user_stay() -> None:
    matrix = sparse.csr_array(np.ones((3, 3)))
    matrix.indptr[1] = 7
    with pytest.raises(ValueError, match="X is no valid sparse matrix: indptr must rise from 0 to the 9"):
        LabelData(matrix, np.eye(3))
    assert matrix.indptr.tolist() == [0, 7, 6, 9]


def test_masked_cells_of_labels_are_unobserved() -> None:
    mask = np.eye(3, dtype=bool)
    rows = [np.ma.array(row, mask=m) for row, m in zip(np.eye(3), mask, strict=True)]
    cells = [[np.ma.masked if m else 0 for m in row] for row in mask]
    for labels in (rows, cells, np.ma.array(np.eye(3), mask=mask), np.array(cells, dtype=object)):
        data = LabelData(np.zeros((3, 1)), labels)
        assert (data.num_positives, data.num_missing_cells) == (0, 3)
        assert metrics.hamming_loss(labels, np.eye(3)) == 0.0
    words = np.ma.array([["a", "b"]], mask=[[False, True]])
    with pytest.raises(ValueError, match="X has values that are not numbers .*'a'$"):
        LabelData(words, [[1]])
    with pytest.raises(ValueError, match="X has missing values .*row 0, feature 'feature 0'"):
        LabelData(rows, np.eye(3))
    assert np.isnan(LabelData(rows, np.eye(3), allow_missing_features=True).X).sum() == 3


def test_masks_that_mean_nothing_are_refused() -> None:
    some = np.ma.array(P > 0, mask=P > 0.5)
    numbers = np.ma.array([0.5] * 4, mask=[1, 0, 0, 0])
    tries: list[Callable[[], Any]] = [
        lambda: metrics.log_score(Y, P, observed=some),
        lambda: metrics.log_score(Y, P, observed=list(some)),
        lambda: missing_from_observed(some),
        lambda: metrics.psp_at_k(Y, P, numbers),
        lambda: metrics.apply_thresholds(P, numbers),
        lambda: metrics.decide(np.ma.array(P[None], mask=P[None] > 0.5)),
        lambda: metrics.TopK(np.ma.array([[1, 2]], mask=[[1, 0]]), [[2.0, 1.0]], 3),
        lambda: TRUTHS["LabelData"].subset(rows=np.ma.array([0, 1], mask=[1, 0])),
        lambda: LabelData(Y, Y, train_index=np.ma.array([0, 1], mask=[1, 0]), test_index=[1]),
        lambda: Missing(np.ma.array([True, False], mask=[1, 0])),
    ]
    for attempt in tries:
        with pytest.raises(ValueError, match="has masked cells|have masked cells"):
            attempt()


def test_features_that_another_may_write_are_copied() -> None:
    X = np.zeros((2, 2))
    X.flags.writeable = False
    data = LabelData(X, np.eye(2))
    X.flags.writeable = True
    X[0] = 7
    assert data.X.tolist() == [[0, 0], [0, 0]]
    assert LabelData(data.X, np.eye(2)).X is data.X  # made here, and shared


def test_labels_as_words_in_the_columns_of_a_frame() -> None:
    words = pd.DataFrame({"a": ["TRUE", "FALSE"], "b": ["0", None]})
    for labels in (words, words.astype("category")):
        data = from_arrays(np.zeros((2, 1)), labels)
        assert data.Y.toarray().tolist() == [[1, 0], [0, 0]]
        assert data.num_missing_cells == 1
    with pytest.raises(ValueError, match="from_frame reads text and categories"):
        LabelData(np.zeros((2, 1)), np.array([["TRUE"], ["FALSE"]]))


def test_lengths_come_before_cells_and_dates_are_named() -> None:
    with pytest.raises(ValueError, match="differ in their number of rows: 2 and 3"):
        LabelData([["a"], ["b"]], np.eye(3))
    times = pd.date_range("2020", periods=2)
    for column in (times, times.date, times.tz_localize("UTC"), times.to_period("D"), times - times[0]):
        table = pd.DataFrame({"t": column, "y": [0, 1]})
        for attempt in (lambda t: from_frame(t, ["y"]), lambda t: from_arrays(t, np.eye(2))):
            with pytest.raises(ValueError, match="columns of dates: 't'; drop them or make numbers"):
                attempt(table)


def test_numbers_too_large_and_lists_of_sparse_rows() -> None:
    for value in (10**400, 10**5000):
        with pytest.raises(ValueError, match="X has values that are not numbers") as caught:
            LabelData([[value]], [[1]])
        assert len(str(caught.value)) < 250
    with pytest.raises(ValueError, match="feature columns hold text|not numbers"):
        from_frame(pd.DataFrame({"x": [10**400, 1], "y": [0, 1]}), ["y"])
    with pytest.raises(ValueError, match="Y is a list of sparse rows"):
        LabelData(np.zeros((2, 1)), [sparse.csr_array([[1.0, 0.0]])] * 2)


def test_rows_of_a_reversed_frame_keep_their_numbers() -> None:
    X = pd.DataFrame({"x": [1.0, 2.0]})
    assert from_arrays(X, np.eye(2)).example_names == ("row 0", "row 1")
    assert from_arrays(X.iloc[::-1], np.eye(2)).example_names == ("1", "0")
