"""Rungs 2 and 3 on problems whose answers are known, and the states that all rungs start from."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.special import gammaln

from labelzoo.inference.checks import EnumerationCase, StationarityCase
from labelzoo.inference.checks.marginal import (
    Nodes,
    check_marginal,
    gauss_legendre,
    joint_grid,
    log_scale_nodes,
    product_nodes,
    spread,
    whole_numbers,
)
from labelzoo.inference.checks.programs import ClaimError, join_inputs, split_inputs
from labelzoo.inference.checks.states import data_cases, states_of
from labelzoo.inference.checks.stationarity import MUTANT_FLOOR, check_stationarity, largest_gradient
from labelzoo.models.spec import ModelSpec


def _climb(precision: float) -> Any:
    return lambda inputs: {"w": inputs["y"].sum() / (precision + inputs["y"].size)}


RIDGE = StationarityCase(
    name="penalised least squares",
    engine="ridge",
    fixed_point=_climb(2.0),
    objective=lambda p, inputs: -0.5 * ((inputs["y"] - p["w"]) ** 2).sum() - p["w"] ** 2,
    mutants=(("precision halved", _climb(1.0)),),
)
Y = {"y": np.array([0.3, 1.4, -0.2])}


def test_zero_gradient_passes_and_a_fault_leaves_one() -> None:
    result = check_stationarity(RIDGE, Y, "made-up")
    assert result.passed
    assert (result.kind, result.name, result.site) == ("stationarity", "ridge", "w")
    assert largest_gradient(RIDGE, RIDGE.mutants[0][1], Y)[0] > MUTANT_FLOOR


def test_nan_gradient_fails() -> None:
    case = replace(RIDGE, objective=lambda p, inputs: jnp.sqrt(p["w"] - p["w"]))
    assert check_stationarity(case, Y, "made-up").statistic == np.inf


def _program(X: Any, scale: Any) -> None:
    rate = numpyro.sample("rate", dist.Gamma(2.0, scale))
    count = numpyro.sample("count", dist.Poisson(rate))
    numpyro.factor("Y", jnp.where(count > 0, 0.0, -jnp.inf))


def _summed(X: Any, scale: Any) -> None:
    rate = numpyro.sample("rate", dist.Gamma(2.0, scale))
    # One constant more than the other view.
    numpyro.factor("Y", jnp.log(-jnp.expm1(-rate)) + 3.0)


def _collapsed(X: Any, scale: Any) -> None:
    base = dist.Poisson(1.0)
    count = numpyro.sample("count", base)
    # Gamma-Poisson by hand: the library's own log density is good to 1e-7 only.
    terms = gammaln(count + 2.0) - gammaln(count + 1.0) + 2 * jnp.log(scale) - (count + 2) * jnp.log1p(scale)
    numpyro.factor("law", terms - base.log_prob(count))
    numpyro.factor("Y", jnp.where(count > 0, 0.0, -jnp.inf))


SPEC = ModelSpec(
    "toy_counts", {"counted": _program, "summed": _summed, "collapsed": _collapsed}, lambda *a: 0
)
SUM = EnumerationCase(
    name="counted -> summed",
    view_from="counted",
    view_to="summed",
    sites=("count",),
    inputs=lambda: {"X": np.zeros(1), "scale": np.array(1.5)},
    states=lambda rng, inputs: [{"rate": value} for value in rng.uniform(0.1, 4.0, 5)],
    grid=lambda state, inputs: {"count": whole_numbers(0, 60)},
)


def test_sum_over_a_discrete_site() -> None:
    result = check_marginal(SUM, SPEC, 0)
    assert result.passed, result.detail
    assert result.statistic < 1e-14
    assert "verified numerically at 5 states" in result.detail
    short = replace(SUM, grid=lambda state, inputs: {"count": whole_numbers(0, 2)})
    assert not check_marginal(short, SPEC, 0).passed


def test_integral_over_a_continuous_site() -> None:
    case = replace(
        SUM,
        view_to="collapsed",
        sites=("rate",),
        states=lambda rng, inputs: [{"count": np.array(value)} for value in (1, 2, 5, 9)],
        grid=lambda state, inputs: {"rate": log_scale_nodes(-14.0, 4.0, 160)},
    )
    assert check_marginal(case, SPEC, 0).statistic < 1e-10


def test_a_jacobian_left_out_is_noticed() -> None:
    def log_view(X: Any, scale: Any) -> None:
        log_rate = numpyro.sample("log_rate", dist.Normal(0.0, 1.0))
        numpyro.factor("prior", dist.Gamma(2.0, scale).log_prob(jnp.exp(log_rate)) + log_rate)
        numpyro.factor(
            "base", -dist.Normal(0.0, 1.0).log_prob(log_rate) + jnp.log(-jnp.expm1(-jnp.exp(log_rate)))
        )

    spec = ModelSpec("toy_counts", {**SPEC.views, "log": log_view}, lambda *a: 0)
    case = replace(
        SUM,
        view_to="log",
        states=lambda rng, inputs: [{"log_rate": value} for value in rng.uniform(-2, 1.5, 5)],
        carry=lambda state, inputs: ({**state, "rate": np.exp(state["log_rate"])}, state["log_rate"]),
    )
    assert check_marginal(case, spec, 0).passed
    without = replace(case, carry=lambda state, inputs: ({"rate": np.exp(state["log_rate"])}, 0.0))
    assert spread(without, _program, log_view, 0)[0] > 0.1


def test_grids() -> None:
    cube = product_nodes(gauss_legendre(0.0, 2.0, 5), (2, 1))
    assert cube.values.shape == (25, 2, 1)
    np.testing.assert_allclose(np.exp(cube.log_weights) @ (cube.values[:, 0, 0] ** 2), 8 / 3 * 2)
    values, weights = joint_grid({"a": whole_numbers(1, 3), "b": Nodes(np.zeros((2, 4)), np.log([0.5, 0.5]))})
    assert (values["a"].shape, values["b"].shape, weights.shape) == ((6,), (6, 4), (6,))
    with pytest.raises(ValueError, match="10 nodes for each of 6 entries are 1000000, above 400000"):
        product_nodes(whole_numbers(1, 10), (6,))
    with pytest.raises(ValueError, match="above 400000 nodes"):
        joint_grid({"a": whole_numbers(1, 1000), "b": whole_numbers(1, 1000)})


def test_inputs_split_and_join() -> None:
    inputs = {"X": np.ones(2), "n": 3, "pair": (1.0, None), "deep": {"y": jnp.zeros(1), "name": "a"}}
    arrays, static = split_inputs(inputs)
    assert len(arrays) == 2
    hash(static)
    joined = join_inputs(arrays, static)
    assert joined["n"] == 3
    assert joined["pair"] == (1.0, None)
    assert joined["deep"]["name"] == "a"


def _labels(X: Any, Y: Any, observed: Any) -> None:
    with numpyro.plate("labels", Y.shape[1]):
        rate = numpyro.sample("rate", dist.Gamma(1.0, 1.0))
        numpyro.sample("start", dist.Uniform(0.0, 1.0 + rate))
    numpyro.deterministic("twice", 2 * rate)


def test_data_hold_the_edge_cases_of_labels() -> None:
    incomplete, complete = data_cases(ModelSpec("toy", {"summed": _labels}, lambda *a: 0), 0)
    assert complete.inputs["observed"] is None
    assert (complete.inputs["Y"][0] == 0).all()
    assert (complete.inputs["Y"][1] == 1).all()
    seen, table = incomplete.inputs["observed"], incomplete.inputs["Y"]
    assert not seen[0].any()
    assert seen[3:].any()
    assert not table[:, 0].any()
    assert table[seen[:, 1], 1].all()
    assert seen[1].sum() == seen.shape[1] - 1
    assert table[1][seen[1]].all()
    assert not table[2][seen[2]].any()


def test_states_are_finite_spread_out_and_reproducible() -> None:
    inputs = {"X": np.zeros((2, 1)), "Y": np.zeros((2, 3)), "observed": None}
    states = states_of(_labels, inputs, 16, 0)
    assert states["rate"].shape == (16, 3)
    assert states["rate"].min() < 1e-3
    assert states["rate"].max() > 1e3
    assert (states["start"] <= 1 + states["rate"]).all()
    np.testing.assert_array_equal(states["twice"], 2 * states["rate"])
    again = states_of(_labels, inputs, 16, 0)
    np.testing.assert_array_equal(states["rate"], again["rate"])
    other: Mapping[str, Any] = states_of(_labels, inputs, 16, 1, prior=True)
    assert not np.array_equal(states["rate"], other["rate"])


def test_a_view_without_finite_states_is_refused() -> None:
    def nowhere(X: Any) -> None:
        numpyro.sample("a", dist.Normal(0.0, 1.0))
        numpyro.factor("Y", -jnp.inf)

    with pytest.raises(
        ClaimError, match="view 'nowhere': 0 of 384 drawn states have finite density, 8 needed"
    ):
        states_of(nowhere, {"X": np.zeros(1)}, 8, 0)


def test_x64_is_left_as_it_was() -> None:
    before = jax.config.jax_enable_x64
    data_cases(ModelSpec("toy", {"summed": _labels}, lambda *a: 0), 0)
    assert jax.config.jax_enable_x64 == before
