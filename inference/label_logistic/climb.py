"""Mean field of all labels, one after another: each stops at its own iteration and is done with."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.progress import Progress, TextColumn
from threadpoolctl import threadpool_limits

from labelzoo.inference.label_logistic.ascent import ascend
from labelzoo.inference.label_logistic.forms import Form

Array = Any


class Rows(NamedTuple):
    """The rows that have an observed label, and the tables by label.

    Attributes
    ----------
    X : (row, feature)
    kappa : (labels, row)
        y - 1/2; zero at unobserved cells.
    observed : (labels, row)
    """

    X: Array
    kappa: np.ndarray
    observed: np.ndarray


class Climb(NamedTuple):
    """Where all labels ended.

    Attributes
    ----------
    tilt : (labels, row)
    objective : (iteration,)
        The bound summed over labels, nats; labels at rest keep their last value.
    converged : bool
    message : str
    compile_seconds : float
    """

    tilt: np.ndarray
    objective: np.ndarray
    converged: bool
    message: str
    compile_seconds: float


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep BLAS to one thread: at these sizes its threads wait for each other, long on a busy machine."""
    with threadpool_limits(1, user_api="blas"):
        yield


def labels_first(inputs: Mapping[str, Any]) -> Rows:
    """Return the tables by label, without the rows that have no observed label: they say nothing of w."""
    observed = np.asarray(inputs["observed"])
    kept = observed.any(axis=1)
    kept[0] |= not kept.any()
    observed = np.ascontiguousarray(observed[kept].T)
    kappa = np.where(observed, np.asarray(inputs["Y"])[kept].T - 0.5, 0.0)
    X = inputs["X"] if kept.all() else jnp.asarray(np.asarray(inputs["X"])[kept])
    return Rows(X, kappa, observed)


_ascend = partial(jax.jit, static_argnames="max_iter")(ascend)


def first_log_square(X: Array, precision: Array) -> Array:
    """Return log E psi^2 under the prior, its variances cut at 1: where the tilts start, (row,)."""
    square = (X**2) @ jnp.minimum(1.0 / precision, 1.0)
    return jnp.log(jnp.maximum(square, jnp.finfo(float).tiny))


def climb_labels(
    form: Form, rows: Rows, precision: Array, *, max_iter: int, tolerance: float, progress: bool
) -> Climb:
    """Run every label to rest.

    Raises
    ------
    FloatingPointError
        If the bound of a label is not finite.
    """
    start = first_log_square(rows.X, precision)
    begin = time.perf_counter()
    given = (form, start, rows.kappa[0], rows.observed[0], tolerance)
    run = _ascend.lower(*given, max_iter=max_iter).compile()
    compile_seconds = time.perf_counter() - begin
    tilt, total = np.zeros(rows.kappa.shape), np.zeros(max_iter + 1)
    counts: list[int] = []
    resting = 0
    columns = (*Progress.get_default_columns(), TextColumn("{task.fields[found]}"))
    with Progress(*columns, console=Console(stderr=True), disable=not progress, transient=True) as bar:
        task = bar.add_task("mean field, labels", total=len(tilt), found="")
        for label in range(len(tilt)):
            end = run(form, start, rows.kappa[label], rows.observed[label], tolerance)
            _refuse_not_finite(label, np.asarray(end.trace))
            tilt[label] = np.asarray(end.tilt)
            counts.append(int(end.count))
            total += np.asarray(end.trace)
            resting += bool(end.converged)
            bar.update(task, advance=1, found=f"{counts[-1]} steps")
    message = (
        f"no probability moves by more than {tolerance:g} a step, in {max(counts)} steps or fewer a label"
    )
    if resting < len(tilt):
        message = (
            f"stopped at max_iter={max_iter} with {len(tilt) - resting} of {len(tilt)} labels not at rest"
        )
    return Climb(tilt, total[: max(counts) + 1], resting == len(tilt), message, compile_seconds)


def _refuse_not_finite(label: int, trace: np.ndarray) -> None:
    if not np.isfinite(trace).all():
        step = int(np.flatnonzero(~np.isfinite(trace))[0])
        raise FloatingPointError(f"mean field: objective is {trace[step]} at label {label} after step {step}")
