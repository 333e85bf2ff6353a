"""Wrong versions of the count sampler's conditionals with U out, and of U itself, by update."""

from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import Binomial, Gamma, Independent, constraints
from numpyro.distributions.distribution import Distribution

from labelzoo.inference.bernoulli_poisson_topics.counts import (
    count_exposure,
    row_counts,
    weights_given_omega,
)
from labelzoo.inference.bernoulli_poisson_topics.starts_mcmc import (
    precision_of,
    shape_of,
)
from labelzoo.inference.distributions import GaussianNatural
from labelzoo.inference.polya_gamma import PolyaGamma
from labelzoo.models.bernoulli_poisson_topics import collapsed_logit, table_count
from labelzoo.models.label_cells import (
    positive_sum_by_row,
)


class LateTables(Distribution):
    """Tables of m customers where customer i opens one with probability r / (r + i)."""

    pytree_data_fields = ("inner",)

    def __init__(self, count: Any, concentration: Any, *, validate_args: bool | None = None) -> None:
        self.inner = table_count(count + 1, concentration)
        super().__init__(self.inner.batch_shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self.inner.count - 1)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        return self.inner.sample(key, sample_shape) - 1

    def log_prob(self, value: Any) -> Any:
        return self.inner.log_prob(jnp.asarray(value) + 1)

    @property
    def mean(self) -> Any:
        return self.inner.mean - 1.0

    @property
    def variance(self) -> Any:
        return self.inner.variance


class JacobiScale(PolyaGamma):
    """Four times a Polya-Gamma variable."""

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        return 4.0 * super().sample(key, sample_shape)

    def log_prob(self, value: Any) -> Any:
        return super().log_prob(value / 4.0) - jnp.log(4.0)

    @property
    def mean(self) -> Any:
        return 4.0 * super().mean

    @property
    def variance(self) -> Any:
        return 16.0 * super().variance


def _tables(state, inputs, r):
    m = row_counts(state, inputs)
    return Independent(table_count(m, jnp.broadcast_to(r, m.shape)), 1)


def first_customer_may_sit(state, inputs):
    """Customer i opens a table with probability r / (r + i): it is r / (r + i - 1), 1 for the first."""
    m = row_counts(state, inputs)
    return Independent(LateTables(m, jnp.broadcast_to(shape_of(state, inputs), m.shape)), 1)


def shared_concentration(state, inputs):
    """The concentration is the sum of r over topics: it is r_k."""
    return _tables(state, inputs, shape_of(state, inputs).sum())


def concentration_at_prior_mean(state, inputs):
    """The concentration is the prior mean e0 / f0, a stale start value: it is the current r_k."""
    e0, f0 = inputs["shape_prior"]
    return _tables(state, inputs, jnp.full(inputs["num_topics"], e0 / f0, inputs["X"].dtype))


def last_customers_probability(state, inputs):
    """All m customers open a table with the last one's probability r / (r + m - 1), a binomial: customer i
    has r / (r + i - 1). Right for m of 0 and 1."""
    m, r = row_counts(state, inputs), shape_of(state, inputs)
    chance = r / (r + jnp.maximum(m - 1.0, 0.0))
    return Independent(Binomial(m.astype(int), probs=chance), 1)


def _logit(state, inputs):
    return collapsed_logit(inputs["X"] @ state["weights"].T, count_exposure(state, inputs))


def _shape(state, inputs, *, tables=None, silence=None, copies=1.0):
    e0, f0 = inputs["shape_prior"]
    logit, active = _logit(state, inputs)
    if silence is None:
        silence = jnp.where(active, jax.nn.softplus(logit), 0.0).sum(axis=0)
    tables = state["tables"] if tables is None else tables
    return Gamma(copies * e0 + tables.sum(axis=0), copies * f0 + silence)


