"""Wrong versions of the first-arrival sampler's conditionals, by update; each says its own slip."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln, logsumexp
from numpyro.distributions import Categorical, Gamma

from labelzoo.inference.bernoulli_poisson_topics.arrivals import (
    counts_by_label,
    counts_by_row,
    label_exposure,
    row_exposure,
)
from labelzoo.inference.bernoulli_poisson_topics.starts_mcmc import (
    log_embedding_of,
    log_rates,
    log_topics_of,
    precision_of,
    shape_of,
)
from labelzoo.inference.distributions import FirstArrival, TiltedDirichlet
from labelzoo.inference.distributions.log_gamma import finite_log_gamma
from labelzoo.models.bernoulli_poisson_topics import collapsed_logit
from labelzoo.models.label_cells import exposed_embedding, exposed_mass, negative_embedding, negative_mass


class LastArrival(FirstArrival):
    """Law of 1 - t for t a first arrival."""

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        return 1.0 - super().sample(key, sample_shape)

    def log_prob(self, value: Any) -> Any:
        return super().log_prob(1.0 - value)

    @property
    def mean(self) -> Any:
        return 1.0 - super().mean


class NormalisedGammas(TiltedDirichlet):
    """Law of y / sum(y), y_l ~ Gamma(concentration_l, rate tilt_l)."""

    def sample_log(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        shape = sample_shape + jnp.shape(self.concentration)
        log_y = finite_log_gamma(key, jnp.broadcast_to(self.concentration, shape)) - jnp.log(self.tilt)
        return log_y - logsumexp(log_y, axis=-1, keepdims=True)

    def _from_log(self, log_v: Any, v: Any) -> Any:
        total = self.concentration.sum(-1)
        return ((self.concentration - 1.0) * log_v).sum(-1) - total * jnp.log((self.tilt * v).sum(-1))


def _arrivals(logits: Any, log_total: Any) -> dict[str, Any]:
    return {"arrival_time": FirstArrival(jnp.exp(log_total)), "arrival_topic": Categorical(logits=logits)}


def time_at_mean_rate(state, inputs):
    """The time's rate is the mean of v_kl u_nk over topics: take the sum."""
    logits = log_rates(state, inputs["positives"])
    return _arrivals(logits, logsumexp(logits, axis=1) - jnp.log(logits.shape[1]))


def time_uniform(state, inputs):
    """t is uniform on (0, 1), as the only arrival of a process that had one: its rate is lambda, not 0."""
    logits = log_rates(state, inputs["positives"])
    return _arrivals(logits, jnp.full(logits.shape[0], -jnp.inf))


def time_of_last_arrival(state, inputs):
    """1 - t has the law that t should have (last arrival in place of the first): replace 1 - t by t."""
    logits = log_rates(state, inputs["positives"])
    rate = jnp.exp(logsumexp(logits, axis=1))
    return {"arrival_time": LastArrival(rate), "arrival_topic": Categorical(logits=logits)}


def topic_rates_as_logits(state, inputs):
    """The rates v_kl u_nk are handed to Categorical as logits: hand their logarithms."""
    logits = log_rates(state, inputs["positives"])
    return _arrivals(jnp.exp(logits), logsumexp(logits, axis=1))


def topics_reshaped_for_transposed(state, inputs):
    """log V[:, label], (topic, positive), is reshaped to (positive, topic) where it should be transposed."""
    positives, log_v = inputs["positives"], log_topics_of(state)
    gathered = log_v[:, positives.label].reshape(-1, log_v.shape[0])
    logits = gathered + log_embedding_of(state)[positives.row]
    return _arrivals(logits, logsumexp(logits, axis=1))


def _tilted(state, inputs, *, eta=None, counts=None, tilt=None):
    eta = inputs["topic_concentration"] if eta is None else eta
    counts = counts_by_label(state, inputs) if counts is None else counts
    return TiltedDirichlet(eta + counts, label_exposure(state, inputs) if tilt is None else tilt)


def eta_as_total_mass(state, inputs):
    """eta is divided by the number of labels, as if it were the prior's total mass: use eta itself."""
    return _tilted(state, inputs, eta=inputs["topic_concentration"] / inputs["num_labels"])


def zeros_alone_exposed(state, inputs):
    """The tilt sums u over observed zeros only: the exposure t of the positives is forgotten."""
    tilt = negative_embedding(state["embedding"], inputs["negatives"], inputs["num_labels"])
    return _tilted(state, inputs, tilt=tilt)


def exposed_after_arrival(state, inputs):
    """The exposure of a positive is 1 - t in the tilt: it is t."""
    cells = (inputs["positives"], inputs["negatives"], inputs["num_labels"])
    tilt = exposed_embedding(state["embedding"], 1.0 - state["arrival_time"], *cells)
    return _tilted(state, inputs, tilt=tilt)


