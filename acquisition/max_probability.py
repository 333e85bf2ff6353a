"""Queries where the largest class probability is smallest, from the similarities of the class kernels.

p_c(x) = s_c(x) / sum_l s_l(x) compares a row's classes with one another, and its largest value is a mode,
which makes sense where entropy does not: entries of the learned kernels, and so similarities, may be
negative.

Jain and Kapoor, "Active learning for large multi-class problems", CVPR 2009, section 4.
"""

from typing import Any

import numpy as np

from labelzoo.acquisition.class_similarity import ClassSimilarity
from labelzoo.acquisition.problem import Acquisition, Problem
from labelzoo.arguments import whole_number
from labelzoo.inference.sparse_bayes.terms import read_matrix
from labelzoo.models.kernel_neighbors import class_probs

Array = Any


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


def first_queries(scores: Any, batch: Any) -> Array:
    """Return the rows with the largest scores, best first, the smaller index where they tie: int (row,).

    All rows where there are fewer than `batch`; none of an empty pool.
    """
    number = whole_number("batch", batch, 1)
    return np.argsort(-np.asarray(scores, float), kind="stable")[:number]


def similarity_scores(law: ClassSimilarity, negative: str = "clip") -> Array:
    """Return -max_c p_c of each row, p the mean of its shares over draws: (row,).

    With several labels a row, the mean over its labels' problems of -max(p, 1 - p); 0 for all rows where no
    label has both kinds of rows.
    """
    rows, problems = law.shape
    return -law.probs(negative).max(axis=-1).mean(axis=1) if problems else np.zeros(rows)


def read_similarity(problem: Problem, by: str) -> ClassSimilarity:
    """Return the similarities of the pool rows, or raise ValueError where they do not fit the problem."""
    law = problem.need("class_similarity", by)
    if not isinstance(law, ClassSimilarity):
        raise ValueError(f"class_similarity must be a ClassSimilarity, got {type(law).__name__}")
    size = problem.get("X_pool").shape[0] if problem.has("X_pool") else law.shape[0]
    if size != law.shape[0]:
        raise ValueError(f"class_similarity has {law.shape[0]} rows, the pool has {size}")
    return law


def _entry(name: str, negative: str, bias: str, helps: str) -> Acquisition:
    return Acquisition(
        name=name,
        query="row",
        units="minus the largest probability",
        needs=("class_similarity",),
        bias=f"{bias}; the mean over labels where rows have several",
        cost="2 labelled class flops a pool row and draw, features extra for the kernel",
        helps=helps,
        source="Jain and Kapoor 2009, section 4; several labels a row are ours",
        score=lambda problem: similarity_scores(read_similarity(problem, name), negative),
    )


ENTRIES = (
    _entry(
        "max_probability",
        "clip",
        "negative similarities count as 0, so that shares are probabilities; of a point its own shares, over "
        "posterior draws their mean",
        "with many classes and one a row, where entropies drown in classes that are out of question; blind "
        "to how rows resemble one another, so that batches repeat themselves",
    ),
    _entry(
        "max_probability_raw",
        "raw",
        "negative similarities stay: shares may leave the unit interval, and a total near 0 makes a row look "
        "certain",
        "as the paper has it; like max_probability where no similarity is negative, and worse where some are",
    ),
)
