"""What there is: models, engines, hand-derived updates, acquisition functions, built-in data."""

import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np


def listing() -> dict[str, Any]:
    """Return the registries as plain lists of dictionaries."""
    from labelzoo.acquisition.catalogue import catalogue
    from labelzoo.data import BUILTIN
    from labelzoo.models import registry

    models = []
    for name in registry.names():
        entry = registry.get(name)
        engines = [
            {
                "name": e.name,
                "kind": e.kind,
                "conditionals": list(e.conditionals),
                "description": e.description,
                "options": plain(e.options),
            }
            for e in entry.engines.values()
        ]
        models.append(
            {
                "name": name,
                "paper": entry.spec.paper,
                "views": list(entry.spec.views),
                "settings": plain(entry.spec.settings),
                "engines": engines,
                "checks": ["draws", "identity", "stationarity", "enumeration"] if entry.updates else [],
            }
        )
    scores = [
        {
            name: getattr(entry, name)
            for name in ("name", "query", "units", "needs", "helps", "cost", "source")
        }
        for entry in catalogue().values()
    ]
    return {"models": models, "acquisition": scores, "datasets": [{"name": name} for name in BUILTIN]}


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return defaults as JSON can hold them: tuples as lists, NumPy numbers as Python's."""

    def one(value: Any) -> Any:
        if isinstance(value, tuple | list):
            return [one(v) for v in value]
        if isinstance(value, Mapping):
            return plain(value)
        if isinstance(value, np.generic | np.ndarray):
            return value.tolist()
        return value if value is None or isinstance(value, bool | int | float | str) else str(value)

    return {str(name): one(value) for name, value in values.items()}


def as_text(payload: dict[str, Any]) -> str:
    """Return the listing for a terminal."""
    lines = []
    for model in payload["models"]:
        lines += [model["name"], f"  {model['paper']}"]
        for engine in model["engines"]:
            lines.append(f"  {engine['name']:<14}{engine['kind']:<11}{engine['description']}")
            if engine["conditionals"]:
                lines.append(f"  {'':<25}updates: {', '.join(engine['conditionals'])}")
            if engine["options"]:
                options = ", ".join(f"{name}={value}" for name, value in engine["options"].items())
                lines += textwrap.wrap(
                    f"options: {options}", 120, initial_indent=" " * 27, subsequent_indent=" " * 36,
                    break_long_words=False, break_on_hyphens=False,
                )  # fmt: skip
        settings = ", ".join(f"{name}={value}" for name, value in model["settings"].items())
        lines += [f"  settings: {settings}", ""]
    lines.append("acquisition (what asks for single labels: cell)")
    for one in payload["acquisition"]:
        about = textwrap.wrap(one["helps"], 84)
        lines.append(f"  {one['name']:<22}{one['query']:<6}{about[0]}")
        lines += [f"  {'':<28}{rest}" for rest in about[1:]]
    lines.append("")
    lines.append("built-in data: " + ", ".join(d["name"] for d in payload["datasets"]))
    return "\n".join(lines)
