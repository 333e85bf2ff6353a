"""Scores of the multi-label baselines on arrays of margins and probabilities; larger is asked first.

F (row, labels) are signed margins, predicted positive where above 0 (0 is negative); Q (row, labels) are
probabilities. `usable` (labels,) says which labels may enter a minimum over labels (default all).
"""

import warnings
from typing import Any, NamedTuple

import numpy as np
from scipy.special import entr, xlogy
from scipy.stats import rankdata
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from labelzoo.acquisition.binary_relevance import (
    LOGISTIC_C,
    check_labels,
    check_margins,
    check_probs,
)

Array = Any

BLOCK = 2_000_000
"""Cells of a block of row-by-row work."""


def binary_entropy(Q: Array) -> Array:
    """Return the sum over labels of the entropy of q: (row,), nats."""
    Q = check_probs(Q, "probabilities")
    return (entr(Q) + entr(1 - Q)).sum(axis=1)


def smallest_margin(F: Array, usable: Array | None = None) -> Array:
    """Return -min_l abs(f_l) over usable labels: (row,); all 0 where no label is usable.

    Brinker (2006), "binmin".
    """
    F = check_margins(F)
    F = F if usable is None else F[:, usable]
    return -np.abs(F).min(axis=1) if F.shape[1] else np.zeros(F.shape[0])


def label_losses(F: Array) -> Array:
    """Return the hinge loss R of "only this label is true" for every label: (row, labels).

    R(x, y) = sum_l max(1 - m_l f_l, 0) with m_y = 1 and m_l = -1 elsewhere. Li, Wang and Sung (2004).
    """
    F = check_margins(F)
    wrong = np.maximum(1 + F, 0)
    return wrong.sum(axis=1, keepdims=True) - wrong + np.maximum(1 - F, 0)


def max_loss(F: Array) -> Array:
    """Return the loss of the label with the largest margin (ML): (row,)."""
    losses = label_losses(F)
    return losses[np.arange(losses.shape[0]), np.argmax(F, axis=1)]


def mean_max_loss(F: Array) -> Array:
    """Return the mean loss over labels predicted positive (MML), or of the largest margin if none: (row,)."""
    losses, positive = label_losses(F), np.asarray(F) > 0
    count = positive.sum(axis=1)
    mean = (losses * positive).sum(axis=1) / np.maximum(count, 1)
    return np.where(count > 0, mean, max_loss(F))


def cardinality_features(Q: Array) -> Array:
    """Return each row of Q sorted, largest first, over its sum; a row of zeros becomes uniform."""
    Q = check_probs(Q, "probabilities")
    total = Q.sum(axis=1, keepdims=True)
    uniform = np.full(Q.shape, 1 / max(Q.shape[1], 1))
    return np.where(total > 0, -np.sort(-Q, axis=1) / np.where(total > 0, total, 1), uniform)


