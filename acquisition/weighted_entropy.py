"""Weighted log variance of compressed targets: where the processes are least certain.

    score(z) = sum over targets of lambda_g ln C_gg(z)

C_gg(z) is the predictive variance of target g, its noise included, lambda_g the variance that the target
carries in the compressed labels. With all lambda equal it is twice the entropy of the independent Gaussian
targets, up to a constant; weighted it is a heuristic, not an entropy.

Shi and Yu, ICML 2019, eq. 13 with a plus: the printed minus contradicts eq. 10 and asks for the row that is
known best.
"""

from typing import Any

import numpy as np

from labelzoo.inference.sparse_bayes.terms import read_matrix

Array = Any


def weighted_entropy(variance: Any, weights: Any, *, prior_variance: Any = None) -> Array:
    """Return sum_g lambda_g ln C_gg of each pool row; the largest is asked first: (pool,).

    Multiplying all weights by one number multiplies the scores and leaves the choice.

    Parameters
    ----------
    variance : (pool, target)
        Predictive variances, noise included, above 0.
    weights : (target,)
        lambda_g, at least 0.
    prior_variance : (pool,) or None
        Variance of each row before any label; read only where there is no target, as with labels that are
        all alike. Then the score is its logarithm, and 0 for all rows without it: a tie, which a seed breaks.

    Raises
    ------
    ValueError
        Naming the row and target of a variance, or the target of a weight, that is out of range.
    """
    C = read_matrix(variance, "variance")
    lam = np.asarray(weights, float)
    if lam.shape != (C.shape[1],):
        raise ValueError(f"weights must have shape {(C.shape[1],)}, got {lam.shape}")
    bad = np.flatnonzero(~(np.isfinite(lam) & (lam >= 0)))
    if bad.size:
        raise ValueError(f"weights has {lam[bad[0]]} at target {bad[0]}: it must be finite and at least 0")
    _refuse(C)
    if C.shape[1]:
        return np.log(C) @ lam
    if prior_variance is None:
        return np.zeros(len(C))
    prior = np.asarray(prior_variance, float)
    if prior.shape != (len(C),):
        raise ValueError(f"prior_variance must have shape {(len(C),)}, got {prior.shape}")
    _refuse(read_matrix(prior[:, None], "prior_variance"), "prior_variance")
    return np.log(prior)


def _refuse(C: Array, name: str = "variance") -> None:
    bad = np.argwhere(C <= 0)
    if bad.size:
        row, target = bad[0]
        raise ValueError(f"{name} has {C[row, target]} at row {row}, target {target}: it must be above 0")
