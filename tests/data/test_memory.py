"""Sparse tables stay sparse: the peak of Python's memory is far below one dense table."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

from labelzoo.data import LabelData, Missing
from labelzoo.data.metrics import TopK, precision_at_k
from labelzoo.data.splits import fold_rows

MIB = 2**20


def random_csr(seed: int, shape: tuple[int, int], count: int) -> sparse.csr_array:
    rng = np.random.default_rng(seed)
    cells = rng.choice(shape[0] * shape[1], size=count, replace=False)
    return sparse.csr_array((np.ones(count), np.divmod(cells, shape[1])), shape=shape)


@pytest.mark.filterwarnings("ignore::labelzoo.data.splits.AbsentLabelsWarning")
def test_large_sparse_labels_are_never_densified() -> None:
    Y = random_csr(1, (20_000, 50_000), 60_000)
    X = random_csr(2, (20_000, 1_000), 100_000)
    flags = np.diff(Y.indptr) == 0
    empty = np.flatnonzero(~flags)[:500]
    cells = (np.repeat(empty, 1), np.asarray([49_999 - Y.indices[Y.indptr[i]] for i in empty]))
    tracemalloc.start()
    try:
        data = LabelData(X, Y, missing=Missing(flags, cells))
        summary = data.summary()
        part = data.subset(rows=np.arange(0, 20_000, 2), labels=np.arange(40_000))
        train, test = part.split()
        strata = part.split(method="stratified", order=2)
        folds = fold_rows(data, 5, method="stratified")
        best = TopK(np.tile(np.arange(5), (20_000, 1)), np.zeros((20_000, 5)), 50_000)
        hits = precision_at_k(data.Y, best, 5, missing=data.missing)
        digest = data.hash()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert summary["positives"] == 60_000
    assert summary["missing_cells"] == flags.sum() * 50_000 + 500
    assert train.num_rows + test.num_rows == 10_000
    assert [one.num_rows for one in strata] == [8_000, 2_000]
    assert sum(len(fold) for fold in folds.folds) == 20_000
    assert hits.num_undefined == flags.sum()
    assert len(summary["frequent_pairs"]) == 10
    assert len(digest) == 64
    assert peak < 50 * MIB, f"peak {peak / MIB:.1f} MiB"


def test_large_sparse_features_are_never_densified() -> None:
    X = random_csr(3, (100_000, 100_000), 1_000_000)
    tracemalloc.start()
    try:
        data = LabelData(X, sparse.csr_array((100_000, 3)))
        data.summary()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    bytes_stored = 1_000_000 * 12
    assert peak < 20 * bytes_stored, f"peak {peak / MIB:.1f} MiB"


@pytest.mark.filterwarnings("ignore::labelzoo.data.splits.AbsentLabelsWarning")
def test_rows_with_many_positives_are_counted_in_blocks() -> None:
    """Four rows of 3000 positives make 36 million products, 9 million pairs: some blocks at a time."""
    Y = sparse.lil_array((1_000, 20_000))
    for row in range(4):
        Y[row, np.arange(3_000) * 6 + row] = 1
    data = LabelData(sparse.csr_array((1_000, 1)), sparse.csr_array(Y))
    tracemalloc.start()
    try:
        pairs = data.summary()["frequent_pairs"]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [pair["rows"] for pair in pairs] == [1] * 10
    assert peak < 80 * MIB, f"peak {peak / MIB:.1f} MiB"
