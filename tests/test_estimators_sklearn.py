"""The scikit-learn face inside scikit-learn: its own checks, pipelines, searches, pickles, partial_fit."""

import io
import pickle
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import joblib
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from labelzoo.data import LabelData
from labelzoo.estimators import EXPECTED_FAILED_CHECKS, LabelClassifier
from labelzoo.inference.fit import fit
from labelzoo.inference.label_logistic import streaming
from labelzoo.inference.predict import label_prob, mean_prob
from labelzoo.models import registry
from labelzoo.preparation import prepare

TOY = Path(__file__).parent / "toy_ridge.py"
FOLDS = KFold(3, shuffle=True, random_state=0)
pytestmark = pytest.mark.usefixtures("toy_model")
DOCS = Path(__file__).parents[1] / "docs" / "estimators.md"


def table(rows: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, 3))
    return X, (X @ rng.standard_normal((3, 4)) + 0.5 * rng.standard_normal((rows, 4)) > 0.3).astype(int)


def toy(**params: Any) -> LabelClassifier:
    return LabelClassifier(**{"model": "toy_ridge", "engine": "online", **params})


def logistic(**params: Any) -> LabelClassifier:
    return LabelClassifier(**{"num_samples": 200, "khat_samples": 0, **params})


ONE_TOPIC = {
    "check_classifiers_train": "with one topic the labels of all rows come in one order, and so classes"
}
"""As many topics as a vector of two classes allows."""


def judge(classifier: LabelClassifier, also: Mapping[str, str] = MappingProxyType({})) -> None:
    """Run scikit-learn's checks: all pass but the listed ones, and each of those still fails."""
    expected = {**EXPECTED_FAILED_CHECKS, **also}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the checks provoke warnings of their own
        results = check_estimator(classifier, expected_failed_checks=expected, on_fail=None, on_skip=None)
    failed = [f"{r['check_name']}: {r['exception']}" for r in results if r["status"] == "failed"]
    assert not failed
    assert {r["check_name"] for r in results if r["status"] == "xfail"} == set(expected)
    assert sum(r["status"] == "passed" for r in results) > 50


@pytest.mark.parametrize("engine", ["batch", "online"])
def test_checks_of_scikit_learn(engine: str) -> None:
    judge(toy(engine=engine))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("classifier", "also"),
    [
        (logistic(), {}),
        (logistic(engine="streaming"), {}),
        (LabelClassifier("bernoulli_poisson_topics", "map_em", num_topics=1, max_iter=20), ONE_TOPIC),
    ],
    ids=["mean_field", "streaming", "map_em"],
)
def test_checks_of_scikit_learn_on_every_quick_engine(
    classifier: LabelClassifier, also: Mapping[str, str]
) -> None:
    judge(classifier, also)


def test_every_expected_failure_has_a_reason() -> None:
    assert all(len(reason.split()) > 5 for reason in EXPECTED_FAILED_CHECKS.values())


def test_pickles_and_joblib_files_predict_the_same() -> None:
    X, Y = table()
    fitted = logistic().fit(X, Y)
    file = io.BytesIO()
    joblib.dump(fitted, file)
    file.seek(0)
    for copy in (pickle.loads(pickle.dumps(fitted)), joblib.load(file)):
        np.testing.assert_array_equal(copy.predict_proba(X), fitted.predict_proba(X))
        assert copy.get_params() == fitted.get_params()


def test_a_pickle_finds_the_file_of_its_model() -> None:
    X, Y = table()
    frozen = pickle.dumps(toy(model=f"{TOY}:spec").fit(X, Y))
    expected = pickle.loads(frozen).predict_proba(X)
    registry._registry.pop("toy_ridge")
    np.testing.assert_array_equal(pickle.loads(frozen).predict_proba(X), expected)


