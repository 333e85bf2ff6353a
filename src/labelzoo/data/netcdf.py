"""netCDF files through xarray and h5netcdf: features, labels, names, missingness and split, all of it."""

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from labelzoo.data.errors import DataError
from labelzoo.data.labeldata import LabelData
from labelzoo.data.npz import MAX_INFLATION, from_stored, to_layout
from labelzoo.data.text_files import refuse_irregular
from labelzoo.whole_file import whole_file

LAYOUT = "labelzoo.LabelData 1"
MARK = b"\nlabelzoo sha256 "
"""After the HDF5 contents, which readers stop at, stand these bytes and the hash of what goes before.

HDF5 itself does not notice most damage, and may crash on it: the hash is compared before the file is opened.
"""
TRAILER = len(MARK) + 64
HEAD = b"\x89HDF\r\n\x1a\n"
DIMS = {
    "X": ("obs", "feature"), "X_data": ("X_entry",), "X_indices": ("X_entry",), "X_indptr": ("obs_end",),
    "Y_indices": ("Y_entry",), "Y_indptr": ("obs_end",), "missing_rows": ("obs",),
    "missing_cell_rows": ("cell",), "missing_cell_labels": ("cell",),
    "train_index": ("train",), "test_index": ("test",),
}  # fmt: skip
COORDS = {"feature_names": "feature", "label_names": "labels", "example_names": "obs"}
ATTRS = ("content_hash", "missing_cells_are")


def write_netcdf(data: LabelData, path: str | os.PathLike[str]) -> None:
    """Write everything that ``data`` holds, at once or not at all.

    ``X`` (obs, feature), or ``X_data, X_indices, X_indptr`` where it is sparse; ``Y_indices, Y_indptr``, the
    positives; names as coordinates ``obs, feature, labels``; the sizes and the content hash as attributes.

    Raises
    ------
    ValueError
        For names with a zero character, and where the file cannot be written.
    """
    import xarray as xr

    arrays = to_layout(data)
    dataset = xr.Dataset(
        {key: (dims, arrays[key]) for key, dims in DIMS.items() if key in arrays and arrays[key].size},
        coords={dim: (dim, arrays[key].astype(object)) for key, dim in COORDS.items() if arrays[key].size},
        attrs={"layout": LAYOUT, "shape": [data.num_rows, data.num_features, data.num_labels]}
        | {key: str(arrays[key]) for key in ATTRS if key in arrays},
    )
    if "missing_rows" in dataset:
        dataset["missing_rows"] = dataset["missing_rows"].astype(np.int8)
    dataset.attrs["X_is_sparse"] = int("X_data" in arrays)
    packed = {"zlib": True, "complevel": 4}
    with whole_file(Path(path)) as temporary:
        numeric = [key for key in dataset.data_vars if dataset[key].dtype.kind in "iuf"]
        dataset.to_netcdf(temporary, engine="h5netcdf", encoding=dict.fromkeys(numeric, packed))
        with temporary.open("r+b") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            stream.write(MARK + digest.encode())


def read_netcdf(path: str | os.PathLike[str], *, allow_missing_features: bool = False) -> LabelData:
    """Read a file that `write_netcdf` wrote.

    Raises
    ------
    DataError
        For a file that is damaged, holds a posterior, or is netCDF of another make.
    """
    check_trailer(path)
    try:
        variables, attrs = read_variables(path)
    except ImportError:
        raise
    except Exception as error:  # h5py raises what it pleases over damaged files
        raise DataError(f"cannot be read as netCDF: {error or type(error).__name__}", path) from error
    if "engine" in attrs and "model" in attrs:
        what = f"of the model {attrs['model']!r} by the engine {attrs['engine']!r}"
        raise DataError(f"holds a posterior {what}, not data: open it with labelzoo.load", path)
    if attrs.get("layout") != LAYOUT:
        found = ", ".join(sorted(map(str, variables))[:8]) or "nothing at its root"
        raise DataError(f"is netCDF, but not data that labelzoo wrote (found {found})", path)
    return from_stored(restored(variables, attrs, path), path, allow_missing_features)


def check_trailer(path: str | os.PathLike[str]) -> None:
    """Compare the hash behind the contents, where it is there; refuse what is no HDF5 file at all."""
    refuse_irregular(path)
    try:
        with open(path, "rb") as stream:
            if stream.read(len(HEAD)) != HEAD:
                raise DataError("is not a netCDF-4 (HDF5) file", path)
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(size - TRAILER, 0))
            trailer = stream.read()
            if not trailer.startswith(MARK):
                return
            stream.seek(0)
            digest = hashlib.sha256()
            left = size - TRAILER
            while left:
                part = stream.read(min(left, 2**20))
                digest.update(part)
                left -= len(part)
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", path) from error
    if trailer[len(MARK) :] != digest.hexdigest().encode():
        raise DataError("is damaged: its contents do not fit the hash stored behind them", path)


def read_variables(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return {name: array} of what `write_netcdf` writes at the root, and the attributes.

    h5py reads, not h5netcdf: over damaged files the latter leaves half-built objects that complain on stderr.
    """
    import h5py

    limit = MAX_INFLATION * os.path.getsize(path)
    with h5py.File(path, "r") as file:
        found = {key: item for key, item in file.items() if isinstance(item, h5py.Dataset)}
        for key, item in found.items():
            if item.nbytes > limit:
                raise ValueError(f"{key!r} declares {item.nbytes} bytes, more than the file can hold")
        wanted = {key: item[()] for key, item in found.items() if key in DIMS or key in COORDS.values()}
        attrs = {
            key: text_of(value) if isinstance(value, bytes) else value for key, value in file.attrs.items()
        }
    return dict.fromkeys(found) | wanted, attrs


def restored(
    variables: dict[str, Any], attrs: dict[str, Any], path: str | os.PathLike[str]
) -> dict[str, Any]:
    """Return the arrays that `to_layout` made."""
    shape = np.asarray(attrs.get("shape"))
    if shape.shape != (3,) or shape.dtype.kind not in "iu" or (shape < 0).any():
        raise DataError("has no attribute shape of three sizes", path)
    arrays = {key: variables[key] for key in DIMS if key in variables}
    empty = {"X_data": np.float64, "X_indices": np.int64, "Y_indices": np.int64}
    if attrs.get("X_is_sparse", 0) == 0:
        empty = {"Y_indices": np.int64}
        if int(shape[1]) == 0:  # an array without entries is not written
            arrays.setdefault("X", np.zeros((max(len(arrays.get("Y_indptr", [0])) - 1, 0), 0)))
    for key, dtype in empty.items():
        arrays.setdefault(key, np.zeros(0, dtype))
    if "X_data" in arrays:
        arrays["X_shape"] = shape[[0, 1]]
    arrays["Y_shape"] = shape[[0, 2]]
    for key, dim in COORDS.items():
        if dim in variables:
            arrays[key] = np.array([text_of(name) for name in variables[dim].tolist()], dtype=object)
    if "missing_rows" in arrays:
        arrays["missing_rows"] = arrays["missing_rows"] != 0
        arrays.setdefault("missing_cell_rows", np.zeros(0, np.int64))
        arrays.setdefault("missing_cell_labels", np.zeros(0, np.int64))
    return arrays | {key: attrs[key] for key in ATTRS if key in attrs}


def text_of(name: Any) -> str:
    """Return a stored string, which h5py may give as bytes."""
    return name.decode("utf-8") if isinstance(name, bytes) else str(name)
