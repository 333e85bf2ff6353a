"""Engines of label_logistic: Polya-Gamma Gibbs, mean field and its streaming form, beside NUTS and SVI."""

from labelzoo.inference.label_logistic import gibbs, mean_field, streaming
from labelzoo.inference.label_logistic.updates import UPDATES
from labelzoo.models.label_logistic import spec as card
from labelzoo.models.registry import register

__all__ = ["spec"]

spec = register(card, engines=[gibbs.engine, mean_field.engine, streaming.engine], updates=UPDATES)
