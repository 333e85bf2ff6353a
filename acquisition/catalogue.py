"""The list of acquisition functions: what ``labelzoo list`` shows and what every study looks names up in."""

import importlib
import re
from collections.abc import Iterable
from typing import Any

from labelzoo.acquisition.problem import Acquisition

MODULES = (
    "labelzoo.acquisition.integrated",
    "labelzoo.acquisition.ensemble",
    "labelzoo.acquisition.laplace",
    "labelzoo.acquisition.epig",
    "labelzoo.acquisition.mutual_information",
    "labelzoo.acquisition.label_selection",
    "labelzoo.acquisition.label_covariance",
    "labelzoo.acquisition.weighted_entropy",
    "labelzoo.acquisition.max_probability",
    "labelzoo.acquisition.information",
    "labelzoo.acquisition.batch_bald",
    "labelzoo.acquisition.diversity",
    "labelzoo.acquisition.margins",
    "labelzoo.acquisition.pairs",
    "labelzoo.acquisition.utility",
)
"""Each has ``ENTRIES``, a tuple of `Acquisition`."""

_EXTRA: dict[str, Acquisition] = {}


def register_acquisition(*entries: Acquisition) -> None:
    """Add entries to the catalogue, all or none; a name that is taken is refused with ValueError."""
    known = catalogue()
    for place, entry in enumerate(entries):
        if not re.fullmatch(r"[A-Za-z]\w*", str(entry.name)) or entry.name == "oracle":
            raise ValueError(f"acquisition name {entry.name!r}: letters, digits and _, and not 'oracle'")
        same = [other for other in entries[:place] if other.name == entry.name]
        if same or (entry.name in known and known[entry.name] is not entry):
            raise ValueError(f"acquisition {entry.name!r} is registered already")
    _EXTRA.update({entry.name: entry for entry in entries})


def catalogue() -> dict[str, Acquisition]:
    """Return every acquisition function by name, in the order in which they are listed."""
    found: dict[str, Acquisition] = {}
    for module in MODULES:
        for entry in importlib.import_module(module).ENTRIES:
            if entry.name in found:
                raise ValueError(f"acquisition {entry.name!r} is defined twice")
            found[entry.name] = entry
    return {**found, **_EXTRA}


def find(name: str) -> Acquisition:
    """Return the acquisition function called `name`, or raise ValueError with the names that exist."""
    known = catalogue()
    if name not in known:
        raise ValueError(f"no acquisition function {name!r}; functions: {', '.join(known)}")
    return known[name]


def find_all(names: Iterable[str]) -> list[Any]:
    """Return several acquisition functions; a name given twice is refused with ValueError."""
    asked = list(names)
    repeated = sorted({name for name in asked if asked.count(name) > 1})
    if repeated:
        raise ValueError(f"acquisition functions given twice: {', '.join(repeated)}")
    return [find(name) for name in asked]
