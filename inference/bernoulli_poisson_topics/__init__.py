"""Engines of the Bernoulli-Poisson topic model; importing this package registers the model."""

from labelzoo.inference.bernoulli_poisson_topics.advice import advise
from labelzoo.inference.bernoulli_poisson_topics.arrivals import ARRIVAL_UPDATES
from labelzoo.inference.bernoulli_poisson_topics.counts import COUNT_UPDATES
from labelzoo.inference.bernoulli_poisson_topics.em import MAP_EM, VB_EM
from labelzoo.inference.bernoulli_poisson_topics.exact_em import EXACT_EM
from labelzoo.inference.bernoulli_poisson_topics.gibbs import GIBBS
from labelzoo.inference.bernoulli_poisson_topics.gibbs_counts import GIBBS_COUNTS
from labelzoo.inference.bernoulli_poisson_topics.online_em import ONLINE_EM
from labelzoo.inference.bernoulli_poisson_topics.row_scale import ROW_SCALE_UPDATE
from labelzoo.models.bernoulli_poisson_topics_card import spec
from labelzoo.models.registry import register

_claimed = {update.name for update in ARRIVAL_UPDATES}

register(
    spec,
    engines=[GIBBS, GIBBS_COUNTS, MAP_EM, VB_EM, ONLINE_EM, EXACT_EM],
    # The precision step is one update of both samplers, on sites that every view shares.
    updates=[
        *ARRIVAL_UPDATES,
        ROW_SCALE_UPDATE,
        *(update for update in COUNT_UPDATES if update.name not in _claimed),
    ],
    advice=advise,
)
