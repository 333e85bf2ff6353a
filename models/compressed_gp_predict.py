"""From a new row's features to label probabilities under compressed_gp: targets first, then a decoder.

The mean of target g at a row is m_g(x) = k_g(x)' C_g^-1 u_g, the compressed row r = offset + loadings m
brought back to the units of projection y. What is read off it depends on the setting ``decoder``:

* ``regression``: E[y_j] = f_j + sum_g b_gj m_g(x), cut to `MIN_PROB` and 1 - `MIN_PROB`, where f_j is the
  smoothed frequency of label j and b_gj its regression on the targets by least squares, which is
  sum_n u_ng y_nj / rows where they are uncorrelated. It is learned from the training rows, so it cannot find
  a label that none of them has.
* ``bp``, ``omp``, ``corr``: the scores of `labelzoo.inference.compressed_gp.ranking.decode`, mapped
  increasingly between `MIN_PROB` and 1 - `MIN_PROB` so that all labels are ranked as they were. These are
  scores and no probabilities: nothing calibrates them. They see labels only through the projection, so that
  a label unseen in training can be found.

Means do not depend on the noise of new rows, and neither do the rules: a draw's probabilities have no noise.
``bp`` costs a linear program for each row and draw: it is for engines that give one point.

Shi and Yu, ICML 2019, section 3.1 and eq. 11.
"""

import hashlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve
from scipy import sparse

from labelzoo.models.compressed_gp import SITES, Logs, function_covariance, with_noise
from labelzoo.models.gp_kernel import GPKernel

Array = Any
Constants = Mapping[str, Any]

DECODERS = ("regression", "bp", "omp", "corr")
LEVELS = ("mean", "item")
MIN_PROB = 1e-3
"""Probabilities stay this far from 0 and 1 (scores: but for units in the last place)."""
HIGHEST = {"corr": 1.0, "omp": 2.0, "bp": 1.0 + 1e-6}
"""Upper ends of the scores, which are at least 0."""
KEPT_BYTES = 2**28
"""Most memory for the weights of all draws (256 MiB); beyond it each block of rows factors anew."""

BLOCK_BYTES = 2**26
"""Mapped new rows, with their distances and products to training rows, that one block holds (64 MiB)."""


def kernel_of(constants: Constants) -> GPKernel:
    """Return the map of the features from saved constants."""
    return GPKernel(bool(constants["is_cosine"]), constants["center"], constants["scale"])


def mapped_rows(kernel: GPKernel, X: Any, first: int = 0) -> Array:
    """Return mapped rows, squared distances between them of order 1: dense (row, feature).

    `first` is the number of the first row, for messages.

    Raises
    ------
    ValueError
        Naming the first row so far from the training rows that its square cannot be held.
    """
    Z = kernel.mapped(X)
    Z = Z.toarray() if sparse.issparse(Z) else np.asarray(Z, float)
    if not kernel.is_cosine:
        Z = Z / np.sqrt(Z.shape[1])
    with np.errstate(over="ignore"):
        far = np.flatnonzero(~np.isfinite((Z**2).sum(axis=1)))
    if len(far):
        row = first + int(far[0])
        raise ValueError(f"X: row {row} is too far from the training rows: its squares cannot be held")
    return Z


def theta_of(draws: Mapping[str, Any]) -> Array:
    """Return (sample, target, 5), the parameters of each draw, from sites (sample, target)."""
    return np.exp(np.stack([np.asarray(draws[name], float) for name in SITES], axis=-1))


def predict(draw: Mapping[str, Any], X_new: Array, constants: Constants) -> Array:
    """Return the decoded probabilities at one draw: (row, labels); see the top of the module."""
    means = _means(Logs(*(jnp.asarray(draw[name]) for name in SITES)), X_new, constants)
    method = str(constants["decoder"])
    if method == "regression":
        return jnp.clip(regressed(means, constants), MIN_PROB, 1.0 - MIN_PROB)
    R = compressed_of(means, constants)
    shape = jax.ShapeDtypeStruct((len(R), np.shape(constants["projection"])[1]), means.dtype)
    # The pursuit is compiled, and no callback may run what is compiled: it stays outside.
    selected = _pursued(R, constants) if method == "omp" else jnp.zeros((len(R), 0), bool)

    def finish(rows: Array, chosen: Array) -> Array:
        scores = _pursuit_scores(rows, chosen, constants) if method == "omp" else _ranked(rows, constants)
        return squeezed(scores, method)

    return jax.pure_callback(finish, shape, R, selected, vmap_method="sequential")


