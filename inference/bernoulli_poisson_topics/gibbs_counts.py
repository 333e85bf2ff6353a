"""Engine ``gibbs_counts``: the paper's Gibbs sampler of Bernoulli-Poisson topics, in a valid order.

One sweep is m -> (hidden counts, V) -> [tables -> r -> omega -> W] -> U -> tau. r and W are drawn with U
integrated out, so U comes right after them; omega depends on r, so it is drawn after r and just before W. U
before (r, W), or omega before r, has another stationary law.

With P positives, N rows, L labels, K topics, D features, a sweep takes about P K (40 flops + a Poisson draw),
N K (a Polya-Gamma, a gamma and the table draws, whose number grows like r log m) and
K min(N D^2 + D^3 / 3, N^2 D + N^3 / 3) flops for W, and moves 8 (16 P K + 20 N K) bytes. It mixes far worse
than ``gibbs`` where rows are nearly all positive: counts reach 10^4 there.
"""

from typing import Any

import jax
import jax.numpy as jnp

from labelzoo.inference.bernoulli_poisson_topics.counts import (
    COUNT_UPDATES,
    count_exposure,
    counts_given_rest,
    hidden_counts_given_rest,
    omega_given_rest,
    row_counts,
    shape_given_tables,
    tables_given_rest,
    topics_given_counts,
    weights_natural,
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
    place_sites,
    precision_of,
    run_sampler,
    start_sites,
)
from labelzoo.inference.draw_memory import MAX_BYTES
from labelzoo.inference.engine import Engine, EngineResult
from labelzoo.inference.gamma_draws import blocked_log_gamma
from labelzoo.inference.kernel import SweepKernel
from labelzoo.inference.linalg import draw_gaussian_natural
from labelzoo.inference.run_mcmc import MCMC_OPTIONS
from labelzoo.models.spec import ModelSpec


def draw_counts(key: Array, sites: State, inputs: Inputs) -> dict[str, Array]:
    """Draw the counts of the positives, and of the missing cells, given U and V."""
    seen_key, hidden_key = jax.random.split(key)
    now = {**sites, "counts": counts_given_rest(sites, inputs).sample(seen_key)}
    return {**now, "hidden_counts": hidden_counts_given_rest(now, inputs).sample(hidden_key)}


def draw_topics(key: Array, sites: State, inputs: Inputs) -> dict[str, Array]:
    """Draw V in logs: with a small eta most entries lie below the smallest float."""
    log_y = blocked_log_gamma(key, topics_given_counts(sites, inputs).concentration)
    log_topics = jax.nn.log_softmax(jnp.maximum(log_y, jnp.finfo(log_y.dtype).min / 8), axis=1)
    return {**sites, "log_topics": log_topics, "topics": jnp.exp(log_topics)}


def draw_shape(key: Array, sites: State, inputs: Inputs) -> dict[str, Array]:
    """Draw the tables, then r, where r is learned."""
    if inputs["shape"] is not None:
        return dict(sites)
    table_key, shape_key = jax.random.split(key)
    now = {**sites, "tables": tables_given_rest(sites, inputs).sample(table_key)}
    claim = shape_given_tables(now, inputs)
    log_r = blocked_log_gamma(shape_key, claim.concentration) - jnp.log(claim.rate)
    return {**now, "shape": jnp.exp(log_r)}


def draw_weights(key: Array, sites: State, inputs: Inputs) -> dict[str, Array]:
    """Draw omega, then W: by the D x D precision, or by an N x N system where D > N."""
    omega_key, weight_key = jax.random.split(key)
    now = {**sites, "omega": omega_given_rest(sites, inputs).sample(omega_key)}
    omega, potential = weights_natural(now, inputs)
    weights = draw_gaussian_natural(weight_key, inputs["X"], omega, potential, precision_of(now, inputs))
    return {**now, "weights": weights}


def sweep(key: Array, sites: State, inputs: Inputs) -> tuple[dict[str, Array], dict[str, Array]]:
    """Make one sweep of one chain: new sites, and its ``log_likelihood``."""
    keys = jax.random.split(key, 6)
    now = draw_counts(keys[0], sites, inputs)
    now = draw_topics(keys[1], now, inputs)
    now = draw_shape(keys[2], now, inputs)
    now = draw_weights(keys[3], now, inputs)
    exposure = count_exposure(now, inputs)
    now = draw_embedding(keys[4], row_counts(now, inputs), exposure, now, inputs)
    now = draw_precision(keys[5], now, inputs)
    fit = log_likelihood_stat(now, exposure, jnp.ones(now["counts"].shape[0], exposure.dtype), inputs)
    return {name: now[name] for name in sites}, {"log_likelihood": fit}


def build_kernel(spec: ModelSpec, keep_embedding: bool = True) -> SweepKernel:
    """Return the sweep as a NumPyro kernel."""
    return SweepKernel(
        spec.views["summed"],
        lambda key, inputs: (start_sites(key, inputs), ()),
        lambda key, sites, adapted, inputs: sweep(key, sites, inputs),
        outputs=kept_sites if keep_embedding else globals_of,
        place=place_sites,
    )


def run(
    spec: ModelSpec,
    inputs: dict[str, Any],
    *,
    rng_key: Any,
    progress: bool = False,
    positives_only: Any = False,
    keep_embedding: Any = True,
    max_bytes: Any = MAX_BYTES,
    **options: Any,
) -> EngineResult:
    """Run the sampler; see `labelzoo.inference.run_mcmc.run_mcmc` for the other options.

    Parameters
    ----------
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
    return run_sampler(
        lambda keep: build_kernel(spec, keep),
        inputs,
        rng_key=rng_key,
        progress=progress,
        positives_only=positives_only,
        keep_embedding=keep_embedding,
        max_bytes=max_bytes,
        options=options,
    )


GIBBS_COUNTS = Engine(
    name="gibbs_counts",
    kind="mcmc",
    run=run,
    random_sites=("topics", "weights", "shape", "precision", "embedding"),
    options={**MCMC_OPTIONS, **TOPIC_OPTIONS},
    conditionals=tuple(update.name for update in COUNT_UPDATES),
    description="The paper's Gibbs sampler: Poisson counts, table counts, Polya-Gamma weights.",
    kernel=build_kernel,
)
