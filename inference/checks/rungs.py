"""One update, engine or pair of views through its rungs, and its planted faults after it."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from labelzoo.inference.checks.draws import Drawn, check_draws, draw_blocks, z_limit
from labelzoo.inference.checks.identity import (
    THRESHOLD,
    Bench,
    Claimed,
    check_identity,
    log_claims,
    make_bench,
    old_value_effect,
    other_own_values,
    swapped_blocks,
    worst_of,
)
from labelzoo.inference.checks.invariance import check_kernel, populate
from labelzoo.inference.checks.marginal import EnumerationCase, check_marginal, spread
from labelzoo.inference.checks.programs import TRACING, ClaimError, State, claim_of
from labelzoo.inference.checks.report import CheckResult, Kind, MutantResult
from labelzoo.inference.checks.states import DataCase, states_of
from labelzoo.inference.checks.stationarity import (
    MUTANT_FLOOR,
    StationarityCase,
    check_stationarity,
    largest_gradient,
)
from labelzoo.inference.update import Mutant, Update
from labelzoo.models.spec import ModelSpec

KEPT, SWAPPED = 4, 3
"""Block values tried at each state: draws of the claim, and the values of other states."""

Say = Callable[[str], None]
Rows = tuple[list[CheckResult], list[MutantResult]]


class Setting(NamedTuple):
    """What all checks of one run share; `states` by view and data set."""

    spec: ModelSpec
    cases: list[DataCase]
    states: dict[tuple[str, str], State]
    num_states: int
    seed: int
    families: int
    full: bool


def states_for(setting: Setting, view: str, case: DataCase) -> State:
    """Return the states of a view under a data set, drawn once a run."""
    place = (view, case.name)
    if place not in setting.states:
        program = setting.spec.views[view]
        setting.states[place] = states_of(
            program, case.inputs, setting.num_states, setting.seed, prior=setting.full
        )
    return setting.states[place]


def update_rungs(update: Update, setting: Setting, say: Say) -> Rows:
    """Run identity, draws, kernel invariance and the planted faults of one update.

    Whatever its functions raise becomes a failed check with the message in its detail. Draws and planted
    faults are taken under the first data set that has the block; the full tier checks the identity under all.
    """
    say(f"{setting.spec.name}: {update.name}")
    try:
        benches, found = prepare(update, setting)
        claims = claims_at(update, benches[0])
        if isinstance(claims[0], Exception):
            raise claims[0]
        checks = [_identity(update, benches, claims[0])]
        if found is not None:
            checks.append(_draws(update, benches[0], found, setting))
        if update.kernel is not None:
            checks.append(_kernel(update, benches[0], found, setting))
    except Exception as error:
        return [_broken(update, error)], [MutantResult(update.name, m.name, None) for m in update.mutants]
    pairs = zip(update.mutants, claims[1:], strict=True)
    sampled = found is not None
    return checks, [mutant_row(update, mutant, claim, benches, setting, sampled) for mutant, claim in pairs]


def claims_at(update: Update, bench: Bench) -> list[Claimed | Exception]:
    """Evaluate the claim and its planted faults, in one program if all of them run."""
    givens = (update.given, *(mutant.given for mutant in update.mutants))
    try:
        return list(log_claims(bench, givens, update.sites))
    except Exception:
        return [_attempt(bench, given, update.sites) for given in givens]


def _attempt(bench: Bench, given: Any, sites: tuple[str, ...]) -> Claimed | Exception:
    try:
        return log_claims(bench, (given,), sites)[0]
    except Exception as error:
        return error


def _identity(update: Update, benches: list[Bench], first: Claimed) -> CheckResult:
    rest = [log_claims(bench, (update.given,), update.sites)[0] for bench in benches[1:]]
    old = own_value_effect(update, update.given, benches[0], first)
    return check_identity(update.name, update.sites, benches, [first, *rest], old)


def own_value_effect(update: Update, given: Any, bench: Bench, claimed: Claimed) -> float:
    """Return how much a claim depends on the block's old value, through the program that is compiled."""
    givens = (update.given, *(mutant.given for mutant in update.mutants))
    states = other_own_values(bench, update.sites)
    try:
        after = log_claims(bench, givens, update.sites, states)[givens.index(given)]
    except Exception:
        after = log_claims(bench, (given,), update.sites, states)[0]
    return old_value_effect(claimed, after)


def prepare(update: Update, setting: Setting) -> tuple[list[Bench], Drawn | None]:
    """Return states with block values to compare, and the test of the draws where the claim has a sampler.

    A data set under whose settings the block does not exist is left out.
    """
    benches: list[Bench] = []
    found: Drawn | None = None
    view = setting.spec.views[update.view]
    for case in setting.cases:
        states = states_for(setting, update.view, case)
        if not set(update.sites) <= set(states):
            continue
        blocks = swapped_blocks(states, update.sites, KEPT + SWAPPED)
        if not benches and has_sampler(update, states, case):
            found = draw_blocks(case.inputs, states, update.given, update.sites, setting.seed)
            for site in blocks:
                blocks[site][:, :KEPT] = found.draws[site][:, :KEPT]
        benches.append(make_bench(case.name, case.inputs, view, states, blocks))
        if not setting.full:
            break
    if not benches:
        raise ClaimError(f"the view {update.view!r} never has all of the sites {', '.join(update.sites)}")
    return benches, found


