"""Draws of a variational posterior for the DataTree, and how good it is as an importance proposal."""

from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import betaln, logsumexp

from labelzoo.inference.gp_bernoulli_mixture.factors import Factors, Problem
from labelzoo.inference.gp_bernoulli_mixture.gates import basis_factor

Array = Any

EDGE = 1e-12
"""Draws of theta stay this far from 0 and 1."""


def theta_draws(positive: Array, negative: Array, count: int, rng: np.random.Generator) -> Array:
    """Return draws of Beta(positive, negative), kept off 0 and 1: (sample, component, labels)."""
    draws = rng.beta(positive, negative, (count, *np.shape(positive)))
    return np.clip(draws, EDGE, 1.0 - EDGE, out=draws)


def white_draws(problem: Problem, factors: Factors, normal: Array) -> tuple[Array, Array]:
    """Turn standard normals (sample, component, basis) into draws of q(white), in their memory.

    With P = L L' a draw is P^-1 F' beta + L^-T normal: obs basis^2 + basis^3 / 3 flops a component, and one
    basis x basis matrix at a time.

    Returns
    -------
    white : (sample, component, basis)
    log_density : (sample,)
        Of q(white), nats.
    """
    F = problem.factor.astype(np.float64, copy=False)
    beta = (factors.potential - problem.gate_mean * factors.weight).astype(np.float64)
    log_q = -0.5 * (np.einsum("skd,skd->s", normal, normal) + normal[0].size * np.log(2 * np.pi))
    for k in range(beta.shape[1]):
        L = basis_factor(F, factors.weight[:, k].astype(np.float64), k)
        half = solve_triangular(L, F.T @ beta[:, k], lower=True, check_finite=False)
        right = (normal[:, k] + half).T
        normal[:, k] = solve_triangular(L, right, lower=True, trans="T", check_finite=False).T
        log_q += np.log(np.diagonal(L)).sum()
    return normal, log_q


def log_weights(problem: Problem, factors: Factors, count: int, rng: np.random.Generator) -> Array:
    """Return ln p(Y, white, theta) - ln q(white, theta) of the program without z, for draws: (sample,).

    2 obs component (basis + labels) flops a draw, one draw at a time.
    """
    a, b = factors.positive.astype(np.float64), factors.negative.astype(np.float64)
    theta = theta_draws(a, b, count, rng)
    shape = (count, len(a), problem.factor.shape[1])
    white, log_q = white_draws(problem, factors, rng.standard_normal(shape))
    rest_on, rest_off = problem.prior_positive - a, problem.prior_negative - b
    constant = float((betaln(a, b) - betaln(problem.prior_positive, problem.prior_negative)).sum())
    constant -= 0.5 * white[0].size * np.log(2 * np.pi)
    out = np.empty(count)
    for s in range(count):
        on, off = np.log(theta[s]), np.log1p(-theta[s])
        ratio = (rest_on * on + rest_off * off).sum() - 0.5 * (white[s] ** 2).sum()
        out[s] = log_likelihood(problem, white[s], on, off) + ratio + constant - log_q[s]
    return out


def log_likelihood(problem: Problem, white: Array, log_on: Array, log_off: Array) -> float:
    """Return ln p(Y | white, theta) with z summed out, nats."""
    gate = problem.gate_mean + problem.factor @ white.T
    log_gate = -np.logaddexp(0.0, -gate)
    labels = problem.labels
    scores = labels.positive @ (log_on - log_off).T + log_off.sum(axis=1)
    if labels.missing is not None:
        scores = scores - labels.missing @ log_off.T
    log_pi = log_gate - logsumexp(log_gate, axis=1, keepdims=True)
    return float(logsumexp(log_pi + scores, axis=1).sum())
