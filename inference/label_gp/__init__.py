"""Engines of label_gp: the closed form, beside NUTS and SVI."""

from labelzoo.inference.label_gp import conjugate
from labelzoo.inference.label_gp.updates import UPDATES
from labelzoo.models.label_gp import spec as card
from labelzoo.models.registry import register

__all__ = ["spec"]

spec = register(card, engines=[conjugate.engine], updates=UPDATES)
