"""Expected predictive information gain: what a row's labels tell about those of the targets, from draws."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from labelzoo.acquisition.anomalies import check_weights
from labelzoo.acquisition.draws import binary_entropy, entropy_of, outcome_table, whole
from labelzoo.acquisition.problem import Acquisition, Problem

Array = Any

MIN_SAMPLES = 200
"""Below so many draws the floor of the plug-in estimate hides most differences between rows."""

TABLE_LABELS = 6
"""Most labels for which the table of a row's and a target's outcomes (4^labels) is made."""

_BLOCK = 2**20  # numbers of a temporary array


def epig(
    probs: Any,
    target_probs: Any = None,
    weights: Any = None,
    *,
    pairs: str = "same",
    correct: bool = True,
) -> Array:
    """Return mean over targets of sum_l I(y_l; y*_l) in nats: (row,).

    The information is that of the 2 x 2 table of a label at the row and at the target, made of E[p], E[p*]
    and E[p p*] over the draws (Bickford Smith et al. 2023, equation 7, per label). Uncorrected and for pairs
    of the same label 0 <= score <= `bald` <= `entropy`.

    Parameters
    ----------
    probs : array (sample, row, labels) or RowBlocks
    target_probs : (sample, target, labels) or None
        The same draws at the targets; None: the rows themselves, each row's own left out.
    weights : (target,)
        At least 0; default 1. The mean is weighted by them.
    pairs : str
        ``same`` label, or ``all`` pairs of a label of the row and one of the target. A sum over all pairs
        counts what the labels share several times and is not below `bald`: two draws, all L labels 0 in one
        and 1 in the other, at the row and at the target, give L^2 log 2, while `bald` is L log 2.
    correct : bool
        Take off the plug-in's floor. Independent rows and targets would show, to second order,
        Var(p) Var(p*) / (2 (samples - 1) pbar (1 - pbar) p*bar (1 - p*bar)) a pair of labels, the mean over
        all permutations of the targets' draws (without drawing any). Corrected scores may fall below 0.

    Raises
    ------
    ValueError
        At a bad number, named by sample, row and label; where draws or labels of the targets differ.

    Warns
    -----
    UserWarning
        With fewer than 200 samples.

    Notes
    -----
    Cost 2 samples rows targets labels flops and 4 rows targets labels logarithms (labels^2 for all pairs).
    In ten simulated cases with Gaussian parameters whose information was known from 40 000 draws, 200 draws
    gave a root mean squared error of .32 and .45 of the mean score for 50 parameters without the correction
    and of .13 and .14 with it; with 1 to 10 parameters both were within 16 % of each other, at 50 draws and
    strong dependence the corrected one 6 % worse. The order of rows hardly changed: rank correlation with the
    truth moved by .01 at most.
    """
    if pairs not in ("same", "all"):
        raise ValueError(f"pairs must be 'same' or 'all', got {pairs!r}")
    p, q, w, own = _sides(probs, target_probs, weights, "epig")
    labels = range(p.shape[2])
    ahead = [(j, k) for j in labels for k in (labels if pairs == "all" else (j,))]
    total = np.zeros(p.shape[1])
    for part in _row_blocks(p.shape[1], q.shape[1]):
        rows = np.arange(p.shape[1])[part] if own else None
        for j, k in ahead:
            table = _information(p[:, part, j], q[:, :, k])
            if correct:
                table -= np.multiply.outer(_ratio(p[:, part, j]), _ratio(q[:, :, k])) / (2 * (len(p) - 1))
            total[part] += _over_targets(table, w, rows)
    return total


def epig_joint(probs: Any, target_probs: Any = None, weights: Any = None) -> Array:
    """Return mean over targets of I(all labels of the row; all labels of the target) in nats: (row,).

    Every table of 2^labels x 2^labels outcomes is made, so at most 6 labels (Bickford Smith et al. 2023,
    equation 7). 0 <= score <= `bald_joint`. Arguments and errors as in `epig`; no correction: the floor
    grows with the number of outcomes, about (2^labels - 1)^2 / (2 samples) at most.

    Notes
    -----
    Cost 2 samples rows targets 4^labels flops and half as many logarithms over samples.
    """
    p, q, w, own = _sides(probs, target_probs, weights, "epig_joint")
    samples, _, labels = p.shape
    if labels > TABLE_LABELS:
        raise ValueError(
            f"not run: cost of 'epig_joint' is 4^labels outcomes; it is offered up to {TABLE_LABELS} labels, "
            f"these draws have {labels}"
        )
    outcomes = 2**labels
    right = outcome_table(q).reshape(samples, -1)
    ahead = entropy_of(right.mean(axis=0).reshape(-1, outcomes))
    total = np.zeros(p.shape[1])
    for part in _row_blocks(p.shape[1], q.shape[1] * outcomes**2):
        left = outcome_table(p[:, part])
        alone = entropy_of(left.mean(axis=0))
        mixture = left.reshape(samples, -1).T @ right / samples
        together = entropy_of(mixture.reshape(len(alone), outcomes, q.shape[1], outcomes), axis=(1, 3))
        table = np.maximum(alone[:, None] + ahead - together, 0.0)
        total[part] = _over_targets(table, w, np.arange(p.shape[1])[part] if own else None)
    return total


def _sides(probs: Any, target_probs: Any, weights: Any, name: str) -> tuple[Array, Array, Array, bool]:
    # Draws of the rows and of the targets, weights, and whether the targets are the rows.
    p = whole(probs)
    q = p if target_probs is None else whole(target_probs, "target_probs")
    if q.shape[::2] != p.shape[::2]:
        raise ValueError(f"target_probs must have the draws and labels of probs, {p.shape}, got {q.shape}")
    if len(p) < 2:
        raise ValueError(f"probs must have two samples or more, got shape {p.shape}")
    if len(p) < MIN_SAMPLES:
        warnings.warn(f"{len(p)} draws: {name} needs at least {MIN_SAMPLES}", stacklevel=3)
    return p, q, check_weights(weights, q.shape[1]), target_probs is None


def _row_blocks(rows: int, width: int) -> Iterator[slice]:
    step = max(1, _BLOCK // max(width, 1))
    return (slice(start, start + step) for start in range(0, rows, step))


def _information(p: Array, q: Array) -> Array:
    # I(y; y*) of one label at each row and each target: (row, target).
    a, b = p.mean(axis=0)[:, None], q.mean(axis=0)[None, :]
    both = p.T @ q / len(p)
    together = np.zeros(both.shape)
    for cell in (both, a - both, b - both, 1 - a - b + both):
        together -= _plogp(np.maximum(cell, 0.0))
    return np.maximum(binary_entropy(a) + binary_entropy(b) - together, 0.0)


def _plogp(cell: Array) -> Array:
    # The floor is the smallest normal number, so 0 log 0 is 0 and no other cell is moved.
    logs = np.maximum(cell, np.finfo(float).tiny)
    np.log(logs, out=logs)
    logs *= cell
    return logs


def _ratio(p: Array) -> Array:
    # Var(p) / (pbar (1 - pbar)): the share of a label's variance that the draws explain.
    mean = p.mean(axis=0)
    noise = mean * (1 - mean)
    return np.divide(p.var(axis=0, ddof=1), noise, out=np.zeros_like(mean), where=noise > 0)


def _over_targets(table: Array, weights: Array, rows: Array | None) -> Array:
    # Weighted mean over the targets of (row, target); `rows` are the row's own targets, left out.
    total, mass = table @ weights, np.full(len(table), weights.sum())
    if rows is not None:
        total = total - table[np.arange(len(table)), rows] * weights[rows]
        mass -= weights[rows]
    return np.divide(total, mass, out=np.zeros(len(table)), where=mass > 0)


def _score(problem: Problem) -> Array:
    probs = problem.need("probs", by="epig")
    return epig(probs, problem.get("target_probs"), problem.get("weights"))


def _score_joint(problem: Problem) -> Array:
    probs = problem.need("probs", by="epig_joint")
    return epig_joint(probs, problem.get("target_probs"), problem.get("weights"))


ENTRIES = (
    Acquisition(
        name="epig",
        query="row",
        units="nats per target, summed over labels",
        needs=("probs",),
        bias="the plug-in is up by about Var(p) Var(p*) / (2 S ...) a label, which is taken off to "
        "second order; "
        "scores may fall below 0; 200 draws or more (fewer warn)",
        cost="2 S N T L flops and 4 N T L logarithms; a batch is the highest scores, so near copies "
        "come together",
        helps="with draws from MCMC or a variational posterior and known rows to predict; in batches of "
        "similar rows "
        "prefer ensemble_ivr, which conditions on what was picked",
        source="Bickford Smith et al. 2023, equation 7, per label",
        score=_score,
    ),
    Acquisition(
        name="epig_joint",
        query="row",
        units="nats per target",
        needs=("probs",),
        bias="up by at most about (2^L - 1)^2 / (2 S), not taken off; 200 draws or more (fewer warn)",
        cost="2 S N T 4^L flops, at most 6 labels; a batch is the highest scores",
        helps="over epig where one latent moves several labels; the floor grows with 4^L",
        source="Bickford Smith et al. 2023, equation 7",
        score=_score_joint,
    ),
)
"""Acquisition functions of this module."""
