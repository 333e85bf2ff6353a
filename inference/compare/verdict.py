"""What the numbers support, in one sentence: pure functions on draws of functionals."""

from typing import Any, NamedTuple

import numpy as np
from arviz_stats.base.array import array_stats
from scipy.stats import norm

Array = Any

RHAT_LIMIT = 1.01
"""Split R-hat above which draws are not judged."""

AGREE_SD = 0.2
"""Engines agree when the 95 % upper limit of |difference| is below this many posterior sds."""

FALSE_ALARM = 1e-3
"""Family-wise probability of refuting a right engine."""


class Moments(NamedTuple):
    """Mean, sd, Monte Carlo error of the mean, R-hat, bulk and tail ESS: arrays (functional,)."""

    mean: Array
    sd: Array
    mcse: Array
    rhat: Array
    ess_bulk: Array
    ess_tail: Array


def moments(values: Array) -> Moments:
    """Summarise draws (chain, draw, functional).

    A functional that never moves has sd 0 and NaN diagnostics. One chain has NaN R-hat from fewer than
    four draws; split R-hat needs no second chain.
    """
    values = np.asarray(values, float)
    mean, sd = values.mean(axis=(0, 1)), values.std(axis=(0, 1))
    nan = np.full(mean.shape, np.nan)
    if values.shape[1] < 4:
        return Moments(mean, sd, nan, nan, nan, nan)
    moves = sd > 1e-12 * (1 + np.abs(mean))
    out = {}
    axes = {"chain_axis": 0, "draw_axis": 1}
    for name, compute in (
        ("mcse", lambda x: array_stats.mcse(x, method="mean", **axes)),
        ("rhat", lambda x: array_stats.rhat(x, **axes)),
        ("ess_bulk", lambda x: array_stats.ess(x, method="bulk", **axes)),
        ("ess_tail", lambda x: array_stats.ess(x, method="tail", prob=(0.05, 0.95), **axes)),
    ):
        out[name] = nan.copy()
        if moves.any():
            out[name][moves] = compute(values[:, :, moves])
    return Moments(mean, np.where(moves, sd, 0.0), **out)


class Difference(NamedTuple):
    """An engine against the reference, over the functionals that move in the reference.

    Attributes
    ----------
    max_difference : float
        Largest |mean difference| in reference sds.
    upper : float or None
        Largest 95 % upper limit of |difference| in reference sds; None for a point.
    max_z : float or None
        Largest |difference| over the pooled Monte Carlo error; None for a point.
    sd_ratio : float or None
        Median of engine sd / reference sd; None for a point.
    worst : int
        Index of the functional with the largest difference.
    num_functionals : int
        Functionals compared.
    """

    max_difference: float
    upper: float | None
    max_z: float | None
    sd_ratio: float | None
    worst: int
    num_functionals: int


def difference(engine: Moments, reference: Moments, kind: str) -> Difference:
    """Standardise the difference of means by the reference's sd and both Monte Carlo errors."""
    moves = np.flatnonzero(reference.sd > 0)
    gap = np.abs(engine.mean - reference.mean)[moves]
    sd = reference.sd[moves]
    worst = int(moves[np.argmax(gap / sd)])
    if kind == "point":
        return Difference(float((gap / sd).max()), None, None, None, worst, moves.size)
    own = np.where(np.isnan(engine.mcse[moves]), 0.0, engine.mcse[moves])
    error = np.sqrt(own**2 + reference.mcse[moves] ** 2)
    return Difference(
        float((gap / sd).max()),
        float(((gap + norm.ppf(0.95) * error) / sd).max()),
        float((gap / error).max()),
        float(np.median(engine.sd[moves] / sd)),
        worst,
        moves.size,
    )


def verdict(
    kind: str, engine: Moments, reference: Moments | None, found: Difference | None, name: str
) -> str:
    """Return one sentence; it opens with agrees, refuted, approximation, no difference or no verdict."""
    if reference is None or found is None:
        return f"no verdict: no {name} reference was run"
    if not _converged(reference):
        return "no verdict: reference not converged"
    if kind == "point":
        return (
            f"approximation: a point, up to {found.max_difference:.2g} posterior sd from {name} "
            f"over {found.num_functionals} functionals"
        )
    if kind == "bound":
        return (
            f"approximation: means up to {found.max_difference:.2g} posterior sd from {name}, "
            f"sds {found.sd_ratio:.2g} times its own (median of {found.num_functionals})"
        )
    if not _converged(engine):
        return f"no verdict: this engine not converged (R-hat {np.nanmax(engine.rhat):.3f})"
    limit = norm.isf(FALSE_ALARM / (2 * found.num_functionals))
    if found.max_z is not None and found.max_z > limit:
        return (
            f"refuted: differs from {name} by {found.max_difference:.2g} posterior sd "
            f"(z = {found.max_z:.1f}, limit {limit:.1f})"
        )
    if found.upper is not None and found.upper < AGREE_SD:
        return (
            f"agrees with {name}: |difference| < {found.upper:.2g} posterior sd "
            f"(95 % limit, {found.num_functionals} functionals)"
        )
    return (
        f"no difference from {name} seen, but the Monte Carlo error only excludes |difference| > "
        f"{found.upper:.2g} posterior sd; run longer"
    )


def is_refuted(sentence: str) -> bool:
    """Return whether a verdict refutes agreement (and so makes the command fail)."""
    return sentence.startswith("refuted")


def converged(summary: Moments) -> bool:
    """Return whether every functional that moves has split R-hat at most `RHAT_LIMIT`."""
    return _converged(summary)


def _converged(summary: Moments) -> bool:
    rhat = summary.rhat[summary.sd > 0]
    return bool(rhat.size) and bool(np.all(rhat <= RHAT_LIMIT))
