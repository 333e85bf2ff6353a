"""``wishart`` marginalises to ``summed``: what the constraints do not read of a kernel goes."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from labelzoo.inference.checks.marginal import EnumerationCase, Nodes, gauss_legendre
from labelzoo.models.kernel_neighbors import class_means, reflected, wishart

Array = Any
Inputs = Mapping[str, Any]
State = Mapping[str, Any]

LAST, NODES = 9.0, 48
"""End of the root of what is left of a kernel, chi with three degrees of freedom, and nodes up to it."""


def tiny_inputs() -> dict[str, Any]:
    """Return two rows of two classes and one new row of the second."""
    return {
        "K0": np.array([[1.0, 0.4], [0.4, 0.8]]),
        "codes": np.array([[0, 1]]),
        "num_classes": 2,
        "alpha": 0.6,
        "beta": 0.45,
        "price": 0.7,
        "positive_total": True,
        "cross": np.array([[0.5, 0.3]]),
        "codes_new": np.array([[1]]),
    }


def draw_states(rng: np.random.Generator, inputs: Inputs) -> list[dict[str, Any]]:
    """Draw radius^2 and white of both classes, such that no similarity is negative and no share 0."""
    return [{"square": rng.chisquare(4.0, 2), "white": rng.uniform(-0.4, 0.4, (2, 1))} for _ in range(6)]


def kernels_of(inputs: Inputs, square: Array, white: Array, left: Array) -> Array:
    """Return K = R H T T' H R' of every class, T = [[radius, 0], [white, left]]: (node, class, 2, 2).

    Parameters
    ----------
    left : (node, class)
    """
    root = np.linalg.cholesky(inputs["K0"])
    direction = class_means(np.asarray(inputs["codes"]), 2, np) @ root
    unit = direction / np.linalg.norm(direction, axis=1, keepdims=True)
    T = np.zeros((len(left), 2, 2, 2))
    T[..., 0, 0], T[..., 1, 0], T[..., 1, 1] = np.sqrt(square), white[:, 0], left
    H = np.stack([reflected(unit, np.tile(axis, (2, 1)), np) for axis in np.eye(2)], axis=-1)
    A = root @ H
    return A @ T @ np.swapaxes(T, -1, -2) @ np.swapaxes(A, -1, -2)


def rest_grid(state: State, inputs: Inputs) -> dict[str, Nodes]:
    """Return Gauss nodes of what is left of both kernels, whose square is d(left^2) = 2 left d(left)."""
    one = gauss_legendre(0.0, LAST, NODES)
    weights = one.log_weights + np.log(2.0 * one.values)
    i, j = (index.ravel() for index in np.indices((NODES, NODES)))
    left = np.stack([one.values[i], one.values[j]], axis=1)
    kernels = kernels_of(inputs, state["square"], state["white"], left)
    return {"kernels": Nodes(kernels, weights[i] + weights[j])}


def carry(state: State, inputs: Inputs) -> tuple[State, float]:
    """Return the state as it is, and log |dK / d(radius^2, white, left^2)| up to a constant.

    K is linear in T T' = (radius^2, radius white, white^2 + left^2), whose Jacobian is radius.
    """
    return state, 0.5 * float(np.log(state["square"]).sum())


CASES = (
    EnumerationCase(
        name="wishart -> summed",
        view_from="wishart",
        view_to="summed",
        sites=("kernels",),
        inputs=tiny_inputs,
        states=draw_states,
        grid=rest_grid,
        carry=carry,
        mutants=(
            ("n + 1 degrees of freedom", partial(wishart, excess=1.0)),
            ("n + 4 degrees of freedom", partial(wishart, excess=4.0)),
        ),
        wrong_inputs=(
            ("K0 doubled", lambda inputs: {**inputs, "K0": 2.0 * inputs["K0"]}),
            ("rows without covariance", lambda inputs: {**inputs, "K0": inputs["K0"] * np.eye(2)}),
            (
                "alpha and beta exchanged",
                lambda inputs: {**inputs, "alpha": inputs["beta"], "beta": inputs["alpha"]},
            ),
            ("price doubled", lambda inputs: {**inputs, "price": 2.0 * inputs["price"]}),
            ("classes exchanged", lambda inputs: {**inputs, "codes": 1 - inputs["codes"]}),
            ("new row taken for another", lambda inputs: {**inputs, "cross": inputs["cross"][:, ::-1]}),
            ("new row of the other class", lambda inputs: {**inputs, "codes_new": 1 - inputs["codes_new"]}),
        ),
    ),
)
