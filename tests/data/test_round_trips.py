"""Properties: what is saved in any format is what is loaded, or the format says what it cannot hold."""

import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from labelzoo.data import LabelData
from labelzoo.data.files import load, save_data

SUFFIXES = ["npz", "nc", "csv", "tsv.gz", "svm", "svm.bz2", "xmc", "xmc.gz", "arff", "arff.gz"]
LOST = {
    "xmc": ("feature_names", "label_names", "example_names", "train_index", "test_index"),
    "arff": ("example_names", "train_index", "test_index"),
    "csv": ("train_index", "test_index"),
    "tsv": ("train_index", "test_index"),
}
FAST = settings(derandomize=True, deadline=None, max_examples=30)
ODD = st.sampled_from(list("ab19 ,;:'\"%#?{}\\=<>&@\t\n\r*-_.é日\u2028\x85"))
NAMES = st.text(ODD, max_size=6)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def tables(draw: st.DrawFn, holes: bool = True) -> dict[str, Any]:
    """Draw what a table is made of: dense or sparse, with or without gaps, odd names, empty rows, a split.

    The package is not called in here: its type checks use ``random``, which hypothesis refuses in strategies.
    """
    n, d, num_labels = draw(st.integers(1, 5)), draw(st.integers(0, 4)), draw(st.integers(1, 4))
    values = st.one_of(st.just(0.0), FLOATS, st.integers(-3, 3).map(float))
    gaps = holes and draw(st.booleans())
    if gaps:
        values = st.one_of(values, st.just(np.nan))
    X: Any = np.array(draw(st.lists(values, min_size=n * d, max_size=n * d)), float).reshape(n, d)
    cells = [0.0, 1.0] + ([np.nan] if holes and draw(st.booleans()) else [])
    Y = np.array(draw(st.lists(st.sampled_from(cells), min_size=n * num_labels, max_size=n * num_labels)))
    if draw(st.booleans()):
        X = sparse.csr_array(X)
    named: dict[str, Any] = {}
    for key, count in (("feature_names", d), ("label_names", num_labels), ("example_names", n)):
        if draw(st.booleans()):
            named[key] = draw(st.lists(NAMES, min_size=count, max_size=count, unique=True))
    if n > 1 and draw(st.booleans()):
        order = draw(st.permutations(range(n)))
        cut = draw(st.integers(1, n - 1))
        named |= {"train_index": list(order[:cut]), "test_index": list(order[cut:])}
    return {"X": X, "Y": Y.reshape(n, num_labels), "allow_missing_features": gaps, **named}


def as_kept(data: LabelData, suffix: str) -> LabelData:
    """Return what the format promises to keep of ``data``."""
    names = ("feature_names", "label_names", "example_names", "train_index", "test_index")
    kept = {key: getattr(data, key) for key in names if key not in LOST.get(suffix.split(".")[0], ())}
    return LabelData(
        data.X, data.Y, missing=data.missing, allow_missing_features=data.allow_missing_features, **kept
    )


def refusal(data: LabelData, suffix: str) -> str | None:
    """Return what the error must say where the format cannot hold ``data``, else None."""
    kind = suffix.split(".")[0]
    if kind in ("svm", "xmc"):
        if data.missing is not None:
            return "cannot hold unobserved labels"
        if data.has_missing_features:
            return "cannot hold NaN in features"
        return "cannot hold data without features" if kind == "svm" and not data.num_features else None
    columns = [*data.feature_names, *data.label_names]
    if kind in ("csv", "tsv"):
        if any("\r" in name for name in [*columns, *data.example_names]):
            return "carriage return"
        return "are empty" if any(not name for name in data.feature_names) else None
    if kind == "arff" and len(set(columns)) < len(columns):
        return "distinct"
    return None


def same_split(a: LabelData, b: LabelData) -> bool:
    """Return whether both have the same published split, or none."""
    if a.train_index is None or b.train_index is None:
        return a.train_index is None and b.train_index is None
    return np.array_equal(a.train_index, b.train_index) and np.array_equal(a.test_index, b.test_index)


def round_trip(data: LabelData, suffix: str) -> LabelData:
    """Save and load in a fresh folder; warnings of lost names are no matter here."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        path = Path(folder) / f"table.{suffix}"
        save_data(data, path)
        return load(path, allow_missing_features=data.allow_missing_features)


@pytest.mark.parametrize("suffix", SUFFIXES)
@FAST
@given(table=tables())
def test_saved_is_loaded(suffix: str, table: dict[str, Any]) -> None:
    data = LabelData(**table)
    message = refusal(data, suffix)
    if message is not None:
        with pytest.raises(ValueError, match=message):
            round_trip(data, suffix)
        return
    again, kept = round_trip(data, suffix), as_kept(data, suffix)
    assert again.hash() == kept.hash()
    assert same_split(again, kept)
    if suffix in ("npz", "nc"):
        assert sparse.issparse(again.X) == sparse.issparse(data.X)


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(derandomize=True, deadline=None, max_examples=8)
@given(table=tables(holes=False), seed=st.integers(0, 99))
def test_permuting_rows_and_labels_commutes_with_saving(
    suffix: str, table: dict[str, Any], seed: int
) -> None:
    data = LabelData(**table)
    if refusal(data, suffix) is not None:
        return
    rng = np.random.default_rng(seed)
    rows, labels = rng.permutation(data.num_rows), rng.permutation(data.num_labels)
    before = round_trip(data.subset(rows, labels), suffix)
    after = round_trip(data, suffix).subset(rows, labels)
    np.testing.assert_array_equal(before.Y.toarray(), after.Y.toarray())
    dense = [part.X.toarray() if sparse.issparse(part.X) else part.X for part in (before, after)]
    np.testing.assert_array_equal(*dense)
    if "label_names" not in LOST.get(suffix.split(".")[0], ()):
        assert before.label_names == after.label_names


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint16, np.int64, np.float16, np.float32])
def test_every_dtype(suffix: str, dtype: type) -> None:
    X = np.array([[0, 1, 1], [1, 0, 0]]).astype(dtype)
    Y = np.array([[0, 1], [1, 1]]).astype(dtype)
    again = round_trip(LabelData(X, Y), suffix)
    assert again.hash() == LabelData(X, Y).hash()
    assert again.X.dtype == np.float64


@pytest.mark.parametrize("first", SUFFIXES)
@pytest.mark.parametrize("second", SUFFIXES)
def test_through_two_formats(first: str, second: str) -> None:
    X = np.array([[0.1, 0.0], [0.0, 0.0], [-2.5, 1e300]])
    data = LabelData(X, [[1, 0, 0], [0, 0, 0], [0, 1, 1]])
    assert round_trip(round_trip(data, first), second).hash() == data.hash()