def log_p_for_log_one_minus_p(state, inputs):
    """The rate sums softplus(-logit) = -log p: it is softplus(logit) = -log(1 - p)."""
    logit, active = _logit(state, inputs)
    return _shape(state, inputs, silence=jnp.where(active, jax.nn.softplus(-logit), 0.0).sum(axis=0))


def customers_for_tables(state, inputs):
    """The shape is e0 + sum of m: it is e0 + sum of the tables t. Differs only where t < m."""
    return _shape(state, inputs, tables=row_counts(state, inputs))


def silence_of_all_topics(state, inputs):
    """The softplus terms are summed over rows and topics: sum over rows only."""
    logit, active = _logit(state, inputs)
    total = jnp.where(active, jax.nn.softplus(logit), 0.0).sum()
    return _shape(state, inputs, silence=jnp.full(logit.shape[1], total))


def log_two_of_unlabelled_rows(state, inputs):
    """Rows without observed labels add softplus(0) = log 2 to the rate: mask them. Right if none exist."""
    logit, _ = _logit(state, inputs)
    return _shape(state, inputs, silence=jax.nn.softplus(logit).sum(axis=0))


def prior_once_a_row(state, inputs):
    """e0 and f0 are counted once a row, N e0 and N f0: once in all."""
    return _shape(state, inputs, copies=float(inputs["X"].shape[0]))


def _omega(state, inputs, *, m=None, logit=None, law=PolyaGamma):
    m = row_counts(state, inputs) if m is None else m
    logit = _logit(state, inputs)[0] if logit is None else logit
    return Independent(law(m + shape_of(state, inputs), logit), 1)


def positives_for_counts(state, inputs):
    """b is r plus the number of positives where the topic has a count: it is r plus the sum of counts."""
    some = jnp.asarray(state["counts"] > 0, inputs["X"].dtype)
    return _omega(state, inputs, m=positive_sum_by_row(some, inputs["positives"], inputs["X"].shape[0]))


def exposure_without_log(state, inputs):
    """The tilt is psi + s: it is psi + log s."""
    psi, exposure = inputs["X"] @ state["weights"].T, count_exposure(state, inputs)
    return _omega(state, inputs, logit=jnp.where(exposure > 0, psi + exposure, 0.0))


def jacobi_scale(state, inputs):
    """omega is drawn as J*(b, logit / 2) and the division by 4 that makes it Polya-Gamma is missing."""
    return _omega(state, inputs, law=JacobiScale)


def unlabelled_rows_tilted(state, inputs):
    """Rows without observed labels are tilted by psi: they keep PG(b, 0). Right if there are none."""
    logit, active = _logit(state, inputs)
    return _omega(state, inputs, logit=jnp.where(active, logit, inputs["X"] @ state["weights"].T))


def _weights(state, inputs, *, kappa=None, sign=1.0, prior=None, masked=True):
    exposure, X = count_exposure(state, inputs), inputs["X"]
    log_s, active = collapsed_logit(jnp.zeros_like(exposure), exposure)
    active = active if masked else jnp.ones_like(active)
    m, r = row_counts(state, inputs), shape_of(state, inputs)
    omega = jnp.where(active, state["omega"], 0.0)
    kappa = 0.5 * (m - r) if kappa is None else kappa(m, r)
    pull = jnp.where(active, kappa - sign * omega * log_s, 0.0)
    prior = precision_of(state, inputs) if prior is None else prior
    return GaussianNatural(pull.T @ X, jnp.einsum("nd,nk,ne->kde", X, omega, X) + jnp.diag(prior))


def kappa_halves_r_alone(state, inputs):
    """kappa is m - r / 2: it is (m - r) / 2."""
    return _weights(state, inputs, kappa=lambda m, r: m - 0.5 * r)


def offset_added(state, inputs):
    """The potential has + omega log s: it is - omega log s. Right where nothing is missing."""
    return _weights(state, inputs, sign=-1.0)


