"""The Gaussian system of any observation pattern, and three ways to solve it.

p(Y) has the potential exp(-tr(Phi Y' C^-1 Y Phi') / 2), so that q(Y_U) has precision D + Phi_U' (C^-1 kron I)
Phi_U with D = diag(E[alpha]). Rows without an unobserved label are conditioned on once, which leaves the rows
A with the Schur complement of C. Then either the precision is factored (``dense``, unobserved cells squared)
or, by the Woodbury identity, M = C kron I_k + blockdiag(Phi_i D_i^-1 Phi_i') of rows x measurements
(``woodbury``), or M is only multiplied with (``cg``).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_solve, lapack

from labelzoo.inference.sparse_bayes.terms import Sketch, forms, grams

Array = Any

RIGHT_SIDES = 1 << 22
"""Numbers (32 MB) in the right-hand sides that conjugate gradients carry together."""
MAX_ITERATIONS = 5000


class System(NamedTuple):
    """Rows with unobserved labels, given the others.

    Attributes
    ----------
    C : (active, active)
        Schur complement of the covariance on the other rows; noise included.
    target : (active, measurement)
        Observed labels compressed, Y_O Phi', less what the other rows predict.
    phi : Sketch
    free : bool (active, labels)
    constant : float
        -1/2 tr(R' C^-1 R) of the other rows, nats.
    """

    C: Array
    target: Array
    phi: Sketch
    free: Array
    constant: float


class Solution(NamedTuple):
    """q(Y_U): mean, variance (cell,), quadratic form at the mean, log |precision|, worst residual."""

    mean: Array
    variance: Array
    quadratic: float
    log_determinant: float | None
    residual: float | None


def lower_factor(matrix: Array, name: str, overwrite: bool = False) -> Array:
    """Return the lower Cholesky factor, in Fortran order, zeros above; in place of `matrix` if told so.

    Raises
    ------
    ValueError
        Naming the matrix where it is not positive definite, with its smallest eigenvalue if it is kept.
    """
    factor, failed = lapack.dpotrf(matrix, lower=1, clean=1, overwrite_a=int(overwrite))
    if failed:
        small = len(matrix) <= 2000 and not overwrite
        told = f": its smallest eigenvalue is {np.linalg.eigvalsh(matrix)[0]:.3g}" if small else ""
        raise ValueError(f"{name} is not positive definite{told}")
    return factor


def make_system(C: Array, phi: Sketch, values: Array, observed: Array) -> System:
    """Condition on the rows that have all labels; rows^3 / 3 flops for these."""
    compressed = values @ phi.projection.T
    active = ~observed.all(axis=1)
    if active.all():
        return System(C, compressed, phi, ~observed, 0.0)
    whole = ~active
    factor = lower_factor(C[np.ix_(whole, whole)], "C over the fully observed rows")
    solve = lapack.dtrtrs
    half = solve(factor, C[np.ix_(whole, active)], lower=1)[0]
    rest = solve(factor, compressed[whole], lower=1)[0]
    schur = C[np.ix_(active, active)] - half.T @ half
    target = compressed[active] - half.T @ rest
    return System(schur, target, phi, ~observed[active], -0.5 * float((rest**2).sum()))


def _inverse_factor(matrix: Array, name: str) -> tuple[Array, float]:
    """Return L^-1 of matrix = L L' (n, n), in its place, and log |matrix|; 2 n^3 / 3 flops."""
    factor = lower_factor(matrix, name, overwrite=True)
    log_determinant = 2 * float(np.log(np.diagonal(factor)).sum())
    return lapack.dtrtri(factor, lower=1, overwrite_c=1)[0], log_determinant


class Dense:
    """Factor the precision of the unobserved cells: 2 cell^3 / 3 flops a solve, 16 cell^2 bytes."""

    def __init__(self, system: System) -> None:
        self._system = system
        row, label = np.nonzero(system.free)
        inverse = cho_solve((lower_factor(system.C, "C"), True), np.eye(len(system.C)))
        G = system.phi.projection.T @ system.phi.projection
        self._prior = np.asfortranarray(inverse[np.ix_(row, row)] * G[np.ix_(label, label)])
        solved = inverse @ system.target
        self._rhs = (solved @ system.phi.projection)[row, label]
        self._constant = float((solved * system.target).sum())

    def _inverse(self, alpha: Array) -> tuple[Array, float]:
        precision = self._prior.copy(order="F")
        precision[np.diag_indices_from(precision)] += alpha
        return _inverse_factor(precision, "the precision of the unobserved labels")

    def solve(self, alpha: Array) -> Solution:
        """Return q(Y_U) at E[alpha] (cell,)."""
        root, log_determinant = self._inverse(alpha)
        mean = -(root.T @ (root @ self._rhs))
        quadratic = self._constant + float(mean @ self._rhs) - float((alpha * mean**2).sum())
        return Solution(mean, np.einsum("ij,ij->j", root, root), quadratic, log_determinant, None)

    def draw(self, alpha: Array, normals: Array) -> Array:
        """Return mean + L^-T normals: (draw, cell)."""
        root, _ = self._inverse(alpha)
        return normals @ root - root.T @ (root @ self._rhs)


class Woodbury:
    """Factor M: 2 n^3 / 3 flops a solve and 8 n^2 bytes, n = active rows x measurements."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._log_C = 2 * float(np.log(np.diagonal(lower_factor(system.C, "C"))).sum())

    def _matrix(self, weights: Array) -> Array:
        active, k = self._system.target.shape
        M = np.zeros((active, k, active, k))
        for a in range(k):
            M[:, a, :, a] = self._system.C
        rows = np.arange(active)
        M[rows, :, rows, :] += grams(self._system.phi, weights)
        return M.reshape(active * k, active * k).T  # symmetric, and in Fortran order so

    def solve(self, alpha: Array) -> Solution:
        """Return q(Y_U) at E[alpha] (cell,)."""
        system = self._system
        active, k = system.target.shape
        weights = cell_weights(system, alpha)
        root, log_M = _inverse_factor(self._matrix(weights), "M")
        solved = (root.T @ (root @ system.target.ravel())).reshape(active, k)
        columns = root.T.reshape(active, k, active * k)
        blocks = columns @ columns.transpose(0, 2, 1)
        log_determinant = float(np.log(alpha).sum()) + log_M - k * self._log_C
        return answer(system, weights, solved, blocks, log_determinant, None)

    def solver(self, alpha: Array) -> Callable[[Array], Array]:
        """Return the map of right-hand sides (active, measurement, m) to M^-1 times them."""
        factor = lower_factor(self._matrix(cell_weights(self._system, alpha)), "M", overwrite=True)
        return lambda right: cho_solve((factor, True), right.reshape(len(factor), -1)).reshape(right.shape)


class ConjugateGradients:
    """Multiply with M only: active^2 measurement flops and 2 active measurement^2 a product, C stored alone.

    Means take one solve, the variances `measurement` solves a row, all to |residual| <= tolerance |right-hand
    side|; preconditioned by the blocks of M on its diagonal. There is no log-determinant, hence no bound. The
    variances cost 3 iterations / measurements times what ``woodbury`` does: this saves memory, not time.
    """

    def __init__(self, system: System, tolerance: float) -> None:
        self._system, self._tolerance = system, tolerance

    def _solve(self, right: Array, blocks: Array) -> tuple[Array, float]:
        C = self._system.C
        inverse = np.linalg.inv(blocks + np.diagonal(C)[:, None, None] * np.eye(blocks.shape[1]))

        def multiply(S: Array) -> Array:
            return (C @ S.reshape(len(C), -1)).reshape(S.shape) + blocks @ S

        return conjugate_gradients(multiply, right, lambda R: inverse @ R, self._tolerance)

    def solve(self, alpha: Array) -> Solution:
        """Return q(Y_U) at E[alpha] (cell,)."""
        system = self._system
        active, k = system.target.shape
        weights = cell_weights(system, alpha)
        grams_ = grams(system.phi, weights)
        solved, worst = self._solve(system.target[:, :, None], grams_)
        inverse = np.empty((active, k, k))
        size = max(1, RIGHT_SIDES // (active * k * k))
        for first in range(0, active, size):
            rows = np.arange(first, min(active, first + size))
            right = np.zeros((active, k, len(rows), k))
            right[rows, :, np.arange(len(rows)), :] = np.eye(k)
            columns, residual = self._solve(right.reshape(active, k, -1), grams_)
            inverse[rows] = columns.reshape(active, k, len(rows), k)[rows, :, np.arange(len(rows)), :]
            worst = max(worst, residual)
        inverse = 0.5 * (inverse + inverse.transpose(0, 2, 1))
        return answer(system, weights, solved[:, :, 0], inverse, None, worst)

    def solver(self, alpha: Array) -> Callable[[Array], Array]:
        """Return the map of right-hand sides (active, measurement, m) to M^-1 times them."""
        blocks = grams(self._system.phi, cell_weights(self._system, alpha))
        return lambda right: self._solve(right, blocks)[0]


def cell_weights(system: System, alpha: Array) -> Array:
    """Return 1 / E[alpha] at unobserved cells and 0 elsewhere: (active, labels)."""
    weights = np.zeros(system.free.shape)
    weights[system.free] = 1.0 / alpha
    return weights


def answer(
    system: System,
    weights: Array,
    solved: Array,
    blocks: Array,
    log_determinant: float | None,
    residual: float | None,
) -> Solution:
    """Return q(Y_U) from s = M^-1 target (active, measurement) and the diagonal blocks of M^-1.

    Mean -W Phi' s, variance w - w^2 phi' [M^-1]_ii phi; C s is Y Phi' at the mean, so that s' C s is the
    quadratic form there.
    """
    mean = -weights * (solved @ system.phi.projection)
    variance = weights * (1.0 - weights * forms(system.phi, blocks))
    quadratic = float((solved * (system.C @ solved)).sum())
    free = system.free
    return Solution(mean[free], np.maximum(variance[free], 0.0), quadratic, log_determinant, residual)


def conjugate_gradients(
    multiply: Callable[[Array], Array],
    right: Array,
    precondition: Callable[[Array], Array],
    tolerance: float,
) -> tuple[Array, float]:
    """Solve for right-hand sides (active, measurement, m) together; return the solutions and worst residual.

    The residual is |right - M x| / |right|, taken afresh at the end.

    Raises
    ------
    ValueError
        If 5000 iterations do not reach the tolerance.
    """
    size = np.sqrt((right**2).sum(axis=(0, 1)))
    size = np.where(size > 0, size, 1.0)
    x, residual = np.zeros_like(right), right.copy()
    z = precondition(residual)
    direction, rz = z, (residual * z).sum(axis=(0, 1))
    for _ in range(MAX_ITERATIONS):
        if (np.sqrt((residual**2).sum(axis=(0, 1))) <= 0.5 * tolerance * size).all():
            break
        product = multiply(direction)
        curvature = (direction * product).sum(axis=(0, 1))
        step = np.divide(rz, curvature, out=np.zeros_like(rz), where=curvature > 0)
        x += step * direction
        residual -= step * product
        z = precondition(residual)
        new = (residual * z).sum(axis=(0, 1))
        direction = z + np.divide(new, rz, out=np.zeros_like(rz), where=rz > 0) * direction
        rz = new
    true = np.sqrt(((right - multiply(x)) ** 2).sum(axis=(0, 1)))
    worst = float((true / size).max(initial=0.0))
    if worst > tolerance:
        raise ValueError(
            f"conjugate gradients stopped at a relative residual of {worst:.1e}, above "
            f"tolerance={tolerance:g}: take a larger tolerance or noise"
        )
    return x, worst
