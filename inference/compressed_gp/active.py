"""Active learning on compressed targets, one row after the other: what changes with a row, and no more.

With m rows and a pool of N rows, a row told costs: distances and products, O((m + N) features); the
compression, which is fitted anew, O(m measurement^2); the factors, O(m^2) a target while theta stays; and the
pool's variances, O(m N) a target, from which what the new row tells is taken off:

    C(z) <- C(z) - c(z, new)^2 / (c(new, new) + noise),   c(z, new) = k(z, new) - k(z, rows) C^-1 k(rows, new)

After a search of theta the last two are computed anew. What is kept grows by O(m) a row. The values of the
targets do not enter variances, so that the compression may move them.

Targets are ordered by weight, and theta belongs to a place in that order: what stands there may change when
the compression is fitted again, and keeps the theta of its place until the next search.

Shi and Yu, ICML 2019, sections 3.2 and 3.3.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.spatial.distance import cdist

from labelzoo.data import LabelData
from labelzoo.inference.compressed_gp.compression import Compression, compress
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
from labelzoo.inference.sparse_bayes.terms import read_matrix
from labelzoo.models.bpca_card import spec
from labelzoo.whole_file import whole_file

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


class State(NamedTuple):
    """What a run is resumed from, beside what it was constructed from.

    Attributes
    ----------
    asked : int (query,)
        Pool rows in the order in which they were told.
    labels : int8 (query, labels)
    theta : (target, 5)
    age : int
        Queries since the last search.
    variance : (pool, target)
    digest : str
        Of features, labels and settings that the run was constructed from.
    """

    asked: Array
    labels: Array
    theta: Array
    age: Array
    variance: Array
    digest: Array


class ActiveTargets:
    """A run of active learning on the compressed targets.

    Parameters
    ----------
    X : (row, feature)
        Mapped features of the rows with labels at the start.
    Y : (row, labels)
        Their labels, 0 or 1.
    pool : (pool, feature)
        Mapped features of the rows that may be asked.
    settings : mapping
        Of the compression, see `labelzoo.models.bpca_card.SETTINGS`.
    search : {"s_opt", "b_opt", "gradient"} or callable
        ``search(targets, caches, theta=...) -> Fit``.
    period : int
        Queries from one search of theta to the next.

    Attributes
    ----------
    compression : Compression
    posterior : Posterior
    schedule : Schedule
    seconds : dict
        Time spent by part, see `PARTS`.

    Raises
    ------
    ValueError
        For shapes that do not fit, labels that are not 0 or 1, or an option out of range.
    """

    compression: Compression
    posterior: Posterior

    def __init__(
        self,
        X: Any,
        Y: Any,
        pool: Any,
        *,
        settings: Mapping[str, Any] | None = None,
        search: Any = "s_opt",
        period: Any = PERIOD,
    ) -> None:
        if not callable(search) and search not in SEARCHES:
            raise ValueError(f"search must be one of {', '.join(SEARCHES)} or callable, got {search!r}")
        self._search = search if callable(search) else SEARCHES[search]
        self._settings = spec.resolve(dict(settings or {}))
        self.schedule: Schedule = schedule(period)
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self._caches = Caches(X)
        self._pool = read_matrix(pool, "pool", self._caches.X.shape[1])
        self._Y = read_labels(Y, len(self._caches))
        self._digest = _digest(self._caches.X, self._Y, self._pool, self._settings)
        self._asked: list[int] = []
        self._distances2, self._measured = np.empty((0, len(self._pool))), 0
        self._measure()
        self._fit_again()

    def __len__(self) -> int:
        """Return the number of rows with labels."""
        return len(self._caches)

    @property
    def remaining(self) -> Array:
        """Pool rows that have not been told: int (remaining,)."""
        return np.setdiff1d(np.arange(len(self._pool)), self._asked)

    @property
    def projection(self) -> Array:
        """A (measurement, labels), of which `predict` returns estimates A y."""
        return self._inputs["projection"]

    @property
    def variance(self) -> Array:
        """Predictive variance of the remaining pool rows, noise included: (remaining, target)."""
        return self._variance[self.remaining]

    @property
    def nbytes(self) -> int:
        """Bytes of the tables that grow with the rows, reserves left out."""
        m, p = len(self), len(self.posterior.theta)
        tables = 2 * m * m + m * self._caches.X.shape[1] + m * len(self._pool) + p * (m * m + m)
        return 8 * tables + self._Y.nbytes + self._variance.nbytes

    def scores(self) -> Array:
        """Return sum_g lambda_g ln C_gg(z) of the remaining pool rows: (remaining,); ask the largest.

        Without a target, as long as all labels told are alike, all are 0.
        """
        return np.log(self.variance) @ self.compression.canonical.weights

    def tell(self, row: Any, labels: Any) -> None:
        """Take in the labels (labels,) of pool row `row`.

        Raises
        ------
        ValueError
            If the row is not in the pool or has been told, or the labels do not fit.
        """
        if isinstance(row, bool) or not isinstance(row, int | np.integer) or not 0 <= row < len(self._pool):
            raise ValueError(f"row must be an integer from 0 to {len(self._pool) - 1}, got {row!r}")
        if row in self._asked:
            raise ValueError(f"row {row} of the pool has been told already")
        y = read_labels(np.asarray(labels)[None], 1, self._Y.shape[1])
        self._append(int(row), y)
        self._fit_again()

    def predict(self, X: Any) -> Array:
        """Return the expected compressed rows A y of new mapped features: (new, measurement)."""
        canonical = self.compression.canonical
        mean = predict(self.posterior, self._caches, X).mean
        return (canonical.offset + mean @ canonical.loadings.T) / self._inputs["compressed_scale"]

    def state(self) -> State:
        """Return what `restore` needs."""
        asked = np.asarray(self._asked, int)
        labels = self._Y[len(self._Y) - len(asked) :]
        theta, age = self.posterior.theta, np.asarray(self.schedule.age)
        return State(asked, labels, theta, age, self._variance.copy(), np.asarray(self._digest))

    def save(self, path: Any) -> None:
        """Write the state as npz, whole or not at all."""
        with whole_file(Path(path)) as temporary, open(temporary, "wb") as handle:
            np.savez_compressed(handle, allow_pickle=False, **self.state()._asdict())

    def restore(self, state: State) -> None:
        """Go on where another run, constructed alike, was when its state was taken; O(m^3) a target.

        Scores are the same to the last digit; so is what a search then finds.

        Raises
        ------
        ValueError
            If the other run was constructed from other data or settings, or this one has been told rows.
        """
        if str(state.digest) != self._digest:
            raise ValueError("the state is of a run constructed from other features, labels or settings")
        if self._asked:
            raise ValueError(f"{len(self._asked)} rows have been told already: restore into a new run")
        # Row by row, as they came: products of whole tables would differ in the last digit.
        for row, y in zip(np.asarray(state.asked).tolist(), np.asarray(state.labels), strict=True):
            self._append(row, y[None])
        self._compress()
        self.schedule = self.schedule._replace(theta=np.asarray(state.theta), age=int(state.age))
        self.posterior = condition(state.theta, self.compression.canonical.targets, self._caches)
        self._variance = np.array(state.variance)

    def _append(self, row: int, y: Array) -> None:
        with self._clock("features"):
            self._caches.append(self._pool[[row]])
            self._Y = np.vstack([self._Y, y])
            self._asked.append(row)
            self._measure()

    def _measure(self) -> None:
        """Add the squared distances of the pool to new rows, in a table that is doubled when full."""
        m, known = len(self._caches), self._measured
        if m > len(self._distances2):
            table = np.empty((max(m, 2 * len(self._distances2)), len(self._pool)))
            table[:known] = self._distances2[:known]
            self._distances2 = table
        self._distances2[known:m] = cdist(self._caches.X[known:], self._pool, "sqeuclidean")
        self._measured = m

    def _compress(self) -> None:
        with self._clock("compression"):
            data = LabelData(np.zeros((len(self._Y), 1)), self._Y)
            self._inputs = spec.prepare(data, self._settings)
            self.compression = compress(self._inputs)

    def _fit_again(self) -> None:
        """Compress, search theta where due, and bring factors and variances up to the rows."""
        self._compress()
        U, anew = self.compression.canonical.targets, due(self.schedule)
        with self._clock("search"):
            self.schedule = advance(self.schedule, U, self._caches, self._search)
        theta = np.asarray(self.schedule.theta)
        kept = 0 if anew else min(len(self.posterior.theta), len(theta))
        with self._clock("factors"):
            parts = [condition(theta[kept:], U[:, kept:], self._caches)]
            if kept:
                old = Posterior(theta[:kept], self.posterior.factors[:kept], self.posterior.weights[:kept])
                parts.insert(0, extend(old, U[:, :kept], self._caches))
            self.posterior = parts[0] if len(parts) == 1 else joined(*parts)
        with self._clock("variances"):
            columns = [self._variance_anew(kept)]
            if kept:
                far = self._distances2[: len(self)]
                told = downdated(self._variance[:, :kept], self.posterior, self._caches, self._pool, far)
                columns.insert(0, told)
            self._variance = np.hstack(columns)

    def _variance_anew(self, first: int) -> Array:
        """Return the variances of targets from `first` on: (pool, target); m^2 pool flops a target."""
        theta, factors = self.posterior.theta[first:], self.posterior.factors[first:]
        fresh = Posterior(theta, factors, self.posterior.weights[first:])
        return predict(fresh, self._caches, self._pool).variance

    @contextmanager
    def _clock(self, part: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.seconds[part] += time.perf_counter() - begin


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


def read_labels(Y: Any, rows: int, labels: int | None = None) -> Array:
    """Return labels (row, labels), int8; ValueError naming the shape, or the cell that is not 0 or 1."""
    given = np.asarray(Y)
    if given.ndim != 2 or len(given) != rows or given.shape[1] != (labels or given.shape[1]):
        wanted = "labels" if labels is None else labels
        raise ValueError(f"labels must have shape ({rows}, {wanted}), got {given.shape}")
    bad = np.argwhere((given != 0) & (given != 1))
    if bad.size:
        row, label = bad[0]
        raise ValueError(f"labels has {given[row, label]} at row {row}, label {label}: it must be 0 or 1")
    return given.astype(np.int8)


def read_state(path: Any) -> State:
    """Return the state that `ActiveTargets.save` wrote."""
    with np.load(Path(path), allow_pickle=False) as held:
        return State(*(held[name] for name in State._fields))


def _digest(X: Array, Y: Array, pool: Array, settings: Mapping[str, Any]) -> str:
    hashed = sha256(repr(sorted(settings.items())).encode())
    for table in (X, Y, pool):
        hashed.update(repr(table.shape).encode())
        hashed.update(np.ascontiguousarray(table).tobytes())
    return hashed.hexdigest()
