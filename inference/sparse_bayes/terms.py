"""What the sparse Bayesian cores share: Gram matrices of weighted projections, Student terms, checks.

A label y with precision alpha ~ Gamma(a0, rate b0) has q(alpha) = Gamma(a0 + 1/2, b0 + E[y^2] / 2). With it,
the terms of the bound that hold alpha are one Student log density at y^2 = E[y^2].
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

from labelzoo.arguments import real, whole_number

Array = Any

LARGEST_OUTER = 1 << 23
"""Numbers (64 MB) that the table of outer products of the projection's columns may hold."""
BLOCK_NUMBERS = 1 << 21
"""Numbers (16 MB) in the largest array of a block of rows."""


class Sketch(NamedTuple):
    """A projection Phi (measurement, labels) and its columns' outer products (labels, measurement^2) or None.

    With the table, Phi diag(w_i) Phi' of all rows i is one matrix product, and so are the forms phi_j' A_i
    phi_j; without it, where it would pass 64 MB, both are stacked products of the same flops.
    """

    projection: Array
    outer: Array | None


def sketch(projection: Array) -> Sketch:
    """Return the projection with its table of outer products, labels x measurement^2 numbers."""
    k, labels = projection.shape
    if k * k * labels > LARGEST_OUTER:
        return Sketch(projection, None)
    outer = projection.T[:, :, None] * projection.T[:, None, :]
    return Sketch(projection, outer.reshape(labels, k * k))


def grams(phi: Sketch, weights: Array) -> Array:
    """Return Phi diag(w_i) Phi' of every row of `weights` (row, labels): (row, measurement, measurement).

    2 labels measurement^2 flops a row.
    """
    k = phi.projection.shape[0]
    if phi.outer is not None:
        return (weights @ phi.outer).reshape(-1, k, k)
    return (weights[:, None, :] * phi.projection) @ phi.projection.T


def forms(phi: Sketch, matrices: Array) -> Array:
    """Return phi_j' A_i phi_j of every label j and symmetric A_i (row, measurement, measurement)."""
    k = phi.projection.shape[0]
    if phi.outer is not None:
        return matrices.reshape(-1, k * k) @ phi.outer.T
    return ((matrices @ phi.projection) * phi.projection).sum(axis=1)


def rows_in_block(phi: Sketch) -> int:
    """Return how many rows go together so that no array of a block passes 16 MB."""
    k, labels = phi.projection.shape
    widest = max(k * k if phi.outer is not None else k * labels, k * k, labels)
    return max(1, BLOCK_NUMBERS // widest)


def second_moments_to_rate(second: Array, rate: float) -> Array:
    """Return the rate of q(alpha), b0 + E[y^2] / 2."""
    return rate + 0.5 * second


def student_terms(posterior_rate: Array, shape: float, rate: float) -> Array:
    """Return log Gamma(a0 + 1/2) - log Gamma(a0) + a0 log b0 - (a0 + 1/2) log b, nats a cell.

    E log N(y; 0, 1 / alpha) + E log Gamma(alpha; a0, b0) + H(q(alpha)) + (log 2 pi) / 2 right after q(alpha)
    was updated to Gamma(a0 + 1/2, b); the log 2 pi cancels against that of H(q(y)).
    """
    a = shape + 0.5
    return gammaln(a) - gammaln(shape) + shape * np.log(rate) - a * np.log(posterior_rate)


def read_prior(shape: Any, rate: Any, sweeps: Any) -> tuple[float, float, int]:
    """Return a0, b0 and the number of sweeps as numbers.

    Raises
    ------
    ValueError
        Unless a0 and b0 are finite and above 0 and `sweeps` is an integer of at least 1.
    """
    a0, b0 = read_positive(shape, "shape"), read_positive(rate, "rate")
    return a0, b0, whole_number("sweeps", sweeps, 1)


def read_positive(value: Any, name: str) -> float:
    """Return a number.

    Raises
    ------
    ValueError
        Unless it is a finite number above 0.
    """
    number = real(value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value)
    if not (np.isfinite(number) and number > 0):
        raise ValueError(f"{name} must be a finite number above 0, got {value!r}")
    return number


def read_matrix(value: Any, name: str, width: int | None = None) -> Array:
    """Return a finite float64 matrix.

    Raises
    ------
    ValueError
        Naming the argument, and the row and column of the first number that is NaN or infinite.
    """
    matrix = np.asarray(value, dtype=np.float64)
    if matrix.ndim != 2 or (width is not None and matrix.shape[1] != width):
        wanted = "two dimensions" if width is None else f"shape (rows, {width})"
        raise ValueError(f"{name} must have {wanted}, got shape {matrix.shape}")
    bad = np.argwhere(~np.isfinite(matrix))
    if bad.size:
        raise ValueError(f"{name} has {matrix[tuple(bad[0])]} at row {bad[0][0]}, column {bad[0][1]}")
    return matrix


def read_projection(value: Any) -> Sketch:
    """Return a checked projection (measurement, labels) with its table."""
    projection = read_matrix(value, "projection")
    if 0 in projection.shape:
        raise ValueError(f"projection must have measurements and labels, got shape {projection.shape}")
    return sketch(projection)


def read_labels(Y: Any, observed: Any, shape: tuple[int, int]) -> tuple[Array, Array]:
    """Return Y with 0 at unobserved cells, and a boolean mask, both of `shape` (row, labels).

    `observed` None stands for the cells that are not NaN.

    Raises
    ------
    ValueError
        For another shape, or an observed label that is NaN or infinite (row and column are named).
    """
    labels = np.asarray(Y, dtype=np.float64)
    mask = ~np.isnan(labels) if observed is None else np.asarray(observed)
    for name, array in (("Y", labels), ("observed", mask)):
        if array.shape != shape:
            raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    if mask.dtype != bool:
        raise ValueError(f"observed must be boolean, got {mask.dtype}")
    return read_matrix(np.where(mask, labels, 0.0), "Y"), mask


def read_precision(start: Any, shape: tuple[int, ...], name: str = "start") -> Array:
    """Return E[alpha] to start from, ones where `start` is None.

    Raises
    ------
    ValueError
        For another shape or a number that is not finite and above 0.
    """
    if start is None:
        return np.ones(shape)
    values = np.array(start, dtype=np.float64)
    if values.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {values.shape}")
    bad = np.argwhere(~(np.isfinite(values) & (values > 0)))
    if bad.size:
        where = ", ".join(str(i) for i in bad[0])
        raise ValueError(f"{name} must be finite and above 0, got {values[tuple(bad[0])]} at ({where})")
    return values
