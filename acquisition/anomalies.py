"""Draws of label probabilities as an ensemble: covariances between rows, and conditioning on a row.

The anomalies of the draws give every covariance between rows and labels, label correlation included, and
conditioning on a row's labels is one linear (Kalman) step in the space of the draws.
"""

import warnings
from typing import Any, NamedTuple

import numpy as np

from labelzoo.acquisition.draws import as_blocks, read_blocks, whole

Array = Any

MIN_SAMPLES = 200
"""Below so many draws the ensemble's covariances are mostly noise."""

_BLOCK = 2**21  # numbers of a temporary array


class Ensemble(NamedTuple):
    """Anomalies of the label probabilities, scaled so that inner products are covariances.

    Attributes
    ----------
    anomalies : ndarray (sample, row, labels)
        (p - mean p) / sqrt(sample - 1).
    noise : ndarray (row, labels)
        E[p (1 - p)], the variance of a label that no draw explains.
    """

    anomalies: Array
    noise: Array


def make_ensemble(probs: Array) -> Ensemble:
    """Return the ensemble of `probs` (sample, row, labels), an array or `RowBlocks`.

    Raises
    ------
    ValueError
        If `probs` is not a 3-d array of probabilities with at least two samples; a bad number is named by
        sample, row and label.

    Warns
    -----
    UserWarning
        With fewer than 200 samples.
    """
    samples = _count(probs, "probs")
    values = whole(probs)
    if samples < MIN_SAMPLES:
        warnings.warn(f"{samples} draws: ensemble scores need at least {MIN_SAMPLES}", stacklevel=2)
    mean = values.mean(axis=0)
    anomalies = values - mean
    spread = np.einsum("srl,srl->rl", anomalies, anomalies) / samples
    anomalies /= np.sqrt(samples - 1)
    return Ensemble(anomalies, np.maximum(mean * (1 - mean) - spread, 0.0))


def target_gram(target_probs: Array, weights: Array | None = None) -> Array:
    """Return sum_t weights_t A_t A_t', all that scores need to know of the targets: (sample, sample).

    Parameters
    ----------
    target_probs : (sample, target, labels), array or RowBlocks
        The draws of the pool's `probs`, in the same order.
    weights : (target,)
        At least 0; default 1.

    Notes
    -----
    Cost 2 targets labels sample^2 flops; memory sample^2 and one block.
    """
    samples = _count(target_probs, "target_probs")
    weights = check_weights(weights, as_blocks(target_probs, "target_probs").rows)
    gram = np.zeros((samples, samples))
    for part, block in read_blocks(target_probs, "target_probs"):
        scaled = (block - block.mean(axis=0, dtype=float)) * np.sqrt(weights[part] / (samples - 1))[:, None]
        flat = scaled.reshape(samples, -1)
        gram += flat @ flat.T
    return gram


def check_weights(weights: Array | None, rows: int) -> Array:
    """Return `weights` as floats (row,), 1 where None; refuse all but finite numbers of at least 0."""
    if weights is None:
        return np.ones(rows)
    weights = np.asarray(weights, float)
    if weights.shape != (rows,) or not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError(f"weights must be {rows} finite numbers of at least 0, got shape {weights.shape}")
    return weights


def check_gram(gram: Array, samples: int) -> None:
    """Refuse a gram of another number of draws than the pool's."""
    if gram.shape != (samples, samples):
        raise ValueError(f"the targets have {len(gram)} draws, the pool has {samples}: they must be the same")


