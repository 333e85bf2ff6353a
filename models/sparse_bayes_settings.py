"""Settings of sparse_bayes, what they may be, and the kernel parameters that they leave open."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from labelzoo.arguments import real, whole_number
from labelzoo.models.gp_kernel import median_squared_distance, squared_distances
from labelzoo.models.sparse_bayes_kernel import GraphKernel, kernel_factor
from labelzoo.models.spec import MAX_DENSE_BYTES, refuse_missing_features

Array = Any

SETTINGS: dict[str, Any] = {
    "mode": "inductive",
    "kernel": "auto",
    "num_measurements": None,
    "projection_seed": 0,
    "precision_shape": 0.5,
    "precision_rate": 0.5,
    "hyperparameters": "evidence",
    "noise": None,
    "scale": None,
    "length_factor": None,
    "noise_share": 0.5,
    "new_rows": "gibbs",
    "sweeps": 20,
}
"""Defaults.

mode : inductive (rows without any observed label stay out of the graph) or transductive (all rows in it).
kernel : linear, rbf, cosine, auto, a registered name, package.module:function or path/file.py:function.
num_measurements : rows of the projection; None: half the labels, rounded up.
projection_seed : of the projection, iid N(0, 1 / num_measurements), drawn once and kept with the posterior.
precision_shape, precision_rate : a0 and b0 of the labels' precisions. The published 1e-6 suits ml_oss and
    bml_cs; NUTS and SVI need at least .5.
hyperparameters : evidence (of the rows that have all labels; fewer than `FEWEST_ROWS` of them: fixed), fixed
    (noise = scale = half the mean square of a compressed label, length2 = median squared distance).
noise, scale, length_factor : a number takes the place of what would be chosen: sigma2 + chi2, the factor of
    the kernel, the squared length over the median squared distance.
noise_share : sigma2 / (sigma2 + chi2); read only by bml_cs and where Z and W are explicit.
new_rows : how new rows are predicted, one at a time: gibbs (a chain beside the draws), ml_oss or bml_cs (the
    fixed point of each new row at the mean of the training labels).
