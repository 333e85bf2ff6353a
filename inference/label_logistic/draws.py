r"""Draws of w and of psi from mean field's q, one label after another: never labels x features^2 numbers.

By rows, a draw from the prior is corrected: w = m + w0 - D^-1 X' S B^-1 (S X w0 + e) with w0 ~ N(0, D^-1) and
e ~ N(0, I) has the law q(w) (Matheron's rule: Wilson, Borovitskiy, Terenin, Mostowsky and Deisenroth,
"Efficiently sampling functions from Gaussian process posteriors", ICML 2020, section 2). Notation of
`labelzoo.inference.label_logistic.forms`.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from labelzoo.inference.label_logistic.forms import ByRows, Form, psi_given_omega
from labelzoo.inference.polya_gamma import log_cosh_half

Array = Any


def solve_draws(factor: Array, potential: Array, noise: Array) -> Array:
    """Return L'^-1 (L^-1 h + z) for noise z (sample, feature), L the factor of the precision."""
    white = solve_triangular(factor, potential, lower=True)
    return solve_triangular(factor, (white + noise).T, lower=True, trans=1).T


@jax.jit
def _by_features(form: Any, omega: Array, kappa: Array, noise: Array) -> Array:
    return solve_draws(psi_given_omega(form, omega, kappa).factor, form.X.T @ kappa, noise)


@partial(jax.jit, static_argnames="num_samples")
def _by_rows(
    form: Any, X: Array, tau: Array, omega: Array, kappa: Array, key: Array, *, num_samples: int
) -> Array:
    psi = psi_given_omega(form, omega, kappa)
    prior_key, noise_key = jax.random.split(key)
    prior = jax.random.normal(prior_key, (num_samples, len(tau))) * tau**-0.5
    noise = jax.random.normal(noise_key, (num_samples, len(omega)))
    root = jnp.sqrt(omega)
    gap = solve_triangular(psi.factor, (prior @ X.T * root + noise).T, lower=True)
    pull = root[:, None] * solve_triangular(psi.factor, gap, lower=True, trans=1)
    return prior + ((kappa - omega * psi.mean)[:, None] - pull).T @ X / tau


def draw_weights(
    key: Array, form: Form, X: Array, tau: Array, omega: np.ndarray, kappa: np.ndarray, num_samples: int
) -> np.ndarray:
    """Return draws of w: (sample, labels, feature), for omega and kappa (labels, row)."""
    num_labels = len(omega)
    out = np.empty((num_samples, num_labels, X.shape[1]))
    if isinstance(form, ByRows):
        for label, one in enumerate(jax.random.split(key, num_labels)):
            out[:, label] = _by_rows(form, X, tau, omega[label], kappa[label], one, num_samples=num_samples)
        return out
    noise = np.asarray(jax.random.normal(key, out.shape, float))
    for label in range(num_labels):
        out[:, label] = _by_features(form, omega[label], kappa[label], noise[:, label])
    return out


@partial(jax.jit, static_argnames="num_samples")
def _label_log_weights(
    form: Any, root: Array, omega: Array, kappa: Array, observed: Array, key: Array, *, num_samples: int
) -> Array:
    psi = psi_given_omega(form, omega, kappa)
    first_key, second_key = jax.random.split(key)
    if isinstance(form, ByRows):
        prior = jax.random.normal(first_key, (num_samples, root.shape[1])) @ root.T
        noise = jax.random.normal(second_key, prior.shape)
        gap = solve_triangular(psi.factor, (prior * jnp.sqrt(omega) + noise).T, lower=True)
        draws = prior - gap.T @ psi.half
    else:
        draws = jax.random.normal(first_key, (num_samples, len(psi.half))) @ psi.half
    draws = draws + psi.mean
    cells = 0.5 * omega * draws**2 - jnp.log(2.0) - log_cosh_half(draws)
    return jnp.where(observed, cells, 0.0).sum(axis=1) + 0.5 * (kappa @ psi.mean - psi.log_det)


def log_weights(
    key: Array, form: Form, omega: np.ndarray, kappa: np.ndarray, observed: np.ndarray, num_samples: int
) -> np.ndarray:
    """Return log p(w_s, y) - log q(w_s) for draws from q, all labels jointly: (sample,), nats.

    q(w_l) is p(w_l) exp(kappa' psi - psi' Omega psi / 2) / Z_l with log Z_l = (kappa' mu - log_det) / 2: the
    ratio depends on psi alone.
    """
    root = jnp.zeros((1, 1))
    if isinstance(form, ByRows):
        values, vectors = jnp.linalg.eigh(form.gram)
        root = vectors * jnp.sqrt(jnp.maximum(values, 0.0))
    total = np.zeros(num_samples)
    for label, one in enumerate(jax.random.split(key, len(omega))):
        total += np.asarray(
            _label_log_weights(
                form, root, omega[label], kappa[label], observed[label], one, num_samples=num_samples
            )
        )
    return total
