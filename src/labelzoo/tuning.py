"""`tune`: choose settings of a model by a held-out metric, for any model and engine of the registry."""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

from labelzoo.arguments import label_data, random_key
from labelzoo.data import LabelData
from labelzoo.data.splits import checked_fraction
from labelzoo.held_out import random_parts, thin_rows
from labelzoo.inference.fit import find_engine
from labelzoo.inference.predict import mean_prob
from labelzoo.models import registry
from labelzoo.tuning_scores import METRICS, Score, difference, score, standard_error

RULES = ("best", "one_se")

COLUMNS = (
    "mean",
    "se",
    "below_best",
    "below_best_se",
    "objective",
    "converged",
    "seconds",
    "compile_seconds",
    "problem",
)
"""Columns of the table besides the settings."""


class TuneResult(NamedTuple):
    """What `tune` found.

    Attributes
    ----------
    table : pandas.DataFrame
        A row a setting, in the order of the grid. The columns of the grid; ``mean``, the metric on the
        validation rows, higher is better, and its standard error ``se`` over them; ``below_best`` and
        ``below_best_se``, how much the best setting is better on the same rows; ``objective``, the
        last value of the engine's own trace, NaN where it has none; ``converged`` (yes, no, unknown);
        ``seconds`` and ``compile_seconds`` of the fit; ``problem``, why there is no mean, else "".
    best : dict
        The setting with the highest mean.
    chosen : dict
        What the rule chose.
    metric, rule : str
    train_rows, valid_rows : int
        Rows fitted and rows scored.

    Notes
    -----
    ``objective`` is no evidence to choose by. Of ``vb_em`` it bounds log p(labels, topics, weights, shapes)
    from below at its points of topics, weights and shapes, with the embedding integrated out; of ``map_em``
    it is a joint density at the mode, of ``online_em`` the bound on the labels of one row of the last batch,
    of ``exact_em`` log p(labels, topics, weights, shapes) itself; of mean field and SVI (ELBO) a bound on the
    evidence. Densities at a point of more topics are in more dimensions, and cannot be compared with those
    of fewer.
    """

    table: pd.DataFrame
    best: dict[str, Any]
    chosen: dict[str, Any]
    metric: str
    rule: str
    train_rows: int
    valid_rows: int


def tune(
    model: Any,
    data: Any,
    engine: Any = "vb_em",
    grid: Any = None,
    *,
    metric: Any = "log_score",
    valid: Any = 0.2,
    seed: Any = 0,
    rule: Any = "best",
    say: Callable[[str], None] | None = None,
    **settings: Any,
) -> TuneResult:
    """Fit every setting of a grid on training rows and score it on validation rows.

    Parameters
    ----------
    model : str or ModelSpec
        Registry name, card, or ``path/to/file.py:spec``.
    data : LabelData
        Where it carries a published split, its training rows alone are used: its test rows stay unseen.
    engine : str
    grid : mapping of str to sequence
        Settings of the model or options of the engine, each with the values to try; all combinations are
        tried, the first name varying slowest.
    metric : {"log_score", "per_example_auc", "p@1", "micro_auc", "macro_auc"}
        Of the posterior mean probabilities, on observed cells. ``log_score`` is in nats a row, summed over
        labels.
    valid : float or LabelData
        Share of the rows to score on, drawn at random by `seed`; or the rows themselves. Very wide tables
        are scored on fewer rows (10 million cells).
    seed : int
        Of the split and of every fit: settings differ in nothing else.
    rule : {"best", "one_se"}
        "one_se": the first setting in the order of the grid that is below the best by no more than one
        standard error of that difference, on the same rows. List the simplest values first.
    say : callable or None
        Told one line a setting.
    **settings
        Settings and options held fixed.

    Returns
    -------
    TuneResult

    Raises
    ------
    ValueError
        If a name of the grid is unknown, a value of a setting of the model is out of range or given twice (it
        is named), or nothing can be fitted. A setting that the engine alone refuses has its reason in the
        column ``problem``, and the others are fitted.
    """
    random_key(seed)
    entry = registry.get(model)
    combinations = _checked(entry, engine, grid, metric, rule, settings)
    train, held = _parts(data, valid, seed)
    _prepare_each(entry, engine, train, combinations, settings)
    rows, scores = [], []
    for number, chosen in enumerate(combinations, 1):
        row, found = _one(entry, engine, train, held, {**settings, **chosen}, metric, seed, chosen)
        rows.append({**chosen, **row})
        scores.append(found)
        if say is not None:
            say(f"{number}/{len(combinations)} {words(chosen)}: {_told(row, metric)}")
    return _result(rows, scores, combinations, metric, rule, (train.num_rows, held.num_rows))


