"""The driver that EM and coordinate ascent share: iterate, trace the objective, stop with a reason."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import Console
from rich.progress import Progress, TextColumn

from labelzoo.arguments import real, whole_number

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
    gradient_norm : ndarray
        (iteration,) relative norm of the gradient, the start included; empty where none was asked for.
    """

    state: Any
    objective: np.ndarray
    converged: bool
    message: str
    compile_seconds: float
    run_seconds: float
    gradient_norm: np.ndarray = np.zeros(0)


def iterate(
    step: Callable[[Any], tuple[Any, Array]],
    start: Any,
    start_objective: float | None = None,
    *,
    max_iter: Any = 100,
    tolerance: Any = 1e-5,
    gradient_norm: Callable[[Any], Any] | None = None,
    gradient_tolerance: Any = None,
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
    gradient_norm : callable or None
        ``state -> relative norm of the objective's gradient``, recorded after every sweep.
    gradient_tolerance : float or None
        Do not stop before the gradient's relative norm is at or below this too.
    blocks : callable
        ``state -> {block name: array}``, to name the culprit when the objective is not finite.
    progress : bool
        Show a bar on stderr.

    Raises
    ------
    ValueError
        If `max_iter`, `tolerance` or `gradient_tolerance` is out of range.
    FloatingPointError
        If the objective becomes NaN or infinite; the message names sweep and blocks.
    """
    check_options(max_iter, tolerance, gradient_tolerance)
    if gradient_tolerance is not None and gradient_norm is None:
        raise ValueError("gradient_tolerance needs an objective whose gradient is known here")
    begin = time.perf_counter()
    compiled = step.lower(start).compile() if hasattr(step, "lower") else step
    compile_seconds = time.perf_counter() - begin
    state, trace = start, ([] if start_objective is None else [float(start_objective)])
    norms = [] if gradient_norm is None or start_objective is None else [float(gradient_norm(start))]
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
            if gradient_norm is not None:
                norms.append(float(gradient_norm(state)))
            settled = len(trace) > 1 and abs(trace[-1] - trace[-2]) <= tolerance * (1 + abs(trace[-1]))
            if settled and (gradient_tolerance is None or norms[-1] <= gradient_tolerance):
                converged, message = True, f"relative change of the objective below {tolerance:g}"
                break
    jax.block_until_ready(state)
    seconds = time.perf_counter() - begin
    message += _gradient_words(norms, gradient_tolerance)
    return FixedPointResult(
        state, np.asarray(trace), converged, message, compile_seconds, seconds, np.asarray(norms)
    )


def check_options(max_iter: Any, tolerance: Any, gradient_tolerance: Any = None) -> None:
    """Refuse options of `iterate` out of range: engines ask before they make a start and compile.

    Raises
    ------
    ValueError
        Naming the option and its value.
    """
    whole_number("max_iter", max_iter, 1)
    if not real(tolerance) >= 0:
        raise ValueError(f"tolerance must be a number of at least 0, got {tolerance!r}")
    if gradient_tolerance is not None and not real(gradient_tolerance) > 0:
        raise ValueError(f"gradient_tolerance must be None or a positive number, got {gradient_tolerance!r}")


def _gradient_words(norms: list[float], tolerance: Any) -> str:
    if not norms:
        return ""
    asked = "" if tolerance is None else f" (asked for: {tolerance:g})"
    return f"; relative gradient norm {norms[-1]:.2g}{asked}"


def _culprit(name: str, sweep: int, value: float, blocks: dict[str, Array]) -> str:
    bad = [block for block, array in blocks.items() if not np.isfinite(np.asarray(array)).all()]
    where = f"; not finite: {', '.join(bad)}" if bad else "; every block is finite"
    return f"{name}: objective is {value} after sweep {sweep + 1}{where}"
