"""Unknown labels of rows given their known ones, from a fitted topic model, without fitting anew."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from scipy import sparse
from scipy.special import logsumexp

from labelzoo.arguments import label_data, real, size_words, whole_number
from labelzoo.data.metrics import top_k
from labelzoo.data.metrics.topk import TopK
from labelzoo.inference.bernoulli_poisson_topics.given_labels import GivenLabels, given_labels
from labelzoo.inference.predict import constants_of, features_of, point_draws
from labelzoo.models.design import design_matrix
from labelzoo.models.label_cells import list_cells
from labelzoo.whole_file import whole_file

Array = Any

ROWS_AT_ONCE, CELLS_AT_ONCE = 512, 2**21
"""Rows, and rows x labels or rows x features, that are dense at one time."""

MAX_BYTES = 2**30
"""Largest result that is returned dense (1 GiB)."""

EQUAL, WEIGHTED = "equal", "by_known_labels"


class RowBlock(NamedTuple):
    """Known labels of some rows, and their predictors under every draw.

    Attributes
    ----------
    start : int
        Position of the first row.
    psi : array (draw, row, topic)
    zeros : array (draw, row, topic)
        Mass of the observed zeros.
    positives : list of int arrays
        Observed positive labels of each row.
    data : LabelData
    """

    start: int
    psi: Array
    zeros: Array
    positives: list[Array]
    data: Any


def row_blocks(
    tree: xr.DataTree, data: Any, draws: dict[str, Array], *, known: bool = True
) -> Iterator[RowBlock]:
    """Yield blocks of rows of `data`, sparse features made dense a block at a time.

    Without `known` the labels of `data` are not looked at: no mass of zeros, no positives.
    """
    constants = constants_of(tree)
    mean, scale = constants.get("feature_mean"), constants.get("feature_scale")
    options = {"intercept": constants["intercept"], "scale_rows": constants["scale_rows"]}
    X = features_of(tree, data)
    step = max(1, min(ROWS_AT_ONCE, CELLS_AT_ONCE // max(data.num_labels, X.shape[1])))
    for start in range(0, data.num_rows, step):
        part = data.subset(rows=np.arange(start, min(start + step, data.num_rows)))
        rows = X[start : start + step]
        with jax.enable_x64(True):
            raw = jnp.asarray(rows.toarray() if sparse.issparse(rows) else rows)
            design = np.asarray(design_matrix(raw, mean=mean, scale=scale, **options))
        psi = np.stack([design @ w.T for w in draws["weights"]])
        if known:
            zeros = _zero_mass(part, draws["topics"])
            yield RowBlock(start, psi, zeros, np.split(part.Y.indices, part.Y.indptr[1:-1]), part)
        else:
            yield RowBlock(start, psi, np.zeros_like(psi), [np.zeros(0, int)] * part.num_rows, part)


def _zero_mass(data: Any, topics: Array) -> Array:
    """Return the sum of v_kl over the observed zeros of each row, for every draw: (draw, row, topic)."""
    negatives = list_cells(data)[1]
    signs = sparse.csr_array(
        (negatives.sign, (negatives.row, negatives.label)), shape=(data.num_rows, data.num_labels)
    )
    return np.stack([np.maximum(negatives.base[:, None] + signs @ v.T, 0.0) for v in topics])


def checked_model(tree: xr.DataTree) -> None:
    """Refuse posteriors of other models."""
    if tree.attrs.get("model") != "bernoulli_poisson_topics":
        raise ValueError(
            f"the posterior is of {tree.attrs.get('model')!r}; this is offered for "
            "bernoulli_poisson_topics, whose embedding is integrated out"
        )


def checked(tree: xr.DataTree, data: Any) -> None:
    """Refuse posteriors of other models, what is no LabelData, and data about other labels."""
    label_data(data)
    checked_model(tree)
    trained = json.loads(str(tree.attrs["label_names"]))
    if list(data.label_names) != trained:
        if len(data.label_names) != len(trained):
            raise ValueError(f"data has {len(data.label_names)} labels, the posterior has {len(trained)}")
        j = next(i for i, (a, b) in enumerate(zip(data.label_names, trained, strict=True)) if a != b)
        raise ValueError(f"label {j} of data is {data.label_names[j]!r}, in the posterior {trained[j]!r}")


def draw_weighting(tree: xr.DataTree, data: Any, weighting: Any) -> str:
    """Return "equal" or "by_known_labels"; see `complete`."""
    if weighting not in ("auto", EQUAL, WEIGHTED):
        raise ValueError(f"weighting must be 'auto', {EQUAL!r} or {WEIGHTED!r}, got {weighting!r}")
    if weighting != "auto":
        return str(weighting)
    return EQUAL if data.hash() == tree.attrs["data_hash"] else WEIGHTED


def complete(
    tree: xr.DataTree,
    data: Any,
    *,
    num_draws: Any = 50,
    num_samples: Any = 400,
    weighting: Any = "auto",
    seed: Any = 0,
    max_bytes: Any = MAX_BYTES,
) -> xr.Dataset:
    """Return p(label = 1) of the missing labels of rows, given their features and known labels.

    The row's embedding is inferred anew from its known positives and zeros under every draw of the fitted
    topics, weights and shapes, and the probability averaged over it: exactly where the row has few known
    positives, else by importance sampling or Gibbs. For a row without known labels this is the ordinary
    prediction. It serves new rows and the missing cells of training rows alike.

    Parameters
    ----------
    tree : DataTree
        A posterior of ``bernoulli_poisson_topics``, of any engine.
    data : LabelData
        Features, and labels with NaN (missing) where they are asked for.
    num_draws : int or None
        Posterior draws to average over, evenly spaced (None: all).
    num_samples : int
        Samples of the embedding per row and draw where the sum is not exact.
    weighting : {"auto", "equal", "by_known_labels"}
        How draws are averaged. The known labels of new rows also tell draws apart: their weights are
        p(known labels | x, draw). For training rows the posterior has seen these labels, and draws count
        equally. "auto" compares the hash of `data` with the training rows'.
    seed : int

    Returns
    -------
    Dataset
        ``prob`` (obs, labels), with known labels at 0 or 1; ``error`` (obs, labels), the Monte Carlo standard
        error of the average over the embedding (the rounding bound where exact, 0 where known; the spread
        over finitely many posterior draws is not in it); ``method`` (obs), the least exact one used;
        ``log_known`` (obs), log p(known labels | x).

    Raises
    ------
    ValueError
        If the model, labels or features do not fit, an option is out of range, or the result would pass
        `max_bytes` (`complete_top` keeps the best labels only).
    """
    checked(tree, data)
    if not real(max_bytes) > 0:
        raise ValueError(f"max_bytes must be a positive number, got {max_bytes!r}")
    size = 16 * data.num_rows * data.num_labels
    if size > max_bytes:
        raise ValueError(
            f"completing {data.num_rows} rows x {data.num_labels} labels takes {size_words(size)}, above "
            f"max_bytes={max_bytes:.4g}; use complete_top, or fewer rows"
        )
    prob, error = np.empty((2, data.num_rows, data.num_labels))
    method, log_known = np.empty(data.num_rows, object), np.empty(data.num_rows)
    for start, part in completed_blocks(tree, data, num_draws, num_samples, weighting, seed):
        stop = start + len(part["prob"])
        prob[start:stop], error[start:stop] = part["prob"], part["error"]
        method[start:stop], log_known[start:stop] = part["method"], part["log_known"]
    return xr.Dataset(
        {
            "prob": (("obs", "labels"), prob),
            "error": (("obs", "labels"), error),
            "method": ("obs", method.astype(str)),
            "log_known": ("obs", log_known),
        },
        coords={"obs": list(data.example_names), "labels": list(data.label_names)},
        attrs={"weighting": draw_weighting(tree, data, weighting)},
    )


def complete_top(tree: xr.DataTree, data: Any, k: Any, **options: Any) -> TopK:
    """Return the `k` most probable missing labels of each row; no (rows, labels) table beyond a block.

    Parameters
    ----------
    k : int
    **options
        Of `complete`.

    Returns
    -------
    TopK
        ``labels`` and ``scores`` (row, k); rows with fewer missing labels are padded as `top_k` pads.
    """
    label_data(data)
    whole_number("k", k, 1)
    settings = {"num_draws": 50, "num_samples": 400, "weighting": "auto", "seed": 0}
    unknown = sorted(set(options) - set(settings))
    if unknown:
        raise ValueError(f"complete_top has no option {unknown[0]!r}")
    settings |= options
    count = min(int(k), data.num_labels)
    labels, scores = [], []
    for _, part in completed_blocks(tree, data, **settings):
        best = top_k(part["prob"], count, observed=part["missing"])
        labels.append(best.labels)
        scores.append(best.scores)
    return TopK(np.concatenate(labels), np.concatenate(scores), data.num_labels)


def completed_blocks(
    tree: xr.DataTree, data: Any, num_draws: Any, num_samples: Any, weighting: Any, seed: Any
) -> Iterator[tuple[int, dict[str, Array]]]:
    """Yield (first row, arrays): prob, error, missing (row, labels), method and log_known (row,)."""
    checked(tree, data)
    for name, value, least in (("num_samples", num_samples, 2), ("seed", seed, 0)):
        whole_number(name, value, least)
    draws = globals_of(tree, num_draws)
    by_known = draw_weighting(tree, data, weighting) == WEIGHTED
    for block in row_blocks(tree, data, draws):
        missing = ~block.data.observed_mask(max_bytes=block.data.num_rows * data.num_labels)
        rngs = [np.random.default_rng([seed, block.start + n]) for n in range(block.data.num_rows)]
        rows = [
            _completed_row(draws, block, n, missing[n], rngs[n], num_samples, by_known)
            for n in range(block.data.num_rows)
        ]
        prob, error, method, log_known = (np.array(column) for column in zip(*rows, strict=True))
        known = block.data.Y.toarray()
        yield (
            block.start,
            {
                "prob": np.where(missing, prob, known),
                "error": np.where(missing, error, 0.0),
                "missing": missing,
                "method": method,
                "log_known": log_known,
            },
        )


def globals_of(tree: xr.DataTree, num_draws: Any) -> dict[str, Array]:
    """Return topics, weights and shapes of the draws, float64 with the draw first."""
    draws = point_draws(tree, num_draws)
    return {name: np.asarray(draws[name], np.float64) for name in ("topics", "weights", "shape")}


def _completed_row(
    draws: dict[str, Array],
    block: RowBlock,
    n: int,
    missing: Array,
    rng: np.random.Generator,
    num_samples: int,
    by_known: bool,
) -> tuple[Array, Array, str, float]:
    """Average one row over the draws of the globals; zeros where a label is known."""
    asked = np.flatnonzero(missing)
    found = [
        given_labels(
            draws["topics"][s], draws["shape"][s], block.psi[s, n], block.zeros[s, n], block.positives[n],
            rng, asked=asked, num_samples=num_samples,
        )
        for s in range(len(draws["topics"]))
    ]  # fmt: skip
    prob, error, method, log_known = averaged(found, by_known)
    out = np.zeros((2, len(missing)))
    out[:, asked] = prob, error
    return out[0], out[1], method, log_known


def averaged(found: list[GivenLabels], by_known: bool) -> tuple[Array, Array, str, float]:
    """Average a row's probabilities over draws: (prob, error, method, log of the mean p(known)).

    With `by_known`, draw s has weight w_s proportional to p(known | s), and the error is that of a ratio.
    """
    log_known = np.array([one.log_known for one in found])
    prob, error = np.array([one.prob for one in found]), np.array([one.error for one in found])
    weight = np.exp(log_known - logsumexp(log_known)) if by_known else np.full(len(found), 1 / len(found))
    mean = weight @ prob
    variance = weight**2 @ error**2
    if by_known:
        relative = np.array([one.log_known_error for one in found])
        variance = variance + (weight * relative) ** 2 @ (prob - mean) ** 2
    order = ("exact", "importance", "gibbs")
    method = order[max(order.index(one.method) for one in found)]
    return mean, np.sqrt(variance), method, float(logsumexp(log_known) - np.log(len(found)))


def write_completion(
    tree: xr.DataTree, data: Any, path: Any, *, top: Any = None, **options: Any
) -> dict[str, Any]:
    """Write completed probabilities as ``.npz``, atomically.

    Parameters
    ----------
    path : path
    top : int or None
        None: ``prob`` and ``error`` (row, labels). A number: ``top_labels`` and ``top_prob`` (row, top) of
        the missing labels, -1 and -inf where there are fewer.
    **options
        Of `complete`.

    Returns
    -------
    dict
        ``missing`` labels; without `top`, ``largest_error`` and rows by method.
    """
    names = {"label_names": np.array(data.label_names), "example_names": np.array(data.example_names)}
    told: dict[str, Any] = {"missing": data.num_missing_cells}
    if top is None:
        found = complete(tree, data, **options)
        arrays = {"prob": found["prob"].values, "error": found["error"].values}
        told["largest_error"] = float(arrays["error"].max(initial=0.0))
        methods, counts = np.unique(found["method"].values, return_counts=True)
        told["methods"] = dict(zip(methods.tolist(), counts.tolist(), strict=True))
    else:
        best = complete_top(tree, data, top, **options)
        arrays = {"top_labels": best.labels, "top_prob": best.scores}
    with whole_file(path) as temporary, open(temporary, "wb") as handle:
        np.savez_compressed(handle, allow_pickle=False, **arrays, **names)
    return told
