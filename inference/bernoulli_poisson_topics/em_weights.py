"""The weight step of EM: five ways to raise a negative-binomial log likelihood; none can lower it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve

from labelzoo.inference.bernoulli_poisson_topics.em_data import (
    EMData,
    times,
    transposed_times,
    weighted_gram,
)
from labelzoo.inference.bernoulli_poisson_topics.em_state import EMConfig, EMState
from labelzoo.inference.bernoulli_poisson_topics.fast_functions import soft_plus
from labelzoo.inference.polya_gamma import mean as polya_gamma_mean

Array = Any


def prior_precision(weights: Array, data: EMData, config: EMConfig) -> Array:
    """Return the fixed precisions, or their posterior mean (a + K/2) / (b + sum_k w_kd^2 / 2) given W."""
    if config.precision_prior is None:
        return data.precision
    a, b = config.precision_prior
    return (a + weights.shape[1] / 2) / (b + (weights**2).sum(axis=1) / 2)


def polya_gamma_terms(state: EMState) -> tuple[Array, Array, Array | None]:
    """Return omega = E PG(M + r, psi + log s), kappa - omega log s, and where s > 0 (None: everywhere).

    Rows without observed labels have omega and target zero.
    """
    log_mass: Any = state.log_mass
    active = None if log_mass is None else jnp.isfinite(log_mass)
    offset = 0.0 if active is None else jnp.where(active, log_mass, 0.0)
    omega = polya_gamma_mean(state.row_counts + state.shape, state.psi + offset)
    target = 0.5 * (state.row_counts - state.shape) - omega * offset
    if active is None:
        return omega, target, None
    return jnp.where(active, omega, 0.0), jnp.where(active, target, 0.0), active


def update_weights(state: EMState, data: EMData, config: EMConfig) -> EMState:
    """Raise sum M psi - (M + r) softplus(psi + log s) - sum tau w^2 / 2 by its Polya-Gamma quadratic.

    omega = E PG(M + r, psi + log s), kappa = (M - r)/2, (X' Omega X + diag tau) w = X'(kappa - omega log s)
    (eqs. 15-16, with the offset of missing labels). The quadratic touches the objective at the current w and
    lies below it elsewhere, so conjugate-gradient steps that *start there* cannot lower it.
    """
    omega, target, active = polya_gamma_terms(state)
    tau = prior_precision(state.weights, data, config)
    if config.w_step == "exact":
        weights = exact_weights(data, omega, target, tau)
        return state._replace(weights=weights, psi=times(data, weights))
    if config.w_step in ("newton", "newton_preconditioned"):
        return newton_weights(state, data, omega, tau, active, config)
    if config.w_step == "cg":
        weights, psi = conjugate_gradient_weights(data, omega, target, tau, state, config.cg_steps)
    else:
        limits = (config.cg_steps, config.cg_tolerance)
        weights, psi, _ = preconditioned_weights(data, omega, target, tau, state, limits)
    return state._replace(weights=weights, psi=psi)


def exact_weights(data: EMData, omega: Array, target: Array, tau: Array) -> Array:
    """Solve (X' Omega_k X + diag tau) w_k = X' target_k topic by topic: (feature, topic).

    One (feature, feature) matrix is held at a time; for dense X with fewer rows, one (obs, obs) matrix.
    """
    if data.X is not None:
        return solve_weights(data.X, omega, target, tau)
    right = transposed_times(data, target)

    def one(args: tuple[Array, Array]) -> Array:
        weight, column = args
        return cho_solve(cho_factor(weighted_gram(data, weight) + jnp.diag(tau)), column)

    return jax.lax.map(one, (omega.T, right.T)).T


def solve_weights(X: Array, omega: Array, target: Array, tau: Array) -> Array:
    """Solve (X' Omega_k X + diag tau) w_k = X' target_k topic by topic, in the smaller of (obs, feature)."""
    num_obs, num_features = X.shape

    def by_features(args: tuple[Array, Array]) -> Array:
        weight, right = args
        return cho_solve(cho_factor((X * weight[:, None]).T @ X + jnp.diag(tau)), X.T @ right)

    def by_rows(args: tuple[Array, Array]) -> Array:
        # w = T^-1 X' (I + Omega G)^-1 z, G = X T^-1 X'.
        weight, right = args
        root = jnp.sqrt(weight)
        inner = jnp.eye(num_obs, dtype=X.dtype) + root[:, None] * gram * root
        return scaled.T @ (right - root * cho_solve(cho_factor(inner), root * (gram @ right)))

    if num_features <= num_obs:
        return jax.lax.map(by_features, (omega.T, target.T)).T
    scaled = X / tau
    gram = scaled @ X.T
    return jax.lax.map(by_rows, (omega.T, target.T)).T


def conjugate_gradients(
    data: EMData, curvature: Array, tau: Array, residual: Array, steps: int
) -> tuple[Array, Array]:
    """Solve (X' diag(curvature_k) X + diag tau) d_k = residual_k from zero; return d and X d.

    `tau` is (feature,), or (feature, topic). All topics at once; `steps` steps cost 2 `steps` - 1 products
    with X: 4 N D K `steps` flops with that of the residual, or 4 (entries of X that are not zero) K `steps`.
    """
    prior = tau if tau.ndim == 2 else tau[:, None]
    direction, square = residual, (residual**2).sum(axis=0)
    solution, image = jnp.zeros_like(residual), jnp.zeros_like(curvature)
    for step in range(steps):
        along = times(data, direction)
        bent = curvature * along
        quadratic = (bent * along).sum(axis=0) + (prior * direction**2).sum(axis=0)
        length = _ratio(square, quadratic)
        solution, image = solution + length * direction, image + length * along
        if step + 1 < steps:
            residual = residual - length * (transposed_times(data, bent) + prior * direction)
            new = (residual**2).sum(axis=0)
            direction, square = residual + _ratio(new, square) * direction, new
    return solution, image


def _ratio(above: Array, below: Array) -> Array:
    positive = below > 0
    return jnp.where(positive, above / jnp.where(positive, below, 1.0), 0.0)


Solve = Callable[[Array], Array]

_MARGIN = 0.2
"""The norm of the system may understate the error of the weights by some factor: stop at a fifth."""

PRECONDITIONED_STEPS = 200
"""Upper limit of preconditioned steps; about 8 are needed from zero, fewer from the weights before."""


def shared_preconditioner(data: EMData, curvature: Array, tau: Array) -> Solve:
    """Return the solver of X' diag(mean over topics of the curvature) X + diag tau: one Cholesky for all."""
    factor = cho_factor(weighted_gram(data, curvature.mean(axis=1)) + jnp.diag(tau))
    return lambda right: cho_solve(factor, right)


def _inner(solve: Solve, residual: Array) -> Array:
    """Return r' S^-1 r, the squared length that a residual has with the preconditioner S: (topic,)."""
    return (residual * solve(residual)).sum(axis=0)


def preconditioned_gradients(
    data: EMData,
    curvature: Array,
    tau: Array,
    residual: Array,
    solve: Solve,
    scale: Array,
    limits: tuple[int, float],
) -> tuple[Array, Array, Array]:
    """Solve (X' diag(curvature_k) X + diag tau) d_k = residual_k from zero; return d, X d and the steps.

    With S the shared matrix, r' S^-1 r stands for the squared error in the norm of the system. The steps go
    on until it is below (tolerance)^2 `scale` in every topic. From any start the quadratic falls at each
    step, as in plain conjugate gradients.

    Parameters
    ----------
    scale : array (topic,)
        r' S^-1 r of what the error is measured against: the right-hand side for an error relative to the
        solution.
    limits : (int, float)
        The fewest steps, so that the sweeps never stand still, and the tolerance.
    """
    fewest, tolerance = limits[0], _MARGIN * limits[1]
    prior = tau[:, None]

    def unfinished(carry: tuple[Array, ...]) -> Array:
        step, square = carry[0], carry[3]
        open_ = (square > tolerance**2 * scale).any() & (step < PRECONDITIONED_STEPS)
        return (step < fewest) | open_

    def advance(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        step, left, direction, square, solution, image = carry
        along = times(data, direction)
        bent = curvature * along
        length = _ratio(square, (bent * along).sum(axis=0) + (prior * direction**2).sum(axis=0))
        left = left - length * (transposed_times(data, bent) + prior * direction)
        guess = solve(left)
        new = (left * guess).sum(axis=0)
        return (
            step + 1,
            left,
            guess + _ratio(new, square) * direction,
            new,
            solution + length * direction,
            image + length * along,
        )

    guess = solve(residual)
    start = (residual * guess).sum(axis=0)
    carry = (jnp.asarray(0), residual, guess, start, jnp.zeros_like(residual), jnp.zeros_like(curvature))
    step, *_, solution, image = jax.lax.while_loop(unfinished, advance, carry)
    return solution, image, step


def _quadratic_residual(data: EMData, omega: Array, target: Array, tau: Array, state: EMState) -> Array:
    return transposed_times(data, target - omega * state.psi) - tau[:, None] * state.weights


def conjugate_gradient_weights(
    data: EMData, omega: Array, target: Array, tau: Array, state: EMState, steps: int
) -> tuple[Array, Array]:
    """Take `steps` steps on the Polya-Gamma quadratic from the weights of `state`; return them and X w."""
    residual = _quadratic_residual(data, omega, target, tau, state)
    change, image = conjugate_gradients(data, omega, tau, residual, steps)
    return state.weights + change, state.psi + image


def preconditioned_weights(
    data: EMData, omega: Array, target: Array, tau: Array, state: EMState, limits: tuple[int, float]
) -> tuple[Array, Array, Array]:
    """Solve the Polya-Gamma quadratic from the weights of `state`; return them, X w and the steps taken.

    `limits` are those of `preconditioned_gradients`; the tolerance is relative to the solution. In float32
    the residual that the steps carry along loses its digits: it is computed anew where they end, and what is
    left is solved for as well.
    """
    solve = shared_preconditioner(data, omega, tau)
    scale = _inner(solve, transposed_times(data, target))

    def solved(at: EMState, limits: tuple[int, float]) -> tuple[EMState, Array]:
        residual = _quadratic_residual(data, omega, target, tau, at)
        change, image, steps = preconditioned_gradients(data, omega, tau, residual, solve, scale, limits)
        return at._replace(weights=at.weights + change, psi=at.psi + image), steps

    state, steps = solved(state, limits)
    if omega.dtype == jnp.float32:
        state, more = solved(state, (0, limits[1]))
        steps = steps + more
    return state.weights, state.psi, steps


def newton_weights(
    state: EMState, data: EMData, omega: Array, tau: Array, active: Array | None, config: EMConfig
) -> EMState:
    """Move along conjugate-gradient steps on the true curvature, never less far up than is safe.

    Where a label is rare the Polya-Gamma quadratic is far too curved: b tanh(c/2)/(2c) against
    b p (1 - p), 30 times at p = .0025, and its steps crawl. Here the direction d solves the Newton system; of
    its length 1 and the length that maximises the Polya-Gamma quadratic along d, which cannot lower the
    objective, each topic takes the one that gains more. No further product with X.
    """
    offset = 0.0 if state.log_mass is None else state.log_mass
    logit = state.psi + offset
    if active is not None:
        logit = jnp.where(active, logit, -jnp.inf)
    b, prob = state.row_counts + state.shape, jax.nn.sigmoid(logit)
    prior = tau[:, None]
    residual = transposed_times(data, state.row_counts - b * prob) - prior * state.weights
    change, image = _newton_direction(data, b * prob * (1.0 - prob), tau, residual, config)
    safe = _ratio(
        (residual * change).sum(axis=0), (omega * image**2).sum(axis=0) + (prior * change**2).sum(axis=0)
    )

    def gain(length: Array) -> Array:
        rise = soft_plus(logit + length * image) - soft_plus(logit)
        moved = (prior * change * (state.weights + 0.5 * length * change)).sum(axis=0)
        return (length * state.row_counts * image - b * rise).sum(axis=0) - length * moved

    length = jnp.where(gain(jnp.ones_like(safe)) >= gain(safe), 1.0, safe)
    return state._replace(weights=state.weights + length * change, psi=state.psi + length * image)


def _newton_direction(
    data: EMData, curvature: Array, tau: Array, residual: Array, config: EMConfig
) -> tuple[Array, Array]:
    if config.w_step == "newton":
        return conjugate_gradients(data, curvature, tau, residual, config.cg_steps)
    solve = shared_preconditioner(data, curvature, tau)
    limits = (config.cg_steps, config.cg_tolerance)
    scale = _inner(solve, residual)
    return preconditioned_gradients(data, curvature, tau, residual, solve, scale, limits)[:2]
