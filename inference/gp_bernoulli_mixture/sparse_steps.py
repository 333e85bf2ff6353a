"""Steps of the sparse engine: gates through a few inducing rows, natural gradients, rows in blocks.

f_nk = gate_mean + F_n white_k + residual_n^(1/2) e_nk with q(white_k) = N(P_k^-1 h_k, P_k^-1), e_nk left at
its prior (Titsias, AISTATS 2009; Hensman, Matthews and Ghahramani, AISTATS 2015), so

    m_nk = gate_mean + F_n mu_k,   S_nk = residual_n + |L_k^-1 F_n|^2,   P_k = L_k L_k'.

All that is local to a row is as in `structured`. Given it the best natural parameters are
P_k = I + F' diag(W_k) F and h_k = F' (r_k - gate_mean W_k): moving to them by a share rho is a
natural-gradient step of that length, on a batch with its sums times rows / batch.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import blas, lapack

from labelzoo.inference.gp_bernoulli_mixture import local
from labelzoo.inference.gp_bernoulli_mixture.structured import site_step
from labelzoo.inference.gp_bernoulli_mixture.terms import (
    Labels,
    beta_divergence,
    entropy,
    label_counts,
    label_scores,
    labels_of,
)

Array = Any

BLOCK = 2048
"""Rows of a block: its scaled copy of the factor is all that is held of a product."""


class Task(NamedTuple):
    """What no step changes.

    Attributes
    ----------
    labels : Labels
        Dense or csr.
    factor : (obs, basis)
        C-contiguous, float64 or float32: the precision of the two large products.
    residual : (obs,)
    gate_mean : float
    prior_positive, prior_negative : (component, labels)
    """

    labels: Labels
    factor: Array
    residual: Array
    gate_mean: float
    prior_positive: Array
    prior_negative: Array


class Natural(NamedTuple):
    """q(white) q(theta) by natural parameters.

    Attributes
    ----------
    precision : (component, basis, basis)
        P_k; the lower triangle is read.
    shift : (component, basis)
        h_k.
    positive, negative : (component, labels)
    """

    precision: Array
    shift: Array
    positive: Array
    negative: Array


class White(NamedTuple):
    """q(white) as the rows read it.

    Attributes
    ----------
    mean : (component, basis)
    inverse : (component, basis, basis)
        L^-1, lower, of the factor's precision.
    divergence : float
        KL(q(white) || N(0, I)), nats.
    """

    mean: Array
    inverse: Array
    divergence: float


class Sums(NamedTuple):
    """Sums over rows, and what the rows themselves came to.

    Attributes
    ----------
    precision, shift, on, off : as `Natural`, without the prior
    fit : float
        The rows' share of the bound, nats.
    """

    precision: Array
    shift: Array
    on: Array
    off: Array
    fit: float


class Rows(NamedTuple):
    """What is local to some rows: (row, component) each."""

    responsibility: Array
    weight: Array
    potential: Array
    fit: float


def task_of(inputs: Mapping[str, Any], dtype: Any = np.float64) -> Task:
    """Return the task from what ``prepare`` returned; dense or csr labels.

    Raises
    ------
    ValueError
        If labels are neither 0 nor 1, or the numbers of rows differ.
    """
    factor = np.ascontiguousarray(inputs["factor"], dtype)
    labels = labels_of(inputs["Y"], inputs.get("observed"), np.float64, inputs.get("missing"))
    if factor.ndim != 2 or factor.shape[0] != labels.positive.shape[0] or not len(factor):
        raise ValueError(f"factor must have {labels.positive.shape[0]} rows, at least 1, got {factor.shape}")
    residual = inputs.get("residual")
    rest = np.zeros(len(factor)) if residual is None else np.asarray(residual, float)
    priors = (np.asarray(inputs[name], float) for name in ("prior_positive", "prior_negative"))
    return Task(labels, factor, rest, float(inputs["gate_mean"]), *priors)


def prior_of(task: Task) -> Natural:
    """Return the prior by natural parameters."""
    K, basis = len(task.prior_positive), task.factor.shape[1]
    identity = np.tile(np.eye(basis), (K, 1, 1))
    return Natural(identity, np.zeros((K, basis)), task.prior_positive, task.prior_negative)


def start_from(task: Task, phi: Array) -> Natural:
    """Return q(theta) at given responsibilities (obs, component) and q(white) at its prior."""
    on, off = label_counts(task.labels, phi)
    return prior_of(task)._replace(positive=task.prior_positive + on, negative=task.prior_negative + off)


def read_white(natural: Natural) -> White:
    """Return means, inverse factors and divergence: 2 basis^3 / 3 flops a component.

    Raises
    ------
    FloatingPointError
        If a precision is not positive definite, naming the component.
    """
    K, basis = natural.shift.shape
    mean, inverse = np.empty((K, basis)), np.empty((K, basis, basis))
    divergence = 0.0
    for k in range(K):
        L, failed = lapack.dpotrf(natural.precision[k].T, lower=0, clean=1)
        if failed:
            raise FloatingPointError(f"component {k}: the precision of its gate is not positive definite")
        upper = lapack.dtrtri(L, lower=0, overwrite_c=1)[0]
        inverse[k] = upper.T
        mean[k] = upper @ (inverse[k] @ natural.shift[k])
        log_det = -2.0 * float(np.log(np.diagonal(upper)).sum())
        divergence += 0.5 * (float((upper**2).sum()) + float(mean[k] @ mean[k]) - basis + log_det)
    return White(mean, inverse, divergence)


def gates_of(task: Task, white: White, rows: Array) -> tuple[Array, Array]:
    """Return mean and variance of the gates at some rows (row, component): component basis^2 flops a row."""
    F = task.factor[rows]
    kind = F.dtype
    mean = task.gate_mean + (F @ white.mean.T.astype(kind)).astype(float)
    variance = np.empty(mean.shape)
    trmm = blas.get_blas_funcs("trmm", (F,))
    for k in range(mean.shape[1]):
        half = trmm(1.0, white.inverse[k].T.astype(kind, copy=False), F.T, lower=0, trans_a=1)
        variance[:, k] = np.einsum("ij,ij->j", half, half)
    return mean, variance + task.residual[rows][:, None]


def local_step(labels: Labels, a: Array, b: Array, mean: Array, variance: Array) -> Rows:
    """Return phi and the sites of some rows at their optimum, and the rows' share of the bound."""
    scores = label_scores(labels, a, b)
    J = local.curve(mean, variance)
    scores += 0.5 * mean + J
    phi = local.responsibilities(scores)
    waits = np.log(local.hit(local.log_miss(mean, J)).sum(axis=1)).sum()
    fit = float((phi * scores).sum() - waits) + entropy(phi)
    return Rows(phi, *site_step(phi, mean, variance), fit)


