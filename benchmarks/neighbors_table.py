"""Table 1 of the paper: class kernels (pKNN) against metric learning on four data sets.

    python benchmarks/neighbors_table.py [--data iris,...] [--repeats 5] [--data-folder F] [--out FOLDER]
    python benchmarks/neighbors_table.py readings [...]

The paper's protocol as far as it is readable: 2-fold cross-validation, 1-nearest-neighbour for the learned
distances; its repeats, prior kernel, preparation of features and "Scale" (taken as balance-scale) are not
told. Here: ``--repeats`` times stratified 2-fold cross-validation, so that half of the rows are learned from
(features: see `neighbors_data`).

All settings are chosen in three stratified folds of the learning half, each method by its own error: the
prior (a width of 0.03 to 3, or the linear kernel X X' over its mean diagonal, whose class kernels are
Mahalanobis metrics as those of LMNN and ITML are; not for pKNN-SVM, whose C of 1e5 takes minutes where a
linear kernel cannot separate) and gamma (0.1, 10) together, then alpha and beta of three readings
(`READINGS`) at those. Ties go to the first in the lists. Beside pKNN, pKNN-n (1-NN under the class kernels)
and pKNN-SVM:

    prior       the similarity rule of pKNN with K0, nothing learned
    1-NN, k-NN  Euclidean; k of 1, 3, 5, 9, 15. 1-NN is also pKNN-n with nothing learned
    NCA + k-NN  scikit-learn's NeighborhoodComponentsAnalysis (at most 50 steps), k of the same
    RBF SVM     one against one, width and C chosen;   logistic regression, C chosen

Error in percent, mean and standard error over splits (too small, as splits share rows); the difference from
pKNN in points with a 95 % interval corrected for that (Nadeau and Bengio 2003), test over learning rows 1.
Multipliers: by the dual's interior point up to 600 of them, else by Bregman sweeps to 1e-3, at most 40;
``stopped`` counts final fits that ran out of sweeps. "Reached" allows two standard errors.

``readings`` looks at the test halves, so it is a diagnosis and chooses nothing: for each prior, reading and
gamma the error of pKNN and of pKNN-n with 1 neighbour and 4, and the share of learning rows that hold a
multiplier; a share near 0 says that the prior meets the constraints as it is. Below it the spread of pKNN's
error over readings and over priors, and the least errors of pKNN-n. Splits are kept in --out as they end; an
interrupted command goes on there.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from kept_runs import kept
from neighbors_data import (
    FOLDER,
    Rows,
    load_rows,
    median_distance,
    names_among,
    prepared,
    squared_distances,
    whole,
)
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier, NeighborhoodComponentsAnalysis
from sklearn.svm import SVC

from labelzoo.inference.kernel_neighbors.bregman import bregman
from labelzoo.inference.kernel_neighbors.dual import dual
from labelzoo.inference.kernel_neighbors.multipliers import Fit
from labelzoo.inference.kernel_neighbors.predict import classify, classify_by_neighbors, classify_by_svm
from labelzoo.inference.kernel_neighbors.problem import class_means, read_classes, read_problem
from labelzoo.study.analysis import paired

Array = Any

DATA = ("ionosphere", "balance-scale", "iris", "soybean")
PAPER = {
    "ionosphere": (86.1, 85.5, 85.7, 81.1),
    "balance-scale": (88.4, 90.4, 88.9, 92.0),
    "iris": (None, 95.7, 94.3, None),
    "soybean": (None, 92.1, 91.9, 89.3),
}
"""Accuracies in percent: LMNN, ITML, pKNN, pKNN-n; None where a digit is lost ("9.1", "7.1", "%3")."""
WIDTHS = (0.3, 1.0, 0.1, 3.0, 0.03)
LINEAR = "linear"
PRIORS: tuple[Any, ...] = (*WIDTHS, LINEAR)
GAMMAS = (0.1, 10.0)
READINGS: dict[str, Callable[[int], tuple[float, float]]] = {
    "1.25/C, 0.9/C": lambda C: (1.25 / C, 0.9 / C),
    "1/C, 1/C": lambda C: (1.0 / C, 1.0 / C),
    "2/C, 1/(2C)": lambda C: (min(2.0 / C, 0.9), 0.5 / C),
}
MORE_READINGS = {**READINGS, "1/2, 1/C": lambda C: (0.5, 1.0 / C)}
OURS: dict[str, Callable[[Fit, Array, Array], Array]] = {
    "pKNN": lambda fit, K, _: classify(fit, K),
    "pKNN-n": classify_by_neighbors,
    "pKNN-SVM": lambda fit, K, _: classify_by_svm(fit, K),
}
"""Answers from a fit, K0(x, X) and K0(x, x)."""
SMALL, SWEEPS, TOLERANCE = 600, 40, 1e-3
NEIGHBORS = (1, 3, 5, 9, 15)
MANY = 4
"""Neighbours that `readings` tries too, those of ITML's own paper (Davis et al., ICML 2007)."""
PENALTIES = (0.1, 1.0, 10.0, 100.0, 1000.0)