def _means(logs: Logs, X_new: Array, constants: Constants) -> Array:
    """Return m (row, target), traceable; rows^3 flops a target."""
    rows, U = jnp.asarray(constants["mapped"]), jnp.asarray(constants["targets"])
    Z = (X_new - constants["center"]) * constants["scale"]
    if bool(constants["is_cosine"]):
        norm = jnp.linalg.norm(Z, axis=1, keepdims=True)
        Z = jnp.where(norm > 0, Z / jnp.where(norm > 0, norm, 1.0), 0.0)
    else:
        Z = Z / np.sqrt(rows.shape[1])
    C = with_noise(function_covariance(logs, _far(rows, rows), rows @ rows.T), logs)
    solved = cho_solve((jnp.linalg.cholesky(C), True), U.T[..., None])
    return (function_covariance(logs, _far(Z, rows), Z @ rows.T) @ solved)[..., 0].T


def _far(left: Array, right: Array) -> Array:
    square = (left**2).sum(1)[:, None] + (right**2).sum(1)[None, :] - 2.0 * left @ right.T
    return jnp.maximum(square, 0.0)


def regressed(means: Array, constants: Constants) -> Array:
    """Return f_j + sum_g b_gj m_g of each row, not cut: (row, labels)."""
    return constants["label_frequency"] + means @ constants["label_coefficients"]


def compressed_of(means: Array, constants: Constants) -> Array:
    """Return the compressed rows offset + loadings m, in the units of projection y: (row, measurement)."""
    return (constants["offset"] + means @ constants["loadings"].T) / constants["compressed_scale"]


def _pursued(R: Array, constants: Constants) -> Array:
    """Return which labels the pursuit selects with a coefficient above 0, traceable: bool (row, labels)."""
    from labelzoo.inference.compressed_gp.decoding import pursue

    A = jnp.asarray(constants["projection"])
    level = min(int(constants["training_level"]), A.shape[1])
    coefficients, selected = pursue(R, A, jnp.full(len(R), level), min(level, *A.shape))
    return selected & (coefficients > 0)


def _pursuit_scores(R: Array, selected: Array, constants: Constants) -> Array:
    from labelzoo.inference.compressed_gp.decoding import correlation
    from labelzoo.inference.compressed_gp.ranking import scored

    return scored(correlation(R, constants["projection"]), selected, constants["label_frequency"])


def _ranked(compressed: Array, constants: Constants) -> Array:
    from labelzoo.inference.compressed_gp.ranking import decode

    return decode(
        compressed,
        constants["projection"],
        levels=int(constants["training_level"]),
        frequency=constants["label_frequency"],
        method=str(constants["decoder"]),
    ).scores


def squeezed(scores: Any, method: str) -> Array:
    """Return scores of which no two of a row are alike between `MIN_PROB` and 1 - `MIN_PROB`, ranked alike.

    Linear; scores that rounding brings together are moved apart again by units in the last place.
    """
    S = np.asarray(scores, float)
    order = np.argsort(-S, axis=1, kind="stable")
    out = MIN_PROB + (1.0 - 2.0 * MIN_PROB) / HIGHEST[method] * np.take_along_axis(S, order, axis=1)
    for j in range(1, S.shape[1]):
        out[:, j] = np.minimum(out[:, j], np.nextafter(out[:, j - 1], -np.inf))
    place = np.empty_like(S)
    np.put_along_axis(place, order, out, axis=1)
    return place


