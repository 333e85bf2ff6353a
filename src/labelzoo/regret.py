"""What asking from an approximate posterior costs, judged by the exact one: arrays in, numbers out.

An acquisition function a reads posterior draws and names a batch of rows. The batch that it names from many
exact draws, B*, is held against the batch B_Q that it names from draws of an approximation Q. With V(B) what
the batch is worth by exact draws that chose neither,

    regret(Q) = (V(B*) - V(B_Q)) / (V(B*) - E V(random batch)),

0 where Q asks as well as exact inference, 1 where it asks as well as chance, above 1 where it asks worse.
Even exact inference with few draws has a positive regret, the *floor*: what approximation costs is the
*excess* regret(Q) - floor, where floor is the regret of exact draws as many as were taken of Q.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import spearmanr

from labelzoo.acquisition.anomalies import make_ensemble, target_gram
from labelzoo.acquisition.catalogue import catalogue, find
from labelzoo.acquisition.problem import Acquisition, Problem

Array = Any

QUARTERS = 4
"""Independent sets of exact draws that one replicate needs: a short choice, a value, a long choice of two."""

RANDOM_BATCHES = 200
"""Random batches whose mean value is the zero of the gain."""

READABLE = frozenset(["probs", "mean_probs"])
"""Fields of a `Problem` that a posterior alone can give."""


class Draws(NamedTuple):
    """Probabilities of the labels, draw by draw.

    Attributes
    ----------
    pool : (sample, row, labels)
        At the candidates; one sample only for a point.
    targets : (sample, target, labels) or None
        The same draws at the rows to be predicted; None: the pool rows themselves.
    """

    pool: Array
    targets: Array | None = None

    @property
    def is_point(self) -> bool:
        """Return whether there is nothing but a point."""
        return len(self.pool) == 1


class Regret(NamedTuple):
    """Regret of an engine, in parts of the exact batch's gain over random; overlaps in parts of the batch.

    Attributes
    ----------
    regret, regret_error : float
        Against the exact choice from twice as many draws, and its standard error over replicates.
    floor, floor_error : float
        The same for exact draws as many as the engine's.
    excess, excess_error : float
        regret - floor, by pairs, so that what both share cancels.
    overlap, overlap_floor : float
        Share of the exact batch that was chosen, by the engine and by as many exact draws.
    rank_correlation, rank_correlation_floor : float
        Spearman's, of the scores of all candidates with the exact ones.
    gain, gain_error : float
        V(B*) - E V(random batch) in the units of the acquisition function.
    replicates : int
    """

    regret: float
    regret_error: float
    floor: float
    floor_error: float
    excess: float
    excess_error: float
    overlap: float
    overlap_floor: float
    rank_correlation: float
    rank_correlation_floor: float
    gain: float
    gain_error: float
    replicates: int


class Turn(NamedTuple):
    """One assignment of a replicate's quarters to their parts."""

    value: Callable[[Array], float]
    exact: Array
    exact_value: float
    exact_score: Array
    random_value: float
    short_value: float
    short_overlap: float
    short_correlation: float


@dataclass(frozen=True, eq=False)
class Judge:
    """The exact side of the comparison: made once for an acquisition function, then used for every engine."""

    entry: Acquisition
    turns: tuple[tuple[Turn, ...], ...]
    batch: int
    seed: int


def usable() -> list[str]:
    """Return the names of acquisition functions whose batch has a value that exact draws can give."""
    return [name for name, entry in catalogue().items() if _has_value(entry)]


def find_usable(name: str) -> Acquisition:
    """Return the acquisition function called `name`.

    Raises
    ------
    ValueError
        If there is none, it reads more than a posterior, or draws do not say what its batch is worth.
    """
    entry = find(name)
    if not _has_value(entry):
        raise ValueError(
            f"acquisition {name!r} does not depend on the posterior alone, or its batch has no value that "
            f"draws give; regret is defined for {', '.join(usable())}"
        )
    return entry