def variance_reduction(
    ensemble: Ensemble, weights: Array | None = None, *, gram: Array | None = None, debias: bool = False
) -> Array:
    """Return the predictive variance that observing each row's labels removes at the targets: (row,).

    With anomalies A_n (sample, labels) of row n and observation variance R_n = A_n'A_n + diag(noise_n),
    the score is sum over targets t of tr(A_t'A_n R_n^-1 A_n'A_t). The targets are those of `gram`
    (`target_gram`), or else the rows themselves, weighted by `weights` (default 1), row n left out.
    Units: variance of a probability, summed over labels and targets. Linear in the draws, so it is exact for
    jointly Gaussian probabilities and an approximation otherwise (Kalman 1960; Evensen 2003, equation 20).

    Draws that have nothing to do with one another still have a covariance: that of n and t is A_n'A_t with
    E[A_n'A_t A_t'A_n] = C_nt C_tn + (C_nt C_tn + C_nn tr C_tt) / (sample - 1) for Gaussian draws, C true.
    Over many targets the last term rules, and it is largest for the row that varies most. `debias` subtracts
    its plug-in, tr(R_n^-1 C_nn) tr(C_TT) / (sample - 1); a score may then be negative.

    Cost 2 rows labels sample^2 flops for the targets and the same for the scores, and per row a system of
    size min(labels, sample); memory sample^2 and one block beside the draws.
    """
    A, noise = ensemble
    samples, rows, labels = A.shape
    weights = np.zeros(rows) if gram is not None else check_weights(weights, rows)
    if gram is None:
        flat = (A * np.sqrt(weights)[None, :, None]).reshape(samples, -1)
        gram = flat @ flat.T
    check_gram(gram, samples)
    score = _by_labels if labels <= samples else _by_samples
    share = 1 / (samples - 1) if debias else 0.0
    step = max(1, _BLOCK // (max(samples, labels) * min(samples, labels)))
    scores = np.zeros(rows)
    for start in range(0, rows, step):
        part = slice(start, start + step)
        own = np.ascontiguousarray(A[:, part].transpose(1, 0, 2))  # matrix products are slow on strides
        scores[part] = score(own, floored(noise[part]), weights[part, None, None], gram, share)
    return scores if debias else np.maximum(scores, 0.0)


def condition(ensemble: Ensemble, row: int) -> Ensemble:
    """Return the ensemble after the labels of `row` have been asked, whatever the answers will be.

    The square-root update A <- (I + A_n diag(noise)^-1 A_n')^(-1/2) A leaves exactly the covariance of
    the linear-Gaussian posterior. Cost 4 rows labels sample min(labels, sample) flops.
    """
    A, noise = ensemble
    return Ensemble(_apply(shrinkage(ensemble, row), A), noise)


def condition_gram(ensemble: Ensemble, row: int, gram: Array) -> Array:
    """Return the targets' gram after the labels of `row` have been asked; `ensemble` is that before."""
    root = shrinkage(ensemble, row)
    return _apply(root, _apply(root, gram).T)


def shrinkage(ensemble: Ensemble, row: int) -> tuple[Array, Array]:
    """Return (U, c) with I + U diag(c) U' the symmetric square root that conditions on `row`."""
    own = ensemble.anomalies[:, row] / np.sqrt(floored(ensemble.noise[row]))
    vectors, values, _ = np.linalg.svd(own, full_matrices=False)
    return vectors, 1 / np.sqrt(1 + values**2) - 1


def _apply(root: tuple[Array, Array], A: Array) -> Array:
    vectors, shrink = root
    flat = A.reshape(len(A), -1)
    return (flat + vectors @ (shrink[:, None] * (vectors.T @ flat))).reshape(A.shape)


def _by_labels(own: Array, noise: Array, weights: Array, gram: Array, share: float) -> Array:
    # tr(R^-1 A'(G - w A A' - s I)A) for a block of rows, s = share tr(G - w A A'); own (row, sample, labels),
    # systems of size labels.
    turned = np.ascontiguousarray(own.transpose(0, 2, 1))
    cross = turned @ own
    seen = turned @ (gram @ own)
    if weights.any():
        seen -= weights * (cross @ cross)
    if share:
        spread = np.trace(gram) - weights * np.trace(cross, axis1=1, axis2=2)[:, None, None]
        seen -= share * spread * cross
    cross[:, np.arange(noise.shape[1]), np.arange(noise.shape[1])] += noise
    return np.trace(np.linalg.solve(cross, seen), axis1=1, axis2=2)


def _by_samples(own: Array, noise: Array, weights: Array, gram: Array, share: float) -> Array:
    # The same by A R^-1 A' = I - (I + A D^-1 A')^-1, in systems of size sample.
    turned = np.ascontiguousarray(own.transpose(0, 2, 1))
    inner = (own / noise[:, None, :]) @ turned
    target = gram - weights * (own @ turned) if weights.any() else gram
    if share:
        spread = np.trace(np.broadcast_to(target, inner.shape), axis1=1, axis2=2)[:, None, None]
        target = target - share * spread * np.eye(inner.shape[1])
    inverse = np.linalg.inv(np.eye(inner.shape[1]) + inner)
    return np.trace(np.broadcast_to(target, inner.shape), axis1=1, axis2=2) - (inverse * target).sum((1, 2))


def _count(probs: Any, name: str) -> int:
    blocks = as_blocks(probs, name)
    if blocks.samples < 2:
        raise ValueError(
            f"{name} must be (sample, row, labels) with two samples or more, got shape {blocks.shape}"
        )
    return blocks.samples


def floored(noise: Array) -> Array:
    """Return noise above 0: a label that every draw calls certain has none; its anomalies are zero too."""
    return np.maximum(noise, 1e-12)
