"""The state of a sampler's chains as plain arrays by name, and back."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np


def state_arrays(state: Any) -> dict[str, np.ndarray]:
    """Return the leaves of a kernel's state by path; keys as their data."""
    found = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]:
        value = jax.random.key_data(leaf) if _is_key(leaf) else leaf
        array = np.asarray(value)
        # netCDF knows no booleans.
        found[_name(path)] = array.astype(np.int8) if array.dtype == bool else array
    return found


def restored(template: Any, arrays: Mapping[str, Any]) -> Any:
    """Return a state like `template` with the leaves of `arrays`.

    Raises
    ------
    ValueError
        If a leaf is absent or has another shape.
    """
    paths, treedef = jax.tree_util.tree_flatten_with_path(template)
    leaves = []
    for path, leaf in paths:
        name = _name(path)
        like = jax.random.key_data(leaf) if _is_key(leaf) else leaf
        if name not in arrays:
            raise ValueError(f"resume_from: the posterior keeps no state {name!r}; it cannot be continued")
        value = np.asarray(arrays[name])
        if value.shape != np.shape(like):
            raise ValueError(f"resume_from: state {name!r} has shape {value.shape}, not {np.shape(like)}")
        array = jax.numpy.asarray(value, dtype=like.dtype)
        leaves.append(jax.random.wrap_key_data(array, impl=_impl(leaf)) if _is_key(leaf) else array)
    return jax.tree_util.tree_unflatten(treedef, leaves)


def _is_key(leaf: Any) -> bool:
    return bool(jax.numpy.issubdtype(getattr(leaf, "dtype", np.float64), jax.dtypes.prng_key))


def _impl(leaf: Any) -> Any:
    return jax.random.key_impl(leaf)


def _name(path: Any) -> str:
    """Return the path of a leaf as a name that netCDF takes."""
    words = [str(getattr(p, "name", getattr(p, "key", getattr(p, "idx", p)))) for p in path]
    return "__".join("".join(c if c.isalnum() or c == "_" else "_" for c in word) for word in words)
