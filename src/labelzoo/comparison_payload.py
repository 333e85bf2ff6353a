"""What a comparison found, as one JSON-ready dictionary with its sentences."""

import json
import os
import platform
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from labelzoo.inference.compare.verdict import RHAT_LIMIT
from labelzoo.query_table import Queries, best_sampler, choose_next
from labelzoo.topic_shares import has_topics
from labelzoo.topics import as_json, topic_table
from labelzoo.whole_run import TEST_FRACTION, HeldOut

Rows = list[dict[str, Any]]

TOPIC_LABELS = 8
"""Labels listed a topic, and looked at for its coherence."""


def build_payload(
    job: Any, comparison: Any, subset: Any, small: HeldOut, whole: HeldOut | None
) -> dict[str, Any]:
    """Return names, numbers and sentences of a run; None where a number does not apply.

    Parameters
    ----------
    job : labelzoo.comparison_run.Job
    comparison : labelzoo.inference.compare.Comparison
    subset : LabelData or None
        The compared rows, where they are a subset.
    small, whole : HeldOut
        Scores of the compared engines, and of the fits on the whole data.
    """
    engines = comparison.to_json()["engines"]
    held_out = {row["name"]: row for row in small.rows}
    for row in engines:
        row |= {k: v for k, v in held_out.get(row["name"], {}).items() if k not in row}
    queries = _queries(job, comparison, engines)
    topics, topics_summary = _topics(comparison, engines, whole)
    return {
        "title": job.title,
        "model": job.entry.spec.name,
        "data": job.data_name,
        "data_hash": job.data.hash(),
        "rows": job.data.num_rows,
        "features": job.data.num_features,
        "labels": job.data.num_labels,
        "subset": None if subset is None else _sizes(subset),
        "train_rows": comparison.train.num_rows,
        "test_rows": comparison.test.num_rows,
        "reference": job.reference,
        "settings": comparison.settings,
        "seed": job.seed,
        "budget": job.budget,
        "summary": _summary(job, comparison, subset),
        "engines": engines,
        "whole": small.rows if whole is None else whole.rows,
        "whole_summary": _whole_summary(job, comparison, whole),
        "topics": topics,
        "topics_summary": topics_summary,
        "next": queries.rows,
        "next_summary": queries.summary,
        "advice": comparison.advice or None,
        "hidden_labels": comparison.hidden,
        "notes": _notes(job, comparison, whole, queries),
        "command": job.command,
        "versions": _versions(comparison.trees),
        "machine": machine(),
        "report": str(job.out / "report.html"),
    }


def _sizes(data: Any) -> dict[str, int]:
    return {"rows": data.num_rows, "labels": data.num_labels, "features": data.num_features}


def _versions(trees: Mapping[str, xr.DataTree]) -> dict[str, str]:
    return next((json.loads(str(tree.attrs["versions"])) for tree in trees.values()), {})


def machine() -> str:
    """Return processors, system and Python version in words."""
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    system = f"{platform.system()} {platform.machine()}"
    return f"{len(usable)} processor cores, {system}, Python {platform.python_version()}"


def _summary(job: Any, comparison: Any, subset: Any) -> str:
    used = job.data if subset is None else subset
    size = (
        f"{used.num_rows} rows, {used.num_labels} labels and {used.num_features} features of {job.data_name}"
    )
    if subset is not None:
        size += (
            f", a subset of its {job.data.num_rows} rows, {job.data.num_labels} labels and "
            f"{job.data.num_features} features that is small enough for samplers"
        )
    names = ", ".join(job.engines)
    judged = f"held against {job.reference}"
    judged = judged if job.reference in job.engines else "no reference among them,"
    return (
        f"{len(job.engines)} engines ({names}) for {job.entry.spec.name}, {judged} "
        f"on {size}. {comparison.train.num_rows} rows were fitted and {comparison.test.num_rows} held out."
    )


def _whole_summary(job: Any, comparison: Any, whole: HeldOut | None) -> str:
    if whole is None:
        return f"Every engine on the {comparison.test.num_rows} held-out rows, beside label frequencies."
    if not whole.rows:
        return ""
    held_out = max(1, round(job.data.num_rows * TEST_FRACTION))
    own = {k: v for k, v in job.whole_program.items() if job.program.get(k) != v and v is not None}
    setting = f" ({', '.join(f'{name}={value}' for name, value in own.items())})" if own else ""
    return (
        f"Point engines on the whole of {job.data_name}{setting}: {job.data.num_rows - held_out} rows "
        f"fitted, {held_out} held out, {job.data.num_labels} labels, beside plain label frequencies."
    )


def _notes(job: Any, comparison: Any, whole: HeldOut | None, queries: Queries) -> list[str]:
    notes = [f"{name} failed: {reason}" for name, reason in comparison.failures.items()]
    notes += whole.notes if whole else []
    for where, trees in (("", comparison.trees), (" on the whole data", whole.trees if whole else {})):
        unsettled = [name for name, tree in trees.items() if tree.attrs["converged"] == "no"]
        notes += [f"{name}{where}: {trees[name].attrs['message']}" for name in unsettled]
    if job.data.train_index is not None:
        notes.append(f"{job.data_name} carries a published split; compare holds out rows at random instead.")
    notes += [comparison.advice] if comparison.advice else []
    return notes + ([] if queries.rows else [queries.summary])


def _queries(job: Any, comparison: Any, engines: Rows) -> Queries:
    """Ask among the rows without labels, or else the held-out rows, whose labels no engine has seen."""
    pool, compared = comparison.test, comparison.train
    unlabelled = np.flatnonzero(job.data.unlabelled_rows)
    if unlabelled.size:
        pool = job.data.subset(
            rows=unlabelled, labels=list(compared.label_names), features=list(compared.feature_names)
        )
    name = best_sampler(engines, comparison.trees)
    found = choose_next(comparison.trees, name, pool, seed=job.seed)
    rhat = next((row["max_rhat"] for row in engines if row["name"] == name), None)
    if not found.rows or rhat is None or rhat <= RHAT_LIMIT:
        return found
    return found._replace(summary=f"{found.summary} Caution: {name} has not converged (R-hat {rhat:.2f}).")


def _topics(comparison: Any, engines: Rows, whole: HeldOut | None) -> tuple[Rows, str]:
    """Return topics of a fit on the whole data where there is one, else of the best posterior."""
    trees, where = (whole.trees, "the whole data") if whole is not None else ({}, "")
    name = "vb_em" if "vb_em" in trees else next(iter(trees), None)
    if name is None:
        trees, where = comparison.trees, "the compared rows"
        name = best_sampler(engines, trees) or next(iter(trees), None)
    if name is None or not has_topics(trees[name]):
        return [], ""
    table = topic_table(trees[name], TOPIC_LABELS)
    summary = f"{len(table)} topics by {name} on {where}"
    if table["weight"].notna().all():
        summary += ", ordered by the share of the positive labels that each explains"
    summary += ". Coherence: how far its most probable labels occur together, from -1 to 1 (mean NPMI)."
    if trees[name]["posterior"].sizes["chain"] * trees[name]["posterior"].sizes["draw"] > 1:
        chosen = table.attrs
        summary += (
            f" From one draw (chain {chosen['chain']}, draw {chosen['draw']}: {chosen['why']}), since topics "
            "have no order and are not averaged; stability: mean cosine with the matching topic in other "
            "draws of the chain."
        )
    return as_json(table), summary
