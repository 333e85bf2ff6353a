"""The card of compressed_gp: from data to targets and kernel tables, what prediction needs, functionals."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from labelzoo.arguments import size_words
from labelzoo.models import bpca_card
from labelzoo.models.compressed_gp import (
    SITES,
    Logs,
    function_covariance,
    linear,
    predictive,
    summed,
    with_noise,
)
from labelzoo.models.compressed_gp_law import target_law
from labelzoo.models.compressed_gp_predict import (
    DECODERS,
    LEVELS,
    kernel_of,
    mapped_rows,
    predict,
    predict_draws,
    predict_moments,
)
from labelzoo.models.gp_kernel import KINDS, feature_map
from labelzoo.models.spec import MAX_DENSE_BYTES, ModelSpec, refuse_missing_features

Array = Any
Inputs = Mapping[str, Any]

SETTINGS: dict[str, Any] = {
    **bpca_card.SETTINGS,
    "compression": "ppca",
    "kernel": "auto",
    "decoder": "regression",
    "level": "item",
}
"""Defaults.

num_measurements, projection_seed, num_components, the five priors, drop_incomplete : those of the
    compression, see `labelzoo.models.bpca_card.SETTINGS`.
compression : what the targets are: ppca, principal components by maximum likelihood; bpca, the paper's
    variational ones, which drop what explains little and predict worse for it; none, the measurements
    themselves, see `labelzoo.inference.compressed_gp.targets`.
kernel : auto, rbf or cosine: how features are mapped, see `labelzoo.models.gp_kernel`. Mapped rows of rbf are
    divided by the root of the number of features, so that squared distances are of order 1.
decoder : how targets become label probabilities: regression, bp, omp or corr, see
    `labelzoo.models.compressed_gp_predict`.
level : how many labels `labelzoo.inference.compressed_gp.decoded` answers with: item, inferred for each row
    from the other training rows, or mean, as many for all rows as training rows have on average.
"""

TARGETS_KEPT = {
    "compression": "bpca",
    "precision_shape": 2.0,
    "precision_rate": 2.0,
    "noise_shape": 10.0,
    "noise_rate": 1.0,
}
"""Priors of the compression under which a few rows of unrelated labels still leave targets: for checks."""
RANK_CUT = 1e-10
"""Directions of the targets below this share of the largest do not predict labels."""
NEW_ROWS = 200
"""Most rows without labels, the first ones, that the view ``predictive`` holds."""
MAX_FUNCTIONALS = 60
"""Most rows times targets whose law given the other rows `functionals` returns."""


def prepare(
    data: Any, settings: Mapping[str, Any], constants: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the arguments of every view for `data` (LabelData).

    Rows with all labels observed are compressed (`labelzoo.models.bpca_card.prepare`) and reduced to
    canonical targets by the mean field of bpca; where their labels are all alike, or vary no more in one
    direction than in another, there is no target. Other rows take part in the map of the features, and as the
    new rows of ``predictive``. With `constants`, map, compression and targets are those of the training rows.

    Returns
    -------
    dict
        ``targets`` (graph, target), ``distances2`` and ``products`` (graph, graph), ``mapped`` (graph,
        feature), ``new_distances2`` and ``new_products`` (new, graph + new), and `CONSTANTS`.

    Raises
    ------
    ValueError
        As `labelzoo.models.bpca_card.prepare`; if kernel, decoder or level is unknown, a feature is missing
        or the tables would pass the memory cap.
    """
    from labelzoo.inference.compressed_gp.kernel14 import Caches, squared_distances

    _check_settings(settings)
    refuse_missing_features(data, "compressed_gp")
    rows_of_labels = bpca_card.prepare(data, {n: settings[n] for n in bpca_card.SETTINGS}, constants)
    rows = rows_of_labels["fitted_row"]
    _refuse_large(len(rows), data.num_features)
    kernel = feature_map(data.X, settings["kernel"]) if constants is None else kernel_of(constants)
    others = np.setdiff1d(np.arange(data.num_rows), rows)[:NEW_ROWS]
    mapped, new = mapped_rows(kernel, data.X[rows]), mapped_rows(kernel, data.X[others])
    caches = Caches(mapped)
    whole = np.concatenate([mapped, new])
    if constants is None:
        shared = _compressed(data, rows_of_labels, str(settings["compression"]))
    else:
        shared = _kept(rows_of_labels, constants)
    return {
        **shared,
        "distances2": np.array(caches.distances2),
        "products": np.array(caches.products),
        "mapped": mapped,
        "new_distances2": squared_distances(new, whole),
        "new_products": new @ whole.T,
        "is_cosine": np.int8(kernel.is_cosine),
        "center": kernel.center,
        "scale": kernel.scale,
        "fitted_row": rows,
    }


