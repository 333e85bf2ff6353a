"""Theta of all targets by gradients from JAX, one compiled call an evaluation.

The objective is that of `labelzoo.inference.compressed_gp.hyperparameters`, its gradient by automatic
differentiation. Rows are padded to a multiple of `MULTIPLE` with a unit diagonal and targets of 0, which adds
exactly nothing to the likelihood, so that a program serves many numbers of rows. Each target has its own
L-BFGS-B of SciPy, which asks for one point at a time: the searches run in threads that wait for each other,
and the points of all are evaluated together. Each goes the way that it would go alone.
"""

import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from scipy.optimize import minimize

from labelzoo.inference.compressed_gp.hyperparameters import (
    HIGH,
    LBFGS,
    LOW,
    NO_FACTOR,
    PRIOR_SD,
    Fit,
    fit_of,
    start_of,
)
from labelzoo.inference.compressed_gp.kernel14 import Caches
from labelzoo.inference.sparse_bayes.terms import read_matrix

Array = Any

MULTIPLE = 64


def gradient_jax(targets: Any, caches: Caches, *, theta: Any = None) -> Fit:
    """Maximise as `labelzoo.inference.compressed_gp.hyperparameters.gradient` does, in one batch.

    Parameters
    ----------
    targets : (row, target)
    caches : Caches
    theta : (target, 5) or None
        Where to begin: the last theta.

    Notes
    -----
    Compiled anew for another number of targets, or of rows beyond the padding. An evaluation is of all
    targets, those that have ended too. The tables of one target at a time are in memory.

    Raises
    ------
    ValueError
        For shapes that do not fit.
    """
    U = read_matrix(targets, "targets")
    start = start_of(theta, U.shape[1])
    if U.shape != (len(caches), len(start)):
        raise ValueError(f"targets must have {len(caches)} rows, got shape {U.shape}")
    if not len(start):
        return fit_of([])
    with jax.enable_x64(True):
        tables = [jnp.asarray(table) for table in padded(U, caches)]

    def together(points: Array) -> tuple[Array, Array]:
        with jax.enable_x64(True):
            value, slope = evaluated(jnp.asarray(points), *tables)
        value, slope = np.asarray(value), np.asarray(slope)
        bad = ~np.isfinite(value)
        return np.where(bad, NO_FACTOR, -value), np.where(bad[:, None], 0.0, -slope)

    return fit_of(in_lock_step(start, together))


def padded(U: Array, caches: Caches) -> tuple[Array, Array, Array, Array]:
    """Return targets (target, padded), distances and products (padded, padded), and 1 at true rows."""
    more = (0, -len(caches) % MULTIPLE)
    distances2, products = (np.pad(table, (more, more)) for table in (caches.distances2, caches.products))
    return np.pad(U.T, ((0, 0), more)), distances2, products, np.pad(np.ones(len(caches)), more)


def _objective(x: Array, u: Array, distances2: Array, products: Array, rows: Array) -> Array:
    """Return log likelihood plus log prior of one target; the padding is a block of its own."""
    th0, th1, th2, th3, noise = jnp.exp(x)
    K = th0 * jnp.exp(-0.5 * th1 * distances2) + th2 * products + th3
    C = K * jnp.outer(rows, rows) + jnp.diag(noise * rows + (1.0 - rows))
    lower = jnp.linalg.cholesky(C)
    half = solve_triangular(lower, u, lower=True)
    value = -0.5 * half @ half - jnp.log(jnp.diagonal(lower)).sum()
    return value - 0.5 * rows.sum() * jnp.log(2.0 * jnp.pi) - 0.5 * ((x / PRIOR_SD) ** 2).sum()


@jax.jit
def evaluated(log_theta: Array, U: Array, distances2: Array, products: Array, rows: Array) -> Any:
    """Return the objective of each target (target,) and its gradient by log theta (target, 5)."""
    one = jax.value_and_grad(_objective)
    return jax.lax.map(lambda at: one(*at, distances2, products, rows), (log_theta, U))


class _LockStep:
    """Points of searches that wait for each other, evaluated by the last one to come."""

    def __init__(self, start: Array, together: Any) -> None:
        self.points, self.together = start.copy(), together
        self.error: Exception | None = None
        self.values, self.slopes = np.zeros(len(start)), np.zeros(start.shape)
        self.condition, self.waiting, self.searching, self.turn = threading.Condition(), 0, len(start), 0

    def ask(self, number: int, x: Array) -> tuple[float, Array]:
        with self.condition:
            self.points[number] = x
            self.waiting += 1
            turn = self.turn
            self._go_on()
            self.condition.wait_for(lambda: self.turn != turn)
            if self.error is not None:
                raise self.error
            return float(self.values[number]), self.slopes[number].copy()

    def leave(self) -> None:
        with self.condition:
            self.searching -= 1
            self._go_on()

    def _go_on(self) -> None:
        if self.searching and self.waiting == self.searching:
            try:
                self.values, self.slopes = self.together(self.points)
            except Exception as error:
                self.error = error
            self.waiting, self.turn = 0, self.turn + 1
            self.condition.notify_all()


def in_lock_step(start: Array, together: Any) -> list[Any]:
    """Return what L-BFGS-B finds from each row of `start`.

    Parameters
    ----------
    start : (search, 5)
    together : callable
        ``points (search, 5) -> values (search,), slopes (search, 5)`` of all searches, to be minimised.
    """
    step, found = _LockStep(start, together), [None] * len(start)
    bounds = list(zip(LOW, HIGH, strict=True))

    def one(number: int) -> None:
        try:
            found[number] = minimize(
                lambda x: step.ask(number, x),
                start[number],
                jac=True,
                method="L-BFGS-B",
                bounds=bounds,
                options=LBFGS,
            )
        except Exception as error:
            step.error = error
        finally:
            step.leave()

    threads = [threading.Thread(target=one, args=(number,)) for number in range(len(start))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if step.error is not None:
        raise step.error
    return found
