"""Random and stratified splits: partition, sizes, balance on real data, absent labels, scikit-learn use."""

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.multioutput import MultiOutputClassifier

from labelzoo.data import LabelData, load
from labelzoo.data import stratification as strat
from labelzoo.data.splits import AbsentLabelsWarning, StratifiedLabelFolds, fold_rows, split_rows

KINDS = [("random", 1), ("stratified", 1), ("stratified", 2)]
RANDOM_SEEDS = 20
quiet = pytest.mark.filterwarnings("ignore::labelzoo.data.splits.AbsentLabelsWarning")


def labels(seed: int, shape: tuple[int, int], density: float = 0.2, hidden: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    Y = (rng.random(shape) < density).astype(float)
    Y[rng.random(shape) < hidden] = np.nan
    return Y


def parts_of(found: Any) -> list[np.ndarray]:
    return [found.train, found.test] if hasattr(found, "train") else list(found.folds)


@quiet
@pytest.mark.parametrize(("method", "order"), KINDS)
@pytest.mark.parametrize("n", [2, 3, 7, 50, 101])
def test_each_row_exactly_once_and_sizes(n: int, method: str, order: int) -> None:
    Y = labels(n, (n, 6), hidden=0.2)
    Y[: n // 3] = np.nan
    for fraction in (0.001, 0.2, 0.5, 0.77, 0.999):
        found = split_rows(Y, fraction, n, method=method, order=order)
        assert sorted([*found.train, *found.test]) == list(range(n))
        assert len(found.test) == min(max(round(n * fraction), 1), n - 1)
    for k in {2, 3, min(n, 10), n} - {m for m in (2, 3) if m > n}:
        folds = fold_rows(Y, k, n, method=method, order=order)
        assert sorted(np.concatenate(folds.folds)) == list(range(n))
        assert {len(fold) for fold in folds.folds} <= {n // k, -(-n // k)}
        assert len(folds) == k
        for train, test in folds:
            assert sorted([*train, *test]) == list(range(n))


@quiet
@pytest.mark.parametrize(("method", "order"), KINDS)
def test_seed_decides_and_global_state_is_untouched(method: str, order: int) -> None:
    Y = labels(0, (60, 5), hidden=0.1)
    kept = np.random.get_state()  # noqa: NPY002
    one = fold_rows(Y, 4, 3, method=method, order=order).folds
    np.random.seed(11)  # noqa: NPY002
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    again = fold_rows(Y, 4, 3, method=method, order=order).folds
    np.testing.assert_array_equal(state, np.random.get_state()[1])  # noqa: NPY002
    np.random.set_state(kept)  # noqa: NPY002
    other = fold_rows(Y, 4, 4, method=method, order=order).folds
    assert all(np.array_equal(a, b) for a, b in zip(one, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@quiet
def test_input_types_agree_and_results_are_frozen() -> None:
    Y = labels(1, (40, 4))
    X = np.zeros((40, 1))
    forms = [Y, Y.tolist(), sparse.csr_array(Y), sparse.coo_matrix(Y), pd.DataFrame(Y), LabelData(X, Y)]
    found = [split_rows(form, 0.3, 5, method="stratified") for form in forms]
    for one in found:
        np.testing.assert_array_equal(one.test, found[0].test)
    np.testing.assert_array_equal(split_rows(Y[:, 0], 0.3, 5).test, split_rows(Y[:, :1], 0.3, 5).test)
    with pytest.raises(ValueError, match="read-only"):
        found[0].test[0] = 1
    with pytest.raises(AttributeError):
        found[0].test = None


def counts(Y: sparse.csr_array, parts: list[np.ndarray]) -> np.ndarray:
    return np.array([np.bincount(Y[rows].indices, minlength=Y.shape[1]) for rows in parts])


def absent_and_deviation(Y: sparse.csr_array, parts: list[np.ndarray]) -> tuple[int, float]:
    """Labels with positives that some part lacks; mean absolute difference of shares, part from whole."""
    by_part = counts(Y, parts)
    some = by_part.sum(axis=0) > 0
    share = by_part / np.array([len(rows) for rows in parts])[:, None]
    whole = by_part.sum(axis=0) / Y.shape[0]
    return int((by_part == 0)[:, some].any(axis=0).sum()), float(np.abs(share - whole)[:, some].mean())


@quiet
@pytest.mark.parametrize("k", [None, 10])
@pytest.mark.parametrize("name", ["enron", "bibtex", "medical"])
def test_stratified_beats_random_on_real_data(shared_data: Path, name: str, k: int | None) -> None:
    """Against 20 random splits: not more absent labels than the best, and smaller deviations than all."""
    data = load(shared_data / "npz" / f"{name}.npz")
    pairs = strat.pair_table(data.Y)

    def split(seed: int, method: str, order: int) -> list[np.ndarray]:
        if k is None:
            return parts_of(split_rows(data, 0.2, seed, method=method, order=order))
        return parts_of(fold_rows(data, k, seed, method=method, order=order))

    drawn = [split(seed, "random", 1) for seed in range(RANDOM_SEEDS)]
    by_label = np.array([absent_and_deviation(data.Y, parts) for parts in drawn])
    by_pair = np.array([absent_and_deviation(pairs, parts) for parts in drawn])
    first, second = (split(0, "stratified", order) for order in (1, 2))
    for parts in (first, second):
        absent, deviation = absent_and_deviation(data.Y, parts)
        assert absent <= by_label[:, 0].mean()
        assert deviation < 0.6 * by_label[:, 1].min()
    label_absent, label_deviation = absent_and_deviation(data.Y, first)
    assert label_absent <= by_label[:, 0].min() + 2
    assert label_deviation < 0.5 * by_label[:, 1].min()
    deviation_first = absent_and_deviation(pairs, first)[1]
    deviation_second = absent_and_deviation(pairs, second)[1]
    assert deviation_second < 0.92 * deviation_first
    assert deviation_second < by_pair[:, 1].min()


@pytest.mark.parametrize("order", [1, 2])
def test_each_label_in_proportion(order: int) -> None:
    """With disjoint labels each part gets its share of every label to within one row, and of empty rows."""
    sizes = [30, 7, 4, 2, 1]
    kind = np.repeat(np.arange(6), [*sizes, 56])
    Y = np.eye(6)[kind][:, :5]
    with pytest.warns(AbsentLabelsWarning):
        folds = fold_rows(Y, 4, 9, method="stratified", order=order)
    found = counts(sparse.csr_array(Y), list(folds.folds))
    for label, total in enumerate(sizes):
        assert set(found[:, label].tolist()) <= {total // 4, -(-total // 4)}, (label, found)
    with pytest.warns(AbsentLabelsWarning):
        split = split_rows(Y, 0.25, 9, method="stratified", order=order)
    np.testing.assert_allclose(counts(sparse.csr_array(Y), [split.test])[0], np.array(sizes) / 4, atol=0.75)


def test_demands_of_all_labels_of_a_row_are_updated() -> None:
    """A rare label rides on a frequent one: the rows of the frequent one must then balance the other way.

    Ten rows hold both labels, thirty the frequent one only, and ten nothing. A demand that forgets the rows
    that the rare label placed, or the places they took, leaves the frequent label uneven.
    """
    Y = np.zeros((50, 3))
    Y[:10] = [1, 1, 0]
    Y[10:40] = [0, 1, 0]
    Y[3:9, 2] = 1
    for seed in range(10):
        folds = fold_rows(Y, 5, seed, method="stratified").folds
        found = counts(sparse.csr_array(Y[:, :2]), list(folds))
        assert found.tolist() == [[2, 8]] * 5, (seed, found)
        test = split_rows(Y, 0.2, seed, method="stratified").test
        assert counts(sparse.csr_array(Y[:, :2]), [test]).tolist() == [[2, 8]], seed


def test_second_order_balances_pairs_where_the_first_cannot() -> None:
    """Two labels of 24 rows, 12 rows in common: only the second order must put 3 common rows in each fold."""
    Y = np.zeros((60, 2))
    Y[:24, 0] = 1
    Y[12:36, 1] = 1
    both = sparse.csr_array((Y.all(axis=1, keepdims=True)).astype(np.int8))
    first, second = [], []
    for seed in range(10):
        for order, kept in ((1, first), (2, second)):
            folds = fold_rows(Y, 4, seed, method="stratified", order=order).folds
            assert counts(sparse.csr_array(Y), list(folds)).tolist() == [[6, 6]] * 4
            kept.append(counts(both, list(folds))[:, 0].tolist())
    assert second == [[3, 3, 3, 3]] * 10
    assert any(found != [3, 3, 3, 3] for found in first)


def test_unlabelled_rows_are_spread_evenly_and_unobserved_cells_ask_for_nothing() -> None:
    Y = labels(2, (103, 4), 0.3)
    Y[:41] = np.nan
    for seed in range(5):
        folds = fold_rows(Y, 4, seed, method="stratified").folds
        unlabelled = [int((fold < 41).sum()) for fold in folds]
        assert sorted(unlabelled) == [10, 10, 10, 11]
        test = split_rows(Y, 0.25, seed, method="stratified").test
        assert (test < 41).sum() in (10, 11)
    hidden = Y.copy()
    hidden[50:, 1] = np.where(Y[50:, 1] == 0, np.nan, Y[50:, 1])
    one = fold_rows(Y, 4, 0, method="stratified").folds
    other = fold_rows(hidden, 4, 0, method="stratified").folds
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("seed", range(20))
def test_unlabelled_quota(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 6, size=rng.integers(2, 8))
    for count in range(int(sizes.sum()) + 1):
        quota = strat.unlabelled_quota(sizes, count, rng)
        assert quota.sum() == count
        assert (quota <= sizes).all()
        assert np.abs(quota - count * sizes / sizes.sum()).max() < 1.0 + 1e-9


def test_pair_table_against_loops() -> None:
    Y = labels(4, (30, 7), 0.4)
    found = strat.pair_table(sparse.csr_array(Y)).toarray()
    pairs = [(i, j) for i in range(7) for j in range(i + 1, 7)]
    expected = np.array([Y[:, i] * Y[:, j] for i, j in pairs]).T
    np.testing.assert_array_equal(found, expected[:, expected.any(axis=0)])


def test_pairs_too_rare_for_the_smallest_part_take_no_part() -> None:
    """Of pairs with 1, 4 and 5 rows, a part of a fifth can expect a row of the last only."""
    Y = np.zeros((10, 4))
    Y[:1, :2] = Y[1:5, 1:3] = Y[5:, 2:] = 1
    assert strat.with_pairs(sparse.csr_array(Y), 0.2).shape == (10, 5)
    assert strat.with_pairs(sparse.csr_array(Y), 0.25).shape == (10, 6)
    assert strat.with_pairs(sparse.csr_array(Y), 1.0).shape == (10, 7)


def test_second_order_refuses_too_many_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strat, "MAX_PAIR_CELLS", 10)
    with pytest.raises(ValueError, match=r"order=2 would store 60 pairs of labels \(limit 10\): use order=1"):
        split_rows(np.ones((10, 4)), method="stratified", order=2)


def test_label_with_two_positives_in_three_folds_is_named() -> None:
    Y = np.ones((9, 2))
    Y[2:, 1] = 0
    data = LabelData(np.zeros((9, 1)), Y, label_names=["common", "rare"])
    message = r"^no positive in some part for 1 label: 'rare' \(fold \d\)\. With fewer .* 3 parts: 1 of 1$"
    with pytest.warns(AbsentLabelsWarning, match=message) as caught:
        folds = fold_rows(data, 3, method="stratified")
    assert len(caught) == 1
    assert folds.absent.labels.tolist() == [1]
    assert folds.absent.positives.tolist() == [2]
    assert folds.absent.lacking.sum() == 1
    held = [rows for rows in folds.folds if Y[rows, 1].any()]
    assert len(held) == 2, "the two positives must lie in different folds"


def test_warning_counts_and_names_five() -> None:
    Y = np.zeros((12, 9))
    Y[:6, 0] = 1
    Y[np.arange(7), np.arange(1, 8)] = 1
    with pytest.warns(AbsentLabelsWarning) as caught:
        found = fold_rows(Y, 3, method="stratified")
    text = str(caught[0].message)
    assert text.startswith("no positive in some part for 7 labels: ")
    assert text.count("label ") == 5
    assert "and 2 more. With fewer positives than the 3 parts: 7 of 7. In one fold only" in text
    assert 8 not in found.absent.labels, "a label that is never positive is not absent"
    assert issubclass(AbsentLabelsWarning, UserWarning)


def test_nothing_to_warn_about() -> None:
    Y = np.zeros((8, 3))
    Y[:4, 0] = Y[4:, 1] = 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert split_rows(Y, 0.5, method="stratified").absent.labels.size == 0
        assert fold_rows(Y, 4, method="stratified").absent.labels.size == 0


def test_label_data_methods() -> None:
    data = LabelData(np.arange(30.0)[:, None], labels(5, (30, 3), 0.5))
    train, test = data.split(0.2, 1, method="stratified", order=2)
    found = split_rows(data, 0.2, 1, method="stratified", order=2)
    assert (train.X[:, 0].tolist(), test.X[:, 0].tolist()) == (found.train.tolist(), found.test.tolist())
    pairs = list(data.folds(3, 1, method="stratified"))
    assert len(pairs) == 3
    assert sorted(np.concatenate([test.X[:, 0] for _, test in pairs])) == list(range(30))
    assert all(train.num_rows + test.num_rows == 30 for train, test in pairs)


def test_published_split_warns_of_absent_labels() -> None:
    Y = np.array([[1, 0], [1, 0], [0, 1], [1, 1]])
    data = LabelData(np.zeros((4, 1)), Y, label_names=["a", "b"], train_index=[0, 1], test_index=[2, 3])
    with pytest.warns(AbsentLabelsWarning, match=r"1 label: 'b' \(train\)$"):
        train, test = data.published_split()
    assert (train.num_rows, test.num_rows) == (2, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda Y: split_rows(Y, 0), "test_fraction must lie between 0 and 1, got 0"),
        (lambda Y: split_rows(Y, 1), "test_fraction must lie between 0 and 1, got 1"),
        (lambda Y: split_rows(Y, float("nan")), "test_fraction must lie between 0 and 1, got nan"),
        (lambda Y: split_rows(Y, "half"), "test_fraction must lie between 0 and 1, got 'half'"),
        (lambda Y: split_rows(Y[:1]), "a split needs at least 2 rows, got 1"),
        (lambda Y: split_rows(Y, seed=-1), "seed must be a whole number from 0 or a numpy Generator, got -1"),
        (lambda Y: split_rows(Y, seed=None), "got None"),
        (lambda Y: split_rows(Y, method="iterative"), "method must be 'random' or 'stratified', got 'itera"),
        (
            lambda Y: split_rows(Y, order=3),
            "order must be 1 .labels. or 2 .labels and pairs.*, got 3",
        ),
        (lambda Y: fold_rows(Y, 6), "k=6 folds need at least 6 rows, got 5"),
        (lambda Y: fold_rows(Y, 1), "k must be at least 2 folds, got 1"),
        (lambda Y: fold_rows(Y, 2.5), "k must be a whole number of folds, got 2.5"),
        (lambda Y: fold_rows(Y + 1, 2), "Y may hold 0, 1 or NaN"),
        (lambda Y: StratifiedLabelFolds().split(Y), "needs the labels"),
        (lambda Y: StratifiedLabelFolds().split(Y[:3], Y), "X and Y differ in their number of rows: 3 and 5"),
    ],
)
def test_bad_arguments(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(np.eye(5))


def test_splitter_in_scikit_learn() -> None:
    rng = np.random.default_rng(6)
    X = rng.standard_normal((120, 3))
    Y = (X[:, :2] + 0.3 * rng.standard_normal((120, 2)) > 0.5).astype(int)
    model = MultiOutputClassifier(LogisticRegression())
    cv = StratifiedLabelFolds(4, order=2, random_state=1)
    scores = cross_val_score(model, X, Y, cv=cv)
    assert scores.shape == (4,)
    assert scores.mean() > 0.7
    np.testing.assert_array_equal(scores, cross_val_score(model, X, Y, cv=cv))
    search = GridSearchCV(model, {"estimator__C": [0.1, 10.0]}, cv=cv).fit(X, Y)
    assert search.n_splits_ == 4
    nested = cross_validate(search, X, Y, cv=StratifiedLabelFolds(3, random_state=2))
    assert nested["test_score"].shape == (3,)
    assert repr(cv) == "StratifiedLabelFolds(n_splits=4, order=2, random_state=1)"
    assert cv.get_n_splits() == 4


class ShareOfRows(BaseEstimator):
    """An estimator that takes any Y, and scores the share of rows it was given."""

    def __init__(self, rows: int = 1) -> None:
        self.rows = rows

    def fit(self, X: Any, Y: Any) -> "ShareOfRows":
        return self

    def score(self, X: Any, Y: Any) -> float:
        return Y.shape[0] / self.rows


def test_splitter_takes_sparse_and_unobserved_labels() -> None:
    Y = labels(7, (40, 3), 0.4, hidden=0.2)
    X = np.zeros((40, 2))
    cv = StratifiedLabelFolds(4)
    assert cross_val_score(ShareOfRows(40), X, Y, cv=cv).tolist() == [0.25] * 4
    for form in (Y, sparse.csr_array(np.nan_to_num(Y)), pd.DataFrame(Y)):
        search = GridSearchCV(ShareOfRows(), {"rows": [10, 20]}, cv=cv).fit(X, form)
        assert search.cv_results_["mean_test_score"].tolist() == [1.0, 0.5]


def test_random_state_of_the_splitter() -> None:
    Y = labels(8, (50, 3), 0.5)

    def tests(cv: StratifiedLabelFolds) -> list[list[int]]:
        return [test.tolist() for _, test in cv.split(None, Y)]

    fixed = StratifiedLabelFolds(3, random_state=4)
    assert tests(fixed) == tests(fixed)
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    free = StratifiedLabelFolds(3, random_state=None)
    assert tests(free) != tests(free)
    np.testing.assert_array_equal(state, np.random.get_state()[1])  # noqa: NPY002
    old = np.random.RandomState(3)
    assert tests(StratifiedLabelFolds(3, random_state=old)) == tests(
        StratifiedLabelFolds(3, random_state=np.random.RandomState(3))
    )


@quiet
def test_hundred_thousand_rows_in_seconds() -> None:
    """1e5 rows x 100 labels, 3 % positive: below half a second each on an idle core, 10 s allowed."""
    rng = np.random.default_rng(10)
    cells = np.unique(rng.integers(0, 10_000_000, size=304_000))
    Y = sparse.csr_array((np.ones(len(cells), np.int8), np.divmod(cells, 100)), shape=(100_000, 100))
    start = time.process_time()
    found = [split_rows(Y, 0.2, method="stratified"), fold_rows(Y, 10, method="stratified")]
    seconds = time.process_time() - start
    assert seconds < 10, f"{seconds:.1f} s"
    off = []
    for parts in map(parts_of, found):
        target = np.bincount(Y.indices) / 100_000 * np.array([len(rows) for rows in parts])[:, None]
        off.append(np.abs(counts(Y, parts) - target))
    assert off[0].max() < 1.0, "two parts: every label within one row of its share"
    assert off[1].mean() < 1.5, "ten folds: a random split is 13 rows off on average"


def test_ties_go_to_the_part_with_room_then_to_chance() -> None:
    """One item of 8 rows in four parts; the last part is full, the first has placed one row already."""
    ledger = strat._Ledger([], [9, 5, 5, 0], [1, 0, 0, 0], [7])
    chosen = [strat._neediest(0, 8, ledger, [0.25] * 4, draw) for draw in (0.0, 0.49, 0.51, 0.999)]
    assert chosen == [1, 1, 2, 2], "equal demand and room: the draw decides; a full part never"
    ledger = strat._Ledger([], [9, 5, 6, 0], [1, 0, 0, 0], [7])
    assert strat._neediest(0, 8, ledger, [0.25] * 4, 0.0) == 2, "equal demand: most room"
    ledger = strat._Ledger([], [1, 5, 6, 0], [0, 1, 1, 0], [6])
    assert strat._neediest(0, 8, ledger, [0.25] * 4, 0.0) == 0, "demand before room"


@quiet
def test_a_single_positive_may_fall_into_any_fold() -> None:
    Y = np.zeros((9, 1))
    Y[4] = 1
    homes = [
        next(j for j, fold in enumerate(fold_rows(Y, 3, seed, method="stratified").folds) if 4 in fold)
        for seed in range(30)
    ]
    assert set(homes) == {0, 1, 2}


def test_warnings_name_what_has_names_and_stay_short() -> None:
    Y = pd.DataFrame(np.eye(40, dtype=int)).add_prefix("x" * 10_000)
    for data in (Y, LabelData(np.zeros((40, 1)), Y.to_numpy(), label_names=list(Y.columns))):
        with pytest.warns(AbsentLabelsWarning, match=r"'x{60}\.\.\.'") as caught:
            split_rows(data)
        assert max(len(str(one.message)) for one in caught) < 800
    with pytest.warns(AbsentLabelsWarning, match="'rain'"):
        fold_rows(pd.Series([1, 0, 0, 0], name="rain"), 4)
