"""Missingness, subsets, splits, summary and hash of LabelData."""

import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

from labelzoo.data import LabelData, Missing, missing_from_cells, missing_from_observed
from labelzoo.data.splits import AbsentLabelsWarning

NAN = np.nan


def random_labels(seed: int, n: int, num_labels: int, missing: float) -> np.ndarray:
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, num_labels)) < 0.3).astype(float)
    Y[rng.random(Y.shape) < missing] = NAN
    Y[rng.random(n) < 0.2] = NAN
    return Y


def table(Y: np.ndarray, **options: object) -> LabelData:
    X = np.arange(Y.shape[0] * 2, dtype=float).reshape(-1, 2)
    return LabelData(X, Y, **options)  # type: ignore[arg-type]


def dense(data: LabelData) -> np.ndarray:
    result = data.Y.toarray().astype(float)
    result[~data.observed_mask()] = NAN
    return result


@pytest.mark.parametrize("missing", [0.0, 0.05, 0.5, 0.95])
@pytest.mark.parametrize("seed", range(4))
def test_missing_round_trip_in_the_shorter_form(seed: int, missing: float) -> None:
    Y = random_labels(seed, 30, 7, missing)
    data = table(Y)
    np.testing.assert_array_equal(dense(data), Y)
    rows, labels = data.missing_cells()
    np.testing.assert_array_equal(np.stack([rows, labels]), np.nonzero(np.isnan(Y)))
    assert data.num_missing_cells == np.isnan(Y).sum()
    if data.missing is not None:
        whole = np.isnan(Y).all(axis=1)
        partial = Y[np.isnan(Y).any(axis=1) & ~whole]
        np.testing.assert_array_equal(data.missing.rows, whole)
        assert len(data.missing.cells[0]) == min(np.isnan(partial).sum(), (~np.isnan(partial)).sum())


def test_both_forms_of_cells_mean_the_same() -> None:
    Y = np.array([[1, NAN, 0, NAN], [0, 1, 0, 0], [NAN] * 4, [NAN, NAN, NAN, 1]])
    flags = np.array([False, False, True, False])
    unobserved = Missing(flags, ([0, 0, 3, 3, 3], [1, 3, 0, 1, 2]), "missing")
    observed = Missing(flags, ([3, 0, 0], [3, 2, 0]), "observed")
    full = Missing(flags, ([1, 1, 1, 1, 0, 0, 3], [0, 1, 2, 3, 0, 2, 3]), "observed")
    ours = [table(np.nan_to_num(Y), missing=m) for m in (unobserved, observed, full)]
    assert {data.hash() for data in ours} == {table(Y).hash()}
    assert ours[0].missing is not None
    assert ours[0].missing.cells_are == "observed"


def test_equally_long_lists_are_stored_as_missing() -> None:
    flags = np.zeros(2, dtype=bool)
    ours = [
        table(np.zeros((2, 4)), missing=Missing(flags, cells, kind))
        for cells, kind in ((([1, 1], [0, 2]), "missing"), (([1, 1], [3, 1]), "observed"))
    ]
    assert ours[0].hash() == ours[1].hash()
    assert ours[1].missing is not None
    assert ours[1].missing.cells_are == "missing"


def test_missing_builders() -> None:
    Y = random_labels(5, 12, 4, 0.3)
    zeros = np.nan_to_num(Y)
    by_mask = table(zeros, missing=missing_from_observed(~np.isnan(Y)))
    by_cells = table(zeros, missing=missing_from_cells(*np.nonzero(np.isnan(Y)), Y.shape))
    assert by_mask.hash() == by_cells.hash() == table(Y).hash()
    assert missing_from_observed(np.ones((3, 2), dtype=bool)) is None
    with pytest.raises(ValueError, match="observed must be a bool mask"):
        missing_from_observed(np.ones((3, 2)))


def test_pool_of_unlabelled_rows_costs_its_flags_only() -> None:
    flags = np.arange(1000) >= 10
    data = table(np.zeros((1000, 50)), missing=Missing(flags))
    assert data.missing is not None
    assert len(data.missing.cells[0]) == 0
    assert data.num_missing_cells == 990 * 50


