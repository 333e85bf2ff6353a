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


def list_cells(data: Any) -> tuple[Cells, Negatives]:
    """List the positives and the negatives of `data` (LabelData); memory follows the shorter lists."""
    Y = data.Y
    n, num_labels = Y.shape
    degree = np.diff(Y.indptr)
    positives = Cells(np.repeat(np.arange(n), degree).astype(np.int32), Y.indices.astype(np.int32))
    other_row, other_label = positives.row, positives.label
    unlabelled = np.zeros(n, bool)
    if data.missing is not None:
        missing_row, missing_label = data.missing_cells()
        unlabelled = data.missing.rows
        partly = ~unlabelled[missing_row]
        other_row = np.concatenate([other_row, missing_row[partly].astype(np.int32)])
        other_label = np.concatenate([other_label, missing_label[partly].astype(np.int32)])
    other = np.bincount(other_row, minlength=n)
    list_zeros = (other > num_labels // 2) & ~unlabelled
    keep = ~list_zeros[other_row]
    rows, labels = [other_row[keep]], [other_label[keep]]
    signs = [-np.ones(int(keep.sum()))]
    for row in np.flatnonzero(list_zeros):
        zeros = np.setdiff1d(np.arange(num_labels, dtype=np.int32), other_label[other_row == row])
        rows.append(np.full(zeros.size, row, np.int32))
        labels.append(zeros)
        signs.append(np.ones(zeros.size))
    row, label, sign = np.concatenate(rows), np.concatenate(labels), np.concatenate(signs)
    order = np.argsort(row, kind="stable")
    base = (~list_zeros & ~unlabelled).astype(float)
    return positives, Negatives(base, row[order], label[order], sign[order])


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
