"""Active learning on compressed targets against its rivals, after Shi and Yu, ICML 2019, section 4.3.

    python benchmarks/compressed_races.py [--data corel5k,...] [--seeds 3] [--picks 200] [--out FOLDER]
    python benchmarks/compressed_races.py --labels 50

Data are cut as in the paper (`compressed_data`): 1 % of the rows to start with, 40 % as the pool, macro-F1 on
the rest, three runs. ``--picks`` rows are asked, 25 between two fits (the paper refits after each row; see
compressed_sweeps.py for what that changes), 5 for ``mmc`` and ``li_adaptive``. Choosers and predictors are
those of `compressed_methods`; the paper races pairs of them, here every chooser's rows also train the same
predictors, so that a criterion is not credited with what its own model makes of the rows:

    CS-BPCA-GP  rows of ``targets``, answers of ``omp``         CS-MIML  ``cs_miml`` and ``cs_miml``
    CS-BR       rows of ``cs_br``, answers of ``cs_br``         CS-RR    ``random`` and ``cs_rr``

``--labels 50`` keeps the 50 most frequent labels, as the paper does for MMC and Li-Adaptive, whose own
predictor is one-vs-rest: the column ``logistic`` (C = 10).

Tables: macro-F1 (every row answered with the mean number of labels of the rows learned from) at the last
checkpoint, mean and standard error over runs; its mean over checkpoints less that of ``random`` in the same
run, in points, with 95 % intervals corrected for overlapping splits (Nadeau and Bengio 2003); how many of the
rarest third of the labels are never answered rightly, and their recall. Every run is kept in --out as it
ends; an interrupted command goes on there. Data are read from LABELZOO_DATA (default ../shared/data).
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from compressed_data import LIMITS, POOL, START, Prepared, prepared
from compressed_methods import PERIOD, Answer, answers, choose_rows
from kept_runs import kept

from labelzoo.data.metrics import precision_at_k
from labelzoo.study.analysis import paired

Array = Any

CHOOSERS = ("targets", "printed_sign", "measurements", "cs_miml", "cs_br", "ivr", "mmc", "random")
FEW_CHOOSERS = ("targets", "measurements", "mmc", "li_adaptive", "ivr", "random")
SMALL_BATCH = 5
SHARED = ("omp", "regression", "cs_omp", "logistic")
OWN = {
    "targets": ("corr", "cs_miml"),
    "cs_miml": ("cs_miml",),
    "cs_br": ("cs_br",),
    "random": ("corr", "cs_miml", "cs_br", "cs_rr", "cs_regression"),
}
"""Predictors beside `SHARED`."""
PAIRS = {
    "CS-BPCA-GP": ("targets", "omp"),
    "the same without BPCA": ("measurements", "cs_omp"),
    "CS-MIML": ("cs_miml", "cs_miml"),
    "CS-BR": ("cs_br", "cs_br"),
    "CS-RR": ("random", "cs_rr"),
    "random, CS-BPCA-GP": ("random", "omp"),
    "random, the same without BPCA": ("random", "cs_omp"),
    "random, BML-CS": ("random", "cs_miml"),
    "random, logistic": ("random", "logistic"),
    "MMC": ("mmc", "logistic"),
    "Li-Adaptive": ("li_adaptive", "logistic"),
}
"""What the paper races: rows of a chooser, answers of a predictor; and random rows with some of them."""
RARE = 1 / 3


def checkpoints(picks: int) -> list[int]:
    """Return after how many rows the test part is predicted."""
    return [round(0.4 * picks), picks]


def measured(p: Prepared, answer: Answer) -> dict[str, Any]:
    """Return the metrics of an answer on the test rows."""
    Y = p.Y[p.test]
    truth = Y.toarray().astype(bool)
    both, answered, real = (a.sum(axis=0) for a in (truth & answer.labels, answer.labels, truth))
    f1 = 2 * both / np.maximum(answered + real, 1)
    return {
        "macro_f1": float(f1.mean()),
        "micro_f1": float(2 * both.sum() / (answered.sum() + real.sum())),
        "precision": float(np.mean([precision_at_k(Y, answer.scores, k).value for k in (1, 2, 3)])),
        "recall": (both / np.maximum(real, 1)).tolist(),
    }


def one_run(p: Prepared, name: str, seed: int, picks: int) -> dict[str, Any]:
    """Return the metrics of a chooser's rows by checkpoint and predictor."""
    began = time.process_time()
    period = SMALL_BATCH if name in ("mmc", "li_adaptive") else PERIOD
    chosen = choose_rows(p, name, seed, picks, period)
    seconds = time.process_time() - began
    names, curve = (*SHARED, *OWN.get(name, ())), []
    for count in checkpoints(len(chosen)):
        found = answers(p, names, np.concatenate([p.start, chosen[:count]]), seed)
        curve.append({"picks": count, **{key: measured(p, one) for key, one in found.items()}})
    return {"seconds": seconds, "curve": curve, "support": p.Y.sum(axis=0).tolist()}


