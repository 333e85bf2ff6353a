"""Stored references: long NUTS runs, summarised, admitted by numbers, and written with what made them.

An engine that is held against a fresh NUTS run pays for that run each time. A reference keeps the mean and sd
of every functional of the card with their Monte Carlo errors, the diagnostics on which it was admitted, the
data's hash, settings, versions and the command, so that it can be made again and be compared against for
nothing.
"""

import json
import os
import platform
import shlex
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
import xarray as xr
from arviz_stats.base.array import array_stats
from rich.console import Console

from labelzoo.inference.checks.reference_files import (
    FORMAT,
    MEASURED,
    find_data,
    load_reference,
    plain,
    reference_data,
    reference_names,
)
from labelzoo.inference.compare.functionals import evaluate
from labelzoo.inference.compare.verdict import RHAT_LIMIT, Moments, moments
from labelzoo.inference.fit import find_engine
from labelzoo.models import registry
from labelzoo.models.spec import ModelSpec
from labelzoo.whole_file import whole_file

MIN_ESS = 10_000
"""Effective draws, bulk and tail, that every functional of a reference must have."""

MAX_DRAWS = 40_000
"""Draws a chain beyond which a reference is refused rather than extended."""

MAX_RUNS = 4
"""Runs, each longer or with smaller steps than the last, before a reference is refused."""

NUTS_SETTINGS: dict[str, Any] = {
    "num_chains": 4,
    "num_warmup": 1000,
    "num_samples": 5000,
    "target_accept_prob": 0.9,
    "dense_mass": True,
}
"""Options of the first run, where the caller sets no others."""

PACKAGES = ("labelzoo", "numpyro", "jax", "arviz")

__all__ = [
    "ReferenceRefused",
    "load_reference",
    "reference_data",
    "reference_names",
    "reference_posterior",
    "write_reference",
]


class ReferenceRefused(ValueError):
    """A run that does not meet the rules of admission; the message holds its numbers."""


def reference_posterior(
    model: str | ModelSpec,
    data: Any = "tiny",
    *,
    seed: int = 0,
    progress: bool = False,
    min_ess: Any = MIN_ESS,
    max_draws: Any = MAX_DRAWS,
    command: str = "",
    **settings: Any,
) -> dict[str, Any]:
    """Run NUTS until its summaries are admitted as a reference, and return them.

    Admission: split R-hat of every functional below 1.01, at least `min_ess` effective draws of each in bulk
    and tail, and no divergent draw. A run that has too few is made again from a fresh seed and longer; one
    that diverged, with a quarter of the distance of `target_accept_prob` from 1.

    Parameters
    ----------
    model : str or ModelSpec
    data : str or LabelData
        ``"tiny:SEED"``, a built-in name, a file, or the data.
    seed : int
        Of the first run; the others take the next ones.
    progress : bool
        Report on stderr.
    min_ess, max_draws : int
        Effective draws needed, and draws a chain at most.
    command : str
        Kept in the reference.
    **settings
        Settings of the program and options of ``nuts``.

    Raises
    ------
    ReferenceRefused
        A ValueError with the numbers, if no run within the limits is admitted.
    ValueError
        If a setting does not exist, or a limit is not a positive integer.
    """
    for name, value in (("min_ess", min_ess), ("max_draws", max_draws)):
        if not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"{name} must be a positive integer, got {value!r}")
    entry = registry.get(model)
    spec, engine = entry.spec, find_engine(entry, "nuts")
    own = {name: value for name, value in settings.items() if name not in engine.options}
    chosen, program, told = find_data(spec, data, own)
    options = {**NUTS_SETTINGS, **{k: v for k, v in settings.items() if k in engine.options}}
    options["num_samples"] = min(int(options["num_samples"]), int(max_draws))
    say = Console(stderr=True, highlight=False).print if progress else lambda line: None
    attempts: list[dict[str, Any]] = []
    while True:
        at = seed + len(attempts)
        begin = time.perf_counter()
        tree = engine(spec, chosen, rng_key=at, progress=progress, **program, **options)
        functionals, found = summarize(spec, tree, chosen, program)
        found = {**found, "seed": at, "options": plain(options), "seconds": time.perf_counter() - begin}
        attempts.append(found)
        complaints = shortcomings(found, min_ess)
        say(f"{spec.name}, run {len(attempts)}: {'; '.join(complaints) or 'admitted'}")
        if not complaints:
            break
        longer = next_options(options, found, min_ess, max_draws)
        if longer is None or len(attempts) == MAX_RUNS:
            runs = f"{len(attempts)} run{'s' if len(attempts) > 1 else ''}"
            raise ReferenceRefused(
                f"{spec.name}: no reference after {runs} of at most {max_draws} draws a chain: "
                + "; ".join(complaints)
            )
        options = longer
    return {
        "format": FORMAT,
        "model": spec.name,
        "engine": "nuts",
        "data": told,
        "data_hash": chosen.hash(),
        "settings": plain(program),
        "seed": seed,
        "command": command,
        "admission": {"max_rhat": RHAT_LIMIT, "min_ess": int(min_ess), "divergences": 0},
        "diagnostics": attempts[-1],
        "refused_runs": attempts[:-1],
        "functionals": functionals,
        "versions": {"python": platform.python_version(), **{n: version(n) for n in PACKAGES}},
    }


