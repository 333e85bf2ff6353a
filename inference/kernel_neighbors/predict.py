"""Predictions from class kernels: by shares of similarity (pKNN), by neighbours (pKNN-n), by SVMs (pKNN-SVM).

All from the prior kernel between new and training rows, K0(x, X):

    s_l(x) = ((1 + b) kv(x) - a kw(x)) / D,
    K^l(x, z) = K0(x, z) - kv(x) kv(z) / a + (D / a) s_l(x) s_l(z),

the second positive semidefinite by construction, whatever the rounding of s.

Jain and Kapoor, CVPR 2009, section 3.2.
"""

from typing import Any

import numpy as np

from labelzoo.arguments import real, whole_number
from labelzoo.inference.kernel_neighbors.multipliers import Fit
from labelzoo.inference.kernel_neighbors.problem import class_means
from labelzoo.inference.sparse_bayes.terms import read_matrix
from labelzoo.models.kernel_neighbors import class_probs

Array = Any

PENALTY = 1e5
"""Of the SVMs; the paper's is unreadable in our copy."""


def similarity(fit: Fit, cross: Any) -> Array:
    """Return s_l(x) of new rows: (new, class).

    Parameters
    ----------
    fit : Fit
    cross : (new, row)
        K0(x, X), without jitter.

    Notes
    -----
    O(row class) a new row; no class kernel is formed.
    """
    K = _read_cross(fit, cross)
    kv = class_means(K, fit.problem.y, fit.problem.counts)
    return ((1.0 + fit.b) * kv - fit.problem.a * (K @ fit.W)) / fit.D


def probabilities(fit: Fit, cross: Any, *, negative: Any = "clip", classes: Any = None) -> Array:
    """Return p_l(x) of new rows (pKNN): (new, class).

    Parameters
    ----------
    negative : {"clip", "raw"}
        As in `labelzoo.models.kernel_neighbors.class_probs`.
    classes : (class,) or None
        Classes of the columns; those of the fit by default. A class without a labelled row gets 0.

    Raises
    ------
    ValueError
        If `classes` lacks one of the fit's, or `cross` does not fit.
    """
    seen = class_probs(similarity(fit, cross), negative)
    if classes is None:
        return seen
    asked, own = list(np.asarray(classes)), list(fit.problem.classes)
    lost = [one for one in own if one not in asked]
    if lost:
        raise ValueError(f"classes must have all of the fit's, {lost[0]!s} is not among them")
    out = np.zeros((len(seen), len(asked)))
    out[:, [asked.index(one) for one in own]] = seen
    return out


def classify(fit: Fit, cross: Any) -> Array:
    """Return the class of largest similarity of each new row, the first where they tie (pKNN): (new,)."""
    return fit.problem.classes[np.argmax(similarity(fit, cross), axis=1)]


def kernel(fit: Fit, place: Any, between: Any, left: Any, right: Any) -> Array:
    """Return K^l(x, z) for class number `place`: (left, right).

    Parameters
    ----------
    place : int
        Of the class in ``fit.problem.classes``.
    between : (left, right)
        K0(x, z).
    left, right : (left, row), (right, row)
        K0(x, X) and K0(z, X); for training rows the rows of ``fit.problem.K0``.

    Raises
    ------
    ValueError
        If a shape does not fit, or there is no such class.
    """
    c = whole_number("place", place, 0, len(fit.problem.classes) - 1)
    K = read_matrix(between, "between")
    parts = [_of_class(fit, c, _read_cross(fit, cross)) for cross in (left, right)]
    (kv, s), (kv_right, s_right) = parts
    if K.shape != (len(kv), len(kv_right)):
        raise ValueError(f"between must have shape {(len(kv), len(kv_right))}, got {K.shape}")
    a = fit.problem.a[c]
    return K - np.outer(kv, kv_right) / a + (fit.D[c] / a) * np.outer(s, s_right)


