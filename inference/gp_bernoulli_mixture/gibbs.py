"""Gibbs sampling of gp_bernoulli_mixture: z, lambda, v, omega given the gates, then gates and components.

The first four are one block, drawn by composition: lambda with v and omega summed out, v with omega summed
out, so that the order z, lambda, v, omega is part of the sampler and none of them is carried to the next
sweep. Where all gates of a row are far below 0, lambda is of the size of 1 / sum_j sigma(f_nj) and so are v
and omega: exact, but the gates of that row then move little in a sweep.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from labelzoo.inference.distributions.float_poisson import LARGE, LARGE_ERROR
from labelzoo.inference.draw_memory import MAX_BYTES, refuse_large
from labelzoo.inference.engine import Engine, EngineResult
from labelzoo.inference.gp_bernoulli_mixture.draws import by_rows
from labelzoo.inference.gp_bernoulli_mixture.judges import RANDOM_SITES, refuse_inducing
from labelzoo.inference.gp_bernoulli_mixture.updates import (
    assignment_given_gates,
    count_given_rate,
    draw_gates,
    draw_probs,
    gates_of,
    omega_given_count,
    one_hot,
    rate_given_gates,
)
from labelzoo.inference.kernel import SweepKernel
from labelzoo.inference.run_mcmc import MCMC_OPTIONS, checked_counts, run_mcmc
from labelzoo.models.gp_bernoulli_mixture import label_scores, log_gate
from labelzoo.models.spec import ModelSpec

Array = Any
Inputs = Mapping[str, Any]
Sites = dict[str, Array]

GIBBS_OPTIONS: dict[str, Any] = {**MCMC_OPTIONS, "num_samples": 1000, "thinning": 2, "max_bytes": MAX_BYTES}
KEPT = ("white", "component_probs", "component_size")


def start(key: Array, inputs: Inputs) -> tuple[Sites, tuple[()]]:
    """Draw gates from the prior, and components given the rows nearest to K random rows, by their labels."""
    rows_key, noise_key, white_key, probs_key = jax.random.split(key, 4)
    components, rows = inputs["prior_positive"].shape[0], inputs["Y"].shape[0]
    observed, Y = jnp.asarray(inputs["observed"]), jnp.asarray(inputs["Y"])
    order = jax.random.permutation(rows_key, rows)
    centers = order[jnp.arange(components) % rows]
    seeds = jnp.where(observed[centers], 0.8 * Y[centers] + 0.1, 0.5)
    noise = jax.random.gumbel(noise_key, (rows, components))
    z = jnp.argmax(label_scores(seeds, Y, observed) + noise, axis=1)
    shape = (components, inputs["factor"].shape[1])
    sites: Sites = {"white": jax.random.normal(white_key, shape, jnp.asarray(inputs["factor"]).dtype)}
    sites["component_probs"] = draw_probs(probs_key, {"assignment": z}, inputs)["component_probs"]
    sites["component_size"] = component_size(sites, inputs)
    return sites, ()


def component_size(sites: Mapping[str, Array], inputs: Inputs) -> Array:
    """Return the expected number of rows of each component given gates and probabilities: (component,)."""
    scores = label_scores(sites["component_probs"], inputs["Y"], inputs["observed"])
    return jax.nn.softmax(log_gate(gates_of(sites, inputs)) + scores, axis=1).sum(axis=0)


def sweep(key: Array, sites: Sites, adapt: Any, inputs: Inputs) -> tuple[Sites, dict[str, Array]]:
    """Draw z, lambda, v, omega in this order, then white and component_probs.

    component (obs^3 / 3 + 8 obs basis + 6 obs labels) flops, and the memory of 3 obs^2 + 8 obs component
    numbers; in the basis, 2 obs basis^2 for obs^3 / 3 and basis^2 for obs^2.
    """
    keys = jax.random.split(key, 6)
    new: Sites = dict(sites)
    new["assignment"] = assignment_given_gates(new, inputs).sample(keys[0])
    new["rate"] = rate_given_gates(new, inputs).sample(keys[1])
    new["count"] = count_given_rate(new, inputs).sample(keys[2])
    new["omega"] = omega_given_count(new, inputs).sample(keys[3])
    new = draw_gates(keys[4], new, inputs)
    new = draw_probs(keys[5], new, inputs)
    scores = label_scores(new["component_probs"], inputs["Y"], inputs["observed"])
    logits = log_gate(gates_of(new, inputs)) + scores
    new["component_size"] = jax.nn.softmax(logits, axis=1).sum(axis=0)
    stats = {
        "log_likelihood": jax.nn.logsumexp(logits, axis=1).sum(),
        "largest_count": new["count"].max(),
        "num_occupied": (one_hot(new, inputs).sum(axis=0) > 0).sum(),
    }
    return {name: new[name] for name in KEPT}, stats


def place(key: Array, sites: Sites, given: Mapping[str, Array], inputs: Inputs) -> Sites:
    """Put given values in place; the sizes of the components follow from them."""
    new = {**sites, **{name: value for name, value in given.items() if name in sites}}
    new["component_size"] = component_size(new, inputs)
    return new


def build_kernel(spec: ModelSpec) -> SweepKernel:
    """Return the sweep as a NumPyro kernel."""
    compiled = jax.jit(start)
    return SweepKernel(
        spec.views["summed"], lambda key, inputs: compiled(key, _arrays(inputs)), sweep, place=place
    )


def _arrays(inputs: Inputs) -> dict[str, Any]:
    """Return the inputs that a start reads."""
    names = ("factor", "Y", "observed", "gate_mean", "prior_positive", "prior_negative")
    return {name: inputs[name] for name in names}


def run_gibbs(
    spec: ModelSpec,
    inputs: dict[str, Any],
    *,
    rng_key: Any,
    progress: bool = False,
    max_bytes: Any = MAX_BYTES,
    **options: Any,
) -> EngineResult:
    """Draw gates and components.

    Parameters
    ----------
    max_bytes : number
        Refuse to start where draws and matrices together would take more.
    **options
        Those of `run_mcmc`.

    Raises
    ------
    ValueError
        If an option is out of range, it would take too much memory, or num_inducing is set.
    """
    refuse_inducing(inputs, "gibbs")
    ways = "fewer num_samples with a larger thinning, fewer chains or rows, or a larger max_bytes"
    refuse_large(memory_plan(inputs, options), max_bytes, switch=ways)
    if by_rows(inputs):  # once, instead of in every sweep
        inputs = {**inputs, "gram": inputs["factor"] @ inputs["factor"].T}
    result = run_mcmc(
        build_kernel(spec), inputs, rng_key=rng_key, progress=progress, stats=("stats",), **options
    )
    return result._replace(attrs={**result.attrs, **_count_note(result)})


def memory_plan(inputs: Inputs, options: Mapping[str, Any]) -> dict[str, int]:
    """Return the bytes of the kept draws and of the matrices that chains side by side hold in a sweep."""
    counts = {name: options.get(name, MCMC_OPTIONS[name]) for name in ("num_chains", "num_samples")}
    chains, draws = checked_counts(**counts).values()
    components, labels = inputs["prior_positive"].shape
    rows, basis = inputs["factor"].shape
    size = rows if by_rows(inputs) else basis
    side_by_side = chains if options.get("chain_method", "vectorized") != "sequential" else 1
    return {
        f"draws of {chains} chains x {draws}": 8 * chains * draws * components * (basis + labels + 1),
        f"matrices of {size} x {size}, {side_by_side} chains": 24 * side_by_side * size**2,
    }


def _count_note(result: EngineResult) -> dict[str, Any]:
    """Return the largest count met in the kept sweeps and how it was drawn."""
    largest = float(np.max(result.sample_stats["largest_count"]))
    words = "counts drawn by rejection"
    if largest > LARGE[64]:
        words = (
            f"counts of rates above {LARGE[64]:.0e} are rounded Cornish-Fisher quantiles: error of their "
            f"distribution function below {LARGE_ERROR / LARGE[64]:.1e}"
        )
    return {"largest_count": largest, "counts": words}


engine = Engine(
    "gibbs",
    "mcmc",
    run_gibbs,
    random_sites=RANDOM_SITES,
    options=GIBBS_OPTIONS,
    conditionals=(
        "assignment_given_gates",
        "rate_given_gates",
        "count_given_rate",
        "omega_given_count",
        "white_given_omega",
        "probs_given_assignment",
    ),
    description="Polya-Gamma Gibbs in two blocks, exact: assignments and auxiliaries, gates and components.",
    kernel=build_kernel,
)
