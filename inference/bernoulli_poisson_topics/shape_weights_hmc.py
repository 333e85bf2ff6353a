"""The step on gamma shapes and regression weights, embedding integrated out: one short HMC run a topic.

With u_nk out, the arrivals of topic k in row n are negative binomial (before eq. 14 of Rai et al. 2015) with
exposure s_nk, and the topics are independent. Per topic, with c_n = psi_n + log s_n,

    log p(r, w) = sum_j n_j log(r + j) + sum_n [m_n c_n - (m_n + r) log(1 + e^c_n)]
                  + (e0 - 1) log r - f0 r - w' diag(tau) w / 2,

where n_j counts the rows with m_n > j: lgamma(m + r) - lgamma(r) = sum_{j < m} log(r + j) asks for no special
function. HMC moves theta = (w, log r), whose density has one more factor r. Its mass is the negative Hessian,
averaged over states of the warm-up and then fixed.

Cost a step: (LEAPFROGS + 1) x rows x topics x (4 features + ~40) flops, and (LEAPFROGS + 1) x 16 bytes x rows
x topics read; the mass adds 4 topics x (features + 1)^2 flops a leapfrog.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from labelzoo.inference.bernoulli_poisson_topics.starts_mcmc import (
    Array,
    Inputs,
    State,
    precision_of,
    shape_of,
)

LEAPFROGS = 4
STEP = 0.6
STEP_RANGE = (0.6, 1.2)
STEP_DIMENSIONS = 20
MAX_DENSE_MASS = 1 << 22
POWER_STEPS = 12
MIN_CURVATURE = 0.25


class Target(NamedTuple):
    """What the target reads.

    Attributes
    ----------
    X : (obs, feature)
    counts : m, (obs, topic)
    offset : log s, (obs, topic); hugely negative in rows without observed labels, which then add nothing
    tail : number of rows with m > j, (topic, largest count)
    linear : X'm, (topic, feature)
    precision : tau, (feature,)
    prior : (e0, f0) of the shapes, None where the settings fix them
    """

    X: Array
    counts: Array
    offset: Array
    tail: Array
    linear: Array
    precision: Array
    prior: tuple[float, float] | None


def build_target(counts: Array, exposure: Array, state: State, inputs: Inputs) -> Target:
    """Collect the sums of the data that the target needs.

    Parameters
    ----------
    counts, exposure : arrays (obs, topic)
        m and s.
    """
    X = inputs["X"]
    # Finite, so that 0 * offset is 0; its softplus and sigmoid are exactly 0.
    offset = jnp.where(exposure > 0, jnp.log(jnp.where(exposure > 0, exposure, 1.0)), -1e30)
    tail = rows_above(counts, largest_row(inputs))
    prior = None if inputs["shape"] is not None else inputs["shape_prior"]
    return Target(X, counts, offset, tail, counts.T @ X, precision_of(state, inputs), prior)


def largest_row(inputs: Inputs) -> int:
    """Return the number of positives of the fullest row (of labels, where it is not known before tracing)."""
    row = inputs["positives"].row
    if isinstance(row, jax.core.Tracer):
        return int(inputs["num_labels"])
    return int(np.bincount(np.asarray(row)).max(initial=1)) if row.shape[0] else 1


def rows_above(counts: Array, size: int) -> Array:
    """Return the number of rows with counts above j = 0, ..., size - 1: (topic, size)."""
    topic = jnp.arange(counts.shape[1])
    exact = jnp.zeros((counts.shape[1], size + 1), counts.dtype).at[topic, counts.astype(jnp.int32)].add(1.0)
    return jnp.cumsum(exact[:, ::-1], axis=1)[:, ::-1][:, 1:]


def log_density_and_gradient(theta: Array, target: Target, fixed_shape: Array) -> tuple[Array, Array]:
    """Return the log density of theta = (w, log r), (topic,), and its gradient, (topic, feature + 1).

    Where the shapes are fixed, the last coordinate is ignored and its gradient 0.
    """
    w, log_r = theta[:, :-1], theta[:, -1]
    r = fixed_shape if target.prior is None else jnp.exp(log_r)
    shifted = r[:, None] + jnp.arange(target.tail.shape[1], dtype=theta.dtype)
    logit = target.X @ w.T + target.offset
    small = jnp.exp(-jnp.abs(logit))
    # log(1 + x) and not log1p: the sum needs no relative digits, and log1p is ten times slower in XLA.
    softplus = jnp.maximum(logit, 0.0) + jnp.log(1.0 + small)
    odds = jnp.where(logit >= 0, 1.0, small) / (1.0 + small)
    weight = target.counts + r
    value = (target.tail * jnp.log(shifted)).sum(axis=1) - 0.5 * (w**2 @ target.precision)
    value = value + (target.counts * logit - weight * softplus).sum(axis=0)
    slope = target.linear - (weight * odds).T @ target.X - w * target.precision
    if target.prior is None:
        return value, jnp.concatenate([slope, jnp.zeros_like(log_r)[:, None]], axis=1)
    e0, f0 = target.prior
    value = value + e0 * log_r - f0 * r
    slope_r = r * ((target.tail / shifted).sum(axis=1) - softplus.sum(axis=0) - f0) + e0
    return value, jnp.concatenate([slope, slope_r[:, None]], axis=1)


def information(theta: Array, target: Target, fixed_shape: Array) -> Array:
    """Return the negative Hessian at theta: (topic, feature + 1, feature + 1), or its scaled diagonal.

    The diagonal, (topic, feature + 1), replaces a matrix of more than `MAX_DENSE_MASS` entries; it is
    multiplied by the largest eigenvalue of the diagonally scaled Hessian, so that the steps stay stable.
    """
    w = theta[:, :-1]
    r = fixed_shape if target.prior is None else jnp.exp(theta[:, -1])
    odds = jax.nn.sigmoid(target.X @ w.T + target.offset)
    curvature = (target.counts + r) * odds * (1.0 - odds)
    cross, corner = _shape_curvature(r, odds, theta, target)
    if theta.shape[0] * theta.shape[1] ** 2 > MAX_DENSE_MASS:
        return _scaled_diagonal(curvature, corner, target)
    block = jnp.einsum("nd,nk,ne->kde", target.X, curvature, target.X, optimize=[(0, 1), (0, 1)])
    block = block + jnp.diag(target.precision)
    left = jnp.concatenate([block, cross[:, None, :]], axis=1)
    return jnp.concatenate([left, jnp.concatenate([cross, corner[:, None]], axis=1)[:, :, None]], axis=2)


def _shape_curvature(r: Array, odds: Array, theta: Array, target: Target) -> tuple[Array, Array]:
    """Return the row of log r of the negative Hessian: (topic, feature) and (topic,)."""
    if target.prior is None:
        return jnp.zeros_like(theta[:, :-1]), jnp.ones_like(r)
    shifted = r[:, None] + jnp.arange(target.tail.shape[1], dtype=r.dtype)
    logit = target.X @ theta[:, :-1].T + target.offset
    first = (target.tail / shifted).sum(axis=1) - jax.nn.softplus(logit).sum(axis=0) - target.prior[1]
    second = (target.tail / shifted**2).sum(axis=1)
    return (r * odds).T @ target.X, r**2 * second - r * first


def _scaled_diagonal(curvature: Array, corner: Array, target: Target) -> Array:
    diagonal = curvature.T @ target.X**2 + target.precision
    root = jax.lax.rsqrt(diagonal)

    def power(_: Any, vector: Array) -> Array:
        scaled = vector / jnp.linalg.norm(vector, axis=1, keepdims=True) * root
        image = (curvature * (target.X @ scaled.T)).T @ target.X + target.precision * scaled
        return root * image

    start = jnp.ones_like(diagonal)
    largest = jnp.linalg.norm(jax.lax.fori_loop(0, POWER_STEPS, power, start), axis=1, keepdims=True)
    last = jnp.maximum(jnp.abs(corner), MIN_CURVATURE)[:, None]
    return jnp.concatenate([diagonal * jnp.maximum(largest, 1.0), last], axis=1)


def whitening_of(info: Array, learned: bool) -> Array:
    """Return A with A A' = M^-1 for the mass M nearest to `info` that is positive definite.

    The block of w is positive definite by itself; only the last pivot, the curvature of log r given w, can
    be negative, and is replaced by its absolute value, at least `MIN_CURVATURE`. Where the shapes are
    fixed the last coordinate gets A = 0 and does not move.
    """
    moves = 1.0 if learned else 0.0
    if info.ndim == 2:
        return jax.lax.rsqrt(info).at[:, -1].multiply(moves)
    factor = jnp.linalg.cholesky(info[:, :-1, :-1])
    row = solve_triangular(factor, info[:, :-1, -1:], lower=True)[..., 0]
    pivot = jnp.sqrt(jnp.maximum(jnp.abs(info[:, -1, -1] - (row**2).sum(axis=1)), MIN_CURVATURE))
    whole = jnp.zeros_like(info).at[:, :-1, :-1].set(factor).at[:, -1, :-1].set(row).at[:, -1, -1].set(pivot)
    identity = jnp.broadcast_to(jnp.eye(info.shape[-1], dtype=info.dtype), info.shape)
    inverse = solve_triangular(whole, identity, lower=True, trans=1)
    return inverse.at[:, -1, :].multiply(moves)


def _whiten(matrix: Array, vector: Array, transpose: bool) -> Array:
    if matrix.ndim == 2:
        return matrix * vector
    return jnp.einsum("kji,kj->ki" if transpose else "kij,kj->ki", matrix, vector)


def hmc_step(
    key: Array, theta: Array, whitening: Array, target: Target, fixed_shape: Array
) -> tuple[Array, Array]:
    """Make one HMC step for every topic, each with its own accept.

    Parameters
    ----------
    theta : (topic, feature + 1)
        (w, log r).
    whitening : (topic, feature + 1, feature + 1) or (topic, feature + 1)
        A of `whitening_of`: M = (A A')^-1.

    Returns
    -------
    theta (topic, feature + 1), acceptance probabilities (topic,)
    """
    momentum_key, step_key, accept_key = jax.random.split(key, 3)
    size = STEP * min(1.0, (STEP_DIMENSIONS / theta.shape[1]) ** 0.25)
    low, high = STEP_RANGE
    step = size * jax.random.uniform(step_key, (theta.shape[0], 1), theta.dtype, low, high)
    momentum = jax.random.normal(momentum_key, theta.shape, theta.dtype)
    before, slope = log_density_and_gradient(theta, target, fixed_shape)
    half = momentum + 0.5 * step * _whiten(whitening, slope, True)

    def leap(state: tuple[Array, ...], _: None) -> tuple[tuple[Array, ...], None]:
        at, half, _, _ = state
        at = at + step * _whiten(whitening, half, False)
        value, slope = log_density_and_gradient(at, target, fixed_shape)
        push = step * _whiten(whitening, slope, True)
        return (at, half + push, value, push), None

    start = (theta, half, before, jnp.zeros_like(half))
    (proposed, half, after, push), _ = jax.lax.scan(leap, start, length=LEAPFROGS)
    final = half - 0.5 * push
    gain = after - before + 0.5 * ((momentum**2).sum(axis=1) - (final**2).sum(axis=1))
    probability = jnp.where(jnp.isfinite(gain), jnp.exp(jnp.minimum(gain, 0.0)), 0.0)
    accepted = jax.random.uniform(accept_key, gain.shape, gain.dtype) < probability
    return jnp.where(accepted[:, None], proposed, theta), probability


def theta_of(state: State, inputs: Inputs) -> Array:
    """Return (w, log r): (topic, feature + 1)."""
    return jnp.concatenate([state["weights"], jnp.log(shape_of(state, inputs))[:, None]], axis=1)


def shape_and_weights_target(
    counts: Array, exposure: Array, state: State, inputs: Inputs
) -> Callable[[Mapping[str, Any]], Array]:
    """Return ``log_density(block)``: the log density of ``shape`` and ``weights`` given (m, s, tau).

    A density in r, not in log r; up to a constant. With fixed shapes `block` holds ``weights`` alone.
    """
    target = build_target(counts, exposure, state, inputs)

    def log_density(block: Mapping[str, Any]) -> Array:
        r = shape_of(block, inputs)
        theta = jnp.concatenate([jnp.asarray(block["weights"]), jnp.log(r)[:, None]], axis=1)
        value, _ = log_density_and_gradient(theta, target, r)
        return (value if target.prior is None else value - theta[:, -1]).sum()

    return log_density


def shape_and_weights_move(
    key: Array, counts: Array, exposure: Array, whitening: Array, state: State, inputs: Inputs
) -> dict[str, Array]:
    """Return `state` after one HMC step: ``shape``, ``weights`` and ``hmc_acceptance`` (topic,) are new."""
    target = build_target(counts, exposure, state, inputs)
    theta, accept = hmc_step(key, theta_of(state, inputs), whitening, target, shape_of(state, inputs))
    moved = {**state, "weights": theta[:, :-1], "hmc_acceptance": accept}
    return moved if target.prior is None else {**moved, "shape": jnp.exp(theta[:, -1])}


def information_at(counts: Array, exposure: Array, state: State, inputs: Inputs) -> Array:
    """Return `information` at a state's (w, log r), given its (m, s)."""
    target = build_target(counts, exposure, state, inputs)
    return information(theta_of(state, inputs), target, shape_of(state, inputs))


def reference_whitening(counts: Array, exposure: Array, state: State, inputs: Inputs) -> Array:
    """Return the whitening at w = 0 and the prior mean of r: a function of what the block is given alone."""
    r = shape_of({"shape": jnp.full(inputs["num_topics"], _prior_mean(inputs))}, inputs)
    at = {**state, "weights": jnp.zeros_like(state["weights"]), "shape": r}
    return whitening_of(information_at(counts, exposure, at, inputs), inputs["shape"] is None)


def _prior_mean(inputs: Inputs) -> float:
    e0, f0 = inputs["shape_prior"]
    return float(e0 / f0)
