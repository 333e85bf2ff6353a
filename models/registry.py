"""The list of models: a card, its engines and its updates, by name."""

import importlib
import importlib.util
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from labelzoo.models.spec import ModelSpec

BUILT_IN = (
    "label_logistic",
    "label_gp",
    "sparse_bayes",
    "bernoulli_poisson_topics",
    "gp_bernoulli_mixture",
    "bpca",
    "compressed_gp",
    "kernel_neighbors",
)
"""Models of the package; each is registered by importing ``labelzoo.inference.<name>``."""


class Entry(NamedTuple):
    """A registered model: its card, engines by name, hand-derived updates, checks and advice on engines."""

    spec: ModelSpec
    engines: dict[str, Any]
    updates: tuple[Any, ...]
    cases: tuple[Any, ...] = ()
    advice: Callable[[Any, Mapping[str, Any]], str] | None = None


_registry: dict[str, Entry] = {}


def register(
    spec: ModelSpec,
    *,
    engines: Iterable[Any] = (),
    updates: Iterable[Any] = (),
    cases: Iterable[Any] = (),
    advice: Callable[[Any, Mapping[str, Any]], str] | None = None,
) -> ModelSpec:
    """Tie a model's card to its engines and updates; ``nuts`` and ``svi`` are added by themselves.

    Parameters
    ----------
    spec : ModelSpec
    engines : iterable of labelzoo.inference.engine.Engine
    updates : iterable of labelzoo.inference.update.Update
    cases : iterable of StationarityCase, OrderCase or EnumerationCase
        What `labelzoo check` holds engines, sweeps and views against; models of the package keep theirs in
        modules of these names.
    advice : callable or None
        ``advice(data, settings) -> str``: which engine to use for data of such sizes, and where that is
        known from; `compare` passes it on.

    Returns
    -------
    ModelSpec
        The card, so that ``spec = register(...)`` reads well in a user's file.

    Raises
    ------
    ValueError
        If two engines share a name or an update names an unknown view.
    """
    from labelzoo.inference.reference import reference_engines

    own = list(engines)
    clash = sorted(name for name, count in Counter(engine.name for engine in own).items() if count > 1)
    if clash:
        raise ValueError(f"model {spec.name!r}: several engines are called {', '.join(clash)}")
    by_name = {engine.name: engine for engine in [*reference_engines(spec), *own]}
    updates = tuple(updates)
    for update in updates:
        if update.view not in spec.views:
            raise ValueError(
                f"model {spec.name!r}: update {update.name!r} names the view {update.view!r}; "
                f"views: {', '.join(spec.views)}"
            )
    _registry[spec.name] = Entry(spec, by_name, updates, tuple(cases), advice)
    return spec


def registered(spec: ModelSpec) -> Entry | None:
    """Return the entry of exactly this card, None if it is not registered."""
    entry = _registry.get(spec.name)
    return entry if entry is not None and entry.spec is spec else None


def load_built_in() -> None:
    """Import every model of the package, which registers it."""
    for name in BUILT_IN:
        if name not in _registry:
            importlib.import_module(f"labelzoo.inference.{name}")


def names() -> list[str]:
    """Return the names of all registered models."""
    load_built_in()
    return sorted(_registry)


def get(model: str | ModelSpec) -> Entry:
    """Return the entry of a model given by name, by card, or as ``path/to/file.py:spec``.

    Raises
    ------
    ValueError
        If there is no such model, file or card, with the names that exist.
    """
    if isinstance(model, ModelSpec):
        if model.name not in _registry or _registry[model.name].spec is not model:
            register(model)
        return _registry[model.name]
    if ".py" in model:
        return _from_file(model)
    if model in BUILT_IN and model not in _registry:
        importlib.import_module(f"labelzoo.inference.{model}")
    if model not in _registry:
        raise ValueError(f"no model {model!r}; models: {', '.join(names())}, or path/to/file.py:spec")
    return _registry[model]


def _from_file(reference: str) -> Entry:
    path_text, _, attribute = reference.partition(":")
    path = Path(path_text)
    if not path.is_file():
        raise ValueError(f"no file {path_text!r} to read a model from")
    name = f"labelzoo_user_{path.stem}"
    module_spec = importlib.util.spec_from_file_location(name, path)
    if module_spec is None or module_spec.loader is None:
        raise ValueError(f"{path_text!r} is not a Python file")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module
    try:
        module_spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ValueError(f"{path_text}: {type(error).__name__}: {error}") from error
    spec = getattr(module, attribute or "spec", None)
    if not isinstance(spec, ModelSpec):
        raise ValueError(f"{path_text} has no ModelSpec called {attribute or 'spec'!r}")
    return get(spec)
