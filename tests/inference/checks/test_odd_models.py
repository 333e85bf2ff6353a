"""Models and claims that are odd but legal, and claims that misbehave."""

import json
import sys
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest
from rich.console import Console

from labelzoo.inference.checks import EnumerationCase, check
from labelzoo.inference.checks.cases import find_cases
from labelzoo.inference.update import Update
from labelzoo.models.registry import register
from labelzoo.models.spec import ModelSpec

State = Mapping[str, Any]


def card(name: str, law: Any = None) -> ModelSpec:
    """Return label rates beside one site of any law."""

    def program(X: Any, Y: Any, observed: Any) -> None:
        seen = jnp.ones_like(Y, bool) if observed is None else observed
        with numpyro.plate("labels", Y.shape[1]):
            rate = numpyro.sample("rate", dist.Beta(1.0, 1.0))
            with numpyro.plate("obs", Y.shape[0]), numpyro.handlers.mask(mask=seen):
                numpyro.sample("Y", dist.Bernoulli(rate), obs=Y)
        if law is not None:
            numpyro.sample("odd", law)

    return ModelSpec(name, {"summed": program}, lambda draw, X, constants: X, no_simulate="a toy")


def rate_given(state: State, inputs: State) -> Any:
    """Return the right conditional of the rates."""
    Y, seen = inputs["Y"], inputs["observed"]
    seen = jnp.ones_like(Y) if seen is None else seen
    return dist.Beta(1.0 + (seen * Y).sum(0), 1.0 + (seen * (1 - Y)).sum(0))


def off_by(amount: float) -> Any:
    """Return the conditional with a concentration too large."""

    def given(state: State, inputs: State) -> Any:
        right = rate_given(state, inputs)
        return dist.Beta(right.concentration1 + amount, right.concentration0)

    return given


LAWS = {
    "categorical": dist.Categorical(probs=jnp.array([0.2, 0.3, 0.5])),
    "uniform": dist.Uniform(-1.0, 2.0),
    "truncated": dist.TruncatedNormal(0.3, 1.0, low=0.0, high=2.0),
    "cholesky": dist.LKJCholesky(3, 2.0),
    "one entry": dist.Dirichlet(jnp.array([2.0])),
    "matrix": dist.Wishart(4.0, jnp.eye(2)),
}


@pytest.mark.parametrize("name", LAWS)
def test_odd_laws_pass(name: str) -> None:
    law = LAWS[name]
    report = check(card(f"odd_{name}", law), updates=[Update("odd", ("odd",), "summed", lambda s, i: law)])
    assert report.passed, report.sentence()
    assert all(row.passed for row in report.checks)


def test_a_large_term_elsewhere_hides_nothing() -> None:
    spec = card("huge", dist.Normal(0.0, 1e-7))
    right = check(spec, updates=[Update("rate", ("rate",), "summed", rate_given)])
    assert right.passed, right.sentence()
    assert right.mutants_total > 10
    wrong = check(spec, updates=[Update("rate", ("rate",), "summed", off_by(0.01))])
    assert not wrong.passed
    assert "too large by 0.01" in wrong.sentence()


def test_a_claim_that_changes_between_checks_is_read_anew() -> None:
    amount = [0.0]
    update = Update("rate", ("rate",), "summed", lambda s, i: off_by(amount[0])(s, i))
    spec = card("changing")
    assert check(spec, updates=[update]).passed
    amount[0] = 1.0
    assert not check(spec, updates=[update]).passed


def _exits(state: State, inputs: State) -> Any:
    sys.exit(0)


def _brackets(state: State, inputs: State) -> Any:
    raise ValueError("cannot read [/tmp/x] of [n,k]")


@pytest.mark.parametrize("given", [_exits, _brackets])
def test_a_claim_that_exits_or_raises_fails_and_is_shown(given: Any) -> None:
    report = check(card("unruly"), updates=[Update("rate", ("rate",), "summed", given)])
    assert not report.passed
    console = Console(width=120, file=StringIO())
    console.print(report)
    assert "could not be evaluated" in console.file.getvalue()  # type: ignore[attr-defined]


