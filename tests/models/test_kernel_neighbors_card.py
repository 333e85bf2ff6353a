"""The card of kernel_neighbors: what is read from data, refusals, prediction in both forms, functionals."""

import re
from typing import Any

import jax
import numpy as np
import pytest
from scipy import sparse

from labelzoo.data import LabelData
from labelzoo.inference.kernel_neighbors.dual import dual
from labelzoo.inference.kernel_neighbors.engines import coefficients_of, problems_of
from labelzoo.inference.kernel_neighbors.predict import probabilities
from labelzoo.models import kernel_neighbors_card, kernel_neighbors_predict
from labelzoo.models.gp_kernel import median_squared_distance
from labelzoo.models.kernel_neighbors import class_probs
from labelzoo.models.kernel_neighbors_card import functionals, spec
from labelzoo.models.kernel_neighbors_predict import (
    LEAST_SHARE,
    MAX_DRAWS,
    class_similarity,
    cross_kernel,
    kernel_of,
    label_table,
    log_score,
    mapped_rows,
    predict,
)
from labelzoo.models.spec import RepeatedWarning

RNG = np.random.default_rng(21)
X = RNG.normal(size=(12, 3))
CLASSES = np.array([0, 3, 1, 0, 3, 1, 1, 0, 3, 0, 1, 3])
ONE_HOT = np.eye(4, dtype=int)[CLASSES]
"""Label 2 is never seen."""
LABELS = np.column_stack([X[:, 0] > 0, np.ones(12), X[:, 1] > 0.2, np.zeros(12)]).astype(int)
"""Label 1 is in all rows, label 3 in none."""
NEW = RNG.normal(size=(5, 3))
WORDS = RNG.poisson(0.7, size=(12, 6)).astype(float) + np.eye(6)[np.arange(12) % 6]
NEW_WORDS = np.vstack([RNG.poisson(0.7, size=(4, 6)), np.zeros(6)]).astype(float)


def prepared(Y: Any = ONE_HOT, features: Any = X, **settings: Any) -> dict[str, Any]:
    return spec.prepare(LabelData.from_arrays(features, Y), spec.resolve(settings))


def kept(inputs: dict[str, Any], **settings: Any) -> dict[str, Any]:
    return {**spec.resolve(settings), **spec.constants(inputs)}


def draw_of(inputs: dict[str, Any]) -> dict[str, Any]:
    fits = [dual(problem) for problem in problems_of(inputs)]
    none = np.zeros((0, len(inputs["K0"])))
    return {"coefficients": np.concatenate([none, *(coefficients_of(fit) for fit in fits)])}


def spread(table: Any, even: float) -> Any:
    return (1 - LEAST_SHARE) * np.asarray(table) + LEAST_SHARE * even


def predicted(draw: dict[str, Any], rows: Any, constants: dict[str, Any]) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(jax.jit(lambda one: predict(one, rows, constants))(draw))


def test_classes_are_read_where_each_row_has_one_label() -> None:
    given = prepared()
    assert given["codes"].tolist() == [np.unique(CLASSES, return_inverse=True)[1].tolist()]
    assert given["num_classes"] == 3 and given["class_label"].tolist() == [0, 1, 3] and given["one_class"]
    assert (given["alpha"], given["beta"]) == pytest.approx((1.25 / 3, 0.3)) and given["price"] == 1.0
    assert prepared(form="classes")["codes"].tolist() == given["codes"].tolist()
    each = prepared(form="labels")
    assert not each["one_class"] and each["class_label"].tolist() == [0, 0, 1, 1, 3, 3]
    assert (each["codes"] == ONE_HOT.T[[0, 1, 3]]).all() and each["constant_prob"].tolist() == [0.0] * 4
    assert (each["alpha"], each["beta"]) == pytest.approx((0.625, 0.45))


def test_labels_are_read_where_rows_have_several_and_constant_ones_are_no_problem() -> None:
    given = prepared(LABELS)
    assert given["class_label"].tolist() == [0, 0, 2, 2] and not given["one_class"]
    assert (given["codes"] == LABELS.T[[0, 2]]).all() and given["num_classes"] == 2
    assert given["constant_prob"].tolist() == [0.0, 1.0, 0.0, 0.0]
    # One label that is in some rows is a problem, and in all rows none: there are no classes to tell apart.
    single = prepared(LABELS[:, :1])
    assert not single["one_class"] and single["codes"].shape == (1, 12)
    assert prepared(LABELS[:, 1:2])["codes"].shape == (0, 12)


