"""Active learning on compressed targets, one row after the other: what changes with a row, and no more.

With m rows and a pool of N rows, a row told costs: distances and products, O((m + N) features); the
compression, which is fitted anew, O(m measurement^2); the factors, O(m^2) a target while theta stays; and the
pool's variances, O(m N) a target, from which what the new row tells is taken off:

    C(z) <- C(z) - c(z, new)^2 / (c(new, new) + noise),   c(z, new) = k(z, new) - k(z, rows) C^-1 k(rows, new)

After a search of theta the last two are computed anew. What is kept grows by O(m) a row. The values of the
targets do not enter variances, so that the compression may move them.

Theta belongs to a place among the targets, which are ordered by weight (measurements by their number): what
stands there may change when the compression is fitted again, and keeps the theta of its place until the next
search.

All that a told row changes is made beside what stands and replaces it in one assignment. Tables that grow in
place are cut back, so that an interrupted `tell` leaves the run as it was.

Shi and Yu, ICML 2019, sections 3.2 and 3.3.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.spatial.distance import cdist

from labelzoo.data import LabelData
from labelzoo.inference.bpca.canonical import Canonical
from labelzoo.inference.compressed_gp.active_state import (
    State,
    check_targets,
    checked_state,
    digest_of,
    name_of,
    read_features,
    read_labels,
    read_row,
    read_state,
)
from labelzoo.inference.compressed_gp.hyperparameters import Fit, Schedule, advance, due, gradient, schedule
from labelzoo.inference.compressed_gp.kernel14 import (
    Caches,
    Posterior,
    condition,
    extend,
    predict,
)
from labelzoo.inference.compressed_gp.simplex import s_opt
from labelzoo.inference.compressed_gp.surrogate import b_opt
from labelzoo.inference.compressed_gp.targets import COMPRESSIONS, targets_of
from labelzoo.models.bpca_card import spec
from labelzoo.whole_file import whole_file

__all__ = ["PARTS", "PERIOD", "SEARCHES", "ActiveTargets", "State", "downdated", "joined", "read_state"]

Array = Any

SEARCHES: dict[str, Callable[..., Fit]] = {
    "s_opt": partial(s_opt, budget=100),
    "b_opt": b_opt,
    "gradient": gradient,
}
"""Searches by name. Each begins at the last theta; 100 evaluations a target then do for the simplex."""
PERIOD = 25
"""Queries from one search of theta to the next."""
PARTS = ("features", "compression", "search", "factors", "variances")


class Standing(NamedTuple):
    """All that a told row changes, but for tables that grow in place.

    Attributes
    ----------
    Y : int8 (row, labels)
    asked : tuple of int
        Pool rows in the order in which they were told.
    inputs : mapping
        What the card of bpca prepared from Y.
    targets : Canonical
    schedule : Schedule
    posterior : Posterior
    variance : (pool, target)
    """

    Y: Array
    asked: tuple[int, ...]
    inputs: Mapping[str, Any]
    targets: Canonical
    schedule: Schedule
    posterior: Posterior
    variance: Array


class ActiveTargets:
    """A run of active learning on the compressed targets.

    Parameters
    ----------
    X : (row, feature)
        Mapped features of the rows with labels at the start, dense.
    Y : (row, labels)
        Their labels, 0 or 1, dense.
    pool : (pool, feature)
        Mapped features of the rows that may be asked, dense.
    settings : mapping
        Of the compression, see `labelzoo.models.bpca_card.SETTINGS`.
    compression : {"ppca", "bpca", "none"}
        What the targets are, see `labelzoo.inference.compressed_gp.targets`.
    search : {"s_opt", "b_opt", "gradient"} or callable
        ``search(targets, caches, theta=...) -> Fit``.
    period : int
        Queries from one search of theta to the next.

    Attributes
    ----------
    seconds : dict
        Time spent by part, see `PARTS`.

    Raises
    ------
    ValueError
        For shapes that do not fit, features that are sparse, not finite or too large to be squared, labels
        that are not 0 or 1, or an option out of range.
    """

    def __init__(
        self,
        X: Any,
        Y: Any,
        pool: Any,
        *,
        settings: Any = None,
        compression: Any = "ppca",
        search: Any = "s_opt",
        period: Any = PERIOD,
    ) -> None:
        self._search, self._compression = _search(search), _compression(compression)
        self._settings = _settings(settings)
        start = schedule(period)
        self._period = start.period
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self._caches = Caches(read_features(X, "X"))
        self._pool = read_features(pool, "pool", self._caches.X.shape[1])
        Y = read_labels(Y, len(self._caches), name="Y")
        chosen = {"search": name_of(search), "compression": self._compression, "period": self._period}
        self._digest = digest_of((self._caches.X, Y, self._pool), {**self._settings, **chosen})
        self._distances2 = np.empty((0, len(self._pool)))
        self._measure(0)
        self._now = self._standing(None, start, Y, ())

    def __len__(self) -> int:
        """Return the number of rows with labels."""
        return len(self._now.Y)

    @property
    def targets(self) -> Canonical:
        """Targets of the rows so far."""
        return self._now.targets

    @property
    def posterior(self) -> Posterior:
        """Posterior of the targets given the rows so far."""
        return self._now.posterior

    @property
    def schedule(self) -> Schedule:
        """When theta was searched last."""
        return self._now.schedule

    @property
    def remaining(self) -> Array:
        """Pool rows that have not been told: int (remaining,)."""
        return np.setdiff1d(np.arange(len(self._pool)), self._now.asked)

    @property
    def projection(self) -> Array:
        """A (measurement, labels), of which `predict` returns estimates A y."""
        return self._now.inputs["projection"]

    @property
    def variance(self) -> Array:
        """Predictive variance of the remaining pool rows, noise included: (remaining, target)."""
        return self._now.variance[self.remaining]

    @property
    def nbytes(self) -> int:
        """Bytes of the tables that grow with the rows, reserves left out."""
        m, p = len(self), len(self.posterior.theta)
        tables = 2 * m * m + m * self._caches.X.shape[1] + m * len(self._pool) + p * (m * m + m)
        return 8 * tables + self._now.Y.nbytes + self._now.variance.nbytes

    def scores(self) -> Array:
        """Return sum_g lambda_g ln C_gg(z) of the remaining pool rows: (remaining,); ask the largest.

        Without a target, as long as all labels told are alike, all are 0.
        """
        return np.log(self.variance) @ self.targets.weights

    def tell(self, row: Any, labels: Any) -> None:
        """Take in the labels (labels,) of pool row `row`; wholly, or not at all where it fails.

        Raises
        ------
        ValueError
            If the row is not in the pool or has been told, or the labels do not fit.
        """
        if isinstance(row, bool) or not isinstance(row, int | np.integer) or not 0 <= row < len(self._pool):
            raise ValueError(f"row must be an integer from 0 to {len(self._pool) - 1}, got {row!r}")
        now = self._now
        if row in now.asked:
            raise ValueError(f"row {row} of the pool has been told already")
        Y = np.vstack([now.Y, read_row(labels, now.Y.shape[1])])
        with self._growing():
            self._append(int(row))
            self._now = self._standing(now, now.schedule, Y, (*now.asked, int(row)))

    def predict(self, X: Any) -> Array:
        """Return the expected compressed rows A y of new mapped features: (new, measurement)."""
        mean = predict(self.posterior, self._caches, read_features(X, "X", self._pool.shape[1])).mean
        offset, loadings = self.targets.offset, self.targets.loadings
        return (offset + mean @ loadings.T) / self._now.inputs["compressed_scale"]

    def state(self) -> State:
        """Return what `restore` needs."""
        now = self._now
        labels = now.Y[len(now.Y) - len(now.asked) :].copy()
        theta, age = now.posterior.theta.copy(), np.asarray(now.schedule.age)
        asked, digest = np.asarray(now.asked, int), np.asarray(self._digest)
        return State(asked, labels, theta, age, now.variance.copy(), digest)

    def save(self, path: Any) -> None:
        """Write the state as npz, whole or not at all."""
        with whole_file(Path(path)) as temporary, open(temporary, "wb") as handle:
            np.savez_compressed(handle, allow_pickle=False, **self.state()._asdict())

    def restore(self, state: Any) -> None:
        """Go on where another run, constructed alike, was when its state was taken; O(m^3) a target.

        Scores are the same to the last digit; so is what a search then finds. What is refused changes
        nothing.

        Raises
        ------
        ValueError
            Naming the field that does not fit, the digest where the other run was constructed from other
            data or settings; if this run has been told rows.
        """
        now, pool = self._now, len(self._pool)
        told = checked_state(state, self._digest, (pool, now.Y.shape[1]), self._period)
        if now.asked:
            raise ValueError(f"{len(now.asked)} rows have been told already: restore into a new run")
        Y = np.vstack([now.Y, told.labels])
        inputs, targets = self._compressed(Y)
        check_targets(told, targets.targets.shape[1], pool)
        with self._growing():
            # Row by row, as they came: products of whole tables would differ in the last digit.
            for row in told.asked:
                self._append(row)
            posterior = condition(told.theta, targets.targets, self._caches)
            plan = Schedule(self._period, told.age, told.theta)
            self._now = Standing(Y, told.asked, inputs, targets, plan, posterior, told.variance)

    @contextmanager
    def _growing(self) -> Iterator[None]:
        """Let tables grow; in the end, however it comes, they have the rows of what stands."""
        self._caches.shorten(len(self._now.Y))
        try:
            yield
        finally:
            self._caches.shorten(len(self._now.Y))

    def _append(self, row: int) -> None:
        with self._clock("features"):
            known = len(self._caches)
            self._caches.append(self._pool[[row]])
            self._measure(known)

    def _measure(self, known: int) -> None:
        """Add the pool's squared distances to all but `known` rows, in a table that is doubled when full."""
        m = len(self._caches)
        if m > len(self._distances2):
            table = np.empty((max(m, 2 * len(self._distances2)), len(self._pool)))
            table[:known] = self._distances2[:known]
            self._distances2 = table
        self._distances2[known:m] = cdist(self._caches.X[known:], self._pool, "sqeuclidean")

    def _compressed(self, Y: Array) -> tuple[Mapping[str, Any], Canonical]:
        with self._clock("compression"):
            inputs = spec.prepare(LabelData(np.zeros((len(Y), 1)), Y), self._settings)
            return inputs, targets_of(inputs, self._compression)

    def _standing(self, old: Standing | None, plan: Schedule, Y: Array, asked: tuple[int, ...]) -> Standing:
        """Compress, search theta where due, and bring factors and variances from `old` up to the rows."""
        inputs, canonical = self._compressed(Y)
        with self._clock("search"):
            found = advance(plan, canonical.targets, self._caches, self._search)
        theta = np.asarray(found.theta)
        kept = 0 if old is None or due(plan) else min(len(old.posterior.theta), len(theta))
        with self._clock("factors"):
            posterior = self._factors(old, theta, canonical.targets, kept)
        with self._clock("variances"):
            variance = self._variances(old, posterior, kept)
        return Standing(Y, asked, inputs, canonical, found, posterior, variance)

    def _factors(self, old: Standing | None, theta: Array, U: Array, kept: int) -> Posterior:
        """Return the posterior, the factors of the first `kept` targets extended, the others anew."""
        fresh = condition(theta[kept:], U[:, kept:], self._caches)
        if old is None or not kept:
            return fresh
        before = Posterior(theta[:kept], old.posterior.factors[:kept], old.posterior.weights[:kept])
        return joined(extend(before, U[:, :kept], self._caches), fresh)

    def _variances(self, old: Standing | None, posterior: Posterior, kept: int) -> Array:
        """Return the pool's variances, of the first `kept` targets downdated, of the others anew."""
        last = Posterior(*(part[kept:] for part in posterior))
        fresh = predict(last, self._caches, self._pool).variance
        if old is None or not kept:
            return fresh
        far = self._distances2[: len(self._caches)]
        told = downdated(old.variance[:, :kept], posterior, self._caches, self._pool, far)
        return np.hstack([told, fresh])

    @contextmanager
    def _clock(self, part: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.seconds[part] += time.perf_counter() - begin


def _search(search: Any) -> Callable[..., Fit]:
    if isinstance(search, str) and search in SEARCHES:
        return SEARCHES[search]
    if not callable(search):
        raise ValueError(f"search must be one of {', '.join(SEARCHES)} or callable, got {search!r}")
    return search


def _compression(compression: Any) -> str:
    if not isinstance(compression, str) or compression not in COMPRESSIONS:
        raise ValueError(f"compression must be one of {', '.join(COMPRESSIONS)}, got {compression!r}")
    return compression


def _settings(settings: Any) -> dict[str, Any]:
    if settings is not None and not isinstance(settings, Mapping):
        raise ValueError(f"settings must be a mapping of names to values, got {type(settings).__name__}")
    return spec.resolve(dict(settings or {}))


def joined(first: Posterior, second: Posterior) -> Posterior:
    """Return the posterior of the targets of both, on the same rows."""
    return Posterior(*(np.concatenate(parts) for parts in zip(first, second, strict=True)))


def downdated(variance: Any, posterior: Posterior, caches: Caches, pool: Any, distances2: Any) -> Array:
    """Return predictive variances of pool rows less what the last of the cached rows tells.

    With L the factor of all rows and L' x = (0, ..., 0, 1)', c(z, new) / (c(new, new) + noise)^(1/2) is
    k(z, rows) x: row^2 + row pool flops a target.

    Parameters
    ----------
    variance : (pool, target)
        Of the first targets of `posterior`, given all rows but the last.
    posterior : Posterior
        Given all rows.
    caches : Caches
    pool : (pool, feature)
    distances2 : (row, pool)
        Squared distances of all rows and the pool.
    """
    theta, last = posterior.theta, np.zeros(len(caches))
    last[-1] = 1.0
    out = np.empty_like(variance)
    for g in range(variance.shape[1]):
        x = solve_triangular(posterior.factors[g], last, lower=True, trans="T", check_finite=False)
        near = np.multiply(distances2, -0.5 * theta[g, 1])
        shared = theta[g, 0] * (x @ np.exp(near, out=near))
        shared += theta[g, 2] * (pool @ (caches.X.T @ x)) + theta[g, 3] * x.sum()
        # What is left can fall below the noise by rounding alone.
        out[:, g] = np.maximum(variance[:, g] - shared**2, theta[g, 4])
    return out
