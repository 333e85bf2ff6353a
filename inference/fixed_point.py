"""The driver that EM and coordinate ascent share: iterate, trace the objective, stop with a reason."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import Console
from rich.progress import Progress, TextColumn

Array = Any


class FixedPointResult(NamedTuple):
    """Where an iteration stopped.

    Attributes
    ----------
    state : pytree
        The last finite state.
    objective : ndarray
        (iteration,) objective after every sweep, the start included.
    converged : bool
    message : str
        Why it stopped.
    compile_seconds, run_seconds : float
    """

    state: Any
    objective: np.ndarray
    converged: bool
    message: str
    compile_seconds: float
    run_seconds: float


def iterate(
    step: Callable[[Any], tuple[Any, Array]],
    start: Any,
    start_objective: float | None = None,
    *,
    max_iter: Any = 100,
    tolerance: Any = 1e-5,
    blocks: Callable[[Any], dict[str, Array]] | None = None,
    progress: bool = False,
    name: str = "sweep",
) -> FixedPointResult:
    """Repeat `step` until the objective's relative change falls below `tolerance`.

    Parameters
    ----------
    step : callable
        Jitted ``state -> (state, objective)``; the objective belongs to the returned state.
    start : pytree
    max_iter : int
        At least 1.
    tolerance : float
        Stop when |change| <= tolerance * (1 + |objective|).
    blocks : callable
        ``state -> {block name: array}``, to name the culprit when the objective is not finite.
    progress : bool
        Show a bar on stderr.

    Raises
    ------
    ValueError
        If `max_iter` or `tolerance` is out of range.
    FloatingPointError
        If the objective becomes NaN or infinite; the message names sweep and blocks.
    """
    if not isinstance(max_iter, int | np.integer) or isinstance(max_iter, bool) or max_iter < 1:
        raise ValueError(f"max_iter must be an integer of at least 1, got {max_iter!r}")
    if not isinstance(tolerance, int | float | np.number) or not tolerance >= 0:
        raise ValueError(f"tolerance must be a number of at least 0, got {tolerance!r}")
    begin = time.perf_counter()
    compiled = step.lower(start).compile() if hasattr(step, "lower") else step
    compile_seconds = time.perf_counter() - begin
    state, trace = start, ([] if start_objective is None else [float(start_objective)])
    converged, message = False, f"stopped at max_iter={max_iter} before the objective settled"
    begin = time.perf_counter()
    columns = (*Progress.get_default_columns(), TextColumn("{task.fields[objective]}"))
    with Progress(*columns, console=Console(stderr=True), disable=not progress, transient=True) as bar:
        task = bar.add_task(name, total=int(max_iter), objective="")
        for sweep in range(max_iter):
            new, objective = compiled(state)
            value = float(objective)
            if not np.isfinite(value):
                raise FloatingPointError(_culprit(name, sweep, value, blocks(new) if blocks else {}))
            state = new
            trace.append(value)
            bar.update(task, advance=1, objective=f"objective {value:.6g}")
            if len(trace) > 1 and abs(trace[-1] - trace[-2]) <= tolerance * (1 + abs(trace[-1])):
                converged, message = True, f"relative change of the objective below {tolerance:g}"
                break
    jax.block_until_ready(state)
    return FixedPointResult(
        state, np.asarray(trace), converged, message, compile_seconds, time.perf_counter() - begin
    )


def _culprit(name: str, sweep: int, value: float, blocks: dict[str, Array]) -> str:
    bad = [block for block, array in blocks.items() if not np.isfinite(np.asarray(array)).all()]
    where = f"; not finite: {', '.join(bad)}" if bad else "; every block is finite"
    return f"{name}: objective is {value} after sweep {sweep + 1}{where}"
