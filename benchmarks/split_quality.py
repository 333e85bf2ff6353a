"""What stratification buys: labels absent from a fold, and how far label and pair shares stray.

``python benchmarks/split_quality.py`` makes ten folds of enron, bibtex and medical at random (twenty seeds)
and stratified in the first and second order (five seeds) and prints the means of: labels with a positive but
none in some fold; mean absolute difference between a label's share of positives in a fold and in the whole,
x 1000; the same for pairs of labels that occur. Data are read from LABELZOO_DATA (default ../shared/data).
"""

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, triu

from labelzoo.data import AbsentLabelsWarning, fold_rows, load

FOLDER = Path(os.environ.get("LABELZOO_DATA", Path(__file__).resolve().parents[1] / ".." / "shared" / "data"))
SETS = ("enron", "bibtex", "medical")
KINDS: tuple[tuple[str, dict[str, Any], int], ...] = (
    ("random", {"method": "random"}, 20),
    ("order 1", {"method": "stratified", "order": 1}, 5),
    ("order 2", {"method": "stratified", "order": 2}, 5),
)


def pairs_of(Y: csr_array) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of labels that occur together."""
    together = triu(Y.T.astype(float) @ Y.astype(float), k=1).tocoo()
    return together.row, together.col


def stray(table: csr_array, folds: Any) -> float:
    """Return the mean absolute difference of column shares between folds and whole."""
    whole = np.asarray(table.mean(axis=0)).ravel()
    parts = np.array([np.asarray(table[rows].mean(axis=0)).ravel() for rows in folds])
    return float(np.abs(parts - whole).mean())


def main() -> None:
    """Run from the command line."""
    warnings.simplefilter("ignore", AbsentLabelsWarning)
    for name in SETS:
        path = FOLDER / "npz" / f"{name}.npz"
        if not path.is_file():
            print(f"{name}: not run, no file {path}")
            continue
        data = load(path)
        Y = csr_array(data.Y.astype(float))
        left, right = pairs_of(data.Y)
        pairs = csr_array(Y.tocsc()[:, left].multiply(Y.tocsc()[:, right]))
        for kind, options, seeds in KINDS:
            found = [fold_rows(data, 10, seed, **options) for seed in range(seeds)]
            absent = np.mean([len(one.absent.labels) for one in found])
            labels = np.mean([stray(Y, one.folds) for one in found])
            both = np.mean([stray(pairs, one.folds) for one in found])
            print(
                f"{name:<9}{kind:<9}absent {absent:5.1f}  labels {1e3 * labels:5.2f}  pairs {1e3 * both:5.2f}"
            )


if __name__ == "__main__":
    main()
