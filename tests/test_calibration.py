"""Slope and intercept on the logit scale, held against scikit-learn, and the refusal of overlapping rows."""

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from labelzoo.calibration import calibrate
from labelzoo.data import LabelData


def table(n: int = 60, seed: int = 0, prefix: str = "c", missing: bool = False) -> tuple[LabelData, Any]:
    rng = np.random.default_rng(seed)
    logit = rng.normal(-1, 2, (n, 4))
    Y = (rng.random((n, 4)) < 1 / (1 + np.exp(-(0.5 + 0.6 * logit)))).astype(float)
    if missing:
        Y[rng.random(Y.shape) < 0.3] = np.nan
    names = [f"{prefix}{i}" for i in range(n)]
    return LabelData.from_arrays(rng.standard_normal((n, 2)), Y, example_names=names), 1 / (
        1 + np.exp(-logit)
    )


@pytest.mark.parametrize("missing", [False, True])
def test_fit_equals_unpenalised_logistic_regression(missing: bool) -> None:
    data, probs = table(missing=missing)
    found = calibrate(probs, data, apart_from=["t1", "t2"])
    seen = data.observed_mask()
    logit = np.log(probs[seen] / (1 - probs[seen]))
    model = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(logit[:, None], data.Y.toarray()[seen])
    assert np.isclose(found.slope, model.coef_[0, 0], atol=1e-5)
    assert np.isclose(found.intercept, model.intercept_[0], atol=1e-5)
    assert found.num_cells == seen.sum()
    assert found.log_score_after > found.log_score_before
    again = calibrate(found.apply(probs), data, apart_from=[])
    assert np.isclose(again.slope, 1, atol=1e-6)
    assert np.isclose(again.intercept, 0, atol=1e-6)
    assert np.isclose(again.log_score_before, found.log_score_after)


def test_it_recovers_the_pair_that_made_the_labels() -> None:
    data, probs = table(5000, seed=3)
    found = calibrate(probs, data, apart_from=[])
    assert abs(found.slope - 0.6) < 0.03
    assert abs(found.intercept - 0.5) < 0.08


def test_shared_rows_are_refused() -> None:
    data, probs = table()
    test, _ = table(5, prefix="t")
    calibrate(probs, data, apart_from=test)
    with pytest.raises(ValueError, match="1 of 60 calibration rows are in apart_from too"):
        calibrate(probs, data, apart_from=[test, ["c7"]])
    with pytest.raises(ValueError, match="60 of 60 calibration rows"):
        calibrate(probs, data, apart_from=data)
    with pytest.raises(ValueError, match="apart_from must be"):
        calibrate(probs, data, apart_from="c7")


def test_bad_input_is_named() -> None:
    data, probs = table()
    with pytest.raises(ValueError, match="probs has shape"):
        calibrate(probs[1:], data, apart_from=[])
    wrong = probs.copy()
    wrong[3, 2] = 1.5
    with pytest.raises(ValueError, match=r"got 1.5 at \(3, 2\)"):
        calibrate(wrong, data, apart_from=[])
    with pytest.raises(ValueError, match="all positive or all zero"):
        calibrate(probs, LabelData.from_arrays(data.X, np.zeros((60, 4))), apart_from=[])
    with pytest.raises(ValueError, match="without error"):
        calibrate(np.where(data.Y.toarray() > 0, 0.8, 0.2), data, apart_from=[])


def test_certain_probabilities_stay_finite() -> None:
    data, probs = table()
    probs[0] = [0, 1, 0, 1]
    found = calibrate(probs, data, apart_from=[])
    assert np.isfinite([found.slope, found.intercept, found.log_score_before]).all()
    assert np.isfinite(found.apply(probs)).all()