def test_rows_without_labels_are_left_out_and_the_kernel_is_of_the_others() -> None:
    Y = ONE_HOT.astype(float)
    Y[[2, 7]] = np.nan
    given, rest = prepared(Y), np.delete(np.arange(12), [2, 7])
    assert given["fitted_row"].tolist() == rest.tolist()
    Z = (X[rest] - X[rest].mean(axis=0)) / X[rest].std(axis=0)
    far = ((Z[:, None] - Z) ** 2).sum(axis=-1)
    wanted = np.exp(-far / (2 * 0.3 * median_squared_distance(Z)))
    np.testing.assert_allclose(given["K0"], wanted, atol=1e-12)
    assert given["jitter_added"] == 0.0
    np.testing.assert_allclose(prepared(Y, jitter=0.01)["K0"], wanted + 0.01 * np.eye(10), atol=1e-12)
    wide = prepared(Y, length_factor=3.0)
    np.testing.assert_allclose(wide["K0"], wanted**0.1, atol=1e-12)


def test_gamma_is_in_units_of_the_mean_diagonal_before_jitter() -> None:
    assert prepared(gamma=0.5, jitter=1.0)["price"] == pytest.approx(0.5)
    assert prepared(gamma=None)["price"] == np.inf


FEATURES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "rbf": (X, NEW, {}),
    "dense cosine": (X, NEW, {"kernel": "cosine", "alpha": 0.4, "beta": 0.3}),
    "sparse cosine": (sparse.csr_array(WORDS), NEW_WORDS, {}),
    "sparse rbf": (sparse.csr_array(WORDS), NEW_WORDS, {"kernel": "rbf"}),
}


@pytest.mark.filterwarnings("ignore:the prior gives", "ignore:.*training rows have a total")
@pytest.mark.parametrize("name", FEATURES)
def test_predictions_are_those_of_the_array_core(name: str) -> None:
    features, new, settings = FEATURES[name]
    given = prepared(ONE_HOT, features, **settings)
    assert bool(given["is_cosine"]) == ("cosine" in name)
    constants = kept(given)
    (problem,) = problems_of(given)
    fit, draw = dual(problem), draw_of(given)
    kernel = kernel_of(constants)
    cross = kernel.of_mapped(mapped_rows(kernel, new), constants["mapped"])
    np.testing.assert_allclose(np.asarray(cross_kernel(new, constants)), cross, atol=1e-12)
    wanted = np.zeros((5, 4))
    wanted[:, [0, 1, 3]] = probabilities(fit, cross)
    found = predicted(draw, new, constants)
    np.testing.assert_allclose(found, spread(wanted, 0.25), atol=1e-8)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-12)
    kind = sparse.csr_array(new) if sparse.issparse(features) else new
    law = class_similarity({"coefficients": draw["coefficients"][None]}, kind, constants)
    assert law.similarity.shape == (1, 5, 1, 3) and law.one_class
    np.testing.assert_allclose(spread(law.probs()[:, 0], 0.25), found[:, [0, 1, 3]], atol=1e-8)
    if name == "sparse cosine":
        # The last new row has no word: nothing tells its classes apart, and the unseen one stays out.
        np.testing.assert_allclose(found[4], spread([1 / 3, 1 / 3, 0, 1 / 3], 0.25))


def test_labels_are_predicted_by_their_own_problems_and_constants_as_they_are() -> None:
    given = prepared(LABELS)
    constants, draw = kept(given), draw_of(given)
    cross = kernel_of(constants).between(NEW, X)
    found = predicted(draw, NEW, constants)
    for label, problem in zip((0, 2), problems_of(given), strict=True):
        wanted = spread(probabilities(dual(problem), cross)[:, 1], 0.5)
        np.testing.assert_allclose(found[:, label], wanted, atol=1e-8)
    np.testing.assert_allclose(found[:, [1, 3]], np.tile(spread([1.0, 0.0], 0.5), (5, 1)))
    law = class_similarity({"coefficients": draw["coefficients"][None]}, NEW, constants)
    assert law.similarity.shape == (1, 5, 2, 2) and not law.one_class
    np.testing.assert_allclose(spread(law.probs()[:, :, 1], 0.5), found[:, [0, 2]], atol=1e-8)


def test_without_a_problem_the_constants_are_predicted() -> None:
    given = prepared(np.tile([0, 1, 1], (12, 1)))
    constants, draw = kept(given), draw_of(given)
    assert given["codes"].shape == (0, 12) and draw["coefficients"].shape == (0, 12)
    wanted = np.tile(spread([0.0, 1.0, 1.0], 0.5), (5, 1))
    np.testing.assert_allclose(predicted(draw, NEW, constants), wanted)
    law = class_similarity({"coefficients": draw["coefficients"][None]}, NEW, constants)
    assert law.similarity.shape == (1, 5, 0, 2) and law.shape == (5, 0)


