"""Topics to read: weights, probable and distinctive labels, coherence and names, from one draw of V.

Topics are exchangeable: topic 3 of one chain is not topic 3 of another. So a table is made from one draw,
never from an average over chains: the draw with the largest log p(Y | U, V) of the chain in which that is
largest on average; without embeddings, what the sampler stored of it decides. How far the other draws of
that chain agree, after matching them to it, is the column ``stability``.
"""

import json
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from scipy import sparse
from scipy.optimize import linear_sum_assignment

from labelzoo.inference.stable import log1mexp
from labelzoo.topic_coherence import LabelCounts, coherence
from labelzoo.topic_shares import POSITIVES_AT_ONCE, explained_shares, has_topics

Array = Any

DRAWS_LOOKED_AT = 50
"""Draws of a chain that are compared, evenly spaced."""

NAME_LABELS = 3
"""Labels in the name of a topic."""


class ChosenDraw(NamedTuple):
    """The draw that a table is made from.

    Attributes
    ----------
    chain, draw : int
        Positions.
    why : str
        One sentence.
    """

    chain: int
    draw: int
    why: str


def choose_draw(tree: xr.DataTree, chain: Any = None, draw: Any = None) -> ChosenDraw:
    """Return the draw to look at.

    Parameters
    ----------
    tree : DataTree
    chain, draw : int or None
        To choose by hand; None: the chain with the largest mean log p(Y | U, V) over at most
        `DRAWS_LOOKED_AT` draws, and its draw where that is largest. Where no embeddings were kept, the
        ``log_likelihood`` that the sampler stored of every draw is used instead; where there is none
        either, the last draw of the first chain.

    Raises
    ------
    ValueError
        If there are no topics, or a position lies outside the posterior.
    """
    _refuse_without_topics(tree)
    posterior = tree["posterior"].to_dataset()
    chains, draws = posterior.sizes["chain"], posterior.sizes["draw"]
    for name, value, size in (("chain", chain, chains), ("draw", draw, draws)):
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if value is not None and not (whole and 0 <= value < size):
            raise ValueError(f"{name} must be an integer from 0 to {size - 1} or None, got {value!r}")
    if chains * draws == 1:
        return ChosenDraw(0, 0, "the only draw")
    if chain is not None and draw is not None:
        return ChosenDraw(int(chain), int(draw), "as asked")
    if "embedding" not in posterior:
        stored = _stored_fits(tree)
        if stored is None:
            return ChosenDraw(int(chain or 0), draws - 1 if draw is None else int(draw), "the last draw kept")
        looked = np.arange(draws) if draw is None else np.array([int(draw)])
        fits = {c: stored[c, looked] for c in (range(chains) if chain is None else [int(chain)])}
    else:
        looked = np.unique(np.linspace(0, draws - 1, min(draws, DRAWS_LOOKED_AT)).round().astype(int))
        looked = looked if draw is None else np.array([int(draw)])
        fits = {c: _fits(tree, c, looked) for c in (range(chains) if chain is None else [int(chain)])}
    best = max(fits, key=lambda c: fits[c].mean())
    why = f"largest log p(Y | U, V) of chain {best}"
    why += ", whose mean is largest" if chain is None else ""
    return ChosenDraw(best, int(looked[fits[best].argmax()]), why)


def _stored_fits(tree: xr.DataTree) -> Array | None:
    """Return log p(Y | U, V) as the sampler stored it: (chain, draw); None where it did not."""
    if "sample_stats" not in tree.children or "log_likelihood" not in tree["sample_stats"]:
        return None
    return tree["sample_stats"]["log_likelihood"].transpose("chain", "draw").values


def _refuse_without_topics(tree: xr.DataTree) -> None:
    if not has_topics(tree):
        model = tree.attrs.get("model")
        raise ValueError(f"the posterior of {model!r} has no site 'topics' over (topic, labels)")


