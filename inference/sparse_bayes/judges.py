"""NUTS and SVI on sparse_bayes: the reference engines, refused where they cannot be trusted."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from labelzoo.inference.engine import Engine, EngineResult
from labelzoo.inference.reference import reference_engines
from labelzoo.models.spec import ModelSpec

LEAST = 0.5
"""Smallest precision_shape and precision_rate at which the Student t prior is no spike."""
NUM_WARMUP, NUM_SAMPLES = 300, 1500
"""Of NUTS by default: step size and scales settle soon, the heavy tails take their time."""


def refuse(inputs: Mapping[str, Any], engine: str) -> None:
    """Refuse a prior too narrow for gradients, and a graph without an unobserved label.

    Raises
    ------
    ValueError
        Naming the setting.
    """
    for name in ("precision_shape", "precision_rate"):
        if float(inputs[name]) < LEAST:
            raise ValueError(
                f"{name}={float(inputs[name]):g} makes the prior of a label a spike with heavy tails, in "
                f"which "
                f"{engine} gets stuck: take {name} of at least {LEAST}, or the engines ml_oss, bml_cs or "
                f"gibbs"
            )
    if not inputs["cell_row"].shape[0]:
        raise ValueError(
            f"there is nothing to sample for {engine}: every label of the rows in the graph is observed; "
            f"ml_oss, "
            "bml_cs and gibbs keep such a posterior and predict new rows from it"
        )


def guarded(engine: Engine) -> Engine:
    """Return the engine with `refuse` before it runs."""

    def run(spec: ModelSpec, inputs: dict[str, Any], **options: Any) -> EngineResult:
        refuse(inputs, engine.name)
        return inner(spec, inputs, **options)

    inner: Callable[..., EngineResult] = engine.run
    options = dict(engine.options)
    if engine.kind == "mcmc":  # labels with heavy tails take longer
        options |= {"num_warmup": NUM_WARMUP, "num_samples": NUM_SAMPLES}
    return replace(engine, run=run, random_sites=("y_unobserved",), options=options)


def judges(spec: ModelSpec) -> tuple[Engine, ...]:
    """Return ``nuts`` and ``svi`` of the card, guarded."""
    return tuple(guarded(engine) for engine in reference_engines(spec))