sweeps : for new rows: of the fixed point, or before the first draw of the chain.
"""

MODES = ("inductive", "transductive")
RULES = ("evidence", "fixed")
NEW_ROWS = ("gibbs", "ml_oss", "bml_cs")
MAX_ROWS = 5000
"""Most rows of a graph: its Cholesky factor costs rows^3 / 3 and is kept with the posterior."""
FEWEST_ROWS = 5
"""Rows with all labels that the evidence needs."""


LEAST, MOST = 1e-100, 1e100
"""Range of positive settings: their products must be numbers as well."""
MOST_MEASUREMENTS = 4
"""Measurements a label: with as many as labels nothing is lost, more only cost time."""


def check_settings(settings: Mapping[str, Any]) -> None:
    """Refuse settings out of range.

    Raises
    ------
    ValueError
        That names the setting.
    """
    for name, allowed in (("mode", MODES), ("hyperparameters", RULES), ("new_rows", NEW_ROWS)):
        if settings[name] not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {settings[name]!r}")
    for name in ("precision_shape", "precision_rate"):
        if not _positive(settings[name]):
            raise ValueError(f"{name} must be a number between 1e-100 and 1e100, got {settings[name]!r}")
    for name in ("noise", "scale", "length_factor"):
        if settings[name] is not None and not _positive(settings[name]):
            raise ValueError(
                f"{name} must be a number between 1e-100 and 1e100 or None, got {settings[name]!r}"
            )
    if not (_positive(settings["noise_share"]) and settings["noise_share"] < 1):
        raise ValueError(f"noise_share must lie between 0 and 1, got {settings['noise_share']!r}")
    if settings["num_measurements"] is not None:
        whole_number("num_measurements", settings["num_measurements"], 1)
    whole_number("projection_seed", settings["projection_seed"], 0)
    whole_number("sweeps", settings["sweeps"], 1)


def _positive(value: Any) -> bool:
    return LEAST <= real(value) <= MOST


def graph_rows(data: Any, settings: Mapping[str, Any]) -> Array:
    """Return the rows of the data that enter the graph: (obs,).

    Raises
    ------
    ValueError
        If nothing is observed, features are missing, or the graph would be too large.
    """
    refuse_missing_features(data, "sparse_bayes")
    labelled = np.flatnonzero(~data.unlabelled_rows)
    if not len(labelled):
        raise ValueError(
            "data: no label is observed: the posterior is symmetric about 0, so every label of every row "
            "would be predicted as 0"
        )
    rows = labelled if settings["mode"] == "inductive" else np.arange(data.num_rows)
    if len(rows) > MAX_ROWS:
        raise ValueError(
            f"data: sparse_bayes takes at most {MAX_ROWS} rows in its graph, got {len(rows)}: pass a subset "
            "of rows" + (", or mode='inductive'" if len(labelled) <= MAX_ROWS else "")
        )
    size = 8 * len(rows) * max(data.num_features, data.num_labels)
    if size > MAX_DENSE_BYTES:
        raise ValueError(
            f"data: sparse_bayes keeps its rows as dense tables, here {len(rows)} rows x {data.num_features} "
            f"features and {data.num_labels} labels, above the cap of {MAX_DENSE_BYTES / 2**30:.0f} GiB"
        )
    return rows


def draw_projection(num_labels: int, settings: Mapping[str, Any]) -> Array:
    """Return Phi (measurement, labels), iid N(0, 1 / measurement)."""
    k = settings["num_measurements"] or -(-num_labels // 2)
    if k > max(MOST_MEASUREMENTS * num_labels, 16):
        raise ValueError(
            f"num_measurements={k} for {num_labels} labels: with as many as labels nothing is lost, more "
            f"only cost time; take at most {max(MOST_MEASUREMENTS * num_labels, 16)}"
        )
    if 8 * k * num_labels > MAX_DENSE_BYTES:
        raise ValueError(
            f"num_measurements: a projection of {num_labels} labels to {k} measurements takes "
            f"{8 * k * num_labels / 2**30:.1f} GiB, above the cap of {MAX_DENSE_BYTES / 2**30:.0f} GiB"
        )
    rng = np.random.default_rng(settings["projection_seed"])
    return rng.standard_normal((k, num_labels)) / np.sqrt(k)


class Chosen(NamedTuple):
    """Kernel with its length, noise, scale, and the rule that chose them ("evidence" or "fixed")."""

    kernel: GraphKernel
    noise: float
    scale: float
    rule: str


def choose(
    kernel: GraphKernel,
    mapped: Array,
    Y: Array,
    observed: Array,
    projection: Array,
    settings: Mapping[str, Any],
) -> Chosen:
    """Choose noise, scale and length from the graph's rows.

    Parameters
    ----------
    kernel : GraphKernel
    mapped : (obs, feature)
    Y, observed : (obs, labels)
    projection : (measurement, labels)
    settings : mapping

    Raises
    ------
    ValueError
        If a user's kernel gives what is no kernel.
    """
    from labelzoo.inference.sparse_bayes.evidence import evidence_rows

    given = settings["length_factor"]
    median = median_squared_distance(mapped) if kernel.kind == "rbf" else 1.0
    if kernel.kind == "rbf":
        kernel = kernel._replace(length2=median * (1.0 if given is None else float(given)))
    if kernel.kind == "callable":  # refused here, where the reason can be said
        K = kernel.of_mapped(mapped, mapped)
        kernel_factor(K, kernel.name)
        alone = kernel.of_mapped(mapped[:1], mapped[-1:])[0, 0]
        if not np.isclose(alone, K[0, -1], rtol=1e-6, atol=1e-9 * max(float(np.abs(K).max()), 1e-300)):
            raise ValueError(
                f"kernel {kernel.name!r} depends on which rows it is given together: k of the first and the "
                f"last row is {K[0, -1]:.4g} among all rows and {alone:.4g} alone"
            )
    complete = np.flatnonzero(observed.all(axis=1))
    if settings["hyperparameters"] == "fixed" or len(complete) < FEWEST_ROWS:
        kernel, noise, scale, rule = (*_fixed(kernel, mapped, Y, observed, len(projection)), "fixed")
    else:
        rows = complete[evidence_rows(len(complete))]
        found = _evidence(kernel, mapped, rows, Y[rows] @ projection.T, settings)
        kernel, noise, scale, rule = (*found, "evidence")
    noise = noise if settings["noise"] is None else float(settings["noise"])
    scale = scale if settings["scale"] is None else float(settings["scale"])
    return Chosen(kernel, noise, scale, rule)


def _fixed(
    kernel: GraphKernel, mapped: Array, Y: Array, observed: Array, measurements: int
) -> tuple[GraphKernel, float, float]:
    """Return half the mean square of a compressed label, |y|^2 / measurement on average over Phi, twice."""
    share = (Y * observed).sum() / observed.sum()
    half = 0.5 * max(float(share) * Y.shape[1] / measurements, 1e-6)
    diagonal = float(kernel.diagonal(mapped).mean())
    return kernel, half, half / diagonal if diagonal > 0 else half


def _evidence(
    kernel: GraphKernel, mapped: Array, rows: Array, T: Array, settings: Mapping[str, Any]
) -> tuple[GraphKernel, float, float]:
    from labelzoo.inference.sparse_bayes.evidence import fit_hyperparameters

    noise = settings["noise"]
    if kernel.kind == "rbf":
        held = None if settings["length_factor"] is None else kernel.length2
        distances2 = squared_distances(mapped[rows], mapped[rows])
        found = fit_hyperparameters(T, distances2=distances2, noise=noise, length2=held)
        return kernel._replace(length2=float(found.length2 or 1.0)), found.noise, found.scale
    K = kernel.of_mapped(mapped, mapped)[np.ix_(rows, rows)]  # whole, so that errors count the graph's rows
    if not np.diagonal(K).mean() > 0:
        return kernel, max(float((T**2).mean()), 1e-6), 1.0
    found = fit_hyperparameters(T, K=K, noise=noise)
    return kernel, found.noise, found.scale
