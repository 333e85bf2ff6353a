"""Predictions kept: as a group of the DataTree, or written to a file."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from scipy import sparse

from labelzoo.inference.predict import DEFAULT_MAX_BYTES, label_prob, mean_prob, predict_topk
from labelzoo.whole_file import whole_file


def add_predictions(
    tree: xr.DataTree, data: Any, *, num_draws: int | None = None, max_bytes: int = DEFAULT_MAX_BYTES
) -> xr.DataTree:
    """Return a copy of `tree` with ``predictions/label_prob`` (chain, draw, obs, labels) of `data`.

    Raises
    ------
    ValueError
        If the array would pass `max_bytes`, or the features differ from the training rows'.
    """
    out = tree.copy()
    array = label_prob(tree, data, num_draws=num_draws, max_bytes=max_bytes)
    out["predictions"] = xr.DataTree(xr.Dataset({"label_prob": array}))
    return out


def top_labels(tree: xr.DataTree, data: Any, k: int) -> sparse.csr_array:
    """Return the `k` most probable labels of each row, with their mean probability: csr (row, labels).

    Memory is a block of rows, see `predict_topk`.
    """
    best = predict_topk(tree, data, k)
    order = np.argsort(best.labels, axis=1)
    labels, values = (np.take_along_axis(one, order, axis=1) for one in (best.labels, best.scores))
    indptr = np.arange(0, values.size + 1, values.shape[1])
    return sparse.csr_array((values.ravel(), labels.ravel(), indptr), shape=(len(labels), best.num_labels))


def write_predictions(
    tree: xr.DataTree, data: Any, path: Path, *, top: int | None = None, max_bytes: int = DEFAULT_MAX_BYTES
) -> tuple[int, int]:
    """Write posterior mean probabilities as ``.npz`` or ``.csv``, atomically.

    Parameters
    ----------
    top : int or None
        Keep only so many labels a row: arrays ``prob_data``, ``prob_indices``, ``prob_indptr``,
        ``prob_shape`` in npz, lines ``row,label,probability`` in csv. None: ``prob`` (row, labels).

    Returns
    -------
    rows, labels : int

    Raises
    ------
    ValueError
        If the ending is neither, or the dense result would pass `max_bytes`.
    """
    if path.suffix not in (".npz", ".csv"):
        raise ValueError(f"--out {str(path)!r}: the name must end in .npz or .csv")
    labels = trained_labels(tree)
    size = 8 * data.num_rows * len(labels)
    if top is None and size > max_bytes:
        raise ValueError(
            f"probabilities of {data.num_rows} rows x {len(labels)} labels take "
            f"{size / 2**30:.1f} GiB: pass --top K"
        )
    result = mean_prob(tree, data) if top is None else top_labels(tree, data, top)
    writer = _write_npz if path.suffix == ".npz" else _write_csv
    with whole_file(path) as temporary:
        writer(str(temporary), result, labels, data.example_names)
    return int(result.shape[0]), int(result.shape[1])


def trained_labels(tree: xr.DataTree) -> list[str]:
    """Return the names of the labels that the posterior is about, whatever labels new rows carry."""
    return list(json.loads(tree.attrs["label_names"]))


def _write_npz(path: str, result: Any, labels: list[str], rows: Any) -> None:
    names = {"label_names": np.array(labels), "example_names": np.array(rows)}
    if sparse.issparse(result):
        arrays = {"prob_data": result.data, "prob_indices": result.indices, "prob_indptr": result.indptr}
        arrays["prob_shape"] = np.array(result.shape)
    else:
        arrays = {"prob": result}
    with open(path, "wb") as handle:
        np.savez_compressed(handle, allow_pickle=False, **arrays, **names)


def _write_csv(path: str, result: Any, labels: list[str], rows: Any) -> None:
    with open(path, "w", newline="", encoding="utf-8") as handle:
        out = csv.writer(handle)
        if sparse.issparse(result):
            out.writerow(["row", "label", "probability"])
            cells = result.tocoo()
            for row, label, value in zip(*cells.coords, cells.data, strict=True):
                out.writerow([rows[row], labels[label], f"{value:.6g}"])
        else:
            out.writerow(["row", *labels])
            for name, values in zip(rows, result, strict=True):
                out.writerow([name, *(f"{value:.6g}" for value in values)])
