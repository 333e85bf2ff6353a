"""Joint probabilities of a few labels at new rows, averaged over posterior draws."""

from typing import Any

import numpy as np
import xarray as xr

from labelzoo.arguments import label_data, whole_number
from labelzoo.completion import checked_model, globals_of, row_blocks
from labelzoo.data.validate import positions
from labelzoo.inference.bernoulli_poisson_topics.joint import MAX_LABELS, joint_table
from labelzoo.inference.predictions import trained_labels

Array = Any


def joint_prob(
    tree: xr.DataTree,
    data: Any,
    labels: Any,
    *,
    num_draws: Any = None,
    num_samples: Any = 2000,
    seed: Any = 0,
) -> xr.Dataset:
    """Return P(y_A = a | x) for every pattern a of a set A of labels: labels of a row are dependent given x.

    Parameters
    ----------
    tree : DataTree
        A posterior of ``bernoulli_poisson_topics``.
    data : LabelData
        Rows to predict; their labels are not looked at, nor how many there are.
    labels : sequence of str or int
        The set A, names or positions, at most `MAX_LABELS` of them.
    num_draws : int or None
        Thin to at most so many draws.
    num_samples : int
        Samples of the embedding per row, draw and pattern, where digits cancel.
    seed : int
        Of these samples.

    Returns
    -------
    Dataset
        ``prob`` and ``error`` (obs, pattern). A pattern is written as 0s and 1s in the order of `labels`
        ("101"); the probabilities of a row sum to one, up to the errors of sampled patterns.

    Raises
    ------
    ValueError
        If the model is another, `data` is no LabelData, labels are unknown, repeated or too many, or a number
        is out of range.
    """
    checked_model(tree)
    label_data(data)
    whole_number("num_samples", num_samples, 2)
    whole_number("seed", seed, 0)
    names = trained_labels(tree)
    chosen = positions(labels, names, "labels")
    if not 1 <= len(chosen) <= MAX_LABELS or len(set(chosen.tolist())) < len(chosen):
        raise ValueError(f"labels must be 1 to {MAX_LABELS} distinct labels, got {len(chosen)}")
    draws, rng = globals_of(tree, num_draws), np.random.default_rng(seed)
    count = len(draws["topics"])
    prob, variance = np.zeros((2, data.num_rows, 1 << len(chosen)))
    for block in row_blocks(tree, data, draws, known=False):
        rows = slice(block.start, block.start + block.data.num_rows)
        for s in range(count):
            topics = draws["topics"][s][:, chosen]
            p, e = joint_table(topics, draws["shape"][s], block.psi[s], rng, num_samples=num_samples)
            prob[rows] += p / count
            variance[rows] += (e / count) ** 2
    patterns = [
        "".join(str(pattern >> i & 1) for i in range(len(chosen))) for pattern in range(prob.shape[1])
    ]
    return xr.Dataset(
        {"prob": (("obs", "pattern"), prob), "error": (("obs", "pattern"), np.sqrt(variance))},
        coords={"obs": list(data.example_names), "pattern": patterns},
        attrs={"labels": [names[j] for j in chosen]},
    )
