"""Polya-Gamma draws for every real shape and tilt: one function, two back ends, the same guards."""

import importlib.util
from typing import Any

import jax
import jax.numpy as jnp

from labelzoo.inference.polya_gamma.envelope import envelope_holds, exact_block
from labelzoo.inference.polya_gamma.guards import check_parameters, safe_parameters
from labelzoo.inference.polya_gamma.moments import as_floats
from labelzoo.inference.polya_gamma.remainder import matched_block
from labelzoo.inference.rejection import map_blocks

BACKENDS = ("auto", "jax", "augax")
_AUGAX_SHAPE = 0.25
_AUGAX_TILT = 20.0
_AUGAX_PRODUCT = 400.0


def _draw_block(key: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
    """Draw one flat block; a path that no element of the block needs is not run."""
    # beyond the limit c^2 overflows, and the law is a point to working precision: draw there and rescale
    limit = float(jnp.finfo(c.dtype).max) ** 0.5 / 16
    scale, c = jnp.where(c > limit, limit / c, 1), jnp.minimum(c, limit)
    exact = envelope_holds(b, c)
    exact_key, matched_key = jax.random.split(key)
    nothing = jnp.zeros_like(b)
    first = jax.lax.cond(jnp.any(exact), exact_block, lambda *_: nothing, exact_key, b, c, exact)
    second = jax.lax.cond(jnp.all(exact), lambda *_: nothing, matched_block, matched_key, b, c, ~exact)
    return scale * jnp.where(exact, first, second)


@jax.jit
def _sample_jax(key: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
    """Draw in pure JAX; bad entries give NaN."""
    safe_b, safe_c, good = safe_parameters(b, c)
    draws = map_blocks(_draw_block, key, (safe_b, safe_c), (1.0, 0.0))
    return jnp.where(good, jnp.maximum(draws, jnp.finfo(b.dtype).tiny), jnp.nan)


@jax.jit
def _sample_augax(key: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
    """Draw with augax's C++ kernel, called with safe parameters only.

    The kernel never returns from a NaN. augax 0.3 is also wrong in law in two corners, measured at 1e6 draws:
    where ``b c`` is in the thousands (b = 20, c = 180: mean far off; b = 170: one constant), and below b = .1
    (draws floored near 1e-12, Laplace transform off by up to 400 standard errors at b = .001). Entries near
    either corner are drawn in JAX.
    """
    import augax  # optional dependency, imported only where it is asked for

    safe_b, safe_c, good = safe_parameters(b, c)
    corner = (safe_b < _AUGAX_SHAPE) | (safe_c > _AUGAX_TILT) | (safe_b * safe_c > _AUGAX_PRODUCT)
    kernel_b, kernel_c = jnp.where(corner, 1, safe_b), jnp.where(corner, 0, safe_c)
    draws = augax.pg_sample(kernel_b.reshape(-1), kernel_c.reshape(-1), key).reshape(b.shape)
    other = (jax.random.fold_in(key, 1), jnp.where(corner, safe_b, 1), jnp.where(corner, safe_c, 1e3))
    extra = jax.lax.cond(jnp.any(corner), _sample_jax, lambda *_: draws, *other)
    draws = jnp.where(corner, extra, draws)
    return jnp.where(good, jnp.maximum(draws, jnp.finfo(b.dtype).tiny), jnp.nan)


def augax_runs(dtype: Any) -> bool:
    """Whether the augax back end can serve draws of this dtype here: installed, on a CPU, in float64."""
    return (
        importlib.util.find_spec("augax") is not None
        and jax.default_backend() == "cpu"
        and jnp.dtype(dtype) == jnp.float64
    )


def _choose(backend: str, dtype: Any) -> str:
    """Resolve ``backend`` at trace time."""
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {BACKENDS}; got {backend!r}")
    if backend == "augax" and not augax_runs(dtype):
        raise ValueError(
            f"backend 'augax' needs the augax package, a CPU and float64; here: {jnp.dtype(dtype)} on "
            f"{jax.default_backend()}, augax {'found' if importlib.util.find_spec('augax') else 'not found'}"
        )
    return "jax" if backend == "auto" else backend


def sample_polya_gamma(
    key: jax.Array, b: Any, c: Any, *, shape: tuple[int, ...] | None = None, backend: str = "auto"
) -> jax.Array:
    r"""Draw :math:`\omega \sim PG(b, c)` elementwise.

    Parameters
    ----------
    key : jax.Array
        JAX key; the same key gives the same draws on the same kind of device.
    b : array_like
        Shapes, any positive reals (mixed at will in one call).
    c : array_like
        Tilts, any finite reals; broadcast against ``b``. The draws have the promoted dtype of ``b`` and
        ``c``.
    shape : tuple of int, optional
        Shape of the result; the parameters broadcast to it. Default: their common shape.
    backend : {"auto", "jax", "augax"}
        ``jax`` runs on every device in float32 and float64 and is exact, but for a law error below 8e-7 in
        the distribution function where ``b exp(-sqrt(c^2 + 4)) > 1.15``. ``augax`` is a C++ kernel for CPU
        and float64, faster only at b = 1 and above b = 50 (a plain normal there); where it is wrong in law
        the draws come from ``jax``, and its stream under ``vmap`` is not that of a loop. ``auto`` is ``jax``.

    Returns
    -------
    jax.Array
        Positive draws. Under ``jit`` or ``vmap``, where values cannot be looked at, entries with ``b <= 0``
        or a parameter that is NaN or infinite are NaN; no input makes the loops run on.

    Raises
    ------
    ValueError
        Concrete ``b`` not positive and finite, or ``c`` not finite: names the argument, index and value.
        Unknown back end, or ``augax`` where it cannot run.
    """
    check_parameters(b, c)
    b, c = as_floats(b, c)
    full = jnp.broadcast_shapes(b.shape, c.shape) if shape is None else tuple(shape)
    b, c = jnp.broadcast_to(b, full), jnp.broadcast_to(c, full)
    draw = _sample_augax if _choose(backend, b.dtype) == "augax" else _sample_jax
    return draw(key, b, c)
