"""Kernel, amplitudes and noise of label_gp by the evidence on a grid, with guards.

With few rows the evidence alone lands at the edge of any grid: short lengths and tiny noise, under which a
kernel score chases single rows. ``guarded`` adds a log-normal prior centred on length2 = .7 times the median
squared distance and a noise ratio of .7, and a floor of .25 times the median and a ratio of .2; ``floor`` has
the floor without the prior.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from labelzoo.models.gp_kernel import RULES, GPKernel, median_squared_distance

Array = Any

FLOOR_FACTOR, FLOOR_RATIO = 0.25, 0.2
PRIOR_CENTRE = 0.7
PRIOR_SD = 0.5
"""Of log(length2 / median) and of log(noise ratio)."""
MAX_ROWS = 1000
"""Labelled rows, evenly spaced, that the evidence reads: each length costs their third power."""
MAX_PATTERNS = 8
"""Sets of observed rows, those with most labels, that the evidence reads where labels are missing."""
AMPLITUDE_WEIGHT = 2.0
"""Rows that the shared amplitude counts for in that of each label."""


class Hyperparameters(NamedTuple):
    """Kernel with its length and noise ratio, mean and amplitude (labels,), log evidence (nats), rule."""

    kernel: GPKernel
    mean: Array
    amplitude: Array
    log_evidence: float


class Pattern(NamedTuple):
    """Labels (their number m and residuals (rows, m)) that are observed at the same rows."""

    rows: Array
    residual: Array


def choose_hyperparameters(
    kernel: GPKernel, X: Array, Y: Array, observed: Array, settings: Mapping[str, Any]
) -> Hyperparameters:
    """Choose length scale, noise ratio and amplitudes from the labelled rows.

    Parameters
    ----------
    kernel : GPKernel
        With its map of the features.
    X : (row, feature) dense or csr
    Y, observed : (row, labels)
    settings : mapping
        ``hyperparameters``, ``length_factor``, ``noise_ratio``.

    Raises
    ------
    ValueError
        If the rule is unknown or no row has an observed label.
    """
    rule = settings["hyperparameters"]
    if rule not in RULES:
        raise ValueError(f"hyperparameters must be one of {', '.join(RULES)}, got {rule!r}")
    labelled = np.flatnonzero(observed.any(axis=1))
    if not labelled.size:
        raise ValueError("data: no row has an observed label")
    mean = smoothed_frequency(Y, observed)
    if len(labelled) > MAX_ROWS:
        labelled = labelled[np.linspace(0, len(labelled) - 1, MAX_ROWS).round().astype(int)]
    mapped = kernel.mapped(X)
    median = 1.0 if kernel.is_cosine else median_squared_distance(mapped)
    patterns = observed_patterns(Y[labelled] - mean, observed[labelled])
    rows = mapped[labelled]
    best = (-np.inf, 1.0, 1.0)
    for factor in lengths(rule, kernel, settings["length_factor"]):
        sized = kernel._replace(length2=float(factor * median))
        K = sized.of_mapped(rows, rows)
        spectra = [spectrum(K, pattern) for pattern in patterns]
        for ratio in ratios(rule, settings["noise_ratio"]):
            value = log_evidence(spectra, ratio) + log_prior(rule, factor, ratio, kernel.is_cosine)
            best = max(best, (value, factor, ratio))
    value, factor, ratio = best
    sized = kernel._replace(length2=float(factor * median), noise_ratio=float(ratio))
    amplitude = amplitudes(sized.of_mapped(rows, rows), Y[labelled] - mean, observed[labelled], ratio)
    return Hyperparameters(sized, mean, amplitude, float(value))


def smoothed_frequency(Y: Array, observed: Array) -> Array:
    """Return (positives + 1/2) / (observed rows + 1) of each label: (labels,)."""
    return ((Y * observed).sum(axis=0) + 0.5) / (observed.sum(axis=0) + 1.0)


def lengths(rule: str, kernel: GPKernel, given: float | None) -> Array:
    """Return the grid of length2 over the median squared distance."""
    if given is not None:
        return np.array([given])
    if kernel.is_cosine or rule == "fixed":
        return np.ones(1)
    return 2.0 ** np.arange(-5 if rule == "evidence" else -2, 3.5, 0.5)


def ratios(rule: str, given: float | None) -> Array:
    """Return the grid of noise ratios."""
    if given is not None:
        return np.array([given])
    if rule == "fixed":
        return np.ones(1)
    return np.geomspace(0.005, 20.0, 25) if rule == "evidence" else np.geomspace(FLOOR_RATIO, 20.0, 14)


def log_prior(rule: str, factor: float, ratio: float, is_cosine: bool) -> float:
    """Return the log prior of a point of the grid, up to a constant; 0 unless guarded."""
    if rule != "guarded":
        return 0.0
    terms = [ratio] if is_cosine else [factor, ratio]
    return -0.5 * sum((np.log(term / PRIOR_CENTRE) / PRIOR_SD) ** 2 for term in terms)


def observed_patterns(residual: Array, observed: Array) -> list[Pattern]:
    """Group labels by the rows where they are observed; the `MAX_PATTERNS` with most labels are kept."""
    columns, inverse = np.unique(observed.T, axis=0, return_inverse=True)
    inverse = inverse.ravel()
    groups = sorted(range(len(columns)), key=lambda g: -int((inverse == g).sum() * columns[g].sum()))
    out = []
    for group in groups[:MAX_PATTERNS]:
        rows = np.flatnonzero(columns[group])
        if rows.size:
            out.append(Pattern(rows, residual[np.ix_(rows, np.flatnonzero(inverse == group))]))
    return out


def spectrum(K: Array, pattern: Pattern) -> tuple[Array, Array, int]:
    """Return the eigenvalues of K at the pattern's rows, |U' residual|^2 along each, and the label count."""
    rows = pattern.rows
    values, vectors = np.linalg.eigh(K if len(rows) == len(K) else K[np.ix_(rows, rows)])
    energy = ((vectors.T @ pattern.residual) ** 2).sum(axis=1)
    return np.maximum(values, 0.0), energy, pattern.residual.shape[1]


def log_evidence(spectra: list[tuple[Array, Array, int]], ratio: float) -> float:
    """Return the log evidence with the shared amplitude at its best, nats.

    -(M / 2) (log(q / M) + 1 + log 2 pi) - 1/2 sum over labels and eigenvalues of log(d + ratio), where q is
    the sum of energy / (d + ratio) and M the number of observed cells.
    """
    cells = sum(len(values) * count for values, _, count in spectra)
    quadratic = sum(float((energy / (values + ratio)).sum()) for values, energy, _ in spectra)
    volume = sum(count * float(np.log(values + ratio).sum()) for values, _, count in spectra)
    scale = max(quadratic / cells, 1e-300)
    return -0.5 * cells * (np.log(scale) + 1 + np.log(2 * np.pi)) - 0.5 * volume


def amplitudes(K: Array, residual: Array, observed: Array, ratio: float) -> Array:
    """Return the amplitude of each label, (q_l + w a) / (n_l + w): that of all labels, a, counts w rows.

    q_l = r_l' (K + ratio I)^-1 r_l over the rows where label l is observed.
    """
    quadratic, count = np.zeros(residual.shape[1]), observed.sum(axis=0)
    columns, inverse = np.unique(observed.T, axis=0, return_inverse=True)
    for group, column in enumerate(columns):
        rows, labels = np.flatnonzero(column), np.flatnonzero(inverse.ravel() == group)
        if rows.size:
            part = residual[np.ix_(rows, labels)]
            solved = np.linalg.solve(K[np.ix_(rows, rows)] + ratio * np.eye(len(rows)), part)
            quadratic[labels] = (part * solved).sum(axis=0)
    shared = max(quadratic.sum() / max(count.sum(), 1), 1e-12)
    return (quadratic + AMPLITUDE_WEIGHT * shared) / (count + AMPLITUDE_WEIGHT)
