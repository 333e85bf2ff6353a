"""Online EM: a full batch is a sweep, minibatches reach the optimum, states go on, bad batches are named."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse

from labelzoo.data import LabelData
from labelzoo.inference.bernoulli_poisson_topics.em import VB_EM, em_config
from labelzoo.inference.bernoulli_poisson_topics.em_data import em_data, times, weighted_gram
from labelzoo.inference.bernoulli_poisson_topics.em_objective import objective
from labelzoo.inference.bernoulli_poisson_topics.em_steps import STEPS, sweep
from labelzoo.inference.bernoulli_poisson_topics.minibatch import row_table, take_rows
from labelzoo.inference.bernoulli_poisson_topics.online_em import ONLINE_EM, OPTIONS, some_rows
from labelzoo.inference.bernoulli_poisson_topics.online_steps import (
    Batch,
    empty_state,
    local_state,
    majorant,
    online_step,
)
from labelzoo.inference.predict import mean_prob
from labelzoo.models.bernoulli_poisson_topics_card import prepare, spec

PARTS = {name: STEPS[name] for name in ("weights", "embedding", "topics", "shape")}


def toy(seed=0, rows=60, labels=9, features=6, missing=0.0, density=0.5):
    rng = np.random.default_rng(seed)
    X = sparse.csr_array((rng.random((rows, features)) < density) * rng.random((rows, features)))
    chance = 1 / (1 + np.exp(2.0 - 4.0 * X.toarray()[:, np.arange(labels) % features]))
    Y = (rng.random((rows, labels)) < chance).astype(float)
    if missing:
        Y[rng.random(Y.shape) < missing] = np.nan
        Y[5] = np.nan
    return LabelData.from_arrays(X, Y)


def setup(form, missing=0.0, keep=True, learn_shape=False, precision_prior=None, seed=0):
    settings = {"num_topics": 4, "sparse_features": keep, "precision_prior": precision_prior}
    inputs = prepare(
        toy(seed, missing=missing), spec.resolve({**settings, "shape": None if learn_shape else 1.0})
    )
    w_step = "exact" if form == "full" else "cg"
    config = em_config("vb", inputs, w_step=w_step, shape_floor=1e-3)
    rng = np.random.default_rng(1)
    weights = jnp.asarray(rng.standard_normal((inputs["X"].shape[1], 4)))
    log_topics = jnp.log(jnp.asarray(rng.dirichlet(np.ones(9), 4).T))
    return inputs, config, empty_state(weights, log_topics, jnp.full(4, 1.3 if learn_shape else 1.0), form)


def whole(inputs, size=None, gain=1.0):
    rows = np.arange(60)
    size = size or 60
    data = take_rows(row_table(inputs), rows, size, jnp.float64)
    real = jnp.asarray(np.arange(size) < 60, float)
    return Batch(data, real, jnp.ones(()), jnp.asarray(gain), jnp.asarray(60.0))


@pytest.mark.parametrize("form", ["full", "diagonal"])
@pytest.mark.parametrize(
    ("missing", "keep", "learn_shape", "precision_prior", "size"),
    [
        (0.0, True, False, None, 60),
        (0.0, False, True, None, 77),
        (0.3, True, True, None, 77),
        (0.3, False, False, (2.0, 1.0), 60),
    ],
)
def test_a_full_batch_with_gain_one_is_a_sweep_of_vb_em(
    form, missing, keep, learn_shape, precision_prior, size
):
    inputs, config, state = setup(form, missing, keep, learn_shape, precision_prior)
    data = em_data(inputs)
    assert (data.X is None) == keep
    before = local_state(state, data, config, 3)
    after = sweep(before, data, config, PARTS)
    new, value = online_step(state, whole(inputs, size), config=config, form=form, local_sweeps=3)
    np.testing.assert_allclose(new.weights, after.weights, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(new.log_topics, after.log_topics, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(new.shape, after.shape, rtol=1e-9)
    # The bound on the labels: the objective of the batch engine without the terms of the globals.
    rest = objective(before, data, config) - objective(
        before._replace(
            positive_term=0.0,
            concentration=before.concentration[:0],
            psi=before.psi[:0],
            log_rate=before.log_rate[:0],
            log_embedding=before.log_embedding[:0],
            log_mass=None if missing == 0 else before.log_mass[:0],
        ),
        data,
        config,
    )
    np.testing.assert_allclose(60 * value, rest, rtol=1e-9)


def test_two_halves_with_a_gain_of_one_half_are_the_whole():
    inputs, config, state = setup("full")
    table = row_table(inputs)
    left, right = np.arange(0, 60, 2), np.arange(1, 60, 2)
    halves = [
        Batch(
            take_rows(table, rows, 30, jnp.float64), jnp.ones(30), jnp.asarray(2.0), gain, jnp.asarray(60.0)
        )
        for rows, gain in ((left, jnp.asarray(1.0)), (right, jnp.asarray(0.5)))
    ]
    once, _ = online_step(state, halves[0], config=config, form="full", local_sweeps=3)
    # The second half is read at the parameters of the first step's start, so that both are of one point.
    there = once._replace(weights=state.weights, log_topics=state.log_topics)
    twice, _ = online_step(there, halves[1], config=config, form="full", local_sweeps=3)
    full, _ = online_step(state, whole(inputs), config=config, form="full", local_sweeps=3)
    for name in ("weights", "log_topics", "curvature", "linear"):
        np.testing.assert_allclose(getattr(twice, name), getattr(full, name), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("keep", [True, False])
def test_the_diagonal_lies_above_the_curvature(keep):
    inputs, _, _ = setup("diagonal", keep=keep)
    data, rng = em_data(inputs), np.random.default_rng(3)
    omega = jnp.asarray(rng.gamma(0.5, size=(60, 4)))
    above = majorant(data, omega)
    for k in range(4):
        gap = jnp.diag(above[:, k]) - weighted_gram(data, omega[:, k])
        assert jnp.linalg.eigvalsh(gap).min() > -1e-10
        assert jnp.linalg.eigvalsh(0.3 * jnp.diag(above[:, k]) - weighted_gram(data, omega[:, k])).min() < 0


@pytest.mark.parametrize("form", ["full", "diagonal"])
def test_the_point_of_rest_of_the_batch_engine_is_one_of_online_steps(form):
    """Small gains from the optimum's own statistics stay there; from near it they come back."""
    inputs, config, state = setup(form)
    batch = whole(inputs)
    step = jax.jit(lambda s, b: online_step(s, b, config=config, form=form, local_sweeps=40))
    best = state
    for _ in range(1500):
        best, top = step(best, batch)
    resting, value = step(best, batch._replace(gain=jnp.asarray(0.3)))
    np.testing.assert_allclose(resting.weights, best.weights, atol=1e-5)
    np.testing.assert_allclose(value, top, rtol=1e-8)
    push = 0.05 * jax.random.normal(jax.random.key(5), best.weights.shape)
    near = best._replace(weights=best.weights + push, log_topics=best.log_topics + 0.0)
    for _ in range(300):
        near, value = step(near, batch._replace(gain=jnp.asarray(0.3)))
    assert jnp.linalg.norm(near.weights - best.weights) < 0.1 * jnp.linalg.norm(push)
    np.testing.assert_allclose(value, top, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["full", "diagonal"])