def _compressed(data: Any, rows_of_labels: Inputs, compression: str) -> dict[str, Any]:
    """Return the targets of the training rows, the way back to labels and what their labels are like."""
    from labelzoo.inference.compressed_gp.targets import reduced

    found = reduced(rows_of_labels, compression)
    R, center = rows_of_labels["compressed"], rows_of_labels["row_mean"]
    targets = found.canonical.targets
    # Targets are linear in the compressed rows, whatever else they are.
    target_map = np.linalg.lstsq(R - center, targets, rcond=None)[0]
    return {
        "targets": targets,
        "loadings": found.canonical.loadings,
        "offset": found.canonical.offset,
        "target_weights": found.canonical.weights,
        "compression_converged": np.int8(found.converged),
        "target_map": target_map,
        "target_shift": -center @ target_map,
        "projection": rows_of_labels["projection"],
        "compressed_scale": np.asarray(rows_of_labels["compressed_scale"]),
        **label_tables(data.Y[rows_of_labels["fitted_row"]], targets),
    }


def label_tables(Y: Any, targets: Array) -> dict[str, Any]:
    """Return what decoding reads of the training labels.

    Parameters
    ----------
    Y : sparse array (row, labels)
    targets : (row, target)
        Centred. Y is regressed on them by least squares, targets'Y / row where they are uncorrelated.

    Returns
    -------
    dict
        ``label_frequency`` (labels,), (positives + 1/2) / (rows + 1); ``label_coefficients`` (target,
        labels); ``label_count`` (row,), labels of each row; ``training_level``, their mean rounded, at least
        1.
    """
    m = Y.shape[0]
    counts = np.asarray(Y.sum(axis=1, dtype=float)).ravel()
    positives = np.asarray(Y.sum(axis=0, dtype=float)).ravel()
    return {
        "label_frequency": (positives + 0.5) / (m + 1.0),
        "label_coefficients": np.asarray(Y.T @ np.linalg.pinv(targets, rcond=RANK_CUT).T, float).T,
        "label_count": counts,
        "training_level": np.asarray(max(1, round(float(counts.mean())))),
    }


def _kept(rows_of_labels: Inputs, constants: Mapping[str, Any]) -> dict[str, Any]:
    """Return the targets of other rows by the training rows' map, beside what is kept of these."""
    kept = {name: np.asarray(constants[name]) for name in CONSTANTS if name not in OF_ROWS}
    R = rows_of_labels["compressed"]
    counts = np.full(len(R), np.nan)
    return {**kept, "targets": R @ kept["target_map"] + kept["target_shift"], "label_count": counts}


def _check_settings(settings: Mapping[str, Any]) -> None:
    from labelzoo.inference.compressed_gp.targets import COMPRESSIONS

    choices = {"compression": COMPRESSIONS, "kernel": KINDS, "decoder": DECODERS, "level": LEVELS}
    for name, known in choices.items():
        if settings[name] not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}, got {settings[name]!r}")


def _refuse_large(num_rows: int, num_features: int) -> None:
    size = 8.0 * num_rows * max(3 * num_rows, num_features)
    if size > MAX_DENSE_BYTES:
        raise ValueError(
            f"data: compressed_gp keeps its {num_rows} rows with labels as dense tables, rows x rows and "
            f"rows x {num_features} features, {size_words(size)}, above the cap of "
            f"{size_words(MAX_DENSE_BYTES)}: pass a subset of rows"
        )


OF_ROWS = ("targets", "mapped", "fitted_row", "label_count")
CONSTANTS = (
    *OF_ROWS,
    "is_cosine",
    "center",
    "scale",
    "loadings",
    "offset",
    "target_weights",
    "compression_converged",
    "target_map",
    "target_shift",
    "projection",
    "compressed_scale",
    "label_frequency",
    "label_coefficients",
    "training_level",
)


