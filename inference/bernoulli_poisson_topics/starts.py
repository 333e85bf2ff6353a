"""Where EM starts: topics that are labels, topics of the ridge prediction, or random topics."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy import linalg, sparse

from labelzoo.models.label_cells import Cells

Array = Any

STARTS = ("auto", "label", "ridge", "random")

RIDGE_BYTES = 2**31
"""Largest memory of the ridge start (2 GiB)."""

_FLOOR = 1e-10
_NMF_SWEEPS = 30


class Start(NamedTuple):
    """Where the sweeps begin.

    Attributes
    ----------
    topics : float64 ndarray (topic, labels)
    weights : float64 ndarray (topic, feature)
    log_embedding : float64 ndarray (obs, topic)
    """

    topics: np.ndarray
    weights: np.ndarray
    log_embedding: np.ndarray


def make_start(inputs: Mapping[str, Any], rng_key: Array, start: str = "auto", shape: float = 1.0) -> Start:
    """Return the start called `start`; the same key gives the same start.

    Parameters
    ----------
    inputs : mapping
        What ``spec.prepare`` returned.
    rng_key : jax.random.key
        Read by "ridge" (its factorisation starts at random) and "random".
    start : {"auto", "label", "ridge", "random"}
        "label": topic k is label k, and needs as many topics as labels. "ridge": non-negative factors of the
        ridge prediction of the labels. "random": topics near the label frequencies. "auto": "label" where
        topics and labels are as many, else "ridge" (or "random", where "ridge" would pass `RIDGE_BYTES`).
    shape : float
        Gamma shape at the start.

    Raises
    ------
    ValueError
        If `start` is unknown, "label" with another number of topics than labels, or "ridge" too large.
    """
    if start not in STARTS:
        raise ValueError(f"start must be one of {', '.join(STARTS)}, got {start!r}")
    num_topics, num_labels = inputs["num_topics"], inputs["num_labels"]
    if start == "auto":
        small = ridge_bytes(inputs) <= RIDGE_BYTES
        start = "label" if num_topics == num_labels else ("ridge" if small else "random")
    if start == "ridge" and ridge_bytes(inputs) > RIDGE_BYTES:
        raise ValueError(
            f"start='ridge' holds {ridge_bytes(inputs) / 2**30:.1f} GiB of coefficients (feature, labels) "
            f"and their system, above {RIDGE_BYTES / 2**30:g} GiB; use start='random'"
        )
    if start == "label" and num_topics != num_labels:
        raise ValueError(
            f"start='label' needs num_topics == {num_labels} (the number of labels), got {num_topics}"
        )
    rng = np.random.default_rng(np.asarray(jax.random.key_data(rng_key)).ravel())
    table = label_table(inputs)
    if start == "label":
        return label_start(inputs, table, shape)
    if start == "ridge":
        return ridge_start(inputs, table, shape, rng)
    return random_start(inputs, table, shape, rng)


def features(inputs: Mapping[str, Any]) -> Any:
    """Return X as float64: an ndarray, or the csr matrix that it is."""
    X = inputs["X"]
    return X.tocsr() if sparse.issparse(X) else np.asarray(X, float)


def ridge_bytes(inputs: Mapping[str, Any]) -> int:
    """Return the memory of the ridge start: coefficients (feature, labels) and their system."""
    n, d = inputs["X"].shape
    return 8 * (d * inputs["num_labels"] + 3 * min(n, d) ** 2 + (2 * n * d if d > n else 0))


class LabelTable(NamedTuple):
    """The positives as a sparse matrix, and how many rows show each label.

    Attributes
    ----------
    Y : csr_array (obs, labels)
    observed : ndarray (labels,)
        Rows where the label is observed.
    """

    Y: sparse.csr_array
    observed: np.ndarray


def label_table(inputs: Mapping[str, Any]) -> LabelTable:
    """Rebuild the sparse label matrix from the cells of `inputs`."""
    positives: Cells = inputs["positives"]
    negatives, num_labels = inputs["negatives"], inputs["num_labels"]
    row, label = np.asarray(positives.row), np.asarray(positives.label)
    num_obs = inputs["X"].shape[0]
    Y = sparse.csr_array((np.ones(row.size), (row, label)), shape=(num_obs, num_labels))
    zeros = np.bincount(np.asarray(negatives.label), np.asarray(negatives.sign), minlength=num_labels)
    observed = np.asarray(negatives.base).sum() + zeros + np.bincount(label, minlength=num_labels)
    return LabelTable(Y, np.maximum(observed, 1.0))


def label_start(inputs: Mapping[str, Any], table: LabelTable, shape: float) -> Start:
    """Topic k puts its weight on label k; the intercept matches the frequency of the label.

    With r = 1 and topics that are exactly labels the model is one logistic regression a label.
    """
    num_labels = inputs["num_labels"]
    eta = inputs["topic_concentration"]
    positive = np.asarray(table.Y.sum(axis=0)).ravel()
    counts = np.maximum(positive, 1.0)
    topics = np.full((num_labels, num_labels), 1.0) * (eta / (counts + num_labels * eta))[:, None]
    topics[np.diag_indices(num_labels)] = (counts + eta) / (counts + num_labels * eta)
    frequency = (positive + 0.5) / (table.observed + 1.0)
    level = np.log(frequency) - np.log1p(-frequency) - np.log(shape)
    return _from_level(inputs, topics, level, shape)


def random_start(
    inputs: Mapping[str, Any], table: LabelTable, shape: float, rng: np.random.Generator
) -> Start:
    """Topics are the label frequencies times independent exponential variables."""
    frequency = (np.asarray(table.Y.sum(axis=0)).ravel() + 0.5) / (table.observed + 1.0)
    topics = frequency * rng.exponential(size=(inputs["num_topics"], inputs["num_labels"]))
    topics = _normalised(topics)
    level = np.full(len(topics), np.log(frequency.sum() / len(topics) / shape))
    return _from_level(inputs, topics, level, shape)


def ridge_start(
    inputs: Mapping[str, Any], table: LabelTable, shape: float, rng: np.random.Generator
) -> Start:
    """Non-negative factors of the ridge prediction X B; the prediction (obs, labels) is never formed."""
    X = features(inputs)
    B = ridge_coefficients(X, table)
    embedding, topics = nonnegative_factors(X, B, inputs["num_topics"], rng)
    scale = topics.sum(axis=1)
    embedding = embedding * scale
    level = np.log(np.maximum(embedding.mean(axis=0), _FLOOR) / shape)
    start = _from_level(inputs, _normalised(topics), level, shape)
    # A topic that a row does not have may come back: keep a hundredth of its mean.
    floor = np.maximum(0.01 * embedding.mean(axis=0), _FLOOR)
    return start._replace(log_embedding=np.log(np.maximum(embedding, floor)))


def ridge_coefficients(X: Any, table: LabelTable, penalty: float = 1.0) -> np.ndarray:
    """Return B (feature, labels) of the ridge regression of the labels on X (rows of unit length).

    Missing cells count as zeros, and each label is scaled up by the share of rows that show it.
    Cost O(min(N, D)^2 max(N, D) + N D^2 + positives D); solved in the smaller of (obs, feature).
    """
    scale = X.shape[0] / table.observed
    if X.shape[1] <= X.shape[0]:
        gram = _dense(X.T @ X) + penalty * np.eye(X.shape[1])
        B = linalg.solve(gram, _dense(table.Y.T @ X).T, assume_a="pos")
    else:
        gram = _dense(X @ X.T) + penalty * np.eye(X.shape[0])
        B = linalg.solve(gram, _dense(X), assume_a="pos").T @ table.Y
    return np.asarray(B) * scale


def _dense(table: Any) -> np.ndarray:
    return table.toarray() if sparse.issparse(table) else np.asarray(table)


def nonnegative_factors(
    X: Any, B: np.ndarray, num_topics: int, rng: np.random.Generator, sweeps: int = _NMF_SWEEPS
) -> tuple[np.ndarray, np.ndarray]:
    """Factor X B into non-negative U (obs, topic) and V (topic, labels) by hierarchical least squares.

    Each column of U, then each row of V, is the non-negative least-squares solution given the rest. X B is
    read only through products with thin matrices: a sweep costs O((N + L) D K + (N + L) K^2) flops.
    """
    num_labels = B.shape[1]
    topics = rng.exponential(size=(num_topics, num_labels)) * np.maximum(X.mean(axis=0) @ B, _FLOOR)
    embedding = np.maximum(X @ (B @ topics.T), 0.0) + _FLOOR
    for _ in range(sweeps):
        embedding = _descend(embedding, X @ (B @ topics.T), topics @ topics.T)
        topics = _descend(topics.T, B.T @ (X.T @ embedding), embedding.T @ embedding).T
    return embedding, topics


def _descend(factor: np.ndarray, product: np.ndarray, gram: np.ndarray) -> np.ndarray:
    factor = factor.copy()
    for k in range(factor.shape[1]):
        if gram[k, k] > 0:
            change = (product[:, k] - factor @ gram[:, k]) / gram[k, k]
            factor[:, k] = np.maximum(factor[:, k] + change, _FLOOR)
    return factor


def _normalised(topics: np.ndarray) -> np.ndarray:
    topics = np.maximum(topics, 1e-8 * topics.max(axis=1, keepdims=True))
    return topics / topics.sum(axis=1, keepdims=True)


def _from_level(inputs: Mapping[str, Any], topics: np.ndarray, level: np.ndarray, shape: float) -> Start:
    """Weights that give every row the linear predictor `level` (topic,), if the last feature is one."""
    X = features(inputs)
    weights = np.zeros((len(topics), X.shape[1]))
    last = X[:, [-1]].toarray() if sparse.issparse(X) else X[:, -1]
    if (last == 1.0).all():
        weights[:, -1] = level
    return Start(topics, weights, np.log(shape) + np.broadcast_to(level, (X.shape[0], len(topics))))
