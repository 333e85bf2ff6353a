"""Active learning over a growing number of classes: class kernels (pKNN) against one against the rest.

    python benchmarks/neighbors_classes.py [--data digits,...] [--classes 3,5,10] [--runs 10] [--rounds 10]
                                           [--batch B] [--rows 30] [--gamma 0.1] [--sweeps 30] [--arms A,B]
                                           [--data-folder F] [--out FOLDER]

Data: ``digits`` (scikit-learn, 10 classes), ``segment-challenge`` (7), and multi-label sets with one class a
row, the rarest of its labels among those with 30 rows (`neighbors_data.rarest_label`; ``bibtex``: 123 classes
of 30 rows). Without --classes: 3, 5, 10; 3, 5, 7; 10, 25, 50, 100, as far as there are classes of 30 rows (10
at the least for ``emoji-keywords``: ``--rows 10``).

Protocol of the paper as far as it is readable: a random subset of the classes, 30 rows a class (--rows), of
which half are the test part, 2 are labelled at first and the rest can be asked for; mean accuracy a class.
Subset and rows are drawn anew each run. The batch of a round is unreadable; here half the number of classes,
rounded up, so that ten rounds ask for five rows a class, however many classes there are (the paper asks for
200 rows of 20 classes as of 101: of 260 and of 1313). All learners share one prior kernel: exp(-d / (2 w m)),
w = 0.3, m the median of the squared distances d of all drawn rows.

    pknn        alpha 1.25 / C, beta 0.9 / C (the default), gamma 0.1 (--gamma), set before any run of this
                command, with Table 1 seen: hard constraints take all similarity from contested rows. Bregman
                sweeps from the multipliers of the round before, to 1e-3, at most 30 (--sweeps); ``stopped``
                fits ran out of them.
                clip, raw: the smallest largest probability, by either rule for negative similarities
    prior       the same rule with nothing learned
    gp          regression on +-1 with noise 1e-5. least: the smallest |mean| / sd of any class;
                each: every class asks for its own in turn; two_best: the two largest means are closest
    svm         C = 1e5; svm_tuned: C by two folds of the labelled rows whenever these have doubled.
                boundary: nearest to the boundary of any class; two_best as above

Tables by data and number of classes: accuracy at the end, area (mean over rounds, trapezoid rule), both in
percent with standard errors over runs; area less that of the same learner's random rows, and pknn:clip's less
the arm's, in points with 95 % intervals corrected for overlapping draws (Nadeau and Bengio 2003; test over
other rows 1); the share of similarities that is negative. At last the gain by number of classes,
with the same intervals, and its slope on log2(classes). Random rows are the same for all learners. Runs are
kept in --out as they end; an interrupted command goes on there.
"""

import argparse
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from kept_runs import kept
from neighbors_choosers import ARMS, CHOOSERS, learner_of
from neighbors_data import (
    FOLDER,
    SPARSE,
    Rows,
    above_zero,
    load_rows,
    load_sparse,
    median_distance,
    names_among,
    prepared,
    squared_distances,
    whole,
    wholes,
)
from scipy import sparse
from scipy.stats import linregress
from sklearn.datasets import load_digits

from labelzoo.study.analysis import area, paired

Array = Any

CLASSES = {"digits": (3, 5, 10), "segment-challenge": (3, 5, 7)}
MANY = (10, 25, 50, 100)
DEFAULT = ("digits", "segment-challenge", "bibtex")
AT_FIRST, WIDTH = 2, 0.3


class Draw(NamedTuple):
    """The rows of a run.

    Attributes
    ----------
    K : (row, row)
        Prior kernel.
    y : int (row,)
        0 to C - 1.
    start, pool, test : int arrays
        Disjoint places; the pool in random order.
    """

    K: Array
    y: Array
    start: Array
    pool: Array
    test: Array


def loaded(name: str, folder: Path) -> Rows:
    """Return a data set; ValueError where it is not known or not there."""
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        return Rows(X, y, {})
    if name in SPARSE:
        return load_sparse(name, folder, 15 if name == "emoji-keywords" else 30)
    return load_rows(name, folder)


