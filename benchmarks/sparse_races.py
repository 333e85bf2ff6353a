"""Mutual information against other choosers on real data, after Vasisht et al. (2014), section 6.4.

    python benchmarks/sparse_races.py [--data yeast,medical,...] [--splits 10] [--out FOLDER]

A split draws a third of the rows as the test set; the paper tests on whatever was not picked, which differs
from chooser to chooser. 200 random rows of the pool are labelled; noise, scale and length of the kernel
(rbf; cosine for sparse counts) come from the evidence on them and stay, ``--rule guarded`` takes the guarded
rule of `label_gp`. Each chooser then takes 250 rows, all their labels at once:

    random
    uncertainty     largest variance of the Gaussian process given the rows so far
    label_entropy   largest entropy of q(y) of ml_oss, refitted after every 50 rows (the paper's Uncert)
    miml            greedy mutual information over the pool
    miml_test       the same with the test rows in the ground set, never picked
    ivr             integrated variance over the pool, ivr_test over the test rows
    li_adaptive     Li and Guo (2013), 50 rows at most, in the first splits (`--li-adaptive`): it retrains
                    classifiers for every candidate; above 50 labels it is not run

After every 50 rows the test rows are predicted by ``ml_oss`` (a0 = b0 = 1e-6, 20 sweeps, half as many
measurements as labels), by ``plain_gp`` (the same kernel on all labels, no projection, no sparsity) and by
``logistic``, one-vs-rest logistic regression (C = 1). The score is the mean of P@1, P@2 and P@3. The table
has its mean over the checkpoints after the start, less that of ``random`` in the same split, in points, with
95 % intervals corrected for overlapping splits (Nadeau and Bengio 2003), not for the number of comparisons.

Every split is kept in --out as it ends; an interrupted command goes on there. Data are read from
LABELZOO_DATA (default ../shared/data).
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from kept_runs import kept
from scipy import sparse

from labelzoo.acquisition.catalogue import find
from labelzoo.acquisition.label_law import LabelLaw
from labelzoo.acquisition.mutual_information_greedy import greedy_entropy, greedy_mutual_information
from labelzoo.acquisition.problem import Problem
from labelzoo.data import load
from labelzoo.data.metrics import precision_at_k
from labelzoo.inference.label_gp.evidence import choose_hyperparameters
from labelzoo.inference.sparse_bayes.evidence import fit_hyperparameters
from labelzoo.inference.sparse_bayes.inductive import condition, fit_rows
from labelzoo.inference.sparse_bayes.plain_gp import plain_gp
from labelzoo.models.gp_kernel import GPKernel, feature_map, squared_distances
from labelzoo.models.label_gp import SETTINGS as GP_SETTINGS
from labelzoo.study.analysis import paired
from labelzoo.study.scoring import common_probs

Array = Any

FOLDER = Path(os.environ.get("LABELZOO_DATA", Path(__file__).resolve().parents[1] / ".." / "shared" / "data"))
DATA = ("yeast", "medical", "enron", "mediamill_small")
START, PICKS, EVERY, TEST_SHARE = 200, 250, 50, 1 / 3
LI_PICKS, LI_LABELS = 50, 50
PRIOR = {"shape": 1e-6, "rate": 1e-6, "sweeps": 20}
CHOOSERS = ("random", "uncertainty", "label_entropy", "miml", "miml_test", "ivr", "ivr_test", "li_adaptive")
PREDICTORS = ("ml_oss", "plain_gp", "logistic")


class Split(NamedTuple):
    """One split: features as the kernel sees them, labels, kernel, covariance scale K + noise I of all rows.

    Attributes
    ----------
    pool, test, start : int arrays
        Rows; ``start`` is part of ``pool``.
    """

    X: Array
    Y: Array
    kernel: GPKernel
    C: Array
    noise: float
    projection: Array
    pool: Array
    test: Array
    start: Array


def make_split(data: Any, seed: int, rule: str) -> Split:
    """Return the rows of a split and the kernel that the evidence on its first labels gives."""
    rng = np.random.default_rng([6, seed])
    order = rng.permutation(data.num_rows)
    cut = round(data.num_rows * TEST_SHARE)
    test, pool = np.sort(order[:cut]), order[cut:]
    start = pool[:START]
    Y = data.Y.toarray().astype(float)
    k = -(-data.num_labels // 2)
    projection = rng.standard_normal((k, data.num_labels)) / np.sqrt(k)
    features = feature_map(data.X[np.sort(pool)], "auto")
    X = features.mapped(data.X)
    zeros, ones = np.zeros(X.shape[1]), np.ones(X.shape[1])
    kernel, scale, noise = chosen_kernel(
        features._replace(center=zeros, scale=ones), X[start], Y[start], projection, rule
    )
    C = scale * kernel.of_mapped(X, X)
    C[np.diag_indices_from(C)] += noise
    return Split(X, Y, kernel, C, noise, projection, np.sort(pool), test, np.sort(start))


def chosen_kernel(
    plain: GPKernel, X: Array, Y: Array, projection: Array, rule: str
) -> tuple[GPKernel, float, float]:
    """Return kernel, scale and noise by the evidence of the compressed labels, or by a rule of label_gp."""
    T = Y @ projection.T
    if rule != "evidence":
        settings = {**GP_SETTINGS, "hyperparameters": rule}
        found = choose_hyperparameters(plain, X, Y, np.ones(Y.shape, bool), settings).kernel
        held = fit_hyperparameters(
            T, K=found.of_mapped(X, X) + found.noise_ratio * np.eye(len(T)), noise=1e-9
        )
        return found, held.scale, held.scale * found.noise_ratio
    if plain.is_cosine:
        best = fit_hyperparameters(T, K=plain.of_mapped(X, X))
        return plain._replace(noise_ratio=best.noise / best.scale), best.scale, best.noise
    best = fit_hyperparameters(T, distances2=squared_distances(X, X))
    sized = plain._replace(length2=best.length2, noise_ratio=best.noise / best.scale)
    return sized, best.scale, best.noise


def chosen_rows(split: Split, name: str, seed: int) -> Array:
    """Return the rows that a chooser takes, in order, without those of the start."""
    rest = np.setdiff1d(split.pool, split.start)
    picks = min(PICKS, len(rest))
    if name == "random":
        return np.random.default_rng([16, seed]).permutation(rest)[:picks]
    if name == "label_entropy":
        return by_label_entropy(split, rest, picks)
    if name in ("miml", "miml_test", "uncertainty"):
        ground = np.concatenate([split.start, rest, split.test if name == "miml_test" else []]).astype(int)
        seeds, candidates = np.arange(len(split.start)), len(split.start) + np.arange(len(rest))
        C = split.C[np.ix_(ground, ground)]
        if name == "uncertainty":
            return ground[greedy_entropy(C, seeds, picks).rows]
        return ground[greedy_mutual_information(C, seeds, picks, stop=False, candidates=candidates).rows]
    problem = Problem(
        X_pool=split.X[rest],
        X_labelled=split.X[split.start],
        Y_labelled=split.Y[split.start],
        X_targets=split.X[split.test] if name == "ivr_test" else None,
        kernel=split.kernel,
        seed=seed,
    )
    batch = LI_PICKS if name == "li_adaptive" else picks
    return rest[find(name.removesuffix("_test"))(problem, batch).rows]


def by_label_entropy(split: Split, rest: Array, picks: int) -> Array:
    """Return rows by 1/2 log |2 pi e Sigma_i| of q(y), the model refitted after every `EVERY` rows."""
    known, taken = split.start, np.zeros(0, int)
    while len(taken) < picks:
        left = np.setdiff1d(rest, taken)
        t, v = at_rows(split, known, left)
        fit = fit_rows(t, v, split.projection, **PRIOR)
        law = LabelLaw(fit.used, split.projection, v)
        entropy = -0.5 * log_determinants(law)
        best = left[np.argsort(-entropy, kind="stable")[: min(EVERY, picks - len(taken))]]
        known, taken = np.concatenate([known, best]), np.concatenate([taken, best])
    return taken


def log_determinants(law: LabelLaw) -> Array:
    """Return log |diag(a) + Phi' Phi / v| of every row: (row,)."""
    phi = law.projection
    out = np.empty(len(law.variance))
    for i, (a, v) in enumerate(zip(law.diagonal, law.variance, strict=True)):
        inner = np.eye(len(phi)) + (phi / a) @ phi.T / v
        out[i] = np.log(a).sum() + np.linalg.slogdet(inner)[1]
    return out


