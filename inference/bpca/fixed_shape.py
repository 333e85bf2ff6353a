"""The climb of mean field in one compiled program for every number of rows: for fits repeated as rows come.

`labelzoo.inference.bpca.mean_field.climb` compiles anew where a column is dropped, and where a row is added
to fewer rows than measurements. Here rows are padded pseudo-rows, and a dropped column stays, after those
that are live, with a q(W) that is the point 0. The numbers are the same.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from labelzoo.inference.bpca.factors import Factors, sweep
from labelzoo.inference.bpca.mean_field import Climb, dropped, kept_columns, settled
from labelzoo.inference.bpca.pseudo_rows import pseudo_rows
from labelzoo.inference.bpca.rotation import rotation_step

Array = Any


@jax.jit
def _ascend(
    factors: Factors, arrays: dict[str, Array], tolerance: Array, most: Array
) -> tuple[Array, Factors, Array, Array]:
    """Return sweeps made, factors, their bound and the one before."""
    first, value = settled(factors, arrays)

    def moving(carry: tuple[Array, Factors, Array, Array]) -> Array:
        count, _, new, old = carry
        return (count < most) & (jnp.abs(new - old) > tolerance * (1.0 + jnp.abs(new)))

    def once(carry: tuple[Array, Factors, Array, Array]) -> tuple[Array, Factors, Array, Array]:
        count, state, old, _ = carry
        return count + 1, *rotation_step(sweep(state, arrays), arrays), old

    return jax.lax.while_loop(moving, once, (jnp.asarray(0), first, value, jnp.full_like(value, jnp.inf)))


def switched_off(factors: Factors, keep: Array) -> Factors:
    """Return the factors with the columns to keep first and all others taking no part."""
    order = np.argsort(~keep, kind="stable")
    live = np.arange(len(keep)) < keep.sum()
    moved = dropped(factors, order)
    both = np.outer(live, live)
    return moved._replace(
        scores_mean=moved.scores_mean * live,
        scores_covariance=moved.scores_covariance * both + np.diag(1.0 - live),
        loadings_mean=moved.loadings_mean * live,
        loadings_covariance=moved.loadings_covariance * both,
    )


def climb_padded(
    factors: Factors, inputs: Mapping[str, Any], *, max_iter: int, tolerance: float, prune: float
) -> Climb:
    """Ascend with rotation, prune at rest, and ascend again until no column is switched off.

    Parameters and result are those of `labelzoo.inference.bpca.mean_field.climb`, but for the trace, which
    has the last bound alone.

    Raises
    ------
    FloatingPointError
        If the bound is not finite.
    """
    pseudo = pseudo_rows(inputs, size=inputs["compressed"].shape[1] + 1)
    factors, used = pseudo.reduced(factors), 0
    live = np.ones(factors.loadings_mean.shape[1], bool)
    while True:
        most = max_iter - used
        count, found, value, before = _ascend(factors, pseudo.arrays, tolerance, most)
        if not np.isfinite(value):
            raise FloatingPointError(f"the bound of bpca is {float(value)} after {used + int(count)} sweeps")
        used += int(count)
        converged = bool(abs(value - before) <= tolerance * (1.0 + abs(value)))
        keep = kept_columns(found.loadings_mean, prune) & live
        if used >= max_iter or (keep == live).all():
            break
        factors = switched_off(found, keep)
        live = np.arange(len(keep)) < keep.sum()
    words = "relative change of the bound below tolerance" if converged else f"stopped at max_iter={max_iter}"
    state = dropped(pseudo.expanded(found), np.flatnonzero(live))
    return Climb(state, np.asarray([float(value)]), converged, words, used)
