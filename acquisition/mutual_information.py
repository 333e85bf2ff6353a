"""The entry ``miml``: greedy mutual information between the rows labelled and all others, with a kernel.

F(A) = I(y_A; y_rest) = 1/2 (log|C_AA| + log|C_RR| - log|C|), C = K + r I over labelled rows, pool and
targets, R the rows not in A. It is exactly submodular; it is not monotone, as F(everything) = 0.
"""

from typing import Any

import numpy as np
import scipy.sparse as sp

from labelzoo.acquisition.integrated import (
    read_features,
    read_kernel,
    read_labelled,
    regression_factors,
)
from labelzoo.acquisition.mutual_information_greedy import (
    BLOCK,
    Conditional,
    InformationState,
    Picks,
    greedy,
    greedy_entropy,
    greedy_mutual_information,
    information,
    inverse_triangle,
)
from labelzoo.acquisition.mutual_information_large import LANDMARKS, first_gain_error, low_rank_state
from labelzoo.acquisition.mutual_information_lazy import LazyGreedy, StaleBounds, lazy_greedy
from labelzoo.acquisition.problem import Acquisition, Choice, Problem
from labelzoo.acquisition.selectors import check_batch

__all__ = [
    "ENTRIES",
    "LazyGreedy",
    "Picks",
    "StaleBounds",
    "greedy_entropy",
    "greedy_mutual_information",
    "information",
    "lazy_greedy",
    "miml_with",
]

Array = Any

LARGEST_GROUND = 5000
"""Pool and target rows up to which the matrix is inverted: 200 MB, about 1e11 flops. Above, landmarks."""


class Ground:
    """What a choice works on: the rows of the pool and the targets, the kernel, the labelled rows.

    Attributes
    ----------
    kernel : object
        With ``between``, ``diagonal`` and ``noise_ratio``.
    X : (rest, feature)
        Pool rows, then targets; those that were kept.
    X_labelled : (labelled, feature) or None
    candidates : int (candidate,)
        Positions in the pool of the first rows of `X`.
    report : dict
    """

    def __init__(self, problem: Problem, name: str, subsample: int | None) -> None:
        self.kernel = read_kernel(problem, name)
        X_pool = read_features(problem.need("X_pool", name), "X_pool")
        self.X_labelled, _ = read_labelled(problem)
        self.pool = X_pool.shape[0]
        check_batch(1, self.pool)
        X_targets = problem.get("X_targets")
        X = X_pool
        if X_targets is not None:
            parts = [X_pool, read_features(X_targets, "X_targets")]
            X = sp.csr_array(sp.vstack(parts)) if any(map(sp.issparse, parts)) else np.vstack(parts)
        count, kept = X.shape[0], np.arange(X.shape[0])
        self.report: dict[str, Any] = {}
        if subsample is not None and count > subsample:
            kept, X = (rows := thinned(self.pool, count, subsample, problem.seed)), X[rows]
            self.report["rows"] = f"{subsample} of {count} in the ground set, drawn at random"
        self.X, self.candidates = X, kept[kept < self.pool]

        # A kernel that maps its rows first maps them once here, not at every pick.
        self._between = getattr(self.kernel, "of_mapped", self.kernel.between)
        self._mapped = getattr(self.kernel, "mapped", lambda rows: rows)(self.X)
        self.diagonal = np.asarray(self.kernel.diagonal(self.X), float) + self.kernel.noise_ratio

    def conditional(self, room: int) -> Conditional:
        """Return var(. | labelled rows): (rest,)."""
        (start,) = regression_factors(self.kernel, self.X_labelled, self.X)

        def column(row: int) -> Array:
            out = np.array(self._between(self._mapped, self._mapped[[row]])[:, 0], float)
            out[row] = self.diagonal[row]
            return out

        return Conditional(column, self.diagonal, start, room)

    def exact(self, room: int) -> InformationState:
        """Return the state with the whole matrix inverted: R^3 flops, 8 R^2 bytes."""
        rows = self.X.shape[0]
        C = np.empty((rows, rows))
        for begin in range(0, rows, BLOCK):  # a kernel's own work takes several tables of what it returns
            block = slice(begin, begin + BLOCK)
            C[block] = self._between(self._mapped[block], self._mapped)
            if not np.isfinite(C[block]).all():
                raise ValueError("kernel: a covariance of pool and targets is no number")
        C[np.diag_indices_from(C)] = self.diagonal
        inverse, _ = inverse_triangle(C, "kernel: the matrix of pool and targets")
        return InformationState(self.conditional(room), self.diagonal, inverse, room)

    def order(self, seed: int) -> Array:
        """Return the order in which ties are broken, by `seed`: (rest,)."""
        return np.random.default_rng(seed).permutation(self.X.shape[0])

    def allowed(self) -> Array:
        """Say which rows may be picked: (rest,)."""
        return np.arange(self.X.shape[0]) < len(self.candidates)


def thinned(pool: int, count: int, subsample: int, seed: int) -> Array:
    """Return sorted positions of `subsample` of `count` rows, pool rows and targets in their proportion."""
    rng = np.random.default_rng(seed)
    share = min(pool, subsample, max(1, round(subsample * pool / count)))
    of_pool = rng.permutation(pool)[:share]
    others = pool + rng.permutation(count - pool)[: subsample - share]
    return np.sort(np.concatenate([of_pool, others]))