def test_one_class_alone_is_predicted_everywhere() -> None:
    given = prepared(np.tile([0, 1, 0], (12, 1)), form="classes")
    constants, draw = kept(given), draw_of(given)
    assert given["num_classes"] == 1 and given["class_label"].tolist() == [1]
    np.testing.assert_allclose(
        predicted(draw, NEW, constants), np.tile(spread([0, 1, 0], 1 / 3), (5, 1)), atol=1e-12
    )
    law = class_similarity({"coefficients": draw["coefficients"][None]}, NEW, constants)
    assert law.similarity.shape == (1, 5, 1, 1)


def test_the_table_of_labels_by_hand() -> None:
    base = {"class_label": np.array([2, 0]), "one_class": 1, "constant_prob": np.zeros(3)}
    shares = np.array([[[0.8, 0.2]], [[0.0, 1.0]]])
    wanted = spread([[0.2, 0.0, 0.8], [1.0, 0.0, 0.0]], 1 / 3)
    np.testing.assert_allclose(label_table(shares, base, np), wanted)
    many = {"class_label": np.array([1, 1, 0, 0]), "one_class": 0, "constant_prob": np.array([0.0, 0, 1])}
    shares = np.array([[[0.8, 0.2], [0.1, 0.9]]])
    np.testing.assert_allclose(label_table(shares, many, np), spread([[0.9, 0.2, 1.0]], 0.5))


@pytest.mark.parametrize("labels", [ONE_HOT, LABELS])
def test_log_scores_are_of_whole_rows(labels: Any) -> None:
    given = prepared(labels)
    constants, draw = kept(given), draw_of(given)
    held = labels[:5]
    new = spec.prepare(LabelData.from_arrays(NEW, held), spec.settings, constants)
    with jax.enable_x64(True):
        found = np.asarray(log_score(draw, new, jax.random.key(0)))
    p = predicted(draw, NEW, constants)
    if labels is ONE_HOT:
        wanted = np.log(p[np.arange(5), CLASSES[:5]])
    else:
        wanted = np.where(held, np.log(p), np.log1p(-p)).sum(axis=1)
    np.testing.assert_allclose(found, wanted, atol=1e-9)


def test_functionals_are_of_training_rows() -> None:
    given = prepared(LABELS)
    draw, n = draw_of(given), 12
    with jax.enable_x64(True):
        found = {name: np.asarray(value) for name, value in functionals(draw, given).items()}
    s = (draw["coefficients"] @ given["K0"]).reshape(2, 2, n)
    assert found["similarity"].shape == (48,) and found["own_share"].shape == (24,)
    np.testing.assert_allclose(found["similarity"], s.swapaxes(1, 2).ravel(), atol=1e-12)
    np.testing.assert_allclose(found["total"], s.sum(axis=1).mean(axis=1))
    shares = class_probs(s.swapaxes(1, 2))
    own = np.take_along_axis(shares, given["codes"][..., None], axis=-1)
    np.testing.assert_allclose(found["own_share"], own.ravel(), atol=1e-12)
    fit = dual(problems_of(given)[0])
    np.testing.assert_allclose(s[0].T, fit.similarity, atol=1e-9)
    rng = np.random.default_rng(22)
    many = prepared(np.tile(LABELS, (10, 1)), rng.normal(size=(120, 3)))
    thin = functionals({"coefficients": rng.normal(size=(4, 120))}, many)
    assert {len(thin["similarity"]), len(thin["own_share"])} == {60}
    none = functionals({"coefficients": np.zeros((0, n))}, prepared(np.tile([0, 1], (n, 1)), form="labels"))
    assert set(none) == {"num_problems"} and float(none["num_problems"]) == 0.0


def with_nan(row: int, label: int) -> Any:
    Y = ONE_HOT.astype(float)
    Y[row, label] = np.nan
    return Y


def with_labels(row: int, labels: list[int]) -> Any:
    Y = ONE_HOT.copy()
    Y[row] = labels
    return Y


ALIKE = np.vstack([X[:11], X[:1]])
"""The last row, of label 3, is on top of the first, of label 0."""
EMPTY_ROW = np.where(np.arange(12)[:, None] == 4, 0.0, WORDS)

