"""The row scale move: its law, its coordinates, when it is made, and the sweep with it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer.util import log_density
from scipy import stats

from labelzoo.data import LabelData
from labelzoo.inference.bernoulli_poisson_topics import gibbs
from labelzoo.inference.bernoulli_poisson_topics.row_scale import (
    DENSE_ROWS,
    ROW_SCALE_UPDATE,
    draw_scale,
    row_scale_step,
    wants_row_scale,
)
from labelzoo.inference.bernoulli_poisson_topics.starts_mcmc import start_sites
from labelzoo.inference.checks.rungs import Setting, update_checks
from labelzoo.inference.checks.states import data_cases
from labelzoo.models.bernoulli_poisson_topics import VIEWS
from labelzoo.models.bernoulli_poisson_topics_card import spec


def _inputs(missing: bool = True) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    Y = (rng.random((8, 5)) < 0.5).astype(float)
    Y[0], Y[1] = 0.0, 1.0
    if missing:
        Y[2], Y[3, 2:] = np.nan, np.nan
    data = LabelData.from_arrays(rng.standard_normal((8, 2)), Y)
    return spec.prepare(data, spec.resolve({"num_topics": 2, "topic_concentration": 0.4}))


@pytest.mark.parametrize(
    ("concentration", "rate", "low"),
    [(0.4, 2.0, 0.0), (3.0, 1.5, 1.0), (3.0, 2.0, 4.0), (0.5, 1.0, 2.0), (1.0, 3.0, 1.0), (8.0, 0.01, 0.9)],
)
def test_draws_keep_a_gamma_law_cut_from_below(concentration: float, rate: float, low: float) -> None:
    """One step from 20 000 exact draws, and 30 from the cut, against the exact law; seed 1, KS p > 1e-4."""
    law, size = stats.gamma(concentration, scale=1.0 / rate), 20_000
    u = np.random.default_rng(1).random(size)
    exact = law.isf(u * law.sf(low))
    full = [jnp.full(size, value) for value in (concentration, rate, low)]
    step = jax.jit(lambda key, c: draw_scale(key, *full, c))
    once = step(jax.random.key(1), jnp.asarray(exact))
    far = jnp.full(size, max(low, 1e-3))
    for key in jax.random.split(jax.random.key(2), 30):
        far = step(key, far)

    def cdf(c: Any) -> Any:
        return 1.0 - law.sf(c) / law.sf(low)

    for name, values in (("one step", once), ("thirty steps", far)):
        assert (values >= low).all()
        p = stats.kstest(np.asarray(values), cdf).pvalue
        assert p > 1e-4, f"{name}: p {p:.1e}, seed 1"
    assert float((once != exact).mean()) > 0.4


def test_polar_view_is_the_arrivals_view_in_other_coordinates() -> None:
    """Log densities differ by log |d(u, t) / d(c, d, e)| = sum_n (K - 1 - positives_n) log c_n alone."""
    inputs, rng, gaps = _inputs(), np.random.default_rng(3), []
    row = np.asarray(inputs["positives"].row)
    for _ in range(4):
        size, share = 1.0 + rng.gamma(2.0, 1.0, 8), rng.dirichlet(np.ones(2), 8)
        rest = {
            "topics": rng.dirichlet(np.ones(5), 2),
            "weights": rng.standard_normal((2, inputs["X"].shape[1])),
            "shape": rng.gamma(2.0, 1.0, 2),
            "arrival_topic": rng.integers(0, 2, row.size),
        }
        scaled = rng.random(row.size)
        polar = {**rest, "embedding_size": size, "embedding_share": share, "scaled_time": scaled}
        plain = {**rest, "embedding": size[:, None] * share, "arrival_time": scaled / size[row]}
        powers = 1.0 - np.bincount(row, minlength=8)
        p, q = (
            float(log_density(VIEWS[view], (), inputs, values)[0])
            for view, values in (("arrivals_polar", polar), ("arrivals", plain))
        )
        gaps.append(p - q - (powers * np.log(size)).sum())
    assert np.ptp(gaps) < 1e-9, gaps


def test_the_move_keeps_rates_times_times_and_directions() -> None:
    inputs = _inputs()
    start, draw, move = jax.random.split(jax.random.key(4), 3)
    before = gibbs.draw_first_arrivals(draw, start_sites(start, inputs), inputs)
    after = row_scale_step(move, before, inputs)
    row = inputs["positives"].row
    c = after["embedding"] / before["embedding"]
    np.testing.assert_allclose(c[:, 0], c[:, 1], rtol=1e-12)
    assert float((jnp.abs(c[:, 0] - 1.0) > 1e-6).mean()) > 0.5
    np.testing.assert_allclose(after["arrival_time"] * c[row, 0], before["arrival_time"], rtol=1e-12)
    np.testing.assert_allclose(jnp.exp(after["log_embedding"]), after["embedding"], rtol=1e-12)
    assert (after["arrival_time"] <= 1.0).all() and after["topics"] is before["topics"]


def test_the_move_is_made_where_rows_are_dense_in_positives() -> None:
    X = np.ones((4, 1))
    for positives, expected in ((int(DENSE_ROWS), True), (int(DENSE_ROWS) - 1, False)):
        Y = np.zeros((4, 9))
        Y[:, :positives] = 1.0
        inputs = spec.prepare(LabelData.from_arrays(X, Y), spec.resolve({"num_topics": 2}))
        assert wants_row_scale("auto", inputs) is expected
        assert wants_row_scale(not expected, inputs) is not expected
    with pytest.raises(ValueError, match="row_scale must be True, False or 'auto', got 'yes'"):
        wants_row_scale("yes", inputs)


@pytest.mark.slow
def test_full_tier_check_holds_at_prior_states_with_laws_far_out() -> None:
    """Among the states drawn from the prior are cuts whose law is 1e-9 wide beside others 20 logs away."""
    full = Setting(spec, data_cases(spec, 0), {}, {}, 64, 0, 30, True, set())
    assert [row.passed for row in update_checks(ROW_SCALE_UPDATE, full)] == [True, True]