def counts_overwritten(state, inputs):
    """m_kl is set to one where it should be added up: wrong only if a topic has a label in several rows."""
    counts = jnp.zeros((inputs["num_topics"], inputs["num_labels"]), inputs["X"].dtype)
    counts = counts.at[state["arrival_topic"], inputs["positives"].label].set(1.0)
    return _tilted(state, inputs, counts=counts)


def gammas_then_normalised(state, inputs):
    """V is y / sum(y) with y_l ~ Gamma(eta + m, 1 + c): the tilt acts on v and not on y, so the factor (sum
    (1 + c) v)^-A must be exp(-sum c v)."""
    concentration = inputs["topic_concentration"] + counts_by_label(state, inputs)
    return NormalisedGammas(concentration, 1.0 + label_exposure(state, inputs))


def _rising(m, r):
    return gammaln(m + r) - gammaln(r)


def _cells(m, r, logit, active, gain=_rising):
    """log NB(m; r, logit) up to a constant, one term a row and topic."""
    terms = gain(m, r) + m * logit - (m + r) * jax.nn.softplus(logit)
    return jnp.where(active, terms, 0.0)


def _prior(block, state, inputs, *, rate=None, spread=False):
    tau = precision_of(state, inputs)
    value = -0.5 * (block["weights"] ** 2 * (1.0 / tau if spread else tau)).sum()
    if inputs["shape"] is None:
        e0, f0 = inputs["shape_prior"]
        r = block["shape"]
        value = value + ((e0 - 1.0) * jnp.log(r) - (f0 if rate is None else rate) * r).sum()
    return value


def _target(state, inputs, likelihood=None, counts=None, **prior):
    """Log density of (r, W); `likelihood(m, r, psi, log s, active)` gives the terms of rows and topics."""
    m = counts_by_row(state, inputs) if counts is None else counts
    exposure = row_exposure(state, inputs)
    log_s, active = collapsed_logit(jnp.zeros_like(exposure), exposure)

    def log_density(block):
        r, psi = shape_of(block, inputs), inputs["X"] @ block["weights"].T
        if likelihood is None:
            terms = _cells(m, r, psi + log_s, active)
        else:
            terms = likelihood(m, r, psi, log_s, active)
        return terms.sum() + _prior(block, state, inputs, **prior)

    return log_density


def gamma_ratio_dropped(state, inputs):
    """Gamma(m + r) / Gamma(r) is dropped as a constant, though r is in the block: add it to every term."""

    def likelihood(m, r, psi, log_s, active):
        return _cells(m, r, psi + log_s, active, gain=lambda m, r: 0.0)

    return _target(state, inputs, likelihood)


def shape_prior_by_scale(state, inputs):
    """f0 is taken as the scale of the prior of r: the term is -f0 r, not -r / f0. Right if r is fixed."""
    return _target(state, inputs, rate=1.0 / inputs["shape_prior"][1])


def exposure_divides(state, inputs):
    """The negative binomial's logit is psi - log s: it is psi + log s."""
    return _target(state, inputs, lambda m, r, psi, log_s, active: _cells(m, r, psi - log_s, active))


def weights_prior_by_variance(state, inputs):
    """tau is used as the weights' prior variance: w^2 / tau should be w^2 tau."""
    return _target(state, inputs, spread=True)


def failure_probability(state, inputs):
    """p and 1 - p of the negative binomial are swapped: the logit has the wrong sign."""
    return _target(state, inputs, lambda m, r, psi, log_s, active: _cells(m, r, -psi - log_s, active))


def counts_of_whole_row(state, inputs):
    """Every topic is given all arrivals of the row, m_n, where it should have its own, m_nk."""
    m = counts_by_row(state, inputs)
    return _target(state, inputs, counts=jnp.broadcast_to(m.sum(axis=1, keepdims=True), m.shape))


def likelihood_averaged(state, inputs):
    """The likelihood is averaged over rows against an unscaled prior: it should be summed."""
    n = inputs["X"].shape[0]
    return _target(state, inputs, lambda m, r, psi, log_s, active: _cells(m, r, psi + log_s, active) / n)


def empty_cells_dropped(state, inputs):
    """Rows without an arrival of topic k are left out for that topic: they contribute -r softplus(logit)."""

    def likelihood(m, r, psi, log_s, active):
        return _cells(m, r, psi + log_s, active & (m > 0))

    return _target(state, inputs, likelihood)


def _embedding(state, inputs, *, concentration=None, exposure=None, prior_rate=None):
    psi = inputs["X"] @ state["weights"].T
    r = shape_of(state, inputs) + counts_by_row(state, inputs) if concentration is None else concentration
    exposure = row_exposure(state, inputs) if exposure is None else exposure
    return Gamma(r, exposure + (jnp.exp(-psi) if prior_rate is None else prior_rate))


def rate_exp_plus_psi(state, inputs):
    """The rate is s + exp(psi): it is s + exp(-psi)."""
    return _embedding(state, inputs, prior_rate=jnp.exp(inputs["X"] @ state["weights"].T))


