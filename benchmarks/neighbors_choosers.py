"""Learners of one class a row that all read the same prior kernel, and their choosers.

A learner's ``fit(labelled, y)`` is told places in the kernel and their classes (0 to C - 1, each there), and
``scores(rows)`` gives a number a class, larger where the row belongs. A chooser orders the pool.

Jain and Kapoor, CVPR 2009, section 5; Kapoor, Grauman, Urtasun and Darrell, ICCV 2007 (GP).
"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC

from labelzoo.acquisition.max_probability import first_queries, largest_probability
from labelzoo.inference.kernel_neighbors.bregman import bregman
from labelzoo.inference.kernel_neighbors.predict import similarity
from labelzoo.inference.kernel_neighbors.problem import class_means, read_problem
from labelzoo.inference.kernel_neighbors.warm import warm_start

Array = Any

NOISE = 1e-5
HARD = 1e5
PENALTIES = (0.1, 1.0, 10.0, 100.0)
TOLERANCE = 1e-3


class Learner(Protocol):
    """What a chooser reads."""

    def fit(self, labelled: Array, y: Array) -> None:
        """Learn from labelled rows of the kernel."""

    def scores(self, rows: Array) -> Array:
        """Return (row, class), larger where the row belongs."""


class Neighbors:
    """pKNN, its multipliers carried from round to round (`warm_start`).

    Labelled rows must only be added at the end.
    """

    def __init__(self, K: Array, gamma: float, sweeps: int) -> None:
        """Take the prior kernel of all rows, the price of a violation, and the most sweeps of a fit."""
        self.K, self.gamma, self.sweeps, self.found, self.stopped = K, gamma, sweeps, None, 0

    def fit(self, labelled: Array, y: Array) -> None:
        """Project again."""
        problem = read_problem(self.K[np.ix_(labelled, labelled)], y, gamma=self.gamma)
        start = None if self.found is None else warm_start(self.found, problem)
        self.labelled = labelled
        self.found = bregman(problem, start=start, tolerance=TOLERANCE, max_sweeps=self.sweeps)
        self.stopped += not self.found.converged

    def scores(self, rows: Array) -> Array:
        """Return s_l(x)."""
        return similarity(self.found, self.K[np.ix_(rows, self.labelled)])


class Prior:
    """The similarities of K0, nothing learned."""

    def __init__(self, K: Array) -> None:
        """Take the prior kernel of all rows."""
        self.K = K

    def fit(self, labelled: Array, y: Array) -> None:
        """Keep the rows."""
        self.labelled, self.y = labelled, y

    def scores(self, rows: Array) -> Array:
        """Return the mean similarity to each class."""
        return class_means(self.K[np.ix_(rows, self.labelled)], self.y, np.bincount(self.y))


class Gaussian:
    """One regression on +1 and -1 a class, noise variance `NOISE`, one kernel for all."""

    def __init__(self, K: Array) -> None:
        """Take the prior kernel of all rows."""
        self.K = K

    def fit(self, labelled: Array, y: Array) -> None:
        """Solve for all classes."""
        self.labelled = labelled
        C = self.K[np.ix_(labelled, labelled)] + NOISE * np.eye(len(labelled))
        self.L = np.linalg.cholesky(C)
        signs = 2.0 * (y[:, None] == np.arange(y.max() + 1)) - 1.0
        self.weights = np.linalg.solve(self.L.T, np.linalg.solve(self.L, signs))

    def scores(self, rows: Array) -> Array:
        """Return the predictive means."""
        return self.K[np.ix_(rows, self.labelled)] @ self.weights

    def variance(self, rows: Array) -> Array:
        """Return the predictive variance of an answer, the same for all classes: (row,)."""
        half = np.linalg.solve(self.L, self.K[np.ix_(self.labelled, rows)])
        return np.maximum(np.diag(self.K)[rows] - (half**2).sum(axis=0), 0.0) + NOISE


class Machines:
    """One SVM a class against the rest.

    Without a `penalty` it is chosen by two stratified folds of the labelled rows each time that these have
    doubled.
    """

    def __init__(self, K: Array, penalty: float | None, seed: int) -> None:
        """Take the prior kernel of all rows, and C."""
        self.K, self.penalty, self.seed = K, penalty, seed
        self.used, self.tuned_at = penalty, 0

    def fit(self, labelled: Array, y: Array) -> None:
        """Train the machines, after choosing C where that is due."""
        if self.penalty is None and len(labelled) >= 2 * self.tuned_at:
            self.used, self.tuned_at = self._tuned(labelled, y), len(labelled)
        self.labelled, self.machines = labelled, self._machines(labelled, y, self.used)

    def scores(self, rows: Array) -> Array:
        """Return the decision values."""
        return decisions(self.machines, self.K[np.ix_(rows, self.labelled)])

    def _machines(self, rows: Array, y: Array, penalty: Any) -> list[SVC]:
        K = self.K[np.ix_(rows, rows)]
        return [SVC(C=penalty, kernel="precomputed").fit(K, y == c) for c in range(y.max() + 1)]

    def _tuned(self, rows: Array, y: Array) -> float:
        right = dict.fromkeys(PENALTIES, 0)
        for a, b in StratifiedKFold(2, shuffle=True, random_state=self.seed).split(y, y):
            for penalty in PENALTIES:
                answer = decisions(self._machines(rows[a], y[a], penalty), self.K[np.ix_(rows[b], rows[a])])
                right[penalty] += int((answer.argmax(axis=1) == y[b]).sum())
        return max(right, key=lambda penalty: right[penalty])


def decisions(machines: list[SVC], cross: Array) -> Array:
    """Return the decision values of one-against-rest machines: (row, class)."""
    return np.column_stack([one.decision_function(cross) for one in machines])


def by_nearest_boundary(scores: Array) -> Array:
    """Return -min_l |f_l|: the row nearest to the boundary of any class first: (row,)."""
    return -np.abs(scores).min(axis=1)


def by_two_best(scores: Array) -> Array:
    """Return minus the difference of the two largest scores: (row,)."""
    top = np.partition(scores, -2, axis=1)[:, -2:]
    return -(top[:, 1] - top[:, 0])


def by_each_class(uncertainty: Array, batch: int, rng: Any) -> Array:
    """Return places (batch,): classes in random order, each asks for its row of least uncertainty not taken.

    `uncertainty` (row, class), small where the class is unsure. So is "restricted to selecting one image from
    each binary subproblem" (Jain and Kapoor) read.
    """
    free, taken = np.ones(len(uncertainty), bool), []
    while len(taken) < min(batch, len(uncertainty)):
        for c in rng.permutation(uncertainty.shape[1]):
            if len(taken) < min(batch, len(uncertainty)):
                place = int(np.argmin(np.where(free, uncertainty[:, c], np.inf)))
                free[place] = False
                taken.append(place)
    return np.array(taken, int)


def ordered(score: Callable[[Any, Array], Array]) -> Callable[..., Array]:
    """Return the chooser of the largest scores."""
    return lambda learner, pool, batch, rng: first_queries(score(learner, pool), batch)


def gaussian_uncertainty(learner: Gaussian, pool: Array) -> Array:
    """Return |mean| / sqrt(variance): (row, class), small where unsure (Kapoor et al. 2007)."""
    return np.abs(learner.scores(pool)) / np.sqrt(learner.variance(pool))[:, None]


CHOOSERS: dict[str, dict[str, Callable[..., Array]]] = {
    "pknn": {
        "clip": ordered(lambda m, pool: largest_probability(m.scores(pool), "clip")),
        "raw": ordered(lambda m, pool: largest_probability(m.scores(pool), "raw")),
    },
    "prior": {"clip": ordered(lambda m, pool: largest_probability(m.scores(pool), "clip"))},
    "gp": {
        "least": ordered(lambda m, pool: -gaussian_uncertainty(m, pool).min(axis=1)),
        "each": lambda m, pool, batch, rng: by_each_class(gaussian_uncertainty(m, pool), batch, rng),
        "two_best": ordered(lambda m, pool: by_two_best(m.scores(pool))),
    },
    "svm": {
        "boundary": ordered(lambda m, pool: by_nearest_boundary(m.scores(pool))),
        "two_best": ordered(lambda m, pool: by_two_best(m.scores(pool))),
    },
}
CHOOSERS["svm_tuned"] = CHOOSERS["svm"]
ARMS = tuple(f"{learner}:{name}" for learner, own in CHOOSERS.items() for name in ("random", *own))


def learner_of(name: str, K: Array, gamma: float, sweeps: int, seed: int) -> Any:
    """Return a new learner by name."""
    if name == "pknn":
        return Neighbors(K, gamma, sweeps)
    if name in ("svm", "svm_tuned"):
        return Machines(K, HARD if name == "svm" else None, seed)
    return {"prior": Prior, "gp": Gaussian}[name](K)
