"""Multipliers to begin with when labelled rows or classes arrive: those that were held, and 0 for the rest.

The class means v change with their counts, and the weights of a new class are not 0 but sig_i / 2; both
follow from the new problem. Where the kernels of these multipliers are not positive definite, the solver
halves them.

Jain and Kapoor, CVPR 2009, section 4.
"""

from typing import Any

import numpy as np

from labelzoo.inference.kernel_neighbors.multipliers import Fit
from labelzoo.inference.kernel_neighbors.problem import Problem

Array = Any


def warm_start(fit: Fit, problem: Problem, rows: Any = None) -> Array:
    """Return multipliers of `problem` from those of a fit to some of its rows: (row, column).

    Parameters
    ----------
    fit : Fit
    problem : Problem
        With the rows of the fit among its own, all or some.
    rows : int (row of the fit,) or None
        Where the fit's rows are in `problem`, -1 for those that are not; its first rows by default.

    Raises
    ------
    ValueError
        If `rows` are not distinct rows of the problem, or a row's class has changed.
    """
    old, number = fit.problem, len(problem.y)
    places = np.arange(len(old.y)) if rows is None else np.asarray(rows)
    whole = places.dtype.kind in "iu" and places.shape == (len(old.y),)
    here = np.flatnonzero(places != -1) if whole else np.zeros(0, int)
    places = places[here]
    if not whole or len(np.unique(places)) < len(places) or not ((places >= 0) & (places < number)).all():
        raise ValueError(f"rows must be {len(old.y)} distinct rows of the problem's {number}, or -1")
    was, now = old.classes[old.y[here]], problem.classes[problem.y[places]]
    other = np.flatnonzero(was != now)
    if other.size:
        i = int(other[0])
        raise ValueError(f"row {places[i]} was of class {was[i]!s} and is of class {now[i]!s}")
    lam = np.zeros((number, problem.columns))
    kept = np.flatnonzero(np.isin(old.classes, problem.classes))
    columns = np.searchsorted(problem.classes, old.classes[kept])
    lam[places[:, None], columns] = fit.lam[np.ix_(here, kept)]
    if old.positive_total and problem.positive_total:
        lam[places, -1] = fit.lam[here, -1]
    return np.minimum(lam, problem.upper)
