"""Scores that rank all labels of a compressed row, and how many of them to answer with.

    corr  sigmoid(c_j),  c_j = a_j.r / |a_j|^2
    omp   sigmoid(c_j) + 1 where the pursuit selects j with a coefficient above 0
    bp    y_j + 1e-6 sigmoid(c_j),  y of the linear program

Labels are ranked by c_j itself, for omp after the selected ones, for bp after y_j: the sigmoid, which is 1 or
0 far out, gives only the numbers shown. Ties go to the label that more training rows have, then to the lower
index; the scores themselves are moved apart by units in the last place, so that whatever sorts them later
ranks them so. The answer is the k labels ranked first.

Shi and Yu, ICML 2019, section 3.1; the level of each item is the future work of section 5.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from labelzoo.inference.compressed_gp.decoding import (
    basis_pursuit,
    correlation,
    matching_pursuit,
    read_levels,
    read_rows,
)
from labelzoo.inference.sparse_bayes.terms import read_matrix

Array = Any

METHODS = ("bp", "omp", "corr")
SMALL = 1e-6
ROUND = 10
"""Decimals to which the linear program's answer is read: its tolerance is no reason to rank."""
RIDGES = 10.0 ** np.arange(-8.0, 3.0)
"""Ridges tried, over the largest squared singular value of the centred rows."""


class Decoded(NamedTuple):
    """Scores (row, labels), no two of a row alike, and the answer (row, labels), bool: `levels` ones."""

    scores: Array
    labels: Array


class LevelRule(NamedTuple):
    """Number of labels of a row, linear in its compressed row: mean + (r - center) slope.

    Attributes
    ----------
    mean : float
        Mean number of labels of the training rows.
    center, slope : (measurement,)
    ridge : float
        The one of least leave-one-out error; infinite where none beats the mean.
    labels : int
    """

    mean: float
    center: Array
    slope: Array
    ridge: float
    labels: int


def decode(
    compressed: Any, projection: Any, *, levels: Any, frequency: Any = None, method: Any = "bp"
) -> Decoded:
    """Return scores that rank all labels, and the answer, of each compressed row.

    Parameters
    ----------
    compressed : (row, measurement)
        In the units of projection y, finite.
    projection : (measurement, labels)
    levels : int or int (row,)
        Ones of the answer, at least 1; at most all labels are taken.
    frequency : (labels,) or None
        How often each label occurs in training, for ties; by index alone without it.
    method : {"bp", "omp", "corr"}

    Raises
    ------
    ValueError
        For shapes that do not fit, an unknown method, or NaN or infinity, naming row and column.
    """
    R, A = read_rows(compressed, projection)
    k = np.minimum(read_levels(levels, len(R)), A.shape[1])
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    first: Array = 0.0
    if method == "omp":
        found = matching_pursuit(R, A, k)
        first = found.selected & (found.coefficients > 0)
    elif method == "bp":
        first = np.round(basis_pursuit(R, A), ROUND)
    scores = scored(correlation(R, A), first, frequency, weight=SMALL if method == "bp" else 1.0)
    return Decoded(scores, top_labels(scores, k))


def scored(correlations: Any, first: Any, frequency: Any = None, *, weight: float = 1.0) -> Array:
    """Return first + weight sigmoid(c), ranked by `first`, then by c, then as `untied`: (row, labels).

    Parameters
    ----------
    correlations : (row, labels)
    first : (row, labels) or float
    frequency : (labels,) or None
    weight : float
    """
    c = read_matrix(correlations, "correlations")
    front = np.broadcast_to(np.asarray(first, float), c.shape)
    tied = np.argsort(-_frequency(frequency, c.shape[1]), kind="stable")
    order = tied[np.lexsort((-c[:, tied], -front[:, tied]), axis=1)]
    return _lowered(front + weight * expit(c), order)


def untied(scores: Any, frequency: Any = None) -> Array:
    """Return scores no two of which are alike in a row, ties broken by frequency, then by index.

    A score that equals one ranked before it is lowered to the next number below: by units in the last place,
    so that no two scores that differ change their order.

    Parameters
    ----------
    scores : (row, labels)
    frequency : (labels,) or None

    Raises
    ------
    ValueError
        For shapes that do not fit, NaN or infinity.
    """
    S = read_matrix(scores, "scores")
    return _lowered(S, ranking(S, frequency))


def _lowered(S: Array, order: Array) -> Array:
    """Return scores that fall strictly along `order` (row, labels), lowered where they did not."""
    sorted_ = np.take_along_axis(S, order, axis=1)
    for j in range(1, S.shape[1]):
        sorted_[:, j] = np.minimum(sorted_[:, j], np.nextafter(sorted_[:, j - 1], -np.inf))
    out = np.empty_like(S)
    np.put_along_axis(out, order, sorted_, axis=1)
    return out


def ranking(scores: Any, frequency: Any = None) -> Array:
    """Return the labels of each row, best first: by score, then frequency, then index: (row, labels)."""
    S = read_matrix(scores, "scores")
    first = np.argsort(-_frequency(frequency, S.shape[1]), kind="stable")
    return first[np.argsort(-S[:, first], axis=1, kind="stable")]


