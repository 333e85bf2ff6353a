r"""The Gaussian process gated Bernoulli mixture as NumPyro programs.

With features x_n, K components and L labels,

    theta_kl ~ Beta(a0_kl, b0_kl),   f_k ~ GP(gate_mean, amplitude k(x, x')),
    pi_nk = sigma(f_nk) / sum_j sigma(f_nj),   z_n ~ Categorical(pi_n),   y_nl ~ Bernoulli(theta_{z_n, l}),

where sigma is the logistic function. The gate is written f_nk = gate_mean + F_n white_k with F F' the
covariance among the rows and white_k standard normal, so that rows that are alike make no singular matrix.
The link is not invariant to adding a constant to f: gate_mean is part of the model, about 0 a near uniform
mixture, far below 0 the softmax of f.

Labels that are not observed are left out of every product. Three identities lead from the program with z
summed out, which NUTS and SVI run, to conditionals in closed form:

* 1 / x = int exp(-lambda x) dlambda at x = sum_j sigma(f_nj) brings in a rate lambda_n a row;
* exp(-lambda sigma(f)) = E[sigma(-f)^v], v ~ Poisson(lambda), brings in counts v_nk;
* sigma(f)^z sigma(-f)^v = 2^-(z + v) exp((z - v) f / 2) E[exp(-omega f^2 / 2)], omega ~ PG(z + v, 0), which
  is 0 where z + v = 0.

The rate has the flat density 1 on (0, inf): its prior is improper, the posterior is not.

Shi, Yu and Yu, "A Gaussian process-Bayesian Bernoulli mixture model for multi-label active learning",
NeurIPS 2021, equations (1) to (7), with the corrections in docs/errata.md.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from labelzoo.inference.distributions import AtomPolyaGamma, FloatPoisson

Array = Any


class Gated(NamedTuple):
    """What all views share: probabilities (component, labels) and gate values f (obs, component)."""

    probs: Array
    f: Array


def log_gate(f: Array) -> Array:
    """Return log pi = log sigma(f) - log sum_j sigma(f_j) over the last axis; finite for every finite f."""
    return jax.nn.log_softmax(jax.nn.log_sigmoid(f), axis=-1)


def label_scores(probs: Array, Y: Array, observed: Array) -> Array:
    """Return log p(observed labels of row n | z_n = k): (obs, component), nats.

    2 obs labels component flops. Probabilities of exactly 0 or 1 are read as the float next to them.
    """
    kind = jnp.finfo(jnp.result_type(probs))
    probs = jnp.clip(probs, kind.tiny, 1.0 - kind.epsneg)
    on = jnp.where(observed, Y, 0.0)
    off = jnp.where(observed, 1.0 - Y, 0.0)
    return on @ jnp.log(probs).T + off @ jnp.log1p(-probs).T


def gate_values(white: Array, factor: Array, gate_mean: Array) -> Array:
    """Return f given white (component, basis): (obs, component)."""
    return gate_mean + factor @ white.T


def gated(
    factor: Array, prior_positive: Array, prior_negative: Array, gate_mean: Array, residual: Array | None
) -> Gated:
    """Sample ``component_probs`` and ``white`` (and ``residual_white`` where `residual` is given)."""
    components, basis = prior_positive.shape[0], factor.shape[1]
    with numpyro.plate("component", components):
        law = dist.Beta(prior_positive, prior_negative).to_event(1)
        probs = numpyro.sample("component_probs", law)
        white = numpyro.sample("white", dist.Normal(0.0, 1.0).expand([basis]).to_event(1))
    f = gate_values(white, factor, gate_mean)
    if residual is not None:
        with numpyro.plate("obs", factor.shape[0]):
            rest = numpyro.sample("residual_white", dist.Normal(0.0, 1.0).expand([components]).to_event(1))
        f = f + jnp.sqrt(residual)[:, None] * rest
    return Gated(probs, f)


def summed(
    factor: Array,
    Y: Array,
    observed: Array,
    gate_mean: Array,
    prior_positive: Array,
    prior_negative: Array,
    residual: Array | None = None,
    **rest: Any,
) -> None:
    """The program with the assignments summed out: what NUTS and SVI run.

    Parameters
    ----------
    factor : array (obs, basis)
        F with F F' = amplitude K among the rows.
    Y : array (obs, labels)
        0 or 1; the values at unobserved cells are not read.
    observed : bool array (obs, labels)
    gate_mean : float
        Prior mean of every gate value.
    prior_positive, prior_negative : array (component, labels)
        a0 and b0.
    residual : array (obs,) or None
        Variance of f that the basis does not hold (rows that are not among those of the basis); None: none.
    **rest
        What prediction needs; not read here.
    """
    probs, f = gated(factor, prior_positive, prior_negative, gate_mean, residual)
    logits = log_gate(f) + label_scores(probs, Y, observed)
    numpyro.deterministic("component_size", jax.nn.softmax(logits, axis=1).sum(axis=0))
    numpyro.factor("Y", jax.nn.logsumexp(logits, axis=1).sum())


def chosen(table: Array, z: Array) -> Array:
    """Return table[n, z_n]: (obs,)."""
    return jnp.take_along_axis(table, z[:, None], axis=1)[:, 0]


def assigned(
    factor: Array,
    Y: Array,
    observed: Array,
    gate_mean: Array,
    prior_positive: Array,
    prior_negative: Array,
    residual: Array | None = None,
    **rest: Any,
) -> None:
    """The program with the assignments z explicit; arguments as in `summed`."""
    probs, f = gated(factor, prior_positive, prior_negative, gate_mean, residual)
    with numpyro.plate("obs", factor.shape[0]):
        z = numpyro.sample("assignment", dist.Categorical(logits=log_gate(f)))
    numpyro.factor("Y", chosen(label_scores(probs, Y, observed), z).sum())


def assignment_and_rate(shared: Gated, Y: Array, observed: Array) -> tuple[Array, Array]:
    """Sample z and lambda with density 1 each, and the labels given z."""
    rows, components = shared.f.shape
    with numpyro.plate("obs", rows):
        z = numpyro.sample("assignment", dist.Categorical(logits=jnp.zeros((rows, components))))
        rate = numpyro.sample("rate", dist.Exponential(jnp.ones(rows)))
    numpyro.factor("flat", rate.sum() + rows * jnp.log(1.0 * components))
    numpyro.factor("Y", chosen(label_scores(shared.probs, Y, observed), z).sum())
    return z, rate


def waiting(
    factor: Array,
    Y: Array,
    observed: Array,
    gate_mean: Array,
    prior_positive: Array,
    prior_negative: Array,
    residual: Array | None = None,
    **rest: Any,
) -> None:
    """`assigned` with the rates explicit: sigma(f_nz) exp(-lambda_n sum_j sigma(f_nj)) d lambda."""
    shared = gated(factor, prior_positive, prior_negative, gate_mean, residual)
    z, rate = assignment_and_rate(shared, Y, observed)
    total = jax.nn.sigmoid(shared.f).sum(axis=1)
    numpyro.factor("gate", (chosen(jax.nn.log_sigmoid(shared.f), z) - rate * total).sum())


def sample_counts(shared: Gated, rate: Array) -> Array:
    """Sample v_nk ~ Poisson(lambda_n): (obs, component)."""
    with numpyro.plate("obs", shared.f.shape[0]):
        rates = jnp.broadcast_to(rate[:, None], shared.f.shape)
        return numpyro.sample("count", FloatPoisson(rates).to_event(1))


def counted(
    factor: Array,
    Y: Array,
    observed: Array,
    gate_mean: Array,
    prior_positive: Array,
    prior_negative: Array,
    residual: Array | None = None,
    **rest: Any,
) -> None:
    """`waiting` with the counts explicit: v_nk ~ Poisson(lambda_n) and sigma(f_nz) prod_k sigma(-f_nk)^v."""
    shared = gated(factor, prior_positive, prior_negative, gate_mean, residual)
    z, rate = assignment_and_rate(shared, Y, observed)
    v = sample_counts(shared, rate)
    gate = chosen(jax.nn.log_sigmoid(shared.f), z) + (v * jax.nn.log_sigmoid(-shared.f)).sum(axis=1)
    numpyro.factor("gate", gate.sum())


def augmented(
    factor: Array,
    Y: Array,
    observed: Array,
    gate_mean: Array,
    prior_positive: Array,
    prior_negative: Array,
    residual: Array | None = None,
    **rest: Any,
) -> None:
    """`counted` with omega_nk ~ PG(z_nk + v_nk, 0) explicit, 0 where z_nk + v_nk = 0; normal in f."""
    shared = gated(factor, prior_positive, prior_negative, gate_mean, residual)
    z, rate = assignment_and_rate(shared, Y, observed)
    v = sample_counts(shared, rate)
    own = jax.nn.one_hot(z, shared.f.shape[1], dtype=shared.f.dtype)
    with numpyro.plate("obs", shared.f.shape[0]):
        omega = numpyro.sample("omega", AtomPolyaGamma(own + v, 0.0).to_event(1))
    fit = 0.5 * (own - v) * shared.f - 0.5 * omega * shared.f**2
    numpyro.factor("gate", (fit - (own + v) * jnp.log(2.0)).sum())


VIEWS = {
    "summed": summed,
    "assigned": assigned,
    "waiting": waiting,
    "counted": counted,
    "augmented": augmented,
}
