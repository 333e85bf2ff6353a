"""The views marginalise to one another, by quadrature over precisions, compressed labels and weights."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from labelzoo.data import LabelData
from labelzoo.inference.checks.marginal import (
    EnumerationCase,
    gauss_legendre,
    log_scale_nodes,
    product_nodes,
)
from labelzoo.models.sparse_bayes import augmented, filled, log_regression
from labelzoo.models.sparse_bayes_card import spec

NODES, LOG_RANGE = 160, (-34.0, 6.0)
"""log alpha; below e^-34 the prior has e^-17 of its mass and above e^6 the likelihood nothing."""
WIDTH, WIDE_NODES = 7.0, 46
"""Compressed labels and weights; variances are near one."""


def tiny_inputs(*, hidden: bool = True) -> dict[str, Any]:
    """Return two rows and two labels, one label of each row hidden, one feature and one measurement."""
    Y = np.array([[1.0, np.nan], [np.nan, 1.0]])
    settings = spec.resolve(
        {"kernel": "linear", "noise": 1.6, "scale": 0.8, "num_measurements": 1, "hyperparameters": "fixed"}
    )
    return spec.prepare(LabelData(np.array([[0.7], [-1.3]]), Y), settings)


def draw_labels(rng: np.random.Generator, inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Draw labels of both cells from near zero to far out."""
    return [{"y_unobserved": scale * rng.standard_normal(2)} for scale in (0.1, 0.5, 1.0, 2.0, 3.0)]


def draw_both(rng: np.random.Generator, inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Draw labels and precisions."""
    return [{**state, "precision": rng.gamma(2.0, 1.0, 2)} for state in draw_labels(rng, inputs)]


def precision_grid(state: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return Gauss nodes for log alpha at every cell."""
    return {"precision": product_nodes(log_scale_nodes(*LOG_RANGE, NODES), (2,))}


def graph_grid(state: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return Gauss nodes for both compressed labels and the weight."""
    nodes = gauss_legendre(-WIDTH, WIDTH, WIDE_NODES)
    return {"compressed": product_nodes(nodes, (2, 1)), "weights": product_nodes(nodes, (1, 1))}


def _unnormalised(
    projection: Any, Y: Any, cell_row: Any, cell_label: Any, cholesky: Any, precision_shape: Any,
    precision_rate: Any, **rest: Any,
) -> None:  # fmt: skip
    """The precisions with the potential exp(-alpha y^2 / 2) for the normal density of a label."""
    with numpyro.plate("cell", cell_row.shape[0]):
        precision = numpyro.sample("precision", dist.Gamma(precision_shape, precision_rate))
        y = numpyro.sample("y_unobserved", dist.Normal(0.0, precision**-0.5))
    numpyro.factor("potential", -0.5 * jnp.log(precision).sum())
    T = filled(Y, cell_row, cell_label, y) @ projection.T
    numpyro.factor("regression", log_regression(T, cholesky))


def _one_noise(**inputs: Any) -> None:
    """The whole graph with sigma2 = chi2 = the sum of the two."""
    noise = inputs["sigma2"] + inputs["chi2"]
    augmented(**{**inputs, "sigma2": noise, "chi2": noise})


def _twice(name: str) -> Any:
    return lambda inputs: {**inputs, name: 2.0 * np.asarray(inputs[name])}


CASES = (
    EnumerationCase(
        name="precisions -> summed",
        view_from="precisions",
        view_to="summed",
        sites=("precision",),
        inputs=tiny_inputs,
        states=draw_labels,
        grid=precision_grid,
        threshold=1e-7,
        mutants=(("exponent a0 for a0 + 1/2: no normaliser of N(y; 0, 1 / alpha)", _unnormalised),),
        wrong_inputs=(
            ("precision_rate doubled", _twice("precision_rate")),
            ("precision_shape doubled", _twice("precision_shape")),
        ),
    ),
    EnumerationCase(
        name="augmented -> precisions",
        view_from="augmented",
        view_to="precisions",
        sites=("compressed", "weights"),
        inputs=tiny_inputs,
        states=draw_both,
        grid=graph_grid,
        mutants=(("each noise as large as the sum", _one_noise),),
        wrong_inputs=(
            ("chi2 doubled", _twice("chi2")),
            ("F doubled", _twice("factor")),
            ("Phi doubled", _twice("projection")),
        ),
    ),
)