def decoded_probs(means: Array, constants: Constants) -> Array:
    """Return what `predict` makes of the means of the targets, in NumPy: (row, labels)."""
    method = str(constants["decoder"])
    if method == "regression":
        return np.clip(regressed(means, constants), MIN_PROB, 1.0 - MIN_PROB)
    return squeezed(_ranked(compressed_of(means, constants), constants), method)


def predict_draws(draws: Mapping[str, Any], X_new: Any, constants: Constants, rng: Any) -> Array:
    """Return P(label = 1) of new rows (dense or csr), draw by draw: (sample, row, labels).

    rows^3 / 3 flops a draw and target once for all blocks of new rows, and new x rows for the means;
    nothing is random.
    """
    return np.stack([decoded_probs(means, constants) for means in draw_means(draws, X_new, constants)])


def predict_moments(
    draws: Mapping[str, Any], X_new: Any, constants: Constants, rng: Any
) -> tuple[Array, Array]:
    """Return mean and sd over draws of `predict_draws`, one table (row, labels) at a time."""
    mean = square = np.zeros(())
    for count, means in enumerate(draw_means(draws, X_new, constants), 1):
        probs = decoded_probs(means, constants)
        step = probs - mean
        mean = mean + step / count
        square = square + step * (probs - mean)
    return mean, np.sqrt(square / count)


def mean_targets(draws: Mapping[str, Any], X_new: Any, constants: Constants) -> Array:
    """Return the means of the targets at new rows (dense or csr), over all draws: (row, target).

    One table (row, target) is kept, and rows are mapped by blocks of `BLOCK_BYTES`.
    """
    fitted, features = np.shape(constants["mapped"])
    step = max(1, BLOCK_BYTES // (8 * (features + 2 * fitted)))
    out = np.zeros((X_new.shape[0], np.shape(constants["targets"])[1]))
    for begin in range(0, len(out), step):
        block = out[begin : begin + step]
        for count, means in enumerate(draw_means(draws, X_new[begin : begin + step], constants, begin), 1):
            block += (means - block) / count
    return out


def draw_means(draws: Mapping[str, Any], X_new: Any, constants: Constants, first: int = 0) -> Iterator[Array]:
    """Yield the means of the targets at new rows of each draw: (row, target); `first` as in `mapped_rows`."""
    from labelzoo.inference.compressed_gp.kernel14 import kernel, squared_distances

    Z, rows, theta = mapped_rows(kernel_of(constants), X_new, first), constants["mapped"], theta_of(draws)
    far, inner = squared_distances(Z, rows), Z @ rows.T
    for one, weights in zip(theta, weights_of(theta, constants), strict=True):
        means = np.empty((len(Z), theta.shape[1]))
        for g in range(theta.shape[1]):
            means[:, g] = kernel(one[g : g + 1], far, inner)[0] @ weights[g]
        yield means


def weights_of(theta: Array, constants: Constants) -> Iterator[Array]:
    """Yield C_g^-1 u_g of each draw (target, row); kept for the next block of rows where they are small."""
    U, mapped = np.asarray(constants["targets"]), np.asarray(constants["mapped"])
    if 8 * theta.shape[0] * U.size > KEPT_BYTES:
        yield from _weights(theta, U, mapped)
    else:
        yield from _kept_weights(_Tables(theta, U, mapped))


class _Tables:
    """Arrays, compared by content."""

    def __init__(self, *arrays: Array) -> None:
        digest = hashlib.sha256()
        for array in arrays:
            digest.update(f"{array.shape}".encode())
            digest.update(np.ascontiguousarray(array, float).tobytes())
        self.arrays, self.digest = arrays, digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Tables) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


@lru_cache(maxsize=2)
def _kept_weights(tables: _Tables) -> Array:
    theta, U, mapped = tables.arrays
    kept = np.empty((theta.shape[0], U.shape[1], U.shape[0]))
    for s, weights in enumerate(_weights(theta, U, mapped)):
        kept[s] = weights
    return kept


def _weights(theta: Array, U: Array, mapped: Array) -> Iterator[Array]:
    from labelzoo.inference.compressed_gp.kernel14 import Caches, condition

    caches = Caches(mapped)
    for one in theta:
        yield condition(one, U, caches).weights
