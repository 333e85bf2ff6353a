"""Compressed labels, Bayesian PCA targets, one Gaussian process a target: engines, and array cores."""

from labelzoo.inference.compressed_gp.answers import decoded
from labelzoo.inference.compressed_gp.engines import ENGINES
from labelzoo.inference.compressed_gp.judges import judges
from labelzoo.inference.compressed_gp.updates import UPDATES
from labelzoo.models.compressed_gp_card import spec as card
from labelzoo.models.registry import register

__all__ = ["decoded", "spec"]

spec = register(card, engines=[*judges(card), *ENGINES], updates=UPDATES)