def _fits(tree: xr.DataTree, chain: int, draws: Array) -> Array:
    """Return log p(Y | U, V) of some draws of a chain, over the observed cells."""
    posterior = tree["posterior"].to_dataset().isel(chain=chain)
    rows, labels = _positives(tree)
    exposure = _observed_cells(tree)
    out = np.empty(len(draws))
    for i, d in enumerate(draws):
        u = posterior["embedding"].isel(draw=d).transpose("obs", "topic").values
        v = posterior["topics"].isel(draw=d).transpose("topic", "labels").values
        total = -_exposed_rate(u, v, exposure)
        for start in range(0, len(rows), POSITIVES_AT_ONCE):
            part = slice(start, start + POSITIVES_AT_ONCE)
            rate = np.maximum((u[rows[part]] * v.T[labels[part]]).sum(axis=1), np.finfo(float).tiny)
            total += float((rate + np.asarray(log1mexp(rate))).sum())
        out[i] = total
    return out


def _exposed_rate(u: Array, v: Array, exposure: tuple[Array, Array, Array, str]) -> float:
    """Return the sum of lambda over the observed cells."""
    rows, cell_row, cell_label, kind = exposure
    total = u.sum(axis=1)
    listed = np.zeros(len(u))
    np.add.at(listed, cell_row, (u[cell_row] * v.T[cell_label]).sum(axis=1))
    partly = np.zeros(len(u), bool)
    partly[cell_row] = True
    seen = total - listed if kind == "missing" else np.where(partly, listed, total)
    return float(seen[~rows].sum())


def _positives(tree: xr.DataTree) -> tuple[Array, Array]:
    observed = tree["observed_data"]
    indptr = np.asarray(observed["Y_indptr"])
    return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)), np.asarray(observed["Y_indices"])


def _observed_cells(tree: xr.DataTree) -> tuple[Array, Array, Array, str]:
    """Return (rows without labels, rows and labels of listed cells, what the cells are)."""
    observed = tree["observed_data"]
    if "missing_rows" not in observed:
        nothing = np.zeros(0, np.int64)
        return np.zeros(len(observed["Y_indptr"]) - 1, bool), nothing, nothing, "missing"
    cells = (np.asarray(observed[name]) for name in ("missing_cell_row", "missing_cell_label"))
    row, label = cells
    return np.asarray(observed["missing_rows"]).astype(bool), row, label, observed.attrs["missing_cells_are"]


def topic_table(
    tree: xr.DataTree, num_labels: Any = 10, *, data: Any = None, chain: Any = None, draw: Any = None
) -> pd.DataFrame:
    """Return one row per topic, the most important first, from one draw.

    Parameters
    ----------
    tree : DataTree
        With the site ``topics``; of any engine.
    num_labels : int
        Labels listed per topic, and looked at for coherence.
    data : LabelData or None
        Rows whose labels give the overall shares and the coherence; None: the training labels.
    chain, draw : int or None
        See `choose_draw`.

    Returns
    -------
    DataFrame
        Index ``topic``, the position in the posterior. Columns:

        ``name`` : the `NAME_LABELS` most distinctive labels.
        ``weight`` : expected share of the training positives that the topic explains, the mean over positives
        of u_nk v_kl / sum_j u_nj v_jl; NaN where the posterior holds no embeddings.
        ``probable`` : list of (label, v_kl), largest first.
        ``distinctive`` : list of (label, lift), ordered by v_kl log lift_kl, the label's part of the
        Kullback-Leibler divergence of the topic from the overall shares; lift_kl = v_kl / q_l with
        q_l = (positives of l + 1/2) / (all positives + labels / 2). Only lifts above 1 are listed.
        ``distance`` : that divergence, in nats.
        ``effective_labels`` : exp of the entropy of v_k.
        ``coherence`` : mean NPMI over pairs of the probable labels, see `topic_coherence.coherence`; NaN
        where fewer than two of them have positives.
        ``stability`` : mean cosine of this topic with its match in other draws of the same chain; NaN
        where there is one draw.

        ``attrs`` says which draw was taken and why, and holds q_l of the listed labels (``overall``).

    Raises
    ------
    ValueError
        If there are no topics, `num_labels` is no positive integer, or `data` has other labels.
    """
    whole = isinstance(num_labels, int | np.integer) and not isinstance(num_labels, bool)
    if not (whole and num_labels >= 1):
        raise ValueError(f"num_labels must be an integer of at least 1, got {num_labels!r}")
    chosen = choose_draw(tree, chain, draw)
    names = json.loads(str(tree.attrs["label_names"]))
    counts = _label_counts(tree, data, names)
    one = tree["posterior"].to_dataset().isel(chain=chosen.chain, draw=chosen.draw)
    V = one["topics"].transpose("topic", "labels").values
    overall = (counts.positives + 0.5) / (counts.positives.sum() + 0.5 * len(names))
    weight = np.full(len(V), np.nan)
    if "embedding" in one:
        weight = explained_shares(V, one["embedding"].transpose("obs", "topic").values, tree)
    stability = _stability(tree, chosen)
    rows = [_row(V[k], overall, counts, names, int(num_labels)) for k in range(len(V))]
    table = pd.DataFrame(rows, index=pd.RangeIndex(len(V), name="topic"))
    table.insert(1, "weight", weight)
    table["stability"] = stability
    table = table.iloc[np.argsort(-np.nan_to_num(weight), kind="stable")].copy()
    table["name"] = _distinct(list(table["name"]))
    listed = {name for column in table["probable"] for name, _ in column}
    shares = {name: float(share) for name, share in zip(names, overall, strict=True) if name in listed}
    table.attrs = {"chain": chosen.chain, "draw": chosen.draw, "why": chosen.why, "overall": shares}
    return table