def one_precision_for_all_topics(state, inputs):
    """All topics share the mean of their precision matrices: topic k uses X' diag(omega_k) X + diag(tau)."""
    right = weights_given_omega(state, inputs)
    mean = right.precision.mean(axis=0, keepdims=True)
    return GaussianNatural(right.potential, jnp.broadcast_to(mean, right.precision.shape))


def mean_as_potential(state, inputs):
    """The mean P^-1 d is handed over where the potential d is asked for: pass d."""
    right = weights_given_omega(state, inputs)
    return GaussianNatural(right.mean, right.precision)


def unlabelled_rows_pull(state, inputs):
    """Rows without observed labels enter with kappa = -r / 2 and their omega: mask them."""
    return _weights(state, inputs, masked=False)


def offset_added_and_prior_inverted(state, inputs):
    """Two slips: the offset's sign, and tau added as a variance: - omega log s, and diag(tau)."""
    return _weights(state, inputs, sign=-1.0, prior=1.0 / precision_of(state, inputs))


def _embedding(state, inputs, *, m=None, rate=None):
    m = row_counts(state, inputs) if m is None else m
    if rate is None:
        rate = count_exposure(state, inputs) + jnp.exp(-(inputs["X"] @ state["weights"].T))
    return Independent(Gamma(shape_of(state, inputs) + m, rate), 1)


def p_as_rate(state, inputs):
    """The paper's Gamma(r + m, p), p a scale, is read with p as the rate: the rate is s + exp(-psi)."""
    return _embedding(state, inputs, rate=jax.nn.sigmoid(_logit(state, inputs)[0]))


def presence_in_row(state, inputs):
    """m_nk is cut to 0 or 1: add the count itself."""
    m = row_counts(state, inputs)
    return _embedding(state, inputs, m=jnp.asarray(m > 0, m.dtype))


def missing_mass_for_observed(state, inputs):
    """The exposure is the mass of the missing labels, 1 - s: it is s."""
    hidden = jnp.maximum(1.0 - count_exposure(state, inputs), 0.0)
    return _embedding(state, inputs, rate=hidden + jnp.exp(-(inputs["X"] @ state["weights"].T)))


def empty_cells_from_prior(state, inputs):
    """Where m_nk = 0 the rate is exp(-psi), the prior: zeros are data too, the rate is s + exp(-psi)."""
    s = jnp.where(row_counts(state, inputs) > 0, count_exposure(state, inputs), 0.0)
    return _embedding(state, inputs, rate=s + jnp.exp(-(inputs["X"] @ state["weights"].T)))


def exponent_of_log_u(state, inputs):
    """The shape is r + m + 1 (exponents of log u and u mixed up): it is r + m."""
    return _embedding(state, inputs, m=row_counts(state, inputs) + 1.0)


TABLES, SHAPE, OMEGA = "tables_given_rest", "shape_given_tables", "omega_given_rest"
WEIGHTS, EMBEDDING = "weights_given_omega", "embedding_given_counts"

GIVEN = {
    TABLES: (
        first_customer_may_sit,
        shared_concentration,
        concentration_at_prior_mean,
        last_customers_probability,
    ),
    SHAPE: (
        log_p_for_log_one_minus_p,
        customers_for_tables,
        silence_of_all_topics,
        log_two_of_unlabelled_rows,
        prior_once_a_row,
    ),
    OMEGA: (
        positives_for_counts,
        exposure_without_log,
        jacobi_scale,
        unlabelled_rows_tilted,
    ),
    WEIGHTS: (
        kappa_halves_r_alone,
        offset_added,
        one_precision_for_all_topics,
        mean_as_potential,
        unlabelled_rows_pull,
        offset_added_and_prior_inverted,
    ),
    EMBEDDING: (
        p_as_rate,
        presence_in_row,
        missing_mass_for_observed,
        empty_cells_from_prior,
        exponent_of_log_u,
    ),
}
