"""Bases of the gates: all rows' kernel by its eigenvectors, or that of a few rows for all.

Either way f = gate_mean + factor white, and a row x, old or new, has c(x) = amplitude k(x, mapped) whitener
in the place of its row of the factor; amplitude k(x, x) - |c(x)|^2 is what the basis does not hold of it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import solve_triangular

from labelzoo.models.gp_kernel import GPKernel, median_squared_distance
from labelzoo.models.label_gp import kernel_factor as eigen_factor
from labelzoo.models.sparse_bayes_kernel import GraphKernel, kernel_factor

Array = Any

SMALLEST_PIVOT = 1e-6
"""Rows of a smaller share of the largest variance, given the rows before, add nothing to a basis."""
TIE = 1.0 - 1e-9
"""Variances closer than this are alike: the first row is taken."""


class Basis(NamedTuple):
    """A basis of the gates.

    Attributes
    ----------
    kernel : GraphKernel
    amplitude : float
    factor : (obs, basis)
    mapped : (inducing, feature)
        Rows of the basis: all, or the inducing ones.
    whitener : (inducing, basis)
    residual : (obs,) or None
        Variance of f beyond the basis; None where the basis is of all rows.
    """

    kernel: GraphKernel
    amplitude: float
    factor: Array
    mapped: Array
    whitener: Array
    residual: Array | None


def with_length(kernel: GraphKernel, mapped: Array, settings: Mapping[str, Any]) -> GraphKernel:
    """Return the kernel with its length: length_factor times the median squared distance."""
    if kernel.kind != "rbf":
        return kernel
    factor = 1.0 if settings["length_factor"] is None else float(settings["length_factor"])
    return kernel._replace(length2=factor * median_squared_distance(mapped))


def full_basis(kernel: GraphKernel, amplitude: float, mapped: Array) -> Basis:
    """Return the basis of all rows, from the eigenvectors of their kernel; rows^3 flops.

    Raises
    ------
    ValueError
        If a user's kernel is not symmetric or not positive semidefinite, or no row has a feature.
    """
    K = kernel.of_mapped(mapped, mapped)
    if kernel.kind == "callable":
        kernel_factor(K, kernel.name)  # refuses what is no kernel
    factor, whitener = eigen_factor(amplitude * K)
    # One sign of each eigenvector, so that the same rows give the same basis everywhere.
    top = np.abs(factor).argmax(axis=0)
    sign = np.where(factor[top, np.arange(factor.shape[1])] < 0, -1.0, 1.0)
    return Basis(kernel, amplitude, factor * sign, mapped, whitener * sign, None)


def plain_map(kernel: GraphKernel, X: Array) -> tuple[Any, Any]:
    """Return (kernel of mapped rows, mapped rows), the rows sparse where `X` is and the kernel allows it."""
    if kernel.kind in ("rbf", "cosine") and sparse.issparse(X):
        plain = GPKernel(kernel.kind == "cosine", kernel.center, kernel.feature_scale, kernel.length2)
        return plain, plain.mapped(X)
    return kernel, kernel.mapped(X)


def inducing_basis(kernel: GraphKernel, amplitude: float, X: Array, count: int) -> Basis:
    """Return the basis of at most `count` rows, for all rows of `X`.

    The rows are chosen one by one, each the one whose variance given those before is largest (Burt,
    Rasmussen and van der Wilk, JMLR 21, 2020): a Cholesky factorisation with pivots, rows count^2 flops and
    count columns of the kernel.

    Raises
    ------
    ValueError
        If no row has a feature that the kernel sees, or a user's kernel shows that it is none.
    """
    plain, mapped = plain_map(kernel, X)
    rows = mapped.shape[0]
    if kernel.kind == "callable":  # refuses what is no kernel, as far as these rows show it
        some = mapped[np.unique(np.linspace(0, rows - 1, min(rows, count)).round().astype(int))]
        kernel_factor(kernel.of_mapped(some, some), kernel.name)
    rest = amplitude * _diagonal(kernel, mapped)
    floor = SMALLEST_PIVOT * max(float(rest.max()), 1e-300)
    if not rest.max() > 0:
        raise ValueError("X has no feature that the kernel can see: every row is empty")
    G, pivots = np.zeros((rows, min(count, rows))), []
    own = rest.copy()
    for j in range(G.shape[1]):
        pivot = int(np.argmax(rest >= rest.max() * TIE))  # not by rounding where variances are alike
        if rest[pivot] <= floor and j:
            break
        column = amplitude * plain.of_mapped(mapped, mapped[[pivot]])[:, 0]
        G[:, j] = (column - G[:, :j] @ G[pivot, :j]) / np.sqrt(rest[pivot])
        rest = np.maximum(rest - G[:, j] ** 2, 0.0)
        rest[pivot] = 0.0
        pivots.append(pivot)
    G = G[:, : len(pivots)]
    L = np.tril(G[pivots])
    whitener = solve_triangular(L, np.eye(len(L)), lower=True).T
    chosen = mapped[pivots]
    chosen = chosen.toarray() if sparse.issparse(chosen) else np.asarray(chosen)
    residual = own - (G**2).sum(axis=1)
    worst = int(residual.argmin())
    if residual[worst] < -SMALLEST_PIVOT * own.max():
        raise ValueError(
            f"kernel {kernel.name!r} is not positive semidefinite: given {len(pivots)} rows the variance of "
            f"row {worst} is {residual[worst]:.3g}"
        )
    residual = np.maximum(residual, 0.0)
    return Basis(kernel, amplitude, G, chosen, whitener, residual)


def _diagonal(kernel: GraphKernel, mapped: Array) -> Array:
    if sparse.issparse(mapped) and kernel.kind == "cosine":
        return np.asarray(mapped.multiply(mapped).sum(axis=1), float).ravel()
    return np.array(kernel.diagonal(mapped), float)
