"""Run several engines on the same rows and say in plain words how they compare."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
import pandas as pd
import xarray as xr

from labelzoo.held_out import random_parts
from labelzoo.inference.compare.functionals import evaluate, joint_log_score, marginal_log_score
from labelzoo.inference.compare.verdict import Moments, converged, difference, is_refuted, moments, verdict
from labelzoo.inference.fit import find_engine
from labelzoo.models import registry
from labelzoo.models.spec import ModelSpec

COLUMNS = [
    "engine",
    "kind",
    "seconds",
    "compile_seconds",
    "draws",
    "ess_min",
    "ess_median",
    "ess_per_second",
    "max_z",
    "max_difference",
    "upper",
    "sd_ratio",
    "max_rhat",
    "khat",
    "log_score",
    "log_score_marginals",
    "log_score_error",
    "verdict",
]

SCORING_SHARE = 0.15
"""Part of a time budget kept for functionals and held-out scores."""


@dataclass(frozen=True)
class Comparison:
    """What `compare` returns.

    Attributes
    ----------
    table : pandas.DataFrame
        One row an engine; None where a number does not apply.
    trees : dict of str to DataTree
        Posterior by engine.
    moments : dict of str to Moments
        Summaries of the functionals by engine.
    functional_names : list of str
    train, test : LabelData
    reference, model : str
    failures : dict of str to str
        Engines that gave no posterior, and why.
    advice : str
        What the model says about its engines on data of these sizes; empty where it says nothing.
    settings : dict
        Those of the program as JSON can hold them; ``num_topics`` as the posteriors have it.
    hidden : int
        Observed training labels that the engines were not shown, see ``ModelSpec.for_comparison``.
    """

    table: pd.DataFrame
    trees: dict[str, xr.DataTree]
    moments: dict[str, Moments]
    functional_names: list[str]
    train: Any
    test: Any
    reference: str
    model: str
    failures: dict[str, str] = field(default_factory=dict)
    advice: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    hidden: int = 0

    @property
    def refuted(self) -> bool:
        """Whether some engine's agreement with a converged reference is refuted."""
        return any(is_refuted(sentence) for sentence in self.table["verdict"])

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers and strings (None for what does not apply)."""
        rows = [{k: _plain(v) for k, v in row.items()} for row in self.table.to_dict(orient="records")]
        return {
            "model": self.model,
            "reference": self.reference,
            "rows": self.train.num_rows,
            "test_rows": self.test.num_rows,
            "labels": self.train.num_labels,
            "hidden_labels": self.hidden,
            "settings": self.settings,
            "advice": self.advice or None,
            "engines": [{"name": row.pop("engine"), **row} for row in rows],
        }


def _plain(value: Any) -> Any:
    if value is None or (isinstance(value, float) and not np.isfinite(value)):
        return None
    return value.item() if isinstance(value, np.generic) else value


def compare(
    model: str | ModelSpec,
    data: Any,
    engines: Sequence[str] | None = None,
    *,
    reference: str = "nuts",
    budget: float | None = None,
    test: Any = None,
    test_fraction: float = 0.2,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
    engine_settings: Mapping[str, Mapping[str, Any]] | None = None,
    **settings: Any,
) -> Comparison:
    """Fit `data` with several engines and hold each against the reference.

    Parameters
    ----------
    model : str or ModelSpec
    data : LabelData
        Split into training and test rows by `seed`, unless `test` is given. Where the card has a
        ``for_comparison``, the engines get what it makes of the training rows.
    engines : sequence of str
        Default: all engines of the model.
    reference : str
        The engine the others are held against; it is judged like the others by its own R-hat.
    budget : float or None
        Seconds in all, compilation included: samplers stop early to keep it.
    engine_settings : mapping
        Settings of single engines, by name.
    **settings
        Settings of the program, for all engines.

    Returns
    -------
    Comparison

    Raises
    ------
    ValueError
        If an engine or a setting does not exist, or there are too few rows to split.
    """
    entry = registry.get(model)
    spec = entry.spec
    chosen = list(engines) if engines is not None else list(entry.engines)
    found = {name: find_engine(entry, name) for name in chosen}
    train, held_out = _split(data, test, test_fraction, seed)
    train, hidden = _for_comparison(spec, train, seed)
    if spec.refuse is not None:
        spec.refuse(train, settings)
    with jax.enable_x64(True):
        inputs = spec.prepare(train, spec.resolve(settings))
        test_inputs = spec.prepare(held_out, spec.resolve(settings), spec.constants(inputs))
    clock = _Budget(budget, found)
    trees: dict[str, xr.DataTree] = {}
    failures: dict[str, str] = {}
    say = progress or (lambda message: None)
    for name in sorted(chosen, key=lambda n: (found[n].kind == "mcmc", n == reference)):
        engine = found[name]
        own = {**settings, **clock.limit(engine, name == reference), **(engine_settings or {}).get(name, {})}
        say(f"{name}: running")
        try:
            trees[name] = engine(spec, train, rng_key=seed, **own)
        except (FloatingPointError, RuntimeError) as error:
            failures[name] = " ".join(str(error).split())
        clock.done(name)
    if not trees:
        raise FloatingPointError("; ".join(f"{name}: {why}" for name, why in failures.items()))
    summaries: dict[str, Moments] = {}
    names: list[str] = []
    for name, tree in trees.items():
        values, names = evaluate(spec, tree, inputs)
        summaries[name] = moments(values)
    say("held-out scores")
    rows = []
    for name in chosen:
        if name in failures:
            failed = {"engine": name, "kind": found[name].kind, "verdict": f"failed: {failures[name]}"}
            rows.append({**dict.fromkeys(COLUMNS), **failed})
            continue
        row = _row(name, found[name].kind, trees[name], summaries, reference)
        joint = joint_log_score(spec, trees[name], held_out, test_inputs, seed=seed)
        row["log_score"] = float(joint.mean())
        row["log_score_error"] = float(joint.std() / np.sqrt(joint.size))
        row["log_score_marginals"] = float(marginal_log_score(trees[name], held_out).mean())
        rows.append(row)
    table = pd.DataFrame(rows, columns=COLUMNS).astype(object)
    table = table.where(table.notna(), None)
    advice = "" if entry.advice is None else entry.advice(train, spec.resolve(settings))
    advice = " ".join(filter(None, (advice, _hidden_words(hidden, train, seed))))
    return Comparison(
        table, trees, summaries, names, train, held_out, reference, spec.name, failures, advice,
        _settings(spec.resolve(settings), trees), hidden,
    )  # fmt: skip


def _for_comparison(spec: ModelSpec, train: Any, seed: int) -> tuple[Any, int]:
    """Return the training rows as the engines get them, and how many observed labels that hides."""
    if spec.for_comparison is None:
        return train, 0
    changed = spec.for_comparison(train, seed)
    return changed, changed.num_missing_cells - train.num_missing_cells


def _hidden_words(hidden: int, train: Any, seed: int) -> str:
    if not hidden:
        return ""
    before = train.num_rows * train.num_labels - train.num_missing_cells + hidden
    return (
        f"The posterior is over unobserved labels, and the training rows had none: {hidden} of "
        f"their "
        f"{before} observed labels ({hidden / before:.0%}, drawn with seed {seed}) were hidden from every "
        f"engine."
    )


def _settings(resolved: Mapping[str, Any], trees: Mapping[str, xr.DataTree]) -> dict[str, Any]:
    """Return settings as JSON can hold them, the number of topics as the first posterior has it."""
    found = {
        name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in resolved.items()
    }
    found = {name: list(v) if isinstance(v, tuple) else _plain(v) for name, v in found.items()}
    if "num_topics" in found and found["num_topics"] is None:
        sizes = next(iter(trees.values()))["posterior"].sizes
        found["num_topics"] = int(sizes["topic"]) if "topic" in sizes else None
    return found


def _split(data: Any, test: Any, fraction: float, seed: int) -> tuple[Any, Any]:
    if test is not None:
        return data, test
    if data.num_rows < 5:
        raise ValueError(f"data: {data.num_rows} rows are too few to hold some out; pass test=")
    return random_parts(data, fraction, seed)


def _row(
    name: str, kind: str, tree: xr.DataTree, summaries: Mapping[str, Moments], reference: str
) -> dict[str, Any]:
    own, ref = summaries[name], summaries.get(reference)
    run, compiling = tree.attrs["run_seconds"], tree.attrs["compile_seconds"]
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    sizes = tree["posterior"].sizes
    row |= {"engine": name, "kind": kind, "seconds": run + compiling, "compile_seconds": compiling}
    row |= {"draws": sizes["chain"] * sizes["draw"], "khat": tree.attrs.get("khat")}
    if kind == "mcmc":
        ess = np.minimum(own.ess_bulk, own.ess_tail)[own.sd > 0]
        row |= {"ess_min": float(np.nanmin(ess)), "ess_median": float(np.nanmedian(ess))}
        row["max_rhat"] = float(np.nanmax(own.rhat))
        # Effective draws of chains that disagree are a number without a meaning.
        row["ess_per_second"] = float(np.nanmin(ess)) / run if converged(own) else None
    if name == reference and kind != "mcmc":
        row["verdict"] = "reference: not chains, so convergence cannot be judged"
        return row
    if name == reference:
        state = "converged" if converged(own) else "not converged"
        row["verdict"] = (
            f"reference: {state} (R-hat {np.nanmax(own.rhat):.3f}, minimum ESS {np.nanmin(own.ess_bulk):.0f})"
        )
        return row
    usable = ref is not None and converged(ref)
    gap = difference(own, ref, kind) if usable and ref is not None else None
    if gap is not None:
        row |= {
            "max_z": gap.max_z,
            "max_difference": gap.max_difference,
            "upper": gap.upper,
            "sd_ratio": gap.sd_ratio,
        }
    if ref is not None and not usable:
        row["verdict"] = "no verdict: reference not converged"
    else:
        row["verdict"] = verdict(kind, own, ref, gap, reference)
    return row


class _Budget:
    """Shares the seconds that are left among the samplers still to run; the reference counts twice."""

    def __init__(self, seconds: float | None, engines: Mapping[str, Any]) -> None:
        self.start = time.perf_counter()
        self.seconds = seconds
        self.waiting = {name: 1.0 for name, engine in engines.items() if engine.kind == "mcmc"}

    def limit(self, engine: Any, is_reference: bool) -> dict[str, Any]:
        """Return ``max_seconds`` for the next sampler, or nothing."""
        if self.seconds is None or "max_seconds" not in engine.options:
            return {}
        left = self.seconds * (1 - SCORING_SHARE) - (time.perf_counter() - self.start)
        others = sum(self.waiting.values()) - 1.0
        weight = 2.0 if is_reference else 1.0
        return {"max_seconds": max(1.0, left * weight / (weight + max(0.0, others)))}

    def done(self, name: str) -> None:
        """Strike `name` off the list."""
        self.waiting.pop(name, None)