def solved(K0: Array, y: Array, reading: str, gamma: float) -> Fit:
    """Return the fit of a reading of alpha and beta."""
    alpha, beta = MORE_READINGS[reading](len(np.unique(y)))
    problem = read_problem(K0, y, alpha=alpha, beta=beta, gamma=gamma)
    if len(y) * problem.columns <= SMALL:
        return dual(problem)
    return bregman(problem, tolerance=TOLERANCE, max_sweeps=SWEEPS)


def by_prior(cross: Array, y: Array) -> Array:
    """Return the class with the largest mean prior similarity of each new row: (new,)."""
    classes, codes, counts = read_classes(y, None, len(y))
    return classes[np.argmax(class_means(cross, codes, counts), axis=1)]


class Kernels:
    """All prior kernels between learning rows, and from new rows to them."""

    def __init__(self, Z: Array, T: Array) -> None:
        """Measure the distances; their median and the mean square are those of the learning rows."""
        self.own, self.new = squared_distances(Z, Z), squared_distances(T, Z)
        self.median, self.Z, self.T = median_distance(self.own), Z, T

    def of(self, width: Any) -> tuple[Array, Array, Array]:
        """Return K0 (row, row), K0(x, X) (new, row) and K0(x, x) (new,)."""
        if width == LINEAR:
            size = (self.Z**2).sum(axis=1).mean()
            return self.Z @ self.Z.T / size, self.T @ self.Z.T / size, (self.T**2).sum(axis=1) / size
        scale = -0.5 / (width * self.median)
        return np.exp(scale * self.own), np.exp(scale * self.new), np.ones(len(self.T))


def holding(fit: Fit) -> float:
    """Return the share of learning rows with a multiplier above rounding of the largest."""
    return float((fit.lam > 1e-6 * fit.lam.max()).any(axis=1).mean())


