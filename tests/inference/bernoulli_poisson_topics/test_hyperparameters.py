"""Shapes and precisions in every EM engine: gradients at rest, type-II evidence, defaults, wrong settings."""

import os
import warnings
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse

from labelzoo.data import AbsentLabelsWarning, LabelData, load
from labelzoo.data.metrics import log_score
from labelzoo.held_out import baseline
from labelzoo.inference.bernoulli_poisson_topics import online_em, online_steps
from labelzoo.inference.bernoulli_poisson_topics.em import MAP_EM, VB_EM, em_config
from labelzoo.inference.bernoulli_poisson_topics.em_data import em_data
from labelzoo.inference.bernoulli_poisson_topics.em_steps import shape_root
from labelzoo.inference.bernoulli_poisson_topics.em_weights import exact_weights, prior_precision
from labelzoo.inference.bernoulli_poisson_topics.memory_plan import memory_plan
from labelzoo.inference.bernoulli_poisson_topics.minibatch import row_table, take_rows
from labelzoo.inference.bernoulli_poisson_topics.online_em import ONLINE_EM
from labelzoo.inference.bernoulli_poisson_topics.online_steps import (
    Batch,
    empty_state,
    local_state,
    online_step,
)
from labelzoo.inference.bernoulli_poisson_topics.precision_type2 import covariance
from labelzoo.inference.bernoulli_poisson_topics.stationarity import Variant, evidence_bound, log_joint, rest
from labelzoo.inference.fit import fit
from labelzoo.inference.predict import mean_prob
from labelzoo.models.bernoulli_poisson_topics_card import prepare, spec

ROWS, LABELS, TOPICS = 30, 6, 2


def toy(seed=0, rows=ROWS, missing=0.0, features=3):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, features))
    Y = (rng.random((rows, LABELS)) < 1 / (1 + np.exp(1.0 - X[:, np.arange(LABELS) % features]))).astype(
        float
    )
    if missing:
        Y[rng.random(Y.shape) < missing] = np.nan
        Y[4] = np.nan
    return LabelData.from_arrays(X, Y)


def inputs_of(data, **settings):
    return prepare(data, spec.resolve({"num_topics": TOPICS, "topic_concentration": 0.5, **settings}))


def largest(gradient):
    return max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(gradient))


# Sparse features -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["gibbs", "gibbs_counts", "nuts", "svi"])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_engines_that_need_an_array_refuse_sparse_features_in_one_line(engine, kind):
    data = LabelData.from_arrays(kind(toy().X), toy().Y.toarray())
    with pytest.raises(ValueError, match="sparse_features") as caught:
        fit("bernoulli_poisson_topics", data, engine, num_topics=2, sparse_features=True)
    message = str(caught.value)
    assert f"engine {engine!r}" in message and "map_em, vb_em, online_em" in message and "\n" not in message


# Shapes ----------------------------------------------------------------------------------------------------


def online_rest(inputs, steps, form="full", shape_of=None, precision_of=None):
    """Full batches until nothing moves; what enters the shape or the precision may be made wrong."""
    config = em_config("vb", inputs, w_step="exact", shape_floor=1e-3)
    data = take_rows(row_table(inputs), np.arange(ROWS), ROWS, jnp.float64)
    one = jnp.ones(())
    batch = Batch(data, jnp.ones(ROWS), one, one, ROWS * one)
    rng = np.random.default_rng(1)
    shape = 1.0 if inputs["shape"] is None else inputs["shape"]
    weights = jnp.asarray(0.3 * rng.standard_normal((inputs["X"].shape[1], TOPICS)))
    topics = jnp.log(jnp.asarray(rng.dirichlet(np.ones(LABELS), TOPICS).T))
    state = empty_state(weights, topics, jnp.full(TOPICS, shape), form)
    with pytest.MonkeyPatch.context() as patch:
        if shape_of is not None:
            patch.setattr(online_steps, "shape_root", shape_of)
        if precision_of is not None:
            patch.setattr(online_steps, "prior_precision", precision_of)

        @jax.jit
        def run(state):
            def step(_, state):
                return online_step(state, batch, config=config, form=form, local_sweeps=100)[0]

            return jax.lax.fori_loop(0, steps, step, state)

        state = run(state)
    local = local_state(state, data, config, 3000)
    params = {
        "topic_logits": state.log_topics.T,
        "weights": state.weights.T,
        "log_concentration": jnp.log(local.concentration),
        "log_rate": local.log_rate,
    }
    if config.learn_shape:
        params["log_shape"] = jnp.log(state.shape)
    if config.precision_prior is not None:
        params["log_precision"] = jnp.log(prior_precision(state.weights, data, config))
    return params


