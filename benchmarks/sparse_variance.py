"""Means and variances of two inferences of the sparse Bayesian model, and the limit of its Theorem 1.

    python benchmarks/sparse_variance.py [--data FILE.npz] [--picture variance.png] [--json]
    python benchmarks/sparse_variance.py --theorem [--json]

The first prints and draws what Figure 4 (a, b) of Vasisht et al. (2014) shows: over test rows, given fully
observed training rows, the means of ``ml_oss`` against those of ``bml_cs`` (2012 mean field) for five test
rows drawn at random, and the variances of the first label, minus their logarithm. Each inference first with
its own precisions after 20 sweeps, as in the paper; then both at the precisions of ``ml_oss``, where the
means must be equal and the covariance of every row larger in the Loewner order; then at precision 1, where
the variance of ``ml_oss`` is that of the regression and the variance of ``bml_cs`` is the same in every row.
The paper's image set is not public: without ``--data`` it is the toy data of `sparse_toy_data`, 100 training
and 300 test rows. RBF kernel on standardised features, noise, scale and length by the evidence, sigma2 = chi2
= half the noise.

The second prints entropies of p(x) in proportion to N(x; m, s2) (1 + x^2 / 2 b0)^-c at m = .8, s2 = .5, and
the mutual information of two such coordinates under a Gaussian of correlation .6, as a0 = b0 go to 0. With c
= a0, the potential of the paper's (4), both go to those of the Gaussian; with c = a0 + 1/2, which the
normalised prior of its (1) and the updates have, the entropy falls without limit and the information towards
0.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from sparse_toy_data import toy_data

from labelzoo.data import load
from labelzoo.inference.sparse_bayes import bml_cs, inductive
from labelzoo.inference.sparse_bayes.evidence import evidence_rows, fit_hyperparameters
from labelzoo.models.gp_kernel import feature_map, squared_distances
from labelzoo.whole_file import whole_file

Array = Any

PRIOR = {"shape": 1e-6, "rate": 1e-6, "sweeps": 20}
TRAIN, TEST, SHOWN = 100, 300, 5
MEAN, VARIANCE, CORRELATION = 0.8, 0.5, 0.6
SECOND_MEAN = 0.3
SCALES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8)


def rows_of(path: Path | None, seed: int) -> tuple[Array, Array, Array]:
    """Return training features, training labels and test features, drawn at random."""
    rng = np.random.default_rng(seed)
    if path is None:
        toy = toy_data(rng, TRAIN, TEST)
        return toy.X, toy.Y, toy.X_test
    data = load(path)
    if data.missing is not None:
        raise SystemExit(f"{path}: labels are missing; the training rows must have all of them")
    order = rng.permutation(data.num_rows)
    if len(order) <= TRAIN:
        raise SystemExit(f"{path}: {len(order)} rows are too few for {TRAIN} training rows and a test row")
    train, test = np.sort(order[:TRAIN]), np.sort(order[TRAIN : TRAIN + TEST])
    X = data.X.toarray() if hasattr(data.X, "toarray") else np.asarray(data.X)
    return X[train], data.Y[train].toarray().astype(float), X[test]


def conditions(X: Array, Y: Array, X_test: Array, seed: int) -> tuple[Array, Array, Array, float]:
    """Return t, v, the projection and the noise chosen by the evidence."""
    features = feature_map(X, "rbf")
    A, B = features.mapped(X), features.mapped(X_test)
    k = max(1, Y.shape[1] // 2)
    projection = np.random.default_rng([seed, 1]).standard_normal((k, Y.shape[1])) / np.sqrt(k)
    T, rows = Y @ projection.T, evidence_rows(len(Y))
    found = fit_hyperparameters(T[rows], distances2=squared_distances(A[rows], A[rows]))
    scaled = [found.scale * np.exp(-0.5 * squared_distances(A, Z) / found.length2) for Z in (A, B)]
    factor = np.linalg.cholesky(scaled[0] + found.noise * np.eye(len(A)))
    t, v = inductive.condition(factor, scaled[1], np.full(len(B), found.scale + found.noise), T)
    return t, v, projection, found.noise


def compare(path: Path | None, seed: int) -> dict[str, Any]:
    """Return means and variances of both, and the numbers that describe them."""
    t, v, projection, noise = conditions(*rows_of(path, seed), seed)
    chi2 = noise / 2
    wide = inductive.fit_rows(t, v, projection, **PRIOR)
    narrow = bml_cs.new_rows(t, v, projection, chi2=chi2, **PRIOR)
    mean, variance = inductive.at_alpha(t, v, projection, wide.used)
    other, tight = bml_cs.at_alpha(t, v, projection, wide.used, chi2=chi2)
    shown = np.sort(np.random.default_rng(seed).permutation(len(t))[:SHOWN])
    numbers = {
        "rows": len(t),
        "labels": projection.shape[1],
        "measurements": projection.shape[0],
        "noise": noise,
        "own": describe((wide.mean, wide.variance), (narrow.mean, narrow.variance), v),
        "equal_precision": describe((mean, variance), (other, tight), v),
        "precision_one": describe(*at_one(t, v, projection, chi2), v),
    }
    gaps = [loewner_gap(a, s, chi2, projection) for a, s in zip(wide.used, v, strict=True)]
    numbers["equal_precision"]["largest_mean_difference"] = float(np.abs(mean - other).max())
    numbers["equal_precision"]["smallest_eigenvalue"] = float(min(gaps))
    arrays = {"mean": (wide.mean, narrow.mean), "variance": (wide.variance, narrow.variance), "shown": shown}
    return {"numbers": numbers, "arrays": arrays}


def at_one(t: Array, v: Array, projection: Array, chi2: float) -> tuple[tuple[Array, Array], ...]:
    """Return means and variances of both at precision 1 everywhere: what the regression alone says."""
    ones = np.ones((len(t), projection.shape[1]))
    wide = inductive.at_alpha(t, v, projection, ones)
    return wide, bml_cs.at_alpha(t, v, projection, ones, chi2=chi2)


def describe(wide: tuple[Array, Array], narrow: tuple[Array, Array], v: Array) -> dict[str, float]:
    """Return how means and variances (row, labels) of ``ml_oss`` and ``bml_cs`` go together."""
    logs = [-np.log(np.maximum(variance, 1e-300)) for variance in (wide[1], narrow[1])]
    return {
        "mean_correlation": correlation(wide[0], narrow[0]),
        "variance_correlation_label_0": correlation(logs[0][:, 0], logs[1][:, 0]),
        "sd_of_minus_log_variance_label_0_ml_oss": float(logs[0][:, 0].std()),
        "sd_of_minus_log_variance_label_0_bml_cs": float(logs[1][:, 0].std()),
        "share_of_cells_ml_oss_larger": float((wide[1] > narrow[1]).mean()),
        "median_variance_ratio": float(np.median(wide[1] / np.maximum(narrow[1], 1e-300))),
        "rank_correlation_with_v_ml_oss": rank_correlation(wide[1].sum(axis=1), v),
        "rank_correlation_with_v_bml_cs": rank_correlation(narrow[1].sum(axis=1), v),
    }


def correlation(a: Array, b: Array) -> float:
    """Return the correlation of all entries, NaN where one of the two does not vary."""
    if min(np.ptp(a), np.ptp(b)) < 1e-10:
        return float("nan")
    return float(np.corrcoef(np.ravel(a), np.ravel(b))[0, 1])


def rank_correlation(a: Array, b: Array) -> float:
    """Return Spearman's rank correlation, no ties; NaN where one of the two does not vary."""
    if min(np.ptp(a), np.ptp(b)) < 1e-10:
        return float("nan")
    return correlation(np.argsort(np.argsort(a)), np.argsort(np.argsort(b)))