@pytest.mark.parametrize("missing", [0.0, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("seed", range(6))
def test_subset_equals_indexing(seed: int, missing: float) -> None:
    Y = random_labels(seed, 25, 6, missing)
    data = table(Y)
    rng = np.random.default_rng(100 + seed)
    rows = rng.integers(0, 25, size=18)
    labels = rng.permutation(6)[: rng.integers(1, 7)]
    part = data.subset(rows=rows, labels=labels, features=[1])
    np.testing.assert_array_equal(dense(part), Y[rows][:, labels])
    np.testing.assert_array_equal(part.X, data.X[rows][:, [1]])
    assert part.label_names == tuple(f"label {i}" for i in labels)
    assert part.example_names == tuple(f"row {i}" for i in rows)
    assert part.feature_names == ("feature 1",)


def test_row_that_loses_its_last_observed_label_is_unlabelled() -> None:
    data = table(np.array([[NAN, NAN, NAN, 1.0], [0, 0, 0, 0]]))
    assert data.missing is not None
    assert data.missing.cells_are == "observed"
    part = data.subset(labels=[0, 1])
    np.testing.assert_array_equal(part.unlabelled_rows, [True, False])


def test_subset_by_names_masks_slices_and_negative_positions() -> None:
    data = table(np.eye(3), label_names=["a", "b", "c"], example_names=["x", "y", "z"])
    wanted = data.subset(rows=[0, 2], labels=["c", "a"]).hash()
    assert data.subset(rows=["x", "z"], labels=[2, 0]).hash() == wanted
    assert data.subset(rows=np.array([True, False, True]), labels=["c", "a"]).hash() == wanted
    assert data.subset(rows=slice(0, None, 2), labels=[-1, 0]).hash() == wanted
    assert data.subset(rows=1).num_rows == 1
    assert data.subset(labels="b").label_names == ("b",)


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ({"rows": [3]}, r"rows has positions outside 0\.\.2: 3"),
        ({"rows": [-4]}, r"rows has positions outside 0\.\.2: -4"),
        ({"rows": [True, False]}, r"rows mask has length 2, expected 3"),
        ({"rows": []}, r"X has no rows"),
        ({"rows": [0.5]}, r"rows has unknown names: 0\.5"),
        ({"rows": [[0, 1]]}, r"rows must be one-dimensional"),
        ({"rows": ["same"]}, r"rows has names that stand for several positions: 'same'"),
        ({"labels": ["d"]}, r"labels has unknown names: 'd'"),
        ({"labels": [0, 0]}, r"labels has duplicate names: 'a' in columns 0, 1"),
        ({"labels": []}, r"Y has no labels"),
    ],
)
def test_bad_selections(selection: dict, message: str) -> None:
    data = table(np.eye(3), label_names=["a", "b", "c"], example_names=["same", "same", "other"])
    with pytest.raises(ValueError, match=message):
        data.subset(**selection)


def test_published_split_is_remapped_or_dropped() -> None:
    data = table(np.eye(5), train_index=[4, 0, 1], test_index=[2, 3])
    with pytest.warns(AbsentLabelsWarning, match="no positive in some part for 5 labels"):
        train, test = data.published_split()
    assert train.example_names == ("row 4", "row 0", "row 1")
    assert test.example_names == ("row 2", "row 3")
    assert train.train_index is None
    part = data.subset(rows=[3, 1, 4])
    np.testing.assert_array_equal(part.train_index, [2, 1])
    np.testing.assert_array_equal(part.test_index, [0])
    assert data.subset(rows=[0, 1]).train_index is None
    assert data.subset(rows=[0, 0, 2]).train_index is None
    with pytest.raises(ValueError, match="no published split"):
        train.published_split()


@pytest.mark.parametrize("n", [2, 3, 10, 101])
def test_split_is_disjoint_and_complete(n: int) -> None:
    data = table(np.ones((n, 1)))
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    train, test = data.split(0.3, seed=n)
    assert sorted(train.example_names + test.example_names) == sorted(data.example_names)
    assert test.num_rows == min(max(round(0.3 * n), 1), n - 1)
    assert [part.hash() for part in data.split(0.3, seed=n)] == [train.hash(), test.hash()]
    np.testing.assert_array_equal(state, np.random.get_state()[1])  # noqa: NPY002


def test_split_seeds_differ_and_bad_splits_are_refused() -> None:
    data = table(np.ones((50, 1)))
    assert data.split(seed=0)[1].hash() != data.split(seed=1)[1].hash()
    with pytest.raises(ValueError, match="test_fraction must lie between 0 and 1, got 1"):
        data.split(1)
    with pytest.raises(ValueError, match="split needs at least 2 rows, got 1"):
        table(np.ones((1, 1))).split()


