"""Choosers and predictors of the compressed-target benchmarks, on arrays.

A chooser takes rows of the pool, one after another; a predictor learns from chosen rows and gives test rows
scores of all labels and an answer, k labels a row with k the mean number of labels of the rows it learned
from. Choosers:

    targets         sum lambda_g ln C_gg, hyperparameters and compression renewed every `period` rows; between
                    them a row changes the variances alone, which do not depend on labels
    measurements    the same with the measurements themselves as targets: compressed sensing without BPCA
    printed_sign    the same with the printed minus of eq. 13
    cs_miml         greedy mutual information of one Gaussian process for all measurements (Vasisht et al.)
    cs_br           largest sum of log predictive variances of a Bayesian ridge regression a measurement
    mmc, li_adaptive, ivr, random  of the catalogue

Predictors: ``omp``, ``corr``, ``regression`` (and ``bp``) decode what the target processes predict,
``cs_omp`` and the like what processes of the measurements predict; ``cs_miml`` is the posterior mean of
BML-CS; ``cs_br`` and ``cs_rr`` are (Bayesian) ridge regressions of the measurements on the features, decoded
by matching pursuit; ``logistic`` is one-vs-rest logistic regression on the labels.
"""

from typing import Any, NamedTuple

import numpy as np
from compressed_data import Prepared
from scipy import sparse
from scipy.linalg import solve_triangular
from sklearn.linear_model import LogisticRegression, RidgeCV
from sparse_races import PRIOR, chosen_kernel

from labelzoo.acquisition.catalogue import find
from labelzoo.acquisition.mutual_information_greedy import greedy_mutual_information
from labelzoo.acquisition.problem import Problem
from labelzoo.data import LabelData
from labelzoo.data.metrics import log_score
from labelzoo.inference.bpca.canonical import Canonical
from labelzoo.inference.compressed_gp import kernel14
from labelzoo.inference.compressed_gp.hyperparameters import gradient
from labelzoo.inference.compressed_gp.ranking import decode, top_labels, training_level
from labelzoo.inference.compressed_gp.targets import targets_of
from labelzoo.inference.label_gp.evidence import choose_hyperparameters
from labelzoo.inference.sparse_bayes.inductive import condition, fit_rows
from labelzoo.models import bpca_card
from labelzoo.models.gp_kernel import GPKernel
from labelzoo.models.label_gp import SETTINGS as GP_SETTINGS

Array = Any

TOLERANCE = 1e-7
PERIOD = 25
PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0)
"""C of logistic regression that are tried."""
RATIOS = np.exp(np.arange(-12.0, 8.0, 0.5))
"""Signal over noise of the Bayesian ridge regression: a grid, the noise in closed form."""


class Targets(NamedTuple):
    """Target processes fitted to some rows.

    Attributes
    ----------
    canonical : Canonical
    projection : (measurement, labels)
    scale : float
        Compressed rows were multiplied by it.
    theta : (target, 5)
    caches, posterior
        As in `labelzoo.inference.compressed_gp.kernel14`.
    Y : float (row, labels)
        Labels of the rows.
    """

    canonical: Canonical
    projection: Array
    scale: float
    theta: Array
    caches: kernel14.Caches
    posterior: kernel14.Posterior
    Y: Array


class Answer(NamedTuple):
    """Scores (row, labels) and the labels answered, bool (row, labels)."""

    scores: Array
    labels: Array


def fit_targets(
    p: Prepared,
    rows: Array,
    seed: int,
    *,
    theta: Array | None = None,
    rate: float = 0.5,
    compression: str = "bpca",
    search: Any = gradient,
) -> Targets:
    """Compress the labels of `rows`, learn the hyperparameters and condition.

    Parameters
    ----------
    rate : float
        Measurements over labels.
    compression : str
        As in `labelzoo.inference.compressed_gp.targets`.
    """
    settings = {**bpca_card.SETTINGS, "projection_seed": seed}
    settings["num_measurements"] = max(1, round(rate * p.Y.shape[1]))
    inputs = bpca_card.prepare(LabelData(np.zeros((len(rows), 1)), p.Y[rows]), settings)
    canonical = targets_of(inputs, compression)
    caches = kernel14.Caches(p.X[rows])
    options = {"tolerance": TOLERANCE} if search is gradient else {}
    theta = search(canonical.targets, caches, theta=theta, **options).theta
    posterior = kernel14.condition(theta, canonical.targets, caches)
    Y = p.Y[rows].toarray().astype(float)
    return Targets(canonical, inputs["projection"], inputs["compressed_scale"], theta, caches, posterior, Y)


