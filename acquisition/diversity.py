"""Random, spread-out, typical, near-target and large-variance rows: baselines that do not read labels.

Where the problem brings a kernel, distance is the kernel's,
d(a, b)^2 = k(a, a) + k(b, b) - 2 k(a, b); else it is Euclidean after dividing each feature by its standard
deviation over pool and labelled rows.
"""

import warnings
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from labelzoo.acquisition import near_targets
from labelzoo.acquisition.binary_relevance import check_features, check_probs
from labelzoo.acquisition.distances import (
    Space,
    blocks,
    dense,
    make_space,
    nearest_squared,
    scaling,
    squared_euclidean,
)
from labelzoo.acquisition.margin_scores import binary_entropy
from labelzoo.acquisition.near_targets import choose_nearest_target, density_random, nearest_target
from labelzoo.acquisition.problem import Acquisition, Choice, Problem
from labelzoo.acquisition.selectors import check_batch, top

Array = Any

FILTER = 10
"""The hybrid looks at this many times the batch."""


def farthest_first(space: Space, rows: Array, batch: int, *, seed: int = 0) -> tuple[Array, Array]:
    """Repeat: take the row farthest from everything labelled or taken so far (Gonzalez 1985).

    Returns
    -------
    chosen : int (batch,)
        Positions in `rows`. Without labelled rows the first one is drawn by `seed`.
    distance : (batch,)
        Of each when it was chosen; 0 for a first one that was drawn.

    Notes
    -----
    The covering radius is at most twice the optimum. Only the running minimum distance is kept: cost
    rows (labelled + batch) features.
    """
    nearest = nearest_squared(space, rows, space.labelled)
    taken = np.zeros(rows.shape[0], bool)
    chosen, gaps = [], []
    for step in range(batch):
        row = int(top(np.where(taken, -np.inf, nearest), 1, seed=seed + step)[0])
        chosen.append(row)
        gaps.append(np.sqrt(nearest[row]) if np.isfinite(nearest[row]) else 0.0)
        taken[row] = True
        nearest = np.minimum(nearest, nearest_squared(space, rows, rows[row : row + 1]))
    return np.asarray(chosen), np.asarray(gaps)


def posterior_variance(kernel: Any, pool: Array, labelled: Array) -> Array:
    """Return k(x, x) - k(x, L) (K_LL + noise I)^-1 k(L, x): (pool,), in units of the prior variance.

    Noise is ``kernel.noise_ratio``. Cost labelled^3 / 3 + pool labelled (labelled + features), in blocks.
    """
    variance = np.asarray(kernel.diagonal(pool), float).copy()
    if labelled.shape[0]:
        factor = _factor(kernel, labelled)
        for at in blocks(pool.shape[0], labelled.shape[0]):
            root = np.linalg.solve(factor, np.asarray(kernel.between(labelled, pool[at]), float))
            variance[at] -= (root**2).sum(axis=0)
    return np.maximum(variance, 0.0)


def sequential_variance(
    kernel: Any, pool: Array, labelled: Array, batch: int, *, seed: int = 0
) -> tuple[Array, Array]:
    """Take the row of largest posterior variance, condition on it, repeat: positions and variances (batch,).

    Cost of each pick: pool (labelled + batch) + pool labelled features.
    """
    variance = posterior_variance(kernel, pool, labelled)
    solved = _factor(kernel, labelled) if labelled.shape[0] else np.zeros((0, 0))
    taken, removed = np.zeros(pool.shape[0], bool), np.zeros((pool.shape[0], batch))
    rows, gains = [], []
    for step in range(batch):
        row = int(top(np.where(taken, -np.inf, variance), 1, seed=seed + step)[0])
        rows.append(row)
        gains.append(float(variance[row]))
        taken[row] = True
        covariance = _covariance_with(kernel, pool, labelled, solved, row) - removed @ removed[row]
        removed[:, step] = covariance / np.sqrt(variance[row] + kernel.noise_ratio)
        variance = np.maximum(variance - removed[:, step] ** 2, 0.0)
    return np.asarray(rows), np.asarray(gains)


