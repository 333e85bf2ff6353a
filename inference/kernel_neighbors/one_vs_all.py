"""Many labels a row: one problem of two classes a label, on and off, all on one prior kernel.

The jitter of the kernel is found once. What is lost is what the paper is about: classes of one problem share
a normaliser and can be compared; labels that are problems of their own cannot.

After Jain and Kapoor, CVPR 2009; the use for several labels is ours.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from labelzoo.inference.kernel_neighbors.dual import dual
from labelzoo.inference.kernel_neighbors.multipliers import Fit
from labelzoo.inference.kernel_neighbors.predict import probabilities
from labelzoo.inference.kernel_neighbors.problem import found_jitter, read_kernel, read_problem
from labelzoo.inference.sparse_bayes.terms import read_matrix

Array = Any


class LabelFits(NamedTuple):
    """A fit for each label.

    Attributes
    ----------
    fits : tuple of Fit or None
        None for a label with no positive or no negative row.
    rows : tuple of int (row,)
        Where each label was observed.
    constant : (labels,)
        Probability of a label without a fit: 1 or 0 as all its rows are, 1 / 2 without a row.
    """

    fits: tuple[Fit | None, ...]
    rows: tuple[Array, ...]
    constant: Array


def one_vs_all(
    K0: Any, Y: Any, *, solve: Callable[[Any], Fit] = dual, jitter: Any = None, **options: Any
) -> LabelFits:
    """Return the fits of all labels.

    Parameters
    ----------
    K0 : (row, row)
    Y : (row, labels)
        0, 1, NaN where unobserved.
    solve : callable
        From a problem to a fit: `labelzoo.inference.kernel_neighbors.dual.dual` or ``bregman``.
    jitter : float or None
        As in `labelzoo.inference.kernel_neighbors.problem.read_problem`.
    **options
        As there: alpha, beta, gamma, positive_total.

    Raises
    ------
    ValueError
        As there, naming the label; for another value in Y than 0, 1 and NaN.
    """
    kernel = read_kernel(K0)
    labels = np.asarray(Y, float)
    if labels.ndim != 2 or len(labels) != len(kernel):
        raise ValueError(f"Y must have {len(kernel)} rows as K0, got shape {labels.shape}")
    bad = np.argwhere(~(np.isnan(labels) | (labels == 0) | (labels == 1)))
    if bad.size:
        raise ValueError(f"Y has {labels[tuple(bad[0])]} at row {bad[0][0]}, label {bad[0][1]}: 0, 1 or NaN")
    options |= {"jitter": found_jitter(kernel, jitter), "regular": True}
    rows = tuple(np.flatnonzero(~np.isnan(column)) for column in labels.T)
    constant = np.array([_constant(column[at]) for column, at in zip(labels.T, rows, strict=True)])
    fits = tuple(_fit(kernel, labels[at, j], at, solve, options, j) for j, at in enumerate(rows))
    return LabelFits(fits, rows, constant)


def label_probabilities(found: LabelFits, cross: Any, *, negative: Any = "clip") -> Array:
    """Return the probability of each label at new rows: (new, labels).

    Parameters
    ----------
    found : LabelFits
    cross : (new, row)
        K0(x, X) to all training rows.
    negative : {"clip", "raw"}
    """
    K = read_matrix(cross, "cross")
    out = np.tile(found.constant, (len(K), 1))
    for j, (fit, at) in enumerate(zip(found.fits, found.rows, strict=True)):
        if fit is not None:
            out[:, j] = probabilities(fit, K[:, at], negative=negative)[:, 1]
    return out


def _constant(observed: Array) -> float:
    return float(observed.mean() > 0.5) if len(observed) else 0.5


def _fit(
    kernel: Array, y: Array, rows: Array, solve: Callable[[Any], Fit], options: dict[str, Any], label: int
) -> Fit | None:
    if len(np.unique(y)) < 2:
        return None
    whole = len(rows) == len(kernel)
    try:
        return solve(read_problem(kernel if whole else kernel[np.ix_(rows, rows)], y, **options))
    except ValueError as error:
        raise ValueError(f"label {label}: {error}") from error
