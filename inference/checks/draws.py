r"""Rung 0: draws of a claimed distribution follow the density that it claims.

A few Metropolis steps with symmetric proposals leave a density q invariant and are reversible. So, if x
follows q and x' is where the steps from x end, (x, x') and (x', x) have one law, and f(x') - f(x) is
symmetric about zero for every function f, whether q is normalised or not, discrete or continuous, on a
simplex or on the line. Over independent draws the differences d have random signs, and by Hoeffding's
inequality

.. math:: P\left(|\sum d| > t \sqrt{\sum d^2}\right) \le 2 e^{-t^2 / 2}

at every sample size, however rare the values that f tells apart. (The mean of one step's acceptance
probability times the difference has less variance, but is far from normal where a category is rare.)

Proposals add the difference of two draws of a second, independent part (differential evolution: ter Braak,
Statistics and Computing 2006), which adapts to scale and correlation, keeps whole numbers whole and fixed
totals fixed. Continuous supports are treated in unconstrained coordinates.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from numpyro.distributions import biject_to, constraints

from labelzoo.inference.checks.programs import (
    ClaimError,
    Program,
    State,
    base_support,
    claim_of,
    inside,
    join_inputs,
    split_inputs,
)
from labelzoo.inference.checks.report import CheckResult

FAMILY_RATE = 1e-3
"""Chance of one false alarm in a whole report."""
ELEMENTS, FEWEST, MOST = 24_000, 160, 1600
"""Scalars drawn a data set (draws x states x elements), and the bounds of the draws a state."""
POOL_SHARE = 0.25
"""Share of the draws that only make proposals."""
MOST_OUTSIDE, MOST_IDLE = 0.05, 0.5
"""Largest share of draws at any state that the claim excludes, and of draws over all states that the test
cannot use: those, and exact zeros, to which a gamma or Dirichlet variable of tiny shape underflows."""
STEPS, MOVES = (1.0, 0.35), 4
"""Step sizes of the proposals, each chosen half of the time (discrete sites step by whole differences), and
how many moves a draw makes: with one, a scale that is 15 % off hardly shows in 10^4 draws."""
SMALLEST = 1e-300
"""Values of continuous sites below this are walled off: samplers pile up the rest of the mass there."""

Array = Any


class Coordinates(NamedTuple):
    """Coordinates of a support: to, from, log |d value / d coordinate| a batch element, and the projection
    of a moved coordinate onto those that stand for a value (logs of a simplex sum to one)."""

    free: Callable[[Array], Array]
    value: Callable[[Array], Array]
    log_jacobian: Callable[[Array, Array], Array]
    project: Callable[[Array], Array] = lambda u: u


def coordinates(distribution: Any) -> Coordinates:
    """Choose coordinates for a distribution: log for simplexes (up to a constant), identity for counts."""
    support, extra = base_support(distribution.support)
    if distribution.is_discrete:
        return Coordinates(lambda x: x, lambda x: x, lambda u, x: jnp.zeros(()))
    if support is constraints.simplex:
        # Base measure prod dv / v: a move of log v followed by normalisation is symmetric under it.
        return Coordinates(
            jnp.log,
            jnp.exp,
            lambda u, x: _sum_axes(u.sum(-1), extra),
            lambda u: u - logsumexp(u, axis=-1, keepdims=True),
        )
    transform = biject_to(support)
    return Coordinates(
        transform._inverse,
        transform,
        lambda u, x: _sum_axes(transform.log_abs_det_jacobian(u, x), extra),
    )


def _sum_axes(value: Array, count: int) -> Array:
    return value.sum(tuple(range(-count, 0))) if count else value


def features(u: Array, center: Array, spread: Array, num_batch: int) -> Array:
    """Return bounded functions of coordinates (draw, batch..., event...): t, t^2 and t_i t_(i+1)."""
    lead = u.shape[: 1 + num_batch]
    t = jnp.tanh((u - center) / spread).reshape(*lead, -1)
    return jnp.concatenate([t, t**2, t[..., :-1] * t[..., 1:]], axis=-1)


def metropolis_change(key: Array, distribution: Any, draws: Array) -> tuple[Array, Array, Array]:
    """Make `MOVES` Metropolis moves from every draw and sum the changes of bounded functions.

    Parameters
    ----------
    key : jax.random.key
    distribution : numpyro Distribution
        The claim, of batch shape B.
    draws : array (draw, ...)
        Its draws; the last quarter only makes proposals.

    Returns
    -------
    total, square : arrays (1 + elements of B, function)
        Sum over draws of the change d and of its square. Row 0 is that of the sum over the batch, which sees
        what is small in each element.
    shares : array (2,)
        Shares of the batch elements of draws that the claim excludes, and that cannot be used.
    """
    ways = coordinates(distribution)
    size = int(draws.shape[0] * (1 - POOL_SHARE))
    u = ways.free(draws)
    tested, pool = u[:size], u[size:]
    end, shares = _walk(key, distribution, ways, tested, pool)
    num_batch = len(distribution.batch_shape)
    start, end = (features(at, *_center_spread(pool), num_batch) for at in (tested, end))
    # Coordinates of draws that never moved may be infinite.
    change = jnp.where(end == start, 0.0, end - start).reshape(size, -1, start.shape[-1])
    change = jnp.concatenate([change.sum(1, keepdims=True), change], axis=1)
    return change.sum(0), (change**2).sum(0), shares


class Walk(NamedTuple):
    """Where the draws are, their log density, and which started at excluded or unusable values."""

    at: Array
    density: Array
    excluded: Array
    idle: Array


def _walk(key: Array, distribution: Any, ways: Coordinates, start: Array, pool: Array) -> tuple[Array, Array]:
    """Return the draws after `MOVES` moves, and the shares of excluded and of unusable ones among them."""
    keys = jax.random.split(key, MOVES + 1)

    def move(index: Array, walk: Walk) -> Walk:
        propose_key, accept_key = jax.random.split(keys[index])
        proposed = ways.project(_proposal(propose_key, walk.at, pool, distribution.is_discrete))
        # One copy of the density in the program: move 0 evaluates it at the draws themselves.
        first = index == 0
        target, excluded = _log_target(distribution, ways, jnp.where(first, start, proposed))
        usable = jnp.isfinite(walk.density) & ~jnp.isnan(target)
        ratio = jnp.where(usable, target - walk.density, -jnp.inf)
        taken = (-jax.random.exponential(accept_key, ratio.shape) < ratio) & ~first
        wide = taken.reshape(*taken.shape, *[1] * (start.ndim - taken.ndim))
        return Walk(
            jnp.where(wide, proposed, walk.at),
            jnp.where(first | taken, target, walk.density),
            jnp.where(first, excluded, walk.excluded),
            jnp.where(first, ~jnp.isfinite(target), walk.idle),
        )

    none = jnp.zeros((len(start), *distribution.batch_shape), bool)
    walk = jax.lax.fori_loop(0, MOVES + 1, move, Walk(start, none.astype(float), none, none))
    return walk.at, jnp.stack([walk.excluded.mean(), walk.idle.mean()])


def _center_spread(pool: Array) -> tuple[Array, Array]:
    """Return mean and standard deviation of the finite coordinates (the log of an underflown draw is not)."""
    finite = jnp.isfinite(pool)
    count = jnp.maximum(finite.sum(0), 1)
    center = jnp.where(finite, pool, 0.0).sum(0) / count
    spread = jnp.sqrt((jnp.where(finite, pool - center, 0.0) ** 2).sum(0) / count)
    return center, jnp.where(spread > 0, spread, 1.0)


def _proposal(key: Array, tested: Array, pool: Array, is_discrete: bool) -> Array:
    pairs = jax.random.randint(key, (2, len(tested)), 0, len(pool))
    difference = pool[pairs[0]] - pool[pairs[1]]
    if is_discrete:
        return tested + difference.astype(tested.dtype)
    step = jax.random.choice(jax.random.fold_in(key, 1), jnp.asarray(STEPS), (len(tested),))
    return tested + step.reshape(-1, *[1] * (tested.ndim - 1)) * difference


def _log_target(distribution: Any, ways: Coordinates, u: Array) -> tuple[Array, Array]:
    """Return the log density in the coordinates, and which batch elements the claim cannot have drawn."""
    value = ways.value(u)
    density = distribution.log_prob(value)
    within = inside(distribution, value)
    impossible = jnp.isnan(density) | (density == -jnp.inf) | (~within & (density < jnp.inf))
    if distribution.is_discrete:
        return jnp.where(within, density, -jnp.inf), impossible
    vanishing = (jnp.abs(value) < SMALLEST).any(tuple(range(-len(distribution.event_shape), 0)))
    target = jnp.where(within & ~vanishing, density + ways.log_jacobian(u, value), -jnp.inf)
    return target, impossible & ~vanishing


@Program
def drawn(
    arrays: list[Array],
    states: State,
    keys: Array,
    *,
    static: Any,
    given: Any,
    sites: tuple[str, ...],
    size: int,
) -> tuple[State, Any]:
    """Draw `size` block values at every state and test them; see `metropolis_change`."""

    def one(state: State, key: Array) -> tuple[State, Any]:
        claim = claim_of(given, state, join_inputs(arrays, static), sites)
        draws, drift = {}, {}
        for index, (site, distribution) in enumerate(claim.items()):
            sample_key, drift_key = jax.random.split(jax.random.fold_in(key, index))
            draws[site] = _sample(distribution, sample_key, size, site)
            drift[site] = metropolis_change(drift_key, distribution, draws[site])
        return draws, drift

    return jax.vmap(one)(states, keys)


def _sample(distribution: Any, key: Array, size: int, site: str) -> Array:
    draws = distribution.sample(key, (size,))
    if draws.shape != (size, *distribution.shape()):
        raise ClaimError(f"draws of {site!r} have shape {draws.shape}, not {(size, *distribution.shape())}")
    return draws


def z_scores(total: Any, square: Any) -> np.ndarray:
    """Return total / sqrt(square), 0 where nothing changed and infinite where either is not finite."""
    total, square = np.asarray(total), np.asarray(square)
    z = np.where(square > 0, total / np.sqrt(np.where(square > 0, square, 1.0)), 0.0)
    return np.where(np.isfinite(total) & np.isfinite(square), z, np.inf)


class Drawn(NamedTuple):
    """What `draw_blocks` found: draws (state, draw, ...) by site, largest z and its site, number of z-scores,
    and what is wrong with the values drawn ("" if nothing is)."""

    draws: State
    largest: float
    site: str
    tests: int
    excluded: str


def draw_blocks(
    inputs: Any, states: State, given: Any, sites: tuple[str, ...], seed: int, *, times: int = 1
) -> Drawn:
    """Draw from a claim at every state and summarise the test of the draws."""
    arrays, static = split_inputs(inputs)
    keys = jax.random.split(jax.random.key(seed), len(next(iter(states.values()))))
    size = times * draws_a_state(states, sites)
    draws, drift = drawn(arrays, states, keys, static=static, given=given, sites=sites, size=size)
    largest, worst, tests = 0.0, sites[0], 0
    for site, (total, square, _) in drift.items():
        z = np.abs(pooled_z(np.asarray(total), np.asarray(square)))
        tests += z.size
        if z.max(initial=0.0) > largest:
            largest, worst = float(z.max()), site
    kept = {site: np.asarray(value) for site, value in draws.items()}
    return Drawn(kept, largest, worst, tests, _excluded({site: part[2] for site, part in drift.items()}))


def _excluded(shares: dict[str, Any]) -> str:
    """Say which site has too many draws that the claim excludes or the test cannot use."""
    for site, share in shares.items():
        outside, idle = np.asarray(share).T
        if outside.max() >= MOST_OUTSIDE:
            return f"; the claim excludes {100 * outside.max():.0f} % of the draws of {site} at some state"
        if idle.mean() > MOST_IDLE:
            return f"; {100 * idle.mean():.0f} % of the draws of {site} vanish or have no finite density"
    return ""


def draws_a_state(states: State, sites: tuple[str, ...]) -> int:
    """Return how many draws a state are worth their time."""
    elements = max(states[site].size for site in sites)
    return int(np.clip(ELEMENTS // max(elements, 1), FEWEST, MOST))


def pooled_z(total: np.ndarray, square: np.ndarray) -> np.ndarray:
    """Return z-scores pooled over states, for each element and their sum, and of the sum at each state.

    `total` and `square` are (state, 1 + element, function), row 0 the sum over elements.
    """
    over_states = z_scores(total.sum(0), square.sum(0))
    return np.concatenate([over_states.ravel(), z_scores(total[:, 0], square[:, 0]).ravel()])


def z_limit(tests: int, families: int) -> float:
    """Return the limit for `tests` scores in each of `families` checks: Hoeffding's and the union bound."""
    return float(np.sqrt(2.0 * np.log(2.0 * max(tests, 1) * families / FAMILY_RATE)))


def check_draws(name: str, sites: tuple[str, ...], found: Drawn, families: int, again: Any) -> CheckResult:
    """Judge draws; where they fail, one fresh seed with four times the draws decides (`again()`)."""
    limit = z_limit(found.tests, families)
    repeated = ""
    if found.largest > limit:
        found = again()
        repeated = " (repeated with four times the draws)"
    passed = found.largest <= limit and not found.excluded
    detail = f"largest of {found.tests} z-scores at {found.site}{repeated}{found.excluded}"
    return CheckResult(name, "draws", ",".join(sites), passed, found.largest, limit, detail)
