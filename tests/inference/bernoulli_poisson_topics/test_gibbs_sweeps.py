"""The moves of the two samplers: laws of single steps, shapes, starts, and what the engines return."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from labelzoo.data import LabelData
from labelzoo.inference.bernoulli_poisson_topics import gibbs, gibbs_counts
from labelzoo.inference.bernoulli_poisson_topics.arrivals import (
    counts_by_row,
    first_arrivals_given_rest,
    row_exposure,
    shape_and_weights_step,
)
from labelzoo.inference.bernoulli_poisson_topics.shape_weights_hmc import (
    MAX_DENSE_MASS,
    build_target,
    hmc_step,
    information,
    log_density_and_gradient,
    reference_whitening,
    shape_and_weights_target,
    theta_of,
    whitening_of,
)
from labelzoo.inference.bernoulli_poisson_topics.starts_mcmc import start_sites
from labelzoo.inference.distributions import FirstArrival
from labelzoo.models.bernoulli_poisson_topics import log_likelihood
from labelzoo.models.bernoulli_poisson_topics_card import spec

SETTINGS = {"num_topics": 2, "topic_concentration": 0.4, "intercept_precision": 1.0}


def _data(rows: int = 9, labels: int = 5, features: int = 2, missing: bool = True) -> LabelData:
    rng = np.random.default_rng(0)
    Y = (rng.random((rows, labels)) < 0.4).astype(float)
    Y[0], Y[1] = 0.0, 1.0
    if missing:
        Y[2], Y[3, 2:] = np.nan, np.nan
    return LabelData.from_arrays(rng.standard_normal((rows, features)), Y)


def _inputs(data: LabelData, **settings: Any) -> dict[str, Any]:
    return spec.prepare(data, spec.resolve({**SETTINGS, **settings}))


def _with_arrivals(inputs: dict[str, Any], seed: int = 1) -> dict[str, Any]:
    start, draw = jax.random.split(jax.random.key(seed))
    return gibbs.draw_first_arrivals(draw, start_sites(start, inputs), inputs)


def test_arrival_times_are_the_quantiles_of_the_claim() -> None:
    """The cumulative distribution at the returned time is the place asked for, rates 1e-30 to 1e5."""
    rate = jnp.array([1e-30, 1e-9, 5e-5, 0.99e-4, 1.01e-4, 1e-2, 1.0, 30.0, 1e5])[:, None]
    place = jnp.array([1e-6, 0.1, 0.5, 0.9, 1.0 - 1e-9])
    time = gibbs.arrival_times(place, rate)
    reached = jnp.where(rate < 1e-20, time, jnp.expm1(-rate * time) / jnp.expm1(-rate))
    assert jnp.abs(reached - place).max() < 1e-11
    assert (time > 0).all() and (time <= 1).all()


def test_first_arrivals_draw_time_and_topic_independently() -> None:
    """Means of z, t, t^2 and t z against the claim; 4000 draws, seed 2, 5 s.e."""
    inputs = _inputs(_data())
    sites = start_sites(jax.random.key(1), inputs)
    claim = first_arrivals_given_rest(sites, inputs)
    keys = jax.random.split(jax.random.key(2), 4000)
    drawn = jax.jit(jax.vmap(lambda key: gibbs.draw_first_arrivals(key, sites, inputs)))(keys)
    t, z = drawn["arrival_time"], drawn["arrival_topic"].astype(float)
    law = FirstArrival(claim["arrival_time"].rate)
    mean_z = claim["arrival_topic"].probs[:, 1]
    for name, values, expected in (
        ("t", t, law.mean),
        ("t^2", t**2, law.variance + law.mean**2),
        ("z", z, mean_z),
        ("t z", t * z, law.mean * mean_z),
    ):
        score = (values.mean(axis=0) - expected) / (values.std(axis=0) / np.sqrt(len(keys)))
        assert np.abs(score).max() < 5, f"{name}: z {np.abs(score).max():.1f}, seed 2"


@pytest.mark.parametrize("shape", [None, 0.7])
def test_gradient_and_information_match_automatic_differentiation(shape: float | None) -> None:
    inputs = _inputs(_data(), shape=shape)
    state = _with_arrivals(inputs)
    target = build_target(counts_by_row(state, inputs), row_exposure(state, inputs), state, inputs)
    theta, fixed = theta_of(state, inputs), state["shape"]

    def total(at: Any) -> Any:
        return log_density_and_gradient(at, target, fixed)[0].sum()

    value, slope = log_density_and_gradient(theta, target, fixed)
    np.testing.assert_allclose(slope, jax.jit(jax.grad(total))(theta), rtol=1e-9, atol=1e-9)
    hessian = -jnp.einsum("kikj->kij", jax.jit(jax.hessian(total))(theta))
    info, last = information(theta, target, fixed), None if shape is None else -1
    np.testing.assert_allclose(info[:, :last, :last], hessian[:, :last, :last], rtol=1e-8, atol=1e-8)
    claim = shape_and_weights_target(target.counts, row_exposure(state, inputs), state, inputs)
    jacobian = jnp.log(fixed).sum() if shape is None else 0.0
    np.testing.assert_allclose(value.sum() - jacobian, claim(state), rtol=1e-12)


def test_whitening_inverts_the_mass_and_mends_a_negative_pivot() -> None:
    info = jnp.array([[[4.0, 1.0], [1.0, 3.0]], [[4.0, 1.0], [1.0, -2.0]]])
    root = whitening_of(info, True)
    np.testing.assert_allclose(root[0] @ root[0].T, jnp.linalg.inv(info[0]), rtol=1e-12)
    assert (jnp.linalg.eigvalsh(root[1] @ root[1].T) > 0).all()
    assert (whitening_of(info, False)[:, -1] == 0).all()


def test_hmc_keeps_the_collapsed_law_of_shape_and_weights() -> None:
    """One topic, one feature: moments after HMC from a far start against a grid; 600 chains, seed 3."""
    data = LabelData.from_arrays(np.linspace(-1, 1, 6)[:, None], np.tile([1.0, 0.0, 1.0], (6, 1)))
    inputs = _inputs(data, num_topics=1, intercept=False, scale_rows=False, prior_scale=1.0)
    state = _with_arrivals(inputs)
    counts, exposure = counts_by_row(state, inputs), row_exposure(state, inputs)
    target = build_target(counts, exposure, state, inputs)
    root = reference_whitening(counts, exposure, state, inputs)

    def chain(key: Any) -> Any:
        def move(theta: Any, key: Any) -> Any:
            return hmc_step(key, theta, root, target, state["shape"])[0], None

        return jax.lax.scan(move, jnp.array([[1.0, -1.0]]), jax.random.split(key, 25))[0][0]

    ends = jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(3), 600))
    grid = jnp.stack(jnp.meshgrid(jnp.linspace(-5, 5, 301), jnp.linspace(-6, 4, 301)), -1).reshape(-1, 1, 2)
    log_p = jax.vmap(lambda theta: log_density_and_gradient(theta, target, state["shape"])[0][0])(grid)
    weight = jax.nn.softmax(log_p)
    for name, f in (
        ("w", lambda x: x[..., 0]),
        ("log r", lambda x: x[..., 1]),
        ("w^2", lambda x: x[..., 0] ** 2),
        ("log r^2", lambda x: x[..., 1] ** 2),
        ("w log r", lambda x: x[..., 0] * x[..., 1]),
    ):
        values, expected = f(ends), (weight * f(grid[:, 0])).sum()
        z = (values.mean() - expected) / (values.std() / np.sqrt(600))
        assert abs(z) < 5, f"{name}: z {float(z):.1f}, seed 3"


def test_step_moves_and_keeps_other_sites() -> None:
    inputs = _inputs(_data())
    state = _with_arrivals(inputs)
    moved = shape_and_weights_step(jax.random.key(0), state, inputs)
    assert not np.allclose(moved["weights"], state["weights"])
    assert moved["topics"] is state["topics"]
    fixed = shape_and_weights_step(jax.random.key(0), state, _inputs(_data(), shape=0.5))
    assert fixed["shape"] is state["shape"]


def test_diagonal_mass_takes_over_where_a_dense_one_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_DENSE_MASS > 10**6
    module = "labelzoo.inference.bernoulli_poisson_topics.shape_weights_hmc.MAX_DENSE_MASS"
    monkeypatch.setattr(module, 1)
    inputs = _inputs(_data())
    state = _with_arrivals(inputs)
    target = build_target(counts_by_row(state, inputs), row_exposure(state, inputs), state, inputs)
    root = whitening_of(information(theta_of(state, inputs), target, state["shape"]), True)
    assert root.shape == theta_of(state, inputs).shape
    _, accept = hmc_step(jax.random.key(0), theta_of(state, inputs), root, target, state["shape"])
    assert (accept > 0.5).all()


@pytest.mark.parametrize("module", [gibbs, gibbs_counts])
def test_no_array_of_rows_times_labels(module: Any) -> None:
    """No intermediate of a sweep has both the rows and the labels as axes (37 and 41 here)."""
    inputs = _inputs(_data(rows=37, labels=41), topic_concentration=0.1)
    if module is gibbs:
        sites, adapted = gibbs.start(jax.random.key(0), inputs)
        text = str(
            jax.make_jaxpr(lambda key: gibbs.sweep(key, sites, adapted["whitening"], inputs))(
                jax.random.key(1)
            )
        )
    else:
        sites = start_sites(jax.random.key(0), inputs)
        text = str(jax.make_jaxpr(lambda key: gibbs_counts.sweep(key, sites, inputs))(jax.random.key(1)))
    assert "[37,2]" in text and "[2,41]" in text
    assert not any(shape in text for shape in ("37,41", "41,37", "[1517]"))


@pytest.mark.parametrize(
    ("engine", "settings"),
    [
        (gibbs.GIBBS, {"precision_prior": (3.0, 2.0)}),
        (gibbs.GIBBS, {"shape": 0.8}),
        (gibbs_counts.GIBBS_COUNTS, {"precision_prior": (3.0, 2.0)}),
    ],
)
@pytest.mark.slow
def test_engine_returns_finite_reproducible_draws(engine: Any, settings: dict[str, Any]) -> None:
    """Rows without labels, masked cells, the default (tiny) topic concentration."""
    data = _data()
    inputs = _inputs(data, topic_concentration=None, **settings)
    options = {"num_warmup": 20, "num_samples": 15, "num_chains": 2}
    first = engine.run(spec, inputs, rng_key=jax.random.key(5), **options)
    again = engine.run(spec, inputs, rng_key=jax.random.key(5), **options)
    learned = {"precision"} if "precision_prior" in settings else set()
    assert set(first.draws) == {"topics", "weights", "shape", "embedding"} | learned
    for site, draws in first.draws.items():
        assert draws.shape[:2] == (2, 15) and draws.dtype == np.float64
        np.testing.assert_array_equal(draws, again.draws[site])
    np.testing.assert_allclose(first.draws["topics"].sum(axis=-1), 1.0, rtol=1e-12)
    assert not np.allclose(first.draws["topics"][0], first.draws["topics"][1])
    at = {site: jnp.asarray(draws[1, 7]) for site, draws in first.draws.items()}
    expected = log_likelihood(at["topics"], at["embedding"], inputs["positives"], inputs["negatives"])
    np.testing.assert_allclose(first.sample_stats["log_likelihood"][1, 7], expected, rtol=1e-8)
