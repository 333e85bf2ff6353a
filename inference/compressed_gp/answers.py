"""Which labels new rows get: exactly as many as their level says, with scores that rank all of them."""

from typing import Any

import numpy as np
import xarray as xr
from scipy.linalg import solve_triangular

from labelzoo.inference.compressed_gp.kernel14 import Caches, condition
from labelzoo.inference.compressed_gp.ranking import (
    Decoded,
    LevelRule,
    decode,
    inferred_levels,
    level_rule,
    top_labels,
    untied,
)
from labelzoo.inference.predict import constants_of, features_of, point_draws
from labelzoo.models.compressed_gp_predict import compressed_of, mean_targets, regressed, theta_of

Array = Any

RULE_DRAWS = 20
"""Posterior draws, evenly spaced, over which predictions of left-out training rows are averaged."""


def decoded(tree: Any, X: Any) -> Decoded:
    """Return the answer for new rows: scores (row, labels), and labels, bool, min(level, labels) ones a row.

    The targets are at their posterior mean; the setting ``decoder`` says how they are scored (``regression``:
    by the expected labels, not cut) and the setting ``level`` how many labels a row gets: ``mean``, the mean
    number of the training rows for all, or ``item``, inferred from the predicted compressed row by a rule
    that is learned from training rows predicted by the others. Ties go to the label that more training rows
    have, then to the lower index. With the decoder ``omp`` and the level ``item`` the pursuit goes on to the
    level of each row, that of `labelzoo.inference.predict.label_prob` to the mean number for all: the two may
    rank labels differently.

    Parameters
    ----------
    tree : DataTree
        A posterior of compressed_gp.
    X : LabelData, frame or array (row, feature)

    Raises
    ------
    ValueError
        If `tree` is no posterior of this model, or the features are not those of the posterior.
    """
    if not isinstance(tree, xr.DataTree):
        raise ValueError(
            f"tree: decoded needs a posterior of compressed_gp, a DataTree, got {type(tree).__name__}"
        )
    if tree.attrs.get("model") != "compressed_gp":
        raise ValueError(
            f"decoded needs a posterior of compressed_gp, got one of {tree.attrs.get('model')!r}"
        )
    constants, draws = constants_of(tree), point_draws(tree)
    means = mean_targets(draws, features_of(tree, X), constants)
    R = compressed_of(means, constants)
    levels = np.full(len(R), int(constants["training_level"]))
    if constants["level"] == "item":
        levels = inferred_levels(rule_of(tree), R)
    frequency = constants["label_frequency"]
    if constants["decoder"] == "regression":
        scores = untied(regressed(means, constants), frequency)
        return Decoded(scores, top_labels(scores, np.minimum(levels, scores.shape[1])))
    return decode(
        R, constants["projection"], levels=levels, frequency=frequency, method=str(constants["decoder"])
    )


def rule_of(tree: xr.DataTree) -> LevelRule:
    """Return the rule that infers levels, learned from the training rows each predicted by the others.

    u_n - (C^-1 u)_n / (C^-1)_nn is the mean of target n given the others; rows^3 flops a draw and target.
    """
    constants, theta = constants_of(tree), theta_of(point_draws(tree, RULE_DRAWS))
    U, caches = np.asarray(constants["targets"]), Caches(constants["mapped"])
    left_out = np.mean([_left_out(one, U, caches) for one in theta], axis=0)
    R = compressed_of(left_out, constants)
    return level_rule(R, constants["label_count"], constants["projection"].shape[1])


def _left_out(theta: Array, U: Array, caches: Caches) -> Array:
    """Return the mean of each target at each row given all other rows: (row, target)."""
    posterior = condition(theta, U, caches)
    out = np.empty(U.shape)
    for g, lower in enumerate(posterior.factors):
        half = solve_triangular(lower, np.eye(len(lower)), lower=True)
        out[:, g] = U[:, g] - posterior.weights[g] / (half**2).sum(axis=0)
    return out
