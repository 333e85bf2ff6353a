"""One converter for all engines: draws in, an ArviZ DataTree out; save and load as netCDF."""

import json
import os
import warnings
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from labelzoo.inference.engine import Engine, EngineResult
from labelzoo.models.spec import ModelSpec
from labelzoo.whole_file import whole_file

FORMAT = 1
"""Number of the file layout, checked on load."""

INTERCEPT = "(intercept)"
"""Name of the constant feature that a program adds after the user's own."""


def to_datatree(
    spec: ModelSpec,
    engine: Engine,
    data: Any,
    inputs: Mapping[str, Any],
    settings: Mapping[str, Any],
    options: Mapping[str, Any],
    result: EngineResult,
    rng_key: Any,
) -> xr.DataTree:
    """Name every axis and gather a run into a DataTree.

    Parameters
    ----------
    spec, engine : ModelSpec, Engine
    data : labelzoo.data.LabelData
        Training rows.
    inputs, settings, options : mapping
        Arguments of the program, its settings, and the engine's options, as run.
    result : EngineResult
        Draws (chain, draw, ...).
    rng_key : key or int
        Kept in the attributes when it is a number.

    Returns
    -------
    xarray.DataTree
        Groups ``posterior``, ``sample_stats`` or ``optimization``, ``observed_data``, ``constant_data``.

    Raises
    ------
    ValueError
        If a site's shape does not fit its dims: the message names site, dim and both lengths.
    """
    coords = _coords(data)
    groups: dict[str, xr.Dataset] = {
        "posterior": _dataset(result.draws, spec.dims, coords, ("chain", "draw"))
    }
    if result.sample_stats:
        groups["sample_stats"] = _dataset(result.sample_stats, {}, {}, ("chain", "draw"))
    if result.optimization:
        groups["optimization"] = _dataset(result.optimization, {}, {}, ("iteration",))
    groups["observed_data"] = _observed(data)
    groups["constant_data"] = _dataset(spec.constants(dict(inputs)), spec.dims, coords, ())
    for name in ("posterior", "observed_data"):
        groups[name].attrs |= {
            "inference_library": "labelzoo",
            "inference_library_version": version("labelzoo"),
        }
    tree = xr.DataTree.from_dict(groups)
    tree.attrs = _attrs(spec, engine, data, settings, options, result, rng_key)
    return tree


def _attrs(
    spec: ModelSpec,
    engine: Engine,
    data: Any,
    settings: Mapping[str, Any],
    options: Mapping[str, Any],
    result: EngineResult,
    rng_key: Any,
) -> dict[str, Any]:
    seed = int(rng_key) if isinstance(rng_key, int | np.integer) else -1
    attrs: dict[str, Any] = {
        "labelzoo_format": FORMAT,
        "model": spec.name,
        "engine": engine.name,
        "kind": engine.kind,
        "random_sites": json.dumps(list(engine.random_sites)),
        "settings": json.dumps(_plain(settings)),
        "options": json.dumps(_plain(options)),
        "seed": seed,
        "compile_seconds": float(result.compile_seconds),
        "run_seconds": float(result.run_seconds),
        "converged": {True: "yes", False: "no", None: "not judged"}[result.converged],
        "message": result.message,
        "x64": "yes",
        "data_hash": data.hash(),
        "num_features": int(data.num_features),
        "feature_names": json.dumps(list(data.feature_names)),
        "label_names": json.dumps(list(data.label_names)),
        "versions": json.dumps({name: version(name) for name in ("labelzoo", "numpyro", "jax", "arviz")}),
    }
    return {
        **attrs,
        **{k: v if isinstance(v, int | float | str) else json.dumps(v) for k, v in result.attrs.items()},
    }


def _plain(mapping: Mapping[str, Any]) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        if isinstance(value, np.generic):
            return value.item()
        return list(value) if isinstance(value, tuple) else value

    return {name: plain(value) for name, value in mapping.items()}