def drawn(rows: Rows, number: int, each: int, seed: int) -> Draw:
    """Return `number` random classes and `each` rows of each: half to test, 2 labelled, the rest a pool.

    Raises
    ------
    ValueError
        If there are fewer classes with so many rows.
    """
    rng = np.random.default_rng([seed, number])
    names, counts = np.unique(rows.y, return_counts=True)
    enough = names[counts >= each]
    if len(enough) < number:
        raise ValueError(f"{number} classes asked for, {len(enough)} have {each} rows or more")
    picked = rng.choice(enough, number, replace=False)
    places = np.array([rng.permutation(np.flatnonzero(rows.y == c))[:each] for c in picked])
    y = np.repeat(np.arange(number), each)
    flat = places.ravel()
    if sparse.issparse(rows.X):
        Z = rows.X[flat].toarray()
    else:
        Z = prepared(Rows(rows.X[flat], y, rows.levels), np.arange(len(flat)))
    d = squared_distances(Z, Z)
    at = np.arange(number * each).reshape(number, each)
    test, start = at[:, : each // 2].ravel(), at[:, each // 2 : each // 2 + AT_FIRST].ravel()
    pool = rng.permutation(at[:, each // 2 + AT_FIRST :].ravel())
    return Draw(np.exp(-d / (2.0 * WIDTH * median_distance(d))), y, start, pool, test)


def accuracy(truth: Array, answer: Array) -> float:
    """Return the mean over classes of the share of their rows that is answered right."""
    right = np.bincount(truth, truth == answer) / np.bincount(truth)
    return float(right.mean())


def one_run(draw: Draw, arm: str, options: Any, batch: int, seed: int) -> dict[str, Any]:
    """Return accuracies (round,), CPU seconds, how many fits were stopped and what was asked.

    `options` has rounds, gamma and sweeps; ``negative`` is the mean share of negative scores on the test
    part, ``spread`` the standard deviation of the labelled rows a class at the end.
    """
    name, how = arm.split(":")
    learner, rounds = learner_of(name, draw.K, options.gamma, options.sweeps, seed), options.rounds
    rng, began = np.random.default_rng([seed, 1]), time.process_time()
    labelled, pool, curve, negative = draw.start, draw.pool, [], []
    for turn in range(rounds + 1):
        learner.fit(labelled, draw.y[labelled])
        scores = learner.scores(draw.test)
        curve.append(accuracy(draw.y[draw.test], scores.argmax(axis=1)))
        negative.append(float((scores < 0).mean()))
        if turn < rounds:
            size = min(batch, len(pool))
            taken = np.arange(size) if how == "random" else CHOOSERS[name][how](learner, pool, size, rng)
            labelled, pool = np.concatenate([labelled, pool[taken]]), np.delete(pool, taken)
    seconds = time.process_time() - began
    asked = np.bincount(draw.y[labelled], minlength=draw.y.max() + 1)
    return {
        "curve": curve,
        "seconds": seconds,
        "stopped": getattr(learner, "stopped", 0),
        "negative": float(np.mean(negative)),
        "spread": float(asked.std()),
    }


def area_of(runs: list[dict[str, Any]]) -> Array:
    """Return the areas of runs in percent: (run,)."""
    return 100 * area(np.array([run["curve"] for run in runs]))


def shown(values: Array) -> str:
    """Return a mean with its standard error."""
    error = f" +- {values.std(ddof=1) / np.sqrt(len(values)):.1f}" if len(values) > 1 else ""
    return f"{values.mean():.1f}{error}"


def gap(one: Array, other: Array) -> str:
    """Return the mean difference of runs with its corrected interval."""
    found = paired(one - other, 1.0, 1)
    return f"{found.difference:+.1f} [{found.interval[0]:+.1f}, {found.interval[1]:+.1f}]"


def table(title: str, runs: dict[str, list[dict[str, Any]]]) -> str:
    """Return a data set at a number of classes as Markdown."""
    lines = [title, "", "| arm | at the end, % | area, % | area less its own random, points "]
    lines[-1] += "| pknn:clip less this, points | CPU s | sd of rows a class | stopped | negative, % |"
    lines += ["| --- " * 9 + "|"]
    best = area_of(runs["pknn:clip"]) if "pknn:clip" in runs else None
    for arm, own in runs.items():
        mine, base = area_of(own), f"{arm.split(':')[0]}:random"
        ends = 100 * np.array([run["curve"][-1] for run in own])
        cells = [shown(ends), shown(mine)]
        cells += [gap(mine, area_of(runs[base])) if base in runs and base != arm else ""]
        cells += [gap(best, mine) if best is not None and arm != "pknn:clip" else ""]
        cells += [f"{np.mean([run['seconds'] for run in own]):.2f}"]
        cells += [f"{np.mean([run['spread'] for run in own]):.2f}", str(sum(run["stopped"] for run in own))]
        below = f"{100 * np.mean([run['negative'] for run in own]):.2f}"
        cells += [below if arm.startswith(("pknn", "prior")) else ""]
        lines.append(f"| {arm} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def growth(data: str, results: dict[int, dict[str, list[dict[str, Any]]]]) -> str:
    """Return the gain over the learner's own random rows by number of classes as Markdown."""
    lines = [f"{data}: area less that of the learner's own random rows, points, by number of classes", ""]
    lines += ["| arm | " + " | ".join(str(c) for c in results) + " | slope a doubling, points |"]
    lines += ["| --- " * (len(results) + 2) + "|"]
    for arm in next(iter(results.values())):
        base = f"{arm.split(':')[0]}:random"
        if arm == base or any(base not in runs for runs in results.values()):
            continue
        gaps = {c: area_of(runs[arm]) - area_of(runs[base]) for c, runs in results.items()}
        cells = [gap(area_of(runs[arm]), area_of(runs[base])) for runs in results.values()]
        lines.append(f"| {arm} | " + " | ".join([*cells, slope(gaps)]) + " |")
    return "\n".join(lines) + "\n"


def slope(gaps: dict[int, Array]) -> str:
    """Return the slope of all runs' gains on log2(classes) with a 95 % interval, runs as independent."""
    x = np.concatenate([np.full(len(v), np.log2(c)) for c, v in gaps.items()])
    if len(gaps) < 2 or len(x) < 3:
        return ""
    found = linregress(x, np.concatenate(list(gaps.values())))
    return f"{found.slope:+.2f} +- {1.96 * found.stderr:.2f}"


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    folder = "neighbors_classes"
    parser.add_argument("--data", default=",".join(DEFAULT), help=f"sets ({','.join(DEFAULT)})")
    parser.add_argument("--classes", type=wholes(2), help="numbers of classes to draw (see above)")
    parser.add_argument(
        "--runs", type=wholes(1), default="10", help="one number, or one for each of --classes"
    )
    parser.add_argument("--rounds", type=whole(1), default=10, help="rounds of a run (10)")
    parser.add_argument("--batch", type=whole(1), help="rows a round (half the classes, rounded up)")
    parser.add_argument("--rows", type=whole(5), default=30, help="rows a class (30)")
    parser.add_argument("--gamma", type=above_zero, default=0.1, help="price of a violation, of pknn (0.1)")
    parser.add_argument("--sweeps", type=whole(1), default=30, help="most sweeps of a fit of pknn (30)")
    parser.add_argument(
        "--arms", type=names_among(ARMS), default=",".join(ARMS), help=f"of {', '.join(ARMS)} (all)"
    )
    parser.add_argument("--data-folder", type=Path, default=FOLDER, help="folder of the npz files")
    parser.add_argument("--out", type=Path, default=Path(folder), help=f"folder of finished runs ({folder})")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore", message=".*training rows have a total|the prior gives .* a total")
    for data in options.data.split(","):
        numbers = options.classes or CLASSES.get(data, MANY)
        counts = options.runs * (len(numbers) if len(options.runs) == 1 else 1)
        if len(counts) != len(numbers):
            parser.error(f"{data}: --runs has {len(counts)} numbers for {len(numbers)} numbers of classes")
        try:
            rows = loaded(data, options.data_folder)
            results = {c: raced(data, rows, c, k, options) for c, k in zip(numbers, counts, strict=True)}
        except ValueError as error:
            parser.error(f"{data}: {error}")
        if len(results) > 1:
            print(growth(data, results), flush=True)


def raced(data: str, rows: Rows, number: int, count: int, options: Any) -> dict[str, Any]:
    """Run all arms at a number of classes, print their table, and return their runs."""
    arms, batch = options.arms, options.batch or (number + 1) // 2
    runs: dict[str, list[dict[str, Any]]] = {arm: [] for arm in arms}
    for seed in range(count):
        draw = drawn(rows, number, options.rows, seed)
        for arm in arms:
            key = f"{data}_{number}_{options.rows}_{options.rounds}_{batch}"
            key += f"_{options.gamma}_{options.sweeps}" if arm.startswith("pknn") else ""
            path = options.out / f"{key}_{arm.replace(':', '-')}_{seed}.json"
            make = lambda d=draw, a=arm, s=seed: one_run(d, a, options, batch, s)  # noqa: E731
            runs[arm].append(kept(path, make))
    pool = number * (options.rows - options.rows // 2 - AT_FIRST)
    title = f"{data}, {number} classes: {count} runs, {options.rounds} rounds of {batch} rows"
    print(table(f"{title} of {pool}", runs), flush=True)
    return runs


if __name__ == "__main__":
    main()
