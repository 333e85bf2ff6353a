"""Named ways to alter a number, an array or a parameter: faults to plant, and slips to recognise."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

Array = Any


class Alteration(NamedTuple):
    """A map x -> factor * sign(x) |x|^power + term, its name and that of its undoing.

    Attributes
    ----------
    name : str
        What is done: "doubled".
    too : str
        What x is when the alteration mends it: "half of what it should be".
    factor, power, term : float
    """

    name: str
    too: str
    factor: float = 1.0
    power: float = 1.0
    term: float = 0.0

    def __call__(self, x: Array) -> Array:
        """Return x altered (NumPy)."""
        with np.errstate(all="ignore"):
            return self.factor * np.sign(x) * np.abs(np.asarray(x, float)) ** self.power + self.term


ALTERATIONS = (
    Alteration(
        "inverted",
        "the reciprocal of what it should be (scale for rate, or variance for precision)",
        power=-1.0,
    ),
    Alteration("doubled", "half of what it should be", factor=2.0),
    Alteration("halved", "twice what it should be", factor=0.5),
    Alteration("negated", "of the wrong sign", factor=-1.0),
    Alteration("plus one", "one too small (off by one)", term=1.0),
    Alteration("minus one", "one too large (off by one)", term=-1.0),
    Alteration("plus a half", "one half too small", term=0.5),
    Alteration("minus a half", "one half too large", term=-0.5),
    Alteration("root taken", "the square of what it should be (variance for standard deviation)", power=0.5),
    Alteration("squared", "the root of what it should be (standard deviation for variance)", power=2.0),
    Alteration("inverse root", "one over the square of what it should be", power=-0.5),
    Alteration("inverse square", "one over the root of what it should be", power=-2.0),
)
"""In the order in which explanations prefer them."""

PLANTED = ("inverted", "doubled", "halved", "negated", "plus one", "minus a half", "root taken")
"""Those planted in the parameters of every claim."""


def rolled(x: Array) -> Iterator[tuple[str, Array]]:
    """Yield an array read one place off along each of its axes, ``("axis 0", array)``, first axis first."""
    for axis, size in enumerate(np.shape(x)):
        if size > 1:
            yield f"axis {axis}", np.roll(x, 1, axis)


def transposed(x: Array) -> Array | None:
    """Return a square array with its last two axes exchanged, None for others."""
    shape = np.shape(x)
    return np.swapaxes(x, -1, -2) if len(shape) >= 2 and shape[-1] == shape[-2] > 1 else None


def array_leaves(inputs: Mapping[str, Any]) -> list[tuple[str, Array]]:
    """Return (path, array) of the arrays among the inputs; the path reads like ``negatives.base``."""
    found = jax.tree_util.tree_leaves_with_path(dict(inputs))
    return [
        (_path(path), np.asarray(leaf)) for path, leaf in found if isinstance(leaf, np.ndarray | jax.Array)
    ]


def with_leaf(inputs: Mapping[str, Any], path: str, value: Array) -> dict[str, Any]:
    """Return the inputs with one array replaced by another of the same shape, its dtype kept."""

    def one(where: Any, leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray | jax.Array) or _path(where) != path:
            return leaf
        return np.asarray(value).astype(leaf.dtype)

    return jax.tree_util.tree_map_with_path(one, dict(inputs))


def traceable_floats(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs with plain floats as 0-d arrays, so that they are data of a compiled program."""
    return jax.tree.map(lambda leaf: np.asarray(leaf) if isinstance(leaf, float) else leaf, dict(inputs))


def _path(path: Any) -> str:
    parts = []
    for entry in path:
        for attribute in ("key", "name", "idx"):
            if hasattr(entry, attribute):
                parts.append(str(getattr(entry, attribute)))
                break
    return ".".join(parts)
