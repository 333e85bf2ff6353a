"""What callers pass as numbers, seeds and data, checked the same way everywhere; sizes in words."""

import math
import numbers
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

MAX_SEED = 2**32 - 1


def real(value: Any) -> float:
    """Return a real number as a float, infinite where too large for one; NaN for all else, booleans too."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        huge: Any = value
        return math.inf if huge > 0 else -math.inf


def whole_number(name: str, value: Any, least: int, most: int | None = None) -> int:
    """Return an integer in a range.

    Raises
    ------
    ValueError
        If `value` is no integer, a boolean, below `least`, or above `most`.
    """
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):
        bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} must be an integer {bounds}, got {value!r}")
    return int(value)


def random_key(seed: Any) -> Any:
    """Return the random key of a seed; a key of JAX as it is.

    Raises
    ------
    ValueError
        If `seed` is neither a key nor an integer from 0 to `MAX_SEED`.
    """
    if isinstance(seed, jax.Array):
        typed = jnp.issubdtype(seed.dtype, jax.dtypes.prng_key) and seed.ndim == 0
        if typed or (seed.dtype == jnp.uint32 and seed.ndim == 1):
            return seed
    whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    if not whole or not 0 <= seed <= MAX_SEED:
        raise ValueError(f"seed must be an integer from 0 to {MAX_SEED} or a key of JAX, got {seed!r}")
    return jax.random.key(int(seed))


def size_words(size: Any) -> str:
    """Return a number of bytes in GiB, MiB or bytes, whichever shows it."""
    for unit, least in (("GiB", 2**30), ("MiB", 2**20)):
        if size >= 0.1 * least:
            return f"{size / least:.2f} {unit}"
    return f"{size:.0f} bytes"


def label_data(data: Any, name: str = "data") -> None:
    """Refuse what is no LabelData.

    Raises
    ------
    ValueError
        Naming the argument and the type that came.
    """
    from labelzoo.data import LabelData

    if not isinstance(data, LabelData):
        raise ValueError(f"{name} must be a LabelData, got {type(data).__name__}")
