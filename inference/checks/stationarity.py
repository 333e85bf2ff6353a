"""Rung 2: the gradient of an independently written objective vanishes where an engine comes to rest.

A monotone objective is not enough: measured on a mean-field logistic regression, a wrong prior variance
and a wrong 1/2 both climb monotonically and stop elsewhere. The objective of a case must be written apart
from the update, or it shares its mistakes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from labelzoo.inference.checks.programs import Program
from labelzoo.inference.checks.report import CheckResult

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


THRESHOLD = 1e-6
"""Largest absolute gradient in any leaf at a right fixed point."""
MUTANT_FLOOR = 100 * THRESHOLD
"""A wrong fixed point must leave at least this much, so that no limit between the two is a near thing."""


class Gradients:
    """The gradients of a case's objective under several data sets, each compiled when it is first asked for.

    Parameters
    ----------
    case : StationarityCase
    inputs : mapping of str to mapping
        What ``spec.prepare`` returned, by the name of the data set.
    """

    def __init__(self, case: StationarityCase, inputs: Mapping[str, Mapping[str, Any]]) -> None:
        self.case, self.inputs = case, inputs
        self._programs: dict[str, Program] = {}

    def largest(self, fixed_point: FixedPoint, data: str) -> tuple[float, str]:
        """Return the largest absolute gradient at a fixed point and the leaf that has it."""
        inputs = self.inputs[data]
        if data not in self._programs:
            # The inputs stay concrete: an objective may read them with NumPy.
            self._programs[data] = Program(jax.grad(lambda params: self.case.objective(params, inputs)))
        gradient = self._programs[data](fixed_point(inputs))
        worst, where = 0.0, ""
        for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
            value = np.abs(np.asarray(leaf)).max(initial=0.0)
            value = float(value) if np.isfinite(value) else np.inf
            if value >= worst:
                worst, where = value, jax.tree_util.keystr(path, simple=True, separator=".")
        return worst, where

    def check(self, data: str) -> CheckResult:
        """Check that the gradient vanishes where the engine stops."""
        worst, where = self.largest(self.case.fixed_point, data)
        place = f" (of {where})" if where else ""
        detail = f"{self.case.name}: largest gradient at the fixed point{place}, {data} data"
        passed = worst < THRESHOLD
        return CheckResult(self.case.engine, "stationarity", where, passed, worst, THRESHOLD, detail)


def largest_gradient(
    case: StationarityCase, fixed_point: FixedPoint, inputs: Mapping[str, Any]
) -> tuple[float, str]:
    """Return the largest absolute gradient of the objective at a fixed point and the leaf that has it."""
    return Gradients(case, {"": inputs}).largest(fixed_point, "")


def check_stationarity(case: StationarityCase, inputs: Mapping[str, Any], data: str) -> CheckResult:
    """Check that the gradient vanishes where the engine stops."""
    return Gradients(case, {data: inputs}).check(data)
