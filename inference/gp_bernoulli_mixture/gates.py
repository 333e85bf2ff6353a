"""The Gaussian factors of the gates given their sites: means, variances and divergences, without Sigma^-1.

With s = W^(1/2), B = I + s Sigma s and beta = r - gate_mean W, for every component

    S = (Sigma^-1 + diag W)^-1,   m = gate_mean + Sigma alpha,   alpha = beta - s B^-1 s Sigma beta,
    KL = (tr B^-1 - N + alpha' Sigma alpha + ln |B|) / 2,

and S_nn = (1 - (B^-1)_nn) / W_nn, as B^-1 = I - s S s. The diagonal comes from the inverse of the Cholesky
factor: 2 N^3 / 3 flops a component together. In the basis, P = I + F' W F takes the place of B.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import blas, lapack

from labelzoo.inference.gp_bernoulli_mixture.factors import Gate, Problem

Array = Any

DIRECT = 1e-6
"""Rows whose W S_nn = 1 - (B^-1)_nn is below this are solved for. The difference has an absolute error of
about 1e-15, so that S_nn keeps 9 digits; in 32-bit numbers 4e-7 and, at the threshold below, 4 digits."""
DIRECT_SINGLE = 1e-2


def gate_step(problem: Problem, weight: Array, potential: Array) -> Gate:
    """Return q(f) under the sites: means, variances and divergences.

    Parameters
    ----------
    weight, potential : (obs, component)
        W > 0 and r, see `Factors`.

    Raises
    ------
    FloatingPointError
        If a weight is not finite, naming the component.
    """
    beta = potential - problem.gate_mean * weight
    if problem.covariance is None:
        return _by_basis(problem.factor, weight, beta, problem.gate_mean)
    return _by_rows(problem.covariance, weight, beta, problem.gate_mean)


def _by_rows(Sigma: Array, weight: Array, beta: Array, gate_mean: float) -> Gate:
    rows, components = weight.shape
    root = np.sqrt(weight)
    pull = Sigma @ beta
    alpha, variance = np.empty_like(weight), np.empty_like(weight)
    trace, log_det = np.empty(components), np.empty(components)
    work = np.empty((rows, rows), weight.dtype, order="F")
    for k in range(components):
        inverse, log_det[k] = _inverse_factor(Sigma, root[:, k], work, k)
        half = _times(inverse, root[:, k] * pull[:, k])
        alpha[:, k] = beta[:, k] - root[:, k] * _times(inverse, half, transposed=True)
        diagonal = np.einsum("ij,ij->i", inverse.T, inverse.T)
        trace[k] = diagonal.sum(dtype=np.float64)
        variance[:, k] = _variances(diagonal, Sigma, root[:, k], inverse)
    shift = Sigma @ alpha
    fit = np.einsum("nk,nk->k", alpha, shift, dtype=np.float64)
    return Gate(gate_mean + shift, variance, 0.5 * (trace - rows + fit + log_det))


def _inverse_factor(Sigma: Array, root: Array, work: Array, component: int) -> tuple[Array, float]:
    """Return L^-1 (lower, zeros above) of B = L L', in the memory of `work`, and ln |B|."""
    np.multiply(Sigma, root[:, None], out=work)
    work *= root
    np.einsum("ii->i", work)[:] += 1.0
    potrf, trtri = lapack.get_lapack_funcs(("potrf", "trtri"), (work,))
    L, failed = potrf(work, lower=1, overwrite_a=1, clean=1)
    if failed:
        raise FloatingPointError(f"component {component}: the weights of its gate are not finite")
    log_det = 2.0 * float(np.log(np.diagonal(L)).sum(dtype=np.float64))
    return trtri(L, lower=1, overwrite_c=1)[0], log_det


def _times(lower: Array, vector: Array, transposed: bool = False) -> Array:
    trmv: Callable[..., Array] = blas.get_blas_funcs("trmv", (lower,))
    return trmv(lower, vector, lower=1, trans=int(transposed))


def _variances(diagonal: Array, Sigma: Array, root: Array, inverse: Array) -> Array:
    """Return S_nn; where the difference would lose digits, Sigma_nn - |L^-1 s Sigma_n|^2 instead."""
    shrink = 1.0 - diagonal
    direct = np.flatnonzero(shrink < (DIRECT if diagonal.dtype == np.float64 else DIRECT_SINGLE))
    safe = np.maximum(root * root, np.finfo(diagonal.dtype).tiny)
    variance = shrink / safe
    for first in range(0, len(direct), 256):
        some = direct[first : first + 256]
        half = inverse @ (root[:, None] * Sigma[:, some])
        variance[some] = np.diagonal(Sigma)[some] - np.einsum("ij,ij->j", half, half)
    return np.maximum(variance, 0.0)


def _by_basis(F: Array, weight: Array, beta: Array, gate_mean: float) -> Gate:
    rows, components = weight.shape
    mean, variance = np.empty_like(weight), np.empty_like(weight)
    divergence = np.empty(components)
    right = F.T @ beta
    for k in range(components):
        L = basis_factor(F, weight[:, k], k)
        white = lapack.get_lapack_funcs("potrs", (L,))(L, right[:, k], lower=1)[0]
        mean[:, k] = gate_mean + F @ white
        solved = blas.get_blas_funcs("trsm", (L,))(1.0, L, F, side=1, lower=1, trans_a=1)
        variance[:, k] = np.einsum("ij,ij->i", solved, solved)
        log_det = 2.0 * float(np.log(np.diagonal(L)).sum(dtype=np.float64))
        shrink = float((weight[:, k] * variance[:, k]).sum(dtype=np.float64))
        divergence[k] = 0.5 * (float(white @ white) - shrink + log_det)
    return Gate(mean, variance, divergence)


def basis_factor(F: Array, weight: Array, component: int = 0) -> Array:
    """Return L (lower) with L L' = P = I + F' diag(weight) F.

    Raises
    ------
    FloatingPointError
        If a weight is not finite, naming the component.
    """
    half = F * np.sqrt(weight)[:, None]
    P = np.asfortranarray(half.T @ half)
    np.einsum("ii->i", P)[:] += 1.0
    L, failed = lapack.get_lapack_funcs("potrf", (P,))(P, lower=1, overwrite_a=1, clean=1)
    if failed:
        raise FloatingPointError(f"component {component}: the weights of its gate are not finite")
    return L
