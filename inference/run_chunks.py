"""Sampling in chunks that look at the clock: one program, compiled once, for warm-up and draws alike.

Calling ``numpyro.infer.MCMC.run`` again and again would do the same, but under JAX 0.12 each call compiles
anew: NumPyro 0.22 passes a freshly jitted function as a static argument, and two such wrappers no longer
compare equal.
"""

import time
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.progress import Progress

Array = Any


FEWEST = 10
"""Draws a chain that are made whatever the time, so that there is something to look at."""

LOOKS = 40
"""The clock is looked at about so many times within the limit, and after so many parts of the draws."""


class Chunks(NamedTuple):
    """Draws (chain, draw, ...) by site, collected fields likewise, the warm-up steps made, the last state."""

    draws: dict[str, Array]
    fields: dict[str, Any]
    num_warmup: int
    state: Any


def sample_in_chunks(
    kernel: Any,
    inputs: dict[str, Any],
    *,
    rng_key: Array,
    num_warmup: int,
    num_samples: int,
    num_chains: int,
    thinning: int,
    max_seconds: float,
    fields: tuple[str, ...] = (),
    progress: bool = False,
    state: Any = None,
) -> Chunks:
    """Warm up and draw, a part at a time, until all is there or the time is up.

    How many steps a part has follows from how long the last one took; the draws do not depend on it.

    Parameters
    ----------
    kernel : numpyro.infer.mcmc.MCMCKernel
        Chains are a leading axis of its state where there are several.
    inputs : dict
        Keyword arguments of the program.
    num_warmup : int
        Where the time is up before its end it is cut, and `FEWEST` draws are made all the same.
    fields : tuple of str
        Fields of the kernel's state to collect besides the draws; dots reach into nested ones.
    state : pytree or None
        Where the chains go on from, without warm-up.

    Returns
    -------
    Chunks
    """
    pace = _Pace(max_seconds)
    first = first_state(kernel, rng_key, num_warmup, num_chains, inputs)
    warm_steps = num_warmup if state is None else 0
    state = first if state is None else state
    collected = tuple(dict.fromkeys((*kernel.default_fields, *fields)))
    chunk = -(-num_samples // LOOKS)
    advance = jax.jit(_advance(kernel, inputs, collected, chunk, num_chains))
    parts: list[dict[str, Any]] = []
    made = drawn = 0
    with Progress(console=Console(stderr=True), disable=not progress, transient=True) as bar:
        task = bar.add_task("warm-up and draws", total=warm_steps + num_samples * thinning)
        while made < warm_steps and not pace.late():
            steps = min(pace.steps(), warm_steps - made)
            state, _ = pace.timed(advance, state, 1, steps)
            made += steps
            bar.update(task, advance=steps)
        if made < warm_steps:
            # A warm-up that is cut has ended: what is kept must not adapt.
            state = state._replace(i=jnp.maximum(state.i, num_warmup))
        while drawn < num_samples and not (pace.late() and drawn >= FEWEST):
            count = min(max(1, pace.steps() // thinning), chunk, num_samples - drawn)
            state, values = pace.timed(advance, state, count, thinning)
            parts.append(jax.tree.map(lambda x, n=count: _chain_first(x[:n], num_chains), values))
            drawn += count
            bar.update(task, advance=count * thinning)
    joined = jax.tree.map(lambda *x: np.concatenate(x, axis=1), *parts)
    return Chunks(joined.pop(kernel.sample_field), joined, made, state)


class _Pace:
    """How many steps to make before the clock is looked at again; it counts from when it is made."""

    def __init__(self, max_seconds: float) -> None:
        self.end, self.look = time.perf_counter() + max_seconds, max_seconds / LOOKS
        self.seconds_a_step: float | None = None
        self.compiled = False

    def late(self) -> bool:
        """Return whether the time is up."""
        return time.perf_counter() > self.end

    def steps(self) -> int:
        """Return how many steps fit into a look, at least one."""
        if self.seconds_a_step is None:
            return 1
        room = min(self.look, max(self.end - time.perf_counter(), 0.0))
        return max(1, min(int(room / max(self.seconds_a_step, 1e-9)), 2**31 - 1))

    def timed(self, advance: Callable[..., Any], state: Any, count: int, steps: int) -> Any:
        """Return what `advance` does; the first call compiles, and says nothing about the pace."""
        begin = time.perf_counter()
        out = jax.block_until_ready(advance(state, count, steps))
        if self.compiled:
            self.seconds_a_step = (time.perf_counter() - begin) / (count * steps)
        self.compiled = True
        return out


def first_state(kernel: Any, rng_key: Array, num_warmup: int, num_chains: int, inputs: dict[str, Any]) -> Any:
    """Return the kernel's own start: chains are a leading axis where there are several."""
    keys = rng_key if num_chains == 1 else jax.random.split(rng_key, num_chains)
    return kernel.init(keys, num_warmup, None, (), inputs)


def first_states_apart(
    kernel: Any, rng_key: Array, num_warmup: int, num_chains: int, inputs: dict[str, Any]
) -> Any:
    """Return the starts of chains that run one by one, stacked; the kernel is left ready for single chains.

    A kernel that was started with a batch of keys would map its next draw over chains.
    """
    keys = jax.random.split(rng_key, num_chains)
    states = [kernel.init(key, num_warmup, None, (), inputs) for key in keys]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)


def _advance(
    kernel: Any, inputs: dict[str, Any], fields: tuple[str, ...], chunk: int, num_chains: int
) -> Callable[[Any, Any, Any], Any]:
    """Return ``(state, count, steps) -> (state, values)``, values (`chunk`, [chain,] ...) by field.

    Only the first ``count`` of them are draws, each after ``steps`` steps. Both numbers are read when the
    program runs, so that one program serves warm-up and draws, however many at a time.
    """
    transform = kernel.postprocess_fn((), inputs)
    transform = jax.vmap(transform) if num_chains > 1 else transform

    def read(state: Any) -> dict[str, Any]:
        values = {name: attrgetter(name)(state) for name in fields}
        return values | {kernel.sample_field: transform(values[kernel.sample_field])}

    def one_draw(i: Array, carry: tuple[Any, Any], steps: Array) -> tuple[Any, Any]:
        state, kept = carry
        state = jax.lax.fori_loop(0, steps, lambda _, s: kernel.sample(s, (), inputs), state)
        return state, jax.tree.map(lambda k, v: k.at[i].set(v), kept, read(state))

    def advance(state: Any, count: Array, steps: Array) -> tuple[Any, Any]:
        shapes = jax.eval_shape(read, state)
        kept = jax.tree.map(lambda s: jnp.zeros((chunk, *s.shape), s.dtype), shapes)
        return jax.lax.fori_loop(0, count, lambda i, carry: one_draw(i, carry, steps), (state, kept))

    return advance


def _chain_first(values: Array, num_chains: int) -> np.ndarray:
    return np.asarray(values[None] if num_chains == 1 else jnp.moveaxis(values, 0, 1))
