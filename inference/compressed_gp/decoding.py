"""Which labels a compressed row stands for: basis pursuit, orthogonal matching pursuit, correlation.

r = A y + error, A the `projection` (measurement, labels), y in {0, 1} with few ones. With more labels than
measurements the smallest y in the sum of squares is dense, whatever the truth; basis pursuit minimises the
sum of absolute values instead, which for y >= 0 is a linear program.

Shi and Yu, ICML 2019, section 3.1, with the one-norm for the paper's two-norm.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as JaxArray
from jax import lax
from scipy.optimize import linprog
from scipy.sparse import csr_array, eye_array
from scipy.sparse import hstack as sparse_hstack
from scipy.sparse import vstack as sparse_vstack

from labelzoo.inference.sparse_bayes.terms import read_matrix

Array = Any

LABEL_COST = 0.1
"""Weight of sum y beside the absolute error in the noisy program."""
ZERO = 1e-9
"""Matching pursuit stops where the residual's norm is below this share of the row's."""
INFEASIBLE = 2


class Pursuit(NamedTuple):
    """What orthogonal matching pursuit finds.

    Attributes
    ----------
    coefficients : (row, labels)
        Least squares on the support, 0 elsewhere.
    selected : bool (row, labels)
    """

    coefficients: Array
    selected: Array


def read_rows(compressed: Any, projection: Any) -> tuple[Array, Array]:
    """Return compressed rows (row, measurement) and projection (measurement, labels), checked.

    Raises
    ------
    ValueError
        For shapes that do not fit, and for NaN or infinity, naming row and column.
    """
    A = read_matrix(projection, "projection")
    if 0 in A.shape:
        raise ValueError(f"projection must have measurements and labels, got shape {A.shape}")
    return read_matrix(compressed, "compressed", len(A)), A


def correlation(compressed: Any, projection: Any) -> Array:
    """Return a_j.r / |a_j|^2 of each row and label, 0 where a label's column is 0: (row, labels)."""
    R, A = read_rows(compressed, projection)
    norms2 = (A**2).sum(axis=0)
    return (R @ A) / np.where(norms2 > 0, norms2, 1.0)


def basis_pursuit(
    compressed: Any, projection: Any, *, form: Any = "auto", label_cost: Any = LABEL_COST
) -> Array:
    """Return the relaxed labels of each row, between 0 and 1: (row, labels).

    Exact form: min sum y with A y = r. Noisy form: min |A y - r|_1 + `label_cost` sum y. "auto" takes the
    exact form where it has a solution and the noisy one elsewhere; a row that a model predicts hardly ever
    has one.

    Parameters
    ----------
    compressed : (row, measurement)
    projection : (measurement, labels)
    form : {"auto", "exact", "noisy"}
    label_cost : float
        Above 0.

    Notes
    -----
    One linear program a row and form, by HiGHS; milliseconds at 100 labels.

    Raises
    ------
    ValueError
        As `read_rows`; if an option is out of range; with form "exact" naming the row without a solution.
    """
    R, A = read_rows(compressed, projection)
    if form not in ("auto", "exact", "noisy"):
        raise ValueError(f"form must be 'auto', 'exact' or 'noisy', got {form!r}")
    if not (np.isfinite(label_cost) and label_cost > 0):
        raise ValueError(f"label_cost must be a finite number above 0, got {label_cost!r}")
    out = np.zeros((len(R), A.shape[1]))
    for row, r in enumerate(R):
        y = None if form == "noisy" else _exact(r, A, row)
        if y is None and form == "exact":
            raise ValueError(f"compressed row {row} has no y between 0 and 1 with projection y = r")
        out[row] = _noisy(r, A, float(label_cost), row) if y is None else y
    # The solver's answers may leave the box by its tolerance.
    return np.clip(out, 0.0, 1.0)


def _exact(r: Array, A: Array, row: int) -> Array | None:
    found = linprog(np.ones(A.shape[1]), A_eq=A, b_eq=r, bounds=(0.0, 1.0), method="highs")
    if found.status not in (0, INFEASIBLE):
        raise ValueError(f"the linear program of compressed row {row} failed: {found.message}")
    return found.x if found.status == 0 else None


