"""The Polya-Gamma view integrates to the summed one: by quadrature over omega at two cells."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from labelzoo.data import LabelData
from labelzoo.inference.checks.marginal import EnumerationCase, log_scale_nodes, product_nodes
from labelzoo.inference.polya_gamma import PolyaGamma
from labelzoo.models.label_logistic import spec

NODES = 48
LOG_RANGE = (-6.0, 2.2)
"""log omega; PG(1, 0) has less than e^-40 of its mass outside."""


def tiny_inputs() -> dict[str, Any]:
    """Return one label at two rows, once positive and once not."""
    data = LabelData(np.array([[0.7], [-1.3]]), np.array([[1], [0]]))
    return spec.prepare(data, spec.settings)


def draw_states(rng: np.random.Generator, inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Draw weights from near zero to far out."""
    shape = (inputs["Y"].shape[1], inputs["X"].shape[1])
    return [{"weights": scale * rng.standard_normal(shape)} for scale in (0.0, 0.1, 1.0, 2.0, 4.0)]


def omega_grid(state: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return Gauss nodes for log omega at every cell."""
    return {"omega": product_nodes(log_scale_nodes(*LOG_RANGE, NODES), inputs["Y"].shape)}


def _no_half(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {**inputs, "Y": np.asarray(inputs["Y"]) + 0.5}


def _two_trials(X: Any, Y: Any, observed: Any, precision: Any) -> None:
    with numpyro.plate("labels", Y.shape[1]):
        weights = numpyro.sample("weights", dist.Normal(0.0, precision**-0.5).to_event(1))
    psi = X @ weights.T
    with numpyro.plate("obs", X.shape[0]):
        omega = numpyro.sample("omega", PolyaGamma(2.0 * jnp.ones_like(psi), 0.0).to_event(1))
    numpyro.factor("Y", jnp.where(observed, (Y - 0.5) * psi - 0.5 * omega * psi**2, 0.0).sum())


CASES = (
    EnumerationCase(
        name="polya_gamma -> summed",
        view_from="polya_gamma",
        view_to="summed",
        sites=("omega",),
        inputs=tiny_inputs,
        states=draw_states,
        grid=omega_grid,
        mutants=(("omega ~ PG(2, 0)", _two_trials),),
        wrong_inputs=(("kappa = y, the 1/2 dropped", _no_half),),
    ),
)
