"""Probabilities of labels at new rows, from the draws in a DataTree."""

import json
from typing import Any

import jax
import numpy as np
import xarray as xr
from scipy import sparse

from labelzoo.models import registry

DEFAULT_MAX_BYTES = 2**30
"""Largest array of label probabilities that is returned draw by draw (1 GiB)."""


def point_draws(tree: xr.DataTree, num_draws: int | None = None, seed: int = 0) -> dict[str, np.ndarray]:
    """Return the posterior's sites with chain and draw merged into one leading axis.

    Parameters
    ----------
    tree : DataTree
        With a group ``posterior``.
    num_draws : int or None
        At most so many draws, evenly spaced over the pooled draws (None: all).

    Returns
    -------
    dict of str to ndarray
        (sample, ...) a site.
    """
    posterior = tree["posterior"].to_dataset()
    total = posterior.sizes["chain"] * posterior.sizes["draw"]
    keep = slice(None)
    if num_draws is not None and num_draws < total:
        keep = np.linspace(0, total - 1, num_draws).round().astype(int)  # type: ignore[assignment]
    return {
        str(name): array.values.reshape(total, *array.shape[2:])[keep]
        for name, array in posterior.data_vars.items()
    }


def constants_of(tree: xr.DataTree) -> dict[str, Any]:
    """Return what `predict` of the model needs besides draws: saved arrays and settings."""
    arrays = {str(k): v.values for k, v in tree["constant_data"].to_dataset().data_vars.items()}
    return {**json.loads(tree.attrs["settings"]), **arrays}


def features_of(tree: xr.DataTree, data: Any) -> Any:
    """Return the feature matrix of `data` (LabelData or array), checked against the posterior.

    Raises
    ------
    ValueError
        If the number or the names of the features differ from those of the training rows.
    """
    X = getattr(data, "X", data)
    X = X if sparse.issparse(X) else np.asarray(X, float)
    expected = int(tree.attrs["num_features"])
    if X.ndim != 2 or X.shape[1] != expected:
        raise ValueError(f"X has shape {X.shape}, the posterior was fitted on {expected} features")
    names = getattr(data, "feature_names", None)
    trained = json.loads(tree.attrs["feature_names"])
    if names is not None and list(names) != trained:
        first = next(i for i, (a, b) in enumerate(zip(names, trained, strict=True)) if a != b)
        raise ValueError(f"feature {first} is {names[first]!r}, in the posterior it is {trained[first]!r}")
    if X.shape[0] == 0:
        raise ValueError("X has no rows to predict")
    values = X.data if sparse.issparse(X) else X
    if not np.isfinite(values).all():
        raise ValueError("X has NaN or infinite values at the rows to predict")
    return X


def label_prob(
    tree: xr.DataTree,
    data: Any,
    *,
    num_draws: int | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
    row_batch: int = 512,
) -> xr.DataArray:
    """Return P(label = 1) of new rows for every draw.

    Parameters
    ----------
    tree : DataTree
    data : LabelData or array (row, feature)
    num_draws : int or None
        Thin to at most so many draws.
    max_bytes : int
        Refuse a larger result; `mean_prob` needs no such array.

    Returns
    -------
    DataArray
        (chain, draw, obs, labels); chain is 1 when draws were thinned.
    """
    X = features_of(tree, data)
    draws = point_draws(tree, num_draws)
    samples = len(next(iter(draws.values())))
    labels = json.loads(tree.attrs["label_names"])
    size = 8 * samples * X.shape[0] * len(labels)
    if size > max_bytes:
        raise ValueError(
            f"label_prob of {samples} draws x {X.shape[0]} rows x {len(labels)} labels takes "
            f"{size / 2**30:.2f} GiB, above max_bytes; use mean_prob, num_draws= or fewer rows"
        )
    out = np.concatenate(list(_batches(tree, draws, X, row_batch)), axis=1)
    posterior = tree["posterior"]
    chains = posterior.sizes["chain"] if samples == posterior.sizes["chain"] * posterior.sizes["draw"] else 1
    names = getattr(data, "example_names", None) or [f"row {i}" for i in range(X.shape[0])]
    return xr.DataArray(
        out.reshape(chains, samples // chains, *out.shape[1:]),
        dims=("chain", "draw", "obs", "labels"),
        coords={"obs": list(names), "labels": labels},
        name="label_prob",
    )


def mean_prob(
    tree: xr.DataTree, data: Any, *, num_draws: int | None = None, row_batch: int = 512, with_sd: bool = False
) -> Any:
    """Return the posterior mean of P(label = 1), and its sd over draws if asked: (row, labels) arrays.

    Memory is one batch of rows by all draws, cut further where that passes 256 MiB.
    """
    X = features_of(tree, data)
    draws = point_draws(tree, num_draws)
    samples = len(next(iter(draws.values())))
    num_labels = len(json.loads(tree.attrs["label_names"]))
    row_batch = max(1, min(row_batch, 2**28 // max(1, 8 * samples * num_labels)))
    means, sds = [], []
    for block in _batches(tree, draws, X, row_batch):
        means.append(block.mean(axis=0))
        sds.append(block.std(axis=0))
    mean = np.concatenate(means)
    return (mean, np.concatenate(sds)) if with_sd else mean


def _batches(tree: xr.DataTree, draws: dict[str, np.ndarray], X: Any, row_batch: int) -> Any:
    """Yield (sample, row, labels) blocks of rows; the last block is padded so that one program serves all."""
    spec = registry.get(str(tree.attrs["model"])).spec
    constants = constants_of(tree)
    with jax.enable_x64(True):

        @jax.jit
        def block_probs(sites: Any, rows: Any) -> Any:
            return jax.lax.map(lambda one: spec.predict(one, rows, constants), sites)

        size = min(row_batch, X.shape[0])
        for start in range(0, X.shape[0], size):
            rows = X[start : start + size]
            rows = rows.toarray() if sparse.issparse(rows) else rows
            short = size - rows.shape[0]
            padded = np.pad(rows, ((0, short), (0, 0)), mode="edge") if short else rows
            yield np.asarray(block_probs(draws, padded))[:, : size - short]
