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
    """Draws (chain, draw, ...) by site, collected fields likewise, and the warm-up steps that were made."""

    draws: dict[str, Array]
    fields: dict[str, Any]
    num_warmup: int


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

    Returns
    -------
    Chunks
    """
    begin = time.perf_counter()
    keys = rng_key if num_chains == 1 else jax.random.split(rng_key, num_chains)
    state = kernel.init(keys, num_warmup, None, (), inputs)
    collected = dict.fromkeys((*kernel.default_fields, *fields))
    advance = jax.jit(_advance(kernel, inputs, tuple(collected), chunk, thinning, num_chains))
    warm_up, wanted = -(-num_warmup // (chunk * thinning)), -(-num_samples // chunk)
    parts: list[dict[str, Any]] = []
    done = 0
    with Progress(console=Console(stderr=True), disable=not progress, transient=True) as bar:
        task = bar.add_task("warm-up and draws", total=warm_up + wanted)
        while len(parts) < wanted:
            late = time.perf_counter() - begin > max_seconds
            if late and parts:
                break
            state, values = jax.block_until_ready(advance(state))
            if done < warm_up and not late:
                done += 1
            else:
                parts.append(jax.tree.map(lambda x: _chain_first(x, num_chains), values))
            bar.update(task, advance=1)
    joined = jax.tree.map(lambda *x: np.concatenate(x, axis=1)[:, :num_samples], *parts)
    return Chunks(joined.pop(kernel.sample_field), joined, min(num_warmup, done * chunk * thinning))


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
