"""One cell of a study: one acquisition function, one seed, round after round, each resumable."""

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from labelzoo.acquisition.catalogue import find
from labelzoo.acquisition.problem import LAWS, Choice, Problem
from labelzoo.data import LabelData
from labelzoo.data.splits import AbsentLabelsWarning, split_rows
from labelzoo.models.gp_kernel import GPKernel
from labelzoo.models.spec import RepeatedWarning
from labelzoo.study.database import Round
from labelzoo.study.learners import (
    Fitted,
    acquisition_kernel,
    fit_learner,
    label_table,
    pool_features,
    stacked,
)
from labelzoo.study.plan import Plan, round_seed
from labelzoo.study.scoring import common_probs, round_metrics

Array = Any
ORACLE = "oracle"
"""Not an acquisition function: the best of some random batches by the true labels of E. A scale, no bound."""
MAX_DRAW_BYTES = 2**30
"""Posterior draws of pool and targets beyond this are not made: the cell is not run."""


class NotRun(Exception):
    """A cell that is left out, with the reason."""


class Split(NamedTuple):
    """Rows of one seed: the pool, the targets T (features only) and the scored rows E, all disjoint."""

    pool: Array
    targets: Array
    scored: Array


def make_split(plan: Plan, data: LabelData, seed: int) -> Split:
    """Return the rows of one seed; only rows with every label observed take part.

    Deployment rows (the published test rows, or the test side of a re-split) fall into T and E by halves.
    """
    rng = np.random.default_rng(round_seed(seed, "split", 0))
    whole = data.observed_mask(max_bytes=max(data.num_rows * data.num_labels, 1)).all(axis=1)
    if plan.split == "published":
        if data.train_index is None:
            raise ValueError("split: the data have no published split; use random or stratified")
        pool, rest = np.sort(data.train_index), np.sort(data.test_index)
    else:
        indices = np.flatnonzero(whole)
        if len(indices) < 4:
            raise ValueError(f"data: {len(indices)} rows have every label observed, a study needs more")
        pool, rest = resplit(data.subset(rows=indices), plan, seed)
        pool, rest = indices[pool], indices[rest]
    pool, rest = pool[whole[pool]], rest[whole[rest]]
    if len(pool) < plan.start + 1 or len(rest) < 2:
        raise ValueError(
            f"start: {plan.start} rows to start with leave nothing to ask of a pool of {len(pool)} rows with "
            f"every label observed (and {len(rest)} deployment rows)"
        )
    order = rng.permutation(rest)
    half = len(order) // 2
    return Split(pool, np.sort(order[:half]), np.sort(order[half:]))


def resplit(data: LabelData, plan: Plan, seed: int) -> tuple[Array, Array]:
    """Return (pool, deployment) positions of a random or stratified re-split."""
    if plan.split == "random":
        count = min(max(round(data.num_rows * plan.test_fraction), 2), data.num_rows - 1)
        order = np.random.default_rng(round_seed(seed, "resplit", 0)).permutation(data.num_rows)
        return np.sort(order[count:]), np.sort(order[:count])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AbsentLabelsWarning)  # the pool is split once more by labelling
        seed = round_seed(seed, "resplit", 0)
        parts = split_rows(data, plan.test_fraction, seed, method="stratified")
    return parts.train, parts.test


@dataclass(frozen=True)
class Setting:
    """What the rounds of one cell share."""

    plan: Plan
    data: LabelData
    acquire: str
    seed: int

    @cached_property
    def split(self) -> Split:
        """Rows of this seed."""
        return make_split(self.plan, self.data, self.seed)

    @cached_property
    def features(self) -> GPKernel:
        """Map of the features, from the pool alone."""
        return pool_features(self.data.X[self.split.pool], self.plan.settings)

    @cached_property
    def mapped(self) -> Array:
        """Mapped features of all rows."""
        return self.features.mapped(self.data.X)

    @cached_property
    def plain(self) -> GPKernel:
        """The kernel of rows that are mapped already."""
        d = self.data.num_features
        return self.features._replace(center=np.zeros(d), scale=np.ones(d))

    @cached_property
    def start(self) -> Array:
        """The rows labelled at the start: the same for every acquisition function."""
        rng = np.random.default_rng(round_seed(self.seed, "start", 0))
        return np.sort(rng.choice(self.split.pool, self.plan.start, replace=False))

    @cached_property
    def truth(self) -> Array:
        """Labels of all rows: float (row, labels)."""
        return label_table(self.data)


class Labels(NamedTuple):
    """What is known after some rounds.

    Attributes
    ----------
    rows : int (labelled,)
        Rows with a known label, sorted.
    known : bool (row, labels)
        Over all rows of the data.
    """

    rows: Array
    known: Array


