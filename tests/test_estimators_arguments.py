"""The scikit-learn face given what it must refuse, explain: orders, masks, ranges, words, large sizes."""

import tracemalloc
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from labelzoo.estimators import LabelClassifier
from labelzoo.inference.predict import mean_prob
from labelzoo.preparation import prepare

pytestmark = pytest.mark.usefixtures("toy_model")


def table(rows: int = 30) -> tuple[pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.standard_normal((rows, 3)), columns=["a", "b", "c"])
    Y = pd.DataFrame((rng.random((rows, 3)) < 0.4).astype(int), columns=["rain", "sun", "never"])
    Y["never"] = 0
    return X, Y


def toy(**params: Any) -> LabelClassifier:
    return LabelClassifier(**{"model": "toy_ridge", "engine": "online", **params})


def test_series_and_frames_in_another_order_are_refused() -> None:
    X, Y = table()
    backwards = Y["rain"].iloc[::-1]
    fitted = toy().fit(X, Y["rain"])
    for call in (
        lambda: toy().fit(X, backwards),
        lambda: toy().partial_fit(X, backwards),
        lambda: fitted.partial_fit(X, backwards),
        lambda: fitted.score(X, backwards),
    ):
        with pytest.raises(ValueError, match=r"name their rows differently.*row 0: 0 and 29"):
            call()
    assert fitted.score(X, backwards.to_numpy()[::-1]) == fitted.score(X, Y["rain"])


def test_masked_arrays_keep_their_masks() -> None:
    X, Y = (frame.to_numpy(float) for frame in table())
    mask = np.zeros(X.shape, bool)
    mask[2:5, 1] = True
    masked = np.ma.MaskedArray(X, mask)
    fitted = toy().fit(X, Y)
    for call in (lambda: toy().fit(masked, Y), lambda: fitted.predict(masked)):
        with pytest.raises(
            ValueError, match=r"3 in 1 column: 'feature 1'.*prepare.*masked values as missing"
        ):
            call()
    ready = prepare("impute").fit_transform(masked)
    np.testing.assert_allclose(ready[2:5, 1], np.delete(X[:, 1], [2, 3, 4]).mean())
    assert toy().fit(np.ma.MaskedArray(X), Y).predict_proba(X).tolist() == fitted.predict_proba(X).tolist()
    hidden = np.ma.MaskedArray(Y, mask)
    gaps = np.where(mask, np.nan, Y)
    np.testing.assert_array_equal(toy().fit(X, hidden).predict_proba(X), toy().fit(X, gaps).predict_proba(X))


def test_arguments_out_of_range_are_named() -> None:
    X, Y = table()
    fitted = toy().fit(X, Y)
    for seed in (True, 2**70, 2**32, 1.5, "one"):
        with pytest.raises(ValueError, match="random_state must be None, an integer from 0"):
            toy(random_state=seed).fit(X, Y)
    assert toy(random_state=2**32 - 1).fit(X, Y).n_features_in_ == 3
    for count in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="num_draws must be None or an integer of at least 1"):
            fitted.predict_samples(X, count)
    for names in (5, (name for name in Y)):
        with pytest.raises(ValueError, match="label_names must be a list of names, got"):
            toy().fit(X, Y, label_names=names)
    with pytest.raises(ValueError, match="engine 'batch', but engine is now 'online'"):
        toy(engine="batch").fit(X, Y).set_params(engine="online").partial_fit(X, Y)
    for bad in ("a", "0.5", np.nan, [0.5, 0.5], np.full((3, 1), 0.5), {"rain": 0.5}, None, True):
        for call in (toy(threshold=bad).fit, fitted.set_params(threshold=bad).decision_function):
            with pytest.raises(ValueError, match="threshold"):
                call(*((X, Y) if call.__name__ == "fit" else (X,)))


def test_a_tie_with_the_threshold_is_no_positive() -> None:
    X, Y = table()
    fitted = toy().fit(X, Y, label_names=[*Y, "fog"])
    assert (fitted.predict_proba(X)[:, 3] == 0.5).all()
    assert not fitted.predict(X)[:, 3].any()


def test_the_word_of_transformers_is_understood_and_recoding_is_explained() -> None:
    X, Y = table()
    fitted = toy().fit(X, Y).set_output(transform="pandas")
    assert isinstance(fitted.predict(X), pd.DataFrame)
    with pytest.raises(ValueError, match="mean the same: give one"):
        fitted.set_output(predict="default", transform="pandas")
    with pytest.raises(ValueError, match=r"row 0, label 'rain': 2.*cross_val_predict.*loop over the folds"):
        toy().fit(X, Y.assign(rain=2))


def test_the_score_makes_no_table_of_rows_and_labels() -> None:
    rng = np.random.default_rng(0)
    rows, labels = 2000, 2000
    X = rng.standard_normal((rows, 1))
    Y = sparse.random_array((rows, labels), density=1e-3, rng=rng, format="csr")
    Y.data[:] = 1.0
    fitted = toy().fit(X[:20], Y[:20])
    fitted.score(X[:600], Y[:600])
    tracemalloc.start()
    found = fitted.score(X, Y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    probs = fitted.predict_proba(X)
    expected = np.where(Y.toarray() > 0, np.log(probs), np.log1p(-probs)).sum(axis=1).mean()
    assert found == pytest.approx(expected, rel=1e-10)
    assert peak < 8 * 512 * labels * 10, f"{peak / 1e6:.0f} MB"


@pytest.mark.parametrize("place", [50, -1, 2 * 10**9])
@pytest.mark.parametrize(
    "verb", ["fit", "predict", "predict_proba", "predict_topk", "predict_samples", "mean_prob"]
)
def test_sparse_rows_that_point_outside_are_refused(verb: str, place: int) -> None:
    """SciPy reads and writes wherever the stored positions say."""
    X, Y = table()
    fitted = toy().fit(sparse.csr_array(X.to_numpy()), Y)
    rows = sparse.csr_array(np.eye(len(X), 3))
    rows.indices[0] = place
    calls = {
        "fit": lambda: toy().fit(rows, Y),
        "predict_topk": lambda: fitted.predict_topk(rows, 2),
        "mean_prob": lambda: mean_prob(fitted.trace_, rows),
    }
    with pytest.raises(ValueError, match="X is no valid sparse matrix: columns outside 0..2"):
        calls.get(verb, lambda: getattr(fitted, verb)(rows))()
