"""Label-switching-free functionals and held-out scores of a posterior, draw by draw."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import xarray as xr
from scipy.special import logsumexp

from labelzoo.inference.predict import label_prob, point_draws
from labelzoo.models.spec import ModelSpec

Array = Any

PROB_FLOOR = 1e-12
"""Probabilities are kept this far from 0 and 1 before a logarithm is taken."""


def evaluate(spec: ModelSpec, tree: xr.DataTree, inputs: Mapping[str, Any]) -> tuple[Array, list[str]]:
    """Return the functionals of every draw: array (chain, draw, functional) and their names."""
    draws = point_draws(tree)
    posterior = tree["posterior"]
    chains, count = posterior.sizes["chain"], posterior.sizes["draw"]
    with jax.enable_x64(True):
        mapped = jax.jit(lambda d: jax.lax.map(lambda one: spec.functionals(one, inputs), d, batch_size=64))(
            draws
        )
    columns, names = [], []
    for name, values in mapped.items():
        flat = np.asarray(values).reshape(chains, count, -1)
        columns.append(flat)
        width = flat.shape[2]
        names += [name] if width == 1 and np.ndim(values) == 1 else [f"{name}[{i}]" for i in range(width)]
    return np.concatenate(columns, axis=2), names


def marginal_log_score(tree: xr.DataTree, data: Any, num_draws: int = 200) -> Array:
    """Return per row the sum over observed labels of log mean-over-draws P(y): (row,), nats."""
    probs = label_prob(tree, data, num_draws=num_draws).values
    mean = np.clip(probs.mean(axis=(0, 1)), PROB_FLOOR, 1 - PROB_FLOOR)
    Y = data.Y.toarray() > 0
    terms = np.where(Y, np.log(mean), np.log1p(-mean))
    return np.where(data.observed_mask(), terms, 0.0).sum(axis=1)


def joint_log_score(
    spec: ModelSpec,
    tree: xr.DataTree,
    data: Any,
    inputs: Mapping[str, Any],
    num_draws: int = 100,
    seed: int = 0,
) -> Array:
    """Return log p(y* | x*, training data) per row, the labels of a row jointly: (row,), nats.

    The log of the mean over draws of the conditional joint; where the model's labels are independent given
    a draw, that conditional is the product of its probabilities.
    """
    if spec.log_score is None:
        return _product_log_score(tree, data, num_draws)
    draws = point_draws(tree, num_draws)
    samples = len(next(iter(draws.values())))
    keys = jax.random.split(jax.random.key(seed), samples)
    log_score = spec.log_score
    with jax.enable_x64(True):
        scores = jax.jit(lambda d, k: jax.lax.map(lambda one: log_score(one[0], inputs, one[1]), (d, k)))(
            draws, keys
        )
    return logsumexp(np.asarray(scores), axis=0) - np.log(samples)


def _product_log_score(tree: xr.DataTree, data: Any, num_draws: int) -> Array:
    probs = label_prob(tree, data, num_draws=num_draws).values
    probs = np.clip(probs.reshape(-1, *probs.shape[2:]), PROB_FLOOR, 1 - PROB_FLOOR)
    terms = np.where(data.Y.toarray() > 0, np.log(probs), np.log1p(-probs))
    by_draw = np.where(data.observed_mask(), terms, 0.0).sum(axis=2)
    return logsumexp(by_draw, axis=0) - np.log(len(by_draw))
