"""Label-aware scores about other points, from one logistic Gaussian process a label.

To second order the probabilities at two rows have covariance h_i h_t C_ti, with C the covariance of the
latent f given the labels and h = E sigmoid'(f) = E p (1 - p). A label asked at row i counts as a Gaussian
observation of f with variance 1 / h_i, since then
cov(y_i, p_t)^2 / var(y_i) = h_t^2 C_ti^2 / (C_ii + 1 / h_i).
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from scipy.special import xlogy

from labelzoo.acquisition.integrated import (
    Belief,
    Reduction,
    Targets,
    greedy_rows,
    picks,
    read_features,
    read_kernel,
    read_labelled,
    read_targets,
    thin_targets,
    told,
)
from labelzoo.acquisition.laplace_fit import Prediction, amplitude_of, fit_laplace, predict_laplace
from labelzoo.acquisition.problem import Acquisition, Choice, Problem
from labelzoo.acquisition.random_features import row_blocks
from labelzoo.acquisition.selectors import check_batch

Array = Any

POOL_TARGETS = 300
"""Pool rows drawn as targets where none are given."""

WORKING_ENTRIES = 50_000_000
"""Numbers held for the covariances of all labels (400 MB); a pool that needs more is thinned at random."""


class PairInformation:
    """Mean over targets of the information between a row's labels and a target's, label by label, in nats.

    ``gaussian``: -1/2 log(1 - rho^2) of the pair of labels with matched moments, where
    rho^2 = C_ti^2 / ((C_ii + 1/h_i) (C_tt + 1/h_t)). ``table``: information of the 2 x 2 table with
    probabilities E p_i, E p_t and covariance h_i h_t C_ti, clipped to what a table can have; marginals
    stay as they are while a batch is picked. Both treat labels as independent.
    Cost labels targets pool a pick.
    """

    def __init__(
        self, belief: Belief, weights: Array, own: Array, pair: str, pool: Prediction, target: Prediction
    ) -> None:
        if pair not in ("gaussian", "table"):
            raise ValueError(f"pair must be 'gaussian' or 'table', got {pair!r}")
        self._belief, self._pair, self._pool, self._target = belief, pair, pool, target
        self._weights, self._own = weights.astype(float).copy(), own
        self._target_noise = 1 / floored(target.slope)
        labels, targets = target.slope.shape
        self._C = np.empty((labels, targets, belief.variance.shape[1]))
        for label in range(labels):
            self._C[label] = belief.covariance(label, slice(0, targets))

    def scores(self) -> Array:
        """Return the weighted mean over targets of the information, a row's own left out: (pool,)."""
        out = np.zeros(self._C.shape[2])
        for block in row_blocks(self._C.shape[1], 60 * self._C.shape[2]):
            pairs = self._gaussian(block) if self._pair == "gaussian" else self._table(block)
            own = self._own[block]
            pairs[np.flatnonzero(own >= 0), own[own >= 0]] = 0.0
            out += self._weights[block] @ pairs
        return out / max(float(self._weights.sum()), 1e-300)

    def take(self, row: int) -> None:
        """Condition on the labels of `row`, which is no longer a target."""
        pool, _ = self._belief.columns(row)
        target = self._C[:, :, row].copy()
        total = self._belief.condition(row, pool, target)
        for label, C in enumerate(self._C):
            # In place: C.T is the column-major matrix that dger wants.
            scipy.linalg.blas.dger(-1 / total[label], pool[label], target[label], a=C.T, overwrite_a=1)
        self._weights[self._own == row] = 0.0

    def _gaussian(self, block: slice) -> Array:
        # The logarithm of a product of up to 16 labels: 1 - rho^2 is at least .2, as 1/h is at least 4.
        at_pool = 1 / (self._belief.variance + self._belief.noise)
        at_target = 1 / (self._belief.target_variance + self._target_noise)
        total = np.zeros(self._C[0, block].shape)
        for first in range(0, self._C.shape[0], 16):
            product = np.ones_like(total)
            for label in range(first, min(first + 16, self._C.shape[0])):
                rho2 = self._C[label, block] ** 2
                rho2 *= at_pool[label]
                rho2 *= at_target[label, block, None]
                product *= np.subtract(1.0, rho2, out=rho2)
            total += np.log(product, out=product)
        return np.multiply(total, -0.5, out=total)

    def _table(self, block: slice) -> Array:
        total = np.zeros(self._C[0, block].shape)
        for label in range(self._C.shape[0]):
            p, q = self._pool.probability[label], self._target.probability[label, block, None]
            slopes = self._pool.slope[label] * self._target.slope[label, block, None]
            total += table_information(p, q, slopes * self._C[label, block])
        return total


def table_information(p: Array, q: Array, covariance: Array) -> Array:
    """Return the information of two binary variables in nats, from their means and covariance (broadcast).

    The covariance is clipped so that all four probabilities are at least 0.
    """
    c = np.clip(covariance, -np.minimum(p * q, (1 - p) * (1 - q)), np.minimum(p * (1 - q), (1 - p) * q))
    total = np.zeros(np.broadcast_shapes(np.shape(p), np.shape(q), np.shape(c)))
    for a, b, sign in ((p, q, 1), (p, 1 - q, -1), (1 - p, q, -1), (1 - p, 1 - q, 1)):
        independent = a * b
        joint = np.maximum(independent + sign * c, 0.0)
        total += xlogy(joint, joint / np.maximum(independent, 1e-300))
    return np.maximum(total, 0.0)


def floored(slope: Array) -> Array:
    """Return E p(1 - p), at least 1e-12: a label that is certain is an observation of no weight."""
    return np.maximum(slope, 1e-12)


