"""Class kernels by LogDet projection: gaps and agreement, the time and memory of a sweep, warm starts.

Run ``python benchmarks/neighbors_speed.py [gaps] [sweep] [warm] [large]``; all by default, some minutes.

gaps    certified duality gap of ``dual`` and ``bregman``, the latter also with ``polish=False``, which is the
        paper's algorithm, and the largest difference of the first two in similarities, W and kernels, on
        problems of growing size and difficulty
sweep   CPU time of one sweep of ``bregman`` over that of one product of K0 with a matrix (row, class), in the
        same run, one thread; the most memory a sweep takes
warm    projections and CPU time of a cold start over those of a warm start after one new label, to the same
        tolerance, with and, to loose ones, without ``polish``; medians of ``--repeats`` problems
large   ``bregman`` where ``dual`` cannot go, ``--rows`` and ``--classes`` at the largest, down to the
        engine's tolerance, and the gap after as many sweeps without ``polish`` as take that time
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
from labelzoo.inference.kernel_neighbors.engines import TOLERANCE as ENGINE_TOLERANCE
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
    (100, 5, {}),
    (200, 10, {}),
)
LARGE_CASES = ((0.25, 0.1), (0.5, 0.2), (1.0, 1.0))
"""Shares of the largest rows and classes."""
WARM_CASES: tuple[tuple[int, int, dict[str, Any]], ...] = (
    (40, 4, {}),
    (40, 4, {"gamma": 1.0}),
    (100, 5, {"gamma": 0.3}),
    (200, 5, {"gamma": 0.1}),
)
WARM_TOLERANCES = (1e-1, 1e-2, 1e-4, 1e-8)
LOOSE = 1e-2
"""Least tolerance at which warm starts are counted without polish too: below, a cold one takes minutes."""
TOLERANCE = 1e-12

SIZES = {
    "rows": (2000, "rows of the parts sweep and large"),
    "classes": (100, "classes of the parts sweep and large"),
    "sweeps": (5, "sweeps measured by the part sweep"),
    "repeats": (20, "problems of the part warm"),
    "seed": (0, "of the data of all parts but warm"),
    "max-sweeps": (1000, "most sweeps without polish in the part gaps"),
}


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
        one, of_dual = timed(dual, p)
        other, of_bregman = timed(bregman, p, tolerance=TOLERANCE)
        alone, of_sweeps = timed(bregman, p, tolerance=TOLERANCE, max_sweeps=args.max_sweeps, polish=False)
        kernels = [
            np.abs(kernel(one, c, p.K0, p.K0, p.K0) - kernel(other, c, p.K0, p.K0, p.K0)).max()
            for c in range(classes)
        ]
        apart = np.abs(one.similarity - other.similarity).max(), np.abs(one.W - other.W).max(), max(kernels)
        print(
            f"{rows:4d} rows {classes:3d} classes {options!s:34.34s} "
            f"dual {certified_gap(p, one):8.1e} ({one.steps} steps, {of_dual:.2f} s)  "
            f"bregman {certified_gap(p, other):8.1e} ({other.sweeps} sweeps, {other.steps} steps, "
            f"{of_bregman:.2f} s)  without polish {certified_gap(p, alone):8.1e} ({alone.sweeps} sweeps, "
            f"{of_sweeps:.1f} s)  s {apart[0]:.1e} W {apart[1]:.1e} K {apart[2]:.1e}",
            flush=True,
        )


def timed(solve: Any, *args: Any, **options: Any) -> tuple[Any, float]:
    """Return what `solve` returns, and its CPU seconds."""
    start = time.process_time()
    found = solve(*args, **options)
    return found, time.process_time() - start


def clusters(args: argparse.Namespace, rows: int, classes: int, **options: Any) -> Any:
    """Return a problem of clouds in 20 features."""
    rng = np.random.default_rng(args.seed)
    y = np.r_[np.arange(classes), rng.integers(classes, size=rows - classes)]
    X = rng.normal(size=(rows, 20)) + 0.8 * rng.normal(size=(classes, 20))[y]
    squares = (X**2).sum(axis=1)
    return read_problem(np.exp(-(squares[:, None] + squares - 2 * X @ X.T) / 20), y, **options)


def large(args: argparse.Namespace) -> None:
    """Print how long ``bregman`` takes to the engine's tolerance, and how far it is then without polish."""
    for of_rows, of_classes in LARGE_CASES:
        rows, classes = round(of_rows * args.rows), max(2, round(of_classes * args.classes))
        p = clusters(args, rows, classes, gamma=1.0)
        found, seconds = timed(bregman, p, tolerance=ENGINE_TOLERANCE)
        sweep_seconds = timed(bregman, p, max_sweeps=5, polish=False)[1] / 5
        count = max(1, round(seconds / sweep_seconds))
        alone = bregman(p, tolerance=ENGINE_TOLERANCE, max_sweeps=count, polish=False)
        print(
            f"{rows:4d} rows {classes:3d} classes: {found.message}, {seconds:.1f} s, dual {found.dual:.0f}; "
            f"after {count} sweeps alone: gap {alone.gap:.1e}",
            flush=True,
        )


def sweeps(args: argparse.Namespace) -> None:
    """Print the CPU time of sweeps over that of products, and the memory of a sweep."""
    rng, n, number = np.random.default_rng(args.seed), args.rows, args.classes
    p = clusters(args, n, number)
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
    """Print the median ratios of projections and of CPU time, cold over warm."""
    for rows, classes, options in WARM_CASES:
        for tolerance in WARM_TOLERANCES:
            if tolerance < args.tightest:
                continue
            for polish in (True, False) if tolerance >= LOOSE else (True,):
                counts = []
                for seed in range(args.repeats):
                    K, y = overlapping(seed, rows + 1, classes)
                    before = read_problem(K[:rows, :rows], y[:rows], **options)
                    after = read_problem(K, y, **options)
                    held = warm_start(dual(before), after)
                    both = [
                        timed(bregman, after, start=one, tolerance=tolerance, polish=polish)
                        for one in (None, held)
                    ]
                    counts.append([number for fit, seconds in both for number in (fit.projections, seconds)])
                cold, cold_seconds, hot, hot_seconds = np.array(counts).T
                print(
                    f"{rows:4d} rows {classes} classes {options!s:16.16s} tolerance {tolerance:.0e} "
                    f"{'with' if polish else 'without'} polish: cold {np.median(cold):7.0f} warm "
                    f"{np.median(hot):7.1f} ratio {np.median(cold / np.maximum(hot, 1)):.1f}, of seconds "
                    f"{np.median(cold_seconds / np.maximum(hot_seconds, 1e-5)):.1f}",
                    flush=True,
                )


def main() -> None:
    """Read what to measure and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = {"gaps": gaps, "sweep": sweeps, "warm": warm, "large": large}
    parser.add_argument(
        "parts", nargs="*", default=list(known), help=f"of {', '.join(known)}; all by default"
    )
    for name, (value, words) in SIZES.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"{words} (default {value})")
    parser.add_argument("--tightest", type=float, default=1e-8, help="least tolerance of warm starts (1e-8)")
    args = parser.parse_args()
    for part in args.parts:
        if part not in known:
            parser.error(f"no part {part!r}; parts: {', '.join(known)}")
    warnings.filterwarnings("ignore", message=".*training rows have a total")
    with threadpool_limits(1):
        for part in args.parts:
            known[part](args)


if __name__ == "__main__":
    main()
