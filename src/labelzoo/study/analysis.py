"""What a study shows: areas under the curves, paired differences to random, intervals, verdicts."""

from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t as student

from labelzoo.study.database import Round
from labelzoo.study.plan import Plan
from labelzoo.study.scoring import METRICS

Array = Any
RANDOM = "random"
HEADLINE = "precision"
CONFIDENCE = 0.95
PARTS = {"E": "rows scored only", "T": "the target rows themselves (transductive)"}


class Curves(NamedTuple):
    """Metrics by acquisition, seed and round.

    Attributes
    ----------
    values : dict
        (acquire, evaluator, part, metric) to (seed, round) array, NaN where a round is missing.
    labelled : dict
        acquire to (seed, round) mean number of labels known per label column (rows for row queries).
    seeds : tuple of int
    """

    values: dict[tuple[str, str, str, str], Array]
    labelled: dict[str, Array]
    seeds: tuple[int, ...]


def curves(plan: Plan, rows: list[Round], num_labels: int) -> Curves:
    """Gather the rounds of a study."""
    place = {seed: i for i, seed in enumerate(plan.seeds)}
    shape = (len(plan.seeds), plan.rounds + 1)
    values: dict[tuple[str, str, str, str], Array] = {}
    labelled: dict[str, Array] = {}
    for row in rows:
        if row.acquire not in plan.acquire or row.seed not in place or row.round > plan.rounds:
            continue
        at = (place[row.seed], row.round)
        labelled.setdefault(row.acquire, np.full(shape, np.nan))[at] = row.metrics["cells"] / num_labels
        for evaluator in plan.evaluators:
            for part in PARTS:
                for metric in METRICS:
                    key = (row.acquire, evaluator, part, metric)
                    value = row.metrics[evaluator][part][metric]
                    values.setdefault(key, np.full(shape, np.nan))[at] = np.nan if value is None else value
    return Curves(values, labelled, plan.seeds)


def area(values: Array) -> Array:
    """Return the mean height of each curve by the trapezoid rule: (seed,); NaN where a round is missing."""
    if values.shape[1] == 1:
        return values[:, 0]
    return (values[:, :-1] + values[:, 1:]).mean(axis=1) / 2


class Comparison(NamedTuple):
    """A paired comparison with random.

    Attributes
    ----------
    acquire, evaluator, part, metric : str
    difference : float
        Mean over seeds of area - area of random.
    interval : (float, float)
        At 95 % for all comparisons of the family together (Bonferroni).
    p_value, holm : float or None
        Two-sided, and adjusted by Holm over the family.
    num_seeds : int
    share_of_oracle : float or None
        Difference over that of the oracle reference.
    rows_saved : float or None
        Rows that random needs for its last level, less those that this one needs for it.
    verdict : str
    """

    acquire: str
    evaluator: str
    part: str
    metric: str
    difference: float
    interval: tuple[float, float]
    p_value: float | None
    holm: float | None
    num_seeds: int
    share_of_oracle: float | None
    rows_saved: float | None
    verdict: str


def compare_with_random(
    plan: Plan, found: Curves, test_share: float, *, oracle: str = "oracle"
) -> list[Comparison]:
    """Compare every acquisition with random, seed by seed.

    The variance is that of Nadeau and Bengio (2003) for re-splits that share rows, s^2 (1 / J + n2 / n1),
    with J seeds, n2 scored rows and n1 pool rows (`test_share` is n2 / n1). A family is one evaluator, part
    and metric; the oracle is outside.
    """
    out: list[Comparison] = []
    names = [name for name in plan.acquire if name not in (RANDOM, oracle)]
    if RANDOM not in plan.acquire:
        return out
    for evaluator in plan.evaluators:
        for part in PARTS:
            for metric in METRICS:
                out += _family(found, names, (evaluator, part, metric), test_share, oracle)
    return out


