"""One update, engine or pair of views through its rungs, and its planted faults after it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from labelzoo.inference.checks.alterations import traceable_floats
from labelzoo.inference.checks.automatic import AutomaticResult, automatic_rows
from labelzoo.inference.checks.coordinates import Described, describe
from labelzoo.inference.checks.draws import VALUES, Drawn, check_draws, draw_blocks, z_limit
from labelzoo.inference.checks.explain import Mismatch, Slip, explain, sentence
from labelzoo.inference.checks.identity import (
    THRESHOLD,
    Bench,
    Claimed,
    check_identity,
    log_claim,
    log_claims,
    make_bench,
    old_value_effect,
    other_own_values,
    swapped_blocks,
    worst_of,
)
from labelzoo.inference.checks.invariance import Starts, check_kernel, populate
from labelzoo.inference.checks.programs import ClaimError, State
from labelzoo.inference.checks.report import CheckResult, Kind, MutantResult
from labelzoo.inference.checks.states import DataCase, latent_sites, relabelled, states_of
from labelzoo.inference.update import Mutant, Update
from labelzoo.models.spec import ModelSpec

KEPT = VALUES - 3
"""So many of the block values tried at a state are draws of the claim, the others come from other states."""

TRACING_ERRORS = (TypeError, ValueError, jax.errors.JAXTypeError)
"""What a program raises that needs a plain number where it is given a traced one."""

Say = Callable[[str], None]


class Rows(NamedTuple):
    """What one update, engine or pair of views adds to a report."""

    checks: list[CheckResult]
    mutants: list[MutantResult]
    notes: tuple[str, ...] = ()


class Setting(NamedTuple):
    """What all checks of one run share; `states` and names of `sites` by view and data set,
    `sampled` the distributions whose draws were tested."""

    spec: ModelSpec
    cases: list[DataCase]
    states: dict[tuple[str, str], Any]
    sites: dict[tuple[str, str], set[str]]
    num_states: int
    seed: int
    families: int
    full: bool
    sampled: set[type]


class Prepared(NamedTuple):
    """A claim at the benches of its view; `found` is the test of its draws where that was made."""

    update: Update
    described: Described
    benches: list[Bench]
    cases: list[DataCase]
    claims: list[Claimed]
    found: Drawn | None
    has_sampler: bool


class Placed(NamedTuple):
    """States of one view under one data set and the inputs that its program takes as data."""

    inputs: Mapping[str, Any]
    states: State


def placed(setting: Setting, view: str, case: DataCase, sites: tuple[str, ...]) -> Placed | None:
    """Return the states of a view under a data set, drawn once a run; None where it lacks the sites."""
    program, place = setting.spec.views[view], (view, case.name)
    if place not in setting.sites:
        setting.sites[place] = latent_sites(program, case.inputs)
    if not set(sites) <= setting.sites[place]:
        return None
    if place not in setting.states:
        setting.states[place] = _place(setting, program, case)
    return setting.states[place]


def _place(setting: Setting, program: Any, case: DataCase) -> Placed:
    def states(inputs: Mapping[str, Any]) -> Placed:
        drawn = states_of(program, inputs, setting.num_states, setting.seed, prior=setting.full)
        return Placed(inputs, drawn)

    try:
        return states(traceable_floats(case.inputs))
    except TRACING_ERRORS:
        return states(case.inputs)


def update_rungs(update: Update, setting: Setting, say: Say) -> Rows:
    """Run identity, draws, kernel invariance and the wrong versions of one update.

    Whatever its functions raise becomes a failed check with the message in its detail. Draws and wrong
    versions are taken under the first data set that has the block; the full tier checks the identity under
    all.
    """
    say(f"{setting.spec.name}: {update.name}")
    try:
        prepared = prepare(update, setting)
        checks = _right_rows(prepared, setting)
    except (Exception, SystemExit) as error:
        return Rows(
            [_broken(update, error)], [MutantResult(update.name, m.name, None) for m in update.mutants]
        )
    mutants = planted_rows(prepared, setting)
    notes: tuple[str, ...] = ()
    if prepared.described.laws and not prepared.has_sampler:
        notes = (f"{update.name}: its distribution has a density but no sampler: draws were not tested.",)
    if checks[0].passed:
        automatic = automatic_rows(update, prepared.benches[0], prepared.described, prepared.claims[0])
        mutants += automatic.rows
        notes += _automatic_notes(update, automatic)
    return Rows(checks, mutants, notes)


def update_checks(update: Update, setting: Setting) -> list[CheckResult]:
    """Return identity, draws and kernel rows of one update, no wrong version held against them."""
    return _right_rows(prepare(update, setting), setting)


def _right_rows(prepared: Prepared, setting: Setting) -> list[CheckResult]:
    checks = [_identity(prepared, setting)]
    if prepared.found is not None:
        checks.append(_draws(prepared, setting))
    if prepared.update.kernel is not None:
        checks.append(_kernel(prepared, setting))
    return checks


def _automatic_notes(update: Update, automatic: AutomaticResult) -> tuple[str, ...]:
    if not automatic.same_law and not automatic.no_law:
        return ()
    return (
        f"{update.name}: {automatic.same_law} automatic faults are the same law and {automatic.no_law} no "
        "law at all: not counted.",
    )


def prepare(update: Update, setting: Setting) -> Prepared:
    """Evaluate a claim at states with block values to compare, and test its draws.

    A data set under whose settings the block does not exist is left out.
    """
    benches: list[Bench] = []
    claims: list[Claimed] = []
    cases: list[DataCase] = []
    found: Drawn | None = None
    has_sampler = True
    described: Described | None = None
    view = setting.spec.views[update.view]
    for case in setting.cases:
        at = placed(setting, update.view, case, update.sites)
        if at is None:
            continue
        inputs, about = read_claim(update, at, case)
        blocks = swapped_blocks(at.states, update.sites, VALUES)
        if not benches and wants_draws(update, about, setting):
            found = first_draws(update, inputs, at.states, about, setting.seed)
            has_sampler = found is not None
        if not benches and found is not None:
            for site in blocks:
                blocks[site][:, :KEPT] = found.draws[site][:, :KEPT]
        benches.append(make_bench(case.name, inputs, at.inputs, view, at.states, blocks))
        claims.append(log_claim(benches[-1], update.given, update.sites, len(about.parameters)))
        cases.append(case)
        described = described or about
        if not setting.full:
            break
    if described is None:
        raise ClaimError(f"the view {update.view!r} never has all of the sites {', '.join(update.sites)}")
    return Prepared(update, described, benches, cases, claims, found, has_sampler)


def wants_draws(update: Update, about: Described, setting: Setting) -> bool:
    """Return whether to test the draws: in the fast tier a distribution of NumPyro's own once a run."""
    kinds = {law.kind for law in about.laws.values()}
    own = any(not kind.__module__.startswith("numpyro.") for kind in kinds)
    wanted = bool(kinds) and (
        setting.full or own or update.kernel is not None or not kinds <= setting.sampled
    )
    setting.sampled.update(kinds)
    return wanted


