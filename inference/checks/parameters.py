"""The parameters of a claimed distribution, and the claim with one of them changed.

Both planted faults ("scale for rate") and their explanations ("would be right with rate -> 1 / rate") are
changes of this kind. They are data of one compiled program: trying fifty costs no compilation.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import ExpandedDistribution, Independent, MaskedDistribution
from numpyro.distributions.constraints import is_dependent

Array = Any

NO_CHANGE = (1.0, 1.0, 0.0)
"""(factor, power, term) of x -> factor * sign(x) |x|^power + term that leaves x alone."""


class Parameter(NamedTuple):
    """One parameter of the claim for one site: ``rate`` of ``embedding``."""

    site: str
    name: str


def parameters_of(claim: Any) -> list[Parameter]:
    """Return the float parameters of a claim, in the order of the rows of `changes`."""
    if not isinstance(claim, Mapping):
        return []
    return [Parameter(site, name) for site, d in claim.items() for name in _names(innermost(d))]


def altered_claim(claim: Mapping[str, Any], changes: Array) -> dict[str, Any]:
    """Return the claim with every parameter x changed to factor * sign(x) |x|^power + term.

    Parameters
    ----------
    claim : mapping from site to distribution
    changes : array (parameter, 3)
        Rows in the order of `parameters_of`; a row equal to `NO_CHANGE` changes nothing, not by rounding.
    """
    out, start = {}, 0
    for site, distribution in claim.items():
        count = len(_names(innermost(distribution)))
        out[site] = _rebuilt(distribution, changes[start : start + count])
        start += count
    return out


def innermost(distribution: Any) -> Any:
    """Return the distribution inside independent, expanded and masked wrappers."""
    while isinstance(distribution, Independent | ExpandedDistribution | MaskedDistribution):
        distribution = distribution.base_dist
    return distribution


def _names(distribution: Any) -> list[str]:
    held = vars(distribution)
    return [
        name
        for name in type(distribution).arg_constraints
        if name in held and jnp.issubdtype(jnp.result_type(held[name]), jnp.inexact)
    ]


def _rebuilt(distribution: Any, changes: Array) -> Any:
    if isinstance(distribution, Independent):
        base = _rebuilt(distribution.base_dist, changes)
        return Independent(base, distribution.reinterpreted_batch_ndims)
    if isinstance(distribution, ExpandedDistribution):
        return _rebuilt(distribution.base_dist, changes).expand(distribution.batch_shape)
    if isinstance(distribution, MaskedDistribution):
        return _rebuilt(distribution.base_dist, changes).mask(distribution._mask)
    held = vars(distribution)
    values = {
        name: _changed(held[name], change) for name, change in zip(_names(distribution), changes, strict=True)
    }
    kind = type(distribution)
    values = {name: _legal(kind.arg_constraints[name], value) for name, value in values.items()}
    if set(kind.gather_pytree_data_fields()) <= set(kind.arg_constraints):
        leaves, treedef = jax.tree.flatten(distribution)
        copy = jax.tree.unflatten(treedef, leaves)
        vars(copy).update(values)
        return copy
    # The class keeps what it computed from its parameters (a Cholesky factor): build it anew.
    rest = {name: held[name] for name in kind.arg_constraints if name in held and name not in values}
    try:
        return kind(**rest, **values)
    except TypeError:  # its constructor takes other arguments (a truncated distribution): leave it as it is
        return distribution


def _legal(constraint: Any, value: Array) -> Array:
    """Return the value, NaN where its constraint does not hold: that is no law."""
    if is_dependent(constraint):
        return value
    return jnp.where(jnp.all(constraint(value)), value, jnp.asarray(jnp.nan, value.dtype))


def _changed(value: Array, change: Array) -> Array:
    factor, power, term = change
    new = factor * jnp.sign(value) * jnp.abs(value) ** power + term
    # Of the dtype that the claim has: a float32 claim must not become another by being read here.
    return jnp.where((change == jnp.asarray(NO_CHANGE)).all(), value, new).astype(jnp.result_type(value))


def no_changes(count: int) -> np.ndarray:
    """Return `changes` for `count` parameters that change nothing."""
    return np.tile(np.asarray(NO_CHANGE), (count, 1))
