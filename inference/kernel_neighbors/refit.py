"""Fit again when labelled rows or classes have come, from the multipliers of the posterior before.

Rows are told by their names. The mode is unique, so that the result is that of a cold fit; only the way there
is shorter (`labelzoo.inference.kernel_neighbors.warm`).

Jain and Kapoor, CVPR 2009, section 4.
"""

import json
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from labelzoo.arguments import label_data
from labelzoo.inference.engine import refuse_other_columns
from labelzoo.inference.kernel_neighbors.answers import fits_of
from labelzoo.inference.kernel_neighbors.bregman import bregman
from labelzoo.inference.kernel_neighbors.engines import ENGINES, engine_of
from labelzoo.inference.kernel_neighbors.multipliers import Fit
from labelzoo.inference.kernel_neighbors.problem import Problem
from labelzoo.inference.kernel_neighbors.warm import warm_start
from labelzoo.inference.predict import constants_of

Array = Any

BREGMAN = ENGINES[0]


def refit(tree: Any, data: Any, *, progress: bool = False, **options: Any) -> Any:
    """Return the posterior of ``bregman`` on `data`, started from an earlier posterior.

    Parameters
    ----------
    tree : DataTree
        Of kernel_neighbors by ``bregman`` or ``dual``; its settings are used.
    data : LabelData
        All rows, those of before with the names they had. Rows that are new, whose class has changed, that
        have gone or whose name is not theirs alone begin anew. Labels are told by their names too.
    progress : bool
        Show progress on stderr.
    **options
        Of ``bregman``; those of `tree` or its defaults else.

    Returns
    -------
    xarray.DataTree
        As of ``labelzoo.fit("kernel_neighbors", data, "bregman")``.

    Raises
    ------
    ValueError
        If `tree` is no such posterior, has other features, an option is not of ``bregman``, or
        `data` cannot be fitted.
    """
    from labelzoo.models.kernel_neighbors_card import spec

    label_data(data)
    other = sorted(set(options) - set(BREGMAN.options))
    if other:
        raise ValueError(
            f"refit takes options of bregman ({', '.join(BREGMAN.options)}), settings are those of the "
            f"posterior; got {', '.join(other)}"
        )
    held, constants = fits_of(tree), constants_of(tree)
    refuse_other_columns(tree, data, ("feature",))
    settings = {name: constants[name] for name in spec.settings}
    kept = json.loads(tree.attrs["options"])
    chosen = {name: kept[name] for name in BREGMAN.options if name in kept} | options
    start_of = partial(_start, tree, held, data)
    engine = engine_of(BREGMAN.name, bregman, dict(BREGMAN.options), BREGMAN.description, start_of=start_of)
    return engine(spec, data, rng_key=0, progress=progress, **settings, **chosen)


def _names(tree: Any, constants: Any) -> list[str]:
    """Return the names of the rows that were fitted."""
    names = tree["observed_data"].coords["obs"].values
    return [str(names[i]) for i in np.asarray(constants["fitted_row"])]


def _class_names(tree: Any, constants: Any) -> list[str]:
    """Return the names of the labels that classes stand for."""
    names = json.loads(tree.attrs["label_names"])
    return [names[label] for label in np.asarray(constants["class_label"])]


def _start(
    tree: Any, held: list[Fit], data: Any, inputs: Mapping[str, Any], index: int, problem: Problem
) -> Array:
    """Return the multipliers to begin a problem with: zeros for a label that had none."""
    constants = constants_of(tree)
    one_class = bool(inputs["one_class"])
    place_of = {name: label for label, name in enumerate(data.label_names)}
    before = np.array([place_of.get(one, -1) for one in _class_names(tree, constants)], int)
    now, fit = np.asarray(inputs["class_label"]), None
    if one_class == bool(constants["one_class"]):
        at = np.flatnonzero(before[1::2] == now[2 * index]) if not one_class else np.arange(len(held))
        fit = held[at[0]] if at.size else None
    if fit is None:
        return np.zeros((len(problem.y), problem.columns))
    if one_class:
        fit, problem = _named(fit, before), problem._replace(classes=now)
    rows = _places(_names(tree, constants), [data.example_names[row] for row in inputs["fitted_row"]])
    return warm_start(fit, problem, _unchanged(fit, problem, rows))


def _named(fit: Fit, classes: Array) -> Fit:
    return fit._replace(problem=fit.problem._replace(classes=classes))


def _places(names: list[str], now: list[str]) -> Array:
    """Return where each name is now, -1 where it is nowhere or more than once on either side."""
    place = {name: i for i, name in enumerate(now)}
    twice = {name for each in (names, now) for name, count in Counter(each).items() if count > 1}
    return np.array([-1 if name in twice else place.get(name, -1) for name in names], int)


def _unchanged(fit: Fit, problem: Problem, rows: Array) -> Array:
    """Return `rows`, -1 where the row is of another class now."""
    was, now = fit.problem.classes[fit.problem.y], problem.classes[problem.y[rows]]
    return np.where(was == now, rows, -1)
