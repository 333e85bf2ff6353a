"""The card of kernel_neighbors: from data to prior kernel and classes, what prediction needs, functionals."""

import warnings
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from labelzoo.arguments import real, size_words
from labelzoo.models.bpca_card import complete_rows
from labelzoo.models.gp_kernel import KINDS, GPKernel, feature_map, median_squared_distance
from labelzoo.models.kernel_neighbors import class_probs, constrained, of_problems, summed, wishart
from labelzoo.models.kernel_neighbors_predict import (
    class_similarity,
    kernel_of,
    log_score,
    mapped_rows,
    predict,
)
from labelzoo.models.spec import MAX_DENSE_BYTES, ModelSpec, RepeatedWarning, refuse_missing_features

Array = Any
Inputs = Mapping[str, Any]

SETTINGS: dict[str, Any] = {
    "form": "auto",
    "kernel": "auto",
    "length_factor": 0.3,
    "alpha": None,
    "beta": None,
    "gamma": 1.0,
    "positive_total": True,
    "jitter": None,
    "drop_incomplete": False,
}
"""Defaults.

form : classes, one problem that tells the rows' classes apart (each row has exactly one label); labels, for
    each label a problem of its own, on against off; auto: classes where every row has exactly one label, and
    a warning where nearly every row has.
kernel : auto, rbf or cosine, see `labelzoo.models.gp_kernel`.
length_factor : squared length of the rbf kernel over the median squared distance of the training rows.
alpha, beta : a row's own class has at least the share alpha of its total similarity, any other at most beta;
    None: 1.25 / C and 0.9 / C, C the number of classes of the problem.
gamma : price of a unit of violation, in units of the mean diagonal of K0; None: hard constraints, which rows
    of different classes that the kernel cannot tell apart make impossible, and which nuts and svi cannot run.
positive_total : whether no training row's total similarity may be negative.
jitter : share of the mean diagonal added to K0; None: the least that makes it regular.
drop_incomplete : what to do with rows of which some labels are observed and others not: False refuses them,
    True leaves them out like rows without any observed label.
"""

FORMS = ("auto", "classes", "labels")
NEARLY = 0.9
"""Share of rows with exactly one label from which the others look like mistakes."""
SHORTEST = 1e-6
"""Least length_factor; its inverse is the largest."""
MAX_FUNCTIONALS = 60
"""Most similarities, and most shares, that `functionals` returns."""