def _checked(
    entry: registry.Entry, engine: Any, grid: Any, metric: Any, rule: Any, settings: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the combinations of the grid, in order."""
    for name, value, allowed in (("metric", metric, METRICS), ("rule", rule, RULES)):
        if value not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
    if not isinstance(engine, str):
        raise ValueError(f"engine must be a name, got {engine!r}")
    found = find_engine(entry, engine)
    if not isinstance(grid, Mapping) or not grid:
        raise ValueError(f"grid must be a mapping of setting to values, with at least one, got {grid!r}")
    known = {*entry.spec.settings, *found.options} - {"resume_from"}
    for name, values in grid.items():
        if name not in known:
            raise ValueError(
                f"grid: {name!r} is no setting of {entry.spec.name} and no option of {engine}; "
                f"there are: {', '.join(sorted(known))}"
            )
        if name in settings:
            raise ValueError(f"grid: {name!r} is held fixed at {settings[name]!r} too: give one of the two")
        if name in COLUMNS:
            raise ValueError(f"grid: {name!r} is a column of the result: it cannot be tuned here")
        if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray) or not len(values):
            raise ValueError(f"grid: {name} must be a list of at least one value, got {values!r}")
        plain = [_plain(value) for value in values]
        if again := [value for place, value in enumerate(plain) if value in plain[:place]]:
            raise ValueError(f"grid: {name} has the value {again[0]!r} more than once")
    lists = [[_plain(value) for value in values] for values in grid.values()]
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*lists)]


def _plain(value: Any) -> Any:
    """A number of Python for one of NumPy; a tuple for a list, as settings are stored."""
    value = value.tolist() if isinstance(value, np.generic | np.ndarray) else value
    return tuple(value) if isinstance(value, list) else value


def _parts(data: Any, valid: Any, seed: Any) -> tuple[Any, Any]:
    label_data(data)
    rows = data if data.train_index is None else data.subset(rows=data.train_index)
    if isinstance(valid, LabelData):
        for what in ("feature", "label"):
            if getattr(valid, f"{what}_names") != getattr(data, f"{what}_names"):
                raise ValueError(f"valid must have the {what}s of data, in their order")
        return rows, thin_rows(valid, seed)
    if isinstance(valid, bool) or not isinstance(valid, int | float | np.number):
        raise ValueError(f"valid must be a share of the rows or a LabelData, got {valid!r}")
    try:
        train, held = random_parts(rows, checked_fraction(valid), seed)
    except ValueError as error:
        raise ValueError(f"valid={valid!r}: {error}") from error
    return train, thin_rows(held, seed)


def _prepare_each(
    entry: registry.Entry,
    engine: str,
    train: Any,
    combinations: list[dict[str, Any]],
    settings: Mapping[str, Any],
) -> None:
    """Refuse what the model refuses before minutes are spent on the settings before it."""
    found, seen = find_engine(entry, engine), set()
    for chosen in combinations:
        own = {name: value for name, value in chosen.items() if name in entry.spec.settings}
        if (key := repr(own)) in seen:
            continue
        seen.add(key)
        fixed = {name: value for name, value in settings.items() if name in entry.spec.settings}
        try:
            with jax.enable_x64(True):
                entry.spec.prepare(train, entry.spec.resolve({**found.overrides, **fixed, **own}))
            if entry.spec.refuse is not None:
                entry.spec.refuse(train, {**fixed, **own})
        except ValueError as error:
            raise ValueError(f"grid: {words(own) or 'fixed settings'}: {error}") from error


def _one(
    entry: registry.Entry,
    engine: str,
    train: Any,
    held: Any,
    options: Mapping[str, Any],
    metric: str,
    seed: Any,
    chosen: Mapping[str, Any],
) -> tuple[dict[str, Any], Score | None]:
    """Fit and score one setting; a fit that diverges or is refused has no score."""
    began = time.perf_counter()
    try:
        tree = find_engine(entry, engine)(entry.spec, train, rng_key=seed, **options)
    except (FloatingPointError, ValueError) as error:
        row = {"objective": np.nan, "converged": "no", "seconds": time.perf_counter() - began}
        refused = isinstance(error, ValueError)
        return {**row, "compile_seconds": np.nan, "problem": str(error), "refused": refused}, None
    observed = None
    if held.missing is not None:
        observed = held.observed_mask(max_bytes=held.num_rows * held.num_labels)
    found = score(metric, held.Y, mean_prob(tree, held), observed)
    row = {
        "mean": found.value,
        "se": standard_error(found.parts, found.by_rows),
        "objective": _objective(tree),
        "converged": str(tree.attrs["converged"]),
        "seconds": float(tree.attrs["run_seconds"]),
        "compile_seconds": float(tree.attrs["compile_seconds"]),
        "problem": "",
    }
    return row, found


def _objective(tree: Any) -> float:
    if "optimization" not in tree.children or "objective" not in tree["optimization"]:
        return float("nan")
    values = np.asarray(tree["optimization"]["objective"]).ravel()
    return float(values[-1]) if values.size else float("nan")


def _result(
    rows: list[dict[str, Any]],
    scores: list[Score | None],
    combinations: list[dict[str, Any]],
    metric: str,
    rule: str,
    sizes: tuple[int, int],
) -> TuneResult:
    means = np.array([-np.inf if found is None else found.value for found in scores])
    best = int(means.argmax())
    top = scores[best]
    if top is None:
        first = rows[0]["problem"]
        if all(row["refused"] for row in rows):
            raise ValueError(f"grid: {words(combinations[0])}: {first}")
        raise ValueError(f"grid: no setting could be fitted; the first: {first}")
    chosen = None
    for place, (row, found) in enumerate(zip(rows, scores, strict=True)):
        below, error = (np.nan, np.nan) if found is None else difference(top, found)
        row |= {"below_best": below, "below_best_se": 0.0 if place == best else error}
        near = below <= (error if np.isfinite(error) else 0.0)
        if chosen is None and (place == best or (rule == "one_se" and near)):
            chosen = place
    assert chosen is not None
    # Lists of values stay objects: pandas would spread tuples and turn None into NaN.
    names = list(combinations[0])
    table = pd.DataFrame({name: pd.Series([row[name] for row in rows], dtype=object) for name in names})
    for name in COLUMNS:
        table[name] = [row.get(name, np.nan) for row in rows]
    return TuneResult(table, combinations[best], combinations[chosen], metric, rule, *sizes)


def words(settings: Mapping[str, Any]) -> str:
    """Return ``name=value`` pairs, separated by blanks."""
    return " ".join(f"{name}={value!r}" for name, value in settings.items())


def _told(row: Mapping[str, Any], metric: str) -> str:
    if row["problem"]:
        return str(row["problem"])
    unsettled = "" if row["converged"] != "no" else ", not converged"
    return f"{metric} {row['mean']:.4g} (s.e. {row['se']:.2g}), {row['seconds']:.1f} s{unsettled}"
