"""Conjugate pieces as NumPyro distributions: what a hand-derived conditional can claim to be.

All of them are pytrees, work under ``jit`` and ``vmap`` in float32 and float64, and size their draws by their
parameters, so that a distribution built outside ``vmap`` and mapped over its batch axis draws correctly.
"""

from labelzoo.inference.distributions.arrivals import FirstArrival, ZeroTruncatedPoisson
from labelzoo.inference.distributions.atom_polya_gamma import AtomPolyaGamma
from labelzoo.inference.distributions.float_poisson import FloatPoisson, draw_counts
from labelzoo.inference.distributions.gaussian_natural import GaussianNatural
from labelzoo.inference.distributions.log_gamma import LogGamma
from labelzoo.inference.distributions.negative_binomial import NegativeBinomialLogits
from labelzoo.inference.distributions.table_count import TableCount, draw_table_counts, log_stirling_first
from labelzoo.inference.distributions.tilted_dirichlet import (
    TiltedDirichlet,
    TiltedStep,
    log_tilted_dirichlet,
    tilted_dirichlet_step,
)

__all__ = [
    "AtomPolyaGamma",
    "FirstArrival",
    "FloatPoisson",
    "GaussianNatural",
    "LogGamma",
    "NegativeBinomialLogits",
    "TableCount",
    "TiltedDirichlet",
    "TiltedStep",
    "ZeroTruncatedPoisson",
    "draw_counts",
    "draw_table_counts",
    "log_stirling_first",
    "log_tilted_dirichlet",
    "tilted_dirichlet_step",
]
