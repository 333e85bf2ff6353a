"""Fit again when labelled rows or classes have come, from the multipliers of the posterior before.

Rows are told by their names. The mode is unique, so that the result is that of a cold fit; only the way there
is shorter (`labelzoo.inference.kernel_neighbors.warm`).

Jain and Kapoor, CVPR 2009, section 4.
"""

import json
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import numpy as np

from labelzoo.arguments import label_data
from labelzoo.inference.engine import refuse_other_columns
from labelzoo.inference.kernel_neighbors.answers import fits_of
from labelzoo.inference.kernel_neighbors.bregman import bregman
from labelzoo.inference.kernel_neighbors.engines import ENGINES, engine_of, problems_of
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
    with jax.enable_x64(True):
        inputs = spec.prepare(data, settings)
    starts = _starts(tree, held, inputs, data)
    engine = engine_of(BREGMAN.name, partial(_from, starts), dict(BREGMAN.options), BREGMAN.description)
    return engine(spec, data, rng_key=0, progress=progress, **settings, **chosen)


def _from(starts: Iterator[Array], problem: Problem, **options: Any) -> Fit:
    return bregman(problem, start=next(starts), **options)


def _names(tree: Any, constants: Any) -> list[str]:
    """Return the names of the rows that were fitted."""
    names = tree["observed_data"].coords["obs"].values
    return [str(names[i]) for i in np.asarray(constants["fitted_row"])]


def _class_names(tree: Any, constants: Any) -> list[str]:
    """Return the names of the labels that classes stand for."""
    names = json.loads(tree.attrs["label_names"])
    return [names[label] for label in np.asarray(constants["class_label"])]


def _starts(tree: Any, held: list[Fit], inputs: Any, data: Any) -> Iterator[Array]:
    """Yield the multipliers to begin each problem with: zeros for a label that had none."""
    constants = constants_of(tree)
    names = _names(tree, constants)
    now_names = [data.example_names[row] for row in inputs["fitted_row"]]
    place = {name: i for i, name in enumerate(now_names)}
    twice = {name for each in (names, now_names) for name, count in Counter(each).items() if count > 1}
    rows = np.array([-1 if name in twice else place.get(name, -1) for name in names])
    place_of = {name: label for label, name in enumerate(data.label_names)}
    before = np.array([place_of.get(one, -1) for one in _class_names(tree, constants)], int)
    now = np.asarray(inputs["class_label"])
    same_form = bool(constants["one_class"]) == bool(inputs["one_class"])
    for index, problem in enumerate(problems_of(inputs)):
        if bool(inputs["one_class"]):
            fits = [fit._replace(problem=fit.problem._replace(classes=before)) for fit in held]
            problem, number = problem._replace(classes=now), 0
        else:
            fits = held
            at = np.flatnonzero(before[1::2] == now[2 * index])
            number = int(at[0]) if at.size else len(held)
        if not same_form or number >= len(fits):
            yield np.zeros((len(problem.y), problem.columns))
            continue
        yield warm_start(fits[number], problem, _unchanged(fits[number], problem, rows))


def _unchanged(fit: Fit, problem: Problem, rows: Array) -> Array:
    """Return `rows`, -1 where the row is of another class now."""
    was, now = fit.problem.classes[fit.problem.y], problem.classes[problem.y[rows]]
    return np.where(was == now, rows, -1)
