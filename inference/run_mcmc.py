"""Run any NumPyro kernel on a model's inputs and time compilation apart from sampling."""

import itertools
import time
from typing import Any

import jax
import numpy as np
from numpyro.infer import MCMC

from labelzoo.inference.compile_time import compile_clock
from labelzoo.inference.engine import EngineResult

MCMC_OPTIONS: dict[str, Any] = {
    "num_warmup": 500,
    "num_samples": 500,
    "num_chains": 4,
    "thinning": 1,
    "chain_method": "vectorized",
    "max_seconds": None,
}
"""Options every ``mcmc`` engine shares."""

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
        warm-up included; the number of draws then depends on the machine.
    drop : tuple of str
        Sites not to keep.

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
    chunk = num_samples if max_seconds is None else max(1, -(-num_samples // CHUNKS))
    mcmc = MCMC(
        kernel,
        num_warmup=int(num_warmup),
        num_samples=int(chunk * thinning),
        num_chains=int(num_chains),
        thinning=int(thinning),
        chain_method=chain_method,
        progress_bar=progress,
    )
    start = time.perf_counter()
    with compile_clock() as clock:
        if max_seconds is None:
            parts = [_run(mcmc, rng_key, stats, inputs, rename or {})]
        else:
            parts = _run_in_chunks(mcmc, rng_key, stats, inputs, rename or {}, num_samples, max_seconds)
    elapsed, compile_seconds = time.perf_counter() - start, clock.seconds()
    draws, sample_stats = (
        {
            name: np.concatenate([part[i][name] for part in parts], axis=1)[:, :num_samples]
            for name in parts[0][i]
        }
        for i in (0, 1)
    )
    draws = {name: value for name, value in draws.items() if name not in drop}
    _refuse_non_finite(draws)
    return EngineResult(
        draws=draws,
        sample_stats=sample_stats,
        compile_seconds=compile_seconds,
        run_seconds=max(elapsed - compile_seconds, 0.0),
        attrs={"num_warmup": num_warmup, "thinning": thinning},
    )


def _run_in_chunks(
    mcmc: MCMC,
    rng_key: Any,
    stats: tuple[str, ...],
    inputs: dict[str, Any],
    rename: dict[str, str],
    num_samples: int,
    max_seconds: float,
) -> list[Any]:
    """Warm up and sample in runs of one length, which compile once; look at the clock between them."""
    start = time.perf_counter()
    keys = rng_key if mcmc.num_chains == 1 else jax.random.split(rng_key, mcmc.num_chains)
    mcmc.post_warmup_state = mcmc.sampler.init(keys, mcmc.num_warmup, None, (), inputs)
    warm_up = -(-mcmc.num_warmup // mcmc.num_samples)
    parts: list[Any] = []
    for run in itertools.count():
        part = _run(mcmc, mcmc.post_warmup_state.rng_key, stats, inputs, rename)
        mcmc.post_warmup_state = mcmc.last_state
        if run >= warm_up:
            parts.append(part)
            done = len(parts) * mcmc.num_samples >= num_samples * mcmc.thinning
            if done or time.perf_counter() - start > max_seconds:
                break
    return parts


def _run(
    mcmc: MCMC, rng_key: Any, stats: tuple[str, ...], inputs: dict[str, Any], rename: dict[str, str]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    mcmc.run(rng_key, extra_fields=stats, **inputs)
    jax.block_until_ready(mcmc.last_state)
    draws = {name: np.asarray(value) for name, value in mcmc.get_samples(group_by_chain=True).items()}
    return draws, _collect_stats(mcmc, rename)


def _collect_stats(mcmc: MCMC, rename: dict[str, str]) -> dict[str, np.ndarray]:
    collected: dict[str, np.ndarray] = {}
    for name, value in mcmc.get_extra_fields(group_by_chain=True).items():
        for leaf, array in (value if isinstance(value, dict) else {name: value}).items():
            collected[rename.get(leaf, leaf.rsplit(".", 1)[-1])] = np.asarray(array)
    return collected


def _refuse_non_finite(draws: dict[str, np.ndarray]) -> None:
    for site, values in draws.items():
        if values.dtype.kind != "f":
            continue
        bad = ~np.isfinite(values)
        if bad.any():
            chain, draw = np.argwhere(bad)[0][:2]
            raise FloatingPointError(f"site {site!r} is not finite from draw {draw} of chain {chain} on")