def top_labels(scores: Any, levels: Any, frequency: Any = None) -> Array:
    """Return the `levels` best labels of each row, bool (row, labels), exactly min(level, labels) ones."""
    S = read_matrix(scores, "scores")
    rank = np.argsort(ranking(S, frequency), axis=1)
    return rank < read_levels(levels, len(S), least=0)[:, None]


def training_level(Y: Any) -> int:
    """Return the sparsity level of the training rows: their mean number of labels, rounded, at least 1.

    Parameters
    ----------
    Y : (row, labels)
        0, 1, NaN where unobserved; a label counts with its mean over the rows where it was observed.

    Raises
    ------
    ValueError
        If there is no row or label, or another value than 0, 1 and NaN.
    """
    return max(1, round(float(_shares(_read_labels(Y)).sum())))


def fit_levels(compressed: Any, Y: Any) -> LevelRule:
    """Return the rule that infers a level for each item from its compressed row.

    The number of labels 1'y is linear in y, as each measurement is: one more measurement, that was not taken.
    Its best linear prediction from the others is its regression on them, and of all integers the one nearest
    to a mean has the least expected squared error. Where the projection is invertible, or the training rows
    span no more patterns than there are measurements, the regression is exact. The ridge, chosen by the
    leave-one-out error of the training rows, includes the infinite one: then all items get the mean.

    Parameters
    ----------
    compressed : (row, measurement)
        Of the training rows: what will be decoded, so that errors of its prediction shrink the slope too.
    Y : (row, labels)
        0 and 1; rows with an unobserved label are left out.

    Raises
    ------
    ValueError
        For shapes that do not fit, other values, or no fully observed row.
    """
    Y = _read_labels(Y)
    R = read_matrix(compressed, "compressed")
    if len(R) != len(Y):
        raise ValueError(f"compressed must have {len(Y)} rows as Y, got {len(R)}")
    whole = ~np.isnan(Y).any(axis=1)
    if not whole.any():
        raise ValueError("Y has no row whose labels are all observed")
    return level_rule(R[whole], Y[whole].sum(axis=1), Y.shape[1])


def level_rule(compressed: Any, counts: Any, labels: int) -> LevelRule:
    """Return the rule of `fit_levels` from the number of labels of each row, `counts` (row,)."""
    R, count = read_matrix(compressed, "compressed"), np.asarray(counts, float)
    mean, center = float(count.mean()), R.mean(axis=0)
    ridge, slope = _ridge(R - center, count - mean)
    return LevelRule(mean, center, slope, ridge, labels)


def inferred_levels(rule: LevelRule, compressed: Any) -> Array:
    """Return the level of each row, at least 1 and at most the number of labels: int (row,)."""
    R = read_matrix(compressed, "compressed", len(rule.center))
    counts = rule.mean + (R - rule.center) @ rule.slope
    return np.clip(np.rint(counts), 1, rule.labels).astype(int)


def _ridge(R: Array, c: Array) -> tuple[float, Array]:
    """Return the ridge of least leave-one-out error and its slope, both sides centred."""
    m, none = len(c), (np.inf, np.zeros(R.shape[1]))
    left, sizes, right = np.linalg.svd(R, full_matrices=False)
    if m < 3 or not sizes.size or sizes[0] == 0:
        return none
    onto = left.T @ c
    best, answer = float(((c * m / (m - 1)) ** 2).sum()), none
    for ridge in RIDGES * sizes[0] ** 2:
        error = float((_left_out(left, sizes**2 / (sizes**2 + ridge), c) ** 2).sum())
        if error < best * (1.0 - 1e-9):
            best, answer = error, (float(ridge), right.T @ (sizes / (sizes**2 + ridge) * onto))
    return answer


def _left_out(left: Array, shrink: Array, c: Array) -> Array:
    """Return c minus its prediction from all other rows, their means refitted: (row,)."""
    own = np.minimum((left**2) @ shrink + 1.0 / len(c), 1.0 - 1e-9)
    return (c - left @ (shrink * (left.T @ c))) / (1.0 - own)


def _frequency(frequency: Any, labels: int) -> Array:
    if frequency is None:
        return np.zeros(labels)
    given = np.asarray(frequency, float)
    if given.shape != (labels,) or not np.isfinite(given).all():
        raise ValueError(f"frequency must be {labels} finite numbers, got shape {given.shape}")
    return given


def _read_labels(Y: Any) -> Array:
    Y = np.asarray(Y, float)
    if Y.ndim != 2 or 0 in Y.shape:
        raise ValueError(f"Y must have rows and labels, got shape {Y.shape}")
    bad = np.argwhere(~((Y == 0) | (Y == 1) | np.isnan(Y)))
    if bad.size:
        raise ValueError(f"Y has {Y[tuple(bad[0])]} at row {bad[0][0]}, label {bad[0][1]}: 0, 1 or NaN")
    return Y


def _shares(Y: Array) -> Array:
    """Return the observed share of ones of each label, 0 where it was never observed: (labels,)."""
    seen = (~np.isnan(Y)).sum(axis=0)
    return np.nansum(Y, axis=0) / np.maximum(seen, 1)