def scale_passed_as_rate(state, inputs):
    """1 / (s + exp(-psi)), the scale, is handed over as the rate: do not invert."""
    right = _embedding(state, inputs)
    return Gamma(right.concentration, 1.0 / right.rate)


def observed_labels(inputs):
    """Number of observed labels of every row."""
    negatives, positives = inputs["negatives"], inputs["positives"]
    count = (negatives.base * inputs["num_labels"]).at[negatives.row].add(negatives.sign)
    return count.at[positives.row].add(1.0)


def complete_rows_alone(state, inputs):
    """Rows with a missing label are dropped (their u is drawn from the prior): keep their m and s. Right
    where nothing is missing."""
    whole = (observed_labels(inputs) > inputs["num_labels"] - 0.5)[:, None]
    r = shape_of(state, inputs) + jnp.where(whole, counts_by_row(state, inputs), 0.0)
    return _embedding(
        state, inputs, concentration=r, exposure=jnp.where(whole, row_exposure(state, inputs), 0.0)
    )


def gamma_by_its_mean(state, inputs):
    """The prior is taken to have mean exp(psi), rate r exp(-psi): the rate is exp(-psi)."""
    psi = inputs["X"] @ state["weights"].T
    return _embedding(state, inputs, prior_rate=shape_of(state, inputs) * jnp.exp(-psi))


def own_topic_stops_at_arrival(state, inputs):
    """At a positive only the topic of the first arrival is exposed for t, the others for 1: all for t."""
    positives, topics = inputs["positives"], state["topics"]
    own = jax.nn.one_hot(state["arrival_topic"], topics.shape[0], dtype=bool)
    listed = topics.T[positives.label] * jnp.where(own, state["arrival_time"][:, None], 1.0)
    exposure = negative_mass(topics, inputs["negatives"]).at[positives.row].add(listed)
    return _embedding(state, inputs, exposure=exposure)


def unit_exponential_prior(state, inputs):
    """u has an Exp(1) prior, so that neither r nor W enters: put r for 1 and exp(-psi) for the rate 1."""
    return _embedding(state, inputs, concentration=1.0 + counts_by_row(state, inputs), prior_rate=1.0)


def exposure_of_other_topic(state, inputs):
    """s is computed with the rows of V in reverse order: topic k must use v_k."""
    cells = (inputs["positives"], inputs["negatives"])
    return _embedding(
        state, inputs, exposure=exposed_mass(state["topics"][::-1], state["arrival_time"], *cells)
    )


def _precision(state, inputs, squares, count=None):
    a, b = inputs["precision_prior"]
    w = state["weights"]
    half = 0.5 * (w.shape[0] if count is None else count)
    return Gamma(jnp.full(w.shape[1], a + half), b + 0.5 * squares)


def squares_of_all_features(state, inputs):
    """The squares are summed over topics and features, one sum for every tau: sum over topics only."""
    w = state["weights"]
    return _precision(state, inputs, jnp.full(w.shape[1], (w**2).sum()))


def square_of_the_sum(state, inputs):
    """The rate has (sum_k w_kd)^2 / 2: it is sum_k w_kd^2 / 2."""
    return _precision(state, inputs, state["weights"].sum(axis=0) ** 2)


def half_a_row(state, inputs):
    """The shape is a + N / 2 with N the rows of X: it is a + K / 2, K topics."""
    return _precision(state, inputs, (state["weights"] ** 2).sum(axis=0), inputs["X"].shape[0])


def squares_about_the_mean(state, inputs):
    """Squares are taken about the mean of w over topics: the prior mean is 0, do not subtract."""
    w = state["weights"]
    return _precision(state, inputs, ((w - w.mean(axis=0)) ** 2).sum(axis=0))


FIRST, TOPICS = "first_arrivals_given_rest", "topics_given_arrivals"
SHAPE, EMBEDDING = "shape_and_weights_given_arrivals", "embedding_given_arrivals"
PRECISION = "precision_given_weights"

GIVEN = {
    FIRST: (
        time_at_mean_rate,
        time_uniform,
        time_of_last_arrival,
        topic_rates_as_logits,
        topics_reshaped_for_transposed,
    ),
    TOPICS: (
        eta_as_total_mass,
        zeros_alone_exposed,
        exposed_after_arrival,
        counts_overwritten,
        gammas_then_normalised,
    ),
    SHAPE: (
        gamma_ratio_dropped,
        shape_prior_by_scale,
        exposure_divides,
        weights_prior_by_variance,
        failure_probability,
        counts_of_whole_row,
        likelihood_averaged,
        empty_cells_dropped,
    ),
    EMBEDDING: (
        rate_exp_plus_psi,
        scale_passed_as_rate,
        complete_rows_alone,
        gamma_by_its_mean,
        own_topic_stops_at_arrival,
        unit_exponential_prior,
        exposure_of_other_topic,
    ),
    PRECISION: (
        squares_of_all_features,
        square_of_the_sum,
        half_a_row,
        squares_about_the_mean,
    ),
}
