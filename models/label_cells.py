"""Labels as lists of cells, so that work follows the positives and no rows x labels array is formed."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

Array = Any


class Cells(NamedTuple):
    """Coordinates of cells of the label matrix, sorted by row.

    Attributes
    ----------
    row, label : int32 arrays (positive,)
    """

    row: Array
    label: Array


class Negatives(NamedTuple):
    """The observed zeros of every row, as their own list or as the complement of one, whichever is shorter.

    A sum over the observed zeros of row n is ``base[n] * (sum over all labels) + sum of sign over its
    listed cells``: base 0 and sign +1 where the zeros are listed, base 1 and sign -1 where the positives
    and the missing cells are. A row without observed labels has base 0 and no cells.

    Attributes
    ----------
    base : float array (obs,)
    row, label : int32 arrays (cell,)
    sign : float array (cell,)
    """

    base: Array
    row: Array
    label: Array
    sign: Array


BLOCK_CELLS = 1_000_000
"""Cells looked at together while zeros are listed."""


def list_cells(data: Any) -> tuple[Cells, Negatives]:
    """List the positives and the observed zeros of `data` (LabelData); memory follows the shorter lists."""
    Y = data.Y
    n, num_labels = Y.shape
    row = np.repeat(np.arange(n, dtype=np.int32), np.diff(Y.indptr))
    positives = Cells(row, Y.indices.astype(np.int32))
    other, observed, by_observed, unlabelled = _split_missing(data, positives, n)
    counts = np.bincount(other.row, minlength=n)
    by_zero = (counts > num_labels // 2) & ~unlabelled & ~by_observed
    complement = ~(by_zero | by_observed | unlabelled)
    zeros = _other_cells(other, by_zero, num_labels)
    kept = complement[other.row]
    rows = np.concatenate([other.row[kept], observed.row, zeros.row])
    labels = np.concatenate([other.label[kept], observed.label, zeros.label])
    signs = np.concatenate([-np.ones(int(kept.sum())), np.ones(observed.row.size + zeros.row.size)])
    order = np.argsort(rows, kind="stable")
    return positives, Negatives(complement.astype(float), rows[order], labels[order], signs[order])


def _split_missing(data: Any, positives: Cells, n: int) -> tuple[Cells, Cells, np.ndarray, np.ndarray]:
    """Return (positives and missing cells, zeros that the data list, rows so listed, rows without labels)."""
    nothing = Cells(np.zeros(0, np.int32), np.zeros(0, np.int32))
    if data.missing is None:
        return positives, nothing, np.zeros(n, bool), np.zeros(n, bool)
    listed = Cells(*(part.astype(np.int32) for part in data.missing.cells))
    if data.missing.cells_are == "missing":
        joined = Cells(*(np.concatenate(pair) for pair in zip(positives, listed, strict=True)))
        return joined, nothing, np.zeros(n, bool), data.missing.rows
    width = np.int64(data.num_labels)
    positive = np.isin(listed.row * width + listed.label, positives.row * width + positives.label)
    by_observed = np.zeros(n, bool)
    by_observed[listed.row] = True
    return positives, Cells(listed.row[~positive], listed.label[~positive]), by_observed, data.missing.rows


def _other_cells(cells: Cells, rows: np.ndarray, num_labels: int) -> Cells:
    """List the cells of the flagged rows that are not in `cells`, a block of rows at a time."""
    chosen = np.flatnonzero(rows)
    out_row, out_label = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
    position = np.full(rows.size, -1)
    step = max(1, BLOCK_CELLS // num_labels)
    for start in range(0, chosen.size, step):
        block = chosen[start : start + step]
        position[:] = -1
        position[block] = np.arange(block.size)
        at = position[cells.row]
        free = np.ones((block.size, num_labels), bool)
        free[at[at >= 0], cells.label[at >= 0]] = False
        found, label = np.nonzero(free)
        out_row.append(block[found].astype(np.int32))
        out_label.append(label.astype(np.int32))
    return Cells(np.concatenate(out_row), np.concatenate(out_label))


def negative_mass(topics: Array, negatives: Negatives) -> Array:
    """Return sum of v_kl over the observed zeros l of each row: (obs, topic).

    `topics` (topic, labels) has rows that sum to one. Cost 2 cells x topics flops.
    """
    listed = topics.T[negatives.label] * negatives.sign[:, None]
    mass = jnp.zeros((negatives.base.shape[0], topics.shape[0]), topics.dtype)
    mass = mass.at[negatives.row].add(listed, indices_are_sorted=True)
    return jnp.maximum(negatives.base[:, None] + mass, 0.0)


def negative_embedding(embedding: Array, negatives: Negatives, num_labels: int) -> Array:
    """Return sum of u_nk over the rows n where label l is an observed zero: (topic, labels)."""
    listed = embedding[negatives.row] * negatives.sign[:, None]
    total = jnp.zeros((num_labels, embedding.shape[1]), embedding.dtype).at[negatives.label].add(listed)
    return jnp.maximum(negatives.base @ embedding + total, 0.0).T


def positive_sum_by_row(values: Array, positives: Cells, num_rows: int) -> Array:
    """Sum (positive, topic) values by row: (obs, topic)."""
    out = jnp.zeros((num_rows, values.shape[1]), values.dtype)
    return out.at[positives.row].add(values, indices_are_sorted=True)


def positive_sum_by_label(values: Array, positives: Cells, num_labels: int) -> Array:
    """Sum (positive, topic) values by label: (topic, labels)."""
    out = jnp.zeros((num_labels, values.shape[1]), values.dtype)
    return out.at[positives.label].add(values).T


def exposed_mass(topics: Array, at_positive: Array, positives: Cells, negatives: Negatives) -> Array:
    """Return s_nk = sum of E_nl v_kl with exposure E = 1 at observed zeros, `at_positive` at positives.

    With `at_positive` = 1 this is the mass of the observed labels; with the first arrival times it is the
    exposure of the first-arrival sampler. Shape (obs, topic).
    """
    listed = topics.T[positives.label] * at_positive[:, None]
    return negative_mass(topics, negatives) + positive_sum_by_row(listed, positives, negatives.base.shape[0])


def exposed_embedding(
    embedding: Array, at_positive: Array, positives: Cells, negatives: Negatives, num_labels: int
) -> Array:
    """Return c_kl = sum of E_nl u_nk, with the exposures of `exposed_mass`: (topic, labels)."""
    listed = embedding[positives.row] * at_positive[:, None]
    return negative_embedding(embedding, negatives, num_labels) + positive_sum_by_label(
        listed, positives, num_labels
    )


def missing_embedding(embedding: Array, positives: Cells, negatives: Negatives, num_labels: int) -> Array:
    """Return the sum of u_nk over the rows where label l is missing: (topic, labels)."""
    ones = jnp.ones(positives.row.shape[0], embedding.dtype)
    seen = exposed_embedding(embedding, ones, positives, negatives, num_labels)
    total = embedding.sum(axis=0)[:, None]
    hidden = total - seen
    # The difference of two equal sums is rounding, not exposure.
    return jnp.where(hidden > 1e-9 * total, hidden, 0.0)
