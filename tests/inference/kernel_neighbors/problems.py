"""Small labelled problems with an RBF or a linear prior kernel."""

from typing import Any

import numpy as np

from labelzoo.inference.kernel_neighbors.multipliers import State, inside
from labelzoo.inference.kernel_neighbors.problem import Problem, read_problem


def features(seed: int, rows: int, classes: int, shift: float = 0.7) -> tuple[Any, Any]:
    """Return overlapping clouds X (row, 3) and y (row,), each class with a row at least."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 3))
    y = np.r_[np.arange(classes), rng.integers(classes, size=rows - classes)]
    X[:, 0] += shift * y
    return X, y


def rbf(A: Any, B: Any) -> Any:
    """Return exp(-|x - z|^2 / 4)."""
    return np.exp(-0.25 * ((A[:, None] - B) ** 2).sum(axis=-1))


def problem(seed: int, rows: int, classes: int, **options: Any) -> Problem:
    """Return a problem on `features`."""
    X, y = features(seed, rows, classes)
    return read_problem(rbf(X, X), y, **options)


def inner_state(seed: int = 0, **options: Any) -> tuple[Problem, State]:
    """Return a small problem and a state inside the domain, its multipliers at random."""
    p = problem(seed, 9, 3, **options)
    lam = np.random.default_rng(seed).exponential(0.2, (9, p.columns))
    return p, inside(p, np.minimum(lam, 0.9 * p.upper))


CASES: dict[str, dict[str, Any]] = {
    "two": {"seed": 1, "rows": 10, "classes": 2},
    "three": {"seed": 2, "rows": 10, "classes": 3},
    "five": {"seed": 3, "rows": 12, "classes": 5},
    "argmax": {"seed": 1, "rows": 10, "classes": 3, "alpha": 1 / 3, "beta": 1 / 3},
    "gamma": {"seed": 1, "rows": 10, "classes": 3, "gamma": 1.0},
    "cheap": {"seed": 4, "rows": 10, "classes": 3, "gamma": 0.05},
    "one a class": {"seed": 5, "rows": 4, "classes": 4},
    "loose": {"seed": 6, "rows": 8, "classes": 2, "alpha": 0.1, "beta": 2.0},
}
