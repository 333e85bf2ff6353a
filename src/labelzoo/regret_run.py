"""The whole job behind ``labelzoo regret``: split the rows, fit, ask, value, judge, write."""

import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from arviz_stats.base.array import array_stats

from labelzoo.comparison_run import split_settings
from labelzoo.inference.compare.verdict import RHAT_LIMIT
from labelzoo.inference.fit import find_engine, fit
from labelzoo.inference.predict import label_prob
from labelzoo.regret import (
    QUARTERS,
    Draws,
    Judge,
    check_pool,
    find_usable,
    judge_engine,
    make_judge,
    problem_of,
)
from labelzoo.regret_text import regret_text, row_of, withheld
from labelzoo.study.learners import stacked

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

ATTEMPTS = 3
"""Times a reference is run, each with four times the thinning, until it converges."""

CHECKED_CELLS = 400
"""Probabilities whose R-hat is looked at, evenly spaced over rows and labels."""

EXACT_KINDS = ("mcmc", "conjugate")
ENGINE_SEED = 1000
"""Seeds of engines begin here after the reference's, so that no random number is shared."""


class Parts(NamedTuple):
    """Rows whose labels are read, candidates, and rows to be predicted: all disjoint LabelData."""

    labelled: Any
    pool: Any
    targets: Any


@dataclass(frozen=True)
class Reference:
    """Exact draws: `sets` is (repeats x 4) of Draws, or empty where the chains did not converge."""

    engine: str
    sets: tuple[tuple[Draws, ...], ...]
    rhat: float | None
    divergences: int
    seconds: float
    thinning: int

    @property
    def converged(self) -> bool:
        """Return whether the draws may judge."""
        return self.rhat is None or self.rhat < RHAT_LIMIT


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
        If a name does not exist, the reference is not exact, or the pool is not larger than the batch.
    """
    from labelzoo.models import registry

    start, say = time.perf_counter(), say or (lambda message: None)
    entry = registry.get(model)
    exact = reference or default_reference(entry)
    chosen = _engines(entry, engines, exact)
    entries = [find_usable(name) for name in dict.fromkeys(acquire)]
    _check_counts(batch=batch, rows=rows, pool=pool, targets=targets, draws=draws, repeats=repeats)
    parts = split_parts(data, rows, pool, targets, batch, seed)
    program, options = split_settings(entry, (*chosen, exact), settings)
    own = {
        name: {**program, **options[name], **(engine_settings or {}).get(name, {})}
        for name in (*chosen, exact)
    }
    say(f"{exact}: exact draws")
    judge_draws = reference_draws(entry, parts, exact, repeats, draws, seed, own[exact])
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
    payload["files"] = [*map(str, files), str(folder / "regret.json")]
    content = json.dumps(payload, ensure_ascii=False, allow_nan=False, indent=1)
    write_bytes(folder / "regret.json", content.encode())
    return RunResult(payload, regret_text(payload), judged)


def small_enough(model: Any, data: Any, rows: int, options: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return data on which exact chains can converge, and `options` with the model's settings for them."""
    from labelzoo.inference.compare.subset import needs_subset, small_subset
    from labelzoo.models import registry

    if not needs_subset(data, {"mcmc"}):
        return data, dict(options)
    small = registry.get(model).spec.small_settings
    return small_subset(data, rows=rows, seed=options.get("seed", 0)), {**small, **options}


def default_reference(entry: Any) -> str:
    """Return the closed form of a model where there is one, else ``nuts``."""
    return next((name for name, engine in entry.engines.items() if engine.kind == "conjugate"), "nuts")