BAD: list[tuple[Any, Any, dict[str, Any], str]] = [
    (
        with_nan(5, 1),
        X,
        {},
        "kernel_neighbors reads whole rows of labels, but 1 of 12 rows are observed in p",
    ),
    (with_nan(5, 1), X, {}, "the first being 'row 5', which lacks 'label 1'"),
    (np.full((12, 2), np.nan), X, {}, "kernel_neighbors needs at least one row of which every label is"),
    (
        with_labels(3, [0, 0, 0, 0]),
        X,
        {"form": "classes"},
        "form='classes': a row needs exactly one label, row 'row 3' has 0: set form='labels'",
    ),
    (
        with_labels(4, [1, 0, 1, 0]),
        X,
        {"form": "classes"},
        "form='classes': a row needs exactly one label, row 'row 4' has 2: set form='labels'",
    ),
    (ONE_HOT, ALIKE, {"gamma": None}, "rows 'row 0' and 'row 11' are alike in K0 and of classes 0 and 2"),
    (ONE_HOT, X, {"alpha": 1.0}, "alpha must be a number above 0 and below 1, got 1.0"),
    (ONE_HOT, X, {"alpha": "half"}, "alpha must be a number above 0 and below 1, got 'half'"),
    (ONE_HOT, X, {"beta": 0}, "beta must be a finite number above 0, got 0"),
    (ONE_HOT, X, {"beta": np.inf}, "beta must be a finite number above 0, got inf"),
    (ONE_HOT, X, {"gamma": 0.0}, "gamma must be a finite number above 0, or None, got 0.0"),
    (ONE_HOT, X, {"gamma": "soft"}, "gamma must be a finite number above 0, or None, got 'soft'"),
    (ONE_HOT, X, {"jitter": -1e-3}, "jitter must be a share of the mean diagonal, from 0 to 1, got -0.001"),
    (ONE_HOT, X, {"jitter": "some"}, "jitter must be a share of the mean diagonal, from 0 to 1, got 'some'"),
    (ONE_HOT, X, {"jitter": 1e300}, "jitter must be a share of the mean diagonal, from 0 to 1, got 1e+300"),
    (ONE_HOT, X, {"alpha": 1e-320}, "alpha must be at least 1e-09"),
    (ONE_HOT, X, {"beta": 1e-10}, "beta must be at least 1e-09"),
    (ONE_HOT, X, {"length_factor": 0.0}, "length_factor must be a number from 1e-06 to 1e+06, got 0.0"),
    (ONE_HOT, X, {"length_factor": 1e-300}, "length_factor must be a number from 1e-06 to 1e+06"),
    (ONE_HOT, X, {"length_factor": np.inf}, "length_factor must be a number from 1e-06 to 1e+06, got inf"),
    (ONE_HOT, X, {"form": "class"}, "form must be one of auto, classes, labels, got 'class'"),
    (ONE_HOT, X, {"negative": "raw"}, "has no setting 'negative'; settings: alpha, beta"),
    (ONE_HOT, X, {"kernel": "linear"}, "kernel must be one of auto, rbf, cosine, got 'linear'"),
    (ONE_HOT, X, {"positive_total": 1}, "positive_total must be True or False, got 1"),
    (ONE_HOT, X, {"drop_incomplete": "yes"}, "drop_incomplete must be True or False, got 'yes'"),
    (ONE_HOT, sparse.csr_array(EMPTY_ROW), {}, "X: labelled row 4 has no feature that the cosine kernel s"),
]


