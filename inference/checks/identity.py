r"""Rung 1: ratios of a claimed conditional are ratios of the joint (Grosse and Duvenaud 2014).

For two values a, b of a block and the rest of a state held fixed, q(a | rest) is the conditional of the
joint p exactly when :math:`\log q(a) - \log q(b) = \log p(a, rest) - \log p(b, rest)`. No normalising
constant and no sampling error enter, so the comparison is made at float64 rounding.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from labelzoo.inference.checks.parameters import innermost, no_changes
from labelzoo.inference.checks.programs import (
    State,
    abstract_trace,
    claim_terms,
    claimed_log_density,
    log_terms,
    split_inputs,
)
from labelzoo.inference.checks.report import CheckResult

THRESHOLD = 1e-9
"""Largest residual relative to the size of the terms; rounding alone gives about 1e-15."""
SMALLEST = 1e-100
"""Draws of a Dirichlet or gamma with tiny shape below this are passed over: their products underflow."""


class Bench(NamedTuple):
    """States of one view under one data set, and the block values to compare at each.

    Attributes
    ----------
    name : str
        The data set.
    inputs, view_inputs : mapping
        As the claim and as the view read them: plain floats are arrays where they can be traced.
    view : callable
    states : dict
        Leaves (state, ...).
    blocks : dict
        Leaves (state, value, ...) for the sites of the block.
    log_p, size : ndarray (state, value)
        Log joint with each value in place, and the size of its terms.
    terms : dict
        The log joint by site, (state, value).
    exact_zeros : frozenset of str
        Sites of the view whose law has 0 among its values (attribute ``exact_zeros`` of the distribution).
    """

    name: str
    inputs: Mapping[str, Any]
    view_inputs: Mapping[str, Any]
    view: Any
    states: State
    blocks: State
    log_p: np.ndarray
    size: np.ndarray
    terms: dict[str, np.ndarray]
    exact_zeros: frozenset[str] = frozenset()


class Claimed(NamedTuple):
    """Log density of a claim at the block values of a bench and the size of its terms, (state, value), and
    whether a part of it was computed in float32."""

    log_q: np.ndarray
    size: np.ndarray
    is_single: bool = False


def make_bench(
    name: str,
    inputs: Mapping[str, Any],
    view_inputs: Mapping[str, Any],
    view: Any,
    states: State,
    blocks: State,
) -> Bench:
    """Evaluate the joint with every block value in place."""
    terms, valid = joint_terms(view, view_inputs, states, blocks)
    table = varying(np.stack(list(terms.values())))
    with np.errstate(invalid="ignore"):
        log_p = np.where(valid, table.sum(0), -np.inf)
    size, atoms = np.abs(table).sum(0), sites_with_zeros(view, view_inputs)
    return Bench(name, inputs, view_inputs, view, states, blocks, log_p, size, terms, atoms)


def sites_with_zeros(view: Any, inputs: Mapping[str, Any]) -> frozenset[str]:
    """Return the sites whose distribution says that a draw of 0 is a value and no underflow."""

    def read(trace: dict[str, Any]) -> frozenset[str]:
        sampled = {name: site["fn"] for name, site in trace.items() if site["type"] == "sample"}
        return frozenset(n for n, law in sampled.items() if getattr(innermost(law), "exact_zeros", False))

    return abstract_trace(view, inputs, read)


def varying(table: np.ndarray) -> np.ndarray:
    """Return log terms (site, state, value) with those that do not change with the value set to 0.

    A large term of other sites would hide a small residual in rounding.
    """
    finite = np.isfinite(table).all(axis=-1, keepdims=True)
    known = np.where(finite, table, 0.0)
    spread = np.ptp(known, axis=-1, keepdims=True)
    constant = finite & (spread <= 1e-15 * np.abs(known).max(axis=-1, keepdims=True))
    return np.where(constant, 0.0, table)


def joint_terms(
    view: Any, inputs: Mapping[str, Any], states: State, blocks: State
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the log joint by site and whether the values are allowed, all (state, value)."""
    arrays, static = split_inputs(inputs)
    count, values = next(iter(blocks.values())).shape[:2]
    flat = {
        site: np.repeat(leaf, values, axis=0)
        if site not in blocks
        else blocks[site].reshape(-1, *leaf.shape[1:]).astype(leaf.dtype)
        for site, leaf in states.items()
    }
    terms, valid = log_terms(arrays, flat, static=static, view=view)
    shape = (count, values)
    by_site = {site: np.asarray(term).reshape(shape) for site, term in terms.items()}
    return by_site, np.asarray(valid).reshape(shape)


