"""Where coordinate ascent begins: responsibilities from the labels, draws, or an earlier fit.

phi = 1 / K with equal priors is a saddle that no update leaves, so it is never used.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse

from labelzoo.inference.gp_bernoulli_mixture import local
from labelzoo.inference.gp_bernoulli_mixture.factors import Factors, Problem
from labelzoo.inference.gp_bernoulli_mixture.structured import theta_step
from labelzoo.inference.gp_bernoulli_mixture.terms import Labels, label_scores

Array = Any

SURE = 0.9
"""Share of a row's responsibility that its cluster takes; the rest is spread evenly."""
SWEEPS = 30
"""Of k-means and of EM."""
BLOCK = 1 << 22
"""Numbers in a table of distances."""


def smoothed(cluster: Array, num_components: int) -> Array:
    """Return .9 of each row on its cluster and .1 spread evenly: (obs, component)."""
    out = np.full((len(cluster), num_components), (1.0 - SURE) / num_components)
    out[np.arange(len(cluster)), cluster] += SURE
    return out


def kmeans(table: Array, num_components: int, rng: np.random.Generator) -> Array:
    """Return the cluster of every row by Lloyd's iteration from a k-means++ start: int (obs,).

    Where there are fewer distinct rows than components some clusters stay empty. Rows may be csr.
    """
    square = _squares(table)
    centres = _plus_plus(table, square, num_components, rng)
    cluster = np.full(table.shape[0], -1)
    for _ in range(SWEEPS):
        new = nearest(table, centres)
        if (new == cluster).all():
            break
        cluster = new
        member = sparse.csr_array(
            (np.ones(len(cluster)), (cluster, np.arange(len(cluster)))), (num_components, len(cluster))
        )
        size = np.bincount(cluster, minlength=num_components)
        total = member @ table
        total = total.toarray() if sparse.issparse(total) else np.asarray(total)
        some = size > 0
        centres[some] = total[some] / size[some, None]
    return cluster


