"""Stochastic variational inference on the summed view with an automatic guide."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer import SVI, Predictive, Trace_ELBO
from numpyro.infer.autoguide import (
    AutoDiagonalNormal,
    AutoLowRankMultivariateNormal,
    AutoMultivariateNormal,
    AutoNormal,
)
from numpyro.optim import Adam
from rich.console import Console
from rich.progress import Progress, TextColumn

from labelzoo.inference.engine import EngineResult
from labelzoo.inference.reference.khat import MIN_WEIGHTS, guide_log_weights, psis_khat
from labelzoo.inference.reference.nuts import init_strategy
from labelzoo.inference.reference.sites import Sites, find_sites, kept_sites, random_sites
from labelzoo.models.spec import ModelSpec

Array = Any

SVI_OPTIONS: dict[str, Any] = {
    "guide": "normal",
    "num_steps": 5000,
    "step_size": 0.05,
    "num_samples": 1000,
    "num_particles": 1,
    "init": "median",
    "khat_samples": 1000,
}
"""Options of ``svi``; `guide` is one of `GUIDES`; `khat_samples` 0 leaves k-hat out."""

GUIDES = {
    "normal": AutoNormal,
    "diagonal": AutoDiagonalNormal,
    "multivariate": AutoMultivariateNormal,
    "lowrank": AutoLowRankMultivariateNormal,
}
"""Normal laws on the unconstrained scale: independent (by site, or of one vector), full, or of low rank."""

CHUNK = 100
"""Steps between two looks at the loss."""

MAX_TRACE = 10_000
"""Longest trace of the objective that is kept."""

SETTLED = 0.1
"""Fall of the running mean of the loss that counts as none, nats."""

MIN_WINDOW = 20
"""Fewest steps in a running mean."""

FALL = 0.01
"""Step size at the end as a share of that at the start: what Adam's noise is reduced by."""


class Fit(NamedTuple):
    """A fitted guide: parameters, loss (step,), and seconds to compile and to run."""

    params: dict[str, Array]
    losses: np.ndarray
    compile_seconds: float
    run_seconds: float


def run_svi(
    spec: ModelSpec,
    inputs: Mapping[str, Any],
    *,
    rng_key: Any,
    progress: bool = False,
    guide: Any = "normal",
    num_steps: Any = 5000,
    step_size: Any = 0.05,
    num_samples: Any = 1000,
    num_particles: Any = 1,
    init: Any = "median",
    khat_samples: Any = 1000,
) -> EngineResult:
    """Fit a guide to the summed view by Adam on the evidence lower bound, then draw from it.

    Parameters
    ----------
    guide : str
        Family of the guide, one of `GUIDES`.
    num_steps : int
    step_size : float
        Of the first half of the steps; it then falls to a hundredth, so that Adam comes to rest.
    num_samples : int
        Draws from the fitted guide.
    num_particles : int
        Draws a gradient.
    init : str
        Where the guide is centred at the start.
    khat_samples : int
        Importance weights for k-hat (0, or at least 100).

    Returns
    -------
    EngineResult
        chain=1, draw=num_samples; ``objective`` is the bound, minus the loss, at every step.

    Raises
    ------
    ValueError
        If an option is out of range.
    FloatingPointError
        If the loss becomes NaN or infinite: the message names the step.
    """
    _check_options(guide, num_steps, step_size, num_samples, num_particles, khat_samples)
    sites = find_sites(spec, inputs)
    model = spec.views["summed"]
    auto = GUIDES[guide](model, init_loc_fn=init_strategy(init))
    optimizer = Adam(partial(_falling, step_size, num_steps))
    svi = SVI(model, auto, optimizer, Trace_ELBO(num_particles=int(num_particles)))
    fit_key, draw_key, khat_key = jax.random.split(rng_key, 3)
    fit = _fit(svi, fit_key, inputs, int(num_steps), progress)
    begin = time.perf_counter()
    draws = _draw(spec, sites, auto, fit.params, draw_key, inputs, int(num_samples))
    converged, message = judge(fit.losses)
    attrs: dict[str, Any] = {"random_sites": random_sites(draws)}
    if khat_samples:
        attrs["khat"] = psis_khat(
            guide_log_weights(khat_key, fit.params, model, auto, inputs, int(khat_samples))
        )
    thin = -(-len(fit.losses) // MAX_TRACE)
    return EngineResult(
        draws=draws,
        optimization={"objective": -fit.losses[::-thin][::-1]},
        compile_seconds=fit.compile_seconds,
        run_seconds=fit.run_seconds + time.perf_counter() - begin,
        converged=converged,
        message=message,
        attrs=attrs,
    )


def _check_options(
    guide: Any, num_steps: Any, step_size: Any, num_samples: Any, num_particles: Any, khat_samples: Any
) -> None:
    if guide not in GUIDES:
        raise ValueError(f"guide must be one of {', '.join(GUIDES)}, got {guide!r}")
    counts = {"num_steps": num_steps, "num_samples": num_samples, "num_particles": num_particles}
    for name, value in counts.items():
        if not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"{name} must be a positive integer, got {value!r}")
    if not (np.isfinite(step_size) and step_size > 0):
        raise ValueError(f"step_size must be positive and finite, got {step_size!r}")
    if not isinstance(khat_samples, int | np.integer) or 0 != khat_samples < MIN_WEIGHTS:
        raise ValueError(
            f"khat_samples must be 0 or an integer of at least {MIN_WEIGHTS}, got {khat_samples!r}"
        )


