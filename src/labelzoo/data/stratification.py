"""Iterative stratification of rows with several labels, of first and of second order, on sparse tables.

Sechidis, Tsoumakas and Vlahavas (2011), On the stratification of multi-label data, ECML PKDD; second order:
Szymanski and Kajdanowicz (2017), A network perspective on stratification of multi-label data, LIDTA.

The rarest label goes first: the label with the fewest rows left (one at least) is chosen, and each of its
rows goes to the part that still lacks most rows of this label, on a tie to the part that lacks most rows, on
a further tie to one drawn at random. Placing a row lowers the part's demand for all labels of the row. In the
second order the pairs of labels that are positive together take part like labels of their own.

Only positive cells make demands: an unobserved cell asks for nothing and forbids nothing. Rows without any
observed label are spread evenly by themselves, whatever becomes of the others; labelled rows without a
positive fill the places that remain.
"""

import heapq
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack

MAX_PAIR_CELLS = 50_000_000  # stored pairs of the second order; beyond this it is refused
PAIR_FLOOR = 1.0  # rows of a pair that the smallest part expects, below which the pair takes no part

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class _Table(NamedTuple):
    """Items (labels, or labels and pairs) of the rows in random order, as Python lists for a fast loop."""

    items: list[int]
    row_start: list[int]
    rows: list[int]
    item_start: list[int]
    counts: list[int]


class _Ledger(NamedTuple):
    """What the loop updates.

    Attributes
    ----------
    part : part of each row, -1 before it is placed
    room : places left in each part
    placed : rows of item i placed in part j, at i * parts + j
    left : rows of each item that are not placed yet
    """

    part: list[int]
    room: list[int]
    placed: list[int]
    left: list[int]


def stratified_parts(
    Y: csr_array,
    unlabelled: NDArray[np.bool_],
    sizes: Ints,
    share: Floats,
    rng: np.random.Generator,
    order: int = 1,
) -> Ints:
    """Return the part of each row, int64 (n,), with exactly ``sizes[j]`` rows in part j.

    Time is O(nnz (k + log nnz)) and memory O(nnz + l k) for k parts, where for ``order=2`` nnz counts the
    pairs of positives within rows as well, ``sum_r k_r (k_r + 1) / 2`` with k_r the positives of row r.

    Parameters
    ----------
    Y : csr_array (n, l)
        Ones at the positive cells.
    unlabelled : bool (n,)
        Rows without any observed label.
    sizes : int64 (k,)
        Sizes of the parts, with sum n.
    share : float64 (k,)
        Share of the rows of each label that each part asks for, with sum 1: ``sizes / n`` up to rounding.
    rng : Generator
        Breaks ties; NumPy's global state is not touched.
    order : 1 or 2
        Balance labels, or labels and pairs of labels.

    Raises
    ------
    ValueError
        Where ``order=2`` would store more than 50 million pairs.
    """
    part = np.full(Y.shape[0], -1)
    quota = unlabelled_quota(sizes, int(np.count_nonzero(unlabelled)), rng)
    part[unlabelled] = rng.permutation(np.repeat(np.arange(len(sizes)), quota))
    room = (sizes - quota).tolist()
    rows = rng.permutation(np.flatnonzero(~unlabelled))
    items = with_pairs(Y, float(share.min())) if order == 2 else Y
    part[rows], room = _place(items[rows], room, share.tolist(), rng)
    empty = rng.permutation(np.flatnonzero(part < 0))
    part[empty] = np.repeat(np.arange(len(sizes)), room)
    return part


def unlabelled_quota(sizes: Ints, count: int, rng: np.random.Generator) -> Ints:
    """Share ``count`` rows among parts in proportion to ``sizes``, at most ``sizes[j]`` each, int64 (k,)."""
    exact = count * sizes / sizes.sum()
    quota = np.floor(exact + 1e-9).astype(np.int64)
    while (short := count - int(quota.sum())) > 0:
        order = np.lexsort((rng.random(len(sizes)), -(exact - quota)))
        open_parts = order[quota[order] < sizes[order]][:short]
        quota[open_parts] += 1
    return quota