@pytest.mark.parametrize("as_sparse", [False, True])
def test_search_over_settings_in_a_pipeline(as_sparse: bool) -> None:
    X, Y = table()
    rows = sparse.csr_matrix(X) if as_sparse else X
    pipeline = make_pipeline(prepare("standardise"), logistic())
    grid = {"labelclassifier__prior_scale": [0.01, 1.0], "labelclassifier__intercept": [True, False]}
    search = GridSearchCV(pipeline, grid, cv=FOLDS, error_score="raise").fit(rows, Y)
    assert search.best_params_["labelclassifier__prior_scale"] == 1.0
    by_hand = []
    for train, test in FOLDS.split(X):
        one = clone(pipeline).set_params(**search.best_params_).fit(rows[train], Y[train])
        by_hand.append(one.score(rows[test], Y[test]))
    assert search.best_score_ == pytest.approx(np.mean(by_hand), rel=1e-12)


@pytest.mark.slow
def test_search_over_the_number_of_topics() -> None:
    X, Y = table()
    search = GridSearchCV(
        LabelClassifier("bernoulli_poisson_topics", "map_em", max_iter=5), {"num_topics": [1, 2]}, cv=2
    ).fit(X, Y)
    assert search.best_estimator_.trace_["posterior"].sizes["topic"] == search.best_params_["num_topics"]


def test_cross_val_predict_gives_each_row_the_probability_of_its_fold() -> None:
    X, Y = table()
    probs = cross_val_predict(toy(), X, Y, cv=FOLDS, method="predict_proba")
    assert probs.shape == Y.shape
    for train, test in FOLDS.split(X):
        np.testing.assert_allclose(probs[test], toy().fit(X[train], Y[train]).predict_proba(X[test]))


def test_threads_give_the_same_numbers() -> None:
    X, Y = table()
    one = cross_val_score(logistic(), X, Y, cv=FOLDS)
    with joblib.parallel_backend("threading"):
        np.testing.assert_array_equal(cross_val_score(logistic(), X, Y, cv=FOLDS, n_jobs=2), one)


@pytest.mark.slow
def test_processes_give_the_same_numbers() -> None:
    X, Y = table()
    one = cross_val_score(logistic(), X, Y, cv=FOLDS)
    np.testing.assert_allclose(cross_val_score(logistic(), X, Y, cv=FOLDS, n_jobs=2), one, rtol=1e-12)


