"""Integrated variance reduction with a kernel: which row sharpens the predictions at other rows most.

All labels share one Gaussian regression kernel, so the labels' values are not read: a row counts as labelled
as soon as any of its labels is known.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from labelzoo.acquisition.problem import Acquisition, Choice, Problem
from labelzoo.acquisition.random_features import FEATURES, FeatureReduction, make_features, row_blocks
from labelzoo.acquisition.selectors import check_batch, top

Array = Any

EXACT_ENTRIES = 50_000_000
"""Above so many (target, pool) pairs, 400 MB in float64, features stand for the kernel."""

LARGEST_ENTRIES = 250_000_000
"""A forced exact form refuses more pairs than this (2 GB)."""


class Targets(NamedTuple):
    """Where predictions will be made.

    Attributes
    ----------
    X : (target, feature)
    weights : (target,)
    own : int (target,)
        Position in the pool of a target that is itself a candidate, else -1.
    of_pool : int
        How many rows the targets were drawn from; their number where all of them are used.
    """

    X: Array
    weights: Array
    own: Array
    of_pool: int


class Belief:
    """Posterior covariance of latent functions, label by label, columns made on demand.

    C_l = a_l K - V_l'V_l; V_l starts as the triangular solve with the labelled rows and gets a row a pick.

    Parameters
    ----------
    kernel : object
        With ``between`` and ``diagonal``.
    X_pool, X_targets : (pool, feature), (target, feature)
    scale : (labels,)
        Amplitudes a_l.
    factors : ndarray (labels, labelled, pool), ndarray (labels, labelled, target)
        V_l at the pool and at the targets.
    noise : (labels, pool)
        Variance of an observation at each row, in the units of C.
    room : int
        Number of picks that will be conditioned on.
    """

    def __init__(
        self,
        kernel: Any,
        X_pool: Array,
        X_targets: Array,
        scale: Array,
        factors: tuple[Array, Array],
        noise: Array,
        room: int,
    ) -> None:
        self.cross = kernel.between(X_targets, X_pool)
        self.scale, self.noise = scale, noise
        self.variance, self.target_variance = (
            np.maximum(scale[:, None] * kernel.diagonal(X) - (V**2).sum(axis=1), 0.0)
            for X, V in ((X_pool, factors[0]), (X_targets, factors[1]))
        )
        # A kernel that maps its rows first maps them once here, not at every pick.
        self._between = getattr(kernel, "of_mapped", kernel.between)
        self._X = getattr(kernel, "mapped", lambda rows: rows)(X_pool)
        self._used = factors[0].shape[1]
        self._pool, self._target = (_with_room(V, room) for V in factors)

    def covariance(self, label: int, targets: slice) -> Array:
        """Return C between some targets and the pool for one label: (target, pool)."""
        V, U = self._pool[label, : self._used], self._target[label, : self._used, targets]
        return self.scale[label] * self.cross[targets] - U.T @ V

    def columns(self, row: int) -> tuple[Array, Array]:
        """Return C of `row` with the pool, (labels, pool), and with the targets, (labels, target)."""
        V, U = self._pool[:, : self._used], self._target[:, : self._used]
        own = V[:, None, :, row]
        kernel_column = self._between(self._X, self._X[[row]])[:, 0]
        pool = self.scale[:, None] * kernel_column - np.matmul(own, V)[:, 0]
        target = self.scale[:, None] * self.cross[:, row] - np.matmul(own, U)[:, 0]
        return pool, target

    def apply(self, x: Array) -> Array:
        """Return sum over targets of C_ti x_t, label by label: (labels, target) to (labels, pool)."""
        V, U = self._pool[:, : self._used], self._target[:, : self._used]
        inner = np.matmul(U, x[:, :, None])
        return self.scale[:, None] * (x @ self.cross) - np.matmul(inner.transpose(0, 2, 1), V)[:, 0]

    def condition(self, row: int, pool: Array, target: Array) -> Array:
        """Let C <- C - C_:i C_i: / (C_ii + noise_i), given the columns of `row`; return C_ii + noise_i."""
        total = self.variance[:, row] + self.noise[:, row]
        root = np.sqrt(total)[:, None]
        self._pool[:, self._used], self._target[:, self._used] = pool / root, target / root
        self._used += 1
        self.variance = np.maximum(self.variance - (pool / root) ** 2, 0.0)
        self.target_variance = np.maximum(self.target_variance - (target / root) ** 2, 0.0)
        return total


class Reduction:
    """Variance removed at the targets by every pool row, summed over labels, kept up to date pick by pick.

    score(i) = sum_l sum_t s_lt C_lti^2 / (C_lii + noise_li). After a pick with column d and target column c,
    sum_t s_t C_ti^2 changes by -2 d_i q_i / v + d_i^2 (sum_t s_t c_t^2) / v^2, q_i = sum_t s_t c_t C_ti, so
    a pick costs one product with the (target, pool) matrix a label.

    Parameters
    ----------
    belief : Belief
    sensitivity : (labels, target)
        s_lt, the weight of target t times the squared slope of what is predicted.
    own : int (target,)
        As in `Targets`: a row removes nothing at itself, and is no target once it was picked.
    """

    def __init__(self, belief: Belief, sensitivity: Array, own: Array) -> None:
        self.belief, self._sensitivity = belief, sensitivity.copy()
        self._target_of = np.full(belief.variance.shape[1], -1)
        self._target_of[own[own >= 0]] = np.flatnonzero(own >= 0)
        labels, targets = sensitivity.shape
        self.reach = np.zeros_like(belief.variance)
        for label in range(labels):
            for block in row_blocks(targets, belief.variance.shape[1]):
                C = belief.covariance(label, block)
                self.reach[label] += sensitivity[label, block] @ np.square(C, out=C)

    def scores(self) -> Array:
        """Return the variance that each row would remove at the targets: (pool,)."""
        own = np.where(self._target_of >= 0, self._sensitivity[:, self._target_of], 0.0)
        reach = np.maximum(self.reach - own * self.belief.variance**2, 0.0)
        return (reach / (self.belief.variance + self.belief.noise)).sum(axis=0)

    def take(self, row: int) -> None:
        """Condition on the labels of `row`, which is no longer a target."""
        pool, target = self.belief.columns(row)
        at = self._target_of[row]
        if at >= 0:
            self.reach -= self._sensitivity[:, [at]] * pool**2
            self._sensitivity[:, at] = 0.0
        weighted = self._sensitivity * target
        pull, norm = self.belief.apply(weighted), (weighted * target).sum(axis=1)
        total = self.belief.condition(row, pool, target)[:, None]
        self.reach += (-2 * pull + pool * norm[:, None] / total) * pool / total


def greedy_rows(state: Any, batch: int, *, seed: int = 0) -> tuple[Array, Array]:
    """Pick `batch` distinct rows of the highest ``state.scores()``, with ``state.take(row)`` after each.

    Returns
    -------
    rows : int ndarray (batch,)
    gains : ndarray (batch,)
        The score of each when it was picked.
    """
    scores = state.scores()
    batch = check_batch(batch, scores.shape[0])
    rows, gains = np.empty(batch, int), np.empty(batch)
    closed = np.zeros(scores.shape[0], bool)
    for step in range(batch):
        row = int(top(np.where(closed, np.nan, scores), 1, seed=seed + step)[0])
        rows[step], gains[step], closed[row] = row, scores[row], True
        if step + 1 < batch:
            state.take(row)
            scores = state.scores()
    return rows, gains


def regression_factors(kernel: Any, X_labelled: Array | None, *others: Array) -> list[Array]:
    """Return L^-1 K(labelled, X) (labelled, row) for each of `others`; L L' = K(labelled) + noise ratio."""
    if X_labelled is None or X_labelled.shape[0] == 0:
        return [np.zeros((0, X.shape[0])) for X in others]
    block = kernel.between(X_labelled, X_labelled) + kernel.noise_ratio * np.eye(X_labelled.shape[0])
    factor = np.linalg.cholesky(block)
    return [
        scipy.linalg.solve_triangular(factor, kernel.between(X_labelled, X), lower=True, check_finite=False)
        for X in others
    ]


