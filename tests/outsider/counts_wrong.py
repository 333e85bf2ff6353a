"""Wrong versions of the count sampler's conditionals given U or V, by update; each says its own slip."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln, logsumexp
from numpyro.distributions import Dirichlet, Independent, Poisson

from labelzoo.inference.bernoulli_poisson_topics.counts import (
    PositivePoissons,
)
from labelzoo.inference.bernoulli_poisson_topics.starts_mcmc import (
    log_embedding_of,
    log_rates,
    log_topics_of,
)
from labelzoo.models.label_cells import (
    exposed_embedding,
    missing_embedding,
    negative_embedding,
    positive_sum_by_label,
)


class OneMore(PositivePoissons):
    """One count by Categorical(rates), then independent Poissons at the full rates."""

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        topic_key, rest_key = jax.random.split(key)
        shape = sample_shape + self.log_rate.shape
        log_rate = jnp.broadcast_to(self.log_rate, shape)
        first = jax.nn.one_hot(jax.random.categorical(topic_key, log_rate), shape[-1], dtype=int)
        return first + jax.random.poisson(rest_key, jnp.exp(log_rate), shape)

    def log_prob(self, value: Any) -> Any:
        m = jnp.asarray(value, self.log_rate.dtype)
        total, log_total = m.sum(axis=-1), logsumexp(self.log_rate, axis=-1)
        terms = (m * self.log_rate - gammaln(m + 1.0)).sum(axis=-1)
        some = jnp.maximum(total, 1.0)
        return jnp.where(total > 0, terms + jnp.log(some) - log_total - jnp.exp(log_total), -jnp.inf)


def one_plus_poisson(state, inputs):
    """The total is 1 + Poisson(lambda), split by topic: it is Poisson(lambda) given that it is positive."""
    return OneMore(log_rates(state, inputs["positives"]))


def not_truncated(state, inputs):
    """The counts are plain Poissons, which may all be zero: condition on y = 1, a positive sum."""
    return Independent(Poisson(jnp.exp(log_rates(state, inputs["positives"]))), 1)


def split_by_topics_alone(state, inputs):
    """The total has rate lambda but is split in proportion to v_kl: the split is by v_kl u_nk."""
    total = logsumexp(log_rates(state, inputs["positives"]), axis=1, keepdims=True)
    log_v = log_topics_of(state).T[inputs["positives"].label]
    return PositivePoissons(log_v - logsumexp(log_v, axis=1, keepdims=True) + total)


def labels_in_column_order(state, inputs):
    """The positives' labels are sorted by label, their rows by row: use label as it stands, unsorted."""
    positives = inputs["positives"]
    log_v = log_topics_of(state).T[jnp.sort(positives.label)]
    return PositivePoissons(log_v + log_embedding_of(state)[positives.row])


def _list(inputs):
    return inputs["positives"], inputs["negatives"], inputs["num_labels"]


def _hidden(rate):
    return Independent(Poisson(rate), 1)


def observed_for_missing(state, inputs):
    """The embedding is summed over rows where the label is observed: sum where it is missing."""
    ones = jnp.ones(inputs["positives"].row.shape[0], inputs["X"].dtype)
    seen = exposed_embedding(state["embedding"], ones, *_list(inputs))
    return _hidden(state["topics"] * seen)


def positives_hidden_too(state, inputs):
    """Everything but the observed zeros counts as missing: take the positives out of the sum too."""
    u = state["embedding"]
    zeros = negative_embedding(u, inputs["negatives"], inputs["num_labels"])
    return _hidden(state["topics"] * jnp.maximum(u.sum(axis=0)[:, None] - zeros, 0.0))


def missing_times_mean(state, inputs):
    """The sum over missing rows is their number times the mean of u over all rows: sum u over these rows."""
    u = state["embedding"]
    rows = missing_embedding(jnp.ones_like(u), *_list(inputs))
    return _hidden(state["topics"] * rows * u.mean(axis=0)[:, None])


def hit_probability_as_rate(state, inputs):
    """The rate is 1 - exp(-v u), the chance of a positive: it is v u itself. Wrong if labels are missing."""
    hidden = missing_embedding(state["embedding"], *_list(inputs))
    return _hidden(-jnp.expm1(-state["topics"] * hidden))


def _topics(state, inputs, values, hidden):
    by_label = positive_sum_by_label(
        jnp.asarray(values, inputs["X"].dtype), inputs["positives"], inputs["num_labels"]
    )
    return Dirichlet(inputs["topic_concentration"] + by_label + hidden)


def hidden_left_out(state, inputs):
    """The counts of missing cells are not added to the concentration: wrong only where one is positive."""
    return _topics(state, inputs, state["counts"], 0.0)


def presence_for_counts(state, inputs):
    """Counts above one at the positives enter as one: sum m and not (m > 0)."""
    return _topics(state, inputs, state["counts"] > 0, state["hidden_counts"])


def winner_takes_all(state, inputs):
    """All counts of a positive go to the topic that has most: each topic keeps its own m_nlk."""
    m = state["counts"]
    winner = jax.nn.one_hot(m.argmax(axis=1), m.shape[1]) * m.sum(axis=1, keepdims=True)
    return _topics(state, inputs, winner, state["hidden_counts"])


COUNTS, HIDDEN, TOPICS = "counts_given_rest", "hidden_counts_given_rest", "topics_given_counts"

GIVEN = {
    COUNTS: (
        one_plus_poisson,
        not_truncated,
        split_by_topics_alone,
        labels_in_column_order,
    ),
    HIDDEN: (
        observed_for_missing,
        positives_hidden_too,
        missing_times_mean,
        hit_probability_as_rate,
    ),
    TOPICS: (
        hidden_left_out,
        presence_for_counts,
        winner_takes_all,
    ),
}
