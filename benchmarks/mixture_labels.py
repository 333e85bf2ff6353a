"""Average precision label by label: the GP-gated Bernoulli mixture against one model a label.

    python benchmarks/mixture_labels.py [--data enron,...] [--train 300] [--splits 5] [--out FOLDER]

Shi, Yu and Yu (2021), figure 7 and eq. 14: the improvement in average precision over binary relevance,
100 (AP of the mixture / AP of binary relevance - 1), which they report to be large for labels of moderate and
low frequency. A label's AP can be small, and a mean of ratios then says more about a few labels than about
most; so the table has the difference of AP in points by band of frequency, beside it the median of eq. 14.

Subsets as in mixture_races.py (1500 rows, labels with fewer than 20 positives dropped). A split trains on
``--train`` random rows and scores on 500 others; labels without a positive in training are left out.
Methods: ``mixture``, engine ``structured``, 10 components with a prior mean of .1; the same with the kernel
by the bound; ``logistic``, one-vs-rest logistic regression, C out of .1, 1, 10, 100 by three-fold AP on the
training rows; ``label_gp``, one Gaussian process on all labels. Intervals: 95 %, over splits, corrected for
their overlap.

Every split is kept in --out as it ends. Data are read from LABELZOO_DATA (default ../shared/data).
"""

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from kept_runs import kept
from mixture_races import DATA, FOLDER, subset
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold, cross_val_score

from labelzoo.data import load
from labelzoo.inference.fit import fit
from labelzoo.inference.predict import mean_prob
from labelzoo.models.gp_kernel import feature_map
from labelzoo.study.analysis import paired

Array = Any
TEST = 500
BANDS = ((1, 10), (10, 30), (30, 10**9))
"""Positives among the training rows, the upper end excluded."""
CS = (0.1, 1.0, 10.0, 100.0)
SETTINGS = {"num_components": 10, "prior_mean": 0.1}
METHODS = ("mixture", "mixture, kernel by the bound", "logistic", "label_gp")


def logistic(X: Array, y: Array, X_new: Array) -> Array:
    """Return scores of one label by logistic regression with C by three-fold average precision."""
    best, found = 1.0, -np.inf
    if 3 <= y.sum() <= len(y) - 3:
        folds = StratifiedKFold(3, shuffle=True, random_state=0)
        for C in CS:
            model = LogisticRegression(C=C, max_iter=500)
            value = cross_val_score(model, X, y, cv=folds, scoring="average_precision").mean()
            best, found = (C, value) if value > found else (best, found)
    return LogisticRegression(C=best, max_iter=500).fit(X, y).decision_function(X_new)


def predicted(method: str, data: Any, train: Array, test: Array, seed: int) -> Array:
    """Return scores (row, labels) of the test rows."""
    if method == "logistic":
        mapped = feature_map(data.X[train], "auto").mapped(data.X)
        X, X_new, Y = mapped[train], mapped[test], data.Y[train].toarray()
        columns = [
            logistic(X, y, X_new) if 0 < y.sum() < len(y) else np.full(len(test), float(y[0])) for y in Y.T
        ]
        return np.stack(columns, axis=1)
    some = data.subset(rows=train)
    if method == "label_gp":
        return mean_prob(fit("label_gp", some, "conjugate", seed=seed), data.X[test])
    rule = "bound" if method != "mixture" else "fixed"
    tree = fit("gp_bernoulli_mixture", some, "structured", seed=seed, hyperparameters=rule, **SETTINGS)
    return mean_prob(tree, data.X[test])


def one_split(data: Any, train: int, seed: int) -> dict[str, Any]:
    """Return the average precision of every label by every method, and its positives in training."""
    order = np.random.default_rng([8, seed]).permutation(data.num_rows)
    rows, test = np.sort(order[:train]), np.sort(order[train : train + TEST])
    truth = data.Y[test].toarray()
    out: dict[str, Any] = {"positives": np.asarray(data.Y[rows].sum(axis=0)).ravel().tolist(), "seconds": {}}
    use = (np.array(out["positives"]) > 0) & (truth.sum(axis=0) > 0)
    out["labels"] = np.flatnonzero(use).tolist()
    for method in METHODS:
        began = time.perf_counter()
        scores = predicted(method, data, rows, test, seed)
        out["seconds"][method] = time.perf_counter() - began
        out[method] = [float(average_precision_score(truth[:, j], scores[:, j])) for j in out["labels"]]
    return out


def table(title: str, runs: list[dict[str, Any]], train: int) -> str:
    """Return one data set as Markdown."""
    lines = [
        f"{title}, {train} training rows, {len(runs)} splits",
        "",
        "| positives in training | labels a split | AP of logistic | "
        + " | ".join(
            f"{method} less logistic (median of eq. 14, %)" for method in METHODS if method != "logistic"
        )
        + " |",
        "| --- " * (len(METHODS) + 2) + "|",
    ]
    for low, high in (*BANDS, (1, 10**9)):
        picked = [
            [i for i, j in enumerate(run["labels"]) if low <= run["positives"][j] < high] for run in runs
        ]
        if not all(picked):
            continue
        base = [np.array(run["logistic"])[rows] for run, rows in zip(runs, picked, strict=True)]
        name = f"{low} to {high - 1}" if high < 10**9 else (f"{low} and more" if low > 1 else "all")
        cells = [
            name,
            f"{np.mean([len(rows) for rows in picked]):.0f}",
            f"{np.mean([b.mean() for b in base]):.3f}",
        ]
        for method in METHODS:
            if method == "logistic":
                continue
            own = [np.array(run[method])[rows] for run, rows in zip(runs, picked, strict=True)]
            gap = paired(
                np.array([100 * (a.mean() - b.mean()) for a, b in zip(own, base, strict=True)]),
                TEST / train,
                1,
            )
            ratio = np.median(np.concatenate([100 * (a / b - 1) for a, b in zip(own, base, strict=True)]))
            cells.append(
                f"{gap.difference:+.1f} [{gap.interval[0]:+.1f}, {gap.interval[1]:+.1f}] ({ratio:+.0f})"
            )
        lines.append("| " + " | ".join(cells) + " |")
    seconds = {m: np.mean([run["seconds"][m] for run in runs]) for m in METHODS}
    lines += ["", "Seconds a split: " + ", ".join(f"{m} {s:.1f}" for m, s in seconds.items())]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=",".join(DATA))
    parser.add_argument("--train", type=int, default=300)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("mixture_labels"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore", ConvergenceWarning)
    for name in options.data.split(","):
        if not (FOLDER / "npz" / f"{name}.npz").is_file():
            print(f"{name}: not run, no file {FOLDER / 'npz' / name}.npz")
            continue
        data = load(subset(name, options.out))
        runs = [
            kept(
                options.out / f"{name}_{options.train}_{seed:03d}.json",
                lambda data=data, seed=seed: one_split(data, options.train, seed),
            )
            for seed in range(options.splits)
        ]
        print(
            table(f"{name}, {data.num_rows} rows, {data.num_labels} labels", runs, options.train), flush=True
        )


if __name__ == "__main__":
    main()
