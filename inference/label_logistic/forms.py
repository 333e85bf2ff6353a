r"""The law of psi = X w of one label given omega, by features or by rows: two forms of the same numbers.

With D = diag(tau), Omega = diag(omega), kappa = y - 1/2 and omega = kappa = 0 at unobserved cells, q(w) has
precision D + X' Omega X and potential X' kappa. By the identity of Woodbury its covariance is
D^-1 - D^-1 X' S B^-1 S X D^-1 with S = Omega^(1/2), B = I + S K S and K = X D^-1 X' (row, row). So psi has

    covariance  Sigma = K - K S B^-1 S K,    mean  mu = Sigma kappa,

and K is made once for all labels and iterations. The features' form costs rows x features^2 + features^3 a
label and iteration, the rows' form rows^3: the latter is used where there are fewer rows than features.
Rasmussen and Williams, "Gaussian processes for machine learning", 2006, sections 2.1 and 3.4.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from labelzoo.inference.polya_gamma import log_cosh_half

Array = Any


class ByFeatures(NamedTuple):
    """X (row, feature) and the prior precisions (feature,)."""

    X: Array
    precision: Array


class ByRows(NamedTuple):
    """The Gram matrix K = X D^-1 X' (row, row)."""

    gram: Array


Form = ByFeatures | ByRows


class Psi(NamedTuple):
    """The law of psi, one label.

    Attributes
    ----------
    mean, variance : (row,)
    log_det : scalar
        log |precision of w| - log |D|.
    factor : (size, size)
        Lower Cholesky factor of B, or of the precision of w.
    half : (size, row)
        factor^-1 S K by rows; factor^-1 X' by features, where Sigma = half' half.
    """

    mean: Array
    variance: Array
    log_det: Array
    factor: Array
    half: Array


def form_of(X: Array, precision: Array, *, by_rows: bool | None = None) -> Form:
    """Return the cheaper form for X (row, feature), or the one asked for."""
    if X.shape[0] < X.shape[1] if by_rows is None else by_rows:
        return ByRows((X / precision) @ X.T)
    return ByFeatures(X, precision)


def psi_given_omega(form: Form, omega: Array, kappa: Array) -> Psi:
    """Return the law of psi for omega and kappa (row,), both zero at unobserved cells."""
    if isinstance(form, ByRows):
        root = jnp.sqrt(omega)
        scaled = root[:, None] * form.gram
        factor = jnp.linalg.cholesky(jnp.eye(len(omega)) + scaled * root)
        half = solve_triangular(factor, scaled, lower=True)
        mean = form.gram @ kappa - half.T @ (half @ kappa)
        variance = jnp.diagonal(form.gram) - (half**2).sum(axis=0)
        log_prior = jnp.zeros(())
    else:
        X, tau = form
        factor = jnp.linalg.cholesky(jnp.diag(tau) + (X * omega[:, None]).T @ X)
        half = solve_triangular(factor, X.T, lower=True)
        mean = half.T @ (half @ kappa)
        variance = (half**2).sum(axis=0)
        log_prior = jnp.log(tau).sum()
    log_det = 2.0 * jnp.log(jnp.diagonal(factor)).sum() - log_prior
    return Psi(mean, jnp.maximum(variance, 0.0), log_det, factor, half)


def bound_at(psi: Psi, omega: Array, kappa: Array, observed: Array) -> Array:
    """Return one label's evidence lower bound at q(w) and the best tilt for it, nats.

    KL(q(w) || p(w)) = (a' mu - omega' v + log_det) / 2 with a = kappa - omega mu, since m = D^-1 X' a and
    D S = I - X' Omega X S for mean m and covariance S of w.
    """
    second = psi.mean**2 + psi.variance
    cells = kappa * psi.mean - jnp.log(2.0) - log_cosh_half(jnp.sqrt(second))
    away = (kappa - omega * psi.mean) @ psi.mean - omega @ psi.variance + psi.log_det
    return jnp.where(observed, cells, 0.0).sum() - 0.5 * away


def core_of(form: Form, psi: Psi) -> Array:
    """Return what `second_moment_change` needs of the covariance: Sigma by rows, half by features."""
    return form.gram - psi.half.T @ psi.half if isinstance(form, ByRows) else psi.half


def second_moment_change(form: Form, core: Array, mean: Array, v: Array) -> Array:
    """Return M v, M = Sigma o (2 mu mu' + Sigma): minus the change of E psi^2 as omega changes by v."""
    if isinstance(form, ByRows):
        return 2.0 * mean * (core @ (mean * v)) + core**2 @ v
    inner = (core * v) @ core.T
    return 2.0 * mean * (core.T @ (core @ (mean * v))) + (core * (inner @ core)).sum(axis=0)