def labels_after(setting: Setting, asked: list[list[Any]]) -> Labels:
    """Return what is known when the queries of all rounds so far are answered."""
    known = np.zeros(setting.truth.shape, bool)
    for queries in asked:
        for query in queries:
            if isinstance(query, list | tuple):
                known[query[0], query[1]] = True
            else:
                known[query] = True
    return Labels(np.flatnonzero(known.any(axis=1)), known)


def labelled_data(setting: Setting, labels: Labels) -> LabelData:
    """Return the labelled rows; labels that were not asked are unobserved, never negative."""
    whole = setting.data.subset(rows=labels.rows)
    known = labels.known[labels.rows]
    if known.all():
        return whole
    Y = np.where(known, setting.truth[labels.rows], np.nan)
    return LabelData(
        whole.X,
        Y,
        feature_names=whole.feature_names,
        label_names=whole.label_names,
        example_names=whole.example_names,
    )


def run_cell(setting: Setting, done: list[Round]) -> Iterator[Round]:
    """Yield the rounds that are missing, in order; `done` holds those of an earlier run.

    Once the pool is exhausted rounds go on with nothing asked, so that curves keep one length.

    Every random number comes from (seed, use, round), so that a resumed cell goes on bit for bit.

    Raises
    ------
    NotRun
        If the cell costs more than is allowed.
    """
    plan = setting.plan
    asked, spent = [row.asked for row in done], sum(row.seconds for row in done)
    if not asked:
        asked = [setting.start.tolist()]
        yield finished(setting, asked, Choice(setting.start, np.zeros(0)), 0.0)
    for number in range(len(asked), plan.rounds + 1):
        begin = time.process_time()  # not wall: the cap must not depend on what else runs
        queries, choice = next_queries(setting, asked, number)
        seconds = time.process_time() - begin
        spent += seconds
        if plan.max_seconds is not None and spent > plan.max_seconds:
            raise NotRun(f"not run: cost, {spent:.3g} CPU s of choosing by round {number} of {plan.rounds}")
        asked.append(queries)
        yield finished(setting, asked, choice, seconds)


def finished(setting: Setting, asked: list[list[Any]], choice: Choice, seconds: float) -> Round:
    """Return the round whose queries come last in `asked`, with the metrics after them."""
    number = len(asked) - 1
    labels = labels_after(setting, asked)
    metrics = evaluate(setting, labels, asked, number)
    report = {str(name): plain(value) for name, value in choice.report.items()}
    return Round(setting.acquire, setting.seed, number, asked[-1], metrics, report, seconds)