def folds(y: Array, number: int, seed: int) -> Iterator[tuple[Array, Array]]:
    """Yield learning and test rows of stratified folds."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The least populated class")
        yield from StratifiedKFold(number, shuffle=True, random_state=seed).split(y, y)


def least(errors: dict[Any, float]) -> Any:
    """Return the key of the smallest error, the first where they tie."""
    return min(errors, key=lambda key: round(errors[key], 12))


def chosen(Z: Array, y: Array, seed: int) -> dict[str, Any]:
    """Return by inner folds the width, reading and gamma of each of `OURS`, and the width of the prior."""
    cut = [(a, b, Kernels(Z[a], Z[b])) for a, b in folds(y, 3, seed)]
    wrong: dict[tuple[str, Any], float] = {}

    def look(width: Any, reading: str, gamma: float) -> None:
        for a, b, kernels in cut:
            K0, *new = kernels.of(width)
            fit = solved(K0, y[a], reading, gamma)
            for name, answer in OURS.items():
                if width == LINEAR and name == "pKNN-SVM":
                    continue
                key = (name, (width, reading, gamma))
                wrong[key] = wrong.get(key, 0.0) + float((answer(fit, *new) != y[b]).sum())

    first = next(iter(READINGS))
    for width in PRIORS:
        for gamma in GAMMAS:
            look(width, first, gamma)
    out: dict[str, Any] = {}
    for name in OURS:
        width, _, gamma = least({key: e for (n, key), e in wrong.items() if n == name})
        for reading in READINGS:
            if (name, (width, reading, gamma)) not in wrong:
                look(width, reading, gamma)
        tried = {r: wrong[name, (width, r, gamma)] for r in READINGS}
        out[name] = (width, least(tried), gamma)
    plain = {w: sum(float((by_prior(k.of(w)[1], y[a]) != y[b]).sum()) for a, b, k in cut) for w in PRIORS}
    return {**out, "prior": least(plain)}


def rivals(Z: Array, y: Array, T: Array, seed: int) -> dict[str, Callable[[], Array]]:
    """Return the classifiers that are not ours, each a function that learns, tunes and answers."""
    inner = list(folds(y, 3, seed))
    width = 1.0 / median_distance(squared_distances(Z, Z))

    def tuned(model: Any, grid: dict[str, Any]) -> Callable[[], Array]:
        return lambda: GridSearchCV(model, grid, cv=inner).fit(Z, y).predict(T)

    return {
        "1-NN": lambda: KNeighborsClassifier(1).fit(Z, y).predict(T),
        "k-NN": tuned(KNeighborsClassifier(), {"n_neighbors": NEIGHBORS}),
        "NCA + k-NN": lambda: nca(Z, y, T, seed, inner),
        "RBF SVM": tuned(SVC(), {"C": PENALTIES, "gamma": [0.5 * width / w for w in WIDTHS]}),
        "logistic regression": tuned(LogisticRegression(max_iter=2000), {"C": PENALTIES}),
    }


def nca(Z: Array, y: Array, T: Array, seed: int, inner: Any) -> Array:
    """Return the answers of k-NN after NCA, k by the inner folds with NCA learned in each."""
    wrong = dict.fromkeys(NEIGHBORS, 0.0)

    def mapped(rows: Array) -> Any:
        model = NeighborhoodComponentsAnalysis(max_iter=50, random_state=seed)
        return model.fit(Z[rows], y[rows])

    for a, b in inner:
        model = mapped(a)
        for k in NEIGHBORS:
            near = KNeighborsClassifier(k).fit(model.transform(Z[a]), y[a])
            wrong[k] += float((near.predict(model.transform(Z[b])) != y[b]).sum())
    model = mapped(np.arange(len(y)))
    return KNeighborsClassifier(least(wrong)).fit(model.transform(Z), y).predict(model.transform(T))


def one_split(rows: Rows, known: Array, test: Array, seed: int) -> dict[str, Any]:
    """Return errors, seconds and settings of all methods on a split."""
    X = prepared(rows, known)
    Z, T, y, truth = X[known], X[test], rows.y[known], rows.y[test]
    out: dict[str, Any] = {"errors": {}, "seconds": {}, "stopped": 0, "held": {}}
    began = time.process_time()
    settings = chosen(Z, y, seed)
    kernels, choosing = Kernels(Z, T), time.process_time() - began
    for name, answer in OURS.items():
        began = time.process_time()
        width, reading, gamma = settings[name]
        K0, *new = kernels.of(width)
        fit = solved(K0, y, reading, gamma)
        out["errors"][name] = float((answer(fit, *new) != truth).mean())
        out["stopped"] += not fit.converged
        out["held"][name] = holding(fit)
        out["seconds"][name] = time.process_time() - began + choosing
    out["errors"]["prior"] = float((by_prior(kernels.of(settings["prior"])[1], y) != truth).mean())
    for name, learn in rivals(Z, y, T, seed).items():
        began = time.process_time()
        out["errors"][name] = float((learn() != truth).mean())
        out["seconds"][name] = time.process_time() - began
    return {**out, "settings": settings}


def one_reading(rows: Rows, known: Array, test: Array, seed: int) -> dict[str, Any]:
    """Return errors and the share of rows with a multiplier for all readings on a split."""
    X = prepared(rows, known)
    kernels, y, truth = Kernels(X[known], X[test]), rows.y[known], rows.y[test]
    near = kernels.own + np.diag(np.full(len(y), np.inf))
    out: dict[str, Any] = {"rows": [], "prior": [], "same": float((y[near.argmin(axis=1)] != y).mean())}
    for width in (*sorted(WIDTHS), LINEAR):
        K0, K, square = kernels.of(width)
        own = float((by_prior(K0, y) != y).mean())
        out["prior"].append([width, float((by_prior(K, y) != truth).mean()), own])
        for reading in MORE_READINGS:
            for gamma in GAMMAS:
                fit = solved(K0, y, reading, gamma)
                answers = [classify(fit, K)]
                answers += [classify_by_neighbors(fit, K, square, neighbors=k) for k in (1, MANY)]
                errors = [float((one != truth).mean()) for one in answers]
                held = holding(fit)
                out["rows"].append([width, reading, gamma, *errors, held, bool(fit.converged)])
    return out


def error_of(values: Any) -> str:
    """Return the mean in percent with its standard error over splits."""
    v = 100 * np.asarray(values)
    return f"{v.mean():.1f} +- {v.std(ddof=1) / np.sqrt(len(v)):.1f}" if len(v) > 1 else f"{v.mean():.1f}"


def table(data: str, runs: list[dict[str, Any]]) -> str:
    """Return a data set as Markdown."""
    lmnn, itml, paper, paper_n = PAPER[data]
    theirs = {"LMNN": lmnn, "ITML": itml, "pKNN": paper, "pKNN-n": paper_n}
    shown = {key: "unreadable" if v is None else f"{100 - v:.1f}" for key, v in theirs.items()}
    lines = [f"{data}: {len(runs)} splits, {sum(run['stopped'] for run in runs)} fits stopped", ""]
    lines += ["| method | error, % | less pKNN's, points | paper, % | CPU s | settings, most often |"]
    lines += ["| --- " * 6 + "|"]
    base = np.array([run["errors"]["pKNN"] for run in runs])
    for name in runs[0]["errors"]:
        own = np.array([run["errors"][name] for run in runs])
        found = paired(100 * (own - base), 1.0, 1)
        low, high = found.interval
        gap = "" if name == "pKNN" else f"{found.difference:+.1f} [{low:+.1f}, {high:+.1f}]"
        took = [run["seconds"][name] for run in runs if name in run["seconds"]]
        cost = f"{np.mean(took):.1f}" if took else ""
        words = usual([run["settings"].get(name) for run in runs]) if name in runs[0]["settings"] else ""
        if name in OURS:
            words += f"; {100 * np.mean([run['held'][name] for run in runs]):.0f} % hold multipliers"
        lines.append(f"| {name} | {error_of(own)} | {gap} | {shown.get(name, '')} | {cost} | {words} |")
    lines += [f"| {name} | | | {shown[name]} | | from the paper |" for name in ("LMNN", "ITML")]
    return "\n".join([*lines, "", verdict(data, runs)]) + "\n"


def verdict(data: str, runs: list[dict[str, Any]]) -> str:
    """Say whether the paper's numbers are reached: within two standard errors, or below."""
    words = []
    for name, value in zip(("pKNN", "pKNN-n"), PAPER[data][2:], strict=True):
        v = 100 * np.array([run["errors"][name] for run in runs])
        if value is None:
            words.append(f"{name}: the paper's number is unreadable")
            continue
        spread = 2 * v.std(ddof=1) / np.sqrt(len(v)) if len(v) > 1 else 0.0
        reached = v.mean() <= 100 - value + spread
        words.append(
            f"{name}: {'reached' if reached else 'not reached'} ({v.mean() - 100 + value:+.1f} points)"
        )
    return "; ".join(words) + "."


