"""Greedy mutual information on toy data, after Vasisht et al. (2014), section 6.2.

    python benchmarks/sparse_toy.py [--runs 50] [--out out/toy] [--json]

A run draws 1000 pool and 1000 test rows of 35 labels (`sparse_toy_data`), 20 seed rows at random and a
projection to 17 measurements. Noise, scale and length of an RBF kernel come from the evidence on the seeds
and stay. ``miml`` (greedy mutual information over the pool), ``uncertainty`` (largest variance given the rows
picked so far) and ``random`` take 25 more rows. After 0, 5, ... 25 picks the test rows are predicted one at a
time by ``ml_oss`` (a0 = b0 = 1e-6, 20 sweeps) and by ``plain_gp``, regression of all labels without
projection and sparsity, and scored by P@1, 2, 3 (a row without labels counts 0).

The table has means with standard errors over runs, and t intervals of the paired differences after 25 picks,
45 rows in all. The paper does not give its interval of deviations, kernel and test set, so that the numbers
cannot be compared with its figure, only the order. ``--out FOLDER`` keeps each run as it ends; an interrupted
command goes on there.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from kept_runs import kept
from scipy.stats import t as student
from sparse_toy_data import Toy, toy_data

from labelzoo.acquisition.mutual_information_greedy import greedy_entropy, greedy_mutual_information
from labelzoo.data.metrics import precision_at_k
from labelzoo.inference.sparse_bayes.evidence import fit_hyperparameters
from labelzoo.inference.sparse_bayes.inductive import condition, fit_rows
from labelzoo.inference.sparse_bayes.plain_gp import plain_gp
from labelzoo.models.gp_kernel import squared_distances

Array = Any

SETTINGS: dict[str, Any] = {
    "pool": 1000,
    "test": 1000,
    "seeds": 20,
    "picks": 25,
    "every": 5,
    "measurements": 17,
    "shape": 1e-6,
    "rate": 1e-6,
    "sweeps": 20,
}
CHOOSERS = ("miml", "uncertainty", "random")
PREDICTORS = ("ml_oss", "plain_gp")
DEPTHS = (1, 2, 3)
PAIRS = (("miml", "random"), ("miml", "uncertainty"))


def one_run(number: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the scores of one run, by predictor and chooser: (checkpoint, P@1 to 3)."""
    began = time.perf_counter()
    rng = np.random.default_rng([7, number])
    toy = toy_data(rng, settings["pool"], settings["test"])
    k = settings["measurements"]
    projection = rng.standard_normal((k, toy.Y.shape[1])) / np.sqrt(k)
    seeds = rng.permutation(len(toy.X))[: settings["seeds"]]
    found = fit_hyperparameters(
        toy.Y[seeds] @ projection.T, distances2=squared_distances(toy.X[seeds], toy.X[seeds])
    )
    hyper = {"noise": found.noise, "scale": found.scale, "length2": found.length2}
    C = covariance(toy.X, toy.X, hyper) + found.noise * np.eye(len(toy.X))
    scores: dict[str, Any] = {predictor: {} for predictor in PREDICTORS}
    for name, rows in chosen(C, seeds, settings["picks"], rng).items():
        at = [len(seeds) + done for done in range(0, settings["picks"] + 1, settings["every"])]
        table = [predicted(toy, C, rows[:size], projection, hyper, settings) for size in at]
        for predictor in PREDICTORS:
            scores[predictor][name] = [line[predictor] for line in table]
    hyper["at_bound"] = list(found.at_bound)
    seconds = time.perf_counter() - began
    return {"run": number, "settings": settings, "scores": scores, "hyper": hyper, "seconds": seconds}


def covariance(A: Array, B: Array, hyper: dict[str, Any]) -> Array:
    """Return scale K of the RBF kernel: (a, b)."""
    return hyper["scale"] * np.exp(-0.5 * squared_distances(A, B) / hyper["length2"])


def chosen(C: Array, seeds: Array, picks: int, rng: np.random.Generator) -> dict[str, Array]:
    """Return seeds and picks of each chooser, in order."""
    rest = np.setdiff1d(np.arange(len(C)), seeds)
    taken = {
        "miml": greedy_mutual_information(C, seeds, picks, stop=False).rows,
        "uncertainty": greedy_entropy(C, seeds, picks).rows,
        "random": rng.permutation(rest)[:picks],
    }
    return {name: np.concatenate([seeds, rows]) for name, rows in taken.items()}


