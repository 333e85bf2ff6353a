"""NUTS and SVI on compressed_gp: the reference engines, which need a target to sample parameters of."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from labelzoo.inference.engine import Engine, EngineResult
from labelzoo.inference.reference import reference_engines
from labelzoo.models.compressed_gp import SITES
from labelzoo.models.spec import ModelSpec


def guarded(engine: Engine) -> Engine:
    """Return the engine, refused where there is no target."""

    def run(spec: ModelSpec, inputs: dict[str, Any], **options: Any) -> EngineResult:
        if not inputs["targets"].shape[1]:
            raise ValueError(
                f"there is nothing to sample for {engine.name}: no target is left of the labels of the "
                f"{len(inputs['targets'])} rows that are fitted, which are alike, or the compression "
                "takes them for noise, as bpca does with a single measurement (compression='none' keeps "
                "whatever varies); gradient, s_opt and b_opt predict their frequencies"
            )
        return inner(spec, inputs, **options)

    inner: Callable[..., EngineResult] = engine.run
    return replace(engine, run=run, random_sites=SITES)


def judges(spec: ModelSpec) -> tuple[Engine, ...]:
    """Return ``nuts`` and ``svi`` of the card."""
    return tuple(guarded(engine) for engine in reference_engines(spec))