def split_parts(data: Any, rows: int, pool: int, targets: int, batch: int, seed: int) -> Parts:
    """Split at random: `rows` labelled; pool and targets as asked, or halves of what is left where that is less.

    Raises
    ------
    ValueError
        If the pool is not larger than the batch.
    """
    left = data.num_rows - rows
    pool, targets = (pool, targets) if pool + targets <= left else (min(pool, (left + 1) // 2), left // 2)
    check_pool(max(pool, 0), batch)
    order = np.random.default_rng(seed).permutation(data.num_rows)
    cuts = np.cumsum([rows, pool, min(targets, left - pool)])
    labelled, candidates, predicted = (np.sort(part) for part in np.split(order, cuts)[:3])
    return Parts(*(data.subset(rows=part) for part in (labelled, candidates, predicted)))


def reference_draws(
    entry: Any, parts: Parts, name: str, repeats: int, draws: int, seed: int, settings: Mapping[str, Any]
) -> Reference:
    """Return `repeats` groups of four independent sets of exact draws, of one chain each.

    A sampler is run again with four times the thinning and twice the warm-up while its R-hat, the largest
    over the probabilities that the scores read, is 1.01 or more; after three runs it is returned as it is.
    """
    engine = entry.engines[name]
    if engine.kind not in EXACT_KINDS:
        raise ValueError(f"reference {name!r} is a {engine.kind}: exact is an mcmc or conjugate engine")
    began, chains = time.perf_counter(), QUARTERS * repeats
    if engine.kind == "conjugate":
        tree = engine(entry.spec, parts.labelled, rng_key=seed, **{**settings, "num_samples": chains * draws})
        found = _probs(tree, parts)
        sets = [_part(found, slice(i * draws, (i + 1) * draws)) for i in range(chains)]
        return Reference(name, _grouped(sets), None, 0, time.perf_counter() - began, 1)
    options = {**engine.options, **settings, "num_samples": draws, "num_chains": chains}
    for _ in range(ATTEMPTS):
        tree = engine(entry.spec, parts.labelled, rng_key=seed, **options)
        found = _probs(tree, parts)
        rhat, thinning = largest_rhat(found.pool.reshape(chains, draws, -1)), int(options["thinning"])
        if rhat < RHAT_LIMIT:
            break
        options |= {"thinning": 4 * thinning, "num_warmup": 2 * options["num_warmup"]}
    sets = [_part(found, slice(i * draws, (i + 1) * draws)) for i in range(chains)]
    return Reference(name, _grouped(sets), rhat, _divergences(tree), time.perf_counter() - began, thinning)


def largest_rhat(values: Array) -> float:
    """Return the largest split R-hat (by ranks) of draws (chain, draw, cell), over evenly spaced cells."""
    keep = np.unique(np.linspace(0, values.shape[2] - 1, CHECKED_CELLS).astype(int))
    moving = values[:, :, keep]
    moving = moving[:, :, np.ptp(moving, axis=(0, 1)) > 0]
    if not moving.size:
        return 1.0
    return float(np.nanmax(array_stats.rhat(moving, chain_axis=0, draw_axis=1)))


def engine_draws(
    entry: Any, parts: Parts, name: str, repeats: int, draws: int, seed: int, settings: Mapping[str, Any]
) -> list[Draws]:
    """Run an engine `repeats` times with its own seeds; of each run `draws` draws, evenly spaced."""
    first = seed + ENGINE_SEED
    trees = (fit(entry.spec, parts.labelled, name, seed=first + i, **settings) for i in range(repeats))
    return [_probs(tree, parts, draws) for tree in trees]


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


def _probs(tree: Any, parts: Parts, draws: int | None = None) -> Draws:
    # One call for both parts: where new rows have latent variables of their own, they are drawn jointly.
    X = stacked(parts.pool.X, parts.targets.X)
    found = label_prob(tree, X, num_draws=draws).values
    flat = found.reshape(-1, *found.shape[2:])
    return Draws(flat[:, : parts.pool.num_rows], flat[:, parts.pool.num_rows :])


def _part(draws: Draws, keep: slice) -> Draws:
    return Draws(draws.pool[keep], None if draws.targets is None else draws.targets[keep])


def _grouped(sets: Sequence[Draws]) -> tuple[tuple[Draws, ...], ...]:
    return tuple(tuple(sets[i : i + QUARTERS]) for i in range(0, len(sets), QUARTERS))


def _divergences(tree: Any) -> int:
    stats = tree["sample_stats"] if "sample_stats" in tree.children else {}
    return int(stats["diverging"].values.sum()) if "diverging" in stats else 0


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
