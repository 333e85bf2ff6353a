"""Seconds that JAX spends tracing and compiling, apart from running what it compiled."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import jax

COMPILE_EVENTS = "/jax/core/compile/"


@dataclass
class CompileClock:
    """Spans of time, in seconds, in which JAX was tracing, lowering or compiling."""

    spans: list[tuple[float, float]] = field(default_factory=list)

    def seconds(self) -> float:
        """Return the length of the union of the spans: traces nest in each other."""
        total, end = 0.0, float("-inf")
        for first, last in sorted(self.spans):
            total += max(0.0, last - max(first, end))
            end = max(end, last)
        return total


@contextmanager
def compile_clock() -> Iterator[CompileClock]:
    """Collect what is compiled inside the block, by JAX's own events; other threads count too."""
    clock = CompileClock()

    def listen(event: str, start_time: float, end_time: float, **_: str | int) -> None:
        if event.startswith(COMPILE_EVENTS):
            clock.spans.append((start_time, end_time))

    jax.monitoring.register_event_time_span_listener(listen)
    try:
        yield clock
    finally:
        jax.monitoring.unregister_event_time_span_listener(listen)