def ivr_state(
    problem: Problem, room: int, *, method: str = "auto", features: int = FEATURES
) -> tuple[Reduction | FeatureReduction, dict[str, Any]]:
    """Return the state of integrated variance reduction and a report of the form it takes.

    Parameters
    ----------
    problem : Problem
    room : int
        Number of picks.
    method : str
        ``exact``, ``features``, or ``auto``: exact up to `EXACT_ENTRIES` (target, pool) pairs, then features,
        and for a kernel that has none a random subset of the targets.
    features : int
        Number of random features.

    Raises
    ------
    ValueError
        If `method` is unknown, or forced on a kernel without features or on too large a pool.
    """
    if method not in ("auto", "exact", "features"):
        raise ValueError(f"method must be 'auto', 'exact' or 'features', got {method!r}")
    kernel = read_kernel(problem, "ivr")
    X_pool, (X_labelled, _) = read_features(problem.need("X_pool", "ivr"), "X_pool"), read_labelled(problem)
    check_batch(1, X_pool.shape[0])
    room, targets = min(room, X_pool.shape[0]), read_targets(problem, X_pool)
    pairs = X_pool.shape[0] * targets.X.shape[0]
    if method == "features" or (method == "auto" and pairs > EXACT_ENTRIES):
        made = make_features(kernel, X_pool, size=features, seed=problem.seed)
        if made is not None:
            asked = (None if targets.own[0] >= 0 else targets.X, targets.weights)
            state = FeatureReduction(made, X_pool, X_labelled, float(kernel.noise_ratio), asked)
            return state, {"form": made.name}
        if method == "features":
            raise ValueError("kernel: neither rbf nor cosine on these rows, so it has no features here")
        targets = thin_targets(targets, max(1, EXACT_ENTRIES // X_pool.shape[0]), problem.seed)
    if X_pool.shape[0] * targets.X.shape[0] > LARGEST_ENTRIES:
        raise ValueError(
            f"the exact form needs a matrix of {targets.X.shape[0]} targets x {X_pool.shape[0]} rows, "
            f"{8e-9 * pairs:.1f} GB: use method='features' or fewer targets"
        )
    return _exact_state(kernel, X_pool, X_labelled, targets, room), {"form": "exact", **told(targets)}


def _exact_state(kernel: Any, X_pool: Array, X_labelled: Any, targets: Targets, room: int) -> Reduction:
    pool, target = regression_factors(kernel, X_labelled, X_pool, targets.X)
    noise = np.full((1, X_pool.shape[0]), float(kernel.noise_ratio))
    belief = Belief(kernel, X_pool, targets.X, np.ones(1), (pool[None], target[None]), noise, room)
    return Reduction(belief, targets.weights[None], targets.own)


def read_kernel(problem: Problem, by: str) -> Any:
    """Return the kernel of `problem`; ValueError where its noise ratio is not a positive number."""
    kernel = problem.need("kernel", by)
    ratio = float(kernel.noise_ratio)
    if not (np.isfinite(ratio) and ratio > 0):
        raise ValueError(f"kernel: noise_ratio must be a positive number, got {kernel.noise_ratio!r}")
    return kernel


def read_features(X: Any, name: str) -> Array:
    """Return features (row, feature), dense or csr; ValueError names a row and feature that is not finite."""
    X = sp.csr_array(X) if sp.issparse(X) else np.asarray(X, float)
    if X.ndim != 2:
        raise ValueError(f"{name} must be (row, feature), got shape {X.shape}")
    bad = ~np.isfinite(X.data if sp.issparse(X) else X)
    if bad.any():
        coo = X.tocoo() if sp.issparse(X) else None
        row, column = (v[bad][0] for v in coo.coords) if coo is not None else np.argwhere(bad)[0]
        raise ValueError(f"{name} row {row}, feature {column}: not a finite number")
    return X


def read_labelled(problem: Problem) -> tuple[Array | None, Array | None]:
    """Return features and labels of the rows with any label known; (None, None) where nothing is labelled."""
    X, Y = problem.get("X_labelled"), problem.get("Y_labelled")
    if X is None:
        return None, None
    X = read_features(X, "X_labelled")
    if Y is None:
        return X, None
    Y = np.asarray(Y, float)
    if Y.ndim != 2 or Y.shape[0] != X.shape[0]:
        raise ValueError(f"Y_labelled has shape {Y.shape}, X_labelled has {X.shape[0]} rows")
    bad = np.argwhere(~(np.isnan(Y) | (Y == 0) | (Y == 1)))
    if bad.size:
        row, label = bad[0]
        raise ValueError(f"Y_labelled row {row}, label {label}: {Y[row, label]} is none of 0, 1 and NaN")
    known = ~np.isnan(Y).all(axis=1)
    return X[np.flatnonzero(known)], Y[known]


def read_targets(problem: Problem, X_pool: Array) -> Targets:
    """Return the targets of `problem`, the pool rows themselves where it names none."""
    given = problem.get("X_targets")
    X = X_pool if given is None else read_features(given, "X_targets")
    count = X.shape[0]
    if count == 0:
        raise ValueError("X_targets has no rows")
    weights = problem.get("weights")
    weights = np.ones(count) if weights is None else np.asarray(weights, float)
    if weights.shape != (count,) or not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError(f"weights must be {count} finite numbers of at least 0, got shape {weights.shape}")
    return Targets(X, weights, np.arange(count) if given is None else np.full(count, -1), count)


def thin_targets(targets: Targets, count: int, seed: int) -> Targets:
    """Return `count` targets drawn by `seed`, weights scaled up so that sums keep their expectation."""
    total = targets.X.shape[0]
    if total <= count:
        return targets
    kept = np.sort(np.random.default_rng(seed).permutation(total)[:count])
    weights = targets.weights[kept] * (total / count)
    return Targets(targets.X[kept], weights, targets.own[kept], total)


def told(targets: Targets) -> dict[str, Any]:
    """Return what a report says about thinned targets."""
    used = targets.X.shape[0]
    return {} if used == targets.of_pool else {"targets": f"{used} of {targets.of_pool}, drawn at random"}


def _with_room(V: Array, room: int) -> Array:
    return np.concatenate([V, np.zeros((V.shape[0], room, V.shape[2]))], axis=1)


def ivr_with(*, method: str = "auto", features: int = FEATURES) -> Acquisition:
    """Return the entry ``ivr`` with the form of the covariance chosen by hand; see `ivr_state`."""

    def score(problem: Problem) -> Array:
        return ivr_state(problem, 0, method=method, features=features)[0].scores()

    def choose(problem: Problem, batch: int) -> Choice:
        state, report = ivr_state(problem, picks(batch), method=method, features=features)
        rows, gains = greedy_rows(state, batch, seed=problem.seed)
        return Choice(rows, gains, None, report)

    return Acquisition(score=score, choose=choose, **IVR_CARD)


def picks(batch: Any) -> int:
    """Return the room that a batch needs; what is no count is refused later, by `check_batch`."""
    return max(int(batch), 1) if isinstance(batch, int | np.integer) else 1


IVR_CARD: dict[str, Any] = {
    "name": "ivr",
    "query": "row",
    "units": "variance of the latent function in units of the kernel's variance, summed over targets",
    "needs": ("X_pool", "kernel"),
    "bias": "none given the kernel up to 5e7 (target, pool) pairs; above that the error of the features",
    "cost": "(labelled + targets) labelled pool flops, targets pool a pick, 8 targets pool bytes; "
    "with m features (targets + pool) m^2 flops and 4 pool m bytes",
    "helps": "the default for kernels: sharpens predictions at the very rows given as targets; helps less at "
    "other rows of the same kind, and on the pool alone it is mixed",
    "source": "Cohn, Ghahramani and Jordan 1996, section 4; Seo and others 2000, equation 9",
}

ENTRIES = (ivr_with(),)
