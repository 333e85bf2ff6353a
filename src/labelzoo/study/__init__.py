"""Simulated active learning: data x learner x acquisition x seed, in one resumable SQLite file."""

from labelzoo.study.database import (
    Round,
    StudyMismatch,
    read_failed,
    read_plan,
    read_rounds,
    read_skipped,
)
from labelzoo.study.plan import Plan
from labelzoo.study.run import run_study

__all__ = [
    "Plan",
    "Round",
    "StudyMismatch",
    "read_failed",
    "read_plan",
    "read_rounds",
    "read_skipped",
    "run_study",
]
