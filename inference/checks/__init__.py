"""Checks of hand-derived inference against the program that it is derived from: `check`."""

from labelzoo.inference.checks.ladder import check
from labelzoo.inference.checks.marginal import EnumerationCase, Nodes
from labelzoo.inference.checks.order import OrderCase
from labelzoo.inference.checks.report import CheckReport, CheckResult, MutantResult
from labelzoo.inference.checks.stationarity import StationarityCase

__all__ = [
    "CheckReport",
    "CheckResult",
    "EnumerationCase",
    "MutantResult",
    "Nodes",
    "OrderCase",
    "StationarityCase",
    "check",
]
