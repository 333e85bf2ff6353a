"""Where both engines must come to rest: the Lagrangian of the program, by autodiff.

Minus twice the log density of the kernels, with the multipliers on the constraints, is

    sum_l Dld(K^l | K0) + sum lam g,   0 <= lam <= price,

stationary in the kernels at the mode, and there lam = clip(lam + g, 0, price): g = 0 inside the bounds, g of
the right sign at them. That residual is the gradient in a leaf ``shift``, which is 0 and multiplies it.
The kernels are formed from the multipliers that an engine returns, their divergence and the constraints are
the program's own.
"""

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.handlers as handlers

from labelzoo.inference.checks.stationarity import StationarityCase
from labelzoo.inference.kernel_neighbors.block import Side, Step, project
from labelzoo.inference.kernel_neighbors.bregman import bregman
from labelzoo.inference.kernel_neighbors.dual import dual
from labelzoo.inference.kernel_neighbors.engines import problems_of
from labelzoo.inference.kernel_neighbors.multipliers import Fit
from labelzoo.inference.kernel_neighbors.problem import Problem
from labelzoo.models.kernel_neighbors import class_means, of_problems, violations, wishart

Array = Any
Inputs = Mapping[str, Any]
Change = Callable[[Array, Array], tuple[Array, Array]]
Pose = Callable[[Problem], Problem]

TOLERANCE = 1e-12
MAX_SWEEPS = 20000


def objective(params: Mapping[str, Array], inputs: Inputs) -> Array:
    """Return log density of the kernels less half of sum lam g, nats; nothing is taken from the engines.

    To it is added the sum of shift (lam - clip(lam + g, 0, price)).

    Constant where no label makes a problem.

    Parameters
    ----------
    params : mapping
        ``factor`` (class, graph, graph), K = R factor factor' R' with R the Cholesky factor of K0, so that
        rows that are alike do no harm; ``lam`` and ``shift`` (problem, graph, column).
    """
    factor, lam = params["factor"], jax.lax.stop_gradient(params["lam"])
    if not len(factor):
        return (factor**2).sum() + (params["shift"] ** 2).sum()
    whole = jnp.linalg.cholesky(jnp.asarray(inputs["K0"])) @ factor
    kernels = whole @ whole.mT
    free = {**inputs, "price": 0.0}
    seeded = handlers.seed(wishart, jax.random.key(0))
    trace = handlers.trace(handlers.substitute(seeded, {"kernels": kernels})).get_trace(**free)
    site = trace["kernels"]
    codes = jnp.asarray(inputs["codes"])
    means = class_means(codes, inputs["num_classes"])
    s = of_problems(jnp.einsum("lij,lj->li", kernels, means), codes)
    g = violations(s, codes, inputs["alpha"], inputs["beta"], inputs["positive_total"])
    residual = lam - jnp.clip(lam + g, 0.0, float(inputs["price"]))
    density = site["fn"].log_prob(kernels).sum() - 0.5 * (lam * g).sum()
    return density + (params["shift"] * residual).sum()


def whitened(K0: Array, V: Array, W: Array) -> Array:
    """Return (I + R'w v'R + R'v w'R)^-1 of every class, R R' = K0: (class, row, row)."""
    root = np.linalg.cholesky(K0)
    cross = np.einsum("li,lj->lij", W @ root, V @ root)
    return np.linalg.inv(np.eye(len(K0)) + cross + np.swapaxes(cross, 1, 2))


def as_they_are(problem: Problem) -> Problem:
    """Return the problem."""
    return problem


def fixed_point(
    inputs: Inputs, solve: Callable[..., Fit], change: Change = lambda V, W: (V, W), pose: Pose = as_they_are
) -> dict[str, Array]:
    """Return the kernels and multipliers that a solver ends with; changed ones, or of another problem.

    What is no positive definite kernel gets a factor of NaN, which no gradient survives.
    """
    factors, multipliers = [], []
    for problem in problems_of(inputs):
        posed = pose(problem)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of totals, which a wrong problem may well have
            fit = solve(posed)
        V = np.asarray(class_means(problem.y[None], len(problem.classes), np))
        V = V * (posed.a / problem.a)[:, None] ** 0.5
        factors.append(jnp.linalg.cholesky(whitened(problem.K0, *change(V, fit.W.T))))
        multipliers.append(fit.lam)
    if not factors:
        n = len(inputs["K0"])
        return {"factor": jnp.zeros((0, n, n)), **dict.fromkeys(("lam", "shift"), jnp.zeros((0, n, 2)))}
    lam = jnp.asarray(np.stack(multipliers))
    return {"factor": jnp.concatenate(factors), "lam": lam, "shift": jnp.zeros_like(lam)}


