"""Steps past an update, kept only where the bound rises: what structured and mean_field climb by.

A coordinate update of Gaussian sites is a natural-gradient step of length 1 on the bound; where the
auxiliaries carry much more information than the labels (a low gate_mean) it is far too short. Longer steps in
the sites' natural parameters, each guarded by the bound, are the adaptive overrelaxation of Salakhutdinov and
Roweis, "Adaptive overrelaxed bound optimization methods", ICML 2003.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from labelzoo.inference.gp_bernoulli_mixture.factors import Factors

Array = Any

GROWTH, LONGEST = 1.3, 50.0
"""A step that raised the bound is followed by one longer by this factor, up to so much."""
SHRINK = 0.25
"""A step that did not is followed by a plain one, and its length falls by this factor."""
LEAST_WEIGHT = 0.1
"""A weight does not fall below this share of the one that its update asks for."""


def lengthened(factors: Factors, weight: Array, potential: Array, length: float) -> tuple[Array, Array]:
    """Return the sites at `length` times the step from the factors' sites to the update's."""
    if length == 1.0 or not factors.weight.any():
        return weight, potential
    far = factors.weight + length * (weight - factors.weight)
    return np.maximum(far, LEAST_WEIGHT * weight), factors.potential + length * (
        potential - factors.potential
    )


def guarded(sweep: Callable[[Any, float], Any], state: Any) -> Any:
    """Make a sweep of the state's length; a plain one instead where that does not raise the bound.

    A refused sweep costs its time as well. The bound never falls, and the points of rest are those of the
    plain sweep.

    Parameters
    ----------
    sweep : callable
        ``sweep(state, length) -> state`` with ``objective`` set.
    state : NamedTuple
        With ``objective`` and ``stretch``.
    """
    stretch = float(state.stretch)
    if stretch > 1.0 and np.isfinite(state.objective):
        new = sweep(state, stretch)
        if new.objective >= state.objective:
            return new._replace(stretch=min(stretch * GROWTH, LONGEST))
        stretch = max(1.0, SHRINK * stretch)
    return sweep(state, 1.0)._replace(stretch=min(stretch * GROWTH, LONGEST))