def predicted(
    toy: Toy, C: Array, rows: Array, projection: Array, hyper: dict[str, Any], settings: dict[str, Any]
) -> dict[str, list[float]]:
    """Return P@1 to 3 of both predictors, trained on `rows`."""
    factor = np.linalg.cholesky(C[np.ix_(rows, rows)])
    cross = covariance(toy.X[rows], toy.X_test, hyper)
    own = np.full(len(toy.X_test), hyper["scale"] + hyper["noise"])
    t, v = condition(factor, cross, own, toy.Y[rows] @ projection.T)
    prior = {name: settings[name] for name in ("shape", "rate", "sweeps")}
    guesses = {
        "ml_oss": fit_rows(t, v, projection, **prior).mean,
        "plain_gp": plain_gp(factor, cross, toy.Y[rows]),
    }
    return {
        name: [float(precision_at_k(toy.Y_test, guess, k=depth).value) for depth in DEPTHS]
        for name, guess in guesses.items()
    }


def kept_run(folder: Path | None, number: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Return a run from its file, or run it and write the file.

    Raises
    ------
    SystemExit
        If the file is of other settings.
    """
    if folder is None:
        return one_run(number, settings)
    path = folder / f"run_{number:03d}.json"
    run = kept(path, lambda: one_run(number, settings))
    if run["settings"] != settings:
        raise SystemExit(f"{path} was made with other settings: take another folder")
    return run


def interval(differences: Array) -> dict[str, float]:
    """Return mean, standard error and the 95 % t interval of paired differences."""
    n = len(differences)
    mean = float(differences.mean())
    error = float(differences.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
    half = float(student.ppf(0.975, n - 1)) * error if n > 1 else float("nan")
    return {"mean": mean, "error": error, "low": mean - half, "high": mean + half}


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return means and standard errors, and the paired intervals at the last checkpoint."""
    settings = runs[0]["settings"]
    at = list(range(0, settings["picks"] + 1, settings["every"]))
    out: dict[str, Any] = {
        "runs": len(runs),
        "settings": settings,
        "rows": [settings["seeds"] + done for done in at],
        "seconds_a_run": float(np.mean([run["seconds"] for run in runs])),
        "runs_at_bound": sum(bool(run["hyper"]["at_bound"]) for run in runs),
        "means": {},
        "paired": {},
    }
    for predictor in PREDICTORS:
        values = {c: np.array([run["scores"][predictor][c] for run in runs]) for c in CHOOSERS}
        root = np.sqrt(len(runs))
        errors = {
            c: v.std(axis=0, ddof=1) / root if len(runs) > 1 else v[0] * np.nan for c, v in values.items()
        }
        out["means"][predictor] = {
            c: {"mean": v.mean(axis=0).tolist(), "error": errors[c].tolist()} for c, v in values.items()
        }
        out["paired"][predictor] = {
            f"{one} - {other}": [
                interval((values[one] - values[other])[:, -1, d]) for d in range(len(DEPTHS))
            ]
            for one, other in PAIRS
        }
    return out


def table(found: dict[str, Any]) -> str:
    """Return the summary as text."""
    lines = [
        f"{found['runs']} runs, {found['seconds_a_run']:.1f} seconds each; P@1, P@2, P@3 (standard error)"
    ]
    for predictor, choosers in found["means"].items():
        lines.append(f"\n{predictor}")
        lines.append("  rows  " + "".join(f"{name:<46}" for name in CHOOSERS))
        for place, rows in enumerate(found["rows"]):
            cells = []
            for name in CHOOSERS:
                pairs = zip(choosers[name]["mean"][place], choosers[name]["error"][place], strict=True)
                cells.append("  ".join(f"{mean:.3f}({error:.3f})" for mean, error in pairs))
            lines.append(f"  {rows:>4}  " + "".join(f"{cell:<46}" for cell in cells))
        for pair, depths in found["paired"][predictor].items():
            told = "  ".join(f"{d['mean']:+.3f} [{d['low']:+.3f}, {d['high']:+.3f}]" for d in depths)
            lines.append(f"  {pair} at {found['rows'][-1]} rows, 95 %: {told}")
    return "\n".join(lines)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--out", type=Path, default=None, help="folder of finished runs")
    parser.add_argument("--json", action="store_true", help="print numbers instead of the table")
    options = parser.parse_args()
    if options.runs < 1:
        parser.error(f"--runs must be at least 1, got {options.runs}")
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
    found = summary([kept_run(options.out, number, SETTINGS) for number in range(options.runs)])
    print(json.dumps(found, indent=1) if options.json else table(found))


if __name__ == "__main__":
    main()
