"""Sparse features from `prepare` to prediction, and the shapes of every array of a sweep."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse

from labelzoo.data import LabelData
from labelzoo.inference.bernoulli_poisson_topics import em_data as layout
from labelzoo.inference.bernoulli_poisson_topics.em import MAP_EM, OPTIONS, VB_EM, begin, em_config, run_em
from labelzoo.inference.bernoulli_poisson_topics.em_data import em_data
from labelzoo.inference.bernoulli_poisson_topics.em_gradient import gradient_norms
from labelzoo.inference.bernoulli_poisson_topics.em_objective import objective
from labelzoo.inference.bernoulli_poisson_topics.em_state import WStep
from labelzoo.inference.bernoulli_poisson_topics.em_steps import sweep
from labelzoo.inference.bernoulli_poisson_topics.starts import make_start
from labelzoo.inference.predict import mean_prob, predict_topk
from labelzoo.models import bernoulli_poisson_topics_card as card
from labelzoo.models.bernoulli_poisson_topics_card import prepare, spec
from labelzoo.models.design import sparse_design

ROWS, FEATURES, LABELS, TOPICS = 211, 53, 97, 11
WIDE = FEATURES + 1


def thin_data(seed=0, missing=0.0, rows=ROWS, features=FEATURES, labels=LABELS):
    rng = np.random.default_rng(seed)
    X = sparse.random_array((rows, features), density=0.1, rng=rng, format="csr")
    Y = (rng.random((rows, labels)) < 0.06).astype(float)
    if missing:
        Y[rng.random(Y.shape) < missing] = np.nan
        Y[3] = np.nan
    return LabelData.from_arrays(X, Y)


def both(data, **settings):
    given = {"num_topics": TOPICS, "shape": 1.0, **settings}
    return [prepare(data, spec.resolve({**given, "sparse_features": keep})) for keep in (True, False)]


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("scale_rows", [True, False])
def test_sparse_features_are_prepared_as_dense_ones(intercept, scale_rows):
    data = thin_data()
    thin, dense = both(data, intercept=intercept, scale_rows=scale_rows)
    assert sparse.issparse(thin["X"]) and not sparse.issparse(dense["X"])
    np.testing.assert_allclose(thin["X"].toarray(), dense["X"], atol=1e-15)
    np.testing.assert_allclose(thin["precision"], dense["precision"], rtol=1e-12)
    assert thin["X"].has_canonical_format


def test_rows_without_features_and_unsorted_entries_are_kept_right():
    X = sparse.csr_array(
        (np.array([2.0, 1.0, 3.0]), np.array([1, 0, 1]), np.array([0, 2, 2, 3])), shape=(3, 2)
    )
    kept = sparse_design(X, intercept=True, scale_rows=True).toarray()
    root = np.sqrt(5.0)
    np.testing.assert_allclose(kept, [[1 / root, 2 / root, 1], [0, 0, 1], [0, 1, 1]])
    assert X.data[0] == 2.0, "the caller's matrix was changed"


@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize("w_step", ["newton", "exact", "preconditioned"])
def test_runs_on_sparse_features_are_those_on_dense_ones(w_step, missing):
    thin, dense = both(thin_data(1, missing, rows=40, features=9, labels=13), num_topics=4)
    results = [
        run_em("map", inputs, **{**OPTIONS, "rng_key": jax.random.key(0), "w_step": w_step, "max_iter": 8})
        for inputs in (thin, dense)
    ]
    for site, value in results[0].draws.items():
        np.testing.assert_allclose(value, results[1].draws[site], rtol=1e-6, atol=1e-9, err_msg=site)


@pytest.mark.parametrize("engine", [MAP_EM, VB_EM], ids=lambda engine: engine.name)
def test_engines_keep_sparse_features_through_prediction(engine):
    data = thin_data(2)
    tree = engine(spec, data, rng_key=0, num_topics=5, max_iter=4)
    dense = engine(spec, data, rng_key=0, num_topics=5, max_iter=4, sparse_features=False)
    probs = mean_prob(tree, data)
    np.testing.assert_allclose(probs, mean_prob(dense, data.X.toarray()), rtol=1e-6)
    np.testing.assert_array_equal(
        predict_topk(tree, data, 3).labels, np.argsort(-probs, kind="stable")[:, :3]
    )


def test_features_too_large_as_an_array_are_fitted_sparse_and_refused_dense(monkeypatch):
    data = thin_data(3)
    monkeypatch.setattr(card, "MAX_DENSE_BYTES", 8 * ROWS * WIDE - 1)
    with pytest.raises(ValueError, match=r"dense features take .* online_em take them sparse"):
        prepare(data, spec.resolve({"num_topics": 3}))
    assert np.isfinite(mean_prob(MAP_EM(spec, data, rng_key=0, num_topics=3, max_iter=2), data)).all()


def test_joint_scores_read_sparse_features():
    thin, dense = both(thin_data(4, rows=12), num_topics=3)
    rng = np.random.default_rng(0)
    draw = {
        "topics": jnp.asarray(rng.dirichlet(np.ones(LABELS), 3)),
        "weights": jnp.asarray(rng.standard_normal((3, WIDE))),
        "shape": jnp.ones(3),
    }
    scores = [card.log_score(draw, inputs, jax.random.key(0), num_samples=8) for inputs in (thin, dense)]
    np.testing.assert_allclose(*scores, rtol=1e-9)


def shapes_of(jaxpr):
    """All shapes of a program, those inside its loops and branches too."""
    for equation in jaxpr.eqns:
        for variable in (*equation.invars, *equation.outvars):
            yield tuple(getattr(variable.aval, "shape", ()))
        for value in equation.params.values():
            for inner in value if isinstance(value, list | tuple) else [value]:
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from shapes_of(inner)


@pytest.mark.parametrize("w_step", WStep.__args__)
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_no_array_of_a_sweep_is_rows_by_labels_or_rows_by_features(w_step, missing, monkeypatch):
    monkeypatch.setattr(layout, "BLOCK_VALUES", 64 * TOPICS)
    monkeypatch.setattr(layout, "GRAM_COLUMNS", 16)
    thin, dense = both(thin_data(5, missing))
    positives = thin["positives"].row.shape[0]
    assert len({ROWS, WIDE, LABELS, TOPICS, positives, thin["X"].nnz}) == 6
    found = {}
    for name, inputs in (("sparse", thin), ("dense", dense)):
        cells, config = em_data(inputs), em_config("vb", inputs, w_step=w_step)
        state = begin(make_start(inputs, jax.random.key(0)), cells, config, 1.0)

        def whole(state, cells, config=config):
            new = sweep(state, cells, config)
            return new, objective(new, cells, config), gradient_norms(new, cells, config)

        found[name] = set(shapes_of(jax.make_jaxpr(whole)(state, cells).jaxpr))
    assert (ROWS, TOPICS) in found["sparse"] and (ROWS, WIDE) in found["dense"]
    for name, absent in (
        ("sparse", [(ROWS, LABELS), (ROWS, WIDE), (positives, TOPICS), (TOPICS, WIDE, WIDE)]),
        ("dense", [(ROWS, LABELS), (positives, TOPICS), (TOPICS, WIDE, WIDE)]),
    ):
        for shape in absent:
            bad = [seen for seen in found[name] if set(shape) <= set(seen) and len(seen) >= len(shape)]
            if len(set(shape)) < len(shape):
                bad = [seen for seen in bad if sorted(seen)[-len(shape) :] == sorted(shape)]
            assert not bad, f"{name} features, w_step={w_step}: {bad}"


def test_settings_stored_before_sparse_features_existed_are_read():
    data = LabelData.from_arrays(np.eye(4), np.eye(4)[:, :3])
    old = {name: value for name, value in card.SETTINGS.items() if name != "sparse_features"}
    assert isinstance(prepare(data, old)["X"], jax.Array)
