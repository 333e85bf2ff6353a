"""Records of what the checks found, as JSON and as a table for the terminal."""

import json
import math
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

Kind = Literal["draws", "identity", "stationarity", "enumeration", "order", "geweke", "sbc", "agreement"]
"""The rungs: the first five in the fast tier, all of them in the full one."""


@dataclass(frozen=True)
class CheckResult:
    """One check of one block.

    Attributes
    ----------
    name : str
        The update, engine or pair of views that was checked.
    kind : Kind
    site : str
        The block: site names joined by commas.
    passed : bool or None
        None where the check reports and does not judge (calibration of a mean-field engine, say).
    statistic : float
        Worst residual, largest z or largest gradient; infinite where there was nothing finite to compare.
    threshold : float
        The statistic must not exceed it.
    detail : str
        One sentence with the number of states and where the worst one is.
    explanation : str
        What slip the mismatch looks like, "unknown" where none fits; empty where nothing failed.
    """

    name: str
    kind: Kind
    site: str
    passed: bool | None
    statistic: float
    threshold: float
    detail: str
    explanation: str = ""


@dataclass(frozen=True)
class MutantResult:
    """A planted fault and the rung that noticed it (None: it survived).

    Attributes
    ----------
    update, mutant : str
    killed_by : Kind or None
    origin : {"planted", "automatic"}
        Written beside the update by its author, or made from it by the bench.
    explanation : str
        What the bench takes the fault for; empty where it was not asked.
    """

    update: str
    mutant: str
    killed_by: Kind | None
    origin: Literal["planted", "automatic"] = "planted"
    explanation: str = ""


@dataclass(frozen=True)
class CheckReport:
    """Everything `check` found about one model.

    Attributes
    ----------
    model : str
    checks : tuple of CheckResult
    mutants : tuple of MutantResult
    notes : tuple of str
        What was not checked and why.
    seconds : float
        Wall clock of the whole run.
    """

    model: str
    checks: tuple[CheckResult, ...]
    mutants: tuple[MutantResult, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = math.nan

    @property
    def mutants_killed(self) -> int:
        """Planted faults that a rung noticed."""
        return sum(row.killed_by is not None for row in self.mutants)

    @property
    def mutants_total(self) -> int:
        """Planted faults."""
        return len(self.mutants)

    @property
    def passed(self) -> bool:
        """Every check passed and every planted fault was noticed."""
        return (
            all(row.passed is not False for row in self.checks) and self.mutants_killed == self.mutants_total
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain values ready for JSON; a non-finite number becomes None."""
        return {
            "name": self.model,
            "checks": [
                {
                    "name": row.name,
                    "kind": row.kind,
                    "site": row.site,
                    "passed": row.passed,
                    "statistic": _finite(row.statistic),
                    "threshold": _finite(row.threshold),
                    "detail": row.detail,
                    "explanation": row.explanation,
                }
                for row in self.checks
            ],
            "mutants": [
                {
                    "update": row.update,
                    "mutant": row.mutant,
                    "killed_by": row.killed_by,
                    "origin": row.origin,
                    "explanation": row.explanation,
                }
                for row in self.mutants
            ],
            "mutants_killed": self.mutants_killed,
            "mutants_total": self.mutants_total,
            "notes": list(self.notes),
            "seconds": _finite(self.seconds),
            "passed": self.passed,
        }

    def to_json(self) -> str:
        """Return `as_dict` as one JSON object."""
        return json.dumps(self.as_dict(), allow_nan=False)

    def __rich__(self) -> RenderableType:
        """Lay the report out for a terminal: checks, planted faults, one closing sentence."""
        parts: list[RenderableType] = [self._check_table()]
        if self.mutants:
            parts.append(self._mutant_table())
        parts += [Text(note) for note in self.notes]
        parts.append(Text(self.sentence(), style="bold green" if self.passed else "bold red"))
        return Group(*parts)

    def sentence(self) -> str:
        """Say in one sentence what the numbers support."""
        failed = [row for row in self.checks if row.passed is False]
        judged = sum(row.passed is not None for row in self.checks)
        others = len(self.checks) - judged
        reported = f" ({others} more only report)" if others else ""
        survived = self.mutants_total - self.mutants_killed
        killed = f"{self.mutants_killed} of {self.mutants_total} planted faults noticed"
        killed = killed if self.mutants_total else "no wrong version was held against it"
        if not self.checks:
            return f"{self.model}: no update, engine or pair of views to check."
        if failed:
            named = "; ".join(_named(row) for row in failed)
            return (
                f"{self.model}: {len(failed)} of {judged} checks failed{reported}; {killed}. Failed: {named}."
            )
        if survived:
            return f"{self.model}: all {judged} checks passed{reported}, but only {killed}."
        return f"{self.model}: all {judged} checks passed{reported}; {killed}; {self.seconds:.1f} s."

    def _check_table(self) -> Table:
        table = Table(title=f"{self.model}: checks", title_justify="left")
        for heading in ("check", "rung", "block", "statistic", "limit", "verdict", "what was done"):
            table.add_column(heading, overflow="fold")
        for row in self.checks:
            numbers = f"{row.statistic:.2g}", f"{row.threshold:.2g}"
            said = f"{row.detail}; {row.explanation}" if row.explanation else row.detail
            cells = (Text(cell) for cell in (row.name, row.kind, row.site, *numbers))
            table.add_row(*cells, _verdict(row), Text(said))
        return table

    def _mutant_table(self) -> Table:
        table = Table(title=f"{self.model}: planted faults", title_justify="left")
        explained = any(row.explanation for row in self.mutants)
        headings = ("check", "planted fault", "noticed by", *(["explained as"] if explained else []))
        for heading in headings:
            table.add_column(heading, overflow="fold")
        for row in self.mutants:
            if row.origin == "planted" or row.killed_by is None:
                by = Text(row.killed_by) if row.killed_by else Text("nothing", style="bold red")
                said = [Text(row.explanation)] if explained else []
                table.add_row(Text(row.update), Text(row.mutant), by, *said)
        for update, by_rung in self._automatic_counts().items():
            for rung, count in by_rung.items():
                said = [Text("")] if explained else []
                table.add_row(Text(update), f"{count} automatic ones", rung, *said)
        return table

    def _automatic_counts(self) -> dict[str, Counter[str]]:
        """Return how many automatic faults of each update each rung noticed."""
        counts: dict[str, Counter[str]] = {}
        for row in self.mutants:
            if row.origin == "automatic" and row.killed_by is not None:
                counts.setdefault(row.update, Counter())[row.killed_by] += 1
        return counts


def _named(row: CheckResult) -> str:
    """Name a failed check, its block and what it looks like."""
    explained = f": {row.explanation}" if row.explanation else ""
    return f"{row.name} ({row.kind} of {row.site or 'the engine'}){explained}"


def _verdict(row: CheckResult) -> Text:
    if row.passed is None:
        return Text("report", style="cyan")
    return Text("ok", style="green") if row.passed else Text("FAILED", style="bold red")


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
