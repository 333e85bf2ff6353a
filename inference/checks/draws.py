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
totals fixed. Positive, unit-interval and simplex supports are treated in unconstrained coordinates. The
sampler and the density are compiled; the walk itself runs in NumPy, since compilation is what a check costs.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from labelzoo.inference.checks.coordinates import Described, SiteLaw, describe
from labelzoo.inference.checks.parameters import no_changes
from labelzoo.inference.checks.programs import (
    ClaimError,
    Program,
    State,
    claim_of,
    claim_terms,
    join_inputs,
    split_inputs,
)
from labelzoo.inference.checks.report import CheckResult

FAMILY_RATE = 1e-3
"""Chance of one false alarm in a whole report."""
ELEMENTS, FEWEST, MOST = 16_000, 160, 1600
"""Scalars drawn a data set (draws x states x elements), and the bounds of the draws a state."""
VALUES = 8
"""Block values at a state that one call of the compiled density takes."""
POOL_SHARE = 0.25
"""Share of the draws that only make proposals."""
MOST_OUTSIDE, MOST_IDLE = 0.05, 0.5
"""Largest share of draws at any state that the claim excludes, and of draws over all states that the test
cannot use: those, and exact zeros, to which a gamma or Dirichlet variable of tiny shape underflows."""
STEPS, MOVES = (1.0, 0.35), 4
"""Step sizes of the proposals, each chosen half of the time (discrete sites step by whole differences), and
how many moves a draw makes: with one, a scale that is 15 % off hardly shows in 10^4 draws."""
ROUNDING = 1e-12
"""Changes of functions below this are rounding: a simplex of one entry is never exactly 1."""
SMALLEST = 1e-300
"""Values of continuous sites below this are walled off: samplers pile up the rest of the mass there."""

Array = Any
Terms = dict[str, tuple[Array, Array]]
Evaluate = Callable[[State], Terms]
"""Block values (state, VALUES, ...) by site to (log density, inside the support), (state, VALUES, *batch)."""


@Program
def samples(
    arrays: list[Array],
    states: State,
    keys: Array,
    *,
    static: Any,
    given: Any,
    sites: tuple[str, ...],
    size: int,
) -> State:
    """Return `size` draws of the claim at every state: {site: (state, draw, ...)}."""

    def one(state: State, key: Array) -> State:
        claim = claim_of(given, state, join_inputs(arrays, static), sites)
        keys = jax.random.split(key, len(claim))
        return {site: _sample(d, k, size, site) for (site, d), k in zip(claim.items(), keys, strict=True)}

    return jax.vmap(one)(states, keys)


def _sample(distribution: Any, key: Array, size: int, site: str) -> Array:
    draws = distribution.sample(key, (size,))
    if draws.shape != (size, *distribution.shape()):
        raise ClaimError(f"draws of {site!r} have shape {draws.shape}, not {(size, *distribution.shape())}")
    return draws


class Walk(NamedTuple):
    """Where the draws of one site are and the log density there; which started excluded or unusable."""

    at: Array
    density: Array
    excluded: Array
    idle: Array


def changes_of_walk(
    rng: np.random.Generator, evaluate: Evaluate, laws: Mapping[str, SiteLaw], drawn: State
) -> dict[str, tuple[Array, Array, Array]]:
    """Make `MOVES` Metropolis moves from every draw and sum the changes of bounded functions.

    Parameters
    ----------
    rng : numpy Generator
    evaluate : callable
        The claim's density at block values.
    laws : mapping
        By site.
    drawn : mapping
        {site: (state, draw, ...)}; the last quarter only makes proposals.

    Returns
    -------
    dict
        {site: (total, square, shares)}: sums over draws of the change and its square, (state, 1 + elements,
        function), where row 0 is that of the sum over elements, which sees what is small in each; and the
        shares of draws that the claim excludes and that cannot be used, (state, 2).
    """
    count = next(iter(drawn.values())).shape[1]
    size = int(count * (1 - POOL_SHARE))
    free = {site: laws[site].coordinates.free(value) for site, value in drawn.items()}
    start = {site: u[:, :size] for site, u in free.items()}
    pool = {site: u[:, size:] for site, u in free.items()}
    first = log_targets(evaluate, laws, start)
    walks = {
        site: Walk(start[site], target, excluded, ~np.isfinite(target))
        for site, (target, excluded) in first.items()
    }
    for _ in range(MOVES):
        walks = _moved(rng, evaluate, laws, walks, pool)
    return {site: _change(laws[site], start[site], pool[site], walk) for site, walk in walks.items()}


