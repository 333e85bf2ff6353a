r"""The rotation step of mean field: all of the ascent along u -> T u, W -> W T^-1 at once, where it is one.

The fit W u does not change, so coordinate ascent crawls along T. For b -> 0 the bound is greatest at
T = (m + 2 a)^(1/2) Q' Phi^(-1/2), Q the eigenvectors of Phi^(1/2) Omega Phi^(1/2): then Phi is (m + 2 a) I
and Omega diagonal. With b > 0 it need not be, so the step is taken only where the bound does not fall.
Columns that take no part (see `labelzoo.inference.bpca.factors`) come last, and stay there: their Omega is 0.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from labelzoo.inference.bpca.factors import (
    Factors,
    bound,
    live_columns,
    loading_moment,
    score_moment,
    update_precision,
)

Array = Any
Inputs = Mapping[str, Any]


def rotated(factors: Factors, inputs: Inputs) -> Factors:
    """Return the factors at T, with q(alpha) made to fit; columns with the largest Omega first.

    q(tau) need not be updated, since Q = E norm(R - U W' - mu)^2 is unchanged. component^3 flops.
    """
    values, vectors = jnp.linalg.eigh(score_moment(factors, inputs))
    root = (vectors * jnp.sqrt(values)) @ vectors.T
    inverse_root = (vectors / jnp.sqrt(values)) @ vectors.T
    Q = jnp.linalg.eigh(root @ loading_moment(factors) @ root)[1][:, ::-1]
    size = jnp.sqrt(inputs["num_rows"] + 2.0 * inputs["precision_shape"])
    T, inverse = size * Q.T @ inverse_root, root @ Q / size
    live = live_columns(factors)
    both = jnp.outer(live, live)
    new = factors._replace(
        scores_mean=factors.scores_mean @ T.T * live,
        scores_covariance=T @ factors.scores_covariance @ T.T * both + jnp.diag(1.0 - live),
        loadings_mean=factors.loadings_mean @ inverse * live,
        loadings_covariance=inverse.T @ factors.loadings_covariance @ inverse * both,
    )
    return update_precision(new, inputs)


def rotation_step(factors: Factors, inputs: Inputs) -> tuple[Factors, Array]:
    """Return the better of `factors` and `rotated`, and its bound; a number that is none is worse."""
    before, new = bound(factors, inputs), rotated(factors, inputs)
    after = bound(new, inputs)
    taken = after >= before
    better = jax.tree.map(lambda one, other: jnp.where(taken, one, other), new, factors)
    return better, jnp.where(taken, after, before)
