"""Where the chains of a sampler stand, kept with the posterior, and how a run goes on from there.

A chain's state is the state of its kernel with its random key: going on from it makes the very steps that a
longer run would have made. What is kept is one state a chain, whatever the number of draws.
"""

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from labelzoo.inference.posterior import load

GROUP = "engine_state"
FREE = ("num_samples", "max_seconds", "max_bytes")
"""Options that may differ when a run goes on."""


class Before(NamedTuple):
    """The run to go on from.

    Attributes
    ----------
    tree : DataTree
    settings, options : dict
        Those of that run, with `FREE` options as given now.
    state : dict
        Arrays of the chains' states by name.
    """

    tree: xr.DataTree
    settings: dict[str, Any]
    options: dict[str, Any]
    state: dict[str, np.ndarray]


def run_before(previous: Any, spec: Any, engine: Any, data: Any, given: Mapping[str, Any]) -> Before:
    """Return the run to go on from, after comparing it with what is asked for now.

    Parameters
    ----------
    previous : DataTree or path
    spec, engine, data
        Of the run that goes on.
    given : mapping
        Settings and options that the caller named; those left out are as they were.

    Raises
    ------
    ValueError
        If it is of another model, engine, data set (by hash) or setting (by name), or keeps no state.
    """
    if not isinstance(previous, xr.DataTree | str | os.PathLike):
        raise ValueError(f"resume_from must be a posterior or the path of one, got {previous!r}")
    tree = previous if isinstance(previous, xr.DataTree) else load(previous)
    for what, name in (("model", spec.name), ("engine", engine.name)):
        if tree.attrs.get(what) != name:
            raise ValueError(f"resume_from is of {what} {tree.attrs.get(what)!r}, not {name!r}")
    if GROUP not in tree.children:
        raise ValueError(f"resume_from keeps no group {GROUP!r}: it was made by a version without resume")
    if tree.attrs["data_hash"] != data.hash():
        raise ValueError(
            f"resume_from is of other data: hash {tree.attrs['data_hash'][:12]}, not {data.hash()[:12]}"
        )
    settings, options = (json.loads(tree.attrs[name]) for name in ("settings", "options"))
    for name, value in given.items():
        known = settings if name in settings else options
        if name not in FREE and _plain(value) != known.get(name):
            raise ValueError(f"resume_from had {name}={known.get(name)!r}, not {value!r}")
    count = given.get("num_samples", engine.options.get("num_samples"))
    options |= {"num_samples": count, "max_seconds": given.get("max_seconds")}
    if "max_bytes" in engine.options:
        # Posteriors stored before this option existed go on under today's limit.
        kept = options.get("max_bytes", engine.options["max_bytes"])
        options["max_bytes"] = given.get("max_bytes", kept)
    settings = {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}
    state = {str(name): array.values for name, array in tree[GROUP].data_vars.items()}
    return Before(tree, settings, options, state)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [_plain(v) for v in value] if isinstance(value, tuple | list) else value


def joined(before: xr.DataTree, after: xr.DataTree) -> xr.DataTree:
    """Return `after` with the draws of `before` in front of its own, and the times of both added up."""
    groups = dict(after.children)
    parts: dict[str, Any] = {}
    for name, node in groups.items():
        new = node.to_dataset()
        if name in ("posterior", "sample_stats") and name in before.children:
            old = before[name].to_dataset()
            shifted = new.assign_coords(draw=np.arange(new.sizes["draw"]) + old.sizes["draw"])
            attrs = new.attrs
            new = xr.concat([old, shifted], dim="draw", join="override", combine_attrs="override")
            new.attrs = attrs
        parts[name] = new
    tree = xr.DataTree.from_dict(parts)
    options = json.loads(after.attrs["options"])
    options["num_samples"] = int(tree["posterior"].sizes["draw"])
    seconds = {
        name: float(before.attrs[name]) + float(after.attrs[name])
        for name in ("compile_seconds", "run_seconds")
    }
    tree.attrs = {
        **after.attrs,
        **seconds,
        "num_warmup": before.attrs["num_warmup"],
        "options": json.dumps(options),
        "seed": before.attrs["seed"],
    }
    if before.attrs["converged"] == "no":
        # Its draws come first: what was wrong with them still is.
        parts_of_message = (before.attrs["message"], after.attrs["message"])
        tree.attrs["converged"] = "no"
        tree.attrs["message"] = "; ".join(filter(None, map(str, parts_of_message)))
    tree.attrs["resumed"] = int(before.attrs.get("resumed", 0)) + 1
    return tree
