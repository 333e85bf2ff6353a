"""Feature preparation: sparse stays sparse, names follow, nothing is learnt from test rows."""

import doctest
import importlib
import tracemalloc
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from labelzoo.data import LabelData
from labelzoo.inference.fit import fit
from labelzoo.models.spec import nan_columns, prepare_dense
from labelzoo.preparation import STEPS, AddIntercept, Standardise, prepare, prepare_data


def holes() -> np.ndarray:
    X = np.array([[1.0, 0, 0, 5], [0, 2, 0, np.nan], [np.nan, 0, 0, 7], [3, 0, 0, 0], [0, 4, 0, 0]])
    X[:, 2] = np.nan
    return X


def stored(X: np.ndarray, kind: Any = sparse.csr_array) -> Any:
    """Return X sparse, NaN stored as entries."""
    return kind(X)


@pytest.mark.parametrize("estimator", [Standardise(), AddIntercept()])
def test_own_transformers_pass_the_checks_of_scikit_learn(estimator: Any) -> None:
    results = check_estimator(estimator, on_fail=None, on_skip=None)
    assert not [f"{r['check_name']}: {r['exception']}" for r in results if r["status"] == "failed"]


@pytest.mark.parametrize("strategy", ["mean", "median", "most_frequent"])
@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csr_matrix, sparse.csc_array])
def test_sparse_zeros_are_values_and_gaps_are_filled_as_in_a_dense_table(kind: Any, strategy: str) -> None:
    X = holes()
    dense = prepare("impute", strategy=strategy).fit_transform(X)
    thin = prepare("impute", strategy=strategy).fit_transform(kind(X))
    assert sparse.issparse(thin)
    np.testing.assert_allclose(thin.toarray(), dense)
    np.testing.assert_array_equal(dense[:, 2], 0.0)  # a column without a value
    assert dense.shape == X.shape
    if strategy == "mean":
        assert dense[2, 0] == 1.0  # (1 + 0 + 3 + 0) / 4: the zeros count
        assert dense[1, 3] == 3.0


def test_indicators_of_gaps_are_columns_of_their_own() -> None:
    X = pd.DataFrame(holes(), columns=list("abcd"))
    step = prepare("impute", add_indicator=True)
    for table in (X, sparse.csr_array(X.to_numpy())):
        out = clone(step).fit(table).transform(table)
        dense = out.toarray() if sparse.issparse(out) else np.asarray(out)
        np.testing.assert_array_equal(dense[:, 4:], np.isnan(holes())[:, [0, 2, 3]])
    names = step.fit(X).get_feature_names_out()
    assert names.tolist()[:4] == list("abcd")
    assert [name for name in names[4:] if "missingindicator" in name] == list(names[4:])


def test_standardise_centres_dense_features_only() -> None:
    rng = np.random.default_rng(0)
    X = np.maximum(rng.standard_normal((50, 4)) + 0.5, 0.0)
    X[:, 3] = 2.0
    dense = prepare("standardise").fit_transform(X)
    np.testing.assert_allclose(dense[:, :3].mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(dense[:, :3].std(axis=0), 1.0)
    thin = prepare("standardise").fit(sparse.csr_array(X)).transform(sparse.csr_array(X))
    assert sparse.issparse(thin)
    assert thin.nnz == np.count_nonzero(X)
    np.testing.assert_allclose(thin.toarray()[:, :3], X[:, :3] / X[:, :3].std(axis=0))
    with pytest.raises(ValueError, match="X is sparse here and was dense in fit"):
        prepare("standardise").fit(X).transform(sparse.csr_array(X))
    with pytest.raises(NotFittedError):
        Standardise().transform(X)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array, sparse.csr_matrix, sparse.lil_matrix])
