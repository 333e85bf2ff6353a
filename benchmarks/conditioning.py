"""What knowing half of a row's labels says about the other half: conditioned against not, one fitted model.

    python benchmarks/conditioning.py --data bibtex --topics 20 50 100 159 [--seed 0] [--json]

NAME or NAME.npz of ``--data`` is looked for in the folder npz of LABELZOO_DATA (default ../shared/data); a
path to a file is taken as it is.

Rows: a test part (the published one where there is one, else a fifth), and of the rest 15 % to choose the
number of topics, 15 % to recalibrate, and the others to fit with ``vb_em``. Of every test row each label is
known with probability one half; scores are of the other labels. The number of topics is chosen on the tuning
rows by per-example AUC, once for either way of predicting. Differences are paired over test rows.
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from topic_tables import data_path

from labelzoo.calibration import calibrate
from labelzoo.completion import complete
from labelzoo.data import LabelData, load, metrics
from labelzoo.data.missing import missing_from_observed
from labelzoo.inference.fit import fit
from labelzoo.inference.predict import mean_prob

WAYS = ("features only", "half the labels known")


class Parts(NamedTuple):
    """Disjoint rows."""

    fit: LabelData
    tune: LabelData
    calibrate: LabelData
    test: LabelData


def parts_of(data: LabelData, seed: int) -> Parts:
    """Return the four parts; the warning of absent labels is not wanted here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rest, test = data.published_split() if data.train_index is not None else data.split(0.2, seed=seed)
        rest, tune = rest.split(0.15, seed=seed + 1)
        train, held = rest.split(0.15 / 0.85, seed=seed + 2)
    return Parts(train, tune, held, test)


def half_known(data: LabelData, seed: int) -> tuple[LabelData, np.ndarray]:
    """Return `data` with a random half of the cells missing, and which cells are missing."""
    asked = np.random.default_rng(seed).random((data.num_rows, data.num_labels)) < 0.5
    Y = data.Y.toarray()
    Y[asked] = 0
    known = LabelData(
        data.X, Y, missing=missing_from_observed(~asked), feature_names=data.feature_names,
        label_names=data.label_names, example_names=data.example_names,
    )  # fmt: skip
    return known, asked


def only(data: LabelData, asked: np.ndarray) -> LabelData:
    """Return `data` where the asked cells alone are observed."""
    Y = data.Y.toarray()
    Y[~asked] = 0
    names = {"label_names": data.label_names, "example_names": data.example_names}
    return LabelData(
        data.X, Y, missing=missing_from_observed(asked), feature_names=data.feature_names, **names
    )


def both(tree: Any, data: LabelData, seed: int) -> tuple[dict[str, np.ndarray], LabelData]:
    """Return the two tables of probabilities, and the labels asked for."""
    known, asked = half_known(data, seed)
    given = complete(tree, known)["prob"].values
    return dict(zip(WAYS, (mean_prob(tree, data), given), strict=True)), only(data, asked)


def per_row(probs: np.ndarray, asked: LabelData) -> dict[str, np.ndarray]:
    """Return per-example AUC and log score (nats a row) of the asked labels: two arrays (row,)."""
    known = {"missing": asked.missing}
    return {
        "auc": metrics.per_example_auc(asked.Y, probs, **known).each,
        "log_score": metrics.log_score(asked.Y, probs, **known).each,
    }


def mean_and_error(each: np.ndarray) -> tuple[float, float]:
    """Return mean and standard error over the rows where it is defined."""
    each = each[~np.isnan(each)]
    return float(each.mean()), float(each.std(ddof=1) / np.sqrt(len(each)))


def run(data: LabelData, topics: list[int], seed: int) -> dict[str, Any]:
    """Fit every number of topics, choose, recalibrate and score."""
    parts = parts_of(data, seed)
    trees, tuned, seconds = {}, {}, {}
    for count in topics:
        start = time.perf_counter()
        trees[count] = fit("bernoulli_poisson_topics", parts.fit, "vb_em", num_topics=count, seed=seed)
        probs, asked = both(trees[count], parts.tune, seed)
        tuned[count] = {way: float(np.nanmean(per_row(p, asked)["auc"])) for way, p in probs.items()}
        seconds[count] = time.perf_counter() - start
    chosen = {way: max(topics, key=lambda count: tuned[count][way]) for way in WAYS}
    found: dict[str, Any] = {"chosen": chosen, "tuning_auc": tuned, "seconds": seconds, "ways": {}}
    rows = {}
    for way in WAYS:
        tree = trees[chosen[way]]
        probs, asked = both(tree, parts.calibrate, seed)
        pair = calibrate(probs[way], asked, apart_from=[parts.fit, parts.tune, parts.test])
        start = time.perf_counter()
        probs, asked = both(tree, parts.test, seed)
        took = time.perf_counter() - start
        rows[way] = per_row(probs[way], asked)
        rows[way]["log_score_recalibrated"] = per_row(pair.apply(probs[way]), asked)["log_score"]
        found["ways"][way] = {name: mean_and_error(each) for name, each in rows[way].items()}
        found["ways"][way] |= {"slope": pair.slope, "intercept": pair.intercept, "test_seconds": took}
    found["difference"] = {
        name: mean_and_error(rows[WAYS[1]][name] - rows[WAYS[0]][name]) for name in rows[WAYS[0]]
    }
    return found | {"test_rows": parts.test.num_rows, "rows_fitted": parts.fit.num_rows}


def as_text(name: str, found: dict[str, Any]) -> str:
    """Return lines of a Markdown table, and what K was chosen by."""
    lines = []
    for way, one in found["ways"].items():
        numbers = (
            f"{one[k][0]:.4f} ± {one[k][1]:.4f}" for k in ("auc", "log_score", "log_score_recalibrated")
        )
        lines.append(f"| {name} | {way} | {found['chosen'][way]} | {' | '.join(numbers)} |")
    numbers = (f"{mean:+.4f} ± {error:.4f}" for mean, error in found["difference"].values())
    lines.append(f"| {name} | difference | | {' | '.join(numbers)} |\n")
    for way in WAYS:
        tuned = ", ".join(f"{one[way]:.4f} at K = {count}" for count, one in found["tuning_auc"].items())
        lines.append(f"AUC on the tuning rows, {way}: {tuned}")
    return "\n".join([*lines, f"{found['rows_fitted']} rows fitted, {found['test_rows']} test rows"])


def file_of(name: str) -> Path:
    """Return the file of ``--data``: one that is there, else a data set by its name."""
    path = Path(name)
    bare = path.name == name and not path.exists()
    return data_path(name.removesuffix(".npz")) if bare else path


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True)
    parser.add_argument("--topics", type=int, nargs="+", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    path = file_of(options.data)
    found = run(load(str(path)), options.topics, options.seed)
    name = path.name.removesuffix(".npz")
    print(json.dumps(found) if options.json else as_text(name, found))


if __name__ == "__main__":
    main()
