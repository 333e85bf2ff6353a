"""Reading and writing .npz files."""

import os
import tokenize
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from labelzoo.data.classes import one_hot
from labelzoo.data.errors import DataError
from labelzoo.data.labeldata import LabelData
from labelzoo.data.limits import check_stored_csr, checked_shape, refuse_unwritable, whole_array
from labelzoo.data.missing import Missing
from labelzoo.data.text_files import refuse_irregular
from labelzoo.data.validate import listed
from labelzoo.whole_file import whole_file

# RuntimeError and its subclasses are what zipfile raises for encrypted members and unknown compression;
# SyntaxError and TokenError what NumPy lets through for a damaged array header.
UNREADABLE = (
    OSError, EOFError, ValueError, KeyError, RuntimeError, MemoryError, OverflowError, TypeError, SyntaxError,
    zipfile.BadZipFile, zlib.error, tokenize.TokenError,
)  # fmt: skip
MAX_INFLATION = 1100  # deflate cannot do better than 1032 to 1: a member that claims more is damaged
MAX_HEADER = 10_000  # bytes of an array header


def from_npz(path: str | os.PathLike[str], *, allow_missing_features: bool = False) -> LabelData:
    """Read LabelData from an .npz file.

    The arrays are ``X`` (n, d), or ``X_data, X_indices, X_indptr, X_shape`` (CSR); ``Y_indices, Y_indptr,
    Y_shape`` (CSR of ones), or ``y`` (class index) with ``class_names``, which becomes one label a class;
    optionally ``feature_names, label_names, example_names, train_index, test_index`` and, as `save_npz`
    writes them, ``missing_rows, missing_cell_rows, missing_cell_labels, missing_cells_are`` and
    ``content_hash``, which is checked. Sizes are held against what the arrays hold before anything is built.

    Rows that a published split holds on both sides leave the test side, with a warning.

    Raises
    ------
    DataError
        With one line that begins with the path.
    """
    refuse_irregular(path)
    try:
        arrays = read_arrays(path)
    except UNREADABLE as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"cannot be read as .npz: {reason}", path) from error
    return from_stored(arrays, path, allow_missing_features)


def from_stored(
    arrays: dict[str, Any], path: str | os.PathLike[str], allow_missing_features: bool
) -> LabelData:
    """Build LabelData from named arrays that ``path`` held and check the stored hash.

    Raises
    ------
    DataError
        Where an array is absent or does not fit the others.
    """
    try:
        data = from_layout(arrays, str(path), allow_missing_features)
        check_hash(data, arrays.get("content_hash"))
        return data
    except KeyError as error:
        raise DataError(f"has no array {error} (found {', '.join(sorted(arrays))})", path) from error
    except (ValueError, TypeError, OverflowError, IndexError, MemoryError) as error:
        raise DataError(str(error) or type(error).__name__, path) from error


def read_arrays(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read every array of an .npz file; pickled objects and arrays larger than their bytes are refused."""
    with open(path, "rb") as stream:
        if not zipfile.is_zipfile(stream):
            stream.seek(0)
            if stream.read(6) == np.lib.format.MAGIC_PREFIX:
                raise ValueError("it holds one array, not an archive of named arrays")
            raise ValueError("it is not a zip archive, or it is cut off")
        with zipfile.ZipFile(stream) as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy warns of a damaged header before it refuses it
            members = archive.infolist()
            return {info.filename.removesuffix(".npy"): read_member(archive, info) for info in members}


def read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Any:
    """Read one array after its header has been held against the size of the member."""
    if info.file_size > MAX_INFLATION * info.compress_size + MAX_HEADER:
        raise ValueError(f"{info.filename!r} claims {info.file_size} bytes from {info.compress_size}")
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"{info.filename!r} has an array format {version} that is not known")
        reader = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = reader(member, max_header_size=MAX_HEADER)
        if dtype.hasobject:
            raise ValueError(f"Object arrays cannot be loaded: {info.filename!r}")
        sizes = [int(size) for size in shape]
        count = 1
        for size in sizes:
            count *= size
        left = info.file_size - member.tell()
        if any(size < 0 for size in sizes) or count * dtype.itemsize != left:
            raise ValueError(f"{info.filename!r} declares shape {tuple(sizes)}, but holds {left} bytes")
    with archive.open(info) as member:
        array = np.lib.format.read_array(member, allow_pickle=False)
        member.read(1)  # the checksum is compared at the end of the member
    return array


def from_layout(arrays: dict[str, Any], source: str, allow_missing_features: bool) -> LabelData:
    """Build LabelData from the arrays of an .npz file; KeyError names an array that is absent."""
    names = {
        key: stored_names(arrays.get(key), key) for key in ("feature_names", "label_names", "example_names")
    }
    if "X" in arrays or "X_data" not in arrays:
        X = arrays["X"]
    else:
        X = csr_from(arrays, "X", arrays["X_data"], names["feature_names"])
    if "y" in arrays and "Y_indices" not in arrays:
        names["label_names"] = stored_names(arrays["class_names"], "class_names")
        Y = one_hot(class_codes(arrays["y"], names["label_names"]), len(names["label_names"] or ()))
    else:
        Y = csr_from(arrays, "Y", None, names["label_names"])
    train, test = without_overlap(arrays.get("train_index"), arrays.get("test_index"), source)
    return LabelData(
        X=X,
        Y=Y,
        missing=missing_from(arrays),
        train_index=train,
        test_index=test,
        allow_missing_features=allow_missing_features,
        **names,
    )


def stored_names(names: Any, key: str) -> list[str] | None:
    """Return a stored list of names, or raise ValueError where it is anything else."""
    if names is None:
        return None
    array = np.asarray(names)
    if array.ndim != 1:
        raise ValueError(f"{key} must be one-dimensional, a list of strings; got shape {array.shape}")
    return list(array.tolist())


def csr_from(arrays: dict[str, Any], key: str, values: Any, names: Any) -> sparse.csr_array:
    """Build a csr_array from its stored parts, which are checked in full before; None stands for ones."""
    indices = whole_array(arrays[f"{key}_indices"], f"{key}_indices")
    indptr = whole_array(arrays[f"{key}_indptr"], f"{key}_indptr")
    shape = checked_shape(arrays[f"{key}_shape"], f"{key}_shape")
    values = np.ones(len(indices), dtype=np.int8) if values is None else np.asarray(values)
    if values.ndim != 1:
        raise ValueError(f"{key}_data must be one-dimensional, got shape {values.shape}")
    check_stored_csr(indices, indptr, len(values), shape, names, key)
    return sparse.csr_array((values, indices, indptr), shape=shape)


def class_codes(y: Any, class_names: Any) -> Any:
    """Return stored class indices (n,), or raise ValueError where they are none of the named classes."""
    count = len(class_names)
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise ValueError(f"y must be one class index a row, got {y.dtype} of shape {y.shape}")
    outside = np.flatnonzero((y < 0) | (y >= count))
    if len(outside):
        texts = [f"row {i}: {y[i]}" for i in outside]
        raise ValueError(f"y has classes outside 0..{count - 1}: {listed(texts)}")
    return y


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

    Raises
    ------
    ValueError
        For names that no file holds, and where the file cannot be written.
    """
    arrays = to_layout(data)
    with whole_file(Path(path)) as temporary, temporary.open("wb") as stream:
        np.savez_compressed(stream, **arrays)
        stream.flush()
        os.fsync(stream.fileno())


def to_layout(data: LabelData) -> dict[str, Any]:
    """Return the arrays that `save_npz` writes."""
    refuse_unwritable(data)
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
