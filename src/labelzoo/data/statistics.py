"""Statistics of sparse multi-label tables, each with its formula and what it does with unobserved cells.

Every function works on the positives ``Y``, a csr_array (n, l) of ones with sorted indices, and on counts of
what was observed. Memory is O(nnz + n + l) throughout, but for `frequent_pairs`, which says what it costs.
An unobserved cell is never counted as a negative.
"""

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, triu

PAIR_LIMIT = 200_000_000  # products beyond which `frequent_pairs` is not computed: some seconds of work
ROUNDING = 1e-13  # SCUMBLE of a row below this is rounding
PAIR_BLOCK = 1_000_000  # products of one block of labels: bounds the memory of `frequent_pairs`

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class LabelSets(NamedTuple):
    """Counts of the distinct sets of positive labels.

    Attributes
    ----------
    distinct : int
        Number of distinct sets, the empty set included.
    once : int
        Number of sets that occur in one row only.
    largest : int
        Rows of the most frequent set; 0 where there are no rows.
    """

    distinct: int
    once: int
    largest: int


class Spread(NamedTuple):
    """A mean and a coefficient of variation; None where undefined."""

    mean: float | None
    cv: float | None


class Pair(NamedTuple):
    """Two labels, first < second, and the number of rows in which both are positive."""

    first: int
    second: int
    rows: int


def label_sets(Y: csr_array, labelled: NDArray[np.bool_]) -> LabelSets:
    """Count the distinct sets of positive labels over the labelled rows.

    A partly labelled row contributes the set of its observed positives; a row without any observed label
    contributes nothing. (Charte and Charte 2015, The R Journal 7(2): labelsets, single labelsets.)

    Parameters
    ----------
    Y : csr_array (n, l)
    labelled : bool (n,)
        Rows with at least one observed label.
    """
    bounds, indices = Y.indptr.tolist(), np.ascontiguousarray(Y.indices)
    rows = np.flatnonzero(labelled).tolist()
    times = Counter(indices[bounds[i] : bounds[i + 1]].tobytes() for i in rows)
    return LabelSets(len(times), sum(t == 1 for t in times.values()), max(times.values(), default=0))


def diversity(distinct: int, num_labelled: int, num_labels: int) -> float | None:
    """Distinct label sets over the largest possible number, ``distinct / min(2^l, n)``; None without rows.

    ``n`` counts labelled rows only. (Moyano et al. 2017, MLDA, Knowledge-Based Systems 121.)
    """
    if not num_labelled:
        return None
    possible = num_labelled if num_labels >= 63 else min(2**num_labels, num_labelled)
    return distinct / possible


def imbalance_ratios(positives: Ints, observed: Ints) -> Floats:
    """Imbalance ratio of each label, ``IRLbl_i = max_j p_j / p_i``, float64 (l,); NaN where ``p_i`` is 0.

    ``p_i = positives_i / observed_i`` is the share of positives among the rows where label i is observed, so
    that unobserved cells count neither way. Where every cell is observed this is the ratio of counts of
    Charte, Rivera, del Jesus and Herrera (2015), Neurocomputing 163.

    Parameters
    ----------
    positives, observed : int64 (l,)
        Positive and observed cells of each label.
    """
    share = np.divide(positives, observed, out=np.zeros(len(positives)), where=observed > 0)
    ratios = np.full(len(share), np.nan)
    some = share > 0
    ratios[some] = share.max(initial=0.0) / share[some]
    return ratios


def mean_imbalance(ratios: Floats) -> Spread:
    """Mean imbalance ratio (MeanIR) and coefficient of variation (CVIR) over the labels that have a ratio.

    ``MeanIR = mean IRLbl``; ``CVIR = sd(IRLbl) / MeanIR`` with divisor L - 1 (Charte et al. 2015,
    Neurocomputing 163). Labels without a positive are left out; fewer than one, or two for
    CVIR, give None.
    """
    return _spread(ratios[~np.isnan(ratios)])


def _spread(values: Floats) -> Spread:
    """Mean and sd / mean (divisor count - 1); None where undefined."""
    if not len(values):
        return Spread(None, None)
    mean = float(values.mean())
    return Spread(mean, float(values.std(ddof=1)) / mean if len(values) > 1 and mean > 0 else None)


