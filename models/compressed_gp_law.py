"""The law of the targets of new rows under compressed_gp, which acquisition by weighted entropy reads.

At one point of the parameters the targets of new rows are jointly Gaussian given those of the training rows
(Shi and Yu, ICML 2019, eqs. 11 and 12); their covariance does not depend on labels to come. Over posterior
draws it is that of the mixture: the mean of the covariances plus the covariance of the means.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import lapack

from labelzoo.acquisition.target_law import TargetLaw
from labelzoo.arguments import size_words
from labelzoo.models.compressed_gp_predict import kernel_of, mapped_rows, theta_of
from labelzoo.models.spec import MAX_DENSE_BYTES

Array = Any

MAX_DRAWS = 50
"""Most posterior draws that the law reads, evenly spaced."""
FACTOR_BYTES = 2**29
"""Most memory for their Cholesky factors (512 MiB); fewer draws are read where these would pass it."""
TABLE_BYTES = 2**28
"""Distances and products of training and new rows are kept up to this (256 MiB), else made by blocks."""


class _Given(NamedTuple):
    """What covariances of new rows are made of: one posterior a draw, training rows and new rows."""

    posteriors: list[Any]
    means: Array
    rows: Array
    Z: Array
    table: tuple[Array, Array] | None


def target_law(draws: Mapping[str, Any], X_new: Any, constants: Mapping[str, Any]) -> TargetLaw:
    """Return the law of each new row's targets.

    Parameters
    ----------
    draws : mapping
        The five sites (sample, target).
    X_new : (row, feature)
        Dense or csr.
    constants : mapping
        As saved with the posterior.

    Raises
    ------
    ValueError
        If the new rows, which are kept for their covariances, are too large as a dense table.

    Notes
    -----
    rows^3 / 3 flops a draw and target, and rows^2 a new row. Without targets all rows are alike.
    """
    from labelzoo.inference.compressed_gp.kernel14 import Caches, condition, predict, prior_variance

    _refuse_large(*X_new.shape)
    Z, rows = mapped_rows(kernel_of(constants), X_new), np.asarray(constants["mapped"])
    U, weights = np.asarray(constants["targets"]), np.asarray(constants["target_weights"])
    theta = _thinned(theta_of(draws), len(rows))
    report = {"draws": len(theta), "fitted_rows": len(rows)}
    if not U.shape[1]:
        none = np.empty((len(Z), 0))
        return TargetLaw(none, weights, np.ones(len(Z)), lambda i: none, report)
    caches = Caches(rows)
    posteriors = [condition(one, U, caches) for one in theta]
    found = [predict(posterior, caches, Z) for posterior in posteriors]
    means = np.stack([one.mean for one in found])
    variance = np.mean([one.variance for one in found], axis=0) + means.var(axis=0)
    prior = np.mean([prior_variance(one, Z) for one in theta], axis=0) @ weights / weights.sum()
    given = _Given(posteriors, means - means.mean(axis=0), rows, Z, _table(rows, Z))
    return TargetLaw(variance, weights, prior, lambda i: _cross(given, i), report)


def _refuse_large(rows: int, features: int) -> None:
    size = 8.0 * rows * features
    if size > MAX_DENSE_BYTES:
        raise ValueError(
            f"X: the law of compressed targets keeps {rows} rows of {features} features as a dense table, "
            f"{size_words(size)}, above the cap of {size_words(MAX_DENSE_BYTES)}: pass fewer rows"
        )


def _thinned(theta: Array, rows: int) -> Array:
    """Return at most `MAX_DRAWS` draws whose factors fit into `FACTOR_BYTES`, at least one."""
    room = FACTOR_BYTES // (8 * max(theta.shape[1], 1) * rows**2)
    count = max(1, min(len(theta), MAX_DRAWS, room))
    return theta[np.linspace(0, len(theta) - 1, count).round().astype(int)]


def _table(rows: Array, Z: Array) -> tuple[Array, Array] | None:
    return _far_and_inner(rows, Z) if 16 * len(rows) * len(Z) <= TABLE_BYTES else None


def _far_and_inner(left: Array, right: Array) -> tuple[Array, Array]:
    from labelzoo.inference.compressed_gp.kernel14 import squared_distances

    return squared_distances(left, right), left @ right.T


def _cross(given: _Given, i: int) -> Array:
    """Return the covariance between new row i and every new row, without noise: (row, target)."""
    z = given.Z[i : i + 1]
    out = np.mean(given.means[:, i : i + 1] * given.means, axis=0)
    step = len(given.Z) if given.table else max(1, TABLE_BYTES // (16 * len(given.rows)))
    for begin in range(0, len(given.Z), step):
        block = slice(begin, begin + step)
        tables = given.table or _far_and_inner(given.rows, given.Z[block])
        for posterior in given.posteriors:
            out[block] += _of_one(posterior, given.rows, z, given.Z[block], tables) / len(given.posteriors)
    return out


def _of_one(posterior: Any, rows: Array, z: Array, Z: Array, tables: tuple[Array, Array]) -> Array:
    """Return k(z, Z) - k(z, rows) C^-1 k(rows, Z) of each target: (row, target)."""
    from labelzoo.inference.compressed_gp.kernel14 import kernel

    own, seen = _far_and_inner(z, Z), _far_and_inner(rows, z)
    out = np.empty((len(Z), len(posterior.theta)))
    for g, lower in enumerate(posterior.factors):
        one = posterior.theta[g : g + 1]
        solved = lapack.dpotrs(lower, kernel(one, *seen)[0], lower=1)[0].ravel()
        out[:, g] = kernel(one, *own)[0, 0] - solved @ kernel(one, *tables)[0]
    return out