def swapped_blocks(states: State, sites: tuple[str, ...], count: int) -> State:
    """Return the block values of the next `count` states, as values to try at each state."""
    order = (np.arange(len(states[sites[0]]))[:, None] + np.arange(count)) % len(states[sites[0]])
    return {site: states[site][order] for site in sites}


def log_claims(
    bench: Bench, givens: tuple[Any, ...], sites: tuple[str, ...], states: State | None = None
) -> list[Claimed]:
    """Evaluate several claims at the bench's block values; `states` in place of the bench's own."""
    arrays, static = split_inputs(bench.inputs)
    at = bench.states if states is None else states
    pairs = claimed_log_density(arrays, at, bench.blocks, static=static, givens=givens, sites=sites)
    return [Claimed(np.asarray(log_q), np.asarray(size)) for log_q, size in pairs]


def log_claim(
    bench: Bench,
    given: Any,
    sites: tuple[str, ...],
    num_parameters: int,
    *,
    states: State | None = None,
    inputs: Mapping[str, Any] | None = None,
    changes: Any = None,
) -> Claimed:
    """Evaluate one claim at the bench's block values, at other states or inputs, or with other parameters.

    All of these run through one compiled program.
    """
    arrays, static = split_inputs(bench.inputs if inputs is None else inputs)
    altered = no_changes(num_parameters) if changes is None else changes
    at = bench.states if states is None else states
    found = claim_terms(arrays, at, bench.blocks, altered, static=static, given=given, sites=sites)
    log_q, size = np.zeros(bench.log_p.shape), np.zeros(bench.log_p.shape)
    is_single = any(np.asarray(terms).dtype == np.float32 for terms, _ in found.values())
    for terms, within in found.values():
        terms, within = (np.asarray(part).reshape(*log_q.shape, -1) for part in (terms, within))
        with np.errstate(invalid="ignore"):
            log_q += np.where(within.all(-1), terms.sum(-1), -np.inf)
        size += np.abs(terms).sum(-1)
    return Claimed(log_q, size, is_single)


def residuals(bench: Bench, claimed: Claimed) -> np.ndarray:
    """Return the relative residual of every pair (first value, another value), shape (state, value).

    NaN where both sides exclude the value or it is below `SMALLEST`; infinite where one side alone does.
    """
    log_p, log_q = np.where(_precise(bench), bench.log_p, np.nan), claimed.log_q
    log_q = np.where(np.isnan(log_p), np.nan, log_q)
    usable = np.isfinite(log_p) & np.isfinite(log_q)
    agree = usable | (log_p == log_q) | (np.isnan(log_p) & np.isnan(log_q))
    gap = np.where(usable, log_p, 0.0) - np.where(usable, log_q, 0.0)
    scale = np.maximum(1.0, np.where(usable, bench.size + claimed.size, 0.0))
    first = np.argmax(usable, axis=1)[:, None]
    largest = np.maximum(scale, np.take_along_axis(scale, first, axis=1))
    out = np.where(usable, np.abs(gap - np.take_along_axis(gap, first, axis=1)) / largest, np.nan)
    np.put_along_axis(out, first, np.nan, axis=1)
    return np.where(agree, out, np.inf)


