"""Rung 0: the test of draws holds its level where categories are rare, and sees small faults."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from labelzoo.inference.checks.coordinates import describe
from labelzoo.inference.checks.draws import (
    changes_of_walk,
    check_draws,
    draw_blocks,
    pooled_z,
    z_limit,
    z_scores,
)
from labelzoo.inference.checks.programs import base_support, inside
from labelzoo.inference.distributions import LogGamma, TiltedDirichlet, ZeroTruncatedPoisson

REPEATS = 30


def largest_z(law: Any, seed: int, scale: Any = lambda draws: draws) -> tuple[float, int, float]:
    """Return the largest z, the number of z and their mean square over `REPEATS` samples of 400 draws."""

    shape = law.shape()
    laws = describe(lambda state, inputs: law, {"x": np.zeros((REPEATS, *shape))}, {}, ("x",)).laws
    draws = np.asarray(scale(law.sample(jax.random.key(seed), (REPEATS * 400,)))).reshape(
        REPEATS, 400, *shape
    )

    @jax.jit
    def evaluate(values: Any) -> Any:
        x = values["x"]
        flags = jnp.broadcast_to(inside(law, x), x.shape[: x.ndim - len(law.event_shape)])
        return {"x": (law.log_prob(x), flags)}

    found = changes_of_walk(np.random.default_rng(seed), evaluate, laws, {"x": draws})
    total, square, _ = found["x"]
    z = pooled_z(total[:, None], square[:, None]) if total.ndim < 3 else pooled_z(total, square)
    # Every repeat by itself: the level is that of one sample, not of all together.
    each = z_scores(total, square)
    return float(max(np.abs(z).max(), np.abs(each).max())), z.size + each.size, float((each**2).mean())


LAWS = {
    "normal": dist.Normal(jnp.array([0.0, 1e3]), jnp.array([1.0, 1e-3])),
    "correlated normal": dist.MultivariateNormal(jnp.zeros(2), jnp.array([[1.0, 0.95], [0.95, 1.0]])),
    "gamma": dist.Gamma(jnp.array([0.02, 1.0, 300.0]), 2.0),
    "beta": dist.Beta(jnp.array([0.1, 5.0]), 3.0),
    "uniform": dist.Uniform(2.0, jnp.array([3.0, 40.0])),
    "dirichlet": dist.Dirichlet(jnp.array([0.3, 0.3, 2.0])),
    "sparse dirichlet": dist.Dirichlet(jnp.array([0.01, 0.01, 1.01, 0.01])),
    "tilted dirichlet": TiltedDirichlet(jnp.array([0.3, 0.3, 2.0]), jnp.array([0.0, 5.0, 1.0])),
    "rare categories": dist.Categorical(probs=jnp.array([[0.985, 0.01, 0.005], [0.2, 0.3, 0.5]])),
    "poisson": dist.Poisson(jnp.array([0.01, 1.0, 50.0])),
    "positive count": ZeroTruncatedPoisson(jnp.array([1e-3, 1.0, 20.0])),
    "multinomial": dist.Multinomial(6, jnp.array([0.7, 0.2, 0.1])),
    "log gamma": LogGamma(jnp.array([1e-3, 2.0]), 0.0),
}


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.slow
def test_right_draws_pass(name: str) -> None:
    largest, tests, square = largest_z(LAWS[name], seed=11)
    assert largest < z_limit(tests, 1), f"{name}: z {largest:.2f} of {tests}, seed 11"
    assert square < 1.5, f"{name}: mean square of z {square:.2f}: the scores are not at their level"


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("normal", lambda x: x * jnp.array([1.2, 1.0])),
        ("correlated normal", lambda x: x * jnp.array([1.0, -1.0])),
        ("gamma", lambda x: x * jnp.array([1.0, 1.15, 1.0])),
        ("dirichlet", lambda x: jnp.flip(x, -1)),
        ("poisson", lambda x: x.at[:, 1].set(jnp.maximum(x[:, 1], 1))),
        ("rare categories", lambda x: x.at[:, 1].set(jnp.where(x[:, 1] == 0, 1, x[:, 1]))),
        ("multinomial", lambda x: jnp.flip(x, -1)),
    ],
)
@pytest.mark.slow
def test_wrong_draws_are_noticed(name: str, wrong: Any) -> None:
    largest, tests, _ = largest_z(LAWS[name], seed=12, scale=wrong)
    assert largest > z_limit(tests, 20), f"{name}: z {largest:.2f} of {tests}, seed 12"


def test_scores_of_nothing_and_of_nan() -> None:
    np.testing.assert_array_equal(z_scores([0.0, 3.0, np.nan], [0.0, 9.0, 1.0]), [0.0, 1.0, np.inf])


def test_supports_are_unwrapped() -> None:
    support, extra = base_support(dist.Normal(jnp.zeros((2, 3)), 1.0).to_event(2).support)
    assert (support, extra) == (dist.constraints.real, 2)


class Zeros(dist.Gamma):
    """A sampler that returns nothing but zeros."""

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        """Return zeros."""
        return jnp.zeros(sample_shape + self.batch_shape)


class Negative(dist.Gamma):
    """A sampler that leaves the support."""

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        """Return minus a gamma draw."""
        return -super().sample(key, sample_shape)


@pytest.mark.parametrize(("law", "words"), [(Zeros, "vanish"), (Negative, "the claim excludes 100 %")])
def test_draws_that_cannot_be_used_fail(law: Any, words: str) -> None:
    states = {"rate": np.ones((4, 3))}

    def draw(times: int = 1) -> Any:
        return draw_blocks({}, states, lambda s, i: law(2.0, s["rate"]), ("rate",), 0, times=times)

    result = check_draws("claim", ("rate",), draw(), 1, lambda: draw(4))
    assert not result.passed
    assert words in result.detail
