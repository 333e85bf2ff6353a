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
    chunk: int,
    max_seconds: float,
    fields: tuple[str, ...] = (),
    progress: bool = False,
    state: Any = None,
) -> Chunks:
    """Warm up and draw, `chunk` kept draws at a time, until all are there or the time is up.

    Parameters
    ----------
    kernel : numpyro.infer.mcmc.MCMCKernel
        Chains are a leading axis of its state where there are several.
    inputs : dict
        Keyword arguments of the program.
    num_warmup : int
        Rounded up to whole chunks. Where the time is up before its end, one more chunk is drawn all the same.
    fields : tuple of str
        Fields of the kernel's state to collect besides the draws; dots reach into nested ones.
    state : pytree or None
        Where the chains go on from, without warm-up.

    Returns
    -------
    Chunks
    """
    begin = time.perf_counter()
    first = first_state(kernel, rng_key, num_warmup, num_chains, inputs)
    warm_steps = num_warmup if state is None else 0
    state = first if state is None else state
    collected = dict.fromkeys((*kernel.default_fields, *fields))
    advance = jax.jit(_advance(kernel, inputs, tuple(collected), chunk, thinning, num_chains))
    warm_up, wanted = -(-warm_steps // (chunk * thinning)), -(-num_samples // chunk)
    parts: list[dict[str, Any]] = []
    done = 0
    with Progress(console=Console(stderr=True), disable=not progress, transient=True) as bar:
        task = bar.add_task("warm-up and draws", total=warm_up + wanted)
        while len(parts) < wanted:
            late = time.perf_counter() - begin > max_seconds
            if late and parts:
                break
            if late and done < warm_up:
                # A warm-up that is cut has ended: what is kept must not adapt.
                state = state._replace(i=jnp.maximum(state.i, num_warmup))
                warm_up = done
            state, values = jax.block_until_ready(advance(state))
            if done < warm_up and not late:
                done += 1
            else:
                parts.append(jax.tree.map(lambda x: _chain_first(x, num_chains), values))
            bar.update(task, advance=1)
    joined = jax.tree.map(lambda *x: np.concatenate(x, axis=1)[:, :num_samples], *parts)
    made = min(warm_steps, done * chunk * thinning)
    return Chunks(joined.pop(kernel.sample_field), joined, made, state)


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
    kernel: Any, inputs: dict[str, Any], fields: tuple[str, ...], chunk: int, thinning: int, num_chains: int
) -> Callable[[Any], Any]:
    """Return ``state -> (state, values)``, values (draw, [chain,] ...) by field."""
    transform = kernel.postprocess_fn((), inputs)
    transform = jax.vmap(transform) if num_chains > 1 else transform

    def one_draw(state: Any, _: None) -> tuple[Any, dict[str, Any]]:
        state = jax.lax.fori_loop(0, thinning, lambda _, s: kernel.sample(s, (), inputs), state)
        values = {name: attrgetter(name)(state) for name in fields}
        return state, values | {kernel.sample_field: transform(values[kernel.sample_field])}

    return lambda state: jax.lax.scan(one_draw, state, length=chunk)


def _chain_first(values: Array, num_chains: int) -> np.ndarray:
    return np.asarray(values[None] if num_chains == 1 else jnp.moveaxis(values, 0, 1))
