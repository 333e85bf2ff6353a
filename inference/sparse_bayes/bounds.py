"""The engines ``ml_oss`` and ``bml_cs``: coordinate ascent on a bound, and draws of q."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import Console

from labelzoo.arguments import real, whole_number
from labelzoo.inference.engine import Engine, EngineResult
from labelzoo.inference.sparse_bayes.bml_cs import mean_field
from labelzoo.inference.sparse_bayes.complete import Completion, complete, draw, num_normals
from labelzoo.inference.sparse_bayes.gibbs import NO_CELLS
from labelzoo.models.spec import MAX_DENSE_BYTES, ModelSpec

Array = Any

OPTIONS: dict[str, Any] = {"num_samples": 400, "sweeps": 20, "tolerance": None}
"""num_samples: draws of q; sweeps: at most so many, and so many where tolerance is None; tolerance: stop
once a sweep raises the bound by less, nats. More sweeps do not rank better, so the number is fixed and
kept."""


class Ascent(NamedTuple):
    """Where an ascent stands: E[alpha] (cell,), bound (sweep,), and what it returned last."""

    precision: Array
    bound: Array
    last: Any


def climb(step_of: Callable[[int], Any], sweeps: int, tolerance: float | None) -> tuple[Ascent, bool]:
    """Make all sweeps, or one by one until the bound rises by less than the tolerance; and whether it did.

    ``step_of(count)(last)`` makes `count` sweeps from where `last` ended.
    """
    if tolerance is None:
        last = step_of(sweeps)(None)
        bound = np.full(sweeps, np.nan) if last.bound is None else last.bound
        return Ascent(last.precision, bound, last), True
    step = step_of(1)
    bounds: list[float] = []
    last = None
    for _ in range(sweeps):
        last = step(last)
        bounds.append(float(last.bound[-1]) if last.bound is not None and len(last.bound) else np.nan)
        if len(bounds) > 1 and abs(bounds[-1] - bounds[-2]) < tolerance:
            return Ascent(last.precision, np.array(bounds), last), True
    return Ascent(last.precision, np.array(bounds), last), False


def prior_of(inputs: Mapping[str, Any]) -> dict[str, float]:
    """Return the prior as the array cores name it."""
    return {"shape": float(inputs["precision_shape"]), "rate": float(inputs["precision_rate"])}


def labels_of(inputs: Mapping[str, Any]) -> tuple[Array, Array, Array]:
    """Return projection, Y and observed as NumPy arrays."""
    return np.asarray(inputs["projection"]), np.asarray(inputs["Y"]), np.asarray(inputs["observed"])


def ml_oss_step(inputs: Mapping[str, Any], count: int = 1) -> Callable[[Completion | None], Completion]:
    """Return ``step(last) -> Completion``: `count` sweeps over the graph from where the last ended."""
    L = np.tril(np.asarray(inputs["cholesky"]))
    C, prior = L @ L.T, prior_of(inputs)

    def step(last: Completion | None) -> Completion:
        start = None if last is None else last.precision
        return complete(C, *labels_of(inputs), sweeps=count, start=start, **prior)

    return step


def bml_cs_step(inputs: Mapping[str, Any], count: int = 1) -> Callable[[Any], Any]:
    """Return ``step(last) -> MeanField``: `count` sweeps of the 2012 mean field."""
    noise = {"sigma2": float(inputs["sigma2"]), "chi2": float(inputs["chi2"])}
    F, prior = np.asarray(inputs["factor"]), prior_of(inputs)

    def step(last: Any) -> Any:
        start = None if last is None else last.precision
        compressed = None if last is None else last.compressed_mean
        projection, Y, observed = labels_of(inputs)
        options = {"start": start, "compressed_start": compressed, **noise, **prior}
        return mean_field(F, projection, Y, observed, sweeps=count, **options)

    return step


def row_draws(last: Any, inputs: Mapping[str, Any], count: int, rng: np.random.Generator) -> Array:
    """Return draws of bml_cs's q(Y_U), rows independent, by Matheron's rule with chi2: (draw, cell).

    Each row has the law N(mean, (diag(E alpha) + Phi' Phi / chi2)^-1) over its cells.
    """
    projection, Y, observed = labels_of(inputs)
    chi2, k = float(inputs["chi2"]), projection.shape[0]
    out = np.empty((count, len(last.mean)))
    rows = last.cells[:, 0]
    for row in np.unique(rows):
        at = np.flatnonzero(rows == row)
        Phi, weights = projection[:, last.cells[at, 1]], 1.0 / last.used[at]
        prior = np.sqrt(weights) * rng.standard_normal((count, len(at)))
        right = prior @ Phi.T + np.sqrt(chi2) * rng.standard_normal((count, k))
        B = (Phi * weights) @ Phi.T + chi2 * np.eye(k)
        out[:, at] = last.mean[at] + prior - weights * (np.linalg.solve(B, right.T).T @ Phi)
    return out


def _graph_draws(last: Completion, inputs: Mapping[str, Any], count: int, rng: np.random.Generator) -> Array:
    return draw(last, rng.standard_normal((count, num_normals(last))))


def _engine(name: str, step_of: Any, draws_of: Any, description: str) -> Engine:
    def run(
        spec: ModelSpec,
        inputs: dict[str, Any],
        *,
        rng_key: Any,
        progress: bool = False,
        num_samples: Any = 400,
        sweeps: Any = 20,
        tolerance: Any = None,
    ) -> EngineResult:
        begin = time.perf_counter()
        count, most = whole_number("num_samples", num_samples, 1), whole_number("sweeps", sweeps, 1)
        if tolerance is not None and not real(tolerance) > 0:
            raise ValueError(f"tolerance must be a positive number or None, got {tolerance!r}")
        cells = len(inputs["cell_row"])
        if 16 * count * cells > MAX_DENSE_BYTES:
            raise ValueError(
                f"num_samples: {count} draws of {cells} labels and precisions take "
                f"{16 * count * cells / 2**30:.1f} GiB, above the cap of {MAX_DENSE_BYTES / 2**30:.0f} GiB"
            )
        if progress:
            Console(stderr=True, highlight=False).print(f"{name}: {most} sweeps over {cells} labels")
        rng = np.random.default_rng(np.asarray(jax.random.key_data(rng_key)).ravel())
        return _result(inputs, partial(step_of, inputs), draws_of, count, most, tolerance, rng, begin)

    return Engine(
        name,
        "bound",
        run,
        random_sites=("y_unobserved", "precision"),
        options=OPTIONS,
        overrides={"new_rows": name},
        description=description,
    )


def _result(
    inputs: Mapping[str, Any],
    step_of: Callable[[int], Any],
    draws_of: Callable[..., Array],
    count: int,
    most: int,
    tolerance: float | None,
    rng: np.random.Generator,
    begin: float,
) -> EngineResult:
    cells = len(inputs["cell_row"])
    if not cells:
        empty = {name: np.zeros((1, count, 0)) for name in ("y_unobserved", "precision")}
        seconds = time.perf_counter() - begin
        return EngineResult(empty, run_seconds=seconds, converged=True, message=NO_CELLS)
    ascent, settled = climb(step_of, most, tolerance)
    y = draws_of(ascent.last, inputs, count, rng)
    shape = float(inputs["precision_shape"]) + 0.5
    precision = rng.gamma(shape, ascent.precision / shape, (count, cells))
    words = f"{len(ascent.bound)} sweeps" + ("" if tolerance is None else f", tolerance {tolerance:g} nats")
    if tolerance is not None and not settled:
        words += ": not reached"
    note = getattr(ascent.last, "note", "")
    return EngineResult(
        draws={"y_unobserved": y[None], "precision": np.maximum(precision, 1e-300)[None]},
        optimization={"objective": ascent.bound} if np.isfinite(ascent.bound).all() else {},
        run_seconds=time.perf_counter() - begin,
        converged=settled,
        message="; ".join(filter(None, (words, note))),
        attrs={"sweeps_made": len(ascent.bound)},
    )


ml_oss = _engine(
    "ml_oss",
    ml_oss_step,
    _graph_draws,
    "variational bound with the observed labels conditioned on in every sweep (2014); quick.",
)
bml_cs = _engine(
    "bml_cs",
    bml_cs_step,
    row_draws,
    "mean field over Y, Z, W and alpha (2012): the same means at equal precisions, variances too small.",
)
