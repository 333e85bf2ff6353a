"""The card of sparse_bayes: from data to a graph, what prediction needs, and what verdicts are reached on."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from labelzoo.data import LabelData
from labelzoo.models.sparse_bayes import augmented, filled, log_regression, precisions, summed
from labelzoo.models.sparse_bayes_kernel import KINDS, GraphKernel, graph_kernel, kernel_factor
from labelzoo.models.sparse_bayes_law import label_law
from labelzoo.models.sparse_bayes_predict import kernel_of, predict, predict_draws, predict_moments
from labelzoo.models.sparse_bayes_settings import (
    SETTINGS,
    Chosen,
    check_settings,
    choose,
    draw_projection,
    graph_rows,
)
from labelzoo.models.spec import MAX_DENSE_BYTES, ModelSpec

Array = Any

MAX_FUNCTIONALS = 200
"""Most cells that `functionals` returns."""
HIDDEN = 0.3
"""Share of the labels of complete data that a comparison hides."""


def prepare(
    data: Any, settings: Mapping[str, Any], constants: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the arguments of every view for `data` (LabelData).

    With `constants`, kernel, noise, scale and projection are those of the training rows, and the graph is
    that of `data` alone.

    Returns
    -------
    dict
        ``projection``, ``Y`` (0 at unobserved labels), ``observed``, ``cell_row``, ``cell_label``,
        ``cholesky`` of C, ``factor`` F with F F' = C - noise I, ``sigma2``, ``chi2``, the prior, and what
        prediction needs. ``graph_row`` (obs,) is the row of the data that a row of the graph is.

    Raises
    ------
    ValueError
        If a setting is out of range, features are missing, no label is observed, the graph is too large, or a
        kernel gives no positive semidefinite matrix of finite numbers.
    """
    check_settings(settings)
    rows = graph_rows(data, settings)
    X = data.X[rows]
    observed = data.observed_mask(rows=rows, max_bytes=MAX_DENSE_BYTES)
    Y = np.where(observed, data.Y[rows].toarray().astype(float), 0.0)
    if constants is None:
        kernel, projection = graph_kernel(X, settings["kernel"]), draw_projection(Y.shape[1], settings)
        mapped = kernel.mapped(X)
        chosen = choose(kernel, mapped, Y, observed, projection, settings)
    else:
        kernel, projection = kernel_of({**settings, **constants}), np.asarray(constants["projection"])
        mapped = kernel.mapped(X)
        chosen = Chosen(kernel, float(constants["fitted_noise"]), float(constants["fitted_scale"]), "given")
    return _graph(rows, mapped, Y, observed, projection, chosen, settings)