def _family(
    found: Curves, names: list[str], place: tuple[str, str, str], test_share: float, oracle: str
) -> list[Comparison]:
    base = found.values.get((RANDOM, *place))
    if base is None:
        return []
    tests = {}
    for name in names:
        values = found.values.get((name, *place))
        if values is not None:
            gap = area(values) - area(base)
            gap = gap[~np.isnan(gap)]
            if len(gap):  # cells that were not run are listed as such
                tests[name] = paired(gap, test_share, len(names))
    adjusted = holm({name: test.p_value for name, test in tests.items() if test.p_value is not None})
    cheat = found.values.get((oracle, *place))
    top = None if cheat is None else mean_known(area(cheat) - area(base))
    out = []
    for name, test in tests.items():
        share = test.difference / top if top is not None and top > 0 else None
        clear = test.interval[0] > 0 or test.interval[1] < 0  # a cost saved by chance would read as a finding
        saved = rows_saved(found, name, place) if clear else None
        words = verdict(name, place[2], test)
        out.append(
            Comparison(
                name,
                *place,
                test.difference,
                test.interval,
                test.p_value,
                adjusted.get(name),
                test.num_seeds,
                share,
                saved,
                words,
            )
        )
    return out


def mean_known(values: Array) -> float | None:
    """Return the mean of what is known, None if nothing is."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


class Paired(NamedTuple):
    """Mean paired difference with its interval."""

    difference: float
    interval: tuple[float, float]
    p_value: float | None
    num_seeds: int


def paired(gap: Array, test_share: float, family: int) -> Paired:
    """Return the mean of paired differences (seed,) with a corrected interval; infinite below two seeds."""
    count = len(gap)
    if count == 0:
        return Paired(float("nan"), (float("-inf"), float("inf")), None, 0)
    mean = float(gap.mean())
    if count < 2:
        return Paired(mean, (float("-inf"), float("inf")), None, count)
    error = float(gap.std(ddof=1)) * np.sqrt(1 / count + test_share)
    width = float(student.isf((1 - CONFIDENCE) / (2 * family), count - 1)) * error
    p_value = float(2 * student.sf(abs(mean) / error, count - 1)) if error > 0 else float(mean == 0)
    return Paired(mean, (mean - width, mean + width), p_value, count)


def holm(p_values: dict[str, float]) -> dict[str, float]:
    """Return Holm's adjusted p-values."""
    out: dict[str, float] = {}
    largest = 0.0
    for rank, name in enumerate(sorted(p_values, key=lambda n: p_values[n])):
        largest = max(largest, min(1.0, p_values[name] * (len(p_values) - rank)))
        out[name] = largest
    return out


def rows_saved(found: Curves, name: str, place: tuple[str, str, str]) -> float | None:
    """Return how many labelled rows `name` saves at the level that random reaches at its end.

    Both curves are means over seeds, made increasing by their running maximum; None where the level is
    not reached.
    """
    level = _mean_curve(found.values[(RANDOM, *place)])
    curve = _mean_curve(found.values[(name, *place)])
    goal = level[-1]
    if not np.isfinite(goal) or not (curve >= goal).any():
        return None
    needed = _first_reach(curve, found.labelled[name].mean(axis=0), goal)
    return float(_first_reach(level, found.labelled[RANDOM].mean(axis=0), goal) - needed)


def _mean_curve(values: Array) -> Array:
    return np.maximum.accumulate(values.mean(axis=0))


def _first_reach(curve: Array, labelled: Array, goal: float) -> float:
    """Return the number of labelled rows where the curve first reaches the goal, interpolated."""
    at = int(np.argmax(curve >= goal))
    if at == 0 or curve[at] == curve[at - 1]:
        return float(labelled[at])
    part = (goal - curve[at - 1]) / (curve[at] - curve[at - 1])
    return float(labelled[at - 1] + part * (labelled[at] - labelled[at - 1]))


def verdict(name: str, metric: str, test: Paired) -> str:
    """Return one plain sentence; active learning that loses is said to lose."""
    scale, unit = (1.0, "nats a row") if metric == "log_score" else (100.0, "points")
    low, high = (scale * end for end in test.interval)
    number = f"{scale * test.difference:+.2f} {unit} of area"
    if not np.isfinite(low):
        return f"{name}: {number}, one seed gives no interval"
    span = f"interval {low:+.2f} to {high:+.2f}, {test.num_seeds} seeds"
    if low > 0:
        return f"{name} beats random: {number} ({span})"
    if high < 0:
        return f"{name} LOSES to random: {number} ({span}); label rows at random instead"
    return f"{name}: no difference from random shown: {number} ({span})"