def usual(settings: list[Any]) -> str:
    """Return the most frequent setting and how often it was chosen."""
    shown = [str(tuple(one) if isinstance(one, list) else one) for one in settings]
    best = max(dict.fromkeys(shown), key=shown.count)
    return f"{best.strip('()')} ({shown.count(best)} of {len(shown)})".replace("'", "")


def readings_table(data: str, runs: list[dict[str, Any]]) -> str:
    """Return the readings of a data set as Markdown."""
    lines = [f"{data}, readings: {len(runs)} splits", ""]
    lines += [f"1-NN among the learning rows, each left out: {error_of([run['same'] for run in runs])} %", ""]
    lines += [
        "| width | alpha, beta | gamma | pKNN | pKNN-n | of 4 | hold multipliers, % | prior | prior on "
    ]
    lines[-1] += "learning rows | stopped |"
    lines += ["| --- " * 10 + "|"]
    prior = {row[0]: k for k, row in enumerate(runs[0]["prior"])}
    for k, (width, reading, gamma, *_) in enumerate(runs[0]["rows"]):
        cells = [error_of([run["rows"][k][j] for run in runs]) for j in (3, 4, 5)]
        cells += [f"{100 * np.mean([run['rows'][k][6] for run in runs]):.0f}"]
        cells += [error_of([run["prior"][prior[width]][j] for run in runs]) for j in (1, 2)]
        cells += [str(sum(not run["rows"][k][7] for run in runs))]
        lines.append(f"| {width} | {reading} | {gamma} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", spread(runs)]) + "\n"


