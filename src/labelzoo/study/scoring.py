"""How well the labels so far predict: the metrics of one round, by the learner and by a common classifier."""

from typing import Any

import numpy as np

from labelzoo.acquisition.binary_relevance import fit_linear, predict_linear
from labelzoo.data.metrics import log_score, macro_auc, precision_at_k

Array = Any
METRICS = ("precision", "macro_auc", "micro_f1", "log_score")
"""``precision``: the mean of P@1, P@2 and P@3; ``micro_f1`` at threshold 1/2; ``log_score`` in nats a row."""


def round_metrics(Y: Any, probs: Array, observed: Array | None) -> dict[str, float | None]:
    """Return `METRICS` of probabilities (row, labels), None where undefined."""
    ks = [k for k in (1, 2, 3) if k <= probs.shape[1]]
    values = {
        "precision": float(np.mean([precision_at_k(Y, probs, k, observed).value for k in ks])),
        "macro_auc": macro_auc(Y, probs, observed).value,
        "micro_f1": micro_f1(Y.toarray(), probs, observed),
        "log_score": log_score(Y, probs, observed).value,
    }
    return {name: value if np.isfinite(value) else None for name, value in values.items()}


def micro_f1(Y: Array, probs: Array, observed: Array | None) -> float:
    """Return 2 TP / (2 TP + FP + FN) over the observed cells at threshold 1/2."""
    predicted, true = probs >= 0.5, Y == 1
    seen = np.ones(Y.shape, bool) if observed is None else observed
    both = np.count_nonzero(predicted & true & seen)
    either = np.count_nonzero(predicted & seen) + np.count_nonzero(true & seen)
    return 2 * both / either if either else float("nan")


def common_probs(X: Any, Y: Array, X_new: Any, seed: int) -> Array:
    """Return what one-vs-rest logistic regression (C = 1) says: (row, labels).

    Parameters
    ----------
    X, X_new : mapped features
    Y : float (labelled, labels) with NaN where a label was not asked
    """
    return predict_linear(fit_linear(X, Y, seed=seed), X_new).probs