def plain(value: Any) -> Any:
    """Return a number or text that JSON can hold."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value if isinstance(value, int | float | str | bool | list | type(None)) else str(value)


def learner_at(setting: Setting, asked: list[list[Any]], number: int) -> Fitted:
    """Return the learner of round `number`: refitted every ``plan.refit`` rounds."""
    plan = setting.plan
    at = number - number % plan.refit
    labels = labels_after(setting, asked[: at + 1])
    seed = round_seed(setting.seed, f"fit {setting.acquire}", at)
    data = labelled_data(setting, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RepeatedWarning)
        return fit_learner(plan.learner, plan.engine, plan.settings, data, setting.features, seed)


def evaluate(setting: Setting, labels: Labels, asked: list[list[Any]], number: int) -> dict[str, Any]:
    """Return the metrics on E (the headline) and on T (transductive), and how many labels are known."""
    out: dict[str, Any] = {"rows": len(labels.rows), "cells": int(labels.known.sum())}
    rows = np.concatenate([setting.split.scored, setting.split.targets])
    for evaluator in setting.plan.evaluators:
        if evaluator == "own":
            probs = learner_at(setting, asked, number).mean(setting.data.X[rows])
        else:
            Y = np.where(labels.known, setting.truth, np.nan)[labels.rows]
            seed = round_seed(setting.seed, "common", number)
            probs = common_probs(setting.mapped[labels.rows], Y, setting.mapped[rows], seed)
        cut = len(setting.split.scored)
        out[evaluator] = {
            "E": round_metrics(setting.data.Y[setting.split.scored], probs[:cut], None),
            "T": round_metrics(setting.data.Y[setting.split.targets], probs[cut:], None),
        }
    return out


def next_queries(setting: Setting, asked: list[list[Any]], number: int) -> tuple[list[Any], Choice]:
    """Return what to ask in round `number`: row numbers, or (row, label) pairs; empty when all is known."""
    labels = labels_after(setting, asked)
    pool = setting.split.pool[~labels.known[setting.split.pool].all(axis=1)]
    if not len(pool):
        return [], Choice(np.zeros(0, int), np.zeros(0))
    if setting.acquire == ORACLE:
        return oracle_queries(setting, asked, number, pool)
    entry = find(setting.acquire)
    batch = setting.plan.batch
    if entry.query == "row":
        pool = pool[~labels.known[pool].any(axis=1)]
        if not len(pool):
            return [], Choice(np.zeros(0, int), np.zeros(0))
        batch = min(batch, len(pool))
    else:
        batch = min(batch * setting.data.num_labels, int((~labels.known[pool]).sum()))
    problem = make_problem(setting, asked, number, labels, pool)
    try:
        choice = entry(problem, batch)
    except ValueError as error:
        if "not run: cost" in str(error):
            raise NotRun(str(error)) from error
        raise
    rows = pool[np.asarray(choice.rows)].tolist()
    if choice.labels is None:
        return rows, choice
    return [list(pair) for pair in zip(rows, np.asarray(choice.labels).tolist(), strict=True)], choice


def make_problem(
    setting: Setting, asked: list[list[Any]], number: int, labels: Labels, pool: Array
) -> Problem:
    """Return everything that an acquisition function may read in this round, made when asked for."""
    plan, X = setting.plan, setting.mapped
    Y = np.where(labels.known, setting.truth, np.nan)[labels.rows]
    targets = {
        "pool": None,
        "predict": setting.split.targets,
        "all": np.concatenate([pool, setting.split.targets]),
    }[plan.targets]
    made: dict[str, Any] = {}

    def learner() -> Fitted:
        if "learner" not in made:
            made["learner"] = learner_at(setting, asked, number - 1)
        return made["learner"]

    def draws() -> tuple[Array, Array | None]:
        if "draws" not in made:
            made["draws"] = joint_draws(setting, learner(), pool, targets, number)
        return made["draws"]

    def kernel() -> Any:
        return acquisition_kernel(setting.plain, X[labels.rows], Y, plan.score_kernel)

    later: dict[str, Any] = {
        "probs": lambda: draws()[0],
        "target_probs": lambda: draws()[1],
        "mean_probs": lambda: learner().mean(setting.data.X[pool]),
        "kernel": kernel,
        **{name: partial(law_of, setting, learner, name, pool) for name in LAWS},
    }
    if targets is None:
        later.pop("target_probs")
    return Problem(
        X_pool=X[pool],
        X_labelled=X[labels.rows],
        Y_labelled=Y,
        X_targets=None if targets is None else X[targets],
        asked=labels.known[pool],
        seed=round_seed(setting.seed, f"choose {setting.acquire}", number),
        **later,
    )


def law_of(setting: Setting, learner: Callable[[], Fitted], name: str, pool: Array) -> Any:
    """Return a law of the pool rows (a name of `LAWS`), or say that the learner has none."""
    law, (words, model) = getattr(learner(), name), LAWS[name]
    if law is None:
        raise NotRun(
            f"{setting.acquire} needs the {words}, and learner {setting.plan.learner} has none "
            f"({model} has one)"
        )
    return law(setting.data.X[pool])


def joint_draws(
    setting: Setting, learner: Fitted, pool: Array, targets: Array | None, number: int
) -> tuple[Array, Array | None]:
    """Return posterior draws at the pool and at the targets, with shared draws."""
    plan = setting.plan
    if learner.draws is None:
        raise NotRun(f"engine {plan.engine} gives points: posterior draws are needed")
    X = setting.data.X[pool] if targets is None else stacked(setting.data.X[pool], setting.data.X[targets])
    size = 8 * plan.num_draws * X.shape[0] * setting.data.num_labels
    if size > MAX_DRAW_BYTES:
        raise NotRun(f"not run: cost, {size / 2**30:.1f} GiB of posterior draws")
    probs = learner.draws(X, plan.num_draws, round_seed(setting.seed, f"draws {setting.acquire}", number))
    return probs[:, : len(pool)], None if targets is None else probs[:, len(pool) :]


def oracle_queries(
    setting: Setting, asked: list[list[Any]], number: int, pool: Array
) -> tuple[list[Any], Choice]:
    """Return the best of ``plan.oracle`` random batches by the learner's true precision on E."""
    rng = np.random.default_rng(round_seed(setting.seed, "oracle", number))
    size = min(setting.plan.batch, len(pool))
    scored = setting.split.scored
    best: tuple[float, list[Any]] = (-np.inf, [])
    for _ in range(max(setting.plan.oracle, 1)):
        batch = rng.choice(pool, size, replace=False).tolist()
        probs = learner_at(setting, [*asked, batch], number).mean(setting.data.X[scored])
        value = round_metrics(setting.data.Y[scored], probs, None)["precision"] or 0.0
        if value > best[0]:
            best = (value, batch)
    return best[1], Choice(np.asarray(best[1]), np.full(size, best[0]))
