"""Engines of the sparse Bayesian multilabel model and its array cores."""

from labelzoo.inference.sparse_bayes import bounds, gibbs, judges
from labelzoo.inference.sparse_bayes.updates import UPDATES
from labelzoo.models.registry import register
from labelzoo.models.sparse_bayes_card import spec as card

__all__ = ["spec"]

spec = register(
    card, engines=[*judges.judges(card), bounds.ml_oss, bounds.bml_cs, gibbs.engine], updates=UPDATES
)
