"""Probabilities of labels at new rows, from the draws in a DataTree."""

import hashlib
import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from scipy import sparse

from labelzoo.data.convert import is_frame
from labelzoo.data.metrics import TopK, top_k
from labelzoo.data.plain import checked_sparse
from labelzoo.inference.frames import by_name
from labelzoo.models import registry

DEFAULT_MAX_BYTES = 2**30
"""Largest array of label probabilities that is returned draw by draw (1 GiB)."""

WORK_BYTES = 2**28
"""Working memory of predictions that are averaged over draws (256 MiB)."""

WORK_TABLES = 8
"""Tables (row, labels) that one block of rows is reckoned to need while draws are averaged."""


def point_draws(tree: xr.DataTree, num_draws: Any = None, seed: int = 0) -> dict[str, np.ndarray]:
    """Return the posterior's sites with chain and draw merged into one leading axis.

    Parameters
    ----------
    tree : DataTree
        With a group ``posterior``.
    num_draws : int or None
        At most so many draws, evenly spaced over the pooled draws (None: all).

    Returns
    -------
    dict of str to ndarray
        (sample, ...) a site.

    Raises
    ------
    ValueError
        If `num_draws` is not a positive integer or None.
    """
    whole = isinstance(num_draws, int | np.integer) and not isinstance(num_draws, bool)
    if num_draws is not None and not (whole and num_draws >= 1):
        raise ValueError(f"num_draws must be None or an integer of at least 1, got {num_draws!r}")
    posterior = tree["posterior"].to_dataset()
    total = posterior.sizes["chain"] * posterior.sizes["draw"]
    keep = slice(None)
    if num_draws is not None and num_draws < total:
        keep = np.linspace(0, total - 1, num_draws).round().astype(int)  # type: ignore[assignment]
    return {
        str(name): array.values.reshape(total, *array.shape[2:])[keep]
        for name, array in posterior.data_vars.items()
    }


def constants_of(tree: xr.DataTree) -> dict[str, Any]:
    """Return what `predict` of the model needs besides draws: saved arrays and settings."""
    arrays = {str(k): v.values for k, v in tree["constant_data"].to_dataset().data_vars.items()}
    return {**json.loads(tree.attrs["settings"]), **arrays}


def features_of(tree: xr.DataTree, data: Any) -> Any:
    """Return the feature matrix of `data` (LabelData, frame or array), checked against the posterior.

    Columns of a frame are found by name.

    Raises
    ------
    ValueError
        If the number or the names of the features differ from those of the training rows.
    """
    trained = json.loads(tree.attrs["feature_names"])
    if is_frame(data):
        X, names = by_name(trained, data), None
    else:
        X, names = getattr(data, "X", data), getattr(data, "feature_names", None)
    X = checked_sparse(X, "X").tocsr() if sparse.issparse(X) else np.asarray(X, float)
    expected = int(tree.attrs["num_features"])
    if X.ndim != 2 or X.shape[1] != expected:
        raise ValueError(f"X has shape {X.shape}, the posterior was fitted on {expected} features")
    if names is not None and list(names) != trained:
        first = next(i for i, (a, b) in enumerate(zip(names, trained, strict=True)) if a != b)
        raise ValueError(f"feature {first} is {names[first]!r}, in the posterior it is {trained[first]!r}")
    if X.shape[0] == 0:
        raise ValueError("X has no rows to predict")
    values = X.data if sparse.issparse(X) else X
    if not np.isfinite(values).all():
        raise ValueError("X has NaN or infinite values at the rows to predict")
    return X


