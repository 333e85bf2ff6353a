"""What the class kernels are learned from: a prior kernel, a class for each row, and the constraints.

For each row i of class y, with s_l(i) = K^l(x_i, X) v_l and v_l the mean over the rows of class l,

    g_iy = sum_l s_l(i) - s_y(i) / alpha <= 0,   g_ic = s_c(i) / beta - sum_l s_l(i) <= 0  for c != y,

and with `positive_total` also -sum_l s_l(i) <= 0. All are linear in the kernels and homogeneous, and there is
always a point strictly inside them.

Jain and Kapoor, "Active learning for large multi-class problems", CVPR 2009, eqs. 3 and 4.
"""

import warnings
from typing import Any, NamedTuple

import numpy as np

from labelzoo.arguments import real
from labelzoo.inference.sparse_bayes.terms import read_matrix

Array = Any

JITTERS = (0.0, 1e-6, 1e-5, 1e-4, 1e-3)
"""Over the mean diagonal of K0, tried in this order."""
SMALLEST_PIVOT = 1e-10
"""A pivot of the Cholesky factor below this share of the mean diagonal counts as singular."""
SAME = 1e-12
"""Rows whose squared distance in K0 is below this share of the mean diagonal are duplicates."""
LEAST_SHARE = 1e-9
"""Smallest alpha and beta."""
LARGEST_JITTER = 1.0
BLOCK = 256


class Problem(NamedTuple):
    """The constrained projection, read and checked.

    Attributes
    ----------
    K0 : (row, row)
        Prior kernel, the jitter added.
    y : int (row,)
        Place of each row's class in `classes`.
    classes : (class,)
        As given, sorted.
    counts : int (class,)
    kv : (row, class)
        K0 v_l.
    a : (class,)
        v_l' K0 v_l.
    spread : (row, class)
        a_l K0_ii - kv_il^2, not negative.
    alpha, beta : float
    upper : float
        Largest multiplier: gamma over the mean diagonal, infinite for hard constraints.
    positive_total : bool
    jitter : float
        What was added to the diagonal.
    """

    K0: Array
    y: Array
    classes: Array
    counts: Array
    kv: Array
    a: Array
    spread: Array
    alpha: float
    beta: float
    upper: float
    positive_total: bool
    jitter: float

    @property
    def columns(self) -> int:
        """Number of multipliers of a row."""
        return len(self.classes) + self.positive_total


def read_problem(
    K0: Any,
    y: Any,
    *,
    classes: Any = None,
    alpha: Any = None,
    beta: Any = None,
    gamma: Any = None,
    positive_total: Any = True,
    jitter: Any = None,
    names: Any = None,
    regular: bool = False,
) -> Problem:
    """Return the checked problem.

    Parameters
    ----------
    K0 : (row, row)
        Symmetric, positive semidefinite.
    y : (row,)
        Class of each row: numbers or strings.
    classes : (class,) or None
        The classes to tell apart, each with a row; those of `y` by default.
    alpha, beta : float or None
        A row's own class has at least the share alpha of its total similarity, any other at most beta;
        1.25 / C and 0.9 / C by default, C the number of classes.
    gamma : float or None
        Price of a unit of violation, in units of the mean diagonal of K0; None for hard constraints.
    positive_total : bool
        Whether no row's total similarity may be negative.
    jitter : float or None
        Share of the mean diagonal added to K0; the least that makes K0 regular by default.
    names : sequence of str (row,) or None
        Of the rows, for messages; their numbers by default.
    regular : bool
        K0 with its `jitter` is known to be regular: not looked at again.

    Raises
    ------
    ValueError
        For a kernel that is not square, symmetric, finite and positive semidefinite, or that `jitter` leaves
        singular; a class without a row;
        alpha outside (0, 1); beta or gamma not above 0; and, with hard constraints, rows that are alike in K0
        and of different classes.

    Warns
    -----
    UserWarning
        Where the prior gives rows a total similarity that is not positive: the share of a class then says
        nothing, although the constraints stand.
    """
    kernel = read_kernel(K0)
    seen, codes, counts = read_classes(y, classes, len(kernel))
    number = len(seen)
    alpha, beta = read_shares(alpha, beta, number)
    price = read_gamma(gamma)
    if price is None and number > 1:
        refuse_conflicts(kernel, codes, seen, names)
    scale = float(np.trace(kernel)) / len(kernel)
    added = float(jitter) if regular else found_jitter(kernel, jitter)
    if added:
        kernel = kernel + added * scale * np.eye(len(kernel))
    upper = np.inf if price is None else price / scale
    found = of_checked(kernel, codes, alpha, beta, upper, bool(positive_total))
    _warn_of_totals(found.kv)
    return found._replace(classes=seen, jitter=added * scale)


