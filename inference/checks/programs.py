"""Compiled pieces of the checks: the joint of a view and the density of a claim, at many states at once.

A check meets tens of small programs and runs each for milliseconds, so compilation is nearly the whole
cost. Inputs are split into arrays (traced) and everything else (static), which lets all states and all data
sets of one shape share a program, and XLA is told to skip its expensive passes.
"""

import threading
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.distributions import biject_to
from numpyro.infer.util import compute_log_probs

from labelzoo.inference.checks.parameters import altered_claim

Array = Any
State = dict[str, Array]

TRACING = threading.RLock()
"""Held while a program is traced: NumPyro's stack of handlers is one a process."""

FAST_COMPILE: Any = {"xla_backend_optimization_level": "0", "xla_llvm_disable_expensive_passes": True}
"""Measured on a program of gamma and Dirichlet draws: .8 s to compile instead of 2.8 s."""


PROGRAMS: "weakref.WeakSet[Program]" = weakref.WeakSet()
"""Those alive; a case makes its own and drops them."""


class Program:
    """A function compiled once for each set of static arguments and shapes, from any thread.

    Tracing holds `TRACING`; compilation, the larger part, runs beside other threads.

    Parameters
    ----------
    function : callable
        Arrays by position, static (hashable) arguments by keyword.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._compiled: dict[Any, Any] = {}
        PROGRAMS.add(self)

    def forget(self) -> None:
        """Drop what was compiled: functions may have changed under the same name."""
        self._compiled = {}

    def __call__(self, *arrays: Any, **static: Any) -> Any:
        """Run the function, compiled first where it is new."""
        leaves, treedef = jax.tree.flatten(arrays)
        shapes = tuple((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
        key = (treedef, shapes, tuple(sorted(static.items(), key=lambda item: item[0])))
        compiled = self._compiled.get(key)
        if compiled is None:
            jitted = jax.jit(partial(self.function, **static))
            with TRACING:
                lowered = jitted.lower(*arrays)
            compiled = self._compiled[key] = lowered.compile(FAST_COMPILE)
        return compiled(*arrays)


def forget_programs() -> None:
    """Drop all compiled programs: a claim may read variables that have changed since (a notebook)."""
    for program in list(PROGRAMS):
        program.forget()


class ClaimError(ValueError):
    """A claim that cannot be evaluated: a wrong shape, a missing site, a site outside the view."""


class Static(NamedTuple):
    """What is left of a view's inputs without the arrays; hashable, so that compiled programs are shared."""

    treedef: Any
    leaves: tuple[Any, ...]


def split_inputs(inputs: Mapping[str, Any]) -> tuple[list[Array], Static]:
    """Separate the arrays of `inputs` from its numbers, strings and structure."""
    leaves, treedef = jax.tree.flatten(dict(inputs))
    arrays = [leaf for leaf in leaves if isinstance(leaf, np.ndarray | jax.Array)]
    kept = tuple(_ARRAY if isinstance(leaf, np.ndarray | jax.Array) else leaf for leaf in leaves)
    return arrays, Static(treedef, kept)


_ARRAY = "an array stands here"


def join_inputs(arrays: list[Array], static: Static) -> dict[str, Any]:
    """Undo `split_inputs`."""
    rest = iter(arrays)
    leaves = [next(rest) if leaf is _ARRAY else leaf for leaf in static.leaves]
    return jax.tree.unflatten(static.treedef, leaves)


def base_support(support: Any) -> tuple[Any, int]:
    """Return the support of one element and how many axes its independent wrappers add."""
    extra = 0
    while hasattr(support, "base_constraint") and hasattr(support, "reinterpreted_batch_ndims"):
        extra += support.reinterpreted_batch_ndims
        support = support.base_constraint
    return support, extra


def inside(distribution: Any, value: Array) -> Array:
    """Return whether `value` lies in the support, one flag a batch element; True where that is unknown.

    Some of NumPyro's constraints (dependent ones) cannot test a value and say so by NotImplementedError. The
    log density, minus infinity outside the support, then decides alone.
    """
    try:
        return jnp.asarray(distribution.support(value))
    except NotImplementedError:
        return jnp.asarray(True)


def bijection_of(support: Any) -> Any | None:
    """Return NumPyro's bijection from the reals to a support, None where it has none (whole numbers, say).

    `biject_to` says that there is none by NotImplementedError, and offers no other way to ask.
    """
    try:
        return biject_to(support)
    except NotImplementedError:
        return None


def abstract_trace[T](view: Any, inputs: Mapping[str, Any], read: Callable[[dict[str, Any]], T]) -> T:
    """Return what `read` makes of NumPyro's trace of a view, whose values are abstract: nothing is computed.

    Values and supports must be read inside, where the tracers that they may hold are alive.
    """
    found: list[T] = []

    def run(key: Array) -> None:
        seeded = numpyro.handlers.seed(view, key)
        found.append(read(numpyro.handlers.trace(seeded).get_trace(**inputs)))

    with TRACING:
        jax.eval_shape(run, jax.random.key(0))
    return found[-1]