def _plain_indicator(problem: Problem) -> Problem:
    """v as in our copy of the paper: 1 for the rows of the class, not 1 / n_l."""
    n = problem.counts
    return problem._replace(kv=problem.kv * n, a=problem.a * n**2, spread=problem.spread * n**2)


def _exchanged(problem: Problem) -> Problem:
    return problem._replace(alpha=problem.beta, beta=problem.alpha)


def _cheaper(problem: Problem) -> Problem:
    """Multipliers up to a thousandth at most."""
    return problem._replace(upper=min(0.5 * problem.upper, 1e-3))


def _unmoved(problem: Problem) -> Problem:
    """No multiplier worth the name: a solver that does not begin."""
    return problem._replace(upper=1e-12)


def _total_forgotten(V: Array, W: Array) -> tuple[Array, Array]:
    """The weight that all classes of a row share left out."""
    return V, W - W.mean(axis=0)


FORMED_WRONGLY: tuple[tuple[str, Change], ...] = (
    ("half of the multipliers' weight forgotten", lambda V, W: (V, 0.5 * W)),
    ("weights of the neighbouring row", lambda V, W: (V, np.roll(W, 1, axis=1))),
    ("the prior returned", lambda V, W: (V, 0.0 * W)),
    ("what a row's classes share forgotten", _total_forgotten),
)
POSED_WRONGLY: tuple[tuple[str, Pose], ...] = (
    ("v is 1 for the rows of a class, not 1 / n_l (as printed)", _plain_indicator),
    ("alpha and beta exchanged", _exchanged),
    ("another price", _cheaper),
    ("nothing learned", _unmoved),
)


def never_given_back(s: Array, rho: Array, lam: Array, side: Side, upper: float) -> Step:
    """Project without the correction term: a multiplier that was given stays."""
    return project(s, rho, np.zeros_like(lam), side, upper)


def of_other_shares(s: Array, rho: Array, lam: Array, side: Side, upper: float) -> Step:
    """Project as if the shares asked for were a tenth away."""
    return project(s, rho, lam, side._replace(own=1.1 * side.own, ratio=side.ratio / 1.1), upper)


SOLVERS: dict[str, Callable[..., Fit]] = {
    "bregman": partial(bregman, tolerance=TOLERANCE, max_sweeps=MAX_SWEEPS),
    "dual": partial(dual, tolerance=TOLERANCE),
}
ALONE = partial(bregman, tolerance=TOLERANCE, max_sweeps=MAX_SWEEPS, polish=False)
"""The paper's projections, which Newton steps would put right if they were wrong."""

PROJECTED_WRONGLY: tuple[tuple[str, Any], ...] = (
    ("no correction term: what was given is never given back", never_given_back),
    ("projections for shares a tenth away", of_other_shares),
)

CASES = (
    StationarityCase(
        name="log density under the constraints, by projections alone",
        engine="bregman",
        fixed_point=partial(fixed_point, solve=ALONE),
        objective=objective,
        mutants=tuple(
            (words, partial(fixed_point, solve=partial(ALONE, projection=wrong, max_sweeps=200)))
            for words, wrong in PROJECTED_WRONGLY
        ),
    ),
    *(
        StationarityCase(
            name="log density of the class kernels under the constraints",
            engine=name,
            fixed_point=partial(fixed_point, solve=solve),
            objective=objective,
            mutants=(
                *(
                    (words, partial(fixed_point, solve=solve, change=wrong))
                    for words, wrong in FORMED_WRONGLY
                ),
                *((words, partial(fixed_point, solve=solve, pose=wrong)) for words, wrong in POSED_WRONGLY),
            ),
        )
        for name, solve in SOLVERS.items()
    ),
)
