"""Tasks of a check run in two processes give what one gives, and survive the loss of the second."""

import math
from typing import Any

from labelzoo.check_process import Worker
from labelzoo.inference.checks.report import CheckResult, MutantResult
from labelzoo.inference.checks.rungs import Rows
from labelzoo.inference.checks.tasks import Task, rows_from_json, rows_to_json, run_all


def _rows(name: str) -> Rows:
    check = CheckResult(name, "identity", "a", False, math.inf, 1e-9, "says", "explains")
    return Rows([check], [MutantResult(name, "m", None, "automatic")], ("note",))


class Beside:
    """Stands in for a process: answers some tasks and then goes."""

    def __init__(self, answers: int) -> None:
        self.answers, self.asked = answers, []  # type: ignore[var-annotated]

    def ask(self, index: int) -> str | None:
        """Answer as a process would."""
        self.asked.append(index)
        if len(self.asked) > self.answers:
            return None
        return rows_to_json(_rows(f"task {index}"))


def _tasks(count: int) -> list[Task]:
    return [Task(f"task {i}", lambda i=i: _rows(f"task {i}")) for i in range(count)]  # type: ignore[misc]


def test_rows_survive_the_way_between_processes() -> None:
    assert rows_from_json(rows_to_json(_rows("x"))) == _rows("x")


def test_every_task_is_done_once_in_order_with_and_without_a_worker() -> None:
    want = [_rows(f"task {i}") for i in range(5)]
    assert run_all(_tasks(5)) == want
    for answers in (0, 1, 5):
        worker: Any = Beside(answers)
        assert run_all(_tasks(5), worker) == want


def test_a_process_that_cannot_start_answers_nothing() -> None:
    worker = Worker("no_such_model", seed=0, tier="fast")
    try:
        assert worker.ask(0) is None
    finally:
        worker.close()
