"""Host-side checks before any loop runs, and their stand-in under a trace: replace, then mark with NaN."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def _refuse(name: str, values: np.ndarray, bad: np.ndarray, need: str) -> None:
    """Raise ValueError naming the argument, its first bad index and value, when any entry is bad."""
    if bad.any():
        index = tuple(int(i) for i in np.argwhere(bad)[0])
        where = f" at index {index}" if index else ""
        raise ValueError(f"{name} must be {need}; got {values[index]}{where} ({int(bad.sum())} bad in all)")


def _concrete(value: Any) -> np.ndarray | None:
    """Return the value as a NumPy array, or None while it is being traced."""
    return None if isinstance(value, jax.core.Tracer) else np.asarray(value)


def check_parameters(b: Any, c: Any) -> None:
    """Refuse bad parameters while they are concrete; traced ones pass (see :func:`safe_parameters`).

    Raises
    ------
    ValueError
        ``b`` with an entry that is not positive and finite, or ``c`` with one that is not finite; the message
        names the argument, the first bad index and its value.
    """
    shapes, tilts = _concrete(b), _concrete(c)
    if shapes is not None:
        _refuse("b", shapes, np.asarray(~(np.isfinite(shapes) & (shapes > 0))), "positive and finite")
    if tilts is not None:
        _refuse("c", tilts, np.asarray(~np.isfinite(tilts)), "finite")


def safe_parameters(b: jax.Array, c: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return ``b`` and ``abs(c)`` with bad entries replaced by 1 and 0, and the mask of good entries."""
    good = jnp.isfinite(b) & (b > 0) & jnp.isfinite(c)
    return jnp.where(good, b, 1), jnp.where(good, jnp.abs(c), 0), good
