"""Run any NumPyro kernel on a model's inputs and time compilation apart from sampling."""

import math
import time
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from numpyro.infer import MCMC

from labelzoo.arguments import real, whole_number
from labelzoo.inference.chain_state import restored, state_arrays
from labelzoo.inference.compile_time import compile_clock
from labelzoo.inference.engine import EngineResult
from labelzoo.inference.run_chunks import first_state, first_states_apart, sample_in_chunks

MCMC_OPTIONS: dict[str, Any] = {
    "num_warmup": 500,
    "num_samples": 500,
    "num_chains": 4,
    "thinning": 1,
    "chain_method": "vectorized",
    "max_seconds": None,
    "resume_from": None,
}
"""Options every ``mcmc`` engine shares. ``resume_from``: a posterior (DataTree or file) to go on from; the
data, the settings and all options but ``num_samples``, ``max_seconds`` and ``max_bytes`` must be the same or
left out."""

CHAIN_METHODS = ("vectorized", "sequential", "parallel")


def run_mcmc(
    kernel: Any,
    inputs: dict[str, Any],
    *,
    rng_key: Any,
    progress: bool = False,
    num_warmup: Any = 500,
    num_samples: Any = 500,
    num_chains: Any = 4,
    thinning: Any = 1,
    chain_method: Any = "vectorized",
    max_seconds: Any = None,
    stats: tuple[str, ...] = (),
    rename: dict[str, str] | None = None,
    drop: tuple[str, ...] = (),
    resume_from: Mapping[str, Any] | None = None,
) -> EngineResult:
    """Drive `kernel` with ``numpyro.infer.MCMC`` and collect draws by chain.

    Parameters
    ----------
    kernel : numpyro.infer.mcmc.MCMCKernel
    inputs : dict
        Keyword arguments of the program.
    rng_key : key
    num_warmup, num_samples, num_chains, thinning : int
        `num_samples` draws a chain are kept, after thinning.
    stats : tuple of str
        State fields to collect, ``"stats"`` for a sweep's own dictionary.
    rename : dict
        Field name to ``sample_stats`` name.
    chain_method : {"vectorized", "sequential", "parallel"}
    max_seconds : float or None
        Stop once so many seconds have passed, compilation and warm-up included: a warm-up that takes longer
        is cut, and `run_chunks.FEWEST` draws a chain are made whatever the time. ``message`` says what was
        cut, and a cut warm-up gives ``converged=False``; the number of draws depends on the machine.
    drop : tuple of str
        Sites not to keep.
    resume_from : mapping or None
        State of the chains, as an earlier run left it in ``EngineResult.state``: no warm-up then, and
        `rng_key` is not used. Draws of n sweeps and then m are those of n + m at once.

    Returns
    -------
    EngineResult
        ``compile_seconds`` is what JAX reports; ``run_seconds`` is the rest, warm-up included.

    Raises
    ------
    ValueError
        If a count is not a positive integer, `max_seconds` not a positive number, or there is no such
        `chain_method`.
    """
    asked = checked_counts(
        num_warmup=num_warmup, num_samples=num_samples, num_chains=num_chains, thinning=thinning
    )
    num_samples, counts = asked.pop("num_samples"), asked
    num_chains, thinning = counts["num_chains"], counts["thinning"]
    _check_course(chain_method, max_seconds)
    start = time.perf_counter()
    with compile_clock() as clock:
        state, warmed = None, counts["num_warmup"]
        if resume_from is not None:
            together = chain_method == "vectorized" or num_chains == 1
            starts = first_state if together else first_states_apart
            template = starts(kernel, rng_key, counts["num_warmup"], counts["num_chains"], inputs)
            state = restored(template, resume_from)
        if max_seconds is None:
            mcmc = MCMC(
                kernel,
                num_samples=num_samples * thinning,
                chain_method=chain_method,
                progress_bar=progress,
                **counts,
            )
            draws, fields, last = _run(mcmc, rng_key, stats, inputs, state)
        else:
            draws, fields, warmed, last = sample_in_chunks(
                kernel,
                inputs,
                rng_key=rng_key,
                num_samples=num_samples,
                max_seconds=float(max_seconds),
                fields=stats,
                progress=progress,
                state=state,
                **counts,
            )
    elapsed, compile_seconds = time.perf_counter() - start, clock.seconds()
    draws = {name: value for name, value in draws.items() if name not in drop}
    _refuse_non_finite(draws)
    wanted = {"num_warmup": 0 if state is not None else counts["num_warmup"], "num_samples": num_samples}
    made = {"num_warmup": warmed, "num_samples": next(iter(draws.values())).shape[1]}
    message = "" if max_seconds is None else cut_short(float(max_seconds), wanted, made)
    return EngineResult(
        draws=draws,
        sample_stats=_flat_stats(fields, rename or {}),
        compile_seconds=compile_seconds,
        run_seconds=max(elapsed - compile_seconds, 0.0),
        converged=False if max_seconds is not None and warmed < wanted["num_warmup"] else None,
        message=message,
        attrs={"num_warmup": warmed, "thinning": thinning},
        state=state_arrays(last),
    )


