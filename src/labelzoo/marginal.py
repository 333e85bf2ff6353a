"""Log likelihood of rows with the embedding integrated out, and leave-one-row-out by PSIS."""

import json
from typing import Any

import numpy as np
import xarray as xr

from labelzoo.arguments import label_data, whole_number
from labelzoo.completion import checked, globals_of, row_blocks
from labelzoo.inference.bernoulli_poisson_topics.marginal_score import marginal_score

Array = Any


def thinned(tree: xr.DataTree, num_draws: Any) -> xr.DataTree:
    """Return `tree` with at most `num_draws` draws in all, every chain thinned alike (None: all)."""
    whole = isinstance(num_draws, int | np.integer) and not isinstance(num_draws, bool)
    if num_draws is not None and not (whole and num_draws >= 1):
        raise ValueError(f"num_draws must be None or an integer of at least 1, got {num_draws!r}")
    posterior = tree["posterior"].to_dataset()
    each = posterior.sizes["draw"]
    if num_draws is not None:
        each = min(each, max(1, int(num_draws) // posterior.sizes["chain"]))
    keep = np.unique(np.linspace(0, posterior.sizes["draw"] - 1, each).round().astype(int))
    out = tree.copy()
    out["posterior"] = xr.DataTree(posterior.isel(draw=keep))
    return out


def row_log_likelihood(
    tree: xr.DataTree, data: Any, *, num_draws: Any = None, num_samples: Any = 400, seed: Any = 0
) -> xr.Dataset:
    """Return log p(observed labels of a row | x, V, W, r) of every draw, the embedding integrated out.

    Parameters
    ----------
    tree : DataTree
        A posterior of ``bernoulli_poisson_topics``.
    data : LabelData
        Rows with labels; missing ones are left out.
    num_draws : int or None
        At most so many draws, every chain thinned alike.
    num_samples : int
        Importance samples per row and draw, where inclusion and exclusion loses its digits.

    Returns
    -------
    Dataset
        ``log_likelihood``, ``error`` (chain, draw, obs), nats, and ``exact`` (chain, draw, obs) 0 or 1.

    Raises
    ------
    ValueError
        If the model or the labels are others, `data` is no LabelData, or a number is out of range.
    """
    checked(tree, data)
    whole_number("num_samples", num_samples, 2)
    whole_number("seed", seed, 0)
    tree = thinned(tree, num_draws)
    draws, rng = globals_of(tree, None), np.random.default_rng(seed)
    count = len(draws["topics"])
    out = np.empty((3, count, data.num_rows))
    for block in row_blocks(tree, data, draws):
        rows = slice(block.start, block.start + block.data.num_rows)
        for s in range(count):
            out[:, s, rows] = marginal_score(
                draws["topics"][s], draws["shape"][s], block.psi[s], block.zeros[s], block.positives, rng,
                num_samples=num_samples,
            )  # fmt: skip
    sizes = tree["posterior"].sizes
    shaped = out.reshape(3, sizes["chain"], sizes["draw"], data.num_rows)
    dims = ("chain", "draw", "obs")
    return xr.Dataset(
        {
            "log_likelihood": (dims, shaped[0]),
            "error": (dims, shaped[1]),
            "exact": (dims, shaped[2].astype(np.int8)),
        },
        coords={"obs": list(data.example_names)},
    )


def loo(tree: xr.DataTree, data: Any, *, num_draws: Any = 1000, num_samples: Any = 400, seed: Any = 0) -> Any:
    """Return PSIS leave-one-row-out cross-validation on the marginal of each row (`arviz_stats.loo`).

    With the embedding integrated out a row has no parameters of its own, so that its importance ratios are
    tame; with u explicit they would not be. Pareto k of each row is in the result; above about .7 its term
    is not to be trusted.

    Parameters
    ----------
    tree : DataTree
        Draws of ``bernoulli_poisson_topics`` by an engine whose topics, weights and shapes are random.
    data : LabelData
        The training rows.
    num_draws, num_samples, seed
        Of `row_log_likelihood`.

    Returns
    -------
    arviz_stats ELPDData
        Pointwise, with ``pareto_k`` (obs).

    Raises
    ------
    ValueError
        If topics or weights are points (EM, VB-EM), or `data` are not the training rows.
    """
    import arviz

    random = json.loads(str(tree.attrs["random_sites"]))
    points = [site for site in ("topics", "weights") if site not in random]
    if points:
        raise ValueError(
            f"loo: {', '.join(points)} are points in the posterior of {tree.attrs['engine']!r}, which has no "
            "draws to reweight; use gibbs or nuts, or held-out rows"
        )
    label_data(data)
    if data.hash() != tree.attrs["data_hash"]:
        raise ValueError("loo: data are not the rows that the posterior was fitted on (their hash differs)")
    found = row_log_likelihood(tree, data, num_draws=num_draws, num_samples=num_samples, seed=seed)
    held = xr.DataTree.from_dict(
        {
            "posterior": thinned(tree, num_draws)["posterior"].to_dataset()[["shape"]],
            "log_likelihood": found[["log_likelihood"]].rename(log_likelihood="Y"),
        }
    )
    return arviz.loo(held, pointwise=True, var_name="Y")
