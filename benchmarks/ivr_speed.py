"""Milliseconds a batch of the scores about other points: ``ivr``, ``ivrp``, ``epig_laplace``, ``miml``.

Run ``python benchmarks/ivr_speed.py``. Figures are medians of ``--repeats`` calls at ``--pool`` rows,
``--targets`` targets, ``--labelled`` labelled rows and batches of ``--batch``, CPU time beside wall time
because a shared machine inflates the latter; ``--large 100000`` adds one call of ``ivr`` on
so large a pool that is its own target.
"""

import argparse
import dataclasses
import time

import numpy as np

from labelzoo.acquisition.catalogue import find
from labelzoo.acquisition.problem import Problem
from labelzoo.models.gp_kernel import feature_map, median_squared_distance


def make_problem(args: argparse.Namespace, pool: int) -> Problem:
    """Return a pool, labelled rows and targets from one mixture, with labels that follow the features."""
    rng = np.random.default_rng(args.seed)
    count = pool + args.labelled + args.targets
    centres = rng.normal(size=(30, args.features)) * 1.2
    X = centres[rng.integers(30, size=count)] + rng.normal(size=(count, args.features))
    kernel = feature_map(X, "rbf")
    kernel = kernel._replace(length2=median_squared_distance(kernel.mapped(X[:1000])))
    seen = X[pool : pool + args.labelled]
    Y = (seen @ rng.normal(size=(args.features, args.labels)) > 0).astype(float)
    return Problem(X[:pool], seen, Y, X[pool + args.labelled :], kernel=kernel, seed=args.seed)


def report(name: str, problem: Problem, args: argparse.Namespace, repeats: int) -> None:
    """Print the median wall and CPU time of ``repeats`` calls after one that is not counted."""
    entry = find(name)
    if repeats > 1:
        entry(problem, args.batch)
    wall, cpu = np.empty(repeats), np.empty(repeats)
    for repeat in range(repeats):
        start = time.perf_counter(), time.process_time()
        choice = entry(problem, args.batch)
        wall[repeat], cpu[repeat] = time.perf_counter() - start[0], time.process_time() - start[1]
    size = f"pool {problem.X_pool.shape[0]}"
    median, best, used = 1e3 * np.median(wall), 1e3 * wall.min(), 1e3 * np.median(cpu)
    times = f"{median:9.1f} ms wall, best {best:8.1f}, {used:9.1f} ms CPU"
    print(f"{name:14s}{size:12s}{times}  {dict(choice.report)}")


def main() -> None:
    """Read the sizes and print one line for each function."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sizes = {"pool": 1500, "targets": 300, "labelled": 120, "labels": 14, "features": 100, "batch": 10}
    for name, value in {**sizes, "repeats": 9, "seed": 0, "large": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--names", default="ivr,ivrp,epig_laplace,miml")
    args = parser.parse_args()
    problem = make_problem(args, args.pool)
    for name in args.names.split(","):
        report(name, problem, args, args.repeats)
    if args.large:
        report("ivr", dataclasses.replace(make_problem(args, args.large), X_targets=None), args, 1)


if __name__ == "__main__":
    main()