def _moved(
    rng: np.random.Generator,
    evaluate: Evaluate,
    laws: Mapping[str, SiteLaw],
    walks: dict[str, Walk],
    pool: State,
) -> dict[str, Walk]:
    proposed = {
        site: laws[site].coordinates.project(_proposal(rng, walk, pool[site], laws[site]))
        for site, walk in walks.items()
    }
    targets = log_targets(evaluate, laws, proposed)
    out = {}
    for site, walk in walks.items():
        target = targets[site][0]
        usable = np.isfinite(walk.density) & ~np.isnan(target)
        with np.errstate(invalid="ignore"):
            ratio = np.where(usable, target - walk.density, -np.inf)
        taken = -rng.exponential(size=ratio.shape) < ratio
        wide = taken.reshape(*taken.shape, *[1] * (walk.at.ndim - taken.ndim))
        out[site] = walk._replace(
            at=np.where(wide, proposed[site], walk.at), density=np.where(taken, target, walk.density)
        )
    return out


def _proposal(rng: np.random.Generator, walk: Walk, pool: Array, law: SiteLaw) -> Array:
    """Return a symmetric proposal of every batch element, their signs independent.

    With one sign for all, moves of which some elements are refused would not leave a product law as it is.
    """
    at = walk.at
    pairs = rng.integers(pool.shape[1], size=(2, at.shape[0], at.shape[1]))
    states = np.arange(at.shape[0])[:, None]
    sign = rng.choice((-1, 1), size=walk.density.shape)
    sign = sign.reshape(*sign.shape, *[1] * (at.ndim - sign.ndim))
    with np.errstate(invalid="ignore"):
        difference = sign * (pool[states, pairs[0]] - pool[states, pairs[1]])
        if law.is_discrete:
            return at + difference.astype(at.dtype)
        step = rng.choice(STEPS, size=at.shape[:2])
        return at + step.reshape(*step.shape, *[1] * (at.ndim - 2)) * difference


def log_targets(evaluate: Evaluate, laws: Mapping[str, SiteLaw], u: State) -> dict[str, tuple[Array, Array]]:
    """Return by site the log density in the coordinates, and which elements the claim cannot have drawn."""
    with np.errstate(over="ignore", invalid="ignore"):
        values = {site: laws[site].coordinates.value(part) for site, part in u.items()}
    found = in_chunks(evaluate, values)
    out = {}
    for site, law in laws.items():
        density, within = found[site]
        impossible = np.isnan(density) | (density == -np.inf) | (~within & (density < np.inf))
        if law.is_discrete:
            out[site] = np.where(within, density, -np.inf), impossible
            continue
        # Zeros at one place in all draws are no underflow: the upper half of a triangular matrix.
        structural = (values[site] == 0).all(axis=(0, 1)) & (len(law.event_shape) > 1)
        small = (np.abs(values[site]) < SMALLEST) & ~structural
        small |= law.coordinates.is_coarse(values[site])
        vanishing = small.any(tuple(range(-len(law.event_shape), 0))) if law.event_shape else small
        with np.errstate(invalid="ignore"):
            target = np.where(within & ~vanishing, density + law.coordinates.log_jacobian(u[site]), -np.inf)
        out[site] = target, impossible & ~vanishing
    return out


