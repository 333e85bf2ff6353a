"""NUTS and SVI on bpca: the reference engines, which say where the prior is too vague for gradients."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from labelzoo.inference.engine import Engine, EngineResult
from labelzoo.inference.reference import reference_engines
from labelzoo.models.spec import ModelSpec

LEAST = 1e-2
"""Shapes and rates below which a gamma prior can make a funnel, where a column of W is switched off."""
GAMMAS = ("precision_shape", "precision_rate", "noise_shape", "noise_rate")
RANDOM = ("precision", "noise_precision", "mean", "loadings")


def vague(inputs: Mapping[str, Any]) -> str:
    """Return in words which priors are too vague for NUTS and SVI; empty where none is."""
    found = [name for name in GAMMAS if float(inputs[name]) < LEAST]
    if not found:
        return ""
    return (
        f"{', '.join(found)} below {LEAST:g} can make funnels in which gradients get stuck: where draws "
        "diverge or do not converge, take .01 to 1, or the engine gibbs"
    )


def warned(engine: Engine) -> Engine:
    """Return the engine with `vague` added to its message."""

    def run(spec: ModelSpec, inputs: dict[str, Any], **options: Any) -> EngineResult:
        result = inner(spec, inputs, **options)
        return result._replace(message="; ".join(filter(None, (result.message, vague(inputs)))))

    inner: Callable[..., EngineResult] = engine.run
    # At its median a vague gamma is 0 to machine precision, and V = 0 is a stationary point.
    options = {**engine.options, "init": "uniform"}
    return replace(engine, run=run, random_sites=RANDOM, options=options)


def judges(spec: ModelSpec) -> tuple[Engine, ...]:
    """Return ``nuts`` and ``svi`` of the card."""
    return tuple(warned(engine) for engine in reference_engines(spec))