def predicted_cardinality(Q_labelled: Array, Y: Array, Q_pool: Array) -> Array:
    """Return the number of positives that a multinomial logistic regression predicts: int (pool,).

    Features are those of `cardinality_features`; it learns from rows with all labels known, and is the
    constant where these have one cardinality. C = `LOGISTIC_C`.
    """
    full = ~np.isnan(check_labels(Y)).any(axis=1)
    if not full.any():
        raise ValueError("Y_labelled: no row with all labels known, so their number cannot be learned")
    counts = Y[full].sum(axis=1).astype(int)
    if np.unique(counts).size == 1 or Q_pool.shape[0] == 0:
        return np.full(Q_pool.shape[0], counts[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = LogisticRegression(C=LOGISTIC_C, max_iter=500)
        model.fit(cardinality_features(Q_labelled)[full], counts)
    return model.predict(cardinality_features(Q_pool))


def loss_reduction(F: Array, count: Array) -> Array:
    """Return sum_l (1 - yhat_l f_l) / 2, yhat = +1 on the `count` largest margins and -1 elsewhere: (row,).

    With margins 2 q - 1 it is the expected number of wrong labels. Yang, Sun, Wang and Chen (2009).
    """
    F = check_margins(F)
    place = np.argsort(np.argsort(-F, axis=1, kind="stable"), axis=1)
    signs = np.where(place < np.asarray(count)[:, None], 1.0, -1.0)
    return (1 - signs * F).sum(axis=1) / 2


def borda(Q: Array) -> Array:
    """Return the Borda score of small margins: (row,), from 0 to 1, 1 for the smallest in every label.

    s_i = sum_l (N - tau_il) / (L (N - 1)); tau_il the rank of abs(2 q_il - 1) among the N rows, 1 for the
    smallest, ties sharing the mean rank; 1 where N = 1. Margins are compared to 12 digits, so that q and
    1 - q tie.
    """
    Q = check_probs(Q, "probabilities")
    rows = Q.shape[0]
    if rows < 2:
        return np.ones(rows)
    ranks = rankdata(np.round(np.abs(2 * Q - 1), 12), method="average", axis=0)
    return (rows - ranks).mean(axis=1) / (rows - 1)


def entropy_distance(A: Array, B: Array) -> Array:
    """Return the entropy distance of label vectors: (rows of A, rows of B), from 0 to 1, symmetric.

    (2 H(a, b) - H(a) - H(b)) / H(a, b) from the 2 x 2 table of the label positions; 1 where the vectors
    differ everywhere, 0 where H(a, b) = 0. Positions where B is NaN are left out of the table.

    Entropies are looked up by count: s H(p) = s log s - sum c log c for a table of counts c that add to s,
    so a pair of vectors costs two products of L and four table look-ups.
    """
    A, B = np.asarray(A, float), np.asarray(B, float)
    positive = np.nan_to_num(B)
    count = np.arange(A.shape[1] + 1)
    plogp = -xlogy(count, np.maximum(count, 1))
    size = np.count_nonzero(~np.isnan(B), axis=1)
    both = (A @ positive.T).astype(np.intp)
    if (size == A.shape[1]).all():
        first = A.sum(axis=1).astype(np.intp)[:, None]
    else:
        first = (A @ (~np.isnan(B)).T).astype(np.intp)
    second = positive.sum(axis=1).astype(np.intp)
    neither = size - first - second + both
    whole = -plogp[size]
    joint = plogp[both] + plogp[first - both] + plogp[second - both] + plogp[neither] + whole
    alone = plogp[first] + plogp[size - first] + (plogp[second] + plogp[size - second]) + 2 * whole
    distance = np.clip((2 * joint - alone) / np.where(joint > 0, joint, 1), 0, 1)
    return np.where((both + neither == 0) & (size > 0), 1.0, distance)


def inconsistency(predicted: Array, Y: Array) -> Array:
    """Return the mean entropy distance of each predicted label vector to the labelled rows: (row,).

    Equal vectors are compared once, so the cost is their distinct number times labelled rows times labels.
    """
    Y = check_labels(Y)
    Y = Y[~np.isnan(Y).all(axis=1)]
    if Y.shape[0] == 0:
        raise ValueError("Y_labelled: inconsistency needs a labelled row")
    step = max(BLOCK // Y.shape[0], 1)
    distinct, place = _distinct(predicted)
    blocks = [
        entropy_distance(distinct[at : at + step], Y).mean(axis=1) for at in range(0, len(distinct), step)
    ]
    return np.concatenate(blocks)[place] if blocks else np.zeros(0)


def _distinct(predicted: Array) -> tuple[Array, Array]:
    """Return the distinct rows of a 0/1 table and where each row is among them, by bytes of packed bits."""
    predicted = np.asarray(predicted, bool)
    packed = np.packbits(predicted, axis=1)
    keys = np.ascontiguousarray(packed).view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, first, place = np.unique(keys, return_index=True, return_inverse=True)
    return predicted[first], place


class GPMargins(NamedTuple):
    """Gaussian process regression on -1 and +1: mean (row, labels) and variance (row, labels)."""

    mean: Array
    variance: Array


def gp_margins(K: Array, K_pool: Array, diagonal: Array, Y: Array, noise: float) -> GPMargins:
    """Return the posterior of one Gaussian process a label, all with one kernel.

    mean = K_pool A y, variance = diagonal - diag(K_pool A K_pool'), A = (K + noise I)^-1. Labels are solved
    together where they were asked on the same rows; cost of each such group M^3 / 3 + pool M^2.

    Parameters
    ----------
    K : (labelled, labelled)
    K_pool : (pool, labelled)
    diagonal : (pool,)
    Y : (labelled, labels)
        0, 1, NaN.
    noise : float
        Variance, in units of the kernel.
    """
    seen = ~np.isnan(Y)
    patterns, group = np.unique(seen, axis=1, return_inverse=True)
    mean, variance = np.zeros((2, K_pool.shape[0], Y.shape[1]))
    for k in range(patterns.shape[1]):
        rows, labels = patterns[:, k], np.ravel(group) == k
        factor = np.linalg.cholesky(K[np.ix_(rows, rows)] + noise * np.eye(int(rows.sum())))
        root = np.linalg.solve(factor, K_pool[:, rows].T)
        target = np.linalg.solve(factor, 2 * Y[np.ix_(rows, labels)] - 1)
        mean[:, labels] = root.T @ target
        variance[:, labels] = np.maximum(diagonal - (root**2).sum(axis=0), 0)[:, None]
    return GPMargins(mean, variance)


def gp_uncertainty(posterior: GPMargins, noise: float, usable: Array | None = None) -> Array:
    """Return -min_l abs(mean_l) / sqrt(variance + noise) over usable labels: (row,).

    Kapoor, Grauman, Urtasun and Darrell (2010).
    """
    return smallest_margin(posterior.mean / np.sqrt(posterior.variance + noise), usable)
