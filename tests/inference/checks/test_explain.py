"""What the bench says of a wrong claim: named slips, right parameters where no name fits, nothing made up."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from labelzoo.inference.checks import check
from labelzoo.inference.checks.alterations import ALTERATIONS, array_leaves, transposed, with_leaf
from labelzoo.inference.checks.explain import Slip, sentence
from labelzoo.inference.checks.identity import log_claims
from labelzoo.inference.checks.ladder import make_plan
from labelzoo.inference.checks.parameters import altered_claim, no_changes, parameters_of
from labelzoo.inference.checks.report import CheckReport, CheckResult
from labelzoo.inference.checks.rungs import Prepared, Setting, explained, prepare
from labelzoo.inference.checks.states import data_cases
from labelzoo.inference.update import Update
from labelzoo.models.spec import ModelSpec

State = Mapping[str, Any]
K = 3


def program(X: Any, Y: Any, observed: Any, spread: float) -> None:
    """Label rates with a gamma strength: y_nl ~ Bernoulli(rate_l), counts c_k ~ Poisson(strength_k)."""
    seen = jnp.ones_like(Y, bool) if observed is None else observed
    with numpyro.plate("labels", Y.shape[1]):
        rate = numpyro.sample("rate", dist.Beta(1.5, 2.0))
    with numpyro.plate("component", K):
        strength = numpyro.sample("strength", dist.Gamma(2.0, 3.0))
        numpyro.sample("count", dist.Poisson(strength))
        numpyro.sample("place", dist.Normal(0.0, spread))
    with numpyro.plate("obs", Y.shape[0]):
        numpyro.sample("Y", dist.Bernoulli(rate).mask(seen).to_event(1), obs=Y)


def rate_given(state: State, inputs: State) -> Any:
    """Return the right conditional of the rates."""
    Y, seen = inputs["Y"], inputs["observed"]
    seen = jnp.ones_like(Y) if seen is None else seen
    return dist.Beta(1.5 + (seen * Y).sum(0), 2.0 + (seen * (1 - Y)).sum(0))


def strength_given(state: State, inputs: State) -> Any:
    """Return the right conditional of the strengths."""
    return dist.Gamma(2.0 + state["count"], 4.0 * jnp.ones(K))


SPEC = ModelSpec(
    "toy_rates",
    {"summed": program},
    lambda draw, X, constants: X,
    settings={"spread": 2.0},
    no_simulate="toy",
)
RATE = Update("rate_given", ("rate",), "summed", rate_given)
STRENGTH = Update("strength_given", ("strength",), "summed", strength_given)
PLACE = Update("place_given", ("place",), "summed", lambda s, i: dist.Normal(0.0, i["spread"] * jnp.ones(K)))


@pytest.fixture(scope="module")
def at() -> Iterator[Callable[[Update, Any], list[Slip]]]:
    """Return a function from a right update and a wrong claim to the slips that are found."""
    setting = Setting(SPEC, data_cases(SPEC, 0), {}, {}, 16, 0, 2, False, set())
    prepared: dict[str, Prepared] = {}

    def slips(update: Update, given: Any) -> list[Slip]:
        with jax.enable_x64(True):
            if update.name not in prepared:
                prepared[update.name] = prepare(update, setting)
            here = prepared[update.name]
            claimed = log_claims(here.benches[0], (given,), update.sites)[0]
            return explained(given, here, here.benches[0], claimed, setting)

    yield slips


def _beta(more: float = 0.0, less: float = 0.0, mask: bool = True) -> Any:
    def given(state: State, inputs: State) -> Any:
        seen = inputs["observed"] if mask else jnp.ones_like(inputs["Y"])
        right = rate_given(state, {**inputs, "observed": seen})
        return dist.Beta(right.concentration1 + more, right.concentration0 + less)

    return given


WRONG = {
    "scale for rate": (
        STRENGTH,
        lambda s, i: dist.Gamma(2.0 + s["count"], 0.25 * jnp.ones(K)),
        ("rate of strength is the reciprocal",),
    ),
    "count off by one": (
        STRENGTH,
        lambda s, i: dist.Gamma(3.0 + s["count"], 4.0 * jnp.ones(K)),
        ("concentration of strength is one too large", "the power of strength is too large by 1"),
    ),
    "prior forgotten": (
        STRENGTH,
        lambda s, i: dist.Gamma(1.0 + s["count"], 1.0 * jnp.ones(K)),
        ("the log density of strength is left out",),
    ),
    "likelihood twice": (
        STRENGTH,
        lambda s, i: dist.Gamma(2.0 + 2 * s["count"], 5.0 * jnp.ones(K)),
        ("the log density of count is counted twice",),
    ),
    "tempered": (
        STRENGTH,
        lambda s, i: dist.Gamma(1.5 + 0.5 * s["count"], 2.0 * jnp.ones(K)),
        ("the whole log joint is counted by half",),
    ),
    "wrong index": (
        STRENGTH,
        lambda s, i: dist.Gamma(2.0 + jnp.roll(s["count"], 1), 4.0 * jnp.ones(K)),
        ("count as the claim reads it is at a wrong index",),
    ),
    "missing cells as zeros": (
        RATE,
        _beta(mask=False),
        ("observed is true everywhere: the mask is ignored", "missing cells are read as zeros"),
    ),
    "jacobian of the logit": (
        RATE,
        _beta(1.0, 1.0),
        ("the power of rate is too large by 1", "the power of 1 - rate is too large by 1"),
    ),
    "variance for standard deviation": (
        PLACE,
        lambda s, i: dist.Normal(0.0, i["spread"] ** 2 * jnp.ones(K)),
        ("scale of place is the square",),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_slips_are_named(name: str, at: Any) -> None:
    update, given, words = WRONG[name]
    found = at(update, given)
    texts = " | ".join(slip.text for slip in found)
    assert found[0].family != "unknown", texts
    assert all(word in texts for word in words), texts
    assert all(slip.residual < 1e-9 for slip in found)


def test_an_unknown_slip_gives_the_right_parameters(at: Any) -> None:
    def given(state: State, inputs: State) -> Any:
        return dist.Gamma(2.0 + state["count"], jnp.array([4.0, 4.9, 4.0]))

    slip = at(STRENGTH, given)[0]
    assert slip.family == "unknown"
    assert "rate of strength is wrong at 1 of 3 entries: at [1]" in slip.text
    assert "4.9 for 4" in slip.text
    assert "concentration" not in slip.text


def test_another_family_is_said_to_be_one(at: Any) -> None:
    slip = at(RATE, lambda s, i: dist.Kumaraswamy(*_kumaraswamy(rate_given(s, i))))[0]
    assert slip.family == "unknown"
    assert "nearest" in slip.text or "no single term" in slip.text

    def normal(state: State, inputs: State) -> Any:
        return dist.Normal(1.0 + state["count"], jnp.ones(K))

    assert "the joint is no Normal in strength" in at(STRENGTH, normal)[0].text


def _kumaraswamy(right: Any) -> tuple[Any, Any]:
    return right.concentration1, right.concentration0


def test_a_right_claim_is_not_explained_and_a_wrong_one_is_in_the_report() -> None:
    report = check(
        SPEC, updates=[STRENGTH, Update("wrong", ("strength",), "summed", WRONG["scale for rate"][1])]
    )
    by = {row.name: row for row in report.checks if row.kind == "identity"}
    assert by["strength_given"].passed
    assert by["strength_given"].explanation == ""
    assert not by["wrong"].passed
    assert "rate of strength is the reciprocal" in by["wrong"].explanation
    assert by["wrong"].explanation in str(report.as_dict())
    _automatic_faults_are_counted(report)


def _automatic_faults_are_counted(report: CheckReport) -> None:
    rows = [row for row in report.mutants if row.origin == "automatic"]
    assert len(rows) >= 8
    assert {row.update for row in rows} == {"strength_given"}, "a wrong claim is no base for faults"
    assert all(row.killed_by == "identity" for row in rows)
    assert any("same law" in note for note in report.notes), "X does not enter: faults of it are no faults"


def test_a_report_without_verdict_is_valid_json() -> None:
    row = CheckResult("em", "sbc", "", None, math.nan, math.nan, "not applicable: points")
    report = CheckReport("m", (row,))
    assert report.passed
    assert json.loads(report.to_json())["checks"][0]["threshold"] is None


def test_sentence_names_two_more_at_most() -> None:
    slips = [Slip("term", f"slip {i}", 0.0) for i in range(5)]
    assert sentence(slips) == "slip 0 (leaves a residual of 0.0e+00); or: slip 1; or: slip 2"


def test_alterations_undo_one_another() -> None:
    by = {way.name: way for way in ALTERATIONS}
    x = np.array([0.5, -2.0])
    np.testing.assert_allclose(by["inverted"](by["inverted"](x)), x)
    np.testing.assert_allclose(by["squared"](by["root taken"](x)), x)
    np.testing.assert_allclose(by["minus one"](by["plus one"](x)), x)


def test_leaves_are_named_and_replaced() -> None:
    inputs = {"a": np.zeros(2), "b": (1.0, np.ones(3, int)), "c": None}
    assert [path for path, _ in array_leaves(inputs)] == ["a", "b.1"]
    changed = with_leaf(inputs, "b.1", np.full(3, 2.0))
    assert changed["b"][1].dtype == inputs["b"][1].dtype  # type: ignore[index,attr-defined]
    np.testing.assert_array_equal(changed["b"][1], 2)
    assert transposed(np.zeros((2, 3))) is None


def test_parameters_are_changed_where_they_are_kept() -> None:
    from labelzoo.inference.distributions import GaussianNatural

    claim = {
        "a": dist.Gamma(jnp.ones(2), 3.0).to_event(1),
        "b": GaussianNatural(jnp.ones(2), jnp.eye(2)),
        "c": dist.Normal(0.0, 1.0).expand([4]).mask(jnp.arange(4) > 1),
    }
    found = parameters_of(claim)
    assert [tuple(parameter) for parameter in found] == [
        ("a", "concentration"),
        ("a", "rate"),
        ("b", "potential"),
        ("b", "precision"),
        ("c", "loc"),
        ("c", "scale"),
    ]
    same = altered_claim(claim, jnp.asarray(no_changes(6)))
    assert float(same["b"].log_prob(jnp.ones(2))) == float(claim["b"].log_prob(jnp.ones(2)))
    changes = no_changes(6)
    changes[3] = 4.0, 1.0, 0.0
    new = altered_claim(claim, jnp.asarray(changes))["b"]
    want = GaussianNatural(jnp.ones(2), 4.0 * jnp.eye(2))
    np.testing.assert_allclose(new.log_prob(jnp.ones(2)), want.log_prob(jnp.ones(2)))


def test_two_processes_make_the_same_plan() -> None:
    first, second = (make_plan("label_logistic", None, 0, "full", 4, False) for _ in range(2))
    assert [task.name for task in first.tasks] == [task.name for task in second.tasks]
    assert len({task.name for task in first.tasks}) == len(first.tasks)
