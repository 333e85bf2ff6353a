"""Topics that a person can read: the top labels of each, ordered by what they explain."""

import json
import warnings
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from labelzoo.inference.align import align

Array = Any

POSITIVES_AT_ONCE = 100_000
"""Positives whose responsibilities are held in memory at one time."""


class Topic(NamedTuple):
    """One row of the table.

    Attributes
    ----------
    name : str
        ``topic 0`` explains most.
    share : float or None
        Share of the training positives that the topic explains; None without embeddings.
    labels : tuple of (str, float)
        Labels with the largest weights, and these weights (a topic's weights over all labels sum to one).
    source : int
        Position of the topic in the posterior.
    """

    name: str
    share: float | None
    labels: tuple[tuple[str, float], ...]
    source: int


def has_topics(tree: xr.DataTree) -> bool:
    """Return whether the posterior has a site ``topics`` over (topic, labels)."""
    posterior = tree["posterior"]
    return "topics" in posterior and {"topic", "labels"} <= set(posterior["topics"].dims)


def topic_table(tree: xr.DataTree, top: int = 8) -> list[Topic]:
    """Return the topics of a posterior, most important first.

    Several draws are aligned to one of them (`labelzoo.align`) and averaged: right for looking, not for
    judging, since a topic that splits or moves between draws is blurred.

    Parameters
    ----------
    tree : DataTree
        With the site ``topics``; ``embedding`` gives the shares.
    top : int
        Labels a topic.

    Raises
    ------
    ValueError
        If there are no topics, or `top` is below one.
    """
    if not has_topics(tree):
        raise ValueError(
            f"the posterior of {tree.attrs.get('model')!r} has no site 'topics' over (topic, labels)"
        )
    if top < 1:
        raise ValueError(f"top must be at least 1, got {top}")
    means = _means(tree)
    topics = means["topics"]
    shares = explained_shares(topics, means["embedding"], tree) if "embedding" in means else None
    order = np.arange(len(topics)) if shares is None else np.argsort(-shares, kind="stable")
    names = json.loads(str(tree.attrs["label_names"]))
    return [
        Topic(
            f"topic {rank}", None if shares is None else float(shares[k]), _top(topics[k], names, top), int(k)
        )
        for rank, k in enumerate(order)
    ]


def _means(tree: xr.DataTree) -> dict[str, Array]:
    """Posterior means of topics (topic, labels) and embedding (obs, topic), after alignment."""
    sizes = tree["posterior"].sizes
    if sizes["chain"] * sizes["draw"] > 1:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="aligned draws are for looking")
            tree = align(tree, site="topics", dim="topic")
    posterior = tree["posterior"].to_dataset()
    axes = {"topics": ("topic", "labels"), "embedding": ("obs", "topic")}
    return {
        site: posterior[site].mean(("chain", "draw")).transpose(*dims).values
        for site, dims in axes.items()
        if site in posterior and set(dims) <= set(posterior[site].dims)
    }


def explained_shares(topics: Array, embedding: Array, tree: xr.DataTree) -> Array:
    """Return per topic the mean over positives (n, l) of u_nk v_kl / sum_j u_nj v_jl: (topic,), sums to one.

    The chance that a positive's count came from topic k (Rai et al. 2015, eq. 9).
    """
    observed = tree["observed_data"]
    labels, indptr = np.asarray(observed["Y_indices"]), np.asarray(observed["Y_indptr"])
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    total = np.zeros(len(topics))
    for start in range(0, len(labels), POSITIVES_AT_ONCE):
        part = slice(start, start + POSITIVES_AT_ONCE)
        rates = embedding[rows[part]] * topics.T[labels[part]]
        total += (rates / np.maximum(rates.sum(axis=1, keepdims=True), np.finfo(float).tiny)).sum(axis=0)
    return total / max(total.sum(), np.finfo(float).tiny)


def _top(weights: Array, names: list[str], top: int) -> tuple[tuple[str, float], ...]:
    best = np.argsort(-weights, kind="stable")[:top]
    return tuple((names[j], float(weights[j])) for j in best)


def topics_as_text(topics: list[Topic], top: int = 6) -> str:
    """Return the table for a terminal."""
    lines = []
    for topic in topics:
        share = "" if topic.share is None else f"{topic.share:5.1%}  "
        lines.append(f"  {topic.name:<9}{share}" + ", ".join(name for name, _ in topic.labels[:top]))
    return "\n".join(lines)


def topics_as_json(topics: list[Topic]) -> list[dict[str, Any]]:
    """Return the table as plain dictionaries."""
    return [
        {"name": t.name, "share": t.share, "labels": [{"name": n, "weight": w} for n, w in t.labels]}
        for t in topics
    ]
