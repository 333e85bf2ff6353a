"""Cholesky factors that never turn into silent NaN, Gaussian draws, conjugate gradients."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import cho_solve, solve_triangular

from labelzoo.inference.stable import as_floats

MAX_ESCALATIONS = 5
# Above this many cells of the batched weighted features (topic, obs, feature), topics go one by one.
MAX_BATCHED_CELLS = 1 << 24


class JitteredCholesky(NamedTuple):
    """Lower factor (..., D, D), jitter added to the diagonal (...), number of escalations (...)."""

    factor: Array
    jitter: Array
    escalations: Array


class SolverResult(NamedTuple):
    """Approximate solution and its residual rhs - A x, both shaped like the right-hand sides."""

    solution: Array
    residual: Array


def jitter_ladder(dtype: Any) -> np.ndarray:
    """Return the jitters over the mean diagonal: 0, then 1e-12 to 1e-4 (1e-6 to 1e-2 in float32)."""
    steps = np.arange(MAX_ESCALATIONS)
    rungs = 1e-12 * 100.0**steps if jnp.finfo(dtype).bits == 64 else 1e-6 * 10.0**steps
    return np.concatenate([[0.0], rungs])


def cholesky_with_jitter(matrix: Any) -> JitteredCholesky:
    """Factor A + jitter I with the smallest jitter of the ladder that works; pure, for use under ``jit``.

    The first attempt adds exactly nothing. The jitter is relative to the mean diagonal of each matrix.
    Gradients hold the jitter fixed.

    Parameters
    ----------
    matrix : array, shape (..., D, D)
        Symmetric matrices.

    Returns
    -------
    JitteredCholesky
        Where even the last rung fails, ``escalations`` is ``MAX_ESCALATIONS + 1`` and the factor all NaN:
        callers outside ``jit`` should take ``checked_cholesky``.
    """
    return JitteredCholesky(*_escalating_cholesky(as_floats(matrix)[0]))


@jax.custom_jvp
def _escalating_cholesky(matrix: Array) -> tuple[Array, Array, Array]:
    scale = jnp.trace(matrix, axis1=-2, axis2=-1) / matrix.shape[-1]
    ladder = jnp.asarray(jitter_ladder(matrix.dtype), matrix.dtype)
    identity = jnp.eye(matrix.shape[-1], dtype=matrix.dtype)

    def failed(factor: Array) -> Array:
        return ~jnp.isfinite(factor).all((-2, -1))

    def unfinished(state: tuple[Array, Array]) -> Array:
        factor, level = state
        return jnp.any(failed(factor) & (level <= MAX_ESCALATIONS))

    def escalate(state: tuple[Array, Array]) -> tuple[Array, Array]:
        factor, level = state
        bad = failed(factor)
        level = jnp.where(bad, level + 1, level)
        jitter = ladder[jnp.minimum(level, MAX_ESCALATIONS)] * scale
        retried = jnp.linalg.cholesky(matrix + jitter[..., None, None] * identity)
        return jnp.where(bad[..., None, None], retried, factor), level

    start = (jnp.linalg.cholesky(matrix), jnp.zeros(scale.shape, int))
    factor, level = jax.lax.while_loop(unfinished, escalate, start)
    factor = jnp.where(failed(factor)[..., None, None], jnp.nan, factor)
    return factor, ladder[jnp.minimum(level, MAX_ESCALATIONS)] * scale, level


@_escalating_cholesky.defjvp
def _escalating_cholesky_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Any, Any]:
    """Differentiate the factor alone: dL = L phi(L^-1 dA L'^-1), phi the lower half, half the diagonal."""
    factor, jitter, level = _escalating_cholesky(*primals)
    (change,) = tangents
    symmetric = (change + jnp.swapaxes(change, -1, -2)) / 2
    half = solve_triangular(factor, symmetric, lower=True)
    inner = solve_triangular(factor, jnp.swapaxes(half, -1, -2), lower=True)
    lower = jnp.tril(inner) - jnp.eye(inner.shape[-1], dtype=inner.dtype) * inner / 2
    no_change = np.zeros(level.shape, jax.dtypes.float0)
    return (factor, jitter, level), (factor @ lower, jnp.zeros_like(jitter), no_change)


def checked_cholesky(matrix: Any, *, name: str) -> JitteredCholesky:
    """Factor outside ``jit``, with an error instead of NaN.

    Parameters
    ----------
    matrix : array, shape (..., D, D)
        Symmetric matrices.
    name : str
        Site or quantity that the error names.

    Raises
    ------
    ValueError
        If ``matrix`` is not square, has NaN or infinite entries, is not symmetric, or is not positive
        definite even with the last jitter.
    """
    (matrix,) = as_floats(matrix)
    if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2]:
        raise ValueError(f"{name}: a square matrix is needed, got shape {matrix.shape}")
    if not bool(jnp.isfinite(matrix).all()):
        raise ValueError(f"{name}: the matrix has NaN or infinite entries")
    skew = float(jnp.abs(matrix - jnp.swapaxes(matrix, -1, -2)).max(initial=0.0))
    if skew > 1e3 * float(jnp.finfo(matrix.dtype).eps) * float(jnp.abs(matrix).max(initial=0.0)):
        raise ValueError(f"{name}: the matrix is not symmetric (largest difference {skew:.3g})")
    result = cholesky_with_jitter(matrix)
    failures = np.argwhere(np.asarray(result.escalations) > MAX_ESCALATIONS)
    if len(failures):
        where = f" at batch index {tuple(int(i) for i in failures[0])}" if matrix.ndim > 2 else ""
        last = jitter_ladder(matrix.dtype)[-1]
        raise ValueError(
            f"{name}: not positive definite{where}, even with {last:.0e} of the mean diagonal added "
            f"({MAX_ESCALATIONS} escalations)"
        )
    return result