def test_predictions_in_blocks_are_those_of_all_draws_at_once() -> None:
    X, Y = table()
    tree = fit("label_logistic", LabelData(X, Y), "mean_field", num_samples=50, khat_samples=0)
    whole = label_prob(tree, X).values[0]
    for options in ({}, {"row_batch": 7}, {"max_bytes": 1}, {"max_bytes": 3000}):
        mean, sd = mean_prob(tree, sparse.csr_array(X), with_sd=True, **options)
        np.testing.assert_allclose(mean, whole.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(sd, whole.std(axis=0), rtol=1e-10)


def test_partial_fit_exists_for_online_engines_alone() -> None:
    assert hasattr(toy(engine="online"), "partial_fit")
    assert hasattr(logistic(engine="streaming"), "partial_fit")
    for other in (toy(engine="batch"), logistic(), logistic(engine="nope"), toy(model=3)):
        assert not hasattr(other, "partial_fit")
    X, Y = table()
    entry = registry.get("toy_ridge")
    tree = entry.engines["batch"](entry.spec, LabelData(X, Y), rng_key=0)
    with pytest.raises(ValueError, match="model must be a name, got 3"):
        toy(model=3).fit(X, Y)
    with pytest.raises(ValueError, match="'batch' is not online"):
        entry.engines["batch"].update(entry.spec, tree, LabelData(X, Y), rng_key=0)
    with pytest.raises(ValueError, match="is of engine 'batch', not 'online'"):
        entry.engines["online"].update(entry.spec, tree, LabelData(X, Y), rng_key=0)


def test_partial_fit_of_an_exact_engine_is_fit() -> None:
    X, Y = table()
    frame = pd.DataFrame(Y, columns=["a", "b", "c", "d"]).astype(float)
    frame.iloc[5:9, 1] = np.nan
    batches = toy()
    for rows in (slice(0, 20), slice(20, 23), slice(23, 60)):
        batches.partial_fit(X[rows], frame.iloc[rows][["d", "c", "b", "a"] if rows.start else list("abcd")])
    np.testing.assert_allclose(batches.predict_proba(X), toy().fit(X, frame).predict_proba(X), rtol=1e-9)
    assert batches.trace_.attrs["rows_seen"] == 60
    assert batches.trace_.attrs["batches"] == 3
    assert batches.fit(X, frame).trace_.attrs["rows_seen"] == 60  # fit starts afresh
    with pytest.raises(ValueError, match="expecting 3 features"):
        batches.partial_fit(X[:, :2], frame)
    with pytest.raises(ValueError, match="was not fitted on: 'e'"):
        batches.partial_fit(X, frame.assign(e=0))


def test_partial_fit_knows_labels_and_classes_before_they_are_seen() -> None:
    X, Y = table()
    frame = pd.DataFrame(Y, columns=list("abcd"))
    batches = toy().partial_fit(X[:10], frame[["a", "b"]].iloc[:10], label_names=list("abcd"))
    assert np.allclose(batches.predict_proba(X)[:, 2:], 0.5)
    batches.partial_fit(X[10:40], frame.iloc[10:40]).partial_fit(X[40:50], frame[["d", "c"]].iloc[40:50])
    batches.partial_fit(X[50:], Y[50:])  # without names: by place
    expected = frame.astype(float)
    expected.iloc[:10, 2:] = expected.iloc[40:50, :2] = np.nan
    np.testing.assert_allclose(batches.predict_proba(X), toy().fit(X, expected).predict_proba(X), rtol=1e-9)
    words = np.array(["dry", "wet"])[Y[:, 0]]
    first = np.flatnonzero(Y[:, 0] == 0)[:5]
    alone = toy().partial_fit(X[first], words[first], classes=["dry", "wet"]).partial_fit(X, words)
    assert alone.classes_.tolist() == ["dry", "wet"]
    with pytest.raises(ValueError, match="as many dims as in fit"):
        alone.partial_fit(X, Y)


def test_streaming_in_one_batch_is_mean_field() -> None:
    X, Y = table()
    Y = Y.astype(float)
    Y[3:6, 1] = np.nan
    whole = logistic(tolerance=1e-12).fit(X, Y)
    one = logistic(engine="streaming", tolerance=0.0).partial_fit(X, Y)
    np.testing.assert_allclose(one.predict_samples(X), whole.predict_samples(X), rtol=1e-6)
    a, b = (c.trace_["optimization"]["objective"].values[-1] for c in (one, whole))
    assert a == pytest.approx(b, rel=1e-10)


def test_streaming_batches_follow_the_hand_made_sequence_and_tighten() -> None:
    X, Y = table()
    entry = registry.get("label_logistic")
    batches = logistic(engine="streaming", num_samples=2000, tolerance=1e-13)
    prior = None

    @jax.jit
    def rest(factors: Any, inputs: Any, before: Any) -> Any:
        return jax.lax.scan(lambda at, _: (streaming.sweep(at, inputs, before), None), factors, length=200)

    for rows in (slice(0, 20), slice(20, 40), slice(40, 60)):
        batches.partial_fit(X[rows], Y[rows])
        inputs = entry.spec.prepare(LabelData(X[rows], Y[rows]), entry.spec.settings)
        before = streaming.first_prior(inputs) if prior is None else prior
        factors = streaming.start(inputs, before)
        factors, _ = rest(factors, inputs, before)
        law = streaming.update_weights(factors.tilt, inputs, before)
        prior = streaming.Prior(law.potential, law.precision)
        gained = np.linalg.eigvalsh(np.asarray(law.precision - before.precision))
        assert gained.min() > -1e-9, "a batch never widens the posterior"
        assert gained.max() > 0.5
        state = batches.trace_["engine_state"]
        np.testing.assert_allclose(state["precision"].values, law.precision, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(state["potential"].values, law.potential, rtol=1e-9, atol=1e-9)
    draws = batches.trace_["posterior"]["weights"].values[0]
    away = np.abs(draws.mean(axis=0) - np.asarray(law.mean)) / np.sqrt(np.asarray(law.variance) / 2000)
    assert away.max() < 5, f"seed 0: draws {away.max():.1f} s.e. from the law's mean"
    gap = batches.predict_proba(X) - logistic(num_samples=2000).fit(X, Y).predict_proba(X)
    assert np.abs(gap).mean() < 0.05, "batches cost little against all rows together"


def test_examples_of_the_page_run() -> None:
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), flags=re.S)
    assert blocks
    space: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, str(DOCS), "exec"), space)
    assert space["search"].best_params_


