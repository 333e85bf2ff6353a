"""What share of the positive labels each topic of a posterior explains."""

from typing import Any

import numpy as np
import xarray as xr

Array = Any

POSITIVES_AT_ONCE = 100_000
"""Positives whose responsibilities are held in memory at one time."""


def has_topics(tree: xr.DataTree) -> bool:
    """Return whether the posterior has a site ``topics`` over (topic, labels)."""
    posterior = tree["posterior"]
    return "topics" in posterior and {"topic", "labels"} <= set(posterior["topics"].dims)


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
