"""The ladder on a small model of its own: right updates pass, planted faults of every kind are noticed."""

import json
from collections.abc import Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import biject_to
from rich.console import Console

from labelzoo.inference.checks import check
from labelzoo.inference.checks.invariance import SETTLED, Free, Starts, check_kernel, disagreement
from labelzoo.inference.update import Mutant, Update
from labelzoo.models.spec import ModelSpec

K = 3


def _globals(num_labels: int) -> tuple[Any, Any]:
    with numpyro.plate("component", K):
        probs = numpyro.sample("probs", dist.Beta(1.5, 2.0).expand([num_labels]).to_event(1))
    return probs, numpyro.sample("mixing", dist.Dirichlet(jnp.full(K, 1.3)))


def summed(X: Any, Y: Any, observed: Any) -> None:
    """Bernoulli mixture with assignments summed out."""
    probs, mixing = _globals(Y.shape[1])
    cells = Y[:, None] * jnp.log(probs) + (1 - Y[:, None]) * jnp.log1p(-probs)
    cells = cells if observed is None else jnp.where(observed[:, None], cells, 0.0)
    with numpyro.plate("obs", Y.shape[0]):
        numpyro.factor("Y", jax.nn.logsumexp(cells.sum(2) + jnp.log(mixing), axis=1))


def assigned(X: Any, Y: Any, observed: Any) -> None:
    """The same mixture with assignments explicit."""
    probs, mixing = _globals(Y.shape[1])
    mask = jnp.ones_like(Y, bool) if observed is None else observed
    with numpyro.plate("obs", Y.shape[0]):
        z = numpyro.sample("z", dist.Categorical(mixing))
        numpyro.sample("Y", dist.Bernoulli(probs[z]).mask(mask).to_event(1), obs=Y)


def _mask(inputs: Mapping[str, Any]) -> Any:
    return jnp.ones_like(inputs["Y"]) if inputs["observed"] is None else inputs["observed"]


