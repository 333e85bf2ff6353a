"""Mean field q(theta) q(f) q(lambda) q(z, v, omega) of Shi, Yu and Yu, NeurIPS 2021, corrected.

z stands with (v, omega), since omega's shape is z + v; within that block nothing is lost. Equation 9 lacks
the observed negatives and -ln 2cosh(c / 2), and equation 11 needs the shape phi + gamma. q(lambda_n) is
Gamma(al, K) and q(v_nk) Poisson(gamma_nk):

    gamma_nk = s_nk exp(E ln lambda_n),   al_n = 1 + sum_k gamma_nk,   E ln lambda = digamma(al) - ln K.

Iterated, this pair moves by a share 1 - (sum_k s_nk) / K a step; its rest is the root of
al = 1 + kappa exp(digamma(al)), kappa = sum_k s_nk / K, which `local.lambda_shape` finds.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import digamma, gammaln

from labelzoo.inference.gp_bernoulli_mixture import local, structured
from labelzoo.inference.gp_bernoulli_mixture.ascent import lengthened
from labelzoo.inference.gp_bernoulli_mixture.factors import Factors, Problem
from labelzoo.inference.gp_bernoulli_mixture.gates import gate_step
from labelzoo.inference.gp_bernoulli_mixture.terms import beta_divergence, entropy, label_scores

Array = Any


class State(NamedTuple):
    """Where the ascent stands.

    Attributes
    ----------
    factors : Factors
    divergence : (component,)
        KL of q(f_k) from its prior, nats.
    tilt, count : (obs, component)
        c and gamma.
    shape : (obs,)
        al; the rate is K throughout.
    objective, stretch : float
        As in `structured.State`.
    """

    factors: Factors
    divergence: Array
    tilt: Array
    count: Array
    shape: Array
    objective: float = float("nan")
    stretch: float = 1.0


def start_from(problem: Problem, phi: Array) -> State:
    """Return the state at given responsibilities: gates at their prior, gamma = 1/2, al = 1 + K / 2."""
    first = structured.start_from(problem, phi)
    m, S = first.factors.gate_mean_q, first.factors.gate_variance
    gamma = np.full_like(m, 0.5)
    return State(first.factors, first.divergence, local.tilt(m, S), gamma, 1.0 + gamma.sum(axis=1))


def count_step(mean: Array, J: Array, shape: Array) -> Array:
    """Return gamma = exp(E ln lambda - m / 2 + J), q(lambda) = Gamma(shape, K)."""
    log_rate = digamma(shape) - np.log(mean.shape[1])
    return np.exp(log_rate[:, None] + local.log_miss(mean, J))


def shape_step(count: Array) -> Array:
    """Return al = 1 + sum_k gamma_nk."""
    return 1.0 + count.sum(axis=1)


def rest_of_counts(mean: Array, J: Array) -> tuple[Array, Array]:
    """Return gamma and al where `count_step` and `shape_step` come to rest."""
    kappa = np.exp(local.log_miss(mean, J)).mean(axis=1)
    shape = local.lambda_shape(kappa)
    return count_step(mean, J, shape), shape


def site_step(phi: Array, count: Array, tilt: Array) -> tuple[Array, Array]:
    """Return weight W = (phi + gamma) tanh(c / 2) / (2 c) and potential r = (phi - gamma) / 2."""
    return (phi + count) * local.omega_share(tilt), 0.5 * (phi - count)


def bound(
    problem: Problem,
    factors: Factors,
    divergence: Array,
    *,
    tilt: Array | None,
    count: Array,
    shape: Array,
    rate: Array | None = None,
) -> float:
    """Return the evidence lower bound of any factors, nats; `rate` (obs,) is K where it is None."""
    m, K = factors.gate_mean_q, factors.gate_mean_q.shape[1]
    be = np.full_like(shape, K) if rate is None else rate
    J = local.curve(m, factors.gate_variance, tilt)
    log_rate = digamma(shape) - np.log(be)
    scores = label_scores(problem.labels, factors.positive, factors.negative) + 0.5 * m + J
    fit = float((factors.responsibility * scores).sum(dtype=np.float64))
    logs = np.log(np.where(count > 0, count, 1.0))
    waits = count * (log_rate[:, None] - 0.5 * m + J - logs + 1.0)
    rates = shape - np.log(be) + gammaln(shape) + (1.0 - shape) * digamma(shape) - K * shape / be
    prior = problem.prior_positive, problem.prior_negative
    theta = beta_divergence(factors.positive, factors.negative, *prior)
    extra = float(waits.sum(dtype=np.float64)) + float(rates.sum(dtype=np.float64))
    return fit + entropy(factors.responsibility) + extra - theta - float(np.sum(divergence))


def sweep(problem: Problem, state: State, length: float = 1.0, root: bool = True) -> State:
    """Update theta, c, (v, lambda), f, c, z; no update lowers the bound at `length` 1.

    With `root`, theta and z are updated `structured.REPEATS` times.

    Parameters
    ----------
    length : float
        As in `structured.sweep`.
    root : bool
        Put (v, lambda) at rest given q(f); otherwise one update of each, as the paper iterates.
    """
    factors = structured.settled(problem, state.factors, structured.REPEATS - 1 if root else 0)
    a, b = structured.theta_step(problem, factors.responsibility)
    m, S = factors.gate_mean_q, factors.gate_variance
    c = local.tilt(m, S)
    J = -local.log_two_cosh_half(c)
    if root:
        count, shape = rest_of_counts(m, J)
    else:
        count = count_step(m, J, state.shape)
        shape = shape_step(count)
    sites = lengthened(factors, *site_step(factors.responsibility, count, c), length)
    gate = gate_step(problem, *sites)
    moved = Factors(a, b, factors.responsibility, gate.mean, gate.variance, *sites)
    c = local.tilt(gate.mean, gate.variance)
    if root:
        count, shape = rest_of_counts(gate.mean, -local.log_two_cosh_half(c))
    moved = moved._replace(responsibility=structured.responsibility_step(problem, moved, c))
    value = bound(problem, moved, gate.divergence, tilt=c, count=count, shape=shape)
    return State(moved, gate.divergence, c, count, shape, value)
