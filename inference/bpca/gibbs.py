"""Gibbs sampling of bpca: mu with the scores out, U, W, alpha, tau, then the size of every column of U."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from labelzoo.inference.bpca.updates import (
    loadings_given_rest,
    mean_given_loadings,
    noise_given_rest,
    precision_given_loadings,
    scores_given_rest,
    size_given_rest,
)
from labelzoo.inference.draw_memory import MAX_BYTES, refuse_many_draws
from labelzoo.inference.engine import Engine, EngineResult
from labelzoo.inference.kernel import SweepKernel
from labelzoo.inference.run_mcmc import MCMC_OPTIONS, run_mcmc
from labelzoo.models.bpca_card import log_likelihood
from labelzoo.models.spec import ModelSpec

Array = Any
Inputs = Mapping[str, Any]
Sites = dict[str, Array]

GIBBS_OPTIONS: dict[str, Any] = {
    **MCMC_OPTIONS, "num_samples": 1000, "thinning": 2, "keep_scores": False, "max_bytes": MAX_BYTES,
}  # fmt: skip
KEPT = ("precision", "noise_precision", "mean", "loadings")
TINIEST = 1e-200
"""Least precision that is drawn: its logarithm and its inverse are numbers."""


def start(key: Array, inputs: Inputs) -> tuple[Sites, tuple[()]]:
    """Draw W and mu about the scale of the rows, whose mean variance is 1; U is drawn first in a sweep."""
    loadings_key, mean_key, noise_key = jax.random.split(key, 3)
    (m, d), p = inputs["compressed"].shape, inputs["num_components"]
    sites: Sites = {
        "loadings": jax.random.normal(loadings_key, (d, p)) / jnp.sqrt(1.0 * p),
        "mean": inputs["row_mean"] + jax.random.normal(mean_key, (d,)),
        "noise_precision": jnp.exp(jax.random.normal(noise_key, ())),
        "precision": jnp.ones(p),
        "scores": jnp.zeros((m, p)),
    }
    return sites, ()


def sweep(key: Array, sites: Sites, adapt: Any, inputs: Inputs) -> tuple[Sites, dict[str, Array]]:
    """Draw mu without U and U right after it, which is a draw of both; then W, alpha, tau and the sizes.

    rows x measurement x component and measurement^3 flops.
    """
    keys = jax.random.split(key, 6)
    new = {**sites, "mean": mean_given_loadings(sites, inputs).sample(keys[0])}
    new["scores"] = scores_given_rest(new, inputs).sample(keys[1])
    new["loadings"] = loadings_given_rest(new, inputs).sample(keys[2])
    new["precision"] = jnp.maximum(precision_given_loadings(new, inputs).sample(keys[3]), TINIEST)
    new["noise_precision"] = jnp.maximum(noise_given_rest(new, inputs).sample(keys[4]), TINIEST)
    new = resize(keys[5], new, inputs)
    return new, {"log_likelihood": log_likelihood(new, inputs)}


def resize(key: Array, sites: Sites, inputs: Inputs) -> Sites:
    """Draw the size of every column of U, what it scales going with it (view ``stretched``)."""
    size = (sites["scores"] ** 2).sum(axis=0)
    law = size_given_rest({"scaled_precision": sites["precision"] / size}, inputs)
    ratio = law.sample(key) / size
    root = jnp.sqrt(ratio)
    return {
        **sites,
        "scores": sites["scores"] * root,
        "loadings": sites["loadings"] / root,
        "precision": sites["precision"] * ratio,
    }


def _outputs(sites: Sites, inputs: Inputs, keep_scores: bool) -> Sites:
    return {name: sites[name] for name in (*KEPT, *(("scores",) if keep_scores else ()))}


def build_kernel(spec: ModelSpec, keep_scores: bool = False) -> SweepKernel:
    """Return the sweep as a NumPyro kernel."""
    return SweepKernel(spec.views["summed"], start, sweep, outputs=partial(_outputs, keep_scores=keep_scores))


def run_gibbs(
    spec: ModelSpec,
    inputs: Mapping[str, Any],
    *,
    rng_key: Any,
    progress: bool = False,
    keep_scores: Any = False,
    max_bytes: Any = MAX_BYTES,
    **options: Any,
) -> EngineResult:
    """Draw the parameters, and the scores of the rows if asked for.

    Parameters
    ----------
    keep_scores : bool
        Keep U (graph, component) of every draw.
    max_bytes : number
        Refuse to start where all draws would take more.
    **options
        Those of `run_mcmc`.

    Raises
    ------
    ValueError
        If an option is out of range or the draws would take too much memory.
    """
    if not isinstance(keep_scores, bool):
        raise ValueError(f"keep_scores must be True or False, got {keep_scores!r}")
    (m, d), p = inputs["compressed"].shape, inputs["num_components"]
    shapes = {"loadings": (d, p), "mean": (d,), "precision": (p,)} | (
        {"scores": (m, p)} if keep_scores else {}
    )
    ways = "fewer num_samples with a larger thinning, fewer components or a larger max_bytes"
    refuse_many_draws(shapes, options, max_bytes, switch=ways)
    kernel = build_kernel(spec, keep_scores)
    return run_mcmc(kernel, dict(inputs), rng_key=rng_key, progress=progress, stats=("stats",), **options)


engine = Engine(
    "gibbs",
    "mcmc",
    run_gibbs,
    random_sites=KEPT,
    options=GIBBS_OPTIONS,
    conditionals=(
        "mean_given_loadings",
        "scores_given_rest",
        "loadings_given_rest",
        "precision_given_loadings",
        "noise_given_rest",
        "size_given_rest",
    ),
    description="Gibbs, exact: mu with the scores out, and a move along the scale of every component.",
    kernel=build_kernel,
)