def with_pairs(Y: csr_array, smallest_share: float) -> csr_array:
    """Return the labels of each row and its pairs of labels, csr_array (n, l + pairs kept).

    A pair of which the smallest part cannot expect one row is left out, here and not in the paper: it cannot
    be spread in proportion, and hundreds of such pairs, which would all go first, scatter the rare labels
    (in ten folds of the enron data they make the shares of the labels worse than a random split does).
    """
    pairs = pair_table(Y)
    count = np.bincount(pairs.indices, minlength=pairs.shape[1])
    keep = np.flatnonzero(count * smallest_share >= PAIR_FLOOR - 1e-9)
    return csr_array(hstack([Y, pairs[:, keep]], format="csr"))


def pair_table(Y: csr_array) -> csr_array:
    """Return which pairs of labels are positive together, csr_array (n, distinct pairs) of ones."""
    size = np.diff(Y.indptr).astype(np.int64)
    total = int((size * (size - 1) // 2).sum())
    if total > MAX_PAIR_CELLS:
        raise ValueError(f"order=2 would store {total} pairs of labels (limit {MAX_PAIR_CELLS}): use order=1")
    # Entry e of a row of size s stands before s - 1 - position others: repeat it, and count upwards.
    later = np.repeat(Y.indptr[1:], size) - np.arange(Y.nnz) - 1
    first = np.repeat(np.arange(Y.nnz), later)
    second = first + 1 + np.arange(total) - np.repeat(np.cumsum(later) - later, later)
    keys = Y.indices[first].astype(np.int64) * Y.shape[1] + Y.indices[second]
    distinct, column = np.unique(keys, return_inverse=True)
    start = np.concatenate([[0], np.cumsum(size * (size - 1) // 2)])
    return csr_array((np.ones(total, np.int8), column, start), shape=(Y.shape[0], len(distinct)))


def _place(
    items: csr_array, room: list[int], share: list[float], rng: np.random.Generator
) -> tuple[Ints, list[int]]:
    """Place the rows that have items, given in random order; return their parts (-1 without) and the room."""
    by_item = items.tocsc()
    counts = np.diff(by_item.indptr).tolist()
    table = _Table(
        items.indices.tolist(),
        items.indptr.tolist(),
        by_item.indices.tolist(),
        by_item.indptr.tolist(),
        counts,
    )
    ledger = _Ledger([-1] * items.shape[0], list(room), [0] * (len(counts) * len(room)), list(counts))
    draws = rng.random(items.shape[0]).tolist()
    rank = rng.permutation(len(counts)).tolist()
    heap = [(count, rank[i], i) for i, count in enumerate(counts) if count]
    heapq.heapify(heap)
    while heap:
        count, _, item = heapq.heappop(heap)
        if count != ledger.left[item]:
            continue  # an older entry: the item was pushed again when its count fell
        for other in _place_item(item, table, ledger, share, draws):
            if ledger.left[other]:
                heapq.heappush(heap, (ledger.left[other], rank[other], other))
    return np.array(ledger.part, dtype=np.int64), ledger.room


def _place_item(
    item: int, table: _Table, ledger: _Ledger, share: list[float], draws: list[float]
) -> set[int]:
    """Place every row of ``item`` that is left; return the items whose counts changed."""
    parts, changed = len(share), set()
    part, room, placed, left = ledger
    for row in table.rows[table.item_start[item] : table.item_start[item + 1]]:
        if part[row] >= 0:
            continue
        chosen = _neediest(item, table.counts[item], ledger, share, draws[row])
        part[row] = chosen
        room[chosen] -= 1
        for other in table.items[table.row_start[row] : table.row_start[row + 1]]:
            placed[other * parts + chosen] += 1
            left[other] -= 1
            changed.add(other)
    return changed


def _neediest(item: int, count: int, ledger: _Ledger, share: list[float], draw: float) -> int:
    """Return the open part with the largest demand for ``item``, then with most room, then at random.

    The demand of part j is ``count * share_j`` less the rows of the item placed there (c_ij of Sechidis et
    al. 2011, Algorithm 1).
    """
    base = item * len(share)
    best: list[int] = []
    top = (-np.inf, 0)
    for j, places in enumerate(ledger.room):
        if not places:
            continue
        need = (count * share[j] - ledger.placed[base + j], places)
        if need > top:
            best, top = [j], need
        elif need == top:
            best.append(j)
    return best[int(draw * len(best))]
