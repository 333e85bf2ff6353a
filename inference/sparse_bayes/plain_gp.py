"""Regression of all labels on one kernel, zero mean, no projection and no sparsity: the baseline."""

from typing import Any

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from labelzoo.inference.sparse_bayes.terms import read_matrix

Array = Any


def plain_gp(factor: Any, cross: Any, Y: Any) -> Array:
    """Return c(x)' C^-1 Y of new rows: (row, labels).

    train^2 labels + 2 train row labels flops.

    Parameters
    ----------
    factor : (train, train)
        Lower Cholesky factor of C = scale K + noise I.
    cross : (train, row)
        scale K between training and new rows.
    Y : (train, labels)
        All labels of the training rows.

    Raises
    ------
    ValueError
        For shapes that do not fit or numbers that are not finite.
    """
    Y, cross = read_matrix(Y, "Y"), read_matrix(cross, "cross")
    _check(factor, cross, len(Y))
    return cross.T @ cho_solve((np.asarray(factor), True), Y)


def plain_gp_variance(factor: Any, cross: Any, own: Any) -> Array:
    """Return own(x) - c(x)' C^-1 c(x), the variance of every label of a new row: (row,).

    `own` is scale k(x, x), with the noise for a label and without it for the function behind it.
    """
    cross, own = read_matrix(cross, "cross"), np.asarray(own, dtype=np.float64)
    _check(factor, cross, len(cross))
    if own.shape != cross.shape[1:]:
        raise ValueError(f"own must have shape {cross.shape[1:]}, got {own.shape}")
    half = solve_triangular(np.asarray(factor), cross, lower=True)
    return np.maximum(own - (half**2).sum(axis=0), 0.0)


def _check(factor: Any, cross: Array, train: int) -> None:
    if np.shape(factor) != (train, train) or len(cross) != train:
        raise ValueError(
            f"factor {np.shape(factor)} and cross {cross.shape} do not fit {train} training rows: they must "
            "be (train, train) and (train, row)"
        )
