"""The front that reads a DataTree: checks group, variable, dims, labels and features, and answers by name."""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy import sparse

from labelzoo.acquisition.catalogue import find
from labelzoo.acquisition.front_checks import (
    check_data,
    check_posterior,
    check_same_labels,
    check_size,
    check_tree,
)
from labelzoo.acquisition.problem import LAWS, Acquisition, Problem
from labelzoo.acquisition.problem_checks import check_seed
from labelzoo.acquisition.selectors import PoolExhausted

Array = Any
DIMS = ("chain", "draw", "obs", "labels")
NUM_DRAWS = 400
"""Posterior draws of the label probabilities that a score reads."""


def entry_of(name: Any, argument: str) -> Acquisition:
    """Return the function of the catalogue called `name`; what is no text is refused by `argument`."""
    if not isinstance(name, str):
        raise TypeError(f"{argument} must be one name of the catalogue, got {name!r}")
    return find(name)


def predictions_of(tree: Any) -> xr.DataArray:
    """Return ``predictions/label_prob`` (chain, draw, obs, labels), validated.

    Raises
    ------
    TypeError
        If `tree` is no DataTree.
    ValueError
        If the group, the variable or a dim is missing, there are no draws, or the engine's global sites are
        points; `PoolExhausted` if there are no rows.
    """
    check_tree(tree)
    if "predictions" not in tree.children or "label_prob" not in tree["predictions"]:
        raise ValueError(
            "the posterior has no predictions/label_prob: call labelzoo.add_predictions(tree, pool) first"
        )
    refuse_points(tree)
    array = tree["predictions"]["label_prob"]
    if set(array.dims) != set(DIMS):
        raise ValueError(f"label_prob has dims {array.dims}, expected {DIMS}")
    if not array.sizes["obs"]:
        raise PoolExhausted("the predictions hold no rows: there is nothing left to ask")
    if not array.size:
        raise ValueError(f"label_prob is empty: its sizes are {dict(array.sizes)}")
    return array.transpose(*DIMS)


def refuse_points(tree: xr.DataTree) -> None:
    """Raise ValueError where the engine's global sites are points: there are no draws to compare."""
    if tree.attrs.get("kind") == "point":
        raise ValueError(
            f"engine {tree.attrs.get('engine')!r} gives points for its global sites; draws of the label "
            "probabilities are needed: use an 'mcmc' or 'bound' engine"
        )


def score(tree: Any, name: Any = "ensemble_ivr", *, weights: Any = None, seed: Any = 0) -> xr.DataArray:
    """Return the score of every row of ``predictions`` as a DataArray over ``obs`` (and ``labels``).

    Parameters
    ----------
    tree : DataTree
        With ``predictions/label_prob`` of the pool.
    name : str
        A function of the catalogue that needs no more than the draws (``labelzoo list``).
    weights : array (obs,) or None
        How much each pool row's predictions matter as a target; default 1.
    seed : int
        Of Monte Carlo estimates.
    """
    entry = entry_of(name, "name")
    array = predictions_of(tree)
    problem = Problem(probs=_samples(array), mean_probs=_mean(array), weights=weights, seed=check_seed(seed))
    for field in entry.needs:
        problem.need(field, name)
    return _named(entry, entry.scores(problem), array)


def _named(entry: Acquisition, values: Array, array: xr.DataArray) -> xr.DataArray:
    dims = ("obs",) if entry.query == "row" else ("obs", "labels")
    coords = {dim: array[dim].values for dim in dims}
    return xr.DataArray(np.asarray(values), dims=dims, coords=coords, name=entry.name)


