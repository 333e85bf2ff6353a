"""Wrong versions of any update, made without its author: what the fast tier must notice of itself.

Nothing is compiled for them. The claim's parameters, the state that it reads and the inputs are data of the
program that evaluates the right claim. A version whose log density equals the right one at every state and
value (a parameter that does not matter, a rolled array of equal entries) is the same law and not counted; one
that is no distribution (a negative rate) is not counted either.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from labelzoo.inference.checks.alterations import (
    ALTERATIONS,
    PLANTED,
    array_leaves,
    rolled,
    with_leaf,
)
from labelzoo.inference.checks.coordinates import Described
from labelzoo.inference.checks.identity import THRESHOLD, Bench, Claimed, log_claim, worst_of
from labelzoo.inference.checks.parameters import Parameter, no_changes
from labelzoo.inference.checks.programs import State
from labelzoo.inference.checks.report import MutantResult
from labelzoo.inference.update import Update


class Fault(NamedTuple):
    """One wrong version: what is altered of the claim's parameters, of the state it reads, of the inputs."""

    name: str
    changes: Any = None
    states: State | None = None
    inputs: Mapping[str, Any] | None = None


def automatic_faults(update: Update, bench: Bench, parameters: list[Parameter]) -> Iterator[Fault]:
    """Yield wrong versions: parameters altered; other sites stale, at a wrong index, doubled or off by one;
    inputs at a wrong index, doubled or left out."""
    yield from _of_parameters(parameters)
    for site, value in bench.states.items():
        if site not in update.sites:
            yield from _of_site(bench.states, site, value)
    for path, value in array_leaves(bench.inputs):
        yield from _of_input(bench.inputs, path, value)


def _of_parameters(parameters: list[Parameter]) -> Iterator[Fault]:
    for row, parameter in enumerate(parameters):
        for way in ALTERATIONS:
            if way.name in PLANTED:
                changes = no_changes(len(parameters))
                changes[row] = way.factor, way.power, way.term
                yield Fault(f"{parameter.name} of {parameter.site} {way.name}", changes=changes)


def _of_site(states: State, site: str, value: Any) -> Iterator[Fault]:
    def fault(name: str, changed: Any) -> Fault:
        return Fault(name, states={**states, site: changed})

    yield fault(f"stale {site}", np.roll(value, 1, axis=0))
    for axis in range(1, value.ndim):
        if value.shape[axis] > 1:
            yield fault(f"{site} at a wrong index (axis {axis - 1})", np.roll(value, 1, axis))
    if np.issubdtype(value.dtype, np.floating):
        yield fault(f"{site} doubled", 2.0 * value)
    elif np.issubdtype(value.dtype, np.integer):
        yield fault(f"{site} off by one", value + 1)


def _of_input(inputs: Mapping[str, Any], path: str, value: Any) -> Iterator[Fault]:
    def fault(name: str, changed: Any) -> Fault:
        return Fault(f"input {path} {name}", inputs=with_leaf(inputs, path, changed))

    if np.issubdtype(value.dtype, np.floating):
        yield fault("doubled", 2.0 * value)
        yield fault("left out (ones)", np.ones_like(value))
    if value.dtype == bool:
        yield fault("ignored", np.ones_like(value))
    if not np.issubdtype(value.dtype, np.integer):
        for words, moved in rolled(value):
            yield fault(f"at a wrong index ({words})", moved)


class AutomaticResult(NamedTuple):
    """Rows of the faults that count, and how many were the same law or no law."""

    rows: list[MutantResult]
    same_law: int
    no_law: int


def automatic_rows(update: Update, bench: Bench, described: Described, right: Claimed) -> AutomaticResult:
    """Hold every automatic fault against the joint."""
    parameters = described.parameters
    rows, same_law, no_law = [], 0, 0
    for fault in automatic_faults(update, bench, parameters):
        claimed = log_claim(
            bench,
            update.given,
            update.sites,
            len(parameters),
            states=fault.states,
            inputs=fault.inputs,
            changes=fault.changes,
        )
        if _no_law(claimed, right):
            no_law += 1
        elif _same_law(claimed, right, bench.size, described.normalized):
            same_law += 1
        else:
            noticed = worst_of(bench, claimed)[0] > THRESHOLD
            rows.append(MutantResult(update.name, fault.name, "identity" if noticed else None, "automatic"))
    return AutomaticResult(rows, same_law, no_law)


def _no_law(claimed: Claimed, right: Claimed) -> bool:
    """Return whether the version has no density where the right claim has one."""
    usable = np.isfinite(right.log_q)
    return bool(np.isnan(claimed.log_q[usable]).any()) or not np.isfinite(claimed.log_q[usable]).any()


def _same_law(claimed: Claimed, right: Claimed, size: np.ndarray, normalized: bool) -> bool:
    """Return whether all log densities, normaliser included if there is one, agree as far as can be seen.

    `size` is that of the joint's terms, whose rounding limits what the identity sees.
    """
    both = np.isfinite(claimed.log_q) & np.isfinite(right.log_q)
    if not np.array_equal(both, np.isfinite(right.log_q)):
        return False
    scale = np.where(both, np.maximum(1.0, claimed.size + right.size + size), 1.0)
    gap = np.where(both, claimed.log_q, 0.0) - np.where(both, right.log_q, 0.0)
    if not normalized:
        first = np.argmax(both, axis=1)[:, None]
        gap = np.where(both, gap - np.take_along_axis(gap, first, axis=1), 0.0)
        scale = np.maximum(scale, np.take_along_axis(scale, first, axis=1))
    return bool((np.abs(gap) <= THRESHOLD * scale).all())
