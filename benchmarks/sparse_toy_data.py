"""Toy data of Vasisht et al. (2014), section 6.2: 35 Gaussians in the plane, a label for each.

A row is drawn from one of them, and has every label whose Gaussian has its centre within `radius` standard
deviations of the row. The radius is set so that the rows have 7 labels on average. The paper does not give
the interval of the standard deviations; here it is [.5, 1.5].
"""

from typing import Any, NamedTuple

import numpy as np

Array = Any

LABELS = 35
MEAN_LABELS = 7.0
WIDTH = 10.0
DEVIATIONS = (0.5, 1.5)


class Toy(NamedTuple):
    """Pool and test rows: features (row, 2), labels 0/1 (row, label); rows without a label are kept."""

    X: Array
    Y: Array
    X_test: Array
    Y_test: Array
    radius: float


def toy_data(rng: np.random.Generator, pool: int = 1000, test: int = 1000) -> Toy:
    """Draw Gaussians, a pool and a test set from them; the radius comes from the pool."""
    centre = rng.uniform(0.0, WIDTH, (LABELS, 2))
    deviation = rng.uniform(*DEVIATIONS, LABELS)
    X, X_test = (draw_rows(rng, centre, deviation, size) for size in (pool, test))
    far, far_test = (distances(rows, centre, deviation) for rows in (X, X_test))
    radius = radius_for(far, MEAN_LABELS)
    return Toy(X, (far <= radius).astype(float), X_test, (far_test <= radius).astype(float), radius)


def draw_rows(rng: np.random.Generator, centre: Array, deviation: Array, size: int) -> Array:
    """Return rows of the even mixture of the Gaussians: (size, 2)."""
    of = rng.integers(len(centre), size=size)
    return centre[of] + deviation[of, None] * rng.standard_normal((size, 2))


def distances(X: Array, centre: Array, deviation: Array) -> Array:
    """Return |x - centre| / deviation of every row and Gaussian: (row, label)."""
    return np.linalg.norm(X[:, None] - centre, axis=2) / deviation


def radius_for(far: Array, mean_labels: float) -> float:
    """Return the radius, by bisection, at which rows have so many labels on average."""
    low, high = 0.0, float(far.max())
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if (far <= middle).sum() < mean_labels * len(far) else (low, middle)
    return high
