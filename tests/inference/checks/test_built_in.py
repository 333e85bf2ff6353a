"""Every model of the package passes its own ladder, and every planted fault is noticed."""

import pytest

from labelzoo.inference.checks import check
from labelzoo.models.registry import BUILT_IN, get

SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in BUILT_IN if name != "label_logistic"]


@pytest.mark.parametrize("name", ["label_logistic", *SLOW])
@pytest.mark.slow
def test_built_in_model_passes(name: str) -> None:
    report = check(name)
    survived = [f"{row.update}: {row.mutant}" for row in report.mutants if row.killed_by is None]
    failed = [f"{row.name} ({row.kind}): {row.detail}" for row in report.checks if not row.passed]
    assert not failed, failed
    assert not survived, survived
    wanted = {"draws", "identity"} if get(name).updates else {"stationarity", "enumeration"}
    assert {row.kind for row in report.checks} >= wanted
