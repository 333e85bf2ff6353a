"""What a program's sites are: found by running it once."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from numpyro.handlers import seed, trace

from labelzoo.models.spec import ModelSpec


class Sites(NamedTuple):
    """Sites of a program by role.

    Attributes
    ----------
    latent : tuple of str
        Sampled and not observed.
    deterministic : tuple of str
    shapes : dict of str to tuple of int
        Shape of either.
    """

    latent: tuple[str, ...]
    deterministic: tuple[str, ...]
    shapes: dict[str, tuple[int, ...]]


def find_sites(spec: ModelSpec, inputs: Mapping[str, Any]) -> Sites:
    """Trace the summed view abstractly (nothing is computed) and list its sites.

    Raises
    ------
    ValueError
        If the view has no latent site, or a latent site is discrete: the message names it.
    """
    found: dict[str, Any] = {}

    def run(key: Any) -> None:
        found.update(trace(seed(spec.views["summed"], key)).get_trace(**inputs))

    jax.eval_shape(run, jax.random.key(0))
    latent = {n: s for n, s in found.items() if s["type"] == "sample" and not s["is_observed"]}
    if not latent:
        raise ValueError(
            f"model {spec.name!r}: the view 'summed' has no latent site with these data and settings, so "
            "that there is nothing to sample"
        )
    discrete = [name for name, site in latent.items() if site["fn"].support.is_discrete]
    if discrete:
        raise ValueError(
            f"model {spec.name!r}: the view 'summed' has the discrete sites {', '.join(discrete)}; "
            "NUTS and SVI need them summed out"
        )
    deterministic = tuple(n for n, s in found.items() if s["type"] == "deterministic")
    shapes = {name: tuple(np.shape(found[name]["value"])) for name in (*latent, *deterministic)}
    return Sites(tuple(latent), deterministic, shapes)


def kept_sites(spec: ModelSpec, sites: Sites) -> tuple[str, ...]:
    """Return the sites to keep: those named in ``spec.dims``, or all where it names none."""
    every = (*sites.latent, *sites.deterministic)
    return tuple(name for name in every if name in spec.dims) if spec.dims else every


def random_sites(draws: Mapping[str, np.ndarray]) -> list[str]:
    """Return the sites that differ between draws; a deterministic fixed by a setting does not.

    Parameters
    ----------
    draws : mapping
        Arrays (chain, draw, ...). With a single draw every site counts.
    """
    if all(values.shape[0] * values.shape[1] == 1 for values in draws.values()):
        return sorted(draws)
    return sorted(name for name, values in draws.items() if (values != values[:1, :1]).any())
