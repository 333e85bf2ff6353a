"""The engines ``bregman`` and ``dual`` of kernel_neighbors: two ways to the same mode.

Each solves the problems of `labelzoo.models.kernel_neighbors_card` one after the other and keeps
``coefficients``, K0^-1 K^l v_l; ``engine_state`` keeps the multipliers and the weights w_l, from which the
class kernels follow (`labelzoo.inference.kernel_neighbors.answers`).

Jain and Kapoor, CVPR 2009, algorithm 1.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

from labelzoo.inference.engine import Engine, EngineResult
from labelzoo.inference.kernel_neighbors import bregman as cyclic
from labelzoo.inference.kernel_neighbors import dual as together
from labelzoo.inference.kernel_neighbors.multipliers import Fit
from labelzoo.inference.kernel_neighbors.problem import Problem, of_checked
from labelzoo.models.spec import ModelSpec

Array = Any
Inputs = Mapping[str, Any]
StartOf = Callable[[Inputs, int, Problem], Array]

TOLERANCE = 1e-9
"""Of the duality gap over 1 + dual."""
MAX_SWEEPS = 5000


def problems_of(inputs: Inputs) -> list[Problem]:
    """Return the problem of each row of ``codes``, on one K0."""
    K0, codes = np.asarray(inputs["K0"]), np.asarray(inputs["codes"])
    return [
        of_checked(
            K0,
            one,
            float(inputs["alpha"]),
            float(inputs["beta"]),
            float(inputs["price"]),
            bool(inputs["positive_total"]),
        )
        for one in codes
    ]


def coefficients_of(fit: Fit) -> Array:
    """Return K0^-1 K^l v_l = ((1 + b) v - a w) / D of every class: (class, row)."""
    p = fit.problem
    v = np.zeros((len(p.classes), len(p.y)))
    v[p.y, np.arange(len(p.y))] = 1.0 / p.counts[p.y]
    return ((1.0 + fit.b)[:, None] * v - p.a[:, None] * fit.W.T) / fit.D[:, None]


def solved(
    inputs: Inputs,
    solve: Callable[..., Fit],
    name: str,
    progress: bool,
    options: Mapping[str, Any],
    start_of: StartOf | None = None,
) -> list[Fit]:
    """Return the fits of all problems, with a bar: they share nothing but K0."""
    problems = problems_of(inputs)
    found = []
    with Progress(console=Console(stderr=True), disable=not progress, transient=True) as bar:
        task = bar.add_task(f"{name}, problems", total=len(problems))
        for index, one in enumerate(problems):
            start = {} if start_of is None else {"start": start_of(inputs, index, one)}
            found.append(solve(one, **start, **options))
            bar.update(task, advance=1)
    return found


def _words(fits: list[Fit]) -> str:
    """Say how it ended, in one sentence, with what a user should know of the training rows."""
    if not fits:
        return "no problem: every label is the same in all training rows"
    left = [fit for fit in fits if not fit.converged]
    said = fits[0].message
    if len(fits) > 1:
        gap, violation = (max(getattr(fit, what) for fit in fits) for what in ("gap", "violation"))
        said = f"{len(fits) - len(left)} of {len(fits)} labels converged: gaps up to {gap:.1e}, violations"
        said += f" up to {violation:.1e}" + (f"; the first other: {left[0].message}" if left else "")
    low = sum(fit.nonpositive for fit in fits)
    return said + (f"; {low} training rows have no positive total similarity" if low else "")


def _stacked(fits: list[Fit], inputs: Inputs) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the draw, and what is kept beside it."""
    if not fits:
        none = np.zeros((0, len(inputs["K0"])))
        return {"coefficients": none[None, None]}, {"multipliers": none[..., None], "weights": none}
    coefficients = np.concatenate([coefficients_of(fit) for fit in fits])
    weights = np.concatenate([fit.W.T for fit in fits])
    multipliers = np.stack([fit.lam for fit in fits])
    return {"coefficients": coefficients[None, None]}, {"multipliers": multipliers, "weights": weights}


def engine_of(
    name: str,
    solve: Callable[..., Fit],
    options: dict[str, Any],
    description: str,
    start_of: StartOf | None = None,
) -> Engine:
    """Return a point engine that runs `solve` on each problem, from where `start_of` says if it is given."""

    def run(
        spec: ModelSpec, inputs: dict[str, Any], *, rng_key: Any, progress: bool = False, **chosen: Any
    ) -> EngineResult:
        """Find the mode of every problem; nothing is random."""
        begin = time.perf_counter()
        fits = solved(inputs, solve, name, progress, chosen, start_of)
        draws, state = _stacked(fits, inputs)
        return EngineResult(
            draws=draws,
            optimization={"objective": np.asarray([-0.5 * sum(fit.dual for fit in fits)], float)},
            run_seconds=time.perf_counter() - begin,
            converged=all(fit.converged for fit in fits),
            message=_words(fits),
            attrs={
                "duality_gap": max((fit.gap for fit in fits), default=0.0),
                "violation": max((fit.violation for fit in fits), default=0.0),
                "projections": sum(fit.projections for fit in fits),
                "newton_steps": sum(fit.steps for fit in fits),
                "nonpositive_totals": sum(fit.nonpositive for fit in fits),
            },
            state=state,
        )

    return Engine(name, "point", run, random_sites=(), options=options, description=description)


ENGINES = (
    engine_of(
        "bregman",
        cyclic.bregman,
        {"tolerance": TOLERANCE, "max_sweeps": MAX_SWEEPS, "polish": True},
        "The paper's cyclic projections, corrected, with Newton steps where they are slow; any size.",
    ),
    engine_of(
        "dual",
        together.dual,
        {"tolerance": TOLERANCE, "max_steps": together.MAX_STEPS},
        "All multipliers at once by an interior point method: exact, for some thousand multipliers.",
    ),
)