def random_rows(problem: Problem) -> Array:
    """Uniform random numbers: (pool,)."""
    for name in ("X_pool", "mean_probs", "asked", "own_score"):
        if problem.has(name):
            size = np.shape(problem.get(name))[0]
            return np.random.default_rng(problem.seed).random(size)
    return np.asarray(problem.need("X_pool", "random"))


def k_center(problem: Problem) -> Array:
    """Distance to the nearest labelled row: (pool,); all 0 without labelled rows."""
    space = make_space(problem, "k_center")
    gaps = np.sqrt(nearest_squared(space, space.pool, space.labelled))
    return np.where(np.isfinite(gaps), gaps, 0.0)


def choose_k_center(problem: Problem, batch: int) -> Choice:
    """Choose by `farthest_first` from the whole pool."""
    space = make_space(problem, "k_center")
    batch = check_batch(batch, space.pool.shape[0])
    return Choice(*farthest_first(space, space.pool, batch, seed=problem.seed))


def uncertain_first(problem: Problem) -> Array:
    """Entropy of ``mean_probs`` where given, else the kernel's posterior variance: (pool,)."""
    if problem.has("mean_probs"):
        return binary_entropy(check_probs(problem.get("mean_probs"), "mean_probs"))
    if problem.has("kernel"):
        return uncertainty(problem)
    raise ValueError("acquisition 'k_center_top10' needs mean_probs or a kernel")


def choose_k_center_top10(problem: Problem, batch: int) -> Choice:
    """Choose by `farthest_first` among the 10 x batch rows of largest uncertainty."""
    space = make_space(problem, "k_center_top10")
    batch = check_batch(batch, space.pool.shape[0])
    most = min(FILTER * batch, space.pool.shape[0])
    kept = top(uncertain_first(problem), most, seed=problem.seed)
    rows, gaps = farthest_first(space, space.pool[kept], batch, seed=problem.seed)
    return Choice(kept[rows], gaps, None, {"rows_compared": most})


def cluster(problem: Problem) -> Array:
    """Minus the distance to the mean of the pool, which is the only centre of a batch of one: (pool,)."""
    rows = _cluster_rows(problem)
    if rows.shape[0] == 0:
        return np.zeros(0)
    return -np.sqrt(squared_euclidean(rows, dense(rows.mean(axis=0)).reshape(1, -1)))[:, 0]