def _graph(
    rows: Array,
    mapped: Array,
    Y: Array,
    observed: Array,
    projection: Array,
    chosen: Chosen,
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    kernel: GraphKernel = chosen.kernel
    factor = kernel_factor(chosen.scale * kernel.of_mapped(mapped, mapped), kernel.name)
    C = factor @ factor.T
    C[np.diag_indices_from(C)] += chosen.noise
    cell_row, cell_label = np.nonzero(~observed)
    return {
        "projection": projection,
        "Y": Y,
        "observed": observed,
        "cell_row": cell_row,
        "cell_label": cell_label,
        "cholesky": np.linalg.cholesky(C),
        "factor": factor,
        "sigma2": settings["noise_share"] * chosen.noise,
        "chi2": (1.0 - settings["noise_share"]) * chosen.noise,
        "precision_shape": float(settings["precision_shape"]),
        "precision_rate": float(settings["precision_rate"]),
        "fitted_noise": float(chosen.noise),
        "fitted_scale": float(chosen.scale),
        "by_evidence": np.int8(chosen.rule == "evidence"),
        "graph_row": rows,
        "mapped": mapped,
        "kernel_kind": np.int8(KINDS.index(kernel.kind)),
        "center": kernel.center,
        "feature_scale": kernel.feature_scale,
        "length2": float(kernel.length2),
    }


CONSTANTS = (
    "projection",
    "Y",
    "observed",
    "cell_row",
    "cell_label",
    "cholesky",
    "fitted_noise",
    "fitted_scale",
    "by_evidence",
    "graph_row",
    "mapped",
    "kernel_kind",
    "center",
    "feature_scale",
    "length2",
)


def constants(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what prediction needs besides draws and settings: the graph, its kernel and the projection."""
    return {name: np.asarray(inputs[name]) for name in CONSTANTS}


def functionals(draw: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Array]:
    """Return what verdicts are reached on; nothing here can be relabelled or rotated.

    ``y_unobserved``, at most 200 cells evenly spaced; ``label_mean`` (labels,), the mean over a label's
    cells (0 where it has none); ``log_regression``, -1/2 tr(Phi Y' C^-1 Y Phi'); ``log_prior``, the log
    density of the cells' Student t law, nats.
    """
    y, cells = draw["y_unobserved"], inputs["cell_label"].shape[0]
    evenly = np.linspace(0, max(cells - 1, 0), min(MAX_FUNCTIONALS, cells)).round()
    labels = inputs["projection"].shape[1]
    counts = np.bincount(np.asarray(inputs["cell_label"]), minlength=labels)
    sums = jnp.zeros(labels).at[inputs["cell_label"]].add(y)
    T = filled(inputs["Y"], inputs["cell_row"], inputs["cell_label"], y) @ inputs["projection"].T
    shape, rate = inputs["precision_shape"], inputs["precision_rate"]
    law = dist.StudentT(2.0 * shape, 0.0, jnp.sqrt(rate / shape))
    return {
        "y_unobserved": y[np.unique(evenly.astype(int))],
        "label_mean": sums / np.maximum(counts, 1),
        "log_regression": log_regression(T, inputs["cholesky"]),
        "log_prior": law.log_prob(y).sum(),
    }


def hide(data: Any, seed: int) -> LabelData:
    """Return complete data with `HIDDEN` of the cells unobserved at random; other data as they are.

    The posterior is over unobserved labels: of complete rows it has none.
    """
    if data.num_missing_cells or data.num_rows * data.num_labels < 2:
        return data
    rng = np.random.default_rng([seed, 7])
    hidden = rng.random((data.num_rows, data.num_labels)) < HIDDEN
    hidden.flat[rng.choice(hidden.size, 2, replace=False)] = [True, False]
    Y = np.where(hidden, np.nan, data.Y.toarray())
    return LabelData(
        data.X,
        Y,
        feature_names=data.feature_names,
        label_names=data.label_names,
        example_names=data.example_names,
        allow_missing_features=data.allow_missing_features,
    )


spec = ModelSpec(
    name="sparse_bayes",
    views={"summed": summed, "precisions": precisions, "augmented": augmented},
    predict=predict,
    predict_draws=predict_draws,
    predict_moments=predict_moments,
    label_law=label_law,
    prepare=prepare,
    constants=constants,
    settings=SETTINGS,
    dims={
        "y_unobserved": ("cell",),
        "precision": ("cell",),
        "cell_row": ("cell",),
        "cell_label": ("cell",),
        "projection": ("measurement", "labels"),
        "center": ("feature",),
        "feature_scale": ("feature",),
        "weights": ("component", "measurement"),
        "compressed": ("obs", "measurement"),
    },
    functionals=functionals,
    for_comparison=hide,
    no_simulate="it is a product of experts over real-valued labels, labels are 0 and 1",
    tiny={"num_obs": 6, "num_features": 2, "num_labels": 3},
    default={"num_obs": 200, "num_features": 5, "num_labels": 10},
    small_settings={"precision_shape": 2.0},
    check_settings={"kernel": "cosine", "hyperparameters": "fixed", "mode": "transductive"},
    paper="Vasisht, Damianou, Varma, Kapoor: Active learning for sparse Bayesian multilabel classification, "
    "KDD 2014; Kapoor, Viswanadham, Jain: Multilabel classification using Bayesian compressed sensing, NIPS "
    "2012",
    equations="KDD 2014 (1) to (4), section 4; NIPS 2012 section 3",
)
