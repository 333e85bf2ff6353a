"""How long active learning on compressed targets takes, by part, and its optimisers beside each other.

    python benchmarks/compressed_speed.py compression [--data corel5k]
    python benchmarks/compressed_speed.py rounds [--data corel5k] [--rounds 500] [--period 25] [--budget 100]
    python benchmarks/compressed_speed.py optimisers [--rows 50 100 200 400] [--optimisers gradient s_opt ...]
    python benchmarks/compressed_speed.py decoding [--trials 200]

Data are read from the folder LABELZOO_DATA (../shared/data without it) and cut as in the paper, see
`compressed_data`. Set OPENBLAS_NUM_THREADS to the cores. Times hang on the machine, their ratios less; times
of compilation are told apart.

`rounds` is a run of active learning, one row a round: theta is searched every `period` rounds by the simplex
from the last theta, with `budget` evaluations a target.
`optimisers` is in `compressed_optimisers`, `decoding` in `compressed_decoding`.
"""

import argparse
import time
from functools import partial
from typing import Any

import compressed_decoding
import compressed_optimisers
import numpy as np
from compressed_data import LIMITS, Prepared, prepared

from labelzoo.data import LabelData
from labelzoo.inference.compressed_gp.active import PARTS, ActiveTargets
from labelzoo.inference.compressed_gp.compression import compress
from labelzoo.inference.compressed_gp.simplex import s_opt
from labelzoo.models.bpca_card import spec

Array = Any


def compression(data: Prepared, sizes: list[int], repeats: int = 5) -> list[tuple[int, float, int, int]]:
    """Print and return rows, seconds of a call, sweeps and targets; the first call compiles."""
    Y, order = data.Y.toarray(), np.concatenate([data.start, data.pool])
    found = []
    for m in sizes:
        inputs = spec.prepare(LabelData(np.zeros((m, 1)), Y[order[:m]]), spec.resolve({}))
        begin = time.perf_counter()
        fit = compress(inputs)
        first = time.perf_counter() - begin
        seconds = []
        for _ in range(repeats):
            begin = time.perf_counter()
            compress(inputs)
            seconds.append(time.perf_counter() - begin)
        found.append((m, float(np.median(seconds)), fit.iterations, len(fit.canonical.weights)))
        print(f"{m:6d} rows  first call {first:6.2f} s  then {np.median(seconds):.3f} s  ", end="")
        print(f"{fit.iterations} sweeps, {len(fit.canonical.weights)} targets")
    return found


def rounds(data: Prepared, count: int, period: int, budget: int, every: int = 50) -> ActiveTargets:
    """Run and print seconds by part, targets and the growth of what is kept; return the run."""
    Y = data.Y[data.pool].toarray()
    warm_up(data)
    begin = time.perf_counter()
    search = partial(s_opt, budget=budget)
    start = data.Y[data.start].toarray()
    options: dict[str, Any] = {"compression": "bpca", "search": search, "period": period}
    run = ActiveTargets(data.X[data.start], start, data.X[data.pool], **options)
    print(f"start: {len(run)} rows, {len(data.pool)} in the pool, {time.perf_counter() - begin:.1f} s")
    print(f" rows targets  seconds so far   growth a row, bytes   {'  '.join(PARTS)}")
    before = (len(run), run.nbytes)
    for number in range(1, count + 1):
        row = run.remaining[run.scores().argmax()]
        run.tell(row, Y[row])
        if number % every == 0 or number == count:
            growth = (run.nbytes - before[1]) / (len(run) - before[0])
            before = (len(run), run.nbytes)
            parts = "  ".join(f"{run.seconds[part]:{len(part)}.1f}" for part in PARTS)
            spent = time.perf_counter() - begin
            print(
                f"{len(run):5d} {len(run.posterior.theta):7d} {spent:15.1f} {growth:21.0f}   {parts}",
                flush=True,
            )
    print(f"{count} rounds in {time.perf_counter() - begin:.1f} s; goal below 1200 s for 500")
    return run


def warm_up(data: Prepared) -> None:
    """Print what compiling the compression takes."""
    Y = data.Y[data.start].toarray()
    inputs = spec.prepare(LabelData(np.zeros((len(Y), 1)), Y), spec.resolve({}))
    seconds = []
    for _ in range(2):
        begin = time.perf_counter()
        compress(inputs)
        seconds.append(time.perf_counter() - begin)
    print(f"compiled in {seconds[0] - seconds[1]:.1f} s")


def main() -> None:
    """Read the options and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("compression", "rounds", "optimisers", "decoding"))
    parser.add_argument("--data", default="corel5k", choices=tuple(LIMITS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--period", type=int, default=25)
    parser.add_argument("--budget", type=int, default=100)
    parser.add_argument("--rows", type=int, nargs="+")
    known = list(compressed_optimisers.OPTIMISERS)
    parser.add_argument("--optimisers", nargs="+", default=known, choices=known)
    parser.add_argument("--targets", type=int, default=compressed_optimisers.TARGETS)
    parser.add_argument("--trials", type=int, default=200)
    options = parser.parse_args()
    if options.what in ("compression", "rounds"):
        data = prepared(options.data, options.seed, LIMITS[options.data])
        if options.what == "compression":
            compression(data, options.rows or [50, 250, 550])
        else:
            rounds(data, options.rounds, options.period, options.budget)
    elif options.what == "optimisers":
        for m in options.rows or [50, 100, 200, 400]:
            compressed_optimisers.race(m, options.optimisers, targets=options.targets)
    else:
        compressed_decoding.table(options.trials, options.seed)


if __name__ == "__main__":
    main()
