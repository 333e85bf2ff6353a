"""The views of bpca marginalise to one another, by quadrature over the scores and by changes of variables."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from labelzoo.data import LabelData
from labelzoo.inference.checks.marginal import EnumerationCase, Nodes, gauss_legendre, product_nodes
from labelzoo.models.bpca import observe_rows, sample_parameters
from labelzoo.models.bpca_card import spec

Inputs = Mapping[str, Any]
State = Mapping[str, Any]

WIDTH, NODES = 8.0, 64
"""Scores: their prior has e^-32 of its density at the ends."""
LONGEST, LENGTHS = 9.0, 48
"""Lengths of ``white`` along a fixed direction."""
PRIOR = {
    "precision_shape": 1.5,
    "precision_rate": 0.8,
    "noise_shape": 2.0,
    "noise_rate": 0.7,
    "mean_precision": 0.4,
}


def tiny_inputs() -> dict[str, Any]:
    """Return two rows of one label: d = p = 1."""
    data = LabelData(np.zeros((2, 1)), np.array([[1], [0]]))
    return spec.prepare(data, spec.resolve(PRIOR))


def small_inputs() -> dict[str, Any]:
    """Return three rows of two labels, not compressed: d = p = 2."""
    data = LabelData(np.zeros((3, 1)), np.array([[1, 0], [0, 0], [1, 1]]))
    return spec.prepare(data, spec.resolve({**PRIOR, "num_measurements": 2, "num_components": 2}))


def draw_states(rng: np.random.Generator, inputs: Inputs) -> list[dict[str, Any]]:
    """Draw states of ``centred``."""
    d, p = inputs["compressed"].shape[1], inputs["num_components"]
    return [
        {
            "precision": rng.gamma(2.0, 1.0, p),
            "noise_precision": np.asarray(rng.gamma(2.0, 1.0)),
            "mean": scale * rng.standard_normal(d),
            "loadings": scale * rng.standard_normal((d, p)),
        }
        for scale in (0.1, 0.5, 1.0, 1.5, 2.0)
    ]


def draw_white(rng: np.random.Generator, inputs: Inputs) -> list[dict[str, Any]]:
    """Draw states of ``summed``."""
    states = draw_states(rng, inputs)
    return [{"loadings_white": state.pop("loadings"), **state} for state in states]


def draw_all(rng: np.random.Generator, inputs: Inputs) -> list[dict[str, Any]]:
    """Draw states of ``augmented``."""
    shape = (inputs["compressed"].shape[0], inputs["num_components"])
    return [{**state, "scores": 1.3 * rng.standard_normal(shape)} for state in draw_states(rng, inputs)]


def score_grid(state: State, inputs: Inputs) -> dict[str, Nodes]:
    """Return Gauss nodes of both scores."""
    shape = (inputs["compressed"].shape[0], inputs["num_components"])
    return {"scores": product_nodes(gauss_legendre(-WIDTH, WIDTH, NODES), shape)}


def from_white(state: State, inputs: Inputs) -> tuple[State, float]:
    """Return the state of ``centred``, and log |dW / dV| = -measurement / 2 sum_i log alpha_i."""
    alpha, V = state["precision"], state["loadings_white"]
    carried = {name: value for name, value in state.items() if name != "loadings_white"}
    jacobian = -0.5 * V.shape[0] * float(np.log(alpha).sum())
    return {**carried, "loadings": V / np.sqrt(alpha)}, jacobian


def to_stretched(state: State, inputs: Inputs) -> tuple[State, float]:
    """Return the state of ``stretched``, ``white`` on the directions of the scores, and the log Jacobian.

    With s = norm(U_i)^2: du = r^(rows - 1) dr dA and ds = 2 r dr; W and alpha are scaled by r and 1 / s.
    """
    U, (d, _) = state["scores"], state["loadings"].shape
    size = (U**2).sum(axis=0)
    rows = U.shape[0]
    jacobian = (np.log(2.0) + (0.5 * (2 - rows) + 0.5 * d - 1.0) * np.log(size)).sum()
    carried = {name: state[name] for name in ("noise_precision", "mean")}
    return {
        **carried,
        "score_size": size,
        "scaled_loadings": state["loadings"] * np.sqrt(size),
        "scaled_precision": state["precision"] / size,
        "white": U / np.sqrt(size),
    }, float(jacobian)


def ray_grid(state: State, inputs: Inputs) -> dict[str, Nodes]:
    """Return Gauss nodes along the direction of every column of ``white``, with the weight r^(rows - 1)."""
    directions = state["white"]
    rows, p = directions.shape
    lengths = gauss_legendre(0.0, LONGEST, LENGTHS)
    weighted = lengths.log_weights + (rows - 1) * np.log(lengths.values)
    nodes = product_nodes(Nodes(lengths.values, weighted), (1, p))
    return {"white": Nodes(nodes.values * directions, nodes.log_weights)}


def _noise_as_variance(**inputs: Any) -> None:
    """The program with W explicit, tau taken for the variance of the noise."""
    hyper = [inputs[name] for name in PRIOR]
    d, p = inputs["compressed"].shape[1], inputs["num_components"]
    alpha, tau, mean = sample_parameters(d, p, *hyper)
    W = numpyro.sample("loadings", dist.Normal(0.0, alpha**-0.5).expand([d, p]).to_event(2))
    observe_rows(inputs["compressed"], W, mean, 1.0 / tau)


def _alpha_as_scale(**inputs: Any) -> None:
    """The program with W explicit, alpha taken for its variance."""
    hyper = [inputs[name] for name in PRIOR]
    d, p = inputs["compressed"].shape[1], inputs["num_components"]
    alpha, tau, mean = sample_parameters(d, p, *hyper)
    W = numpyro.sample("loadings", dist.Normal(0.0, jnp.sqrt(alpha)).expand([d, p]).to_event(2))
    observe_rows(inputs["compressed"], W, mean, tau)


def _twice(name: str) -> Any:
    return lambda inputs: {**inputs, name: 2.0 * np.asarray(inputs[name])}


CASES = (
    EnumerationCase(
        name="centred -> summed",
        view_from="centred",
        view_to="summed",
        sites=("loadings_white",),
        inputs=small_inputs,
        states=draw_white,
        grid=lambda state, inputs: {},
        carry=from_white,
        mutants=(
            ("tau taken for a variance", _noise_as_variance),
            ("alpha taken for a variance", _alpha_as_scale),
        ),
        wrong_inputs=(
            ("precision_rate doubled", _twice("precision_rate")),
            ("mean_precision doubled", _twice("mean_precision")),
        ),
    ),
    EnumerationCase(
        name="augmented -> centred",
        view_from="augmented",
        view_to="centred",
        sites=("scores",),
        inputs=tiny_inputs,
        states=draw_states,
        grid=score_grid,
        wrong_inputs=(
            ("rows doubled", _twice("compressed")),
            ("noise_rate doubled", _twice("noise_rate")),
        ),
    ),
    EnumerationCase(
        name="stretched -> augmented",
        view_from="stretched",
        view_to="augmented",
        sites=("white",),
        inputs=small_inputs,
        states=draw_all,
        grid=ray_grid,
        carry=to_stretched,
        wrong_inputs=(
            ("precision_shape doubled", _twice("precision_shape")),
            ("rows doubled", _twice("compressed")),
        ),
    ),
)