class Setting(NamedTuple):
    """Everything a label-aware score starts from.

    Attributes
    ----------
    belief : Belief
    targets : Targets
        ``own`` counts in `candidates`.
    candidates : int (candidate,)
        Positions in the pool.
    pool, target : Prediction
    report : dict
    """

    belief: Belief
    targets: Targets
    candidates: Array
    pool: Prediction
    target: Prediction
    report: dict[str, Any]


def laplace_setting(problem: Problem, room: int, by: str) -> Setting:
    """Fit the labels and return the covariances at the pool and the targets.

    Without targets, 300 pool rows are drawn as such by the seed. A pool for which labels x pool x (labelled +
    targets) passes 5e7 is thinned to as many rows by the seed; the report says both.
    """
    kernel = read_kernel(problem, by)
    X_pool, (X, Y) = read_features(problem.need("X_pool", by), "X_pool"), read_labelled(problem)
    problem.need("Y_labelled", by)
    check_batch(1, X_pool.shape[0])
    room = min(room, X_pool.shape[0])
    if X is None or Y is None or X.shape[0] == 0:
        raise ValueError(f"acquisition {by!r} needs a labelled row, of which any label is known")
    targets = read_targets(problem, X_pool)
    if targets.own[0] >= 0:
        targets = thin_targets(targets, POOL_TARGETS, problem.seed)
    entries = Y.shape[1] * (X.shape[0] + room + targets.X.shape[0])
    candidates = thin_candidates(X_pool.shape[0], max(1, room, WORKING_ENTRIES // entries), problem.seed)
    targets = targets._replace(own=_renumbered(targets.own, candidates, X_pool.shape[0]))
    rows = X_pool[candidates]
    amplitude = amplitude_of(float(kernel.noise_ratio))
    fit = fit_laplace(kernel.between(X, X), kernel.diagonal(X), Y, amplitude)
    pool, target = (
        predict_laplace(fit, kernel.between(X, at), kernel.diagonal(at)) for at in (rows, targets.X)
    )
    scale, noise = np.full(Y.shape[1], amplitude), 1 / floored(pool.slope)
    belief = Belief(kernel, rows, targets.X, scale, (pool.factor, target.factor), noise, room)
    report = {"amplitude": amplitude, "newton_steps": fit.steps, **told(targets)}
    if candidates.size < X_pool.shape[0]:
        report["candidates"] = f"{candidates.size} of {X_pool.shape[0]}, drawn at random"
    return Setting(belief, targets, candidates, pool, target, report)


def thin_candidates(pool: int, count: int, seed: int) -> Array:
    """Return `count` sorted positions of the pool drawn by `seed`, all of them where it is smaller."""
    if pool <= count:
        return np.arange(pool)
    return np.sort(np.random.default_rng([seed, 1]).permutation(pool)[:count])


def _renumbered(own: Array, candidates: Array, pool: int) -> Array:
    position = np.full(pool, -1)
    position[candidates] = np.arange(candidates.size)
    return np.where(own >= 0, position[own], -1)


def _reduction(setting: Setting) -> Reduction:
    sensitivity = setting.targets.weights * setting.target.slope**2
    return Reduction(setting.belief, sensitivity, setting.targets.own)


def _pairs(setting: Setting, pair: str) -> PairInformation:
    parts = (setting.targets.weights, setting.targets.own, pair, setting.pool, setting.target)
    return PairInformation(setting.belief, *parts)


def _entry(card: dict[str, Any], state_of: Any) -> Acquisition:
    def score(problem: Problem) -> Array:
        setting = laplace_setting(problem, 0, card["name"])
        values = np.full(problem.need("X_pool", card["name"]).shape[0], np.nan)
        values[setting.candidates] = state_of(setting).scores()
        return values

    def choose(problem: Problem, batch: int) -> Choice:
        setting = laplace_setting(problem, picks(batch), card["name"])
        rows, gains = greedy_rows(state_of(setting), batch, seed=problem.seed)
        return Choice(setting.candidates[rows], gains, None, setting.report)

    return Acquisition(score=score, choose=choose, **_SHARED, **card)


def epig_laplace_with(*, pair: str = "gaussian") -> Acquisition:
    """Return the entry ``epig_laplace`` with the information of a pair as in `PairInformation`."""
    return _entry(_EPIG, lambda setting: _pairs(setting, pair))


_SHARED: dict[str, Any] = {
    "query": "row",
    "needs": ("X_pool", "X_labelled", "Y_labelled", "kernel"),
}

_IVRP: dict[str, Any] = {
    "name": "ivrp",
    "units": "variance of a probability, summed over labels and targets",
    "bias": "second order in the slopes of the link, which stay as they are within a batch",
    "cost": "labels (labelled^3 + labelled (labelled + targets) pool) flops, labels targets pool a pick; "
    "8 labels (labelled + targets) pool bytes at most",
    "helps": "like ivr, but it reads the labels: for dense features and frequent labels, less for rare ones",
    "source": "Roy and McCallum 2001 (expected error reduction) for squared error, by the approximation of "
    "Rasmussen and Williams 2006, section 3.4",
}

_EPIG: dict[str, Any] = {
    "name": "epig_laplace",
    "units": "nats, summed over labels, mean over targets",
    "bias": "second order in the slopes of the link; labels independent given the function",
    "cost": "labels (labelled^3 + labelled (labelled + targets) pool) flops, 6 labels targets pool a pick; "
    "8 labels (labelled + targets) pool bytes",
    "helps": "like ivrp, in nats: rare labels count for more",
    "source": "Bickford Smith and others 2023, equation 3, by the approximation of Rasmussen and Williams "
    "2006, section 3.4",
}

ENTRIES = (_entry(_IVRP, _reduction), epig_laplace_with())
