"""Reading and writing .npz files, and the data sets that come with the package."""

import os
import uuid
import warnings
import zipfile
import zlib
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from labelzoo.data.labeldata import LabelData
from labelzoo.data.missing import Missing
from labelzoo.data.validate import listed

BUILTIN = ("emoji",)
# RuntimeError and its subclasses are what zipfile raises for encrypted members and unknown compression.
UNREADABLE = (OSError, EOFError, ValueError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error)


def load(name_or_path: str | os.PathLike[str], *, allow_missing_features: bool = False) -> LabelData:
    """Return a built-in data set by its name (``"emoji"``), or read an .npz file.

    Parameters
    ----------
    name_or_path : str or path
        A name of `BUILTIN`, or the path of a file in the layout of `save_npz`.
    allow_missing_features : bool
        Accept NaN in the features.

    Raises
    ------
    ValueError
        With one line that names the path, where it is absent, unreadable, truncated or not valid.
    """
    if str(name_or_path) in BUILTIN:
        with resources.as_file(resources.files("labelzoo.data") / f"{name_or_path}.npz") as path:
            return from_npz(path)
    path = Path(name_or_path)
    if not path.exists():
        raise ValueError(f"{path}: no such file, and no built-in data set of that name ({known()})")
    if path.suffix.lower() != ".npz":
        raise ValueError(f"{path}: not an .npz file ({known()})")
    return from_npz(path, allow_missing_features=allow_missing_features)


def known() -> str:
    """Return the sentence part that lists the built-in data sets."""
    return f"built-in data sets: {', '.join(BUILTIN)}"


