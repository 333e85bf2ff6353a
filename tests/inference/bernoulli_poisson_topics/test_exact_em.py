"""Exact EM: its density, its counts by enumeration, its gradient by autodiff, its guard."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import gammaln

from labelzoo.data import LabelData
from labelzoo.inference.bernoulli_poisson_topics.em import MAP_EM, VB_EM, em_config
from labelzoo.inference.bernoulli_poisson_topics.em_data import em_data
from labelzoo.inference.bernoulli_poisson_topics.exact import log_marginal_likelihood_exact
from labelzoo.inference.bernoulli_poisson_topics.exact_em import (
    EXACT_EM,
    ExactState,
    advance,
    em_state,
    exact_moments,
    gradient,
    log_prior,
    refuse_cancelled,
    subsets_of,
)
from labelzoo.models.bernoulli_poisson_topics_card import prepare, spec


def toy(seed=0, rows=12, labels=5, missing=0.0, chance=0.3):
    rng = np.random.default_rng(seed)
    Y = (rng.random((rows, labels)) < chance).astype(float)
    Y[0] = 0.0
    if missing:
        Y[rng.random(Y.shape) < missing] = np.nan
        Y[3] = np.nan
    return LabelData.from_arrays(rng.standard_normal((rows, 2)), Y)


def setup(missing, seed=0, **settings):
    inputs = prepare(toy(seed, missing=missing), spec.resolve({"num_topics": 2, "shape": 1.3, **settings}))
    rng = np.random.default_rng(seed + 10)
    state = ExactState(
        jnp.log(jnp.asarray(rng.dirichlet(np.ones(5), 2).T)),
        jnp.asarray(0.7 * rng.standard_normal((3, 2))),
        jnp.asarray([1.3, 0.6]),
    )
    return inputs, state, subsets_of(inputs, 5)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_likelihood_counts_and_embedding_are_those_of_enumeration(missing):
    """The counts by summing Poisson counts given u over a grid of u, row by row."""
    inputs, state, subsets = setup(missing)
    now = exact_moments(state, inputs, inputs["X"], subsets)
    exact = log_marginal_likelihood_exact(np.exp(state.log_topics).T, state.weights.T, state.shape, inputs)
    np.testing.assert_allclose(now.log_likelihood, exact.log_likelihood, rtol=1e-10)
    Y = toy(0, missing=missing)
    table = Y.Y.toarray().astype(float)
    if Y.missing is not None:
        table[~Y.observed_mask()] = np.nan
    grid = np.linspace(-60.0, 7.0, 1200)
    first, second = (part.ravel() for part in np.meshgrid(grid, grid, indexing="ij"))
    topics, psi = np.exp(state.log_topics), inputs["X"] @ state.weights
    for n in (1, 2, 5):
        log_u, r = np.stack([first, second]), np.asarray(state.shape)[:, None]
        logit = np.asarray(psi[n])[:, None]
        weight = (r * (log_u - logit) - np.exp(log_u - logit) - gammaln(r)).sum(axis=0)
        rates = topics @ np.exp(log_u)
        seen = ~np.isnan(table[n])
        weight += np.where((table[n] == 1)[:, None], np.log(-np.expm1(-rates)), -rates)[seen].sum(axis=0)
        share = np.exp(weight - weight.max())
        share /= share.sum()
        hits = np.flatnonzero(table[n] == 1)
        counts = sum(topics[hit][:, None] * np.exp(log_u) / -np.expm1(-rates[hit]) for hit in hits)
        np.testing.assert_allclose(now.embedding[n], np.exp(log_u) @ share, rtol=1e-5)
        if hits.size:
            np.testing.assert_allclose(now.row_counts[n], counts @ share, rtol=1e-5)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_fisher_gradient_is_the_one_of_the_marginal_density(missing):
    inputs, state, subsets = setup(missing, 1)
    data, config = em_data(inputs), em_config("map", inputs)

    def density(logits, weights):
        moved = ExactState(jax.nn.log_softmax(logits, axis=0), weights, state.shape)
        log_p = exact_moments(moved, inputs, data.X, subsets).log_likelihood.sum()
        return log_p + log_prior(moved, data, config)

    lean, slope = jax.grad(density, argnums=(0, 1))(state.log_topics, state.weights)
    now = exact_moments(state, inputs, data.X, subsets)
    own = gradient(em_state(state, now, data, inputs), data, config)
    np.testing.assert_allclose(own[0][0], slope, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(own[1][0], lean, rtol=1e-8, atol=1e-9)
    # What a wrong E step would give is far away: counts of one a positive, no hidden counts.
    wrong = now._replace(row_counts=now.row_counts / now.row_counts.sum(axis=1, keepdims=True).clip(1e-9))
    assert np.abs(gradient(em_state(state, wrong, data, inputs), data, config)[0][0] - slope).max() > 1e-2


@pytest.mark.parametrize(("missing", "precision_prior"), [(0.0, None), (0.3, (2.0, 1.5))])
def test_shapes_have_the_gradient_of_the_marginal_density(missing, precision_prior):
    inputs, state, subsets = setup(missing, 6, shape=None, precision_prior=precision_prior)
    data, config = em_data(inputs), em_config("vb", inputs, shape_floor=1e-3)

    def density(log_shape, weights):
        moved = state._replace(shape=jnp.exp(log_shape), weights=weights)
        log_p = exact_moments(moved, inputs, data.X, subsets).log_likelihood.sum()
        return log_p + log_prior(moved, data, config)

    rise, slope = jax.grad(density, argnums=(0, 1))(jnp.log(state.shape), state.weights)
    now = exact_moments(state, inputs, data.X, subsets)
    own = gradient(em_state(state, now, data, inputs), data, config)
    np.testing.assert_allclose(own[0][0], slope, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(own[2][0], rise, rtol=1e-8, atol=1e-9)
    for wrong, seen in (
        (now._replace(log_embedding=jnp.log(now.embedding)), config),
        (now, config._replace(shape_prior=(1.0, 1e-3))),
    ):
        assert np.abs(gradient(em_state(state, wrong, data, inputs), data, seen)[2][0] - rise).max() > 1e-2


@pytest.mark.parametrize(("missing", "precision_prior"), [(0.0, None), (0.3, (2.0, 1.5))])
def test_learned_shapes_never_lower_the_density_and_rest_where_it_is_flat(missing, precision_prior):
    tree = EXACT_EM(
        spec,
        toy(7, rows=30, missing=missing),
        rng_key=0,
        num_topics=2,
        shape=None,
        precision_prior=precision_prior,
        max_iter=5000,
        gradient_tolerance=1e-6,
        tolerance=1e-7,
    )
    trace = tree["optimization"]["objective"].values
    assert (np.diff(trace) > -1e-9).all() and tree.attrs["converged"] == "yes"
    assert tree.attrs["gradient_norm"] <= 1e-6
    assert np.abs(tree["posterior"]["shape"].values - 1.0).max() > 0.05
    assert ("precision" in tree["posterior"]) == (precision_prior is not None)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_the_density_never_falls_and_its_gradient_vanishes(missing):
    data = toy(2, rows=25, missing=missing)
    tree = EXACT_EM(
        spec, data, rng_key=0, num_topics=2, max_iter=5000, gradient_tolerance=1e-6, tolerance=1e-7
    )
    trace = tree["optimization"]["objective"].values
    assert (np.diff(trace) > -1e-9).all() and tree.attrs["converged"] == "yes"
    assert tree.attrs["gradient_norm"] <= 1e-6
    bound = VB_EM(spec, data, rng_key=0, num_topics=2, max_iter=3000)["optimization"]["objective"].values[-1]
    assert trace[-1] > bound, "the bound lies below the density at its own point, and so below the optimum"


@pytest.mark.slow
def test_its_optimum_beats_the_other_points_in_marginal_density():
    data = toy(3, rows=25)
    inputs = prepare(data, spec.resolve({"num_topics": 2, "shape": 1.0}))
    cells, config = em_data(inputs), em_config("map", inputs)

    def density(tree):
        site = {name: value.values[0, 0] for name, value in tree["posterior"].data_vars.items()}
        log_p = log_marginal_likelihood_exact(site["topics"], site["weights"], site["shape"], inputs)
        state = ExactState(
            jnp.log(site["topics"].T), jnp.asarray(site["weights"].T), jnp.asarray(site["shape"])
        )
        return float(log_p.log_likelihood.sum() + log_prior(state, cells, config))

    best = max(density(EXACT_EM(spec, data, rng_key=key, num_topics=2, max_iter=2000)) for key in range(3))
    for engine in (MAP_EM, VB_EM):
        assert best >= max(
            density(engine(spec, data, rng_key=key, num_topics=2, max_iter=500)) for key in range(3)
        )


def test_sweeps_rest_where_the_gradient_vanishes_with_missing_labels():
    inputs, state, subsets = setup(0.4, 4)
    data, config = em_data(inputs), em_config("map", inputs, cg_steps=10)
    for _ in range(400):
        state = advance_jit(state, inputs, data, subsets, config)
    now = exact_moments(state, inputs, data.X, subsets)
    (slope, _), (lean, _) = gradient(em_state(state, now, data, inputs), data, config)
    assert max(np.abs(slope).max(), np.abs(lean).max()) < 1e-4


def advance_jit(state, inputs, data, subsets, config):
    cells = {name: inputs[name] for name in ("positives", "negatives")}
    return _advance(state, cells, data, subsets, config)


_advance = jax.jit(advance, static_argnums=4)


def test_rows_are_refused_by_name():
    Y = np.zeros((4, 30), np.int8)
    Y[2, :12] = 1
    data = LabelData.from_arrays(np.ones((4, 1)) * np.arange(4)[:, None], Y)
    with pytest.raises(ValueError, match="row 2 has 12 positive labels, above max_positives=10"):
        EXACT_EM(spec, data, rng_key=0, num_topics=2)
    with pytest.raises(
        ValueError, match=r"terms of row 2 cancel: relative error .* max_relative_error=1e-10"
    ):
        EXACT_EM(spec, data, rng_key=0, num_topics=2, max_positives=12, max_relative_error=1e-10)
    with pytest.raises(ValueError, match="terms of row 1 cancel"):
        refuse_cancelled(np.array([1e-12, np.nan, 1e-3]), 1e-8)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_positives": 40}, "max_positives must be"),
        ({"max_relative_error": 2.0}, "max_relative_error must"),
    ],
)
def test_bad_options_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        EXACT_EM(spec, toy(5), rng_key=0, num_topics=2, **settings)
