"""Engines of the Bernoulli-Poisson topic model; importing this package registers the model."""

from labelzoo.inference.bernoulli_poisson_topics.arrivals import ARRIVAL_UPDATES
from labelzoo.inference.bernoulli_poisson_topics.counts import COUNT_UPDATES
from labelzoo.inference.bernoulli_poisson_topics.em import MAP_EM, VB_EM
from labelzoo.inference.bernoulli_poisson_topics.gibbs import GIBBS
from labelzoo.inference.bernoulli_poisson_topics.gibbs_counts import GIBBS_COUNTS
from labelzoo.models.bernoulli_poisson_topics_card import spec
from labelzoo.models.registry import register

register(
    spec,
    engines=[GIBBS, GIBBS_COUNTS, MAP_EM, VB_EM],
    updates=[*ARRIVAL_UPDATES, *COUNT_UPDATES],
)
