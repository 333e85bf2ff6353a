"""Progress of a study on stderr: a bar on a terminal, else a line from time to time."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SPEED_WINDOW = 600.0
"""Seconds over which the time left is reckoned: rounds come in bursts, one from each process."""


LINE_SECONDS = 30.0
"""Seconds between two lines where there is no terminal."""


def lines(every: float = LINE_SECONDS) -> Callable[[int, int], None]:
    """Return ``say`` that writes how far a study is and what is left, at most once in `every` seconds."""
    begin = last = time.monotonic()
    first: list[int] = []

    def say(done: int, total: int) -> None:
        nonlocal last
        first.append(done) if not first else None
        now = time.monotonic()
        if now - last < every:
            return
        last = now
        rate = (done - first[0]) / (now - begin)
        left = f", about {(total - done) / rate / 60:.0f} min left" if rate else ""
        print(f"labelzoo: {done} of {total} rounds{left}", file=sys.stderr, flush=True)

    return say


@contextmanager
def study_progress(shown: bool | None = None) -> Iterator[Callable[[int, int], None] | None]:
    """Yield ``say(rounds done, rounds in all)`` that draws a bar with the time left, or writes lines.

    Parameters
    ----------
    shown : bool or None
        Whether to draw the bar; None: if stderr is a terminal. Without it a line is written every
        `LINE_SECONDS`.
    """
    if not (sys.stderr.isatty() if shown is None else shown):
        yield lines()
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
