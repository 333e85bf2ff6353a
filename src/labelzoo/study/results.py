"""The results of a study as one JSON object: curves, comparison with random, and what was not run."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from labelzoo.data import LabelData
from labelzoo.study import analysis
from labelzoo.study.cell import make_split
from labelzoo.study.database import Round, read_failed, read_plan, read_rounds, read_skipped
from labelzoo.study.plan import Plan

NOTES = (
    "E is the headline: rows that are scored and never shown to a learner or to an acquisition function. "
    "T is transductive: the target rows, whose features (never labels) the acquisition functions may see.",
    "Area: mean height of a learning curve over the rounds. Each difference is paired: same split, same "
    "start, same seed. Intervals hold at 95 % for all functions of a family together (Bonferroni), "
    "p-values are adjusted by Holm over it; a family is one evaluator, one part (E or T) and one metric. "
    "The interval decides what is called a difference: Holm is less strict, so that p may be below .05 "
    "beside an interval that holds 0.",
    "Variance over seeds after Nadeau and Bengio (2003), s² (1/J + scored rows / pool rows): re-splits share "
    "rows, so their plain standard error is too small.",
    "Evaluator 'own' is the learner itself; 'common' is one-vs-rest logistic regression on the same labels. "
    "precision is the mean of P@1, P@2 and P@3; micro_f1 is at threshold 1/2; log_score is in nats a row.",
)
PUBLISHED_NOTE = (
    "The split is the published one: every seed has the same pool and the same deployment rows, so the "
    "differences are about that split; seeds vary the start and how deployment rows fall into T and E."
)
ORACLE_NOTE = (
    "oracle takes, each round, the best of {count} random batches by the true labels of E: it cheats, and "
    "serves as a scale. It is no upper bound."
)

FEW_SEEDS = 10
"""Fewer seeds than this are remarked upon."""


class Gathered(NamedTuple):
    """A study read back: its plan, its rounds, and what follows from them."""

    plan: Plan
    versions: dict[str, str]
    rows: list[Round]
    sizes: dict[str, int]
    found: analysis.Curves
    comparison: list[analysis.Comparison]


def gather(path: Path, data: LabelData) -> Gathered:
    """Read a database and compare every function with random."""
    plan, versions = read_plan(path)
    wanted = set(plan.cells())
    rows = [row for row in read_rounds(path) if (row.acquire, row.seed) in wanted]
    sizes = data_sizes(plan, data)
    found = analysis.curves(plan, rows, data.num_labels)
    share = sizes["scored_rows"] / sizes["pool_rows"]
    return Gathered(plan, versions, rows, sizes, found, analysis.compare_with_random(plan, found, share))


def study_results(path: Path, data: LabelData) -> dict[str, Any]:
    """Return all that a study shows; every number is finite or None.

    Parameters
    ----------
    path : Path
        The database.
    data : LabelData
        The data that the study was made of.

    Returns
    -------
    dict
        ``plan``, ``versions``, ``data``, ``curves``, ``comparison``, ``choosing``, ``not_run``, ``failed``,
        ``notes``, ``summary``.
    """
    plan, versions, rows, sizes, found, comparison = gather(path, data)
    wanted = set(plan.cells())
    payload = {
        "summary": summary(plan, comparison),
        "plan": asdict(plan),
        "versions": versions,
        "data": sizes,
        "curves": [curve_point(row, data.num_labels) for row in rows],
        "comparison": [as_dict(one) for one in comparison],
        "choosing": choosing(plan, rows),
        "not_run": listed(read_skipped(path), wanted),
        "failed": listed(read_failed(path), wanted),
        "notes": notes(plan, rows),
    }
    return dict(finite(payload))


def data_sizes(plan: Plan, data: LabelData) -> dict[str, int]:
    """Return how many rows there are, and how many play which part with the first seed."""
    split = make_split(plan, data, plan.seeds[0])
    return {
        "rows": data.num_rows,
        "features": data.num_features,
        "labels": data.num_labels,
        "pool_rows": len(split.pool),
        "target_rows": len(split.targets),
        "scored_rows": len(split.scored),
    }


def curve_point(row: Round, num_labels: int) -> dict[str, Any]:
    """Return one point of a curve; ``labelled`` is known labels over label columns: rows, for row queries."""
    return {
        "acquire": row.acquire,
        "seed": row.seed,
        "round": row.round,
        "labelled": row.metrics["cells"] / num_labels,
        "labelled_rows": row.metrics["rows"],
        "metrics": {name: value for name, value in row.metrics.items() if isinstance(value, dict)},
    }


def as_dict(one: analysis.Comparison) -> dict[str, Any]:
    """Return a comparison with its interval as a list; without an interval None."""
    low, high = one.interval
    return {**one._asdict(), "interval": [low, high] if math.isfinite(low) else None}


def choosing(plan: Plan, rows: list[Round]) -> list[dict[str, Any]]:
    """Return the median CPU time that each function took to choose a batch."""
    out = []
    for name in plan.acquire:
        seconds = [row.seconds for row in rows if row.acquire == name and row.round > 0 and row.asked]
        out.append({"acquire": name, "seconds": float(np.median(seconds)) if seconds else None})
    return out


def listed(reasons: dict[tuple[str, int], str], wanted: set[tuple[str, int]]) -> list[dict[str, Any]]:
    """Return reasons as a list of objects."""
    return [
        {"acquire": acquire, "seed": seed, "reason": reason}
        for (acquire, seed), reason in sorted(reasons.items())
        if (acquire, seed) in wanted
    ]


def notes(plan: Plan, rows: list[Round]) -> list[str]:
    """Return what a reader must know."""
    out = list(NOTES)
    if plan.split == "published":
        out.append(PUBLISHED_NOTE)
    if plan.oracle:
        out.append(ORACLE_NOTE.format(count=plan.oracle))
    done = {row.acquire for row in rows} - {analysis.RANDOM, "oracle"}
    if len(plan.seeds) < FEW_SEEDS and done:
        out.append(
            f"Seeds: {len(plan.seeds)}; functions compared: {len(done)}. Only large differences can be "
            "shown: no difference shown does not mean that there is none. Add seeds "
            f"(--resume --seeds {FEW_SEEDS})."
        )
    stopped = [row for row in rows if "stopped" in row.report]
    if stopped:
        names = ", ".join(sorted({row.acquire for row in stopped}))
        out.append(
            f"Early stops: {names} asked fewer rows than a batch in {len(stopped)} rounds, from round "
            f"{min(row.round for row in stopped)} on, because every row left would lower the information."
        )
    empty = [row.round for row in rows if row.round > 0 and not row.asked and "stopped" not in row.report]
    if empty:
        out.append(
            f"The pool was exhausted: from round {min(empty)} on some functions had nothing left to ask, and "
            "their curves stay where they are."
        )
    return out


def summary(plan: Plan, comparison: list[analysis.Comparison]) -> str:
    """Return one plain sentence for each evaluator on the headline metric."""
    sentences = []
    for evaluator in plan.evaluators:
        mine = headline(comparison, evaluator)
        if not mine:
            continue
        who = "the learner itself" if evaluator == "own" else "the common classifier"
        sentences.append(f"Judged by {who}, {told(mine)}.")
        if any(one.interval[0] > 0 or one.interval[1] < 0 for one in headline(comparison, evaluator, "T")):
            sentences.append(f"At the target rows themselves, {told(headline(comparison, evaluator, 'T'))}.")
    if not sentences:
        return "Nothing was compared with random: no acquisition function but random has results."
    return " ".join(sentences)


def told(mine: list[analysis.Comparison]) -> str:
    """Return how many functions beat random and how many lose, with their names."""
    wins = [one.acquire for one in mine if one.interval[0] > 0]
    losses = [one.acquire for one in mine if one.interval[1] < 0]
    if not wins and not losses:
        return f"no acquisition function is shown to differ from random rows ({len(mine)} compared)"
    return (
        f"of {len(mine)} acquisition functions {named(wins, 'beat')} random rows and "
        f"{named(losses, 'LOSE')} to them"
    )


def named(names: list[str], verb: str) -> str:
    """Return '2 beat (a, b)' or '0 beat'."""
    verb = verb if len(names) != 1 else f"{verb}s" if verb.islower() else f"{verb}S"
    return f"{len(names)} {verb}" + (f" ({', '.join(names)})" if names else "")


def headline(
    comparison: list[analysis.Comparison], evaluator: str, part: str = "E"
) -> list[analysis.Comparison]:
    """Return the comparisons of the headline metric on one part, best first."""
    mine = [
        one
        for one in comparison
        if (one.evaluator, one.part, one.metric) == (evaluator, part, analysis.HEADLINE)
    ]
    return sorted(mine, key=lambda one: -one.difference)


def finite(value: Any) -> Any:
    """Return a value with None in place of every number that is not finite."""
    if isinstance(value, dict):
        return {str(name): finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
