"""Conditionals of the first-arrival sampler of Bernoulli-Poisson topics.

A positive label is a Poisson process of rate lambda = sum_k u_nk v_kl on (0, 1) with at least one arrival.
Only its first arrival is kept, at time t and of topic z: p(y = 1, t, z = k | u, v) is v_kl u_nk
exp(-t lambda), whose sum over k and integral over t is 1 - exp(-lambda). A cell is then exposed for E = t
(positive), 1 (observed zero) or 0 (missing), a positive counts once, and with

    m_nk, m_kl = numbers of z = k,  s_nk = sum_l E_nl v_kl,  c_kl = sum_n E_nl u_nk

the conditionals of Rai et al. (2015), equations 11-16, hold with this m and s. The counts of the paper reach
10^4 in rows that are nearly all positive and pin V and U there; these never pass the number of positives.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax.scipy.special import logsumexp
from numpyro.distributions import Categorical, Gamma

from labelzoo.inference.bernoulli_poisson_topics.mutants import (
    altered,
    at_inputs,
    at_state,
    everything_observed,
    whole_exposure,
)
from labelzoo.inference.bernoulli_poisson_topics.shape_weights_hmc import (
    reference_whitening,
    shape_and_weights_move,
    shape_and_weights_target,
)
from labelzoo.inference.bernoulli_poisson_topics.starts_mcmc import (
    Array,
    Inputs,
    State,
    log_rates,
    log_topics_of,
    precision_of,
    precision_update,
    shape_of,
)
from labelzoo.inference.distributions import FirstArrival, TiltedDirichlet, tilted_dirichlet_step
from labelzoo.inference.update import Mutant, Update
from labelzoo.models.label_cells import exposed_embedding, exposed_mass


def first_arrivals_given_rest(state: State, inputs: Inputs) -> dict[str, Any]:
    """Return t ~ exponential(lambda) cut to (0, 1), and z ~ Categorical(v_kl u_nk), independent of t.

    In logs, so that a rate below the smallest float is harmless. Cost (positive x topic) exponentials.
    """
    logits = log_rates(state, inputs["positives"])
    return {
        "arrival_time": FirstArrival(jnp.exp(logsumexp(logits, axis=1))),
        "arrival_topic": Categorical(logits=logits),
    }


def counts_by_label(state: State, inputs: Inputs) -> Array:
    """Return m_kl, arrivals of topic k at label l: (topic, labels)."""
    shape = (inputs["num_topics"], inputs["num_labels"])
    return jnp.zeros(shape, inputs["X"].dtype).at[state["arrival_topic"], inputs["positives"].label].add(1.0)


def counts_by_row(state: State, inputs: Inputs) -> Array:
    """Return m_nk, arrivals of topic k in row n: (obs, topic)."""
    shape = (inputs["X"].shape[0], inputs["num_topics"])
    return jnp.zeros(shape, inputs["X"].dtype).at[inputs["positives"].row, state["arrival_topic"]].add(1.0)


def label_exposure(state: State, inputs: Inputs) -> Array:
    """Return c_kl = sum_n E_nl u_nk: (topic, labels)."""
    cells = (inputs["positives"], inputs["negatives"], inputs["num_labels"])
    return exposed_embedding(state["embedding"], state["arrival_time"], *cells)


def row_exposure(state: State, inputs: Inputs) -> Array:
    """Return s_nk = sum_l E_nl v_kl: (obs, topic)."""
    return exposed_mass(state["topics"], state["arrival_time"], inputs["positives"], inputs["negatives"])


def topics_given_arrivals(state: State, inputs: Inputs) -> TiltedDirichlet:
    """Return V_k | t, z, U: density proportional to prod_l v^(eta + m_kl - 1) exp(-c_kl v) on the simplex."""
    concentration = inputs["topic_concentration"] + counts_by_label(state, inputs)
    return TiltedDirichlet(concentration, label_exposure(state, inputs))


def topics_step(key: Array, state: State, inputs: Inputs) -> dict[str, Array]:
    """Make one independence step for every topic: `state` with ``topics``, ``log_topics`` and who moved."""
    claim = topics_given_arrivals(state, inputs)
    step = tilted_dirichlet_step(key, log_topics_of(state), claim.concentration, claim.tilt)
    return {**state, "topics": step.v, "log_topics": step.log_v, "topics_accepted": step.accepted}


def embedding_given_arrivals(state: State, inputs: Inputs) -> Gamma:
    """Return u_nk | t, z, V, W, r ~ Gamma(r_k + m_nk, rate s_nk + exp(-psi_nk)), eq. 13 with exposures."""
    psi = inputs["X"] @ state["weights"].T
    concentration = shape_of(state, inputs) + counts_by_row(state, inputs)
    return Gamma(concentration, row_exposure(state, inputs) + jnp.exp(-psi))


def shape_and_weights_given_arrivals(state: State, inputs: Inputs) -> Callable[..., Array]:
    """Return the log density of (r, W) given (t, z, V, tau), the embedding integrated out."""
    return shape_and_weights_target(counts_by_row(state, inputs), row_exposure(state, inputs), state, inputs)


def shape_and_weights_step(key: Array, state: State, inputs: Inputs) -> dict[str, Array]:
    """Make one HMC step of every (r_k, w_k) given (t, z, V, tau).

    The mass is ``state["whitening"]``, fixed after the warm-up; where absent, that at w = 0 and the prior
    mean of r, which does not depend on the block either.
    """
    counts, exposure = counts_by_row(state, inputs), row_exposure(state, inputs)
    whitening = state.get("whitening")
    if whitening is None:
        whitening = reference_whitening(counts, exposure, state, inputs)
    return shape_and_weights_move(key, counts, exposure, whitening, state, inputs)


def _density_in_log_shape(claim: Any, state: State, inputs: Inputs) -> Any:
    return lambda block: claim(block) + jnp.log(shape_of(block, inputs)).sum()


def _without_embedding(state: State, inputs: Inputs) -> Array:
    return jnp.ones_like(state["embedding"])


ARRIVAL_UPDATES: tuple[Update, ...] = (
    Update(
        name="first_arrivals_given_rest",
        sites=("arrival_time", "arrival_topic"),
        view="arrivals",
        given=first_arrivals_given_rest,
        mutants=(
            Mutant(
                "times uniform",
                altered(
                    first_arrivals_given_rest,
                    lambda claim, state, inputs: {
                        **claim,
                        "arrival_time": FirstArrival(0.0 * claim["arrival_time"].rate),
                    },
                ),
            ),
            Mutant(
                "rate of one topic instead of the sum",
                altered(
                    first_arrivals_given_rest,
                    lambda claim, state, inputs: {
                        **claim,
                        "arrival_time": FirstArrival(jnp.exp(claim["arrival_topic"].logits[:, 0])),
                    },
                ),
            ),
        ),
        equation="this project (replaces eqs. 10-11)",
    ),
    Update(
        name="topics_given_arrivals",
        sites=("topics",),
        view="arrivals",
        given=topics_given_arrivals,
        kernel=topics_step,
        mutants=(
            Mutant(
                "exposure 1 instead of t at a positive",
                at_state(topics_given_arrivals, arrival_time=whole_exposure),
            ),
            Mutant("mask forgotten", at_inputs(topics_given_arrivals, negatives=everything_observed)),
            Mutant(
                "tilt forgotten: Dirichlet",
                altered(
                    topics_given_arrivals,
                    lambda d, state, inputs: TiltedDirichlet(d.concentration, 0.0 * d.tilt),
                ),
            ),
        ),
        equation="this project (replaces eq. 11)",
    ),
    Update(
        name="shape_and_weights_given_arrivals",
        sites=("shape", "weights"),
        view="arrivals_collapsed",
        given=shape_and_weights_given_arrivals,
        kernel=shape_and_weights_step,
        mutants=(
            Mutant(
                "Jacobian of log r left in", altered(shape_and_weights_given_arrivals, _density_in_log_shape)
            ),
            Mutant(
                "exposure 1 instead of t",
                at_state(shape_and_weights_given_arrivals, arrival_time=whole_exposure),
            ),
            Mutant(
                "stale topics: uniform",
                at_state(
                    shape_and_weights_given_arrivals,
                    topics=lambda state, inputs: jnp.full_like(state["topics"], 1.0 / inputs["num_labels"]),
                ),
            ),
            Mutant(
                "half of the weight prior dropped",
                altered(
                    shape_and_weights_given_arrivals,
                    lambda claim, state, inputs: (
                        lambda block: (
                            claim(block) - 0.5 * (block["weights"] ** 2 @ precision_of(state, inputs)).sum()
                        )
                    ),
                ),
            ),
        ),
        equation="eqs. 14-16 with Polya-Gamma variables and table counts integrated out",
    ),
    Update(
        name="embedding_given_arrivals",
        sites=("embedding",),
        view="arrivals",
        given=embedding_given_arrivals,
        mutants=(
            Mutant(
                "exposure 1 instead of t", at_state(embedding_given_arrivals, arrival_time=whole_exposure)
            ),
        ),
        equation="eq. 13",
    ),
    precision_update("arrivals"),
)
"""In the order of the sweep."""