def checked_counts(**counts: Any) -> dict[str, int]:
    """Return numbers of steps, draws or chains as integers, in the order given.

    Raises
    ------
    ValueError
        If one is not an integer, or below 1 (``num_warmup``: below 0).
    """
    return {name: whole_number(name, value, int(name != "num_warmup")) for name, value in counts.items()}


def _check_course(chain_method: Any, max_seconds: Any) -> None:
    if not isinstance(chain_method, str) or chain_method not in CHAIN_METHODS:
        raise ValueError(f"chain_method must be one of {', '.join(CHAIN_METHODS)}, got {chain_method!r}")
    if max_seconds is None:
        return
    if not 0 < real(max_seconds) < math.inf:
        raise ValueError(f"max_seconds must be a positive number of seconds or None, got {max_seconds!r}")
    if chain_method != "vectorized":
        raise ValueError(f"max_seconds needs chain_method='vectorized', got {chain_method!r}")


def cut_short(max_seconds: float, wanted: Mapping[str, int], made: Mapping[str, int]) -> str:
    """Return in words what a time limit cut off ``num_warmup`` or ``num_samples``; empty where nothing."""
    kept = f"{made['num_samples']} of {wanted['num_samples']} draws"
    if made["num_warmup"] < wanted["num_warmup"]:
        sweeps = f"{made['num_warmup']} of {wanted['num_warmup']} sweeps"
        return f"max_seconds={max_seconds:g} cut the warm-up after {sweeps}: do not use these draws ({kept})"
    return "" if made["num_samples"] == wanted["num_samples"] else f"max_seconds={max_seconds:g}: {kept}"


def _run(
    mcmc: MCMC, rng_key: Any, stats: tuple[str, ...], inputs: dict[str, Any], state: Any
) -> tuple[dict[str, np.ndarray], dict[str, Any], Any]:
    if state is not None:
        mcmc.post_warmup_state, rng_key = state, state.rng_key
    mcmc.run(rng_key, extra_fields=stats, **inputs)
    jax.block_until_ready(mcmc.last_state)
    draws = {name: np.asarray(value) for name, value in mcmc.get_samples(group_by_chain=True).items()}
    return draws, mcmc.get_extra_fields(group_by_chain=True), mcmc.last_state


def _flat_stats(fields: dict[str, Any], rename: dict[str, str]) -> dict[str, np.ndarray]:
    flat: dict[str, np.ndarray] = {}
    for name, value in fields.items():
        for leaf, array in (value if isinstance(value, dict) else {name: value}).items():
            flat[rename.get(leaf, leaf.rsplit(".", 1)[-1])] = np.asarray(array)
    return flat


def _refuse_non_finite(draws: dict[str, np.ndarray]) -> None:
    for site, values in draws.items():
        if values.dtype.kind != "f":
            continue
        bad = ~np.isfinite(values)
        if bad.any():
            chain, draw = np.argwhere(bad)[0][:2]
            raise FloatingPointError(f"site {site!r} is not finite from draw {draw} of chain {chain} on")
