"""Held-out accuracy of the EM engines of Bernoulli-Poisson topics beside plain baselines.

    python benchmarks/em_predictive.py --data emoji --seed 0 [--json] [--topics 50 L] [--float32]

A random fifth of the rows is held out. Baselines: the frequency of each label, and one logistic regression
a label (scikit-learn, rows of unit length, C chosen by log score on a fifth of the training rows, or C at the
model's own prior variance; a label that the training rows never show, or always show, is predicted by its
smoothed frequency). Seconds are those of fitting; compilation stands apart.
"""

import argparse
import json
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from labelzoo.data import LabelData, load, metrics
from labelzoo.inference.bernoulli_poisson_topics.em import MAP_EM, VB_EM
from labelzoo.inference.predict import mean_prob
from labelzoo.models.bernoulli_poisson_topics_card import spec

PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0)


def scores(test: LabelData, probs: np.ndarray) -> dict[str, float]:
    """Return per-example and macro AUC, precision at 1 and the log score (nats a row) on the test rows."""
    return {
        "per_example_auc": metrics.per_example_auc(test.Y, probs).value,
        "macro_auc": metrics.macro_auc(test.Y, probs).value,
        "p_at_1": metrics.precision_at_k(test.Y, probs, k=1).value,
        "log_score": metrics.log_score(test.Y, probs).value,
    }


def smoothed_frequency(data: LabelData) -> np.ndarray:
    """Return (positives + 1/2) / (rows + 1) of every label."""
    return (np.asarray(data.Y.sum(axis=0)).ravel() + 0.5) / (data.num_rows + 1.0)


def unit_rows(X: Any) -> sparse.csr_array:
    """Return the rows scaled to length one, as csr with the 32-bit indices that liblinear asks for."""
    X = sparse.csr_array(X, dtype=float, copy=True)
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    length = np.sqrt(np.asarray((X**2).sum(axis=1)).ravel())
    X.data /= np.repeat(np.where(length > 0, length, 1.0), np.diff(X.indptr))
    return X


def logistic_probs(train: LabelData, test: LabelData, penalty: float) -> np.ndarray:
    """Fit one logistic regression a label; labels of one class only keep their smoothed frequency."""
    X, X_new, Y = unit_rows(train.X), unit_rows(test.X), train.Y.tocsc()
    probs = np.tile(smoothed_frequency(train), (test.num_rows, 1))
    for label in range(train.num_labels):
        y = Y[:, [label]].toarray().ravel()
        if 0 < y.sum() < y.size:
            model = LogisticRegression(C=penalty, solver="liblinear", intercept_scaling=10.0)
            probs[:, label] = model.fit(X, y).predict_proba(X_new)[:, 1]
    return probs


def tuned_penalty(train: LabelData, seed: int) -> float:
    """Return the C of `PENALTIES` with the best log score on a fifth of the training rows."""
    fit, validate = train.split(0.2, seed + 1)
    values = [metrics.log_score(validate.Y, logistic_probs(fit, validate, c)).value for c in PENALTIES]
    return PENALTIES[int(np.argmax(values))]


def results(
    data: LabelData, seed: int, topics: list[int], prior_scale: float, dtype: str
) -> Iterator[dict[str, Any]]:
    """Yield one row of the table a method."""
    train, test = data.split(0.2, seed)
    frequency = np.tile(smoothed_frequency(train), (test.num_rows, 1))
    yield {
        "method": "label frequencies",
        "fit_seconds": 0.0,
        "compile_seconds": 0.0,
        **scores(test, frequency),
    }
    penalty = tuned_penalty(train, seed)
    began = time.perf_counter()
    probs = logistic_probs(train, test, penalty)
    seconds = time.perf_counter() - began
    name = f"logistic regression, C={penalty:g} (tuned)"
    yield {"method": name, "fit_seconds": seconds, "compile_seconds": 0.0, **scores(test, probs)}
    equal = prior_scale**2
    row = scores(test, logistic_probs(train, test, equal))
    name = f"logistic regression, C={equal:g} (same prior)"
    yield {"method": name, "fit_seconds": seconds, "compile_seconds": 0.0, **row}
    for num_topics in topics:
        for engine in (MAP_EM, VB_EM):
            settings = {"num_topics": num_topics, "prior_scale": prior_scale, "dtype": dtype}
            tree = engine(spec, train, rng_key=seed, **settings)
            yield {
                "method": f"{engine.name}, K={num_topics}",
                "fit_seconds": tree.attrs["run_seconds"],
                "compile_seconds": tree.attrs["compile_seconds"],
                "sweeps": int(tree.attrs["num_sweeps"]),
                **scores(test, mean_prob(tree, test)),
            }


def main() -> None:
    """Read the arguments, print one line a method (or one JSON object)."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="emoji", help="emoji, or the path of an .npz file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--topics", nargs="+", default=["50", "L"], help="numbers of topics; L: as many as labels"
    )
    parser.add_argument("--prior-scale", type=float, default=2.0, help="prior sd of the linear predictor")
    parser.add_argument("--float32", action="store_true", help="run the sweeps in single precision")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    data = load(arguments.data)
    topics = [data.num_labels if k == "L" else int(k) for k in arguments.topics]
    rows = []
    dtype = "float32" if arguments.float32 else "float64"
    for row in results(data, arguments.seed, topics, arguments.prior_scale, dtype):
        rows.append(row)
        if not arguments.json:
            numbers = "  ".join(f"{name} {row[name]:.4g}" for name in row if name != "method")
            print(f"{row['method']:42s}  {numbers}", flush=True)
    if arguments.json:
        print(json.dumps({"data": arguments.data, "seed": arguments.seed, "rows": rows}))


if __name__ == "__main__":
    main()