def loewner_gap(alpha: Array, v: float, chi2: float, projection: Array) -> float:
    """Return the smallest eigenvalue of the one covariance less the other, over the larger one's largest."""
    wide, tight = (np.linalg.inv(inductive.row_precision(alpha, s, projection)) for s in (v, chi2))
    return float(np.linalg.eigvalsh(wide - tight)[0] / np.linalg.eigvalsh(wide)[-1])


def picture(arrays: dict[str, Any], path: Path) -> None:
    """Draw means of five rows and variances of the first label."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 4.2), constrained_layout=True)
    for row in arrays["shown"]:
        left.plot(arrays["mean"][1][row], arrays["mean"][0][row], "o", markersize=4, label=f"row {row}")
    left.axline((0, 0), slope=1, color="0.6", linewidth=0.8)
    left.set(xlabel="mean, bml_cs", ylabel="mean, ml_oss", title="all labels of five test rows")
    left.legend(fontsize=8)
    logs = [-np.log(np.maximum(part[:, 0], 1e-300)) for part in arrays["variance"]]
    right.plot(logs[1], logs[0], "o", markersize=3)
    right.axline((float(logs[0].mean()),) * 2, slope=1, color="0.6", linewidth=0.8, label="equal")
    right.legend(fontsize=8)
    right.set(
        xlabel="-log variance, bml_cs", ylabel="-log variance, ml_oss", title="first label, all test rows"
    )
    with whole_file(path) as temporary:
        figure.savefig(temporary, dpi=150)
    plt.close(figure)


def grid(b0: float, count: int) -> tuple[Array, Array]:
    """Return points x = sqrt(2 b0) sinh(u) over +-12 and log dx / du times the step, for trapezoid sums."""
    width = np.sqrt(2 * b0)
    u = np.linspace(-1, 1, count) * np.arcsinh(12 / width)
    return width * np.sinh(u), np.log(width * np.cosh(u) * (u[1] - u[0]))


def entropy(log_density: Array, log_step: Array) -> float:
    """Return the entropy in nats of an unnormalised log density by quadrature."""
    weights = log_density + log_step
    top = weights.max()
    total = np.exp(weights - top)
    return float(np.log(total.sum()) + top - (total * log_density).sum() / total.sum())


def one_dimension(a0: float, b0: float, extra: float) -> float:
    """Return the entropy of N(x; m, s2) (1 + x^2 / 2 b0)^-(a0 + extra)."""
    x, log_step = grid(b0, 40001)
    log_density = -0.5 * (x - MEAN) ** 2 / VARIANCE - (a0 + extra) * np.log1p(x**2 / (2 * b0))
    return entropy(log_density, log_step)


def two_dimensions(a0: float, b0: float, extra: float) -> float:
    """Return the mutual information of two coordinates, both with the factor."""
    x, log_step = grid(b0, 1201)
    own = -(a0 + extra) * np.log1p(x**2 / (2 * b0))
    precision = np.linalg.inv(VARIANCE * np.array([[1.0, CORRELATION], [CORRELATION, 1.0]]))
    a, b = (x - MEAN)[:, None], (x - SECOND_MEAN)[None]
    quadratic = precision[0, 0] * a**2 + 2 * precision[0, 1] * a * b + precision[1, 1] * b**2
    logs = -0.5 * quadratic + own[:, None] + own[None]
    margins = [np.logaddexp.reduce(logs + log_step, axis=1), np.logaddexp.reduce(logs.T + log_step, axis=1)]
    single = sum(entropy(margin, log_step) for margin in margins)
    return single - entropy(logs, log_step[:, None] + log_step[None])


def theorem() -> dict[str, Any]:
    """Return the table of the limit."""
    rows = []
    for scale in SCALES:
        row: dict[str, float] = {"a0 = b0": scale}
        for name, extra in (("a0", 0.0), ("a0 + 1/2", 0.5)):
            row[f"H, c = {name}"] = one_dimension(scale, scale, extra)
            row[f"MI, c = {name}"] = two_dimensions(scale, scale, extra)
        rows.append(row)
    limit = {
        "H": float(0.5 * np.log(2 * np.pi * np.e * VARIANCE)),
        "MI": float(-0.5 * np.log(1 - CORRELATION**2)),
    }
    return {"rows": rows, "gaussian": limit}


def theorem_text(found: dict[str, Any]) -> str:
    """Return the table as text."""
    names = ("H, c = a0", "H, c = a0 + 1/2", "MI, c = a0", "MI, c = a0 + 1/2")
    lines = ["a0 = b0   " + "".join(f"{name:>19}" for name in names)]
    for row in found["rows"]:
        lines.append(f"{row['a0 = b0']:<10.0e}" + "".join(f"{row[name]:>19.6f}" for name in names))
    limit = found["gaussian"]
    ends = (limit["H"], float("-inf"), limit["MI"], 0.0)
    lines.append(f"{'limit':<10}" + "".join(f"{value:>19.6f}" for value in ends))
    lines.append(f"The Gaussian has H = {limit['H']:.6f} and MI = {limit['MI']:.6f} nats.")
    return "\n".join(lines)


def comparison_text(numbers: dict[str, Any]) -> str:
    """Return the numbers as text."""
    sizes = ", ".join(f"{numbers[name]} {name}" for name in ("rows", "labels", "measurements"))
    lines = [f"{sizes}; noise {numbers['noise']:.4g}"]
    titles = {
        "own": "each at its own precisions",
        "equal_precision": "both at those of ml_oss",
        "precision_one": "both at precision 1",
    }
    for part, title in titles.items():
        lines.append(f"\n{title}")
        lines += [f"  {name.replace('_', ' '):<44}{value: .4g}" for name, value in numbers[part].items()]
    return "\n".join(lines)


def json_text(numbers: dict[str, Any]) -> str:
    """Return the numbers as JSON, null for NaN."""
    return json.dumps(json.loads(json.dumps(numbers), parse_constant=lambda _: None), indent=1)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--theorem", action="store_true", help="the table of Theorem 1's limit")
    parser.add_argument("--data", type=Path, default=None, help="npz file in place of the toy data")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", type=Path, default=None)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.theorem:
        found = theorem()
        print(json.dumps(found, indent=1) if options.json else theorem_text(found))
        return
    result = compare(options.data, options.seed)
    if options.picture is not None:
        picture(result["arrays"], options.picture)
    print(json_text(result["numbers"]) if options.json else comparison_text(result["numbers"]))


if __name__ == "__main__":
    main()