def in_chunks(evaluate: Evaluate, values: State) -> dict[str, tuple[Array, Array]]:
    """Evaluate any number of block values a state, `VALUES` at a time, so that one program serves."""
    count = next(iter(values.values())).shape[1]
    order = np.minimum(np.arange(-(-count // VALUES) * VALUES), count - 1).reshape(-1, VALUES)
    parts = [evaluate({site: value[:, columns] for site, value in values.items()}) for columns in order]

    def joined(site: str, part: int) -> Array:
        return np.concatenate([np.asarray(found[site][part]) for found in parts], axis=1)[:, :count]

    return {site: (joined(site, 0), joined(site, 1)) for site in parts[0]}


def _change(law: SiteLaw, start: Array, pool: Array, walk: Walk) -> tuple[Array, Array, Array]:
    center, spread = _center_spread(pool)
    num_batch = len(law.batch_shape)
    before, after = (features(at, center, spread, num_batch) for at in (start, walk.at))
    # Coordinates of draws that never moved may be infinite.
    with np.errstate(invalid="ignore"):
        change = np.where((after == before) | (np.abs(after - before) < ROUNDING), 0.0, after - before)
    change = np.concatenate([change.sum(2, keepdims=True), change], axis=2)
    axes = tuple(range(1, walk.idle.ndim))
    shares = np.stack([walk.excluded.mean(axes), walk.idle.mean(axes)], axis=-1)
    return change.sum(1), (change**2).sum(1), shares


def features(u: Array, center: Array, spread: Array, num_batch: int) -> Array:
    """Return bounded functions of coordinates (state, draw, batch..., event...), flat over the batch.

    t, t^2 and t_i t_(i+1) of each element, and where there are several the product of the first t of
    neighbouring elements: one noise for the whole plate would pass all others.
    """
    with np.errstate(invalid="ignore"):
        t = np.tanh((u - center) / spread)
    t = t.reshape(*t.shape[:2], int(np.prod(t.shape[2 : 2 + num_batch])), -1)
    parts = [t, t**2, t[..., :-1] * t[..., 1:]]
    if t.shape[2] > 1 and t.shape[3]:
        parts.append(t[..., :1] * np.roll(t[..., :1], 1, axis=2))
    return np.concatenate(parts, axis=-1)


def _center_spread(pool: Array) -> tuple[Array, Array]:
    """Return mean and standard deviation of the finite coordinates (the log of an underflown draw is not)."""
    finite = np.isfinite(pool)
    count = np.maximum(finite.sum(1, keepdims=True), 1)
    with np.errstate(invalid="ignore"):
        center = np.where(finite, pool, 0.0).sum(1, keepdims=True) / count
        square = np.where(finite, pool - center, 0.0) ** 2
    spread = np.sqrt(square.sum(1, keepdims=True) / count)
    # A coordinate that does not vary (a simplex of one entry) has nothing but rounding for a spread.
    return center, np.where(spread > 1e-12 * (1.0 + np.abs(center)), spread, 1.0)


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
    inputs: Any,
    states: State,
    given: Any,
    sites: tuple[str, ...],
    seed: int,
    *,
    times: int = 1,
    described: Described | None = None,
) -> Drawn:
    """Draw from a claim at every state and summarise the test of the draws."""
    about = describe(given, states, inputs, sites) if described is None else described
    arrays, static = split_inputs(inputs)
    keys = jax.random.split(jax.random.key(seed), len(next(iter(states.values()))))
    size = times * draws_a_state(states, sites)
    options: Any = {"static": static, "given": given, "sites": sites}
    drawn = {
        site: np.asarray(value) for site, value in samples(arrays, states, keys, **options, size=size).items()
    }

    def evaluate(values: State) -> Terms:
        return claim_terms(arrays, states, values, no_changes(len(about.parameters)), **options)

    drift = changes_of_walk(np.random.default_rng([seed, 5]), evaluate, about.laws, drawn)
    largest, worst, tests = 0.0, sites[0], 0
    for site, (total, square, _) in drift.items():
        z = np.abs(pooled_z(total, square))
        tests += z.size
        if z.max(initial=0.0) > largest:
            largest, worst = float(z.max()), site
    return Drawn(drawn, largest, worst, tests, _excluded({site: part[2] for site, part in drift.items()}))


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
