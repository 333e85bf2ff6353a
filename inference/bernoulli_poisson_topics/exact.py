"""The marginal likelihood of Bernoulli-Poisson topics with the embedding integrated out, exactly.

An oracle for rows with few positives: inclusion and exclusion over their subsets, in float64.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from labelzoo.models.label_cells import negative_mass

Array = Any
Floats = NDArray[np.float64]

MAX_POSITIVES = 16
"""Most positives of one row: 65 536 terms."""


class ExactMarginal(NamedTuple):
    """Log marginal likelihood of every row.

    Attributes
    ----------
    log_likelihood : ndarray (row,)
        log p(observed labels of the row | x, V, W, r), nats; NaN where rounding has eaten the sum.
    relative_error : ndarray (row,)
        2^-52 times the sum of absolute terms over the sum: the terms alternate, so digits cancel.
    """

    log_likelihood: Floats
    relative_error: Floats


def log_marginal_likelihood_exact(
    topics: Array, weights: Array, shape: Array, inputs: Mapping[str, Any]
) -> ExactMarginal:
    """Return log p(y_n | x_n, V, W, r) of every row by inclusion and exclusion.

    A positive contributes 1 - e^-lambda, so p(y_n) is a sum over subsets S of the positives of
    (-1)^|S| E exp(-sum_k u_k t_k(S)), t_k(S) = sum over the observed zeros and S of v_kl; each expectation is
    prod_k (1 + e^psi_k t_k(S))^-r_k. Cost 2^positives x topics a row.

    Parameters
    ----------
    topics : array (topic, labels)
    weights : array (topic, feature)
    shape : array (topic,)
    inputs : mapping
        What ``spec.prepare`` returned for the rows.

    Raises
    ------
    ValueError
        If a row has more than `MAX_POSITIVES` positives; the message names it.
    """
    V, r = np.asarray(topics, np.float64), np.asarray(shape, np.float64)
    X = inputs["X"] if issparse(inputs["X"]) else np.asarray(inputs["X"], np.float64)
    psi = X @ np.asarray(weights, np.float64).T
    zeros = np.asarray(negative_mass(topics, inputs["negatives"]), np.float64)
    row, label = np.asarray(inputs["positives"].row), np.asarray(inputs["positives"].label)
    counts = np.bincount(row, minlength=len(psi))
    if counts.max(initial=0) > MAX_POSITIVES:
        worst = int(counts.argmax())
        raise ValueError(
            f"row {worst} has {counts[worst]} positive labels; inclusion-exclusion over more than "
            f"{MAX_POSITIVES} is not offered"
        )
    rows = [_row_marginal(V[:, label[row == n]].T, zeros[n], psi[n], r) for n in range(len(psi))]
    values, errors = zip(*rows, strict=True)
    return ExactMarginal(np.asarray(values), np.asarray(errors))


def _row_marginal(positives: Floats, zeros: Floats, psi: Floats, r: Floats) -> tuple[float, float]:
    """Sum over subsets of `positives` (positive, topic); returns the logarithm and its relative error."""
    mass, sign = zeros[None, :], np.ones(1)
    for topic_weights in positives:
        mass, sign = np.concatenate([mass, mass + topic_weights]), np.concatenate([sign, -sign])
    with np.errstate(divide="ignore"):
        terms = sign * np.exp(-(r * np.logaddexp(0.0, psi + np.log(mass))).sum(axis=1))
    total = float(terms.sum())
    if not total > 0:
        return float("nan"), float("inf")
    return float(np.log(total)), float(2.0**-52 * np.abs(terms).sum() / total)