@Program
def log_terms(arrays: list[Array], states: State, *, static: Static, view: Any) -> tuple[State, Array]:
    """Return the log density of every site of `view` at each state, {site: (state,)}, and which are allowed.

    The density is that of the constrained values: no Jacobian enters. `numpyro.factor` counts as a site.
    """

    def one(state: State) -> tuple[State, Array]:
        by_site, trace = compute_log_probs(view, (), join_inputs(arrays, static), state)
        valid = jnp.asarray(True)
        for site in trace.values():
            if site["type"] == "sample" and not site["is_observed"]:
                _require(site["name"], state, view)
                valid &= inside(site["fn"], site["value"]).all()
        return {name: jnp.asarray(term, float) for name, term in by_site.items()}, valid

    return jax.vmap(one)(states)


@Program
def log_joint(arrays: list[Array], states: State, *, static: Static, view: Any) -> tuple[Array, Array]:
    """Return the log joint of `view` at each state and the size of its terms, both (state,).

    Outside the support it is -inf.
    """
    terms, valid = log_terms.function(arrays, states, static=static, view=view)
    table = jnp.stack(list(terms.values()))
    return jnp.where(valid, table.sum(0), -jnp.inf), jnp.abs(table).sum(0)


def _require(name: str, state: State, view: Any) -> None:
    if name not in state:
        raise ClaimError(f"site {name!r} of the view {getattr(view, '__name__', view)!r} has no value")


def claim_of(given: Callable[..., Any], state: Mapping[str, Any], inputs: Any, sites: tuple[str, ...]) -> Any:
    """Return what an update claims: a dict from site to distribution, or a log density of the block.

    Raises
    ------
    ClaimError
        If it reads a site that the view does not have, or its shapes or names do not fit the block.
    """
    try:
        claim = given(state, inputs)
    except KeyError as error:
        raise ClaimError(f"reads {error} which is neither in the view's state nor in the inputs") from error
    if not isinstance(claim, Mapping) and hasattr(claim, "log_prob"):
        if len(sites) > 1:
            raise ClaimError(f"one distribution is claimed for the {len(sites)} sites {', '.join(sites)}")
        claim = {sites[0]: claim}
    if not isinstance(claim, Mapping):
        return claim
    if set(claim) != set(sites):
        raise ClaimError(f"claims {sorted(claim)} for the block {sorted(sites)}")
    for name, distribution in claim.items():
        if distribution.shape() != jnp.shape(state[name]):
            raise ClaimError(
                f"claims shape {distribution.shape()} for site {name!r} of shape {jnp.shape(state[name])}"
            )
    return dict(claim)


def claim_log_prob(claim: Any, block: State) -> tuple[Array, Array]:
    """Return the log density of a whole block under a claim and the size of its terms, two scalars."""
    if callable(claim) and not isinstance(claim, Mapping):
        value = jnp.asarray(claim(block), float).sum()
        return value, jnp.abs(value)
    total = size = jnp.zeros(())
    for name, distribution in claim.items():
        terms = distribution.log_prob(block[name])
        valid = inside(distribution, block[name]).all()
        total = total + jnp.where(valid, terms.sum(), -jnp.inf)
        size = size + jnp.abs(terms).sum()
    return total, size


@Program
def claim_terms(
    arrays: list[Array],
    states: State,
    blocks: State,
    changes: Array,
    *,
    static: Static,
    given: Any,
    sites: tuple[str, ...],
) -> dict[str, tuple[Array, Array]]:
    """Return {site: (log q, inside the support)} of block values, both (state, value, *batch of the claim).

    `states` has leaves (state, ...) and `blocks` leaves (state, value, ...) for the block's sites. `changes`
    (parameter, 3) alters the parameters of the claim, see `altered_claim`; `NO_CHANGE` rows leave it as it
    is. A claim that is a bare log density gives one entry of shape (state, value).
    """

    def one(state: State, values: State) -> dict[str, tuple[Array, Array]]:
        claim = claim_of(given, state, join_inputs(arrays, static), sites)
        if not isinstance(claim, Mapping):
            density = jax.vmap(lambda block: jnp.asarray(claim(block), float).sum())(values)
            return {"+".join(sites): (density, jnp.ones(density.shape, bool))}
        claim = altered_claim(claim, changes)
        return {
            name: jax.vmap(lambda value, d=d: (d.log_prob(value), _flags(d, value)))(values[name])
            for name, d in claim.items()
        }

    return jax.vmap(one)(states, blocks)


def _flags(distribution: Any, value: Array) -> Array:
    return jnp.broadcast_to(inside(distribution, value), distribution.batch_shape)


@Program
def claimed_log_density(
    arrays: list[Array], states: State, blocks: State, *, static: Static, givens: Any, sites: tuple[str, ...]
) -> list[tuple[Array, Array]]:
    """Return log q of the block values and the size of its terms, both (state, value), for several claims.

    `states` has leaves (state, ...) and `blocks` leaves (state, value, ...) for the block's sites. Planted
    faults of one update repeat one another: one program for all of them is compiled in half the time.
    """

    def one(state: State, values: State) -> list[tuple[Array, Array]]:
        inputs = join_inputs(arrays, static)
        claims = [claim_of(given, state, inputs, sites) for given in givens]
        return jax.vmap(lambda block: [claim_log_prob(claim, block) for claim in claims])(values)

    return jax.vmap(one)(states, blocks)