def make_judge(
    entry: Acquisition, replicates: Sequence[Sequence[Draws]], batch: int, *, seed: int = 0
) -> Judge:
    """Choose and value batches by exact draws.

    Parameters
    ----------
    entry : Acquisition
    replicates : sequence of sequences of Draws
        Each of `QUARTERS` independent sets of exact draws, equal in number. Two of them name the exact batch;
        of the others, one stands for exact inference with few draws and one gives the values. Each set takes
        each of the last two parts once.
    batch : int
    seed : int
        Of ties and random batches.

    Raises
    ------
    ValueError
        With fewer than three replicates, another number of sets, or a pool not larger than the batch.
    """
    if len(replicates) < 3 or any(len(sets) != QUARTERS for sets in replicates):
        raise ValueError(f"replicates: three or more, each of {QUARTERS} sets of exact draws, are needed")
    pool = replicates[0][0].pool.shape[1]
    check_pool(pool, batch)
    rng = np.random.default_rng(seed)
    chance = np.array([rng.choice(pool, batch, replace=False) for _ in range(RANDOM_BATCHES)])
    turns = tuple(tuple(_turns(entry, sets, batch, chance, seed)) for sets in replicates)
    return Judge(entry, turns, batch, seed)


def check_pool(pool: int, batch: int) -> None:
    """Refuse a pool in which there is nothing to choose."""
    if batch < 1 or pool <= batch:
        raise ValueError(f"batch: {batch} of a pool of {pool} rows leaves no choice; the pool must be larger")


def judge_engine(judge: Judge, runs: Sequence[Draws]) -> Regret:
    """Return the regret of an engine.

    Parameters
    ----------
    judge : Judge
    runs : sequence of Draws
        One independent run of the engine a replicate.

    Raises
    ------
    ValueError
        If their number is not that of the replicates, or the acquisition function needs more than a point.
    """
    if len(runs) != len(judge.turns):
        raise ValueError(f"runs: {len(judge.turns)} are needed, one a replicate, got {len(runs)}")
    lost, floor, gain, shares, ranks = ([] for _ in range(5))
    for turns, run in zip(judge.turns, runs, strict=True):
        chosen, scores = _ask(judge.entry, run, judge.batch, judge.seed)
        lost.append(np.mean([turn.exact_value - turn.value(chosen) for turn in turns]))
        floor.append(np.mean([turn.exact_value - turn.short_value for turn in turns]))
        gain.append(np.mean([turn.exact_value - turn.random_value for turn in turns]))
        shares += [(_overlap(chosen, turn.exact), turn.short_overlap) for turn in turns]
        ranks += [(_correlation(scores, turn.exact_score), turn.short_correlation) for turn in turns]
    regret, floor_found = ratio(lost, gain), ratio(floor, gain)
    excess = ratio(np.subtract(lost, floor), gain)
    overlap, correlation = np.mean(shares, axis=0), np.mean(ranks, axis=0)
    spread = float(np.std(gain, ddof=1) / np.sqrt(len(gain)))
    return Regret(
        *regret, *floor_found, *excess, float(overlap[0]), float(overlap[1]), float(correlation[0]),
        float(correlation[1]), float(np.mean(gain)), spread, len(gain),
    )  # fmt: skip


def ratio(numerator: Any, denominator: Any) -> tuple[float, float]:
    """Return sum(numerator) / sum(denominator) over independent replicates, and its standard error.

    By the delta method: the residuals numerator - ratio denominator, over the mean denominator.
    """
    n, d = np.asarray(numerator, float), np.asarray(denominator, float)
    if d.sum() == 0:
        return float("nan"), float("nan")
    found = n.sum() / d.sum()
    spread = np.sqrt(((n - found * d) ** 2).sum() / (n.size * (n.size - 1)))
    return float(found), float(spread / abs(d.mean()))


