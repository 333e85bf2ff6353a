r"""Ranks of true values among posterior draws, and an exact test of their uniformity.

The test is that of the simultaneous envelope of the empirical distribution function (Sailynoja, Burkner and
Vehtari, "Graphical test for discrete uniformity", Statistics and Computing 32, 2022): the smallest binomial
tail probability over the evaluation points. Its law is computed, not simulated, since the limits of a whole
suite lie far out: bin counts are Poisson counts given their sum, so the chance that the running count stays
inside given bounds is a chain of convolutions.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binom, norm, poisson

MOST_POINTS = 50
SMALLEST_P = 1e-11
"""Differences from one below this are rounding."""


class Ranks(NamedTuple):
    """Ranks of one quantity.

    Attributes
    ----------
    name : str
    rank : int array (replicate,)
        From 0 to `draws`.
    draws : int
        Draws that each true value was ranked among.
    """

    name: str
    rank: np.ndarray
    draws: int

    @property
    def pit(self) -> np.ndarray:
        """Ranks on (0, 1): the middle of each rank's share."""
        return (self.rank + 0.5) / (self.draws + 1.0)

    @property
    def z(self) -> float:
        """The uniformity test's p as a two-sided normal score."""
        return float(norm.isf(0.5 * uniformity_p(self.rank, self.draws)))

    @property
    def tails(self) -> float:
        """Share of ranks in the outer tenth (a twentieth on each side): .1 where calibrated."""
        return float((np.abs(self.pit - 0.5) > 0.45).mean())


def rank_among(truth: np.ndarray, draws: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the number of draws below the truth, ties broken at random.

    Parameters
    ----------
    truth : array (replicate,)
    draws : array (replicate, draw)

    Raises
    ------
    ValueError
        If there is a NaN among them, or they do not belong together.
    """
    if truth.shape != draws.shape[:1]:
        raise ValueError(f"truth of shape {truth.shape} for draws of shape {draws.shape}")
    if np.isnan(truth).any() or np.isnan(draws).any():
        raise ValueError("truth or draws hold NaN, which has no rank")
    below = (draws < truth[:, None]).sum(axis=1)
    equal = (draws == truth[:, None]).sum(axis=1)
    return below + rng.integers(0, equal + 1)


def thinned(size: int, effective: float) -> np.ndarray:
    """Return indices of evenly spaced draws of a chain, as many as its effective size."""
    kept = int(np.clip(effective, 1, size))
    return np.linspace(0, size - 1, kept).round().astype(int)


def uniformity_p(rank: np.ndarray, draws: int) -> float:
    """Return the p-value of the envelope test that ranks are uniform on 0, ..., `draws`.

    Raises
    ------
    ValueError
        If there are no ranks.
    """
    if not len(rank):
        raise ValueError("there are no ranks to test")
    points = np.unique(np.linspace(1, draws, min(draws, MOST_POINTS)).round().astype(int))
    at = points / (draws + 1.0)
    size = len(rank)
    counts = np.searchsorted(np.sort(rank), points, side="left")
    tail = _two_sided(counts, size, at).min()
    return float(np.clip(1.0 - _inside(size, at, tail), SMALLEST_P, 1.0))


def _two_sided(counts: Any, size: int, at: Any) -> np.ndarray:
    return np.minimum(binom.cdf(counts, size, at), binom.sf(counts - 1, size, at))


def _inside(size: int, at: np.ndarray, tail: float) -> float:
    """Return P(every running count has both tails above `tail`) for uniform ranks."""
    every = np.arange(size + 1)
    # A hair below, so that the observed statistic itself is outside whatever the rounding.
    allowed = _two_sided(every[None, :], size, at[:, None]) > tail * (1 + 1e-9)
    widths = np.diff(np.concatenate([[0.0], at, [1.0]]))
    chance = np.zeros(size + 1)
    chance[0] = 1.0
    for width, row in zip(widths[:-1], allowed, strict=True):
        chance = np.convolve(chance, poisson.pmf(every, size * width))[: size + 1] * row
    last = (chance * poisson.pmf(size - every, size * widths[-1])).sum()
    return float(last / poisson.pmf(size, size))
