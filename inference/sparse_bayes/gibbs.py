"""Gibbs sampling of the unobserved labels and their precisions.

``joint``: all cells given the precisions at once, with the compressed labels and the weights integrated out,
then the precisions. ``rows``: compressed labels and weights explicit, the labels row by row; cheap sweeps
that mix the slower the smaller the noise is beside the kernel.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from labelzoo.inference.draw_memory import MAX_BYTES, refuse_many_draws
from labelzoo.inference.engine import Engine, EngineResult
from labelzoo.inference.gamma_draws import blocked_gamma
from labelzoo.inference.kernel import SweepKernel
from labelzoo.inference.run_mcmc import MCMC_OPTIONS, checked_counts, run_mcmc
from labelzoo.inference.sparse_bayes.updates import (
    compressed_given_rest,
    labels_given_compressed,
    labels_given_precision,
    precision_given_labels,
    weights_given_compressed,
    weights_root,
)
from labelzoo.models.sparse_bayes import filled
from labelzoo.models.spec import ModelSpec

Array = Any
Inputs = Mapping[str, Any]
Sites = dict[str, Array]

BLOCKS = ("auto", "joint", "rows")
MAX_JOINT = 400
"""Rows x measurements up to which "auto" draws all cells jointly: a sweep costs its third power, 60 ms at
1422 on one core, where one by rows takes a tenth and 11 of them an effective draw."""
GIBBS_OPTIONS: dict[str, Any] = {
    **MCMC_OPTIONS, "num_samples": 1000, "thinning": 2, "block": "auto", "max_bytes": MAX_BYTES,
}  # fmt: skip
KEPT = ("y_unobserved", "precision")


def is_joint(inputs: Inputs, block: str) -> bool:
    """Return whether all cells are drawn jointly."""
    size = inputs["Y"].shape[0] * inputs["projection"].shape[0]
    return block == "joint" or (block == "auto" and size <= MAX_JOINT)


def start(key: Array, inputs: Inputs, block: str) -> tuple[Sites, tuple[()]]:
    """Draw labels from N(0, 1) and precisions given them; compressed labels and weights at their means."""
    label_key, precision_key = jax.random.split(key)
    y = jax.random.normal(label_key, inputs["cell_row"].shape)
    sites: Sites = {"y_unobserved": y}
    sites["precision"] = draw_precision(precision_key, sites, inputs)
    if not is_joint(inputs, block):
        Y = filled(inputs["Y"], inputs["cell_row"], inputs["cell_label"], y)
        sites["compressed"] = Y @ inputs["projection"].T
        sites["weights"] = weights_given_compressed(sites, inputs).mean
    return sites, ()


def unfolded(inputs: Inputs) -> dict[str, Any]:
    """Return the inputs so that XLA does not take products of them for constants, a slow way."""
    tables = {name: value for name, value in inputs.items() if np.ndim(value) == 2}
    return {**inputs, **dict(zip(tables, jax.lax.optimization_barrier(tuple(tables.values())), strict=True))}


def draw_precision(key: Array, sites: Sites, inputs: Inputs) -> Array:
    """Draw `precision_given_labels` in blocks, which takes a tenth of the time of NumPyro's own draw."""
    law = precision_given_labels(sites, inputs)
    return jnp.maximum(blocked_gamma(key, law.concentration) / law.rate, 1e-200)


def sweep(key: Array, sites: Sites, adapt: Any, inputs: Inputs, block: str) -> tuple[Sites, dict[str, Array]]:
    """Draw labels, then precisions; by rows, compressed labels and weights after them."""
    label_key, precision_key, compressed_key, weight_key = jax.random.split(key, 4)
    joint, inputs = is_joint(inputs, block), unfolded(inputs)
    law: Callable[..., Any] = labels_given_precision if joint else labels_given_compressed
    new = {**sites, "y_unobserved": law(sites, inputs).sample(label_key)}
    new["precision"] = draw_precision(precision_key, new, inputs)
    if not joint:
        new["compressed"] = compressed_given_rest(new, inputs).sample(compressed_key)
        new["weights"] = weights_given_compressed(new, inputs).sample(weight_key)
    return new, {"log_prior": log_prior(new["y_unobserved"], inputs)}


