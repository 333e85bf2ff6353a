"""Weighted log variance of compressed targets: where the processes are least certain.

    score(z) = sum over targets of lambda_g ln C_gg(z)

C_gg(z) is the predictive variance of target g, its noise included, lambda_g the variance that the target
carries in the compressed labels. With all lambda equal it is twice the entropy of the independent Gaussian
targets, up to a constant; weighted it is a heuristic, not an entropy.

The entry of the catalogue chooses a batch row by row: variances do not depend on the labels to come, so those
left after the rows chosen before are known. Its first row is the paper's choice.

Shi and Yu, ICML 2019, eq. 13 with a plus: the printed minus contradicts eq. 10 and asks for the row that is
known best.
"""

from typing import Any

import numpy as np

from labelzoo.acquisition.problem import Acquisition, Choice, Problem
from labelzoo.acquisition.selectors import check_batch, top
from labelzoo.acquisition.target_law import TargetLaw
from labelzoo.inference.sparse_bayes.terms import read_matrix

Array = Any

LEAST = 1e-12
"""Rounding apart, a variance does not fall below its noise: this share of what it was is kept at least."""


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


def greedy_entropy(law: TargetLaw, batch: int, *, seed: int = 0) -> tuple[Array, Array]:
    """Pick rows one after another by `weighted_entropy`, each given the targets of those before.

    With c_i the covariance between row i and all rows, and v_j what earlier picks j left of theirs, pick i
    adds v_i = (c_i - sum_j v_j v_j(i)) / C_i^(1/2), target by target, and C falls by v_i^2 everywhere.

    Returns
    -------
    rows : int (batch,)
        Distinct, in order of choice.
    gains : (batch,)
        The score of each when it was chosen, nats times units of the weights.
    """
    batch = check_batch(batch, law.shape[0])
    C, open_rows = law.variance.copy(), np.ones(law.shape[0], bool)
    taken: list[Array] = []
    rows, gains = [], []
    for step in range(batch):
        scores = weighted_entropy(C, law.weights, prior_variance=law.prior_variance)
        row = int(top(np.where(open_rows, scores, -np.inf), 1, seed=seed + step)[0])
        rows.append(row)
        gains.append(float(scores[row]))
        open_rows[row] = False
        if step + 1 < batch:
            left = law.cross(row) - sum(v * v[row] for v in taken)
            taken.append(left / np.sqrt(C[row]))
            C = np.maximum(C - taken[-1] ** 2, LEAST * law.variance)
    return np.asarray(rows), np.asarray(gains)


def read_law(problem: Problem) -> TargetLaw:
    """Return the law of the pool rows, or raise ValueError where it does not fit the problem."""
    law = problem.need("target_law", "weighted_entropy")
    if not isinstance(law, TargetLaw):
        raise ValueError(f"target_law must be a TargetLaw, got {type(law).__name__}")
    size = problem.get("X_pool").shape[0] if problem.has("X_pool") else law.shape[0]
    if size != law.shape[0]:
        raise ValueError(f"target_law has {law.shape[0]} rows, the pool has {size}")
    return law


def _score(problem: Problem) -> Array:
    law = read_law(problem)
    return weighted_entropy(law.variance, law.weights, prior_variance=law.prior_variance)


def _choose(problem: Problem, batch: int) -> Choice:
    law = read_law(problem)
    rows, gains = greedy_entropy(law, batch, seed=int(problem.seed))
    return Choice(rows, gains, report={"targets": law.shape[1], **law.report})


ENTRIES = (
    Acquisition(
        name="weighted_entropy",
        query="row",
        units="nats times the variance a target carries (lambda_g); no entropy where these differ",
        needs=("target_law",),
        bias="none in the variances given the kernel parameters; parameters found by a search are taken for "
        "certain; over posterior draws the mean of the variances plus the variance of the means",
        cost="target labelled^2 flops a pool row, and target labelled pool for each row chosen",
        helps="as plain uncertainty of the compressed targets: rows far from all that is labelled; blind to "
        "what other rows would gain, and without a target (labels all alike) random",
        source="Shi and Yu 2019, eq. 13 with a plus; batches by conditioning are ours",
        score=_score,
        choose=_choose,
    ),
)
