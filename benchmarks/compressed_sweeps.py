"""What the settings of the compressed-target model do, after Shi and Yu, ICML 2019, section 4.2.

    python benchmarks/compressed_sweeps.py decoders|logistic|levels|rate|period [--data corel5k,...]
        [--seeds 3] [--rows 250] [--out FOLDER]

Data are cut as in the paper (`compressed_data`). All but `period` learn from the start and random rows of the
pool, so that what is seen is prediction and not the choice of rows.

* ``decoders``: compressions (bpca; ppca, maximum likelihood with as many components; none, the measurements
  themselves) by decoders at --rows rows, beside logistic regression (C = 10): macro-F1, micro-F1, mean of
  P@1-3; for those whose scores are probabilities the log score, nats a row. ``bp`` answers 500 test rows.
* ``logistic``: one-vs-rest logistic regression with the C of best log score over three folds, as the former.
* ``levels``: ones answered for every row, 1 to 8, the mean of the rows learned from, and a level inferred for
  each item (the paper's figure 4 and its future work): macro-F1 and micro-F1.
* ``rate``: measurements over labels, .25 to 1, each compression; targets that are left a label (figure 3).
* ``period``: queries from one search of the hyperparameters to the next, 1 to 100, compression renewed after
  each row, 100 rows asked one by one from the 1 % start: macro-F1 of the answers at the end, mean of 4
  checkpoints, and seconds a row (figure 2).

Every run is kept in --out as it ends. Data are read from LABELZOO_DATA (default ../shared/data).
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from compressed_data import LIMITS, Prepared, prepared
from compressed_methods import (
    Answer,
    by_logistic,
    compressed,
    decoded,
    fit_targets,
    regression,
    tuned_penalty,
)
from compressed_races import mean_and_error, measured
from kept_runs import kept

from labelzoo.data.metrics import log_score
from labelzoo.inference.compressed_gp.active import ActiveTargets
from labelzoo.inference.compressed_gp.ranking import (
    decode,
    fit_levels,
    inferred_levels,
    top_labels,
    training_level,
)
from labelzoo.inference.compressed_gp.targets import COMPRESSIONS

Array = Any

METHODS = ("regression", "omp", "corr", "bp")
LEVELS = tuple(range(1, 9))
RATES = (0.25, 0.5, 0.75, 1.0)
PERIODS = (1, 5, 25, 100)
ASKED, CHECK = 100, 25
BP_ROWS = 500
LEAST = 1e-3


def learned_rows(p: Prepared, seed: int, count: int) -> Array:
    """Return the start and random rows of the pool, `count` in all."""
    order = np.random.default_rng([99, seed]).permutation(p.pool)
    return np.concatenate([p.start, order])[:count]


def brief(p: Prepared, answer: Answer, probs: Array | None = None) -> dict[str, float]:
    """Return the metrics without the recall of each label; with probabilities the log score too."""
    found = measured(p, answer)
    found.pop("recall")
    if probs is not None:
        found["log_score"] = log_score(p.Y[p.test], np.clip(probs, LEAST, 1 - LEAST), None).value
    return found


def decoders(p: Prepared, seed: int, rows: Array) -> dict[str, Any]:
    """Return the metrics by compression and decoder."""
    out: dict[str, Any] = {}
    fewer = p._replace(test=p.test[:BP_ROWS])
    for compression in COMPRESSIONS:
        t = fit_targets(p, rows, seed, compression=compression)
        R = compressed(t, p.X[p.test])
        for method in METHODS:
            name = f"{compression}, {method}"
            if method == "regression":
                found = regression(t, p.X[p.test])
                out[name] = brief(p, found, found.scores)
            elif method == "bp":
                out[name] = brief(fewer, decoded(t, R[:BP_ROWS], method))
            else:
                out[name] = brief(p, decoded(t, R, method))
            out[name]["targets"] = t.canonical.targets.shape[1]
    plain = by_logistic(p, rows, seed, t)
    return out | {"logistic": {**brief(p, plain, plain.scores), "targets": p.Y.shape[1]}}


def logistic(p: Prepared, seed: int, rows: Array) -> dict[str, Any]:
    """Return the metrics of logistic regression with its penalty tuned."""
    C = tuned_penalty(p, rows, seed)
    found = by_logistic(p, rows, seed, fit_targets(p, rows, seed, compression="none"), C)
    return {"logistic, C tuned": {**brief(p, found, found.scores), "C": C}}


def levels(p: Prepared, seed: int, rows: Array) -> dict[str, Any]:
    """Return the metrics by number of ones, for two compressions and two decoders."""
    out: dict[str, Any] = {}
    for compression in ("bpca", "none"):
        t = fit_targets(p, rows, seed, compression=compression)
        R, scores = compressed(t, p.X[p.test]), regression(t, p.X[p.test]).scores
        own = compressed(t, p.X[rows])
        each = inferred_levels(fit_levels(own, t.Y), R)
        for name, count in (*((str(k), k) for k in LEVELS), ("mean", training_level(t.Y)), ("item", each)):
            out[f"{compression}, omp, {name}"] = brief(p, decoded(t, R, "omp", count))
            out[f"{compression}, regression, {name}"] = brief(p, Answer(scores, top_labels(scores, count)))
    return out


def rate(p: Prepared, seed: int, rows: Array) -> dict[str, Any]:
    """Return the metrics by compressing rate and compression, decoded by matching pursuit."""
    out: dict[str, Any] = {}
    for share in RATES:
        for compression in COMPRESSIONS:
            t = fit_targets(p, rows, seed, rate=share, compression=compression)
            left = t.canonical.targets.shape[1] / p.Y.shape[1]
            found = brief(p, decoded(t, compressed(t, p.X[p.test]), "omp"))
            out[f"{share}, {compression}"] = {**found, "targets_per_label": left}
    return out


def period(p: Prepared, seed: int, queries: int) -> dict[str, Any]:
    """Return the metrics of rows asked one by one, theta searched every `queries` rows."""
    Y = p.Y.toarray()
    options: dict[str, Any] = {"settings": {"projection_seed": seed}, "compression": "bpca"}
    run = ActiveTargets(p.X[p.start], Y[p.start], p.X[p.pool], period=queries, **options)
    began, curve, rows = time.process_time(), [], list(p.start)
    spent = 0.0
    for asked in range(1, ASKED + 1):
        row = int(run.remaining[np.argmax(run.scores())])
        run.tell(row, Y[p.pool[row]])
        rows.append(int(p.pool[row]))
        if asked % CHECK == 0:
            spent += time.process_time() - began
            table = Y[rows].astype(float)
            found = decode(
                run.predict(p.X[p.test]),
                run.projection,
                levels=training_level(table),
                frequency=table.mean(axis=0),
                method="omp",
            )
            curve.append(brief(p, Answer(found.scores, found.labels)))
            began = time.process_time()
    return {"curve": curve, "seconds": spent / ASKED}


def average(runs: list[dict[str, Any]], name: str, metric: str) -> float:
    """Return the mean of a metric over runs."""
    return float(np.mean([run[name][metric] for run in runs]))


def cell(runs: list[dict[str, Any]], name: str, metric: str) -> str:
    """Return the mean and standard error of a metric in percent; a dash where it is not known."""
    return mean_and_error([run[name][metric] for run in runs]) if metric in runs[0][name] else "-"


def print_runs(title: str, what: str, runs: list[dict[str, Any]]) -> None:
    """Print one data set as Markdown."""
    extra = EXTRA[what]
    print(f"{title}, {what}, {len(runs)} runs\n")
    heads = ["macro-F1, %", "micro-F1, %", "P@1-3, %", *(name.replace("_", " ") for name in extra)]
    print("| | " + " | ".join(heads) + " |\n" + "| --- " * (len(heads) + 1) + "|")
    for name in runs[0]:
        cells = [cell(runs, name, metric) for metric in ("macro_f1", "micro_f1", "precision")]
        cells += [f"{average(runs, name, m):.2f}" if m in runs[0][name] else "-" for m in extra]
        print(f"| {name} | " + " | ".join(cells) + " |")
    print(flush=True)


def print_periods(title: str, runs: dict[int, list[dict[str, Any]]]) -> None:
    """Print the periods of one data set as Markdown."""
    print(f"{title}, period, {len(runs[PERIODS[0]])} runs\n")
    print(
        f"| period | macro-F1 after {ASKED} rows, % | mean of checkpoints, % | less period 1 | CPU s a row |"
    )
    print("| --- " * 5 + "|")

    def area(run: dict[str, Any]) -> float:
        return float(np.mean([row["macro_f1"] for row in run["curve"]]))

    first = [area(run) for run in runs[PERIODS[0]]]
    for queries, own in runs.items():
        end = mean_and_error([run["curve"][-1]["macro_f1"] for run in own])
        areas = [area(run) for run in own]
        less = mean_and_error([a - b for a, b in zip(areas, first, strict=True)])
        seconds = np.mean([run["seconds"] for run in own])
        print(f"| {queries} | {end} | {mean_and_error(areas)} | {less} | {seconds:.2f} |")
    print(flush=True)


EXTRA = {
    "decoders": ("targets", "log_score"),
    "logistic": ("C", "log_score"),
    "levels": (),
    "rate": ("targets_per_label",),
}
"""Columns beside the three metrics."""
SWEEPS = {"decoders": decoders, "logistic": logistic, "levels": levels, "rate": rate}


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=(*SWEEPS, "period"))
    parser.add_argument("--data", default=",".join(LIMITS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=250, help="rows learned from")
    parser.add_argument("--out", type=Path, default=Path("compressed_sweeps"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.seeds < 1 or options.rows < 2:
        parser.error("--seeds must be at least 1 and --rows at least 2")
    if unknown := sorted(set(options.data.split(",")) - set(LIMITS)):
        parser.error(f"--data: unknown {', '.join(unknown)}; known: {', '.join(LIMITS)}")
    options.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {}
    for data in options.data.split(","):
        found: dict[Any, list[dict[str, Any]]] = {}
        for seed in range(options.seeds):
            p = prepared(data, seed, LIMITS.get(data))
            if options.what == "period":
                for queries in PERIODS:
                    path = options.out / f"{data}_period_{queries}_{seed}.json"
                    run = kept(path, lambda p=p, s=seed, q=queries: period(p, s, q))
                    found.setdefault(queries, []).append(run)
                continue
            rows, sweep = learned_rows(p, seed, options.rows), SWEEPS[options.what]
            path = options.out / f"{data}_{options.what}_{options.rows}_{seed}.json"
            found.setdefault("runs", []).append(kept(path, lambda p=p, s=seed, r=rows, f=sweep: f(p, s, r)))
        results[data] = found
        if not options.json:
            if options.what == "period":
                print_periods(data, found)
            else:
                print_runs(data, options.what, found["runs"])
    if options.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
