"""What a measured regret says: one row and one sentence an engine and acquisition function."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from scipy.stats import t as student

from labelzoo.regret import Judge, Regret

FALSE_ALARM = 0.05
"""Probability that any engine of a run that loses nothing is said to lose."""

TELLING = 0.05
"""A loss that may be larger than this, at 95 %, is not said to be none."""

NUMBERS = (
    "regret", "regret_error", "floor", "floor_error", "excess", "excess_error", "overlap", "overlap_floor",
    "rank_correlation", "rank_correlation_floor", "gain", "gain_error",
)  # fmt: skip


def row_of(name: str, kind: str, judge: Judge, found: Regret, comparisons: int = 1) -> dict[str, Any]:
    """Return the JSON row of an engine; `comparisons` of them are made in the run."""
    numbers = {key: _finite(getattr(found, key)) for key in NUMBERS}
    sentence = verdict(name, judge.entry.name, found, judge.batch, comparisons)
    return {"name": name, "kind": kind, "acquisition": judge.entry.name, **numbers, "verdict": sentence}


def withheld(name: str, kind: str, acquisition: str, reason: str) -> dict[str, Any]:
    """Return the row of an engine of which nothing can be said."""
    return {
        "name": name, "kind": kind, "acquisition": acquisition, **dict.fromkeys(NUMBERS), "verdict": reason
    }  # fmt: skip


def verdict(name: str, acquisition: str, found: Regret, batch: int, comparisons: int = 1) -> str:
    """Return the sentence that the numbers support.

    The excess over the floor is held against its standard error by Student's t with one degree of freedom
    less than there are replicates, at `FALSE_ALARM` / `comparisons` (Bonferroni) on one side.
    """
    freedom = found.replicates - 1
    strict = float(student.ppf(1 - FALSE_ALARM / max(comparisons, 1), freedom))
    plain = float(student.ppf(0.95, freedom))
    if not found.gain > plain * found.gain_error:
        return (
            f"no verdict: with {acquisition} the exact choice itself is not better than chance "
            f"({found.gain:.3g} ± {found.gain_error:.2g}), so there is nothing to lose"
        )
    size = f"{_percent(found.excess)} ± {_percent(found.excess_error)}"
    shared = (
        f"shares {found.overlap * batch:.1f} of {batch} rows with the exact choice "
        f"(exact inference with as many draws: {found.overlap_floor * batch:.1f})"
    )
    upper = found.excess + plain * found.excess_error
    if found.excess > strict * found.excess_error:
        return f"{name}: loses {size} of the gain over random to approximation; {shared}"
    if found.excess < -strict * found.excess_error:
        return (
            f"{name}: asks better than exact inference with as many draws ({size} of the gain over random); "
            f"{shared}"
        )
    if upper > TELLING:
        return (
            f"{name}: undecided, {size} of the gain over random (more repeats or draws would tell); {shared}"
        )
    return (
        f"{name}: no loss beyond Monte Carlo noise ({size} of the gain over random, below "
        f"{_percent(max(upper, 0.0))} at 95 %); {shared}"
    )


def regret_text(payload: Mapping[str, Any]) -> str:
    """Return table and sentences of one run."""
    rows = payload["rows"]
    judged = f"R-hat {payload['rhat']:.4f}" if payload["rhat"] is not None else "independent draws"
    head = [
        f"{payload['model']} on {payload['data'] or 'data'}: {rows['labelled']} labelled rows, pool "
        f"{rows['pool']}, targets {rows['targets']}, {payload['labels']} labels; batch {payload['batch']}, "
        f"{payload['draws']} draws, {payload['repeats']} replicates",
        f"exact: {payload['reference']} ({judged}, {payload['divergences']} divergences, "
        f"{payload['seconds'][payload['reference']]:.0f} s)",
        "",
    ]
    return "\n".join([*head, *table_lines(payload["engines"]), "", *verdict_lines(payload["engines"])])


def table_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the table: parts of the exact choice's gain over random, ± one standard error."""
    lines = [
        f"{'acquisition':14s}{'engine':14s}{'kind':10s}{'regret':>16s}{'floor':>16s}{'excess':>16s}"
        f"{'overlap (floor)':>18s}{'rank corr (floor)':>20s}"
    ]
    for row in sorted(rows, key=lambda row: row["acquisition"]):
        start = f"{row['acquisition']:14s}{row['name']:14s}{row['kind']:10s}"
        if row["regret"] is None:
            lines.append(f"{start}{'-':>16s}{'-':>16s}{'-':>16s}{'-':>18s}{'-':>20s}")
            continue
        pairs = "".join(
            f"{_pair(row[key], row[key + '_error']):>16s}" for key in ("regret", "floor", "excess")
        )
        shares = "".join(
            f"{_two(row[key], row[key + '_floor']):>{width}s}"
            for key, width in (("overlap", 18), ("rank_correlation", 20))
        )
        lines.append(start + pairs + shares)
    return lines


def verdict_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the sentences, each after the name of its acquisition function."""
    ordered = sorted(rows, key=lambda row: row["acquisition"])
    if len({row["verdict"] for row in ordered}) == 1:
        return [str(ordered[0]["verdict"])]
    return [f"{row['acquisition']}: {row['verdict']}" for row in ordered]


def _pair(value: float, error: float) -> str:
    return f"{value:.3f} ± {error:.3f}"


def _two(value: float | None, floor: float | None) -> str:
    a, b = ("-" if x is None else f"{x:.2f}" for x in (value, floor))
    return f"{a} ({b})"


def _percent(value: float) -> str:
    value = 0.0 if abs(value) < 1e-8 else value  # what rounding left of equal values
    return f"{100 * value:.2g} %" if abs(value) < 0.1 else f"{100 * value:.0f} %"


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