def information_state(ground: Ground, room: int, landmarks: int | None, seed: int) -> Any:
    """Return the exact state, or with many rows (or landmarks asked for) the one of a low-rank covariance.

    The report of `ground` says which, and the error of the second.
    """
    rows = ground.X.shape[0]
    if landmarks is None and rows <= LARGEST_GROUND:
        return ground.exact(room)
    count = min(LANDMARKS if landmarks is None else landmarks, rows)
    state, told = low_rank_state(ground.kernel, ground.X, ground.X_labelled, count, seed)
    ground.report.update(told)
    ground.report.update(first_gain_error(ground, state, seed))
    return state


def miml_with(
    *, stop: bool = True, subsample: int | None = None, landmarks: int | None = None
) -> Acquisition:
    """Return the entry ``miml`` with its form chosen by hand.

    Parameters
    ----------
    stop : bool
        Whether to stop when every row left would lower the information; the batch is then smaller, or empty.
    subsample : int or None
        Above so many rows of pool and targets, so many are drawn by the seed (at least 2). Rows that were not
        drawn cannot be chosen; their score is NaN.
    landmarks : int or None
        Rank of the covariance that stands for the kernel, plus an exact diagonal; None: the exact kernel up
        to 5000 rows of pool and targets, 500 landmarks above.
    """
    for name, value, least in (("subsample", subsample, 2), ("landmarks", landmarks, 1)):
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if value is not None and not (whole and value >= least):
            raise ValueError(f"{name} must be at least {least} rows, got {value!r}")

    def score(problem: Problem) -> Array:
        ground = Ground(problem, "miml", subsample)
        values = np.full(ground.pool, np.nan)
        state = information_state(ground, 0, landmarks, problem.seed)
        values[ground.candidates] = state.scores()[: len(ground.candidates)]
        return values

    def choose(problem: Problem, batch: int) -> Choice:
        ground = Ground(problem, "miml", subsample)
        batch = check_batch(batch, len(ground.candidates))
        state = information_state(ground, batch, landmarks, problem.seed)
        found = greedy(state, batch, ground.allowed(), stop=stop, order=ground.order(problem.seed))
        return _choice(ground, found, batch)

    return Acquisition(score=score, choose=choose, **CARD)


def _choice(ground: Ground, found: Picks, batch: int) -> Choice:
    report = {**ground.report, "negative_gains": int((found.gains < 0).sum())}
    if found.stopped:
        report["stopped"] = (
            f"{len(found.rows)} of {batch} rows picked: every row left would lower the information"
        )
    return Choice(ground.candidates[found.rows], found.gains, None, report)


def entropy_score(problem: Problem) -> Array:
    """Entropy of each row's value given the labelled rows, nats: (pool,)."""
    ground = Ground(_without_targets(problem), "kernel_entropy", None)
    return ground.conditional(0).scores()


def choose_entropy(problem: Problem, batch: int) -> Choice:
    """Choose the row of largest entropy given those before it, again and again."""
    ground = Ground(_without_targets(problem), "kernel_entropy", None)
    batch = check_batch(batch, ground.pool)
    state = ground.conditional(batch)
    found = greedy(state, batch, ground.allowed(), stop=False, order=ground.order(problem.seed))
    return Choice(found.rows, found.gains, None, {"entropy": float(found.gains.sum())})


def _without_targets(problem: Problem) -> Problem:
    names = ("X_pool", "X_labelled", "Y_labelled", "kernel")
    return Problem(**{name: problem.get(name) for name in names}, seed=problem.seed)


CARD: dict[str, Any] = {
    "name": "miml",
    "query": "row",
    "units": "nats",
    "needs": ("X_pool", "kernel"),
    "bias": "none given the kernel up to 5000 rows of pool and targets, above that the error of 500 "
    "landmarks, which the report measures; the batch is greedy and stops when every row left would lower the "
    "information",
    "cost": "N^3 flops and 8 N^2 bytes for N = pool + targets rows, N (labelled + picks) a pick; with m "
    "landmarks N m^2 flops, 16 N m bytes, N m a pick",
    "helps": "with the rows to be predicted in the ground set, or on the pool alone with a guarded kernel; a "
    "kernel at the edge of the evidence's grid misleads it",
    "source": "Krause, Singh and Guestrin 2008, algorithm 1, which MIML takes to rows with many labels",
}

ENTRIES = (
    miml_with(),
    Acquisition(
        name="kernel_entropy",
        query="row",
        units="nats",
        needs=("X_pool", "kernel"),
        bias="none given the kernel; it asks for outliers",
        cost="labelled^3 / 3 + pool labelled^2, then pool (labelled + batch + features) a pick",
        helps="as the control of miml: the rows of uncertainty, with gains that add up to the entropy of the "
        "batch",
        source="Shewry and Wynn 1987, maximum entropy sampling; Krause, Singh and Guestrin 2008, section 2",
        score=entropy_score,
        choose=choose_entropy,
    ),
)