def next_rows(
    tree: Any, batch: Any = 5, *, acquire: Any = "ensemble_ivr", weights: Any = None, seed: Any = 0
) -> pd.DataFrame:
    """Choose the next rows of ``predictions`` to label, one after another, each given the ones before it.

    Returns
    -------
    pandas.DataFrame
        Columns ``obs`` (id), ``gain`` (in the units of `acquire`), ``likely_labels`` (the three most probable
        labels); for queries of single labels also ``label``.
    """
    entry, batch, seed = entry_of(acquire, "acquire"), check_size(batch), check_seed(seed)
    array = predictions_of(tree)
    problem = Problem(probs=_samples(array), mean_probs=_mean(array), weights=weights, seed=seed)
    names = array["labels"].values.tolist()
    return answer(entry, problem, batch, array["obs"].values.tolist(), names)


def ask(
    tree: Any,
    pool: Any,
    *,
    acquire: Any = "ensemble_ivr",
    batch: Any = 10,
    targets: Any = None,
    weights: Any = None,
    labelled: Any = None,
    seed: Any = 0,
) -> pd.DataFrame:
    """Choose what to label next in `pool`, for predictions at `targets`.

    Parameters
    ----------
    tree : DataTree
        Posterior of any model by any engine.
    pool : LabelData
        Candidates are the rows (or, for queries of single labels, the cells) without observed labels; rows
        with labels are what is known already.
    acquire : str
        A name of the catalogue.
    batch : int
        Number of rows or cells.
    targets : LabelData, pandas.DataFrame, array (target, feature) or None
        Rows where predictions will be made; None: the candidates themselves. Columns of a frame are matched
        by name, whatever their order.
    weights : array (target,) or None
    labelled : LabelData or None
        What the posterior was fitted on, where `pool` does not hold those rows.
    seed : int

    Returns
    -------
    pandas.DataFrame
        As `next_rows`.

    Raises
    ------
    PoolExhausted
        If nothing is left to ask.
    TypeError
        If `tree` is no DataTree, `pool` or `labelled` no LabelData, or `acquire` no text.
    ValueError
        If labels or features differ from the posterior's, or something is missing that `acquire` needs.
    """
    check_posterior(tree)
    entry, batch, seed = entry_of(acquire, "acquire"), check_size(batch), check_seed(seed)
    check_data(pool, "pool")
    if labelled is not None:
        check_data(labelled, "labelled")
    check_same_labels(tree, pool, "pool")
    known = labelled if labelled is not None else pool
    check_same_labels(tree, known, "labelled")
    asked = pool.observed_mask(max_bytes=max(pool.num_rows * pool.num_labels, 1))
    candidates = np.flatnonzero(~asked.any(axis=1) if entry.query == "row" else ~asked.all(axis=1))
    if not len(candidates):
        raise PoolExhausted("the pool has no row left to ask: every row has observed labels")
    problem = _problem(tree, pool, known, candidates, targets, weights, asked, seed)
    if "kernel" in entry.needs and not problem.has("kernel"):
        raise ValueError(
            f"acquisition {acquire!r} reads a kernel, whose length is chosen from labelled rows, and the "
            "pool has none: give labelled= (--labelled FILE), the rows that the posterior was fitted on"
        )
    for field, (words, model) in LAWS.items():
        if field in entry.needs and not problem.has(field):
            raise ValueError(
                f"acquisition {acquire!r} reads the {words}, and model {tree.attrs['model']!r} has none; "
                f"{model} has one"
            )
    ids = [pool.example_names[i] for i in candidates]
    return answer(entry, problem, batch, ids, list(pool.label_names))


def has_law(tree: xr.DataTree, name: str) -> bool:
    """Say whether the posterior's model has the law of that name, one of `LAWS`."""
    from labelzoo.models import registry

    return getattr(registry.get(str(tree.attrs["model"])).spec, name) is not None


