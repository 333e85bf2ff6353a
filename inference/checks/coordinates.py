"""Coordinates in which draws of a claim are moved about, in NumPy: nothing here is compiled."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from numpyro.distributions import biject_to, constraints
from scipy.special import expit, logit, logsumexp

from labelzoo.inference.checks.parameters import Parameter, innermost, parameters_of
from labelzoo.inference.checks.programs import (
    TRACING,
    State,
    base_support,
    bijection_of,
    claim_of,
    join_inputs,
    split_inputs,
)

Array = Any

COARSE = 1e-12
"""Values of (0, 1) this near to one are walled off: their distance from it has fewer than four digits."""


class Coordinates(NamedTuple):
    """Coordinates of a support: to, from, log |d value / d coordinate| a batch element, and the projection
    of a moved coordinate onto those that stand for a value (logs of a simplex sum to one); and which values
    are so near an end that floats are no longer dense there."""

    free: Callable[[Array], Array]
    value: Callable[[Array], Array]
    log_jacobian: Callable[[Array], Array]
    project: Callable[[Array], Array] = lambda u: u
    is_coarse: Callable[[Array], Array] = lambda x: np.zeros(np.shape(x), bool)


class SiteLaw(NamedTuple):
    """What is known of the claim for one site without computing anything."""

    batch_shape: tuple[int, ...]
    event_shape: tuple[int, ...]
    is_discrete: bool
    coordinates: Coordinates
    kind: type


class Described(NamedTuple):
    """A claim seen from outside: laws by site (none for a bare log density), parameters, and whether its log
    density is complete or up to a constant."""

    laws: Mapping[str, SiteLaw]
    parameters: list[Parameter]
    normalized: bool


def describe(given: Any, states: State, inputs: Mapping[str, Any], sites: tuple[str, ...]) -> Described:
    """Trace a claim at abstract values and read its shapes, supports and parameters."""
    arrays, static = split_inputs(inputs)
    found: list[Described] = []

    def read(arrays: list[Array], state: State) -> None:
        claim = claim_of(given, state, join_inputs(arrays, static), sites)
        if not isinstance(claim, Mapping):
            found.append(Described({}, [], False))
            return
        laws = {name: _law(d) for name, d in claim.items()}
        # Where the support moves with the parameters, a law may differ at values that are never tried.
        normalized = all(
            getattr(innermost(d), "normalized", True) and _fixed_support(d) for d in claim.values()
        )
        found.append(Described(laws, parameters_of(claim), normalized))

    one = {site: jax.ShapeDtypeStruct(v.shape[1:], jax.numpy.result_type(v)) for site, v in states.items()}
    with TRACING:
        jax.eval_shape(read, arrays, one)
    return found[-1]


def _fixed_support(distribution: Any) -> bool:
    base, _ = base_support(distribution.support)
    if base is constraints.unit_interval:
        return True
    examples = (constraints.interval(0, 1), constraints.greater_than(0), constraints.less_than(0))
    kinds = [type(example) for example in examples] + [type(constraints.integer_interval(0, 1))]
    known = (constraints.positive, constraints.nonnegative, constraints.boolean)
    return base in known or not isinstance(base, tuple(kinds))


def _law(distribution: Any) -> SiteLaw:
    ways = coordinates(
        distribution.support,
        distribution.is_discrete,
        len(distribution.event_shape),
        len(distribution.batch_shape),
    )
    return SiteLaw(
        distribution.batch_shape,
        distribution.event_shape,
        bool(distribution.is_discrete),
        ways,
        type(innermost(distribution)),
    )


def coordinates(support: Any, is_discrete: bool, event_dim: int, batch_dim: int) -> Coordinates:
    """Choose coordinates: log for positive values and simplexes, logit for (0, 1), else the value itself.

    Moves in the value itself are right for any support, as values outside it are refused; other bijections
    serve supports that are no box.
    """
    base, _ = base_support(support)
    if is_discrete:
        return _value_itself(event_dim)
    if base is constraints.simplex:
        # Base measure prod dv / v: a move of log v followed by normalisation is symmetric under it.
        return Coordinates(
            _log,
            np.exp,
            lambda u: _sum_last(u, event_dim),
            _normalised_log,
        )
    if base is constraints.positive or base is constraints.nonnegative:
        return Coordinates(_log, np.exp, lambda u: _sum_last(u, event_dim))
    if base is constraints.unit_interval:
        log_slope = lambda u: _sum_last(-np.logaddexp(0, u) - np.logaddexp(0, -u), event_dim)  # noqa: E731
        return Coordinates(_logit, expit, log_slope, is_coarse=lambda x: 1.0 - x < COARSE)
    boxes = (
        type(constraints.interval(0, 1)),
        type(constraints.greater_than(0)),
        type(constraints.less_than(0)),
    )
    plain = (constraints.real, constraints.real_vector, constraints.real_matrix)
    traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(base))
    if traced or any(base is one for one in plain) or isinstance(base, boxes):
        return _value_itself(event_dim)
    return _bijection(base, event_dim, batch_dim)


def _value_itself(event_dim: int) -> Coordinates:
    return Coordinates(lambda x: x, lambda u: u, lambda u: np.zeros(u.shape[: u.ndim - event_dim]))


def _bijection(base: Any, event_dim: int, batch_dim: int) -> Coordinates:
    transform = bijection_of(base)
    if transform is None:
        return _value_itself(event_dim)

    def log_jacobian(u: Array) -> Array:
        value = np.asarray(transform.log_abs_det_jacobian(u, transform(u)))
        return _sum_last(value, value.ndim - (2 + batch_dim))  # axes (state, draw, *batch) stay

    return Coordinates(
        lambda x: np.asarray(transform._inverse(x)), lambda u: np.asarray(transform(u)), log_jacobian
    )


def spread_over(constraint: Any, free: Array) -> Array:
    """Map unconstrained numbers (state, *shape) into a support of that shape (a simplex by softmax)."""
    base, _ = base_support(constraint)
    if base is constraints.simplex:
        return np.exp(free - logsumexp(free, axis=-1, keepdims=True))
    if base is constraints.positive or base is constraints.nonnegative:
        return np.exp(free)
    if base is constraints.unit_interval:
        return expit(free)
    if any(base is one for one in (constraints.real, constraints.real_vector, constraints.real_matrix)):
        return free
    return np.asarray(biject_to(constraint)(free))


def free_shape(constraint: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of what `spread_over` maps to `shape`."""
    base, _ = base_support(constraint)
    return shape if base is constraints.simplex else tuple(biject_to(constraint).inverse_shape(shape))


def _normalised_log(u: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return u - logsumexp(u, axis=-1, keepdims=True)


def _sum_last(value: Array, count: int) -> Array:
    return value.sum(tuple(range(-count, 0))) if count else value


def _log(x: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(x)


def _logit(x: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return logit(x)
