"""Queries of single labels: which label of which row to ask. Documented baselines."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from labelzoo.acquisition.binary_relevance import (
    Predictions,
    check_margins,
    known_labels,
    mean_cardinality,
    pool_predictions,
)
from labelzoo.acquisition.li_adaptive import MOST_LABELS, refuse_many_labels
from labelzoo.acquisition.problem import Acquisition, Choice, Problem
from labelzoo.acquisition.selectors import check_batch, top

Array = Any

XI = 0.5
"""Floor of AUDI's denominator: a row of which nothing was asked counts as if half a label had been."""

DIVERSITY = ("queried", "unlabelled")
"""AUDI's denominator: labels of the row asked so far (untouched rows first), or labels still open, which one
public implementation uses and which turns the preference round."""


def random_cells(problem: Problem) -> Array:
    """Uniform random numbers: (pool, labels)."""
    return np.random.default_rng(problem.seed).random(_open_cells(problem, "random_cells").shape)


def instance_scores(
    F: Array, asked: Array, cardinality: float, *, threshold: Array | float = 0.0, diversity: str = "queried"
) -> Array:
    """Return AUDI's score of rows: (row,), -inf where every label was asked.

    abs(number of f_l above the threshold - cardinality) / max(xi, d), d the labels of the row asked so far
    (``queried``) or still open (``unlabelled``).

    Parameters
    ----------
    F : (row, labels)
    asked : bool (row, labels)
    cardinality : float
        Mean number of positives of fully labelled rows.
    threshold : float or (row,)
        Score of the dummy label that separates positive from negative.
    """
    if diversity not in DIVERSITY:
        raise ValueError(f"diversity must be one of {DIVERSITY}, got {diversity!r}")
    F, asked = check_margins(F), np.asarray(asked, bool)
    positives = (np.reshape(threshold, (-1, 1)) < F).sum(axis=1)
    counted = asked if diversity == "queried" else ~asked
    scores = np.abs(positives - cardinality) / np.maximum(XI, counted.sum(axis=1))
    return np.where(asked.all(axis=1), -np.inf, scores)


def label_scores(F: Array, usable: Array, *, threshold: Array | float = 0.0) -> Array:
    """Return minus abs(f_l - threshold): (row, labels); labels without a classifier come last."""
    F = check_margins(F)
    gap = np.abs(F - np.reshape(threshold, (-1, 1)))
    return np.where(usable, -gap, -1.0 - gap.max(initial=0.0))


def audi(problem: Problem, *, name: str = "audi", diversity: str = "queried") -> Array:
    """Return the score of each row at each of its labels: (pool, labels).

    The label that would be asked first has the row's score; the k-th after it, the score that the row has
    once those before it were asked. Labels asked already have -inf.
    """
    found, asked, cardinality = _prepare(problem, name)
    wide = np.where(asked, -np.inf, label_scores(found.margins, found.usable))
    order = np.argsort(-wide, axis=1, kind="stable")
    scores = np.full(asked.shape, -np.inf)
    rows = np.arange(asked.shape[0])
    state = asked.copy()
    for label in order.T:
        values = instance_scores(found.margins, state, cardinality, diversity=diversity)
        scores[rows, label] = np.where(asked[rows, label], -np.inf, values)
        state[rows, label] = True
    return scores


def choose_audi(problem: Problem, batch: int, *, name: str = "audi", diversity: str = "queried") -> Choice:
    """Pick cells one after another: the best row, its label nearest to the threshold, then count it as asked.

    The model is not refitted inside the batch.
    """
    found, asked, cardinality = _prepare(problem, name)
    batch = check_batch(batch, int((~asked).sum()))
    by_label = label_scores(found.margins, found.usable)
    values = instance_scores(found.margins, asked, cardinality, diversity=diversity)
    cells, gains = [], []
    for step in range(batch):
        row = int(top(values, 1, seed=problem.seed + step)[0])
        still = np.nonzero(~asked[row])[0]
        label = int(still[top(by_label[row, still], 1, seed=problem.seed + step)[0]])
        cells.append((row, label))
        gains.append(float(values[row]))
        asked[row, label] = True
        at = slice(row, row + 1)
        values[at] = instance_scores(found.margins[at], asked[at], cardinality, diversity=diversity)
    rows, labels = np.asarray(cells).T
    return Choice(rows, np.asarray(gains), labels)


def _prepare(problem: Problem, name: str) -> tuple[Predictions, Array, float]:
    Y = known_labels(problem, name)
    refuse_many_labels(Y.shape[1], name, f"{Y.shape[1]} classifier fits for every single label asked")
    found = pool_predictions(problem, name)
    return found, ~_open_cells(problem, name, found.margins.shape), mean_cardinality(Y)


def _open_cells(problem: Problem, name: str, shape: tuple[int, ...] | None = None) -> Array:
    # A fresh array, so that a batch can mark its own cells.
    shape = shape or _shape(problem, name)
    if not problem.has("asked"):
        return np.ones(shape, bool)
    asked = np.asarray(problem.get("asked"))
    if asked.shape != shape or asked.dtype != bool:
        raise ValueError(f"asked must be bool {shape} (pool, labels), got {asked.dtype} {asked.shape}")
    return ~asked


def _shape(problem: Problem, name: str) -> tuple[int, ...]:
    for field in ("asked", "mean_probs"):
        if problem.has(field):
            return tuple(np.shape(problem.get(field)))
    return problem.need("X_pool", name).shape[0], problem.need("Y_labelled", name).shape[1]


def _audi(name: str, diversity: str, words: str) -> Acquisition:
    score: Callable[[Problem], Array] = partial(audi, name=name, diversity=diversity)
    return Acquisition(
        name=name,
        query="cell",
        units="labels (predicted count against the mean), over labels asked",
        needs=("Y_labelled",),
        bias=f"{words}; 2 q - 1 against 0 in place of the paper's label ranking with a dummy label",
        cost="pool labels a batch, after one fit a label without mean_probs; meant for one label a refit, "
        f"so refused above {MOST_LABELS} labels",
        helps="a baseline: asks rows whose number of predicted labels is odd",
        source="Huang and Zhou (2013)",
        score=score,
        choose=partial(choose_audi, name=name, diversity=diversity),
    )


ENTRIES = (
    _audi("audi", "queried", "rows of which little was asked come first"),
    _audi("audi_unlabelled", "unlabelled", "labels still open below: touched rows first"),
    Acquisition(
        name="random_cells",
        query="cell",
        units="uniform random number",
        needs=(),
        bias="none",
        cost="pool labels",
        helps="the baseline of every query of single labels",
        source="uniform over the cells not asked yet",
        score=random_cells,
    ),
)
"""The baselines that ask single labels."""