def _coords(data: Any) -> dict[str, Any]:
    labels, features = list(data.label_names), list(data.feature_names)
    return {
        "labels": labels,
        "labels_bis": labels,
        "obs": list(data.example_names),
        "obs_bis": list(data.example_names),
        "feature": features,
        "feature_bis": features,
    }


def _dataset(
    values: Mapping[str, Any],
    dims: Mapping[str, tuple[str, ...]],
    coords: Mapping[str, Any],
    leading: tuple[str, ...],
) -> xr.Dataset:
    arrays: dict[str, xr.DataArray] = {}
    sizes: dict[str, tuple[int, str]] = {}
    used: dict[str, Any] = {}
    for site, value in values.items():
        array = np.asarray(value)
        array = array.astype(np.int8) if array.dtype == bool else array
        event = dims.get(site, tuple(f"{site}_dim_{i}" for i in range(array.ndim - len(leading))))
        names = (*leading, *event)
        if len(names) != array.ndim:
            raise ValueError(f"site {site!r} has shape {array.shape} but dims {names}")
        for name, length in zip(names, array.shape, strict=True):
            known, where = sizes.setdefault(name, (length, site))
            if known != length:
                raise ValueError(f"dim {name!r} has length {known} at {where!r} but {length} at {site!r}")
            used[name] = _coordinate(name, length, coords)
        arrays[site] = xr.DataArray(array, dims=names)
    return xr.Dataset(arrays, coords=used)


def _coordinate(name: str, length: int, coords: Mapping[str, Any]) -> Any:
    known = coords.get(name)
    if known is None:
        return np.arange(length)
    if name.startswith("feature") and length == len(known) + 1:
        return [*known, INTERCEPT]
    if len(known) != length:
        raise ValueError(f"dim {name!r} has {len(known)} names but length {length}")
    return known


def _observed(data: Any) -> xr.Dataset:
    Y = data.Y
    values = {
        "Y_indices": xr.DataArray(np.asarray(Y.indices, np.int64), dims="Y_nnz"),
        "Y_indptr": xr.DataArray(np.asarray(Y.indptr, np.int64), dims="Y_ptr"),
    }
    attrs = {}
    if data.missing is not None:
        rows, labels = data.missing.cells
        values["missing_rows"] = xr.DataArray(np.asarray(data.missing.rows, np.int8), dims="obs")
        values["missing_cell_row"] = xr.DataArray(np.asarray(rows, np.int64), dims="missing_nnz")
        values["missing_cell_label"] = xr.DataArray(np.asarray(labels, np.int64), dims="missing_nnz")
        attrs["missing_cells_are"] = data.missing.cells_are
    names = {"obs": list(data.example_names), "labels": list(data.label_names)}
    return xr.Dataset(values, coords=names, attrs=attrs)


def save(tree: xr.DataTree, path: str | os.PathLike[str]) -> Path:
    """Write a posterior as netCDF, atomically: the file is whole or absent.

    Raises
    ------
    ValueError
        If the folder cannot be written to.
    """
    target = Path(path)
    with whole_file(target) as temporary:
        tree.to_netcdf(temporary, engine="h5netcdf")
    return target


def load(path: Any) -> xr.DataTree:
    """Read a posterior that `save` wrote, wholly into memory.

    Raises
    ------
    ValueError
        If `path` is no path, or the file is absent, truncated, or not a labelzoo posterior.
    """
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"path must be the path of a stored posterior, got {path!r}")
    target = Path(path)
    if not target.is_file():
        raise ValueError(f"no file {str(target)!r}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with xr.open_datatree(target, engine="h5netcdf") as tree:
                loaded = tree.load()
    except Exception as error:
        raise ValueError(f"{str(target)!r} is not a readable netCDF file ({type(error).__name__})") from error
    if loaded.attrs.get("labelzoo_format") != FORMAT:
        raise ValueError(f"{str(target)!r} is not a posterior written by this version of labelzoo")
    return loaded
