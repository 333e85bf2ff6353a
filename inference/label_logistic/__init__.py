"""Engines of label_logistic: Polya-Gamma Gibbs and mean field, registered beside NUTS and SVI."""

from labelzoo.inference.label_logistic import gibbs, mean_field
from labelzoo.inference.label_logistic.updates import UPDATES
from labelzoo.models.label_logistic import spec as card
from labelzoo.models.registry import register

__all__ = ["spec"]

spec = register(card, engines=[gibbs.engine, mean_field.engine], updates=UPDATES)
