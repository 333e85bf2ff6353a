"""Structured variational inference: q(theta) q(f) q(z, lambda, v, omega), no inner iteration.

Given q(f), the best joint factor of a row's auxiliaries has q(lambda_n) = Exponential(sum_j (1 - s_nj)) and
q(v_nk | lambda) = Poisson(lambda s_nk), so gamma_nk = E v_nk = s_nk / sum_j (1 - s_nj), and its share of the
bound is -ln sum_j (1 - s_nj). Everything else is as in the mean field of Shi, Yu and Yu, NeurIPS 2021,
corrected. The bound is between theirs and that of the model without z, lambda, v, omega at the same q(f)
q(theta).
"""

from typing import Any, NamedTuple

import numpy as np

from labelzoo.inference.gp_bernoulli_mixture import local
from labelzoo.inference.gp_bernoulli_mixture.ascent import lengthened
from labelzoo.inference.gp_bernoulli_mixture.factors import Factors, Problem
from labelzoo.inference.gp_bernoulli_mixture.gates import gate_step
from labelzoo.inference.gp_bernoulli_mixture.terms import (
    beta_divergence,
    entropy,
    label_counts,
    label_scores,
)

Array = Any


class State(NamedTuple):
    """Where the ascent stands.

    Attributes
    ----------
    factors : Factors
    divergence : (component,)
        KL of q(f_k) from its prior, nats: it goes with `weight` and `potential`.
    objective : float
        The bound, nats; NaN before it was asked for.
    stretch : float
        Length of the next step of the sites; 1 is the plain update.
    """

    factors: Factors
    divergence: Array
    objective: float = float("nan")
    stretch: float = 1.0


def start_from(problem: Problem, phi: Array) -> State:
    """Return the state at given responsibilities (obs, component), gates at their prior.

    m = gate_mean, S = Sigma_nn; the sites are without weight, so their next values are the first.
    """
    phi = np.array(phi, problem.factor.dtype)
    a, b = theta_step(problem, phi)
    m = np.full_like(phi, problem.gate_mean)
    S = np.repeat(problem.own_variance[:, None], phi.shape[1], axis=1)
    nothing = np.zeros_like(phi)
    return State(Factors(a, b, phi, m, S, nothing, nothing.copy()), np.zeros(phi.shape[1]))


def theta_step(problem: Problem, phi: Array) -> tuple[Array, Array]:
    """Return a and b of q(theta): prior and expected counts over observed cells."""
    on, off = label_counts(problem.labels, phi)
    return problem.prior_positive + on, problem.prior_negative + off


def site_step(phi: Array, mean: Array, variance: Array) -> tuple[Array, Array]:
    """Return weight W = (phi + gamma) tanh(c / 2) / (2 c) and potential r = (phi - gamma) / 2."""
    c = local.tilt(mean, variance)
    gamma = local.structured_counts(local.log_miss(mean, -local.log_two_cosh_half(c)))
    return (phi + gamma) * local.omega_share(c), 0.5 * (phi - gamma)


def responsibility_step(problem: Problem, factors: Factors, tilt: Array | None = None) -> Array:
    """Return phi: the softmax of E ln p(y_n | theta_k) + m / 2 + J."""
    scores = label_scores(problem.labels, factors.positive, factors.negative)
    m = factors.gate_mean_q
    scores += 0.5 * m + local.curve(m, factors.gate_variance, tilt)
    return local.responsibilities(scores)


def bound(problem: Problem, factors: Factors, divergence: Array, tilt: Array | None = None) -> float:
    """Return the evidence lower bound of any factors, nats; of the best tilts where `tilt` is None.

    sum phi (E ln p(y | theta) + m / 2 + J) - sum phi ln phi - sum_n ln sum_j (1 - s_nj) - KL(theta) - KL(f).
    """
    m = factors.gate_mean_q
    J = local.curve(m, factors.gate_variance, tilt)
    scores = label_scores(problem.labels, factors.positive, factors.negative) + 0.5 * m + J
    fit = float((factors.responsibility * scores).sum(dtype=np.float64))
    waits = float(np.log(local.hit(local.log_miss(m, J)).sum(axis=1)).sum(dtype=np.float64))
    prior = problem.prior_positive, problem.prior_negative
    theta = beta_divergence(factors.positive, factors.negative, *prior)
    return fit + entropy(factors.responsibility) - waits - theta - float(np.sum(divergence))


REPEATS = 5
"""Updates of theta and phi a sweep, next to nothing beside its gates: they halve the sweeps."""


def settled(problem: Problem, factors: Factors, repeats: int) -> Factors:
    """Update theta and the responsibilities in turn, so often, at the gates as they are."""
    for _ in range(repeats):
        a, b = theta_step(problem, factors.responsibility)
        factors = factors._replace(positive=a, negative=b)
        factors = factors._replace(responsibility=responsibility_step(problem, factors))
    return factors


def sweep(problem: Problem, state: State, length: float = 1.0, repeats: int = REPEATS) -> State:
    """Update theta and the responsibilities, then the sites with their gates, then the responsibilities.

    K (2 N^3 / 3 + 4 repeats N L) flops. At `length` 1 no update lowers the bound. A longer step moves the
    sites, natural parameters of the gates, past their update.

    Parameters
    ----------
    length : float
    repeats : int
        Updates of theta before the gates, with those of the responsibilities between them.
    """
    factors = settled(problem, state.factors, repeats - 1)
    a, b = theta_step(problem, factors.responsibility)
    weight, potential = site_step(factors.responsibility, factors.gate_mean_q, factors.gate_variance)
    weight, potential = lengthened(factors, weight, potential, length)
    gate = gate_step(problem, weight, potential)
    moved = Factors(a, b, factors.responsibility, gate.mean, gate.variance, weight, potential)
    moved = moved._replace(responsibility=responsibility_step(problem, moved))
    return State(moved, gate.divergence, bound(problem, moved, gate.divergence))
