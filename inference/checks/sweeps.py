"""A sampler made of hand-derived updates in a given order, for models that have updates but no engine yet."""

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpyro

from labelzoo.inference.checks.programs import ClaimError, State, claim_of
from labelzoo.inference.kernel import SweepKernel
from labelzoo.inference.update import Update
from labelzoo.models.spec import ModelSpec

Array = Any
Inputs = Mapping[str, Any]

PASSES = 50
"""Passes over the blocks that are not given, where there are several: then their law is that given the rest
but for what a chain of that length still remembers."""


def sweep_kernel(updates: Iterable[Update], spec: ModelSpec) -> SweepKernel:
    """Return the kernel that makes each update in turn: a draw of its claim, or its own Markov step.

    Started at given sites (`init_params`), the blocks of the other updates, auxiliary variables, are drawn
    by their updates from the conditional given those.

    Parameters
    ----------
    updates : iterable of Update
        In the order of the sweep. One whose block does not exist under the inputs' settings is passed over.
    spec : ModelSpec
        Its views give the start: draws from the program, labels not looked at.

    Raises
    ------
    ValueError
        If there is no update or one names an unknown view.
    ClaimError
        When run: if a claim is a bare log density and the update has no kernel.
    """
    chosen = tuple(updates)
    if not chosen:
        raise ValueError(f"{spec.name}: a sweep needs at least one update")
    for update in chosen:
        if update.view not in spec.views:
            raise ValueError(
                f"update {update.name!r} names the view {update.view!r}, which {spec.name} lacks"
            )

    def start(key: Array, inputs: Inputs) -> tuple[State, tuple[()]]:
        return _prior_sites(key, chosen, spec, inputs), ()

    def sweep(key: Array, sites: State, adapt: Any, inputs: Inputs) -> tuple[State, State]:
        return _run(key, chosen, sites, inputs), {}

    def place(key: Array, sites: State, given: State, inputs: Inputs) -> State:
        return _fill(key, chosen, sites, given, inputs)

    return SweepKernel(spec.views["summed"], start, sweep, place=place)


def _prior_sites(key: Array, updates: tuple[Update, ...], spec: ModelSpec, inputs: Inputs) -> State:
    """Return values of all blocks: one run of each view, a later one given what an earlier one drew."""
    blocks = {site for update in updates for site in update.sites}
    values: State = {}
    for index, view in enumerate(dict.fromkeys(update.view for update in updates)):
        substituted = numpyro.handlers.substitute(spec.views[view], values)
        seeded = numpyro.handlers.seed(substituted, jax.random.fold_in(key, index))
        trace = numpyro.handlers.trace(seeded).get_trace(**inputs)
        for name, site in trace.items():
            found = site["type"] == "deterministic" or (site["type"] == "sample" and not site["is_observed"])
            if found and name in blocks:
                values[name] = site["value"]
    return values


def _run(key: Array, updates: tuple[Update, ...], sites: State, inputs: Inputs) -> State:
    """Make the updates whose block is among `sites`, in order."""
    for index, update in enumerate(updates):
        if set(update.sites) <= set(sites):
            sites = _make(update, jax.random.fold_in(key, index), sites, inputs)
    return sites


def _make(update: Update, key: Array, sites: State, inputs: Inputs) -> State:
    """Return the sites after one update; whatever else its kernel returns is dropped, lest it grow stale."""
    if update.kernel is not None:
        new = update.kernel(key, sites, inputs)
        return {name: new[name] for name in sites}
    claim = claim_of(update.given, sites, inputs, update.sites)
    if not isinstance(claim, Mapping):
        raise ClaimError(f"update {update.name!r} claims a log density and has no kernel to draw with")
    keys = jax.random.split(key, len(claim))
    drawn = {
        name: law.sample(one).astype(sites[name].dtype)
        for one, (name, law) in zip(keys, claim.items(), strict=True)
    }
    return {**sites, **drawn}


def _fill(key: Array, updates: tuple[Update, ...], sites: State, given: State, inputs: Inputs) -> State:
    """Put `given` in place and draw the blocks that it lacks from their updates."""
    sites = {**sites, **{name: value for name, value in given.items() if name in sites}}
    lacking = tuple(u for u in updates if set(u.sites) <= set(sites) and not set(u.sites) & set(given))
    if not lacking:
        return sites
    if len(lacking) == 1:
        return _run(key, lacking, sites, inputs)

    def once(state: State, key: Array) -> tuple[State, None]:
        return _run(key, lacking, state, inputs), None

    return jax.lax.scan(once, sites, jax.random.split(key, PASSES))[0]