def _label_counts(tree: xr.DataTree, data: Any, names: list[str]) -> LabelCounts:
    if data is not None:
        if list(data.label_names) != names:
            raise ValueError("data: its labels are not those of the posterior, or in another order")
        return LabelCounts.of_data(data)
    rows, labels = _positives(tree)
    unlabelled, cell_row, cell_label, kind = _observed_cells(tree)
    shape = (len(unlabelled), len(names))
    Y = sparse.csc_array((np.ones(len(rows)), (rows, labels)), shape=shape)
    cells = sparse.csc_array((np.ones(len(cell_row)), (cell_row, cell_label)), shape=shape)
    return LabelCounts(Y, unlabelled, cells, kind)


def _row(v: Array, overall: Array, counts: LabelCounts, names: list[str], top: int) -> dict[str, Any]:
    """Return the columns of one topic that follow from V."""
    lift = v / overall
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(v > 0, v * np.log(lift), 0.0)
        entropy = -np.where(v > 0, v * np.log(v), 0.0).sum()
    probable = np.argsort(-v, kind="stable")[:top]
    distinctive = [j for j in np.argsort(-part, kind="stable")[:top] if lift[j] > 1]
    named = distinctive[:NAME_LABELS] or list(probable[:NAME_LABELS])
    # A label that adds next to nothing would only make the name longer.
    named = [j for j in named if v[j] > 0.05 * v[named[0]]] or named[:1]
    return {
        "name": ", ".join(names[j] for j in named),
        "probable": [(names[j], float(v[j])) for j in probable],
        "distinctive": [(names[j], float(lift[j])) for j in distinctive],
        "distance": float(part.sum()),
        "effective_labels": float(np.exp(entropy)),
        "coherence": coherence(counts, probable),
    }


def _distinct(names: list[str]) -> list[str]:
    """Number the names that occur twice."""
    seen: dict[str, int] = {}
    out = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        out.append(name if names.count(name) == 1 else f"{name} ({seen[name]})")
    return out


def _stability(tree: xr.DataTree, chosen: ChosenDraw) -> Array:
    """Return the mean cosine of each topic with its match in other draws of its chain."""
    topics = tree["posterior"].to_dataset()["topics"].isel(chain=chosen.chain)
    values = topics.transpose("draw", "topic", "labels")
    draws = np.linspace(0, values.sizes["draw"] - 1, min(values.sizes["draw"], DRAWS_LOOKED_AT))
    others = [d for d in np.unique(draws.round().astype(int)) if d != chosen.draw]
    pivot = _unit(values.isel(draw=chosen.draw).values)
    if not others:
        return np.full(len(pivot), np.nan)
    return np.mean([_matched_cosine(pivot, _unit(values.isel(draw=d).values)) for d in others], axis=0)