def _precise(bench: Bench) -> np.ndarray:
    """Return which values hold no number so small that a product with it loses digits or vanishes."""
    flags = np.ones(bench.log_p.shape, bool)
    for site, value in bench.blocks.items():
        if np.issubdtype(value.dtype, np.floating):
            structural = (value == 0).all(axis=(0, 1))  # the upper half of a triangular matrix
            structural = structural | ((value == 0) & (site in bench.exact_zeros))
            flags &= ((np.abs(value) > SMALLEST) | structural).reshape(*flags.shape, -1).all(-1)
    return flags


def worst_of(bench: Bench, claimed: Claimed) -> tuple[float, str, int]:
    """Return the worst residual, where it is, and how many pairs were compared."""
    out = residuals(bench, claimed)
    compared = int(np.isfinite(out).sum())
    if np.isinf(out).any():
        state = int(np.argwhere(np.isinf(out))[0, 0])
        where = f"{bench.name} data, state {state}: one side excludes a value that the other allows"
        return np.inf, where, compared
    finite = np.where(np.isnan(out), 0.0, out)
    return float(finite.max()), f"{bench.name} data, state {int(finite.max(axis=1).argmax())}", compared


def other_own_values(bench: Bench, sites: tuple[str, ...]) -> State:
    """Return the bench's states with each block value replaced by that of another state."""
    return {**bench.states, **{site: np.roll(bench.states[site], 1, axis=0) for site in sites}}


def old_value_effect(before: Claimed, after: Claimed) -> float:
    """Return how much a claim moves when the block's own value in the state is replaced: 0 when right."""
    both = np.isfinite(before.log_q) & np.isfinite(after.log_q)
    gap = np.where(both, before.log_q, 0.0) - np.where(both, after.log_q, 0.0)
    moved = np.abs(gap) / np.maximum(1.0, np.where(both, before.size, 0.0))
    changed = np.isfinite(before.log_q) != np.isfinite(after.log_q)
    return float(np.where(changed, np.inf, moved).max())


def passes_near(bench: Bench, claimed: Claimed) -> bool:
    """Return whether the claim is right at the half of the states whose log densities are smallest."""
    size = np.where(np.isfinite(bench.log_p), bench.size, 0.0).max(axis=1)
    near = np.argsort(size)[: len(size) // 2]
    with np.errstate(invalid="ignore"):
        return bool(np.nanmax(residuals(bench, claimed)[near], initial=0.0) <= THRESHOLD)


def check_identity(
    name: str, sites: tuple[str, ...], benches: list[Bench], claims: list[Claimed], old: float
) -> Any:
    """Judge a claim by its worst residual over the benches and by the effect `old` of its old value.

    Returns
    -------
    CheckResult
        Failed where nothing of finite density could be compared.
    """
    found = [worst_of(bench, claimed) for bench, claimed in zip(benches, claims, strict=True)]
    worst, where, _ = max(found, key=lambda one: one[0])
    if not sum(one[2] for one in found):
        worst, where = np.inf, "no two values of finite density to compare"
    count = sum(len(bench.log_p) for bench in benches)
    passed = worst <= THRESHOLD and old <= THRESHOLD
    if passed:
        detail = f"verified numerically at {count} states, worst residual {worst:.1e} ({where})"
    elif not sum(one[2] for one in found):
        detail = where
    elif worst > THRESHOLD:
        gap = f"differ by {worst:.2g} of the size of the log densities"
        detail = f"claimed and joint log-density ratios {gap}: {where}"
        if any(claimed.is_single for claimed in claims):
            detail += "; the claim is computed in float32: make constants with NumPy, not with jax.numpy"
        if all(passes_near(*pair) for pair in zip(benches, claims, strict=True)):
            detail += "; they agree at ordinary states: wrong far out only, or a loss of precision there"
    else:
        detail = ""
    if old > THRESHOLD:
        also = f"the claim depends on the block's own old value (by {old:.2g} of its size)"
        detail = f"{detail}; {also}" if detail else also
    return CheckResult(name, "identity", ",".join(sites), passed, max(worst, old), THRESHOLD, detail)
