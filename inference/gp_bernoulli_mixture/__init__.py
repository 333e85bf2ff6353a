"""Engines of the Gaussian process gated Bernoulli mixture and its array cores."""

from labelzoo.inference.gp_bernoulli_mixture import bounds, gibbs, judges, sparse
from labelzoo.inference.gp_bernoulli_mixture.updates import UPDATES
from labelzoo.models.gp_bernoulli_mixture_card import spec as card
from labelzoo.models.registry import register

__all__ = ["spec"]

spec = register(
    card,
    engines=[
        *judges.judges(card),
        gibbs.engine,
        bounds.mean_field_engine,
        bounds.structured_engine,
        sparse.engine,
    ],
    updates=UPDATES,
)
