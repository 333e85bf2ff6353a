"""One step of online EM: local factors of a minibatch, running statistics, and what maximises them.

Cappe and Moulines, "On-line expectation-maximization algorithm for latent data models", JRSS B 2009, with the
bound of `vb_em` in place of the likelihood; the statistics are of the likelihood alone, scaled to all rows,
and the priors are added where they are solved.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve

from labelzoo.inference.bernoulli_poisson_topics.em_data import (
    Blocks,
    EMData,
    missing_by_label,
    observed_by_row,
    times,
    transposed_times,
    weighted_gram,
)
from labelzoo.inference.bernoulli_poisson_topics.em_objective import embedding_term
from labelzoo.inference.bernoulli_poisson_topics.em_state import EMConfig, EMState, with_embedding
from labelzoo.inference.bernoulli_poisson_topics.em_steps import expected_counts, shape_root
from labelzoo.inference.bernoulli_poisson_topics.em_weights import (
    conjugate_gradients,
    polya_gamma_terms,
    prior_precision,
)
from labelzoo.inference.bernoulli_poisson_topics.fast_functions import log_add, positive_digamma
from labelzoo.inference.stable import zero_truncated_poisson_mean

Array = Any
Form = Literal["full", "diagonal"]


class OnlineState(NamedTuple):
    """Parameters and running statistics, the latter of the likelihood of all rows.

    Attributes
    ----------
    weights : (feature, topic)
    log_topics : (labels, topic)
    shape : (topic,)
    curvature : (topic, feature, feature) or (feature, topic)
        A_k = sum_n omega_nk x_n x_n', or a diagonal that majorises it.
    linear : (feature, topic)
        d_k, so that w' d - w' A w / 2 is the quadratic part of the bound.
    label_counts : (labels, topic)
        m_kl, with the hidden counts of missing cells.
    log_sum : (topic,)
        sum_n (E log u_nk - psi_nk), for learned shapes.
    """

    weights: Array
    log_topics: Array
    shape: Array
    curvature: Array
    linear: Array
    label_counts: Array
    log_sum: Array


class Batch(NamedTuple):
    """A minibatch and its part in the statistics.

    Attributes
    ----------
    data : EMData
    real : (obs,)
        One at rows, zero at padding.
    scale : ()
        Rows of all the data over rows of the batch.
    gain : ()
        g_t.
    num_obs : ()
        Rows of all the data.
    """

    data: EMData
    real: Array
    scale: Array
    gain: Array
    num_obs: Array


def empty_state(weights: Array, log_topics: Array, shape: Array, form: Form) -> OnlineState:
    """Return a state whose statistics are empty: the first step's gain must be one."""
    (d, k), dtype = weights.shape, weights.dtype
    size = (k, d, d) if form == "full" else (d, k)
    return OnlineState(
        weights,
        log_topics,
        shape,
        jnp.zeros(size, dtype),
        jnp.zeros((d, k), dtype),
        jnp.zeros_like(log_topics),
        jnp.zeros(k, dtype),
    )


def row_counts(log_topics: Array, log_u: Array, positives: Blocks) -> Array:
    """Return the expected counts by row alone (obs, topic); see `em_steps.expected_counts`."""

    def add(total: Array, block: Blocks) -> tuple[Array, None]:
        log_rates = log_topics[block.label] + log_u[block.row]
        top = log_rates.max(axis=1)
        share = jnp.exp(log_rates - top[:, None])
        rate = share.sum(axis=1)
        weight = block.weight * zero_truncated_poisson_mean(jnp.exp(top) * rate) / rate
        return total.at[block.row].add(share * weight[:, None]), None

    return jax.lax.scan(add, jnp.zeros_like(log_u), positives)[0]


def local_state(state: OnlineState, data: EMData, config: EMConfig, local_sweeps: int) -> EMState:
    """Return the gamma factors of the rows of `data` given the globals, with their expected counts.

    From the prior's E log u = digamma(r) + psi, `local_sweeps` rounds of counts and factors. Each round
    raises the bound; it is not climbed to the end, which costs the step nothing but some height.
    """
    psi = times(data, state.weights)
    log_mass = None
    if data.exposure is not None:
        log_mass = jnp.log(observed_by_row(jnp.exp(state.log_topics), data.exposure))
    log_rate = log_add(jnp.zeros(()) if log_mass is None else log_mass, -psi)

    def climb(_: Array, pair: tuple[Array, Array]) -> tuple[Array, Array]:
        counts = row_counts(state.log_topics, pair[1], data.positives)
        return state.shape + counts, positive_digamma(state.shape + counts) - log_rate

    prior = jnp.broadcast_to(state.shape, psi.shape)
    first = (prior, positive_digamma(state.shape) + psi)
    concentration, log_u = jax.lax.fori_loop(0, local_sweeps, climb, first)
    by_row, by_label, term = expected_counts(state.log_topics, log_u, data.positives)
    return EMState(
        log_topics=state.log_topics,
        weights=state.weights,
        psi=psi,
        concentration=concentration,
        log_rate=log_rate,
        log_embedding=log_u,
        shape=state.shape,
        log_mass=log_mass,
        row_counts=by_row,
        label_counts=by_label,
        positive_term=term,
    )


