"""Run a kernel on many data sets in one compiled program: from exact draws, or from its own start."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.infer.hmc import HMC
from numpyro.infer.util import unconstrain_fn

from labelzoo.inference.checks.joint import Replicates
from labelzoo.inference.checks.programs import FAST_COMPILE, TRACING, State, join_inputs
from labelzoo.inference.engine import Engine
from labelzoo.models.spec import ModelSpec

Array = Any


HMC_STEP = 0.1
"""Step of trajectories whose adaptation is off; at 1, the default, next to none is accepted."""


class NotApplicableError(ValueError):
    """A check that this engine or model cannot be put to, with the reason."""


def kernel_of(spec: ModelSpec, engine: Engine) -> Any:
    """Return a new kernel of an engine.

    Raises
    ------
    NotApplicableError
        If the engine is no sampler or does not expose its kernel.
    """
    if engine.kernel is None:
        raise NotApplicableError(f"engine {engine.name!r} ({engine.kind}) has no kernel to start and iterate")
    return engine.kernel(spec)


def kept_draw(kernel: Any, state: Any, inputs: Mapping[str, Any]) -> State:
    """Return the sites of a kernel's state, constrained, with deterministics."""
    sites = getattr(state, kernel.sample_field)
    return dict(kernel.postprocess_fn((), inputs)(sites))


def start_at(kernel: Any, key: Array, sites: State, inputs: Mapping[str, Any]) -> Any:
    """Return a kernel's first state at given sites, its adaptation off (no warm-up).

    Raises
    ------
    NotApplicableError
        If a site that the program draws is not among `sites`.
    """
    latent = latent_of(kernel.model, inputs)
    absent = [name for name in latent if name not in sites]
    if absent:
        raise NotApplicableError(f"the joint prior draws have no site {', '.join(absent)} to start at")
    if isinstance(kernel, HMC):
        with numpyro.handlers.seed(rng_seed=0):
            free = unconstrain_fn(kernel.model, (), inputs, {name: sites[name] for name in latent})
        state = kernel.init(key, 0, free, (), inputs)
        return state._replace(adapt_state=state.adapt_state._replace(step_size=jnp.asarray(HMC_STEP)))
    names = getattr(kernel.init(key, 0, None, (), inputs), kernel.sample_field)
    return kernel.init(key, 0, {name: sites[name] for name in sites if name in names}, (), inputs)


def latent_of(model: Any, inputs: Mapping[str, Any]) -> list[str]:
    """Return the sites that a program draws, in its order."""
    trace = numpyro.handlers.trace(numpyro.handlers.seed(model, jax.random.key(0))).get_trace(**inputs)
    return [n for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]]


def run_all(function: Any, joint: Replicates, seed: int, *, fast_compile: bool = True, **static: Any) -> Any:
    """Return ``function(key, sites, inputs, **static)`` of all replicates, one program; leaves on the host.

    The function is traced once, with the whole chain inside, so that a branch on a sweep's number stays a
    branch. `fast_compile` is worth it for few sweeps: a third of the compilation, four times the run.
    """

    def one(key: Array, sites: State, arrays: list[Array]) -> Any:
        return function(key, sites, join_inputs(arrays, joint.static), **static)

    keys = jax.random.split(jax.random.key(seed), joint.size)
    with jax.enable_x64(True):
        args = (keys, joint.sites, joint.arrays)
        with TRACING:
            lowered = jax.jit(jax.vmap(one)).lower(*args)
        return jax.tree.map(np.asarray, lowered.compile(FAST_COMPILE if fast_compile else None)(*args))


def quantities(spec: ModelSpec, draw: State, inputs: Mapping[str, Any]) -> State:
    """Return the card's functionals of a draw and the log likelihood, each flat."""
    found = dict(spec.functionals(draw, inputs))
    if "log_likelihood" not in found:
        value = program_log_likelihood(spec.views["summed"], draw, inputs)
        found |= {} if value is None else {"log_likelihood": value}
    return {name: jnp.ravel(jnp.asarray(value, float)) for name, value in found.items()}


def program_log_likelihood(view: Any, draw: State, inputs: Mapping[str, Any]) -> Array | None:
    """Return the sum of the log densities of observed sites and factors, None where a latent is not drawn."""
    seeded = numpyro.handlers.seed(numpyro.handlers.substitute(view, draw), jax.random.key(0))
    trace = numpyro.handlers.trace(seeded).get_trace(**inputs)
    samples = {name: site for name, site in trace.items() if site["type"] == "sample"}
    if any(not site["is_observed"] and name not in draw for name, site in samples.items()):
        return None
    terms = [s["fn"].log_prob(s["value"]).sum() for s in samples.values() if s["is_observed"]]
    return sum(terms[1:], terms[0]) if terms else None


def moved(
    key: Array, sites: State, inputs: Mapping[str, Any], *, spec: ModelSpec, kernel: Any, sweeps: int
) -> tuple[State, State]:
    """Return flat sites and quantities at the exact draw and after `sweeps` sweeps from it."""
    state = start_at(kernel, key, sites, inputs)

    def values(state: Any) -> State:
        draw = kept_draw(kernel, state, inputs)
        flat = {name: jnp.ravel(jnp.asarray(value, float)) for name, value in draw.items()}
        return {**flat, **{f"{n}()": v for n, v in quantities(spec, draw, inputs).items()}}

    last, _ = jax.lax.scan(lambda s, _: (kernel.sample(s, (), inputs), None), state, length=sweeps)
    return values(state), values(last)


def chain(
    key: Array,
    sites: State,
    inputs: Mapping[str, Any],
    *,
    spec: ModelSpec,
    kernel: Any,
    warmup: int,
    draws: int,
    thinning: int,
    measure: Any = None,
) -> tuple[State, State]:
    """Return quantities at the true sites, and at `draws` states of a chain from the kernel's own start.

    ``measure(draw, inputs)`` gives them; default `quantities`.
    """
    of = partial(quantities, spec) if measure is None else measure
    state = kernel.init(key, warmup, None, (), inputs)
    step = partial(_step, kernel=kernel, inputs=inputs)
    state, _ = jax.lax.scan(step, state, length=warmup)

    def keep(state: Any, _: None) -> tuple[Any, State]:
        state, _ = jax.lax.scan(step, state, length=thinning)
        return state, of(kept_draw(kernel, state, inputs), inputs)

    _, kept = jax.lax.scan(keep, state, length=draws)
    return of(sites, inputs), kept


def _step(state: Any, _: None, *, kernel: Any, inputs: Mapping[str, Any]) -> tuple[Any, None]:
    return kernel.sample(state, (), inputs), None
