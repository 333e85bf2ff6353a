"""Conditionals of the count sampler of Bernoulli-Poisson topics: the paper's own, made exact.

Every positive has topic counts m_nlk ~ Poisson(v_kl u_nk), of which at least one is positive (Rai et al.
2015, eqs. 7-11; a sum of K truncated counts, as printed below eq. 10, could never be 1). Zeros have none.
With s_nk = sum of v_kl over the observed labels (1 in a fully observed row), u_nk integrates to a negative
binomial with logit psi_nk + log s_nk. Labels that are missing enter the topics alone, through Poisson counts
that are drawn fresh and dropped.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln, logsumexp
from numpyro.distributions import Dirichlet, Gamma, Independent, Poisson, constraints
from numpyro.distributions.distribution import Distribution

from labelzoo.inference.bernoulli_poisson_topics.mutants import (
    altered,
    at_inputs,
    at_state,
    everything_observed,
)
from labelzoo.inference.bernoulli_poisson_topics.starts_mcmc import (
    Array,
    Inputs,
    State,
    log_rates,
    precision_of,
    precision_update,
    shape_of,
)
from labelzoo.inference.distributions import FirstArrival, GaussianNatural
from labelzoo.inference.polya_gamma import PolyaGamma
from labelzoo.inference.stable import log1mexp
from labelzoo.inference.update import Mutant, Update
from labelzoo.models.bernoulli_poisson_topics import collapsed_logit, table_count
from labelzoo.models.label_cells import (
    exposed_mass,
    missing_embedding,
    positive_sum_by_label,
    positive_sum_by_row,
)


class PositivePoissons(Distribution):
    """Independent Poisson counts given that they are not all zero.

    Parameters
    ----------
    log_rate : array (..., topic)
        Logarithms of the rates.
    """

    arg_constraints = {"log_rate": constraints.real}
    support = constraints.independent(constraints.nonnegative_integer, 1)
    pytree_data_fields = ("log_rate",)

    def __init__(self, log_rate: Any, *, validate_args: bool | None = None) -> None:
        self.log_rate = jnp.asarray(log_rate)
        super().__init__(self.log_rate.shape[:-1], self.log_rate.shape[-1:], validate_args=validate_args)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw the time and topic of the first arrival, then Poisson counts over the rest: no rejection."""
        time_key, topic_key, rest_key = jax.random.split(key, 3)
        shape = sample_shape + self.log_rate.shape
        log_rate = jnp.broadcast_to(self.log_rate, shape)
        time = FirstArrival(jnp.exp(logsumexp(log_rate, axis=-1))).sample(time_key)
        first = jax.nn.one_hot(jax.random.categorical(topic_key, log_rate), shape[-1], dtype=int)
        return first + jax.random.poisson(rest_key, jnp.exp(log_rate) * (1.0 - time)[..., None], shape)

    def log_prob(self, value: Any) -> Array:
        """Log probability of counts (..., topic); ``-inf`` where all are zero."""
        m = jnp.asarray(value, self.log_rate.dtype)
        terms = (m * self.log_rate - jnp.exp(self.log_rate) - gammaln(m + 1.0)).sum(axis=-1)
        hit = log1mexp(jnp.exp(logsumexp(self.log_rate, axis=-1)))
        return jnp.where(m.sum(axis=-1) > 0, terms - hit, -jnp.inf)


def counts_given_rest(state: State, inputs: Inputs) -> PositivePoissons:
    """Return m_nl | y_nl = 1, U, V at every positive, eqs. 10-11: (positive, topic)."""
    return PositivePoissons(log_rates(state, inputs["positives"]))


def hidden_counts_given_rest(state: State, inputs: Inputs) -> Independent:
    """Return the counts at the missing cells, summed over rows: Poisson(v_kl sum_{n missing} u_nk)."""
    cells = (inputs["positives"], inputs["negatives"], inputs["num_labels"])
    return Independent(Poisson(state["topics"] * missing_embedding(state["embedding"], *cells)), 1)


