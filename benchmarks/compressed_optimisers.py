"""Optimisers of theta beside each other, on canonical targets of published data.

All start at log theta = 0 and maximise the same objective, likelihood and weak prior. `paper_ascent` is the
gradient ascent that the paper compares with, as its text has it: kernel and its derivatives are made from the
features at every evaluation (O(m^2 features), products of matrices), and the gradient takes an inverse for
each parameter. The ascent is tuned in its favour: steps along the gradient with backtracking to a sufficient
gain (Armijo, 1e-4), begun at twice the step that was taken last, values alone while stepping back; it ends
where ten steps together gain less than a tolerance, or after `MOST` steps. `ascent, loose` is the same with
ten times the tolerance; both end further from the optimum than the simplex.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from compressed_data import prepared

from labelzoo.data import LabelData
from labelzoo.inference.compressed_gp.compression import compress
from labelzoo.inference.compressed_gp.gradient_jax import gradient_jax
from labelzoo.inference.compressed_gp.hyperparameters import HIGH, LOW, PRIOR_SD, Fit, gradient
from labelzoo.inference.compressed_gp.kernel14 import Caches
from labelzoo.inference.compressed_gp.simplex import s_opt
from labelzoo.inference.compressed_gp.surrogate import b_opt
from labelzoo.models.bpca_card import spec

Array = Any

SOURCES = (("corel5k", 0), ("emotions", 0), ("bibtex", 0), ("corel5k", 1), ("bibtex", 1), ("corel5k", 2))
"""Data sets and seeds of the rows; of each in turn the targets of largest weight, `EACH` at most."""
EACH, TARGETS = 6, 20
TOLERANCE = 1e-3
"""Nats that ten steps of `paper_ascent` gain, below which it ends."""
WINDOW = 10
MOST = 300
ARMIJO = 1e-4


class Problem(NamedTuple):
    """Targets (row, target) of one data set with their tables."""

    name: str
    targets: Array
    caches: Caches


def problems(rows: int, sources: Any = SOURCES, targets: int = TARGETS) -> list[Problem]:
    """Return targets of `rows` random rows of each data set, so many in all."""
    found: list[Problem] = []
    for name, seed in sources:
        left = targets - sum(problem.targets.shape[1] for problem in found)
        if not left:
            break
        data = prepared(name, seed)
        at = np.concatenate([data.start, data.pool, data.test])[:rows]
        labels = LabelData(np.zeros((len(at), 1)), data.Y[at])
        U = compress(spec.prepare(labels, spec.resolve({}))).canonical.targets
        found.append(Problem(name, U[:, : min(left, EACH)], Caches(data.X[at])))
    return found


def _kernels(x: Array, X: Array) -> tuple[Array, Array, Array]:
    """Return C, the exponential part and the inner products, from the features."""
    th0, th1, th2, th3, noise = np.exp(x)
    products = X @ X.T
    norms = products.diagonal()
    distances2 = np.maximum(norms[:, None] + norms - 2.0 * products, 0.0)
    E = np.exp(-0.5 * th1 * distances2)
    return th0 * E + th2 * products + th3 + noise * np.eye(len(X)), E, products


def value_from_features(x: Array, u: Array, X: Array) -> float:
    """Return the objective, -inf where C has no factor or x is out of bounds."""
    if ((x < LOW) | (x > HIGH)).any():
        return -np.inf
    try:
        lower = np.linalg.cholesky(_kernels(x, X)[0])
    except np.linalg.LinAlgError:
        return -np.inf
    half = np.linalg.solve(lower, u)
    prior = -0.5 * ((x / PRIOR_SD) ** 2).sum()
    return float(
        prior - 0.5 * half @ half - np.log(lower.diagonal()).sum() - 0.5 * len(u) * np.log(2 * np.pi)
    )


def slope_from_features(x: Array, u: Array, X: Array) -> Array:
    """Return the gradient by log theta, C^-1 computed for each parameter."""
    th0, th1, th2, th3, noise = np.exp(x)
    C, E, products = _kernels(x, X)
    log_E = np.log(np.maximum(E, 1e-300))
    ones, eye = np.ones_like(C), np.eye(len(C))
    slopes = []
    for dC in (th0 * E, th0 * E * log_E, th2 * products, th3 * ones, noise * eye):
        inverse = np.linalg.inv(C)
        a = inverse @ u
        slopes.append(0.5 * (a @ dC @ a - (inverse * dC).sum()))
    return np.array(slopes) - x / PRIOR_SD**2


def ascend(u: Array, X: Array, start: Array, tolerance: float) -> tuple[Array, float, int, bool]:
    """Return log theta, the objective, evaluations and whether the ascent ended before `MOST` steps."""
    x, value, size, count = start.copy(), value_from_features(start, u, X), 0.1, 1
    trace = [value]
    for _ in range(MOST):
        slope = slope_from_features(x, u, X)
        count += 1
        size = 2.0 * size
        while True:
            new = np.clip(x + size * slope, LOW, HIGH)
            found = value_from_features(new, u, X)
            count += 1
            if found >= value + ARMIJO * slope @ (new - x):
                break
            size *= 0.5
            if size < 1e-12:
                return x, value, count, True
        x, value = new, found
        trace.append(value)
        if len(trace) > WINDOW and value - trace[-1 - WINDOW] < tolerance:
            return x, value, count, True
    return x, value, count, False


def paper_ascent(targets: Any, caches: Caches, *, theta: Any = None, tolerance: float = TOLERANCE) -> Fit:
    """Maximise as the paper's gradient ascent does, target by target."""
    start = np.zeros((targets.shape[1], 5)) if theta is None else np.log(theta)
    X = np.array(caches.X)
    found = [ascend(targets[:, g], X, x, tolerance) for g, x in enumerate(start)]
    x, values, counts, ended = (np.array(part) for part in zip(*found, strict=True))
    return Fit(np.exp(x), values, counts, ended)


