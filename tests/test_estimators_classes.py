"""The scikit-learn face given vectors of classes, and models that give each row one label."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from labelzoo.estimators import LabelClassifier

pytestmark = pytest.mark.usefixtures("toy_model")


def table() -> tuple[pd.DataFrame, np.ndarray]:
    """Forty rows, and the place of the largest of three features."""
    X = pd.DataFrame(np.random.default_rng(0).standard_normal((40, 3)), columns=["a", "b", "c"])
    return X, X.to_numpy().argmax(axis=1)


def toy(**params: Any) -> LabelClassifier:
    return LabelClassifier(**{"model": "toy_ridge", "engine": "online", **params})


@pytest.mark.parametrize("classes", [["dry", "ice", "wet"], [-1, 0, 7], [0.0, 1.0, 2.0]])
def test_a_vector_of_more_classes_is_a_label_each(classes: list[Any]) -> None:
    X, codes = table()
    y = np.array(classes)[codes]
    fitted = toy().fit(X, y)
    assert fitted.classes_.tolist() == classes
    names = [str(int(c)) if isinstance(c, float) else str(c) for c in classes]
    assert fitted.label_names_.tolist() == names
    each = toy().fit(X, np.eye(3)[codes])
    alone, probs = each.predict_proba(X), fitted.predict_proba(X)
    np.testing.assert_allclose(probs, alone / alone.sum(axis=1, keepdims=True), rtol=1e-12)
    found = fitted.predict(X)
    np.testing.assert_array_equal(found, np.array(classes)[probs.argmax(axis=1)])
    assert found.shape == (40,) and (found == y).mean() > 0.8
    np.testing.assert_allclose(fitted.decision_function(X), each.decision_function(X))
    assert fitted.score(X, y) == pytest.approx(np.log(probs[np.arange(40), codes]).mean())
    wide = fitted.set_output(predict="pandas")
    assert list(wide.predict_proba(X).columns) == classes and isinstance(wide.predict(X), pd.Series)
    # A label with a lower threshold than the others is given more readily.
    fitted.set_output(predict="default").set_params(threshold=[0.001, 0.9, 0.9])
    assert (fitted.predict(X) == classes[0]).all()


def test_gaps_among_classes_are_rows_without_a_label() -> None:
    X, codes = table()
    y = pd.Series(np.array(["dry", "ice", "wet"])[codes]).astype(object)
    holed = y.copy()
    holed[[3, 8]] = [None, np.nan]
    fitted = toy().fit(X, holed)
    seen = holed.notna().to_numpy()
    np.testing.assert_allclose(
        fitted.predict_proba(X), toy().fit(X[seen], y[seen]).predict_proba(X), rtol=1e-9
    )
    assert fitted.score(X, holed) == pytest.approx(fitted.score(X[seen], y[seen]))
    with pytest.raises(ValueError, match="label_names is for tables and two classes"):
        toy().fit(X, y, label_names=["dry", "ice", "wet", "hail"])


def test_batches_of_classes_know_them_beforehand() -> None:
    X, codes = table()
    y = np.array(["dry", "ice", "wet"])[codes]
    first = np.flatnonzero(y != "ice")[:5]
    rest = np.setdiff1d(np.arange(40), first)
    batches = toy().partial_fit(X.iloc[first], y[first], classes=["wet", "ice", "dry"])
    batches.partial_fit(X.iloc[rest], y[rest])
    np.testing.assert_allclose(batches.predict_proba(X), toy().fit(X, y).predict_proba(X), rtol=1e-9)
    with pytest.raises(ValueError, match="y has classes that are not among the .* known: 'hail'"):
        batches.partial_fit(X.iloc[rest], np.full(len(rest), "hail"))


def blobs() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    codes = np.arange(40) % 4
    return 2.0 * np.eye(4)[codes][:, :3] + 0.4 * rng.standard_normal((40, 3)), codes


@pytest.mark.parametrize("as_sparse", [False, True])
def test_where_the_model_gives_rows_one_label_the_most_probable_is_predicted(as_sparse: bool) -> None:
    X, codes = blobs()
    Y = np.eye(4, dtype=int)[codes]
    fitted = LabelClassifier("kernel_neighbors", "dual").fit(X, sparse.csr_array(Y) if as_sparse else Y)
    probs, labels = fitted.predict_proba(X), fitted.predict(X)
    assert sparse.issparse(labels) == as_sparse and labels.dtype == np.int8
    labels = labels.toarray() if as_sparse else labels
    assert (probs.max(axis=1) < 0.5).any(), "a cut at one half would leave rows without a label"
    np.testing.assert_array_equal(labels, np.eye(4)[probs.argmax(axis=1)])
    assert (labels == Y).all(axis=1).mean() > 0.9
    words = np.array(["n", "e", "w", "s"])[codes]
    named = LabelClassifier("kernel_neighbors", "dual").fit(X, words)
    assert named.classes_.tolist() == ["e", "n", "s", "w"]
    np.testing.assert_array_equal(named.predict(X), np.array(["n", "e", "w", "s"])[probs.argmax(axis=1)])
    np.testing.assert_allclose(named.predict_proba(X).sum(axis=1), 1.0)
    assert named.score(X, words) == pytest.approx(np.log(probs[np.arange(40), codes]).mean(), abs=1e-6)


def test_where_rows_have_several_labels_they_are_cut_one_by_one() -> None:
    X, codes = blobs()
    Y = np.eye(4, dtype=int)[codes]
    Y[:20, 3] = 1
    fitted = LabelClassifier("kernel_neighbors", "dual").fit(X, Y)
    np.testing.assert_array_equal(fitted.predict(X), fitted.predict_proba(X) > 0.5)
