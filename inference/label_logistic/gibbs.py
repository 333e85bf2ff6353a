"""Gibbs sampling of label_logistic: omega given weights, then weights given omega."""

from collections.abc import Mapping
from typing import Any

import jax

from labelzoo.inference.engine import Engine, EngineResult
from labelzoo.inference.kernel import SweepKernel
from labelzoo.inference.label_logistic.memory import refuse_large_precisions
from labelzoo.inference.label_logistic.updates import omega_given_weights, weights_given_omega
from labelzoo.inference.run_mcmc import MCMC_OPTIONS, run_mcmc
from labelzoo.models.label_logistic import log_likelihood
from labelzoo.models.spec import ModelSpec

Array = Any


def start(key: Array, inputs: Mapping[str, Any]) -> tuple[dict[str, Array], tuple[()]]:
    """Draw weights from N(0, 1) cut by their prior, so that chains start apart but not absurdly far."""
    shape = (inputs["Y"].shape[1], inputs["X"].shape[1])
    scale = jax.numpy.minimum(inputs["precision"] ** -0.5, 1.0)
    return {"weights": scale * jax.random.normal(key, shape, inputs["X"].dtype)}, ()


def sweep(
    key: Array, sites: dict[str, Array], adapt: Any, inputs: Mapping[str, Any]
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Draw omega, then weights; omega (obs, labels) is not kept, since the next sweep draws it anew."""
    omega_key, weights_key = jax.random.split(key)
    omega = omega_given_weights(sites, inputs).sample(omega_key)
    weights = weights_given_omega({"omega": omega}, inputs).sample(weights_key)
    return {"weights": weights}, {"log_likelihood": log_likelihood(weights, inputs)}


def build_kernel(spec: ModelSpec) -> SweepKernel:
    """Return the sweep as a NumPyro kernel."""
    return SweepKernel(spec.views["summed"], start, sweep)


def run_gibbs(
    spec: ModelSpec, inputs: Mapping[str, Any], *, rng_key: Any, progress: bool = False, **options: Any
) -> EngineResult:
    """Draw weights by Polya-Gamma Gibbs; `options` are those of `run_mcmc`."""
    chains, samples = (options.get(name, MCMC_OPTIONS[name]) for name in ("num_chains", "num_samples"))
    counts = [value if isinstance(value, int) else 1 for value in (chains, samples)]
    refuse_large_precisions(inputs, "gibbs", max(counts[0], 1) * max(counts[1], 1))
    return run_mcmc(
        build_kernel(spec), dict(inputs), rng_key=rng_key, progress=progress, stats=("stats",), **options
    )


engine = Engine(
    "gibbs",
    "mcmc",
    run_gibbs,
    random_sites=("weights",),
    options=MCMC_OPTIONS,
    conditionals=("omega_given_weights", "weights_given_omega"),
    description="Polya-Gamma Gibbs: exact, no tuning; the weights of a label are one normal block.",
    kernel=build_kernel,
)
