"""The whole job behind ``labelzoo regret``: split the rows, fit, ask, value, judge, write."""

import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from labelzoo.comparison_run import split_settings
from labelzoo.inference.fit import find_engine
from labelzoo.regret import (
    Draws,
    Judge,
    find_usable,
    judge_engine,
    make_judge,
    problem_of,
)
from labelzoo.regret_fits import (
    Parts,
    default_reference,
    engine_draws,
    reference_draws,
    small_enough,
    split_parts,
)
from labelzoo.regret_text import regret_text, row_of, withheld

Array = Any

ACQUIRE = ("ensemble_ivr", "bald", "epig", "entropy")
"""Acquisition functions that are judged unless others are named."""

LABELLED, POOL, TARGETS = 60, 80, 80
"""Rows of each part, where the data have so many."""

SIZES = {"rows": LABELLED, "pool": POOL, "targets": TARGETS}

DRAWS = 300
"""Draws that every engine, and exact inference beside it, may ask from."""

REPEATS = 6
"""Independent replicates; the standard errors are over these."""


class RunResult(NamedTuple):
    """JSON payload, text, and whether a verdict could be given."""

    payload: dict[str, Any]
    text: str
    judged: bool


def measure_regret(
    model: Any,
    data: Any,
    *,
    reference: str | None = None,
    engines: Sequence[str] | None = None,
    acquire: Sequence[str] = ACQUIRE,
    batch: int = 10,
    rows: int = LABELLED,
    pool: int = POOL,
    targets: int = TARGETS,
    draws: int = DRAWS,
    repeats: int = REPEATS,
    seed: int = 0,
    engine_settings: Mapping[str, Mapping[str, Any]] | None = None,
    say: Callable[[str], None] | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Measure what is lost by asking from each engine's posterior instead of the exact one.

    Parameters
    ----------
    model : str or ModelSpec
    data : LabelData
        Split at random by `seed` into labelled rows, pool and targets.
    reference : str or None
        An engine that is exact: ``mcmc`` or ``conjugate``. None: the closed form where there is one, or NUTS.
    engines : sequence of str or None
        None: all others of the model.
    acquire : sequence of str
        Names of `labelzoo.regret.usable`.
    batch, rows, pool, targets : int
        Rows asked at once, labelled, that can be asked, and to be predicted; the last two are cut to what is
        left of the data.
    draws : int
        Posterior draws an engine asks from.
    repeats : int
        Runs of every engine, and groups of four chains of the reference; at least 3.
    engine_settings : mapping
        Options of single engines by name, the reference's too.
    **settings
        Settings of the program, and options of any engine.

    Returns
    -------
    dict
        What ``labelzoo regret --json`` prints.

    Raises
    ------
    ValueError
        If a name does not exist, the reference is not exact, too few rows have labels, or the pool is not
        larger than the batch.
    """
    from labelzoo.models import registry

    start, say = time.perf_counter(), say or (lambda message: None)
    entry = registry.get(model)
    exact = reference or default_reference(entry)
    chosen = _engines(entry, engines, exact)
    entries = [find_usable(name) for name in dict.fromkeys(acquire)]
    if not entries:
        raise ValueError("acquire: no acquisition function given")
    _check_counts(batch=batch, rows=rows, pool=pool, targets=targets, draws=draws, repeats=repeats)
    parts = split_parts(data, rows, pool, targets, batch, seed)
    program, options = split_settings(entry, (*chosen, exact), settings)
    own = {
        name: {**program, **options[name], **(engine_settings or {}).get(name, {})}
        for name in (*chosen, exact)
    }
    judge_draws = reference_draws(entry, parts, exact, repeats, draws, seed, own[exact], say)
    payload = {
        "model": entry.spec.name, "data": "", "reference": exact, "rhat": judge_draws.rhat,
        "divergences": judge_draws.divergences, "thinning": judge_draws.thinning,
        "rows": {"labelled": rows, "pool": parts.pool.num_rows, "targets": parts.targets.num_rows},
        "labels": data.num_labels, "features": data.num_features, "batch": batch, "draws": draws,
        "repeats": repeats, "seed": seed, "exact_choices": {}, "engines": [],
    }  # fmt: skip
    seconds = {exact: judge_draws.seconds}
    judges: list[Judge] = []
    if judge_draws.converged:
        say("exact choices")
        judges = [make_judge(one, judge_draws.sets, batch, seed=seed) for one in entries]
        payload["exact_choices"] = {
            judge.entry.name: _names(judge.turns[0][0].exact, parts.pool) for judge in judges
        }
    for name in chosen:
        kind = entry.engines[name].kind
        if not judges:
            reason = f"no verdict: reference not converged (R-hat {judge_draws.rhat:.3f})"
            payload["engines"] += [withheld(name, kind, one.name, reason) for one in entries]
            continue
        say(f"{name}: {repeats} runs")
        began = time.perf_counter()
        payload["engines"] += _rows(entry, parts, name, judges, draws, seed, own[name], len(chosen))
        seconds[name] = time.perf_counter() - began
    payload |= {"seconds": seconds, "total_seconds": time.perf_counter() - start}
    return payload


def regret_and_report(model: Any, data_name: Any, out: Any, command: str = "", **options: Any) -> RunResult:
    """Measure on data given by name; write ``regret.json``, ``regret.csv`` and ``regret.png`` into a folder.

    Data with more than 6000 cells are cut to a small real subset (20 labels, 8 features), as in
    ``labelzoo compare``.
    """
    import pandas as pd

    from labelzoo.data import load
    from labelzoo.regret_picture import regret_picture
    from labelzoo.report import write_bytes

    wanted = sum(options.get(name, default) for name, default in SIZES.items())
    data, options = small_enough(model, load(data_name), wanted, options)
    payload = measure_regret(model, data, **options)
    payload |= {"data": str(data_name), "command": command or shlex.join(["labelzoo", "regret", str(model)])}
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    table = pd.DataFrame(payload["engines"]).drop(columns=["asked"], errors="ignore")
    files = [write_bytes(folder / "regret.csv", table.to_csv(index=False).encode())]
    judged = any(row["regret"] is not None for row in payload["engines"])
    if judged:
        files.append(write_bytes(folder / "regret.png", regret_picture([payload])))
    else:
        (folder / "regret.png").unlink(missing_ok=True)  # of an earlier run: it would pass for this one's
    payload["files"] = [*map(str, files), str(folder / "regret.json")]
    content = json.dumps(payload, ensure_ascii=False, allow_nan=False, indent=1)
    write_bytes(folder / "regret.json", content.encode())
    return RunResult(payload, regret_text(payload), judged)


def _rows(
    entry: Any, parts: Parts, name: str, judges: Sequence[Judge], draws: int, seed: int,
    settings: Mapping[str, Any], engines: int,
) -> list[dict[str, Any]]:  # fmt: skip
    kind = entry.engines[name].kind
    try:
        runs = engine_draws(entry, parts, name, len(judges[0].turns), draws, seed, settings)
    except (FloatingPointError, RuntimeError) as error:
        why = f"failed: {' '.join(str(error).split())}"
        return [withheld(name, kind, judge.entry.name, why) for judge in judges]
    rows = []
    for judge in judges:
        if runs[0].is_point and "probs" in judge.entry.needs:
            why = f"not defined: {judge.entry.name} reads draws, {name} gives a point"
            rows.append(withheld(name, kind, judge.entry.name, why))
            continue
        found = judge_engine(judge, runs)
        row = row_of(name, kind, judge, found, comparisons=engines * len(judges))
        rows.append(row | {"asked": _names(judge_choice(judge, runs[0]), parts.pool)})
    return rows


def judge_choice(judge: Judge, run: Draws) -> Array:
    """Return the batch that one run asks."""
    return np.asarray(judge.entry(problem_of(run, judge.seed), judge.batch).rows)


def _names(rows: Array, pool: Any) -> list[str]:
    return [str(pool.example_names[i]) for i in rows]


def _engines(entry: Any, engines: Sequence[str] | None, exact: str) -> tuple[str, ...]:
    find_engine(entry, exact)
    chosen = (
        tuple(dict.fromkeys(engines))
        if engines is not None
        else tuple(n for n in entry.engines if n != exact)
    )
    if not chosen:
        raise ValueError("engines: none given")
    for name in chosen:
        find_engine(entry, name)
    return chosen


def _check_counts(**counts: Any) -> None:
    least = {"repeats": 3, "draws": 200}
    for name, value in counts.items():
        low = least.get(name, 1)
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < low:
            raise ValueError(f"{name} must be an integer of at least {low}, got {value!r}")
