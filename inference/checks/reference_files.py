"""Files of stored references: written at once, read with their layout checked, and their data found again."""

import json
import math
import os
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import jax

from labelzoo.inference.checks.states import coin_labels
from labelzoo.models import registry
from labelzoo.models.spec import ModelSpec

FORMAT = 1
"""Number of the file layout, checked on load."""

MEASURED = ("mean", "sd", "mcse_mean", "mcse_sd", "rhat", "ess_bulk", "ess_tail")
"""What is stored of a functional; the last five are null where it never moves."""

KEYS = ("model", "engine", "data", "data_hash", "settings", "seed", "diagnostics", "functionals", "versions")


def tiny_data(spec: ModelSpec, seed: int, settings: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Simulate the tiny case of a model: the data and the settings it was simulated under.

    Labels are fair coins where the model cannot simulate, with some hidden by its ``for_comparison``.

    Parameters
    ----------
    seed : int
    settings : mapping
        Overrides of the card's settings; sizes of the card that are settings too (topics, say) come first.

    Raises
    ------
    ValueError
        If the model neither simulates nor names its tiny sizes.
    """
    sizes = {name: size for name, size in spec.tiny.items() if name in spec.settings}
    resolved = spec.resolve({**sizes, **settings})
    if spec.simulate is None:
        if not {"num_obs", "num_features", "num_labels"} <= set(spec.tiny):
            why = f": {spec.no_simulate}" if spec.no_simulate else ""
            raise ValueError(f"model {spec.name!r} does not simulate{why}; pass data")
        coins = coin_labels(spec.tiny, seed)
        return coins if spec.for_comparison is None else spec.for_comparison(coins, seed), resolved
    data, _ = spec.simulate(jax.random.key(seed), dict(spec.tiny), **settings)
    return data, resolved


def find_data(
    spec: ModelSpec, source: Any, settings: Mapping[str, Any]
) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Return data, settings and how to name the data in a file.

    Parameters
    ----------
    source : str or LabelData
        ``"tiny"`` or ``"tiny:SEED"`` for a simulated tiny case, else what `labelzoo.data.load` reads.
    """
    if not isinstance(source, str):
        return source, spec.resolve(settings), {"source": "given"}
    name, _, number = source.partition(":")
    if name != "tiny":
        from labelzoo.data import load

        return load(source), spec.resolve(settings), {"source": source}
    if number and not (number.isascii() and number.isdigit() and int(number) < 2**32):
        raise ValueError(f"data {source!r}: write tiny or tiny:SEED, SEED below 2^32")
    seed = int(number or 0)
    data, resolved = tiny_data(spec, seed, settings)
    told = {"source": "tiny", "seed": seed, "sizes": dict(spec.tiny), "settings": plain(settings)}
    return data, resolved, told


def plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as JSON holds them: tuples as lists, NumPy scalars as numbers."""
    return json.loads(json.dumps(dict(settings), default=lambda value: value.item()))


def as_settings(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Undo `plain`: lists are tuples again."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()}


def reference_names() -> list[str]:
    """Return the names of the references that come with the package."""
    folder = resources.files("labelzoo") / "references"
    return sorted(f.name.removesuffix(".json") for f in folder.iterdir() if f.name.endswith(".json"))


def load_reference(name: str | os.PathLike[str]) -> dict[str, Any]:
    """Return a reference of the package by name, or one from a .json file.

    Raises
    ------
    ValueError
        If there is none, or the file is not a reference of this format.
    """
    if str(name) in reference_names():
        text = (resources.files("labelzoo") / "references" / f"{name}.json").read_text(encoding="utf-8")
    elif Path(name).is_file():
        text = Path(name).read_text(encoding="utf-8")
    else:
        raise ValueError(f"no reference {str(name)!r}: {', '.join(reference_names())}, or a .json file")
    try:
        reference = json.loads(text)
    except ValueError as error:
        raise ValueError(f"reference {str(name)!r} is not JSON: {error}") from error
    return validated(reference, str(name))


def validated(reference: Any, name: str) -> dict[str, Any]:
    """Return a reference whose layout is right.

    Raises
    ------
    ValueError
        That names the file and what is missing.
    """
    if not isinstance(reference, dict) or reference.get("format") != FORMAT:
        raise ValueError(f"reference {name!r} is not of format {FORMAT}")
    missing = [key for key in KEYS if key not in reference]
    if missing:
        raise ValueError(f"reference {name!r} lacks {', '.join(missing)}")
    tables = ("data", "settings", "diagnostics", "functionals")
    wrong_type = [key for key in tables if not isinstance(reference[key], dict)]
    if not reference["functionals"]:
        wrong_type.append("functionals")
    if wrong_type or not isinstance(reference["model"], str):
        raise ValueError(f"reference {name!r}: {', '.join(wrong_type) or 'model'} is not of the right type")
    for functional, row in reference["functionals"].items():
        if wrong := _wrong_number(row):
            raise ValueError(f"reference {name!r}: {functional} {wrong}")
    _refuse_unadmitted(reference, name)
    return reference


def _wrong_number(row: Any) -> str:
    """Say what is wrong with the numbers of a functional, "" if nothing is."""
    missing = [key for key in MEASURED if key not in row] if isinstance(row, dict) else list(MEASURED)
    missing = missing or [key for key in ("mean", "sd") if row[key] is None]
    if missing:
        return f"lacks {', '.join(missing)}"
    for key in MEASURED:
        value = row[key]
        numeric = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if value is not None and not numeric:
            return f"has {key} {value!r}, which is no finite number"
    if row["sd"] < 0 or not all(0 <= (row[key] or 0.0) <= row["sd"] for key in ("mcse_mean", "mcse_sd")):
        return "has an error that is negative or larger than its sd"
    return ""


def _refuse_unadmitted(reference: Mapping[str, Any], name: str) -> None:
    """Refuse a reference whose stored diagnostics break the rules of admission stored beside them."""
    rules, found = reference.get("admission", {}), reference["diagnostics"]
    try:
        ess = min(found["min_ess_bulk"], found["min_ess_tail"])
        admitted = (
            found["max_rhat"] < rules["max_rhat"]
            and ess >= rules["min_ess"]
            and found["divergences"] <= rules["divergences"]
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"reference {name!r}: admission or diagnostics are incomplete: {error}") from error
    if not admitted:
        raise ValueError(f"reference {name!r}: its diagnostics break its own rules of admission")


def reference_data(reference: Mapping[str, Any], data: Any = None) -> Any:
    """Return the data of a reference: simulated or loaded again, or `data`, checked by hash.

    Raises
    ------
    ValueError
        If the data cannot be found or are not those of the reference.
    """
    told = reference["data"]
    if data is None:
        if "source" not in told:
            raise ValueError("this reference does not say where its data come from: pass data")
        if told["source"] == "given":
            raise ValueError("this reference was made from data in memory: pass data")
        source = f"tiny:{told['seed']}" if told["source"] == "tiny" else told["source"]
        spec = registry.get(reference["model"]).spec
        data = find_data(spec, source, as_settings(told.get("settings", {})))[0]
    if data.hash() != reference["data_hash"]:
        raise ValueError(
            f"the data are not those of the reference: hash {data.hash()[:12]}, there "
            f"{reference['data_hash'][:12]}"
        )
    return data
