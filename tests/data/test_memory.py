"""Sparse tables stay sparse: the peak of Python's memory is far below one dense table."""

import tracemalloc

import numpy as np
from scipy import sparse

from labelzoo.data import LabelData, Missing

MIB = 2**20


def random_csr(seed: int, shape: tuple[int, int], count: int) -> sparse.csr_array:
    rng = np.random.default_rng(seed)
    cells = rng.choice(shape[0] * shape[1], size=count, replace=False)
    return sparse.csr_array((np.ones(count), np.divmod(cells, shape[1])), shape=shape)


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
        digest = data.hash()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert summary["positives"] == 60_000
    assert summary["missing_cells"] == flags.sum() * 50_000 + 500
    assert train.num_rows + test.num_rows == 10_000
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
