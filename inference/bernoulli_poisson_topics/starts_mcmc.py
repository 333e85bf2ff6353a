"""What both Gibbs samplers of Bernoulli-Poisson topics share: starts, logs of a state, what is kept of it."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Gamma

from labelzoo.inference.bernoulli_poisson_topics.em_data import without_missing
from labelzoo.inference.draw_memory import MAX_BYTES, refuse_many_draws
from labelzoo.inference.engine import EngineResult
from labelzoo.inference.gamma_draws import blocked_log_gamma
from labelzoo.inference.kernel import SweepKernel
from labelzoo.inference.reference.sites import random_sites
from labelzoo.inference.run_mcmc import run_mcmc
from labelzoo.inference.update import Mutant, Update
from labelzoo.models.label_cells import Cells

Array = Any
State = Mapping[str, Any]
Inputs = Mapping[str, Any]

KEPT = ("topics", "weights", "shape", "embedding", "precision")
TOPIC_OPTIONS: dict[str, Any] = {
    "num_warmup": 1000,
    "num_samples": 1000,
    "thinning": 5,
    "positives_only": False,
    "keep_embedding": True,
    "max_bytes": MAX_BYTES,
}
"""Options of both samplers.

``positives_only``: treat missing cells as zeros, as the paper does; ``keep_embedding``: keep the embedding of
every draw (rows x topics numbers each), not only where the chains end; ``max_bytes``: refuse to start where
the kept draws would take more."""

START_NOISE = 0.7
TINY = float(np.finfo(np.float64).tiny)


def log_topics_of(state: State) -> Array:
    """Return log V: the sampler carries it, since entries of V below 1e-308 are usual when eta is small."""
    return state["log_topics"] if "log_topics" in state else jnp.log(state["topics"])


def log_embedding_of(state: State) -> Array:
    """Return log U, carried by the sampler for the same reason."""
    return state["log_embedding"] if "log_embedding" in state else jnp.log(state["embedding"])


def shape_of(state: State, inputs: Inputs) -> Array:
    """Return r: a site, or the setting that fixes it."""
    if inputs["shape"] is not None:
        return jnp.full(inputs["num_topics"], float(inputs["shape"]))
    return state["shape"]


def precision_of(state: State, inputs: Inputs) -> Array:
    """Return the prior precisions tau of the weights: a site where they are learned, else constants."""
    return inputs["precision"] if inputs["precision_prior"] is None else state["precision"]


def log_rates(state: State, positives: Cells) -> Array:
    """Return log v_kl + log u_nk at the positives: (positive, topic)."""
    return log_topics_of(state).T[positives.label] + log_embedding_of(state)[positives.row]


def log_likelihood_stat(sites: State, exposure: Array, at_positive: Array, inputs: Inputs) -> Array:
    """Return log p(Y | U, V), counts and arrival times integrated out: a scalar, nats.

    The sum of lambda over the observed zeros is that over all exposed cells, sum_nk s_nk u_nk, less what the
    positives add to it: no pass over the zeros.

    Parameters
    ----------
    exposure : array (obs, topic)
        s of the current topics, with exposures `at_positive` (positive,) at the positives.
    """
    rates = jnp.exp(log_rates(sites, inputs["positives"])).sum(axis=1)
    # log(1 - e^-x) to 1e-16 absolute: enough for a sum, and one logarithm a positive.
    hits = jnp.log(jnp.maximum(-jnp.expm1(-rates), TINY)) + at_positive * rates
    return hits.sum() - (exposure * sites["embedding"]).sum()


def start_sites(key: Array, inputs: Inputs) -> dict[str, Array]:
    """Draw a scattered start: topics around the label frequencies, embeddings around 1, small weights.

    Returns
    -------
    dict
        ``topics``, ``log_topics`` (topic, labels), ``embedding``, ``log_embedding`` (obs, topic),
        ``weights`` (topic, feature), ``shape`` (topic,), and ``precision`` (feature,) where it is learned.
    """
    topic_key, embedding_key, weight_key, shape_key, precision_key = jax.random.split(key, 5)
    X, k, num_labels = inputs["X"], inputs["num_topics"], inputs["num_labels"]
    count = jnp.zeros(num_labels, X.dtype).at[inputs["positives"].label].add(1.0)
    noise = START_NOISE * jax.random.normal(topic_key, (k, num_labels), X.dtype)
    log_topics = jax.nn.log_softmax(jnp.log(count + 1.0) + noise)
    log_embedding = 0.3 * jax.random.normal(embedding_key, (X.shape[0], k), X.dtype)
    sites = {
        "topics": jnp.exp(log_topics),
        "log_topics": log_topics,
        "embedding": jnp.exp(log_embedding),
        "log_embedding": log_embedding,
        "weights": 0.1 * jax.random.normal(weight_key, (k, X.shape[1]), X.dtype),
        "shape": _start_shape(shape_key, inputs),
    }
    if inputs["precision_prior"] is not None:
        a, b = inputs["precision_prior"]
        spread = jnp.exp(0.3 * jax.random.normal(precision_key, (X.shape[1],), X.dtype))
        sites["precision"] = a / b * spread
    return sites


def _start_shape(key: Array, inputs: Inputs) -> Array:
    if inputs["shape"] is not None:
        return shape_of({}, inputs)
    a, b = inputs["shape_prior"]
    return a / b * jnp.exp(0.3 * jax.random.normal(key, (inputs["num_topics"],), inputs["X"].dtype))


def place_sites(key: Array, sites: State, given: State, inputs: Inputs) -> dict[str, Array]:
    """Return a start with the values of `given` in place, and the logarithms that go with them."""
    logs = {
        f"log_{name}": jnp.log(jnp.maximum(given[name], TINY))
        for name in ("topics", "embedding")
        if name in given
    }
    return {**sites, **logs, **given}


def kept_sites(sites: State, inputs: Inputs) -> dict[str, Array]:
    """Return what is stored of a state: no auxiliary variables, no logarithms."""
    return {name: sites[name] for name in KEPT if name in sites}


def globals_of(sites: State, inputs: Inputs) -> dict[str, Array]:
    """Return `kept_sites` without the embedding."""
    kept = kept_sites(sites, inputs)
    return {name: value for name, value in kept.items() if name != "embedding"}


def switch(name: str, value: Any) -> bool:
    """Return an option that is True or False.

    Raises
    ------
    ValueError
        If it is neither.
    """
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def run_sampler(
    build: Callable[[bool], SweepKernel],
    inputs: Inputs,
    *,
    rng_key: Any,
    progress: bool,
    positives_only: Any,
    keep_embedding: Any,
    max_bytes: Any,
    options: Mapping[str, Any],
) -> EngineResult:
    """Run the kernel ``build(keep_embedding)``; what both samplers do with `TOPIC_OPTIONS`.

    Parameters
    ----------
    options : mapping
        Those of `run_mcmc.run_mcmc`.

    Raises
    ------
    ValueError
        If an option is out of range, or the kept draws would pass `max_bytes`.
    """
    keep = switch("keep_embedding", keep_embedding)
    read = without_missing(inputs) if switch("positives_only", positives_only) else dict(inputs)
    refuse_many(read, keep, max_bytes, options)
    result = run_mcmc(build(keep), read, rng_key=rng_key, progress=progress, stats=("stats",), **options)
    return result._replace(attrs={**result.attrs, "random_sites": random_sites(result.draws)})


def refuse_many(inputs: Inputs, keep_embedding: bool, max_bytes: Any, options: Mapping[str, Any]) -> None:
    """Refuse a run whose kept draws would pass `max_bytes`, with what makes it smaller.

    Raises
    ------
    ValueError
        Naming the bytes, the largest site and the options that save some.
    """
    (n, d), k = inputs["X"].shape, inputs["num_topics"]
    shapes: dict[str, tuple[int, ...]] = {
        "topics": (k, inputs["num_labels"]),
        "weights": (k, d),
        "shape": (k,),
    }
    if inputs["precision_prior"] is not None:
        shapes["precision"] = (d,)
    ways = ["fewer num_samples with a larger thinning", "fewer topics", "a larger max_bytes"]
    if keep_embedding:
        shapes["embedding"] = (n, k)
        ways.insert(0, "keep_embedding=False")
    refuse_many_draws(shapes, options, max_bytes, switch=", ".join(ways[:-1]) + f" or {ways[-1]}")


def draw_embedding(
    key: Array, counts: Array, exposure: Array, sites: State, inputs: Inputs
) -> dict[str, Array]:
    """Draw U from Gamma(r + m, s + e^-psi) in logs: neither a tiny shape nor a huge rate hurts."""
    psi = inputs["X"] @ sites["weights"].T
    log_exposure = jnp.log(exposure)
    # log(s + e^-psi); log(1 + x) for x <= 1 to 1e-16 absolute, ten times faster than log1p in XLA.
    larger = jnp.maximum(log_exposure, -psi)
    log_rate = larger + jnp.log(1.0 + jnp.exp(-jnp.abs(log_exposure + psi)))
    log_u = blocked_log_gamma(key, shape_of(sites, inputs) + counts) - log_rate
    log_u = jnp.maximum(log_u, jnp.finfo(log_u.dtype).min / 8)
    return {**sites, "log_embedding": log_u, "embedding": jnp.exp(log_u)}


def _precision_claim(a_scale: float, b_scale: float, flat: bool = False) -> Any:
    def given(state: State, inputs: Inputs) -> Gamma:
        a, b = (0.0, 0.0) if flat else inputs["precision_prior"]
        squares = (state["weights"] ** 2).sum(axis=0)
        return Gamma(a + a_scale * state["weights"].shape[0], b + b_scale * squares)

    return given


precision_given_weights = _precision_claim(0.5, 0.5)


def precision_update(view: str) -> Update:
    """Return the update tau_d | W ~ Gamma(a + K/2, rate b + sum_k w_kd^2 / 2), held against `view`.

    It applies where ``precision_prior`` is set.
    """
    return Update(
        name="precision_given_weights",
        sites=("precision",),
        view=view,
        given=precision_given_weights,
        mutants=(
            Mutant("half of the squares dropped", _precision_claim(0.5, 1.0)),
            Mutant("K instead of K/2", _precision_claim(1.0, 0.5)),
            Mutant("prior forgotten", _precision_claim(0.5, 0.5, flat=True)),
        ),
        equation="section 2 of the paper (ARD), with a proper prior",
    )


def draw_precision(key: Array, sites: State, inputs: Inputs) -> dict[str, Array]:
    """Draw tau where it is learned; return `sites` with it."""
    if inputs["precision_prior"] is None:
        return dict(sites)
    return {**sites, "precision": precision_given_weights(sites, inputs).sample(key)}
