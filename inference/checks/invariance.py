"""Rung 0 for kernels: one Markov step started from the claimed law stays in it.

Exact starting points come from the claim's own sampler, or, where the claim is a bare log density, from a
population sampler (differential evolution Markov chain: ter Braak, Statistics and Computing 2006) that
shares no code with the kernel.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import biject_to

from labelzoo.inference.checks.draws import z_limit, z_scores
from labelzoo.inference.checks.programs import (
    Program,
    State,
    claim_log_prob,
    claim_of,
    join_inputs,
    split_inputs,
)
from labelzoo.inference.checks.report import CheckResult
from labelzoo.inference.checks.states import latent_supports
from labelzoo.inference.update import Update

Array = Any

STATES, PARTICLES, SWEEPS = 3, 600, 400
"""States, starting points a state, and sweeps of the population before they are used."""
CANDIDATES = 8
"""States at which populations are run; those where two agree best are used."""
STARTED = (0.5, 0.1)
"""How far about the state two populations start."""
FARTHEST = 1e100
"""Largest coordinate of a population that can have settled."""
SETTLED = 5.0
"""Largest z-score between two populations that count as settled."""


@dataclass(frozen=True, eq=False)
class Free:
    """How the block of one update is laid out in unconstrained coordinates; hashed by identity."""

    transforms: tuple[tuple[str, Any], ...]

    def pack(self, block: Mapping[str, Array]) -> Array:
        """Return one vector for one block."""
        return jnp.concatenate([jnp.ravel(t._inverse(block[site])) for site, t in self.transforms])

    def unpack(self, vector: Array, like: Mapping[str, Array]) -> tuple[State, Array]:
        """Return the block of a vector and the log Jacobian; `like` gives the shapes."""
        block, log_jacobian, start = {}, jnp.zeros(()), 0
        for site, transform in self.transforms:
            shape = transform.inverse_shape(jnp.shape(like[site]))
            size = int(np.prod(shape))
            free = vector[start : start + size].reshape(shape)
            block[site] = transform(free)
            log_jacobian += transform.log_abs_det_jacobian(free, block[site]).sum()
            start += size
        return block, log_jacobian


def layout(view: Any, inputs: Mapping[str, Any], sites: tuple[str, ...]) -> Free:
    """Read the supports of the block off one abstract trace of its view."""
    supports = latent_supports(view, inputs)
    return Free(tuple((site, biject_to(supports[site].constraint)) for site in sites))


@Program
def packed(blocks: State, *, free: Free) -> Array:
    """Return the blocks in unconstrained coordinates: (state, draw, coordinate)."""
    return jax.vmap(jax.vmap(free.pack))(blocks)


@Program
def population(
    arrays: list[Array],
    states: State,
    keys: Array,
    *,
    static: Any,
    given: Any,
    sites: tuple[str, ...],
    free: Free,
    sweeps: int,
    spread: float,
) -> State:
    """Return `PARTICLES` draws of the claimed density at every state, leaves (state, particle, ...).

    They start `spread` about the state, in unconstrained coordinates.
    """

    def one(state: State, key: Array) -> State:
        claim = claim_of(given, state, join_inputs(arrays, static), sites)
        own = {site: state[site] for site in sites}

        def log_target(vector: Array) -> Array:
            block, log_jacobian = free.unpack(vector, own)
            value = claim_log_prob(claim, block)[0] + log_jacobian
            return jnp.where(jnp.isnan(value), -jnp.inf, value)

        start_key, sweep_key = jax.random.split(key)
        center = free.pack(own)
        particles = center + spread * jax.random.normal(start_key, (PARTICLES, center.shape[0]))
        final = _evolve(sweep_key, jax.vmap(log_target), particles, sweeps)
        return jax.vmap(lambda vector: free.unpack(vector, own)[0])(final)

    return jax.vmap(one)(states, keys)


def _evolve(key: Array, log_target: Any, particles: Array, sweeps: int) -> Array:
    """Move half of the population with differences of the other half, `sweeps` times."""
    half, size = particles.shape[0] // 2, particles.shape[1]

    def sweep(carry: tuple[Array, Array], key: Array) -> tuple[tuple[Array, Array], None]:
        points, value = carry
        pair_key, noise_key, accept_key, step_key = jax.random.split(key, 4)
        first, second = jax.random.randint(pair_key, (2, half), 0, half)
        step = jnp.where(jax.random.uniform(step_key) < 0.1, 1.0, 2.38 / jnp.sqrt(2.0 * size))
        # Noise as wide as the moved half would tie its step to its own place; the other half does not move.
        noise = 1e-4 * points[half:].std(axis=0) * jax.random.normal(noise_key, (half, size))
        proposed = points[:half] + step * (points[half:][first] - points[half:][second]) + noise
        new = log_target(proposed)
        taken = -jax.random.exponential(accept_key, (half,)) < new - value[:half]
        moved = jnp.where(taken[:, None], proposed, points[:half])
        moved_value = jnp.where(taken, new, value[:half])
        # The halves change places, so that each is moved in turn.
        return (jnp.concatenate([points[half:], moved]), jnp.concatenate([value[half:], moved_value])), None

    (points, _), _ = jax.lax.scan(
        sweep, (particles, log_target(particles)), jax.random.split(key, 2 * sweeps)
    )
    return points


@Program
def stepped(
    arrays: list[Array], states: State, blocks: State, keys: Array, *, static: Any, kernel: Any, sites: Any
) -> tuple[State, Array]:
    """Apply the kernel once from every block value; also return whether other sites stayed put."""

    def one(state: State, block: State, key: Array) -> tuple[State, Array]:
        start = {**state, **block}
        new = kernel(key, start, join_inputs(arrays, static))
        others = [name for name in state if name not in sites and name in new]
        kept = jnp.asarray([jnp.all(new[name] == state[name]) for name in others] or [True]).all()
        return {site: new[site] for site in sites}, kept

    return jax.vmap(jax.vmap(one, in_axes=(None, 0, 0)))(states, blocks, keys)


class Starts(NamedTuple):
    """Draws of a claim: positions of the states they belong to, and blocks with leaves (state, draw, ...)."""

    states: np.ndarray
    blocks: State


def populate(update: Update, view: Any, inputs: Any, states: State, seed: int, times: int) -> Starts:
    """Return draws of the claim by the population sampler, at up to `STATES` states where it has settled.

    Two populations, one started wide and one narrow, are run at each of the first `CANDIDATES` states. Where
    they disagree (a law far out, or on very different scales) neither is a sample of the claim; the kernel
    has no say in this.
    """
    few = {site: value[:CANDIDATES] for site, value in states.items()}
    arrays, static = split_inputs(inputs)
    free = layout(view, inputs, update.sites)
    options: Any = {"static": static, "given": update.given, "sites": update.sites, "free": free}
    count = len(next(iter(few.values())))
    first, second = (
        population(arrays, few, jax.random.split(key, count), **options, sweeps=times * SWEEPS, spread=spread)
        for key, spread in zip(jax.random.split(jax.random.key(seed)), STARTED, strict=True)
    )
    apart = disagreement(first, second, free)
    best = np.argsort(apart, kind="stable")[:STATES]
    kept = np.sort(best[apart[best] <= SETTLED])
    return Starts(kept, {site: np.asarray(value)[kept] for site, value in first.items()})


def disagreement(first: State, second: State, free: Free) -> np.ndarray:
    """Return the largest z-score between two populations at each state: (state,); inf if out of reach."""
    u, v = (np.asarray(packed(dict(block), free=free)) for block in (first, second))
    # A population beyond `FARTHEST` is drifting: squares of its numbers would no longer be numbers.
    finite = (np.abs(u) <= FARTHEST).all((1, 2)) & (np.abs(v) <= FARTHEST).all((1, 2))
    u, v = np.where(finite[:, None, None], u, 0.0), np.where(finite[:, None, None], v, 0.0)
    center, spread = _center_spread(np.concatenate([u, v], axis=1))
    f, g = (_functions((x - center) / spread) for x in (u, v))
    error = np.sqrt((f.var(1) + g.var(1)) / f.shape[1])
    gap = np.abs(f.mean(1) - g.mean(1))
    z = np.divide(gap, error, out=np.where(gap > 0, np.inf, 0.0), where=error > 0)
    return np.where(finite, z.max(-1), np.inf)


def _center_spread(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    center, spread = np.median(u, axis=1, keepdims=True), u.std(axis=1, keepdims=True)
    return center, np.where(spread > 0, spread, 1.0)


def kernel_z(before: State, after: State, free: Free) -> np.ndarray:
    """Return z-scores of the change of bounded functions of the block over one step.

    Hoeffding's bound on them is exact for reversible kernels and nearly so for others.
    """
    u, v = (np.asarray(packed(dict(block), free=free)) for block in (before, after))
    # Draws on the boundary of float64 (logits of a simplex) are far out in every function alike.
    u, v = np.clip(u, -700.0, 700.0), np.clip(v, -700.0, 700.0)
    center, spread = _center_spread(u)
    change = _functions((v - center) / spread) - _functions((u - center) / spread)
    total = change.sum(-1)
    by_state = z_scores(total.sum(1), (total**2).sum(1))
    return np.concatenate([z_scores(change.sum((0, 1)), (change**2).sum((0, 1))), by_state])


def _functions(t: np.ndarray) -> np.ndarray:
    t = np.tanh(t)
    return np.concatenate([t, t**2, t[..., :-1] * t[..., 1:]], axis=-1)


def check_kernel(
    update: Update, view: Any, inputs: Any, states: State, start: Callable[[int, int], Starts], families: int
) -> CheckResult:
    """Check that the kernel leaves its claim invariant and moves nothing but its block.

    ``start(attempt, times)`` gives draws of the claim. On failure one fresh attempt with four times the work
    decides; a claim of which no draws could be had has failed.
    """
    arrays, static = split_inputs(inputs)
    free = layout(view, inputs, update.sites)
    for attempt, times in enumerate((1, 4)):
        which, blocks = start(attempt, times)
        if not len(which):
            continue
        count = next(iter(blocks.values())).shape[:2]
        at = {site: value[which] for site, value in states.items()}
        keys = jax.random.split(jax.random.key(7919 + attempt), count)
        end, kept = stepped(arrays, at, blocks, keys, static=static, kernel=update.kernel, sites=update.sites)
        z = np.abs(kernel_z(blocks, end, free))
        limit = z_limit(z.size, families)
        if z.max() <= limit:
            break
    if not len(which):
        return CheckResult(
            update.name, "draws", ",".join(update.sites), False, np.inf, 0.0,
            "the population sampler settled at no state: give the claim as a distribution with a sampler",
        )  # fmt: skip
    others_kept = bool(np.all(kept))
    detail = f"one kernel step from {count[1]} draws at {count[0]} states: largest of {z.size} z-scores"
    if not others_kept:
        detail += "; the kernel also changed sites outside its block"
    passed = bool(z.max() <= limit) and others_kept
    return CheckResult(update.name, "draws", ",".join(update.sites), passed, float(z.max()), limit, detail)
