"""Rung 2: the gradient of an independently written objective vanishes where an engine comes to rest.

A monotone objective is not enough: measured on a mean-field logistic regression, a wrong prior variance
and a wrong 1/2 both climb monotonically and stop elsewhere. The objective of a case must be written apart
from the update, or it shares its mistakes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Params = Any
"""A pytree of float arrays in unconstrained (or interior) coordinates."""

FixedPoint = Callable[[Mapping[str, Any]], Params]


@dataclass(frozen=True)
class StationarityCase:
    """An engine, where it stops, and the function it is said to maximise.

    Parameters
    ----------
    name : str
        What is maximised, in words: ``"ELBO of the mean-field factors"``.
    engine : str
        Name of the engine in the registry.
    fixed_point : callable
        ``fixed_point(inputs) -> params``: iterate the engine's own updates until they rest. `inputs` is
        what ``spec.prepare`` returned; 64-bit floats are on.
    objective : callable
        ``objective(params, inputs) -> scalar``, differentiable in every leaf of `params`, written from the
        model and not from the updates. Constrained leaves must be interior and free: give a simplex by
        its logits, a covariance by its Cholesky factor or an unconstrained matrix.
    mutants : tuple of (str, callable)
        Wrong fixed points, ``(what is wrong, fixed_point)``; each must leave a gradient.
    """

    name: str
    engine: str
    fixed_point: FixedPoint
    objective: Callable[[Params, Mapping[str, Any]], Any]
    mutants: tuple[tuple[str, FixedPoint], ...] = ()
