"""Rungs 2 and 3, case by case: where an engine rests, how views marginalise, and the planted faults of both.

Whatever a case raises becomes a failed check with the message in its detail; a planted fault that does not
run counts as not noticed.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from labelzoo.inference.checks.marginal import Comparison, EnumerationCase, check_at, compare_at, residual
from labelzoo.inference.checks.report import CheckResult, MutantResult
from labelzoo.inference.checks.rungs import Rows, Say, Setting, first_line
from labelzoo.inference.checks.stationarity import MUTANT_FLOOR, FixedPoint, Gradients, StationarityCase

FAR = 100
"""A wrong view must miss by this many thresholds, so that a quadrature error cannot pass for the fault."""


def stationarity_rung(case: StationarityCase, setting: Setting, say: Say) -> Rows:
    """Check the gradient at the fixed point; planted faults must leave one.

    The fast tier takes labels with missing cells, the full tier all data sets. A planted fault may show
    under any of them.
    """
    say(f"{setting.spec.name}: {case.name}")
    gradients = Gradients(case, {data.name: data.inputs for data in setting.cases})
    names = [data.name for data in (setting.cases if setting.full else setting.cases[:1])]
    try:
        check = max((gradients.check(name) for name in names), key=lambda result: result.statistic)
    except Exception as error:
        detail = f"{case.name}: could not be evaluated: {type(error).__name__}: {error}"
        check = CheckResult(case.engine, "stationarity", "", False, np.inf, 0.0, detail)
    return Rows([check], [_stationarity_mutant(gradients, mutant) for mutant in case.mutants])


def _stationarity_mutant(gradients: Gradients, mutant: tuple[str, FixedPoint]) -> MutantResult:
    name, fixed_point = mutant
    try:
        killed = any(gradients.largest(fixed_point, data)[0] > MUTANT_FLOOR for data in gradients.inputs)
    except Exception as error:
        name, killed = f"{name} ({_reason(error)})", False
    return MutantResult(gradients.case.engine, name, "stationarity" if killed else None)


def enumeration_rung(case: EnumerationCase, setting: Setting, say: Say) -> Rows:
    """Check that one view marginalises to another, and that wrong versions of it do not."""
    say(f"{setting.spec.name}: {case.name}")
    views = setting.spec.views
    try:
        found = compare_at(case, views[case.view_to], setting.seed)
        check = check_at(case, found, views[case.view_from])
    except Exception as error:
        detail = f"could not be evaluated: {type(error).__name__}: {error}"
        sites = ",".join(case.sites)
        check = CheckResult(case.name, "enumeration", sites, False, np.inf, case.threshold, detail)
        return Rows(
            [check], [MutantResult(case.name, name, None) for name, _ in (*case.mutants, *case.wrong_inputs)]
        )
    faults: list[tuple[str, Any, Any]] = [(name, view, None) for name, view in case.mutants]
    faults += [(name, views[case.view_from], change) for name, change in case.wrong_inputs]
    return Rows([check], [_enumeration_mutant(case, found, *fault) for fault in faults])


def _enumeration_mutant(
    case: EnumerationCase, found: Comparison, name: str, view: Any, change: Callable[..., Any] | None
) -> MutantResult:
    try:
        killed = residual(found, view, change) > FAR * case.threshold
    except Exception as error:
        return MutantResult(case.name, f"{name} ({_reason(error)})", None)
    return MutantResult(case.name, name, "enumeration" if killed else None)


def _reason(error: Exception) -> str:
    return f"does not run: {type(error).__name__}: {first_line(error)}"
