"""How long greedy mutual information takes: 250 picks of a pool of 4000, beside one Cholesky and inverse.

    OPENBLAS_NUM_THREADS=1 python benchmarks/mutual_information_speed.py [--large] [--rows 4000] [--picks 250]

Times are of one run on one core and hang on the machine; their ratios hang on it less. The pool is random
normal rows with an rbf kernel: what is counted is the same for any covariance, and labels enter nowhere.

The algorithm as printed evaluates determinants for every candidate. It is timed for 5 picks on few candidates
and extrapolated: seconds a candidate and pick x candidates left x picks. The paper (Vasisht and others, KDD
2014) reports 71 minutes for it and 20 hours for the adaptive method of Li and Guo; other machines, so only
a scale.
"""

import argparse
import resource
import time
import tracemalloc
from typing import Any

import numpy as np
from scipy.linalg import lapack

from labelzoo.acquisition.mutual_information import LazyGreedy, greedy_mutual_information, miml_with
from labelzoo.acquisition.problem import Problem
from labelzoo.models.gp_kernel import GPKernel

Array = Any
PRINTED_PICKS = 5
SEEDS = 20


def pool(rows: int, features: int = 20, seed: int = 0) -> tuple[Array, GPKernel]:
    """Return rows (row, feature) in 50 clusters and a kernel for them."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(50, features))
    X = centres[rng.integers(50, size=rows)] + 0.5 * rng.normal(size=(rows, features))
    return X, GPKernel(False, np.zeros(features), np.ones(features), float(features), 0.1)


def seconds_of(work: Any) -> tuple[float, Any]:
    """Return CPU seconds and what `work()` returns."""
    begin = time.process_time()
    out = work()
    return time.process_time() - begin, out


def factor_and_invert(C: Array) -> Array:
    """One Cholesky factorisation and inverse, by the same routines, in place of a copy."""
    factor, _ = lapack.dpotrf(np.array(C, order="F"), lower=1, overwrite_a=1)
    return lapack.dpotri(factor, lower=1, overwrite_c=1)[0]


def printed(C: Array, chosen: list[int], candidates: Array) -> int:
    """One pick of the algorithm as printed: a ratio of determinants for every candidate."""
    best, row = -np.inf, -1
    for x in candidates:
        rest = np.setdiff1d(np.arange(len(C)), [*chosen, x])
        with_x, A = np.array([*chosen, x]), np.array(chosen)
        own = np.linalg.slogdet(C[np.ix_(with_x, with_x)])[1] - np.linalg.slogdet(C[np.ix_(A, A)])[1]
        both = np.append(rest, x)
        others = np.linalg.slogdet(C[np.ix_(both, both)])[1] - np.linalg.slogdet(C[np.ix_(rest, rest)])[1]
        if own - others > best:
            best, row = own - others, int(x)
    return row


def small(rows: int, picks: int, candidates: int) -> None:
    """Print time and memory of the exact choice, of the lazy one and of the algorithm as printed."""
    X, kernel = pool(rows)
    C = kernel.between(X, X)
    C[np.diag_indices_from(C)] += kernel.noise_ratio
    seeds = list(range(SEEDS))
    unit, _ = seconds_of(lambda: factor_and_invert(C))
    plain, found = seconds_of(lambda: greedy_mutual_information(C, seeds, picks))
    lazily, same = seconds_of(lambda: LazyGreedy(C, seeds).pick(picks))
    tracemalloc.start()
    greedy_mutual_information(C, seeds, picks)
    peak = tracemalloc.get_traced_memory()[1] / C.nbytes
    tracemalloc.stop()
    print(f"{picks} picks of a pool of {rows}, {SEEDS} seeds")
    print(f"  one Cholesky + inverse      {unit:8.2f} s")
    print(f"  greedy, all candidates      {plain:8.2f} s   {plain / unit:.2f} x")
    print(f"  lazy                        {lazily:8.2f} s   {lazily / unit:.2f} x, {same.evaluations} gains")
    equal = np.array_equal(found.rows, same.rows)
    print(f"    of {found.evaluations} of plain greedy; the same rows: {equal}")
    print(f"  peak memory, C and beside   {peak + 1:8.2f} matrices of pool size (tracemalloc)")
    chosen, begin = list(seeds), time.process_time()
    others = np.random.default_rng(0).permutation(np.arange(SEEDS, rows))
    for step in range(PRINTED_PICKS):
        chosen.append(printed(C, chosen, others[step * candidates : (step + 1) * candidates]))
    each = (time.process_time() - begin) / (PRINTED_PICKS * candidates)
    whole = each * sum(rows - SEEDS - step for step in range(picks))
    print(f"  as printed                  {each:8.2f} s a candidate and pick, {PRINTED_PICKS} picks", end="")
    print(f" among {candidates} candidates: {whole / 3600:.0f} hours for {picks} picks of all")
    print("  the paper: 71 minutes for MIML, 20 hours for Li-Adaptive, on its machine and data")


def large(rows: int, picks: int, landmarks: int) -> None:
    """Print time, memory and error of the choice by landmarks."""
    X, kernel = pool(rows)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    spent, choice = seconds_of(
        lambda: miml_with(landmarks=landmarks)(Problem(X_pool=X, kernel=kernel, seed=0), picks)
    )
    wall = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{picks} picks of a pool of {rows}, {landmarks} landmarks")
    print(f"  {spent:.0f} s of CPU, {wall:.0f} s of wall clock")
    print(f"  peak memory {peak / 2**20:.2f} GiB of the process (ru_maxrss), {before / 2**20:.2f} before")
    print(f"  {len(choice.rows)} rows picked; report: {choice.report}")


def main() -> None:
    """Read the options and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--large", action="store_true", help="a pool of 1e5 rows instead")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--picks", type=int, default=250)
    parser.add_argument("--candidates", type=int, default=2, help="of each pick as printed")
    parser.add_argument("--landmarks", type=int, default=500)
    options = parser.parse_args()
    if options.large:
        large(options.rows or 100_000, options.picks, options.landmarks)
    else:
        small(options.rows or 4000, options.picks, options.candidates)


if __name__ == "__main__":
    main()
