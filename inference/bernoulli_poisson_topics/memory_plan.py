"""What an EM run will hold in memory, array by array, before it is made."""

from collections.abc import Mapping
from typing import Any

from scipy.sparse import issparse

from labelzoo.inference.bernoulli_poisson_topics.em_data import BLOCK_VALUES, GRAM_COLUMNS
from labelzoo.inference.draw_memory import MAX_BYTES, refuse_large

__all__ = ["MAX_BYTES", "memory_plan", "refuse_large", "switch_for"]

INDEX = 4
_ROW_ARRAYS = 6
_SCRATCH_ARRAYS = 6


def memory_plan(
    inputs: Mapping[str, Any],
    *,
    w_step: str = "newton",
    dtype: str = "float64",
    precision_update: str = "prior",
) -> dict[str, int]:
    """Return the bytes of each array of a run of `map_em` or `vb_em`, under names in words.

    Nothing of size (obs, labels), (positives, topics) or features^2 x topics is among them: a step that
    needs (feature, feature) matrices holds one topic's at a time, or one shared by all topics.

    Parameters
    ----------
    inputs : mapping
        What ``spec.prepare`` returned.
    w_step, dtype, precision_update : str
        Options of the engine.
    """
    size = 4 if dtype == "float32" else 8
    (n, d), k, labels = inputs["X"].shape, inputs["num_topics"], inputs["num_labels"]
    cells = inputs["positives"].row.shape[0]
    listed = inputs["negatives"].row.shape[0]
    plan = {
        **_features(inputs["X"], size),
        "positives, as blocks (row, label, weight)": cells * (2 * INDEX + size),
        "listed cells of rows with missing labels": listed * (2 * INDEX + size),
        "state: embedding, its rate, psi, counts (obs, topic), old and new": 2 * _ROW_ARRAYS * n * k * size,
        "state: topics and counts (labels, topic), weights (feature, topic)": 2 * (2 * labels + d) * k * size,
        "directions and images of the weight step (obs, topic), (feature, topic)": (
            _SCRATCH_ARRAYS * (n + d) * k * size
        ),
        "one block of gathered cells (cell, topic)": 4 * min(cells * k, max(BLOCK_VALUES, 64 * k)) * size,
    }
    sparse = issparse(inputs["X"])
    if precision_update == "type2":
        plan["precision_update='type2': a (feature, feature) system, its factor and inverse"] = (
            (3 * d**2 * size + 2 * n * min(GRAM_COLUMNS, d) * size)
            if sparse or d <= n
            else (3 * n**2 + 3 * n * d) * size
        )
    return {**plan, **_square(n, d, w_step, size, sparse)}


def _features(X: Any, size: int) -> dict[str, int]:
    if issparse(X):
        return {"features, sparse (csr and blocks)": X.nnz * (INDEX + 8) + X.nnz * (2 * INDEX + size)}
    return {"features, dense (obs, feature)": X.shape[0] * X.shape[1] * (8 if size == 8 else 12)}


def _square(n: int, d: int, w_step: str, size: int, sparse: bool) -> dict[str, int]:
    if w_step in ("newton", "cg"):
        return {}
    columns = 2 * n * min(GRAM_COLUMNS, d) * size if sparse else n * d * size
    if w_step == "exact":
        side = d if sparse else min(n, d)
        what = "the system of one topic at a time and its factor"
        return {f"w_step='exact': {what}": 3 * side**2 * size + columns}
    name = f"w_step={w_step!r}: one shared (feature, feature) system and its factor"
    return {name: 3 * d**2 * size + columns}


def switch_for(w_step: str, dtype: str, sparse: bool) -> str:
    """Return in words what makes a run smaller."""
    ways = []
    if w_step not in ("newton", "cg"):
        ways.append("w_step='newton' needs no (feature, feature) matrix")
    if not sparse:
        ways.append("features given as a sparse matrix stay sparse")
    if dtype == "float64":
        ways.append("dtype='float32' halves it")
    return "; ".join([*ways, "fewer topics, or engine online_em, or a larger max_bytes"])