def flat_shape_prior(total, num_obs, config):
    return shape_root(total, num_obs, config._replace(shape_prior=(1.0, 1e-3)))


def half_the_rows(total, num_obs, config):
    return shape_root(0.5 * total, num_obs, config)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_online_shapes_rest_where_the_bound_is_flat(missing):
    inputs = inputs_of(toy(1, missing=missing), shape=None)
    variant = Variant("vb", learn_shape=True)
    slope = jax.jit(jax.grad(partial(evidence_bound, inputs=inputs, variant=variant)))
    right = online_rest(inputs, 1500)
    assert largest(slope(right)) < 1e-6, slope(right)
    assert np.abs(right["log_shape"]).max() > 0.05, "shapes have moved"
    for wrong in (flat_shape_prior, half_the_rows):
        assert largest(slope(online_rest(inputs, 600, shape_of=wrong))["log_shape"]) > 1e-2


def test_statistics_go_on_scaled_to_all_rows(monkeypatch):
    """Nothing but the scale: 20 rows and 60 more are 80, four times the statistics."""
    options = {"num_topics": TOPICS, "shape": None, "batch_size": 10, "epochs": 2}
    tree = ONLINE_EM(spec, toy(2, rows=20), rng_key=0, **options)
    taken, climb = [], online_em._climb

    def watched(inputs, config, course, key):
        # A step gives the buffers of its state away.
        taken.append((course.rows, {k: np.array(v) for k, v in course.state._asdict().items()}))
        return climb(inputs, config, course, key)

    monkeypatch.setattr(online_em, "_climb", watched)
    grown = ONLINE_EM.update(spec, tree, toy(3, rows=60), rng_key=1)
    kept = tree["engine_state"]
    for name in ("log_sum", "linear", "label_counts", "curvature"):
        np.testing.assert_allclose(taken[0][1][name], 4.0 * kept[name], rtol=1e-12)
    np.testing.assert_array_equal(taken[0][1]["shape"], kept["shape"])
    assert taken[0][0] == int(grown["engine_state"]["rows"]) == 80
    assert np.abs(grown["posterior"]["shape"].values - tree["posterior"]["shape"].values).max() > 1e-3


def test_shapes_of_map_em_are_refused_with_the_reason():
    with pytest.raises(ValueError, match=r"map_em cannot learn the shape.*grows without bound.*vb_em"):
        MAP_EM(spec, toy(), rng_key=0, num_topics=2, shape=None)


# Precisions under a gamma prior ----------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["map", "vb"])
def test_precisions_rest_where_the_objective_is_flat(algorithm):
    inputs = inputs_of(toy(3), shape=1.2, precision_prior=(2.0, 1.5))
    objective = log_joint if algorithm == "map" else evidence_bound
    slope = jax.jit(jax.grad(partial(objective, inputs=inputs, variant=Variant(algorithm))))
    params = rest(inputs, Variant(algorithm))
    assert largest(slope(params)) < 1e-6
    assert np.ptp(params["log_precision"]) > 0.05
    # The precision without the K/2 of its K weights, with the weights at their rest.
    a, b = inputs["precision_prior"]
    wrong = {**params, "log_precision": jnp.log(a / (b + (params["weights"] ** 2).sum(axis=0) / 2))}
    assert largest(slope(wrong)) > 0.1


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_online_precisions_rest_where_the_bound_is_flat(missing):
    inputs = inputs_of(toy(4, missing=missing), shape=1.2, precision_prior=(2.0, 1.5))
    slope = jax.jit(jax.grad(partial(evidence_bound, inputs=inputs, variant=Variant("vb"))))
    assert largest(slope(online_rest(inputs, 1000))) < 1e-6

    def without_half(weights, data, config):
        return 2.0 / (1.5 + (weights**2).sum(axis=1) / 2)

    assert largest(slope(online_rest(inputs, 600, precision_of=without_half))["weights"]) > 1e-2


