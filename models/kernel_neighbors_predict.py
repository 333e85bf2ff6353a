"""Predictions of kernel_neighbors: similarities to the classes, and their shares.

s_l(x) = K0(x, X) coefficients_l, coefficients_l = K0^-1 K^l v_l; no class kernel is formed.

Jain and Kapoor, CVPR 2009, eqs. 2 and 11.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy import sparse

from labelzoo.acquisition.class_similarity import ClassSimilarity
from labelzoo.arguments import size_words
from labelzoo.models.gp_kernel import GPKernel
from labelzoo.models.kernel_neighbors import class_probs
from labelzoo.models.spec import MAX_DENSE_BYTES

Array = Any
Draws = Mapping[str, Any]
Constants = Mapping[str, Any]

MAX_DRAWS = 400
"""Most posterior draws that `class_similarity` keeps, evenly spaced."""
LEAST_SHARE = 1e-3
"""Of a row's probability that is spread evenly: a similarity of 0 is no proof."""


def kernel_of(constants: Constants) -> GPKernel:
    """Return the prior kernel from saved constants."""
    return GPKernel(
        bool(constants["is_cosine"]), constants["center"], constants["scale"], float(constants["length2"])
    )


def mapped_rows(kernel: GPKernel, X: Any) -> Array:
    """Return the mapped rows as a dense array (row, feature)."""
    Z = kernel.mapped(X)
    return Z.toarray() if sparse.issparse(Z) else np.asarray(Z)


def cross_kernel(X_new: Array, constants: Constants) -> Array:
    """Return K0 between raw dense rows and the training rows, traceable by JAX: (row, graph)."""
    Z = (X_new - constants["center"]) * constants["scale"]
    rows = constants["mapped"]
    if bool(constants["is_cosine"]):
        norm = jnp.linalg.norm(Z, axis=1, keepdims=True)
        return jnp.where(norm > 0, Z / jnp.where(norm > 0, norm, 1.0), 0.0) @ rows.T
    square = (Z**2).sum(axis=1)[:, None] + (rows**2).sum(axis=1)[None, :] - 2.0 * Z @ rows.T
    return jnp.exp(-jnp.maximum(square, 0.0) / (2.0 * constants["length2"]))


def predict(draw: Draws, X_new: Array, constants: Constants) -> Array:
    """Return P(label = 1) of new rows under one draw: (row, labels).

    Where rows have one class, its shares s_l / sum_m s_m, 0 for classes without a training row; where they
    have several labels, the share of `on` in each label's own problem, and for labels that all training rows
    have, or none, what these say. Negative similarities count as 0, so that shares are probabilities.
    `LEAST_SHARE` of it is spread evenly, over the classes or over on and off.
    """
    shares = _shares(draw["coefficients"] @ cross_kernel(X_new, constants).T, constants)
    return label_table(shares, constants, jnp)


def _shares(similarity: Array, constants: Constants) -> Array:
    """Return p from s (class, row): (row, problem, class of the problem)."""
    split = similarity.T.reshape(similarity.shape[1], *problem_shape(constants))
    return class_probs(split, "clip", jnp)


def problem_shape(constants: Constants) -> tuple[int, int]:
    """Return the number of problems and of classes in each."""
    problems = int(np.asarray(constants["codes"]).shape[0])
    return problems, len(constants["class_label"]) // problems if problems else 2


def label_table(shares: Array, constants: Constants, xp: Any) -> Array:
    """Return probabilities of all labels from those of the classes: (row, labels)."""
    base = xp.asarray(constants["constant_prob"], float)
    out = xp.broadcast_to(base, (shares.shape[0], base.shape[0]))
    one_class = bool(constants["one_class"])
    labels = np.asarray(constants["class_label"])
    found = shares[:, 0, :] if one_class else shares[:, :, -1]
    places = labels if one_class else labels[1::2]
    if len(places):
        spread = np.zeros((len(places), base.shape[0]))
        spread[np.arange(len(places)), places] = 1.0
        out = xp.where(xp.asarray(spread.sum(axis=0) > 0), found @ spread, out)
    even = 1.0 / base.shape[0] if one_class and base.shape[0] > 1 else 0.5
    return (1.0 - LEAST_SHARE) * out + LEAST_SHARE * even


def class_similarity(draws: Draws, X_new: Any, constants: Constants) -> ClassSimilarity:
    """Return the similarities of new rows to the classes of every problem, which acquisition reads.

    Parameters
    ----------
    draws : mapping
        ``coefficients`` (sample, class, graph).
    X_new : (row, feature)
        Dense or csr.
    constants : mapping
        As saved with the posterior.

    Raises
    ------
    ValueError
        If the table of similarities would pass the memory cap.

    Notes
    -----
    2 row graph (features + sample class) flops; `MAX_DRAWS` samples at most.
    """
    coefficients = np.asarray(draws["coefficients"], float)
    keep = np.linspace(0, len(coefficients) - 1, min(len(coefficients), MAX_DRAWS)).round().astype(int)
    coefficients = coefficients[keep]
    size = 8.0 * X_new.shape[0] * max(coefficients.shape[0] * coefficients.shape[1], coefficients.shape[2])
    if size > MAX_DENSE_BYTES:
        raise ValueError(
            f"X: the similarities of {X_new.shape[0]} rows to {coefficients.shape[1]} classes over "
            f"{len(coefficients)} draws take {size_words(size)}, above the cap of "
            f"{size_words(MAX_DENSE_BYTES)}: pass fewer rows"
        )
    kernel = kernel_of(constants)
    cross = kernel.of_mapped(mapped_rows(kernel, X_new), np.asarray(constants["mapped"]))
    found = coefficients @ cross.T
    split = np.swapaxes(found, 1, 2).reshape(len(found), len(cross), *problem_shape(constants))
    return ClassSimilarity(split, bool(constants["one_class"]))


def log_score(draw: Draws, inputs: Mapping[str, Any], key: Any) -> Array:
    """Return the joint log predictive density of each row's labels at one draw, nats: (row,).

    Where rows have one class, ln of its probability: the labels of a row are not independent.
    """
    probs = predict(draw, inputs["X_new"], inputs)
    Y = inputs["Y_new"]
    if bool(inputs["one_class"]):
        return jnp.log((probs * Y).sum(axis=1))
    return (Y * jnp.log(probs) + (1.0 - Y) * jnp.log1p(-probs)).sum(axis=1)
