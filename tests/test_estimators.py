"""The scikit-learn face."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from labelzoo.estimators import LabelClassifier


def table(rows: int = 30) -> tuple[pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.standard_normal((rows, 3)), columns=["a", "b", "c"])
    Y = pd.DataFrame((rng.random((rows, 3)) < 0.4).astype(int), columns=["rain", "sun", "never"])
    Y["never"] = 0
    return X, Y


def classifier() -> LabelClassifier:
    return LabelClassifier(model="bernoulli_poisson_topics", engine="map_em", num_topics=2, max_iter=10)


def test_fit_predict_keep_names_and_widths() -> None:
    X, Y = table()
    fitted = classifier().fit(X, Y)
    assert fitted.classes_.tolist() == ["rain", "sun", "never"]
    assert fitted.feature_names_in_.tolist() == ["a", "b", "c"]
    probs = fitted.predict_proba(X)
    assert probs.shape == (30, 3)
    assert ((probs >= 0) & (probs <= 1)).all()
    labels = fitted.predict(X)
    assert labels.dtype == np.int8
    np.testing.assert_array_equal(labels, probs >= 0.5)
    assert fitted.predict_samples(X).shape == (1, 30, 3)
    assert fitted.score(X, Y) < 0


def test_sparse_labels_give_sparse_predictions() -> None:
    X, Y = table()
    fitted = classifier().fit(X.to_numpy(), sparse.csr_array(Y.to_numpy()))
    assert sparse.issparse(fitted.predict(X.to_numpy()))


def test_clone_and_parameters_round_trip() -> None:
    first = classifier()
    again = clone(first)
    assert again.get_params() == first.get_params()
    assert again.set_params(num_topics=3, random_state=5).get_params()["num_topics"] == 3
    assert first.get_params()["num_topics"] == 2
    assert first.num_topics == 2
    X, Y = table()
    np.testing.assert_array_equal(first.fit(X, Y).predict_proba(X), clone(first).fit(X, Y).predict_proba(X))


def test_bad_calls_are_named() -> None:
    X, Y = table()
    with pytest.raises(NotFittedError):
        classifier().predict(X)
    with pytest.raises(ValueError, match="knows no setting 'nope'"):
        LabelClassifier(model="bernoulli_poisson_topics", engine="map_em", nope=1).fit(X, Y)
    fitted = classifier().fit(X, Y)
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.predict(X[["b", "a", "c"]])
    with pytest.raises(ValueError, match="fitted on 3 features"):
        fitted.predict(X.to_numpy()[:, :2])