def prepare(
    data: Any, settings: Mapping[str, Any], constants: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the arguments of every view for `data` (LabelData).

    Rows without any observed label are left out. With `constants` the rows of `data` are new ones, to be
    scored under the classes and the kernel of the training rows.

    Returns
    -------
    dict
        ``K0`` (graph, graph), its jitter added; ``codes`` (problem, graph) and ``num_classes``; ``alpha``,
        ``beta``, ``price`` and ``positive_total``; and `CONSTANTS`. With `constants`, these and ``X_new``
        (new, feature), ``Y_new`` (new, labels).

    Raises
    ------
    ValueError
        If a setting is out of range, a feature is missing, rows are partly observed, no row is complete, a
        row, new ones included, has no label or several where rows have one class, K0 is singular beyond
        repair, the hard constraints exclude one another, or a table would pass the memory cap.

    Warns
    -----
    UserWarning
        Where the prior gives rows a total similarity that is not positive. `RepeatedWarning` where auto
        takes labels though at least `NEARLY` of the rows have exactly one of more than two.
    """
    check_settings(settings)
    refuse_missing_features(data, "kernel_neighbors")
    rows = complete_rows(data, drop=bool(settings["drop_incomplete"]), model="kernel_neighbors")
    _refuse_large(len(rows), data.num_features)
    if constants is not None:
        X = data.X[rows]
        kept = {name: np.asarray(constants[name]) for name in CONSTANTS}
        dense = X.toarray() if not isinstance(X, np.ndarray) else X
        Y = data.Y[rows].toarray().astype(float)
        if bool(kept["one_class"]):
            _refuse_other_than_one(
                data, rows, Y.sum(axis=1).astype(int), "the training rows have one class each"
            )
        return {**settings, **kept, "X_new": np.asarray(dense, float), "Y_new": Y}
    kernel, mapped = _kernel(data.X[rows], settings)
    classes = read_labels(data, rows, str(settings["form"]))
    return {
        **_constraints(kernel.of_mapped(mapped, mapped), classes["codes"], data, rows, settings),
        **classes,
        "mapped": mapped,
        "is_cosine": np.int8(kernel.is_cosine),
        "center": kernel.center,
        "scale": kernel.scale,
        "length2": np.asarray(kernel.length2),
        "fitted_row": rows,
    }


def _kernel(X: Any, settings: Mapping[str, Any]) -> tuple[GPKernel, Array]:
    """Return the prior kernel of the training rows and their mapped features."""
    kernel = feature_map(X, settings["kernel"])
    mapped = mapped_rows(kernel, X)
    if kernel.is_cosine:
        empty = np.flatnonzero(~mapped.any(axis=1))
        if len(empty):
            raise ValueError(
                f"X: labelled row {empty[0]} has no feature that the cosine kernel sees: leave it out, or "
                "set kernel='rbf'"
            )
        return kernel, mapped
    length2 = real(settings["length_factor"]) * median_squared_distance(mapped)
    return kernel._replace(length2=length2), mapped


def read_labels(data: Any, rows: Array, form: str) -> dict[str, Any]:
    """Return what the labels of the training rows are, as classes of problems.

    Returns
    -------
    dict
        ``codes`` int (problem, graph); ``num_classes`` of each problem; ``class_label`` int (class,), the
        label of each problem's classes; ``one_class``; ``constant_prob`` (labels,), what is predicted of
        labels without a problem: 0 or 1, as all training rows have it.
    """
    Y = data.Y[rows].toarray().astype(bool)
    counts = Y.sum(axis=1)
    if form == "classes":
        _refuse_other_than_one(data, rows, counts, "form='classes'")
    constant = Y.all(axis=0).astype(float)
    if form == "classes" or (form == "auto" and (counts == 1).all() and data.num_labels > 1):
        seen, codes = np.unique(Y.argmax(axis=1), return_inverse=True)
        own = {"codes": codes.reshape(1, -1), "num_classes": len(seen), "class_label": seen}
        return {**own, "one_class": np.int8(1), "constant_prob": np.zeros(data.num_labels)}
    if form == "auto":
        _warn_of_few_others(data, rows, counts)
    mixed = np.flatnonzero(Y.any(axis=0) & ~Y.all(axis=0))
    own = {"codes": Y[:, mixed].T.astype(int), "num_classes": 2, "class_label": np.repeat(mixed, 2)}
    return {**own, "one_class": np.int8(0), "constant_prob": constant}


def _warn_of_few_others(data: Any, rows: Array, counts: Array) -> None:
    """Warn where nearly all rows have exactly one label: the others may be mistakes."""
    other = np.flatnonzero(counts != 1)
    if data.num_labels > 2 and 0 < len(other) <= (1.0 - NEARLY) * len(counts):
        i = int(other[0])
        warnings.warn(
            f"form='auto' takes each label by itself, since {len(other)} of {len(counts)} rows do not have "
            f"exactly one, the first being {data.example_names[rows[i]]!r} with {counts[i]}: mend them if "
            "rows are of one class each, or set form='labels' if this is meant",
            RepeatedWarning,
            stacklevel=2,
        )


def _refuse_other_than_one(data: Any, rows: Array, counts: Array, why: str) -> None:
    """Raise ValueError where a row has no label or several; `why` says who needs exactly one."""
    bad = np.flatnonzero(counts != 1)
    if len(bad):
        i = int(bad[0])
        raise ValueError(
            f"{why}: a row needs exactly one label, row {data.example_names[rows[i]]!r} has {counts[i]}: set "
            "form='labels'"
        )


def _constraints(
    K: Array, codes: Array, data: Any, rows: Array, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return K0 with its jitter, and the numbers of the constraints, of all problems."""
    from labelzoo.inference.kernel_neighbors.problem import (
        found_jitter,
        read_gamma,
        read_kernel,
        read_problem,
        read_shares,
    )

    kernel = read_kernel(K)
    share = found_jitter(kernel, settings["jitter"])
    jitter = share * float(np.trace(kernel)) / len(kernel)
    options = {name: settings[name] for name in ("alpha", "beta", "gamma", "positive_total")}
    names = [data.example_names[i] for i in rows]
    for one in codes:
        read_problem(kernel, one, jitter=share, regular=True, names=names, **options)
    alpha, beta = read_shares(options["alpha"], options["beta"], _num_classes(codes))
    scale = float(np.trace(kernel)) / len(kernel)
    gamma = read_gamma(options["gamma"])
    return {
        "K0": kernel + jitter * np.eye(len(kernel)),
        "alpha": alpha,
        "beta": beta,
        "price": np.inf if gamma is None else gamma / scale,
        "positive_total": bool(settings["positive_total"]),
        "jitter_added": np.asarray(jitter),
    }


def _num_classes(codes: Array) -> int:
    return int(codes.max(initial=1)) + 1


def check_settings(settings: Mapping[str, Any]) -> None:
    """Refuse settings of the wrong kind; what needs the classes is checked with them."""
    for name, known in (("form", FORMS), ("kernel", KINDS)):
        if settings[name] not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}, got {settings[name]!r}")
    factor = real(settings["length_factor"])
    if not SHORTEST <= factor <= 1 / SHORTEST:
        raise ValueError(
            f"length_factor must be a number from {SHORTEST:g} to {1 / SHORTEST:g}, got "
            f"{settings['length_factor']!r}"
        )
    for name in ("positive_total", "drop_incomplete"):
        if not isinstance(settings[name], bool | np.bool_):
            raise ValueError(f"{name} must be True or False, got {settings[name]!r}")


