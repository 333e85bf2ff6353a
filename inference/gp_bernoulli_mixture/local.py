"""What is local to a row: tilts c, counts gamma, weights W, responsibilities phi, and their logarithms.

With E over q(f_nk) = N(m, S), the bound of Jaakkola and Jordan on E ln sigma(f) is m / 2 + J and that on
E ln sigma(-f) is -m / 2 + J,

    J = -ln 2cosh(c / 2) - (m^2 + S - c^2) tanh(c / 2) / (4 c),

tight at c^2 = m^2 + S. Shi, Yu and Yu, NeurIPS 2021, equations 9 to 11 in their corrected form.
"""

from typing import Any

import numpy as np
from scipy.special import digamma, polygamma

Array = Any

SMALL_TILT = 1e-3
"""Below it tanh(c / 2) / (2 c) is its series, exact to 1e-15."""


def tilt(mean: Array, variance: Array) -> Array:
    """Return c = (m^2 + S)^(1/2)."""
    return np.sqrt(mean * mean + variance)


def omega_share(c: Array) -> Array:
    """Return tanh(c / 2) / (2 c), the mean of PG(1, c)."""
    near = c < SMALL_TILT
    safe = np.where(near, 1.0, c).astype(c.dtype, copy=False)
    return np.where(near, 0.25 - c * c / 48.0, np.tanh(0.5 * safe) / (2.0 * safe)).astype(c.dtype, copy=False)


def log_two_cosh_half(c: Array) -> Array:
    """Return ln 2cosh(c / 2) for c >= 0."""
    return 0.5 * c + np.log1p(np.exp(-c))


def curve(mean: Array, variance: Array, c: Array | None = None) -> Array:
    """Return J; at the best tilt where `c` is None."""
    if c is None:
        return -log_two_cosh_half(tilt(mean, variance))
    return -log_two_cosh_half(c) - 0.5 * (mean * mean + variance - c * c) * omega_share(c)


def log_miss(mean: Array, J: Array) -> Array:
    """Return ln s = -m / 2 + J, the bound on E ln sigma(-f), below 0."""
    return np.minimum(J - 0.5 * mean, -np.finfo(J.dtype).tiny)


def hit(log_s: Array) -> Array:
    """Return 1 - s, without the difference."""
    return -np.expm1(log_s)


def structured_counts(log_s: Array) -> Array:
    """Return gamma_nk = s_nk / sum_j (1 - s_nj) = E v of q(lambda) = Exponential(K - sum_j s_nj)."""
    return np.exp(log_s) / hit(log_s).sum(axis=1, keepdims=True)


def lambda_shape(kappa: Array, steps: int = 60) -> Array:
    """Return the root al of al = 1 + kappa exp(digamma(al)), 0 <= kappa < 1, in [1, 1 / (1 - kappa)].

    Newton's method on al - 1 - kappa exp(digamma(al)), convex and falling to the root from the right end.
    """
    kappa = np.asarray(kappa)
    al = 1.0 / np.maximum(1.0 - kappa, np.finfo(kappa.dtype).eps)
    for _ in range(steps):
        grown = kappa * np.exp(digamma(al))
        new = np.maximum(al - (al - 1.0 - grown) / (1.0 - grown * polygamma(1, al)), 1.0)
        settled = np.abs(new - al) <= 4 * np.finfo(kappa.dtype).eps * al
        al = new
        if settled.all():
            break
    return al


def responsibilities(logits: Array) -> Array:
    """Return the softmax of every row."""
    out = np.exp(logits - logits.max(axis=1, keepdims=True))
    out /= out.sum(axis=1, keepdims=True)
    return out