def has_sampler(update: Update, states: State, case: DataCase) -> bool:
    """Return whether the claim is a distribution that can be drawn from."""
    state = {site: jax.numpy.asarray(value[0]) for site, value in states.items()}
    with TRACING:
        claim = claim_of(update.given, state, case.inputs, update.sites)
    if not isinstance(claim, Mapping):
        return False
    try:
        for distribution in claim.values():
            jax.eval_shape(lambda key, d=distribution: d.sample(key, (2,)), jax.random.key(0))
    except NotImplementedError:  # NumPyro raises it where a distribution has a density but no sampler
        return False
    return True


def _draws(update: Update, bench: Bench, found: Drawn, setting: Setting) -> CheckResult:
    def again() -> Drawn:
        return draw_blocks(bench.inputs, bench.states, update.given, update.sites, setting.seed + 1, times=4)

    return check_draws(update.name, update.sites, found, setting.families, again)


def _kernel(update: Update, bench: Bench, found: Drawn | None, setting: Setting) -> CheckResult:
    def start(attempt: int, times: int) -> State:
        if found is None:
            return populate(update, bench.view, bench.inputs, bench.states, setting.seed + attempt, times)
        if attempt == 0:
            return found.draws
        seed = setting.seed + 2000
        return draw_blocks(bench.inputs, bench.states, update.given, update.sites, seed, times=times).draws

    return check_kernel(update, bench.view, bench.inputs, bench.states, start, setting.families)


def _broken(update: Update, error: Exception) -> CheckResult:
    detail = f"could not be evaluated: {type(error).__name__}: {first_line(error)}"
    return CheckResult(update.name, "identity", ",".join(update.sites), False, np.inf, THRESHOLD, detail)


def mutant_row(
    update: Update,
    mutant: Mutant,
    claim: Claimed | Exception,
    benches: list[Bench],
    setting: Setting,
    sampled: bool,
) -> MutantResult:
    """Return the row of one planted fault; a fault that does not run counts as not noticed."""
    try:
        if isinstance(claim, Exception):
            raise claim
        return MutantResult(
            update.name, mutant.name, killer(update, mutant, claim, benches, setting, sampled)
        )
    except Exception as error:
        reason = f"does not run: {type(error).__name__}: {first_line(error)}"
        return MutantResult(update.name, f"{mutant.name} ({reason})", None)


def first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return (str(error).splitlines() or [""])[0]


def killer(
    update: Update, mutant: Mutant, claim: Claimed, benches: list[Bench], setting: Setting, sampled: bool
) -> Kind | None:
    """Return the rung that notices a planted fault, None where none does."""
    if worst_of(benches[0], claim)[0] > THRESHOLD:
        return "identity"
    if own_value_effect(update, mutant.given, benches[0], claim) > THRESHOLD:
        return "identity"
    for bench in benches[1:]:
        if worst_of(bench, log_claims(bench, (mutant.given,), update.sites)[0])[0] > THRESHOLD:
            return "identity"
    if sampled:
        bench = benches[0]
        found = draw_blocks(bench.inputs, bench.states, mutant.given, update.sites, setting.seed)
        if found.largest > z_limit(found.tests, setting.families) or found.excluded:
            return "draws"
    return None


def stationarity_rung(case: StationarityCase, setting: Setting, say: Say) -> Rows:
    """Check the gradient at the fixed point; planted faults must leave one.

    The fast tier takes labels with missing cells, the full tier all data sets. A planted fault may show
    under any of them.
    """
    say(f"{setting.spec.name}: {case.name}")
    cases = setting.cases if setting.full else setting.cases[:1]
    try:
        results = [check_stationarity(case, data.inputs, data.name) for data in cases]
        check = max(results, key=lambda result: result.statistic)
    except Exception as error:
        detail = f"{case.name}: could not be evaluated: {type(error).__name__}: {error}"
        check = CheckResult(case.engine, "stationarity", "", False, np.inf, 0.0, detail)
    return [check], [_stationarity_mutant(case, mutant, setting.cases) for mutant in case.mutants]


def _stationarity_mutant(
    case: StationarityCase, mutant: tuple[str, Any], cases: list[DataCase]
) -> MutantResult:
    name, fixed_point = mutant
    try:
        killed = any(largest_gradient(case, fixed_point, data.inputs)[0] > MUTANT_FLOOR for data in cases)
    except Exception as error:
        name, killed = f"{name} (does not run: {type(error).__name__}: {first_line(error)})", False
    return MutantResult(case.engine, name, "stationarity" if killed else None)


def enumeration_rung(case: EnumerationCase, setting: Setting, say: Say) -> Rows:
    """Check that one view marginalises to another, and that wrong versions of it do not."""
    say(f"{setting.spec.name}: {case.name}")
    try:
        check = check_marginal(case, setting.spec, setting.seed)
    except Exception as error:
        detail = f"could not be evaluated: {type(error).__name__}: {error}"
        check = CheckResult(
            case.name, "enumeration", ",".join(case.sites), False, np.inf, case.threshold, detail
        )
    return [check], [_enumeration_mutant(case, mutant, setting) for mutant in case.mutants]


def _enumeration_mutant(case: EnumerationCase, mutant: tuple[str, Any], setting: Setting) -> MutantResult:
    name, program = mutant
    try:
        worst, _ = spread(case, program, setting.spec.views[case.view_to], setting.seed)
    except Exception as error:
        reason = f"does not run: {type(error).__name__}: {first_line(error)}"
        return MutantResult(case.name, f"{name} ({reason})", None)
    # Far above the limit, so that a quadrature error cannot pass for the fault.
    killed = worst > 100 * case.threshold
    return MutantResult(case.name, name, "enumeration" if killed else None)