def of_checked(
    K0: Array, codes: Array, alpha: float, beta: float, upper: float, positive_total: bool
) -> Problem:
    """Return the problem of a regular kernel, classes being 0, 1, ...; nothing is checked or added."""
    counts = np.bincount(codes)
    kv = class_means(K0, codes, counts)
    a = np.bincount(codes, kv[np.arange(len(codes)), codes], len(counts)) / counts
    spread = np.maximum(a * np.diag(K0)[:, None] - kv**2, 0.0)
    numbers = (alpha, beta, upper, positive_total, 0.0)
    return Problem(K0, codes, np.arange(len(counts)), counts, kv, a, spread, *numbers)


def read_kernel(K0: Any) -> Array:
    """Return K0 as a finite symmetric matrix with a positive diagonal; ValueError otherwise."""
    kernel = read_matrix(K0, "K0")
    if kernel.shape[0] != kernel.shape[1] or not len(kernel):
        raise ValueError(f"K0 must be square with at least one row, got shape {kernel.shape}")
    largest = float(np.abs(kernel).max())
    skew = float(np.abs(kernel - kernel.T).max())
    if skew > 1e-10 * largest:
        raise ValueError(f"K0 must be symmetric, its largest difference is {skew:.3g}")
    low = np.flatnonzero(np.diag(kernel) <= 0)
    if low.size:
        raise ValueError(f"K0 must have a positive diagonal, got {kernel[low[0], low[0]]} at row {low[0]}")
    return kernel


def read_classes(y: Any, classes: Any, rows: int) -> tuple[Array, Array, Array]:
    """Return the classes (class,), the place of each row's class (row,) and the rows of each (class,).

    Raises
    ------
    ValueError
        For another number of rows, a missing value, a class without a row, a row whose class is not listed.
    """
    given = np.asarray(y)
    if given.shape != (rows,):
        raise ValueError(f"y must have {rows} classes, one for each row of K0, got shape {given.shape}")
    if given.dtype.kind == "f" and not np.isfinite(given).all():
        raise ValueError(f"y has no class at row {int(np.flatnonzero(~np.isfinite(given))[0])}")
    seen, codes, counts = np.unique(given, return_inverse=True, return_counts=True)
    if classes is not None:
        asked = np.unique(np.asarray(classes))
        unseen = asked[~np.isin(asked, seen)]
        if unseen.size:
            raise ValueError(
                f"class {unseen[0]!s} has no labelled row, so that it has no kernel: leave it out"
            )
        extra = np.flatnonzero(~np.isin(given, asked))
        if extra.size:
            raise ValueError(f"y has class {given[extra[0]]!s} at row {extra[0]}, which is not among classes")
    return seen, codes.ravel(), counts


def read_shares(alpha: Any, beta: Any, number: int) -> tuple[float, float]:
    """Return alpha and beta for `number` classes, 1.25 / C and 0.9 / C where not given.

    Raises
    ------
    ValueError
        If alpha is not between 0 and 1, or beta not above 0.
    """
    first = 1.25 / max(number, 2) if alpha is None else real(alpha)
    second = 0.9 / max(number, 2) if beta is None else real(beta)
    if not 0 < first < 1:
        raise ValueError(f"alpha must be a number above 0 and below 1, got {alpha!r}")
    if not 0 < second < np.inf:
        raise ValueError(f"beta must be a finite number above 0, got {beta!r}")
    for name, share in (("alpha", first), ("beta", second)):
        if share < LEAST_SHARE:
            raise ValueError(
                f"{name} must be at least {LEAST_SHARE:g}, its inverse is computed with, got {share!r}"
            )
    return first, second


