"""Relabel exchangeable components to a pivot draw, for looking at tables and plots."""

import warnings
from typing import Any

import numpy as np
import xarray as xr
from scipy.optimize import linear_sum_assignment


def align(tree: xr.DataTree, site: str | None = None, dim: str | None = None) -> xr.DataTree:
    """Return a copy whose components are permuted, draw by draw, to match one pivot draw.

    Parameters
    ----------
    tree : DataTree
    site : str or None
        Site to match on; default: the first with the component dim and another event dim.
    dim : str or None
        ``topic`` or ``component``; default: whichever the posterior has.

    Returns
    -------
    DataTree
        With the attribute ``aligned``. Aligned draws are for looking: intervals of single components from
        them are too narrow where components truly swap.

    Warns
    -----
    UserWarning
        Always, with that caution.

    Raises
    ------
    ValueError
        If there is no component dim or no site to match on.
    """
    warnings.warn(
        "aligned draws are for looking; verdicts use functionals that do not depend on the order",
        stacklevel=2,
    )
    posterior = tree["posterior"].to_dataset()
    dim = dim or next((name for name in ("topic", "component") if name in posterior.dims), None)
    if dim is None or dim not in posterior.dims:
        raise ValueError("the posterior has no dim 'topic' or 'component' to align")
    site = site or next(
        (str(n) for n, a in posterior.data_vars.items() if dim in a.dims and a.ndim >= 4), None
    )
    if site is None:
        raise ValueError(f"no site with dim {dim!r} and another event dim to match on")
    order = _permutations(posterior[site].transpose("chain", "draw", dim, ...).values)
    # Without its coordinate: xarray refuses to index a dimension whose own coordinate would move along.
    picked = xr.DataArray(order, dims=("chain", "draw", dim))
    moved: dict[str, Any] = {}
    for name, array in posterior.data_vars.items():
        if dim in array.dims:
            array = array.drop_vars(dim, errors="ignore").isel({dim: picked}).transpose(*array.dims)
        moved[str(name)] = array
    out = tree.copy()
    out["posterior"] = xr.DataTree(posterior.assign(moved))
    out.attrs["aligned"] = f"{dim} by {site}"
    return out


def _permutations(values: np.ndarray) -> np.ndarray:
    """Match every draw's components to those of the last draw of chain 0 by least squares (Hungarian)."""
    chains, draws, count = values.shape[:3]
    flat = values.reshape(chains, draws, count, -1)
    pivot = flat[0, -1]
    order = np.empty((chains, draws, count), np.int64)
    for c in range(chains):
        for d in range(draws):
            cost = ((pivot[:, None] - flat[c, d][None]) ** 2).sum(axis=2)
            order[c, d] = linear_sum_assignment(cost)[1]
    return order
