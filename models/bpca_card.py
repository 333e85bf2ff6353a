"""The card of bpca: from labels to compressed rows, a stated rule of prediction, and functionals."""

import json
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve

from labelzoo.arguments import real, size_words, whole_number
from labelzoo.models.bpca import augmented, centred, stretched, summed
from labelzoo.models.sparse_bayes_settings import draw_projection
from labelzoo.models.spec import MAX_DENSE_BYTES, ModelSpec

Array = Any

SETTINGS: dict[str, Any] = {
    "num_measurements": None,
    "projection_seed": 0,
    "num_components": None,
    "precision_shape": 1e-3,
    "precision_rate": 1e-3,
    "noise_shape": 1e-3,
    "noise_rate": 1e-3,
    "mean_precision": 1e-3,
    "drop_incomplete": False,
}
"""Defaults.

num_measurements : rows of the projection A, entries N(0, 1 / num_measurements); None: half the labels,
    rounded up. With as many as labels or more, A is the identity and nothing is compressed.
projection_seed : of A, drawn once and kept with the posterior.
num_components : columns of W, at most num_measurements; None: one less than measurements, at least one.
precision_shape, precision_rate : a and b of the precisions alpha of the columns of W.
noise_shape, noise_rate : c and d of the noise precision tau.
mean_precision : beta, prior precision of mu. Compressed rows are scaled to unit mean variance. The vague
    defaults suit mean_field and gibbs; NUTS can meet funnels under them, where a column is switched off.
drop_incomplete : what to do with rows of which some labels are observed and others not, and which therefore
    cannot be compressed: False refuses them, True leaves them out like rows without any observed label.
"""

PRIORS = ("precision_shape", "precision_rate", "noise_shape", "noise_rate", "mean_precision")
LEAST, MOST = 1e-100, 1e100
MAX_FUNCTIONALS = 100
"""Most entries of C, and of its correlations, that `functionals` returns."""
MIN_PROB = 1e-3
"""Predicted probabilities stay this far from 0 and 1."""
FLAT = 1e-24
"""Variance of compressed rows, relative to their mean square, below which they do not vary."""