def test_bad_blocks_and_seeds_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="sites must be a tuple of names, got 'rate'"):
        Update("rate", "rate", "summed", rate_given)
    with pytest.raises(ValueError, match="sites is empty"):
        Update("rate", (), "summed", rate_given)
    with pytest.raises(ValueError, match="seed must not be negative"):
        check(card("negative"), updates=[Update("rate", ["rate"], "summed", rate_given)], seed=-1)


def test_cases_of_ones_own_are_found_and_those_of_a_namesake_are_not() -> None:
    case = EnumerationCase("a -> b", "summed", "summed", ("rate",), dict, lambda r, i: [], lambda s, i: {})
    from labelzoo.models import registry

    spec = card("label_logistic_of_mine")
    try:
        register(spec, cases=[case])
        assert find_cases(spec, "enumeration") == (case,)
        assert find_cases(spec, "order") == ()
    finally:
        registry._registry.pop(spec.name, None)
    assert find_cases(card("label_logistic"), "stationarity") == ()


def test_what_a_file_prints_stays_out_of_the_json(tmp_path: Path, capsys: Any) -> None:
    from labelzoo.cli import run
    from labelzoo.models import registry

    source = (
        "import jax.numpy as jnp, numpyro, numpyro.distributions as dist\n"
        "from labelzoo import ModelSpec, Update, register\n"
        "print('loud')\n"
        "def program(X, Y, observed):\n"
        "    numpyro.sample('a', dist.Normal(0.0, 1.0))\n"
        "spec = register(ModelSpec('loud_file', {'summed': program}, lambda d, X, c: X),\n"
        "    updates=[Update('a', ('a',), 'summed', lambda s, i: dist.Normal(0.0, 1.0))])\n"
    )
    path = tmp_path / "loud.py"
    path.write_text(source, encoding="utf-8")
    try:
        code = run(["check", f"{path}:spec", "--json"])
    finally:
        registry._registry.pop("loud_file", None)
    out = capsys.readouterr().out
    assert code == 0
    assert json.loads(out)["passed"] is True


class Unsampled(dist.Normal):
    """A normal law without a sampler."""

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        """Say what NumPyro's base class says."""
        return dist.Distribution.sample(self, key, sample_shape)


def test_a_law_without_a_sampler_is_checked_and_the_report_says_what_is_missing() -> None:
    law = Unsampled(0.0, 1.0)
    update = Update("odd", ("odd",), "summed", lambda s, i: law)
    report = check(card("unsampled", dist.Normal(0.0, 1.0)), updates=[update])
    assert [row.kind for row in report.checks] == ["identity"]
    assert report.passed
    assert any("no sampler" in note for note in report.notes)


class OneNoise(dist.Normal):
    """A sampler with one noise for the whole plate."""

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        """Draw one number and give it to every element."""
        noise = jax.random.normal(key, (*sample_shape, 1))
        return self.loc + self.scale * jnp.broadcast_to(noise, (*sample_shape, *self.batch_shape))


def test_one_noise_for_a_whole_plate_is_noticed() -> None:
    right = dist.Normal(jnp.zeros(4), jnp.ones(4))
    spec = card("plate", right)

    def drawn(law: Any) -> Any:
        report = check(spec, updates=[Update("odd", ("odd",), "summed", lambda s, i: law)])
        return next(row for row in report.checks if row.kind == "draws")

    assert drawn(OneNoise(jnp.zeros(4), jnp.ones(4))).passed is False


def test_draws_next_to_one_are_no_fault() -> None:
    law = dist.Beta(jnp.array([0.1, 1.0]), jnp.array([0.1, 0.05]))
    report = check(card("next_to_one", law), updates=[Update("odd", ("odd",), "summed", lambda s, i: law)])
    assert all(row.passed for row in report.checks), report.sentence()


def test_float32_constants_are_named() -> None:
    with jax.enable_x64(False):
        single = jnp.array([0.2, 0.3, 0.5])
    law = dist.Categorical(probs=jnp.array([0.2, 0.3, 0.5]))
    update = Update("odd", ("odd",), "summed", lambda s, i: dist.Categorical(probs=single))
    report = check(card("single", law), updates=[update])
    assert not report.passed
    assert "float32" in report.checks[0].detail
