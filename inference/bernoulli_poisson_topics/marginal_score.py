"""log p(observed labels of a row | x, V, W, r) with the embedding integrated out, for many rows."""

from typing import Any, NamedTuple

import numpy as np

from labelzoo.inference.bernoulli_poisson_topics.row_posterior import (
    Floats,
    KnownRow,
    given_zeros,
    known_row,
    log_known_exact,
    samples,
    subsets,
)

Array = Any

MAX_RELATIVE_ERROR = 1e-6
"""Relative rounding error of a row's likelihood above which sampling takes over."""

MAX_SUBSETS_OF = 8
"""Positives of a row up to which all subsets are summed."""

CELLS_AT_ONCE = 2**20
"""Rows x subsets x topics held at one time."""


class MarginalScore(NamedTuple):
    """Log likelihood of rows.

    Attributes
    ----------
    log_likelihood : array (row,)
        Nats, observed labels only.
    error : array (row,)
        Standard error of the sampled rows, relative rounding error of the exact ones. The logarithm of an
        average is low by about half the squared error.
    exact : bool array (row,)
    """

    log_likelihood: Floats
    error: Floats
    exact: Any


def marginal_score(
    topics: Floats,
    shape: Floats,
    psi: Floats,
    zeros: Floats,
    positives: Any,
    rng: np.random.Generator,
    *,
    num_samples: int = 400,
) -> MarginalScore:
    """Return log p(y_n | x_n, V, W, r) of every row: exact where rounding allows, else sampled.

    Parameters
    ----------
    topics : array (topic, labels)
    shape : array (topic,)
    psi, zeros : array (row, topic)
        Linear predictors, and mass of the observed zeros.
    positives : sequence of int arrays
        Positive labels of each row.
    num_samples : int
        Samples a row.
    """
    out = np.full((2, len(psi)), np.inf)
    counts = np.array([len(labels) for labels in positives], int)
    for count in np.unique(counts[counts <= MAX_SUBSETS_OF]):
        members = np.flatnonzero(counts == count)
        step = max(1, CELLS_AT_ONCE // (len(shape) << count))
        for start in range(0, len(members), step):
            at = members[start : start + step]
            labels = np.array([positives[n] for n in at], int).reshape(len(at), count)
            out[:, at] = _subset_sums(topics, shape, psi[at], zeros[at], labels)
    exact = out[1] < MAX_RELATIVE_ERROR
    for n in np.flatnonzero(~exact):
        row = known_row(topics, shape, psi[n], zeros[n], positives[n])
        drawn = samples(row, rng, num_samples)
        out[:, n] = row.log_zeros + drawn.log_mean, drawn.log_error
    return MarginalScore(out[0], out[1], exact)


def _subset_sums(topics: Floats, shape: Floats, psi: Floats, zeros: Floats, labels: Array) -> Any:
    """Return log p and its relative error of rows with equally many positives, `labels` (row, positive)."""
    rate, log_zeros = given_zeros(shape, psi, zeros)
    rows = KnownRow(shape, rate, topics.T[labels], log_zeros)
    return log_known_exact(rows, subsets(rows))
