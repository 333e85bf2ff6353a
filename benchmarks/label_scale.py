"""Seconds and peak memory of large label tables: construction, statistics, splits and precision at k.

``python benchmarks/label_scale.py`` runs every case in a process of its own and prints, for each step, its
seconds, and for each case the sum and the peak resident memory (imports included) against their limits.
The exit code is 1 where a limit is broken.

wide      20000 rows x 50000 labels, 60000 positives
long      100000 rows x 100 labels, 3 % positive: stratified splits of first and second order
imdb      120919 rows x 28 labels, from imdb.npz in the folder ``LABELZOO_DATA``; left out where absent
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from labelzoo.data import LabelData, load
from labelzoo.data.describe import describe
from labelzoo.data.metrics import TopK, precision_at_k
from labelzoo.data.splits import AbsentLabelsWarning, fold_rows, split_rows

FOLDER = Path(os.environ.get("LABELZOO_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
LIMITS = {"wide": (5.0, 1.0), "long": (10.0, 1.0), "imdb": (5.0, 1.0)}
"""Seconds of the longest step (for wide and imdb: of all steps together), and GiB of resident memory."""

Step = tuple[str, Callable[[], Any]]


def random_labels(rows: int, labels: int, positives: int) -> sparse.csr_array:
    """Draw a csr_array (rows, labels) with the given number of positives, from seed 0."""
    rng = np.random.default_rng(0)
    cells = np.unique(rng.integers(0, rows * labels, size=positives + positives // 50))
    cells = rng.permutation(cells)[:positives]
    return sparse.csr_array((np.ones(positives, np.int8), np.divmod(cells, labels)), shape=(rows, labels))


def wide() -> Iterator[Step]:
    """Yield the steps on a table that is 8 GB as float64."""
    Y = random_labels(20_000, 50_000, 60_000)
    X = sparse.csr_array((20_000, 10))
    made: list[LabelData] = []
    yield "LabelData", lambda: made.append(LabelData(X, Y))
    data = made[0]
    yield "describe", lambda: describe(data)
    yield "split, random", lambda: data.split(0.2, 0)
    yield "split, stratified", lambda: data.split(0.2, 0, method="stratified")
    yield "split, stratified, pairs", lambda: data.split(0.2, 0, method="stratified", order=2)
    yield "10 folds, stratified", lambda: fold_rows(data, 10, 0, method="stratified")
    rng = np.random.default_rng(1)
    first = rng.integers(0, 50_000 - 5, size=(20_000, 1))
    scores = np.sort(rng.random((20_000, 5)), axis=1)[:, ::-1]
    yield "precision at 5", lambda: precision_at_k(data.Y, TopK(first + np.arange(5), scores, 50_000), 5)


def long() -> Iterator[Step]:
    """Yield stratified splits of many rows."""
    Y = random_labels(100_000, 100, 300_000)
    for order in (1, 2):
        name = f"stratified, order {order}"
        yield f"split, {name}", lambda order=order: split_rows(Y, 0.2, 0, method="stratified", order=order)
        for k in (2, 10):
            yield (
                f"{k} folds, {name}",
                lambda k=k, order=order: fold_rows(Y, k, 0, method="stratified", order=order),
            )


def imdb() -> Iterator[Step]:
    """Yield loading and describing a file."""
    made: list[LabelData] = []
    yield "load", lambda: made.append(load(FOLDER / "npz" / "imdb.npz"))
    yield "describe", lambda: describe(made[0])


CASES = {"wide": wide, "long": long, "imdb": imdb}


def run_case(name: str) -> dict[str, Any]:
    """Run one case in this process; return seconds by step and the peak memory in GiB."""
    warnings.simplefilter("ignore", AbsentLabelsWarning)
    seconds = {}
    for step, work in CASES[name]():
        start = time.perf_counter()
        work()
        seconds[step] = time.perf_counter() - start
    unit = 1 if sys.platform == "darwin" else 1024  # bytes on macOS, KiB on Linux
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30
    return {"seconds": seconds, "peak_gib": peak}


def run_child(name: str) -> dict[str, Any]:
    """Run one case in a new process, so that its peak memory is its own."""
    command = [sys.executable, __file__, "--case", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout)


def report(name: str, found: dict[str, Any]) -> bool:
    """Print one case; return whether it kept its limits."""
    limit_seconds, limit_gib = LIMITS[name]
    print(f"\n{name}")
    for step, seconds in found["seconds"].items():
        print(f"  {step:<34}{seconds:8.2f} s")
    counted = max if name == "long" else sum
    total = counted(found["seconds"].values())
    word = "longest" if name == "long" else "together"
    print(f"  {word:<34}{total:8.2f} s    limit {limit_seconds:.0f} s")
    print(f"  {'peak resident memory':<34}{found['peak_gib']:8.2f} GiB  limit {limit_gib:.0f} GiB")
    return bool(total <= limit_seconds and found["peak_gib"] <= limit_gib)


def main() -> int:
    """Run the cases asked for; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--case", choices=list(CASES), help="run this case here and print JSON")
    chosen = parser.parse_args().case
    if chosen:
        print(json.dumps(run_case(chosen)))
        return 0
    kept = True
    for name in CASES:
        if name == "imdb" and not (FOLDER / "npz" / "imdb.npz").exists():
            print(f"\nimdb: left out, no {FOLDER / 'npz' / 'imdb.npz'}")
            continue
        kept &= report(name, run_child(name))
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
