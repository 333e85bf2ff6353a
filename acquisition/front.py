"""The front that reads a DataTree: checks group, variable and dims, and answers with labelled arrays."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from labelzoo.acquisition.ensemble import make_ensemble, variance_reduction
from labelzoo.acquisition.selectors import check_batch, greedy

DIMS = ("chain", "draw", "obs", "labels")


class ScoreInfo(NamedTuple):
    """An entry of the list of acquisition functions.

    Attributes
    ----------
    name : str
    query : str
        ``row`` or ``cell``.
    units : str
    needs : str
        What the posterior must offer.
    note : str
        When it helps.
    """

    name: str
    query: str
    units: str
    needs: str
    note: str


SCORES = (
    ScoreInfo(
        "ensemble_ivr",
        "row",
        "variance of a probability, summed over labels and rows",
        "predictions/label_prob with 200 draws or more, from an engine whose global sites are random",
        "asks which row removes most predictive variance at the other rows; label correlation included",
    ),
)
"""Acquisition functions by name."""


def predictions_of(tree: xr.DataTree) -> xr.DataArray:
    """Return ``predictions/label_prob`` (chain, draw, obs, labels), validated.

    Raises
    ------
    ValueError
        If the group, the variable or a dim is missing, or the engine's global sites are points.
    """
    if "predictions" not in tree.children or "label_prob" not in tree["predictions"]:
        raise ValueError(
            "the posterior has no predictions/label_prob: call labelzoo.add_predictions(tree, pool) first"
        )
    if tree.attrs.get("kind") == "point":
        raise ValueError(
            f"engine {tree.attrs.get('engine')!r} gives points for its global sites; draws of the label "
            "probabilities are needed: use an 'mcmc' or 'bound' engine"
        )
    array = tree["predictions"]["label_prob"]
    if set(array.dims) != set(DIMS):
        raise ValueError(f"label_prob has dims {array.dims}, expected {DIMS}")
    return array.transpose(*DIMS)


def score(tree: xr.DataTree, name: str = "ensemble_ivr", *, weights: Any = None) -> xr.DataArray:
    """Return the score of every row of ``predictions`` as a DataArray over ``obs``.

    Parameters
    ----------
    tree : DataTree
        With ``predictions/label_prob`` of the pool.
    name : str
        One of `SCORES`.
    weights : array (obs,) or None
        How much each pool row's predictions matter as a target; default 1.
    """
    known = [info.name for info in SCORES]
    if name not in known:
        raise ValueError(f"no acquisition function {name!r}; functions: {', '.join(known)}")
    array = predictions_of(tree)
    check_batch(1, array.sizes["obs"])
    values = variance_reduction(make_ensemble(_samples(array)), weights)
    return xr.DataArray(values, dims="obs", coords={"obs": array["obs"].values}, name=name)


def next_rows(tree: xr.DataTree, batch: int = 5, *, weights: Any = None, seed: int = 0) -> pd.DataFrame:
    """Choose the next rows to label, one after another, each given the ones before it.

    Returns
    -------
    pandas.DataFrame
        Columns ``obs`` (id), ``gain`` (variance removed at the rows still unlabelled), ``likely_labels``
        (the three most probable labels).
    """
    array = predictions_of(tree)
    rows, gains = greedy(make_ensemble(_samples(array)), batch, weights=weights, seed=seed)
    mean = array.mean(("chain", "draw")).values
    names = array["labels"].values
    likely = [", ".join(f"{names[j]} {mean[i, j]:.2f}" for j in np.argsort(-mean[i])[:3]) for i in rows]
    return pd.DataFrame({"obs": array["obs"].values[rows], "gain": gains, "likely_labels": likely})


def _samples(array: xr.DataArray) -> np.ndarray:
    return array.values.reshape(-1, array.sizes["obs"], array.sizes["labels"])