def topics(**params: Any) -> LabelClassifier:
    model = {"model": "bernoulli_poisson_topics", "engine": "online_em", "num_topics": 3, "epochs": 3}
    return LabelClassifier(**{**model, **params})


def label_table(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 3))
    chance = 1 / (1 + np.exp(1.0 - 2.0 * X[:, [0, 1, 2, 0, 1, 2]]))
    return X, (rng.random(chance.shape) < chance).astype(float)


def test_batches_of_topics_keep_running_statistics_and_predict_better() -> None:
    X, Y = label_table(320)
    new, truth = label_table(400, 1)
    batches, scores, states = topics(), [], []
    for start in range(0, 320, 40):
        batches.partial_fit(X[start : start + 40], Y[start : start + 40])
        scores.append(batches.score(new, truth))
        states.append(batches.trace_["engine_state"])
    assert [int(state["rows"]) for state in states] == list(range(40, 321, 40))
    assert [int(state["steps"]) for state in states] == list(range(3, 25, 3))
    # Statistics are of all rows so far: expected counts, at least one a positive, and curvature.
    counts = np.array([state["label_counts"].values.sum() for state in states])
    positives = np.cumsum(Y.sum(axis=1))[39::40]
    assert (counts > 0.8 * positives).all() and (counts < 3 * positives).all()
    frequency = Y.mean(axis=0)
    plain = (truth * np.log(frequency) + (1 - truth) * np.log1p(-frequency)).sum(axis=1).mean()
    whole = topics(epochs=10).fit(X, Y).score(new, truth)
    assert scores[0] < scores[-1] and plain < scores[-1]
    # Less than half of what one batch lacks against all rows together is lost.
    assert whole - scores[-1] < 0.5 * (whole - scores[0]), (plain, scores, whole)
    # The state goes on: a fit of the last batch alone is elsewhere.
    alone = topics().fit(X[-40:], Y[-40:]).score(new, truth)
    assert scores[-1] > alone


def test_batches_of_topics_keep_the_contract_of_labels_and_settings() -> None:
    X, Y = label_table(60)
    frame = pd.DataFrame(Y, columns=list("abcdef"))
    batches = topics().partial_fit(X[:20], frame.iloc[:20, :4], label_names=list("abcdef"))
    batches.partial_fit(X[20:40], frame.iloc[20:40, [3, 1]])
    batches.partial_fit(sparse.csr_array(X[40:60]), Y[40:60])  # without names: by place
    assert (batches.trace_.attrs["rows_seen"], batches.trace_.attrs["batches"]) == (60, 3)
    probs = batches.predict_proba(X)
    assert probs.shape == (60, 6) and np.isfinite(probs).all()
    again = pickle.loads(pickle.dumps(batches)).partial_fit(X[40:60], Y[40:60])
    np.testing.assert_array_equal(
        again.predict_proba(X), batches.partial_fit(X[40:60], Y[40:60]).predict_proba(X)
    )
    with pytest.raises(ValueError, match="labels that the classifier was not fitted on: 'g'"):
        batches.partial_fit(X[51:], frame.iloc[51:].assign(g=1.0))
    with pytest.raises(ValueError, match="Y has 7 labels, the classifier was fitted on 6") as caught:
        batches.partial_fit(X[51:], np.ones((9, 7)))
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="of epochs 3, but epochs is now 5: call fit"):
        batches.set_params(epochs=5).partial_fit(X[51:], Y[51:])
