"""Canonical targets: what a fit says of its rows, free of rotation, with exactly uncorrelated columns.

The scores of a fit are defined up to a rotation and are uncorrelated only where an engine has converged. The
fitted centred rows (U - mean) W' are defined without either. With their singular value decomposition P D E',
the targets are m^(1/2) P (centred, uncorrelated, of unit variance), the loadings E D / m^(1/2), and the
weight of target g, x_g = D_g^2 / m and s2 the noise variance, is

    lambda_g = s2 + x_g / 2 + (x_g s2 + x_g^2 / 4)^(1/2):

the eigenvalue of the rows' covariance in a fit by maximum likelihood, where x = (lambda - s2)^2 / lambda.

For Shi and Yu, ICML 2019, section 3, which needs uncorrelated targets; see docs/errata.md.
"""

from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from labelzoo.inference.bpca.ml import with_signs

Array = Any

RANK_CUT = 1e-12
"""A direction whose variance x_g is below this share of the largest plus the noise is dropped."""


class Canonical(NamedTuple):
    """Targets of the rows of a fit, and the way back.

    Attributes
    ----------
    targets : (row, target)
        Centred, uncorrelated, unit variance; no column where nothing varies.
    loadings : (measurement, target)
        The fitted row n is offset + loadings targets_n; the entry of largest size of a column is positive.
    offset : (measurement,)
    weights : (target,)
        lambda_g, the largest first; squared units of a compressed row.
    center : (component,)
        Mean score.
    mixing : (component, target)
        Targets of scores u are (u - center) mixing.
    """

    targets: Array
    loadings: Array
    offset: Array
    weights: Array
    center: Array
    mixing: Array


def canonical_targets(scores: Any, loadings: Any, mean: Any, noise_variance: Any) -> Canonical:
    """Return the canonical targets of a fit at any stopping point.

    Parameters
    ----------
    scores : array (row, component)
        Means of the scores.
    loadings : array (measurement, component)
        Means of the loadings.
    mean : array (measurement,)
    noise_variance : float
        1 / E tau.

    Raises
    ------
    ValueError
        If the shapes do not fit together or a number is not finite.
    """
    U, W, mu = (np.asarray(value, float) for value in (scores, loadings, mean))
    _refuse(U, W, mu, float(noise_variance))
    m, center = len(U), U.mean(axis=0)
    rows, row_factor = np.linalg.qr(U - center)
    columns, column_factor = np.linalg.qr(W)
    left, sizes, right = np.linalg.svd(row_factor @ column_factor.T)
    left, right = left[:, : len(sizes)], right[: len(sizes)].T
    x = sizes**2 / m
    keep = x > RANK_CUT * (x.max(initial=0.0) + noise_variance)
    E = columns @ right[:, keep]
    signed = with_signs(E) if E.size else E
    signs = (signed * E).sum(axis=0)
    x, sizes = x[keep], sizes[keep]
    weights = noise_variance + 0.5 * x + np.sqrt(x * noise_variance + 0.25 * x**2)
    return Canonical(
        targets=np.sqrt(m) * (rows @ left[:, keep]) * signs,
        loadings=signed * sizes / np.sqrt(m),
        offset=W @ center + mu,
        weights=weights,
        center=center,
        mixing=np.sqrt(m) * (W.T @ signed) / sizes,
    )


def _refuse(U: Array, W: Array, mu: Array, noise_variance: float) -> None:
    fits = U.ndim == W.ndim == 2 and len(U) and U.shape[1] == W.shape[1] and mu.shape == (W.shape[0],)
    if not fits:
        raise ValueError(
            f"scores (row, component), loadings (measurement, component) and mean (measurement,) do not fit: "
            f"{U.shape}, {W.shape}, {mu.shape}"
        )
    for name, value in (("scores", U), ("loadings", W), ("mean", mu)):
        if not np.isfinite(value).all():
            raise ValueError(f"{name} has a number that is not finite")
    if not 0.0 < noise_variance < np.inf:
        raise ValueError(f"noise_variance must be a positive number, got {noise_variance!r}")


def targets_of_scores(fit: Canonical, scores: Any) -> Array:
    """Return the targets of further scores (row, component), of rows that were not fitted: (row, target)."""
    return (np.asarray(scores, float) - fit.center) @ fit.mixing


def canonical_of(tree: xr.DataTree) -> Canonical:
    """Return the canonical targets of a posterior of ``mean_field`` or ``ml``.

    Raises
    ------
    ValueError
        If the posterior is of another engine, which keeps no means of scores.
    """
    state = tree["engine_state"].to_dataset() if "engine_state" in tree.children else {}
    if "scores_mean" not in state:
        raise ValueError(
            f"canonical targets need a posterior of bpca by mean_field or ml, this one is of "
            f"{tree.attrs.get('model')!r} by {tree.attrs.get('engine')!r}"
        )
    scores, loadings, mean = (state[name].values for name in ("scores_mean", "loadings_mean", "mean_mean"))
    return canonical_targets(scores, loadings, mean, float(state["noise_variance"].values))