# Type II ---------------------------------------------------------------------------------------------------


def evidence(log_tau, X, omega, target):
    """log of the integral over w of the model target / omega = X w + noise / sqrt(omega), by (row, row)."""
    total = 0.0
    for k in range(omega.shape[1]):
        cover = jnp.diag(1.0 / omega[:, k]) + (X / jnp.exp(log_tau)) @ X.T
        seen = target[:, k] / omega[:, k]
        total -= 0.5 * (jnp.linalg.slogdet(cover)[1] + seen @ jnp.linalg.solve(cover, seen))
    return total


def type2_problem(features, rows=20):
    rng = np.random.default_rng(6)
    inputs = inputs_of(toy(5, rows=rows, features=features), shape=1.0)
    omega = jnp.asarray(rng.gamma(0.8, size=(rows, TOPICS)) + 0.02)
    signal = np.asarray(inputs["X"]) @ (
        rng.standard_normal((features + 1, TOPICS)) * (np.arange(features + 1) % 2)[:, None]
    )
    target = omega * jnp.asarray(signal) + jnp.sqrt(omega) * rng.standard_normal(omega.shape)
    return em_data(inputs), omega, target, np.asarray(inputs["X"])


def type2_step(data, omega, target, squares_alone=False):
    weights = exact_weights(data, omega, target, data.precision)
    squares = (weights**2).sum(axis=1)
    variance = sum(covariance(data, omega[:, k])[0] for k in range(TOPICS))
    return TOPICS / (squares if squares_alone else squares + variance)


@pytest.mark.parametrize("features", [4, 24])
def test_type_two_never_lowers_the_evidence_and_rests_where_it_is_flat(features):
    data, omega, target, X = type2_problem(features)
    value = jax.jit(partial(evidence, X=X, omega=omega, target=target))
    slope = jax.jit(jax.grad(partial(evidence, X=X, omega=omega, target=target)))
    trace, first = [value(jnp.log(data.precision))], data
    for _ in range(40):
        # The gradient by log tau is (K - tau sum (mu^2 + Sigma)) / 2: zero where the step stands still.
        new = type2_step(data, omega, target)
        own = 0.5 * TOPICS * (1.0 - data.precision / new)
        np.testing.assert_allclose(own, slope(jnp.log(data.precision)), rtol=1e-7, atol=1e-8)
        data = data._replace(precision=new)
        trace.append(value(jnp.log(new)))
    assert (np.diff(trace) > -1e-9).all() and trace[-1] > trace[0] + 0.5
    # The joint mode is no such thing: it runs away, and the evidence with it.
    wrong, course = first, []
    for _ in range(40):
        wrong = wrong._replace(precision=type2_step(wrong, omega, target, squares_alone=True))
        course.append(value(jnp.log(wrong.precision)))
    assert course[-1] < trace[-1] - 0.3 and wrong.precision.max() > 1e6


@pytest.mark.parametrize("features", [4, 24])
@pytest.mark.parametrize("keep", [True, False])
def test_variances_are_the_diagonal_of_the_inverse(features, keep):
    data, omega, _, X = type2_problem(features)
    if keep:
        rows = LabelData.from_arrays(
            sparse.csr_array(toy(5, rows=20, features=features).X), np.zeros((20, LABELS))
        )
        inputs = inputs_of(rows, shape=1.0, sparse_features=True)
        data, X = em_data(inputs), inputs["X"].toarray()
        assert data.X is None
    for k in range(TOPICS):
        inverse = np.linalg.inv((X * np.asarray(omega)[:, [k]]).T @ X + np.diag(data.precision))
        variance, spread = covariance(data, omega[:, k])
        np.testing.assert_allclose(variance, np.diag(inverse), rtol=1e-9)
        log_det = -np.linalg.slogdet(inverse)[1] - np.log(data.precision).sum()
        np.testing.assert_allclose(spread, log_det, rtol=1e-9)
    own = np.mean([covariance(data, omega[:, k])[0] for k in range(TOPICS)], axis=0)
    shared = covariance(data, omega.mean(axis=1))[0]
    assert (shared <= own * (1 + 1e-12)).all() and (shared < 0.999 * own).any()