def from_npz(path: str | os.PathLike[str], *, allow_missing_features: bool = False) -> LabelData:
    """Read LabelData from an .npz file.

    The arrays are ``X`` (n, d), or ``X_data, X_indices, X_indptr, X_shape`` (CSR); ``Y_indices, Y_indptr,
    Y_shape`` (CSR of ones), or ``y`` (class index) with ``class_names``, which becomes one label a class;
    optionally ``feature_names, label_names, example_names, train_index, test_index`` and, as `save_npz`
    writes them, ``missing_rows, missing_cell_rows, missing_cell_labels, missing_cells_are`` and
    ``content_hash``, which is checked.

    Rows that a published split holds on both sides leave the test side, with a warning.

    Raises
    ------
    ValueError
        With one line that begins with the path.
    """
    try:
        arrays = read_arrays(path)
    except UNREADABLE as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{path}: cannot be read as .npz: {reason} ({known()})") from error
    try:
        data = from_layout(arrays, str(path), allow_missing_features)
        check_hash(data, arrays.get("content_hash"))
        return data
    except KeyError as error:
        raise ValueError(f"{path}: has no array {error} (found {', '.join(sorted(arrays))})") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def read_arrays(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read every array of an .npz file; pickled objects are refused."""
    with open(path, "rb") as stream:  # np.load leaves a file that it opened and could not read open
        archive = np.load(stream, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("it holds one array, not an archive of named arrays")
        with archive:
            return {key: archive[key] for key in archive.files}


def from_layout(arrays: dict[str, Any], source: str, allow_missing_features: bool) -> LabelData:
    """Build LabelData from the arrays of an .npz file; KeyError names an array that is absent."""
    X = arrays["X"] if "X" in arrays or "X_data" not in arrays else csr_from(arrays, "X", arrays["X_data"])
    if "y" in arrays and "Y_indices" not in arrays:
        Y, label_names = one_hot(arrays["y"], arrays["class_names"]), arrays["class_names"]
    else:
        ones = np.ones(len(arrays["Y_indices"]), dtype=np.int8)
        Y, label_names = csr_from(arrays, "Y", ones), arrays.get("label_names")
    train, test = without_overlap(arrays.get("train_index"), arrays.get("test_index"), source)
    return LabelData(
        X=X,
        Y=Y,
        missing=missing_from(arrays),
        feature_names=arrays.get("feature_names"),
        label_names=label_names,
        example_names=arrays.get("example_names"),
        train_index=train,
        test_index=test,
        allow_missing_features=allow_missing_features,
    )


def csr_from(arrays: dict[str, Any], key: str, values: Any) -> sparse.csr_array:
    """Build a csr_array from its stored parts and check them in full."""
    shape = tuple(int(size) for size in arrays[f"{key}_shape"])
    result = sparse.csr_array((values, arrays[f"{key}_indices"], arrays[f"{key}_indptr"]), shape=shape)
    result.check_format(full_check=True)
    return result


def one_hot(y: Any, class_names: Any) -> sparse.csr_array:
    """Return class indices (n,) as a csr_array (n, classes) with one positive a row."""
    count = len(class_names)
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise ValueError(f"y must be one class index a row, got {y.dtype} of shape {y.shape}")
    outside = np.flatnonzero((y < 0) | (y >= count))
    if len(outside):
        texts = [f"row {i}: {y[i]}" for i in outside]
        raise ValueError(f"y has classes outside 0..{count - 1}: {listed(texts)}")
    return sparse.csr_array((np.ones(len(y), np.int8), y, np.arange(len(y) + 1)), shape=(len(y), count))


def without_overlap(train: Any, test: Any, source: str) -> tuple[Any, Any]:
    """Return the split with rows that stand on both sides taken from the test side, with a warning."""
    if train is None or test is None:
        return train, test
    shared = np.intersect1d(train, test)
    if not shared.size:
        return train, test
    rows = listed(shared.astype(str).tolist())
    warnings.warn(f"{source}: rows of train_index dropped from test_index: {rows}", UserWarning, stacklevel=4)
    return train, test[~np.isin(test, shared)]


def missing_from(arrays: dict[str, Any]) -> Missing | None:
    """Return the stored missingness, or None where the file has none."""
    if "missing_rows" not in arrays:
        return None
    cells = (arrays["missing_cell_rows"], arrays["missing_cell_labels"])
    return Missing(arrays["missing_rows"], cells, str(arrays["missing_cells_are"]))


def check_hash(data: LabelData, stored: Any) -> None:
    """Raise ValueError where the contents are not those saved: a damaged zip may lose whole arrays."""
    if stored is not None and str(stored) != data.hash():
        raise ValueError("content_hash does not fit the contents: the file was damaged or edited")


def save_npz(data: LabelData, path: str | os.PathLike[str]) -> None:
    """Write ``data`` in the layout that `from_npz` reads, at once or not at all.

    The file is written beside its destination and renamed, so that no reader sees half of it. Features are
    stored as float32 where that loses nothing. The same contents give the same bytes.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
    try:
        with temporary.open("xb") as stream:
            np.savez_compressed(stream, **to_layout(data))
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def to_layout(data: LabelData) -> dict[str, Any]:
    """Return the arrays that `save_npz` writes."""
    # The hash comes first: damage that hides the rest of the archive cannot hide it as well.
    arrays: dict[str, Any] = {"content_hash": np.array(data.hash())}
    if sparse.issparse(data.X):
        arrays |= {"X_data": compact(data.X.data), "X_indices": data.X.indices, "X_indptr": data.X.indptr}
        arrays["X_shape"] = np.array(data.X.shape)
    else:
        arrays["X"] = compact(data.X)
    arrays |= {"Y_indices": data.Y.indices, "Y_indptr": data.Y.indptr, "Y_shape": np.array(data.Y.shape)}
    for key in ("feature_names", "label_names", "example_names"):
        arrays[key] = np.array(getattr(data, key), dtype=np.str_)
    if data.train_index is not None:
        arrays |= {"train_index": data.train_index, "test_index": data.test_index}
    if data.missing is not None:
        arrays |= {"missing_rows": data.missing.rows, "missing_cells_are": np.array(data.missing.cells_are)}
        arrays |= {"missing_cell_rows": data.missing.cells[0], "missing_cell_labels": data.missing.cells[1]}
    return arrays


def compact(values: Any) -> Any:
    """Return ``values`` as float32 where that is exact, else unchanged."""
    with np.errstate(over="ignore"):
        small = values.astype(np.float32)
    return small if np.array_equal(small, values, equal_nan=True) else values
