r"""Log density of PG(b, 0) by numerical inversion of its Laplace transform, for every real b and x > 0.

.. math:: f(x | b, 0) = \frac{1}{2 \pi i} \int e^{t x} \cosh^{-b}(\sqrt{t/2}) \, dt

along the parabola :math:`t(u) = \sigma + \mu (1 + i u)^2`, :math:`\sigma = -\pi^2/2` the branch point
nearest to the saddle (all of them lie on the real axis at or left of it). For small x the parabola is the
path of steepest descent of the inverse Gaussian that the law then resembles, for large x it is the contour
of Weideman and Trefethen (2007), Mathematics of Computation 76. It crosses the axis at the saddle point, or
at 2/x right of the branch point where that is farther; the step is a fixed share of the Gaussian width
there. The trapezoid rule converges geometrically: 36 nodes leave a relative error below 1e-10 in float64
(measured against the alternating series) and 1e-4 in float32. For small b the transform minus 1 (a point
mass at 0, which no x > 0 sees) is inverted, by expm1, so the digits survive down to b = 1e-10.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from labelzoo.inference.polya_gamma.moments import as_floats

_SIGMA = -(np.pi**2) / 2
_NODES = 36
_STEP = 0.25
_LOG2 = float(np.log(2.0))
_HALF_LOG_2PI = float(np.log(2 * np.pi) / 2)


def _slope_ratio(t: jax.Array) -> tuple[jax.Array, jax.Array]:
    r"""Return :math:`g(t) = \tanh(z)/z`, :math:`z = \sqrt{t/2}` (tan for t < 0), and :math:`g'(t)`."""
    s = t / 2
    near = jnp.abs(s) < 1e-2
    root = jnp.sqrt(jnp.where(near, 1, jnp.abs(s)))
    tanh, tan = jnp.tanh(root), jnp.tan(jnp.where(s < 0, root, 1))
    g = jnp.where(s > 0, tanh, tan) / root
    signed = jnp.where(near, 1, s)
    slope = (jnp.where(s > 0, 1 - tanh**2, 1 + tan**2) - g) / (2 * signed)
    series = 1 - s / 3 + 2 * s * s / 15 - 17 * s**3 / 315
    series_slope = -1 / 3 + 4 * s / 15 - 17 * s * s / 105
    return jnp.where(near, series, g), jnp.where(near, series_slope, slope) / 2


def _crossing(b: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the distance mu from the branch point to the crossing, and the node spacing in u."""
    target = 4 * x / b
    mu = 4 / target + 2 / target**2
    for _ in range(6):  # Newton on log g against log mu, which is nearly straight
        g, slope = _slope_ratio(_SIGMA + mu)
        mu = mu * jnp.exp((jnp.log(target) - jnp.log(g)) * g / (slope * mu))
    mu = jnp.maximum(mu, 2 / x)
    g, slope = _slope_ratio(_SIGMA + mu)
    curvature = -mu * mu * b * slope + 2 * mu * (x - b * g / 4)
    return mu, _STEP / jnp.sqrt(curvature)


def _complex_expm1(w: jax.Array) -> jax.Array:
    """``exp(w) - 1`` for complex w without cancellation near 0."""
    re, im = w.real, w.imag
    return jax.lax.complex(jnp.expm1(re) * jnp.cos(im) - 2 * jnp.sin(im / 2) ** 2, jnp.exp(re) * jnp.sin(im))


def _log_transform(b: jax.Array, t: jax.Array) -> jax.Array:
    """``-b log cosh(sqrt(t/2))`` on the plane cut left of the branch point, continuous there."""
    z = jnp.sqrt(t / 2)
    return -b * (z + jnp.log1p(jnp.exp(-2 * z)) - _LOG2)


def _integral(b: jax.Array, x: jax.Array, mu: jax.Array, step: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the log scale taken out and the scaled trapezoid sum; nodes are a leading axis."""
    u = step * jnp.arange(_NODES, dtype=x.dtype).reshape((-1,) + (1,) * x.ndim)
    path = mu * jax.lax.complex(1 - u * u, 2 * u)
    w = _log_transform(b, _SIGMA + path)
    small = jnp.abs(w[0]) < 0.5
    top = jnp.where(small, 0, w[0].real)
    less_one = _complex_expm1(jnp.where(small, w, 0))
    transform = jnp.where(small, less_one, jnp.exp(jnp.where(small, 0, w - top)))
    integrand = transform * jnp.exp((path - mu) * x) * jax.lax.complex(jnp.ones_like(u), u)
    ends = jnp.where(u == 0, 0.5, 1.0)
    total = jnp.sum((integrand * ends).real, axis=0) * step * mu * 2 / np.pi
    return top + (_SIGMA + mu) * x, total


def _first_passage(b: jax.Array, x: jax.Array) -> jax.Array:
    """Log of ``2^b`` times the first-passage density at b/2: what the law is for x far below 1 + b."""
    return b * _LOG2 + jnp.log(b / 2) - _HALF_LOG_2PI - 1.5 * jnp.log(x) - b * (b / x) / 8


@jax.jit
def _log_density(b: jax.Array, x: jax.Array) -> jax.Array:
    inside = (x > 0) & jnp.isfinite(x) & (b > 0) & jnp.isfinite(b)
    outside = jnp.where(jnp.isnan(x) | ~(jnp.isfinite(b) & (b > 0)), jnp.nan, -jnp.inf)
    b, safe = jnp.where(inside, b, 1), jnp.where(inside, x, 1)
    # the next term of the alternating series, relative to the first, is below rounding
    tiny = (1 + b) / (2 * safe) - jnp.log(b + 2) > (20 if jnp.finfo(x.dtype).bits <= 32 else 40)
    inner = jnp.where(tiny, (1 + b) / 4, safe)
    mu, step = jax.lax.stop_gradient(_crossing(b, inner))
    scale, total = _integral(b, inner, mu, step)
    value = jnp.where(tiny, _first_passage(b, jnp.where(tiny, safe, 1)), scale + jnp.log(total))
    return jnp.where(inside, value, outside)


def log_density(x: Any, b: Any) -> jax.Array:
    """Log density of PG(b, 0) at ``x``, elementwise; differentiable in both.

    Parameters
    ----------
    x : array_like
        Points; at or below 0 (and at infinity) the log density is minus infinity.
    b : array_like
        Shapes, positive; broadcast against ``x``. NaN where they are not.

    Returns
    -------
    jax.Array
        Log density in the promoted dtype: absolute error below 1e-10 plus rounding of the value itself in
        float64, near 1e-4 in float32 (checked for b from 1e-6 to 1e5). The tilted density adds
        :func:`labelzoo.inference.polya_gamma.log_tilt`.
    """
    x, b = jnp.broadcast_arrays(*as_floats(x, b))
    return _log_density(b, x)
