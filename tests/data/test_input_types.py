"""Every accepted type of input gives the same LabelData, and sparse input stays sparse."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from labelzoo.data import LabelData, from_arrays, from_frame

X = np.array([[0.5, 0.0, 2.0], [0.0, 1.0, 0.0], [3.0, 0.0, 0.0], [0.0, 0.0, -1.5]])
Y = np.array([[1, 0], [0, 1], [0, 0], [1, 1]])

DENSE = {
    "ndarray": lambda a: a,
    "fortran": np.asfortranarray,
    "strided": lambda a: np.repeat(a, 2, axis=0)[::2],
    "list": lambda a: a.tolist(),
    "tuple": lambda a: tuple(map(tuple, a.tolist())),
    "object": lambda a: a.astype(object),
    "masked": np.ma.asarray,
    "jax": jnp.asarray,
    "frame": pd.DataFrame,
}
SPARSE = {
    "csr_matrix": sparse.csr_matrix,
    "csr_array": sparse.csr_array,
    "csc_array": sparse.csc_array,
    "lil_array": sparse.lil_array,
    "coo_array": sparse.coo_array,
    "dok_array": sparse.dok_array,
    "bsr_array": sparse.bsr_array,
    "dia_array": sparse.dia_array,
    "sparse_frame": lambda a: pd.DataFrame.sparse.from_spmatrix(sparse.csc_matrix(a)),
}
KINDS = {**DENSE, **SPARSE}


@pytest.mark.parametrize("kind_y", KINDS)
@pytest.mark.parametrize("kind_x", KINDS)
def test_same_contents_from_every_type(kind_x: str, kind_y: str) -> None:
    data = from_arrays(KINDS[kind_x](X), KINDS[kind_y](Y))
    assert data.hash() == LabelData(X, Y).hash()
    assert isinstance(data.Y, sparse.csr_array)
    assert data.Y.dtype == np.int8
    np.testing.assert_array_equal(data.Y.toarray(), Y)
    assert isinstance(data.X, sparse.csr_array) == (kind_x in SPARSE)
    assert data.X.dtype == np.float64


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int64, np.float32, np.float64])
def test_every_label_dtype(dtype: type) -> None:
    assert from_arrays(X, Y.astype(dtype)).hash() == LabelData(X, Y).hash()
    assert from_arrays(X, sparse.csr_array(Y.astype(dtype))).hash() == LabelData(X, Y).hash()


@pytest.mark.parametrize(
    "masked",
    [
        lambda a: a,
        lambda a: a.tolist(),
        jnp.asarray,
        pd.DataFrame,
        lambda a: pd.DataFrame(a).astype("Int64"),
        lambda a: pd.DataFrame(a).astype("boolean"),
        lambda a: np.where(np.isnan(a), None, a),
        lambda a: np.ma.MaskedArray(np.nan_to_num(a), np.isnan(a)),
        sparse.csr_array,
        sparse.coo_array,
    ],
)
def test_unobserved_labels_from_every_type(masked: object) -> None:
    holes = np.array([[1, np.nan], [0, 1], [np.nan, np.nan], [1, 1]])
    data = from_arrays(X, masked(holes))  # type: ignore[operator]
    assert data.hash() == LabelData(X, holes).hash()
    np.testing.assert_array_equal(data.observed_mask(), ~np.isnan(holes))
    np.testing.assert_array_equal(data.Y.toarray(), np.nan_to_num(holes))


def test_frames_keep_their_names() -> None:
    index = ["mon", "tue", "wed", "thu"]
    inputs = pd.DataFrame(X, columns=["a", "b", "c"], index=index)
    labels = pd.DataFrame(Y, columns=["rain", "sun"], index=index)
    data = from_arrays(inputs, labels)
    assert data.feature_names == ("a", "b", "c")
    assert data.label_names == ("rain", "sun")
    assert data.example_names == tuple(index)
    assert from_arrays(inputs, labels, label_names=["x", "y"]).label_names == ("x", "y")


def test_frames_in_different_order_are_refused() -> None:
    inputs = pd.DataFrame(X, index=list("abcd"))
    labels = pd.DataFrame(Y, index=list("abdc"))
    with pytest.raises(ValueError, match=r"name their rows differently.*row 2: 'c' and 'd'"):
        from_arrays(inputs, labels)


def test_one_frame_round_trip() -> None:
    holes = Y.astype(float)
    holes[1] = np.nan
    holes[3, 0] = np.nan
    data = LabelData(sparse.csr_array(X), holes, label_names=["rain", "sun"])
    again = from_frame(data.to_frame(), ["rain", "sun"])
    assert again.hash() == data.hash()


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (["z"], {}, r"the frame has no columns 'z'"),
        (["a"], {"feature_columns": ["a", "b"]}, r"both label and feature: 'a'"),
    ],
)
def test_frame_columns_are_checked(columns: list[str], options: dict, message: str) -> None:
    frame = pd.DataFrame(Y, columns=["a", "b"])
    with pytest.raises(ValueError, match=message):
        from_frame(frame, columns, **options)


def test_duplicate_frame_columns_are_refused() -> None:
    with pytest.raises(ValueError, match=r"duplicate columns: 'a'"):
        from_frame(pd.DataFrame(Y, columns=["a", "a"]), ["a"])


def test_frame_without_features() -> None:
    data = from_frame(pd.DataFrame(Y, columns=["a", "b"]), ["a", "b"])
    assert (data.num_rows, data.num_features, data.num_labels) == (4, 0, 2)


def test_contents_are_read_only_copies() -> None:
    mine = X.copy()
    data = LabelData(mine, Y)
    mine[0, 0] = 99.0
    assert data.X[0, 0] == 0.5
    for array in (data.X, data.Y.data, data.Y.indices):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7


def test_read_only_sparse_arrays_work_with_scipy() -> None:
    data = LabelData(sparse.csr_array(X), Y)
    assert (data.X @ np.ones(3)).sum() == pytest.approx(X.sum())
    np.testing.assert_array_equal((data.X.T @ data.Y).toarray(), X.T @ Y)
    np.testing.assert_array_equal(data.Y[[2, 0]][:, [1]].toarray(), Y[[2, 0]][:, [1]])
    np.testing.assert_array_equal(data.Y.tocsc().sum(axis=0), Y.sum(axis=0))


def test_import_is_light() -> None:
    import subprocess
    import sys

    code = (
        "import sys; before = set(sys.modules); import labelzoo.data; "
        "print([m for m in ('sklearn', 'pandas', 'jax', 'arviz') if m in set(sys.modules) - before])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