def compressed(t: Targets, X: Array) -> Array:
    """Return the compressed rows that the processes predict, in the units of projection y."""
    mean = kernel14.predict(t.posterior, t.caches, X).mean
    return (t.canonical.offset + mean @ t.canonical.loadings.T) / t.scale


def decoded(t: Targets, R: Array, method: str, levels: Any = None) -> Answer:
    """Return the answer of a decoder."""
    levels = training_level(t.Y) if levels is None else levels
    found = decode(R, t.projection, levels=levels, frequency=t.Y.mean(axis=0), method=method)
    return Answer(found.scores, found.labels)


def regression(t: Targets, X: Array, levels: Any = None) -> Answer:
    """Return the labels' own regression on the targets, by least squares."""
    mean = kernel14.predict(t.posterior, t.caches, X).mean
    slope = np.linalg.lstsq(t.canonical.targets, t.Y - t.Y.mean(axis=0), rcond=1e-10)[0]
    scores = (t.Y.sum(axis=0) + 0.5) / (len(t.Y) + 1) + mean @ slope
    return Answer(scores, top_labels(scores, training_level(t.Y) if levels is None else levels))


def choose_targets(
    p: Prepared, seed: int, picks: int, *, period: int = PERIOD, sign: float = 1.0, **options: Any
) -> Array:
    """Return rows of the pool by weighted log variance, everything renewed every `period` rows."""
    rows, rest, theta = p.start, p.pool, None
    while len(rows) < len(p.start) + picks:
        fitted = fit_targets(p, rows, seed, theta=theta, **options)
        theta = fitted.theta
        count = min(period, len(p.start) + picks - len(rows))
        chosen = greedy(fitted, p.X[rest], count, sign)
        rows, rest = np.concatenate([rows, rest[chosen]]), np.delete(rest, chosen)
    return rows[len(p.start) :]


def greedy(t: Targets, X: Array, count: int, sign: float) -> Array:
    """Return `count` positions of X, each of largest sign x sum lambda_g ln C_gg given those before it."""
    far, inner = kernel14.squared_distances(t.caches.X, X), t.caches.X @ X.T
    weights, halves = t.canonical.weights, []
    C = kernel14.prior_variance(t.theta, X)
    for g in range(len(t.theta)):
        cross = kernel14.kernel(t.theta[g : g + 1], far, inner)[0]
        halves.append(solve_triangular(t.posterior.factors[g], cross, lower=True, check_finite=False))
        C[:, g] -= (halves[g] ** 2).sum(axis=0)
    taken: list[int] = []
    steps: list[Array] = []
    for _ in range(count):
        scores = sign * (np.log(np.maximum(C, t.theta[:, 4])) @ weights)
        scores[taken] = -np.inf
        new = int(scores.argmax())
        taken.append(new)
        near = kernel14.squared_distances(X, X[[new]]), X @ X[[new]].T
        v = kernel14.kernel(t.theta, *near)[:, :, 0].T
        v -= np.stack([half.T @ half[:, new] for half in halves], axis=1)
        for old in steps:
            v -= old * old[new]
        v /= np.sqrt(C[new])
        C -= v**2
        steps.append(v)
    return np.asarray(taken)


class Ridge(NamedTuple):
    """Bayesian ridge regression of every measurement: mean (row, measurement), variance likewise."""

    mean: Array
    variance: Array


