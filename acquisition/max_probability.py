"""Queries where the largest class probability is smallest, from the similarities of the class kernels.

p_c(x) = s_c(x) / sum_l s_l(x) compares a row's classes with one another, and its largest value is a mode,
which makes sense where entropy does not: entries of the learned kernels, and so similarities, may be
negative.

Jain and Kapoor, "Active learning for large multi-class problems", CVPR 2009, section 4.
"""

from typing import Any

import numpy as np

from labelzoo.arguments import whole_number
from labelzoo.inference.sparse_bayes.terms import read_matrix
from labelzoo.models.kernel_neighbors import class_probs

Array = Any

OVER_LABELS = ("mean", "min")


def largest_probability(similarity: Any, negative: Any = "clip") -> Array:
    """Return -max_c p_c of each row: larger is asked first: (row,), no units.

    Parameters
    ----------
    similarity : (row, class)
    negative : {"clip", "raw"}
        "clip" takes negative similarities as 0, and the score lies between -1 and -1 / C. "raw" is the
        paper's: shares may leave the unit interval, and a tiny positive total makes a row look certain.
        Rows without a positive total get 1 / C for each class either way: asked first.

    Raises
    ------
    ValueError
        For NaN, infinity, no class, or an unknown `negative`.
    """
    s = read_matrix(similarity, "similarity")
    if not s.shape[1]:
        raise ValueError("similarity must have at least one class")
    return -class_probs(s, negative).max(axis=1)


def largest_label_probability(probs: Any, over: Any = "mean") -> Array:
    """Return the score of rows with many labels, one against all: -mean_l or -min_l of max(p_l, 1 - p_l).

    Each label is a problem of its own, so that scores of different labels are not comparable in the way that
    classes of one problem are.

    Parameters
    ----------
    probs : (row, labels)
    over : {"mean", "min"}

    Raises
    ------
    ValueError
        For values outside the unit interval, no label, or an unknown `over`.
    """
    p = read_matrix(probs, "probs")
    if over not in OVER_LABELS:
        raise ValueError(f"over must be 'mean' or 'min', got {over!r}")
    if not p.shape[1]:
        raise ValueError("probs must have at least one label")
    bad = np.argwhere((p < 0) | (p > 1))
    if bad.size:
        i, j = (int(k) for k in bad[0])
        raise ValueError(f"probs has {p[i, j]} at row {i}, label {j}: not between 0 and 1")
    sure = np.maximum(p, 1.0 - p)
    return -(sure.mean(axis=1) if over == "mean" else sure.min(axis=1))


def first_queries(scores: Any, batch: Any) -> Array:
    """Return the rows with the largest scores, best first, the smaller index where they tie: int (row,).

    All rows where there are fewer than `batch`; none of an empty pool.
    """
    number = whole_number("batch", batch, 1)
    return np.argsort(-np.asarray(scores, float), kind="stable")[:number]
