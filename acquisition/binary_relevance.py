"""One linear classifier a label: the learner that the multi-label baselines share, and what they check first.

A label with one class only among its labelled rows has no classifier. It gets the constant
q = (positives + 1) / (rows + 2) and is left out of every minimum over labels: a constant is no margin, and
would decide every query.
"""

import warnings
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from labelzoo.acquisition.problem import Problem

Array = Any

LOGISTIC_C = 1.0
"""Inverse penalty of the logistic classifiers (lbfgs, intercept not penalised)."""

SVM_C = 1.0
"""Penalty of the linear support vector machines (hinge loss). The literature on one-vs-all SVM queries also
uses 1e5, which does not converge in bearable time where the classes overlap."""

SVM_STEPS = 100_000
"""Most steps of a support vector machine."""

FOLDS = 5
"""Folds of the probabilities that did not see their labels."""


class Linear(NamedTuple):
    """One linear classifier a label.

    Attributes
    ----------
    kind : str
        ``logistic`` or ``svm``.
    coef : (feature, labels)
    intercept : (labels,)
    both : bool (labels,)
        Whether both classes were seen, so that there is a classifier.
    constant : (labels,)
        q of a label without a classifier.
    """

    kind: str
    coef: Array
    intercept: Array
    both: Array
    constant: Array


class Predictions(NamedTuple):
    """What a learner says about rows.

    Attributes
    ----------
    probs : (row, labels) or None
        P(label = 1); None for support vector machines.
    margins : (row, labels)
        Signed; predicted positive where above 0. 2 q - 1 of a probability q, decision values of an SVM.
    usable : bool (labels,)
        Labels that may enter a minimum over labels.
    """

    probs: Array
    margins: Array
    usable: Array


def check_features(X: Any, name: str) -> Array:
    """Return X (row, feature), dense or csr, or raise ValueError naming row and column of a NaN."""
    X = _short_indices(sparse.csr_array(X)) if sparse.issparse(X) else np.asarray(X, float)
    if X.ndim != 2:
        raise ValueError(f"{name} must be (row, feature), got shape {X.shape}")
    values = X.data if sparse.issparse(X) else X
    if np.isfinite(values).all():
        return X
    bad = X.tocoo() if sparse.issparse(X) else None
    at = np.argwhere(~np.isfinite(values))[0]
    row, column = (bad.row[at[0]], bad.col[at[0]]) if bad is not None else at
    raise ValueError(f"{name}: row {row}, column {column} is {X[row, column]}: features must be finite")


def _short_indices(X: Array) -> Array:
    """Return a csr table with 32-bit indices where they suffice: SVC and KMeans take no others."""
    if X.indices.dtype.itemsize <= 4 or max(X.nnz, *X.shape) > np.iinfo(np.int32).max:
        return X
    parts = (X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32))
    return sparse.csr_array(parts, shape=X.shape)


def check_probs(probs: Any, name: str) -> Array:
    """Return probabilities (row, labels), or raise ValueError naming row and label of a bad one."""
    probs = np.asarray(probs, float)
    if probs.ndim != 2:
        raise ValueError(f"{name} must be (row, labels), got shape {probs.shape}")
    _refuse(~((probs >= 0) & (probs <= 1)), probs, name, "a probability lies between 0 and 1")
    return probs


def check_margins(margins: Any, name: str = "margins") -> Array:
    """Return margins (row, labels), or raise ValueError naming row and label of a NaN or infinity."""
    margins = np.asarray(margins, float)
    if margins.ndim != 2:
        raise ValueError(f"{name} must be (row, labels), got shape {margins.shape}")
    _refuse(~np.isfinite(margins), margins, name, "margins must be finite")
    return margins


def check_labels(Y: Any, name: str = "Y_labelled") -> Array:
    """Return labels (row, labels) of 0, 1 and NaN, or raise ValueError naming row and label of a bad one."""
    Y = np.asarray(Y.toarray() if sparse.issparse(Y) else Y, float)
    if Y.ndim != 2:
        raise ValueError(f"{name} must be (row, labels), got shape {Y.shape}")
    _refuse(~((Y == 0) | (Y == 1) | np.isnan(Y)), Y, name, "labels are 0, 1 or NaN (never asked)")
    return Y


def known_labels(problem: Problem, by: str) -> Array:
    """Return ``Y_labelled``, checked; without labelled rows ValueError names what works then."""
    Y = check_labels(problem.need("Y_labelled", by))
    if Y.shape[0] == 0 or np.isnan(Y).all():
        raise ValueError(f"acquisition {by!r} needs labelled rows; without any use random or k_center")
    return Y


def labelled_rows(problem: Problem, by: str) -> tuple[Array, Array]:
    """Return ``X_labelled`` (labelled, feature) and ``Y_labelled`` (labelled, labels), checked."""
    Y = known_labels(problem, by)
    X = check_features(problem.need("X_labelled", by), "X_labelled")
    if X.shape[0] != Y.shape[0]:
        raise ValueError(f"X_labelled has {X.shape[0]} rows, Y_labelled {Y.shape[0]}")
    return X, Y


def both_classes(Y: Array) -> Array:
    """Say which labels have a 0 and a 1 among the observed cells: bool (labels,)."""
    return (Y == 1).any(axis=0) & (Y == 0).any(axis=0)