def nearest(table: Array, centres: Array) -> Array:
    """Return the nearest centre of every row, in blocks: int (obs,)."""
    half = 0.5 * (centres * centres).sum(axis=1)
    size = max(1, BLOCK // max(len(centres), 1))
    parts = [
        np.argmin(half - np.asarray(table[i : i + size] @ centres.T), axis=1)
        for i in range(0, table.shape[0], size)
    ]
    return np.concatenate(parts)


def _squares(table: Array) -> Array:
    product = table.multiply(table) if sparse.issparse(table) else table * table
    return np.asarray(product.sum(axis=1), float).ravel()


def _row(table: Array, index: int) -> Array:
    row = table[[index]]
    return (row.toarray() if sparse.issparse(row) else np.asarray(row)).ravel().astype(float)


def _plus_plus(table: Array, square: Array, count: int, rng: np.random.Generator) -> Array:
    centres = [_row(table, int(rng.integers(table.shape[0])))]
    distance = np.full(table.shape[0], np.inf)
    for _ in range(count - 1):
        last = centres[-1]
        away = np.maximum(square + last @ last - 2.0 * np.asarray(table @ last).ravel(), 0.0)
        distance = np.minimum(distance, away)
        total = distance.sum()
        chances = distance / total if total > 0 else None
        centres.append(_row(table, int(rng.choice(table.shape[0], p=chances))))
    return np.stack(centres)


def by_kmeans(problem: Problem, rng: np.random.Generator) -> Array:
    """Return responsibilities from k-means on the labels; unobserved labels at their column's mean."""
    return smoothed(kmeans(_filled(problem.labels), problem.num_components, rng), problem.num_components)


def _filled(labels: Labels) -> Array:
    """Return the positives with column means at unobserved cells; csr stays without them."""
    if labels.missing is None or sparse.issparse(labels.positive):
        return labels.positive
    seen = np.maximum((1.0 - labels.missing).sum(axis=0), 1.0)
    return labels.positive + labels.missing * (labels.positive.sum(axis=0) / seen)


def by_bernoulli_mixture(problem: Problem, rng: np.random.Generator) -> Array:
    """Return responsibilities of variational EM for a Bernoulli mixture without gates, from k-means."""
    phi = by_kmeans(problem, rng)
    for _ in range(SWEEPS):
        a, b = theta_step(problem, phi)
        weights = np.log(phi.sum(axis=0) + 1.0)
        phi = local.responsibilities(label_scores(problem.labels, a, b) + weights)
    return (SURE * phi + (1.0 - SURE) / problem.num_components).astype(problem.factor.dtype)


def by_draw(problem: Problem, rng: np.random.Generator) -> Array:
    """Return responsibilities drawn from Dirichlet(1)."""
    rows, K = problem.labels.positive.shape[0], problem.num_components
    draws = rng.standard_exponential((rows, K)) + 1e-300
    return draws / draws.sum(axis=1, keepdims=True)


WAYS = (by_kmeans, by_bernoulli_mixture, by_draw)


def responsibilities_of(problem: Problem, start: int, rng: np.random.Generator) -> Array:
    """Return those of the start-th restart: k-means, EM and draws in turn."""
    return np.asarray(WAYS[start % len(WAYS)](problem, rng), problem.factor.dtype)


def warm_start(problem: Problem, previous: Mapping[str, Any], same: Array) -> tuple[Array, Factors | None]:
    """Return responsibilities of the rows of `problem` from those of an earlier fit.

    Rows that were in the earlier fit keep their phi and sites. A new row's phi is the softmax of its label
    scores under the earlier theta and of m / 2 - ln 2cosh(c / 2) at its predicted gates (mean m, variance S
    given the earlier sites).

    Parameters
    ----------
    previous : mapping
        ``positive``, ``negative`` (component, labels), ``responsibility``, ``weight``, ``potential``
        (earlier row, component): the group ``engine_state`` of the earlier posterior.
    same : int (obs,)
        The earlier row that each row is; -1: none.

    Returns
    -------
    responsibility : (obs, component)
    factors : Factors
        The earlier factors with sites at new rows of no weight yet.

    Raises
    ------
    ValueError
        If the numbers of components or labels differ, or `same` names no earlier row.
    """
    from labelzoo.inference.gp_bernoulli_mixture.gates import gate_step

    before = {name: np.asarray(previous[name], problem.factor.dtype) for name in STATE}
    same = np.asarray(same, int)
    _refuse_other(problem, before, same)
    known = same >= 0
    K = problem.num_components
    weight = np.where(known[:, None], before["weight"][same], SLIGHT)
    potential = np.where(known[:, None], before["potential"][same], problem.gate_mean * SLIGHT)
    gate = gate_step(problem, weight.reshape(-1, K), potential.reshape(-1, K))
    scores = label_scores(problem.labels, before["positive"], before["negative"])
    scores += 0.5 * gate.mean + local.curve(gate.mean, gate.variance)
    phi = np.where(known[:, None], before["responsibility"][same], local.responsibilities(scores))
    a, b = theta_step(problem, phi)
    return phi, Factors(a, b, phi, gate.mean, gate.variance, weight, potential)


STATE = ("positive", "negative", "responsibility", "weight", "potential")
SLIGHT = 1e-12
"""Weight of a site that says nothing yet; with potential gate_mean times it, it does not move the mean."""


def _refuse_other(problem: Problem, before: Mapping[str, Array], same: Array) -> None:
    if before["positive"].shape != problem.prior_positive.shape:
        raise ValueError(
            f"the earlier fit has (components, labels) {before['positive'].shape}, this one "
            f"{problem.prior_positive.shape}"
        )
    rows, earlier = problem.labels.positive.shape[0], len(before["responsibility"])
    if same.shape != (rows,) or not len(same) or same.max() >= earlier or same.min() < -1:
        raise ValueError(f"same must name for each of {rows} rows one of {earlier} earlier rows, or -1")