def test_the_intercept_is_a_last_column_of_ones(kind: Any) -> None:
    X = np.arange(6.0).reshape(3, 2)
    out = AddIntercept().fit(kind(X)).transform(kind(X))
    assert sparse.issparse(out) == sparse.issparse(kind(X))
    assert isinstance(out, sparse.sparray) == isinstance(kind(X), sparse.sparray)
    dense = out.toarray() if sparse.issparse(out) else out
    np.testing.assert_array_equal(dense, np.hstack([X, np.ones((3, 1))]))


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csr_matrix])
def test_no_step_densifies(kind: Any) -> None:
    X = sparse.random_array((20_000, 5_000), density=1e-4, rng=np.random.default_rng(1), format="csr")
    X.data[::7] = np.nan
    X = kind(X)
    tracemalloc.start()
    steps = prepare("impute", "max_abs", "standardise", "tfidf", "intercept")
    out = steps.fit(X).transform(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sparse.issparse(out)
    assert out.shape == (20_000, 5_001)
    assert peak < 50e6, f"{peak / 1e6:.0f} MB; dense takes 800"


def test_names_follow_frames_and_label_data() -> None:
    X = pd.DataFrame(holes(), columns=list("abcd"))
    steps = prepare("impute", "standardise", "intercept").fit(X)
    assert steps.get_feature_names_out().tolist() == ["a", "b", "c", "d", "(intercept)"]
    steps.set_output(transform="pandas")
    assert list(steps.fit(X).transform(X).columns) == ["a", "b", "c", "d", "(intercept)"]
    data = LabelData.from_arrays(X, np.eye(5, 2, dtype=int), allow_missing_features=True)
    ready = prepare_data(data, prepare("impute", "intercept"))
    assert ready.feature_names == ("a", "b", "c", "d", "(intercept)")
    assert not ready.has_missing_features
    assert ready.label_names == data.label_names
    np.testing.assert_array_equal(ready.Y.toarray(), data.Y.toarray())


@pytest.mark.parametrize("as_sparse", [False, True])
def test_nothing_is_learnt_from_test_rows(as_sparse: bool) -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.random((20, 3)), np.eye(20, 2, dtype=int)
    Y = Y.astype(float)
    Y[1] = np.nan
    changed = X.copy()
    changed[12:] *= 1000.0
    split = {"train_index": np.arange(12), "test_index": np.arange(12, 20)}
    wrap = sparse.csr_array if as_sparse else np.asarray
    first, second = (
        prepare_data(LabelData(wrap(x), Y, **split), prepare("standardise")) for x in (X, changed)
    )
    a, b = (d.X.toarray() if as_sparse else d.X for d in (first, second))
    np.testing.assert_array_equal(a[:12], b[:12])
    assert np.abs(a[12:] - b[12:]).min() > 0
    np.testing.assert_array_equal(first.train_index, np.arange(12))
    assert first.num_missing_cells == 2
    leaky = prepare_data(LabelData(wrap(changed), Y, **split), prepare("standardise"), fit="all")
    whole = leaky.X.toarray() if as_sparse else leaky.X
    assert np.abs(whole[:12] - a[:12]).max() > 0.1
    fitted = prepare("standardise").fit(wrap(X[:12]))
    later = prepare_data(LabelData(wrap(X), Y), fitted, fit=False)
    np.testing.assert_array_equal(later.X.toarray() if as_sparse else later.X, a)


def test_bad_steps_are_named() -> None:
    for steps, words in (
        (("scale",), "no preparation step 'scale'; steps: impute"),
        ((), "at least one step"),
        (("impute", "impute"), "a step twice"),
        (("intercept", "standardise"), "must come last"),
        ((3,), "a name or a transformer, got 3"),
    ):
        with pytest.raises(ValueError, match=words):
            prepare(*steps)
    with pytest.raises(ValueError, match="strategy must be"):
        prepare("impute", strategy="constant")
    assert [name for name, _ in prepare(*STEPS).steps] == list(STEPS)
    own = prepare(FunctionTransformer(np.log1p, feature_names_out="one-to-one"), "standardise")
    assert [name for name, _ in own.steps] == ["functiontransformer", "standardise"]
    data = LabelData(np.ones((3, 1)), np.eye(3, 1, dtype=int))
    with pytest.raises(ValueError, match="fit must be True, False or 'all'"):
        prepare_data(data, own, fit="test")
    with pytest.raises(ValueError, match="data must be a LabelData, got ndarray"):
        prepare_data(np.ones((3, 1)), own)
    with pytest.raises(NotFittedError):
        prepare_data(data, prepare("standardise"), fit=False)


@pytest.mark.parametrize("as_sparse", [False, True])
def test_models_refuse_gaps_with_columns_counts_and_the_fix(as_sparse: bool) -> None:
    X = sparse.csr_array(holes()) if as_sparse else holes()
    data = LabelData(
        X, np.eye(5, 2, dtype=int), feature_names=("a", "b", "c", "d"), allow_missing_features=True
    )
    words = r"7 in 3 columns: 'a' \(1\), 'c' \(5\), 'd' \(1\); .*labelzoo.preparation.prepare_data"
    with pytest.raises(ValueError, match=words):
        fit("label_logistic", data, "mean_field")
    with pytest.raises(ValueError, match=words):
        fit("bernoulli_poisson_topics", data, "map_em", num_topics=2)
    with pytest.raises(ValueError, match=words):
        prepare_dense(data, {})
    wide = np.full((2, 8), np.nan)
    assert nan_columns(wide).endswith("'feature 4' (2) and 3 more")


@pytest.mark.parametrize("module", ["labelzoo.preparation", "labelzoo.estimators.classifier"])
def test_examples_in_docstrings_run(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted > 0
    assert result.failed == 0