def squared_distances(fit: Fit, cross: Any, diagonal: Any) -> Array:
    """Return d(x, x_i) = K(x, x) + K(x_i, x_i) - 2 K(x, x_i), K the kernel of x_i's class: (new, row).

    Not below 0. `diagonal` (new,) is K0(x, x), with the jitter (``fit.problem.jitter``) where new rows are to
    be treated as training rows are.
    """
    K, p = _read_cross(fit, cross), fit.problem
    own = np.asarray(diagonal, float)
    if own.shape != (len(K),) or not np.isfinite(own).all():
        raise ValueError(f"diagonal must be {len(K)} finite numbers, got shape {own.shape}")
    out = np.empty(K.shape)
    for c in range(len(p.classes)):
        rows, a, ratio = np.flatnonzero(p.y == c), p.a[c], fit.D[c] / p.a[c]
        kv, s = _of_class(fit, c, K)
        kv_row, s_row = p.kv[rows, c], fit.similarity[rows, c]
        new = own - kv**2 / a + ratio * s**2
        train = np.diag(p.K0)[rows] - kv_row**2 / a + ratio * s_row**2
        both = K[:, rows] - np.outer(kv, kv_row) / a + ratio * np.outer(s, s_row)
        out[:, rows] = new[:, None] + train - 2.0 * both
    return np.maximum(out, 0.0)


def classify_by_neighbors(fit: Fit, cross: Any, diagonal: Any, *, neighbors: Any = 1) -> Array:
    """Return the class with most of the nearest training rows (pKNN-n): (new,).

    Ties go to the smaller sum of squared distances, then to the first class; among equal distances the
    smaller row counts as nearer.
    """
    p = fit.problem
    k = whole_number("neighbors", neighbors, 1, len(p.y))
    distances = squared_distances(fit, cross, diagonal)
    near = np.argsort(distances, axis=1, kind="stable")[:, :k]
    member = (p.y[near][:, :, None] == np.arange(len(p.classes))).astype(float)
    votes = member.sum(axis=1)
    summed = (member * np.take_along_axis(distances, near, axis=1)[:, :, None]).sum(axis=1)
    summed[votes < votes.max(axis=1, keepdims=True)] = np.inf
    return p.classes[np.argmin(summed, axis=1)]


def classify_by_svm(fit: Fit, cross: Any, *, penalty: Any = PENALTY) -> Array:
    """Return the class whose SVM, it against the rest under its own kernel, is surest (pKNN-SVM): (new,).

    Forms one class kernel at a time.

    Raises
    ------
    ValueError
        If `penalty` is not above 0, or `cross` does not fit.
    """
    from sklearn.svm import SVC

    p, price = fit.problem, read_penalty(penalty)
    K = _read_cross(fit, cross)
    if len(p.classes) == 1:
        return np.repeat(p.classes, len(K))
    decision = np.empty((len(K), len(p.classes)))
    for c in range(len(p.classes)):
        machine = SVC(C=price, kernel="precomputed").fit(kernel(fit, c, p.K0, p.K0, p.K0), p.y == c)
        decision[:, c] = machine.decision_function(kernel(fit, c, K, K, p.K0))
    return p.classes[np.argmax(decision, axis=1)]


def read_penalty(penalty: Any) -> float:
    """Return the penalty of the support vector machines; ValueError for what is not above 0."""
    price = real(penalty)
    if not 0 < price < np.inf:
        raise ValueError(f"penalty must be a finite number above 0, got {penalty!r}")
    return price


def _read_cross(fit: Fit, cross: Any) -> Array:
    return read_matrix(cross, "cross", len(fit.problem.y))


def _of_class(fit: Fit, c: int, cross: Array) -> tuple[Array, Array]:
    """Return kv and s of class number c: (new,) each."""
    p = fit.problem
    kv = cross[:, p.y == c].mean(axis=1)
    return kv, ((1.0 + fit.b[c]) * kv - p.a[c] * (cross @ fit.W[:, c])) / fit.D[c]
