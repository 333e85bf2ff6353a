"""The views of compressed_gp marginalise to ``summed``: new targets, or slopes and constants, go."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist

from labelzoo.data import LabelData
from labelzoo.inference.checks.marginal import EnumerationCase, Nodes, gauss_legendre, product_nodes
from labelzoo.models.compressed_gp import (
    DECIBEL,
    PRIOR_SD,
    SITES,
    Logs,
    function_covariance,
    with_noise,
)
from labelzoo.models.compressed_gp_card import TARGETS_KEPT, spec

Inputs = Mapping[str, Any]
State = Mapping[str, Any]

WIDTH = 9.0
"""Standard deviations under the prior on either side; 1e-18 of the mass is beyond."""
NODES, LINE_NODES = 400, 160


def tiny_inputs() -> dict[str, Any]:
    """Return four rows of one label and one feature, so that there is one target, and one without label."""
    X, Y = np.array([[0.3], [-1.0], [1.2], [0.1], [0.7]]), np.array([[1.0], [0.0], [1.0], [0.0], [np.nan]])
    return spec.prepare(LabelData(X, Y), spec.resolve(TARGETS_KEPT))


def draw_states(rng: np.random.Generator, inputs: Inputs) -> list[dict[str, Any]]:
    """Draw the five sites, spread more and more."""
    count = inputs["targets"].shape[1]
    return [
        {name: scale * rng.standard_normal(count) for name in SITES} for scale in (0.1, 0.3, 0.5, 0.7, 0.7)
    ]


def to_decibels(state: State, inputs: Inputs) -> tuple[State, float]:
    """Return the state of ``predictive`` and log |d decibels / d logarithms|."""
    logs = np.stack([state[name] for name in SITES], axis=-1)
    return {"decibels": logs / DECIBEL}, -logs.size * float(np.log(DECIBEL))


def new_grid(state: State, inputs: Inputs) -> dict[str, Nodes]:
    """Return Gauss nodes of the target of the one new row, over its prior."""
    own = float(inputs["new_products"][0, -1])
    signal, _, linear, constant, noise = np.exp(DECIBEL * state["decibels"][0])
    end = WIDTH * float(np.sqrt(signal + constant + noise + linear * own))
    return {"new_targets": product_nodes(gauss_legendre(-end, end, NODES), (1, 1))}


def line_grid(state: State, inputs: Inputs) -> dict[str, Nodes]:
    """Return Gauss nodes of the slope and the constant, each over its prior."""
    sides = []
    for name in ("log_linear", "log_constant"):
        end = WIDTH * float(np.exp(0.5 * state[name][0]))
        sides.append(gauss_legendre(-end, end, LINE_NODES))
    i, j = (index.ravel() for index in np.indices((LINE_NODES, LINE_NODES)))
    values = np.stack([sides[0].values[i], sides[1].values[j]], axis=-1)[:, None, :]
    return {"line": Nodes(values, sides[0].log_weights[i] + sides[1].log_weights[j])}


def _new_taken_for_observed(**inputs: Any) -> None:
    """The program in which old targets do not read the new ones, but have the variance left by them."""
    prior = dist.Normal(0.0, PRIOR_SD / DECIBEL).expand([inputs["targets"].shape[1], len(SITES)])
    logs = Logs(*(DECIBEL * numpyro.sample("decibels", prior.to_event(2))).T)
    n = len(inputs["distances2"])
    C = with_noise(function_covariance(logs, inputs["distances2"], inputs["products"]), logs)
    far, inner = inputs["new_distances2"], inputs["new_products"]
    k = function_covariance(logs, far[:, :n], inner[:, :n])
    own = with_noise(function_covariance(logs, far[:, n:], inner[:, n:]), logs)
    with numpyro.plate("target", inputs["targets"].shape[1]):
        numpyro.sample("new_targets", dist.MultivariateNormal(np.zeros(len(far)), own))
        left = dist.MultivariateNormal(np.zeros(n), C - k.mT @ k / own)
        numpyro.sample("targets", left, obs=inputs["targets"].T)


def _twice(name: str) -> Any:
    return lambda inputs: {**inputs, name: 2.0 * np.asarray(inputs[name])}


CASES = (
    EnumerationCase(
        name="predictive -> summed",
        view_from="predictive",
        view_to="summed",
        sites=("new_targets",),
        inputs=tiny_inputs,
        states=draw_states,
        grid=new_grid,
        carry=to_decibels,
        mutants=(("old targets do not read the new ones", _new_taken_for_observed),),
        wrong_inputs=(
            ("targets doubled", _twice("targets")),
            ("products doubled", _twice("products")),
        ),
    ),
    EnumerationCase(
        name="linear -> summed",
        view_from="linear",
        view_to="summed",
        sites=("line",),
        inputs=tiny_inputs,
        states=draw_states,
        grid=line_grid,
        wrong_inputs=(
            ("mapped features doubled", _twice("mapped")),
            ("distances doubled", _twice("distances2")),
        ),
    ),
)