def read_claim(update: Update, at: Placed, case: DataCase) -> tuple[Mapping[str, Any], Described]:
    """Return the inputs with plain floats made data, where the claim can be traced so, else as they are."""
    loose = traceable_floats(case.inputs)
    try:
        return loose, describe(update.given, at.states, loose, update.sites)
    except TRACING_ERRORS:
        return case.inputs, describe(update.given, at.states, case.inputs, update.sites)


def first_draws(
    update: Update, inputs: Mapping[str, Any], states: State, about: Described, seed: int
) -> Drawn | None:
    """Return the test of the draws, None where a distribution has a density but no sampler.

    NumPyro's base class raises NotImplementedError from `sample` in that case; the report then says so.
    """
    try:
        return draw_blocks(inputs, states, update.given, update.sites, seed, described=about)
    except NotImplementedError:
        return None


def _identity(prepared: Prepared, setting: Setting) -> CheckResult:
    update, bench = prepared.update, prepared.benches[0]
    old = old_value_effect(prepared.claims[0], _with_other_values(prepared, update.given))
    check = check_identity(update.name, update.sites, prepared.benches, prepared.claims, old)
    if check.passed or not old <= THRESHOLD:
        return check
    worst = [worst_of(*pair)[0] for pair in zip(prepared.benches, prepared.claims, strict=True)]
    bench = prepared.benches[int(np.argmax(worst))]
    claimed = prepared.claims[int(np.argmax(worst))]
    return replace(check, explanation=explanation(update.given, prepared, bench, claimed, setting))


def explanation(given: Any, prepared: Prepared, bench: Bench, claimed: Claimed, setting: Setting) -> str:
    """Say what slip a failed claim looks like; a claim too odd to be explained has failed all the same."""
    try:
        return sentence(explained(given, prepared, bench, claimed, setting))
    except Exception as error:
        return f"unknown slip; no explanation: {type(error).__name__}: {first_line(error)}"


def explained(given: Any, prepared: Prepared, bench: Bench, claimed: Claimed, setting: Setting) -> list[Slip]:
    """Return what slip a claim looks like that fails at a bench."""
    case = prepared.cases[prepared.benches.index(bench)] if bench in prepared.benches else prepared.cases[0]
    described = describe(given, bench.states, bench.inputs, prepared.update.sites)
    others = {words: traceable_floats(inputs) for words, inputs in relabelled(setting.spec, case).items()}
    return explain(Mismatch(given, prepared.update.sites, bench, claimed, described, others))