def topics_given_counts(state: State, inputs: Inputs) -> Dirichlet:
    """Return V_k | m, hidden ~ Dirichlet(eta + m_kl + hidden_kl), eq. 12.

    Free of U: with the missing cells' counts explicit, the exposure of v_kl is sum_n u_nk for every label.
    """
    counts = positive_sum_by_label(
        _as_float(state["counts"], inputs), inputs["positives"], inputs["num_labels"]
    )
    return Dirichlet(inputs["topic_concentration"] + counts + state["hidden_counts"])


def count_exposure(state: State, inputs: Inputs) -> Array:
    """Return s_nk, the mass of row n's observed labels: (obs, topic)."""
    ones = jnp.ones(inputs["positives"].row.shape[0], inputs["X"].dtype)
    return exposed_mass(state["topics"], ones, inputs["positives"], inputs["negatives"])


def row_counts(state: State, inputs: Inputs) -> Array:
    """Return m_nk: (obs, topic)."""
    return positive_sum_by_row(_as_float(state["counts"], inputs), inputs["positives"], inputs["X"].shape[0])


def tables_given_rest(state: State, inputs: Inputs) -> Independent:
    """Return t_nk | m_nk, r_k: tables of a Chinese restaurant process, no cap on m."""
    m = row_counts(state, inputs)
    return Independent(table_count(m, jnp.broadcast_to(shape_of(state, inputs), m.shape)), 1)


def shape_given_tables(state: State, inputs: Inputs) -> Gamma:
    """Return r_k | t, V, W ~ Gamma(e0 + sum_n t_nk, rate f0 + sum_n softplus(psi_nk + log s_nk)); U out."""
    e0, f0 = inputs["shape_prior"]
    logit, active = _logit(state, inputs)
    silence = jnp.where(active, jax.nn.softplus(logit), 0.0).sum(axis=0)
    return Gamma(e0 + state["tables"].sum(axis=0), f0 + silence)


def omega_given_rest(state: State, inputs: Inputs) -> Independent:
    """Return omega_nk ~ PG(m_nk + r_k, psi_nk + log s_nk), eq. 14, with the current r; U out."""
    logit, _ = _logit(state, inputs)
    return Independent(PolyaGamma(row_counts(state, inputs) + shape_of(state, inputs), logit), 1)


def weights_natural(state: State, inputs: Inputs) -> tuple[Array, Array]:
    """Return omega without the unobserved rows, (topic, obs), and the potentials d_k, (topic, feature).

    d_k = X'[(m_k - r_k) / 2 - omega_k log s_k].
    """
    exposure, r = count_exposure(state, inputs), shape_of(state, inputs)
    log_exposure, active = collapsed_logit(jnp.zeros_like(exposure), exposure)
    omega = jnp.where(active, state["omega"], 0.0)
    pull = jnp.where(active, 0.5 * (row_counts(state, inputs) - r) - omega * log_exposure, 0.0)
    return omega.T, pull.T @ inputs["X"]


def weights_given_omega(state: State, inputs: Inputs) -> GaussianNatural:
    """Return w_k | omega, m, V, r ~ N(P^-1 d, P^-1), P_k = X' diag(omega_k) X + diag(tau): eqs. 15-16.

    For the checks, which need the density; the sweep draws the same law without forming P where D > N.
    """
    omega, potential = weights_natural(state, inputs)
    X = inputs["X"]
    precision = jnp.einsum("nd,kn,ne->kde", X, omega, X) + jnp.diag(precision_of(state, inputs))
    return GaussianNatural(potential, precision)


def embedding_given_counts(state: State, inputs: Inputs) -> Independent:
    """Return u_nk | m, V, W, r ~ Gamma(r_k + m_nk, rate s_nk + exp(-psi_nk)): eq. 13 with the exposure."""
    psi = inputs["X"] @ state["weights"].T
    concentration = shape_of(state, inputs) + row_counts(state, inputs)
    return Independent(Gamma(concentration, count_exposure(state, inputs) + jnp.exp(-psi)), 1)


def _logit(state: State, inputs: Inputs) -> tuple[Array, Array]:
    return collapsed_logit(inputs["X"] @ state["weights"].T, count_exposure(state, inputs))


def _as_float(counts: Array, inputs: Inputs) -> Array:
    return jnp.asarray(counts, inputs["X"].dtype)


def _uniform_topics(state: State, inputs: Inputs) -> Array:
    return jnp.full_like(state["topics"], 1.0 / inputs["num_labels"])


