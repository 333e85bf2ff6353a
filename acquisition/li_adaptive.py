"""Li-Adaptive: margin and label-count inconsistency traded off by what a retrained classifier would lose.

Li and Guo (2013), "Active learning with multi-label SVM classification". Two readings of a row without a
predicted positive, or without a predicted negative, are offered (`MISSING`).
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from labelzoo.acquisition.binary_relevance import (
    Linear,
    both_classes,
    check_features,
    check_margins,
    fit_linear,
    labelled_rows,
    mean_cardinality,
    predict_linear,
)
from labelzoo.acquisition.problem import Choice, Problem
from labelzoo.acquisition.selectors import check_batch, top

Array = Any

BETAS = tuple(k / 10 for k in range(11))
"""Trade-offs tried: 0 asks by label count alone, 1 by margin alone."""

MISSING = ("inf", "one_sided")
"""Empty side: ``inf`` gives no uncertainty, ``one_sided`` measures the side that exists from 0."""

MOST_LABELS = 50
"""Above so many labels the refits are refused."""


def separation(F: Array, usable: Array, missing: str = "inf") -> Array:
    """Return min_{f_l > 0} f_l - max_{f_l <= 0} f_l over usable labels: (row,).

    A row where one side is empty has infinity (``inf``), or the distance of the other side from 0
    (``one_sided``). Without usable labels: infinity for all.
    """
    if missing not in MISSING:
        raise ValueError(f"missing must be one of {MISSING}, got {missing!r}")
    F = check_margins(F)[:, usable]
    positive = F > 0
    above = np.where(positive, F, np.inf).min(axis=1, initial=np.inf)
    below = np.where(positive, -np.inf, F).max(axis=1, initial=-np.inf)
    if missing == "one_sided" and F.shape[1]:
        above, below = (np.where(np.isfinite(side), side, 0.0) for side in (above, below))
    return above - below


def trade_offs(F: Array, usable: Array, cardinality: float, missing: str = "inf") -> Array:
    """Return q_beta = u^beta c^(1 - beta) for every beta of `BETAS`: (beta, row), with 0^0 = 1.

    u = 1 / max(separation, 1e-12); c = abs(number predicted positive - `cardinality`), all labels counted.
    """
    u = 1 / np.maximum(separation(F, usable, missing), 1e-12)
    c = np.abs((np.asarray(F) > 0).sum(axis=1) - cardinality)
    betas = np.asarray(BETAS)[:, None]
    return u**betas * c ** (1 - betas)


def approximate_loss(F: Array, usable: Array) -> float:
    """Return the sum over rows of max_{f > 0} (1 - f)_+ + max_{f <= 0} (1 + f)_+, an empty side 0."""
    F = check_margins(F)[:, usable]
    above = np.where(F > 0, np.maximum(1 - F, 0), 0.0).max(axis=1, initial=0.0)
    below = np.where(F > 0, 0.0, np.maximum(1 + F, 0)).max(axis=1, initial=0.0)
    return float((above + below).sum())


def candidates(values: Array, open_rows: Array, seed: int) -> list[int]:
    """Return the distinct rows that are best for some beta among `open_rows`, in the order of beta."""
    masked = np.where(open_rows, values, -np.inf)
    return list(dict.fromkeys(int(top(line, 1, seed=seed)[0]) for line in masked))


def choose(problem: Problem, batch: int, *, name: str = "li_adaptive", missing: str = "inf") -> Choice:
    """Pick rows one after another; a pick leaves the pool, and the classifiers are not retrained in between.

    The gain of a pick is minus its loss, a mean over pool rows.
    """
    pool = check_features(problem.need("X_pool", name), "X_pool")
    batch = check_batch(batch, pool.shape[0])
    values, loss_if_added = _prepare(problem, name, missing)
    open_rows, rows, gains = np.ones(pool.shape[0], bool), [], []
    for step in range(batch):
        found = candidates(values, open_rows, problem.seed)
        gain = -np.array([loss_if_added(row) for row in found])
        best = int(top(gain, 1, seed=problem.seed + step)[0])
        rows.append(found[best])
        gains.append(float(gain[best]))
        open_rows[found[best]] = False
    return Choice(np.asarray(rows), np.asarray(gains))


def score(problem: Problem, *, name: str = "li_adaptive", missing: str = "inf") -> Array:
    """Return minus the mean loss of each candidate: (pool,); the other rows share one lower value."""
    pool = check_features(problem.need("X_pool", name), "X_pool")
    if pool.shape[0] == 0:
        return np.zeros(0)
    values, loss_if_added = _prepare(problem, name, missing)
    found = candidates(values, np.ones(pool.shape[0], bool), problem.seed)
    losses = [loss_if_added(row) for row in found]
    scores = np.full(pool.shape[0], -max(losses) - 1.0)
    scores[found] = -np.asarray(losses)
    return scores


def refuse_many_labels(labels: int, name: str, work: str) -> None:
    """Raise ValueError "not run: cost ..." above `MOST_LABELS` labels."""
    if labels > MOST_LABELS:
        raise ValueError(
            f"not run: cost of {name!r} is {work}; it is offered up to {MOST_LABELS} labels, "
            f"these data have {labels}"
        )


def _prepare(problem: Problem, name: str, missing: str) -> tuple[Array, Callable[[int], float]]:
    X, Y = labelled_rows(problem, name)
    refuse_many_labels(Y.shape[1], name, f"up to {len(BETAS)} x {Y.shape[1]} classifier fits a query")
    pool = check_features(problem.need("X_pool", name), "X_pool")
    F = predict_linear(fit_linear(X, Y, "svm", seed=problem.seed), pool).margins
    values = trade_offs(F, both_classes(Y), mean_cardinality(Y), missing)

    @functools.cache
    def loss_if_added(row: int) -> float:
        model = _refit(X, Y, pool, F, row, problem.seed)
        return approximate_loss(predict_linear(model, pool).margins, model.both) / pool.shape[0]

    return values, loss_if_added


def _refit(X: Array, Y: Array, pool: Array, F: Array, row: int, seed: int) -> Linear:
    one = pool[row : row + 1]
    rows = sparse.csr_array(sparse.vstack([X, one])) if sparse.issparse(X) else np.vstack([X, one])
    return fit_linear(rows, np.vstack([Y, (F[row] > 0)[None]]), "svm", seed=seed)