def spread(runs: list[dict[str, Any]]) -> str:
    """Say how far pKNN's mean error goes over readings and over priors, and how low pKNN-n's."""
    keys = [tuple(row[:3]) for row in runs[0]["rows"]]
    means = 100 * np.mean([[row[3:6] for row in run["rows"]] for run in runs], axis=0)
    own: dict[Any, float] = dict(zip(keys, means[:, 0].tolist(), strict=True))
    ranges = {}
    for width, gamma in dict.fromkeys((key[0], key[2]) for key in keys):
        errors = [own[width, reading, gamma] for reading in MORE_READINGS]
        ranges[width, gamma] = max(errors) - min(errors)
    widest = sorted(ranges, key=lambda key: ranges[key])[::-1][:2]
    words = "; ".join(f"{ranges[key]:.1f} at prior {key[0]} and gamma {key[1]}" for key in widest)
    lines = ["pKNN, % over the readings at one prior and gamma: "]
    lines[0] += f"median range {np.median(list(ranges.values())):.1f}; widest {words}."
    for reading in MORE_READINGS:
        errors = [own[key] for key in keys if key[1] == reading]
        lines.append(f"pKNN over priors and gammas at {reading}: {min(errors):.1f} to {max(errors):.1f}.")
    least_of = [f"{means[:, j].min():.1f} with {k}" for j, k in ((1, "one neighbour"), (2, str(MANY)))]
    return "\n".join([*lines, f"pKNN-n, the least of {len(keys)}: {', '.join(least_of)}."])


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "part",
        nargs="?",
        choices=("table", "readings"),
        default="table",
        help="table: all methods, tuned (default); readings: pKNN under every reading of alpha and beta",
    )
    known = ",".join(DATA)
    parser.add_argument("--data", type=names_among(DATA), default=known, help=f"sets, of {known} (all)")
    parser.add_argument("--repeats", type=whole(1), default=5, help="times that a set is halved (5)")
    parser.add_argument("--data-folder", type=Path, default=FOLDER, help="folder of the uci_ files")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("neighbors_table"),
        help="folder of finished splits (neighbors_table)",
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore", message=".*training rows have a total|the prior gives .* a total")
    warnings.filterwarnings("ignore", message=".*TOTAL NO. OF|.*failed to converge")
    run, show = (one_split, table) if options.part == "table" else (one_reading, readings_table)
    for data in options.data:
        try:
            rows = load_rows(data, options.data_folder)
        except ValueError as error:
            parser.error(f"{data}: {error}")
        runs = []
        for repeat in range(options.repeats):
            for half, (known, test) in enumerate(folds(rows.y, 2, repeat)):
                path = options.out / f"{options.part}_{data}_{repeat}_{half}.json"
                runs.append(kept(path, lambda a=known, b=test, s=repeat, r=rows: run(r, a, b, s)))
        print(show(data, runs), flush=True)


if __name__ == "__main__":
    main()
