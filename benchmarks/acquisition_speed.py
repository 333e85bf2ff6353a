"""Time and memory of scores from posterior draws: ``python benchmarks/acquisition_speed.py [--rows 100000]``.

Entropy and BALD read a pool of 100 000 rows, 100 labels and 200 draws (8 GB in float32) block by block;
making the random blocks is timed apart. The other scores run at the sizes printed. Each line is a process of
its own, so that its peak resident memory is its own.
"""

import argparse
import multiprocessing
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from labelzoo.acquisition.anomalies import condition, make_ensemble, variance_reduction
from labelzoo.acquisition.batch_bald import batch_bald
from labelzoo.acquisition.draws import RowBlocks
from labelzoo.acquisition.epig import epig
from labelzoo.acquisition.information import bald, bald_joint, entropy
from labelzoo.acquisition.utility import expected_utility


def blocks(rows: int, labels: int = 100, samples: int = 200) -> tuple[RowBlocks, list[float]]:
    """Return draws made on the fly and the seconds that making each block took."""
    spent: list[float] = []

    def make(part: slice) -> Any:
        start = time.perf_counter()
        shape = (samples, part.stop - part.start, labels)
        block = np.random.default_rng(part.start).random(shape, dtype=np.float32)
        spent.append(time.perf_counter() - start)
        return block

    return RowBlocks(make, samples, rows, labels), spent


def draws(rows: int, labels: int, samples: int = 200) -> Any:
    """Return draws (sample, row, labels) in which ten parameters move everything."""
    rng = np.random.default_rng(0)
    load = rng.standard_normal((10, rows * labels)) / 3
    logits = (rng.standard_normal((samples, 10)) @ load).reshape(samples, rows, labels)
    return 1 / (1 + np.exp(-logits))


def streamed(score: Callable[[Any], Any], rows: int) -> tuple[float, float]:
    """Return seconds of the score and of making the draws."""
    source, spent = blocks(rows)
    start = time.perf_counter()
    score(source)
    return time.perf_counter() - start - sum(spent), sum(spent)


def timed(work: Callable[[Any], Any], rows: int, labels: int) -> tuple[float, float]:
    """Return seconds of `work` and of making the draws."""
    start = time.perf_counter()
    probs = draws(rows, labels)
    made = time.perf_counter()
    work(probs)
    return time.perf_counter() - made, made - start


def one_pick(probs: Any) -> None:
    """Score the pool and condition on the best row."""
    ensemble = make_ensemble(probs)
    condition(ensemble, int(np.argmax(variance_reduction(ensemble))))


def cases(rows: int) -> dict[str, Callable[[], tuple[float, float]]]:
    """Return what is measured, by the line's heading."""
    pool = f"{rows} rows, 100 labels, 200 draws"
    return {
        f"entropy, {pool}, blocks of float32": lambda: streamed(entropy, rows),
        f"bald, {pool}, blocks of float32": lambda: streamed(bald, rows),
        "bald_joint, 1000 rows, 8 labels": lambda: timed(bald_joint, 1000, 8),
        "bald_joint, 100 rows, 14 labels, drawn": lambda: timed(bald_joint, 100, 14),
        "batchbald, batch of 5, 500 rows, 4 labels": lambda: timed(lambda p: batch_bald(p, 5), 500, 4),
        "epig, 1000 rows, 14 labels": lambda: timed(epig, 1000, 14),
        "ensemble_ivr, one pick, 1000 rows, 14 labels": lambda: timed(one_pick, 1000, 14),
        "ensemble_ivr, one pick, 1000 rows, 374 labels": lambda: timed(one_pick, 1000, 374),
        "expected_utility, 300 rows, 6 labels": lambda: timed(
            lambda p: expected_utility(p, metric="brier"), 300, 6
        ),
    }


def measure(heading: str, rows: int, out: Any) -> None:
    """Run one line here and send seconds, those of making the draws, CPU seconds of both, and peak GiB."""
    start = time.process_time()
    seconds, made = cases(rows)[heading]()
    used = time.process_time() - start
    out.put((seconds, made, used, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20))


def main() -> None:
    """Print one line a score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--only", default="", help="lines that begin so")
    arguments = parser.parse_args()
    rows = arguments.rows
    spawn = multiprocessing.get_context("spawn")
    for heading in filter(lambda line: line.startswith(arguments.only), cases(rows)):
        out = spawn.Queue()
        child = spawn.Process(target=measure, args=(heading, rows, out))
        child.start()
        seconds, made, used, peak = out.get()
        child.join()
        spent = f"{seconds:.2f} s, draws made in {made:.2f} s, CPU of both {used:.2f} s"
        print(f"{heading}: {spent}, peak {peak:.2f} GiB", flush=True)


if __name__ == "__main__":
    main()
