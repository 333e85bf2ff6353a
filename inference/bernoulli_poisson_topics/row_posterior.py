"""The embedding of one row given its known labels and the globals: exact sums and importance samples.

Given x, V, W, r, the observed zeros of a row make its embedding u_k ~ Gamma(r_k, b_k),
b_k = e^-psi_k + (mass of the observed zeros); every observed positive multiplies this density by
1 - exp(-lambda_l). Products of the latter expand into 2^positives gamma integrals (inclusion and exclusion,
the generalisation of eq. 19 of Rai et al. 2015), or are averaged over draws.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln

Array = Any
Floats = NDArray[np.float64]

MAX_EXACT = 5
"""Positives of a row up to which all subsets are summed."""

MAX_LOG = 200.0
"""psi is cut to this in absolute value, so that neither e^-psi nor its products leave the floats."""

EPS = 2.0**-52


class KnownRow(NamedTuple):
    """What is known of a row, under one draw of the globals; rows of equally many positives may be stacked.

    Attributes
    ----------
    shape : array (topic,)
        r.
    rate : array (..., topic)
        b, the rate of the embedding given x and the observed zeros.
    positives : array (..., positive, topic)
        v_kl of the observed positives.
    log_zeros : float or array (...)
        log p(observed zeros | x) = -sum_k r_k log(1 + zeros_k e^psi_k).
    """

    shape: Floats
    rate: Floats
    positives: Floats
    log_zeros: Any


class Subsets(NamedTuple):
    """Terms of inclusion and exclusion over the positives.

    Attributes
    ----------
    mass : array (..., subset, topic)
        Sum of v_kl over the subset.
    term : array (..., subset)
        (-1)^size E exp(-sum_k u_k mass_k) under the gamma law given the zeros.
    """

    mass: Floats
    term: Floats


class Samples(NamedTuple):
    """Weighted draws of the embedding.

    Attributes
    ----------
    embedding : array (sample, topic)
    weight : array (sample,)
        Sums to one.
    log_mean : float
        log of the mean weight before it was scaled: log p(positives | x, zeros).
    log_error : float
        Its standard error.
    effective : float
        1 / sum of squared weights.
    """

    embedding: Floats
    weight: Floats
    log_mean: float
    log_error: float
    effective: float


def given_zeros(shape: Floats, psi: Floats, zeros: Floats) -> tuple[Floats, Any]:
    """Return the rate of the embedding given x and the zeros, (..., topic), and log p(zeros | x), (...).

    `psi` is the linear predictor and `zeros` the mass of the labels known to be 0, (..., topic) both.
    """
    inverse = np.exp(-np.clip(psi, -MAX_LOG, MAX_LOG))
    return inverse + zeros, -(shape * np.log1p(zeros / inverse)).sum(axis=-1)


def known_row(topics: Floats, shape: Floats, psi: Floats, zeros: Floats, positives: Any) -> KnownRow:
    """Return what is known of a row whose labels `positives` are 1; see `given_zeros`.

    `topics` is (topic, labels), `psi` and `zeros` are (topic,).
    """
    rate, log_zeros = given_zeros(shape, psi, zeros)
    return KnownRow(shape, rate, topics[:, positives].T, float(log_zeros))


def subset_mass(weights: Floats) -> Floats:
    """Return the sum of `weights` (..., label, topic) over every subset of labels: (..., subset, topic).

    Subset s holds label i where bit i of s is set.
    """
    mass = np.zeros((*weights.shape[:-2], 1, weights.shape[-1]))
    for i in range(weights.shape[-2]):
        mass = np.concatenate([mass, mass + weights[..., i : i + 1, :]], axis=-2)
    return mass


def subsets(row: KnownRow) -> Subsets:
    """Sum over all subsets of the positives: 2^positives x topics numbers, before them any axes of rows."""
    mass, sign = subset_mass(row.positives), np.ones(1)
    for _ in range(row.positives.shape[-2]):
        sign = np.concatenate([sign, -sign])
    return Subsets(mass, sign * np.exp(-np.log1p(mass / row.rate[..., None, :]) @ row.shape))


def log_known_exact(row: KnownRow, found: Subsets) -> tuple[Any, Any]:
    """Return log p(observed labels | x) and the relative rounding error of p; NaN and inf if digits are gone.

    The terms alternate: the error is 2^-52 (sum of absolute terms) / (sum of terms), times the length of the
    longest sum. Both have the axes of rows that `found` has.
    """
    total = found.term.sum(axis=-1)
    safe = np.where(total > 0, total, np.nan)
    relative = (1 + row.positives.shape[-2]) * EPS * np.abs(found.term).sum(axis=-1) / safe
    return np.log(safe) + row.log_zeros, np.where(total > 0, relative, np.inf)


def log_gamma_draws(rng: np.random.Generator, shape: Floats, count: int) -> Floats:
    """Draw log Gamma(shape, 1), (count, topic); small shapes do not underflow."""
    base = np.log(rng.standard_gamma(np.broadcast_to(shape + 1.0, (count, len(shape)))))
    return np.asarray(base - rng.standard_exponential(base.shape) / shape)


def mean_field(row: KnownRow, sweeps: int = 12) -> tuple[Floats, Floats]:
    """Return shape and rate of the gamma factors that mean field gives the embedding: two (topic,) arrays."""
    rate = row.rate + row.positives.sum(axis=0)
    a = row.shape.copy()
    for _ in range(sweeps if len(row.positives) else 0):
        weights = row.positives * np.exp(digamma(a)) / rate
        total = np.maximum(weights.sum(axis=1, keepdims=True), 1e-300)
        a = row.shape + (weights / total * expected_count(total)).sum(axis=0)
    return a, rate


def expected_count(rate: Floats) -> Floats:
    """Return the mean of a Poisson count that is known to be positive."""
    return np.where(rate > 1e-8, rate / -np.expm1(-np.maximum(rate, 1e-30)), 1 + rate / 2)


def log_positive(rate: Floats) -> Floats:
    """Return log(1 - exp(-rate)), stable at both ends."""
    rate = np.maximum(rate, 1e-300)
    small, large = np.minimum(rate, 1.0), np.maximum(rate, 0.5)
    return np.where(rate < 0.6931, np.log(-np.expm1(-small)), np.log1p(-np.exp(-large)))


def samples(row: KnownRow, rng: np.random.Generator, count: int) -> Samples:
    """Draw the embedding, half from the gamma law given the zeros, half from the mean-field factor.

    The weights are then at most twice the likelihood of the positives, so their variance is finite; the
    mean weight is unbiased for p(positives | x, zeros).
    """
    half = max(count // 2, 1)
    a, rate = mean_field(row)
    log_u = np.concatenate(
        [
            log_gamma_draws(rng, row.shape, half) - np.log(row.rate),
            log_gamma_draws(rng, a, half) - np.log(rate),
        ]
    )
    u = np.exp(log_u)
    log_base = _log_density(log_u, u, row.shape, row.rate)
    log_factor = _log_density(log_u, u, a, rate)
    log_weight = log_positive(u @ row.positives.T).sum(axis=1)
    log_weight = log_weight - np.logaddexp(0.0, log_factor - log_base) + np.log(2.0)
    return _weighted(u, log_weight)


def _log_density(log_u: Floats, u: Floats, a: Floats, rate: Floats) -> Floats:
    """Density of log u, up to no constant: (sample,)."""
    return np.asarray((a * (log_u + np.log(rate)) - rate * u - gammaln(a)).sum(axis=1))


def _weighted(u: Floats, log_weight: Floats) -> Samples:
    top = log_weight.max()
    weight = np.exp(log_weight - top)
    half = len(weight) // 2
    mean = weight.mean()
    # Two strata, each of its own variance.
    variance = (weight[:half].var(ddof=1) + weight[half:].var(ddof=1)) / 4 / half if half > 1 else mean**2
    scaled = weight / weight.sum()
    error = float(np.sqrt(variance) / mean)
    return Samples(u, scaled, float(np.log(mean) + top), error, float(1 / (scaled**2).sum()))
