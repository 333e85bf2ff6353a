"""The weight step of EM: three ways to raise a negative-binomial log likelihood; none can lower it."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve

from labelzoo.inference.bernoulli_poisson_topics.em_data import EMData, times, transposed_times
from labelzoo.inference.bernoulli_poisson_topics.em_state import EMConfig, EMState
from labelzoo.inference.polya_gamma import mean as polya_gamma_mean

Array = Any


def prior_precision(weights: Array, data: EMData, config: EMConfig) -> Array:
    """Return the fixed precisions, or their posterior mean (a + K/2) / (b + sum_k w_kd^2 / 2) given W."""
    if config.precision_prior is None:
        return data.precision
    a, b = config.precision_prior
    return (a + weights.shape[1] / 2) / (b + (weights**2).sum(axis=1) / 2)


def update_weights(state: EMState, data: EMData, config: EMConfig) -> EMState:
    """Raise sum M psi - (M + r) softplus(psi + log s) - sum tau w^2 / 2 by its Polya-Gamma quadratic.

    omega = E PG(M + r, psi + log s), kappa = (M - r)/2, (X' Omega X + diag tau) w = X'(kappa - omega log s)
    (eqs. 15-16, with the offset of missing labels). The quadratic touches the objective at the current w and
    lies below it elsewhere, so conjugate-gradient steps that *start there* cannot lower it.
    """
    log_mass: Any = state.log_mass
    active = None if log_mass is None else jnp.isfinite(log_mass)
    offset = 0.0 if active is None else jnp.where(active, log_mass, 0.0)
    b = state.row_counts + state.shape
    omega = polya_gamma_mean(b, state.psi + offset)
    target = 0.5 * (state.row_counts - state.shape) - omega * offset
    if active is not None:
        omega, target = jnp.where(active, omega, 0.0), jnp.where(active, target, 0.0)
    tau = prior_precision(state.weights, data, config)
    if config.w_step == "exact":
        weights = solve_weights(data.X, omega, target, tau)
        return state._replace(weights=weights, psi=times(data, weights))
    if config.w_step == "newton":
        return newton_weights(state, data, omega, tau, active, config.cg_steps)
    weights, psi = conjugate_gradient_weights(data, omega, target, tau, state, config.cg_steps)
    return state._replace(weights=weights, psi=psi)


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

    All topics at once; `steps` steps cost 2 `steps` - 1 products with X: 4 N D K `steps` flops with that of
    the residual, or 4 (entries of X that are not zero) K `steps`.
    """
    prior, direction, square = tau[:, None], residual, (residual**2).sum(axis=0)
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


def conjugate_gradient_weights(
    data: EMData, omega: Array, target: Array, tau: Array, state: EMState, steps: int
) -> tuple[Array, Array]:
    """Take `steps` steps on the Polya-Gamma quadratic from the weights of `state`; return them and X w."""
    residual = transposed_times(data, target - omega * state.psi) - tau[:, None] * state.weights
    change, image = conjugate_gradients(data, omega, tau, residual, steps)
    return state.weights + change, state.psi + image


def newton_weights(
    state: EMState, data: EMData, omega: Array, tau: Array, active: Array | None, steps: int
) -> EMState:
    """Move along `steps` conjugate-gradient steps on the true curvature, never less far up than is safe.

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
    change, image = conjugate_gradients(data, b * prob * (1.0 - prob), tau, residual, steps)
    safe = _ratio(
        (residual * change).sum(axis=0), (omega * image**2).sum(axis=0) + (prior * change**2).sum(axis=0)
    )

    def gain(length: Array) -> Array:
        rise = jax.nn.softplus(logit + length * image) - jax.nn.softplus(logit)
        moved = (prior * change * (state.weights + 0.5 * length * change)).sum(axis=0)
        return (length * state.row_counts * image - b * rise).sum(axis=0) - length * moved

    length = jnp.where(gain(jnp.ones_like(safe)) >= gain(safe), 1.0, safe)
    return state._replace(weights=state.weights + length * change, psi=state.psi + length * image)