def log_prior(y: Array, inputs: Inputs) -> Array:
    """Return the log density of the labels' Student t law up to a constant, nats."""
    exponent = inputs["precision_shape"] + 0.5
    return -exponent * jnp.log1p(0.5 * y**2 / inputs["precision_rate"]).sum()


def place(key: Array, sites: Sites, given: Mapping[str, Array], inputs: Inputs, block: str) -> Sites:
    """Put given values in place; what the sweep by rows carries beside them is drawn to fit."""
    new = {**sites, **{name: value for name, value in given.items() if name in sites}}
    if "compressed" in new and "compressed" not in given:
        compressed_key, weight_key = jax.random.split(key)
        Y = filled(inputs["Y"], inputs["cell_row"], inputs["cell_label"], new["y_unobserved"])
        T = Y @ inputs["projection"].T
        noise = {name: value for name, value in inputs.items() if name != "weights_root"}
        noise["sigma2"] = inputs["sigma2"] + inputs["chi2"]
        new["weights"] = weights_given_compressed({"compressed": T}, noise).sample(weight_key)
        new["compressed"] = compressed_given_rest(new, inputs).sample(compressed_key)
    return new


def build_kernel(spec: ModelSpec, block: str = "auto") -> SweepKernel:
    """Return the sweep as a NumPyro kernel; compressed labels and weights are not kept."""
    compiled = jax.jit(partial(start, block=block))  # step by step it would compile tens of pieces
    return SweepKernel(
        spec.views["summed"],
        lambda key, inputs: compiled(key, dict(inputs)),
        partial(sweep, block=block),
        outputs=lambda sites, inputs: {name: sites[name] for name in KEPT},
        place=partial(place, block=block),
    )


def run_gibbs(
    spec: ModelSpec,
    inputs: dict[str, Any],
    *,
    rng_key: Any,
    progress: bool = False,
    block: Any = "auto",
    max_bytes: Any = MAX_BYTES,
    **options: Any,
) -> EngineResult:
    """Draw the unobserved labels and their precisions.

    Parameters
    ----------
    block : {"auto", "joint", "rows"}
        auto: joint where rows x measurements is at most `MAX_JOINT`.
    max_bytes : number
        Refuse to start where all draws would take more.
    **options
        Those of `run_mcmc`.

    Raises
    ------
    ValueError
        If an option is out of range or the draws would take too much memory.
    """
    if not isinstance(block, str) or block not in BLOCKS:
        raise ValueError(f"block must be one of {', '.join(BLOCKS)}, got {block!r}")
    shapes = dict.fromkeys(KEPT, inputs["cell_row"].shape)
    ways = "fewer num_samples with a larger thinning, a smaller graph or a larger max_bytes"
    refuse_many_draws(shapes, options, max_bytes, switch=ways)
    if not inputs["cell_row"].shape[0]:
        return no_cells(options)
    chosen = "joint" if is_joint(inputs, block) else "rows"
    kernel = build_kernel(spec, chosen)
    if chosen == "rows":  # once, instead of in every sweep
        inputs = {**inputs, "weights_root": weights_root(jnp.asarray(inputs["factor"]), inputs["sigma2"])}
    result = run_mcmc(kernel, inputs, rng_key=rng_key, progress=progress, stats=("stats",), **options)
    return result._replace(attrs={**result.attrs, "block": chosen})


NO_CELLS = (
    "every label of the graph is observed: there is nothing to draw, and new rows are predicted from it"
)


def no_cells(options: Mapping[str, Any]) -> EngineResult:
    """Return a posterior over no cell, of as many empty draws as were asked for."""
    begin = time.perf_counter()
    counts = {name: options.get(name, MCMC_OPTIONS[name]) for name in ("num_chains", "num_samples")}
    chains, samples = checked_counts(**counts).values()
    draws = {name: np.zeros((chains, samples, 0)) for name in KEPT}
    return EngineResult(draws, run_seconds=time.perf_counter() - begin, converged=True, message=NO_CELLS)


engine = Engine(
    "gibbs",
    "mcmc",
    run_gibbs,
    random_sites=KEPT,
    options=GIBBS_OPTIONS,
    conditionals=(
        "labels_given_precision",
        "precision_given_labels",
        "labels_given_compressed",
        "compressed_given_rest",
        "weights_given_compressed",
    ),
    description="Gibbs on labels and precisions, exact: jointly, or by rows with Z and W explicit.",
    kernel=build_kernel,
)
