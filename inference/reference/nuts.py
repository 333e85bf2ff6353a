"""NUTS on the summed view."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpyro.infer import NUTS, init_to_feasible, init_to_median, init_to_sample, init_to_uniform

from labelzoo.inference.draw_memory import MAX_BYTES, refuse_many_draws
from labelzoo.inference.engine import EngineResult
from labelzoo.inference.reference.sites import find_sites, kept_sites, random_sites
from labelzoo.inference.run_mcmc import MCMC_OPTIONS, run_mcmc
from labelzoo.models.spec import ModelSpec

NUTS_OPTIONS: dict[str, Any] = {
    **MCMC_OPTIONS,
    "target_accept_prob": 0.8,
    "max_tree_depth": 10,
    "dense_mass": False,
    "init": "uniform",
    "max_bytes": MAX_BYTES,
}
"""Options of ``nuts``; `init` is one of `INIT_STRATEGIES`; `max_bytes`: refuse to start where the draws would
take more."""

INIT_STRATEGIES = {
    "uniform": init_to_uniform,
    "median": init_to_median,
    "sample": init_to_sample,
    "feasible": init_to_feasible,
}
"""Where chains and guides start, on the unconstrained scale: uniform in (-2, 2), prior medians, a draw, 0."""

# NumPyro's state field -> the name that ArviZ knows.
FIELDS = {
    "diverging": "diverging",
    "energy": "energy",
    "num_steps": "n_steps",
    "accept_prob": "acceptance_rate",
    "potential_energy": "lp",
    "adapt_state.step_size": "step_size",
}


def init_strategy(name: Any) -> Any:
    """Return NumPyro's strategy of that name.

    Raises
    ------
    ValueError
        If there is none, with those that exist.
    """
    if name not in INIT_STRATEGIES:
        raise ValueError(f"init must be one of {', '.join(INIT_STRATEGIES)}, got {name!r}")
    return INIT_STRATEGIES[name]


def build_kernel(spec: ModelSpec, **options: Any) -> NUTS:
    """Return NumPyro's kernel on the summed view; `options` are those of ``numpyro.infer.NUTS``."""
    return NUTS(spec.views["summed"], **options)


def run_nuts(
    spec: ModelSpec,
    inputs: Mapping[str, Any],
    *,
    rng_key: Any,
    progress: bool = False,
    target_accept_prob: Any = 0.8,
    max_tree_depth: Any = 10,
    dense_mass: Any = False,
    init: Any = "uniform",
    max_bytes: Any = MAX_BYTES,
    **options: Any,
) -> EngineResult:
    """Draw from the posterior of the summed view by NUTS (Hoffman and Gelman, JMLR 15, 2014).

    Parameters
    ----------
    target_accept_prob, max_tree_depth, dense_mass
        As in ``numpyro.infer.NUTS``.
    init : str
        Where chains start.
    max_bytes : number
        Refuse to start where all sites of all draws would take more.
    **options
        Those of `run_mcmc`.

    Raises
    ------
    ValueError
        If an option is out of range or the view has a discrete site.
    """
    if not 0 < target_accept_prob < 1:
        raise ValueError(f"target_accept_prob must be between 0 and 1, got {target_accept_prob!r}")
    if not isinstance(max_tree_depth, int | np.integer) or max_tree_depth < 1:
        raise ValueError(f"max_tree_depth must be a positive integer, got {max_tree_depth!r}")
    sites = find_sites(spec, inputs)
    kept = kept_sites(spec, sites)
    ways = "fewer num_samples with a larger thinning, a smaller model or a larger max_bytes"
    refuse_many_draws(sites.shapes, options, max_bytes, switch=ways)
    kernel = build_kernel(
        spec,
        target_accept_prob=float(target_accept_prob),
        max_tree_depth=int(max_tree_depth),
        dense_mass=bool(dense_mass),
        init_strategy=init_strategy(init),
    )
    result = run_mcmc(
        kernel,
        dict(inputs),
        rng_key=rng_key,
        progress=progress,
        stats=tuple(FIELDS),
        rename=FIELDS,
        **options,
    )
    draws = {name: result.draws[name] for name in kept}
    stats = _arviz_stats(result.sample_stats)
    return result._replace(
        draws=draws,
        sample_stats=stats,
        message="; ".join(filter(None, (result.message, _message(stats, int(max_tree_depth))))),
        attrs={**result.attrs, "random_sites": random_sites(draws)},
    )


def _arviz_stats(stats: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Turn the potential into a log density; add the depth of trees, 2^(depth-1) <= steps < 2^depth."""
    depth = np.floor(np.log2(np.maximum(stats["n_steps"], 1))).astype(np.int64) + 1
    return {**stats, "lp": -stats["lp"], "tree_depth": depth}


def _message(stats: Mapping[str, np.ndarray], max_tree_depth: int) -> str:
    divergent, draws = int(stats["diverging"].sum()), stats["diverging"].size
    saturated = int((stats["n_steps"] >= 2**max_tree_depth - 1).sum())
    return f"{divergent} of {draws} draws diverged, {saturated} reached the largest tree"
