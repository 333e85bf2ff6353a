"""The stationarity, order and enumeration cases of a model, found by the name of its package."""

import importlib
import importlib.util
from typing import Any

from labelzoo.models.spec import ModelSpec


def find_cases(spec: ModelSpec, kind: str) -> tuple[Any, ...]:
    """Return ``CASES`` of ``labelzoo.inference.<model>.<kind>``, none where there is no such module."""
    package = f"labelzoo.inference.{spec.name}"
    if not spec.name.isidentifier() or importlib.util.find_spec(package) is None:
        return ()
    if importlib.util.find_spec(f"{package}.{kind}") is None:
        return ()
    return tuple(importlib.import_module(f"{package}.{kind}").CASES)
