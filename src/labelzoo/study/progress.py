"""Progress of a study on stderr, where that is a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SPEED_WINDOW = 600.0
"""Seconds over which the time left is reckoned: rounds come in bursts, one from each process."""


@contextmanager
def study_progress(shown: bool | None = None) -> Iterator[Callable[[int, int], None] | None]:
    """Yield ``say(rounds done, rounds in all)`` that draws a bar with the time left, or None.

    Parameters
    ----------
    shown : bool or None
        None: shown if stderr is a terminal.
    """
    if not (sys.stderr.isatty() if shown is None else shown):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("rounds"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("left"),
    )
    with Progress(*columns, console=Console(stderr=True), speed_estimate_period=SPEED_WINDOW) as progress:
        tasks: list[int] = []

        def say(done: int, total: int) -> None:
            if not tasks:  # rounds of an earlier run say nothing about the speed of this one
                tasks.append(progress.add_task("rounds", total=total, completed=done))
            progress.update(tasks[0], completed=done)  # type: ignore[arg-type]

        yield say