def draw_gaussian_natural(
    key: Array,
    features: Any,
    omega: Any,
    potential: Any,
    tau: Any,
    *,
    method: Literal["auto", "precision", "woodbury"] = "auto",
) -> Array:
    """Draw w_k ~ N(P_k^-1 d_k, P_k^-1) with P_k = X' diag(omega_k) X + diag(tau), for every topic k.

    The weights of a Polya-Gamma augmented regression (Polson, Scott and Windle 2013). "precision" factors P,
    O(N D^2 + D^3) a topic; "woodbury" never forms a (D, D) matrix, O(N^2 D + N^3) a topic (Bhattacharya,
    Chakraborty and Mallick 2016, arranged so that nothing is divided by omega, which may underflow to 0).

    Parameters
    ----------
    key : Array
        Typed JAX key.
    features : array, shape (N, D)
        X.
    omega : array, shape (N,) or (K, N)
        Non-negative weights.
    potential : array, shape (D,) or (K, D)
        d, the linear coefficient.
    tau : array, shape (), (D,) or (K, D)
        Prior precisions, positive.
    method : {"auto", "precision", "woodbury"}
        "auto" takes "woodbury" where D > N.

    Returns
    -------
    Array, shape (D,) or (K, D)
        NaN for a topic whose matrix is not positive definite.

    Raises
    ------
    ValueError
        If a shape does not fit or ``method`` is unknown.
    """
    features, omega, potential, tau = as_floats(features, omega, potential, tau)
    if method not in ("auto", "precision", "woodbury"):
        raise ValueError(f"method: expected 'auto', 'precision' or 'woodbury', got {method!r}")
    topics = _topics(features, omega, potential, tau)
    rows, columns = features.shape
    wide = method == "woodbury" or (method == "auto" and columns > rows)
    draw = _draw_by_woodbury if wide else _draw_by_precision
    if not topics:
        return draw(key, features, omega, potential, jnp.broadcast_to(tau, (columns,)))
    (number,) = topics
    inputs = (
        jax.random.split(key, number),
        jnp.broadcast_to(omega, (number, rows)),
        jnp.broadcast_to(potential, (number, columns)),
        jnp.broadcast_to(tau, (number, columns)),
    )
    together = max(1, MAX_BATCHED_CELLS // max(1, rows * columns))
    if together >= number:
        return jax.vmap(draw, (0, None, 0, 0, 0))(inputs[0], features, *inputs[1:])
    return jax.lax.map(lambda args: draw(args[0], features, *args[1:]), inputs, batch_size=together)


def _topics(features: Array, omega: Array, potential: Array, tau: Array) -> tuple[int, ...]:
    """Return (K,), or () for a single regression; ValueError where the shapes do not fit."""
    sizes = {"omega": omega.shape, "potential": potential.shape, "tau": tau.shape}
    if features.ndim != 2:
        raise ValueError(f"features: expected shape (N, D), got {features.shape}")
    expected = {"omega": features.shape[0], "potential": features.shape[1], "tau": features.shape[1]}
    for name, shape in sizes.items():
        scalar = name == "tau" and shape == ()
        if not scalar and (len(shape) not in (1, 2) or shape[-1] != expected[name]):
            raise ValueError(
                f"{name}: last axis of length {expected[name]} expected for features {features.shape}, "
                f"got shape {shape}"
            )
    topics = {shape[0] for shape in sizes.values() if len(shape) == 2}
    if len(topics) > 1:
        raise ValueError(f"unlike numbers of topics in {sizes}")
    return tuple(topics)


def _draw_by_precision(key: Array, features: Array, omega: Array, potential: Array, tau: Array) -> Array:
    """Draw w = L'^-1 (L^-1 d + z), P = L L'."""
    precision = (features * omega[:, None]).T @ features + jnp.diag(tau)
    factor = cholesky_with_jitter(precision).factor
    noise = jax.random.normal(key, potential.shape, potential.dtype)
    white = solve_triangular(factor, potential, lower=True) + noise
    return solve_triangular(factor, white, lower=True, trans=1)


def _draw_by_woodbury(key: Array, features: Array, omega: Array, potential: Array, tau: Array) -> Array:
    """Draw w = b - Delta F' (I + F Delta F')^-1 (F b + delta), b = g + Delta d, F = diag(sqrt omega) X.

    Here Delta = diag(1/tau), g ~ N(0, Delta), delta ~ N(0, I).
    """
    prior_key, noise_key = jax.random.split(key)
    scaled = jnp.sqrt(omega)[:, None] * features
    base = jax.random.normal(prior_key, tau.shape, tau.dtype) / jnp.sqrt(tau) + potential / tau
    inner = jnp.eye(len(omega), dtype=tau.dtype) + (scaled / tau) @ scaled.T
    factor = cholesky_with_jitter(inner).factor
    shift = scaled @ base + jax.random.normal(noise_key, omega.shape, omega.dtype)
    return base - scaled.T @ cho_solve((factor, True), shift) / tau


def conjugate_gradient(
    matvec: Callable[[Array], Array],
    rhs: Array,
    start: Array,
    steps: int,
    *,
    precondition: Callable[[Array], Array] | None = None,
) -> SolverResult:
    """Run a fixed number of conjugate-gradient steps on A x = b from a warm start, for many b at once.

    Each step lowers x'Ax/2 - b'x, so that any number of steps from the current weights is a valid generalised
    EM step (the W step of Rai et al. 2015, section 3.2); from a zero start it need not be.

    Parameters
    ----------
    matvec : callable
        Maps (..., D) to (..., D): one symmetric positive definite matrix for each leading index.
    rhs, start : Array, shape (..., D)
        Right-hand sides and current solutions.
    steps : int
        Number of steps; a converged system stays where it is.
    precondition : callable, optional
        Approximate inverse of ``matvec``, symmetric positive definite.

    Returns
    -------
    SolverResult
    """
    apply = (lambda x: x) if precondition is None else precondition

    def dot(a: Array, b: Array) -> Array:
        return (a * b).sum(-1, keepdims=True)

    def ratio(top: Array, bottom: Array) -> Array:
        some = bottom > 0
        return jnp.where(some, top / jnp.where(some, bottom, 1.0), 0.0)

    def step(_: Any, state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        solution, residual, direction, product = state
        image = matvec(direction)
        length = ratio(product, dot(direction, image))
        solution, residual = solution + length * direction, residual - length * image
        conditioned = apply(residual)
        new_product = dot(residual, conditioned)
        return solution, residual, conditioned + ratio(new_product, product) * direction, new_product

    residual = rhs - matvec(start)
    direction = apply(residual)
    state = (start, residual, direction, dot(residual, direction))
    solution, residual, _, _ = jax.lax.fori_loop(0, steps, step, state)
    return SolverResult(solution, residual)