def scumble(Y: csr_array, ratios: Floats, labelled: NDArray[np.bool_]) -> Spread:
    """Concurrence of frequent and rare labels within rows (SCUMBLE), and its coefficient of variation.

    ``SCUMBLE_r = 1 - (prod IRLbl_i)^(1/k) / mean(IRLbl_i)`` over the k positive labels i of row r, one minus
    the ratio of the geometric to the arithmetic mean; the mean is taken over the labelled rows (Charte,
    Rivera, del Jesus and Herrera 2014, HAIS). A labelled row without a positive counts as 0,
    as in the R package mldr; rows without any observed label are left out; of a partly labelled row the
    observed positives count. The coefficient is sd / mean with divisor n - 1, None where the mean is 0.

    Parameters
    ----------
    Y : csr_array (n, l)
    ratios : float64 (l,)
        From `imbalance_ratios`.
    labelled : bool (n,)
    """
    return _spread(row_scumble(Y, ratios)[labelled])


def row_scumble(Y: csr_array, ratios: Floats) -> Floats:
    """SCUMBLE of each row, float64 (n,) in [0, 1); 0 for rows without a positive."""
    count = np.diff(Y.indptr)
    row = np.repeat(np.arange(len(count)), count)
    values = ratios[Y.indices]
    some = count > 0
    arithmetic = np.bincount(row, values, len(count))[some] / count[some]
    geometric = np.exp(np.bincount(row, np.log(values), len(count))[some] / count[some])
    result = np.zeros(len(count))
    result[some] = 1 - geometric / arithmetic
    result[result < ROUNDING] = 0.0  # equal ratios leave some 1e-16, whose CV would be noise
    return result


def pair_products(Y: csr_array) -> int:
    """Products that ``Y.T @ Y`` takes: the sum over rows of the squared number of positives."""
    return int((np.diff(Y.indptr).astype(np.int64) ** 2).sum())


def frequent_pairs(Y: csr_array, count: int = 10, limit: int = PAIR_LIMIT) -> list[Pair] | None:
    """Pairs of labels that are positive together in most rows, by falling count, then by label.

    A pair counts the rows in which both cells are observed and positive; other rows say nothing.
    The counts are the upper triangle of the sparse product ``Y.T @ Y``, made for a block of labels at a time:
    time is proportional to ``sum_r k_r^2`` with k_r the positives of row r, memory to the larger of 1 million
    products and those of one label. Beyond ``limit`` products the result is None.
    """
    if pair_products(Y) > limit:
        return None
    by_label = csr_array(Y.T.tocsr(), dtype=np.int32)  # int8 would overflow at 128 rows
    whole = csr_array(Y, dtype=np.int32)
    found: list[Pair] = []
    for first, last in _blocks(Y):
        product = triu(by_label[first:last] @ whole, k=first + 1, format="coo")
        found = _largest(found, product, first, count)
    return found


def _blocks(Y: csr_array) -> list[tuple[int, int]]:
    """Ranges of labels whose products number at most PAIR_BLOCK, or that hold one label."""
    row_size = np.repeat(np.diff(Y.indptr), np.diff(Y.indptr))
    cost = np.cumsum(np.bincount(Y.indices, row_size, Y.shape[1]))
    edges, spent = [0], 0.0
    while edges[-1] < Y.shape[1]:
        stop = int(np.searchsorted(cost, spent + PAIR_BLOCK, side="right"))
        edges.append(min(max(stop, edges[-1] + 1), Y.shape[1]))
        spent = float(cost[edges[-1] - 1])
    return list(zip(edges[:-1], edges[1:], strict=True))


def _largest(found: list[Pair], product: Any, first: int, count: int) -> list[Pair]:
    """Merge the largest entries of one block into those found before."""
    values, rows, columns = product.data, product.row + first, product.col
    if len(values) > count:
        smallest = np.partition(values, len(values) - count)[len(values) - count]
        keep = values >= smallest
        values, rows, columns = values[keep], rows[keep], columns[keep]
    order = np.lexsort((columns, rows, -values))[:count]
    triples = zip(rows[order].tolist(), columns[order].tolist(), values[order].tolist(), strict=True)
    return sorted([*found, *(Pair(*t) for t in triples)], key=lambda p: (-p.rows, p[:2]))[:count]
