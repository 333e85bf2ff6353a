"""The sweep of gp_bernoulli_mixture: its draws of the gates, poor data, extreme gates, refusals."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from labelzoo.data import LabelData
from labelzoo.inference.distributions import GaussianNatural
from labelzoo.inference.gp_bernoulli_mixture import spec as card
from labelzoo.inference.gp_bernoulli_mixture.draws import by_rows, draw_beta, draw_white
from labelzoo.inference.predict import mean_prob
from labelzoo.models import registry

DRAWS = 20_000


def gibbs(data: LabelData, **options: Any) -> Any:
    few = {"num_warmup": 20, "num_samples": 20, "num_chains": 2, "thinning": 1, "num_components": 2}
    engine = registry.get("gp_bernoulli_mixture").engines["gibbs"]
    return engine(card, data, rng_key=options.pop("seed", 1), **{**few, **options})


@pytest.mark.parametrize("basis", [1, 6], ids=["in the basis", "by rows"])
def test_gates_are_drawn_from_their_conditional(basis: int) -> None:
    """Duplicate rows, omega of 0 and of 1e4 among them."""
    rng = np.random.default_rng(0)
    F = rng.standard_normal((6, basis))
    F[3] = F[2]
    omega = np.array([[0.0, 0.3, 1e4, 1.0, 0.2, 0.0], [0.5, 2.0, 0.1, 0.4, 0.0, 30.0]]).T
    potential = np.where(omega > 0, rng.standard_normal((6, 2)) * (1 + omega), 0.0)
    inputs = {"factor": F, "gram": F @ F.T}
    assert by_rows(inputs) == (basis == 6)
    precision = np.eye(basis) + np.einsum("nb,nk,nc->kbc", F, omega, F)
    law = GaussianNatural(potential.T @ F, precision)
    keys = jax.random.split(jax.random.key(3), DRAWS)
    draws = np.asarray(jax.jit(jax.vmap(lambda key: draw_white(key, omega, potential, inputs)))(keys))
    white = np.einsum("kij,skj->ski", np.swapaxes(np.asarray(law.factor), 1, 2), draws - np.asarray(law.mean))
    z = white.mean(axis=0) * np.sqrt(DRAWS)
    assert np.abs(z).max() < 5, z
    second = np.einsum("ski,skj->kij", white, white) / DRAWS - np.eye(basis)
    spread = np.sqrt((1.0 + np.eye(basis)) / DRAWS)
    assert np.abs(second / spread).max() < 5, second


def test_without_the_gram_matrix_the_draw_is_the_same() -> None:
    F, omega = np.eye(3) + 0.2, np.ones((3, 2))
    key, potential = jax.random.key(0), 0.5 * omega
    with_it = draw_white(key, omega, potential, {"factor": F, "gram": F @ F.T})
    np.testing.assert_allclose(draw_white(key, omega, potential, {"factor": F}), with_it, rtol=1e-12)


def test_small_betas_do_not_end_at_0_or_1() -> None:
    draws = np.asarray(draw_beta(jax.random.key(0), jnp.full(4000, 0.01), jnp.full(4000, 0.03)))
    assert draws.min() >= 1e-12
    assert draws.max() <= 1 - 1e-12
    assert abs(draws.mean() - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 1.04 / 4000)


X = np.random.default_rng(0).standard_normal((5, 2))
POOR = {
    "more components than rows, constant labels": (X[:2], [[1, 0]] * 2, {"num_components": 5}),
    "one row, one component": (X[:1], [[1, 0]], {"num_components": 1}),
    "duplicate rows, gates that go far out, priors at the ends": (
        X[[0, 0, 1, 1, 2]], [[1, 0]] * 3 + [[0, 1]] * 2, {"amplitude": 1e6, "prior_strength": 1e-6},
    ),
}  # fmt: skip


FAST = "duplicate rows, gates that go far out, priors at the ends"  # each costs a compilation


@pytest.mark.parametrize(
    "name", [name if name == FAST else pytest.param(name, marks=pytest.mark.slow) for name in POOR]
)
def test_poor_data_and_extreme_settings_give_finite_draws(name: str) -> None:
    rows, labels, settings = POOR[name]
    tree = gibbs(LabelData(rows, np.array(labels)), kernel="rbf", **settings)
    for site, values in tree["posterior"].data_vars.items():
        assert np.isfinite(values.values).all(), site
    probs = mean_prob(tree, np.vstack([rows[:1], rows[:1] + 40.0]))
    assert ((probs > 0) & (probs < 1)).all()


def test_gates_far_below_0_are_drawn_and_the_rounding_of_their_counts_is_said() -> None:
    data = LabelData(X, np.eye(5, 2, dtype=int))
    tree = gibbs(data, gate_mean=-50.0)
    assert tree.attrs["largest_count"] > 1e15
    assert "Cornish-Fisher" in tree.attrs["counts"]
    assert "below 1.2e-09" in tree.attrs["counts"]
    assert np.isfinite(tree["posterior"]["white"].values).all()


def test_refusals() -> None:
    data = LabelData(X, np.eye(5, 2, dtype=int))
    with pytest.raises(ValueError, match="num_inducing is for engine sparse: leave it out for gibbs"):
        gibbs(data, num_inducing=3)
    with pytest.raises(ValueError, match="above max_bytes"):
        gibbs(data, max_bytes=1000)
