"""The scikit-learn face: shapes, names, kinds of input, gaps, thresholds, scores."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from numpy.random import RandomState
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from labelzoo.estimators import LabelClassifier, available

pytestmark = pytest.mark.usefixtures("toy_model")


def table(rows: int = 30) -> tuple[pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.standard_normal((rows, 3)), columns=["a", "b", "c"])
    Y = pd.DataFrame((rng.random((rows, 3)) < 0.4).astype(int), columns=["rain", "sun", "never"])
    Y["never"] = 0
    return X, Y


def toy(**params: Any) -> LabelClassifier:
    return LabelClassifier(**{"model": "toy_ridge", "engine": "online", **params})


def logistic(**params: Any) -> LabelClassifier:
    return LabelClassifier(**{"num_samples": 400, "khat_samples": 0, **params})


def topics(**params: Any) -> LabelClassifier:
    return LabelClassifier(
        "bernoulli_poisson_topics", "map_em", **{"num_topics": 2, "max_iter": 10, **params}
    )


FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    "list": lambda a: a.tolist(),
    "fortran": np.asfortranarray,
    "jax": jnp.asarray,
    "frame": pd.DataFrame,
    "sparse frame": lambda a: pd.DataFrame.sparse.from_spmatrix(sparse.csr_matrix(a)),
    "csr_array": sparse.csr_array,
    "csr_matrix": sparse.csr_matrix,
    "csc_array": sparse.csc_array,
    "csc_matrix": sparse.csc_matrix,
    "lil_matrix": sparse.lil_matrix,
    "coo_array": sparse.coo_array,
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
}


FEW = ("frame", "csr_matrix", "lil_matrix", "jax")


@pytest.mark.parametrize(
    ("make", "form"), [(toy, f) for f in FORMS] + [(make, f) for make in (logistic, topics) for f in FEW]
)
def test_every_kind_of_table_gives_the_same_numbers(make: Any, form: str) -> None:
    X, Y = (frame.to_numpy(float) for frame in table())
    X = np.maximum(X, 0.0)
    model = make(standardize=False) if make is topics else make()
    whole = clone(model).fit(X, Y)
    other = clone(model).fit(FORMS[form](X), FORMS[form](Y))
    np.testing.assert_allclose(other.predict_proba(FORMS[form](X)), whole.predict_proba(X), rtol=1e-10)
    mixed = whole.predict_proba(FORMS[form](X))
    np.testing.assert_allclose(mixed, whole.predict_proba(X), rtol=1e-12)
    labels = other.predict(FORMS[form](X))
    assert sparse.issparse(labels) == sparse.issparse(FORMS[form](Y))
    dense = labels.toarray() if sparse.issparse(labels) else labels
    assert dense.dtype == np.int8
    np.testing.assert_array_equal(dense, whole.predict(X))
    best = other.predict_topk(FORMS[form](X), 2)
    np.testing.assert_array_equal(best.labels, whole.predict_topk(X, 2).labels)


@pytest.mark.parametrize("make", [toy, logistic, topics])
def test_shapes_names_and_types(make: Any) -> None:
    X, Y = table()
    fitted = make().fit(X, Y)
    assert fitted.classes_.tolist() == fitted.label_names_.tolist() == ["rain", "sun", "never"]
    assert fitted.feature_names_in_.tolist() == ["a", "b", "c"]
    assert fitted.n_features_in_ == 3
    assert fitted.n_iter_ >= 1
    probs = fitted.predict_proba(X)
    assert isinstance(probs, np.ndarray)
    assert probs.shape == (30, 3)
    assert ((probs > 0) & (probs < 1)).all()
    assert probs[:, 2].max() < 0.5  # never positive in fit: a posterior all the same
    np.testing.assert_array_equal(fitted.predict(X), probs > 0.5)
    np.testing.assert_array_equal(fitted.decision_function(X) > 0, probs > 0.5)
    samples = fitted.predict_samples(X)
    assert samples.shape[1:] == (30, 3)
    np.testing.assert_allclose(samples.mean(axis=0), probs, rtol=1e-10)


def test_frames_on_request_carry_names_and_survive_a_clone() -> None:
    X, Y = table()
    X.index = Y.index = [f"case {i}" for i in range(30)]
    fitted = clone(toy().set_output(predict="pandas")).fit(X, Y)
    for frame in (fitted.predict_proba(X), fitted.predict(X)):
        assert list(frame.columns) == ["rain", "sun", "never"]
        assert list(frame.index) == list(X.index)
    assert (fitted.predict(X).dtypes == np.int8).all()
    assert isinstance(fitted.set_output().predict(X), pd.DataFrame)
    assert isinstance(fitted.set_output(predict="default").predict(X), np.ndarray)
    with pytest.raises(ValueError, match="'default', 'pandas' or None"):
        fitted.set_output(predict="polars")


def test_feature_names_follow_the_last_fit() -> None:
    X, Y = table()
    fitted = toy().fit(X, Y)
    with pytest.raises(ValueError, match="same order as they were in fit"):
        fitted.predict(X[["b", "a", "c"]])
    fitted.fit(X.to_numpy(), Y)
    assert not hasattr(fitted, "feature_names_in_")
    with pytest.raises(ValueError, match="X has 2 features, but LabelClassifier is expecting 3 features"):
        fitted.predict(X.to_numpy()[:, :2])


def test_parameters_round_trip_and_settings_are_parameters() -> None:
    first = topics(threshold=0.3)
    again = clone(first)
    assert again.get_params() == first.get_params()
    assert again.set_params(num_topics=3, random_state=5).get_params()["num_topics"] == 3
    again.num_topics = 1
    assert again.get_params()["num_topics"] == 1
    assert first.get_params()["num_topics"] == first.num_topics == 2
    assert "num_topics=2" in repr(first)
    with pytest.raises(AttributeError, match="no attribute 'num_topic'"):
        _ = first.num_topic
    assert ("label_logistic", "streaming") in available()


def test_bad_calls_are_named() -> None:
    X, Y = table()
    for method in ("predict", "predict_proba", "predict_samples", "predict_topk", "decision_function"):
        with pytest.raises(NotFittedError):
            getattr(toy(), method)(X)
    with pytest.raises(NotFittedError):
        toy().score(X, Y)
    with pytest.raises(ValueError, match="knows no setting 'nope'"):
        topics(nope=1).fit(X, Y)
    with pytest.raises(ValueError, match="no engine 'nope'"):
        logistic(engine="nope").fit(X, Y)
    with pytest.raises(ValueError, match=r"0, 1 or NaN \(unobserved\) only: row 0, label 'rain': 2"):
        toy().fit(X, Y.assign(rain=2))
    with pytest.raises(ValueError, match="name their rows differently"):
        toy().fit(X, Y.iloc[::-1])
    with pytest.raises(ValueError, match="0 sample"):
        toy().fit(X.iloc[:0], Y.iloc[:0])
    with pytest.raises(TypeError, match="sample_weight"):
        toy().fit(X, Y, sample_weight=np.ones(30))


def test_missing_features_name_columns_and_the_way_out() -> None:
    X, Y = table()
    fitted = toy().fit(X, Y)
    X.loc[3:5, "b"] = np.nan
    for call in (lambda: toy().fit(X, Y), lambda: fitted.predict(X)):
        with pytest.raises(ValueError, match=r"3 in 1 column: 'b' \(3\): .*labelzoo.preparation.prepare"):
            call()
    holes = sparse.csr_array(X.to_numpy())
    with pytest.raises(ValueError, match=r"3 in 1 column: 'feature 1' \(3\)"):
        toy().fit(holes, Y)
    with pytest.raises(ValueError, match=r"infinite values \(inf\)"):
        toy().fit(X.fillna(np.inf), Y)


@pytest.mark.parametrize("gap", [np.nan, None, pd.NA])
def test_gaps_in_the_labels_are_unobserved(gap: Any) -> None:
    X, Y = table()
    table_with_gaps = Y.astype(object)
    table_with_gaps.iloc[2:9, 0] = gap
    probs = toy().fit(X, table_with_gaps).predict_proba(X)
    kept = np.setdiff1d(np.arange(30), np.arange(2, 9))
    alone = toy().fit(X.iloc[kept], Y[["rain"]].iloc[kept]).predict_proba(X)
    np.testing.assert_allclose(probs[:, :1], alone, rtol=1e-12)
    np.testing.assert_allclose(probs[:, 1:], toy().fit(X, Y).predict_proba(X)[:, 1:], rtol=1e-12)


@pytest.mark.parametrize("make", [toy, logistic])
def test_labels_never_or_always_positive_and_wholly_unobserved(make: Any) -> None:
    X, Y = table()
    Y = Y.assign(always=1, unknown=np.nan)
    probs = make().fit(X, Y).predict_proba(X)
    assert probs.shape == (30, 5)
    assert probs[:, 2].max() < 0.2
    assert probs[:, 3].min() > 0.8
    sd = 0.5 / np.sqrt(1 if make is toy else 400)
    assert np.abs(probs[:, 4] - 0.5).max() < 5 * sd, "no data: the prior's probability, one half"


def test_labels_known_beyond_the_training_columns() -> None:
    X, Y = table()
    names = ["hail", "rain", "sun", "never", "fog"]
    fitted = toy().fit(X, Y, label_names=names)
    assert fitted.classes_.tolist() == names
    probs = fitted.predict_proba(X)
    np.testing.assert_allclose(probs[:, [1, 2, 3]], toy().fit(X, Y).predict_proba(X), rtol=1e-12)
    np.testing.assert_array_equal(probs[:, [0, 4]], 0.5)
    assert not fitted.predict(X)[:, [0, 4]].any()
    with pytest.raises(ValueError, match="Y has labels that label_names lacks: 'never'"):
        toy().fit(X, Y, label_names=names[:3])
    with pytest.raises(ValueError, match="label_names has duplicate names: 'rain'"):
        toy().fit(X, Y, label_names=["rain", *names])
    with pytest.raises(ValueError, match="5 names, but Y has 3 columns without names"):
        toy().fit(X, Y.to_numpy(), label_names=names)
    assert toy().fit(X, Y.to_numpy(), label_names=names[1:4]).classes_.tolist() == names[1:4]


def test_score_matches_labels_by_name_and_weighs_rows() -> None:
    X, Y = table()
    fitted = toy().fit(X, Y)
    probs = fitted.predict_proba(X)
    each = np.where(Y, np.log(probs), np.log1p(-probs)).sum(axis=1)
    assert fitted.score(X, Y) == pytest.approx(each.mean(), rel=1e-12)
    assert fitted.score(X, Y[["never", "sun", "rain"]]) == pytest.approx(each.mean(), rel=1e-12)
    weight = np.arange(30.0)
    assert fitted.score(X, Y, sample_weight=weight) == pytest.approx(np.average(each, weights=weight))
    gaps = Y.astype(float)
    gaps.iloc[4] = np.nan
    assert fitted.score(X, gaps) == pytest.approx(np.delete(each, 4).mean(), rel=1e-12)
    with pytest.raises(ValueError, match="Y lacks labels that were passed during fit: 'sun'"):
        fitted.score(X, Y[["rain", "never"]])
    with pytest.raises(ValueError, match="labels that the classifier was not fitted on: 'fog'"):
        fitted.score(X, Y.assign(fog=0))
    with pytest.raises(ValueError, match="Y has 2 labels, the classifier was fitted on 3"):
        fitted.score(X, Y.to_numpy()[:, :2])
    with pytest.raises(ValueError, match="sample_weight must be 30 numbers of at least 0"):
        fitted.score(X, Y, sample_weight=-weight)


def test_thresholds_by_number_place_and_name() -> None:
    X, Y = table()
    fitted = toy().fit(X, Y)
    probs = fitted.predict_proba(X)
    cut = [0.3, 0.6, 0.01]
    for threshold in (cut, np.array(cut), dict(zip(Y.columns, cut, strict=True)), pd.Series(cut, Y.columns)):
        fitted.set_params(threshold=threshold)
        np.testing.assert_array_equal(fitted.predict(X), probs > cut)
        np.testing.assert_array_equal(fitted.decision_function(X) > 0, probs > cut)
    for bad, words in (
        (1.0, "between 0 and 1"),
        ([0.5, 0.5], "a number or 3 of them"),
        ({"rain": 0.5}, "lacks the labels 'sun'; 'never'"),
        ("high", "must be a number"),
    ):
        with pytest.raises(ValueError, match=words):
            fitted.set_params(threshold=bad).predict(X)


@pytest.mark.parametrize("classes", [["dry", "wet"], [False, True], [-1, 1], [0.0, 1.0]])
def test_a_vector_of_two_classes_is_a_binary_problem(classes: list[Any]) -> None:
    X, Y = table()
    y = np.array(classes)[Y["rain"]]
    fitted = toy().fit(X, y)
    assert fitted.classes_.tolist() == classes
    probs = fitted.predict_proba(X)
    assert probs.shape == (30, 2)
    np.testing.assert_allclose(probs[:, :1], 1 - probs[:, 1:])
    np.testing.assert_allclose(probs[:, 1:], toy().fit(X, Y[["rain"]]).predict_proba(X), rtol=1e-12)
    np.testing.assert_array_equal(fitted.predict(X), np.array(classes)[(probs[:, 1] > 0.5).astype(int)])
    assert fitted.predict_samples(X).shape == (1, 30, 1)
    assert fitted.score(X, y) == pytest.approx(toy().fit(X, Y[["rain"]]).score(X, Y[["rain"]]))
    gaps = pd.Series(y, name="weather").astype(object)
    gaps[4] = None
    assert toy().fit(X, gaps).label_names_.tolist() == ["weather"]
    column = toy().fit(X, Y[["rain"]]).predict(X)
    assert column.shape == (30, 1)


def test_vectors_that_are_no_classes_are_refused() -> None:
    X, _ = table()
    for y, words in (
        (np.linspace(0, 1, 30), "Unknown label type: continuous"),
        (np.full(30, "wet"), "y has 1 classes"),
        (np.full(30, np.nan), "no observed class"),
    ):
        with pytest.raises(ValueError, match=words):
            toy().fit(X, y)
    assert toy().fit(X, np.ones(30)).predict(X).tolist() == [1.0] * 30


def test_seeds_leave_the_global_state_alone() -> None:
    X, Y = table()
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    probs = logistic(random_state=3).fit(X, Y).predict_proba(X)
    np.testing.assert_array_equal(logistic(random_state=3).fit(X, Y).predict_proba(X), probs)
    for fresh in (lambda: None, lambda: RandomState(1), lambda: np.random.default_rng(1)):
        other = logistic(random_state=fresh()).fit(X, Y).predict_proba(X)
        assert np.abs(other - probs).max() > 0
    same = [logistic(random_state=RandomState(1)).fit(X, Y).predict_proba(X) for _ in range(2)]
    np.testing.assert_array_equal(*same)
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002
    with pytest.raises(ValueError, match="random_state must be None"):
        logistic(random_state=-1).fit(X, Y)


def test_the_best_labels_of_each_row() -> None:
    rng = np.random.default_rng(2)
    X, Y = rng.standard_normal((40, 3)), (rng.random((40, 9)) < 0.3).astype(int)
    fitted = toy().fit(X, Y)
    probs = fitted.predict_proba(X)
    for k in (1, 4, 9, 20):
        best = fitted.predict_topk(X, k, max_bytes=5000)
        order = np.argsort(-probs, axis=1, kind="stable")[:, : min(k, 9)]
        np.testing.assert_array_equal(best.labels, order)
        np.testing.assert_allclose(best.scores, np.take_along_axis(probs, order, axis=1), rtol=1e-12)
        assert best.num_labels == 9
    with pytest.raises(ValueError, match="k must be an integer of at least 1"):
        fitted.predict_topk(X, 0)
    tied = toy().fit(X, np.repeat(Y[:, :1], 5, axis=1)).predict_topk(X, 3)
    np.testing.assert_array_equal(tied.labels, np.tile(np.arange(3), (40, 1)))


def test_large_results_are_refused_before_they_are_made() -> None:
    X, Y = table()
    fitted = toy().fit(X, Y)
    with pytest.raises(ValueError, match="decision_function of 30 rows x 3 labels .* use predict_topk"):
        fitted.decision_function(X, max_bytes=100)
    with pytest.raises(ValueError, match="use predict_topk"):
        fitted.predict_proba(X, max_bytes=100)
    with pytest.raises(ValueError, match="above max_bytes"):
        fitted.predict_samples(X, max_bytes=100)
