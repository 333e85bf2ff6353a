"""Engine ``gibbs``: the first-arrival sampler of Bernoulli-Poisson topics.

One sweep is (t, z) -> [row scale] -> V -> (r, W) -> U -> tau. (r, W) are moved with U integrated out, so U is
drawn right after them and nothing reads it in between; (t, z), the row scale and V read the current U. V or
the row scale between (r, W) and U, or (r, W) given the exposure of an old V, has another stationary law.

With P positives, C listed zeros or missing cells, N rows, L labels, K topics, D features, a sweep takes about
P (20 K + 60) + 4 C K + 300 K L + 5 N K (4 D + 40) flops and moves 8 (14 P K + 4 C K + 10 N K) bytes: work
follows the positives, and no rows x labels array is formed. On a CPU its time is that of exponentials,
logarithms and random bits.
"""

from typing import Any

import jax
import jax.numpy as jnp

from labelzoo.inference.bernoulli_poisson_topics.arrivals import (
    ARRIVAL_UPDATES,
    counts_by_row,
    row_exposure,
    topics_step,
)
from labelzoo.inference.bernoulli_poisson_topics.row_scale import (
    ROW_SCALE_UPDATE,
    row_scale_step,
    wants_row_scale,
)
from labelzoo.inference.bernoulli_poisson_topics.shape_weights_hmc import (
    information_at,
    shape_and_weights_move,
    whitening_of,
)
from labelzoo.inference.bernoulli_poisson_topics.starts_mcmc import (
    TOPIC_OPTIONS,
    Array,
    Inputs,
    State,
    draw_embedding,
    draw_precision,
    globals_of,
    kept_sites,
    log_likelihood_stat,
    log_rates,
    place_sites,
    run_sampler,
    start_sites,
)
from labelzoo.inference.draw_memory import MAX_BYTES
from labelzoo.inference.engine import Engine, EngineResult
from labelzoo.inference.kernel import SweepKernel
from labelzoo.inference.run_mcmc import MCMC_OPTIONS
from labelzoo.models.spec import ModelSpec

AVERAGING = 0.5
SMALL_RATE = 1e-4


def draw_first_arrivals(key: Array, sites: State, inputs: Inputs) -> dict[str, Array]:
    """Draw ``arrival_time`` and ``arrival_topic`` from `first_arrivals_given_rest`.

    Random bits are the largest cost, so one uniform a positive serves both: given the topic it falls in, its
    place inside the topic's share is uniform again.
    """
    logits = log_rates(sites, inputs["positives"])
    top = logits.max(axis=1, keepdims=True)
    shares = jnp.exp(logits - top)
    cumulative = jnp.cumsum(shares, axis=1)
    total = cumulative[:, -1]
    uniform = jax.random.uniform(key, total.shape, total.dtype) * total
    topic = (cumulative[:, :-1] <= uniform[:, None]).sum(axis=1)
    own = topic[:, None]
    share = jnp.take_along_axis(shares, own, axis=1)[:, 0]
    into = share - (jnp.take_along_axis(cumulative, own, axis=1)[:, 0] - uniform)
    place = jnp.clip(into / jnp.where(share > 0, share, 1.0), jnp.finfo(total.dtype).tiny, 1.0)
    return {**sites, "arrival_time": arrival_times(place, total * jnp.exp(top[:, 0])), "arrival_topic": topic}


def arrival_times(place: Array, rate: Array) -> Array:
    """Return the quantiles of `FirstArrival(rate)` at `place` in (0, 1]: (positive,).

    t = -log(1 - place (1 - e^-rate)) / rate; by its series below `SMALL_RATE`. Absolute error
    below 1e-11 everywhere, without log1p and expm1, which are ten times slower in XLA than log and exp.
    """
    small = rate < SMALL_RATE
    safe = jnp.where(small, 1.0, rate)
    # 1 - place (1 - e^-rate), written without the cancellation at place near 1 and a large rate.
    survival = (1.0 - place) + place * jnp.exp(-safe)
    direct = -jnp.log(jnp.maximum(survival, jnp.finfo(rate.dtype).tiny)) / safe
    mass = 1.0 - rate / 2.0 + rate**2 / 6.0
    x = place * mass * rate
    series = place * mass * (1.0 + x / 2.0 + x**2 / 3.0)
    return jnp.clip(jnp.where(small, series, direct), jnp.finfo(rate.dtype).tiny, 1.0)


