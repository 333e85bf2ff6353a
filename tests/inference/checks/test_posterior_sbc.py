"""Calibration around given data: a right sampler passes, one with a wrong conditional does not."""

from dataclasses import replace
from typing import Any

import jax
import pytest

from labelzoo.inference.checks.posterior_sbc import posterior_sbc
from labelzoo.inference.checks.sweeps import sweep_kernel
from labelzoo.models import registry

SEED = 11
OPTIONS = {"num_warmup": 200, "num_samples": 500, "num_chains": 4}
PROGRAM = {"intercept_precision": 1.0}
"""Under the default, intercepts are nearly free on so few rows and Polya-Gamma sweeps mix slowly."""


@pytest.fixture(scope="module")
def logistic() -> Any:
    entry = registry.get("label_logistic")
    data = entry.spec.simulate(jax.random.key(3), {"num_obs": 20, "num_features": 1, "num_labels": 2})[0]
    return entry, data


@pytest.mark.slow
def test_a_right_sampler_passes_and_a_wrong_one_does_not(logistic: Any) -> None:
    entry, data = logistic
    gibbs = entry.engines["gibbs"]
    result, ranks = posterior_sbc(
        entry.spec, data, gibbs, seed=SEED, count=100, options=OPTIONS, settings=PROGRAM
    )
    assert result.passed, (
        f"z {result.statistic:.1f}, limit {result.threshold:.1f}, seed {SEED}: {result.detail}"
    )
    assert ranks

    updates = {update.name: update for update in entry.updates}
    weights = updates["weights_given_omega"]
    half_dropped = next(mutant for mutant in weights.mutants if "1/2" in mutant.name)
    wrong = (updates["omega_given_weights"], replace(weights, given=half_dropped.given))
    engine = replace(gibbs, kernel=lambda spec: sweep_kernel(wrong, spec))
    refuted, _ = posterior_sbc(
        entry.spec, data, engine, seed=SEED, count=100, options=OPTIONS, settings=PROGRAM
    )
    assert refuted.passed is False, refuted.detail


def test_points_have_no_posterior_to_rank_in(logistic: Any) -> None:
    entry, data = logistic
    result, ranks = posterior_sbc(entry.spec, data, entry.engines["mean_field"], seed=SEED, count=2)
    assert result.passed is None
    assert "not applicable" in result.detail
    assert not ranks
