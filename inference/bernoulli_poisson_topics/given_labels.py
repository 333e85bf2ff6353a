"""Unknown labels of a row given its known ones, without fitting anew: p(y_l = 1 | x, y_known, V, W, r)."""

from typing import Any, NamedTuple

import numpy as np

from labelzoo.inference.bernoulli_poisson_topics.row_posterior import (
    EPS,
    MAX_EXACT,
    Floats,
    KnownRow,
    Samples,
    Subsets,
    known_row,
    log_known_exact,
    samples,
    subsets,
)

Array = Any

MAX_ERROR = 1e-8
"""Rounding error of a probability above which the exact sum gives way to sampling."""

MIN_EFFECTIVE = 100.0
"""Effective samples below which importance weights give way to a Gibbs run."""

CHAINS, WARMUP, SWEEPS = 32, 30, 60
"""Of the Gibbs run: chains side by side, sweeps dropped, sweeps kept."""


CELLS_AT_ONCE = 2**20
"""Samples x labels held at one time (8 MB an array)."""


class GivenLabels(NamedTuple):
    """Probabilities of one row's labels given its known ones.

    Attributes
    ----------
    prob : array (labels,)
        For every label as if it were unknown; the caller puts the known ones back.
    error : array (labels,)
        Monte Carlo standard error, or the bound on rounding where the sum is exact.
    log_known : float
        log p(y_known | x), nats.
    log_known_error : float
        Standard error (relative rounding error where exact).
    method : {"exact", "importance", "gibbs"}
    effective : float
        Effective samples; inf where exact.
    """

    prob: Floats
    error: Floats
    log_known: float
    log_known_error: float
    method: str
    effective: float


def given_labels(
    topics: Floats,
    shape: Floats,
    psi: Floats,
    zeros: Floats,
    positives: Any,
    rng: np.random.Generator,
    *,
    asked: Any = None,
    num_samples: int = 400,
    max_exact: int = MAX_EXACT,
    min_effective: float = MIN_EFFECTIVE,
) -> GivenLabels:
    """Return the probabilities of all labels of a row given those that are known.

    Parameters
    ----------
    topics : array (topic, labels)
        V.
    shape, psi : array (topic,)
        r, and the row's linear predictor.
    zeros : array (topic,)
        Mass sum of v_kl over the labels known to be 0.
    positives : int array
        Labels known to be 1.
    asked : int array or None
        Labels whose probability is wanted, in this order (None: all).
    num_samples : int
        Importance samples.
    max_exact : int
        Rows with at most so many positives are summed exactly, at 2^positives x topics x labels flops.
    min_effective : float
        With fewer effective samples, a Gibbs run by first arrivals takes over.
    """
    row = known_row(topics, shape, psi, zeros, positives)
    topics = topics if asked is None else topics[:, asked]
    if len(row.positives) <= max_exact:
        found = exact(row, topics)
        if found is not None:
            return found
    drawn = samples(row, rng, num_samples)
    log_known = row.log_zeros + drawn.log_mean
    if drawn.effective < min_effective:
        prob, error = gibbs(row, topics, rng)
        return GivenLabels(prob, error, log_known, drawn.log_error, "gibbs", drawn.effective)
    prob, error = weighted_probs(drawn, topics)
    return GivenLabels(prob, error, log_known, drawn.log_error, "importance", drawn.effective)


def weighted_probs(drawn: Samples, topics: Floats) -> tuple[Floats, Floats]:
    """Return the weighted mean of 1 - exp(-lambda_l) over samples and its standard error: (labels,) both.

    Labels are taken `CELLS_AT_ONCE` // samples at a time.
    """
    out = np.empty((2, topics.shape[1]))
    square = drawn.weight**2
    step = max(1, CELLS_AT_ONCE // len(square))
    for start in range(0, topics.shape[1], step):
        f = -np.expm1(-(drawn.embedding @ topics[:, start : start + step]))
        prob = drawn.weight @ f
        variance = square @ f**2 - 2 * prob * (square @ f) + prob**2 * square.sum()
        out[:, start : start + step] = prob, np.sqrt(np.maximum(variance, 0.0))
    return out[0], out[1]


def exact(row: KnownRow, topics: Floats) -> GivenLabels | None:
    """Return the probabilities by inclusion and exclusion; None where rounding would pass `MAX_ERROR`.

    p_l = sum_S term_S [1 - prod_k (1 + v_kl / (b_k + mass_Sk))^-r_k] / sum_S term_S: with no known positive,
    eq. 19 of the paper.
    """
    found = subsets(row)
    log_known, relative = (float(one) for one in log_known_exact(row, found))
    if not relative < MAX_ERROR:
        return None
    below = _positive_under(row, found, topics)
    total = found.term.sum()
    prob = found.term @ below / total
    rounding = (1 + len(row.positives)) * EPS * (np.abs(found.term) @ below) / total + prob * relative
    if not rounding.max(initial=0.0) < MAX_ERROR:
        return None
    # What rounding has pushed to zero or below is somewhere below its bound.
    prob = np.clip(np.where(prob > 0, prob, rounding), 0.0, 1.0)
    return GivenLabels(prob, rounding, log_known, relative, "exact", float("inf"))


def _positive_under(row: KnownRow, found: Subsets, topics: Floats) -> Floats:
    """Return 1 - E exp(-lambda_l) with the rate raised by each subset's mass: (subset, labels)."""
    out = np.empty((len(found.term), topics.shape[1]))
    for i, mass in enumerate(found.mass):
        out[i] = -np.expm1(-(row.shape @ np.log1p(topics / (row.rate + mass)[:, None])))
    return out


def gibbs(row: KnownRow, topics: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return probabilities and their errors from `CHAINS` Gibbs runs by first arrivals.

    A positive keeps the time t in (0, 1) and topic z of its first arrival: t is exponential of rate lambda
    cut to (0, 1), z categorical with weights v_kl u_k; then u_k ~ Gamma(r_k + count of z, b_k + sum of t
    v_kl). Errors come from the spread of the chains' means; chains start at draws given the zeros alone.
    """
    u = rng.standard_gamma(np.broadcast_to(row.shape, (CHAINS, len(row.shape)))) / row.rate
    total = np.zeros((CHAINS, topics.shape[1]))
    for sweep in range(WARMUP + SWEEPS):
        u = _arrival_sweep(row, u, rng)
        if sweep >= WARMUP:
            total -= np.expm1(-(u @ topics))
    means = total / SWEEPS
    return means.mean(axis=0), means.std(axis=0, ddof=1) / np.sqrt(CHAINS)


def _arrival_sweep(row: KnownRow, u: Floats, rng: np.random.Generator) -> Floats:
    """Draw (t, z), then u, for every chain: (chain, topic)."""
    part = np.maximum(u[:, None, :] * row.positives[None], 1e-300)
    cumulative = part.cumsum(axis=2)
    rate = cumulative[:, :, -1]
    time = -np.log1p(rng.random(rate.shape) * np.expm1(-rate)) / rate
    topic = (cumulative < (rng.random(rate.shape) * rate)[:, :, None]).sum(axis=2)
    topic = np.minimum(topic, len(row.shape) - 1)
    counts = np.zeros_like(u)
    np.add.at(counts, (np.arange(len(u))[:, None], topic), 1.0)
    return np.asarray(rng.standard_gamma(row.shape + counts) / (row.rate + time @ row.positives))
