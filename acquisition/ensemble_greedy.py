"""Greedy choice from an ensemble for given targets, with every row's own terms kept up to date."""

from typing import Any

import numpy as np

from labelzoo.acquisition.anomalies import Ensemble, check_gram, floored, shrinkage
from labelzoo.acquisition.selectors import top

Array = Any

MOST_BYTES = 2**30
"""Memory that the rows' own terms may take."""


def fits(ensemble: Ensemble) -> bool:
    """Return whether the rows' own terms are small and cheaper than scoring every row anew."""
    samples, rows, labels = ensemble.anomalies.shape
    return labels <= samples and 2 * 8 * rows * labels**2 <= MOST_BYTES


def greedy_by_rows(
    ensemble: Ensemble, gram: Array, batch: int, *, seed: int, debias: bool
) -> tuple[Array, Array]:
    """Return what `labelzoo.acquisition.ensemble.greedy_for_targets` returns, from the rows' own terms.

    With A_n the anomalies of row n and G the targets' gram, a score is tr((A_n'A_n + D_n)^-1 A_n'G A_n).
    Asking row m turns A into M A and G into M G M, M^2 = I + U d U' with U of L columns, so that with
    P_n = U'A_n and Q_n = U'G A_n both terms change by products of size L:

        A_n'A_n + P'd P,    A_n'G A_n + P'd Q + Q'd P + P'd (U'G U) d P.

    Cost 2 S^2 N L flops once, then per pick 4 S N L^2 + 10 N L^3; memory 2 N L^2 numbers beside the draws.
    Scoring every row anew costs 4 S^2 N L and more in each pick.
    """
    (A, noise), G = ensemble, np.array(gram)
    samples, rows, labels = A.shape
    check_gram(G, samples)
    flat, noise = A.reshape(samples, rows * labels), floored(noise)
    cross, seen = _terms(A, gram)
    moved = np.eye(samples)  # all M so far: A itself stays as it was
    closed = np.zeros(rows, bool)
    picked, gains = [], []
    for step in range(batch):
        spread = np.trace(G) / (samples - 1) if debias else 0.0
        scores = np.where(closed, -np.inf, _scores(cross, seen, noise, spread))
        row = int(top(scores, 1, seed=seed + step)[0])
        picked.append(row)
        gains.append(float(scores[row]))
        closed[row] = True
        if step + 1 == batch:
            break
        U, c = shrinkage(Ensemble((moved @ A[:, row])[:, None], noise[row][None]), 0)
        GU, d = G @ U, 2 * c + c**2
        both = np.concatenate([U, GU], axis=1).T @ moved
        P, Q = np.ascontiguousarray((both @ flat).reshape(2, -1, rows, labels).transpose(0, 2, 1, 3))
        turned = np.ascontiguousarray(P.transpose(0, 2, 1))
        half = turned @ (d[:, None] * Q + (0.5 * d[:, None] * (U.T @ GU) * d) @ P)
        seen += half + half.transpose(0, 2, 1)
        cross += turned @ (d[:, None] * P)
        G += (U * c) @ GU.T
        G += (G @ U * c) @ U.T
        moved += (U * c) @ (U.T @ moved)
    return np.asarray(picked), np.asarray(gains)


def _terms(A: Array, gram: Array) -> tuple[Array, Array]:
    """Return A_n'A_n and A_n'G A_n of every row: two (row, labels, labels)."""
    samples, rows, labels = A.shape
    cross, seen = np.empty((rows, labels, labels)), np.empty((rows, labels, labels))
    step = max(1, 2**21 // (samples * labels))
    for start in range(0, rows, step):
        part = slice(start, start + step)
        block = np.ascontiguousarray(A[:, part])
        target = (gram @ block.reshape(samples, -1)).reshape(block.shape)
        turned = np.ascontiguousarray(block.transpose(1, 2, 0))
        cross[part] = turned @ block.transpose(1, 0, 2)
        seen[part] = turned @ target.transpose(1, 0, 2)
    return cross, seen


def _scores(cross: Array, seen: Array, noise: Array, spread: float) -> Array:
    """Return tr((cross + D)^-1 (seen - spread cross)) of every row; at least 0 without spread."""
    labels, scores = noise.shape[1], np.empty(len(noise))
    step = max(1, 2**21 // labels**2)
    for start in range(0, len(noise), step):
        part = slice(start, start + step)
        system = cross[part].copy()
        system[:, np.arange(labels), np.arange(labels)] += noise[part]
        target = seen[part] - spread * cross[part] if spread else seen[part]
        scores[part] = np.trace(np.linalg.solve(system, target), axis1=1, axis2=2)
    return scores if spread else np.maximum(scores, 0.0)