def _refuse_large(num_rows: int, num_features: int) -> None:
    size = 8.0 * num_rows * max(num_rows, num_features)
    if size > MAX_DENSE_BYTES:
        raise ValueError(
            f"data: kernel_neighbors keeps its {num_rows} rows with labels as dense tables, rows x rows and "
            f"rows x {num_features} features, {size_words(size)}, above the cap of "
            f"{size_words(MAX_DENSE_BYTES)}: pass a subset of rows"
        )


CONSTANTS = (
    "codes",
    "class_label",
    "one_class",
    "constant_prob",
    "mapped",
    "is_cosine",
    "center",
    "scale",
    "length2",
    "jitter_added",
    "fitted_row",
)


def constants(inputs: Inputs) -> dict[str, Any]:
    """Return what prediction needs besides the draws: classes, mapped features, the prior kernel."""
    return {name: np.asarray(inputs[name]) for name in CONSTANTS}


def functionals(draw: Mapping[str, Any], inputs: Inputs) -> dict[str, Array]:
    """Return what the program tells of its training rows.

    ``similarity``, at most `MAX_FUNCTIONALS` of s_l(i), evenly spaced; ``own_share``, as many of the shares
    of a row's own class, negative similarities as 0; ``total`` (problem,), the mean total similarity of a
    row.
    Without problems there is one constant, ``num_problems``.
    """
    codes = jnp.asarray(inputs["codes"])
    if not codes.shape[0]:
        return {"num_problems": jnp.zeros(())}
    s = of_problems(draw["coefficients"] @ jnp.asarray(inputs["K0"]), codes)
    own = jnp.take_along_axis(class_probs(s, "clip", jnp), codes[..., None], axis=-1)
    return {
        "similarity": _thinned(s.reshape(-1)),
        "own_share": _thinned(own.reshape(-1)),
        "total": s.sum(axis=-1).mean(axis=-1),
    }


def _thinned(flat: Array) -> Array:
    size = flat.shape[0]
    return flat[np.unique(np.linspace(0, size - 1, min(MAX_FUNCTIONALS, size)).round().astype(int))]


spec = ModelSpec(
    name="kernel_neighbors",
    views={"summed": summed, "wishart": wishart, "constrained": constrained},
    predict=predict,
    class_similarity=class_similarity,
    log_score=log_score,
    prepare=prepare,
    constants=constants,
    settings=SETTINGS,
    dims={
        "square": ("class",),
        "white": ("class", "basis"),
        "coefficients": ("class", "graph"),
        "kernels": ("class", "graph", "graph_bis"),
        "codes": ("problem", "graph"),
        "class_label": ("class",),
        "constant_prob": ("labels",),
        "mapped": ("graph", "feature"),
        "fitted_row": ("graph",),
        "center": ("feature",),
        "scale": ("feature",),
    },
    functionals=functionals,
    no_simulate="its constraints are a product of experts, no law of the training labels",
    tiny={"num_obs": 14, "num_features": 2, "num_labels": 2, "drop_incomplete": True},
    default={"num_obs": 100, "num_features": 5, "num_labels": 5},
    check_settings={"length_factor": 1.0, "gamma": 0.3, "positive_total": False},
    paper="Jain, Kapoor: Active learning for large multi-class problems, CVPR 2009",
    equations="(2) to (11), corrected",
)

__all__ = ["kernel_of", "spec"]
