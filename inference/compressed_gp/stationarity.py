"""Where the gradient search must come to rest: its objective written from the program, by autodiff."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.handlers as handlers
from scipy.optimize import root

from labelzoo.inference.checks.stationarity import StationarityCase
from labelzoo.inference.compressed_gp.hyperparameters import PRIOR_SD, gradient, objective_gradient
from labelzoo.inference.compressed_gp.kernel14 import Caches, log_likelihood_gradient
from labelzoo.models.compressed_gp import SITES, summed

Array = Any
Inputs = Mapping[str, Any]
Slope = Callable[[Array, Array, Caches], Array]


def objective(params: Mapping[str, Array], inputs: Inputs) -> Array:
    """Return the log joint of the program at the five sites, nats; nothing is taken from the search."""
    sites = dict(zip(SITES, params["log_theta"].T, strict=True))
    seeded = handlers.seed(summed, jax.random.key(0))
    trace = handlers.trace(handlers.substitute(seeded, sites)).get_trace(**inputs)
    return sum(
        site["fn"].log_prob(site["value"]).sum() for site in trace.values() if site["type"] == "sample"
    )


def own_slope(x: Array, u: Array, caches: Caches) -> Array:
    """Return the gradient that the search climbs, of one target: (5,)."""
    return objective_gradient(x[None], u, caches).gradient[0]


def fixed_point(inputs: Inputs, slope: Slope = own_slope) -> dict[str, Array]:
    """Return the root of a gradient next to where the search ends, target by target.

    The search itself ends where its objective no longer changes in the twelfth digit.
    """
    U, caches = np.asarray(inputs["targets"]), Caches(inputs["mapped"])
    found = [
        root(lambda x, u: slope(x, u, caches), x, args=(U[:, g : g + 1],), tol=1e-12).x
        for g, x in enumerate(np.log(gradient(U, caches).theta))
    ]
    return {"log_theta": jnp.asarray(np.array(found).reshape(-1, 5))}


def _likelihood(x: Array, u: Array, caches: Caches) -> Array:
    return log_likelihood_gradient(np.exp(x)[None], u, caches).gradient[0]


def _of_the_determinant(x: Array, u: Array, caches: Caches) -> Array:
    """Return the gradient of -ln |C| / 2: with u = 0 nothing else is left."""
    return _likelihood(x, 0.0 * u, caches)


def _prior_twice(x: Array, u: Array, caches: Caches) -> Array:
    return own_slope(x, u, caches) - x / PRIOR_SD**2


def _sd_as_variance(x: Array, u: Array, caches: Caches) -> Array:
    return _likelihood(x, u, caches) - x / PRIOR_SD


def _half_of_the_determinant(x: Array, u: Array, caches: Caches) -> Array:
    return own_slope(x, u, caches) - 0.5 * _of_the_determinant(x, u, caches)


def _uncentred(x: Array, u: Array, caches: Caches) -> Array:
    return own_slope(x, u + 0.5, caches)


def _half_of_th1(x: Array, u: Array, caches: Caches) -> Array:
    """exp(-th1 A) for exp(-th1 A / 2): the slope at twice th1."""
    shifted = x + np.array([0.0, np.log(2.0), 0.0, 0.0, 0.0])
    return _likelihood(shifted, u, caches) - x / PRIOR_SD**2


CASES = (
    StationarityCase(
        name="log posterior of the kernel parameters",
        engine="gradient",
        fixed_point=fixed_point,
        objective=objective,
        mutants=(
            ("prior counted twice", partial(fixed_point, slope=_prior_twice)),
            (
                "standard deviation of the prior taken for its variance",
                partial(fixed_point, slope=_sd_as_variance),
            ),
            ("half of the log determinant", partial(fixed_point, slope=_half_of_the_determinant)),
            ("targets not centred", partial(fixed_point, slope=_uncentred)),
            ("half of th1 forgotten", partial(fixed_point, slope=_half_of_th1)),
        ),
    ),
)