def test_summary() -> None:
    Y = np.array([[1, 0, 1, 0], [1, NAN, 0, 0], [NAN] * 4, [NAN, 0, 0, 0], [1, 0, 1, 0]])
    expected = {
        "rows": 5,
        "features": 2,
        "labels": 4,
        "positives": 5,
        "cardinality": 5 / 4,
        "density": 5 / 14,
        "label_sets": 3,
        "never_positive": ["none", "no"],
        "always_positive": ["all"],
        "empty_rows": 1,
        "missing_cells": 6,
        "unlabelled_rows": 1,
    }
    summary = table(Y, label_names=["all", "none", "some", "no"]).summary()
    assert {name: summary[name] for name in expected} == expected


@pytest.mark.parametrize("missing", [0.0, 0.2, 0.8])
def test_summary_counts_against_the_dense_table(missing: float) -> None:
    Y = random_labels(3, 40, 5, missing)
    Y[:, 1] = np.where(np.isnan(Y[:, 1]), NAN, 1.0)
    Y[:, 2] = np.where(np.isnan(Y[:, 2]), NAN, 0.0)
    summary = table(Y).summary()
    assert summary["always_positive"] == ["label 1"]
    assert summary["never_positive"] == ["label 2"]
    assert summary["density"] == np.nanmean(Y)
    assert summary["missing_cells"] == np.isnan(Y).sum()


def test_summary_of_a_table_without_observations() -> None:
    summary = table(np.full((2, 2), NAN)).summary()
    assert summary["cardinality"] is None
    assert summary["density"] is None
    assert summary["label_sets"] == 0
    assert summary["never_positive"] == ["label 0", "label 1"]
    assert summary["always_positive"] == []


def test_hash_changes_with_every_part_but_the_split() -> None:
    X, Y = np.ones((3, 2)), np.array([[1, 0], [0, 1], [0, NAN]])
    base = LabelData(X, Y)
    other = X.copy()
    other[1, 1] = np.nextafter(1.0, 2.0)
    variants = [
        LabelData(other, Y),
        LabelData(X, np.nan_to_num(Y)),
        LabelData(X, 1 - Y),
        LabelData(X, Y, label_names=["a", "b"]),
        LabelData(X, Y, feature_names=["a", "b"]),
        LabelData(X, Y, example_names=["a", "b", "c"]),
        LabelData(X[:2], Y[:2]),
    ]
    assert len({base.hash(), *(v.hash() for v in variants)}) == 8
    assert LabelData(X, Y, train_index=[0], test_index=[1]).hash() == base.hash()
    assert LabelData(sparse.csc_array(X), Y).hash() == base.hash()
    assert LabelData(X * 1.0 - 0.0, Y).hash() == base.hash()


def test_hash_is_the_same_in_another_process() -> None:
    table_code = "LabelData([[1.0], [-2.5]], [[1, 0], [0, float('nan')]])"
    code = f"from labelzoo.data import LabelData; print({table_code}.hash())"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    known = LabelData([[1.0], [-2.5]], [[1, 0], [0, NAN]]).hash()
    assert result.stdout.strip() == known
    assert known == "a3f4624e766fb8000f7f628592a4a572c9187e854d44789a15764c245d912e82"


def test_dense_tables_have_a_memory_cap() -> None:
    data = table(np.full((100, 20), NAN))
    with pytest.raises(
        ValueError, match=r"observed_mask would make a dense table of 100 x 20 \(2000 bytes\)"
    ):
        data.observed_mask(max_bytes=1999)
    assert data.observed_mask(rows=[1, 5], max_bytes=1999).shape == (2, 20)
    with pytest.raises(ValueError, match="missing_cells would list 2000 cells, more than max_cells=10"):
        data.missing_cells(max_cells=10)
    with pytest.raises(ValueError, match="to_frame would make a dense table of 100 x 22"):
        data.to_frame(max_bytes=1000)


def test_repr_is_one_short_line() -> None:
    text = repr(table(np.array([[1.0, NAN]])))
    assert text == "LabelData(1 rows, 2 dense features, 2 labels, 1 positives, 1 unobserved)"