def _one_more(state: State, inputs: Inputs) -> Array:
    return state["counts"] + 1


def _change(given: Any, make: Any) -> Any:
    """Return `given` with the base distribution d replaced by ``make(d)``."""

    def change(claim: Any, state: State, inputs: Inputs) -> Any:
        base = claim.base_dist if isinstance(claim, Independent) else claim
        made = make(base)
        return Independent(made, 1) if isinstance(claim, Independent) else made

    return altered(given, change)


COUNT_UPDATES: tuple[Update, ...] = (
    Update(
        name="counts_given_rest",
        sites=("counts",),
        view="counts",
        given=counts_given_rest,
        mutants=(
            Mutant(
                "every topic truncated by itself", lambda s, i: _TruncatedEach(log_rates(s, i["positives"]))
            ),
        ),
        equation="eqs. 10-11",
    ),
    Update(
        name="hidden_counts_given_rest",
        sites=("hidden_counts",),
        view="counts",
        given=hidden_counts_given_rest,
        mutants=(
            Mutant(
                "all rows instead of the missing ones",
                lambda s, i: Independent(Poisson(s["topics"] * s["embedding"].sum(axis=0)[:, None]), 1),
            ),
            Mutant("mask forgotten", at_inputs(hidden_counts_given_rest, negatives=everything_observed)),
        ),
        equation="this project (missing labels)",
    ),
    Update(
        name="topics_given_counts",
        sites=("topics",),
        view="counts",
        given=topics_given_counts,
        mutants=(
            Mutant(
                "hidden counts forgotten",
                at_state(topics_given_counts, hidden_counts=lambda s, i: jnp.zeros_like(s["hidden_counts"])),
            ),
        ),
        equation="eq. 12",
    ),
    Update(
        name="tables_given_rest",
        sites=("tables",),
        view="counts_tables",
        given=tables_given_rest,
        equation="this project (the paper says that r is sampled easily)",
    ),
    Update(
        name="shape_given_tables",
        sites=("shape",),
        view="counts_tables",
        given=shape_given_tables,
        mutants=(
            Mutant("prior forgotten", at_inputs(shape_given_tables, shape_prior=lambda i: (1.0, 0.0))),
            Mutant("whole rows exposed", at_inputs(shape_given_tables, negatives=everything_observed)),
            Mutant("counts for tables", at_state(shape_given_tables, tables=row_counts)),
        ),
        equation="this project",
    ),
    Update(
        name="omega_given_rest",
        sites=("omega",),
        view="counts_polya_gamma",
        given=omega_given_rest,
        mutants=(
            Mutant("offset log s forgotten", at_inputs(omega_given_rest, negatives=everything_observed)),
        ),
        equation="eq. 14",
    ),
    Update(
        name="weights_given_omega",
        sites=("weights",),
        view="counts_polya_gamma",
        given=weights_given_omega,
        mutants=(
            Mutant("offset log s forgotten", at_inputs(weights_given_omega, negatives=everything_observed)),
            Mutant(
                "prior forgotten",
                _change(
                    weights_given_omega,
                    lambda d: GaussianNatural(d.potential, d.precision + jnp.eye(d.precision.shape[-1])),
                ),
            ),
        ),
        equation="eqs. 15-16, with the offset",
    ),
    Update(
        name="embedding_given_counts",
        sites=("embedding",),
        view="counts_observed",
        given=embedding_given_counts,
        mutants=(
            Mutant("whole rows exposed", at_inputs(embedding_given_counts, negatives=everything_observed)),
        ),
        equation="eq. 13",
    ),
    precision_update("counts_observed"),
)
"""In the order of the sweep."""


class _TruncatedEach(PositivePoissons):
    """The law below eq. 10 as printed: every topic count truncated at zero by itself."""

    def log_prob(self, value: Any) -> Array:
        m = jnp.asarray(value, self.log_rate.dtype)
        terms = (
            m * self.log_rate - jnp.exp(self.log_rate) - gammaln(m + 1.0) - log1mexp(jnp.exp(self.log_rate))
        )
        return jnp.where((m > 0).all(axis=-1), terms.sum(axis=-1), -jnp.inf)