def _with_other_values(prepared: Prepared, given: Any) -> Claimed:
    bench, sites = prepared.benches[0], prepared.update.sites
    count = len(prepared.described.parameters)
    return log_claim(bench, given, sites, count, states=other_own_values(bench, sites))


def _draws(prepared: Prepared, setting: Setting) -> CheckResult:
    update, bench = prepared.update, prepared.benches[0]

    def again() -> Drawn:
        return draw_blocks(
            bench.inputs, bench.states, update.given, update.sites, setting.seed + 1, times=4,
            described=prepared.described,
        )  # fmt: skip

    assert prepared.found is not None
    return check_draws(update.name, update.sites, prepared.found, setting.families, again)


def _kernel(prepared: Prepared, setting: Setting) -> CheckResult:
    update, bench, found = prepared.update, prepared.benches[0], prepared.found
    inputs = prepared.cases[0].inputs

    def start(attempt: int, times: int) -> Starts:
        if found is None:
            return populate(update, bench.view, inputs, bench.states, setting.seed + attempt, times)
        drawn = found.draws
        if attempt > 0:
            seed = setting.seed + 2000
            drawn = draw_blocks(inputs, bench.states, update.given, update.sites, seed, times=times).draws
        return Starts(np.arange(len(next(iter(drawn.values())))), drawn)

    return check_kernel(update, bench.view, inputs, bench.states, start, setting.families)


def _broken(update: Update, error: BaseException) -> CheckResult:
    said = first_line(error) or "a distribution of the view does not do what is asked of it"
    detail = f"could not be evaluated: {type(error).__name__}: {said}"
    return CheckResult(update.name, "identity", ",".join(update.sites), False, np.inf, THRESHOLD, detail)


def planted_rows(prepared: Prepared, setting: Setting) -> list[MutantResult]:
    """Hold the faults that the update's author planted against the joint, in one program if all run."""
    update = prepared.update
    if not update.mutants:
        return []
    givens = tuple(mutant.given for mutant in update.mutants)
    try:
        claims: list[Claimed | Exception] = list(log_claims(prepared.benches[0], givens, update.sites))
    except Exception:
        claims = [_attempt(prepared.benches[0], given, update.sites) for given in givens]
    return [mutant_row(prepared, *pair, setting) for pair in zip(update.mutants, claims, strict=True)]


def _attempt(bench: Bench, given: Any, sites: tuple[str, ...]) -> Claimed | Exception:
    try:
        return log_claims(bench, (given,), sites)[0]
    except Exception as error:
        return error


def mutant_row(
    prepared: Prepared, mutant: Mutant, claim: Claimed | Exception, setting: Setting
) -> MutantResult:
    """Return the row of one planted fault; a fault that does not run counts as not noticed."""
    name = prepared.update.name
    try:
        if isinstance(claim, Exception):
            raise claim
        by = killer(prepared, mutant, claim, setting)
        words = ""
        if setting.full and by == "identity" and worst_of(prepared.benches[0], claim)[0] > THRESHOLD:
            words = explanation(mutant.given, prepared, prepared.benches[0], claim, setting)
        return MutantResult(name, mutant.name, by, explanation=words)
    except Exception as error:
        reason = f"does not run: {type(error).__name__}: {first_line(error)}"
        return MutantResult(name, f"{mutant.name} ({reason})", None)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return (str(error).splitlines() or [""])[0]


def killer(prepared: Prepared, mutant: Mutant, claim: Claimed, setting: Setting) -> Kind | None:
    """Return the rung that notices a planted fault, None where none does."""
    update, bench = prepared.update, prepared.benches[0]
    if worst_of(bench, claim)[0] > THRESHOLD:
        return "identity"
    after = log_claims(bench, (mutant.given,), update.sites, other_own_values(bench, update.sites))[0]
    if old_value_effect(claim, after) > THRESHOLD:
        return "identity"
    for other in prepared.benches[1:]:
        if worst_of(other, log_claims(other, (mutant.given,), update.sites)[0])[0] > THRESHOLD:
            return "identity"
    if prepared.found is not None:
        found = draw_blocks(bench.inputs, bench.states, mutant.given, update.sites, setting.seed)
        if _residual_at_draws(prepared, mutant, found) > THRESHOLD:
            return "identity"
        if found.largest > z_limit(found.tests, setting.families) or found.excluded:
            return "draws"
    return None


def _residual_at_draws(prepared: Prepared, mutant: Mutant, found: Drawn) -> float:
    """Return the worst residual of a wrong claim at its own draws, where the update's claim is held too."""
    bench, sites = prepared.benches[0], prepared.update.sites
    blocks = swapped_blocks(bench.states, sites, VALUES)
    for site in blocks:
        blocks[site][:, :KEPT] = found.draws[site][:, :KEPT]
    own = make_bench(bench.name, bench.inputs, bench.view_inputs, bench.view, bench.states, blocks)
    return worst_of(own, log_claims(own, (mutant.given,), sites)[0])[0]