def value_function(
    entry: Acquisition, draws: Draws, seed: int = 0, *, debias: bool = True
) -> Callable[[Array], float]:
    """Return V(rows), what the labels of `rows` together are worth by these draws.

    For ``ensemble_ivr`` the variance removed at the targets by conditioning on all of the batch at once,
    whatever its order; for functions that take the highest scores, the sum of the scores. `debias` takes off
    what unrelated draws would show, as `labelzoo.acquisition.anomalies.variance_reduction` does.
    """
    if entry.name == "ensemble_ivr":
        return _removed_variance(draws, debias)
    scores = np.asarray(entry.score(problem_of(draws, seed)), float)
    return lambda rows: float(scores[rows].sum())


def problem_of(draws: Draws, seed: int = 0) -> Problem:
    """Return what an acquisition function may read of these draws."""
    mean = draws.pool.mean(axis=0)
    if draws.is_point:
        return Problem(mean_probs=mean, seed=seed)
    return Problem(probs=draws.pool, target_probs=draws.targets, mean_probs=mean, seed=seed)


def pooled(sets: Sequence[Draws]) -> Draws:
    """Return several sets of draws as one."""
    targets = None if sets[0].targets is None else np.concatenate([one.targets for one in sets])
    return Draws(np.concatenate([one.pool for one in sets]), targets)


def _has_value(entry: Acquisition) -> bool:
    plain = entry.choose is None or entry.name in ("ensemble_ivr", "bald_joint")
    return entry.query == "row" and bool(entry.needs) and set(entry.needs) <= READABLE and plain


def _turns(entry: Acquisition, sets: Sequence[Draws], batch: int, chance: Array, seed: int) -> Iterator[Turn]:
    for two, rest in ((sets[:2], sets[2:]), (sets[2:], sets[:2])):
        exact, score = _ask(entry, pooled(rest), batch, seed)
        for short, judge in (two, two[::-1]):
            value = value_function(entry, judge, seed)
            chosen, short_score = _ask(entry, short, batch, seed)
            chance_value = float(np.mean([value(rows) for rows in chance]))
            share, correlation = _overlap(chosen, exact), _correlation(short_score, score)
            yield Turn(value, exact, value(exact), score, chance_value, value(chosen), share, correlation)


def _ask(entry: Acquisition, draws: Draws, batch: int, seed: int) -> tuple[Array, Array]:
    problem = problem_of(draws, seed)
    chosen = np.asarray(entry(problem, batch).rows)
    return chosen, np.asarray(entry.score(problem), float)


def _overlap(a: Array, b: Array) -> float:
    return float(np.intersect1d(a, b).size / len(b))


def _correlation(a: Array, b: Array) -> float:
    # Scores that do not differ have no ranks.
    return float(spearmanr(a, b).statistic) if np.ptp(a) > 0 and np.ptp(b) > 0 else float("nan")


def _removed_variance(draws: Draws, debias: bool) -> Callable[[Array], float]:
    # tr(A_T' A_B (A_B'A_B + D_B)^-1 A_B' A_T), A the scaled anomalies and D the noise of the labels. Without
    # targets of their own these are the pool rows outside the batch.
    A, noise = make_ensemble(draws.pool)
    samples, rows, labels = A.shape
    flat = A.reshape(samples, -1)
    gram = flat @ flat.T if draws.targets is None else target_gram(draws.targets)
    turned = (gram @ flat).reshape(samples, rows, labels)

    def value(batch: Array) -> float:
        own = A[:, batch].reshape(samples, -1)
        cross = own.T @ own
        seen = own.T @ turned[:, batch].reshape(samples, -1)
        if draws.targets is None:
            seen -= cross @ cross
        if debias:
            spread = np.trace(gram) - (np.trace(cross) if draws.targets is None else 0.0)
            seen -= spread / (samples - 1) * cross
        cross[np.diag_indices_from(cross)] += np.maximum(noise[batch].ravel(), 1e-12)
        return float(np.trace(np.linalg.solve(cross, seen)))

    return value
