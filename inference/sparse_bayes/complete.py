"""All rows in one graph, any labels observed: q(Y_U) q(alpha) and joint draws of q(Y_U).

Transductive: an unlabelled row with its own sparsity prior changes what the others say, so that many new rows
here and one new row at a time (`labelzoo.inference.sparse_bayes.inductive`) are two estimators, which agree
for a single one.
"""

from typing import Any, NamedTuple

import numpy as np

from labelzoo.inference.sparse_bayes.system import (
    ConjugateGradients,
    Dense,
    Solution,
    System,
    Woodbury,
    cell_weights,
    lower_factor,
    make_system,
)
from labelzoo.inference.sparse_bayes.terms import (
    read_labels,
    read_matrix,
    read_precision,
    read_prior,
    read_projection,
    second_moments_to_rate,
    student_terms,
)

Array = Any

METHODS = ("auto", "dense", "woodbury", "cg")
TOLERANCE = 1e-9
"""Relative residual of conjugate gradients."""
LARGEST_MATRIX = 16000
"""Side of the largest matrix that "auto" factors: 2 to 4 GB, some 2.7e12 flops a sweep."""
NOTHING_OBSERVED = (
    "no label is observed: the bound has its maximum at mean 0 and variances that shrink with every sweep, "
    "which predicts nothing"
)


class Completion(NamedTuple):
    """q of the unobserved labels.

    Attributes
    ----------
    mean, variance : (cell,)
        Cells are the unobserved (row, label) pairs, row by row.
    precision : (cell,)
        E[alpha] after the last sweep: as ``start`` of another call it continues the same ascent.
    bound : (sweep,) or None
        Lower bound in nats of log of the integral of exp(-tr(Phi Y' C^-1 Y Phi') / 2) times the Student
        priors of the cells; it never falls. None with conjugate gradients, which give no log-determinant.
    cells : int (cell, 2)
        Row and label of each cell.
    used : (cell,)
        The E[alpha] under which mean and variance were taken.
    method : str
        What solved the system.
    residual : float or None
        Worst relative residual of conjugate gradients.
    note : str
        A warning in words, or "".
    system : System
        What `draw` needs.
    """

    mean: Array
    variance: Array
    precision: Array
    bound: Array | None
    cells: Array
    used: Array
    method: str
    residual: float | None
    note: str
    system: System


def complete(
    C: Any,
    projection: Any,
    Y: Any,
    observed: Any = None,
    *,
    shape: Any,
    rate: Any,
    sweeps: Any,
    tolerance: Any = None,
    method: Any = "auto",
    start: Any = None,
    hold: Any = False,
    progress: Any = None,
) -> Completion:
    """Fit q(Y_U) q(alpha) by coordinate ascent, the observed labels conditioned on in every sweep.

    Rows that have all labels are conditioned on once. Per sweep: ``dense`` 2 |U|^3 / 3 flops, ``woodbury``
    2 n^3 / 3 with n = rows with an unobserved label x measurements, ``cg`` about 2 iterations n^2 (rows +
    measurements), more than both, but no matrix beside C.

    Parameters
    ----------
    C : (row, row)
        scale K + noise I.
    projection : (measurement, labels)
    Y, observed : (row, labels)
        NaN in `Y` is unobserved where no mask is given.
    shape, rate : float
        a0 and b0.
    sweeps : int
    tolerance : float or None
        Relative residual of ``cg``, 1e-9 by default.
    method : str
        ``auto`` takes the smaller of the two matrices, or ``cg`` where both have more than 16000 rows.
    start : (cell,) or None
        E[alpha] to start from, 1 by default.
    hold : bool
        Keep E[alpha] at `start`.
    progress : callable or None
        Called with the sweeps done and their number.

    Raises
    ------
    ValueError
        For shapes that do not fit, numbers that are not finite, an unknown method, or a C that is not
        positive definite (with its smallest eigenvalue).
    """
    a0, b0, sweeps = read_prior(shape, rate, sweeps)
    system, cells, note = _read_system(C, projection, Y, observed)
    alpha = read_precision(start, (len(cells),))
    method, solver = _solver(system, len(cells), method, tolerance)
    bounds: list[float | None] = []
    solution, used, worst = _empty(), alpha, 0.0
    for sweep in range(sweeps):
        used, solution = alpha, solver.solve(alpha) if len(cells) else _empty()
        posterior_rate = second_moments_to_rate(solution.mean**2 + solution.variance, b0)
        bounds.append(_bound(system, solution, alpha, student_terms(posterior_rate, a0, b0)))
        alpha = alpha if hold else (a0 + 0.5) / posterior_rate
        worst = max(worst, solution.residual or 0.0)
        if progress is not None:
            progress(sweep + 1, sweeps)
    bound = None if None in bounds else np.array(bounds, dtype=np.float64)
    residual = worst if method == "cg" else None
    return Completion(
        solution.mean, solution.variance, alpha, bound, cells, used, method, residual, note, system
    )