def at_rows(split: Split, known: Array, rows: Array) -> tuple[Array, Array]:
    """Return t and v of `rows` given the labels of `known`."""
    factor = np.linalg.cholesky(split.C[np.ix_(known, known)])
    return condition(
        factor, split.C[np.ix_(known, rows)], split.C.diagonal()[rows], split.Y[known] @ split.projection.T
    )


def scores(split: Split, known: Array, seed: int) -> dict[str, float]:
    """Return the mean of P@1 to P@3 on the test rows by every predictor."""
    factor = np.linalg.cholesky(split.C[np.ix_(known, known)])
    cross = split.C[np.ix_(known, split.test)]
    t, v = at_rows(split, known, split.test)
    guesses = {
        "ml_oss": fit_rows(t, v, split.projection, **PRIOR).mean,
        "plain_gp": plain_gp(factor, cross, split.Y[known]),
        "logistic": common_probs(split.X[known], split.Y[known], split.X[split.test], seed),
    }
    truth = sparse.csr_array(split.Y[split.test])
    return {
        name: float(np.mean([precision_at_k(truth, guess, k).value for k in (1, 2, 3)]))
        for name, guess in guesses.items()
    }


def one_split(data: Any, seed: int, rule: str, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the scores by chooser: a list over checkpoints of scores by predictor."""
    split = make_split(data, seed, rule)
    first = scores(split, split.start, seed)
    out: dict[str, Any] = {"seed": seed, "curves": {}, "seconds": {}}
    for name in names:
        began = time.process_time()
        rows = chosen_rows(split, name, seed)
        out["seconds"][name] = time.process_time() - began
        ends = range(EVERY, len(rows) + 1, EVERY)
        curve = [scores(split, np.concatenate([split.start, rows[:end]]), seed) for end in ends]
        out["curves"][name] = [first, *curve]
    out["kernel"] = {"length2": split.kernel.length2, "noise_ratio": split.kernel.noise_ratio}
    return out


def kept_split(folder: Path, data: Any, name: str, seed: int, rule: str, li_adaptive: bool) -> dict[str, Any]:
    """Return a split from its file, or run it and write the file."""
    names = tuple(c for c in CHOOSERS if c != "li_adaptive" or (li_adaptive and data.num_labels <= LI_LABELS))
    path = folder / f"{name}_{rule}_{seed:03d}.json"
    return kept(
        path, lambda: one_split(data, seed, rule, names), lambda found: set(names) <= set(found["curves"])
    )


def gaps(runs: list[dict[str, Any]], chooser: str, other: str, predictor: str) -> Array:
    """Return the mean score over shared checkpoints after the start, chooser less other, in points."""
    out = []
    for run in runs:
        if chooser in run["curves"]:
            one, two = ([row[predictor] for row in run["curves"][c][1:]] for c in (chooser, other))
            size = min(len(one), len(two))
            out.append(100 * (np.mean(one[:size]) - np.mean(two[:size])))
    return np.asarray(out)


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return by predictor: the mean scores at the start and the end, and gaps with intervals."""
    share = TEST_SHARE / (1 - TEST_SHARE)
    out: dict[str, Any] = {"splits": len(runs), "predictors": {}}
    out["seconds"] = {c: _mean([run["seconds"][c] for run in runs if c in run["seconds"]]) for c in CHOOSERS}
    pairs = [(c, "random") for c in CHOOSERS if c != "random"]
    pairs += [("miml", "uncertainty"), ("miml_test", "ivr_test")]
    for predictor in PREDICTORS:
        ends = {
            c: _mean([run["curves"][c][-1][predictor] for run in runs if c in run["curves"]])
            for c in CHOOSERS
        }
        told = {}
        for one, other in pairs:
            values = gaps(runs, one, other, predictor)
            if len(values):
                told[f"{one} - {other}"] = paired(values, share, 1)._asdict()
        start = _mean([run["curves"]["random"][0][predictor] for run in runs])
        out["predictors"][predictor] = {"start": start, "end": ends, "gaps": told}
    return out


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


def table(name: str, found: dict[str, Any]) -> str:
    """Return one data set as Markdown."""
    lines = [
        f"{name}: {found['splits']} splits, mean of P@1-3 at {START} rows: "
        + ", ".join(f"{p} {found['predictors'][p]['start']:.3f}" for p in PREDICTORS),
        "",
        "| | " + " | ".join(PREDICTORS) + " | seconds |",
        "| --- " * (len(PREDICTORS) + 2) + "|",
    ]
    for pair in found["predictors"][PREDICTORS[0]]["gaps"]:
        cells = []
        for predictor in PREDICTORS:
            gap = found["predictors"][predictor]["gaps"][pair]
            low, high = gap["interval"]
            cells.append(f"{gap['difference']:+.2f} [{low:+.2f}, {high:+.2f}]")
        seconds = found["seconds"][pair.split(" ")[0]]
        lines.append(f"| {pair} | " + " | ".join(cells) + f" | {seconds:.1f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=",".join(DATA))
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--li-adaptive", type=int, default=3, metavar="N", help="splits in which it is run")
    parser.add_argument("--rule", default="evidence", choices=("evidence", "guarded"))
    parser.add_argument("--out", type=Path, default=Path("sparse_races"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    results = {}
    for name in options.data.split(","):
        path = FOLDER / "npz" / f"{name}.npz"
        if not path.is_file():
            print(f"{name}: not run, no file {path}")
            continue
        data = load(path)
        runs = [
            kept_split(options.out, data, name, seed, options.rule, seed < options.li_adaptive)
            for seed in range(options.splits)
        ]
        results[name] = summary(runs)
        if not options.json:
            print(table(name, results[name]), flush=True)
    if options.json:
        print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
