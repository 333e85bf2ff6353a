"""How many wrong updates the bench notices that were written by someone who had not seen it.

    python benchmarks/outsider_mutants.py [--json FILE]

The wrong updates in ``tests/outsider`` were written from the derivations alone. For each, the rung of the
fast tier that notices it, and what the explainer takes it for. Whether a name is right is judged by hand and
kept in ``tests/outsider/judgement.toml``; where it says "unknown" there is nothing to judge.
"""

import argparse
import json
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jax

from labelzoo.inference.checks.identity import THRESHOLD, log_claims, worst_of
from labelzoo.inference.checks.rungs import Prepared, Setting, explanation, killer, prepare
from labelzoo.inference.checks.states import data_cases
from labelzoo.inference.update import Mutant
from labelzoo.models import registry

FOLDER = Path(__file__).parents[1] / "tests" / "outsider"


def outsiders() -> tuple[Any, ...]:
    """Return the wrong updates."""
    sys.path.insert(0, str(FOLDER))
    import mutants

    return mutants.OUTSIDER


def score(seed: int = 0) -> Iterator[dict[str, Any]]:
    """Yield one row a wrong update: model, update, name, slip, killed_by, explanation."""
    found = outsiders()
    for model in dict.fromkeys(row.model for row in found):
        entry = registry.get(model)
        updates = {update.name: update for update in reversed(entry.updates)}
        setting = Setting(
            entry.spec, data_cases(entry.spec, seed), {}, {}, 16, seed, 2 * len(updates), False, set()
        )
        prepared: dict[str, Prepared] = {}
        for row in (row for row in found if row.model == model):
            if row.update not in prepared:
                prepared[row.update] = prepare(updates[row.update], setting)
            yield {**judged(row, prepared[row.update], setting), "model": model}


def judged(row: Any, at: Prepared, setting: Setting) -> dict[str, Any]:
    """Return what the bench says of one wrong update."""
    bench, sites = at.benches[0], at.update.sites
    claimed = log_claims(bench, (row.given,), sites)[0]
    by = killer(at, Mutant(row.name, row.given), claimed, setting)
    words = ""
    if worst_of(bench, claimed)[0] > THRESHOLD:
        words = explanation(row.given, at, bench, claimed, setting)
    return {"update": row.update, "name": row.name, "slip": row.slip, "killed_by": by, "explanation": words}


def with_verdicts(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with ``judged``: right, wrong, unknown (it said so) or not judged."""
    verdicts = tomllib.loads((FOLDER / "judgement.toml").read_text(encoding="utf-8"))
    out = []
    for row in rows:
        said_unknown = row["explanation"].startswith("unknown") or not row["explanation"]
        out.append({**row, "judged": "unknown" if said_unknown else verdicts.get(row["name"], "not judged")})
    return out


def main() -> None:
    """Print the table and the shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with jax.enable_x64(True):
        rows = with_verdicts(score(options.seed))
    for row in rows:
        by = row["killed_by"] or "NOTHING"
        print(f"{row['update']:34} {row['name']:36} {by:9} {row['judged']:8} {row['explanation']}")
    killed = sum(row["killed_by"] is not None for row in rows)
    print(f"noticed: {killed} of {len(rows)}; explained: {dict(Counter(row['judged'] for row in rows))}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