def constants(inputs: Inputs) -> dict[str, Any]:
    """Return what prediction needs besides the draws: targets, mapped features, compression, labels."""
    return {name: np.asarray(inputs[name]) for name in CONSTANTS}


def logs_of(draw: Mapping[str, Any]) -> Logs:
    """Return the five logarithms of a draw."""
    return Logs(*(jnp.asarray(draw[name]) for name in SITES))


def functionals(draw: Mapping[str, Any], inputs: Inputs) -> dict[str, Array]:
    """Return what the targets tell of.

    Signal and noise are not told apart where the signal is as short as the rows are far apart, nor are parts
    of the kernel that are alike on these rows: each row's law given the other rows does not change then.
    ``left_out_mean`` and ``left_out_log_variance`` are of that law, at <= 60 rows and targets,
    u_n - (C^-1 u)_n / (C^-1)_nn and -ln (C^-1)_nn; ``log_likelihood`` (target,), nats; ``log_variance``
    (target,), ln of the mean variance of a row before any target is seen, noise included. Without targets
    there is one constant, ``num_targets``.
    """
    U = jnp.asarray(inputs["targets"])
    n, count = U.shape
    if not count:
        return {"num_targets": jnp.zeros(())}
    logs = logs_of(draw)
    C = with_noise(function_covariance(logs, inputs["distances2"], inputs["products"]), logs)
    lower = jnp.linalg.cholesky(C)
    half = solve_triangular(lower, jnp.broadcast_to(jnp.eye(n), C.shape), lower=True)
    white = (half @ U.T[..., None])[..., 0]
    precision = (half**2).sum(axis=1)
    mean = U.T - (half.mT @ white[..., None])[..., 0] / precision
    keep = np.unique(np.linspace(0, n * count - 1, min(MAX_FUNCTIONALS, n * count)).round().astype(int))
    log_det = 2.0 * jnp.log(jnp.diagonal(lower, axis1=1, axis2=2)).sum(axis=1)
    return {
        "log_likelihood": -0.5 * ((white**2).sum(axis=1) + log_det + n * jnp.log(2.0 * jnp.pi)),
        "log_variance": jnp.log(jnp.diagonal(C, axis1=1, axis2=2).mean(axis=1)),
        "left_out_mean": mean.reshape(-1)[keep],
        "left_out_log_variance": -jnp.log(precision).reshape(-1)[keep],
    }


spec = ModelSpec(
    name="compressed_gp",
    views={"summed": summed, "predictive": predictive, "linear": linear},
    predict=predict,
    predict_draws=predict_draws,
    predict_moments=predict_moments,
    target_law=target_law,
    prepare=prepare,
    constants=constants,
    settings=SETTINGS,
    dims={
        **dict.fromkeys(SITES, ("target",)),
        "new_targets": ("target", "obs"),
        "decibels": ("target", "class"),
        "line": ("target", "basis"),
        "targets": ("graph", "target"),
        "mapped": ("graph", "feature"),
        "fitted_row": ("graph",),
        "label_count": ("graph",),
        "center": ("feature",),
        "scale": ("feature",),
        "loadings": ("measurement", "target"),
        "offset": ("measurement",),
        "target_weights": ("target",),
        "target_map": ("measurement", "target"),
        "target_shift": ("target",),
        "projection": ("measurement", "labels"),
        "label_frequency": ("labels",),
        "label_coefficients": ("target", "labels"),
    },
    functionals=functionals,
    no_simulate="its law is of real numbers, labels are 0 and 1",
    tiny={"num_obs": 16, "num_features": 2, "num_labels": 5, "drop_incomplete": True} | TARGETS_KEPT,
    default={"num_obs": 200, "num_features": 5, "num_labels": 20},
    check_settings={"kernel": "cosine", "num_measurements": 4, "projection_seed": 1},
    paper="Shi, Yu: Fast direct search in an optimally compressed continuous target space for efficient "
    "multi-label active learning, ICML 2019",
    equations="(11) to (19), corrected",
)