def prepare(
    data: Any, settings: Mapping[str, Any], constants: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the arguments of every view for `data` (LabelData); the features are not read.

    Rows without any observed label are left out. With `constants`, projection and scale are those of the
    training rows.

    Returns
    -------
    dict
        ``compressed`` (graph, measurement) R = Y A' times ``compressed_scale``, not centred, since mu is in
        the model; ``row_mean`` (measurement,) and ``scatter`` (measurement, measurement) of its rows;
        ``projection`` A; ``fitted_row`` (graph,), the row of the data; the prior.

    Raises
    ------
    ValueError
        If a setting is out of range, rows are partly observed, no row is complete, or the tables would pass
        the memory cap.
    """
    _check_settings(settings)
    rows = complete_rows(data, drop=bool(settings["drop_incomplete"]))
    projection = _projection(data.num_labels, settings) if constants is None else constants["projection"]
    d = projection.shape[0]
    _refuse_large(len(rows), d)
    raw = np.asarray(data.Y[rows] @ projection.T, float)
    scale = _scale(raw) if constants is None else float(constants["compressed_scale"])
    compressed = raw * scale
    row_mean = compressed.mean(axis=0)
    inputs = {name: float(settings[name]) for name in PRIORS}
    return inputs | {
        "compressed": compressed,
        "num_components": _num_components(settings["num_components"], d),
        "row_mean": row_mean,
        "scatter": (compressed - row_mean).T @ (compressed - row_mean),
        "projection": np.asarray(projection, float),
        "compressed_scale": scale,
        "fitted_row": rows,
    }


def complete_rows(data: Any, *, drop: bool, model: str = "bpca") -> Array:
    """Return the rows of which every label is observed: int (graph,); `model` is for messages.

    Raises
    ------
    ValueError
        If a row is observed in part and `drop` is False, or there is no complete row.
    """
    unlabelled, partial = data.unlabelled_rows, np.zeros(data.num_rows, bool)
    if data.missing is not None:
        counts = np.bincount(data.missing.cells[0], minlength=data.num_rows)
        whole = data.num_labels if data.missing.cells_are == "observed" else 0
        partial = (counts > 0) & (counts != whole) & ~unlabelled
    if partial.any() and not drop:
        raise ValueError(_partial_words(data, np.flatnonzero(partial), model))
    rows = np.flatnonzero(~unlabelled & ~partial)
    if not len(rows):
        raise ValueError(
            f"data: {model} needs at least one row of which every label is observed; of {data.num_rows} rows "
            f"{int(unlabelled.sum())} have none and {int(partial.sum())} some"
        )
    return rows


def _partial_words(data: Any, rows: Array, model: str) -> str:
    first = int(rows[0])
    label = int(np.flatnonzero(~data.observed_mask([first])[0])[0])
    answer = json.dumps({data.example_names[first]: {data.label_names[label]: 0}}, ensure_ascii=False)
    return (
        f"data: {model} reads whole rows of labels, but {len(rows)} of {data.num_rows} rows are observed "
        f"in part, the first being {data.example_names[first]!r}, which lacks {data.label_names[label]!r}: "
        "take them out, set drop_incomplete=True to leave them out of the fit, or say 0 of the labels that a "
        f"row has not: to labelzoo tell, {answer} in JSON, or 0 in a CSV cell (an empty one says nothing)"
    )


def _projection(num_labels: int, settings: Mapping[str, Any]) -> Array:
    d = settings["num_measurements"] or max(1, -(-num_labels // 2))
    size = 8.0 * min(d, num_labels) * num_labels
    if size > MAX_DENSE_BYTES:
        raise ValueError(
            f"num_measurements: a projection of {num_labels} labels to {min(d, num_labels)} measurements "
            f"takes {size_words(size)}, above the cap of {size_words(MAX_DENSE_BYTES)}"
        )
    if d >= num_labels:
        return np.eye(num_labels)
    return draw_projection(num_labels, {**settings, "num_measurements": d})


def _refuse_large(num_rows: int, d: int) -> None:
    size = 8.0 * d * (num_rows + d)
    if size > MAX_DENSE_BYTES:
        raise ValueError(
            f"data: bpca keeps {num_rows} rows of {d} measurements and their covariance as dense tables, "
            f"{size_words(size)}, above the cap of {size_words(MAX_DENSE_BYTES)}: pass fewer rows or a "
            "smaller num_measurements"
        )


def _num_components(asked: Any, d: int) -> int:
    if asked is None:
        return max(1, d - 1)
    if asked > d:
        raise ValueError(f"num_components={asked} is more than the {d} measurements of a compressed row")
    return int(asked)


def _scale(raw: Array) -> float:
    """Return what brings the mean variance of the columns to 1; 1 where nothing varies."""
    variance = float(raw.var(axis=0).mean())
    return variance**-0.5 if variance > FLAT * float((raw**2).mean()) else 1.0


def _check_settings(settings: Mapping[str, Any]) -> None:
    for name in PRIORS:
        if not LEAST <= real(settings[name]) <= MOST:
            raise ValueError(f"{name} must be a number between 1e-100 and 1e100, got {settings[name]!r}")
    for name in ("num_measurements", "num_components"):
        if settings[name] is not None:
            whole_number(name, settings[name], 1)
    whole_number("projection_seed", settings["projection_seed"], 0)
    if not isinstance(settings["drop_incomplete"], bool | np.bool_):
        raise ValueError(f"drop_incomplete must be True or False, got {settings['drop_incomplete']!r}")


CONSTANTS = ("projection", "compressed_scale", "fitted_row")


def constants(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what prediction needs besides the draws: the projection and the scale of compressed rows."""
    return {name: np.asarray(inputs[name]) for name in CONSTANTS}


def decode(compressed: Array, projection: Array, scale: Array) -> Array:
    """Return label probabilities of compressed rows (row, measurement): (row, labels).

    The least squares solution y of A y = r / scale that is nearest to 0, cut to `MIN_PROB` and
    1 - `MIN_PROB`. A rule and no part of the law: where A compresses, it shrinks every label towards 0.
    """
    y = compressed / scale @ jnp.linalg.pinv(projection).T
    return jnp.clip(y, MIN_PROB, 1.0 - MIN_PROB)


def predict(draw: Mapping[str, Any], X_new: Array, constants: Mapping[str, Any]) -> Array:
    """Return `decode` of r = mu for every new row: (row, labels), all rows alike.

    The model sees no features, and the scores of a new row have mean 0 given nothing else.
    """
    one = decode(jnp.asarray(draw["mean"])[None], constants["projection"], constants["compressed_scale"])
    return jnp.broadcast_to(one, (X_new.shape[0], one.shape[1]))


def fitted_probs(draw: Mapping[str, Any], inputs: Mapping[str, Any]) -> Array:
    """Return `decode` of r_n = mu + W u_n at the training rows, whose scores are known: (graph, labels).

    Scores that are not among the sites are taken at their mean given the rest,
    u_n = (I + tau W'W)^-1 tau W'(r_n - mu).
    """
    W, mean, tau = draw["loadings"], draw["mean"], draw["noise_precision"]
    scores = draw.get("scores")
    if scores is None:
        gram = jnp.eye(W.shape[1]) + tau * W.T @ W
        scores = jnp.linalg.solve(gram, tau * W.T @ (inputs["compressed"] - mean).T).T
    return decode(mean + scores @ W.T, inputs["projection"], inputs["compressed_scale"])


def covariance_of(draw: Mapping[str, Any]) -> Array:
    """Return C = W W' + I / tau: (measurement, measurement)."""
    W = jnp.asarray(draw["loadings"])
    return W @ W.T + jnp.eye(W.shape[0]) / draw["noise_precision"]


def log_likelihood(draw: Mapping[str, Any], inputs: Mapping[str, Any]) -> Array:
    """Return the log density of all compressed rows, U integrated out: scalar, nats.

    From the rows' mean and scatter: measurement^3 flops whatever the number of rows.
    """
    m, d = inputs["compressed"].shape
    root = jnp.linalg.cholesky(covariance_of(draw))
    gap = jnp.asarray(inputs["row_mean"]) - draw["mean"]
    moment = jnp.asarray(inputs["scatter"]) + m * jnp.outer(gap, gap)
    log_det = 2.0 * jnp.log(jnp.diagonal(root)).sum()
    fit = jnp.trace(cho_solve((root, True), moment))
    return -0.5 * (m * d * jnp.log(2.0 * jnp.pi) + m * log_det + fit)


def _evenly(count: int) -> Array:
    return np.unique(np.linspace(0, count - 1, min(MAX_FUNCTIONALS, count)).round().astype(int))


def functionals(draw: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Array]:
    """Return what does not change when the columns of W are rotated, exchanged or change sign.

    ``covariance``, at most 100 entries of C = W W' + I / tau, and its ``correlation`` (from two measurements
    on); ``log_det`` of C and ``log_noise``, ln tau, nats; ``mean`` mu; ``eigenvalues`` (component,) of W W',
    the largest first; ``log_likelihood``, nats.
    """
    C, W = covariance_of(draw), jnp.asarray(draw["loadings"])
    d = C.shape[0]
    upper, above = np.triu_indices(d), np.triu_indices(d, 1)
    out = {
        "covariance": C[upper][_evenly(len(upper[0]))],
        "log_det": jnp.linalg.slogdet(C)[1],
        "log_noise": jnp.log(draw["noise_precision"]),
        "mean": jnp.asarray(draw["mean"]),
        "eigenvalues": jnp.linalg.eigvalsh(W @ W.T)[::-1][: inputs["num_components"]],
        "log_likelihood": log_likelihood(draw, inputs),
    }
    if d > 1:
        sd = jnp.sqrt(jnp.diagonal(C))
        out["correlation"] = (C / jnp.outer(sd, sd))[above][_evenly(len(above[0]))]
    return out


spec = ModelSpec(
    name="bpca",
    views={"summed": summed, "centred": centred, "augmented": augmented, "stretched": stretched},
    predict=predict,
    prepare=prepare,
    constants=constants,
    settings=SETTINGS,
    dims={
        "precision": ("component",),
        "noise_precision": (),
        "mean": ("measurement",),
        "loadings": ("measurement", "component"),
        "scores": ("graph", "component"),
        "projection": ("measurement", "labels"),
        "compressed_scale": (),
        "fitted_row": ("graph",),
    },
    functionals=functionals,
    no_simulate="its law is of compressed rows, real numbers, and labels are 0 and 1",
    tiny={"num_obs": 30, "num_features": 1, "num_labels": 5, "drop_incomplete": True},
    default={"num_obs": 200, "num_features": 1, "num_labels": 20},
    small_settings=dict.fromkeys(("precision_shape", "precision_rate", "noise_shape", "noise_rate"), 1.0)
    | {"mean_precision": 0.1},
    check_settings={
        "num_measurements": 4,
        "num_components": 2,
        "precision_shape": 2.0,
        "precision_rate": 0.7,
        "noise_shape": 1.5,
        "noise_rate": 0.4,
        "mean_precision": 0.3,
    },
    paper="Shi, Yu: Fast direct search in an optimally compressed continuous target space for efficient "
    "multi-label active learning, ICML 2019; Bishop: Variational principal components, ICANN 1999",
    equations="ICML 2019 section 3, (2) to (5); ICANN 1999 (3) to (7)",
)