def _unit(v: Array) -> Array:
    return v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), np.finfo(float).tiny)


def _matched_cosine(pivot: Array, other: Array) -> Array:
    cosine = pivot @ other.T
    mine, theirs = linear_sum_assignment(-cosine)
    return cosine[mine, theirs]


def name_topics(tree: xr.DataTree, *, chain: Any = None, draw: Any = None) -> xr.DataTree:
    """Return a copy whose dim ``topic`` carries readable names, made of the most distinctive labels.

    A posterior with several draws is cut to the chosen draw's chain, and the draws of this chain are
    permuted to match the chosen one: a name holds within that chain only, so no other chain may wear it.

    Raises
    ------
    ValueError
        As `topic_table`.
    """
    table = topic_table(tree, chain=chain, draw=draw)
    chosen = table.attrs
    posterior = tree["posterior"].to_dataset().isel(chain=[chosen["chain"]])
    if posterior.sizes["draw"] > 1:
        posterior = _matched(posterior, chosen["draw"])
    names = table.sort_index()["name"].to_numpy().astype(object)
    out = tree.copy()
    out["posterior"] = xr.DataTree(posterior.assign_coords(topic=("topic", names)))
    out.attrs["topic_names_from"] = f"chain {chosen['chain']}, draw {chosen['draw']}: {chosen['why']}"
    return out


def _matched(posterior: xr.Dataset, pivot: int) -> xr.Dataset:
    """Permute the topics of every draw to match draw `pivot`."""
    values = posterior["topics"].transpose("chain", "draw", "topic", "labels").values[0]
    unit = [_unit(v) for v in values]
    order = np.array([linear_sum_assignment(-(unit[pivot] @ other.T))[1] for other in unit])[None]
    picked = xr.DataArray(order, dims=("chain", "draw", "topic"))
    moved = {
        str(name): array.drop_vars("topic", errors="ignore").isel(topic=picked).transpose(*array.dims)
        for name, array in posterior.data_vars.items()
        if "topic" in array.dims
    }
    return posterior.drop_vars("topic", errors="ignore").assign(moved)


def as_text(table: pd.DataFrame, num_labels: int = 6) -> str:
    """Return a table of `topic_table` for a terminal."""
    lines = [f"from chain {table.attrs['chain']}, draw {table.attrs['draw']}: {table.attrs['why']}"]
    for k, topic in table.iterrows():
        weight = "" if np.isnan(topic["weight"]) else f"{topic['weight']:6.1%}"
        fit = "" if np.isnan(topic["coherence"]) else f"  NPMI {topic['coherence']:+.2f}"
        kept = "-" if np.isnan(topic["stability"]) else f"{topic['stability']:.2f}"
        lines.append(f"topic {k:<3}{weight}  {topic['name']}{fit}  stability {kept}")
        shown = ", ".join(f"{name} {p:.2g}" for name, p in topic["probable"][:num_labels])
        lines.append(f"    probable:    {shown}")
        shown = ", ".join(f"{name} x{lift:.3g}" for name, lift in topic["distinctive"][:num_labels])
        lines.append(f"    distinctive: {shown}")
    return "\n".join(lines)


def as_json(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a table of `topic_table` as plain dictionaries, None where a number is undefined."""
    out = []
    for topic in table.reset_index().to_dict("records"):
        numbers = ("weight", "distance", "effective_labels", "coherence", "stability")
        out.append(
            {
                "topic": int(topic["topic"]),
                "name": topic["name"],
                **{name: float(topic[name]) if np.isfinite(topic[name]) else None for name in numbers},
                "probable": [{"label": name, "prob": p} for name, p in topic["probable"]],
                "distinctive": [{"label": name, "lift": lift} for name, lift in topic["distinctive"]],
            }
        )
    return out
