"""Active learning by the GP-gated Bernoulli mixture on real data, after Shi, Yu and Yu (2021), section 4.2.

    python benchmarks/mixture_races.py [--data enron,bibtex,...] [--seeds 3] [--out FOLDER]
    python benchmarks/mixture_races.py --ablation eta|rho [--data enron]

Data as the paper prepares them: labels with fewer than 20 positives are dropped. The subsets are smaller,
1500 random rows at most, a third of which is set aside (half of it is scored); 100 rows are asked, in batches
of 5, from 60 random rows that all functions share; 3 starts, each with its own split. The score is the macro
AUC over labels (the paper's ROC-AUC). The paper starts with one positive of every label, here the start is
random, and labels without both kinds of rows among those scored are left out.

``gp_b2m`` is the paper's criterion, ``gp_b2m_standardised`` the same with both halves at one scale. Beside
them stand the halves, the paper's rivals (``mmc``, ``li_adaptive``, ``audi``, ``cvirs``), ``ivr`` over the
pool, ``ensemble_ivr`` by draws of the mixture, and ``random``. All choose for the same learner, engine
``structured`` of ``gp_bernoulli_mixture``, whose AUC is the column "own"; "common" is one-vs-rest logistic
regression trained on the rows that were chosen, so that a criterion is not credited with what its own model
makes of the rows. CS-GP, the paper's fifth rival, is another model and not here.

The learner has 10 components and a prior mean of .1 for label probabilities, the rest at its defaults.

The table has the area under the AUC curve less that of ``random`` in the same split, in points, with 95 %
intervals corrected for overlapping splits (Nadeau and Bengio 2003) that hold for all functions of a column
together: three starts, the paper's number, leave them wide; ``--seeds 10`` narrows them. What takes more than
``--cost-cap`` CPU seconds to choose, a start, is printed as not run.

``--ablation eta`` runs eta = 0 (``label_logdet``), eta falling (``gp_b2m`` and its standardised form) and eta
without end (``gate_variance``) alone; ``--ablation rho`` cuts components, in the criterion and in
predictions. Everything is kept in --out as it ends, and a stopped command goes on there. Data are read from
LABELZOO_DATA (default ../shared/data).
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from labelzoo.data import load
from labelzoo.data.files import save_data

FOLDER = Path(os.environ.get("LABELZOO_DATA", Path(__file__).resolve().parents[1] / ".." / "shared" / "data"))
DATA = ("enron", "bibtex", "corel5k", "debtags")
LEARNER = "gp_bernoulli_mixture:structured"
SETTINGS = ("num_components=10", "prior_mean=0.1")
"""Of the learner, before those of --set."""
CHOOSERS = (
    "gp_b2m",
    "gp_b2m_standardised",
    "label_logdet",
    "gate_variance",
    "mmc",
    "li_adaptive",
    "audi",
    "cvirs",
    "ivr",
    "ensemble_ivr",
    "random",
)
ROWS, FEWEST, START, ROUNDS, BATCH = 1500, 20, 60, 20, 5
ETAS = ("label_logdet", "gp_b2m", "gp_b2m_standardised", "gate_variance")
RHOS = (0.0, 0.25, 0.5, 1.0)
METRICS = ("macro_auc", "precision")


def subset(name: str, out: Path) -> Path:
    """Write the subset of a data set that is raced, once, and return its file."""
    path = out / f"{name}_subset.npz"
    if not path.is_file():
        data = load(FOLDER / "npz" / f"{name}.npz")
        rows = np.random.default_rng([8, 2021]).permutation(data.num_rows)[:ROWS]
        some = data.subset(rows=np.sort(rows))
        positives = np.asarray(some.Y.sum(axis=0)).ravel()
        save_data(some.subset(labels=np.flatnonzero(positives >= FEWEST)), path)
    return path


def race(path: Path, out: Path, names: tuple[str, ...], options: Any, extra: tuple[str, ...] = ()) -> Any:
    """Run or continue one race and return the results that the command wrote."""
    command = [sys.executable, "-m", "labelzoo", "active", "--data", str(path), "--learner", LEARNER]
    command += ["--acquire", ",".join(names), "--seeds", str(options.seeds), "--start", str(START)]
    command += ["--rounds", str(ROUNDS), "--batch", str(BATCH), "--targets", "pool", "--split", "random"]
    command += ["--cost-cap", str(options.cost_cap), "--processes", str(options.processes), "--out", str(out)]
    for setting in (*SETTINGS, *options.set, *extra):
        command += ["--set", setting]
    command += ["--resume"] if (out / "study.db").exists() else []
    done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(done.returncode)
    return json.loads((out / "results.json").read_text(encoding="utf-8"))


def levels(found: Any) -> dict[tuple[str, str, str], tuple[float, float]]:
    """Return the mean metric over starts at the first and at the last round: (acquire, evaluator, metric)."""
    at: dict[tuple[str, str, str], dict[int, list[float]]] = {}
    for row in found["curves"]:
        for evaluator in ("own", "common"):
            for metric in METRICS:
                value = row["metrics"][evaluator]["E"][metric]
                rounds = at.setdefault((row["acquire"], evaluator, metric), {})
                rounds.setdefault(row["round"], []).append(np.nan if value is None else value)
    return {
        key: (float(np.nanmean(rounds[0])), float(np.nanmean(rounds[max(rounds)])))
        for key, rounds in at.items()
    }


def table(title: str, found: Any, names: tuple[str, ...]) -> str:
    """Return one race as Markdown."""
    level = levels(found)
    gaps = {
        (row["acquire"], row["evaluator"], row["part"], row["metric"]): row for row in found["comparison"]
    }
    reasons = {row["acquire"]: row["reason"] for row in reversed(found["not_run"])}
    reasons |= {row["acquire"]: f"FAILED, {row['reason']}" for row in found["failed"]}
    start = [
        f"{evaluator} {level['random', evaluator, 'macro_auc'][0]:.3f}" for evaluator in ("own", "common")
    ]
    lines = [
        f"{title}: macro AUC at {START} rows: {', '.join(start)}",
        "",
        "| | own, at the end | own, area less random | common, at the end | common, area less random "
        "| common, mean of P@1-3, area less random |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name in names:
        if name in reasons:
            lines.append(f"| {name} | {reasons[name]} | | | | |")
            continue
        cells = [name]
        for evaluator in ("own", "common"):
            cells.append(f"{level[name, evaluator, 'macro_auc'][1]:.3f}")
            cells.append(_gap(gaps.get((name, evaluator, "E", "macro_auc"))))
        cells.append(_gap(gaps.get((name, "common", "E", "precision"))))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _gap(row: Any) -> str:
    if row is None or row["interval"] is None:
        return "" if row is None else f"{100 * row['difference']:+.2f}"
    low, high = row["interval"]
    return f"{100 * row['difference']:+.2f} [{100 * low:+.2f}, {100 * high:+.2f}]"


def races(name: str, options: Any) -> list[str]:
    """Return the tables of one data set."""
    path = subset(name, options.out)
    data = load(path)
    title = f"{name}, {data.num_rows} rows, {data.num_labels} labels"
    if options.ablation == "rho":
        return [
            table(f"{title}, rho {rho}", found, ("gp_b2m", "random"))
            for rho in RHOS
            for found in [
                race(path, options.out / f"{name}_rho{rho}", ("gp_b2m", "random"), options, (f"rho={rho}",))
            ]
        ]
    names = ETAS if options.ablation == "eta" else CHOOSERS
    found = race(path, options.out / f"{name}_{options.ablation or 'race'}", names, options)
    return [table(title, found, names if "random" in names else (*names, "random"))]


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=",".join(DATA))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--ablation", choices=("eta", "rho"))
    parser.add_argument("--cost-cap", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="of the learner")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=Path("mixture_races"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.data.split(","):
        if not (FOLDER / "npz" / f"{name}.npz").is_file():
            print(f"{name}: not run, no file {FOLDER / 'npz' / name}.npz")
            continue
        begin = time.perf_counter()
        for text in races(name, options):
            print(text, flush=True)
        print(f"{name}: {time.perf_counter() - begin:.0f} s\n", flush=True)


if __name__ == "__main__":
    main()
