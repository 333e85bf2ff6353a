"""NUTS and SVI on gp_bernoulli_mixture, refused where the program does not run."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from scipy import sparse

from labelzoo.inference.engine import Engine, EngineResult
from labelzoo.inference.reference import reference_engines
from labelzoo.models.spec import ModelSpec

RANDOM_SITES = ("white", "component_probs", "component_size")


def refuse_inducing(inputs: Mapping[str, Any], engine: str) -> None:
    """Refuse inputs of a few inducing rows, which only ``sparse`` works on.

    Raises
    ------
    ValueError
        Naming the setting.
    """
    if sparse.issparse(inputs["Y"]):
        raise ValueError(
            f"num_inducing is for engine sparse: leave it out for {engine}, which takes all rows"
        )


def guarded(engine: Engine) -> Engine:
    """Return the engine with `refuse_inducing` before it runs."""

    def run(spec: ModelSpec, inputs: dict[str, Any], **options: Any) -> EngineResult:
        refuse_inducing(inputs, engine.name)
        return inner(spec, inputs, **options)

    inner: Callable[..., EngineResult] = engine.run
    return replace(engine, run=run, random_sites=RANDOM_SITES)


def judges(spec: ModelSpec) -> tuple[Engine, ...]:
    """Return ``nuts`` and ``svi`` of the card, guarded."""
    return tuple(guarded(engine) for engine in reference_engines(spec))
