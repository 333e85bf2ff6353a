"""The compression that the target processes stand on: bpca by mean field, and its canonical targets.

Shi and Yu, ICML 2019, section 3, levels one and two; what is fitted is `labelzoo.models.bpca`.

Active learning fits again with every new row. Shapes hang on measurements and components alone, so that the
program is compiled once, and a sweep costs measurement^2 component flops whatever the number of rows. Every
fit begins anew from maximum likelihood. Beginning from the last fit saves about a quarter of the sweeps, but
in one of four fits of 50 to 550 rows (corel5k) kept another number of columns: the result would depend on the
order in which rows came.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from labelzoo.arguments import whole_number
from labelzoo.inference.bpca.canonical import Canonical, canonical_targets
from labelzoo.inference.bpca.factors import Factors, noise_mean
from labelzoo.inference.bpca.fixed_shape import climb_padded
from labelzoo.inference.bpca.mean_field import OPTIONS, start

Array = Any


class Compression(NamedTuple):
    """A fit of the compressed rows.

    Attributes
    ----------
    canonical : Canonical
    noise_variance : float
        1 / E tau, squared units of a scaled compressed row.
    factors : Factors
        Where the ascent ended.
    converged : bool
    iterations : int
        Sweeps.
    """

    canonical: Canonical
    noise_variance: float
    factors: Factors
    converged: bool
    iterations: int


def compress(inputs: Mapping[str, Any], *, max_iter: Any = OPTIONS["max_iter"]) -> Compression:
    """Return the fit of `inputs`, what the card of bpca prepares from rows of labels.

    Rows that are all alike leave no target: ``canonical.targets`` is (row, 0).

    Raises
    ------
    ValueError
        If `max_iter` is not an integer of at least 1.
    FloatingPointError
        If the bound is not finite.
    """
    with jax.enable_x64(True):
        first = start(jax.random.key(0), inputs, inputs["num_components"])
        found = climb_padded(
            first,
            inputs,
            max_iter=whole_number("max_iter", max_iter, 1),
            tolerance=OPTIONS["tolerance"],
            prune=OPTIONS["prune"],
        )
    f = Factors(*(np.asarray(value, float) for value in found.factors))
    noise = float(1.0 / noise_mean(f))
    canonical = canonical_targets(f.scores_mean, f.loadings_mean, f.mean_mean, noise)
    return Compression(canonical, noise, f, found.converged, found.iterations)
