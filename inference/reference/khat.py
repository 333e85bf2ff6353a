"""How good a variational fit is as an importance proposal: the Pareto shape k-hat of its weights.

Yao, Vehtari, Simpson and Gelman, "Yes, but did it work?: evaluating variational inference", ICML 2018;
Vehtari, Simpson, Gelman, Yao and Gabry, "Pareto smoothed importance sampling", JMLR 25(72), 2024.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from arviz_stats.base.array import array_stats
from numpyro.handlers import seed
from numpyro.infer.elbo import get_importance_log_probs

Array = Any

MIN_WEIGHTS = 100
"""Fewer weights leave no tail to fit."""


def psis_khat(log_weights: Any) -> float:
    """Return k-hat, the shape of a generalised Pareto law fitted to the largest importance weights.

    Below .5 the weights have a finite variance, above .7 the approximation cannot be corrected by
    reweighting and its moments should not be trusted.

    Parameters
    ----------
    log_weights : array (sample,)
        log p(y, z_s) - log q(z_s) for draws z_s from q, up to a constant, nats.

    Returns
    -------
    float
        Infinite where a weight is infinite or NaN, or none but a few are above zero; minus infinity where
        all are equal (q is exact).

    Raises
    ------
    ValueError
        If there are fewer than 100 weights.
    """
    values = np.asarray(log_weights, float).ravel()
    if values.size < MIN_WEIGHTS:
        raise ValueError(f"log_weights: k-hat needs at least {MIN_WEIGHTS} weights, got {values.size}")
    if np.isnan(values).any() or not np.isfinite(values.max()):
        return float("inf")
    if np.ptp(values) <= 1e-10 * (1 + np.abs(values.max())):
        return float("-inf")
    # ArviZ takes the log likelihoods of leave-one-out, which are minus the log weights.
    _, khat = array_stats.psislw(-values)
    return float(np.nan_to_num(khat, nan=np.inf))


def guide_log_weights(
    key: Array,
    params: Mapping[str, Array],
    model: Callable[..., Any],
    guide: Callable[..., Any],
    inputs: Mapping[str, Any],
    num_samples: int = 1000,
) -> np.ndarray:
    """Return log p(y, z_s) - log q(z_s) for draws from a fitted NumPyro guide: (sample,).

    One draw is evaluated at a time, so memory is that of one log density.

    Parameters
    ----------
    params : mapping
        Fitted parameters of the guide.
    inputs : mapping
        Keyword arguments of model and guide.
    """

    def one(key: Array) -> Array:
        model_key, guide_key = jax.random.split(key)
        log_p, log_q = get_importance_log_probs(
            seed(model, model_key), seed(guide, guide_key), (), dict(inputs), params
        )
        return sum(v.sum() for v in log_p.values()) - sum(v.sum() for v in log_q.values())

    weights = jax.jit(lambda keys: jax.lax.map(one, keys))(jax.random.split(key, num_samples))
    return np.asarray(weights)
