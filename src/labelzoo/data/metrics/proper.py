"""Proper scores of probabilities: each is best, on average, for whoever states what they believe."""

from typing import Any

import numpy as np

from labelzoo.data.metrics.arguments import is_number
from labelzoo.data.metrics.averages import CLIP, Averaged, averaged, mean_or_nan
from labelzoo.data.metrics.truth import probability_table


def log_score(
    Y_true: Any, probs: Any, observed: Any = None, clip: Any = CLIP, missing: Any = None
) -> Averaged:
    """Average over rows of the log probability of the row's observed labels, in nats a row; higher is better.

    The sum over labels of y log p + (1 - y) log(1 - p), with p moved into [clip, 1 - clip] first, so that one
    confident mistake costs at most -log(clip) nats (27.6 by default). It treats labels as independent given
    p, so it is the sum of the marginal scores, not the joint one. Rows without an observed label are
    undefined.
    """
    if not is_number(clip) or not 0 < clip < 0.5:
        raise ValueError(f"clip must lie between 0 and 0.5, got {clip!r}")
    truth, values = probability_table(Y_true, probs, observed, missing)
    p = np.clip(np.where(truth < 0, 0.5, values), clip, 1 - clip)
    terms = np.where(truth < 0, 0.0, np.where(truth == 1, np.log(p), np.log1p(-p)))
    return averaged(np.where((truth >= 0).any(axis=1), terms.sum(axis=1), np.nan))


def brier_score(Y_true: Any, probs: Any, observed: Any = None, missing: Any = None) -> Averaged:
    """Average over rows of the squared error summed over the row's observed labels; lower is better.

    Rows without an observed label are undefined. See `brier_score_per_cell` for the mean over cells.
    """
    truth, values = probability_table(Y_true, probs, observed, missing)
    terms = np.where(truth < 0, 0.0, np.where(truth < 0, 0.0, values) - truth) ** 2
    return averaged(np.where((truth >= 0).any(axis=1), terms.sum(axis=1), np.nan))


def brier_score_per_cell(Y_true: Any, probs: Any, observed: Any = None, missing: Any = None) -> float:
    """Mean over observed cells of (y - p)^2; NaN where nothing is observed."""
    truth, values = probability_table(Y_true, probs, observed, missing)
    seen = truth >= 0
    return mean_or_nan((values[seen] - truth[seen]) ** 2)