def test_minibatches_predict_as_the_batch_engine_does(form):
    data, new = toy(1, rows=900), toy(2, rows=300)
    online = ONLINE_EM(
        spec, data, rng_key=0, num_topics=9, batch_size=90, epochs=15, weight_statistics=form, average=True
    )
    batch = VB_EM(spec, data, rng_key=0, num_topics=9, max_iter=200)
    assert online.attrs["weight_statistics"] == form and online.attrs["num_steps"] == 150
    truth = new.Y.toarray()

    def score(tree):
        p = np.clip(mean_prob(tree, new), 1e-9, 1 - 1e-9)
        return (truth * np.log(p) + (1 - truth) * np.log1p(-p)).sum() / len(truth)

    frequency = np.clip(data.Y.toarray().mean(axis=0), 1e-9, 1)
    plain = (truth * np.log(frequency) + (1 - truth) * np.log1p(-frequency)).sum() / len(truth)
    assert score(online) > score(batch) - 0.15 * (score(batch) - plain), (score(online), score(batch), plain)
    assert online["posterior"]["embedding"].shape == (1, 1, 900, 9)
    assert "engine_state" in online.children


def test_batches_of_sparse_rows_are_the_rows():
    inputs, *_ = setup("full", missing=0.3)
    data, table = em_data(inputs), row_table(inputs)
    right = jnp.asarray(np.random.default_rng(0).standard_normal((7, 3)))
    rows = np.array([3, 11, 12, 59, 5])
    part = take_rows(table, rows, 8, jnp.float64)
    assert part.X is None
    product = np.asarray(times(part, right))
    np.testing.assert_allclose(product[:5], times(data, right)[rows], atol=1e-12)
    assert (product[5:] == 0).all()
    inputs = {**inputs, "num_topics": 3}
    few = some_rows(inputs, 20, jax.random.key(1))
    assert few["X"].shape[0] == 20 and np.asarray(few["positives"].row).max() < 20
    assert few["negatives"].base.shape == (20,)