def z_given(state: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
    """Return the assignments' conditional."""
    Y, seen = inputs["Y"], _mask(inputs)
    logits = (seen * Y) @ jnp.log(state["probs"]).T + (seen * (1 - Y)) @ jnp.log1p(-state["probs"]).T
    return dist.Categorical(logits=jnp.log(state["mixing"]) + logits)


def _tallies(state: Mapping[str, Any], inputs: Mapping[str, Any]) -> tuple[Any, Any]:
    own, seen = jax.nn.one_hot(state["z"], K).T, _mask(inputs)
    return own @ (seen * inputs["Y"]), own @ (seen * (1 - inputs["Y"]))


def probs_given(state: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
    """Return the conditional of the success probabilities."""
    ones, zeros = _tallies(state, inputs)
    return dist.Beta(1.5 + ones, 2.0 + zeros).to_event(1)


def mixing_given(state: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
    """Return the conditional of the mixing weights."""
    return dist.Dirichlet(1.3 + jax.nn.one_hot(state["z"], K).sum(0))


def _beta(change: Any) -> Any:
    def given(state: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
        ones, zeros = change(*_tallies(state, inputs))
        return dist.Beta(1.5 + ones, 2.0 + zeros).to_event(1)

    return given


def _z_wrong(change: Any) -> Any:
    return lambda state, inputs: z_given(*change(dict(state), dict(inputs)))


def _missing_as_zero(state: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
    return probs_given(state, {**inputs, "observed": None})


class LoadedDie(dist.CategoricalLogits):
    """Categorical whose draws favour category 0; its density does not say so."""

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        """Draw, and send every tenth draw to 0."""
        first, second = jax.random.split(key)
        draws = super().sample(first, sample_shape)
        return jnp.where(jax.random.bernoulli(second, 0.1, draws.shape), 0, draws)


UPDATES = (
    Update(
        "z_given",
        ("z",),
        "assigned",
        z_given,
        mutants=(
            Mutant("half of the evidence", lambda s, i: dist.Categorical(logits=0.5 * z_given(s, i).logits)),
            Mutant("mixing weights forgotten", _z_wrong(lambda s, i: ({**s, "mixing": jnp.ones(K)}, i))),
            Mutant(
                "wrong where a label is 1 only",
                _z_wrong(lambda s, i: ({**s, "probs": s["probs"]}, {**i, "Y": i["Y"] * 0.9})),
            ),
            Mutant("loaded draws", lambda s, i: LoadedDie(logits=z_given(s, i).logits)),
        ),
    ),
    Update(
        "probs_given",
        ("probs",),
        "assigned",
        probs_given,
        mutants=(
            Mutant("negatives dropped", _beta(lambda ones, zeros: (ones, 0 * zeros))),
            Mutant("prior forgotten", _beta(lambda ones, zeros: (ones - 0.5, zeros - 1.0))),
            Mutant("wrong where a count is 0 only", _beta(lambda o, z: (jnp.where(o == 0, 0.1, o), z))),
            Mutant("missing cells read as zeros", _missing_as_zero),
        ),
    ),
    Update(
        "mixing_given",
        ("mixing",),
        "assigned",
        mixing_given,
        mutants=(
            Mutant("prior 1 for 1.3", lambda s, i: dist.Dirichlet(mixing_given(s, i).concentration - 0.3)),
        ),
    ),
)


def predict(draw: Mapping[str, Any], X_new: Any, constants: Mapping[str, Any]) -> Any:
    """Return the same label probabilities for every row."""
    return jnp.broadcast_to(draw["mixing"] @ draw["probs"], (X_new.shape[0], draw["probs"].shape[1]))


SPEC = ModelSpec("toy_mixture", {"summed": summed, "assigned": assigned}, predict, no_simulate="a toy")


def test_right_updates_pass_and_every_fault_is_noticed() -> None:
    report = check(SPEC, updates=UPDATES)
    assert report.passed, report.sentence()
    assert report.mutants_killed == report.mutants_total > 9 + 20
    by = {row.mutant: row.killed_by for row in report.mutants if row.origin == "planted"}
    assert len(by) == 9
    assert by.pop("loaded draws") == "draws"
    assert set(by.values()) == {"identity"}
    assert all(row.statistic < 1e-13 for row in report.checks if row.kind == "identity")
    assert "verified numerically at 16 states" in report.checks[0].detail


def test_json_and_table_of_a_report() -> None:
    report = check(SPEC, updates=UPDATES[2:])
    read = json.loads(report.to_json())
    assert {"name", "checks", "mutants_killed", "mutants_total", "passed"} <= set(read)
    assert {"name", "kind", "site", "passed", "statistic", "threshold"} <= set(read["checks"][0])
    console = Console(width=160, file=StringIO())
    console.print(report)
    text = console.file.getvalue()
    assert f"{report.mutants_total} of {report.mutants_total} planted faults noticed" in text
    assert "automatic ones" in text
    assert "proven" not in text
    assert any("no simulate: a toy" in note for note in report.notes)


@pytest.mark.slow
def test_right_updates_pass_at_fifty_seeds() -> None:
    plain = [replace(update, mutants=()) for update in UPDATES]
    reports = {seed: check(SPEC, updates=plain, seed=seed, states=4) for seed in range(1, 51)}
    failed = {seed: report.sentence() for seed, report in reports.items() if not report.passed}
    assert not failed, failed


@pytest.mark.slow
def test_full_tier_covers_complete_labels_and_prior_draws() -> None:
    def wrong(state: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
        return mixing_given(state, inputs) if inputs["observed"] is not None else dist.Dirichlet(jnp.ones(K))

    update = replace(UPDATES[2], given=wrong, mutants=())
    assert check(SPEC, updates=[update], states=4).passed
    report = check(SPEC, updates=[update], states=4, tier="full")
    assert not report.passed
    assert "complete data" in report.checks[0].detail


def _pair(rho: float) -> Any:
    def program(X: Any, Y: Any, observed: Any) -> None:
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        numpyro.sample("b", dist.Normal(rho * a, jnp.sqrt(1 - rho**2)))

    return program


def test_sign_of_a_correlation_is_noticed() -> None:
    program, rho = _pair(0.7), 0.7
    spec = ModelSpec("toy_normal", {"summed": program}, predict)

    def given(sign: float) -> Any:
        return lambda state, inputs: dist.Normal(sign * rho * state["b"], jnp.sqrt(1 - rho**2))

    update = Update("a_given_b", ("a",), "summed", given(1.0), mutants=(Mutant("sign", given(-1.0)),))
    assert check(spec, updates=[update]).passed
    wrong = check(spec, updates=[replace(update, given=given(-1.0), mutants=())])
    assert [row.kind for row in wrong.checks if not row.passed] == ["identity"]


def _metropolis(accept_all: bool, touch_b: bool = False) -> Any:
    def kernel(key: Any, state: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
        first, second = jax.random.split(key)
        a = state["a"] + jax.random.normal(first)
        density = dist.Normal(0.7 * state["b"], jnp.sqrt(1 - 0.49)).log_prob
        taken = jnp.log(jax.random.uniform(second)) < density(a) - density(state["a"])
        moved = {**state, "a": jnp.where(taken | accept_all, a, state["a"])}
        return {**moved, "b": state["b"] + 1.0} if touch_b else moved

    return kernel


@pytest.mark.parametrize(
    ("kernel", "passed"),
    [(_metropolis(False), True), (_metropolis(True), False), (_metropolis(False, touch_b=True), False)],
    ids=["right", "accepts everything", "moves another site"],
)
@pytest.mark.parametrize("bare", [False, True], ids=["distribution", "log density"])
def test_kernels_are_held_to_their_claim(kernel: Any, passed: bool, bare: bool) -> None:
    def given(state: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
        law = dist.Normal(0.7 * state["b"], jnp.sqrt(1 - 0.49))
        return (lambda block: law.log_prob(block["a"]) + 5.0) if bare else law

    spec = ModelSpec("toy_normal", {"summed": _pair(0.7)}, predict)
    report = check(spec, updates=[Update("a_step", ("a",), "summed", given, kernel=kernel)])
    assert report.passed is passed, report.sentence()
    assert report.checks[0].passed, "the claim itself is right"


def test_populations_that_disagree_are_not_taken_for_draws() -> None:
    free = Free((("a", biject_to(dist.constraints.real)),))
    rng = np.random.default_rng(0)
    first, second = rng.standard_normal((2, 4, 600))
    second[1] *= 0.2
    second[2] += 1.0
    second[3, 0] = np.inf
    apart = disagreement({"a": jnp.asarray(first)}, {"a": jnp.asarray(second)}, free)
    assert apart[0] < SETTLED, "one law"
    assert (apart[1:] > 2 * SETTLED).all(), "another width, another place, not finite"
    drifting = disagreement({"a": jnp.asarray(1e160 * first)}, {"a": jnp.asarray(1e160 * first)}, free)
    assert np.isinf(drifting).all(), "so far out that squares overflow"


def test_a_kernel_whose_claim_gives_no_draws_has_not_passed() -> None:
    def kernel(key: Any, state: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
        return dict(state)

    update = Update("a_step", ("a",), "summed", lambda state, inputs: lambda block: 0.0, kernel=kernel)
    states = {"a": np.zeros(3), "b": np.zeros(3)}
    inputs = {"X": 0.0, "Y": 0.0, "observed": 0.0}
    none = Starts(np.zeros(0, int), {"a": np.zeros((0, 600))})
    row = check_kernel(update, _pair(0.7), inputs, states, lambda attempt, times: none, 1)
    assert not row.passed
    assert "settled at no state" in row.detail


def _own_value(state: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
    right = mixing_given(state, inputs)
    return dist.Dirichlet(right.concentration + 0.0 * state["mixing"].sum() + 0.01 * state["mixing"][0])


def _foreign(state: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
    return dist.Dirichlet(state["counts"])


def _short(state: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
    return dist.Dirichlet(jnp.ones(K - 1))


def _not_finite(state: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
    return dist.Dirichlet(mixing_given(state, inputs).concentration * jnp.nan)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (_own_value, "differ"),
        (_foreign, "reads 'counts'"),
        (_short, r"claims shape (2,) for site 'mixing' of shape (3,)"),
        (_not_finite, "no two values of finite density"),
    ],
)
def test_broken_claims_fail_with_the_reason(given: Any, words: str) -> None:
    report = check(SPEC, updates=[replace(UPDATES[2], given=given, mutants=())])
    assert not report.passed
    assert words in report.checks[0].detail


def test_a_claim_that_follows_its_old_value_fails() -> None:
    # Conditioning on the old value by a shift of the logits by a constant leaves all ratios right.
    def given(state: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
        law = mixing_given(state, inputs)
        return lambda block: law.log_prob(block["mixing"]) + state["mixing"][0]

    report = check(SPEC, updates=[replace(UPDATES[2], given=given, mutants=())])
    assert not report.passed
    assert "old value" in report.checks[0].detail


def test_faults_that_do_not_run_or_are_not_wrong_count_as_not_noticed() -> None:
    mutants = (Mutant("reads nonsense", _foreign), Mutant("no fault", mixing_given))
    report = check(SPEC, updates=[replace(UPDATES[2], mutants=mutants)])
    assert all(row.passed for row in report.checks)
    assert not report.passed
    planted = [row.killed_by for row in report.mutants if row.origin == "planted"]
    assert planted == [None, None]
    assert report.mutants_killed == report.mutants_total - 2
    assert "does not run" in report.mutants[0].mutant


def test_bad_requests_are_refused() -> None:
    with pytest.raises(ValueError, match="tier must be 'fast' or 'full'"):
        check(SPEC, updates=UPDATES, tier="quick")
    with pytest.raises(ValueError, match="states must be at least 4"):
        check(SPEC, updates=UPDATES, states=1)
    with pytest.raises(ValueError, match="names the view 'other'"):
        check(SPEC, updates=[replace(UPDATES[0], view="other")])
    with pytest.raises(ValueError, match="no model 'nosuch'"):
        check("nosuch")


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import jax.numpy as jnp, numpyro, numpyro.distributions as dist\n"
        "from labelzoo.inference.update import Update\n"
        "from labelzoo.models.registry import register\n"
        "from labelzoo.models.spec import ModelSpec\n"
        "def program(X, Y, observed):\n"
        "    seen = jnp.ones_like(Y, bool) if observed is None else observed\n"
        "    rate = numpyro.sample('rate', dist.Beta(1.0, 1.0).expand([Y.shape[1]]).to_event(1))\n"
        "    numpyro.factor('Y', jnp.where(seen, dist.Bernoulli(rate).log_prob(Y), 0.0).sum())\n"
        "def rate_given(state, inputs):\n"
        "    Y, seen = inputs['Y'], inputs['observed']\n"
        "    seen = jnp.ones_like(Y) if seen is None else seen\n"
        "    return dist.Beta(1 + (seen * Y).sum(0), 1 + (seen * (1 - Y)).sum(0)).to_event(1)\n"
        "spec = ModelSpec('mine_for_check', {'summed': program}, lambda d, X, c: X)\n"
        "register(spec, updates=[Update('rate_given', ('rate',), 'summed', rate_given)])\n"
    )
    from labelzoo.models import registry

    try:
        report = check(f"{tmp_path / 'mine.py'}:spec")
    finally:
        registry._registry.pop("mine_for_check", None)
    assert report.passed, report.sentence()
    assert len(report.checks) == 2


def test_same_seed_same_report() -> None:
    first, second = (check(SPEC, updates=UPDATES[:1], seed=3) for _ in range(2))
    assert [row.statistic for row in first.checks] == [row.statistic for row in second.checks]
    assert np.isfinite(first.seconds)
