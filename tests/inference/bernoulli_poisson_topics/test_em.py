"""EM engines: monotone objectives, resting points, missing cells, memory, options and real data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from labelzoo.data import LabelData
from labelzoo.data.metrics import per_example_auc
from labelzoo.inference.bernoulli_poisson_topics import em_data as layout
from labelzoo.inference.bernoulli_poisson_topics.em import MAP_EM, OPTIONS, VB_EM, begin, em_config, run_em
from labelzoo.inference.bernoulli_poisson_topics.em_data import em_data, times, transposed_times
from labelzoo.inference.bernoulli_poisson_topics.em_objective import constant, objective
from labelzoo.inference.bernoulli_poisson_topics.em_steps import expected_counts, sweep
from labelzoo.inference.bernoulli_poisson_topics.em_weights import (
    conjugate_gradient_weights,
    solve_weights,
    update_weights,
)
from labelzoo.inference.bernoulli_poisson_topics.starts import make_start, nonnegative_factors
from labelzoo.inference.bernoulli_poisson_topics.stationarity import (
    CASES,
    Variant,
    evidence_bound,
    hide_cells,
    log_joint,
    rest,
)
from labelzoo.inference.predict import mean_prob
from labelzoo.models.bernoulli_poisson_topics_card import predict, prepare, simulate, spec
from labelzoo.models.label_cells import exposed_mass, missing_embedding

SIZES = {"num_obs": 30, "num_features": 4, "num_labels": 7, "num_topics": 3}


def tiny_data(seed=0, missing=0.0, **sizes):
    data, _ = simulate(jax.random.key(seed), {**SIZES, **sizes}, shape=1.0, topic_concentration=0.4)
    if not missing:
        return data
    rng = np.random.default_rng(seed)
    Y = data.Y.toarray().astype(float)
    Y[rng.random(Y.shape) < missing] = np.nan
    Y[2] = np.nan
    return LabelData.from_arrays(data.X, Y)


def inputs_of(data, **settings):
    return prepare(data, spec.resolve({"num_topics": SIZES["num_topics"], "shape": 1.0, **settings}))


def run(algorithm, inputs, **options):
    return run_em(algorithm, inputs, **{**OPTIONS, "rng_key": jax.random.key(0), **options})


@pytest.mark.parametrize(
    ("missing", "algorithm", "settings", "options"),
    [
        (0.0, "map", {}, {}),
        (0.3, "vb", {}, {"w_step": "cg"}),
        (0.0, "vb", {"shape": None, "precision_prior": (1.0, 0.5)}, {"w_step": "cg", "cg_steps": 1}),
        (0.8, "vb", {}, {"w_step": "exact"}),
        (0.3, "map", {"shape": 0.2, "topic_concentration": 2.0, "intercept": False}, {"start": "random"}),
        (0.0, "map", {"prior_scale": 30.0}, {"cg_steps": 6}),
    ],
)
def test_objectives_rise_at_every_sweep(missing, algorithm, settings, options):
    inputs = inputs_of(tiny_data(1, missing), **settings)
    trace = run(algorithm, inputs, max_iter=60, tolerance=0.0, **options).optimization["objective"]
    assert trace[-1] > trace[0]
    assert (np.diff(trace) / np.abs(trace[1:])).min() > -1e-9


@pytest.mark.parametrize("missing", [False, True])
def test_reported_objectives_are_those_of_the_program(missing):
    inputs = inputs_of(tiny_data(2))
    seen = hide_cells(inputs) if missing else inputs
    data = em_data(seen)
    assert (data.exposure is not None) == missing
    for algorithm, reference in (("map", log_joint), ("vb", evidence_bound)):
        config = em_config(algorithm, seen)
        first = make_start(seen, jax.random.key(1), "ridge")
        state = jax.jit(lambda f, d, c=config: sweep(begin(f, d, c, 1.0), d, c))(first, data)
        params = {
            "topic_logits": state.log_topics.T,
            "weights": state.weights.T,
            "log_embedding": state.log_embedding,
            "log_concentration": jnp.log(state.concentration),
            "log_rate": state.log_rate,
        }
        expected = jax.jit(lambda p, r=reference, a=algorithm: r(p, inputs, Variant(a, missing=missing)))(
            params
        )
        value = objective(state, data, config) + constant(state, data, config)
        np.testing.assert_allclose(value, expected, rtol=1e-10)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_gradient_vanishes_where_the_sweeps_rest_and_not_for_mutants(case):
    data, _ = simulate(jax.random.key(3), {**spec.tiny, "num_obs": 8}, shape=1.0, topic_concentration=0.5)
    inputs = prepare(data, spec.resolve({"num_topics": 2}))
    gradient = jax.jit(jax.grad(lambda params: case.objective(params, inputs)))

    def largest(params):
        return max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(gradient(params)))

    residual = largest(case.fixed_point(inputs))
    assert residual < 1e-6, residual
    for name, mutant in case.mutants:
        assert largest(mutant(inputs)) > 1e-3, name


def test_learned_precisions_rest_where_the_gradient_vanishes():
    inputs = inputs_of(tiny_data(4), precision_prior=(2.0, 0.7))
    variant = Variant("vb")
    params = rest(inputs, variant)
    gradient = jax.jit(jax.grad(lambda p: evidence_bound(p, inputs, variant)))(params)
    assert set(params) >= {"log_precision", "weights"}
    assert max(float(jnp.abs(g).max()) for g in jax.tree.leaves(gradient)) < 1e-6


def test_conjugate_gradients_from_zero_may_lower_what_warm_steps_raise():
    inputs = inputs_of(tiny_data(5, num_features=12))
    data, config = em_data(inputs), em_config("map", inputs, w_step="cg")
    state = begin(make_start(inputs, jax.random.key(0), "ridge"), data, config, 1.0)
    advance = jax.jit(lambda s: sweep(s, data, config))
    for _ in range(40):
        state = advance(state)
    before = float(objective(state, data, config))
    assert float(objective(advance(state), data, config)) >= before
    cold = state._replace(weights=jnp.zeros_like(state.weights), psi=jnp.zeros_like(state.psi))
    omega, target = jnp.full_like(state.psi, 0.2), 0.5 * (state.row_counts - 1.0)
    weights, psi = conjugate_gradient_weights(data, omega, target, data.precision, cold, 2)
    assert float(objective(state._replace(weights=weights, psi=psi), data, config)) < before


@pytest.mark.parametrize("num_obs", [30, 5])
def test_exact_weights_solve_the_normal_equations(num_obs):
    rng = np.random.default_rng(0)
    X, omega = rng.standard_normal((num_obs, 9)), rng.random((num_obs, 3))
    target, tau = rng.standard_normal((num_obs, 3)), rng.random(9) + 0.1
    weights = solve_weights(jnp.asarray(X), jnp.asarray(omega), jnp.asarray(target), jnp.asarray(tau))
    for k in range(3):
        left = (X.T * omega[:, k]) @ X + np.diag(tau)
        np.testing.assert_allclose(left @ weights[:, k], X.T @ target[:, k], atol=1e-10)


def weight_problem(scale):
    """A state with rare counts and weights far from their best, and what the weight step raises."""
    rng = np.random.default_rng(5)
    Y = rng.random((300, 4)) < 0.02
    Y[0] = True
    table = LabelData.from_arrays(rng.standard_normal((300, 5)), Y.astype(float))
    inputs = prepare(table, spec.resolve({"num_topics": 4, "shape": 1.0}))
    data = em_data(inputs)
    state = begin(make_start(inputs, jax.random.key(0)), data, em_config("map", inputs), 1.0)
    weights = jnp.asarray(scale * rng.standard_normal(state.weights.shape))
    state = state._replace(weights=weights, psi=times(data, weights), row_counts=jnp.asarray(Y.astype(float)))

    def value(weights):
        psi = data.X @ weights
        fit = state.row_counts * psi - (state.row_counts + 1.0) * jax.nn.softplus(psi)
        return fit.sum() - 0.5 * (data.precision[:, None] * weights**2).sum()

    return state, data, lambda w_step: em_config("map", inputs, w_step=w_step), value


def test_newton_steps_reach_rest_sooner_where_labels_are_rare():
    state, data, config_of, value = weight_problem(0.0)
    left = {}
    for w_step in ("newton", "exact"):
        moved, config = state, config_of(w_step)
        step = jax.jit(lambda s, c=config: update_weights(s, data, c))
        for _ in range(8):
            moved = step(moved)
        left[w_step] = float(jnp.abs(jax.grad(value)(moved.weights)).max())
    assert left["newton"] < 0.1 * left["exact"], left


@pytest.mark.parametrize("scale", [3.0, 30.0])
def test_newton_steps_rise_from_far_away(scale):
    state, data, config_of, value = weight_problem(scale)
    config, trace = config_of("newton"), []
    for _ in range(30):
        trace.append(float(value(state.weights)))
        state = update_weights(state, data, config)
        np.testing.assert_allclose(state.psi, data.X @ state.weights, rtol=1e-9, atol=1e-9)
    assert np.diff(trace).min() >= -1e-9 * abs(trace[-1])


def test_many_conjugate_gradient_steps_reach_the_exact_weights():
    inputs = inputs_of(tiny_data(6, 0.3))
    data = em_data(inputs)
    state = begin(make_start(inputs, jax.random.key(0)), data, em_config("vb", inputs), 1.0)
    exact = sweep(state, data, em_config("vb", inputs, w_step="exact"))
    iterative = sweep(state, data, em_config("vb", inputs, w_step="cg", cg_steps=12))
    np.testing.assert_allclose(iterative.weights, exact.weights, rtol=1e-7, atol=1e-9)


def test_exposures_agree_with_the_lists_of_the_program():
    for seed, missing in ((0, 0.2), (1, 0.9)):
        inputs = inputs_of(tiny_data(seed, missing))
        data, rng = em_data(inputs), np.random.default_rng(seed)
        topics = rng.dirichlet(np.ones(7), 3)
        embedding = rng.gamma(1.0, size=(30, 3))
        ones = jnp.ones(inputs["positives"].row.shape[0])
        mass = exposed_mass(jnp.asarray(topics), ones, inputs["positives"], inputs["negatives"])
        np.testing.assert_allclose(
            layout.observed_by_row(jnp.asarray(topics.T), data.exposure), mass, atol=1e-12
        )
        hidden = missing_embedding(jnp.asarray(embedding), inputs["positives"], inputs["negatives"], 7)
        np.testing.assert_allclose(
            layout.missing_by_label(jnp.asarray(embedding), data.exposure, 7), hidden.T, atol=1e-10
        )


def test_positives_only_treats_missing_cells_as_zeros():
    data = tiny_data(7, 0.4)
    zeros = LabelData.from_arrays(data.X, data.Y.toarray())
    treated = run("vb", inputs_of(data), positives_only=True, max_iter=20)
    expected = run("vb", inputs_of(zeros), max_iter=20)
    masked = run("vb", inputs_of(data), max_iter=20)
    np.testing.assert_allclose(treated.draws["topics"], expected.draws["topics"], rtol=1e-8)
    assert np.abs(masked.draws["topics"] - expected.draws["topics"]).max() > 1e-3


def test_sparse_and_dense_features_give_the_same_products(monkeypatch):
    rng = np.random.default_rng(1)
    X = np.where(rng.random((40, 30)) < 0.03, rng.standard_normal((40, 30)), 0.0)
    inputs = inputs_of(tiny_data(0, num_obs=40))
    assert (X != 0).mean() < layout.SPARSE_BELOW
    sparse = em_data({**inputs, "X": X})
    monkeypatch.setattr(layout, "SPARSE_BELOW", 0.0)
    dense = em_data({**inputs, "X": X})
    assert sparse.sparse is not None and dense.sparse is None
    right, left = jnp.asarray(rng.standard_normal((30, 3))), jnp.asarray(rng.standard_normal((40, 3)))
    np.testing.assert_allclose(times(sparse, right), times(dense, right), atol=1e-12)
    np.testing.assert_allclose(transposed_times(sparse, left), transposed_times(dense, left), atol=1e-12)


def test_counts_do_not_depend_on_the_blocks_and_survive_underflow(monkeypatch):
    inputs = inputs_of(tiny_data(8))
    rng = np.random.default_rng(2)
    log_topics = jnp.log(jnp.asarray(rng.dirichlet(np.ones(7), 3).T))
    log_u = jnp.asarray(rng.standard_normal((30, 3)))
    whole = expected_counts(log_topics, log_u, em_data(inputs).positives)
    monkeypatch.setattr(layout, "BLOCK_VALUES", 1)
    row, label = np.asarray(inputs["positives"].row), np.asarray(inputs["positives"].label)
    blocks = layout.to_blocks(row, label, np.ones(row.size), 10**9, jnp.float64)
    for a, b in zip(whole, expected_counts(log_topics, log_u, blocks), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    rows, _, term = expected_counts(log_topics, log_u - 2000.0, blocks)
    np.testing.assert_allclose(rows.sum(axis=1), np.bincount(row, minlength=30), rtol=1e-12)
    assert np.isfinite(term)


def test_no_array_of_rows_by_labels_or_positives_by_topics(monkeypatch):
    monkeypatch.setattr(layout, "BLOCK_VALUES", 64 * 11)
    data = tiny_data(9, num_obs=211, num_labels=97, num_topics=3)
    inputs = inputs_of(data, num_topics=11)
    cells, config = em_data(inputs), em_config("vb", inputs)
    state = begin(make_start(inputs, jax.random.key(0)), cells, config, 1.0)
    text = jax.jit(lambda s, d: sweep(s, d, config)).lower(state, cells).as_text()
    positives = inputs["positives"].row.shape[0]
    assert positives > 2 * 64
    for absent in ("211x97x", "97x211x", f"{positives}x11x"):
        assert absent not in text
    assert "211x11x" in text


def test_engines_return_trees_that_predict_and_repeat():
    data = tiny_data(10, 0.2)
    trees = [
        engine(spec, data, rng_key=4, num_topics=3, max_iter=30, **extra)
        for engine, extra in ((MAP_EM, {}), (VB_EM, {"shape": None}), (VB_EM, {"shape": None}))
    ]
    for tree in trees:
        assert tree["posterior"]["topics"].shape == (1, 1, 3, 7)
        assert np.isfinite(mean_prob(tree, data)).all()
    assert (trees[0]["posterior"]["shape"].values == 1.0).all()
    assert len(np.unique(trees[1]["posterior"]["shape"].values)) == 3
    np.testing.assert_array_equal(
        trees[1]["posterior"]["weights"].values, trees[2]["posterior"]["weights"].values
    )


def test_single_precision_stays_close_and_returns_double():
    inputs = inputs_of(tiny_data(11, 0.2))
    double = run("vb", inputs, max_iter=40, tolerance=0.0)
    single = run("vb", inputs, max_iter=40, tolerance=0.0, dtype="float32")
    assert single.draws["topics"].dtype == np.float64
    np.testing.assert_allclose(
        single.optimization["objective"][-1], double.optimization["objective"][-1], rtol=1e-4
    )


@pytest.mark.parametrize(
    ("algorithm", "settings", "options", "message"),
    [
        ("map", {"shape": None}, {}, "without bound"),
        ("vb", {}, {"w_step": "lbfgs"}, "w_step"),
        ("vb", {}, {"cg_steps": 0}, "cg_steps"),
        ("vb", {}, {"dtype": "float16"}, "dtype"),
        ("vb", {}, {"start": "warm"}, "start must be one of"),
        ("vb", {}, {"start": "label"}, "num_topics == 7"),
        ("vb", {"shape": None}, {"shape_floor": 2.0}, "shape_floor"),
        ("vb", {}, {"max_iter": 0}, "max_iter"),
    ],
)
def test_bad_options_are_named(algorithm, settings, options, message):
    with pytest.raises(ValueError, match=message):
        run(algorithm, inputs_of(tiny_data(12), **settings), **options)


def test_implicit_factors_fit_as_those_of_the_formed_prediction():
    rng = np.random.default_rng(3)
    X, B = rng.random((40, 6)), rng.random((6, 15))
    embedding, topics = nonnegative_factors(X, B, 5, rng, sweeps=60)
    assert (embedding > 0).all() and (topics > 0).all()
    left, values, right = np.linalg.svd(X @ B)
    best = np.linalg.norm(values[5:])
    residual = np.linalg.norm(X @ B - embedding @ topics)
    assert best <= residual < 0.1 * np.linalg.norm(X @ B)


def test_topics_that_are_labels_are_logistic_regressions():
    rng = np.random.default_rng(4)
    X, weights = rng.standard_normal((20, 5)), 3 * rng.standard_normal((6, 5))
    draw = {"topics": jnp.eye(6), "weights": jnp.asarray(weights), "shape": jnp.ones(6)}
    probs = predict(draw, jnp.asarray(X), {"intercept": False, "scale_rows": False})
    np.testing.assert_allclose(probs, 1 / (1 + np.exp(-X @ weights.T)), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("name", "floor"), [("emotions", 0.55), ("corel5k", 0.85)])
def test_defaults_work_on_real_data(shared_data, name, floor):
    data = LabelData.from_npz(shared_data / "npz" / f"{name}.npz")
    train, test = data.subset(rows=np.arange(min(400, data.num_rows))), data.subset(rows=np.arange(400, 550))
    tree = MAP_EM(spec, train, rng_key=0, num_topics=min(12, data.num_labels))
    trace = tree["optimization"]["objective"].values
    assert (np.diff(trace) >= -1e-9 * np.abs(trace[1:])).all()
    assert per_example_auc(test.Y, mean_prob(tree, test)).value > floor - 0.1