def _noisy(r: Array, A: Array, label_cost: float, row: int) -> Array:
    """Return y of the program in (y, t): A y - t <= r, -A y - t <= -r."""
    d, labels = A.shape
    sparse, slack = csr_array(A), -eye_array(d)
    table = sparse_vstack([sparse_hstack([sparse, slack]), sparse_hstack([-sparse, slack])], format="csr")
    cost = np.concatenate([np.full(labels, label_cost), np.ones(d)])
    bounds = [(0.0, 1.0)] * labels + [(0.0, None)] * d
    found = linprog(cost, A_ub=table, b_ub=np.concatenate([r, -r]), bounds=bounds, method="highs")
    if found.status != 0:
        raise ValueError(f"the linear program of compressed row {row} failed: {found.message}")
    return found.x[:labels]


def matching_pursuit(compressed: Any, projection: Any, levels: Any) -> Pursuit:
    """Return the pursuit of each row: greedy on |a_j.residual| / |a_j|, least squares on the support.

    A row stops at its level or where nothing is left of it; r = 0 has an empty support.

    Parameters
    ----------
    compressed : (row, measurement)
    projection : (measurement, labels)
    levels : int (row,) or int
        Ones at most, at least 0.

    Notes
    -----
    One compiled loop for all rows: level x measurement x labels flops a row.

    Raises
    ------
    ValueError
        As `read_rows`, or for levels that are not integers of at least 0.
    """
    R, A = read_rows(compressed, projection)
    steps = read_levels(levels, len(R), least=0)
    most = int(min(steps.max(initial=0), *A.shape))
    if not most or not len(R):
        return Pursuit(np.zeros((len(R), A.shape[1])), np.zeros((len(R), A.shape[1]), bool))
    with jax.enable_x64(True):
        found = pursue(jnp.asarray(R), jnp.asarray(A), jnp.asarray(steps), most)
        return Pursuit(*(np.asarray(part) for part in found))


@partial(jax.jit, static_argnums=3)
def pursue(R: JaxArray, A: JaxArray, levels: JaxArray, most: int) -> tuple[JaxArray, JaxArray]:
    """Return coefficients and support (row, labels); pure, `most` static and at least 1."""
    return jax.vmap(lambda r, level: _pursue_row(r, A, level, most))(R, levels)


def _pursue_row(r: JaxArray, A: JaxArray, level: JaxArray, most: int) -> tuple[JaxArray, JaxArray]:
    """Grow an orthonormal basis Q of the support's columns, A_S = Q T, so that c = T^-1 Q' r."""
    d, labels = A.shape
    norms = jnp.sqrt((A**2).sum(0))
    scale = jnp.where(norms > 0, norms, 1.0)
    least = ZERO * jnp.sqrt(r @ r)

    def step(k: JaxArray, state: Any) -> Any:
        Q, T, support, rest, chosen = state
        score = jnp.where(chosen | (norms == 0), -1.0, jnp.abs(rest @ A) / scale)
        j = jnp.argmax(score)
        a = A[:, j]
        first = Q.T @ a
        left = a - Q @ first
        second = Q.T @ left
        # Orthogonalised twice: once leaves an error of the size of the cancellation.
        left = left - Q @ second
        size = jnp.sqrt(left @ left)
        go = (k < level) & (jnp.sqrt(rest @ rest) > least) & (size > ZERO * scale[j])
        q = jnp.where(go, left / jnp.where(size > 0, size, 1.0), 0.0)
        column = jnp.where(go, (first + second).at[k].set(size), T[:, k])
        return (
            Q.at[:, k].set(q),
            T.at[:, k].set(column),
            support.at[k].set(jnp.where(go, j, labels)),
            rest - q * (q @ rest),
            chosen.at[j].set(chosen[j] | go),
        )

    start = (
        jnp.zeros((d, most), A.dtype),
        jnp.eye(most, dtype=A.dtype),
        jnp.full(most, labels),
        r,
        jnp.zeros(labels, bool),
    )
    Q, T, support, _, chosen = lax.fori_loop(0, most, step, start)
    c = jax.scipy.linalg.solve_triangular(T, Q.T @ r, lower=False)
    return jnp.zeros(labels, A.dtype).at[support].set(c, mode="drop"), chosen


def read_levels(levels: Any, rows: int, least: int = 1) -> Array:
    """Return int levels (row,); ValueError where they are not integers of at least `least`."""
    given = np.asarray(levels)
    if given.dtype.kind not in "iu" or given.shape not in ((), (rows,)):
        raise ValueError(f"levels must be one int or {rows} of them, got {given.dtype} of {given.shape}")
    if (given < least).any():
        raise ValueError(f"levels must be at least {least}, got {given.min()}")
    return np.broadcast_to(given.astype(np.int64), (rows,))