def sweep(
    key: Array, sites: State, whitening: Array, inputs: Inputs, row_scale: Any = "auto"
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Make one sweep of one chain.

    Parameters
    ----------
    sites : mapping
        What `start` returned or the last sweep left.
    whitening : array
        Inverse root of the HMC mass, fixed after the warm-up.
    row_scale : {"auto", True, False}
        Whether to make the row scale move.

    Returns
    -------
    sites, stats : dicts
    """
    keys = jax.random.split(key, 5)
    now = draw_first_arrivals(keys[0], sites, inputs)
    if wants_row_scale(row_scale, inputs):
        now = row_scale_step(jax.random.fold_in(keys[0], 1), now, inputs)
    now = topics_step(keys[1], now, inputs)
    counts, exposure = counts_by_row(now, inputs), row_exposure(now, inputs)
    now = shape_and_weights_move(keys[2], counts, exposure, whitening, now, inputs)
    now = draw_embedding(keys[3], counts, exposure, now, inputs)
    now = draw_precision(keys[4], now, inputs)
    stats = {
        "log_likelihood": log_likelihood_stat(now, exposure, now["arrival_time"], inputs),
        "topics_acceptance": now["topics_accepted"].astype(exposure.dtype).mean(),
        "shape_weights_acceptance": now["hmc_acceptance"].mean(),
    }
    # Kept for the adaptation of the mass, which sees the state between two sweeps.
    return {**{name: now[name] for name in sites}, "row_counts": counts, "row_exposure": exposure}, stats


def start(key: Array, inputs: Inputs) -> tuple[dict[str, Array], dict[str, Array]]:
    """Draw a scattered start with its arrivals, and the mass from the Hessian there."""
    site_key, arrival_key = jax.random.split(key)
    sites = start_sites(site_key, inputs)
    arrivals = draw_first_arrivals(arrival_key, sites, inputs)
    sites["row_counts"] = counts_by_row(arrivals, inputs)
    sites["row_exposure"] = row_exposure(arrivals, inputs)
    info = information_at(sites["row_counts"], sites["row_exposure"], sites, inputs)
    return sites, {"information": info, "whitening": whitening_of(info, inputs["shape"] is None)}


def adapt(sites: State, adapted: Any, inputs: Inputs) -> dict[str, Array]:
    """Average the Hessian of this state into the mass; earlier states count half as much each time."""
    here = information_at(sites["row_counts"], sites["row_exposure"], sites, inputs)
    info = AVERAGING * adapted["information"] + (1.0 - AVERAGING) * here
    return {"information": info, "whitening": whitening_of(info, inputs["shape"] is None)}


def adapt_at(num_warmup: int) -> tuple[int, ...]:
    """Return after which warm-up sweeps the mass is refreshed: early and often, then rarely."""
    fractions = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)
    return tuple(sorted({int(f * num_warmup) for f in fractions})) if num_warmup else ()


def build_kernel(spec: ModelSpec, row_scale: Any = "auto", keep_embedding: bool = True) -> SweepKernel:
    """Return the sweep as a NumPyro kernel."""

    def one(key: Array, sites: State, adapted: Any, inputs: Inputs) -> tuple[Any, Any]:
        return sweep(key, sites, adapted["whitening"], inputs, row_scale)

    return SweepKernel(
        spec.views["summed"],
        start,
        one,
        adapt=adapt,
        adapt_at=adapt_at,
        outputs=kept_sites if keep_embedding else globals_of,
        place=place_sites,
    )


def run(
    spec: ModelSpec,
    inputs: dict[str, Any],
    *,
    rng_key: Any,
    progress: bool = False,
    row_scale: Any = "auto",
    positives_only: Any = False,
    keep_embedding: Any = True,
    max_bytes: Any = MAX_BYTES,
    **options: Any,
) -> EngineResult:
    """Run the sampler; see `labelzoo.inference.run_mcmc.run_mcmc` for the other options.

    Parameters
    ----------
    row_scale : {"auto", True, False}
        Make the row scale move; "auto": from `row_scale.DENSE_ROWS` positives a row on.
    positives_only : bool
        Treat missing cells as zeros, as the paper does.
    keep_embedding : bool
        Keep ``embedding`` (obs, topic) of every draw.
    max_bytes : number
        Refuse to start where the kept draws would take more.

    Raises
    ------
    ValueError
        If an option is out of range.
    """
    wants_row_scale(row_scale, inputs)
    return run_sampler(
        lambda keep: build_kernel(spec, row_scale, keep),
        inputs,
        rng_key=rng_key,
        progress=progress,
        positives_only=positives_only,
        keep_embedding=keep_embedding,
        max_bytes=max_bytes,
        options=options,
    )


GIBBS = Engine(
    name="gibbs",
    kind="mcmc",
    run=run,
    random_sites=("topics", "weights", "shape", "precision", "embedding"),
    options={**MCMC_OPTIONS, **TOPIC_OPTIONS, "row_scale": "auto"},
    conditionals=tuple(update.name for update in (*ARRIVAL_UPDATES, ROW_SCALE_UPDATE)),
    description="Gibbs sampling by first arrivals, tilted-Dirichlet topics, short HMC on shapes and weights.",
    kernel=build_kernel,
)
