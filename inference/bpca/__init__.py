"""Engines of bpca: Gibbs, mean field and closed-form maximum likelihood, beside NUTS and SVI."""

from labelzoo.inference.bpca import gibbs, mean_field, ml
from labelzoo.inference.bpca.judges import judges
from labelzoo.inference.bpca.updates import UPDATES
from labelzoo.models.bpca_card import spec as card
from labelzoo.models.registry import register

__all__ = ["spec"]

spec = register(card, engines=[*judges(card), mean_field.engine, gibbs.engine, ml.engine], updates=UPDATES)
