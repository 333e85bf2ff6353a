"""One update, engine or pair of views through its rungs, and its planted faults after it."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from labelzoo.inference.checks.draws import Drawn, check_draws, draw_blocks, z_limit
from labelzoo.inference.checks.identity import (
    THRESHOLD,
    Bench,
    check_identity,
    make_bench,
    old_value_effect,
    swapped_blocks,
    worst_residual,
)
from labelzoo.inference.checks.invariance import check_kernel, populate
from labelzoo.inference.checks.marginal import EnumerationCase, check_marginal, spread
from labelzoo.inference.checks.programs import ClaimError, State, claim_of
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
    """What all checks of one run share; `states` remembers the states by view and data set."""

    spec: ModelSpec
    cases: list[DataCase]
    states: dict[tuple[str, str], State]
    count: int
    seed: int
    families: int


def states_for(setting: Setting, view: str, case: DataCase) -> State:
    """Return the states of a view under a data set, drawn once a run."""
    place = (view, case.name)
    if place not in setting.states:
        program = setting.spec.views[view]
        setting.states[place] = states_of(program, case.inputs, setting.count, setting.seed)
    return setting.states[place]


def update_rungs(update: Update, setting: Setting, say: Say) -> Rows:
    """Run identity, draws, kernel invariance and the planted faults of one update.

    Whatever its functions raise becomes a failed check with the message in its detail.
    """
    say(f"{setting.spec.name}: {update.name}")
    try:
        benches, found = prepare(update, setting)
        checks = [check_identity(update.name, update.given, update.sites, benches)]
        if found:
            checks.append(_draws(update, benches, found, setting))
        if update.kernel is not None:
            checks.append(_kernel(update, benches[-1], found[-1] if found else None, setting))
    except Exception as error:
        return [_broken(update, error)], [MutantResult(update.name, m.name, None) for m in update.mutants]
    return checks, [_mutant_row(update, mutant, benches, setting, bool(found)) for mutant in update.mutants]


def prepare(update: Update, setting: Setting) -> tuple[list[Bench], list[Drawn]]:
    """Return states with block values to compare, and the tests of the draws where the claim has a sampler.

    A data set under whose settings the block does not exist is left out.
    """
    benches, tests = [], []
    view = setting.spec.views[update.view]
    for index, case in enumerate(setting.cases):
        states = states_for(setting, update.view, case)
        if not set(update.sites) <= set(states):
            continue
        sampled = has_sampler(update, states, case)
        blocks = swapped_blocks(states, update.sites, SWAPPED if sampled else KEPT + SWAPPED)
        if sampled:
            found = draw_blocks(case.inputs, states, update.given, update.sites, setting.seed + 1000 * index)
            tests.append(found)
            blocks = {
                site: np.concatenate([found.draws[site][:, :KEPT], value], axis=1)
                for site, value in blocks.items()
            }
        benches.append(make_bench(case.name, case.inputs, view, states, blocks))
    if not benches:
        raise ClaimError(
            f"the view {update.view!r} has no sites {', '.join(update.sites)} under any settings"
        )
    return benches, tests


def has_sampler(update: Update, states: State, case: DataCase) -> bool:
    """Return whether the claim is a distribution that can be drawn from."""
    state = {site: jax.numpy.asarray(value[0]) for site, value in states.items()}
    claim = claim_of(update.given, state, case.inputs, update.sites)
    if not isinstance(claim, Mapping):
        return False
    try:
        for distribution in claim.values():
            jax.eval_shape(lambda key, d=distribution: d.sample(key, (2,)), jax.random.key(0))
    except NotImplementedError:
        return False
    return True


def _draws(update: Update, benches: list[Bench], found: list[Drawn], setting: Setting) -> CheckResult:
    worst = max(range(len(found)), key=lambda i: found[i].largest)
    tests = sum(one.tests for one in found)

    def again() -> Drawn:
        bench = benches[worst]
        fresh = draw_blocks(bench.inputs, bench.states, update.given, update.sites, setting.seed + 1, times=4)
        return fresh._replace(tests=tests)

    merged = found[worst]._replace(tests=tests, outside=max(one.outside for one in found))
    return check_draws(update.name, update.sites, merged, setting.families, again)


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
    detail = (
        f"could not be evaluated: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    )
    return CheckResult(update.name, "identity", ",".join(update.sites), False, np.inf, THRESHOLD, detail)


def _mutant_row(
    update: Update, mutant: Mutant, benches: list[Bench], setting: Setting, sampled: bool
) -> MutantResult:
    try:
        killed_by = killer(update, mutant, benches, setting, sampled)
    except Exception as error:
        # A fault that cannot run says nothing about the checks: it counts as not noticed.
        first = str(error).splitlines()[0] if str(error) else ""
        return MutantResult(
            update.name, f"{mutant.name} (does not run: {type(error).__name__}: {first})", None
        )
    return MutantResult(update.name, mutant.name, killed_by)


def killer(
    update: Update, mutant: Mutant, benches: list[Bench], setting: Setting, sampled: bool
) -> Kind | None:
    """Return the rung that notices a planted fault, None where none does."""
    worst, _ = worst_residual(benches, mutant.given, update.sites)
    if worst > THRESHOLD:
        return "identity"
    if max(old_value_effect(bench, mutant.given, update.sites) for bench in benches) > THRESHOLD:
        return "identity"
    for bench in benches if sampled else []:
        found = draw_blocks(bench.inputs, bench.states, mutant.given, update.sites, setting.seed)
        if found.largest > z_limit(found.tests, setting.families):
            return "draws"
    return None


def stationarity_rung(case: StationarityCase, setting: Setting, say: Say) -> Rows:
    """Check the gradient at the fixed point under each data set; planted faults must leave one."""
    say(f"{setting.spec.name}: {case.name}")
    try:
        results = [check_stationarity(case, data.inputs, data.name) for data in setting.cases]
        check = max(results, key=lambda result: result.statistic)
    except Exception as error:
        detail = f"{case.name}: could not be evaluated: {type(error).__name__}: {error}"
        check = CheckResult(case.engine, "stationarity", "", False, np.inf, 0.0, detail)
    mutants = []
    for name, fixed_point in case.mutants:
        killed = any(largest_gradient(case, fixed_point, d.inputs)[0] > MUTANT_FLOOR for d in setting.cases)
        mutants.append(MutantResult(case.engine, name, "stationarity" if killed else None))
    return [check], mutants


def enumeration_rung(case: EnumerationCase, setting: Setting, say: Say) -> Rows:
    """Check that one view marginalises to another, and that wrong versions of it do not."""
    say(f"{setting.spec.name}: {case.name}")
    views = setting.spec.views
    try:
        check = check_marginal(case, setting.spec, setting.seed)
    except Exception as error:
        detail = f"could not be evaluated: {type(error).__name__}: {error}"
        check = CheckResult(
            case.name, "enumeration", ",".join(case.sites), False, np.inf, case.threshold, detail
        )
    mutants = []
    for name, program in case.mutants:
        worst, _ = spread(case, program, views[case.view_to], setting.seed)
        # Far above the limit, so that a quadrature error cannot pass for the fault.
        killed = worst > 100 * case.threshold
        mutants.append(MutantResult(case.name, name, "enumeration" if killed else None))
    return [check], mutants
