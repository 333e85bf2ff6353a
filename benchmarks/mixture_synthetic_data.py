"""Synthetic data after Shi, Yu and Yu (NeurIPS 2021), section 4.1: 18 labels of the plane, dependent.

The paper's figure gives no coordinates; these are ours. x is uniform on [-1, 1]^2.

* G1..G8: discs of radius 0.35 at 0.6 (cos a, sin a), a = 2 pi i / 8; only neighbours overlap.
* C1: in exactly one of them; C2: in two or more.
* O1..O4: in G1 and G2, G3 and G4, G5 and G6, G7 and G8.
* E1: in the disc of radius 0.7 at (0.3, 0). Given E1, E2 and E3 are coins of 0.3, else absent.
* E4: E3 and not E2 (then with chance `p_e4`).

The coins do not depend on x given E1, so that no score of x alone has an AUC for E4 above that of 1[E1],
1 - P(E1 | not E4) / 2 = 0.8346 in the population.
"""

from typing import Any, NamedTuple

import numpy as np

Array = Any

NAMES = tuple(
    [f"G{i}" for i in range(1, 9)] + ["C1", "C2"] + [f"{kind}{i}" for kind in "OE" for i in range(1, 5)]
)
GROUPS = {"G": slice(0, 8), "C": slice(8, 10), "O": slice(10, 14), "E": slice(14, 18), "E4": slice(17, 18)}
"""Columns of each group of labels."""
COIN = 0.3
P_E1 = np.pi * 0.7**2 / 4
P_E4 = P_E1 * COIN * (1 - COIN)
CEILING = 1 - (P_E1 - P_E4) / (1 - P_E4) / 2
"""AUC of 1[E1] for E4 in the population."""
CENTRES = 0.6 * np.stack([np.cos(np.arange(8) * np.pi / 4), np.sin(np.arange(8) * np.pi / 4)], axis=1)


class Rows(NamedTuple):
    """Features x (row, 2) and labels 0/1 (row, 18), columns as `NAMES`."""

    X: Array
    Y: Array


def draw_rows(rng: np.random.Generator, size: int, p_e4: float = 1.0) -> Rows:
    """Draw rows: uniform numbers (size, 2) for x, then (size, 3) for E2, E3, E4."""
    X = rng.uniform(-1.0, 1.0, (size, 2))
    coins = rng.uniform(size=(size, 3))
    G = np.linalg.norm(X[:, None] - CENTRES, axis=2) <= 0.35
    count = G.sum(axis=1)
    E1 = in_e1(X)
    E2, E3 = E1 & (coins[:, 0] < COIN), E1 & (coins[:, 1] < COIN)
    E4 = E3 & ~E2 & (coins[:, 2] < p_e4)
    others = np.stack([count == 1, count >= 2], axis=1)
    columns = [G, others, G[:, ::2] & G[:, 1::2], np.stack([E1, E2, E3, E4], axis=1)]
    return Rows(X, np.concatenate(columns, axis=1).astype(float))


def in_e1(X: Array) -> Array:
    """Say which rows lie in the disc of E1: (row,)."""
    return np.linalg.norm(X - [0.3, 0.0], axis=1) <= 0.7
