"""The front `ask`: what it hands to a score, what it refuses, and that names and seeds hold."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import sparse

from labelzoo.acquisition import Acquisition, PoolExhausted, Problem, ask, find, next_rows, score
from labelzoo.acquisition import catalogue as names
from labelzoo.acquisition.catalogue import _EXTRA, register_acquisition
from labelzoo.acquisition.ensemble import greedy_for_targets, make_ensemble, target_gram
from labelzoo.acquisition.front import check_same_labels
from labelzoo.data import LabelData
from labelzoo.inference.fit import fit
from labelzoo.inference.predict import label_prob, mean_prob
from labelzoo.inference.predictions import add_predictions

LABELS = ("a", "b", "c")


def table(rows: int, seed: int, known: int, **options: Any) -> LabelData:
    """Return rows of which the first `known` have labels."""
    rng = np.random.default_rng(seed)
    X = np.abs(rng.standard_normal((rows, 4))) * (rng.random((rows, 4)) < 0.7)
    Y = (X @ rng.standard_normal((4, 3)) + 0.3 * rng.standard_normal((rows, 3)) > 0).astype(float)
    Y[known:] = np.nan
    return LabelData.from_arrays(
        options.pop("convert", np.asarray)(X), Y,
        label_names=list(LABELS), example_names=[f"id {seed}-{i}" for i in range(rows)], **options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def pool() -> LabelData:
    return table(30, 0, 12)


@pytest.fixture(scope="module")
def gp(pool: LabelData) -> xr.DataTree:
    return fit("label_gp", pool.subset(rows=range(12)), "conjugate", seed=0, num_samples=250)


@pytest.fixture(scope="module")
def topics(pool: LabelData) -> xr.DataTree:
    return fit(
        "bernoulli_poisson_topics", pool.subset(rows=range(12)), "gibbs",
        seed=0, num_topics=2, num_warmup=50, num_samples=60,
    )  # fmt: skip


@pytest.fixture
def spy() -> Any:
    """A function of the catalogue that keeps the problem it was given; highest score: the last row."""
    seen: list[Problem] = []

    def remember(problem: Problem) -> Any:
        seen.append(problem)
        return np.arange(len(problem.need("X_pool", "spy")), dtype=float)

    texts = dict.fromkeys(("units", "bias", "cost", "helps", "source"), "none")
    register_acquisition(Acquisition(name="spy", query="row", needs=(), score=remember, **texts))
    yield seen
    del _EXTRA["spy"]


def test_problem_holds_what_it_says(gp: xr.DataTree, pool: LabelData, spy: list[Problem]) -> None:
    targets, weights = table(7, 1, 7), np.arange(7.0)
    found = ask(gp, pool, acquire="spy", batch=2, targets=targets, weights=weights, seed=5)
    assert found["obs"].tolist() == ["id 0-29", "id 0-28"] and found["gain"].tolist() == [17.0, 16.0]
    (problem,) = spy
    rows = pool.subset(rows=range(12, 30))
    np.testing.assert_array_equal(problem.get("weights"), weights)
    np.testing.assert_allclose(problem.get("mean_probs"), mean_prob(gp, rows))
    both = np.concatenate([rows.X, targets.X])
    draws = label_prob(gp, both).values.reshape(-1, 25, 3)
    np.testing.assert_allclose(problem.get("probs"), draws[:, :18])
    np.testing.assert_allclose(problem.get("target_probs"), draws[:, 18:])  # the same draws, jointly
    np.testing.assert_array_equal(problem.get("Y_labelled"), pool.Y[:12].toarray())
    scale = problem.get("X_pool") / np.where(rows.X == 0, 1, rows.X)
    assert problem.get("X_labelled").shape == (12, 4) and np.isfinite(scale).all()
    assert problem.get("X_targets").shape == (7, 4) and not problem.get("asked").any()
    assert problem.seed == 5


def test_without_targets_the_problem_has_none(gp: xr.DataTree, pool: LabelData, spy: list[Problem]) -> None:
    ask(gp, pool, acquire="spy")
    assert spy[0].get("X_targets") is None and spy[0].get("target_probs") is None


def test_draws_are_not_made_unless_read(
    gp: xr.DataTree, pool: LabelData, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **options: Any) -> Any:
        raise AssertionError("draws were made")

    monkeypatch.setattr("labelzoo.inference.predict.label_prob", refuse)
    for name in ("random", "ivr", "entropy"):
        assert len(ask(gp, pool, acquire=name, batch=3)) == 3
    with pytest.raises(AssertionError, match="draws were made"):
        ask(gp, pool, acquire="ensemble_ivr")


def test_targets_decide(gp: xr.DataTree, pool: LabelData) -> None:
    """Targets that are copies of one candidate make that candidate the first pick."""
    for row in (13, 20, 27):
        X = np.repeat(pool.X[[row]], 5, axis=0)
        assert ask(gp, pool, acquire="ivr", batch=1, targets=X)["obs"][0] == pool.example_names[row]


def test_ensemble_front_equals_its_core(topics: xr.DataTree, pool: LabelData) -> None:
    targets, weights = table(7, 1, 7), np.arange(7.0)
    found = ask(topics, pool, acquire="ensemble_ivr", batch=4, targets=targets, weights=weights, seed=3)
    draws = label_prob(topics, np.concatenate([pool.X[12:], targets.X]), num_draws=400).values
    draws = draws.reshape(-1, 25, 3)
    gram = target_gram(draws[:, 18:], weights)
    rows, gains = greedy_for_targets(make_ensemble(draws[:, :18]), gram, 4, seed=3, debias=True)
    assert found["obs"].tolist() == [pool.example_names[12 + i] for i in rows]
    np.testing.assert_allclose(found["gain"], gains)


def test_weights_decide(gp: xr.DataTree, pool: LabelData) -> None:
    targets = np.stack([pool.X[14], pool.X[22]])
    for weights, row in (((1.0, 0.0), 14), ((0.0, 1.0), 22)):
        found = ask(gp, pool, acquire="ivr", batch=1, targets=targets, weights=np.array(weights))
        assert found["obs"][0] == pool.example_names[row]


def test_sparse_and_dense_pools_agree(pool: LabelData) -> None:
    sparse_pool = table(30, 0, 12, convert=sparse.csr_array)
    train = pool.subset(rows=range(12))
    tree = fit("label_gp", train, "conjugate", seed=0, num_samples=250, kernel="rbf")
    np.testing.assert_allclose(mean_prob(tree, sparse_pool), mean_prob(tree, pool))
    targets = table(6, 2, 6)
    sparse_targets = table(6, 2, 6, convert=sparse.csr_array)
    dense = ask(tree, pool, acquire="ensemble_ivr", batch=4, targets=targets)
    for pair in ((sparse_pool, sparse_targets), (sparse_pool, targets), (pool, sparse_targets)):
        pd.testing.assert_frame_equal(
            ask(tree, pair[0], acquire="ensemble_ivr", batch=4, targets=pair[1]), dense
        )
    assert len(ask(tree, sparse_pool, acquire="ivr", batch=4, targets=sparse_targets)) == 4


@pytest.mark.parametrize("name", ["ensemble_ivr", "epig", "bald", "entropy", "ivr", "random", "cluster"])
def test_topic_posteriors_answer_too(topics: xr.DataTree, pool: LabelData, name: str) -> None:
    found = ask(topics, pool, acquire=name, batch=4, targets=table(5, 3, 5))
    assert found["obs"].is_unique and set(found["obs"]) <= set(pool.example_names[12:])
    assert list(found.columns) == ["obs", "gain", "likely_labels"]
    assert found.attrs["report"]["units"] == find(name).units


def test_every_row_function_answers(gp: xr.DataTree, pool: LabelData) -> None:
    answered = []
    for name, entry in names().items():
        try:
            found = ask(gp, pool, acquire=name, batch=2, targets=table(5, 3, 5))
        except ValueError as error:
            assert name in str(error), f"{name}: {error}"  # a refusal says who refuses
            continue
        answered.append(name)
        assert len(found) == 2 and ("label" in found) == (entry.query == "cell"), name
        assert found.duplicated(["obs", "label"] if entry.query == "cell" else ["obs"]).sum() == 0, name
    assert {"ivr", "ivrp", "ensemble_ivr", "miml", "audi", "cvirs", "k_center"} <= set(answered)


@pytest.mark.parametrize("name", ["random", "cluster", "ensemble_ivr", "random_cells"])
def test_seeds(gp: xr.DataTree, pool: LabelData, name: str) -> None:
    found = [ask(gp, pool, acquire=name, batch=5, seed=seed) for seed in (1, 1, 2)]
    pd.testing.assert_frame_equal(found[0], found[1])
    if name.startswith("random"):
        assert not found[0]["gain"].equals(found[2]["gain"])


def test_ids_follow_the_rows(gp: xr.DataTree, pool: LabelData) -> None:
    """A pool in another order gives the same names with the same gains."""
    order = np.random.default_rng(4).permutation(30)
    first = ask(gp, pool, acquire="ivr", batch=5, targets=table(6, 2, 6))
    again = ask(gp, pool.subset(rows=order), acquire="ivr", batch=5, targets=table(6, 2, 6))
    assert first["obs"].tolist() == again["obs"].tolist()
    np.testing.assert_allclose(first["gain"], again["gain"], rtol=1e-8)


def test_label_queries_ask_open_cells_only(gp: xr.DataTree, pool: LabelData) -> None:
    Y = np.full((3, 3), np.nan)
    Y[0], Y[1, 1] = [1, 0, 1], 0
    small = LabelData.from_arrays(pool.X[:3], Y, label_names=list(LABELS))
    with pytest.warns(UserWarning, match="batch of 50 from a pool of 5"):
        found = ask(gp, small, acquire="random_cells", batch=50)
    pairs = set(zip(found["obs"], found["label"], strict=True))
    assert pairs == {("row 1", "a"), ("row 1", "c"), *(("row 2", one) for one in LABELS)}
    assert ask(gp, small, acquire="random", batch=1)["obs"].tolist() == [
        "row 2"
    ]  # partly known: not a candidate


def test_labelled_rows_of_another_file(gp: xr.DataTree, pool: LabelData, spy: list[Problem]) -> None:
    blank = pool.subset(rows=range(12, 30))
    with pytest.raises(ValueError, match="the pool has none: give labelled="):
        ask(gp, blank, acquire="ivr")
    known = pool.subset(rows=range(12))
    apart = ask(gp, blank, acquire="k_center", batch=3, labelled=known)
    assert len(apart) == 3 and set(apart["obs"]) <= set(blank.example_names)
    ask(gp, blank, acquire="spy", labelled=known)
    assert spy[0].get("X_labelled").shape == (12, 4) and spy[0].get("kernel") is not None
    assert len(ask(gp, blank, acquire="ivr", batch=3, labelled=known)) == 3


def test_nothing_left(gp: xr.DataTree) -> None:
    for name in ("random", "random_cells"):
        with pytest.raises(PoolExhausted, match="no row left to ask"):
            ask(gp, table(5, 0, 5), acquire=name)


@pytest.mark.parametrize("batch", [0, -1, 2.5, "3", True, np.True_])
def test_bad_batch(gp: xr.DataTree, pool: LabelData, batch: Any) -> None:
    with pytest.raises(ValueError, match="batch must be a positive integer, got"):
        ask(gp, pool, acquire="random", batch=batch)


def test_refusals_name_the_argument(gp: xr.DataTree, pool: LabelData) -> None:
    with pytest.raises(ValueError, match="no acquisition function 'best'"):
        ask(gp, pool, acquire="best")
    with pytest.raises(ValueError, match=r"targets: X has shape \(2, 3\), the posterior was fitted on 4"):
        ask(gp, pool, targets=np.ones((2, 3)))
    with pytest.raises(ValueError, match="targets: X has NaN or infinite"):
        ask(gp, pool, targets=np.full((2, 4), np.nan))
    with pytest.raises(ValueError, match="pool: feature 0 is 'other'"):
        ask(gp, table(5, 0, 2, feature_names=["other", "feature 1", "feature 2", "feature 3"]))
    with pytest.raises(ValueError, match="labelled: X has shape"):
        ask(gp, pool, labelled=LabelData.from_arrays(np.eye(3), np.eye(3), label_names=list(LABELS)))


def test_points_are_refused_only_where_draws_are_needed(pool: LabelData) -> None:
    train = pool.subset(rows=range(12))
    point = fit("bernoulli_poisson_topics", train, "map_em", seed=0, num_topics=2, max_iter=3)
    assert len(ask(point, pool, acquire="entropy", batch=3)) == 3
    assert len(ask(point, pool, acquire="ivr", batch=3)) == 3
    with pytest.raises(ValueError, match="engine 'map_em' gives points"):
        ask(point, pool, acquire="bald")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["b", "a", "c"], "pool has the labels of the posterior in another order"),
        (["a", "b"], "labels differ between pool and posterior: pool lacks 1: c$"),
        (["a", "b", "c", "d"], "the posterior does not know 1: d$"),
        (["a", "x", "y"], "pool lacks 2: b, c; the posterior does not know 2: x, y$"),
    ],
)
def test_labels_must_be_those_of_the_posterior(gp: xr.DataTree, labels: list[str], message: str) -> None:
    Y = np.full((3, len(labels)), np.nan)
    data = LabelData.from_arrays(np.ones((3, 4)), Y, label_names=labels)
    with pytest.raises(ValueError, match=message):
        ask(gp, data, acquire="random")
    with pytest.raises(ValueError, match=message.replace("pool", "labelled")):
        check_same_labels(gp, data, "labelled")
    assert json.loads(gp.attrs["label_names"]) == list(LABELS)
    check_same_labels(gp, table(3, 0, 0), "pool")


def test_no_probability_is_named(gp: xr.DataTree, pool: LabelData) -> None:
    broken = gp.copy(deep=True)
    broken["constant_data"]["mean"][1] = np.nan
    with pytest.raises(ValueError, match=r"\(NaN\) for row 'id 0-12', label 'b'"):
        ask(broken, pool, acquire="entropy")
    with pytest.raises(ValueError, match=r"row|sample"):
        ask(broken, pool, acquire="bald")


def test_frames_are_matched_by_name(gp: xr.DataTree, pool: LabelData) -> None:
    features = [f"feature {i}" for i in range(4)]
    frame = pd.DataFrame(table(6, 2, 6).X, columns=features)
    wanted = ask(gp, pool, acquire="ivr", batch=5, targets=frame.to_numpy())
    for one in (frame, frame[features[::-1]], pd.DataFrame(frame.to_numpy())):
        pd.testing.assert_frame_equal(ask(gp, pool, acquire="ivr", batch=5, targets=one), wanted)
    reversed_by_hand = ask(gp, pool, acquire="ivr", batch=5, targets=frame.to_numpy()[:, ::-1])
    assert not reversed_by_hand["gain"].equals(wanted["gain"])  # so that order is not without effect


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda f: f.rename(columns={"feature 1": "z"}),
            "targets: .*lacks .* 'feature 1'.*know: 'z'",
        ),
        (lambda f: f.assign(X=1.0), "targets: the frame has columns that the posterior does not know: 'X'"),
        (lambda f: f.iloc[:, [0, 1, 2, 3, 1]], "targets: the frame has twice 'feature 1'"),
        (
            lambda f: f.astype({"feature 2": str}).assign(**{"feature 2": "warm"}),
            "targets: could not convert",
        ),
    ],
)
def test_other_frames_are_refused(gp: xr.DataTree, pool: LabelData, change: Any, message: str) -> None:
    frame = pd.DataFrame(table(6, 2, 6).X, columns=[f"feature {i}" for i in range(4)])
    with pytest.raises(ValueError, match=message):
        ask(gp, pool, acquire="ivr", targets=change(frame))


def predicted(tree: xr.DataTree, pool: LabelData) -> xr.DataTree:
    return add_predictions(tree, pool.subset(rows=range(12, 20)))


@pytest.mark.parametrize("seed", [-1, 1.5, True, "1", None])
def test_seeds_are_refused_by_name(gp: xr.DataTree, pool: LabelData, seed: Any) -> None:
    tree = predicted(gp, pool)
    for call in (
        lambda: ask(gp, pool, acquire="random", seed=seed),
        lambda: score(tree, seed=seed),
        lambda: next_rows(tree, seed=seed),
    ):
        with pytest.raises(ValueError, match="seed must be an integer of at least 0, got"):
            call()
    assert len(next_rows(tree, np.int64(2), seed=np.uint8(3))) == 2


def test_wrong_kinds_of_arguments_are_named(gp: xr.DataTree, pool: LabelData) -> None:
    tree = predicted(gp, pool)
    for call in (lambda: ask(None, pool), lambda: score(None), lambda: next_rows("f.nc")):
        with pytest.raises(TypeError, match="tree must be a posterior, the DataTree of a fit, got"):
            call()
    with pytest.raises(TypeError, match=r"pool must be a LabelData, got ndarray: LabelData.from_arrays"):
        ask(gp, np.ones((3, 4)))
    with pytest.raises(TypeError, match="labelled must be a LabelData, got DataFrame"):
        ask(gp, pool, labelled=pd.DataFrame())
    with pytest.raises(TypeError, match=r"name must be one name of the catalogue, got \['ivr'\]"):
        score(tree, ["ivr"])
    for call in (lambda: ask(gp, pool, acquire=["ivr"]), lambda: next_rows(tree, acquire=["ivr"])):
        with pytest.raises(TypeError, match=r"acquire must be one name of the catalogue, got \['ivr'\]"):
            call()
    with pytest.raises(ValueError, match="batch must be a positive integer, got True"):
        next_rows(tree, True)


def test_predictions_without_rows(gp: xr.DataTree, pool: LabelData) -> None:
    tree = predicted(gp, pool)
    empty = tree.copy()
    empty["predictions"] = xr.DataTree(tree["predictions"].to_dataset().isel(obs=slice(0)))
    for call in (lambda: next_rows(empty), lambda: score(empty)):
        with pytest.raises(PoolExhausted, match="the predictions hold no rows"):
            call()
    empty["predictions"] = xr.DataTree(tree["predictions"].to_dataset().isel(draw=slice(0)))
    with pytest.raises(ValueError, match="label_prob is empty: its sizes are"):
        next_rows(empty)


def test_damaged_posteriors_are_named(gp: xr.DataTree, pool: LabelData) -> None:
    def lacking(name: str) -> xr.DataTree:
        tree = gp.copy()
        del tree[name]
        return tree

    for name in ("posterior", "constant_data"):
        with pytest.raises(ValueError, match=f"the posterior is damaged: it lacks the group '{name}'"):
            ask(lacking(name), pool)
    tree = gp.copy()
    tree.attrs["label_names"] = "a, b"
    with pytest.raises(ValueError, match="its attribute 'label_names' is no JSON"):
        ask(tree, pool)
