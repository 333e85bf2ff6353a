"""Which real numbers the processes are fitted to: canonical targets of a compression, or its measurements.

``bpca`` is the paper's: variational principal components, whose precisions switch off what explains little.
``ppca`` is maximum likelihood with the same number of components: every direction in which the rows vary is
kept. ``none`` takes each measurement itself, centred and of unit variance, weighted by its variance:
compressed sensing alone, the paper's own comparison. All three have the same form, so whatever reads
canonical targets reads them.

Shi and Yu, ICML 2019, sections 3 and 4.2.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from labelzoo.inference.bpca.canonical import Canonical, canonical_targets
from labelzoo.inference.bpca.ml import ppca, score_means
from labelzoo.inference.compressed_gp.compression import compress
from labelzoo.models import bpca_card

Array = Any

COMPRESSIONS = ("bpca", "ppca", "none")
FLAT = 1e-12
"""A measurement whose variance is below this share of the largest is no target."""


class Reduced(NamedTuple):
    """Targets, and whether what was iterated to find them came to rest."""

    canonical: Canonical
    converged: bool


def targets_of(inputs: Mapping[str, Any], compression: Any = "bpca") -> Canonical:
    """Return the targets of rows that the card of bpca prepared; no target where nothing varies.

    Parameters
    ----------
    inputs : mapping
        What ``labelzoo.models.bpca_card.prepare`` returned.
    compression : {"bpca", "ppca", "none"}

    Raises
    ------
    ValueError
        For another compression.
    """
    return reduced(inputs, compression).canonical


def reduced(inputs: Mapping[str, Any], compression: Any = "bpca") -> Reduced:
    """Return the targets as `targets_of`, with ``converged``."""
    if compression not in COMPRESSIONS:
        raise ValueError(f"compression must be one of {', '.join(COMPRESSIONS)}, got {compression!r}")
    if compression == "bpca":
        found = compress(inputs)
        return Reduced(found.canonical, found.converged)
    R = np.asarray(inputs["compressed"], float)
    # Rows that are alike go the same way: what is left of their variance is rounding, and no target.
    use_measurements = compression == "none" or not _varying(R).any()
    return Reduced(_measurements(R) if use_measurements else _ppca(inputs, R), True)


def _ppca(inputs: Mapping[str, Any], R: Array) -> Canonical:
    """Return the targets of a fit by maximum likelihood: measurement^3 flops."""
    fit = ppca(inputs, inputs["num_components"])
    return canonical_targets(score_means(fit, R), fit.loadings, fit.mean, fit.noise_variance)


def _measurements(R: Array) -> Canonical:
    """Return the measurements that vary as targets."""
    mean, variance, keep = R.mean(axis=0), R.var(axis=0), _varying(R)
    sd = np.sqrt(variance[keep])
    eye = np.eye(R.shape[1])[:, keep]
    return Canonical((R - mean)[:, keep] / sd, eye * sd, mean, variance[keep], mean, eye / sd)


def _varying(R: Array) -> Array:
    """Say which measurements vary by more than rounding: bool (measurement,)."""
    variance = R.var(axis=0)
    rounding = bpca_card.FLAT * float((R**2).mean())
    return (variance > FLAT * variance.max(initial=0.0)) & (variance > rounding)
