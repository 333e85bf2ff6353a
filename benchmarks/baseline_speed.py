"""Seconds a batch of the documented acquisition baselines, at the size of yeast and of a large pool.

Run ``python benchmarks/baseline_speed.py``: pool 400 rows, 14 labels, 103 features, 60 labelled rows, batch
10, the fastest of three calls on fresh problems, first with one linear fit a label inside and then with
``mean_probs`` given; ``--large`` adds k_center, batch 100 from 100 000 rows of 100 features.
Where small-text is installed (``pip install --no-deps small-text dill``; no dependency of this package),
its CVIRS is timed beside ours on the same probabilities, in turns, for pools of 400 and 4000 rows.
"""

import argparse
import importlib
import importlib.util
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from labelzoo.acquisition.catalogue import find
from labelzoo.acquisition.problem import Problem

NAMES = ("mmc", "cvirs", "li_adaptive", "audi", "brm_uncertainty", "one_vs_all_svm", "k_center", "cluster")


def make_problem(*, given: bool, pool: int = 400, labelled: int = 60, labels: int = 14) -> Problem:
    """Draw a problem of the stated sizes; `given` adds the model's probabilities."""
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(pool + labelled, 103)), rng.normal(size=(103, labels)) / 10
    probs = 1 / (1 + np.exp(1 - X @ weights))
    known = (rng.uniform(size=(labelled, labels)) < probs[pool:]).astype(float)
    more: dict[str, Any] = {"mean_probs": probs[:pool], "labelled_probs": probs[pool:]} if given else {}
    return Problem(X_pool=X[:pool], X_labelled=X[pool:], Y_labelled=known, **more)


def seconds(name: str, *, given: bool) -> float:
    """Return the fastest of three calls."""
    entry, times = find(name), []
    for _ in range(3):
        problem = make_problem(given=given)
        start = time.perf_counter()
        entry(problem, 10)
        times.append(time.perf_counter() - start)
    return min(times)


def fastest(calls: list[Callable[[], Any]], turns: int = 5) -> list[float]:
    """Return the fastest time of each call, taken in turns."""
    times = np.full((turns, len(calls)), np.inf)
    for turn in range(turns):
        for j, call in enumerate(calls):
            start = time.perf_counter()
            call()
            times[turn, j] = time.perf_counter() - start
    return times.min(axis=0).tolist()


def peer(pool: int) -> str:
    """Time CVIRS of small-text and ours; its scores are another reading of the paper, so picks may differ."""
    theirs = importlib.import_module("small_text.query_strategies.multi_label")
    strategy = theirs.CategoryVectorInconsistencyAndRanking(pbar=None)
    problem = make_problem(given=True, pool=pool)
    probs, known = np.asarray(problem.mean_probs), sparse.csr_matrix(np.asarray(problem.Y_labelled))
    classifier = type("Given", (), {"predict_proba": staticmethod(lambda rows: probs)})
    rows = np.arange(pool)
    ours, other = fastest(
        [
            lambda: find("cvirs")(problem, 10),
            lambda: strategy.query(classifier, rows, rows, rows[:0], known, n=10),
        ]
    )
    return f"cvirs, pool {pool}: {ours:.4f} s, small-text {other:.4f} s, ratio {other / ours:.1f}"


def large() -> str:
    """Time k_center on a large pool."""
    X = np.random.default_rng(0).normal(size=(100_000, 100))
    problem = Problem(X_pool=X, X_labelled=X[:100])
    start = time.perf_counter()
    find("k_center")(problem, 100)
    return f"k_center, batch 100 of 100000 x 100: {time.perf_counter() - start:.1f} s"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--large", action="store_true", help="also k_center on 100 000 rows")
    arguments = parser.parse_args()
    print("name                own fit  mean_probs given (seconds a batch of 10)")
    for name in NAMES:
        print(f"{name:18s} {seconds(name, given=False):8.4f} {seconds(name, given=True):8.4f}")
    if importlib.util.find_spec("small_text") is None:
        print("small-text is not installed: not timed")
    else:
        print(peer(400))
        print(peer(4000))
    if arguments.large:
        print(large())


if __name__ == "__main__":
    main()
