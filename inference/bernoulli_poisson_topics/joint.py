"""Joint probabilities of a few labels at new rows, P(y_A = a | x, V, W, r), for all patterns a at once."""

from typing import Any

import numpy as np

from labelzoo.inference.bernoulli_poisson_topics.row_posterior import (
    EPS,
    Floats,
    known_row,
    samples,
    subset_mass,
)

Array = Any

MAX_LABELS = 12
"""Labels of a set: 4096 patterns."""

MAX_RELATIVE_ERROR = 1e-6
"""Relative rounding error of a pattern's probability above which it is sampled."""


def joint_table(
    topics: Floats, shape: Floats, psi: Floats, rng: np.random.Generator, *, num_samples: int = 2000
) -> tuple[Floats, Floats]:
    """Return the probabilities of all 2^labels patterns, and their errors: two (row, pattern) arrays.

    P(labels in S all 0) = prod_k (1 + e^psi_k sum over S of v_kl)^-r_k (eq. 19 for a set); P(pattern) follows
    by inclusion and exclusion, one label at a time: P(l = 1) = P(l not looked at) - P(l = 0). Where the
    differences lose their digits the pattern is sampled.

    Parameters
    ----------
    topics : array (topic, labels)
        Columns of V of the set; at most `MAX_LABELS`.
    shape : array (topic,)
    psi : array (row, topic)

    Returns
    -------
    prob, error : array (row, pattern)
        Pattern p has label i positive where bit i of p is set.
    """
    count = topics.shape[1]
    prob = zero_sets(topics, shape, psi)
    spent = prob.copy()
    for i in range(count):
        with_zero = (np.arange(1 << count) >> i & 1).astype(bool)
        prob[:, ~with_zero] -= prob[:, with_zero]
        spent[:, ~with_zero] += spent[:, with_zero]
    # So far bit i says that label i is 0; reversed, that it is 1.
    prob, spent = prob[:, ::-1].copy(), spent[:, ::-1]
    error = (1 + count) * EPS * spent
    for n, p in zip(*np.nonzero(~(error < MAX_RELATIVE_ERROR * prob)), strict=True):
        prob[n, p], error[n, p] = _sampled(topics, shape, psi[n], int(p), rng, num_samples)
    return prob, error


def zero_sets(topics: Floats, shape: Floats, psi: Floats) -> Floats:
    """Return P(all labels of the set are 0) for every set of columns of `topics`: (row, set)."""
    mass = subset_mass(topics.T)
    with np.errstate(divide="ignore"):
        log_mass = np.log(mass)
    out = np.empty((len(psi), len(mass)))
    for n, row in enumerate(psi):
        out[n] = np.exp(-(np.logaddexp(0.0, row + log_mass) @ shape))
    return out


def _sampled(
    topics: Floats, shape: Floats, psi: Floats, pattern: int, rng: np.random.Generator, count: int
) -> tuple[float, float]:
    positive = (pattern >> np.arange(topics.shape[1]) & 1).astype(bool)
    zeros = topics[:, ~positive].sum(axis=1)
    row = known_row(topics, shape, psi, zeros, np.flatnonzero(positive))
    drawn = samples(row, rng, count)
    prob = float(np.exp(row.log_zeros + drawn.log_mean))
    return prob, prob * drawn.log_error
