"""The card of gp_bernoulli_mixture: from data to its inputs, what prediction needs, what verdicts rest on."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse
from scipy.special import log_expit, softmax

from labelzoo.models.gp_bernoulli_mixture import VIEWS, gate_values, label_scores, log_gate
from labelzoo.models.gp_bernoulli_mixture_basis import (
    Basis,
    full_basis,
    inducing_basis,
    plain_map,
    with_length,
)
from labelzoo.models.gp_bernoulli_mixture_law import mixture_law
from labelzoo.models.gp_bernoulli_mixture_predict import (
    basis_rows,
    draw_labels,
    log_score,
    predict,
    predict_draws,
    predict_moments,
)
from labelzoo.models.gp_bernoulli_mixture_settings import (
    SETTINGS,
    check_settings,
    labelled_rows,
    prior_tables,
    refuse_large_tables,
)
from labelzoo.models.sparse_bayes_kernel import KINDS, GraphKernel, graph_kernel
from labelzoo.models.spec import MAX_DENSE_BYTES, ModelSpec, refuse_missing_features

Array = Any
Inputs = Mapping[str, Any]

MAX_FUNCTIONALS = 200
"""Most pairs and most cells that `functionals` returns."""
PAIR_ROWS = 21
"""Rows whose pairs give `MAX_FUNCTIONALS` of co-clustering."""
LEARNING_ROWS = 1000
"""Rows, evenly spaced, from which amplitude and length are learned where there are inducing points."""


def prepare(
    data: Any, settings: Mapping[str, Any], constants: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the arguments of every view for `data` (LabelData).

    Rows without any observed label carry no information and are left out. With `constants`, all rows of
    `data` are placed in the basis of the training rows, ``residual`` what it does not hold of them.

    Returns
    -------
    dict
        ``factor`` (obs, basis), ``Y`` (0 at unobserved labels), ``observed``, ``gate_mean``,
        ``prior_positive`` and ``prior_negative`` (component, labels), ``residual`` (obs,) or None, and what
        prediction needs. With the setting num_inducing, ``Y`` and ``missing`` are csr arrays of positives
        and of unobserved cells, and there is no ``observed``.

    Raises
    ------
    ValueError
        If a setting is out of range, features are missing, no label is observed, tables would be too large,
        or a kernel gives no positive semidefinite matrix of finite numbers.
    """
    check_settings(settings)
    if constants is not None:
        return _new_rows(data, settings, constants)
    rows = labelled_rows(data, settings)
    if len(rows) < data.num_rows:
        data = data.subset(rows=rows)
    kernel = graph_kernel(data.X, settings["kernel"])
    labels = _csr_labels(data) if settings["num_inducing"] is not None else _dense_labels(data)
    basis = _basis(kernel, data, labels, settings)
    positives = np.asarray(labels["Y"].sum(axis=0), float).ravel()
    a0, b0 = prior_tables(positives, _observed_counts(labels), settings)
    return {
        **labels,
        "factor": basis.factor,
        "residual": basis.residual,
        "gate_mean": float(settings["gate_mean"]),
        "prior_positive": a0,
        "prior_negative": b0,
        "prior_strength": float(settings["prior_strength"]),
        "rho": float(settings["rho"]),
        "whitener": basis.whitener,
        "mapped": basis.mapped,
        "kernel_kind": np.int8(KINDS.index(kernel.kind)),
        "center": kernel.center,
        "feature_scale": kernel.feature_scale,
        "length2": float(basis.kernel.length2),
        "fitted_amplitude": float(basis.amplitude),
        "fitted_row": rows,
    }


def _dense_labels(data: Any) -> dict[str, Any]:
    observed = data.observed_mask(max_bytes=MAX_DENSE_BYTES)
    return {"Y": np.where(observed, data.Y.toarray().astype(float), 0.0), "observed": observed}


def _csr_labels(data: Any) -> dict[str, Any]:
    row, label = data.missing_cells(max_cells=10**9)
    shape = (data.num_rows, data.num_labels)
    missing = sparse.csr_array((np.ones(len(row)), (row, label)), shape=shape)
    return {"Y": sparse.csr_array(data.Y, dtype=float), "missing": missing}


def _observed_counts(labels: Mapping[str, Any]) -> Array:
    if "observed" in labels:
        return labels["observed"].sum(axis=0)
    return labels["Y"].shape[0] - np.asarray(labels["missing"].sum(axis=0)).ravel()


