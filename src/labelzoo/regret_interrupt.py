"""Ctrl-C while a sampler runs in compiled code: one line, and the process ends at once."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

GRACE = 2.0
"""Seconds that the interpreter has to raise KeyboardInterrupt itself, before the process is ended."""

STOPPED = 130


@contextmanager
def stopped_by_ctrl_c(line: Callable[[], str]) -> Iterator[None]:
    """Print `line` on stderr and end with exit code 130 when Ctrl-C comes while the block runs.

    Python raises KeyboardInterrupt between two of its own instructions, so not before a compiled run, which
    may take minutes, is over. A thread is told of the signal at once: if the block has not ended within
    `GRACE` seconds the process is. So nothing in the block may need cleaning up but what `line` does.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ended = threading.Event()
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(ours, ended, line), daemon=True).start()
    try:
        yield
    except KeyboardInterrupt:
        ended.set()
        _say(line())
        raise typer.Exit(STOPPED) from None
    finally:
        ended.set()
        signal.set_wakeup_fd(before)
        theirs.close()


def _watch(signals: socket.socket, ended: threading.Event, line: Callable[[], str]) -> None:
    """End the process when SIGINT was seen and the block goes on; return when the other end is closed."""
    with signals:
        while number := signals.recv(1):
            if number[0] == signal.SIGINT and not ended.wait(GRACE):
                _say(line())
                os._exit(STOPPED)


def _say(line: str) -> None:
    print(f"labelzoo: {line}", file=sys.stderr, flush=True)