OPTIMISERS: dict[str, Callable[..., Fit]] = {
    "paper_ascent": paper_ascent,
    "ascent, loose": partial(paper_ascent, tolerance=10 * TOLERANCE),
    "gradient": gradient,
    "gradient_jax": gradient_jax,
    "s_opt": s_opt,
    "b_opt": b_opt,
    "b_opt ei95": partial(b_opt, improvement="ei95"),
}


def best_known(problem: Problem, starts: int = 4, seed: int = 0) -> Array:
    """Return the best objective of gradients from zeros and from random starts: (target,)."""
    rng, p = np.random.default_rng(seed), problem.targets.shape[1]
    begin = [None, *(np.exp(rng.normal(0.0, 2.0, (p, 5))) for _ in range(starts))]
    return np.max([gradient(problem.targets, problem.caches, theta=at).objective for at in begin], axis=0)


def seconds_of(optimiser: Callable[..., Fit], problem: Problem) -> tuple[Fit, Array]:
    """Return the fit and its seconds by the clock and of the processor, all threads."""
    begin = np.array([time.perf_counter(), time.process_time()])
    fit = optimiser(problem.targets, problem.caches)
    return fit, np.array([time.perf_counter(), time.process_time()]) - begin


def race(rows: int, names: Any = tuple(OPTIMISERS), **which: Any) -> dict[str, Any]:
    """Print and return, by optimiser: nats below the optima, evaluations, seconds, seconds of compilation."""
    posed = problems(rows, **which)
    climbed = [gradient(problem.targets, problem.caches).objective for problem in posed]
    best = [best_known(problem) for problem in posed]
    print(f"{rows} rows, {sum(p.targets.shape[1] for p in posed)} targets")
    ends: dict[str, list[Array]] = {}
    told: dict[str, Any] = {}
    for name in names:
        compiling = 0.0
        if name == "gradient_jax":
            first = [seconds_of(OPTIMISERS[name], problem)[1][0] for problem in posed]
        runs = [seconds_of(OPTIMISERS[name], problem) for problem in posed]
        seconds, processor = np.sum([spent for _, spent in runs], axis=0)
        if name == "gradient_jax":
            compiling = max(sum(first) - seconds, 0.0)
        ends[name] = [fit.objective for fit, _ in runs]
        evaluations = np.concatenate([fit.evaluations for fit, _ in runs])
        told[name] = {"seconds": seconds, "processor": processor, "compiling": compiling}
        told[name]["evaluations"] = float(evaluations.mean())
        told[name]["unfinished"] = int(sum((~fit.converged).sum() for fit, _ in runs))
    best = [np.max([b, *(ends[name][i] for name in names)], axis=0) for i, b in enumerate(best)]
    for name in names:
        known = np.concatenate(best) - np.concatenate(ends[name])
        told[name]["below_best"] = known
        told[name]["below_gradient"] = np.concatenate(climbed) - np.concatenate(ends[name])
        print(line(name, told[name]), flush=True)
    if not {"paper_ascent", "s_opt"} <= set(names):
        return told
    ratio = [told["paper_ascent"][time] / told["s_opt"][time] for time in ("seconds", "processor")]
    print(
        "  the ascent of the paper takes {:.1f} times the seconds of s_opt ({:.1f} times".format(*ratio),
        end="",
    )
    print(" those of the processor); goal at least 5")
    return told


def line(name: str, told: dict[str, Any]) -> str:
    """Return one line of the table."""
    gap, known = told["below_gradient"], told["below_best"]
    return (
        f"  {name:13s} nats below gradient: median {np.median(gap):9.2e}, most {gap.max():9.2e}; "
        f"below the best known: median {np.median(known):8.2e}, most {known.max():8.2e}; "
        f"evaluations {told['evaluations']:6.1f}; {told['seconds']:7.2f} s, of the processor "
        f"{told['processor']:.2f} s (compiling {told['compiling']:.1f} s); unfinished {told['unfinished']}"
    )