def online_step(
    state: OnlineState, batch: Batch, *, config: EMConfig, form: Form, local_sweeps: int
) -> tuple[OnlineState, Array]:
    """Take in a minibatch: return the new state, and the bound on the labels of a row at the old one, nats.

    With gain 1, scale 1 and all rows in the batch this is a sweep of `vb_em` from the same factors, with
    w_step "exact" (form "full") or "cg" (form "diagonal"): nothing else enters. Cost: `local_sweeps` + 1
    E steps on the positives of the batch, and for the weights B D^2 K flops and K factorisations ("full"), or
    4 (entries of X in the batch) K flops a conjugate-gradient step ("diagonal").
    """
    data = batch.data
    local = local_state(state, data, config, local_sweeps)
    seen = batch.real[:, None]
    rows = jnp.maximum(batch.real.sum(), 1.0)
    value = (local.positive_term + _masked_embedding(local, seen, config)) / rows
    state, psi = _weights_from_batch(state, local, batch, config, form)
    moved = with_embedding(
        local._replace(psi=psi),
        state.shape + local.row_counts,
        log_add(jnp.zeros(()) if local.log_mass is None else local.log_mass, -psi),
        "vb",
    )
    counts = local.label_counts
    if data.exposure is not None:
        embedding = seen * moved.concentration * jnp.exp(-moved.log_rate)
        counts = counts + jnp.exp(state.log_topics) * missing_by_label(
            embedding, data.exposure, counts.shape[0]
        )
    counts = _mix(state.label_counts, counts, batch)
    total = counts + config.topic_concentration
    state = state._replace(label_counts=counts, log_topics=jnp.log(total) - jnp.log(total.sum(axis=0)))
    if config.learn_shape:
        log_sum = _mix(state.log_sum, (seen * (moved.log_embedding - psi)).sum(axis=0), batch)
        state = state._replace(log_sum=log_sum, shape=shape_root(log_sum, batch.num_obs, config))
    return state, value


def _masked_embedding(local: EMState, seen: Array, config: EMConfig) -> Array:
    """The term of the factors, without that of padding, which is the same for every padded row."""
    whole = embedding_term(local, config)
    # A row of padding has no features and no counts: psi 0, the prior's factor, s = 1.
    padding = (1.0 - seen).sum()
    last = jax.tree.map(
        lambda part: part[-1:],
        {name: getattr(local, name) for name in ("psi", "concentration", "log_rate", "log_embedding")},
    )
    mass = None if local.log_mass is None else local.log_mass[-1:]
    return whole - jnp.where(padding > 0, padding, 0.0) * embedding_term(
        local._replace(**last, log_mass=mass), config
    )


def _mix(old: Array, new: Array, batch: Batch) -> Array:
    """Return (1 - g) old + g scale new."""
    return (1.0 - batch.gain) * old + (batch.gain * batch.scale).astype(old.dtype) * new


def _weights_from_batch(
    state: OnlineState, local: EMState, batch: Batch, config: EMConfig, form: Form
) -> tuple[OnlineState, Array]:
    """Mix in the Polya-Gamma quadratic of the batch and maximise the mixture less the prior's."""
    data = batch.data
    omega, target, _ = polya_gamma_terms(local)
    tau = prior_precision(state.weights, data, config)
    if form == "full":
        return _full(state, data, omega, target, tau, batch)
    return _diagonal(state, local.psi, omega, target, tau, batch, config.cg_steps)


def _full(
    state: OnlineState, data: EMData, omega: Array, target: Array, tau: Array, batch: Batch
) -> tuple[OnlineState, Array]:
    linear = _mix(state.linear, transposed_times(data, target), batch)

    def one(args: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        old, weight, right = args
        new = _mix(old, weighted_gram(data, weight), batch)
        return new, cho_solve(cho_factor(new + jnp.diag(tau)), right)

    curvature, weights = jax.lax.map(one, (state.curvature, omega.T, linear.T))
    state = state._replace(weights=weights.T, curvature=curvature, linear=linear)
    return state, times(data, state.weights)


def _diagonal(
    state: OnlineState, psi: Array, omega: Array, target: Array, tau: Array, batch: Batch, steps: int
) -> tuple[OnlineState, Array]:
    """Earlier batches by a diagonal quadratic, this one by its own; then make that one diagonal too.

    The quadratic of a batch touches, where the weights now are, a diagonal one that lies below it: its
    gradient there is kept exactly, and its curvature is replaced by sum_n omega_nk |x_nd| sum_j |x_nj|, which
    is never smaller (Gershgorin). So the running function stays a lower bound on the mixture of the batches'
    bounds (stochastic majorisation-minimisation, Mairal 2013): what is approximated is the speed, not the
    point of rest.
    """
    data, g = batch.data, batch.gain
    share = g * batch.scale
    curvature, linear = (1.0 - g) * state.curvature, (1.0 - g) * state.linear
    diagonal = curvature + tau[:, None]
    residual = linear - diagonal * state.weights + share * transposed_times(data, target - omega * psi)
    change, image = conjugate_gradients(data, share * omega, diagonal, residual, steps)
    weights, psi = state.weights + change, psi + image
    slope = share * transposed_times(data, target - omega * psi)
    bound = share * majorant(data, omega)
    state = state._replace(
        weights=weights, curvature=curvature + bound, linear=linear + slope + bound * weights
    )
    return state, psi


def majorant(data: EMData, omega: Array) -> Array:
    """Return sum_n omega_nk |x_nd| sum_j |x_nj|: (feature, topic), a diagonal above X' diag(omega_k) X."""
    if data.sparse is None:
        assert data.X is not None
        size = data._replace(X=jnp.abs(data.X))
    else:
        size = data._replace(sparse=data.sparse._replace(weight=jnp.abs(data.sparse.weight)))
    reach = times(size, jnp.ones((data.column_squares.shape[0], 1), omega.dtype))
    return transposed_times(size, omega * reach)
