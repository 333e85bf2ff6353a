"""The Polya-Gamma distribution: draws, exact moments, density, and a NumPyro distribution."""

from labelzoo.inference.polya_gamma.density import log_density
from labelzoo.inference.polya_gamma.distribution import PolyaGamma
from labelzoo.inference.polya_gamma.moments import (
    kl_from_untilted,
    log_cosh_half,
    log_laplace,
    log_tilt,
    mean,
    third_cumulant,
    variance,
)
from labelzoo.inference.polya_gamma.sampler import sample_polya_gamma

__all__ = [
    "PolyaGamma",
    "kl_from_untilted",
    "log_cosh_half",
    "log_density",
    "log_laplace",
    "log_tilt",
    "mean",
    "sample_polya_gamma",
    "third_cumulant",
    "variance",
]
