"""NUTS and SVI on kernel_neighbors: the reference engines, which need soft constraints and a problem."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from labelzoo.inference.engine import Engine, EngineResult
from labelzoo.inference.reference import reference_engines
from labelzoo.models.spec import ModelSpec

RANDOM = ("square", "white")


def guarded(engine: Engine) -> Engine:
    """Return the engine, refused where there is nothing to sample or the constraints are hard."""

    def run(spec: ModelSpec, inputs: dict[str, Any], **options: Any) -> EngineResult:
        if not len(inputs["codes"]):
            raise ValueError(
                f"there is nothing to sample for {engine.name}: every label is the same in all "
                f"{len(inputs['K0'])} rows that are fitted; bregman and dual predict it"
            )
        if not np.isfinite(inputs["price"]):
            raise ValueError(
                f"{engine.name} needs soft constraints, under hard ones no gradient leads back: set gamma"
            )
        return inner(spec, inputs, **options)

    inner: Callable[..., EngineResult] = engine.run
    return replace(engine, run=run, random_sites=RANDOM)


def judges(spec: ModelSpec) -> tuple[Engine, ...]:
    """Return ``nuts`` and ``svi`` of the card."""
    return tuple(guarded(engine) for engine in reference_engines(spec))