@pytest.mark.parametrize(("labels", "features", "settings", "message"), BAD)
def test_bad_input_is_refused(labels: Any, features: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        prepared(labels, features, **settings)


def test_problems_without_a_label_in_common_check_the_numbers_too() -> None:
    """Settings are checked even where no label makes a problem."""
    for settings, words in (({"gamma": -1.0}, "gamma must"), ({"jitter": -1.0}, "jitter must")):
        with pytest.raises(ValueError, match=words):
            prepared(np.tile([0, 1], (12, 1)), form="labels", **settings)


def test_partly_observed_rows_are_dropped_on_request() -> None:
    given = prepared(with_nan(5, 1), drop_incomplete=True)
    assert given["fitted_row"].tolist() == [0, 1, 2, 3, 4, *range(6, 12)]


def test_conflicting_duplicates_are_fine_at_a_price() -> None:
    given = prepared(ONE_HOT, ALIKE, gamma=1.0)
    assert given["jitter_added"] > 0 and np.linalg.eigvalsh(given["K0"]).min() > 0
    assert np.isfinite(draw_of(given)["coefficients"]).all()


def test_auto_warns_where_few_rows_make_it_take_labels() -> None:
    rng = np.random.default_rng(23)
    features, Y = rng.normal(size=(40, 3)), np.eye(4, dtype=int)[np.arange(40) % 4]
    for labels, words in (([1, 0, 1, 0], "'row 7' with 2"), ([0, 0, 0, 0], "'row 7' with 0")):
        Y[7] = labels
        with pytest.warns(RepeatedWarning, match=f"1 of 40 .*{words}: mend .* set form='labels' if this"):
            assert not prepared(Y, features)["one_class"]
        prepared(Y, features, form="labels")  # warnings are errors here: this says nothing
    two = np.eye(2, dtype=int)[np.arange(40) % 2]
    two[7] = 1
    prepared(two, features)
    Y[8] = 1
    with pytest.warns(RepeatedWarning, match="2 of 40 rows"):
        prepared(Y, features)
    Y[30:33] = 1
    prepared(Y, features)


def test_missing_features_are_refused() -> None:
    features = X.copy()
    features[4, 1] = np.nan
    holed = LabelData.from_arrays(features, ONE_HOT, allow_missing_features=True)
    with pytest.raises(ValueError, match="1 in 1 column: 'feature 1'.*kernel_neighbors has no model for"):
        spec.prepare(holed, spec.settings)


def test_more_rows_than_fit_are_refused_before_any_work() -> None:
    many = LabelData.from_arrays(np.zeros((20_000, 1)), np.zeros((20_000, 2)))
    with pytest.raises(ValueError, match="kernel_neighbors keeps its 20000 rows with labels as dense tables"):
        spec.prepare(many, spec.settings)


def test_held_out_rows_need_one_label_where_the_training_rows_have_one() -> None:
    constants = kept(prepared())
    for labels, count in (([1, 0, 1, 0], 2), ([0, 0, 0, 0], 0)):
        held = LabelData.from_arrays(NEW, np.vstack([ONE_HOT[:4], labels]))
        with pytest.raises(
            ValueError, match=f"training rows have one class each: .*'row 4' has {count}: set"
        ):
            spec.prepare(held, spec.settings, constants)
    both = prepared(LABELS)
    assert spec.prepare(LabelData.from_arrays(NEW, LABELS[:5]), spec.settings, kept(both))["Y_new"].shape == (
        5,
        4,
    )


def test_negative_similarities_count_as_zero_in_predictions_and_scores() -> None:
    """Shares of raw similarities leave the unit interval, and would be no probabilities."""
    given = prepared()
    draw = {"coefficients": np.outer([0.1, 0.2, -0.05], np.ones(12))}
    law = class_similarity({"coefficients": draw["coefficients"][None]}, NEW, kept(given))
    assert law.probs("raw").min() < 0 and law.probs("raw").max() > 0.75
    p = predicted(draw, NEW, kept(given))
    np.testing.assert_allclose(p, np.tile(spread([1 / 3, 2 / 3, 0, 0], 0.25), (5, 1)), atol=1e-12)
    held = LabelData.from_arrays(NEW, ONE_HOT[:5])
    new = spec.prepare(held, spec.settings, kept(given))
    with jax.enable_x64(True):
        found = np.asarray(log_score(draw, new, jax.random.key(0)))
    np.testing.assert_allclose(found, np.log(p[np.arange(5), CLASSES[:5]]))


def test_long_posteriors_are_thinned_and_large_tables_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    given = prepared()
    draws = {"coefficients": np.arange(1000.0)[:, None, None] * np.ones((1, 3, 12))}
    law = class_similarity(draws, NEW, kept(given))
    assert law.similarity.shape == (MAX_DRAWS, 5, 1, 3)
    ends = law.similarity[[0, -1], 0, 0, 0]
    assert ends[0] == 0.0
    whole = class_similarity({"coefficients": draws["coefficients"][-1:]}, NEW, kept(given))
    np.testing.assert_allclose(ends[1], whole.similarity[0, 0, 0, 0])
    monkeypatch.setattr(kernel_neighbors_predict, "MAX_DENSE_BYTES", 8 * 5 * MAX_DRAWS * 3 - 1)
    with pytest.raises(ValueError, match="X: the similarities of 5 rows to 3 classes over 400 draws take"):
        class_similarity(draws, NEW, kept(given))


def test_the_cap_counts_features_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_neighbors_card, "MAX_DENSE_BYTES", 8 * 12 * 12)
    prepared()
    wide = np.column_stack([X, np.zeros((12, 10))])
    with pytest.raises(ValueError, match="rows x 13 features"):
        prepared(ONE_HOT, wide)
