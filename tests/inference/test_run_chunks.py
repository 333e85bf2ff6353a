"""Sampling under a time limit: the same draws as without one, compiled once, and cut where time is up."""

from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import NUTS

from labelzoo.inference.run_chunks import FEWEST
from labelzoo.inference.run_mcmc import run_mcmc

Y = np.arange(5.0)


def program(y: Any) -> None:
    """A normal mean and its double."""
    mean = numpyro.sample("mean", dist.Normal(0.0, 3.0))
    numpyro.deterministic("double", 2.0 * mean)
    numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def sample(max_seconds: Any, **options: Any) -> Any:
    """Run NUTS, 40 warm-up steps and 60 draws."""
    counts = {"num_warmup": 42, "num_samples": 60, "num_chains": 2, **options}
    fields = ("adapt_state.step_size",)
    key = jax.random.key(4)
    return run_mcmc(NUTS(program), {"y": Y}, rng_key=key, max_seconds=max_seconds, stats=fields, **counts)


@pytest.mark.slow
def test_a_limit_that_is_not_reached_changes_no_draw() -> None:
    free, limited = sample(None), sample(1e6)
    assert free.draws.keys() == limited.draws.keys() == {"mean", "double"}
    for site, values in free.draws.items():
        np.testing.assert_array_equal(values, limited.draws[site])
    assert free.sample_stats.keys() == limited.sample_stats.keys()
    for name, values in free.sample_stats.items():
        np.testing.assert_array_equal(values, limited.sample_stats[name])


def test_the_program_is_compiled_once() -> None:
    long_compiles: list[float] = []

    def listen(event: str, seconds: float, **kwargs: Any) -> None:
        if event.endswith("jaxpr_to_mlir_module_duration"):
            long_compiles.append(seconds)

    def lowered(chunks: int) -> int:
        long_compiles.clear()
        sample(1e6, num_warmup=0, num_samples=chunks)
        return len(long_compiles)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        sample(1e6)
        one, ten = lowered(1), lowered(10)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert ten <= one + 2, f"{one} programs for one chunk, {ten} for ten"


def test_a_warm_up_that_is_cut_says_so_and_makes_the_fewest_draws() -> None:
    result = sample(1e-9)
    assert result.draws["mean"].shape == (2, FEWEST) and result.attrs["num_warmup"] == 0
    assert result.converged is False
    words = "max_seconds=1e-09 cut the warm-up after 0 of 42 sweeps: do not use these draws (10 of 60 draws)"
    assert result.message == words


def test_fewer_draws_than_asked_are_said() -> None:
    result = sample(1e-9, num_warmup=0)
    assert result.converged is None and result.message == "max_seconds=1e-09: 10 of 60 draws"
    assert sample(1e6, num_warmup=0, num_samples=3).message == ""


@pytest.mark.parametrize("limit", [0, -1, float("nan"), float("inf"), True, "x", {}])
def test_a_limit_is_a_positive_number_of_seconds(limit: Any) -> None:
    with pytest.raises(ValueError, match="max_seconds must be a positive number of seconds or None, got"):
        sample(limit)


def test_counts_and_chain_methods_are_checked_by_name() -> None:
    for name in ("num_warmup", "num_samples", "num_chains", "thinning"):
        with pytest.raises(ValueError, match=f"{name} must be an integer of at least .*, got True"):
            sample(None, **{name: True})
    for method in ("foo", None, ["vectorized"]):
        with pytest.raises(ValueError, match="chain_method must be one of vectorized, sequential, parallel"):
            sample(None, chain_method=method)


def test_one_chain_with_thinning() -> None:
    result = sample(1e6, num_chains=1, thinning=3, num_samples=7)
    assert result.draws["mean"].shape == (1, 7) and result.attrs["num_warmup"] == 42
    assert result.sample_stats["step_size"].shape == (1, 7)
    np.testing.assert_allclose(result.draws["double"], 2 * result.draws["mean"])


def test_a_limit_needs_vectorised_chains() -> None:
    with pytest.raises(ValueError, match="max_seconds needs chain_method='vectorized'"):
        sample(1.0, chain_method="sequential")