def bayesian_ridge(X: Array, R: Array, X_new: Array) -> Ridge:
    """Return predictions, signal and noise variance of each measurement by the evidence."""
    center, offset = X.mean(axis=0), R.mean(axis=0)
    Z, Z_new = X - center, X_new - center
    values, vectors = np.linalg.eigh(Z @ Z.T)
    z2 = (vectors.T @ (R - offset)) ** 2
    spread = 1.0 + RATIOS[:, None] * np.maximum(values, 0.0)
    noise = (z2.T[:, None, :] / spread).mean(axis=2)
    evidence = -0.5 * np.log(spread).sum(axis=1) - 0.5 * len(R) * np.log(noise)
    best = evidence.argmax(axis=1)
    noise, ratio, spread = noise[np.arange(len(best)), best], RATIOS[best], spread[best]
    cross = Z_new @ Z.T @ vectors
    mean = np.stack(
        [q * (cross / s) @ (vectors.T @ r) for q, s, r in zip(ratio, spread, (R - offset).T, strict=True)],
        axis=1,
    )
    own = (Z_new**2).sum(axis=1)
    variance = np.stack(
        [
            n * (1 + q * own - q**2 * (cross**2 / s).sum(axis=1))
            for n, q, s in zip(noise, ratio, spread, strict=True)
        ],
        axis=1,
    )
    return Ridge(mean + offset, variance)


def projection_of(p: Prepared, seed: int) -> Array:
    """Return the projection that `fit_targets` has at a rate of one half."""
    settings = {**bpca_card.SETTINGS, "projection_seed": seed}
    settings["num_measurements"] = max(1, round(0.5 * p.Y.shape[1]))
    return bpca_card.prepare(LabelData(np.zeros((1, 1)), p.Y[:1]), settings)["projection"]


def plain_kernel(p: Prepared) -> GPKernel:
    """Return the kernel of rows that are mapped already, its length to be chosen."""
    d = p.X.shape[1]
    is_cosine = bool(np.allclose((p.X**2).sum(axis=1), 1.0))
    return GPKernel(is_cosine, np.zeros(d), np.ones(d))


def choose_rows(p: Prepared, name: str, seed: int, picks: int, period: int = PERIOD) -> Array:
    """Return the rows that a chooser takes, in order."""
    picks = min(picks, len(p.pool))
    if name in ("targets", "printed_sign", "measurements"):
        sign = -1.0 if name == "printed_sign" else 1.0
        compression = "none" if name == "measurements" else "bpca"
        return choose_targets(p, seed, picks, period=period, sign=sign, compression=compression)
    if name == "cs_miml":
        return by_mutual_information(p, seed, picks)
    rows, rest = p.start, p.pool
    while len(rows) < len(p.start) + picks:
        count = min(period, len(p.start) + picks - len(rows))
        if name == "cs_br":
            R = p.Y[rows] @ projection_of(p, seed).T
            scores = np.log(bayesian_ridge(p.X[rows], R, p.X[rest]).variance).sum(axis=1)
            chosen = np.argsort(-scores, kind="stable")[:count]
        else:
            chosen = np.asarray(find(name)(problem_of(p, rows, rest, seed), count).rows)
        rows, rest = np.concatenate([rows, rest[chosen]]), np.delete(rest, chosen)
    return rows[len(p.start) :]


def by_mutual_information(p: Prepared, seed: int, picks: int) -> Array:
    """Return rows by mutual information; kernel, scale and noise from the labels of the start."""
    ground = np.concatenate([p.start, p.pool])
    Y = p.Y[p.start].toarray().astype(float)
    X = p.X[ground]
    kernel, scale, noise = chosen_kernel(plain_kernel(p), p.X[p.start], Y, projection_of(p, seed), "evidence")
    C = scale * kernel.of_mapped(X, X)
    C[np.diag_indices_from(C)] += noise
    seeds, candidates = np.arange(len(p.start)), len(p.start) + np.arange(len(p.pool))
    return ground[greedy_mutual_information(C, seeds, picks, stop=False, candidates=candidates).rows]


def problem_of(p: Prepared, rows: Array, rest: Array, seed: int) -> Problem:
    """Return what a function of the catalogue may read; the kernel by the guarded evidence."""
    Y = p.Y[rows].toarray().astype(float)

    def kernel() -> Any:
        seen = np.ones(Y.shape, bool)
        return choose_hyperparameters(plain_kernel(p), p.X[rows], Y, seen, GP_SETTINGS).kernel

    return Problem(
        X_pool=p.X[rest],
        X_labelled=p.X[rows],
        Y_labelled=Y,
        kernel=kernel,
        seed=seed * 1000 + len(rows),
    )


