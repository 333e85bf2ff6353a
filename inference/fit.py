"""The front door: fit a model by name."""

from typing import Any

import xarray as xr

from labelzoo.arguments import label_data, random_key
from labelzoo.models import registry
from labelzoo.models.spec import ModelSpec


def fit(
    model: str | ModelSpec, data: Any, engine: Any, *, seed: Any = 0, progress: bool = False, **settings: Any
) -> xr.DataTree:
    """Fit a model and return its posterior.

    Parameters
    ----------
    model : str or ModelSpec
        Registry name, card, or ``path/to/file.py:spec``.
    data : LabelData
        Rows to condition on.
    engine : str
        One of the model's engines (``labelzoo list``).
    seed : int
        From 0 to 2^32 - 1; the same seed gives the same posterior.
    progress : bool
        Show progress on stderr.
    **settings
        Settings of the program and options of the engine.

    Returns
    -------
    xarray.DataTree

    Raises
    ------
    ValueError
        If there is no such model, engine or setting, `seed` is no seed, or the data do not fit.
    """
    label_data(data)
    random_key(seed)
    entry = registry.get(model)
    found = find_engine(entry, engine)
    if entry.spec.refuse is not None:
        entry.spec.refuse(data, settings)
    return found(entry.spec, data, rng_key=seed, progress=progress, **settings)


def find_engine(entry: registry.Entry, name: str) -> Any:
    """Return the engine called `name` of a registered model.

    Raises
    ------
    ValueError
        If there is none, with the names that exist.
    """
    if not isinstance(name, str) or name not in entry.engines:
        raise ValueError(
            f"model {entry.spec.name!r} has no engine {name!r}; engines: {', '.join(sorted(entry.engines))}"
        )
    return entry.engines[name]