def _read_system(C: Any, projection: Any, Y: Any, observed: Any) -> tuple[System, Array, str]:
    phi = read_projection(projection)
    labels = phi.projection.shape[1]
    C = read_matrix(C, "C")
    if C.shape[0] != C.shape[1] or not C.shape[0]:
        raise ValueError(f"C must be square and not empty, got shape {C.shape}")
    if not np.allclose(C, C.T, rtol=1e-8, atol=1e-10 * float(np.abs(C).max())):
        raise ValueError("C must be symmetric")
    values, mask = read_labels(Y, observed, (len(C), labels))
    return make_system(C, phi, values, mask), np.argwhere(~mask), "" if mask.any() else NOTHING_OBSERVED


def _empty() -> Solution:
    return Solution(np.zeros(0), np.zeros(0), 0.0, 0.0, None)


def choose_method(active: int, measurements: int, cells: int) -> str:
    """Return the method that "auto" takes: the smaller matrix, unless both are too large to factor."""
    n = active * measurements
    if min(n, cells) > LARGEST_MATRIX:
        return "cg"
    return "dense" if cells <= n else "woodbury"


def _solver(system: System, cells: int, method: str, tolerance: float | None) -> tuple[str, Any]:
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    limit = TOLERANCE if tolerance is None else float(tolerance)
    if not 0 < limit < 1:
        raise ValueError(f"tolerance must lie between 0 and 1, got {tolerance!r}")
    if method == "auto":
        active, measurements = system.target.shape
        method = choose_method(active, measurements, cells)
    if not cells:
        return method, None
    if method == "cg":
        return method, ConjugateGradients(system, limit)
    return method, Dense(system) if method == "dense" else Woodbury(system)


def _bound(system: System, solution: Solution, alpha: Array, student: Array) -> float | None:
    """Return the bound in nats; the traces are cells - sum alpha var, the constants of 2 pi cancel."""
    if solution.log_determinant is None:
        return None
    cells = float((student + 0.5 * alpha * solution.variance).sum())
    return system.constant + cells - 0.5 * solution.quadratic - 0.5 * solution.log_determinant


def num_normals(completion: Completion) -> int:
    """Return how many standard normals one draw takes: cells, and rows x measurements unless dense."""
    extra = 0 if completion.method == "dense" else completion.system.target.size
    return len(completion.mean) + extra


def draw(completion: Completion, normals: Any, *, tolerance: float | None = None) -> Array:
    """Return exact joint draws of q(Y_U), the Gaussian at ``completion.used``: (draw, cell).

    ``dense`` solves with the factor of the precision. Otherwise by Matheron's rule: with y ~ N(0, D^-1) and
    e ~ N(0, C kron I), y - D^-1 Phi' M^-1 (target + Phi y + e) has exactly that law. One factor of M, or
    conjugate gradients (then to their tolerance), and a right-hand side a draw.

    Parameters
    ----------
    completion : Completion
    normals : (draw, `num_normals`)
        Independent standard normals.

    Raises
    ------
    ValueError
        If `normals` has another width.
    """
    normals = read_matrix(normals, "normals", num_normals(completion))
    system, alpha = completion.system, completion.used
    if not len(alpha):
        return np.zeros((len(normals), 0))
    _, solver = _solver(system, len(alpha), completion.method, tolerance)
    if completion.method == "dense":
        return solver.draw(alpha, normals)
    active, k = system.target.shape
    prior = normals[:, : len(alpha)] / np.sqrt(alpha)
    filled = np.zeros((len(normals), *system.free.shape))
    filled[:, system.free] = prior
    noise = normals[:, len(alpha) :].reshape(-1, active, k)
    error = np.tensordot(noise, lower_factor(system.C, "C"), axes=([1], [1])).transpose(0, 2, 1)
    right = system.target + filled @ system.phi.projection.T + error
    solved = solver.solver(alpha)(np.ascontiguousarray(right.transpose(1, 2, 0)))
    shift = cell_weights(system, alpha) * (solved.transpose(2, 0, 1) @ system.phi.projection)
    return prior - shift[:, system.free]