def refuse_conflicts(kernel: Array, codes: Array, classes: Array, names: Any = None) -> None:
    """Refuse rows that K0 cannot tell apart and whose classes differ; ValueError naming the first two."""
    diagonal = np.diag(kernel)
    least = SAME * diagonal.mean()
    for at in range(0, len(kernel), BLOCK):
        rows = slice(at, at + BLOCK)
        near = diagonal[rows, None] + diagonal - 2.0 * kernel[rows] <= least
        pairs = np.argwhere(near & (codes[rows, None] != codes))
        if pairs.size:
            i, j = int(pairs[0, 0]) + at, int(pairs[0, 1])
            first, second = (row if names is None else repr(names[row]) for row in (i, j))
            raise ValueError(
                f"rows {first} and {second} are alike in K0 and of classes {classes[codes[i]]!s} and "
                f"{classes[codes[j]]!s}: hard constraints would take all similarity from them; set gamma"
            )


def found_jitter(kernel: Array, jitter: Any = None) -> float:
    """Return the share of the mean diagonal to add: as given, or the least that makes K0 regular.

    Raises
    ------
    ValueError
        For a share out of range, or one that leaves K0 singular.
    """
    if jitter is None:
        return regular_jitter(kernel)
    share = read_jitter(jitter)
    if not _is_regular(kernel, share):
        raise ValueError(
            f"K0 is singular with jitter={jitter!r}: leave jitter at None, which adds the least that makes "
            "it regular"
        )
    return share


def _is_regular(kernel: Array, share: float) -> bool:
    scale = float(np.trace(kernel)) / len(kernel)
    try:
        factor = np.linalg.cholesky(kernel + share * scale * np.eye(len(kernel)))
    except np.linalg.LinAlgError:
        return False
    return bool(np.diag(factor).min() ** 2 > SMALLEST_PIVOT * scale)


def regular_jitter(kernel: Array) -> float:
    """Return the least of `JITTERS` under which K0 has a Cholesky factor with no tiny pivot.

    Raises
    ------
    ValueError
        If the last is too small.
    """
    for jitter in JITTERS:
        if _is_regular(kernel, jitter):
            return jitter
    raise ValueError(f"K0 is not positive semidefinite, even with {JITTERS[-1]} of its mean diagonal added")


def class_means(cross: Array, codes: Array, counts: Array) -> Array:
    """Return the mean over each class's rows of the columns of `cross` (any, row): (any, class)."""
    order = np.argsort(codes, kind="stable")
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    return np.add.reduceat(cross[:, order], starts, axis=1) / counts


def read_gamma(gamma: Any) -> float | None:
    """Return the price, or None for hard constraints; ValueError for what is not above 0."""
    if gamma is None:
        return None
    price = real(gamma)
    if not 0 < price < np.inf:
        raise ValueError(f"gamma must be a finite number above 0, or None, got {gamma!r}")
    return price


def read_jitter(jitter: Any) -> float:
    """Return the jitter as a share of the mean diagonal; ValueError for a negative one."""
    share = real(jitter)
    if not 0 <= share <= LARGEST_JITTER:
        raise ValueError(f"jitter must be a share of the mean diagonal, from 0 to 1, got {jitter!r}")
    return share


def _warn_of_totals(kv: Array) -> None:
    low = int((kv.sum(axis=1) <= 0).sum())
    if low:
        warnings.warn(
            f"the prior gives {low} of {len(kv)} rows a total similarity that is not positive: "
            "shares of it mean nothing there",
            UserWarning,
            stacklevel=3,
        )