def label_prob(
    tree: xr.DataTree,
    data: Any,
    *,
    num_draws: Any = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
    row_batch: int = 512,
) -> xr.DataArray:
    """Return P(label = 1) of new rows for every draw.

    Parameters
    ----------
    tree : DataTree
    data : LabelData or array (row, feature)
    num_draws : int or None
        Thin to at most so many draws.
    max_bytes : int
        Refuse a larger result; `mean_prob` needs no such array.

    Returns
    -------
    DataArray
        (chain, draw, obs, labels); chain is 1 when draws were thinned.
    """
    X = features_of(tree, data)
    draws = point_draws(tree, num_draws)
    samples = len(next(iter(draws.values())))
    labels = json.loads(tree.attrs["label_names"])
    size = 8 * samples * X.shape[0] * len(labels)
    if size > max_bytes:
        raise ValueError(
            f"label_prob of {samples} draws x {X.shape[0]} rows x {len(labels)} labels takes "
            f"{size / 2**30:.2f} GiB, above max_bytes; use mean_prob, num_draws= or fewer rows"
        )
    out = np.empty((samples, X.shape[0], len(labels)))
    for start, block in _blocks("each", tree, draws, X, row_batch):
        out[:, start : start + block.shape[1]] = block
    posterior = tree["posterior"]
    chains = posterior.sizes["chain"] if samples == posterior.sizes["chain"] * posterior.sizes["draw"] else 1
    names = getattr(data, "example_names", None) or [f"row {i}" for i in range(X.shape[0])]
    return xr.DataArray(
        out.reshape(chains, samples // chains, *out.shape[1:]),
        dims=("chain", "draw", "obs", "labels"),
        coords={"obs": list(names), "labels": labels},
        name="label_prob",
    )


def mean_prob(
    tree: xr.DataTree,
    data: Any,
    *,
    num_draws: Any = None,
    row_batch: int = 512,
    with_sd: bool = False,
    max_bytes: int = WORK_BYTES,
) -> Any:
    """Return the posterior mean of P(label = 1), and its sd over draws if asked: (row, labels) arrays.

    Beyond the result, memory is a few tables (row_batch, labels) and one block of features, whatever the
    number of draws; rows are taken fewer at a time where these would pass `max_bytes`.
    """
    X = features_of(tree, data)
    num_labels = len(json.loads(tree.attrs["label_names"]))
    mean = np.empty((X.shape[0], num_labels))
    sd = np.empty_like(mean) if with_sd else None
    for start, block in mean_blocks(tree, X, num_draws=num_draws, row_batch=row_batch, max_bytes=max_bytes):
        mean[start : start + block.shape[1]] = block[0]
        if sd is not None:
            sd[start : start + block.shape[1]] = block[1]
    return mean if sd is None else (mean, sd)


def mean_blocks(
    tree: xr.DataTree,
    X: Any,
    *,
    num_draws: Any = None,
    row_batch: int = 512,
    max_bytes: int = WORK_BYTES,
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (first row, block) with blocks (2, row, labels): posterior mean and sd of P(label = 1).

    What every prediction without draws is made of: nothing of size rows x labels is held.
    """
    num_labels = len(json.loads(tree.attrs["label_names"]))
    rows = max_bytes // (8 * (WORK_TABLES * num_labels + 2 * X.shape[1] + 1))
    yield from _blocks("moments", tree, point_draws(tree, num_draws), X, max(1, min(row_batch, rows)))


def predict_topk(
    tree: xr.DataTree, data: Any, k: Any, *, num_draws: Any = None, max_bytes: int = WORK_BYTES
) -> TopK:
    """Return the `k` labels of each row with the highest posterior mean probability, best first.

    Parameters
    ----------
    tree : DataTree
    data : LabelData, array or sparse matrix (row, feature)
        A sparse matrix is made dense a block of rows at a time.
    k : int
        At least 1; where there are fewer labels, all of them are returned.
    num_draws : int or None
        Thin to at most so many draws.
    max_bytes : int
        Working memory for one block of rows.

    Returns
    -------
    labelzoo.data.metrics.TopK
        ``labels`` (row, k) and ``scores`` (row, k). Equal probabilities are ordered by label number.
    """
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise ValueError(f"k must be an integer of at least 1, got {k!r}")
    X = features_of(tree, data)
    num_labels = len(json.loads(tree.attrs["label_names"]))
    count = min(int(k), num_labels)
    labels = np.empty((X.shape[0], count), np.int64)
    scores = np.empty((X.shape[0], count))
    for start, (mean, _) in mean_blocks(tree, X, num_draws=num_draws, max_bytes=max_bytes):
        best = top_k(mean, count)
        labels[start : start + len(mean)] = best.labels
        scores[start : start + len(mean)] = best.scores
    return TopK(labels, scores, num_labels)


def _law_of(tree: xr.DataTree, name: str, words: str) -> Any:
    """Return the function of that name on the card of the posterior's model; ValueError without one."""
    spec = registry.get(str(tree.attrs["model"])).spec
    law = getattr(spec, name)
    if law is None:
        raise ValueError(f"model {spec.name!r} has no {words} (ModelSpec.{name})")
    return law


def label_law(tree: xr.DataTree, data: Any) -> Any:
    """Return the Gaussian law of the labels of new rows, a `labelzoo.acquisition.label_law.LabelLaw`.

    Raises
    ------
    ValueError
        If the model has none, or the features are not those of the posterior.
    """
    law = _law_of(tree, "label_law", "Gaussian law of a row's labels")
    return law(point_draws(tree), features_of(tree, data), constants_of(tree))


def mixture_law(tree: xr.DataTree, data: Any) -> Any:
    """Return the mixture law of the labels of new rows, a `labelzoo.acquisition.mixture_law.MixtureLaw`.

    Raises
    ------
    ValueError
        If the model has none, or the features are not those of the posterior.
    """
    law = _law_of(tree, "mixture_law", "mixture law of a row's labels")
    draws = {str(name): site.values for name, site in tree["posterior"].to_dataset().data_vars.items()}
    kept = tree["engine_state"].to_dataset().data_vars if "engine_state" in tree.children else {}
    state = {str(name): value.values for name, value in kept.items()}
    return law(draws, features_of(tree, data), constants_of(tree), state)


def target_law(tree: xr.DataTree, data: Any) -> Any:
    """Return the law of the compressed targets of new rows, a `labelzoo.acquisition.target_law.TargetLaw`.

    Raises
    ------
    ValueError
        If the model has none, or the features are not those of the posterior.
    """
    law = _law_of(tree, "target_law", "law of compressed targets")
    return law(point_draws(tree), features_of(tree, data), constants_of(tree))


def class_similarity(tree: xr.DataTree, data: Any) -> Any:
    """Return the similarities of new rows to the classes.

    A `labelzoo.acquisition.class_similarity.ClassSimilarity`.

    Raises
    ------
    ValueError
        If the model has none, or the features are not those of the posterior.
    """
    law = _law_of(tree, "class_similarity", "similarities to classes")
    return law(point_draws(tree), features_of(tree, data), constants_of(tree))


class _Constants:
    """What a prediction program is compiled for, compared by content."""

    def __init__(self, values: dict[str, Any]) -> None:
        digest = hashlib.sha256()
        for name in sorted(values):
            value = values[name]
            arrayed = isinstance(value, np.ndarray)
            digest.update(f"{name} {value.dtype} {value.shape}".encode() if arrayed else b"")
            digest.update(np.ascontiguousarray(value).tobytes() if arrayed else f"{name} {value!r}".encode())
        self.values, self.digest = values, digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Constants) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


@lru_cache(maxsize=8)
def _program(kind: str, predict: Any, constants: _Constants) -> Any:
    """Compile a block of rows under all draws once for one posterior: predicting again costs no compilation.

    ``each`` gives (sample, row, labels), ``moments`` (2, row, labels), mean and sd over samples by Welford's
    recurrence, so that no array of samples x rows x labels exists.
    """
    values = constants.values

    def each(sites: Any, rows: Any) -> Any:
        return jax.lax.map(lambda one: predict(one, rows, values), sites)

    def moments(sites: Any, rows: Any) -> Any:
        first = jax.tree.map(lambda site: site[0], sites)
        shape = jax.eval_shape(lambda one: predict(one, rows, values), first).shape
        zero = jnp.zeros(shape, float)

        def add(carry: tuple[Any, Any, Any], one: Any) -> tuple[tuple[Any, Any, Any], None]:
            count, mean, square = carry
            p = predict(one, rows, values)
            new = mean + (p - mean) / (count + 1)
            return (count + 1, new, square + (p - mean) * (p - new)), None

        (count, mean, square), _ = jax.lax.scan(add, (jnp.zeros(()), zero, zero), sites)
        return jnp.stack([mean, jnp.sqrt(square / count)])

    return jax.jit({"each": each, "moments": moments}[kind])


def _joint_blocks(
    kind: str, tree: xr.DataTree, draws: dict[str, np.ndarray], X: Any, row_batch: int
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield blocks of a model whose new rows have latent variables of their own.

    Draws row by row would lose their dependence: ``each`` takes all rows at once.
    """
    spec = registry.get(str(tree.attrs["model"])).spec
    predict, moments = spec.predict_draws, spec.predict_moments
    assert predict is not None
    rng = np.random.default_rng([max(int(tree.attrs["seed"]), 0), 1])
    size = X.shape[0] if kind == "each" else row_batch
    for start in range(0, X.shape[0], size):
        rows = X[start : start + size]
        if kind == "moments" and moments is not None:
            yield start, np.stack(moments(draws, rows, constants_of(tree), rng))
            continue
        probs = predict(draws, rows, constants_of(tree), rng)
        yield start, probs if kind == "each" else np.stack([probs.mean(axis=0), probs.std(axis=0)])


def _blocks(
    kind: str, tree: xr.DataTree, draws: dict[str, np.ndarray], X: Any, row_batch: int
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (first row, program's block of rows); blocks are padded to few sizes, so that few compile."""
    spec = registry.get(str(tree.attrs["model"])).spec
    if spec.predict_draws is not None:
        yield from _joint_blocks(kind, tree, draws, X, row_batch)
        return
    program = _program(kind, spec.predict, _Constants(constants_of(tree)))
    size = min(row_batch, 1 << (X.shape[0] - 1).bit_length())
    with jax.enable_x64(True):
        sites = jax.tree.map(jnp.asarray, draws)
    for start in range(0, X.shape[0], size):
        rows = X[start : start + size]
        rows = rows.toarray() if sparse.issparse(rows) else rows
        short = size - rows.shape[0]
        padded = np.pad(rows, ((0, short), (0, 0)), mode="edge") if short else rows
        with jax.enable_x64(True):
            block = np.asarray(program(sites, padded))
        yield start, block[:, : size - short]