def summarize(
    spec: ModelSpec, tree: xr.DataTree, data: Any, program: Mapping[str, Any]
) -> tuple[dict[str, dict[str, float | None]], dict[str, Any]]:
    """Return the stored numbers of every functional, and the worst diagnostics of the run."""
    with jax.enable_x64(True):
        inputs = spec.prepare(data, program)
    values, names = evaluate(spec, tree, inputs)
    found, errors = moments(values), sd_errors(values)
    table = np.stack([*found[:3], errors, *found[3:]], axis=1)
    functionals = {
        name: {key: (float(v) if np.isfinite(v) else None) for key, v in zip(MEASURED, row, strict=True)}
        for name, row in zip(names, table, strict=True)
    }
    return functionals, {**worst_of(found, names), **_sampler_numbers(tree)}


def sd_errors(values: np.ndarray) -> np.ndarray:
    """Return the Monte Carlo error of the sd of each functional: values (chain, draw, functional)."""
    out = np.full(values.shape[2], np.nan)
    moves = moments(values).sd > 0
    if moves.any() and values.shape[1] >= 4:
        out[moves] = array_stats.mcse(values[:, :, moves], method="sd", chain_axis=0, draw_axis=1)
    return out


def worst_of(found: Moments, names: list[str]) -> dict[str, Any]:
    """Return the largest R-hat and the smallest effective sizes, each with its functional."""
    moves = found.sd > 0
    if not moves.any():
        raise ValueError("no functional moves: there is nothing to refer to")
    # A missing diagnostic is a failed one.
    rhat = np.where(moves, np.where(np.isnan(found.rhat), np.inf, found.rhat), -np.inf)
    bulk = np.where(moves, np.nan_to_num(found.ess_bulk, nan=0.0), np.inf)
    tail = np.where(moves, np.nan_to_num(found.ess_tail, nan=0.0), np.inf)
    return {
        "max_rhat": float(rhat.max()),
        "max_rhat_of": names[int(rhat.argmax())],
        "min_ess_bulk": float(bulk.min()),
        "min_ess_bulk_of": names[int(bulk.argmin())],
        "min_ess_tail": float(tail.min()),
        "min_ess_tail_of": names[int(tail.argmin())],
        "functionals_that_move": int(moves.sum()),
    }


def _sampler_numbers(tree: xr.DataTree) -> dict[str, Any]:
    sizes, stats = tree["posterior"].sizes, tree["sample_stats"].to_dataset()
    return {
        "chains": int(sizes["chain"]),
        "draws_a_chain": int(sizes["draw"]),
        "divergences": int(stats["diverging"].values.sum()),
        "mean_leapfrogs": float(stats["n_steps"].values.mean()),
        "largest_tree_depth": int(stats["tree_depth"].values.max()),
    }


def shortcomings(found: Mapping[str, Any], min_ess: int) -> list[str]:
    """Say which rules of admission a run breaks, with the numbers."""
    out = []
    if not found["max_rhat"] < RHAT_LIMIT:
        out.append(f"R-hat {found['max_rhat']:.4f} of {found['max_rhat_of']}, not below {RHAT_LIMIT}")
    for which in ("bulk", "tail"):
        ess = found[f"min_ess_{which}"]
        if not ess >= min_ess:
            out.append(
                f"{ess:.0f} effective {which} draws of {found[f'min_ess_{which}_of']}, {min_ess} needed"
            )
    if found["divergences"]:
        out.append(f"{found['divergences']} divergent draws, none allowed")
    return out


def next_options(
    options: Mapping[str, Any], found: Mapping[str, Any], min_ess: int, max_draws: int
) -> dict[str, Any] | None:
    """Return the options of the next run, None where the limit on draws has been reached."""
    ess = max(1.0, min(found["min_ess_bulk"], found["min_ess_tail"]))
    short = ess < min_ess or not found["max_rhat"] < RHAT_LIMIT
    draws = int(options["num_samples"])
    if short and draws >= max_draws:
        return None
    out = dict(options)
    if short:
        out["num_samples"] = int(min(max_draws, np.ceil(draws * max(1.5, 1.2 * min_ess / ess))))
    if found["divergences"]:
        out["target_accept_prob"] = 1.0 - (1.0 - options["target_accept_prob"]) / 4.0
    return out


def write_reference(
    model: str | ModelSpec, out: str | os.PathLike[str], *, data: Any = "tiny", seed: int = 0, **rest: Any
) -> dict[str, Any]:
    """Make a reference and write it: what ``labelzoo fit MODEL --engine nuts --reference`` does.

    Nothing is written unless it is admitted; the file appears at once and whole.

    Parameters
    ----------
    model, data, seed, **rest
        Those of `reference_posterior`.
    out : path
        A .json file.

    Returns
    -------
    dict
        The reference.
    """
    path = Path(out)
    if path.suffix != ".json" or not path.absolute().parent.is_dir():
        raise ValueError(f"{path}: a reference is written to a .json file in a folder that exists")
    name = model if isinstance(model, str) else model.name
    source = data if isinstance(data, str) else "DATA"
    hidden = ("progress", "command")
    pairs = [f"{k}={json.dumps(plain({k: v})[k])}" for k, v in rest.items() if k not in hidden]
    told = [f"--set {shlex.quote(pair)}" for pair in pairs]
    command = " ".join(
        [f"labelzoo fit {name} --data {source} --engine nuts --reference --seed {seed}", *told]
        + [f"--out {path.name}"]
    )
    reference = reference_posterior(model, data, seed=seed, **{"command": command, **rest})
    with whole_file(path) as temporary:
        temporary.write_text(json.dumps(reference, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return reference