def _basis(kernel: GraphKernel, data: Any, labels: Mapping[str, Any], settings: Mapping[str, Any]) -> Basis:
    """Choose amplitude and length, then the basis."""
    count, amplitude = settings["num_inducing"], float(settings["amplitude"])
    if count is None:
        mapped = kernel.mapped(data.X)
        kernel = with_length(kernel, mapped, settings)
        if settings["hyperparameters"] == "bound":
            kernel, amplitude = _learned(kernel, mapped, labels["Y"], labels["observed"], settings)
        return full_basis(kernel, amplitude, mapped)
    kernel = with_length(kernel, plain_map(kernel, data.X)[1], settings)
    if settings["hyperparameters"] == "bound":
        rows = np.linspace(0, data.num_rows - 1, min(data.num_rows, LEARNING_ROWS)).round().astype(int)
        some = _dense_labels(data.subset(rows=rows))
        kernel, amplitude = _learned(
            kernel, kernel.mapped(data.X[rows]), some["Y"], some["observed"], settings
        )
    return inducing_basis(kernel, amplitude, data.X, int(count))


def _learned(
    kernel: GraphKernel, mapped: Array, Y: Array, observed: Array, settings: Mapping[str, Any]
) -> tuple[GraphKernel, float]:
    from labelzoo.inference.gp_bernoulli_mixture.kernel_learning import learn_kernel

    found = learn_kernel(kernel, mapped, Y, observed, settings)
    return kernel._replace(length2=float(found.length2)), float(found.amplitude)


def _new_rows(data: Any, settings: Mapping[str, Any], constants: Mapping[str, Any]) -> dict[str, Any]:
    refuse_missing_features(data, "gp_bernoulli_mixture")
    refuse_large_tables(data, data.num_rows, {**settings, "num_inducing": None})
    kept = {**settings, **constants}
    factor, residual = basis_rows(kept, data.X)
    same = {name: kept[name] for name in (*CONSTANTS, "gate_mean", "prior_strength", "rho")}
    a0, b0 = np.asarray(kept["prior_positive"]), np.asarray(kept["prior_negative"])
    own = {"factor": factor, "residual": residual, "prior_positive": a0, "prior_negative": b0}
    return {**same, **_dense_labels(data), **own}


CONSTANTS = (
    "whitener",
    "mapped",
    "kernel_kind",
    "center",
    "feature_scale",
    "length2",
    "fitted_amplitude",
    "fitted_row",
    "prior_positive",
    "prior_negative",
)


def constants(inputs: Inputs) -> dict[str, Any]:
    """Return what prediction needs besides draws and settings: the basis, its kernel and the prior."""
    return {name: np.asarray(inputs[name]) for name in CONSTANTS}


def scores_of(probs: Array, inputs: Inputs) -> Array:
    """Return log p(observed labels of row n | component k): (obs, component), dense or csr labels."""
    if not sparse.issparse(inputs["Y"]):
        return label_scores(probs, inputs["Y"], inputs["observed"])
    kind = jnp.finfo(jnp.result_type(probs))
    probs = jnp.clip(probs, kind.tiny, 1.0 - kind.epsneg)
    on, off = jnp.log(probs), jnp.log1p(-probs)
    positive, missing = inputs["Y"].tocoo(), inputs["missing"].tocoo()
    rows = inputs["Y"].shape[0]
    gain = jax.ops.segment_sum((on - off).T[positive.col], positive.row, num_segments=rows)
    loss = jax.ops.segment_sum(off.T[missing.col], missing.row, num_segments=rows)
    return gain - loss + off.sum(axis=1)


def _spread_cells(rows: int, labels: int) -> tuple[Array, Array]:
    total = rows * labels
    flat = np.unique(np.linspace(0, total - 1, min(MAX_FUNCTIONALS, total)).round().astype(np.int64))
    flat = np.unique((flat * 7919) % total)  # a stride prime to the number of labels walks over all columns
    return flat // labels, flat % labels


def _pairs(rows: int) -> tuple[Array, Array]:
    some = np.unique(np.linspace(0, rows - 1, min(rows, PAIR_ROWS)).round().astype(int))
    first, second = np.triu_indices(len(some), 1)
    return some[first[:MAX_FUNCTIONALS]], some[second[:MAX_FUNCTIONALS]]


def functionals(draw: Mapping[str, Any], inputs: Inputs) -> dict[str, Array]:
    """Return what verdicts are reached on; nothing here changes when components are relabelled.

    ``label_mean``, sum_k pi_nk theta_kl at <= 200 cells; ``label_rate`` (labels,), its mean over rows;
    ``co_clustering`` of <= 200 pairs, the probability given gates and probabilities that both rows have one
    component; ``gate_square``, ``gate_sum`` and ``gate_sum_square``, means over rows of sum_k pi_nk^2,
    sum_k f_nk and sum_k f_nk^2; ``component_share`` (component,), expected shares of the rows, sorted. With
    inducing points f is its mean given the basis, but f^2 has the variance that is left.
    """
    probs = draw["component_probs"]
    f = gate_values(draw["white"], inputs["factor"], inputs["gate_mean"])
    log_pi = log_gate(f)
    pi = jnp.exp(log_pi)
    own = jax.nn.softmax(log_pi + scores_of(probs, inputs), axis=1)
    row, label = _spread_cells(f.shape[0], probs.shape[1])
    first, second = _pairs(f.shape[0])
    rest = 0.0 if inputs.get("residual") is None else jnp.mean(inputs["residual"]) * f.shape[1]
    pairs = {"co_clustering": (own[first] * own[second]).sum(axis=1)} if len(first) else {}
    return {
        "label_mean": (pi[row] * probs[:, label].T).sum(axis=1),
        "label_rate": pi.mean(axis=0) @ probs,
        **pairs,
        "gate_square": (pi**2).sum(axis=1).mean(),
        "gate_sum": f.sum(axis=1).mean(),
        "gate_sum_square": (f**2).sum(axis=1).mean() + rest,
        "component_share": jnp.sort(own.mean(axis=0)),
    }