def test_a_wide_sparse_table_needs_no_square_array():
    rng = np.random.default_rng(4)
    X = sparse.random_array((400, 30_000), density=0.001, rng=rng, format="csr")
    data = LabelData.from_arrays(X, (rng.random((400, 12)) < 0.2).astype(np.int8))
    tree = ONLINE_EM(spec, data, rng_key=0, num_topics=3, batch_size=100, epochs=2, start="random")
    assert tree.attrs["weight_statistics"] == "diagonal"
    assert np.isfinite(mean_prob(tree, data.subset(rows=np.arange(20)))).all()
    with pytest.raises(
        ValueError, match=r"weight_statistics='full': A_k .* GiB; weight_statistics='diagonal'"
    ):
        ONLINE_EM(spec, data, rng_key=0, num_topics=3, weight_statistics="full", max_bytes=2**30)


def test_more_rows_go_on_from_the_state():
    whole_data = toy(6, rows=600)
    first, later = whole_data.subset(rows=np.arange(300)), whole_data.subset(rows=np.arange(300, 600))
    options = {"num_topics": 9, "batch_size": 60, "epochs": 4}
    tree = ONLINE_EM(spec, first, rng_key=0, **options)
    grown = ONLINE_EM.update(spec, tree, later, rng_key=1)
    assert (grown.attrs["batches"], grown.attrs["rows_seen"], grown.attrs["num_steps"]) == (2, 600, 40)
    assert int(grown["engine_state"]["rows"]) == 600
    np.testing.assert_array_equal(
        grown["constant_data"]["prior_precision"], tree["constant_data"]["prior_precision"]
    )
    moved = np.abs(mean_prob(grown, first) - mean_prob(tree, first)).mean()
    assert 1e-4 < moved < 0.1, "the state is used, and so are the new rows"
    # Counts of both parts: each row of statistics holds about as many counts as all rows have positives.
    counts = grown["engine_state"]["label_counts"].values.sum()
    assert 0.9 * whole_data.num_positives < counts < 3 * whole_data.num_positives


def test_a_batch_with_labels_beyond_the_fitted_width_is_refused_by_name():
    tree = ONLINE_EM(spec, toy(7), rng_key=0, num_topics=3, epochs=1)
    with pytest.raises(ValueError, match=r"labels of the rows before.*9 before, 10 now"):
        ONLINE_EM.update(spec, tree, toy(8, labels=10), rng_key=0)


def test_labels_never_seen_keep_their_prior_share():
    data = toy(9)
    Y = np.column_stack([data.Y.toarray(), np.zeros(60, np.int8)])
    tree = ONLINE_EM(
        spec, LabelData(data.X, Y), rng_key=0, num_topics=3, topic_concentration=0.02, batch_size=20, epochs=2
    )
    counts = tree["engine_state"]["label_counts"].values
    assert (counts[-1] == 0).all()
    total = (counts + 0.02).sum(axis=0)
    np.testing.assert_allclose(tree["posterior"]["topics"].values[0, 0][:, -1], 0.02 / total, rtol=1e-9)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("batch_size", 0),
        ("epochs", 1.5),
        ("local_sweeps", True),
        ("step_power", 0.5),
        ("step_power", 1.2),
        ("step_offset", 0.0),
        ("average", 1),
        ("weight_statistics", "half"),
        ("dtype", "float16"),
        ("max_bytes", -1),
        ("cg_steps", 0),
    ],
)
def test_bad_options_are_named(option, value):
    assert option in OPTIONS
    with pytest.raises(ValueError, match=option):
        ONLINE_EM(spec, toy(10), rng_key=0, num_topics=3, **{option: value})
