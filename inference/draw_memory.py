"""What the kept draws of a sampler will take, counted before a chain starts."""

from collections.abc import Mapping
from math import prod
from typing import Any

from labelzoo.arguments import real, size_words
from labelzoo.inference.run_mcmc import MCMC_OPTIONS, checked_counts

MAX_BYTES = 2**34
"""Memory that a run may plan for without being asked (16 GiB)."""


def refuse_large(plan: Mapping[str, int], max_bytes: Any, *, switch: str) -> None:
    """Refuse a plan above `max_bytes`, naming the largest array and the switch that avoids it.

    Raises
    ------
    ValueError
        If the sum passes `max_bytes`, or `max_bytes` is not a positive number.
    """
    if not real(max_bytes) > 0:
        raise ValueError(f"max_bytes must be a positive number, got {max_bytes!r}")
    total = sum(plan.values())
    if total <= max_bytes:
        return
    name, largest = max(plan.items(), key=lambda item: item[1])
    raise ValueError(
        f"the run would hold {size_words(total)}, above max_bytes={max_bytes:.4g} "
        f"({size_words(max_bytes)}); largest: {name}, {size_words(largest)}; {switch}"
    )


def refuse_many_draws(
    shapes: Mapping[str, tuple[int, ...]], options: Mapping[str, Any], max_bytes: Any, *, switch: str
) -> None:
    """Refuse draws that together pass `max_bytes`: chains x draws x 8 bytes for every number kept.

    Parameters
    ----------
    shapes : mapping
        Site to the shape of one draw.
    options : mapping
        Those of `run_mcmc.run_mcmc`; what is left out is as there.

    Raises
    ------
    ValueError
        As `refuse_large`, or if a number of chains or draws is no positive integer.
    """
    counts = {name: options.get(name, MCMC_OPTIONS[name]) for name in ("num_chains", "num_samples")}
    chains, draws = checked_counts(**counts).values()
    plan = {
        f"{name} of {chains} x {draws} draws": 8 * chains * draws * prod(shape)
        for name, shape in shapes.items()
    }
    refuse_large(plan, max_bytes, switch=switch)
