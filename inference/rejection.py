"""Vectorised rejection sampling in blocks: the loop that every exact sampler here shares.

A rejection sampler in a single program must keep proposing until the unluckiest element is done. Over a
million elements at once that multiplies the work by the worst case, and every temporary leaves the cache.
The driver below cuts the elements into blocks that fit the cache, proposes once for a whole block, then
gathers the few rejected elements into a short array and finishes those alone, so that an element costs
about one proposal over its acceptance rate.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

Params = tuple[jax.Array, ...]
Propose = Callable[..., tuple[jax.Array, jax.Array]]
State = tuple[jax.Array, jax.Array, jax.Array]

CPU_BLOCK = 8192
ACCELERATOR_BLOCK = 1 << 20
MAX_ROUNDS = 10_000


def block_length() -> int:
    """Elements a block: what stays in a core's cache on a CPU, a full device elsewhere."""
    return CPU_BLOCK if jax.default_backend() == "cpu" else ACCELERATOR_BLOCK


def normal_and_uniforms(key: jax.Array, like: jax.Array, uniforms: int) -> tuple[jax.Array, ...]:
    """Return a standard normal array and ``uniforms`` arrays on [0, 1) from one call of the generator.

    One call instead of several saves time to compile. All have the shape and dtype of ``like``.
    """
    u = jax.random.uniform(key, (1 + uniforms, *like.shape), like.dtype)
    centred = jnp.maximum(2 * u[0] - 1, -1 + jnp.finfo(like.dtype).epsneg)
    return (float(2**0.5) * jax.lax.erf_inv(centred), *u[1:])


def map_blocks(
    draw: Callable[..., jax.Array], key: jax.Array, params: Params, fill: tuple[float, ...]
) -> jax.Array:
    """Apply ``draw(key, *params)`` to equal flat blocks of ``params``, each with its own key.

    Parameters
    ----------
    draw : callable
        Takes a key and one flat array a parameter, returns an array of the same length.
    key : jax.Array
        A typed or raw JAX key.
    params : tuple of jax.Array
        Arrays of one common shape.
    fill : tuple of float
        A harmless value a parameter for the padding of the last block.

    Returns
    -------
    jax.Array
        Draws in the common shape.
    """
    shape, size = params[0].shape, params[0].size
    if size == 0:
        return jnp.zeros(shape, params[0].dtype)
    count = -(-size // block_length())
    length = -(-size // count)
    flat = [
        jnp.pad(p.reshape(-1), (0, count * length - size), constant_values=v)
        for p, v in zip(params, fill, strict=True)
    ]
    if count == 1:
        return draw(key, *flat).reshape(shape)
    blocks = [p.reshape(count, length) for p in flat]
    drawn = jax.lax.map(lambda args: draw(*args), (jax.random.split(key, count), *blocks))
    return drawn.reshape(-1)[:size].reshape(shape)


def _until_accepted(
    key: jax.Array, propose: Propose, params: Params, value: jax.Array, todo: jax.Array
) -> jax.Array:
    """Propose for every element until none of ``todo`` is left; unfinished ones become NaN."""

    def body(state: State) -> State:
        round_, value, todo = state
        proposal, accepted = propose(jax.random.fold_in(key, round_), *params)
        return round_ + 1, jnp.where(todo & accepted, proposal, value), todo & ~accepted

    def unfinished(state: State) -> jax.Array:
        return jnp.any(state[2]) & (state[0] < MAX_ROUNDS)

    _, value, todo = jax.lax.while_loop(unfinished, body, (jnp.int32(1), value, todo))
    return jnp.where(todo, jnp.nan, value)


def _finish_few(
    key: jax.Array, propose: Propose, params: Params, value: jax.Array, todo: jax.Array, few: int
) -> jax.Array:
    """Repeat: gather up to ``few`` rejected elements, propose until they are accepted, write them back."""
    length = todo.size

    def body(state: State) -> State:
        round_, value, todo = state
        where = jnp.nonzero(todo, size=few, fill_value=length)[0]
        chosen = tuple(p.at[where].get(mode="clip") for p in params)
        busy = where < length
        drawn = _until_accepted(
            jax.random.fold_in(key, round_), propose, chosen, jnp.zeros(few, value.dtype), busy
        )
        value = value.at[where].set(drawn, mode="drop")
        return round_ + 1, value, todo.at[where].set(False, mode="drop")

    _, value, _ = jax.lax.while_loop(lambda s: jnp.any(s[2]), body, (jnp.int32(1), value, todo))
    return value


def rejection_draws(
    key: jax.Array, propose: Propose, params: Params, active: jax.Array | None = None
) -> jax.Array:
    """Draw one accepted proposal an element of a flat block.

    Parameters
    ----------
    key : jax.Array
        A typed or raw JAX key.
    propose : callable
        ``propose(key, *params) -> (proposal, accepted)``, elementwise over flat arrays of any length.
    params : tuple of jax.Array
        Flat arrays of one length; every element must have a positive acceptance rate.
    active : jax.Array, optional
        Elements that need a draw; the others cost nothing more than the first round and are zero.

    Returns
    -------
    jax.Array
        Draws, flat. An element not accepted in 10 000 rounds is NaN, so the loop always ends.
    """
    few = -(-params[0].size // 8)
    if few < 64:  # too short for gathering to pay, and one proposal fewer to compile
        nothing = jnp.zeros_like(params[0])
        todo = jnp.ones(nothing.shape, bool) if active is None else active
        return _until_accepted(key, propose, params, nothing, todo)
    first, rest = jax.random.split(key)
    proposal, accepted = propose(first, *params)
    todo = ~accepted if active is None else active & ~accepted
    value = jnp.where(accepted, proposal, 0)
    return _finish_few(rest, propose, params, value, todo, few)
