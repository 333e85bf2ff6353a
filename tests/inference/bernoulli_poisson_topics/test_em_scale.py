"""EM at scale: preconditioned weights, gradients, the memory plan."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse, special

from labelzoo.data import LabelData
from labelzoo.inference.bernoulli_poisson_topics import em_data as layout
from labelzoo.inference.bernoulli_poisson_topics import fast_functions
from labelzoo.inference.bernoulli_poisson_topics.em import MAP_EM, OPTIONS, begin, em_config, run_em
from labelzoo.inference.bernoulli_poisson_topics.em_data import em_data, times, weighted_gram
from labelzoo.inference.bernoulli_poisson_topics.em_gradient import gradient, gradient_norms
from labelzoo.inference.bernoulli_poisson_topics.em_steps import STEPS, sweep
from labelzoo.inference.bernoulli_poisson_topics.em_weights import (
    conjugate_gradient_weights,
    exact_weights,
    preconditioned_weights,
)
from labelzoo.inference.bernoulli_poisson_topics.memory_plan import memory_plan
from labelzoo.inference.bernoulli_poisson_topics.starts import make_start
from labelzoo.inference.bernoulli_poisson_topics.stationarity import (
    Variant,
    evidence_bound,
    hide_cells,
    log_joint,
)
from labelzoo.inference.polya_gamma import mean as polya_gamma_mean
from labelzoo.models.bernoulli_poisson_topics_card import prepare, spec


def text_like(seed=0, rows=150, features=40, labels=9, topics=5):
    """Sparse features of very unlike frequencies, and labels that follow a few of them."""
    rng = np.random.default_rng(seed)
    X = sparse.csr_array(rng.random((rows, features)) < 0.7 / np.arange(1, features + 1) ** 0.7).astype(float)
    Y = X.toarray()[:, np.arange(labels) % features] + (rng.random((rows, labels)) < 0.2) > 0.5
    return LabelData.from_arrays(X, Y.astype(np.int8)), {"num_topics": topics, "shape": 1.0}


def prepared(data, settings, keep=False):
    return prepare(data, spec.resolve({**settings, "sparse_features": keep}))


def run(algorithm, inputs, **options):
    return run_em(algorithm, inputs, **{**OPTIONS, "rng_key": jax.random.key(0), **options})


def weight_system(keep):
    data = em_data(prepared(*text_like(), keep=keep))
    rng = np.random.default_rng(1)
    omega = jnp.asarray(rng.gamma(0.5, size=(150, 5)) * np.array([0.2, 0.5, 1.0, 2.0, 4.0]))
    target = jnp.asarray(rng.standard_normal((150, 5)))
    zero = em_config("map", prepared(*text_like()))
    state = begin(make_start(prepared(*text_like()), jax.random.key(0), "random"), data, zero, 1.0)
    cold = state._replace(weights=jnp.zeros_like(state.weights), psi=jnp.zeros_like(state.psi))
    return data, omega, target, cold


@pytest.mark.parametrize("keep", [False, True])
def test_preconditioned_weights_are_right_to_the_tolerance_in_few_steps(keep):
    data, omega, target, cold = weight_system(keep)
    exact = exact_weights(data, omega, target, data.precision)
    error = {}
    for tolerance in (1e-2, 1e-4, 1e-8):
        weights, psi, steps = preconditioned_weights(
            data, omega, target, data.precision, cold, (1, tolerance)
        )
        error[tolerance] = float(jnp.linalg.norm(weights - exact) / jnp.linalg.norm(exact))
        assert error[tolerance] < tolerance, error
        np.testing.assert_allclose(psi, times(data, weights), atol=1e-10)
        if tolerance == 1e-4:
            assert 4 <= int(steps) <= 20, steps
    plain, _ = conjugate_gradient_weights(data, omega, target, data.precision, cold, 10)
    assert jnp.linalg.norm(plain - exact) > 100 * error[1e-4] * jnp.linalg.norm(exact)


def test_the_least_number_of_steps_is_taken_where_the_start_is_already_right():
    data, omega, target, cold = weight_system(False)
    weights, psi, _ = preconditioned_weights(data, omega, target, data.precision, cold, (1, 1e-6))
    there = cold._replace(weights=weights, psi=psi)
    for fewest in (0, 1, 3):
        assert int(preconditioned_weights(data, omega, target, data.precision, there, (fewest, 1e-4))[2]) == (
            fewest
        )


def test_gram_of_sparse_features_is_that_of_dense_ones(monkeypatch):
    monkeypatch.setattr(layout, "GRAM_COLUMNS", 16)
    dense, thin = (em_data(prepared(*text_like(), keep=keep)) for keep in (False, True))
    assert thin.X is None and dense.X is not None
    weight = jnp.asarray(np.random.default_rng(2).random(150))
    np.testing.assert_allclose(
        weighted_gram(thin, weight), (dense.X * weight[:, None]).T @ dense.X, atol=1e-12
    )


@pytest.mark.parametrize("w_step", ["preconditioned", "newton_preconditioned"])
def test_preconditioned_sweeps_never_lower_the_objective(w_step):
    inputs = prepared(*text_like(3))
    trace = run("map", inputs, w_step=w_step, max_iter=25, tolerance=0.0).optimization["objective"]
    assert (np.diff(trace) / np.abs(trace[1:])).min() > -1e-9
    if w_step == "preconditioned":
        exact = run("map", inputs, w_step="exact", max_iter=25, tolerance=0.0).optimization["objective"]
        np.testing.assert_allclose(trace, exact, rtol=1e-5)


def moved_state(algorithm, missing, learn_shape, precision_prior=None, sweeps=3):
    data, settings = text_like(4, rows=20, features=4, labels=5, topics=2)
    shape = None if learn_shape else 1.0
    inputs = prepared(data, {**settings, "shape": shape, "precision_prior": precision_prior})
    seen = hide_cells(inputs) if missing else inputs
    cells, config = em_data(seen), em_config(algorithm, seen, shape_floor=1e-3)
    state = begin(make_start(seen, jax.random.key(1), "random"), cells, config, 1.0)
    for _ in range(sweeps):
        state = sweep(state, cells, config)
    # Off the points that a sweep reaches: the parameters move, the counts are those of the new point.
    noise = iter(jax.random.split(jax.random.key(2), 4))
    nudged = {
        name: getattr(state, name) * jnp.exp(0.2 * jax.random.normal(next(noise), getattr(state, name).shape))
        for name in ("concentration", "weights", "shape" if learn_shape else "weights")
    }
    state = state._replace(**nudged)
    state = state._replace(psi=times(cells, state.weights))
    center = jax.scipy.special.digamma if algorithm == "vb" else jnp.log
    state = state._replace(log_embedding=center(state.concentration) - state.log_rate)
    return inputs, cells, config, STEPS["counts"](state, cells, config)


def autodiff(algorithm, inputs, config, state, missing):
    """The gradient of the objective that is written from the program, in the layout of `gradient`."""
    params = {"topic_logits": state.log_topics.T, "weights": state.weights.T}
    if algorithm == "map":
        params["log_embedding"] = jnp.log(state.concentration) - state.log_rate
    else:
        params |= {"log_concentration": jnp.log(state.concentration), "log_rate": state.log_rate}
    if config.learn_shape:
        params["log_shape"] = jnp.log(state.shape)
    if config.precision_prior is not None:
        a, b = config.precision_prior
        squares = (state.weights**2).sum(axis=1)
        params["log_precision"] = jnp.log(a + state.weights.shape[1] / 2) - jnp.log(b + squares / 2)
    variant = Variant(algorithm, missing=missing, learn_shape=config.learn_shape)
    reference = log_joint if algorithm == "map" else evidence_bound
    slope = jax.grad(lambda p: reference(p, inputs, variant))(params)
    embedding = ["log_embedding"] if algorithm == "map" else ["log_concentration", "log_rate"]
    expected = {"weights": slope["weights"].T, "topics": slope["topic_logits"].T}
    stacked = jnp.stack([slope[name] for name in embedding])
    expected["embedding"] = stacked[0] if algorithm == "map" else stacked
    return expected | ({"shape": slope["log_shape"]} if config.learn_shape else {})


@pytest.mark.parametrize(
    ("algorithm", "missing", "learn_shape", "precision_prior"),
    [
        ("map", False, False, None),
        ("map", True, False, (2.0, 1.0)),
        ("vb", False, False, None),
        ("vb", True, True, None),
    ],
)
def test_gradient_is_that_of_the_program(algorithm, missing, learn_shape, precision_prior):
    inputs, cells, config, state = moved_state(algorithm, missing, learn_shape, precision_prior)
    expected = autodiff(algorithm, inputs, config, state, missing)
    own = gradient(state, cells, config)
    assert own.keys() == expected.keys()
    for block, (slope, _) in own.items():
        np.testing.assert_allclose(slope, expected[block], rtol=1e-6, atol=1e-9, err_msg=block)


def test_gradient_norm_falls_to_the_tolerance_asked_for():
    inputs = prepared(*text_like(5, labels=6, topics=3))
    loose = run("vb", inputs, max_iter=4000)
    tight = run("vb", inputs, max_iter=4000, gradient_tolerance=1e-4)
    assert loose.converged and tight.converged
    norms = tight.optimization["gradient_norm"]
    assert len(norms) == len(tight.optimization["objective"])
    assert norms[-1] <= 1e-4 < loose.optimization["gradient_norm"][-1]
    assert "relative gradient norm" in loose.message and "asked for: 0.0001" in tight.message
    assert loose.attrs["gradient_norm"] == loose.optimization["gradient_norm"][-1]
    cells, config = em_data(inputs), em_config("vb", inputs)
    first = begin(make_start(inputs, jax.random.key(0)), cells, config, 1.0)
    assert norms[0] == pytest.approx(float(gradient_norms(first, cells, config).max()))


def test_memory_is_planned_and_refused_with_the_switch_named():
    data, settings = text_like(6)
    inputs = prepared(data, settings)
    plain, exact = memory_plan(inputs), memory_plan(inputs, w_step="exact")
    assert set(plain) < set(exact) and sum(exact.values()) > sum(plain.values())
    (square,) = (value for name, value in exact.items() if name not in plain)
    assert 8 * 41 * 41 < square < 8 * 41 * 41 * 9, "one topic's system, not all of them"
    with pytest.raises(ValueError, match=r"above max_bytes.*w_step='newton' needs no"):
        run("map", inputs, w_step="exact", max_bytes=sum(plain.values()))
    with pytest.raises(ValueError, match="max_bytes must be a positive number"):
        run("map", inputs, max_bytes=0)
    tree = MAP_EM(spec, data, rng_key=0, num_topics=3, max_iter=2)
    assert tree.attrs["planned_bytes"] > 0 and tree.attrs["gradient_norm"] > 0


@pytest.mark.parametrize("value", [0, -1.0, "small"])
def test_bad_tolerances_are_named(value):
    inputs = prepared(*text_like(7))
    with pytest.raises(ValueError, match="cg_tolerance"):
        run("map", inputs, cg_tolerance=value)
    with pytest.raises(ValueError, match="gradient_tolerance"):
        run("map", inputs, gradient_tolerance=value)


def test_fast_functions_are_the_general_ones():
    x = np.exp(np.random.default_rng(0).uniform(-25.0, 15.0, 20_000))
    for own, reference in (
        (fast_functions.positive_digamma, special.digamma(x)),
        (fast_functions.positive_gammaln, special.gammaln(x)),
    ):
        np.testing.assert_array_less(np.abs(np.asarray(own(x)) - reference), 1e-13 * (1 + np.abs(reference)))
    np.testing.assert_allclose(fast_functions.positive_trigamma(x), special.polygamma(1, x), rtol=1e-13)
    a, b = np.random.default_rng(1).normal(0.0, 300.0, (2, 1000))
    a[0] = -np.inf
    np.testing.assert_allclose(fast_functions.log_add(a, b), np.logaddexp(a, b), atol=1e-14, rtol=1e-15)
    np.testing.assert_allclose(fast_functions.soft_plus(b), np.logaddexp(0.0, b), atol=1e-14, rtol=1e-15)
    single = fast_functions.positive_gammaln(jnp.asarray(x, jnp.float32))
    assert single.dtype == jnp.float32 and np.isfinite(single).all()


def test_preconditioned_weights_keep_the_tolerance_in_single_precision():
    # At the sizes of benchmarks/em_scale.py one pass in float32 leaves 5e-4 from zero; the second mends it.
    inputs = prepared(*text_like(rows=1000, features=100, labels=20, topics=4), keep=True)
    data, config = em_data(inputs, dtype=jnp.float32), em_config("vb", inputs)
    state = begin(make_start(inputs, jax.random.key(0), "random"), data, config, 1.0)
    for _ in range(3):
        state = jax.jit(sweep, static_argnums=2)(state, data, config)
    omega = polya_gamma_mean(state.row_counts + state.shape, state.psi)
    target = 0.5 * (state.row_counts - state.shape)
    wide = jax.tree.map(lambda a: a.astype(jnp.float64) if a.dtype == jnp.float32 else a, data)
    exact = exact_weights(wide, omega.astype(float), target.astype(float), wide.precision)
    cold = state._replace(weights=jnp.zeros_like(state.weights), psi=jnp.zeros_like(state.psi))
    weights, _, _ = preconditioned_weights(data, omega, target, data.precision, cold, (2, 1e-4))
    assert weights.dtype == jnp.float32
    error = float(jnp.linalg.norm(weights - exact) / jnp.linalg.norm(exact))
    assert error < 5e-5, error
