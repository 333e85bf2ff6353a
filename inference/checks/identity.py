r"""Rung 1: ratios of a claimed conditional are ratios of the joint (Grosse and Duvenaud 2014).

For two values a, b of a block and the rest of a state held fixed, q(a | rest) is the conditional of the
joint p exactly when :math:`\log q(a) - \log q(b) = \log p(a, rest) - \log p(b, rest)`. No normalising
constant and no sampling error enter, so the comparison is made at float64 rounding.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from labelzoo.inference.checks.programs import State, claimed_log_density, log_joint, split_inputs
from labelzoo.inference.checks.report import CheckResult

THRESHOLD = 1e-9
"""Largest residual relative to the size of the terms; rounding alone gives about 1e-15."""


class Bench(NamedTuple):
    """States of one view under one data set, and the block values to compare at each.

    Attributes
    ----------
    name : str
        The data set.
    inputs : mapping
    view : callable
    states : dict
        Leaves (state, ...).
    blocks : dict
        Leaves (state, value, ...) for the sites of the block.
    log_p, size : ndarray (state, value)
        Log joint with each value in place, and the size of its terms.
    """

    name: str
    inputs: Mapping[str, Any]
    view: Any
    states: State
    blocks: State
    log_p: np.ndarray
    size: np.ndarray


def make_bench(name: str, inputs: Mapping[str, Any], view: Any, states: State, blocks: State) -> Bench:
    """Evaluate the joint with every block value in place."""
    arrays, static = split_inputs(inputs)
    count, values = next(iter(blocks.values())).shape[:2]
    flat = {
        site: np.repeat(leaf, values, axis=0)
        if site not in blocks
        else blocks[site].reshape(-1, *leaf.shape[1:])
        for site, leaf in states.items()
    }
    log_p, size = log_joint(arrays, flat, static=static, view=view)
    return Bench(
        name,
        inputs,
        view,
        states,
        blocks,
        np.reshape(log_p, (count, values)),
        np.reshape(size, (count, values)),
    )


def swapped_blocks(states: State, sites: tuple[str, ...], count: int) -> State:
    """Return the block values of the next `count` states, as values to try at each state."""
    order = (np.arange(len(states[sites[0]]))[:, None] + np.arange(count)) % len(states[sites[0]])
    return {site: states[site][order] for site in sites}


def residuals(bench: Bench, given: Any, sites: tuple[str, ...]) -> np.ndarray:
    """Return the relative residual of every pair (first value, another value), shape (state, value).

    NaN where both sides exclude the value; infinite where one side alone does.
    """
    log_q, size_q = _log_q(bench, given, sites, bench.states)
    log_p = bench.log_p
    usable = np.isfinite(log_p) & np.isfinite(log_q)
    agree = usable | (log_p == log_q) | (np.isnan(log_p) & np.isnan(log_q))
    gap = np.where(usable, log_p - np.where(usable, log_q, 0.0), np.nan)
    scale = np.maximum(1.0, np.where(usable, bench.size + size_q, 0.0))
    first = np.argmax(usable, axis=1)[:, None]
    reference = np.take_along_axis(gap, first, axis=1)
    largest = np.maximum(scale, np.take_along_axis(scale, first, axis=1))
    out = np.abs(gap - reference) / largest
    np.put_along_axis(out, first, np.nan, axis=1)
    return np.where(agree, out, np.inf)


def old_value_effect(bench: Bench, given: Any, sites: tuple[str, ...]) -> float:
    """Return how much the claim moves when the block's own value in the state is replaced: 0 when right."""
    other = {**bench.states, **{site: np.roll(bench.states[site], 1, axis=0) for site in sites}}
    before, size = _log_q(bench, given, sites, bench.states)
    after, _ = _log_q(bench, given, sites, other)
    both = np.isfinite(before) & np.isfinite(after)
    moved = np.abs(np.where(both, before, 0.0) - np.where(both, after, 0.0)) / np.maximum(
        1.0, np.where(both, size, 0.0)
    )
    changed = np.isfinite(before) != np.isfinite(after)
    return float(np.where(changed, np.inf, moved).max())


def _log_q(bench: Bench, given: Any, sites: tuple[str, ...], states: State) -> tuple[np.ndarray, np.ndarray]:
    arrays, static = split_inputs(bench.inputs)
    log_q, size = claimed_log_density(arrays, states, bench.blocks, static=static, given=given, sites=sites)
    return np.asarray(log_q), np.asarray(size)


def worst_residual(benches: list[Bench], given: Any, sites: tuple[str, ...]) -> tuple[float, str]:
    """Return the worst relative residual over all data sets and states, and where it is.

    Infinite where nothing could be compared; stops at the first data set with a residual above the limit.
    """
    worst, where, compared = 0.0, "", 0
    for bench in benches:
        out = residuals(bench, given, sites)
        compared += int(np.isfinite(out).sum())
        if np.isinf(out).any():
            state = int(np.argwhere(np.isinf(out))[0, 0])
            return (
                np.inf,
                f"{bench.name} data, state {state}: one side excludes a value that the other allows",
            )
        finite = np.where(np.isnan(out), -1.0, out)
        if finite.max() >= worst:
            worst = float(max(finite.max(), 0.0))
            where = f"{bench.name} data, state {int(finite.max(axis=1).argmax())}"
        if worst > THRESHOLD:
            break
    return (worst, where) if compared else (np.inf, "no two values of finite density to compare")


def check_identity(name: str, given: Any, sites: tuple[str, ...], benches: list[Bench]) -> CheckResult:
    """Compare a claim with the joint of its view at every state, and see that it ignores its old value."""
    worst, where = worst_residual(benches, given, sites)
    old = max(old_value_effect(bench, given, sites) for bench in benches)
    count = sum(len(bench.log_p) for bench in benches)
    passed = worst <= THRESHOLD and old <= THRESHOLD
    if passed:
        detail = f"verified numerically at {count} states, worst residual {worst:.1e} ({where})"
    elif worst > THRESHOLD:
        detail = f"claimed and joint log-density ratios differ by {worst:.2g} of their size: {where}"
    else:
        detail = f"the claim depends on the block's own old value (by {old:.2g} of its size)"
    return CheckResult(name, "identity", ",".join(sites), passed, max(worst, old), THRESHOLD, detail)
