"""The stationarity, order and enumeration cases of a model: registered, or in modules of its package."""

import importlib
import importlib.util
from typing import Any

from labelzoo.inference.checks.marginal import EnumerationCase
from labelzoo.inference.checks.order import OrderCase
from labelzoo.inference.checks.stationarity import StationarityCase
from labelzoo.models import registry
from labelzoo.models.spec import ModelSpec

CASES = {"stationarity": StationarityCase, "order": OrderCase, "enumeration": EnumerationCase}


def find_cases(spec: ModelSpec, kind: str) -> tuple[Any, ...]:
    """Return the registered cases of a kind and ``CASES`` of ``labelzoo.inference.<model>.<kind>``."""
    entry = registry.registered(spec)
    own = tuple(case for case in (entry.cases if entry else ()) if isinstance(case, CASES[kind]))
    package = f"labelzoo.inference.{spec.name}"
    of_package = spec.name in registry.BUILT_IN and spec.predict.__module__.startswith("labelzoo.")
    if not of_package or importlib.util.find_spec(package) is None:
        return own
    if importlib.util.find_spec(f"{package}.{kind}") is None:
        return own
    return own + tuple(importlib.import_module(f"{package}.{kind}").CASES)