def simulate(key: Array, sizes: Mapping[str, Any], **overrides: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """Draw features, gates, components and labels from the prior.

    Parameters
    ----------
    key : jax.random.key
    sizes : mapping
        ``num_obs``, ``num_features``, ``num_labels``, and settings (``num_components``, ``prior_mean``): the
        default prior reads labels.
    **overrides
        Settings of the program.

    Returns
    -------
    data : LabelData
        Every label observed; features standard normal.
    sites : dict
        ``white`` (component, basis), ``component_probs`` (component, labels), ``assignment`` (obs,).

    Raises
    ------
    ValueError
        If the prior or the kernel would be chosen by the labels that are to be drawn.
    """
    from labelzoo.data import LabelData

    n, num_labels = sizes["num_obs"], sizes["num_labels"]
    named = {name: value for name, value in sizes.items() if name in SETTINGS}
    settings = spec.resolve({**named, **overrides})
    for name, value in (("prior_mean", "frequency"), ("hyperparameters", "bound")):
        if settings[name] == value:
            raise ValueError(f"{name}={value!r} reads the labels: nothing can be simulated from such a prior")
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
    raw = rng.standard_normal((n, sizes["num_features"]))
    empty = LabelData(raw, sparse.csr_array((n, num_labels), dtype=np.int8))
    inputs = prepare(empty, settings)
    white = rng.standard_normal((int(settings["num_components"]), inputs["factor"].shape[1]))
    probs = rng.beta(inputs["prior_positive"], inputs["prior_negative"])
    f = inputs["gate_mean"] + inputs["factor"] @ white.T
    pi = softmax(log_expit(f), axis=1)
    z = (rng.random(n)[:, None] > np.cumsum(pi, axis=1)[:, :-1]).sum(axis=1)
    Y = rng.random((n, num_labels)) < probs[z]
    return LabelData(raw, Y.astype(np.int8)), {"white": white, "component_probs": probs, "assignment": z}


def refuse(data: Any, settings: Mapping[str, Any]) -> None:
    """Refuse settings named together of which one is not read.

    Raises
    ------
    ValueError
        Where length_factor is given for a kernel without a length.
    """
    kernel = settings.get("kernel", SETTINGS["kernel"])
    if settings.get("length_factor") is None or kernel == "rbf":
        return
    found = graph_kernel(data.X, kernel)
    if found.kind != "rbf":
        raise ValueError(
            f"length_factor is not read by the kernel {found.name!r} ({found.kind} on these features): leave "
            "it out, or take kernel='rbf'"
        )


spec = ModelSpec(
    name="gp_bernoulli_mixture",
    views=VIEWS,
    predict=predict,
    predict_draws=predict_draws,
    predict_moments=predict_moments,
    mixture_law=mixture_law,
    prepare=prepare,
    constants=constants,
    settings=SETTINGS,
    dims={
        "white": ("component", "basis"),
        "component_probs": ("component", "labels"),
        "component_size": ("component",),
        "prior_positive": ("component", "labels"),
        "prior_negative": ("component", "labels"),
        "whitener": ("inducing", "basis"),
        "mapped": ("inducing", "feature"),
        "fitted_row": ("graph",),
        "center": ("feature",),
        "feature_scale": ("feature",),
        "assignment": ("obs",),
    },
    functionals=functionals,
    log_score=log_score,
    simulate=simulate,
    draw_labels=draw_labels,
    tiny={"num_obs": 6, "num_features": 2, "num_labels": 3, "num_components": 2, "prior_mean": 0.2},
    default={
        "num_obs": 200,
        "num_features": 5,
        "num_labels": 10,
        "num_components": 4,
        "prior_mean": 0.2,
    },  # fmt: skip
    small_settings={"num_components": 2, "gate_mean": -1.0, "amplitude": 2.0, "prior_mean": 0.3},
    check_settings={"kernel": "cosine", "gate_mean": 0.5, "prior_mean": 0.4, "amplitude": 1.0},
    refuse=refuse,
    paper="Shi, Yu, Yu: A Gaussian process-Bayesian Bernoulli mixture model for multi-label active learning, "
    "NeurIPS 2021",
    equations="(1) to (13), corrected",
)
