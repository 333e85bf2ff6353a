"""Class kernels by LogDet projection: gaps and agreement, the time and memory of a sweep, warm starts.

Run ``python benchmarks/neighbors_speed.py [gaps] [sweep] [warm]``; all three by default, some minutes.

gaps    certified duality gap of ``dual`` and ``bregman``, and their largest difference in similarities, W and
        kernels, on problems of growing size and difficulty
sweep   CPU time of one sweep of ``bregman`` over that of one product of K0 with a matrix (row, class), in the
        same run, one thread; the most memory a sweep takes
warm    projections of a cold start over those of a warm start after one new label, to the same tolerance;
        median of ``--repeats`` problems
"""

import argparse
import time
import tracemalloc
import warnings
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from labelzoo.inference.kernel_neighbors.block import sides
from labelzoo.inference.kernel_neighbors.bregman import bregman, sweep
from labelzoo.inference.kernel_neighbors.dual import dual
from labelzoo.inference.kernel_neighbors.multipliers import inside, own_weights, state_of
from labelzoo.inference.kernel_neighbors.predict import kernel
from labelzoo.inference.kernel_neighbors.primal import certified_gap
from labelzoo.inference.kernel_neighbors.problem import read_problem
from labelzoo.inference.kernel_neighbors.warm import warm_start

GAP_CASES: tuple[tuple[int, int, dict[str, Any]], ...] = (
    (10, 2, {}),
    (10, 3, {}),
    (20, 3, {"alpha": 1 / 3, "beta": 1 / 3}),
    (30, 3, {}),
    (30, 3, {"gamma": 1.0}),
    (60, 5, {"gamma": 1.0}),
    (100, 5, {"gamma": 0.3}),
    (200, 10, {"gamma": 0.1}),
)
WARM_CASES: tuple[tuple[int, int, dict[str, Any]], ...] = (
    (40, 4, {}),
    (40, 4, {"gamma": 1.0}),
    (100, 5, {"gamma": 0.3}),
    (200, 5, {"gamma": 0.1}),
)
WARM_TOLERANCES = (1e-1, 3e-2, 1e-2, 1e-3, 1e-4, 1e-8)


def overlapping(seed: int, rows: int, classes: int) -> tuple[Any, Any]:
    """Return an RBF kernel of overlapping clouds, and their classes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 3))
    y = np.r_[np.arange(classes), rng.integers(classes, size=rows - classes)]
    X[:, 0] += 0.7 * y
    return np.exp(-0.25 * ((X[:, None] - X) ** 2).sum(axis=-1)), y


def gaps(args: argparse.Namespace) -> None:
    """Print the certified gaps and the differences between the two solvers."""
    for rows, classes, options in GAP_CASES:
        p = read_problem(*overlapping(args.seed, rows, classes), **options)
        start = time.process_time()
        one = dual(p)
        middle = time.process_time()
        other = bregman(p, tolerance=1e-12, max_sweeps=args.max_sweeps)
        end = time.process_time()
        kernels = [
            np.abs(kernel(one, c, p.K0, p.K0, p.K0) - kernel(other, c, p.K0, p.K0, p.K0)).max()
            for c in range(classes)
        ]
        apart = np.abs(one.similarity - other.similarity).max(), np.abs(one.W - other.W).max(), max(kernels)
        print(
            f"{rows:4d} rows {classes:3d} classes {options!s:34.34s} "
            f"dual {certified_gap(p, one):8.1e} ({one.sweeps} steps, {middle - start:.1f} s)  "
            f"bregman {certified_gap(p, other):8.1e} ({other.sweeps} sweeps, {end - middle:.1f} s)  "
            f"s {apart[0]:.1e} W {apart[1]:.1e} K {apart[2]:.1e}"
        )


def sweeps(args: argparse.Namespace) -> None:
    """Print the CPU time of sweeps over that of products, and the memory of a sweep."""
    rng, n, number = np.random.default_rng(args.seed), args.rows, args.classes
    y = np.r_[np.arange(number), rng.integers(number, size=n - number)]
    X = rng.normal(size=(n, 20)) + 0.8 * rng.normal(size=(number, 20))[y]
    squares = (X**2).sum(axis=1)
    p = read_problem(np.exp(-(squares[:, None] + squares - 2 * X @ X.T) / 20), y)
    W, table, ratios = rng.normal(size=(n, number)), sides(own_weights(p), p.columns), []
    state = inside(p, np.zeros((n, p.columns)))
    for index in range(args.sweeps):
        products = []
        for _ in range(7):
            start = time.process_time()
            p.K0 @ W
            products.append(time.process_time() - start)
        start = time.process_time()
        moved = sweep(p, state, np.arange(n), table)
        taken = time.process_time() - start
        ratios.append(taken / np.median(products))
        print(
            f"sweep {index}: {moved} projections, {1e3 * taken:.0f} ms, product "
            f"{1e3 * np.median(products):.1f} ms, ratio {ratios[-1]:.1f}"
        )
        state = state_of(p, state.lam)
    tracemalloc.start()
    sweep(p, state, np.arange(n), table)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    matrix = 8 * n * number
    print(f"{n} rows, {number} classes: median ratio {np.median(ratios):.1f}; a sweep takes at most")
    print(f"{peak / 1e6:.1f} MB beside K0 ({p.K0.nbytes / 1e6:.0f} MB) and matrices of {matrix / 1e6:.1f} MB")


def warm(args: argparse.Namespace) -> None:
    """Print the median ratio of projections, cold over warm."""
    for rows, classes, options in WARM_CASES:
        for tolerance in WARM_TOLERANCES:
            if tolerance < args.tightest:
                continue
            counts = []
            for seed in range(args.repeats):
                K, y = overlapping(seed, rows + 1, classes)
                before = read_problem(K[:rows, :rows], y[:rows], **options)
                after = read_problem(K, y, **options)
                held = warm_start(dual(before), after)
                both = [bregman(after, start=one, tolerance=tolerance) for one in (None, held)]
                counts.append([one.projections for one in both])
            cold, hot = np.array(counts).T
            ratio = np.median(cold / np.maximum(hot, 1))
            print(
                f"{rows:4d} rows {classes} classes {options!s:16.16s} tolerance {tolerance:.0e}: cold "
                f"{np.median(cold):7.0f} warm {np.median(hot):7.0f} ratio {ratio:.1f}",
                flush=True,
            )


def main() -> None:
    """Read what to measure and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", default=["gaps", "sweep", "warm"], help="gaps, sweep, warm")
    sizes = {"rows": 2000, "classes": 100, "sweeps": 5, "repeats": 20, "seed": 0, "max_sweeps": 3000}
    for name, value in sizes.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    parser.add_argument("--tightest", type=float, default=1e-8, help="least tolerance of warm starts")
    args = parser.parse_args()
    known = {"gaps": gaps, "sweep": sweeps, "warm": warm}
    for part in args.parts:
        if part not in known:
            parser.error(f"no part {part!r}; parts: {', '.join(known)}")
    warnings.filterwarnings("ignore", message=".*training rows have a total")
    with threadpool_limits(1):
        for part in args.parts:
            known[part](args)


if __name__ == "__main__":
    main()
