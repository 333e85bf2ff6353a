"""Simulated active learning: data x learner x acquisition x seed, in one resumable SQLite file."""

from labelzoo.study.database import Round, read_failed, read_plan, read_rounds, read_skipped
from labelzoo.study.lock import StudyRunning
from labelzoo.study.plan import Plan
from labelzoo.study.run import run_study
from labelzoo.study.sqlite_file import StudyNotWritten
from labelzoo.study.validity import StudyMismatch

__all__ = [
    "Plan",
    "Round",
    "StudyMismatch",
    "StudyNotWritten",
    "StudyRunning",
    "read_failed",
    "read_plan",
    "read_rounds",
    "read_skipped",
    "run_study",
]