def choose_cluster(problem: Problem, batch: int) -> Choice:
    """Run k-means with `batch` clusters on the pool and take the row nearest each centre, largest first."""
    rows = _cluster_rows(problem)
    batch = check_batch(batch, rows.shape[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = KMeans(batch, n_init=1, max_iter=100, random_state=problem.seed).fit(rows)
    sizes = np.bincount(fitted.labels_, minlength=batch)
    taken, chosen, gains = np.zeros(rows.shape[0], bool), [], []
    for centre in top(sizes, batch, seed=problem.seed):
        gap = squared_euclidean(rows, fitted.cluster_centers_[centre][None])[:, 0]
        row = int(top(np.where(taken, -np.inf, -gap), 1, seed=problem.seed)[0])
        chosen.append(row)
        gains.append(-float(np.sqrt(gap[row])))
        taken[row] = True
    return Choice(np.asarray(chosen), np.asarray(gains))


def uncertainty(problem: Problem) -> Array:
    """Posterior variance of a Gaussian process with the problem's kernel, labels not read: (pool,)."""
    kernel = problem.need("kernel", "uncertainty")
    space = make_space(problem, "uncertainty")
    return posterior_variance(kernel, space.pool, space.labelled)


def choose_uncertainty(problem: Problem, batch: int) -> Choice:
    """Choose by `sequential_variance`."""
    kernel = problem.need("kernel", "uncertainty")
    space = make_space(problem, "uncertainty")
    batch = check_batch(batch, space.pool.shape[0])
    return Choice(*sequential_variance(kernel, space.pool, space.labelled, batch, seed=problem.seed))


def _cluster_rows(problem: Problem) -> Array:
    # With a kernel the features are as the kernel is to see them; else they are scaled.
    pool = check_features(problem.need("X_pool", "cluster"), "X_pool")
    return pool if problem.has("kernel") else scaling(pool, pool[:0])(pool)


def _factor(kernel: Any, labelled: Array) -> Array:
    K = np.asarray(kernel.between(labelled, labelled), float)
    return np.linalg.cholesky(K + kernel.noise_ratio * np.eye(len(K)))


def _covariance_with(kernel: Any, pool: Array, labelled: Array, factor: Array, row: int) -> Array:
    # Posterior covariance of every row with one row, given the labelled rows.
    covariance = np.array(kernel.between(pool, pool[row : row + 1]), float)[:, 0]
    if labelled.shape[0]:
        own = np.asarray(kernel.between(labelled, pool[row : row + 1]), float)
        solved = np.linalg.solve(factor.T, np.linalg.solve(factor, own))[:, 0]
        for at in blocks(pool.shape[0], labelled.shape[0]):
            covariance[at] -= np.asarray(kernel.between(pool[at], labelled), float) @ solved
    return covariance


def _entry(name: str, score: Any, choose: Any = None, **words: Any) -> Acquisition:
    return Acquisition(name=name, query="row", score=score, choose=choose, **words)


ENTRIES = (
    _entry(
        "random",
        random_rows,
        units="uniform random number",
        needs=(),
        bias="none",
        cost="pool",
        helps="always: the baseline that most of these lose to, and no model is needed",
        source="uniform over the pool",
    ),
    _entry(
        "uncertainty",
        uncertainty,
        choose_uncertainty,
        units="variance of the latent function, in units of the prior's",
        needs=("X_pool", "kernel"),
        bias="none given the kernel; labels are not read, so it asks for outliers",
        cost="labelled^3 / 3 + pool labelled^2, then pool (labelled + batch + features) a pick",
        helps="finding rare labels in outlying rows; outliers say little about other rows",
        source="MacKay (1992), active learning by largest posterior variance",
    ),
    _entry(
        "k_center",
        choose=choose_k_center,
        score=k_center,
        units="distance",
        needs=("X_pool",),
        bias="covering radius at most twice the optimum; it asks for outliers",
        cost="pool (labelled + batch) features; memory pool",
        helps="covering clean features evenly; with noisy ones it asks outliers",
        source="Gonzalez (1985); Sener and Savarese (2018)",
    ),
    _entry(
        "k_center_top10",
        choose=choose_k_center_top10,
        score=uncertain_first,
        units="of a batch: distance; of the filter: nats, or prior variance without mean_probs",
        needs=("X_pool",),
        bias="as k_center inside the 10 x batch most uncertain rows",
        cost="the filter, then 10 batch (labelled + batch) features",
        helps="keeping near copies out of a batch; what it asks is still the uncertain",
        source="Wei, Iyer and Bilmes (2015), filter then diversify; farthest first inside",
    ),
    _entry(
        "cluster",
        choose=choose_cluster,
        score=cluster,
        units="minus the distance to the cluster's centre",
        needs=("X_pool",),
        bias="one start of k-means by seed; the labelled rows are not read",
        cost="pool batch features an iteration, 100 at most",
        helps="as a cheap spread of typical rows that reads no label",
        source="Zhdanov (2019), k-means batches, unweighted",
    ),
    _entry(
        "nearest_target",
        choose=choose_nearest_target,
        score=nearest_target,
        units="minus a distance",
        needs=("X_pool",),
        bias=f"without targets at most {near_targets.OWN_TARGETS} pool rows stand in; near copies are asked",
        cost="pool targets features; memory targets batch beside a block",
        helps="as a control where targets are given: what a target-aware score must beat",
        source="nearest neighbours of the targets, one each in turn",
    ),
    _entry(
        "density_random",
        score=density_random,
        units="log density plus Gumbel noise",
        needs=("X_pool", "kernel"),
        bias="a draw without replacement, in proportion to the density of targets; negative kernels count 0",
        cost="pool targets features",
        helps="as a control where pool and targets differ: random rows from where the targets are",
        source="Gumbel top-k: Vieira (2014); Kool, van Hoof and Welling (2019)",
    ),
)
"""The baselines that do not read labels."""
