"""Shares of exact supports that decoders recover from compressed rows without noise, beside stated ones.

Each trial draws a projection with entries N(0, 1 / measurements) and a row of labels with k ones at random.
The stated shares are of 40 trials by an independent program.
"""

from typing import Any

import numpy as np

from labelzoo.inference.compressed_gp.ranking import decode

Array = Any

METHODS = ("bp", "omp", "corr", "min-l2")
STATED = {
    (40, 20, 3): (1.00, 0.93, 0.40, 0.78),
    (40, 20, 6): (1.00, 0.28, 0.03, 0.20),
    (100, 20, 5): (0.85, 0.15, 0.00, 0.03),
    (157, 79, 6): (1.00, 1.00, 0.53, 0.88),
}
"""By (labels, measurements, ones), in the order of `METHODS`."""
STATED_TRIALS = 40


def answer(method: str, row: Array, A: Array, ones: int) -> Array:
    """Return which labels the method answers with: bool (labels,)."""
    if method != "min-l2":
        return decode(row[None], A, levels=ones, method=method).labels[0]
    found = np.linalg.pinv(A) @ row
    chosen = np.zeros(A.shape[1], bool)
    chosen[np.argsort(-found, kind="stable")[:ones]] = True
    return chosen


def shares(shape: tuple[int, int, int], trials: int, seed: int) -> Array:
    """Return the share of exact supports of each method: (method,)."""
    labels, d, k = shape
    rng, hits = np.random.default_rng(seed), np.zeros(len(METHODS))
    for _ in range(trials):
        A = rng.normal(0, d**-0.5, (d, labels))
        y = np.zeros(labels)
        y[rng.choice(labels, k, replace=False)] = 1.0
        hits += [np.array_equal(answer(method, A @ y, A, k), y == 1) for method in METHODS]
    return hits / trials


def z_of(share: float, stated: float, trials: int) -> float:
    """Return the difference over the binomial error of both, shares by Agresti's estimate."""
    pooled = (share * trials + stated * STATED_TRIALS + 2) / (trials + STATED_TRIALS + 4)
    return (share - stated) / float(np.sqrt(pooled * (1 - pooled) * (1 / trials + 1 / STATED_TRIALS)))


def table(trials: int, seed: int = 0) -> list[float]:
    """Print shares with binomial errors, stated shares and z; return all z."""
    print(f"{trials} trials, seed {seed}; share +- error (stated share of {STATED_TRIALS} trials; z)")
    print("labels measurements ones  " + "  ".join(f"{method:^30s}" for method in METHODS))
    scores = []
    for shape, stated in STATED.items():
        cells = []
        for share, other in zip(shares(shape, trials, seed), stated, strict=True):
            error = np.sqrt(share * (1 - share) / trials)
            scores.append(z_of(share, other, trials))
            cells.append(f"{share:.3f} +- {error:.3f} ({other:.2f}; z {scores[-1]:4.1f})".center(30))
        print("{:6d} {:12d} {:4d}  ".format(*shape) + "  ".join(cells), flush=True)
    print(f"largest |z| {max(map(abs, scores)):.1f} of {len(scores)}")
    return scores
