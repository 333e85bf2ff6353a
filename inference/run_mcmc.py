"""Run any NumPyro kernel on a model's inputs and time compilation apart from sampling."""

import time
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from numpyro.infer import MCMC

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
data, the settings and all options but ``num_samples`` and ``max_seconds`` must be the same or left out."""

CHUNKS = 10
"""A run with a time limit looks at the clock so many times."""


def run_mcmc(
    kernel: Any,
    inputs: dict[str, Any],
    *,
    rng_key: Any,
    progress: bool = False,
    num_warmup: int = 500,
    num_samples: int = 500,
    num_chains: int = 4,
    thinning: int = 1,
    chain_method: str = "vectorized",
    max_seconds: float | None = None,
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
    max_seconds : float or None
        Stop between chunks of a tenth of `num_samples` once so many seconds have passed, compilation and
        warm-up included (a warm-up that takes longer is cut, and one chunk drawn); the number of draws then
        depends on the machine.
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
        If a count is not a positive integer.
    """
    for name, value, low in (
        ("num_warmup", num_warmup, 0),
        ("num_samples", num_samples, 1),
        ("num_chains", num_chains, 1),
        ("thinning", thinning, 1),
    ):
        if not isinstance(value, int | np.integer) or value < low:
            raise ValueError(f"{name} must be an integer of at least {low}, got {value!r}")
    if max_seconds is not None and chain_method != "vectorized":
        raise ValueError(f"max_seconds needs chain_method='vectorized', got {chain_method!r}")
    counts = {"num_warmup": int(num_warmup), "num_chains": int(num_chains), "thinning": int(thinning)}
    start = time.perf_counter()
    with compile_clock() as clock:
        state = None
        if resume_from is not None:
            together = chain_method == "vectorized" or num_chains == 1
            starts = first_state if together else first_states_apart
            template = starts(kernel, rng_key, counts["num_warmup"], counts["num_chains"], inputs)
            state = restored(template, resume_from)
        if max_seconds is None:
            mcmc = MCMC(
                kernel,
                num_samples=int(num_samples * thinning),
                chain_method=chain_method,
                progress_bar=progress,
                **counts,
            )
            draws, fields, last = _run(mcmc, rng_key, stats, inputs, state)
        else:
            draws, fields, num_warmup, last = sample_in_chunks(
                kernel,
                inputs,
                rng_key=rng_key,
                num_samples=int(num_samples),
                chunk=-(-int(num_samples) // CHUNKS),
                max_seconds=float(max_seconds),
                fields=stats,
                progress=progress,
                state=state,
                **counts,
            )
    elapsed, compile_seconds = time.perf_counter() - start, clock.seconds()
    draws = {name: value for name, value in draws.items() if name not in drop}
    _refuse_non_finite(draws)
    return EngineResult(
        draws=draws,
        sample_stats=_flat_stats(fields, rename or {}),
        compile_seconds=compile_seconds,
        run_seconds=max(elapsed - compile_seconds, 0.0),
        attrs={"num_warmup": num_warmup, "thinning": thinning},
        state=state_arrays(last),
    )


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