def constant_prob(Y: Array) -> Array:
    """Return (positives + 1) / (observed rows + 2) of every label: (labels,)."""
    return ((Y == 1).sum(axis=0) + 1) / ((~np.isnan(Y)).sum(axis=0) + 2)


def mean_cardinality(Y: Array) -> float:
    """Return the mean number of positives over rows with all labels known.

    Where no row is fully labelled: the sum of the labels' observed frequencies, which is the same number
    on complete rows.
    """
    full = ~np.isnan(Y).any(axis=1)
    if full.any():
        return float(Y[full].sum(axis=1).mean())
    return float(((Y == 1).sum(axis=0) / np.maximum((~np.isnan(Y)).sum(axis=0), 1)).sum())


def fit_linear(X: Array, Y: Array, kind: str = "logistic", *, seed: int = 0) -> Linear:
    """Fit one classifier a label on the rows where that label is known.

    Parameters
    ----------
    X : (labelled, feature)
        Dense or csr, used as given: scale before.
    Y : (labelled, labels)
        0, 1, NaN.
    kind : str
        ``logistic`` (L2, C = `LOGISTIC_C`) or ``svm`` (linear, hinge, C = `SVM_C`).

    Notes
    -----
    Cost: labels fits of O(labelled features) an iteration (logistic), O(labelled^2 features) (svm).
    """
    both = both_classes(Y)
    coef, intercept = np.zeros((X.shape[1], Y.shape[1])), np.zeros(Y.shape[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for label in np.nonzero(both)[0]:
            seen = ~np.isnan(Y[:, label])
            model = _classifier(kind, seed).fit(X[seen], Y[seen, label].astype(int))
            weights = model.coef_
            coef[:, label] = np.ravel(weights.toarray() if sparse.issparse(weights) else weights)
            intercept[label] = float(np.ravel(model.intercept_)[0])
    return Linear(kind, coef, intercept, both, constant_prob(Y))


def predict_linear(model: Linear, X: Array) -> Predictions:
    """Return probabilities and margins of X (row, feature); cost rows features labels flops."""
    values = np.asarray(X @ model.coef) + model.intercept
    flat = np.broadcast_to(model.constant, values.shape)
    if model.kind == "svm":
        return Predictions(None, np.where(model.both, values, 2 * flat - 1), model.both)
    probs = np.where(model.both, expit(values), flat)
    return Predictions(probs, 2 * probs - 1, model.both)


def out_of_fold(X: Array, Y: Array, *, seed: int = 0, folds: int = FOLDS) -> Array:
    """Return P(label = 1) of labelled rows (labelled, labels), each from classifiers that did not see it.

    The rows are dealt at random by `seed` into ``min(folds, rows)`` folds; a single row gets 1/2.
    """
    rows = X.shape[0]
    fold = np.random.default_rng(seed).permutation(rows) % max(min(folds, rows), 1)
    probs = np.empty(Y.shape)
    for k in np.unique(fold):
        held = fold == k
        probs[held] = predict_linear(fit_linear(X[~held], Y[~held], seed=seed), X[held]).probs
    return probs


def pool_predictions(problem: Problem, by: str, kind: str = "logistic") -> Predictions:
    """Return what is known about the pool: the model's ``mean_probs`` where given, else one fit a label.

    With ``mean_probs`` the margins are 2 q - 1. Labels with one class among the labelled rows are not usable
    in either case.
    """
    if not problem.has("mean_probs"):
        if not problem.has("Y_labelled"):
            raise ValueError(f"acquisition {by!r} needs mean_probs, or X_pool with X_labelled and Y_labelled")
        return own_predictions(problem, by, kind)
    probs = check_probs(problem.get("mean_probs"), "mean_probs")
    usable = np.ones(probs.shape[1], bool)
    if problem.has("Y_labelled"):
        Y = check_labels(problem.get("Y_labelled"))
        if Y.shape[1] != probs.shape[1]:
            raise ValueError(f"mean_probs has {probs.shape[1]} labels, Y_labelled {Y.shape[1]}")
        usable = both_classes(Y) if Y.shape[0] else usable
    return Predictions(probs, 2 * probs - 1, usable)


def own_predictions(problem: Problem, by: str, kind: str) -> Predictions:
    """Return the predictions at the pool of one classifier a label, fitted here."""
    X, Y = labelled_rows(problem, by)
    pool = check_features(problem.need("X_pool", by), "X_pool")
    if pool.shape[1] != X.shape[1]:
        raise ValueError(f"X_pool has {pool.shape[1]} features, X_labelled {X.shape[1]}")
    return predict_linear(fit_linear(X, Y, kind, seed=problem.seed), pool)


def _classifier(kind: str, seed: int) -> Any:
    if kind == "svm":
        return SVC(kernel="linear", C=SVM_C, max_iter=SVM_STEPS, random_state=seed)
    if kind == "logistic":
        return LogisticRegression(C=LOGISTIC_C, max_iter=500, random_state=seed)
    raise ValueError(f"no classifier {kind!r}: logistic or svm")


def _refuse(bad: Array, values: Array, name: str, rule: str) -> None:
    if bad.any():
        row, label = np.argwhere(bad)[0]
        raise ValueError(f"{name}: row {row}, label {label} is {values[row, label]}: {rule}")