def sums_over(task: Task, natural: Natural, white: White, rows: Array) -> Iterator[tuple[Rows, Sums]]:
    """Yield local values and running sums block by block; only the last sums are complete.

    2 component basis^2 flops a row, half of them for the variances.
    """
    K, basis = natural.shift.shape
    precision = [np.zeros((basis, basis), task.factor.dtype, order="F") for _ in range(K)]
    total = Sums(
        precision, np.zeros((K, basis)), np.zeros_like(natural.positive), np.zeros_like(natural.positive), 0.0
    )
    syrk = blas.get_blas_funcs("syrk", (precision[0],))
    for first in range(0, len(rows), BLOCK):
        some = rows[first : first + BLOCK]
        labels = task.labels.rows(some)
        values = local_step(labels, natural.positive, natural.negative, *gates_of(task, white, some))
        F = task.factor[some]
        beta = values.potential - task.gate_mean * values.weight
        total.shift[:] += (F.T @ beta.astype(F.dtype)).T
        root = np.sqrt(values.weight).astype(F.dtype)
        for k in range(K):
            scaled = F * root[:, k, None]
            precision[k] = syrk(1.0, scaled.T, beta=1.0, c=precision[k], lower=1, overwrite_c=1)
        on, off = label_counts(labels, values.responsibility)
        total = total._replace(on=total.on + on, off=total.off + off, fit=total.fit + values.fit)
        yield values, total


def target(task: Task, sums: Sums, scale: float) -> Natural:
    """Return the optimum of q(white) q(theta) given the sums over a batch times `scale`."""
    basis = task.factor.shape[1]
    precision = np.stack([scale * matrix.astype(float) for matrix in sums.precision])
    precision[:, np.arange(basis), np.arange(basis)] += 1.0
    on, off = scale * sums.on, scale * sums.off
    return Natural(precision, scale * sums.shift, task.prior_positive + on, task.prior_negative + off)


def blended(old: Natural, new: Natural, share: float) -> Natural:
    """Return (1 - share) old + share new in natural parameters."""
    if share == 1.0:
        return new
    return Natural(*(a + share * (b - a) for a, b in zip(old, new, strict=True)))


def bound_of(task: Task, natural: Natural, white: White, fit: float) -> float:
    """Return the bound from the rows' share of it, nats."""
    prior = task.prior_positive, task.prior_negative
    return fit - beta_divergence(natural.positive, natural.negative, *prior) - white.divergence


def whole_pass(task: Task, natural: Natural) -> tuple[Natural, float]:
    """Return the coordinate update from all rows, and the bound at `natural`."""
    white = read_white(natural)
    rows = np.arange(len(task.factor))
    *_, (_, sums) = sums_over(task, natural, white, rows)
    return target(task, sums, 1.0), bound_of(task, natural, white, sums.fit)


def epoch(
    task: Task, natural: Natural, batch: int, share_of: Any, steps: int, rng: np.random.Generator
) -> tuple[Natural, float, int]:
    """Step once for every batch of a permutation of the rows.

    Returns
    -------
    natural : Natural
    bound : float
        Each batch's share taken at the factors before its step: an estimate of the bound along the way.
    steps : int
        Steps made, those before included.
    """
    rows = rng.permutation(len(task.factor))
    fit = 0.0
    for first in range(0, len(rows), batch):
        some = rows[first : first + batch]
        white = read_white(natural)
        *_, (_, sums) = sums_over(task, natural, white, some)
        fit += sums.fit
        new = target(task, sums, len(rows) / len(some))
        natural = blended(natural, new, float(share_of(steps)))
        steps += 1
    return natural, bound_of(task, natural, read_white(natural), fit), steps


def last_pass(task: Task, natural: Natural) -> tuple[dict[str, Array], float, White]:
    """Return phi, weight and potential of all rows at the end, the exact bound, and q(white)."""
    white = read_white(natural)
    parts: list[Rows] = []
    rows = np.arange(len(task.factor))
    for first in range(0, len(rows), BLOCK):
        some = rows[first : first + BLOCK]
        labels = task.labels.rows(some)
        gates = gates_of(task, white, some)
        parts.append(local_step(labels, natural.positive, natural.negative, *gates))
    fit = sum(part.fit for part in parts)
    names = ("responsibility", "weight", "potential")
    kept = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return kept, bound_of(task, natural, white, fit), white
