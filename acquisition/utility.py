"""Expected gain of a metric of the predictions after a row's labels are seen, by reweighting the draws."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from labelzoo.acquisition.anomalies import check_weights
from labelzoo.acquisition.draws import binary_entropy, log_odds, outcome_table, whole
from labelzoo.acquisition.problem import Acquisition, Choice, Problem, best

Array = Any

ENUMERATED_LABELS = 6
"""Up to so many labels the 2^labels answers of a row are enumerated."""

MAX_TARGETS = 300
"""Targets that are looked at; more are drawn down to so many by their weights."""

MAX_FLOPS = 1e12
"""Work that is refused beyond: minutes to an hour on one core."""


class Metric(NamedTuple):
    """What is expected of the best predictions under probabilities q of the targets' labels.

    Attributes
    ----------
    value : callable
        ``value(q, w) -> (answer,)`` for q (answer, target, labels) and weights w (target,) of sum 1.
    slope : callable or None
        ``slope(q, w) -> (target, labels)``, derivative of value at q (target, labels), to take the part
        linear in q off each answer (its mean over the answers is 0); None: nothing is taken off.
    """

    value: Callable[[Array, Array], Array]
    slope: Callable[[Array, Array], Array] | None = None


class Utility(NamedTuple):
    """Expected gain of a metric.

    Attributes
    ----------
    score : float (row,)
        In the units of the metric.
    error : float (row,)
        Monte Carlo standard error; 0 where the answers were enumerated.
    targets : int
        Targets that were looked at.
    """

    score: Array
    error: Array
    targets: int


def expected_utility(
    probs: Any,
    target_probs: Any = None,
    weights: Any = None,
    *,
    metric: Any = "accuracy",
    answers: int = 64,
    enumerate_to: int = ENUMERATED_LABELS,
    max_targets: int = MAX_TARGETS,
    seed: int = 0,
) -> Utility:
    """Return E_y[U(q* given y)] - U(q*), the gain of a metric at the targets from each row's labels y.

    An answer y of row n weighs draw s by p_sn(y); the targets' probabilities given y are the reweighted mean
    of their draws (Roy & McCallum 2001, equation 3, without refitting). The 2^labels answers are enumerated
    up to `enumerate_to` labels; otherwise `answers` of them are drawn from the mixture of the draws, with
    the same random numbers for every row.

    Parameters
    ----------
    probs : array (sample, row, labels) or RowBlocks
    target_probs : (sample, target, labels) or None
        The same draws at the targets; None: the rows themselves, each row's own left out.
    weights : (target,)
        At least 0; default 1.
    metric : str or Metric
        ``accuracy``, ``brier``, ``log``, ``f1`` (see `METRICS`), ``precision@k`` for a number k, or a
        `Metric`.
    answers, seed : int
        Drawn answers per row, 2 or more.
    enumerate_to : int
        Largest number of labels whose answers are enumerated.
    max_targets : int
        More targets than this are drawn down by weight, with replacement.

    Raises
    ------
    ValueError
        At a bad number, named by sample, row and label; at an unknown metric; beyond 1e12 flops, with the
        sizes that make them.

    Notes
    -----
    Cost 2 rows answers samples targets labels flops; memory answers targets labels a block. Gains of all
    metrics but ``f1`` are 0 or more: they are convex in the probabilities.
    """
    p, q = whole(probs), None if target_probs is None else whole(target_probs, "target_probs")
    chosen = _metric(metric, p.shape[2])
    rng = np.random.default_rng(seed)
    q, at, w = _targets(p, q, weights, max_targets, rng)
    enumerated = p.shape[2] <= enumerate_to
    count = 2 ** p.shape[2] if enumerated else answers
    if count < 2:
        raise ValueError(f"answers must be 2 or more, got {answers}")
    _refuse_work(p.shape, count, q.shape[1])
    draws = None if enumerated else (rng.integers(len(p), size=count), rng.random((count, p.shape[2])))
    score, error = np.zeros((2, p.shape[1]))
    flat = q.reshape(len(q), -1)
    for part, shares, chances in _answers(p, draws, max(1, 2**22 // max(count * q[0].size, 1))):
        after = (shares.reshape(-1, len(p)) @ flat).reshape(*shares.shape[:2], *q.shape[1:])
        for offset, row in enumerate(range(part.start, part.stop)):
            own = w if at is None else np.where(at == row, 0.0, w)
            gains = _gains(chosen, after[offset], q.mean(axis=0), own)
            score[row] = chances[offset] @ gains
            error[row] = 0.0 if enumerated else gains.std(ddof=1) / math.sqrt(count)
    return Utility(score, error, q.shape[1])


def _answers(p: Array, draws: tuple[Array, Array] | None, rows: int) -> Iterator[tuple[slice, Array, Array]]:
    # Yields rows, P(draw | answer) (row, answer, sample), and P(answer) (row, answer).
    samples, pool, labels = p.shape
    for start in range(0, pool, rows):
        part = slice(start, min(start + rows, pool))
        if draws is None:
            table = outcome_table(p[:, part]).transpose(1, 2, 0)
            chances = table.mean(axis=2)
            yield part, table / np.maximum(table.sum(axis=2), np.finfo(float).tiny)[:, :, None], chances
            continue
        source, uniforms = draws
        odds, no = log_odds(p[:, part])
        y = (uniforms[:, None] < p[source, part]).astype(float)
        under = np.einsum("anl,snl->nas", y, odds) + no.sum(axis=2).T[:, None]
        shares = np.exp(under - under.max(axis=2, keepdims=True))
        shares /= shares.sum(axis=2, keepdims=True)
        yield part, shares, np.full((part.stop - start, len(source)), 1 / len(source))


def _gains(metric: Metric, after: Array, before: Array, weights: Array) -> Array:
    # Gain of the metric for each answer: (answer,). Without any target there is nothing to gain.
    mass = weights.sum()
    if mass <= 0:
        return np.zeros(len(after))
    gains = metric.value(after, weights / mass) - metric.value(before[None], weights / mass)
    if metric.slope is not None:
        gains = gains - np.tensordot(after - before, metric.slope(before, weights / mass), axes=2)
    return gains


def _targets(
    p: Array, q: Array | None, weights: Any, most: int, rng: np.random.Generator
) -> tuple[Array, Array | None, Array]:
    # Draws of the targets, their positions in the pool where they are its rows, and weights.
    own = q is None
    q = p if q is None else q
    if q.shape[::2] != p.shape[::2]:
        raise ValueError(f"target_probs must have the draws and labels of probs, {p.shape}, got {q.shape}")
    w = check_weights(weights, q.shape[1])
    at = np.arange(q.shape[1])
    if len(at) > most and w.sum() > 0:
        at, counts = np.unique(rng.choice(len(at), most, p=w / w.sum()), return_counts=True)
        q, w = q[:, at], counts.astype(float)
    return q, at if own else None, w


def _refuse_work(shape: tuple[int, ...], answers: int, targets: int) -> None:
    samples, rows, labels = shape
    flops = 2.0 * samples * rows * answers * targets * labels
    if flops > MAX_FLOPS:
        raise ValueError(
            f"expected utility of {rows} rows x {answers} answers x {samples} draws x {targets} targets "
            f"x {labels} "
            f"labels takes {flops:.0e} flops, more than {MAX_FLOPS:.0e}: pass fewer rows, draws or "
            f"max_targets"
        )


def _metric(metric: Any, labels: int) -> Metric:
    if isinstance(metric, Metric):
        return metric
    if isinstance(metric, str) and metric in METRICS:
        return METRICS[metric]
    name, _, number = str(metric).partition("@")
    if name == "precision" and number.isdigit() and 1 <= int(number) <= labels:
        return precision_at(int(number))
    known = [*METRICS, f"precision@1 to precision@{labels}"]
    raise ValueError(f"no metric {metric!r}; metrics: {', '.join(known)}, or a Metric")


def _mean_cell(values: Array, w: Array) -> Array:
    return np.einsum("atl,t->a", values, w) / values.shape[2]


def precision_at(k: int) -> Metric:
    """Return the expected precision of the `k` most probable labels of a target, a mean over targets."""

    def value(q: Array, w: Array) -> Array:
        top = np.partition(q, q.shape[2] - k, axis=2)[:, :, q.shape[2] - k :]
        return np.einsum("atk,t->a", top, w) / k

    def slope(q: Array, w: Array) -> Array:
        chosen = np.zeros(q.shape)
        np.put_along_axis(
            chosen, np.argpartition(q, q.shape[1] - k, axis=1)[:, q.shape[1] - k :], 1.0, axis=1
        )
        return chosen * w[:, None] / k

    return Metric(value, slope)


def _log_slope(q: Array, w: Array) -> Array:
    # Where a probability is 0 or 1 no answer moves it, so any slope will do.
    inner = np.clip(q, np.finfo(float).tiny, 1 - 2**-53)
    return np.log(inner / (1 - inner)) * w[:, None] / q.shape[1]


def _f1(q: Array, w: Array) -> Array:
    # max over m of 2 sum of the m most probable cells / (m + sum of all), cells counted by weight.
    cells = q.reshape(len(q), -1)
    mass = np.repeat(w, q.shape[2])
    order = np.argsort(-cells, axis=1)
    found = np.cumsum(np.take_along_axis(cells * mass, order, axis=1), axis=1)
    size = np.cumsum(mass[order], axis=1)
    whole_size = size + found[:, -1:]
    return np.divide(2 * found, whole_size, out=np.zeros_like(found), where=whole_size > 0).max(axis=1)


METRICS: Mapping[str, Metric] = {
    "accuracy": Metric(
        lambda q, w: _mean_cell(np.maximum(q, 1 - q), w),
        lambda q, w: np.sign(q - 0.5) * w[:, None] / q.shape[1],
    ),
    "brier": Metric(
        lambda q, w: -_mean_cell(q * (1 - q), w),
        lambda q, w: (2 * q - 1) * w[:, None] / q.shape[1],
    ),
    "log": Metric(lambda q, w: -_mean_cell(binary_entropy(q), w), _log_slope),
    "f1": Metric(_f1),
}
"""Expected share of right labels, minus expected squared error, expected log score in nats (each a mean over
targets and labels), and micro-F1 as the ratio of expectations at the best threshold."""


def _score(problem: Problem) -> Array:
    return _utility(problem).score


def _choose(problem: Problem, batch: int) -> Choice:
    found = _utility(problem)
    report = {"monte_carlo_error": float(found.error.max(initial=0.0)), "targets": found.targets}
    return best(found.score, batch, problem)._replace(report=report)


def _utility(problem: Problem) -> Utility:
    probs = problem.need("probs", by="expected_utility")
    return expected_utility(
        probs, problem.get("target_probs"), problem.get("weights"), metric="brier", seed=problem.seed
    )


ENTRIES = (
    Acquisition(
        name="expected_utility",
        query="row",
        units="expected decrease of the squared error of a probability, mean over targets and labels",
        needs=("probs",),
        bias="up by the noise of S draws, as every plug-in; answers drawn for more than 6 labels, "
        "standard error "
        "reported; at most 300 targets are looked at",
        cost="2 N A S T L flops with A = 2^L answers or 64, T <= 300 targets; a batch is the highest scores",
        helps="where the metric that matters is known (expected_utility takes accuracy, precision@k, f1 "
        "too); accuracy "
        "ties at 0 where no single answer flips a decision, so the entry uses the squared error",
        source="Roy & McCallum 2001, equation 3, draws reweighted in place of refitting",
        score=_score,
        choose=_choose,
    ),
)
"""Acquisition functions of this module."""
