"""Bernoulli-Poisson label topics (BMLPL): the program in several views.

Rai, Hu, Henao and Carin, "Large-scale Bayesian multi-label learning via topic-based label embeddings",
NIPS 2015. Topics V (topic, labels) on the simplex, embeddings U (obs, topic) gamma given a regression on
the features, and y_nl = 1 exactly when a Poisson count of rate lambda_nl = sum_k u_nk v_kl is positive.

Because every topic sums to one, all observed zeros enter as one sum, and the likelihood costs
(positives x topics), never (rows x labels).
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import gammaln

from labelzoo.inference.distributions import LogGamma, TableCount
from labelzoo.inference.polya_gamma import PolyaGamma
from labelzoo.inference.stable import log1mexp
from labelzoo.models.label_cells import (
    Cells,
    Negatives,
    exposed_mass,
    missing_embedding,
    negative_mass,
    positive_sum_by_row,
)

Array = Any
Fixed = float | None

MAX_TRACED_COUNT = 128
"""Largest count of a row and topic whose table of Stirling numbers is at hand where counts are traced."""


def globals_prior(
    X: Array,
    *,
    num_labels: int,
    num_topics: int,
    topic_concentration: float,
    shape: Fixed,
    shape_prior: tuple[float, float],
    precision: Array | None,
    precision_prior: tuple[float, float] | None,
    feature_mean: Array | None = None,
    feature_scale: Array | None = None,
) -> tuple[Array, Array, Array]:
    """Sample what all views share: topics V, weights W, shapes r (and precisions tau).

    `feature_mean` and `feature_scale` say how `X` was standardised; prediction needs them, the program
    does not.

    Returns
    -------
    topics (topic, labels), weights (topic, feature), shape (topic,)
    """
    num_features = X.shape[1]
    if precision_prior is not None:
        with numpyro.plate("feature", num_features):
            precision = numpyro.sample("precision", dist.Gamma(*precision_prior))
    with numpyro.plate("topic", num_topics):
        topics = numpyro.sample("topics", dist.Dirichlet(jnp.full(num_labels, topic_concentration)))
        weights = numpyro.sample("weights", dist.Normal(0.0, jnp.asarray(precision) ** -0.5).to_event(1))
        if shape is None:
            r = numpyro.sample("shape", dist.Gamma(*shape_prior))
        else:
            r = numpyro.deterministic("shape", shape * jnp.ones(num_topics))
    return topics, weights, r


def positive_rates(topics: Array, embedding: Array, positives: Cells) -> Array:
    """Return v_kl u_nk at the positives: (positive, topic)."""
    return topics.T[positives.label] * embedding[positives.row]


def log_likelihood(topics: Array, embedding: Array, positives: Cells, negatives: Negatives) -> Array:
    """Return log p(Y | U, V): sum over positives of log(1 - e^-lambda) less the sum over zeros of lambda."""
    rates = positive_rates(topics, embedding, positives).sum(axis=1)
    return log1mexp(rates).sum() - (negative_mass(topics, negatives) * embedding).sum()


def summed(X: Array, positives: Cells, negatives: Negatives, **globals_: Any) -> None:
    """The program without counts: what NUTS and SVI run (section 2 of the paper, eqs. 1-6).

    The embedding is written non-centred, u = g exp(psi) with log g a log-gamma variable: for shapes below
    one the density of u is infinite at zero.
    """
    topics, weights, r = globals_prior(X, **globals_)
    with numpyro.plate("obs", X.shape[0]):
        log_unit = numpyro.sample("log_unit_embedding", LogGamma(r, jnp.zeros(())).to_event(1))
    embedding = numpyro.deterministic("embedding", jnp.exp(log_unit + X @ weights.T))
    numpyro.factor("Y", log_likelihood(topics, embedding, positives, negatives))


def arrivals(X: Array, positives: Cells, negatives: Negatives, **globals_: Any) -> None:
    """First arrival time t in (0, 1) and topic z of every positive, explicit.

    p(y = 1, t, z = k | u, v) = v_kl u_nk exp(-t lambda_nl): integrating t and summing k gives
    1 - exp(-lambda_nl), so the model is the one of `summed`.
    """
    topics, weights, r = globals_prior(X, **globals_)
    psi = X @ weights.T
    with numpyro.plate("obs", X.shape[0]):
        embedding = numpyro.sample("embedding", dist.Gamma(r, jnp.exp(-psi)).to_event(1))
    time, topic = _first_arrivals(positives, topics.shape[0])
    _arrival_factors(topics, embedding, time, topic, positives, negatives)


def arrivals_polar(X: Array, positives: Cells, negatives: Negatives, **globals_: Any) -> None:
    """`arrivals` with each row's embedding as size and direction, and times in units of 1 / size.

    u_nk = c_n d_nk with sum_k d_nk = 1, and e_nl = t_nl c_n in (0, c_n): given d and e, the size c is what
    the row scale move of the sampler draws.
    """
    topics, weights, r = globals_prior(X, **globals_)
    psi = X @ weights.T
    with numpyro.plate("obs", X.shape[0]):
        size = numpyro.sample("embedding_size", dist.Gamma(r.sum(), 1.0))
        share = numpyro.sample("embedding_share", dist.Dirichlet(jnp.broadcast_to(r, psi.shape)))
    # Gamma(r, 1) in these coordinates; the rest of Gamma(r, e^-psi) is a factor.
    embedding = size[:, None] * share
    numpyro.factor("embedding_rate", (-r * psi - embedding * jnp.expm1(-psi)).sum())
    with numpyro.plate("positive", positives.row.shape[0]):
        scaled = numpyro.sample("scaled_time", dist.Uniform(0.0, size[positives.row]))
        flat = jnp.zeros((positives.row.shape[0], topics.shape[0]))
        topic = numpyro.sample("arrival_topic", dist.Categorical(logits=flat))
    _arrival_factors(topics, embedding, scaled / size[positives.row], topic, positives, negatives)


def arrivals_collapsed(X: Array, positives: Cells, negatives: Negatives, **globals_: Any) -> None:
    """`arrivals` with the embedding integrated out: what (shape, weights) are drawn under."""
    topics, weights, r = globals_prior(X, **globals_)
    time, topic = _first_arrivals(positives, topics.shape[0])
    own = jax.nn.one_hot(topic, topics.shape[0], dtype=topics.dtype)
    counts = positive_sum_by_row(own, positives, X.shape[0])
    exposure = exposed_mass(topics, time, positives, negatives)
    log_topic = jnp.log(topics[topic, positives.label]).sum()
    numpyro.factor("collapsed", log_topic + _gamma_integral(counts, r, X @ weights.T, exposure))


def counts_observed(X: Array, positives: Cells, negatives: Negatives, **globals_: Any) -> None:
    """Topic counts of every positive explicit (eqs. 7-11), those of the missing cells summed out."""
    _counts_explicit(X, positives, negatives, globals_)


def counts(X: Array, positives: Cells, negatives: Negatives, **globals_: Any) -> None:
    """`counts_observed` with the counts of the missing cells explicit too, as one sum over rows a topic."""
    topics, embedding = _counts_explicit(X, positives, negatives, globals_)
    hidden = missing_embedding(embedding, positives, negatives, topics.shape[1])
    with numpyro.plate("topic", topics.shape[0]):
        numpyro.sample("hidden_counts", dist.Poisson(topics * hidden).to_event(1))


def counts_tables(X: Array, positives: Cells, negatives: Negatives, **globals_: Any) -> None:
    """`counts` with the embedding integrated out and the table counts (CRT) of each m_nk explicit."""
    topics, weights, r, m, exposure = _counts_collapsed(X, positives, negatives, globals_)
    numpyro.factor("collapsed", _gamma_integral(m, r, X @ weights.T, exposure))
    with numpyro.plate("obs", X.shape[0]):
        numpyro.sample("tables", table_count(m, jnp.broadcast_to(r, m.shape)).to_event(1))


def table_count(m: Array, r: Array) -> TableCount:
    """Return the law of the tables of m customers.

    With traced m, log densities of counts above `MAX_TRACED_COUNT` are NaN.
    """
    return TableCount(m, r, max_count=MAX_TRACED_COUNT if isinstance(m, jax.core.Tracer) else None)


def counts_polya_gamma(X: Array, positives: Cells, negatives: Negatives, **globals_: Any) -> None:
    """`counts` with the embedding integrated out and Polya-Gamma variables explicit (eqs. 14-16)."""
    topics, weights, r, m, exposure = _counts_collapsed(X, positives, negatives, globals_)
    logit, active = collapsed_logit(X @ weights.T, exposure)
    b = m + r
    with numpyro.plate("obs", X.shape[0]):
        omega = numpyro.sample("omega", PolyaGamma(b, jnp.zeros_like(b)).to_event(1))
    terms = gammaln(b) - gammaln(r) - m * jnp.log(jnp.where(active, exposure, 1.0))
    terms = terms - b * jnp.log(2.0) + 0.5 * (m - r) * logit - 0.5 * omega * logit**2
    numpyro.factor("collapsed", jnp.where(active, terms, 0.0).sum())


def collapsed_logit(psi: Array, exposure: Array) -> tuple[Array, Array]:
    """Return (psi + log s, s > 0); rows without observed labels (s = 0) have logit 0 and are inactive."""
    active = exposure > 0
    return jnp.where(active, psi + jnp.log(jnp.where(active, exposure, 1.0)), 0.0), active


def _arrival_factors(
    topics: Array, embedding: Array, time: Array, topic: Array, positives: Cells, negatives: Negatives
) -> None:
    rates = positive_rates(topics, embedding, positives)
    log_first = jnp.log(jnp.take_along_axis(rates, topic[:, None], axis=1)[:, 0])
    numpyro.factor("first_arrival", (log_first - time * rates.sum(axis=1)).sum())
    numpyro.factor("negatives", -(negative_mass(topics, negatives) * embedding).sum())


def _first_arrivals(positives: Cells, num_topics: int) -> tuple[Array, Array]:
    with numpyro.plate("positive", positives.row.shape[0]):
        time = numpyro.sample("arrival_time", dist.Uniform(0.0, 1.0))
        # A flat base measure: the law of z is in the factor.
        flat = jnp.zeros((positives.row.shape[0], num_topics))
        topic = numpyro.sample("arrival_topic", dist.Categorical(logits=flat))
    return time, topic


def _gamma_integral(counts: Array, r: Array, psi: Array, exposure: Array) -> Array:
    """log of the integral of Gamma(u; r, e^-psi) u^m e^{-s u}, summed over rows and topics."""
    b = counts + r
    return (gammaln(b) - gammaln(r) - r * psi - b * jnp.logaddexp(jnp.log(exposure), -psi)).sum()


def _counts_explicit(
    X: Array, positives: Cells, negatives: Negatives, globals_: Mapping[str, Any]
) -> tuple[Array, Array]:
    topics, weights, r = globals_prior(X, **globals_)
    psi = X @ weights.T
    with numpyro.plate("obs", X.shape[0]):
        embedding = numpyro.sample("embedding", dist.Gamma(r, jnp.exp(-psi)).to_event(1))
    rates = positive_rates(topics, embedding, positives)
    with numpyro.plate("positive", positives.row.shape[0]):
        m = numpyro.sample("counts", dist.Poisson(rates).to_event(1))
    numpyro.factor("at_least_one", jnp.where((m.sum(axis=1) > 0).all(), 0.0, -jnp.inf))
    numpyro.factor("negatives", -(negative_mass(topics, negatives) * embedding).sum())
    return topics, embedding


def _counts_collapsed(
    X: Array, positives: Cells, negatives: Negatives, globals_: Mapping[str, Any]
) -> tuple[Array, Array, Array, Array, Array]:
    topics, weights, r = globals_prior(X, **globals_)
    num_topics = topics.shape[0]
    with numpyro.plate("positive", positives.row.shape[0]):
        # Base measure 1/m! up to a constant: the rest of the law of m is in the factors.
        m = numpyro.sample("counts", dist.Poisson(jnp.ones(num_topics)).to_event(1))
    numpyro.factor("at_least_one", jnp.where((m.sum(axis=1) > 0).all(), 0.0, -jnp.inf))
    numpyro.factor("count_topics", (m * jnp.log(topics.T[positives.label])).sum())
    row_counts = positive_sum_by_row(jnp.asarray(m, topics.dtype), positives, X.shape[0])
    ones = jnp.ones(positives.row.shape[0])
    return topics, weights, r, row_counts, exposed_mass(topics, ones, positives, negatives)


VIEWS = {
    "summed": summed,
    "arrivals": arrivals,
    "arrivals_polar": arrivals_polar,
    "arrivals_collapsed": arrivals_collapsed,
    "counts_observed": counts_observed,
    "counts": counts,
    "counts_tables": counts_tables,
    "counts_polya_gamma": counts_polya_gamma,
}
