"""Wrong updates by someone who had not seen the bench: noticed, and never given a wrong name."""

import sys
import tomllib
from pathlib import Path
from typing import Any

import jax
import pytest

ROOT = Path(__file__).parents[3]
SHARE_NOTICED, SHARE_HONEST = 0.95, 0.8


@pytest.fixture(scope="module")
def scorer() -> Any:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import outsider_mutants
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    return outsider_mutants


def test_the_list_is_long_and_judged(scorer: Any) -> None:
    found = scorer.outsiders()
    names = [row.name for row in found]
    assert len(names) == len(set(names)) >= 30
    verdicts = tomllib.loads((scorer.FOLDER / "judgement.toml").read_text(encoding="utf-8"))
    assert set(verdicts) <= set(names)
    assert set(verdicts.values()) <= {"right", "wrong"}


@pytest.mark.slow
def test_outsiders_faults_are_noticed_and_named_honestly(scorer: Any) -> None:
    with jax.enable_x64(True):
        rows = scorer.with_verdicts(scorer.score())
    lost = [row["name"] for row in rows if row["killed_by"] is None]
    assert len(rows) - len(lost) >= SHARE_NOTICED * len(rows), lost
    dishonest = {row["name"]: row["explanation"] for row in rows if row["judged"] not in ("right", "unknown")}
    assert len(rows) - len(dishonest) >= SHARE_HONEST * len(rows), dishonest
    assert sum(row["judged"] == "right" for row in rows) >= 15
