"""Decide labels from posterior draws so that a utility is highest on average over what is not known.

``draws`` are the probabilities of every label under each posterior draw; given a draw labels (and rows) are
independent, and averaging over draws brings their dependence in. Draws of label vectors, 0 and 1, work too:
they are the special case of certain draws.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.special import logsumexp

from labelzoo.data.metrics.arguments import is_number
from labelzoo.data.metrics.averages import Floats
from labelzoo.data.metrics.expected_f import best_number, best_set, nodes
from labelzoo.data.validate import listed, plain_array

UTILITIES = ("hamming", "cost", "subset", "f1_example", "f1_macro")
SMALL = 1e-15  # probabilities of a draw stay this far from 0 and 1 in the logarithms of "subset"


class Decision(NamedTuple):
    """Decided labels and what they are worth on average over the draws.

    Attributes
    ----------
    labels : int8 csr_array (n, l)
    value : float
        Expected utility, the mean of ``each``.
    error : float
        Its Monte Carlo standard error over draws, sd / sqrt(draws): draws of a Markov chain must be thinned
        to near independence first. NaN for one draw.
    each : float (n,), or (l,) for "f1_macro"
    each_error : float, like ``each``
    """

    labels: csr_array
    value: float
    error: float
    each: Floats
    each_error: Floats


def decide(
    draws: Any,
    utility: Any = "hamming",
    cost: Any = None,
    empty: Any = 1.0,
) -> Decision:
    """Return the labels with the highest expected utility.

    Parameters
    ----------
    draws : float (sample, n, l), or (chain, draw, n, l)
        P(label = 1) under each posterior draw. Read in place: temporaries are of the size of one row
        (one label for "f1_macro") or one draw.
    utility : str
        "hamming": share of right labels of a row. A label is chosen where its mean probability passes 1/2.
        "cost": minus the sum over a row of ``cost[0]`` for a false positive and ``cost[1]`` for a false
        negative. A label is chosen where its mean probability passes cost[0] / (cost[0] + cost[1]).
        "f1_example": F1 of a row. The exact maximiser; O(n (S l^2 + l^3)) steps for S draws.
        "subset": 1 where the whole row is right. The best of every draw's own most probable row and the row
        of the mean, improved by single flips until none helps: a local maximum of the posterior probability,
        not always the global one. O(n S l (S + flips)) steps.
        "f1_macro": F1 of a label over the n rows, averaged over labels. For each label the rows are ordered
        by mean probability and the best number of them is taken: the best of these n + 1 sets, which is the
        exact maximiser for one draw. O(l S n q) steps with q = min(n, 256) quadrature nodes.
    cost : (false positive, false negative), for "cost" only
    empty : float
        The F1 of an empty choice where nothing is positive, 0/0.

    Notes
    -----
    The value is that of the best choice on the draws that made it, so it leans to the high side; with fresh
    draws it can be had without. Ties go to the smaller set.

    Raises
    ------
    ValueError
        For a wrong shape, probabilities outside [0, 1] (the cell is named), or an unknown utility.
    """
    probs = checked_draws(draws)
    if utility not in UTILITIES:
        hint = ": 'f1_example' is the F1 of a row, 'f1_macro' that of a label" if utility == "f1" else ""
        raise ValueError(f"utility must be one of {', '.join(UTILITIES)}, got {utility!r}{hint}")
    if (utility == "cost") != (cost is not None):
        raise ValueError("cost = (false positive, false negative) goes with utility='cost', and only with it")
    if not is_number(empty) or not 0 <= empty <= 1:
        raise ValueError(f"empty must lie in [0, 1], got {empty!r}")
    if utility == "hamming":
        return _by_threshold(probs, (1.0, 1.0), share=True)
    if utility == "cost":
        return _by_threshold(probs, _checked_cost(cost), share=False)
    if utility == "subset":
        return _by_line(probs, lambda p: _best_subset(p), axis=1)
    if utility == "f1_example":
        grid = nodes(probs.shape[2])
        return _by_line(probs, lambda p: best_set(p, grid, empty), axis=1)
    grid = nodes(probs.shape[1])
    return _by_line(probs, lambda p: best_number(p, grid, empty), axis=2)


def checked_draws(draws: Any) -> Any:
    """Return draws as an array (sample, n, l), checked one draw at a time."""
    array = plain_array(draws, "draws")
    if array.ndim == 4:
        array = array.reshape(-1, *array.shape[2:])
    if array.ndim != 3 or array.dtype.kind not in "biuf":
        hint = "; use draws[None] for a single table of probabilities" if array.ndim == 2 else ""
        raise ValueError(
            f"draws must be numbers (sample, rows, labels), got {array.dtype} of shape {array.shape}{hint}"
        )
    if not array.size:
        raise ValueError(f"draws are empty: shape {array.shape}")
    for s, table in enumerate(array):
        bad = ~((table >= -1e-6) & (table <= 1 + 1e-6))
        if bad.any():
            rows, labels = (part.tolist() for part in np.nonzero(bad))
            texts = [
                f"draw {s}, row {i}, label {j}: {table[i, j].item()!r}"
                for i, j in zip(rows, labels, strict=True)
            ]
            raise ValueError(f"draws must lie in [0, 1]: {listed(texts)}")
    return array


def _checked_cost(cost: Any) -> tuple[float, float]:
    pair = plain_array(cost, "cost")
    pair = pair.astype(np.float64) if pair.dtype.kind in "iuf" else np.zeros(0)
    if pair.shape != (2,) or not np.isfinite(pair).all() or (pair < 0).any() or not pair.sum():
        raise ValueError(
            f"cost must be two numbers >= 0, not both 0 (false positive, false negative): {cost!r}"
        )
    return float(pair[0]), float(pair[1])


def _by_threshold(probs: Any, cost: tuple[float, float], share: bool) -> Decision:
    """Decide every cell by its mean probability, and add up the expected costs of the cells of each row."""
    draws, num_rows, num_labels = probs.shape
    chosen = probs.mean(axis=0, dtype=np.float64) * sum(cost) > cost[0]
    mean, squares, per_draw = np.zeros(num_rows), np.zeros(num_rows), np.zeros(draws)
    for s, table in enumerate(probs):
        p = np.clip(np.asarray(table, dtype=np.float64), 0, 1)
        value = -np.where(chosen, cost[0] * (1 - p), cost[1] * p).sum(axis=1)
        value = 1 + value / num_labels if share else value
        # Welford's recursion: a plain sum of squares would cancel.
        step = value - mean
        mean = mean + step / (s + 1)
        squares, per_draw[s] = squares + step * (value - mean), value.mean()
    each_error = np.sqrt(squares / (draws - 1) / draws) if draws > 1 else np.full(num_rows, np.nan)
    labels = csr_array(chosen, dtype=np.int8)
    return Decision(labels, float(mean.mean()), _error(per_draw), mean, each_error)


def _error(per_draw: Floats) -> float:
    """Return the Monte Carlo error of a mean over draws; NaN for one draw."""
    if len(per_draw) < 2:
        return float("nan")
    return float(np.std(per_draw, ddof=1) / np.sqrt(len(per_draw)))


def _by_line(probs: Any, best: Any, axis: int) -> Decision:
    """Decide one row (axis 1) or one label (axis 2) at a time; ``best`` returns positions and values."""
    draws, count = len(probs), probs.shape[axis]
    each, each_error, per_draw = np.empty(count), np.empty(count), np.zeros(draws)
    found = []
    for i in range(count):
        line = probs[:, i] if axis == 1 else probs[:, :, i]
        chosen, values = best(np.clip(np.asarray(line, dtype=np.float64), 0, 1))
        each[i], each_error[i] = values.mean(), _error(values)
        per_draw += values / count
        found.append(np.asarray(chosen, dtype=np.int64))
    lines = np.repeat(np.arange(count), [len(part) for part in found])
    cells = np.concatenate(found)
    at = (lines, cells) if axis == 1 else (cells, lines)
    labels = csr_array((np.ones(len(cells), np.int8), at), shape=probs.shape[1:])
    labels.sort_indices()
    return Decision(labels, float(each.mean()), _error(per_draw), each, each_error)


def _best_subset(probs: Floats) -> tuple[Any, Floats]:
    """Return the label set of highest probability found, and its probability under each draw."""
    p = np.clip(probs, SMALL, 1 - SMALL)
    logit, empty = np.log(p) - np.log1p(-p), np.log1p(-p).sum(axis=1)
    candidates = np.unique(np.concatenate([probs > 0.5, probs.mean(axis=0, keepdims=True) > 0.5]), axis=0)
    logs = logsumexp(logit @ candidates.T + empty[:, None], axis=0)
    chosen = candidates[int(np.argmax(logs))].copy()
    value = float(np.max(logs))
    while True:
        current = logit[:, chosen].sum(axis=1) + empty
        flips = logsumexp(current[:, None] + np.where(chosen, -logit, logit), axis=0)
        at = int(np.argmax(flips))
        # A gain within rounding would let two equal sets take turns for ever.
        if not flips[at] > value + 1e-12:
            return np.flatnonzero(chosen), np.exp(current)
        chosen[at], value = ~chosen[at], float(flips[at])
