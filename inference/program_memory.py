"""Compiled programs are dropped before a process runs out of memory maps.

Every program that XLA compiles for a CPU holds some memory maps, a sampler's run about a thousand, and JAX
keeps them for as long as the process lives. Linux allows a process 65530 by default; beyond that compilation
fails with "Cannot allocate memory", after some eighty fits.
"""

import itertools
from pathlib import Path

import jax

MAPS = Path("/proc/self/maps")
LIMIT = Path("/proc/sys/vm/max_map_count")
SHARE = 0.5
"""Part of the limit above which programs are dropped."""

EVERY = 10
"""Fits between two looks: counting takes a millisecond, which is as long as the quickest fit."""

_fits = itertools.count(1)


def tidy_programs() -> bool:
    """Drop JAX's compiled programs where the maps of this process are many; programs in use compile anew.

    Returns
    -------
    bool
        Whether they were dropped. Never where the system does not say how many maps there are.
    """
    if next(_fits) % EVERY:
        return False
    try:
        limit = int(LIMIT.read_text(encoding="ascii"))
        with MAPS.open("rb") as lines:
            held = sum(1 for _ in lines)
    except (OSError, ValueError):
        return False
    if held <= SHARE * limit:
        return False
    jax.clear_caches()
    return True
