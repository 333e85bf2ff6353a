"""Integrated variance reduction from posterior draws: which row sharpens predictions at other rows most."""

from typing import Any

import numpy as np

from labelzoo.acquisition.anomalies import (
    MIN_SAMPLES,
    Ensemble,
    condition,
    condition_gram,
    make_ensemble,
    target_gram,
    variance_reduction,
)
from labelzoo.acquisition.ensemble_greedy import fits, greedy_by_rows
from labelzoo.acquisition.problem import Acquisition, Choice, Problem
from labelzoo.acquisition.selectors import check_batch, greedy, top

Array = Any

__all__ = [
    "ENTRIES",
    "MIN_SAMPLES",
    "Ensemble",
    "condition",
    "condition_gram",
    "greedy_for_targets",
    "make_ensemble",
    "target_gram",
    "variance_reduction",
]


def greedy_for_targets(
    ensemble: Ensemble, gram: Array, batch: int, *, seed: int = 0, debias: bool = False
) -> tuple[Array, Array]:
    """Pick rows one after another for the targets of `gram`, each given the ones before it.

    Parameters
    ----------
    ensemble : Ensemble
        Of the pool.
    gram : (sample, sample)
        `target_gram` of the targets.
    batch : int
    seed : int
        Of ties.
    debias : bool
        As in `variance_reduction`.

    Returns
    -------
    rows : ndarray (batch,)
        Distinct positions, in order of choice.
    gains : ndarray (batch,)
        Variance removed at the targets by each.
    """
    batch = check_batch(batch, ensemble.noise.shape[0])
    if batch > 1 and fits(ensemble):
        return greedy_by_rows(ensemble, gram, batch, seed=seed, debias=debias)
    closed = np.zeros(ensemble.noise.shape[0], bool)
    rows, gains = [], []
    for step in range(batch):
        scores = np.where(closed, -np.inf, variance_reduction(ensemble, gram=gram, debias=debias))
        row = int(top(scores, 1, seed=seed + step)[0])
        rows.append(row)
        gains.append(float(scores[row]))
        closed[row] = True
        if step + 1 < batch:
            gram = condition_gram(ensemble, row, gram)
            ensemble = condition(ensemble, row)
    return np.asarray(rows), np.asarray(gains)


def _score(problem: Problem) -> Array:
    ensemble = make_ensemble(problem.need("probs", by="ensemble_ivr"))
    return variance_reduction(ensemble, *_own_weights(problem), gram=_gram(problem), debias=True)


def _choose(problem: Problem, batch: int) -> Choice:
    ensemble = make_ensemble(problem.need("probs", by="ensemble_ivr"))
    gram = _gram(problem)
    if gram is None:
        weights = problem.get("weights")
        rows, gains = greedy(ensemble, batch, weights=weights, seed=problem.seed, debias=True)
    else:
        rows, gains = greedy_for_targets(ensemble, gram, batch, seed=problem.seed, debias=True)
    return Choice(rows, gains, report={"samples": len(ensemble.anomalies)})


def _gram(problem: Problem) -> Array | None:
    if not problem.has("target_probs"):
        return None
    return target_gram(problem.get("target_probs"), problem.get("weights"))


def _own_weights(problem: Problem) -> tuple[Any, ...]:
    return () if problem.has("target_probs") else (problem.get("weights"),)


ENTRIES = (
    Acquisition(
        name="ensemble_ivr",
        query="row",
        units="variance of a probability, summed over labels and targets",
        needs=("probs",),
        bias="exact for jointly Gaussian probabilities; covariances have an error of about 1 / sqrt(S) of "
        "the spreads, so 200 draws or more (fewer warn); what unrelated draws would show, tr(R^-1 C) "
        "tr(C_targets) / (S - 1), is taken off, so a gain may be negative",
        cost="4 S^2 N L flops, per pick N systems of size min(L, S), and with targets 4 S N L^2 + 10 N L^3 a "
        "pick while 2 N L^2 numbers fit into 1 GiB, else 4 S^2 N L; S N L numbers in memory",
        helps="with draws from MCMC or a variational posterior and known rows to predict; label correlation "
        "included",
        source="Cohn et al. 1996, section 3, by the square-root filter of Evensen 2003",
        score=_score,
        choose=_choose,
    ),
)
"""Acquisition functions of this module."""
