"""Records of what the checks found, as JSON and as a table for the terminal."""

import json
import math
from dataclasses import dataclass
from typing import Any, Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

Kind = Literal["draws", "identity", "stationarity", "enumeration"]
"""The rungs of the fast ladder."""


@dataclass(frozen=True)
class CheckResult:
    """One check of one block.

    Attributes
    ----------
    name : str
        The update, engine or pair of views that was checked.
    kind : {"draws", "identity", "stationarity", "enumeration"}
    site : str
        The block: site names joined by commas.
    passed : bool
    statistic : float
        Worst residual, largest z or largest gradient; infinite where there was nothing finite to compare.
    threshold : float
        The statistic must not exceed it.
    detail : str
        One sentence with the number of states and where the worst one is.
    """

    name: str
    kind: Kind
    site: str
    passed: bool
    statistic: float
    threshold: float
    detail: str


@dataclass(frozen=True)
class MutantResult:
    """A planted fault and the rung that noticed it (None: it survived)."""

    update: str
    mutant: str
    killed_by: Kind | None


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
        return all(row.passed for row in self.checks) and self.mutants_killed == self.mutants_total

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
                    "threshold": row.threshold,
                    "detail": row.detail,
                }
                for row in self.checks
            ],
            "mutants": [
                {"update": row.update, "mutant": row.mutant, "killed_by": row.killed_by}
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
        failed = [row for row in self.checks if not row.passed]
        survived = self.mutants_total - self.mutants_killed
        killed = f"{self.mutants_killed} of {self.mutants_total} planted faults noticed"
        if not self.checks:
            return f"{self.model}: no update, engine or pair of views to check."
        if failed:
            named = ", ".join(f"{row.name} ({row.kind})" for row in failed)
            return f"{self.model}: {len(failed)} of {len(self.checks)} checks failed: {named}; {killed}."
        if survived:
            return f"{self.model}: all {len(self.checks)} checks passed, but only {killed}."
        return f"{self.model}: all {len(self.checks)} checks passed; {killed}; {self.seconds:.1f} s."

    def _check_table(self) -> Table:
        table = Table(title=f"{self.model}: checks", title_justify="left")
        for heading in ("check", "rung", "block", "statistic", "limit", "verdict", "what was done"):
            table.add_column(heading, overflow="fold")
        for row in self.checks:
            verdict = Text("ok", style="green") if row.passed else Text("FAILED", style="bold red")
            numbers = f"{row.statistic:.2g}", f"{row.threshold:.2g}"
            table.add_row(row.name, row.kind, row.site, *numbers, verdict, row.detail)
        return table

    def _mutant_table(self) -> Table:
        table = Table(title=f"{self.model}: planted faults", title_justify="left")
        for heading in ("check", "planted fault", "noticed by"):
            table.add_column(heading, overflow="fold")
        for row in self.mutants:
            by = row.killed_by or Text("nothing", style="bold red")
            table.add_row(row.update, row.mutant, by)
        return table


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
