"""The exact marginal likelihood: against quadrature, and as the judge of predictions, bounds and scores."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import gammaln, logsumexp

from labelzoo.data import LabelData
from labelzoo.inference.bernoulli_poisson_topics.em import OPTIONS, run_em
from labelzoo.inference.bernoulli_poisson_topics.exact import MAX_POSITIVES, log_marginal_likelihood_exact
from labelzoo.models.bernoulli_poisson_topics_card import log_score, predict, prepare, spec

PLAIN = {"intercept": False, "scale_rows": False, "standardize": False}


def problem(seed=0, num_obs=6, missing=True):
    """Rows with 0 to 4 positives of 5 labels, some cells missing; globals with K = 2."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((num_obs, 5)) < 0.4).astype(float)
    if missing:
        Y[rng.random(Y.shape) < 0.25] = np.nan
    X = rng.standard_normal((num_obs, 3))
    topics = rng.dirichlet(np.full(5, 0.6), 2)
    weights, shape = 0.8 * rng.standard_normal((2, 3)), rng.gamma(3.0, 0.4, 2) + 0.2
    settings = spec.resolve({"num_topics": 2, **PLAIN})
    return prepare(LabelData.from_arrays(X, Y), settings), X, Y, topics, weights, shape


def test_inclusion_exclusion_is_the_integral_over_the_embedding():
    inputs, X, Y, topics, weights, shape = problem()
    exact = log_marginal_likelihood_exact(topics, weights, shape, inputs)
    assert exact.relative_error.max() < 1e-10
    grid = np.linspace(-110.0, 8.0, 700)
    for n, psi in enumerate(X @ weights.T):
        log_u = [grid[:, None], grid[None, :]]
        log_prior = sum(
            r * (value - p) - np.exp(value - p) - gammaln(r)
            for value, p, r in zip(log_u, psi, shape, strict=True)
        )
        log_like = np.zeros((grid.size, grid.size))
        for label in np.flatnonzero(~np.isnan(Y[n])):
            rate = np.exp(log_u[0]) * topics[0, label] + np.exp(log_u[1]) * topics[1, label]
            log_like += np.log(-np.expm1(-np.maximum(rate, 1e-300))) if Y[n, label] else -rate
        integral = logsumexp(log_prior + log_like) + 2 * np.log(grid[1] - grid[0])
        np.testing.assert_allclose(exact.log_likelihood[n], integral, atol=1e-8)


def test_prediction_is_the_marginal_of_one_observed_label():
    _, X, _, topics, weights, shape = problem(1)
    draw = {"topics": jnp.asarray(topics), "weights": jnp.asarray(weights), "shape": jnp.asarray(shape)}
    probs = predict(draw, jnp.asarray(X), PLAIN)
    for label in range(5):
        Y = np.full((6, 5), np.nan)
        Y[:, label] = 1.0
        inputs = prepare(LabelData.from_arrays(X, Y), spec.resolve({"num_topics": 2, **PLAIN}))
        exact = log_marginal_likelihood_exact(topics, weights, shape, inputs)
        np.testing.assert_allclose(probs[:, label], np.exp(exact.log_likelihood), rtol=1e-12)


def test_probabilities_of_all_label_sets_sum_to_one():
    _, X, _, topics, weights, shape = problem(2)
    total = np.zeros(6)
    for code in range(32):
        Y = np.tile((code >> np.arange(5)) & 1, (6, 1)).astype(float)
        inputs = prepare(LabelData.from_arrays(X, Y), spec.resolve({"num_topics": 2, **PLAIN}))
        total += np.exp(log_marginal_likelihood_exact(topics, weights, shape, inputs).log_likelihood)
    np.testing.assert_allclose(total, 1.0, rtol=1e-12)


@pytest.mark.parametrize("missing", [False, True])
def test_the_bound_lies_below_the_marginal_density_at_its_point(missing):
    inputs, *_ = problem(3, num_obs=12, missing=missing)
    inputs = {**inputs, "shape": 1.0}
    result = run_em("vb", inputs, **{**OPTIONS, "rng_key": jax.random.key(0), "max_iter": 200})
    draw = {site: value[0, 0] for site, value in result.draws.items()}
    exact = log_marginal_likelihood_exact(draw["topics"], draw["weights"], draw["shape"], inputs)
    eta, tau = inputs["topic_concentration"], np.asarray(inputs["precision"])
    log_prior = 2 * (gammaln(5 * eta) - 5 * gammaln(eta)) + eta * np.log(draw["topics"]).sum()
    log_prior += (0.5 * np.log(tau / (2 * np.pi)) - 0.5 * tau * draw["weights"] ** 2).sum()
    gap = exact.log_likelihood.sum() + log_prior - result.optimization["objective"][-1]
    assert 0.0 < gap < 10.0, gap


def test_sampled_scores_agree_with_the_exact_ones():
    inputs, _, _, topics, weights, shape = problem(4)
    draw = {"topics": jnp.asarray(topics), "weights": jnp.asarray(weights), "shape": jnp.asarray(shape)}
    exact = log_marginal_likelihood_exact(topics, weights, shape, inputs).log_likelihood
    keys = jax.random.split(jax.random.key(7), 40)
    scores = jax.jit(lambda keys: jax.lax.map(lambda key: log_score(draw, inputs, key), keys))(keys)
    ratio = np.exp(np.asarray(scores) - exact)
    error = ratio.std(axis=0, ddof=1) / np.sqrt(len(keys))
    z = (ratio.mean(axis=0) - 1.0) / np.maximum(error, 1e-12)
    assert np.abs(z).max() < 4.5, f"seed 7, z {z}"
    assert error.max() < 0.02


def test_rows_with_too_many_positives_are_refused():
    Y = np.zeros((2, MAX_POSITIVES + 2))
    Y[1, : MAX_POSITIVES + 1] = 1
    data = LabelData.from_arrays(np.ones((2, 1)), Y)
    inputs = prepare(data, spec.resolve({"num_topics": 1, **PLAIN}))
    topics = np.full((1, Y.shape[1]), 1 / Y.shape[1])
    with pytest.raises(ValueError, match="row 1 has 17 positive labels"):
        log_marginal_likelihood_exact(topics, np.zeros((1, 1)), np.ones(1), inputs)
