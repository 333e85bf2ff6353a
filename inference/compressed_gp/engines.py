"""The engines ``gradient``, ``s_opt`` and ``b_opt`` of compressed_gp: three searches of one objective.

Each finds the mode of the kernel parameters of every target, log likelihood plus the log prior
(`labelzoo.inference.compressed_gp.hyperparameters`); the functions themselves are integrated out.

Shi and Yu, ICML 2019, sections 3.3 and 3.4.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

from labelzoo.arguments import whole_number
from labelzoo.inference.compressed_gp.hyperparameters import Fit, gradient
from labelzoo.inference.compressed_gp.kernel14 import Caches
from labelzoo.inference.compressed_gp.simplex import BUDGET, s_opt
from labelzoo.inference.compressed_gp.surrogate import LEVELS, SHARE, b_opt
from labelzoo.inference.engine import Engine, EngineResult
from labelzoo.models.compressed_gp import SITES
from labelzoo.models.spec import ModelSpec

Array = Any

TARGETS_AT_ONCE = 4
"""Between two steps of the progress bar."""
NO_TARGET = (
    "no target: the compressed labels are alike, or the compression takes them for noise, as bpca does with "
    "a single measurement (compression='none' keeps whatever varies)"
)


def draw_of(theta: Array) -> dict[str, Array]:
    """Return the sites of one point (target, 5), as chain and draw of one."""
    return {name: np.log(theta[:, i])[None, None] for i, name in enumerate(SITES)}


def words(fit: Fit, compressed: bool, unfinished: str) -> str:
    """Say how the search ended, target by target, and whether the compression had come to rest."""
    count, left = len(fit.converged), int((~fit.converged).sum())
    said = [f"{count - left} of {count} targets converged"] if count else [NO_TARGET]
    if left:
        said[0] += f", {left} {unfinished}"
    return "; ".join([*said, *(() if compressed else ("the compression stopped before it came to rest",))])


def searched(
    search: Callable[..., Fit], targets: Array, caches: Caches, name: str, progress: bool, chosen: Any
) -> Fit:
    """Return what `search` finds, a few targets at a time, with a bar: they share no parameter."""
    parts = np.array_split(targets, max(1, -(-targets.shape[1] // TARGETS_AT_ONCE)), axis=1)
    found = []
    with Progress(console=Console(stderr=True), disable=not progress, transient=True) as bar:
        task = bar.add_task(f"{name}, targets", total=targets.shape[1])
        for part in parts:
            found.append(search(part, caches, **chosen))
            bar.update(task, advance=part.shape[1])
    return Fit(*(np.concatenate(piece) for piece in zip(*found, strict=True)))


def engine_of(
    name: str, search: Callable[..., Fit], options: dict[str, Any], unfinished: str, description: str
) -> Engine:
    """Return a point engine that runs `search` (targets, caches, **options)."""

    def run(
        spec: ModelSpec, inputs: dict[str, Any], *, rng_key: Any, progress: bool = False, **chosen: Any
    ) -> EngineResult:
        """Search the mode of every target; nothing is random."""
        begin = time.perf_counter()
        fit = searched(search, inputs["targets"], Caches(inputs["mapped"]), name, progress, chosen)
        compressed = bool(inputs["compression_converged"])
        return EngineResult(
            draws=draw_of(fit.theta),
            optimization={"objective": np.asarray([fit.objective.sum()])},
            run_seconds=time.perf_counter() - begin,
            converged=bool(fit.converged.all()) and compressed,
            message=words(fit, compressed, unfinished),
            attrs={"evaluations": int(fit.evaluations.sum()), "targets": len(fit.converged)},
        )

    return Engine(name, "point", run, random_sites=(), options=options, description=description)


def simplex(targets: Array, caches: Caches, *, max_evaluations: Any) -> Fit:
    """Return `s_opt` with so many evaluations a target, at least 6."""
    return s_opt(targets, caches, budget=whole_number("max_evaluations", max_evaluations, 6))


ENGINES = (
    engine_of(
        "gradient",
        gradient,
        {},
        "did not come to rest",
        "Mode of each target's parameters by L-BFGS-B with analytic gradients.",
    ),
    engine_of(
        "s_opt",
        simplex,
        {"max_evaluations": BUDGET},
        "ended with max_evaluations",
        "The paper's simplex search (Nelder-Mead), all targets in lock step.",
    ),
    engine_of(
        "b_opt",
        b_opt,
        {"improvement": "ei", "levels": LEVELS, "share": SHARE},
        "ended at the edge of the last grid",
        "The paper's Bayesian optimisation over a grid, here a grid that is refined.",
    ),
)
