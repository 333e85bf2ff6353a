"""Which labels of a row to reveal, and which rows: after Vasisht et al. (2014), section 6.4, by F-score.

    python benchmarks/sparse_diagnosis.py [--data enron] [--runs 35] [--out FOLDER]
    python benchmarks/sparse_diagnosis.py --generalised [--runs 35] [--out FOLDER]

Active diagnosis: 100 random rows are fully labelled, 30 others unlabelled; of each of these 30 labels are
revealed one after another. After every label `ml_oss` is refitted for the row with what is revealed (a0 = b0
= 1e-6, 20 sweeps, half as many measurements as labels, kernel by evidence on the 100 rows), and the next is

    mi, cond     that of the largest gain of mutual information, by either criterion (`label_gains`)
    uncertainty  that of the largest variance
    random       any
    mi_surrogate, uncertainty_surrogate
                 the same two with E[alpha] = 1 in place of the fitted precisions: a Gaussian surrogate that
                 reads no labels (the labels are predicted with fitted precisions)
    likely       that of the largest mean: not in the paper, the plain way to find positives

A label counts as predicted where it is revealed and positive, or hidden and its mean is above 1/2. The score
of a round is the F-score, 2 TP / (2 TP + FP + FN), 1 where there is nothing to find and nothing is claimed,
averaged over rows; the paper gives no threshold. ``hidden F`` leaves the revealed labels out, so that nothing
is gained by having been told.

Generalised: the rows are chosen too. Of 40 unlabelled rows 20 are taken one after another, 30 labels of each,
by mutual information over rows and then `mi` over labels; by largest variance and largest variance; or at
random. All rows are one graph with 100 labelled ones (`complete`); the F-score is over all 40 rows.

Paired t intervals, 95 %, over runs. The paper's set, rcv1, is not at hand; enron stands in. Every run is kept
in --out as it ends. Data are read from LABELZOO_DATA (default ../shared/data).
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from kept_runs import kept
from sparse_toy import interval

from labelzoo.acquisition.label_gains import label_gains
from labelzoo.acquisition.mutual_information_greedy import greedy_entropy, greedy_mutual_information
from labelzoo.data import load
from labelzoo.inference.sparse_bayes.complete import complete
from labelzoo.inference.sparse_bayes.evidence import fit_hyperparameters
from labelzoo.inference.sparse_bayes.inductive import condition, fit_rows, row_precision
from labelzoo.models.gp_kernel import feature_map, squared_distances

Array = Any

FOLDER = Path(os.environ.get("LABELZOO_DATA", Path(__file__).resolve().parents[1] / ".." / "shared" / "data"))
TRAIN, TEST, BUDGET = 100, 30, 30
GROUND, CHOSEN, EVERY = 40, 20, 5
PRIOR: dict[str, Any] = {"shape": 1e-6, "rate": 1e-6, "sweeps": 20}
METHODS = ("mi", "cond", "uncertainty", "random", "mi_surrogate", "uncertainty_surrogate", "likely")
POINT_METHODS = ("mi", "uncertainty", "random")
PAIRS = (
    ("mi", "uncertainty"),
    ("mi", "random"),
    ("cond", "uncertainty"),
    ("cond", "random"),
    ("mi_surrogate", "uncertainty_surrogate"),
    ("mi_surrogate", "random"),
    ("mi", "likely"),
)
COLOURS = {
    "mi": "#0072B2",
    "cond": "#56B4E9",
    "uncertainty": "#D55E00",
    "random": "#555555",
    "mi_surrogate": "#CC79A7",
    "uncertainty_surrogate": "#E69F00",
    "likely": "#009E73",
}


class Case(NamedTuple):
    """Labelled rows first, then the others: labels, covariance C of all, projection."""

    Y: Array
    C: Array
    projection: Array


def make_case(data: Any, seed: int, others: int) -> Case:
    """Draw rows and projection; noise, scale and length by the evidence on the labelled rows."""
    rng = np.random.default_rng([8, seed])
    rows = rng.permutation(data.num_rows)[: TRAIN + others]
    Y = data.Y[rows].toarray().astype(float)
    k = -(-data.num_labels // 2)
    projection = rng.standard_normal((k, data.num_labels)) / np.sqrt(k)
    kernel = feature_map(data.X[rows], "auto")
    X = kernel.mapped(data.X[rows])
    T = Y[:TRAIN] @ projection.T
    plain = kernel._replace(center=np.zeros(X.shape[1]), scale=np.ones(X.shape[1]))
    if kernel.is_cosine:
        found = fit_hyperparameters(T, K=plain.of_mapped(X[:TRAIN], X[:TRAIN]))
    else:
        found = fit_hyperparameters(T, distances2=squared_distances(X[:TRAIN], X[:TRAIN]))
        plain = plain._replace(length2=found.length2)
    C = found.scale * plain.of_mapped(X, X)
    C[np.diag_indices_from(C)] += found.noise
    return Case(Y, C, projection)


def f_scores(truth: Array, guess: Array, seen: Array) -> Array:
    """Return 2 TP / (2 TP + FP + FN) of each row over the labels `seen`; 1 where nothing is there to find
    and nothing is claimed: (row,)."""
    both = (guess & truth & seen).sum(axis=1)
    either = (guess & seen).sum(axis=1) + (truth & seen).sum(axis=1)
    return np.where(either > 0, 2 * both / np.maximum(either, 1), 1.0)


def next_label(method: str, fit: Any, at: int, v: float, projection: Array, revealed: Array, rng: Any) -> int:
    """Return the label of row `at` that `method` asks next."""
    if method == "random":
        return int(rng.choice(np.flatnonzero(~revealed)))
    if method in ("mi", "cond"):
        return int(np.nanargmax(label_gains(row_precision(fit.used[at], v, projection), revealed, method)))
    if method.endswith("_surrogate"):
        P = row_precision(np.ones(projection.shape[1]), v, projection)
        return int(np.nanargmax(label_gains(P, revealed) if method[0] == "m" else variances(P, revealed)))
    values = fit.variance if method == "uncertainty" else fit.mean
    return int(np.nanargmax(np.where(revealed, np.nan, values[at])))


def variances(P: Array, revealed: Array) -> Array:
    """Return the variance of every hidden label given the revealed ones, NaN for these: (labels,)."""
    out, hidden = np.full(len(P), np.nan), ~revealed
    out[hidden] = np.linalg.inv(P[np.ix_(hidden, hidden)]).diagonal()
    return out


def diagnosis_run(data: Any, seed: int) -> dict[str, Any]:
    """Return by method the F-scores after 0, 1, ... labels: all labels, and hidden ones alone."""
    case = make_case(data, seed, TEST)
    factor = np.linalg.cholesky(case.C[:TRAIN, :TRAIN])
    T = case.Y[:TRAIN] @ case.projection.T
    t, v = condition(factor, case.C[:TRAIN, TRAIN:], case.C.diagonal()[TRAIN:], T)
    truth = case.Y[TRAIN:] == 1
    out: dict[str, Any] = {}
    for method in METHODS:
        rng = np.random.default_rng([18, seed])
        revealed = np.zeros(truth.shape, bool)
        curve: dict[str, list[float]] = {"all": [], "hidden": []}
        budget = min(BUDGET, data.num_labels)
        for step in range(budget + 1):
            fit = fit_rows(t, v, case.projection, Y=np.where(revealed, truth, np.nan), **PRIOR)
            guess = np.where(revealed, truth, fit.mean > 0.5)
            curve["all"].append(float(f_scores(truth, guess, np.ones_like(revealed)).mean()))
            curve["hidden"].append(float(f_scores(truth, guess, ~revealed).mean()))
            if step < budget:
                for row in range(TEST):
                    label = next_label(method, fit, row, v[row], case.projection, revealed[row], rng)
                    revealed[row, label] = True
        out[method] = curve
    return out


def generalised_run(data: Any, seed: int) -> dict[str, Any]:
    """Return by method the F-scores over all rows after 0, 5, ... rows with revealed labels."""
    case = make_case(data, seed, GROUND)
    truth = case.Y[TRAIN:] == 1
    seeds, rest = np.arange(TRAIN), TRAIN + np.arange(GROUND)
    orders = {
        "mi": greedy_mutual_information(case.C, seeds, CHOSEN, stop=False).rows,
        "uncertainty": greedy_entropy(case.C, seeds, CHOSEN).rows,
        "random": np.random.default_rng([28, seed]).permutation(rest)[:CHOSEN],
    }
    out: dict[str, Any] = {}
    for method in POINT_METHODS:
        rng = np.random.default_rng([38, seed])
        observed = np.zeros(case.Y.shape, bool)
        observed[:TRAIN] = True
        curve: dict[str, list[float]] = {"all": [], "hidden": []}
        mean = completed(case, observed, curve, truth)
        for place, row in enumerate(orders[method]):
            reveal_row(case, mean, observed, int(row), method, rng)
            if (place + 1) % EVERY == 0:
                mean = completed(case, observed, curve, truth)
        out[method] = curve
    return out


def completed(case: Case, observed: Array, curve: dict[str, list[float]], truth: Array) -> Array:
    """Fit all rows together, append the F-scores, and return the means (row, labels)."""
    Y = np.where(observed, case.Y, np.nan)
    fit = complete(case.C, case.projection, Y, observed, **PRIOR)
    mean = np.where(observed, case.Y, 0.0)
    mean[~observed] = fit.mean
    seen = observed[TRAIN:]
    guess = np.where(seen, truth, mean[TRAIN:] > 0.5)
    curve["all"].append(float(f_scores(truth, guess, np.ones_like(seen)).mean()))
    curve["hidden"].append(float(f_scores(truth, guess, ~seen).mean()))
    return mean


def reveal_row(case: Case, mean: Array, observed: Array, row: int, method: str, rng: Any) -> None:
    """Reveal labels of one row given the labels of all others at their means."""
    others = np.flatnonzero(observed.any(axis=1))
    T = np.where(observed[others], case.Y[others], mean[others]) @ case.projection.T
    factor = np.linalg.cholesky(case.C[np.ix_(others, others)])
    t, v = condition(factor, case.C[np.ix_(others, [row])], case.C.diagonal()[[row]], T)
    for _ in range(min(BUDGET, case.Y.shape[1])):
        seen = observed[row]
        fit = fit_rows(t, v, case.projection, Y=np.where(seen, case.Y[row], np.nan)[None], **PRIOR)
        observed[row, next_label(method, fit, 0, v[0], case.projection, seen, rng)] = True


def kept_run(folder: Path, stem: str, data: Any, seed: int, run: Any) -> dict[str, Any]:
    """Return a run from its file, or run it and write the file."""
    path = folder / f"{stem}_{seed:03d}.json"
    methods = set(METHODS if run is diagnosis_run else POINT_METHODS)
    return kept(path, lambda: run(data, seed), lambda found: methods <= set(found))


def summary(runs: list[dict[str, Any]], at: int) -> dict[str, Any]:
    """Return mean curves, and paired differences at place `at`, halfway, and at the end."""
    methods = list(runs[0])
    curves = {m: {key: np.array([run[m][key] for run in runs]) for key in ("all", "hidden")} for m in methods}
    told: dict[str, Any] = {"runs": len(runs), "halfway": at, "means": {}, "paired": {}}
    for m in methods:
        told["means"][m] = {key: values.mean(axis=0).tolist() for key, values in curves[m].items()}
    for one, other in PAIRS:
        if one in curves and other in curves:
            told["paired"][f"{one} - {other}"] = {
                key: {
                    "halfway": interval((curves[one][key] - curves[other][key])[:, at]),
                    "end": interval((curves[one][key] - curves[other][key])[:, -1]),
                }
                for key in ("all", "hidden")
            }
    return told


def table(found: dict[str, Any], unit: str, step: int) -> str:
    """Return the summary as Markdown."""
    at, last = found["halfway"], len(next(iter(found["means"].values()))["all"]) - 1
    lines = [
        f"{found['runs']} runs; F after 0, {at * step} and {last * step} {unit}",
        "",
        f"| | F, 0 | F, {at * step} | F, {last * step} | hidden F, {at * step} | hidden F, {last * step} |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for method, means in found["means"].items():
        values = [
            means["all"][0],
            means["all"][at],
            means["all"][-1],
            means["hidden"][at],
            means["hidden"][-1],
        ]
        lines.append(f"| {method} | " + " | ".join(f"{value:.3f}" for value in values) + " |")
    lines += ["", "| paired, halfway | F | hidden F |", "| --- | --- | --- |"]
    for pair, keys in found["paired"].items():
        cells = [keys[key]["halfway"] for key in ("all", "hidden")]
        lines.append(
            f"| {pair} | "
            + " | ".join(f"{c['mean']:+.4f} [{c['low']:+.4f}, {c['high']:+.4f}]" for c in cells)
            + " |"
        )
    return "\n".join(lines)


def picture(found: dict[str, Any], path: Path, unit: str, step: int) -> None:
    """Draw the mean F-scores over rounds."""
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    for panel, key, title in zip(
        panels, ("all", "hidden"), ("all labels", "labels still hidden"), strict=True
    ):
        for method, means in found["means"].items():
            x = step * np.arange(len(means[key]))
            panel.plot(x, means[key], color=COLOURS[method], label=method)
        panel.set(xlabel=unit, ylabel="mean F-score", title=title)
        panel.grid(alpha=0.3)
    panels[1].legend(frameon=False, loc="upper left", fontsize=8)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="enron")
    parser.add_argument("--runs", type=int, default=35)
    parser.add_argument("--generalised", action="store_true")
    parser.add_argument("--sweeps", type=int, default=PRIOR["sweeps"])
    parser.add_argument("--shape", type=float, default=PRIOR["shape"], help="a0")
    parser.add_argument("--rate", type=float, default=PRIOR["rate"], help="b0")
    parser.add_argument("--out", type=Path, default=Path("sparse_diagnosis"))
    parser.add_argument("--picture", type=Path, default=None)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    path = FOLDER / "npz" / f"{options.data}.npz"
    if not path.is_file():
        raise SystemExit(f"no file {path}")
    options.out.mkdir(parents=True, exist_ok=True)
    data = load(path)
    stem = f"{options.data}_{'generalised' if options.generalised else 'diagnosis'}"
    asked = {name: getattr(options, name) for name in PRIOR}
    if asked != PRIOR:
        stem += "".join(f"_{name}{value:g}" for name, value in asked.items())
        PRIOR.update(asked)
    run = generalised_run if options.generalised else diagnosis_run
    runs = [kept_run(options.out, stem, data, seed, run) for seed in range(options.runs)]
    unit, step = ("rows with revealed labels", EVERY) if options.generalised else ("labels revealed a row", 1)
    halfway = CHOSEN // EVERY // 2 if options.generalised else min(BUDGET, data.num_labels) // 2
    found = summary(runs, halfway)
    if options.picture is not None:
        picture(found, options.picture, unit, step)
    print(json.dumps(found, indent=1) if options.json else table(found, unit, step))


if __name__ == "__main__":
    main()