@pytest.mark.parametrize("engine", [VB_EM, MAP_EM])
def test_type_two_tells_noise_from_signal(engine):
    rng = np.random.default_rng(7)
    X = rng.standard_normal((600, 8))
    rate = np.exp(np.stack([X[:, 0], X[:, 1], X[:, 0] - X[:, 1]] * 3, axis=1) * 1.5 - 1.0)
    data = LabelData.from_arrays(X, (rng.random(rate.shape) < -np.expm1(-rate)).astype(np.int8))
    options = {"num_topics": 6, "rng_key": 0, "scale_rows": False, "precision_update": "type2"}
    trees = {w_step: engine(spec, data, w_step=w_step, **options) for w_step in ("exact", "newton")}
    for tree in trees.values():
        tau = tree["posterior"]["precision"].values[0, 0]
        assert tree.attrs["converged"] == "yes" and tau.shape == (9,)
        assert tau[2:8].min() > 5 * tau[:2].max(), tau


def test_type_two_is_refused_beside_a_prior_or_under_another_name():
    with pytest.raises(ValueError, match="precision_update must be one of prior, type2, got 'ard'"):
        VB_EM(spec, toy(), rng_key=0, num_topics=2, precision_update="ard")
    with pytest.raises(ValueError, match="leave precision_prior out"):
        VB_EM(spec, toy(), rng_key=0, num_topics=2, precision_update="type2", precision_prior=(1.0, 1.0))
    with pytest.raises(ValueError, match=r"precision_update='type2': a \(feature, feature\) system"):
        wide = LabelData.from_arrays(sparse.csr_array(np.eye(20, 500)), np.ones((20, 4), np.int8))
        VB_EM(spec, wide, rng_key=0, num_topics=2, precision_update="type2", max_bytes=2**20)
    inputs = inputs_of(toy())
    more = sum(memory_plan(inputs, precision_update="type2").values()) - sum(memory_plan(inputs).values())
    assert more == 3 * 8 * 4**2 + 2 * 8 * ROWS * 4


# Convergence -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", [VB_EM, MAP_EM])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_rule_and_not_the_count_stops_a_run(engine, dtype):
    tree = engine(spec, toy(8, rows=200), rng_key=0, num_topics=4, dtype=dtype)
    assert tree.attrs["converged"] == "yes" and tree.attrs["num_sweeps"] < 1000
    assert "relative change of the objective below 1e-05" in tree.attrs["message"]
    short = engine(spec, toy(8, rows=200), rng_key=0, num_topics=4, dtype=dtype, max_iter=3)
    assert short.attrs["converged"] == "no" and "stopped at max_iter=3" in short.attrs["message"]


DATA = Path(__file__).parents[3] / os.environ.get("LABELZOO_DATA", "../shared/data")
SETS = ["flags", "emotions", "birds", "genbase", "medical", "enron", "scene", "yeast", "corel5k", "bibtex"]


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_defaults_settle_and_predict_better_than_frequencies(name):
    """On the published test rows, by three standard errors of the difference a row (flags: two, 65 rows)."""
    path = DATA / "npz" / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"no {path}: set LABELZOO_DATA to the folder of the data sets")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AbsentLabelsWarning)
        # One row of genbase stands in both parts of its published split.
        warnings.filterwarnings("ignore", message=".*rows of train_index dropped from test_index")
        train, test = load(str(path)).published_split()
    for engine in ("vb_em", "map_em"):
        tree = fit("bernoulli_poisson_topics", train, engine)
        assert tree.attrs["converged"] == "yes", tree.attrs["message"]
        gain = log_score(test, mean_prob(tree, test)).each - log_score(test, baseline(train, test)).each
        gain = gain[~np.isnan(gain)]
        error = gain.std(ddof=1) / np.sqrt(len(gain))
        assert gain.mean() > (2.0 if name == "flags" else 3.0) * error, (engine, gain.mean(), error)
