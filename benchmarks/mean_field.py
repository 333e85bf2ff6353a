"""Time and accuracy of the mean field of label_logistic.

``python benchmarks/mean_field.py`` fits the training parts of emotions and medical with 100 draws and prints
seconds (compilation included) and iterations, then, for several tolerances, the most iterations of a label
and the largest error that is left in a probability at the training rows, against a fit with tolerance 1e-12.
Data are read from LABELZOO_DATA (default ../shared/data).
"""

import os
import re
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from labelzoo.data import load
from labelzoo.inference.fit import fit
from labelzoo.inference.predict import mean_prob

FOLDER = Path(os.environ.get("LABELZOO_DATA", Path(__file__).resolve().parents[1] / ".." / "shared" / "data"))
TOLERANCES = (1e-3, 1e-4, 1e-6, 1e-8)


def run(data: Any, tolerance: float) -> tuple[np.ndarray, int, float]:
    """Return probabilities, the most iterations of a label, and seconds."""
    begin = time.perf_counter()
    options = {"num_samples": 100, "khat_samples": 0, "tolerance": tolerance}
    tree = fit("label_logistic", data, "mean_field", **options)
    seconds = time.perf_counter() - begin
    steps = re.search(r"in (\d+) steps", tree.attrs["message"])
    return mean_prob(tree, data), int(steps[1]) if steps else -1, seconds


def main() -> None:
    """Run from the command line."""
    warnings.simplefilter("ignore", UserWarning)
    for name in ("emotions", "medical"):
        path = FOLDER / "npz" / f"{name}.npz"
        if not path.is_file():
            print(f"{name}: not run, no file {path}")
            continue
        train, _ = load(path).published_split()
        _, steps, seconds = run(train, 1e-6)
        print(f"{name}: {train.num_rows} rows, {train.num_features} features, {train.num_labels} labels:")
        print(f"  {seconds:.1f} s, {steps} iterations")
        exact, _, _ = run(train, 1e-12)
        for tolerance in TOLERANCES:
            probs, steps, _ = run(train, tolerance)
            print(f"  tolerance {tolerance:.0e}: {steps} iterations, error {np.abs(probs - exact).max():.1e}")


if __name__ == "__main__":
    main()
