"""Engines and conditionals of compressed_gp: agreement of the searches, identity at edges, stationarity."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest

from labelzoo.data import LabelData
from labelzoo.inference.checks.identity import (
    THRESHOLD,
    log_claims,
    make_bench,
    swapped_blocks,
    worst_of,
)
from labelzoo.inference.checks.marginal import check_marginal
from labelzoo.inference.checks.states import states_of
from labelzoo.inference.checks.stationarity import MUTANT_FLOOR, Gradients
from labelzoo.inference.compressed_gp import enumeration, stationarity
from labelzoo.inference.compressed_gp import kernel14 as k14
from labelzoo.inference.compressed_gp.engines import searched
from labelzoo.inference.compressed_gp.hyperparameters import gradient
from labelzoo.inference.compressed_gp.updates import UPDATES, new_targets_given_observed
from labelzoo.inference.fit import fit
from labelzoo.models.compressed_gp import DECIBEL, SITES
from labelzoo.models.compressed_gp_card import TARGETS_KEPT, spec

RNG = np.random.default_rng(5)
X = RNG.standard_normal((20, 2))
Y = (X @ RNG.standard_normal((2, 5)) + 0.4 * RNG.standard_normal((20, 5)) > 0.2).astype(float)
Y[14:] = np.nan


def duplicates() -> np.ndarray:
    """Every labelled row twice, and a new row on top of an old one."""
    out = X.copy()
    out[7:14], out[14] = out[:7], out[0]
    return out


FEATURES: dict[str, Callable[[], np.ndarray]] = {
    "plain": lambda: X,
    "duplicates": duplicates,
    "constant": lambda: np.ones_like(X),
}


@cache
def inputs_of(features: str) -> dict[str, Any]:
    return spec.prepare(LabelData.from_arrays(FEATURES[features](), Y), spec.resolve(TARGETS_KEPT))


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("update", UPDATES, ids=lambda one: one.name)
def test_conditionals_are_those_of_the_program_at_edge_cases(update: Any, features: str) -> None:
    with jax.enable_x64(True):
        given, view = inputs_of(features), spec.views[update.view]
        states = states_of(view, given, 12, 0)
        blocks = swapped_blocks(states, update.sites, 6)
        bench = make_bench(features, given, given, view, states, blocks)
        right, *wrong = log_claims(
            bench, (update.given, *(mutant.given for mutant in update.mutants)), update.sites
        )
        assert worst_of(bench, right)[0] < THRESHOLD
        if features == "plain":
            assert min(worst_of(bench, one)[0] for one in wrong) > THRESHOLD


def test_the_claim_is_what_the_array_core_computes() -> None:
    given, rng = inputs_of("plain"), np.random.default_rng(0)
    count = given["targets"].shape[1]
    logs = rng.standard_normal((count, 5))
    with jax.enable_x64(True):
        law = new_targets_given_observed({"decibels": logs / DECIBEL}, given)
        mean, C = np.asarray(law.mean), np.asarray(law.covariance_matrix)
    caches = k14.Caches(given["mapped"])
    posterior = k14.condition(np.exp(logs), given["targets"], caches)
    Z = (X[14:] - given["center"]) * given["scale"] / np.sqrt(2)
    found = k14.predict(posterior, caches, Z)
    np.testing.assert_allclose(mean.T, found.mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(np.diagonal(C, axis1=1, axis2=2).T, found.variance, rtol=1e-8)


def test_the_gradient_search_rests_where_the_programs_gradient_vanishes() -> None:
    with jax.enable_x64(True):
        (case,) = stationarity.CASES
        gradients = Gradients(case, {"plain": inputs_of("plain")})
        assert gradients.check("plain").passed
        for name, wrong in case.mutants:
            assert gradients.largest(wrong, "plain")[0] > MUTANT_FLOOR, name


@pytest.mark.parametrize("case", enumeration.CASES, ids=lambda case: case.name)
def test_views_marginalise_to_the_summed_one(case: Any) -> None:
    with jax.enable_x64(True):
        assert check_marginal(case, spec, 11).passed


def test_the_three_searches_find_one_mode() -> None:
    data = LabelData.from_arrays(X, Y)
    trees = {
        name: fit("compressed_gp", data, name, **TARGETS_KEPT) for name in ("gradient", "s_opt", "b_opt")
    }
    best = float(trees["gradient"]["optimization"]["objective"][-1])
    for name, tree in trees.items():
        count = tree.attrs["targets"]
        gap = best - float(tree["optimization"]["objective"][-1])
        # The grid's last step is 1/32 of a nat; the simplex stops at 1e-6 a target.
        assert abs(gap) < (0.1 if name == "b_opt" else 1e-4) * count, name
        assert tree.attrs["kind"] == "point" and tree.attrs["random_sites"] == "[]"
        assert set(tree["posterior"].data_vars) == set(SITES)
        assert tree.attrs["evaluations"] >= 6 * count


def test_a_search_that_is_cut_short_says_so() -> None:
    data = LabelData.from_arrays(X, Y)
    tree = fit("compressed_gp", data, "s_opt", max_evaluations=10, **TARGETS_KEPT)
    count = tree.attrs["targets"]
    assert tree.attrs["message"] == f"0 of {count} targets converged, {count} ended with max_evaluations"
    assert tree.attrs["converged"] == "no"


def test_targets_are_searched_a_few_at_a_time_with_a_bar() -> None:
    rng = np.random.default_rng(2)
    caches, targets = k14.Caches(rng.standard_normal((12, 2))), rng.standard_normal((12, 6))
    whole = gradient(targets, caches)
    found = searched(gradient, targets, caches, "gradient", True, {})
    for one, other in zip(whole, found, strict=True):
        np.testing.assert_array_equal(one, other)
    assert searched(gradient, targets[:, :0], caches, "gradient", False, {}).theta.shape == (0, 5)
