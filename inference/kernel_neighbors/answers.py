"""The paper's three rules, from a posterior: by similarity, by nearest neighbours, by support vectors.

Jain and Kapoor, CVPR 2009, section 3.3.
"""

import warnings
from typing import Any

import numpy as np
import xarray as xr

from labelzoo.arguments import whole_number
from labelzoo.inference.kernel_neighbors.engines import problems_of
from labelzoo.inference.kernel_neighbors.multipliers import Fit, finish
from labelzoo.inference.kernel_neighbors.predict import (
    PENALTY,
    classify,
    classify_by_neighbors,
    classify_by_svm,
    read_penalty,
)
from labelzoo.inference.kernel_neighbors.problem import read_shares
from labelzoo.inference.predict import constants_of, features_of
from labelzoo.models.kernel_neighbors_predict import kernel_of, mapped_rows

Array = Any

RULES = ("similarity", "neighbors", "svm")


def fits_of(tree: Any) -> list[Fit]:
    """Return the fits behind a posterior of ``bregman`` or ``dual``, one a problem; K0 is made anew.

    Raises
    ------
    ValueError
        If `tree` is no such posterior.
    """
    if not isinstance(tree, xr.DataTree) or tree.attrs.get("model") != "kernel_neighbors":
        found = tree.attrs.get("model") if isinstance(tree, xr.DataTree) else type(tree).__name__
        raise ValueError(f"tree must be a posterior of kernel_neighbors, got {found!r}")
    if "engine_state" not in tree.children or "multipliers" not in tree["engine_state"]:
        raise ValueError(
            f"tree is a posterior of the engine {tree.attrs['engine']!r}, which keeps no class kernels: fit "
            "with bregman or dual"
        )
    constants = constants_of(tree)
    mapped, codes = np.asarray(constants["mapped"]), np.asarray(constants["codes"])
    K = kernel_of(constants).of_mapped(mapped, mapped)
    added = float(constants["jitter_added"])
    alpha, beta = read_shares(constants["alpha"], constants["beta"], int(codes.max(initial=1)) + 1)
    gamma = constants["gamma"]
    inputs = {
        "K0": K + added * np.eye(len(K)),
        "codes": codes,
        "alpha": alpha,
        "beta": beta,
        "price": np.inf if gamma is None else gamma * len(K) / float(np.trace(K)),
        "positive_total": constants["positive_total"],
    }
    lam = np.asarray(tree["engine_state"]["multipliers"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of totals: the engine has warned
        return [
            finish(problem, one, tolerance=1e-6)
            for problem, one in zip(problems_of(inputs), lam, strict=True)
        ]


def classified(
    tree: Any, X: Any, *, rule: Any = "similarity", neighbors: Any = 1, penalty: Any = PENALTY
) -> Array:
    """Return the labels of new rows by one of the paper's rules: bool (row, labels).

    Parameters
    ----------
    tree : DataTree
        A posterior of kernel_neighbors by ``bregman`` or ``dual``.
    X : LabelData, frame or array (row, feature)
    rule : {"similarity", "neighbors", "svm"}
        pKNN, the class of largest mean similarity; pKNN-n, the class of most of the nearest training rows,
        the distance to each taken under the kernel of its class; pKNN-SVM, the class whose support vector
        machine against the rest, under its own kernel, is surest.
    neighbors : int
        Of the rule ``neighbors``.
    penalty : float
        Of the rule ``svm``.

    Returns
    -------
    bool array (row, labels)
        One label a row where rows have one class; else each label by its own problem.

    Raises
    ------
    ValueError
        If `tree` is no such posterior, an option is out of range, or the features are not those of the
        posterior.
    """
    fits = fits_of(tree)
    if rule not in RULES:
        raise ValueError(f"rule must be one of {', '.join(RULES)}, got {rule!r}")
    most = min((len(fit.problem.y) for fit in fits), default=None)
    near, price = whole_number("neighbors", neighbors, 1, most), read_penalty(penalty)
    constants = constants_of(tree)
    kernel, features = kernel_of(constants), features_of(tree, X)
    cross = kernel.of_mapped(mapped_rows(kernel, features), np.asarray(constants["mapped"]))
    own = kernel.diagonal(features) + float(constants["jitter_added"])
    apply = {
        "similarity": lambda fit: classify(fit, cross),
        "neighbors": lambda fit: classify_by_neighbors(fit, cross, own, neighbors=near),
        "svm": lambda fit: classify_by_svm(fit, cross, penalty=price),
    }[rule]
    labels = np.asarray(constants["class_label"])
    out = np.tile(np.asarray(constants["constant_prob"]) > 0.5, (len(cross), 1))
    if bool(constants["one_class"]):
        out[np.arange(len(cross)), labels[apply(fits[0])]] = True
        return out
    for label, fit in zip(labels[1::2], fits, strict=True):
        out[:, label] = apply(fit) == 1
    return out