def answers(p: Prepared, names: tuple[str, ...], rows: Array, seed: int) -> dict[str, Answer]:
    """Return the answers of predictors that learn from `rows`, at the test rows."""
    out = {}
    for prefix in ("", "cs_"):
        methods = [m for m in ("omp", "corr", "bp", "regression") if prefix + m in names]
        if methods or not prefix:
            fitted = fit_targets(p, rows, seed, compression="none" if prefix else "bpca")
            out |= {prefix + m: by_targets(p, fitted, m) for m in methods}
            first = fitted if not prefix else first
    return out | {name: OTHERS[name](p, rows, seed, first) for name in names if name in OTHERS}


def by_targets(p: Prepared, fitted: Targets, method: str, levels: Any = None) -> Answer:
    """Return what the target processes say of the test rows, by a decoder or by regression."""
    X = p.X[p.test]
    if method == "regression":
        return regression(fitted, X, levels)
    return decoded(fitted, compressed(fitted, X), method, levels)


def by_ridge(p: Prepared, rows: Array, seed: int, fitted: Targets, *, bayes: bool) -> Answer:
    """Return (Bayesian) ridge regression of the measurements, decoded by matching pursuit."""
    R = fitted.Y @ fitted.projection.T
    if bayes:
        found = bayesian_ridge(p.X[rows], R, p.X[p.test]).mean
    else:
        found = RidgeCV(np.logspace(-3, 3, 13)).fit(p.X[rows], R).predict(p.X[p.test])
    return decoded(fitted, found, "omp")


def by_bml_cs(p: Prepared, rows: Array, seed: int, fitted: Targets) -> Answer:
    """Return the posterior mean of BML-CS, its kernel from the evidence of all labelled rows."""
    X, phi = p.X[rows], fitted.projection
    kernel, scale, noise = chosen_kernel(plain_kernel(p), X, fitted.Y, phi, "evidence")
    C = scale * kernel.of_mapped(X, X) + noise * np.eye(len(X))
    own = np.full(len(p.test), scale + noise)
    cross = scale * kernel.of_mapped(X, p.X[p.test])
    t, v = condition(np.linalg.cholesky(C), cross, own, fitted.Y @ phi.T)
    scores = fit_rows(t, v, phi, **PRIOR).mean
    return Answer(scores, top_labels(scores, training_level(fitted.Y), fitted.Y.mean(axis=0)))


def by_logistic(p: Prepared, rows: Array, seed: int, fitted: Targets, C: float = 10.0) -> Answer:
    """Return one-vs-rest logistic regression; labels without a positive get the smoothed frequency."""
    few = (p.X == 0).mean() > 0.8
    X, X_new = (sparse.csr_array(M) if few else M for M in (p.X[rows], p.X[p.test]))
    scores = logistic_probs(X, fitted.Y, X_new, C)
    return Answer(scores, top_labels(scores, training_level(fitted.Y)))


def logistic_probs(X: Array, Y: Array, X_new: Array, C: float) -> Array:
    """Return one logistic regression a label at the new rows: (new, labels)."""
    probs = np.tile((Y.sum(axis=0) + 0.5) / (len(Y) + 1), (X_new.shape[0], 1))
    for label in np.flatnonzero(Y.any(axis=0) & ~Y.all(axis=0)):
        model = LogisticRegression(C=C, max_iter=500).fit(X, Y[:, label])
        probs[:, label] = model.predict_proba(X_new)[:, 1]
    return probs


def tuned_penalty(p: Prepared, rows: Array, seed: int) -> float:
    """Return the C, of `PENALTIES`, of best log score over three folds of the rows."""
    X, Y = sparse.csr_array(p.X[rows]), p.Y[rows].toarray().astype(float)
    fold = np.random.default_rng([98, seed]).permutation(len(rows)) % 3
    scores = []
    for C in PENALTIES:
        held = [(fold == k, logistic_probs(X[fold != k], Y[fold != k], X[fold == k], C)) for k in range(3)]
        scores.append(
            sum(
                log_score(sparse.csr_array(Y[at]), np.clip(q, 1e-3, 1 - 1e-3), None).value * at.sum()
                for at, q in held
            )
        )
    return PENALTIES[int(np.argmax(scores))]


OTHERS = {
    "cs_br": lambda *args: by_ridge(*args, bayes=True),
    "cs_rr": lambda *args: by_ridge(*args, bayes=False),
    "cs_miml": by_bml_cs,
    "logistic": by_logistic,
}