def mean_and_error(values: list[float]) -> str:
    """Return the mean of runs in percent with its standard error."""
    v = 100 * np.asarray(values)
    error = f" +- {v.std(ddof=1) / np.sqrt(len(v)):.2f}" if len(v) > 1 else ""
    return f"{v.mean():.2f}{error}"


def rare(run: dict[str, Any], predictor: str) -> tuple[int, float]:
    """Return how many labels of the rarest third have no true positive, and the third's mean recall."""
    support, recall = np.asarray(run["support"]), np.asarray(run["curve"][-1][predictor]["recall"])
    few = np.argsort(support, kind="stable")[: round(RARE * len(support))]
    return int((recall[few] == 0).sum()), float(recall[few].mean())


def gap(runs: Any, one: str, predictor: str, metric: str = "macro_f1") -> str:
    """Return the mean over checkpoints less that of ``random``, in points."""

    def area(run: dict[str, Any]) -> float:
        return float(np.mean([row[predictor][metric] for row in run["curve"]]))

    values = 100 * np.asarray([area(a) - area(b) for a, b in zip(runs[one], runs["random"], strict=True)])
    if len(values) < 2:
        return f"{values.mean():+.2f}"
    found = paired(values, (1 - START - POOL) / (START + POOL), 1)
    low, high = found.interval
    return f"{found.difference:+.2f} [{low:+.2f}, {high:+.2f}]"


def tables(title: str, runs: dict[str, list[dict[str, Any]]]) -> str:
    """Return one data set as Markdown."""
    last = runs["random"][0]["curve"][-1]["picks"]
    labels = len(runs["random"][0]["support"])
    lines = [f"{title}: {labels} labels, {last} rows asked, {len(runs['random'])} runs", ""]
    lines += ["| as in the paper | macro-F1, % | micro-F1, % | mean of P@1-3, % | rare labels never found "]
    lines[-1] += "| their recall, % |"
    lines += ["| --- " * 6 + "|"]
    for title, (chooser, predictor) in PAIRS.items():
        if chooser in runs and predictor in runs[chooser][0]["curve"][-1]:
            ends = [run["curve"][-1][predictor] for run in runs[chooser]]
            cells = [mean_and_error([e[m] for e in ends]) for m in ("macro_f1", "micro_f1", "precision")]
            missed, recall = zip(*[rare(run, predictor) for run in runs[chooser]], strict=True)
            cells += [f"{np.mean(missed):.1f} of {round(RARE * labels)}", mean_and_error(list(recall))]
            lines.append(f"| {title} | " + " | ".join(cells) + " |")
    lines += ["", "| rows chosen by | " + " | ".join(f"macro-F1 by {s}" for s in SHARED)]
    lines[-1] += " | " + " | ".join(f"area less random, {s}" for s in SHARED) + " | CPU s |"
    lines += ["| --- " * (2 * len(SHARED) + 2) + "|"]
    for chooser, own in runs.items():
        cells = [mean_and_error([run["curve"][-1][s]["macro_f1"] for run in own]) for s in SHARED]
        cells += ["" if chooser == "random" else gap(runs, chooser, s) for s in SHARED]
        seconds = np.mean([run["seconds"] for run in own])
        lines.append(f"| {chooser} | " + " | ".join(cells) + f" | {seconds:.0f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=",".join(LIMITS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--picks", type=int, default=200)
    parser.add_argument("--labels", type=int, default=None, help="keep so many of the most frequent labels")
    parser.add_argument("--choosers", default=None)
    parser.add_argument("--out", type=Path, default=Path("compressed_races"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    default = CHOOSERS if options.labels is None else FEW_CHOOSERS
    names = tuple(options.choosers.split(",")) if options.choosers else default
    for option, given, known in (
        ("--choosers", names, {*CHOOSERS, *FEW_CHOOSERS}),
        ("--data", options.data.split(","), LIMITS),
    ):
        if unknown := sorted(set(given) - set(known)):
            parser.error(f"{option}: unknown {', '.join(unknown)}; known: {', '.join(sorted(known))}")
    if "random" not in names:
        parser.error("--choosers: random must be among them, all are compared with it")
    results = {}
    for data in options.data.split(","):
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        for seed in range(options.seeds):
            p = prepared(data, seed, LIMITS.get(data), options.labels)
            for name in names:
                path = options.out / f"{data}_{options.labels or 'all'}_{options.picks}_{name}_{seed}.json"
                runs[name].append(kept(path, lambda p=p, n=name, s=seed: one_run(p, n, s, options.picks)))
        results[data] = runs
        if not options.json:
            print(tables(data, runs), flush=True)
    if options.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