def _falling(step_size: float, num_steps: int, step: Array) -> Array:
    """Return the step size at a step: constant in the first half, then a geometric fall to `FALL` of it."""
    return step_size * FALL ** jnp.maximum(2.0 * step / num_steps - 1.0, 0.0)


def _fit(svi: SVI, key: Array, inputs: Mapping[str, Any], num_steps: int, progress: bool) -> Fit:
    begin = time.perf_counter()
    state = svi.init(key, **inputs)

    def body(i: Array, carry: tuple[Any, Array]) -> tuple[Any, Array]:
        state, losses = carry
        state, loss = svi.update(state, **inputs)
        return state, losses.at[i].set(loss)

    def steps(state: Any, count: Array) -> tuple[Any, Array]:
        return jax.lax.fori_loop(0, count, body, (state, jnp.zeros(CHUNK)))

    advance = jax.jit(steps).lower(state, CHUNK).compile()
    compiled = time.perf_counter()
    state, losses = _advance_all(advance, state, num_steps, progress)
    return Fit(svi.get_params(state), losses, compiled - begin, time.perf_counter() - compiled)


def _advance_all(
    advance: Callable[..., Any], state: Any, num_steps: int, progress: bool
) -> tuple[Any, np.ndarray]:
    """Run the steps chunk by chunk, and stop at the first loss that is not finite."""
    losses: list[np.ndarray] = []
    columns = (*Progress.get_default_columns(), TextColumn("{task.fields[loss]}"))
    with Progress(*columns, console=Console(stderr=True), disable=not progress, transient=True) as bar:
        task = bar.add_task("svi", total=num_steps, loss="")
        for first in range(0, num_steps, CHUNK):
            count = min(CHUNK, num_steps - first)
            state, chunk = advance(state, count)
            chunk = np.asarray(chunk)[:count]
            bad = np.flatnonzero(~np.isfinite(chunk))
            if bad.size:
                step = first + int(bad[0]) + 1
                raise FloatingPointError(f"svi: the loss is {chunk[bad[0]]} at step {step} of {num_steps}")
            losses.append(chunk)
            bar.update(task, advance=count, loss=f"loss {chunk.mean():.6g}")
    return state, np.concatenate(losses)


def _draw(
    spec: ModelSpec,
    sites: Sites,
    guide: Any,
    params: Mapping[str, Array],
    key: Array,
    inputs: Mapping[str, Any],
    num_samples: int,
) -> dict[str, np.ndarray]:
    """Draw from the fitted guide, recompute the deterministics, and keep the named sites: (1, draw, ...)."""
    kept = kept_sites(spec, sites)
    latent = guide.sample_posterior(key, params, sample_shape=(num_samples,))
    computed = [name for name in kept if name in sites.deterministic]
    values = dict(latent)
    if computed:
        only_latent = {name: latent[name] for name in sites.latent}
        values.update(Predictive(spec.views["summed"], only_latent, return_sites=computed)(key, **inputs))
    draws = {name: np.asarray(values[name])[None] for name in kept}
    for name, array in draws.items():
        if not np.isfinite(array).all():
            raise FloatingPointError(f"svi: draws of site {name!r} are not finite")
    return draws


def judge(losses: np.ndarray) -> tuple[bool, str]:
    """Say whether the running mean of the loss had settled before the steps were made smaller.

    Small steps make any loss look settled, so the first half alone is judged: the mean of its last three
    tenths is held against that of the three before. Settled: it fell by no more than `SETTLED` beyond two
    standard errors of the difference.

    Parameters
    ----------
    losses : array (step,)
        Nats.

    Returns
    -------
    converged : bool
    message : str
    """
    half = len(losses) // 2
    window = int(0.3 * half)
    if window < MIN_WINDOW:
        return False, f"{len(losses)} steps are too few to judge whether the loss has settled"
    last, before = losses[half - window : half], losses[half - 2 * window : half - window]
    fall = before.mean() - last.mean()
    error = np.sqrt((last.var(ddof=1) + before.var(ddof=1)) / window)
    settled = bool(fall <= SETTLED + 2 * error)
    return settled, (
        f"the mean loss was {'settled' if settled else 'still falling'} when the steps were made smaller, "
        f"after step {half}: it fell by {fall:.3g} (standard error {error:.2g}) over {window} steps"
    )
