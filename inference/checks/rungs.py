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
from labelzoo.inference.checks.invariance import check_kernel
from labelzoo.inference.checks.marginal import EnumerationCase, check_marginal, spread
from labelzoo.inference.checks.programs import State, claim_of
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

SWAPPED = 3
"""Block values of other states that are tried at each state, beside four draws of the claim."""

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
        benches, found, sampled = prepare(update, setting)
        checks = [check_identity(update.name, update.given, update.sites, benches)]
        if sampled:
            checks.append(_draws(update, benches, found, setting))
        if update.kernel is not None:
            checks.append(_kernel(update, benches, setting, is_density=not sampled))
    except Exception as error:
        return [_broken(update, error)], [MutantResult(update.name, m.name, None) for m in update.mutants]
    return checks, [_mutant_row(update, mutant, benches, setting, sampled) for mutant in update.mutants]


def prepare(update: Update, setting: Setting) -> tuple[list[Bench], list[Drawn], bool]:
    """Return states with block values to compare, the tests of the draws, and whether there were draws."""
    benches, tests = [], []
    sampled = has_sampler(update, setting)
    for case in setting.cases:
        states = states_for(setting, update.view, case)
        blocks = swapped_blocks(states, update.sites, SWAPPED if sampled else 2 * SWAPPED)
        if sampled:
            found = draw_blocks(case.inputs, states, update.given, update.sites, setting.seed)
            tests.append(found)
            blocks = {site: np.concatenate([found.blocks[site], blocks[site]], axis=1) for site in blocks}
        view = setting.spec.views[update.view]
        benches.append(make_bench(case.name, case.inputs, view, states, blocks))
    return benches, tests, sampled


def has_sampler(update: Update, setting: Setting) -> bool:
    """Return whether the claim is a distribution that can be drawn from."""
    case = setting.cases[0]
    state = {site: value[0] for site, value in states_for(setting, update.view, case).items()}
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


def _kernel(update: Update, benches: list[Bench], setting: Setting, *, is_density: bool) -> CheckResult:
    bench = benches[-1]
    view, states = setting.spec.views[update.view], bench.states
    return check_kernel(
        update, view, bench.inputs, states, setting.seed, setting.families, is_density=is_density
    )


def _broken(update: Update, error: Exception) -> CheckResult:
    detail = f"could not be evaluated: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return CheckResult(update.name, "identity", ",".join(update.sites), False, np.inf, THRESHOLD, detail)


def _mutant_row(
    update: Update, mutant: Mutant, benches: list[Bench], setting: Setting, sampled: bool
) -> MutantResult:
    try:
        killed_by = killer(update, mutant, benches, setting, sampled)
    except Exception as error:
        # A fault that cannot run says nothing about the checks: it counts as not noticed.
        first = str(error).splitlines()[0] if str(error) else ""
        return MutantResult(update.name, f"{mutant.name} (does not run: {type(error).__name__}: {first})", None)
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
        check = CheckResult(case.name, "enumeration", ",".join(case.sites), False, np.inf, case.threshold, detail)
    mutants = []
    for name, program in case.mutants:
        worst, _ = spread(case, program, views[case.view_to], setting.seed)
        # Far above the limit, so that a quadrature error cannot pass for the fault.
        killed = worst > 100 * case.threshold
        mutants.append(MutantResult(case.name, name, "enumeration" if killed else None))
    return [check], mutants