def _problem(
    tree: xr.DataTree,
    pool: Any,
    known: Any,
    candidates: Array,
    targets: Any,
    weights: Any,
    asked: Array,
    seed: int,
) -> Problem:
    """Return the problem, with draws and kernel made when they are first asked for."""
    from labelzoo.inference import predict
    from labelzoo.inference.label_gp.evidence import choose_hyperparameters
    from labelzoo.models.gp_kernel import feature_map
    from labelzoo.models.label_gp import SETTINGS

    X_all = _features(tree, pool, "pool")
    X = X_all[candidates]
    T = None if targets is None else _features(tree, targets, "targets")
    X_known = _features(tree, known, "labelled")
    seen = known.observed_mask(max_bytes=max(known.num_rows * known.num_labels, 1))
    at = np.flatnonzero(seen.any(axis=1))
    table = np.where(seen[at], known.Y[at].toarray(), np.nan)
    features = feature_map(X_all)
    plain = features._replace(center=np.zeros(X.shape[1]), scale=np.ones(X.shape[1]))
    Z = features.mapped(X_known[at])
    made: dict[str, Array] = {}

    def draws() -> Array:
        if "draws" not in made:
            refuse_points(tree)
            both = X if T is None else _stacked(X, T)
            made["draws"] = _samples(predict.label_prob(tree, both, num_draws=NUM_DRAWS).transpose(*DIMS))
        return made["draws"]

    def kernel() -> Any:
        filled = np.nan_to_num(table)
        return choose_hyperparameters(plain, Z, filled, ~np.isnan(table), SETTINGS).kernel

    laws: dict[str, Any] = {
        name: partial(getattr(predict, name), tree, X) for name in LAWS if has_law(tree, name)
    }
    return Problem(
        X_pool=features.mapped(X),
        X_labelled=Z,
        Y_labelled=table,
        X_targets=None if T is None else features.mapped(T),
        weights=weights,
        probs=lambda: draws()[:, : X.shape[0]],
        target_probs=None if T is None else lambda: draws()[:, X.shape[0] :],
        mean_probs=lambda: _checked(predict.mean_prob(tree, X), pool, candidates),
        kernel=kernel if len(at) else None,
        **laws,
        asked=asked[candidates],
        seed=seed,
    )


def answer(
    entry: Acquisition, problem: Problem, batch: int, ids: list[str], names: list[str]
) -> pd.DataFrame:
    """Return the queries as a table with names."""
    choice = entry(problem, batch)
    rows = np.asarray(choice.rows)
    table = {"obs": [ids[i] for i in rows]}
    if choice.labels is not None:
        table["label"] = [names[j] for j in np.asarray(choice.labels)]
    columns: dict[str, Any] = {**table, "gain": np.asarray(choice.gains)}
    mean = problem.get("mean_probs")
    if mean is not None:
        best = np.argsort(-mean[rows], axis=1)[:, :3]
        columns["likely_labels"] = [
            ", ".join(f"{names[j]} {mean[i, j]:.2f}" for j in line)
            for i, line in zip(rows, best, strict=True)
        ]
    out = pd.DataFrame(columns)
    out.attrs["report"] = {"units": entry.units, **choice.report}
    return out


def _features(tree: xr.DataTree, data: Any, argument: str) -> Any:
    """Return the features of `data`, held against the posterior's; the message names the argument."""
    from labelzoo.inference.predict import features_of

    try:
        return features_of(tree, data)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{argument}: {error}") from error


def _checked(probs: Array, pool: Any, candidates: Array) -> Array:
    """Return posterior means (candidate, labels), or raise ValueError naming the first that is no number."""
    bad = np.argwhere(~np.isfinite(probs))
    if len(bad):
        row, label = pool.example_names[candidates[bad[0, 0]]], pool.label_names[bad[0, 1]]
        raise ValueError(f"the posterior gives no probability (NaN) for row {row!r}, label {label!r}")
    return probs


def _samples(array: xr.DataArray) -> np.ndarray:
    return array.values.reshape(-1, array.sizes["obs"], array.sizes["labels"])


def _mean(array: xr.DataArray) -> np.ndarray:
    return _samples(array).mean(axis=0)


def _stacked(A: Any, B: Any) -> Any:
    if sparse.issparse(A) or sparse.issparse(B):
        return sparse.csr_array(sparse.vstack([sparse.csr_array(A), sparse.csr_array(B)]))
    return np.concatenate([A, B])
