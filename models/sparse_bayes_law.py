"""The Gaussian law of new rows' labels under sparse_bayes, which acquisition of single labels reads.

A new row's labels have the precision diag(E[alpha]) + Phi'Phi / v given the labelled rows, v the variance of
its compressed labels, noise included; several new rows together diag(E[alpha]) + C^-1 (x) Phi'Phi, C their
covariance given the labelled rows (Vasisht et al. 2014, sections 4 and 5.2).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from labelzoo.acquisition.label_law import LabelLaw
from labelzoo.models.sparse_bayes_predict import completed, cross_and_own, kernel_of

Array = Any


def label_law(draws: Mapping[str, Any], X_new: Array, constants: Mapping[str, Any]) -> LabelLaw:
    """Return the law of each new row's labels, none of them known, training labels at their mean over draws.

    E[alpha] is that of the row's own fixed point (`labelzoo.inference.sparse_bayes.inductive.fit_rows`), the
    one under which its variances were taken; rows are fitted alone. A row of which some labels are known
    already is treated as a new row with the same features.

    Parameters
    ----------
    draws : mapping
        ``y_unobserved`` (sample, cell).
    X_new : (row, feature)
    constants : mapping
        As saved with the posterior.
    """
    from labelzoo.inference.sparse_bayes.inductive import condition, fit_rows

    cross, own = cross_and_own(constants, X_new)
    Y = completed(constants, np.asarray(draws["y_unobserved"], float).mean(axis=0))
    T = Y @ constants["projection"].T
    t, v = condition(constants["cholesky"], cross, own, T)
    fit = fit_rows(
        t,
        v,
        constants["projection"],
        shape=float(constants["precision_shape"]),
        rate=float(constants["precision_rate"]),
        sweeps=int(constants["sweeps"]),
    )

    def covariance() -> Array:
        kernel = kernel_of(constants)
        mapped = kernel.mapped(X_new)
        half = solve_triangular(constants["cholesky"], cross, lower=True)
        C = float(constants["fitted_scale"]) * kernel.of_mapped(mapped, mapped) - half.T @ half
        C[np.diag_indices_from(C)] = v
        return (C + C.T) / 2

    return LabelLaw(fit.used, constants["projection"], v, covariance)
